//! What the machine and the process's limits allow.

use super::errno::Errno;
use super::file;
use super::sys::call;
use crate::base::{Bytes, PAGE};
use core::mem::MaybeUninit;

/// The soft limit of a resource; `None` is unlimited (or not to be known, which is treated alike).
fn soft(resource: usize) -> Option<Bytes> {
    let mut limit = MaybeUninit::<libc::rlimit64>::zeroed();
    // SAFETY: the kernel fills the struct; a null new limit changes nothing.
    let limit = unsafe {
        call(
            libc::SYS_prlimit64,
            [0, resource, 0, limit.as_mut_ptr() as usize, 0, 0],
        )
        .ok()?;
        limit.assume_init()
    };
    match limit.rlim_cur {
        libc::RLIM64_INFINITY => None,
        bytes => Some(Bytes::new(usize::try_from(bytes).unwrap_or(usize::MAX))),
    }
}

/// `ulimit -v`.
pub fn address_space() -> Option<Bytes> {
    soft(libc::RLIMIT_AS as usize)
}

/// `ulimit -d`: private writable memory.
pub fn data() -> Option<Bytes> {
    soft(libc::RLIMIT_DATA as usize)
}

/// `ulimit -f`.
pub fn file_size() -> Option<Bytes> {
    soft(libc::RLIMIT_FSIZE as usize)
}

/// All physical memory of the machine; 0 when the kernel does not say.
pub fn total_ram() -> Bytes {
    ram(|info| info.totalram)
}

/// Physical memory that nothing uses now, not even the page cache.
pub fn free_ram() -> Bytes {
    ram(|info| info.freeram)
}

/// Physical memory that could be had without swapping: free, or page cache. `None` without /proc.
pub fn available_ram() -> Option<Bytes> {
    let mut buf = [0; 512];
    let text = file::read_small(c"/proc/meminfo", &mut buf).ok()?;
    kib_field(text, b"MemAvailable:")
}

/// A line such as `Node 1 MemFree:         123 kB`.
pub(super) fn kib_field(text: &[u8], name: &[u8]) -> Option<Bytes> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let at = line.windows(name.len()).position(|window| window == name)?;
        let kib = leading_number(line.get(at + name.len()..)?.trim_ascii_start())?;
        kib.checked_mul(1024).map(Bytes::new)
    })
}

fn ram(field: impl Fn(&libc::sysinfo) -> libc::c_ulong) -> Bytes {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel fills the struct, whose layout is its own on 64-bit targets.
    let info = unsafe {
        if call(
            libc::SYS_sysinfo,
            [info.as_mut_ptr() as usize, 0, 0, 0, 0, 0],
        )
        .is_err()
        {
            return Bytes::ZERO;
        }
        info.assume_init()
    };
    Bytes::new((field(&info) as usize).saturating_mul(info.mem_unit as usize))
}

fn auxiliary(tag: libc::c_ulong) -> usize {
    let _keep = super::errno::KeepErrno::new();
    // SAFETY: getauxval reads a table that the dynamic linker filled before any of our code ran;
    // it takes no lock and does not allocate.
    unsafe { libc::getauxval(tag) as usize }
}

/// Whether this machine's pages are those the heap is built for. Where they are not (aarch64 with
/// 16 or 64 KiB pages) the heap must stand down.
pub fn page_size_is_supported() -> bool {
    auxiliary(libc::AT_PAGESZ) == PAGE.get()
}

/// The program runs with more rights than its user (setuid, capabilities): nothing that the user
/// controls, the environment first, may be believed.
pub fn secure() -> bool {
    auxiliary(libc::AT_SECURE) != 0
}

