//! Sleeping on words, and waking who sleeps on them.

use super::errno::Errno;
use super::sys::call;
use crate::base::Addr;
use crate::sync::AtomicU32;

/// Sleeps while the word holds `expected`, until woken, for `nanos` at most (`None`: no bound).
/// Returns early at any time; the caller looks again.
pub fn wait(word: &AtomicU32, expected: u32, nanos: Option<u32>) {
    let bound = nanos.map(|nanos| libc::timespec {
        tv_sec: i64::from(nanos / 1_000_000_000),
        tv_nsec: i64::from(nanos % 1_000_000_000),
    });
    let bound_at = bound
        .as_ref()
        .map_or(0, |bound| core::ptr::from_ref(bound) as usize);
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    let args = [
        core::ptr::from_ref(word) as usize,
        operation,
        expected as usize,
        bound_at,
        0,
        0,
    ];
    // SAFETY: the kernel reads the word and the bound, both of which outlive the call.
    let _: Result<usize, Errno> = unsafe { call(libc::SYS_futex, args) };
}

/// Wakes up to `count` threads that sleep on the word.
pub fn wake(word: &AtomicU32, count: u32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    let args = [
        core::ptr::from_ref(word) as usize,
        operation,
        count as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel only takes the address for a key.
    let _: Result<usize, Errno> = unsafe { call(libc::SYS_futex, args) };
}

/// Wakes all who sleep, in any process, on the word of a file that is mapped shared here. Not those
/// of FUTEX_LOCK_PI, whom the kernel lets the owner of the lock wake only.
pub fn wake_shared(at: Addr) {
    let args = [
        at.get(),
        libc::FUTEX_WAKE as usize,
        i32::MAX as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel only takes the address for a key.
    let _: Result<usize, Errno> = unsafe { call(libc::SYS_futex, args) };
}
