//! System calls past libc's named wrappers.
//!
//! Other preloaded libraries interpose `mmap`, `open`, `madvise` and their kin, and some of them
//! allocate in doing so: called from inside our own initialisation they recur into it or deadlock.
//! `syscall` is interposed by nobody, takes no lock and allocates nothing.

use super::errno::{self, Errno};
use libc::c_long;

/// Calls the kernel. `errno` stays as it was, success or not.
///
/// # Safety
/// That of the call: pointers among the arguments are valid for what the kernel does with them.
pub(super) unsafe fn call(number: c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let before = errno::get();
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller of this function vouches for the meaning of the arguments; a surplus
    // argument is not read by the kernel.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        let error = errno::get();
        errno::set_raw(before);
        return Err(Errno::new(error));
    }
    Ok(result as usize)
}

/// As [`call`], again when a signal interrupted it, up to a bound: some calls (`fallocate` on
/// tmpfs) start over each time, and under a profiler's timer signals would never end.
///
/// # Safety
/// As [`call`].
pub(super) unsafe fn call_retrying(number: c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let mut result = Err(Errno::INTR);
    for _ in 0..100 {
        // SAFETY: passed on from the caller.
        result = unsafe { call(number, args) };
        if result != Err(Errno::INTR) {
            break;
        }
    }
    result
}
