//! Properties of whole runs of decisions, on heaps that exist only as numbers.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::base::{CLASSES, SEGMENT, SLICE, SizeClass};

const POLICIES: [Policy; 5] = [
    Policy::Dram,
    Policy::Cold,
    Policy::Size,
    Policy::Ratio,
    Policy::Auto,
];

fn tier() -> impl Strategy<Value = TierView> {
    // A coarse grid, so that full tiers, tiers filled exactly and equal shares all happen.
    let bytes = prop_oneof![
        4 => (0usize..6).prop_map(Bytes::mib),
        1 => any::<usize>().prop_map(Bytes::new),
    ];
    (bytes.clone(), proptest::option::of(bytes), 0u32..4).prop_map(|(held, limit, weight)| {
        TierView {
            held,
            limit,
            weight,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 1024 }))]

    #[test]
    fn an_order_names_each_tier_at_most_once_and_none_outside(
        tiers in prop::collection::vec(tier(), 1..=MAX_TIERS + 2),
        policy in prop::sample::select(&POLICIES),
        far in any::<bool>(),
        grow in prop_oneof![(0usize..6).prop_map(Bytes::mib), any::<usize>().prop_map(Bytes::new)],
        strict in any::<bool>(),
    ) {
        let side = if far { Side::Far } else { Side::Near };
        let order = place(policy, side, grow, &tiers, strict);
        let listed: Vec<usize> = order.iter().collect();
        let known = tiers.len().min(MAX_TIERS);
        for (i, t) in listed.iter().enumerate() {
            prop_assert!(*t < known);
            prop_assert!(!listed[..i].contains(t), "{listed:?}");
        }
        prop_assert!(order.fallback_from() <= order.len());
        prop_assert!(order.wanted() < known);

        let named = |t: usize| match (policy, side) {
            (Policy::Dram, _) | (Policy::Size | Policy::Auto, Side::Near) => t == 0,
            (Policy::Cold, _) | (Policy::Size, Side::Far) => t != 0,
            (Policy::Ratio, _) => tiers[t].weight > 0,
            (Policy::Auto, Side::Far) => t != 0 && tiers[t].weight > 0,
        };
        for (i, &t) in listed.iter().enumerate() {
            if i < order.fallback_from() {
                prop_assert!(named(t), "{t} is not what {policy:?} asks for");
                prop_assert!(strict || t != 0 || tiers[0].has_room(grow), "beyond its budget");
            }
        }
        if strict {
            prop_assert_eq!(order.fallback_from(), order.len());
        } else {
            // Every tier that could hold it is tried, and DRAM in any case.
            for t in (0..known).filter(|&t| t == 0 || tiers[t].could_ever_hold(grow)) {
                prop_assert!(listed.contains(&t), "{t} is not tried: {listed:?}");
            }
            if !tiers[0].has_room(grow) {
                prop_assert_eq!(listed.last(), Some(&0), "beyond its budget last of all");
            }
        }
    }

    #[test]
    fn ratio_stays_within_one_extent_of_the_weights(
        weights in prop::collection::vec(prop_oneof![0u32..8, 0u32..1000, Just(u32::MAX)], 1..=MAX_TIERS),
        slabs in prop::collection::vec(prop_oneof![
            (1usize..=32).prop_map(|n| SLICE.times(n)),
            (1usize..=8).prop_map(|n| SEGMENT.times(n)),
        ], 1..400),
    ) {
        prop_assume!(weights.iter().any(|&w| w > 0));
        let mut tiers: Vec<TierView> = weights
            .iter()
            .map(|&weight| TierView { held: Bytes::ZERO, limit: None, weight })
            .collect();
        let sum: u128 = weights.iter().map(|&w| w as u128).sum();
        let mut largest = 0;
        for grow in slabs {
            largest = largest.max(grow.get() as u128);
            let first = place(Policy::Ratio, Side::Near, grow, &tiers, false).iter().next().unwrap();
            tiers[first].held = tiers[first].held.checked_add(grow).unwrap();
            let total: u128 = tiers.iter().map(|t| t.held.get() as u128).sum();
            for t in &tiers {
                let off = (t.held.get() as u128 * sum).abs_diff(t.weight as u128 * total);
                prop_assert!(off <= largest * sum, "{tiers:?} after {largest}");
            }
        }
    }

}

proptest! {
    /// Frees unbalance the tiers; placements bring them back, however far off they were.
    #[test]
    fn ratio_recovers_from_frees(
        held in prop::collection::vec((0usize..64, 1u32..16), 2..=MAX_TIERS),
    ) {
        let mut tiers: Vec<TierView> = held
            .iter()
            .map(|&(segments, weight)| TierView { held: SEGMENT.times(segments), limit: None, weight })
            .collect();
        let sum: usize = tiers.iter().map(|t| t.weight as usize).sum();
        // Enough for the tier most above its share to be where it belongs.
        let enough = held.iter().map(|&(s, w)| s * sum / w as usize + 1).max().unwrap() + sum;
        for _ in 0..enough {
            let first = place(Policy::Ratio, Side::Near, SEGMENT, &tiers, true).iter().next().unwrap();
            tiers[first].held = tiers[first].held.checked_add(SEGMENT).unwrap();
        }
        let total: usize = tiers.iter().map(|t| t.held.get()).sum();
        for t in &tiers {
            let off = (t.held.get() * sum).abs_diff(t.weight as usize * total);
            prop_assert!(off <= SEGMENT.get() * sum, "{tiers:?}");
        }
    }
}

