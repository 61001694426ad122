//! The gate: slow paths enter it, fork and statistics close it.
//!
//! While it is closed and every seat is empty, no lock of the allocator is held and no structure
//! of it is half-changed; fast paths go on, but each of those commits by one store.

use crate::heap::{ThreadHeap, slot};
use crate::lockfree::{Gate, Seat};
use crate::os::lock::{Guard, Lock, Patience};

static GATE: Gate = Gate::new();
/// The seat of threads without a heap of their own: those that get one, and those that leave.
/// One at a time, by its lock.
static GUEST: Lock<Seat> = Lock::new(Seat::new());

fn enter(seat: &Seat) {
    let mut patience = Patience::default();
    while !GATE.try_enter(seat, slot::thread()) {
        patience.wait();
    }
}

/// Runs `f` inside the gate, in the seat of the calling thread's heap.
///
/// # Safety
/// The caller owns `th`, and `f` does not give it up.
#[inline]
pub unsafe fn inside<R>(th: *mut ThreadHeap, f: impl FnOnce() -> R) -> R {
    // SAFETY: heaps are never freed.
    let seat = unsafe { &(*th).shared.seat };
    enter(seat);
    let result = f();
    GATE.leave(seat);
    result
}

/// Runs `f` inside the gate for a thread without a heap.
pub fn inside_as_guest<R>(f: impl FnOnce() -> R) -> R {
    let seat: Guard<'_, Seat> = GUEST.lock();
    let before = slot::get();
    if ThreadHeap::is_placeholder(before) {
        slot::set(ThreadHeap::busy());
    }
    enter(&seat);
    let result = f();
    GATE.leave(&seat);
    // `f` may have given the thread a heap.
    if slot::get() == ThreadHeap::busy() {
        slot::set(before);
    }
    result
}

/// Runs `f` inside the gate for whoever is outside, with a heap or without; `None` for a thread
/// that is in the middle of a slow path. For looks at what a lane's lock guards: a handler that
/// interrupts one knows by the seat that its thread may hold that lock.
pub fn visit<R>(me: *mut ThreadHeap, f: impl FnOnce() -> R) -> Option<R> {
    if is_inside(me) {
        return None;
    }
    Some(if ThreadHeap::is_placeholder(me) {
        inside_as_guest(f)
    } else {
        // SAFETY: the slot's heap is this thread's.
        unsafe { inside(me, f) }
    })
}

/// Closes the gate and waits until all threads but the calling one are outside. The calling
/// thread may still allocate: handlers that other libraries run around fork do.
pub fn close(me: *mut ThreadHeap) {
    let mut patience = Patience::default();
    while !GATE.close(slot::thread()) {
        patience.wait();
    }
    for th in ThreadHeap::all().filter(|&th| th != me) {
        // SAFETY: heaps are never freed.
        wait_for(unsafe { &(*th).shared.seat });
    }
    // A guest that is being turned away looks inside for a moment only; one that a signal handler
    // of its own thread has interrupted stays.
    if me != ThreadHeap::busy() {
        wait_for(guest_seat());
    }
}

fn guest_seat() -> &'static Seat {
    // SAFETY: a seat is one atomic word in a static; the lock says who may enter by it, and
    // looking at it needs none.
    unsafe { &*GUEST.as_ptr() }
}

fn wait_for(seat: &Seat) {
    let mut patience = Patience::default();
    while seat.is_inside() {
        patience.wait();
    }
}

/// Opens it again; for the thread that closed it.
pub fn open() {
    GATE.open();
}

/// In a forked child, whose thread closed the gate in the parent.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn open_in_child(me: *mut ThreadHeap) {
    if me != ThreadHeap::busy() {
        // A guest that was being turned away did not come along.
        // SAFETY: alone, and no guard of the lock is alive in this thread.
        unsafe { GUEST.reset_in_child() };
        guest_seat().reset_in_child();
    }
    GATE.open();
}

/// Whether the calling thread is in the middle of a slow path or has closed the gate: in a signal
/// handler, or a handler that another library runs around fork.
pub fn is_inside(me: *mut ThreadHeap) -> bool {
    if GATE.is_closed_by(slot::thread()) || me == ThreadHeap::busy() {
        return true;
    }
    // SAFETY: heaps are never freed.
    !ThreadHeap::is_placeholder(me) && unsafe { &(*me).shared.seat }.is_inside()
}

/// Runs `f` while no thread is in a slow path; `None` where the calling thread itself is in the
/// middle of one (a signal handler).
pub fn alone<R>(me: *mut ThreadHeap, f: impl FnOnce() -> R) -> Option<R> {
    if is_inside(me) {
        return None;
    }
    close(me);
    let result = f();
    open();
    Some(result)
}
