//! Threads: a destructor at their end, and their number.

use super::errno::{Errno, KeepErrno};
use super::sys::call;
use core::ffi::c_void;

/// A pthread key: its destructor runs in each thread that set a value, at the thread's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(libc::pthread_key_t);

impl Key {
    /// The destructor's code must never be unloaded: glibc calls it long after `dlclose` (the
    /// library is linked nodelete).
    pub fn create(destructor: unsafe extern "C" fn(*mut c_void)) -> Result<Key, Errno> {
        let mut key = 0;
        // SAFETY: libc writes the key; the destructor stays loaded.
        match unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) } {
            0 => Ok(Key(key)),
            error => Err(Errno::new(error)),
        }
    }

    /// The number, for a cell that holds one.
    pub fn into_raw(self) -> u32 {
        self.0
    }

    /// A key from its number.
    pub fn from_raw(raw: u32) -> Key {
        Key(raw)
    }

    /// Sets the calling thread's value; the destructor runs for one that is not null. For keys
    /// past the 32nd glibc callocs here: the caller must be ready to be re-entered.
    #[allow(clippy::not_unsafe_ptr_arg_deref)] // never read here: handed back as it came
    pub fn set(self, value: *mut c_void) -> Result<(), Errno> {
        let _keep = KeepErrno::new();
        // SAFETY: the key came from `create`; the value is only handed back.
        match unsafe { libc::pthread_setspecific(self.0, value) } {
            0 => Ok(()),
            error => Err(Errno::new(error)),
        }
    }
}

/// The kernel's number of the calling thread, by a system call: callers keep it.
pub fn id() -> u32 {
    // SAFETY: gettid touches no memory and cannot fail.
    unsafe { call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicUsize, Ordering};

    #[test]
    fn a_threads_value_is_handed_to_the_destructor_at_its_end() {
        static SUM: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C" fn destructor(value: *mut c_void) {
            SUM.fetch_add(value as usize, Ordering::SeqCst);
        }
        let key = Key::create(destructor).unwrap();
        assert_eq!(Key::from_raw(key.into_raw()), key);
        let ids: std::vec::Vec<u32> = std::thread::scope(|scope| {
            let threads = [1usize, 10, 100].map(|n| {
                scope.spawn(move || {
                    super::super::errno::set_raw(33);
                    key.set(n as *mut c_void).unwrap();
                    assert_eq!(super::super::errno::get(), 33);
                    id()
                })
            });
            threads.map(|thread| thread.join().unwrap()).into()
        });
        // A scope may end a moment before its threads' destructors have run.
        while SUM.load(Ordering::SeqCst) < 111 {
            std::thread::yield_now();
        }
        assert_eq!(SUM.load(Ordering::SeqCst), 111);
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && !ids.contains(&id()));
    }
}
