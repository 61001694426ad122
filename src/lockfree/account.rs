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
            Ok(_) => true,
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
        self.held.fetch_add(bytes.get(), Ordering::Acquire);
    }

    /// Gives back `bytes` that were charged, after their memory is released.
    pub fn uncharge(&self, bytes: Bytes) {
        // Release: pairs with the Acquire in `charge`.
        let held = self.held.fetch_sub(bytes.get(), Ordering::Release);
        debug_assert!(held >= bytes.get(), "more given back than charged");
    }

    /// Called when what was charged has been had. A charge alone does not count: the system may
    /// yet refuse the memory, and a peak above what the tier ever held would name a need that was
    /// never met. Who charges and then may have to take it back keeps others from calling this
    /// meanwhile.
    pub fn note_peak(&self) {
        // Relaxed (all): statistics. The read first spares the write, and with it the cache line,
        // to all but the charges that set a record.
        let held = self.held.load(Ordering::Relaxed);
        if held > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(held, Ordering::Relaxed);
        }
    }

    /// Charges that began earlier may still go by the former limit.
    pub fn set_limit(&self, limit: Option<Bytes>) {
        // Relaxed: the configuration is published before threads use it, by its own Release.
        self.limit
            .store(limit.map_or(usize::MAX, Bytes::get), Ordering::Relaxed);
    }

    /// Starts anew: in a forked child, whose tiers are its own, and for a tier that takes the
    /// place of a closed one. Nobody charges meanwhile.
    pub fn restart(&self, limit: Option<Bytes>) {
        self.set_limit(limit);
        // Relaxed: the caller publishes the account anew.
        self.held.store(0, Ordering::Relaxed);
        self.peak.store(0, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
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

    /// The most bytes ever had, as far as noted.
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

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use super::*;
    use loom::cell::UnsafeCell;

    const LIMIT: Bytes = Bytes::new(10);

    fn charge(account: &Arc<AtomicAccount>, bytes: usize) -> loom::thread::JoinHandle<bool> {
        let account = account.clone();
        loom::thread::spawn(move || account.charge(Bytes::new(bytes)))
    }

    #[test]
    fn two_charges_at_the_limit() {
        loom::model(|| {
            let account = Arc::new(AtomicAccount::new(Some(LIMIT)));
            let six = charge(&account, 6);
            let small = charge(&account, 4);
            let mine = account.charge(Bytes::new(6));
            assert!(account.held() <= LIMIT);
            let other = six.join().unwrap();
            assert!(mine != other, "one of two charges of 6 fits into 10");
            assert!(
                small.join().unwrap(),
                "4 fit beside 6, whatever else is tried"
            );
            assert_eq!(account.held(), LIMIT);
            assert_eq!(account.peak(), Bytes::ZERO, "nobody said that it was had");
            assert_eq!(account.refused(), 1);
        });
    }

    /// Who gets in because another gave back also sees that the memory is released.
    #[test]
    fn room_given_back_is_room_released() {
        struct File(UnsafeCell<u32>);
        // SAFETY: loom checks.
        unsafe impl Sync for File {}
        // SAFETY: as above.
        unsafe impl Send for File {}
        impl File {
            fn touch(&self) {
                // SAFETY: loom checks.
                self.0.with_mut(|p| unsafe { *p += 1 });
            }
        }

        loom::model(|| {
            let account = Arc::new(AtomicAccount::new(Some(LIMIT)));
            let file = Arc::new(File(UnsafeCell::new(0)));
            let user = {
                let (account, file) = (account.clone(), file.clone());
                loom::thread::spawn(move || {
                    if account.charge(LIMIT) {
                        file.touch();
                        account.uncharge(LIMIT);
                    }
                })
            };
            if account.charge(LIMIT) {
                file.touch();
                account.uncharge(LIMIT);
            }
            user.join().unwrap();
            assert_eq!(account.held(), Bytes::ZERO);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_to_the_byte_and_does_not_wrap() {
        let account = AtomicAccount::new(Some(Bytes::new(100)));
        assert!(account.charge(Bytes::new(100)));
        account.note_peak();
        assert!(!account.charge(Bytes::new(1)));
        assert!(account.charge(Bytes::ZERO));
        account.uncharge(Bytes::new(1));
        assert!(!account.charge(Bytes::new(usize::MAX)));
        assert!(account.charge(Bytes::new(1)));
        assert_eq!((account.peak(), account.refused()), (Bytes::new(100), 2));

        let unlimited = AtomicAccount::new(None);
        assert!(unlimited.charge(Bytes::new(usize::MAX)));
        assert!(!unlimited.charge(Bytes::new(1)));
    }

    #[test]
    fn beyond_the_limit_only_by_name() {
        let account = AtomicAccount::new(Some(Bytes::new(100)));
        account.charge_beyond(Bytes::new(150));
        account.note_peak();
        assert_eq!(
            (account.held(), account.peak()),
            (Bytes::new(150), Bytes::new(150))
        );
        assert!(!account.charge(Bytes::new(1)));
        account.uncharge(Bytes::new(60));
        assert!(account.charge(Bytes::new(10)));
    }

    #[test]
    fn the_peak_is_of_bytes_that_were_had() {
        let account = AtomicAccount::new(Some(Bytes::new(100)));
        assert!(account.charge(Bytes::new(30)));
        account.note_peak();
        // Charged, refused by the system, and given back.
        assert!(account.charge(Bytes::new(60)));
        account.uncharge(Bytes::new(60));
        account.note_peak();
        assert!(!account.charge(Bytes::new(71)));
        account.note_peak();
        assert_eq!(account.peak(), Bytes::new(30));
    }
}
