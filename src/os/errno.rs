//! Error numbers, and the promise that no door of this room disturbs the program's own.

use core::fmt;

/// A kernel error number, never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    pub const NOMEM: Errno = Errno(libc::ENOMEM);
    pub const EXIST: Errno = Errno(libc::EEXIST);
    pub const BADF: Errno = Errno(libc::EBADF);
    pub const FBIG: Errno = Errno(libc::EFBIG);
    pub const NOSPC: Errno = Errno(libc::ENOSPC);
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const INTR: Errno = Errno(libc::EINTR);
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    pub const NOENT: Errno = Errno(libc::ENOENT);
    pub const NOTDIR: Errno = Errno(libc::ENOTDIR);
    pub const ACCES: Errno = Errno(libc::EACCES);
    pub const PERM: Errno = Errno(libc::EPERM);
    pub const ROFS: Errno = Errno(libc::EROFS);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const ISDIR: Errno = Errno(libc::EISDIR);
    pub const NODEV: Errno = Errno(libc::ENODEV);
    pub const TIMEDOUT: Errno = Errno(libc::ETIMEDOUT);
    pub const MFILE: Errno = Errno(libc::EMFILE);
    pub const NFILE: Errno = Errno(libc::ENFILE);
    pub const RANGE: Errno = Errno(libc::ERANGE);

    pub const fn new(number: i32) -> Errno {
        Errno(number)
    }
    pub const fn get(self) -> i32 {
        self.0
    }

    /// What messages say; `strerror` is out of reach, for it translates and may allocate.
    pub const fn text(self) -> Option<&'static str> {
        Some(match self {
            Errno::NOMEM => "not enough memory or address space",
            Errno::EXIST => "it exists already",
            Errno::BADF => "the descriptor was closed",
            Errno::FBIG => "the file size limit (ulimit -f) is reached",
            Errno::NOSPC => "no space left on the device",
            Errno::OPNOTSUPP => "not supported here",
            Errno::INVAL => "invalid argument",
            Errno::INTR => "interrupted",
            Errno::AGAIN => "try again",
            Errno::NOSYS => "the kernel does not have this call",
            Errno::NOENT => "no such file or directory",
            Errno::NOTDIR => "not a directory",
            Errno::ACCES => "permission denied",
            Errno::PERM => "not permitted",
            Errno::ROFS => "the file system is read-only",
            Errno::BUSY => "busy",
            Errno::ISDIR => "it is a directory",
            Errno::NODEV => "no such device, or it cannot be mapped",
            Errno::MFILE => "too many open files in this process",
            Errno::NFILE => "too many open files in the system",
            _ => return None,
        })
    }
}

impl PartialEq<i32> for Errno {
    fn eq(&self, other: &i32) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

/// The thread's `errno`.
pub fn get() -> i32 {
    // SAFETY: libc returns the address of the calling thread's errno, which lives as long as it.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's `errno`, for the faces that must (`malloc` returning NULL).
pub fn set(error: Errno) {
    set_raw(error.0);
}

pub(super) fn set_raw(number: i32) {
    // SAFETY: as in `get`; no reference to it is held anywhere.
    unsafe { *libc::__errno_location() = number };
}

/// Puts `errno` back to what it was when the guard was made. System calls of this room never
/// disturb it; this is for the spans that run foreign code (`dlsym`, `pthread_setspecific`, the
/// next allocator's `free`).
#[must_use = "errno is restored when the guard is dropped"]
pub struct KeepErrno(i32);

impl KeepErrno {
    #[allow(clippy::new_without_default)]
    pub fn new() -> KeepErrno {
        KeepErrno(get())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        set_raw(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Addr, Bytes};

    #[test]
    fn doors_and_guards_leave_errno_alone() {
        set_raw(77);
        // SAFETY: the range is not mapped (page 0 never is), so nothing can be lost.
        let failed = unsafe {
            super::super::map::protect(Addr::new(0), Bytes::kib(4), super::super::map::Access::Read)
        };
        assert_eq!(failed, Err(Errno::NOMEM));
        assert_eq!(get(), 77);
        {
            let _keep = KeepErrno::new();
            set(Errno::NOSPC);
            assert_eq!(get(), libc::ENOSPC);
        }
        assert_eq!(get(), 77);
    }
}
