//! What tests need of the system: children, closed descriptors, limits, small disks.

use std::borrow::ToOwned;
use std::ffi::{CString, OsStr};
use std::format;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Exit(i32),
    Signal(i32),
}

#[derive(Clone, Copy)]
pub enum How {
    /// With the handlers of `pthread_atfork`.
    Fork,
    /// The bare system call.
    Raw,
}

/// A child that runs `body` and exits with 0 if it returned true, 101 if it panicked.
pub struct Child(libc::pid_t);

impl Child {
    pub fn start(how: How, body: impl FnOnce() -> bool) -> Child {
        // SAFETY: the child runs `body` and never returns from here.
        let pid = unsafe {
            match how {
                How::Fork => libc::fork(),
                How::Raw => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
            }
        };
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            // A panic must not unwind into the test runner's copy in this process.
            let body = std::panic::AssertUnwindSafe(body);
            let code = match std::panic::catch_unwind(body) {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 101,
            };
            // SAFETY: _exit runs no handlers of the parent's.
            unsafe { libc::_exit(code) };
        }
        Child(pid)
    }

    pub fn kill(&self) {
        // SAFETY: the process is this test's child and not waited for yet.
        assert_eq!(unsafe { libc::kill(self.0, libc::SIGKILL) }, 0);
    }

    pub fn end(self) -> Ended {
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        let got = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(got, self.0);
        if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status))
        } else {
            Ended::Exit(libc::WEXITSTATUS(status))
        }
    }
}

pub fn in_child(body: impl FnOnce() -> bool) -> Ended {
    Child::start(How::Fork, body).end()
}

/// Sleeps while the word holds `expected`, as on one that other processes share.
pub fn wait_shared(at: crate::base::Addr, expected: u32) {
    // SAFETY: the kernel reads the word, and says EFAULT where there is none.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            at.get(),
            libc::FUTEX_WAIT,
            expected,
            core::ptr::null::<libc::timespec>(),
        )
    };
}

pub const SIGXFSZ: i32 = libc::SIGXFSZ;

/// A pipe over which a test's processes wait for each other.
pub struct Pipe([i32; 2]);

