//! The end of the process, and its number.

use super::errno::Errno;
use super::sys::call;

/// Runs `at_exit` when the program ends by `exit` or by returning from main. Registered early, it
/// runs late: after the handlers of the program, before stdio is flushed. glibc may calloc here.
pub fn handler(at_exit: extern "C" fn()) -> Result<(), Errno> {
    // SAFETY: the handler's code is never unloaded (the library is linked nodelete).
    match unsafe { libc::atexit(at_exit) } {
        0 => Ok(()),
        _ => Err(Errno::NOMEM),
    }
}

/// The process's number, by a system call (a child made by a raw `clone` has another one).
pub fn process_id() -> u32 {
    // SAFETY: getpid touches no memory and cannot fail.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}
