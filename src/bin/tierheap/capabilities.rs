//! What the kernel lets this process do, found by doing it: versions and settings are hints, a
//! seccomp filter or a container overrules both.
//!
//! Numbers are written out where libc or the kernel headers of older systems lack the name; they
//! are the kernel's interface and do not change.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{machine, report};

const PAGE: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Userfaultfd {
    /// Faults of the kernel on our behalf are held too; `via` is the way in.
    Full {
        via: &'static str,
    },
    /// System calls that touch a protected page fail with EFAULT.
    UserModeOnly,
    None {
        why: String,
    },
}

#[derive(Debug, Clone)]
pub struct Capabilities {
    pub userfaultfd: Userfaultfd,
    pub event_remap: bool,
    pub wp_unpopulated: bool,
    pub wp_async: bool,
    pub uffdio_move: bool,
    /// /proc/self/pagemap can be read.
    pub pagemap: bool,
    pub pagemap_scan: bool,
    /// Why `move_pages` is refused.
    pub move_pages: Result<(), String>,
    pub perf_event_paranoid: Option<i64>,
    /// The processor samples loads and stores with their addresses.
    pub precise_sampling: bool,
}

pub fn probe() -> Capabilities {
    let (userfaultfd, fd) = open_userfaultfd();
    let features = fd.as_ref().map_or(0, |_| supported_features(&userfaultfd));
    let pagemap = File::open("/proc/self/pagemap").ok();
    Capabilities {
        event_remap: features & EVENT_REMAP != 0,
        wp_unpopulated: features & WP_UNPOPULATED != 0,
        wp_async: features & WP_ASYNC != 0,
        uffdio_move: features & MOVE != 0 && fd.is_some_and(|fd| moves_a_page(&fd).is_ok()),
        userfaultfd,
        pagemap_scan: pagemap.as_ref().is_some_and(scans),
        pagemap: pagemap.is_some(),
        move_pages: moves_to_its_own_node().map_err(|error| report::plain(&error)),
        perf_event_paranoid: machine::read("/proc/sys/kernel/perf_event_paranoid")
            .and_then(|text| text.parse().ok()),
        precise_sampling: machine::read("/sys/bus/event_source/devices/cpu/caps/max_precise")
            .is_some_and(|depth| depth != "0")
            || std::path::Path::new("/sys/bus/event_source/devices/ibs_op").exists(),
    }
}

// linux/userfaultfd.h
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_MOVE: libc::c_ulong = 0xc028_aa05;
const UFFD_API: u64 = 0xaa;
const REGISTER_MISSING: u64 = 1;
const EVENT_REMAP: u64 = 1 << 2;
const WP_UNPOPULATED: u64 = 1 << 13;
const WP_ASYNC: u64 = 1 << 15;
const MOVE: u64 = 1 << 16;

fn userfaultfd(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes flags only.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn by_device() -> io::Result<OwnedFd> {
    let device = File::open("/dev/userfaultfd")?;
    // SAFETY: this ioctl takes its flags by value.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn open_userfaultfd() -> (Userfaultfd, Option<OwnedFd>) {
    if let Ok(fd) = userfaultfd(0) {
        return (
            Userfaultfd::Full {
                via: "the system call",
            },
            Some(fd),
        );
    }
    if let Ok(fd) = by_device() {
        return (
            Userfaultfd::Full {
                via: "/dev/userfaultfd",
            },
            Some(fd),
        );
    }
    match userfaultfd(UFFD_USER_MODE_ONLY) {
        Ok(fd) => (Userfaultfd::UserModeOnly, Some(fd)),
        Err(error) => (
            Userfaultfd::None {
                why: report::plain(&error),
            },
            None,
        ),
    }
}

/// `features` as asked for; the answer is what the kernel has.
fn handshake(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    // struct uffdio_api: api, features, ioctls
    let mut api = [UFFD_API, features, 0];
    ioctl(fd, UFFDIO_API, &mut api)?;
    Ok(api[1])
}

/// A descriptor shakes hands once, so the question is asked on one of its own.
fn supported_features(kind: &Userfaultfd) -> u64 {
    let fd = match kind {
        Userfaultfd::Full {
            via: "/dev/userfaultfd",
        } => by_device(),
        Userfaultfd::Full { .. } => userfaultfd(0),
        _ => userfaultfd(UFFD_USER_MODE_ONLY),
    };
    fd.and_then(|fd| handshake(&fd, 0)).unwrap_or(0)
}

fn ioctl<const N: usize>(
    fd: &impl AsRawFd,
    request: libc::c_ulong,
    argument: &mut [u64; N],
) -> io::Result<i64> {
    // SAFETY: each request above and below is called with the array of its own structure's size,
    // which is all that the kernel reads and writes at the pointer; addresses inside name
    // mappings that the caller holds.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, argument.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n.into()),
    }
}

/// Moves one page out of one mapping into another, as sampling and promotion do.
fn moves_a_page(fd: &OwnedFd) -> io::Result<()> {
    handshake(fd, MOVE)?;
    let mut from = memmap2::MmapMut::map_anon(PAGE)?;
    let to = memmap2::MmapMut::map_anon(PAGE)?;
    from[0] = 0x5a;
    let (from, to, len) = (from.as_ptr() as u64, to.as_ptr() as u64, PAGE as u64);
    // struct uffdio_register: start, len, mode, ioctls
    ioctl(fd, UFFDIO_REGISTER, &mut [to, len, REGISTER_MISSING, 0])?;
    // struct uffdio_move: dst, src, len, mode, move. Both mappings are still held here, and
    // neither is touched afterwards.
    ioctl(fd, UFFDIO_MOVE, &mut [to, from, len, 0, 0]).map(|_| ())
}

