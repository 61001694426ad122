//! Handlers around fork, and a way to see forks that run no handlers.

use super::errno::Errno;
use super::map::{self, Access, Advice};
use crate::base::{Addr, PAGE};
use crate::sync::{AtomicU8, Ordering};

/// Handlers for `fork`: prepare runs in the parent before it, the others after it on each side.
/// Prepare handlers run last registered first, the others first registered first: registered as
/// early as the library's load, ours is the innermost pair. glibc may malloc in here.
///
/// `vfork`, `posix_spawn`, `system` and `popen` run no handlers and need none, for the child has
/// the parent's memory. `_Fork` and raw `fork` system calls run none either.
pub fn handlers(
    prepare: unsafe extern "C" fn(),
    parent: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) -> Result<(), Errno> {
    // SAFETY: the handlers' code is never unloaded (the library is linked nodelete).
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        error => Err(Errno::new(error)),
    }
}

/// Tells whether the process is still the one that made this. `_Fork` and the raw system call run
/// no handlers; comparing process numbers would see them, but takes the child of `vfork`, which
/// shares our memory, for another process. A page that the kernel wipes in children does not err.
pub struct Witness(Addr);

impl Witness {
    /// `None` on kernels before 4.14: only `fork` is seen then, by the handlers.
    pub fn new() -> Option<Witness> {
        let page = map::anywhere(PAGE, Access::ReadWrite).ok()?;
        // SAFETY: the page was mapped just now and nobody else knows it.
        if unsafe { map::advise(page, PAGE, Advice::WipeOnFork) }.is_err() {
            // SAFETY: as above.
            let _ = unsafe { map::unmap(page, PAGE) };
            return None;
        }
        let witness = Witness(page);
        witness.renew();
        Some(witness)
    }

    fn mark(&self) -> &AtomicU8 {
        // SAFETY: the page is mapped readable and writable as long as the witness lives, and is
        // reached through this only.
        unsafe { &*self.0.as_ptr().cast::<AtomicU8>() }
    }

    pub fn is_other_process(&self) -> bool {
        // Relaxed: only fork changes it, and a child has no other thread yet.
        self.mark().load(Ordering::Relaxed) == 0
    }

    /// From now on this process is the one.
    pub fn renew(&self) {
        // Relaxed: as above.
        self.mark().store(1, Ordering::Relaxed);
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: the page is ours alone, and `mark`'s borrow ended.
        let _ = unsafe { map::unmap(self.0, PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::testing::{Child, Ended, How};

    #[test]
    fn forks_of_either_kind_are_seen_once() {
        let witness = Witness::new().expect("Linux 4.14");
        for how in [How::Fork, How::Raw] {
            let child = Child::start(how, || {
                let seen = witness.is_other_process();
                witness.renew();
                seen && !witness.is_other_process()
            });
            assert_eq!(child.end(), Ended::Exit(0));
            assert!(!witness.is_other_process(), "the parent is who it was");
        }
    }

    #[test]
    fn handlers_run_on_the_side_they_are_for() {
        static RAN: [AtomicU8; 3] = [const { AtomicU8::new(0) }; 3];
        unsafe extern "C" fn prepare() {
            RAN[0].fetch_add(1, Ordering::SeqCst);
        }
        unsafe extern "C" fn parent() {
            RAN[1].fetch_add(1, Ordering::SeqCst);
        }
        unsafe extern "C" fn child() {
            RAN[2].fetch_add(1, Ordering::SeqCst);
        }
        let ran = |at: usize| RAN[at].load(Ordering::SeqCst);
        // In a child, so that the other tests' forks do not count.
        let outer = Child::start(How::Fork, || {
            handlers(prepare, parent, child).unwrap();
            let inner = Child::start(How::Fork, || (ran(0), ran(1), ran(2)) == (1, 0, 1));
            let right = inner.end() == Ended::Exit(0) && (ran(0), ran(1), ran(2)) == (1, 1, 0);
            let past = Child::start(How::Raw, || (ran(0), ran(1), ran(2)) == (1, 1, 0));
            right && past.end() == Ended::Exit(0)
        });
        assert_eq!(outer.end(), Ended::Exit(0));
    }
}