/// 64 bits that differ from process to process and call to call. Not for secrets.
pub fn random() -> u64 {
    let mut bits = 0u64;
    let args = [
        (&raw mut bits) as usize,
        8,
        libc::GRND_NONBLOCK as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most 8 bytes into `bits`.
    if let Ok(8) = unsafe { call(libc::SYS_getrandom, args) } {
        return bits;
    }
    seed()
}

/// 64 bits that differ from process to process, without a system call: a sandbox may kill for
/// getrandom, and the kernel left 16 random bytes at exec anyway. The C library takes the first 8
/// for its stack guard and the rest for its pointer guard, so they are stirred and not handed on.
pub fn seed() -> u64 {
    let at = auxiliary(libc::AT_RANDOM) as *const u64;
    let (low, high) = if at.is_null() {
        (0, 0)
    } else {
        // SAFETY: AT_RANDOM is the address of 16 bytes that the kernel put on the stack at exec
        // and that stay there; their alignment is not promised.
        unsafe { (at.read_unaligned(), at.add(1).read_unaligned()) }
    };
    let clock = super::clock::nanos();
    let mut mixed = (low ^ high.rotate_left(29)).wrapping_add(clock) ^ clock.rotate_left(32);
    // The finalizer of splitmix64: each bit of input moves about half of the output.
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// `vm.overcommit_memory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overcommit {
    Heuristic,
    Always,
    /// What is writable and private is charged when it is mapped, NORESERVE or not; pages of a
    /// memfd when they are touched.
    Never,
}

/// Heuristic where /proc cannot be read: it is the kernel's default.
pub fn overcommit() -> Overcommit {
    let mut buf = [0; 8];
    match file::read_small(c"/proc/sys/vm/overcommit_memory", &mut buf) {
        Ok([b'1', ..]) => Overcommit::Always,
        Ok([b'2', ..]) => Overcommit::Never,
        _ => Overcommit::Heuristic,
    }
}

/// `vm.max_map_count`; the kernel's default where /proc cannot be read.
pub fn max_mappings() -> usize {
    let mut buf = [0; 24];
    let text: Result<&[u8], Errno> = file::read_small(c"/proc/sys/vm/max_map_count", &mut buf);
    text.ok().and_then(leading_number).unwrap_or(65_530)
}

/// The decimal number at the start of a text.
pub(super) fn leading_number(text: &[u8]) -> Option<usize> {
    let mut number = None;
    for digit in text.iter().take_while(|byte| byte.is_ascii_digit()) {
        let so_far: usize = number.unwrap_or(0);
        number = Some(
            so_far
                .checked_mul(10)?
                .checked_add(usize::from(digit - b'0'))?,
        );
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::testing::{self, Ended, in_child};

    #[test]
    fn the_machine_is_described() {
        assert!(page_size_is_supported());
        assert!(!secure());
        let (free, available) = (free_ram(), available_ram().unwrap());
        assert!(free > Bytes::ZERO && free < total_ram() && available < total_ram());
        assert!(max_mappings() >= 1024);
        let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
        let expected = match mode.trim() {
            "0" => Overcommit::Heuristic,
            "1" => Overcommit::Always,
            _ => Overcommit::Never,
        };
        assert_eq!(overcommit(), expected);
    }

    #[test]
    fn limits_are_seen() {
        let ended = in_child(|| {
            testing::limit_file_size(12_345);
            file_size() == Some(Bytes::new(12_345))
        });
        assert_eq!(ended, Ended::Exit(0));
    }

    #[test]
    fn random_numbers_and_seeds_differ() {
        assert!(random() != random() && seed() != seed());
    }

    #[test]
    fn fields_in_kib_are_read() {
        let text = b"Node 1 MemTotal:  16 kB\nNode 1 MemFree:         123 kB\n";
        assert_eq!(kib_field(text, b"MemFree:"), Some(Bytes::kib(123)));
        assert_eq!(kib_field(text, b"MemUsed:"), None);
        assert_eq!(kib_field(b"X: 99999999999999999999 kB", b"X:"), None);
        assert_eq!(leading_number(b"12-3"), Some(12));
        assert_eq!(leading_number(b"-3"), None);
    }
}
