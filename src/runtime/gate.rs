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
    while !GATE.try_enter(seat) {
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

/// Closes the gate and waits until all threads but the calling one are outside. The calling
/// thread may still allocate: handlers that other libraries run around fork do.
pub fn close(me: *mut ThreadHeap) {
    let own = own_seat(me);
    let mut patience = Patience::default();
    while !GATE.close(own) {
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

/// The seat of a thread that closes the gate. Threads without a heap share one: only one closes.
fn own_seat(me: *mut ThreadHeap) -> &'static Seat {
    static SPARE: Seat = Seat::new();
    if ThreadHeap::is_placeholder(me) {
        return &SPARE;
    }
    // SAFETY: heaps are never freed.
    unsafe { &(*me).shared.seat }
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
pub fn open(me: *mut ThreadHeap) {
    GATE.open(own_seat(me));
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
    GATE.force_open_in_child(own_seat(me), true);
}

/// Whether the calling thread is in the middle of a slow path, that is, a signal handler.
pub fn is_inside(me: *mut ThreadHeap) -> bool {
    me == ThreadHeap::busy() || own_seat(me).is_inside()
}

/// Runs `f` while no thread is in a slow path; `None` where the calling thread itself is in the
/// middle of one (a signal handler).
pub fn alone<R>(me: *mut ThreadHeap, f: impl FnOnce() -> R) -> Option<R> {
    if is_inside(me) {
        return None;
    }
    close(me);
    let result = f();
    open(me);
    Some(result)
}