impl Pipe {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Pipe {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two numbers.
        let got = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        assert_eq!(got, 0);
        Pipe(ends)
    }
    pub fn send(&self) {
        // SAFETY: one byte of a static is read.
        let got = unsafe { libc::write(self.0[1], b"x".as_ptr().cast(), 1) };
        assert_eq!(got, 1);
    }
    pub fn wait(&self) {
        let mut ready = libc::pollfd {
            fd: self.0[0],
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one struct is read and written.
        let count = unsafe { libc::poll(&raw mut ready, 1, 30_000) };
        assert_eq!(count, 1, "the other process is gone or stuck");
        let mut byte = 0u8;
        // SAFETY: one byte is written.
        let got = unsafe { libc::read(self.0[0], (&raw mut byte).cast(), 1) };
        assert_eq!(got, 1);
    }
}

impl Pipe {
    /// For a process that will write to nobody.
    pub fn close_reader(&self) -> super::file::Fd {
        // SAFETY: in a child, which does not use it any more.
        unsafe { libc::close(self.0[0]) };
        super::file::Fd::of_raw(self.0[1])
    }
    pub fn as_stderr(&self) {
        // SAFETY: in a child, whose stderr nobody else writes.
        assert_eq!(unsafe { libc::dup2(self.0[1], 2) }, 2);
    }
    /// What one write put in.
    pub fn read_line(&self) -> std::string::String {
        let mut buf = [0u8; 1024];
        // SAFETY: the kernel writes into `buf` at most.
        let n = unsafe { libc::read(self.0[0], buf.as_mut_ptr().cast(), buf.len()) };
        std::string::String::from_utf8_lossy(&buf[..n as usize]).into_owned()
    }
}

/// What `body` writes to descriptor 2, in a child.
pub fn capture_stderr(body: impl FnOnce()) -> std::string::String {
    use std::io::{Read, Seek};
    use std::os::fd::AsRawFd;
    let mut file = tempfile::tempfile().unwrap();
    // SAFETY: in a child, whose stderr nobody else writes.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
    body();
    let mut text = std::string::String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Whether the signal, raised in a child of this process, kills it: it is neither blocked, nor
/// ignored, nor pending already.
pub fn raise_is_deadly(signal: i32) -> bool {
    let ended = in_child(|| {
        // SAFETY: sends a signal to the child itself.
        unsafe { libc::raise(signal) };
        true
    });
    !is_pending(signal) && ended == Ended::Signal(signal)
}

/// Rust's runtime ignores SIGPIPE.
pub fn default_action(signal: i32) {
    // SAFETY: in a child.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

pub fn block_and_raise(signal: i32) {
    // SAFETY: the sets are initialised by libc; in a child.
    unsafe {
        let mut set = core::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
        libc::raise(signal);
    }
}

pub fn is_pending(signal: i32) -> bool {
    // SAFETY: the set is filled by libc.
    unsafe {
        let mut set = core::mem::zeroed();
        libc::sigpending(&raw mut set);
        libc::sigismember(&raw const set, signal) == 1
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // SAFETY: the descriptors are this test's.
        unsafe {
            libc::close(self.0[0]);
            libc::close(self.0[1]);
        }
    }
}

/// Puts another file under the number, as a program does that closes all and opens its own.
pub fn replace_descriptor(fd: super::file::Fd, with: &std::fs::File) {
    use std::os::fd::AsRawFd;
    // SAFETY: the number is given up on purpose.
    let got = unsafe { libc::dup2(with.as_raw_fd(), fd.number()) };
    assert_eq!(got, fd.number());
}

pub fn close_descriptor(fd: super::file::Fd) {
    // SAFETY: the number is given up on purpose.
    assert_eq!(unsafe { libc::close(fd.number()) }, 0);
}

/// Closes everything from 3 up.
pub fn close_all() {
    // SAFETY: in a child, whose descriptors nobody else uses.
    let got = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    assert_eq!(got, 0);
}

pub fn limit_file_size(bytes: u64) {
    set_limit(libc::RLIMIT_FSIZE as i32, bytes);
}

pub fn limit_address_space(bytes: u64) {
    set_limit(libc::RLIMIT_AS as i32, bytes);
}

pub fn limit_descriptors(count: u64) {
    set_limit(libc::RLIMIT_NOFILE as i32, count);
}

fn set_limit(resource: i32, value: u64) {
    let limit = libc::rlimit64 {
        rlim_cur: value,
        rlim_max: libc::RLIM64_INFINITY,
    };
    // SAFETY: the kernel reads the struct.
    unsafe {
        let mut now: libc::rlimit64 = core::mem::zeroed();
        libc::prlimit64(0, resource as _, core::ptr::null(), &raw mut now);
        let limit = libc::rlimit64 {
            rlim_max: now.rlim_max,
            ..limit
        };
        assert_eq!(
            libc::prlimit64(0, resource as _, &raw const limit, core::ptr::null_mut()),
            0
        );
    }
}

/// All memory of this process stays locked.
pub fn lock_all_memory() -> bool {
    // SAFETY: no memory is changed.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 }
}

pub fn become_nobody() {
    // SAFETY: in a child.
    unsafe {
        assert_eq!(libc::setgroups(0, core::ptr::null()), 0);
        assert_eq!(libc::setgid(65534), 0);
        assert_eq!(libc::setuid(65534), 0);
    }
}

pub fn is_root() -> bool {
    // SAFETY: no memory is touched.
    unsafe { libc::geteuid() == 0 }
}

/// Shows in the run's output, whatever the test runner captures.
pub fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("SKIPPED {test}: {why}\n");
    super::report::write_all(super::file::Fd::STDERR, line.as_bytes()).unwrap();
}

/// A file system of its own for one test, gone when dropped.
pub struct Mounted(tempfile::TempDir);

impl Mounted {
    /// `None`, with a line in the run's output, where mounting is not allowed.
    pub fn new(kind: &str, options: &str) -> Option<Mounted> {
        let dir = tempfile::tempdir().unwrap();
        let target = CString::new(dir.path().as_os_str().as_bytes()).unwrap();
        let kind_c = CString::new(kind).unwrap();
        let options = CString::new(options).unwrap();
        // SAFETY: all arguments are terminated strings.
        let mounted = unsafe {
            libc::mount(
                kind_c.as_ptr(),
                target.as_ptr(),
                kind_c.as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        if mounted != 0 {
            let why = std::io::Error::last_os_error();
            skipped(&format!("mounting {kind} is not allowed here: {why}"));
            return None;
        }
        Some(Mounted(dir))
    }

    /// A disk of `mib` MiB with a real file system, in a file.
    pub fn ext4(mib: u64) -> Option<Mounted> {
        use std::process::{Command, Stdio};
        let mut image = tempfile::NamedTempFile::new().unwrap();
        image.as_file_mut().set_len(mib << 20).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mkfs: &[&OsStr] = &[
            OsStr::new("mkfs.ext4"),
            OsStr::new("-q"),
            image.path().as_os_str(),
        ];
        let mount: &[&OsStr] = &[
            OsStr::new("mount"),
            OsStr::new("-oloop"),
            image.path().as_os_str(),
            dir.path().as_os_str(),
        ];
        for words in [mkfs, mount] {
            let ran = Command::new(words[0])
                .args(&words[1..])
                .stderr(Stdio::null())
                .status();
            if !ran.as_ref().is_ok_and(|status| status.success()) {
                skipped(&format!("{:?} is not possible here: {ran:?}", words[0]));
                return None;
            }
        }
        Some(Mounted(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let target = CString::new(self.0.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: the argument is a terminated string. Detached: files of it may still be mapped.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

/// A directory's path as the tiers keep it: for ever.
pub fn leaked(path: &Path) -> &'static core::ffi::CStr {
    std::boxed::Box::leak(
        CString::new(path.as_os_str().as_bytes())
            .unwrap()
            .into_boxed_c_str(),
    )
}

/// What the calling thread has cost a processor.
pub fn thread_cpu_time() -> std::time::Duration {
    // SAFETY: the kernel fills the struct.
    let now = unsafe {
        let mut now: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now);
        now
    };
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
