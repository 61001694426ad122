//! Who may touch a thread heap.

use super::const_unless_loom;
use crate::sync::{AtomicU8, Ordering};

const OWNED: u8 = 0;
const ORPHAN: u8 = 1;
const CLAIMED: u8 = 2;

/// The state of a thread heap.
///
/// ```text
///           orphan()             try_claim()
///   Owned ------------> Orphan ---------------> Claimed
///     ^                   ^                      |   |
///     |                   +--release_as_orphan---+   |
///     +-------------------keep_as_owner--------------+
/// ```
/// Whoever brought it to Owned or Claimed has the heap's unshared parts to itself. A claim is
/// short: it drains the inbox, or it is the first half of an adoption.
#[derive(Debug)]
pub struct Ownership {
    state: AtomicU8,
}

impl Ownership {
    const_unless_loom! {
        /// Owned by the thread that makes the heap.
        pub fn new_owned() -> Ownership {
            Ownership { state: AtomicU8::new(OWNED) }
        }
    }

    /// The owner leaves. [`super::orphan::abandon`] does this and what has to follow.
    pub fn orphan(&self) {
        debug_assert!(self.is(OWNED));
        // Release pairs with the Acquire in `try_claim`: who claims sees the heap as it was left.
        self.state.store(ORPHAN, Ordering::Release);
    }

    /// Takes an orphan. Fails where the heap has an owner or another claimant.
    #[must_use = "a claim that is not released keeps the heap for ever"]
    pub fn try_claim(&self) -> bool {
        self.state
            .compare_exchange(
                ORPHAN,
                CLAIMED,
                Ordering::Acquire, // pairs with the Release in `orphan`, `release_as_orphan`
                Ordering::Relaxed, // a failed claim touches nothing
            )
            .is_ok()
    }

    /// Ends a claim; [`super::orphan::drain_slow`] does this and what has to follow.
    pub fn release_as_orphan(&self) {
        debug_assert!(self.is(CLAIMED));
        // Release: pairs with the Acquire in `try_claim`.
        self.state.store(ORPHAN, Ordering::Release);
    }

    /// The claimant becomes the owner.
    pub fn keep_as_owner(&self) {
        debug_assert!(self.is(CLAIMED));
        // Relaxed: the claim has acquired the heap, and nobody reads anything on the strength of
        // seeing Owned.
        self.state.store(OWNED, Ordering::Relaxed);
    }

    /// Whether the heap waits for someone to take it. Old by the time it returns.
    pub fn is_orphan(&self) -> bool {
        self.is(ORPHAN)
    }

    fn is(&self, state: u8) -> bool {
        // Relaxed: decides whether `try_claim` is worth a try; that one synchronises.
        self.state.load(Ordering::Relaxed) == state
    }
}