/// A heap of one thread under `auto`, with slabs and large blocks but without contents.
struct Simulated {
    tiers: Vec<TierView>,
    threshold: Bytes,
    memory: AutoMemory,
    /// By side and class.
    bins: [Vec<Bin>; 2],
    /// Every threshold in use, in order.
    history: Vec<usize>,
    random: u64,
}

#[derive(Clone, Default)]
struct Bin {
    /// The live blocks and the tier of each slab.
    slabs: Vec<(usize, usize)>,
    /// Slabs with room; a slab whose last block is freed has none, its memory is gone.
    open: Vec<usize>,
    gone: Vec<usize>,
}

enum Block {
    Small(Side, SizeClass, usize),
    Large(usize, Bytes),
}

impl Simulated {
    fn new(weights: &[u32]) -> Simulated {
        let tiers = weights.iter().map(|&weight| TierView {
            held: Bytes::ZERO,
            limit: None,
            weight,
        });
        let bins = || std::vec![Bin::default(); CLASSES];
        Simulated {
            tiers: tiers.collect(),
            threshold: Bytes::kib(64),
            memory: AutoMemory::new(),
            bins: [bins(), bins()],
            history: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// xorshift: the same run each time.
    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn grow(&mut self, side: Side, bytes: Bytes) -> usize {
        self.threshold = next_threshold(self.threshold, bytes, &self.tiers, &mut self.memory);
        self.history.push(self.threshold.get());
        let order = place(Policy::Auto, side, bytes, &self.tiers, false);
        let tier = order.iter().next().unwrap();
        self.tiers[tier].held = self.tiers[tier].held.checked_add(bytes).unwrap();
        tier
    }

    fn shrink(&mut self, tier: usize, bytes: Bytes) {
        self.tiers[tier].held = self.tiers[tier].held.saturating_sub(bytes);
    }

    fn alloc(&mut self, size: Bytes) -> Block {
        let side = side(Policy::Auto, self.threshold, size);
        let Some(class) = SizeClass::of(size) else {
            let size = size.checked_align_up(SLICE).unwrap();
            return Block::Large(self.grow(side, size), size);
        };
        if self.bins[side as usize][class.index()].open.is_empty() {
            let tier = self.grow(side, SLICE.times(class.slab_slices()));
            let bin = &mut self.bins[side as usize][class.index()];
            let slab = bin.gone.pop().unwrap_or_else(|| {
                bin.slabs.push((0, 0));
                bin.slabs.len() - 1
            });
            bin.slabs[slab] = (0, tier);
            bin.open.push(slab);
        }
        let bin = &mut self.bins[side as usize][class.index()];
        let slab = *bin.open.last().unwrap();
        bin.slabs[slab].0 += 1;
        if bin.slabs[slab].0 == class.slab_blocks() {
            bin.open.pop();
        }
        Block::Small(side, class, slab)
    }

    fn free(&mut self, block: Block) {
        match block {
            Block::Large(tier, size) => self.shrink(tier, size),
            Block::Small(side, class, slab) => {
                let bin = &mut self.bins[side as usize][class.index()];
                if bin.slabs[slab].0 == class.slab_blocks() {
                    bin.open.push(slab);
                }
                bin.slabs[slab].0 -= 1;
                if bin.slabs[slab].0 == 0 {
                    bin.open.retain(|&s| s != slab);
                    bin.gone.push(slab);
                    let tier = bin.slabs[slab].1;
                    self.shrink(tier, SLICE.times(class.slab_slices()));
                }
            }
        }
    }

    /// Fills the heap to `bytes` of requests, then replaces random blocks until everything has
    /// been replaced `turns` times on average.
    fn run(&mut self, bytes: usize, turns: usize, size: impl Fn(&mut Simulated) -> usize) {
        let mut blocks = Vec::new();
        let mut asked = 0;
        while asked < bytes {
            let n = size(self);
            asked += n;
            blocks.push(self.alloc(Bytes::new(n)));
        }
        for _ in 0..turns * blocks.len() {
            let victim = self.random(blocks.len());
            let old = blocks.swap_remove(victim);
            self.free(old);
            let n = size(self);
            blocks.push(self.alloc(Bytes::new(n)));
        }
    }

    /// The part of the held bytes that a tier holds, in percent.
    fn percent(&self, tier: usize) -> usize {
        let total: usize = self.tiers.iter().map(|t| t.held.get()).sum();
        self.tiers[tier].held.get() * 100 / total
    }

    /// The largest threshold of the second half of the run over the smallest, in percent.
    fn spread(&self) -> usize {
        let half = &self.history[self.history.len() / 2..];
        half.iter().max().unwrap() * 100 / half.iter().min().unwrap()
    }

    /// How often the threshold turned round in the second half of the run.
    fn turns(&self) -> usize {
        let half = &self.history[self.history.len() / 2..];
        let mut steps: Vec<_> = half
            .windows(2)
            .map(|w| w[1].cmp(&w[0]))
            .filter(|o| o.is_ne())
            .collect();
        steps.dedup();
        steps.len().saturating_sub(1)
    }
}

type Sizes = fn(&mut Simulated) -> usize;
/// A name, sizes, bytes in all, the ratios to reach, and how far off they may stay.
type AutoCase = (&'static str, Sizes, usize, &'static [[u32; 2]], usize);

fn uniform(s: &mut Simulated) -> usize {
    16 + s.random(256 << 10)
}

/// Zipf's law: twice the size is half as likely, so that each doubling has the same bytes.
fn zipf(s: &mut Simulated) -> usize {
    let octave = (0..14).find(|_| s.random(2) == 0).unwrap_or(14);
    (64 << octave) + s.random(64 << octave)
}

/// Three sizes: between them no threshold changes anything, so a ratio is held only by going to
/// and fro across one of them.
fn keys_and_values(s: &mut Simulated) -> usize {
    match s.random(20) {
        0 => 100 << 10,
        1..4 => 10 << 10,
        _ => 48,
    }
}

#[test]
fn auto_reaches_the_ratio() {
    let cases: [AutoCase; 3] = [
        (
            "uniform",
            uniform,
            256 << 20,
            &[[1, 1], [1, 4], [4, 1], [9, 1], [1, 19]],
            4,
        ),
        (
            "keys",
            keys_and_values,
            256 << 20,
            &[[1, 1], [1, 4], [4, 1], [9, 1], [1, 19]],
            6,
        ),
        // 1:19 is out of reach here: blocks below 512 bytes alone are more than a 20th.
        ("zipf", zipf, 128 << 20, &[[1, 1], [1, 4], [4, 1]], 8),
    ];
    for (name, sizes, bytes, ratios, tolerance) in cases {
        for ratio in ratios {
            let mut heap = Simulated::new(ratio);
            heap.run(bytes, 8, sizes);
            let goal = (ratio[0] * 100 / (ratio[0] + ratio[1])) as usize;
            let (near, turns, spread) = (heap.percent(0), heap.turns(), heap.spread());
            std::println!("{name} {ratio:?}: {near} %, {turns} turns, spread {spread} %");
            assert!(
                near.abs_diff(goal) <= tolerance,
                "{name} {ratio:?}: {near} %"
            );
            assert!(turns <= 20, "{name} {ratio:?}: the threshold swings");
            // Of zipf's blocks a large one alone can ask for another octave.
            assert!(
                spread <= 200 || name == "zipf",
                "{name} {ratio:?}: not damped"
            );
        }
    }
}

#[test]
fn auto_splits_the_cold_side_by_weight() {
    let mut heap = Simulated::new(&[2, 1, 1]);
    heap.run(256 << 20, 8, uniform);
    let parts = [heap.percent(0), heap.percent(1), heap.percent(2)];
    for (part, goal) in parts.into_iter().zip([50, 25, 25]) {
        assert!(part.abs_diff(goal) <= 6, "{parts:?}");
    }
}

#[test]
fn auto_saturates_where_the_ratio_is_out_of_reach() {
    let at_the_end = |sizes: Sizes, ratio: &[u32]| {
        let mut heap = Simulated::new(ratio);
        heap.run(64 << 20, 4, sizes);
        let last = heap.history[heap.history.len() * 3 / 4..].to_vec();
        (heap.percent(0), last)
    };
    let (near, last) = at_the_end(|s| 16 + s.random(256), &[1, 1]);
    assert_eq!(near, 100);
    assert!(last.iter().all(|&t| t == MIN_THRESHOLD.get()), "{last:?}");

    let (near, last) = at_the_end(|s| (1 << 20) + s.random(4 << 20), &[1, 1]);
    assert_eq!(near, 0);
    assert!(last.iter().all(|&t| t == MAX_THRESHOLD.get()), "{last:?}");
}

proptest! {
    #[test]
    fn any_state_gives_a_threshold_within_bounds(
        tiers in prop::collection::vec(tier(), 0..=MAX_TIERS),
        thresholds in prop::collection::vec(any::<usize>(), 1..64),
    ) {
        let mut memory = AutoMemory::new();
        for current in thresholds {
            let next = next_threshold(Bytes::new(current), SLICE, &tiers, &mut memory);
            prop_assert!((MIN_THRESHOLD..=MAX_THRESHOLD).contains(&next));
        }
    }
}
