//! The answer of a policy: which tiers to try, in which order.

use super::MAX_TIERS;

/// The tiers to try for one request, best first, none twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    tiers: [u8; MAX_TIERS],
    len: u8,
    fallback_from: u8,
    wanted: u8,
}

impl Order {
    pub(super) const EMPTY: Order = Order {
        tiers: [0; MAX_TIERS],
        len: 0,
        fallback_from: 0,
        wanted: 0,
    };

    /// Appends `tier` unless it is there already; a policy can so list its groups in order of
    /// preference and let them overlap.
    pub(super) fn push(&mut self, tier: usize) {
        if tier >= MAX_TIERS || self.iter().any(|t| t == tier) {
            return;
        }
        if let Some(slot) = self.tiers.get_mut(self.len as usize) {
            *slot = tier as u8;
            self.len += 1;
        }
    }

    /// What was pushed so far is what the policy asked for; what follows is fallback.
    pub(super) fn fallback_from_here(&mut self) {
        self.fallback_from = self.len;
    }

    pub(super) fn set_wanted(&mut self, tier: usize) {
        self.wanted = tier as u8;
    }

    /// The position from which on a tier counts as a fallback: the policy did not name it, or
    /// it is DRAM beyond its budget.
    pub fn fallback_from(&self) -> usize {
        self.fallback_from as usize
    }

    /// The tier the policy would choose if every tier had room. Where another one takes the
    /// request, this is the tier that refused it.
    pub fn wanted(&self) -> usize {
        self.wanted as usize
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.tiers
            .iter()
            .take(self.len as usize)
            .map(|&t| t as usize)
    }
}

impl IntoIterator for Order {
    type Item = usize;
    type IntoIter =
        core::iter::Map<core::iter::Take<core::array::IntoIter<u8, MAX_TIERS>>, fn(u8) -> usize>;
    fn into_iter(self) -> Self::IntoIter {
        self.tiers
            .into_iter()
            .take(self.len as usize)
            .map(usize::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_listed_once_at_its_first_place() {
        let mut order = Order::EMPTY;
        for tier in [2, 0, 2, 1, 0] {
            order.push(tier);
        }
        assert_eq!(order.iter().collect::<std::vec::Vec<_>>(), [2, 0, 1]);
        assert!(order.into_iter().eq([2, 0, 1]));
    }

    #[test]
    fn tiers_beyond_the_table_are_not_listed() {
        let mut order = Order::EMPTY;
        for tier in 0..3 * MAX_TIERS {
            order.push(tier);
        }
        assert!(order.iter().eq(0..MAX_TIERS));
    }
}
