//! The lock of slow paths.
//!
//! The holder may be preempted at any instruction (these are user threads), and a waiter that only
//! spins then burns the holder's own time slice, or under a real-time priority keeps it from ever
//! running. So waiting goes in two steps: spin, then sleep. No `sched_yield`: glibc's malloc never
//! calls it, so sandboxes may kill for it.

use super::futex;
use crate::sync::AtomicU32;
use spin::mutex::SpinMutex;
use spin::relax::RelaxStrategy;

/// What a waiter did so far.
#[derive(Default)]
pub struct Patience(u32);

impl Patience {
    /// Spins that cover a holder which runs on another processor (about a microsecond).
    const SPINS: u32 = 64;
    /// Then sleep, longer each time up to 256 times this: a holder that sleeps itself is not worth
    /// waking up for every time. The kernel rounds short sleeps up to some 50 µs.
    const NAP_NANOS: u32 = 3_000;

    pub fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 <= Self::SPINS {
            for _ in 0..16 {
                core::hint::spin_loop();
            }
        } else {
            let before = self.0 - Self::SPINS - 1;
            nap(Self::NAP_NANOS << before.min(8));
        }
    }
}

/// `spin`'s view of the second step, for its own loops.
pub struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        nap(Patience::NAP_NANOS);
    }
}

/// A futex that nobody wakes is a sleep, by a call that sandboxes already grant to malloc.
#[cold]
pub(super) fn nap(nanos: u32) {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    futex::wait(&NEVER, 0, Some(nanos));
}

/// A value under a lock. Taking it allocates nothing and works before libc is initialised.
pub struct Lock<T>(SpinMutex<T, Yield>);

/// Access to the value; the lock is free again when it is dropped.
pub type Guard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock(SpinMutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_slow(),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) -> Guard<'_, T> {
        let mut patience = Patience::default();
        loop {
            patience.wait();
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
    }

    /// The lock, unless it stays taken for some 20 ms: for who may have interrupted its holder.
    pub fn lock_within(&self) -> Option<Guard<'_, T>> {
        const ROUNDS: u32 = 400;
        let mut patience = Patience::default();
        for _ in 0..ROUNDS {
            if let Some(guard) = self.0.try_lock() {
                return Some(guard);
            }
            patience.wait();
        }
        None
    }

    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock()
    }

    /// The value, whoever holds the lock: for what may be looked at without it (an atomic).
    pub fn as_ptr(&self) -> *mut T {
        self.0.as_mut_ptr()
    }

    /// Frees the lock in a child made by a fork that ran past our handlers (`_Fork`, the raw
    /// system call), where a thread that is gone may have held it.
    ///
    /// # Safety
    /// This process has one thread, and no guard of this lock is alive in it. The value may be
    /// half-written: the caller sets it anew.
    pub unsafe fn reset_in_child(&self) {
        if self.0.is_locked() {
            // SAFETY: the caller holds no guard, so nobody else will unlock it.
            unsafe { self.0.force_unlock() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::testing::{Ended, in_child};
    use std::time::{Duration, Instant};

    #[test]
    fn every_update_under_the_lock_counts() {
        static COUNT: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *COUNT.lock() += 1));
            }
        });
        assert_eq!(*COUNT.lock(), 80_000);
        let held = COUNT.lock();
        assert!(COUNT.try_lock().is_none());
        drop(held);
        assert!(COUNT.try_lock().is_some());
    }

    #[test]
    fn a_waiter_sleeps_while_a_holder_sleeps() {
        static HELD: Lock<()> = Lock::new(());
        let guard = HELD.lock();
        let spent = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let before = crate::os::testing::thread_cpu_time();
                drop(HELD.lock());
                crate::os::testing::thread_cpu_time() - before
            });
            std::thread::sleep(Duration::from_millis(400));
            drop(guard);
            waiter.join().unwrap()
        });
        assert!(
            spent < Duration::from_millis(40),
            "{spent:?} of 400 ms were burnt"
        );
    }

    #[test]
    fn a_child_can_free_what_a_thread_that_is_gone_held() {
        static HELD: Lock<u32> = Lock::new(7);
        let guard = HELD.lock();
        let ended = in_child(|| {
            let stuck = HELD.try_lock().is_none();
            // SAFETY: one thread, and the guard of the parent's frame is never dropped here.
            unsafe { HELD.reset_in_child() };
            stuck && *HELD.lock() == 7
        });
        assert_eq!(ended, Ended::Exit(0));
        drop(guard);
    }

    #[test]
    fn a_futex_wakes_and_times_out() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let start = Instant::now();
        futex::wait(&WORD, 1, None); // another value: returns at once
        futex::wait(&WORD, 0, Some(20_000_000));
        assert!(start.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while WORD.load(crate::sync::Ordering::Acquire) == 0 {
                    futex::wait(&WORD, 0, None);
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            WORD.store(1, crate::sync::Ordering::Release);
            futex::wake(&WORD, 1);
            sleeper.join().unwrap();
        });
    }
}