/// PAGEMAP_SCAN over one page that is present.
fn scans(pagemap: &File) -> bool {
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
    const PAGE_IS_PRESENT: u64 = 1 << 3;
    let Ok(mut page) = memmap2::MmapMut::map_anon(PAGE) else {
        return false;
    };
    page[0] = 1;
    let start = page.as_ptr() as u64;
    let mut found = [0u64; 3];
    let mut argument = [
        96, // size of the structure
        0,  // flags
        start,
        start + PAGE as u64,
        0, // where the walk ended
        found.as_mut_ptr() as u64,
        1, // one range fits
        0, // any number of pages
        0, // no category inverted
        PAGE_IS_PRESENT,
        0,
        PAGE_IS_PRESENT,
    ];
    ioctl(pagemap, PAGEMAP_SCAN, &mut argument).is_ok_and(|ranges| ranges == 1)
}

/// Asks where a page is, then to move it there: allowed or not, nothing moves.
fn moves_to_its_own_node() -> io::Result<()> {
    let mut page = memmap2::MmapMut::map_anon(PAGE)?;
    page[0] = 1;
    let pages = [page.as_ptr()];
    let mut status = [-1 as libc::c_int];
    for ask in [true, false] {
        let target = status;
        let nodes = if ask {
            std::ptr::null()
        } else {
            target.as_ptr()
        };
        // SAFETY: one page, one node (or none asked for), one status, each array holding one.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                1,
                pages.as_ptr(),
                nodes,
                status.as_mut_ptr(),
                0,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if let [error @ ..0] = status {
            return Err(io::Error::from_raw_os_error(-error));
        }
    }
    Ok(())
}

/// How much of the heat policy a machine allows, and what would allow more.
#[derive(Debug, PartialEq, Eq)]
pub struct Rung {
    /// 1 to 3, 3 the best.
    pub level: u8,
    pub name: &'static str,
    pub next: Vec<String>,
}

pub fn rung(can: &Capabilities) -> Rung {
    let mut next = Vec::new();
    match &can.userfaultfd {
        Userfaultfd::Full { .. } => {}
        Userfaultfd::UserModeOnly => next.push(
            "full userfaultfd: sysctl vm.unprivileged_userfaultfd=1, or CAP_SYS_PTRACE, or read \
             and write permission on /dev/userfaultfd (Linux 6.1)"
                .to_string(),
        ),
        Userfaultfd::None { why } => next.push(format!(
            "userfaultfd ({why}): a kernel with CONFIG_USERFAULTFD, in a container a seccomp \
             profile that allows it"
        )),
    }
    if matches!(can.userfaultfd, Userfaultfd::Full { .. }) {
        for (there, what) in [
            (can.event_remap, "userfaultfd's EVENT_REMAP: Linux 4.11"),
            (
                can.wp_unpopulated,
                "userfaultfd's WP_UNPOPULATED: Linux 6.4",
            ),
            (can.uffdio_move, "UFFDIO_MOVE: Linux 6.8"),
        ] {
            next.extend((!there).then(|| what.to_string()));
        }
    }
    if next.is_empty() {
        let name = "sampling of both tiers and live migration";
        return Rung {
            level: 3,
            name,
            next,
        };
    }
    if can.pagemap {
        let name = "access sampling of the cold tier alone, which adjusts placement";
        return Rung {
            level: 2,
            name,
            next,
        };
    }
    let next = vec!["a readable /proc/self/pagemap: mount /proc in this container".to_string()];
    Rung {
        level: 1,
        name: "allocation statistics alone",
        next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Capabilities {
        Capabilities {
            userfaultfd: Userfaultfd::Full {
                via: "the system call",
            },
            event_remap: true,
            wp_unpopulated: true,
            wp_async: true,
            uffdio_move: true,
            pagemap: true,
            pagemap_scan: true,
            move_pages: Ok(()),
            perf_event_paranoid: Some(2),
            precise_sampling: false,
        }
    }

    #[test]
    fn each_missing_piece_lowers_the_rung_and_is_named() {
        assert_eq!((rung(&all()).level, rung(&all()).next.len()), (3, 0));
        let old = Capabilities {
            uffdio_move: false,
            wp_unpopulated: false,
            ..all()
        };
        assert_eq!(rung(&old).level, 2);
        assert!(rung(&old).next[0].contains("6.4") && rung(&old).next[1].contains("6.8"));
        let user = Capabilities {
            userfaultfd: Userfaultfd::UserModeOnly,
            ..all()
        };
        assert_eq!(rung(&user).level, 2);
        assert!(rung(&user).next[0].contains("vm.unprivileged_userfaultfd=1"));
        let none = Userfaultfd::None {
            why: "Operation not permitted".into(),
        };
        let bare = Capabilities {
            userfaultfd: none,
            pagemap: false,
            ..all()
        };
        assert_eq!(rung(&bare).level, 1);
        assert!(rung(&bare).next[0].contains("pagemap"));
    }
}
