//! Descriptors of our own: unlinked files and memfds, and whether a number still names them.
//!
//! Programs close every descriptor (`closefrom`, daemons, shells) and get the same numbers again
//! for files of their own. So a number is kept with the identity of what it named, and that is
//! checked before each use. Between check and use another thread may still close and reopen; the
//! window is one system call wide and cannot be closed from user space.

use super::errno::Errno;
use super::limits;
use super::sys::{call, call_retrying};
use core::ffi::CStr;
use core::mem::MaybeUninit;
use libc::c_int;

/// A descriptor's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd(c_int);

impl Fd {
    pub const STDERR: Fd = Fd(2);

    #[cfg(test)]
    pub(super) const fn of_raw(number: c_int) -> Fd {
        Fd(number)
    }

    pub(super) const fn number(self) -> c_int {
        self.0
    }

    pub(super) fn status(self) -> Result<libc::stat, Errno> {
        let mut status = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills the struct, whose layout is its own on 64-bit targets.
        unsafe {
            call(
                libc::SYS_fstat,
                [self.0 as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0],
            )?;
            Ok(status.assume_init())
        }
    }

    pub(super) fn close(self) {
        // SAFETY: closing frees no memory. Linux closes even when it says EINTR, so no retry.
        let _ = unsafe { call(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// What a descriptor names, whatever its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub const fn inode(self) -> u64 {
        self.inode
    }
}

/// A descriptor that we opened, with what it named then. It is a plain value and closes nothing
/// when dropped: the number may be somebody else's by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    fd: Fd,
    identity: Identity,
}

impl Held {
    /// Takes a fresh descriptor over and moves it away from the numbers that programs count on
    /// (shells use 10 and up, `select` ends at 1024, test suites assert the lowest free number).
    fn adopt(fresh: Fd) -> Result<Held, Errno> {
        let status = match fresh.status() {
            Ok(status) => status,
            Err(error) => {
                fresh.close();
                return Err(error);
            }
        };
        let identity = Identity {
            device: status.st_dev,
            inode: status.st_ino,
        };
        Ok(Held {
            fd: raised(fresh),
            identity,
        })
    }

    pub const fn fd(&self) -> Fd {
        self.fd
    }

    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether the number still names what we opened.
    pub fn still_mine(&self) -> bool {
        self.fd.status().is_ok_and(|now| {
            now.st_dev == self.identity.device && now.st_ino == self.identity.inode
        })
    }

