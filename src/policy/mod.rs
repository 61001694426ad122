//! Which tier a new slab or large block comes from: functions from values to values.
//!
//! Nothing here reads a clock, an atomic or the system, so a decision is tested by calling it
//! and a whole run of decisions by a loop (the tests simulate heaps of gigabytes in
//! milliseconds). The caller takes a snapshot of the tiers, asks, and acts; a snapshot that is a
//! few charges old costs a placement that is a few extents off, never correctness, because the
//! limits themselves are enforced by the tiers.

mod auto;
mod order;
mod place;
#[cfg(test)]
mod simulation;

pub use auto::{AutoMemory, MAX_THRESHOLD, MIN_THRESHOLD, next_threshold};
pub use order::Order;
pub use place::place;

use crate::base::Bytes;

/// DRAM and eight slower tiers.
pub const MAX_TIERS: usize = 9;

/// What a policy sees of a tier. Index 0 of a slice of views is DRAM, the others follow from fast
/// to slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierView {
    /// What the tier holds for blocks now.
    pub held: Bytes,
    /// What it may hold: the budget `dram=` for DRAM, `limit:` for the others.
    pub limit: Option<Bytes>,
    /// Its share under [`Policy::Ratio`] and [`Policy::Auto`], relative to the other tiers'.
    pub weight: u32,
}

impl TierView {
    /// Whether `grow` more bytes keep it within its limit.
    fn has_room(&self, grow: Bytes) -> bool {
        match (self.limit, self.held.checked_add(grow)) {
            (Some(limit), Some(then)) => then <= limit,
            (None, then) => then.is_some(),
            (Some(_), None) => false,
        }
    }
    /// Whether the tier, empty, could take `grow` bytes.
    fn could_ever_hold(&self, grow: Bytes) -> bool {
        self.limit.is_none_or(|limit| grow <= limit)
    }
}

/// What the user asked for. `heat` places as `Size`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    Dram,
    Cold,
    Size,
    Ratio,
    Auto,
}

/// A thread heap keeps two sets of bins for each kind; a request belongs to one by its size, so
/// that blocks meant for different tiers never share a slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Near,
    Far,
}

/// The set of bins a request of `size` bytes belongs to.
#[inline]
pub const fn side(policy: Policy, threshold: Bytes, size: Bytes) -> Side {
    match policy {
        Policy::Size | Policy::Auto if size.get() >= threshold.get() => Side::Far,
        Policy::Cold => Side::Far,
        // Ratio keeps one set: it splits bytes, not sizes, so each slab may land anywhere.
        Policy::Size | Policy::Auto | Policy::Dram | Policy::Ratio => Side::Near,
    }
}

/// Whether the policy means blocks of this side for a cold tier, so that their classes are
/// multiples of the medium's write unit. Near blocks that end up there because DRAM's budget is
/// used up do not count: rounding every small block for the sake of a fallback costs DRAM, which
/// is what has just run out.
#[inline]
pub const fn may_be_cold(policy: Policy, side: Side) -> bool {
    match policy {
        Policy::Dram => false,
        Policy::Ratio | Policy::Cold => true,
        Policy::Size | Policy::Auto => matches!(side, Side::Far),
    }
}

/// The tier, by its place among `tiers` of them, that the policy wants for every request of this
/// side whatever the tiers hold; `None` where that depends.
#[inline]
pub const fn steady_tier(policy: Policy, side: Side, tiers: usize) -> Option<usize> {
    match (policy, side) {
        (Policy::Dram, _) | (Policy::Size | Policy::Auto, Side::Near) => Some(0),
        (Policy::Cold, _) | (Policy::Size, Side::Far) => Some((tiers > 1) as usize),
        (Policy::Ratio, _) | (Policy::Auto, Side::Far) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_steady_tier_is_what_place_wants() {
        let policies = [
            Policy::Dram,
            Policy::Cold,
            Policy::Size,
            Policy::Ratio,
            Policy::Auto,
        ];
        for n in 1..=MAX_TIERS {
            for fill in 0..8 {
                let tiers: Vec<TierView> = (0..n)
                    .map(|i| TierView {
                        held: Bytes::mib(10 * (fill >> (i % 3) & 1)),
                        limit: Some(Bytes::mib(10)),
                        weight: i as u32,
                    })
                    .collect();
                for policy in policies {
                    for side in [Side::Near, Side::Far] {
                        let wanted = place(policy, side, Bytes::mib(1), &tiers, false).wanted();
                        if let Some(steady) = steady_tier(policy, side, n) {
                            assert_eq!(wanted, steady, "{policy:?} {side:?} {tiers:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_threshold_itself_is_far() {
        let t = Bytes::kib(64);
        for policy in [Policy::Size, Policy::Auto] {
            assert_eq!(side(policy, t, Bytes::new(t.get() - 1)), Side::Near);
            assert_eq!(side(policy, t, t), Side::Far);
        }
    }

    #[test]
    fn policies_without_a_threshold_have_one_side() {
        for size in [0, 1, 4096, 1 << 40].map(Bytes::new) {
            assert_eq!(side(Policy::Dram, Bytes::ZERO, size), Side::Near);
            assert_eq!(side(Policy::Ratio, Bytes::ZERO, size), Side::Near);
            assert_eq!(side(Policy::Cold, Bytes::mib(1), size), Side::Far);
        }
    }

    #[test]
    fn only_blocks_meant_for_a_cold_tier_are_rounded_for_it() {
        assert!(!may_be_cold(Policy::Dram, Side::Near));
        assert!(!may_be_cold(Policy::Size, Side::Near));
        assert!(!may_be_cold(Policy::Auto, Side::Near));
        assert!(may_be_cold(Policy::Size, Side::Far));
        assert!(may_be_cold(Policy::Auto, Side::Far));
        assert!(may_be_cold(Policy::Cold, Side::Far));
        assert!(may_be_cold(Policy::Ratio, Side::Near));
    }

    #[test]
    fn room_is_to_the_byte_and_does_not_wrap() {
        let tier = |held, limit| TierView {
            held: Bytes::new(held),
            limit,
            weight: 1,
        };
        let ten = Some(Bytes::new(10));
        assert!(tier(6, ten).has_room(Bytes::new(4)));
        assert!(!tier(6, ten).has_room(Bytes::new(5)));
        assert!(!tier(6, ten).has_room(Bytes::new(usize::MAX)));
        assert!(!tier(6, None).has_room(Bytes::new(usize::MAX)));
        assert!(tier(6, None).has_room(Bytes::new(usize::MAX - 6)));
    }
}
