//! The bytes a tier holds, against its limit.

use super::const_unless_loom;
use crate::base::Bytes;
use crate::sync::{AtomicUsize, Ordering};

/// A count of bytes that threads charge before they take memory from a tier and give back after
/// they have released it.
#[derive(Debug)]
pub struct AtomicAccount {
    held: AtomicUsize,
    peak: AtomicUsize,
    refused: AtomicUsize,
    /// `usize::MAX` stands for none: no process can hold that many bytes.
    limit: AtomicUsize,
}

impl AtomicAccount {
    const_unless_loom! {
        /// An empty account.
        pub fn new(limit: Option<Bytes>) -> AtomicAccount {
            AtomicAccount {
                held: AtomicUsize::new(0),
                peak: AtomicUsize::new(0),
                refused: AtomicUsize::new(0),
                limit: AtomicUsize::new(match limit {
                    Some(limit) => limit.get(),
                    None => usize::MAX,
                }),
            }
        }
    }

    /// Takes `bytes` if the account then stays within its limit; counts a refusal otherwise.
    /// An add that is taken back when it went too far would be one instruction instead of a
    /// loop, but it refuses others for the moment in between although there is room for them.
    pub fn charge(&self, bytes: Bytes) -> bool {
        // Relaxed: the limit is a number of its own; see `set_limit`.
        let limit = self.limit.load(Ordering::Relaxed);
        let within = |held: usize| held.checked_add(bytes.get()).filter(|&then| then <= limit);
        // Acquire pairs with the Release in `uncharge`: who is let in because another thread gave
        // bytes back also sees that their memory is released. The failed load decides nothing but
        // a refusal, so Relaxed is enough.
        let charged = self
            .held
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, within);
        match charged {
            Ok(held) => {
                self.raise_peak(held.wrapping_add(bytes.get()));
                true
            }
            Err(_) => {
                // Relaxed: a statistic.
                self.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Takes `bytes` whatever the limit: DRAM as the last resort of a request that every tier has
    /// refused.
    pub fn charge_beyond(&self, bytes: Bytes) {
        // Acquire: as in `charge`.
        let held = self.held.fetch_add(bytes.get(), Ordering::Acquire);
        self.raise_peak(held.wrapping_add(bytes.get()));
    }

    /// Gives back `bytes` that were charged, after their memory is released.
    pub fn uncharge(&self, bytes: Bytes) {
        // Release: pairs with the Acquire in `charge`.
        let held = self.held.fetch_sub(bytes.get(), Ordering::Release);
        debug_assert!(held >= bytes.get(), "more given back than charged");
    }

    fn raise_peak(&self, then: usize) {
        // Relaxed: a statistic. The read first spares the write, and with it the cache line,
        // to all but the charges that set a record.
        if then > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(then, Ordering::Relaxed);
        }
    }

    /// Charges that began earlier may still go by the former limit.
    pub fn set_limit(&self, limit: Option<Bytes>) {
        // Relaxed: the configuration is published before threads use it, by its own Release.
        self.limit
            .store(limit.map_or(usize::MAX, Bytes::get), Ordering::Relaxed);
    }

    pub fn limit(&self) -> Option<Bytes> {
        // Relaxed: see `set_limit`.
        match self.limit.load(Ordering::Relaxed) {
            usize::MAX => None,
            limit => Some(Bytes::new(limit)),
        }
    }

    pub fn held(&self) -> Bytes {
        // Relaxed: a snapshot; who acts on it charges first.
        Bytes::new(self.held.load(Ordering::Relaxed))
    }

    /// The most bytes ever held.
    pub fn peak(&self) -> Bytes {
        // Relaxed: a statistic.
        Bytes::new(self.peak.load(Ordering::Relaxed))
    }

    /// How often a charge was refused.
    pub fn refused(&self) -> usize {
        // Relaxed: a statistic.
        self.refused.load(Ordering::Relaxed)
    }
}