    /// Closes the descriptor unless it is somebody else's by now.
    pub fn close(self) {
        if self.still_mine() {
            self.fd.close();
        }
    }
}

/// The same file under a number of at least 1000, else 512, else 128, as RLIMIT_NOFILE allows;
/// where none is free the number stays.
fn raised(low: Fd) -> Fd {
    for floor in [1000, 512, 128] {
        if low.0 >= floor {
            break;
        }
        let args = [
            low.0 as usize,
            libc::F_DUPFD_CLOEXEC as usize,
            floor as usize,
            0,
            0,
            0,
        ];
        // SAFETY: fcntl with F_DUPFD_CLOEXEC touches no memory.
        if let Ok(number) = unsafe { call(libc::SYS_fcntl, args) } {
            low.close();
            return Fd(number as c_int);
        }
    }
    low
}

fn openat(dir: c_int, path: &CStr, flags: c_int, mode: u32) -> Result<Fd, Errno> {
    let args = [
        dir as usize,
        path.as_ptr() as usize,
        (flags | libc::O_CLOEXEC) as usize,
        mode as usize,
        0,
        0,
    ];
    // SAFETY: `path` is a terminated string that outlives the call.
    unsafe { call_retrying(libc::SYS_openat, args) }.map(|fd| Fd(fd as c_int))
}

/// Opens a file to append to, making it if need be (mode 0666 less the umask).
pub fn append_to(path: &CStr) -> Result<Held, Errno> {
    Held::adopt(openat(
        libc::AT_FDCWD,
        path,
        libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT,
        0o666,
    )?)
}

/// A new file in `dir` that has no name: it goes when the last mapping and descriptor do, be it
/// by `exit`, a crash or the power switch. Mode 0600, close-on-exec.
pub fn unlinked_in(dir: &CStr) -> Result<Held, Errno> {
    // O_EXCL: nobody can give the file a name later (linkat through /proc).
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL;
    match openat(libc::AT_FDCWD, dir, flags, 0o600) {
        Ok(fd) => Held::adopt(fd),
        // What kernels and file systems without O_TMPFILE say: a directory opened for writing,
        // an unsupported operation, an unknown flag.
        Err(Errno::ISDIR | Errno::OPNOTSUPP | Errno::INVAL) => named_then_unlinked(dir),
        Err(error) => Err(error),
    }
}

/// `unlinked_in` for file systems without O_TMPFILE. A kill between the two calls leaves an empty
/// file behind.
fn named_then_unlinked(dir: &CStr) -> Result<Held, Errno> {
    let dir = openat(libc::AT_FDCWD, dir, libc::O_PATH | libc::O_DIRECTORY, 0)?;
    let mut made = Err(Errno::EXIST);
    // A name taken is as good as impossible with 64 random bits; a few tries cover the rest.
    for _ in 0..8 {
        let mut name = *b".tierheap-0000000000000000\0";
        let mut bits = limits::random();
        for digit in name.iter_mut().rev().skip(1).take(16) {
            *digit = b"0123456789abcdef"
                .get((bits & 15) as usize)
                .copied()
                .unwrap_or(b'0');
            bits >>= 4;
        }
        let Ok(path) = CStr::from_bytes_with_nul(&name) else {
            break;
        };
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        made = openat(dir.0, path, flags, 0o600);
        if made.is_ok() {
            // SAFETY: `path` is a terminated string that outlives the call.
            let unlinked = unsafe {
                call(
                    libc::SYS_unlinkat,
                    [dir.0 as usize, path.as_ptr() as usize, 0, 0, 0, 0],
                )
            };
            if let (Ok(fd), Err(error)) = (made, unlinked) {
                // A named file would outlive the process: no tier rather than that.
                fd.close();
                made = Err(error);
            }
            break;
        }
        if made != Err(Errno::EXIST) {
            break;
        }
    }
    dir.close();
    made.and_then(Held::adopt)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seals {
    Forbidden,
    Allowed,
}

/// Memory with a descriptor, named `tierheap` in /proc/PID/maps.
pub fn memfd(seals: Seals) -> Result<Held, Errno> {
    let name = c"tierheap";
    let flags = match seals {
        Seals::Forbidden => libc::MFD_CLOEXEC,
        Seals::Allowed => libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
    };
    let args = [name.as_ptr() as usize, flags as usize, 0, 0, 0, 0];
    // SAFETY: `name` is a terminated string.
    let fd = unsafe { call(libc::SYS_memfd_create, args) }?;
    Held::adopt(Fd(fd as c_int))
}

/// Whether nobody has this memfd mapped for writing: the seal is refused with EBUSY while a
/// shared writable mapping exists in any process, and once it holds, none can ever be made again.
/// Costs 0.2 microseconds. Any other error counts as "not known".
pub fn seal_against_writing(held: &Held) -> Result<(), Errno> {
    let args = [
        held.fd.0 as usize,
        libc::F_ADD_SEALS as usize,
        libc::F_SEAL_WRITE as usize,
        0,
        0,
        0,
    ];
    // SAFETY: fcntl with F_ADD_SEALS touches no memory.
    unsafe { call(libc::SYS_fcntl, args) }.map(drop)
}

/// Reads a small file (of /proc or /sys) from its start into `buf`; what does not fit is cut.
pub fn read_small<'b>(path: &CStr, buf: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    let mut filled = 0;
    read_through(path, |byte| {
        if let Some(slot) = buf.get_mut(filled) {
            *slot = byte;
            filled += 1;
        }
    })?;
    Ok(buf.get(..filled).unwrap_or(&[]))
}

/// A folder, to be read or to open files in.
pub(super) fn open_folder(path: &CStr) -> Result<Fd, Errno> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    openat(libc::AT_FDCWD, path, flags, 0)
}

/// The beginning of a file in a folder, by one read: for files of /proc that are made as a whole.
pub(super) fn read_at<'b>(folder: Fd, path: &CStr, buf: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    let fd = openat(folder.0, path, libc::O_RDONLY, 0)?;
    let args = [fd.0 as usize, buf.as_mut_ptr() as usize, buf.len(), 0, 0, 0];
    // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
    let read = unsafe { call_retrying(libc::SYS_read, args) };
    fd.close();
    Ok(buf.get(..read?).unwrap_or(&[]))
}

/// Hands each byte of a file to `take`.
pub fn read_through(path: &CStr, mut take: impl FnMut(u8)) -> Result<(), Errno> {
    let fd = openat(libc::AT_FDCWD, path, libc::O_RDONLY, 0)?;
    let mut buf = [0u8; 1024];
    let outcome = loop {
        let args = [fd.0 as usize, (&raw mut buf) as usize, buf.len(), 0, 0, 0];
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
        match unsafe { call_retrying(libc::SYS_read, args) } {
            Ok(0) => break Ok(()),
            Ok(n) => buf.iter().take(n).for_each(|&byte| take(byte)),
            Err(error) => break Err(error),
        }
    };
    fd.close();
    outcome
}

/// A descriptor of an existing file, to be closed by the caller.
pub(super) fn open_to_read(path: &CStr) -> Result<Fd, Errno> {
    openat(libc::AT_FDCWD, path, libc::O_RDONLY, 0)
}

