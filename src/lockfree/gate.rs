//! The gate between the slow paths and fork.
//!
//! fork copies the memory of all threads but only one of the threads. Whatever another thread
//! was in the middle of stays in the middle for ever in the child, so no thread may be inside a
//! slow path while fork runs. Slow paths enter; the thread about to fork closes the gate and
//! waits until every other seat is empty. The waiting is the caller's: it knows how to sleep.

use core::num::NonZeroUsize;

use super::const_unless_loom;
use crate::sync::{AtomicU32, AtomicUsize, Ordering, fence};

/// Which thread: any number that no other living thread has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadId(pub NonZeroUsize);

/// Closed while a fork is under way.
///
/// Closing and saying who has closed it are one step, and so are their ends: a signal handler that
/// interrupts a closer anywhere finds either an open gate or one that its own thread has closed.
#[derive(Debug)]
pub struct Gate {
    /// The [`ThreadId`] of who has closed it; 0 while it is open.
    closer: AtomicUsize,
}

/// Where one thread says how deep it is inside. Only that thread writes it, so that entering
/// costs a store and a fence instead of a read-modify-write on a word that all threads share.
#[derive(Debug)]
pub struct Seat {
    depth: AtomicU32,
}

impl Seat {
    const_unless_loom! {
        /// The seat of a thread outside. It must be where a closer looks for seats before it is
        /// first used to enter.
        pub fn new() -> Seat {
            Seat { depth: AtomicU32::new(0) }
        }
    }

    /// For a closer that waits, after [`Gate::close`]. A thread that is turned away looks inside
    /// for a moment.
    pub fn is_inside(&self) -> bool {
        // Acquire pairs with the Release in `leave` and `try_enter`'s retreat: the closer sees
        // all that the thread did inside.
        self.depth.load(Ordering::Acquire) != 0
    }

    /// In the child: empties the seat of a thread that did not come along. A thread that was
    /// being turned away when the fork happened has left its seat looking occupied, and the
    /// next fork of the child would wait for it for ever.
    pub fn reset_in_child(&self) {
        // Relaxed: the child has one thread.
        self.depth.store(0, Ordering::Relaxed);
    }

    fn depth(&self) -> u32 {
        // Relaxed: read back by the only thread that writes it.
        self.depth.load(Ordering::Relaxed)
    }

    fn deeper(&self) {
        // Relaxed: for the outermost entry a fence follows; a nested one changes nothing that
        // a closer asks for.
        self.depth
            .store(self.depth().wrapping_add(1), Ordering::Relaxed);
    }

    fn shallower(&self) {
        // Release: pairs with the Acquire in `is_inside`.
        self.depth
            .store(self.depth().wrapping_sub(1), Ordering::Release);
    }
}

impl Gate {
    const_unless_loom! {
        /// An open gate.
        pub fn new() -> Gate {
            Gate { closer: AtomicUsize::new(0) }
        }
    }

    /// Enters, unless another thread has closed the gate; a thread that is inside already always
    /// may. `seat` is the seat of the calling thread, `me`.
    #[must_use = "who is not let in must wait"]
    pub fn try_enter(&self, seat: &Seat, me: ThreadId) -> bool {
        if seat.depth() != 0 {
            seat.deeper();
            return true;
        }
        seat.deeper();
        // Dekker with `close`: this thread announces itself, then looks at the gate; the closer
        // closes the gate, then looks at the seats. Of two SeqCst fences one is first, so that at
        // least one side sees the other. Without them both may read the old value from behind
        // their store buffers.
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release in `open`: what the closer changed while it was alone
        // is seen by all who come in after it.
        let closer = self.closer.load(Ordering::Acquire);
        if closer != 0 && closer != me.0.get() {
            seat.shallower();
            return false;
        }
        true
    }

    /// Undoes one [`Gate::try_enter`] that returned true.
    pub fn leave(&self, seat: &Seat) {
        debug_assert!(seat.depth() != 0, "left without having entered");
        seat.shallower();
    }

    /// Closes the gate for all but `me`, the calling thread: handlers that other libraries run
    /// around fork allocate too. False where another thread has closed it already: two that both
    /// closed it would wait for each other. Who gets false waits for the gate to open, like anyone
    /// else, and tries again.
    ///
    /// After true, and once each other seat has been seen outside, no other thread is inside
    /// until [`Gate::open`].
    #[must_use = "only one thread may hold the gate closed"]
    pub fn close(&self, me: ThreadId) -> bool {
        // Relaxed (both): the fence below turns success into an Acquire, which pairs with the
        // Release in `open`, one closer after the other; nothing is concluded from a gate that
        // another has closed.
        let closed =
            self.closer
                .compare_exchange(0, me.0.get(), Ordering::Relaxed, Ordering::Relaxed);
        if closed.is_err() {
            return false;
        }
        // The other half of Dekker, see `try_enter`; and the Acquire of the exchange above.
        fence(Ordering::SeqCst);
        true
    }

    /// Opens the gate again; for the thread that closed it, and for the child of a fork, whoever
    /// has closed it: that thread may not exist there. Seats of threads that do not are emptied by
    /// [`Seat::reset_in_child`] before the child closes the gate itself.
    pub fn open(&self) {
        // Release: pairs with the Acquire in `try_enter` and the fence in `close`.
        self.closer.store(0, Ordering::Release);
    }

