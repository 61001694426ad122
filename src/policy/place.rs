//! The placement of one slab or large block.

use super::{MAX_TIERS, Order, Policy, Side, TierView};
use crate::base::Bytes;

const DRAM: usize = 0;

/// The tiers to try for a new slab or large block of `grow` bytes, best first.
///
/// First come the tiers the policy names, those with room before those that seem full (a
/// snapshot may be old, so those are still worth a try). With `strict` the list ends there.
/// Without it every other tier follows, fastest first, and DRAM whose budget is used up comes
/// last of all: there the caller may go over the budget, because a program that gets memory
/// beyond a budget is better off than one that gets NULL.
///
/// A tier whose limit is below `grow` is left out, DRAM as a last resort excepted.
pub fn place(policy: Policy, side: Side, grow: Bytes, tiers: &[TierView], strict: bool) -> Order {
    let tiers = tiers.get(..tiers.len().min(MAX_TIERS)).unwrap_or(tiers);
    let preference = match (policy, side) {
        (Policy::Dram, _) | (Policy::Size | Policy::Auto, Side::Near) => {
            Preference::first_of(tiers, |i| i == DRAM)
        }
        (Policy::Cold, _) | (Policy::Size, Side::Far) => Preference::first_of(tiers, |i| i != DRAM),
        (Policy::Ratio, _) => Preference::by_share(grow, tiers, |_| true),
        // The threshold splits DRAM from the rest; the cold tiers split theirs by weight.
        (Policy::Auto, Side::Far) => Preference::by_share(grow, tiers, |i| i != DRAM),
    };

    let mut order = Order::EMPTY;
    order.set_wanted(preference.named().next().unwrap_or(DRAM));
    let view = |i: usize| tiers.get(i).copied();
    let has_room = |i: usize| view(i).is_some_and(|t| t.has_room(grow));
    let could_ever = |i: usize| view(i).is_some_and(|t| t.could_ever_hold(grow));
    let dram_waits = !strict && !has_room(DRAM);

    let groups: [fn(bool) -> bool; 2] = [|room| room, |room| !room];
    for in_group in groups {
        for tier in preference.named().filter(|&t| in_group(has_room(t))) {
            if could_ever(tier) && !(tier == DRAM && dram_waits) {
                order.push(tier);
            }
        }
    }
    order.fallback_from_here();
    if strict {
        return order;
    }
    for in_group in groups {
        for tier in (0..tiers.len()).filter(|&t| in_group(has_room(t))) {
            if could_ever(tier) && !(tier == DRAM && dram_waits) {
                order.push(tier);
            }
        }
    }
    order.push(DRAM);
    order
}

/// The tiers a policy names, in the order in which it would fill them had each endless room.
struct Preference {
    tiers: [u8; MAX_TIERS],
    len: usize,
}

impl Preference {
    fn named(&self) -> impl Iterator<Item = usize> + '_ {
        self.tiers.iter().take(self.len).map(|&t| t as usize)
    }

    fn first_of(tiers: &[TierView], named: fn(usize) -> bool) -> Preference {
        let mut preference = Preference {
            tiers: [0; MAX_TIERS],
            len: 0,
        };
        for tier in (0..tiers.len()).filter(|&t| named(t)) {
            preference.push(tier);
        }
        preference
    }

    /// By need: the tiers below their share of the bytes first, and of those the one first that
    /// would fall behind first if the others got everything from now on. A tier is so never more
    /// than `grow` above its share. Serving merely the largest deficit in bytes keeps small
    /// weights waiting for longer than one extent as soon as there are three tiers.
    fn by_share(grow: Bytes, tiers: &[TierView], among: fn(usize) -> bool) -> Preference {
        let named = |i: usize, t: &TierView| among(i) && t.weight > 0;
        let (mut total, mut weights) = (grow.get() as u128, 0u128);
        for (i, t) in tiers.iter().enumerate() {
            if named(i, t) {
                total += t.held.get() as u128;
                weights += t.weight as u128;
            }
        }
        // Held bytes fit 64 bits and a weight 32, so that no product below passes 100 bits.
        let need = |t: &TierView| Need {
            above_share: t.held.get() as u128 * weights >= t.weight as u128 * total,
            then_held: t.held.get() as u128 + grow.get() as u128,
            weight: t.weight as u128,
        };
        let mut preference = Preference::first_of(tiers, |_| false);
        for (i, t) in tiers.iter().enumerate() {
            if named(i, t) {
                let place = preference
                    .named()
                    .position(|other| tiers.get(other).is_some_and(|o| need(t).before(&need(o))))
                    .unwrap_or(preference.len);
                preference.insert(place, i);
            }
        }
        preference
    }

    fn push(&mut self, tier: usize) {
        self.insert(self.len, tier);
    }

    fn insert(&mut self, at: usize, tier: usize) {
        if let Some(tail) = self.tiers.get_mut(at..)
            && self.len < MAX_TIERS
        {
            tail.rotate_right(1);
            if let Some(slot) = tail.first_mut() {
                *slot = tier as u8;
                self.len += 1;
            }
        }
    }
}

struct Need {
    above_share: bool,
    then_held: u128,
    weight: u128,
}

impl Need {
    /// Strictly, so that among equals the faster tier stays first.
    fn before(&self, other: &Need) -> bool {
        match (self.above_share, other.above_share) {
            (false, true) => true,
            (true, false) => false,
            // then_held / weight < other.then_held / other.weight
            _ => self.then_held * other.weight < other.then_held * self.weight,
        }
    }
}