/// `path` as an absolute one, terminated, in `buf`: a tier's directory is opened again after a
/// fork, when the program may long be in another working directory. ERANGE when it does not fit.
pub fn absolute<'b>(path: &[u8], buf: &'b mut [u8]) -> Result<&'b CStr, Errno> {
    let mut len = 0;
    if path.first() != Some(&b'/') {
        let args = [buf.as_mut_ptr() as usize, buf.len(), 0, 0, 0, 0];
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
        let with_nul = unsafe { call(libc::SYS_getcwd, args) }?;
        len = with_nul.saturating_sub(1);
        // A directory that is not below the root (a lazy unmount) is "(unreachable)/...".
        if buf.first() != Some(&b'/') {
            return Err(Errno::NOENT);
        }
        *buf.get_mut(len).ok_or(Errno::RANGE)? = b'/';
        len += 1;
    }
    let end = len + path.len();
    buf.get_mut(len..end)
        .ok_or(Errno::RANGE)?
        .copy_from_slice(path);
    *buf.get_mut(end).ok_or(Errno::RANGE)? = 0;
    // A NUL inside the path fails here.
    CStr::from_bytes_with_nul(buf.get(..=end).unwrap_or(&[])).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PAGE;
    use crate::os::testing::{self, Ended, in_child, leaked};
    use crate::os::{map, space};
    use std::os::unix::ffi::OsStrExt;

    fn is_close_on_exec(fd: Fd) -> bool {
        // SAFETY: no memory is touched.
        let flags = unsafe { libc::fcntl(fd.number(), libc::F_GETFD) };
        flags >= 0 && flags & libc::FD_CLOEXEC != 0
    }

    #[test]
    fn files_have_no_name_are_private_and_stay_out_of_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let dir_c = leaked(dir.path());
        let made = [
            unlinked_in(dir_c).unwrap(),
            named_then_unlinked(dir_c).unwrap(),
            memfd(Seals::Allowed).unwrap(),
        ];
        for held in made {
            let status = held.fd().status().unwrap();
            assert!(
                status.st_nlink == 0 || status.st_mode & 0o777 == 0o777,
                "a memfd is 0777"
            );
            if status.st_nlink == 0 && status.st_mode & 0o777 != 0o777 {
                assert_eq!(status.st_mode & 0o777, 0o600);
            }
            assert!(is_close_on_exec(held.fd()));
            assert!(held.fd().number() >= 128, "{:?}", held.fd());
            assert!(held.still_mine());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_ne!(made[0].identity(), made[1].identity());
        made.iter().for_each(|held| held.close());
        assert!(made.iter().all(|held| !held.still_mine()));
    }

    #[test]
    fn the_number_is_raised_as_far_as_the_limit_allows() {
        for (limit, at_least, below) in [
            (2000, 1000, 2000),
            (1000, 512, 1000),
            (300, 128, 300),
            (100, 3, 100),
        ] {
            let ended = in_child(|| {
                testing::close_all();
                testing::limit_descriptors(limit);
                let held = memfd(Seals::Forbidden).unwrap();
                (at_least..below).contains(&held.fd().number()) && is_close_on_exec(held.fd())
            });
            assert_eq!(ended, Ended::Exit(0), "limit {limit}");
        }
    }

    #[test]
    fn a_foreign_descriptor_is_never_closed() {
        let held = memfd(Seals::Forbidden).unwrap();
        let foreign = tempfile::tempfile().unwrap();
        testing::replace_descriptor(held.fd(), &foreign);
        assert!(!held.still_mine());
        held.close();
        assert!(held.fd().status().is_ok(), "it still is the program's");
        testing::close_descriptor(held.fd());
    }

    #[test]
    fn a_seal_holds_off_until_the_last_writable_mapping_goes() {
        let held = memfd(Seals::Allowed).unwrap();
        space::set_size(&held, PAGE).unwrap();
        let page = map::file_shared_anywhere(PAGE, held.fd(), crate::base::Bytes::ZERO).unwrap();
        assert_eq!(seal_against_writing(&held), Err(Errno::BUSY));
        // SAFETY: mapped above.
        unsafe { map::unmap(page, PAGE).unwrap() };
        assert_eq!(seal_against_writing(&held), Ok(()));
        let unsealable = memfd(Seals::Forbidden).unwrap();
        assert_eq!(seal_against_writing(&unsealable), Err(Errno::PERM));
        held.close();
        unsealable.close();
    }

    #[test]
    fn paths_become_absolute() {
        let mut buf = [0; 4096];
        assert_eq!(absolute(b"/a/b", &mut buf).unwrap(), c"/a/b");
        let here = std::env::current_dir().unwrap();
        let there = absolute(b"x y", &mut buf).unwrap();
        assert_eq!(there.to_bytes(), here.join("x y").as_os_str().as_bytes());
        assert_eq!(absolute(b"/a/b", &mut buf[..4]), Err(Errno::RANGE));
        assert_eq!(absolute(b"a", &mut buf[..3]), Err(Errno::RANGE));
        assert_eq!(absolute(b"/a\0b", &mut buf), Err(Errno::INVAL));
    }

    #[test]
    fn small_files_are_read_to_the_end_or_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let text: std::vec::Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &text).unwrap();
        let mut buf = [0; 6000];
        assert_eq!(read_small(leaked(&path), &mut buf).unwrap(), &text[..]);
        assert_eq!(
            read_small(leaked(&path), &mut buf[..100]).unwrap(),
            &text[..100]
        );
        assert_eq!(read_small(c"/nonexistent/x", &mut buf), Err(Errno::NOENT));
    }
}