    /// Whether `me`, the calling thread, has closed it.
    pub fn is_closed_by(&self, me: ThreadId) -> bool {
        // Relaxed: a thread reads back its own write, and another's number is not its own.
        self.closer.load(Ordering::Relaxed) == me.0.get()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use super::{Gate, Seat, ThreadId};
    use loom::cell::UnsafeCell;

    struct Shared<const SEATS: usize> {
        gate: Gate,
        seats: [Seat; SEATS],
        /// What slow paths change; each has one of its own and the closer reads them all.
        state: [UnsafeCell<u32>; SEATS],
        /// What closers change as soon as they have closed the gate.
        forks: UnsafeCell<u32>,
    }
    // SAFETY: the gate keeps the closer out while others are inside; loom checks.
    unsafe impl<const SEATS: usize> Sync for Shared<SEATS> {}
    // SAFETY: as above.
    unsafe impl<const SEATS: usize> Send for Shared<SEATS> {}

    fn id(who: usize) -> ThreadId {
        ThreadId(core::num::NonZeroUsize::MIN.saturating_add(who))
    }

    impl<const SEATS: usize> Shared<SEATS> {
        fn new() -> Arc<Self> {
            Arc::new(Shared {
                gate: Gate::new(),
                seats: core::array::from_fn(|_| Seat::new()),
                state: core::array::from_fn(|_| UnsafeCell::new(0)),
                forks: UnsafeCell::new(0),
            })
        }
        fn change(&self, who: usize) {
            // SAFETY: loom checks.
            self.state[who].with_mut(|p| unsafe { *p += 1 });
        }
        fn enter(&self, who: usize) -> bool {
            self.gate.try_enter(&self.seats[who], id(who))
        }
        /// A slow path within a slow path.
        fn visit(&self, who: usize) {
            let seat = &self.seats[who];
            if self.enter(who) {
                self.change(who);
                assert!(self.enter(who), "who is inside is let in again");
                self.gate.leave(seat);
                assert!(seat.is_inside());
                self.change(who);
                self.gate.leave(seat);
            }
            assert!(!seat.is_inside());
        }
        /// Closes, and if every other seat is seen outside, touches what they touch.
        fn fork(&self, own: usize) -> bool {
            if !self.gate.close(id(own)) {
                return false;
            }
            // SAFETY: one closer at a time; loom checks.
            self.forks.with_mut(|p| unsafe { *p += 1 });
            let others = || (0..SEATS).filter(|&s| s != own);
            let alone = others().all(|s| !self.seats[s].is_inside());
            if alone {
                others().for_each(|s| self.change(s));
                assert!(self.enter(own), "the closer itself is let in");
                self.change(own);
                self.gate.leave(&self.seats[own]);
            }
            self.gate.open();
            alone
        }
    }

    #[test]
    fn no_thread_is_inside_a_closed_gate() {
        loom::model(|| {
            let shared = Shared::<3>::new();
            let threads = [1, 2].map(|who| {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.visit(who))
            });
            shared.fork(0);
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(shared.fork(0), "all are outside in the end");
        });
    }

    #[test]
    fn one_of_two_closers_waits() {
        loom::model(|| {
            let shared = Shared::<2>::new();
            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.fork(1))
            };
            let mine = shared.fork(0);
            let other = other.join().unwrap();
            assert!(mine || other, "two that wait for each other");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ME: ThreadId = ThreadId(NonZeroUsize::MIN);
    const OTHER: ThreadId = ThreadId(NonZeroUsize::MAX);

    #[test]
    fn a_child_opens_the_gate_whoever_closed_it() {
        let (gate, own, dead) = (Gate::new(), Seat::new(), Seat::new());
        assert!(gate.close(ME) && !gate.close(OTHER));
        assert!(!gate.try_enter(&dead, OTHER));
        gate.open();
        assert!(gate.try_enter(&own, ME));
        gate.leave(&own);

        assert!(gate.close(OTHER));
        assert!(gate.try_enter(&dead, OTHER));
        assert!(!gate.try_enter(&own, ME));
        dead.reset_in_child();
        gate.open();
        assert!(!own.is_inside() && !dead.is_inside());
        assert!(gate.try_enter(&own, ME));
    }

    #[test]
    fn a_fork_from_inside_stays_inside_in_both() {
        // A signal handler that forks while its thread is in a slow path.
        let (gate, own) = (Gate::new(), Seat::new());
        assert!(gate.try_enter(&own, ME));
        assert!(gate.close(ME));
        gate.open();
        assert!(
            own.is_inside(),
            "the slow path goes on in the parent and in the child"
        );
        gate.leave(&own);
        assert!(!own.is_inside());
    }

    #[test]
    fn a_handler_knows_a_gate_that_its_own_thread_has_closed() {
        let (gate, own) = (Gate::new(), Seat::new());
        assert!(!gate.is_closed_by(ME));
        assert!(gate.close(ME));
        assert!(gate.is_closed_by(ME) && !gate.is_closed_by(OTHER));
        assert!(gate.try_enter(&own, ME), "handlers around fork allocate");
        gate.leave(&own);
        gate.open();
        assert!(!gate.is_closed_by(ME));
    }
}
