//! fork: the handlers that make a child's memory its own.

use super::gate;
use super::threads::with_heap;
use crate::arena;
use crate::heap::{ThreadHeap, orphans, slot};
use crate::os::fork::handlers;
use crate::os::report::{Warning, warn_once};

/// Registered early, so that our prepare handler runs last and the others first: handlers of
/// libraries loaded later may allocate.
pub fn register() {
    let _ = handlers(prepare, parent, child);
}

unsafe extern "C" fn prepare() {
    // The handlers of other libraries may allocate while the gate is closed, which a thread
    // without a heap could not.
    let _ = with_heap(|_| ());
    gate::close(slot::get());
    let failed = arena::before_fork();
    if failed.get() != 0 {
        warn_once(
            Warning::ForkIncomplete,
            format_args!(
                "a forked child cannot have {} bytes of the cold tiers",
                failed.get()
            ),
        );
    }
}

unsafe extern "C" fn parent() {
    arena::after_fork_parent();
    gate::open(slot::get());
}

unsafe extern "C" fn child() {
    arena::after_fork_child();
    // SAFETY: a child has one thread, and `prepare` closed the gate with all others outside.
    unsafe {
        let me = slot::get();
        gate::open_in_child(me);
        let me = if ThreadHeap::is_placeholder(me) {
            core::ptr::null_mut()
        } else {
            me
        };
        gate::inside_as_guest(|| orphans::orphan_all_but(me));
    }
}
