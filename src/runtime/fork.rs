//! fork: the handlers that make a child's memory its own.

use super::gate;
use super::threads::with_heap;
use crate::arena;
use crate::heap::{ThreadHeap, orphans, shelf, slot};
use crate::os::fork::handlers;
use crate::os::report::{Warning, warn_once};
use crate::os::stdio;
use crate::sync::{AtomicBool, Ordering};

/// Registered early, so that our prepare handler runs last and the others first: handlers of
/// libraries loaded later may allocate.
pub fn register() {
    stdio::resolve();
    let _ = handlers(prepare, parent, child);
}

/// The fork under way was called by a signal handler that interrupted the allocator. The frame
/// below it goes on in parent and child, so the heap is left as it stands there.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// It has taken the lock of stdio's list.
static LISTED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn prepare() {
    let interrupted = gate::is_inside(slot::get());
    if !interrupted {
        // The handlers of other libraries may allocate while the gate is closed, which a thread
        // without a heap could not.
        let _ = with_heap(|_| ());
    }
    // Before the gate: see there.
    let listed = stdio::lock_list();
    gate::close(slot::get());
    // Relaxed (both): this thread reads them, in either process, before the gate opens.
    INTERRUPTED.store(interrupted, Ordering::Relaxed);
    LISTED.store(listed, Ordering::Relaxed);
    if !interrupted {
        // SAFETY: the gate is closed.
        unsafe { shelf::clear_all() };
    }
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
    // Relaxed: see `prepare`.
    let listed = LISTED.load(Ordering::Relaxed);
    gate::open();
    if listed {
        stdio::unlock_list();
    }
}

unsafe extern "C" fn child() {
    // Relaxed: see `prepare`.
    if LISTED.load(Ordering::Relaxed) {
        stdio::reset_list();
    }
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
        // Relaxed: see `prepare`.
        if INTERRUPTED.load(Ordering::Relaxed) {
            shelf::forget_all();
            orphans::empty_all_seats_but(me);
        } else {
            gate::inside_as_guest(|| orphans::orphan_all_but(me));
        }
    }
}
