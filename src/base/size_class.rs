//! Size classes: which block sizes exist, and how large a slab each gets.
//!
//! 16-byte steps to 128 bytes, then eight steps a doubling to 512 KiB: at most 12.5 % of a block
//! above 128 bytes is waste. Eight steps rather than four halve the waste for 40 more classes,
//! which cost a bin each; sixteen would save 3 % more and double the bins again.
//! No class below 16: a `malloc(8)` may be used for anything of alignment 16 by code that was
//! written against glibc.
//!
//! Above 16 KiB a slab's blocks begin at a colour: anywhere in the first page, in steps of 256
//! bytes, as far as the slab has bytes that are no block's. If all began pages, what is copied from one
//! to another would share the low twelve bits of its addresses, which processors take for a dependence:
//! Redis spent a fifth more on a GET of 100 KiB. Requests with an alignment have classes of their own
//! there, of the same sizes without a colour.

// The tables are made and checked at compile time, and a `SizeClass` is an index into them by
// construction.
#![allow(clippy::indexing_slicing)]

use super::units::{Bytes, PAGE, SLICE, spread};

/// An index into the table of block sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct SizeClass(u8);

/// The number of block sizes.
const SIZES: usize = 8 + 12 * 8;
/// The first class whose slabs have a colour: the one above 16 KiB. Below, copies are short, and so
/// many blocks of the same class lie in a page or two that they differ by themselves.
const COLOURED: usize = 8 + 7 * 8;
/// The number of classes: one for each size, and a second one without a colour for the coloured.
pub const CLASSES: usize = SIZES + (SIZES - COLOURED);
/// The largest block that lives in a slab; larger ones are runs of slices of their own.
pub const MAX_CLASS: Bytes = Bytes::kib(512);
/// Sizes up to this one find their bin by one table look-up.
pub const MAX_DIRECT: Bytes = Bytes::new(2048);
/// The entries of such a table: one for each 16 bytes, `(size + 15) / 16`, and one for size 0.
pub const DIRECT: usize = MAX_DIRECT.get() / 16 + 1;
/// Blocks that may live in a cold tier come in multiples of this from this size up: the write
/// unit of persistent memory.
pub const COLD_UNIT: Bytes = Bytes::new(256);

impl SizeClass {
    /// The smallest class that holds `size` bytes; `None` above [`MAX_CLASS`].
    #[inline]
    pub const fn of(size: Bytes) -> Option<SizeClass> {
        let n = size.get();
        if n <= 128 {
            let n = if n == 0 { 1 } else { n };
            Some(SizeClass(((n - 1) / 16) as u8))
        } else if n <= MAX_CLASS.get() {
            // The top bit of n-1 names the doubling, the three bits below it the step.
            let m = n - 1;
            let top = 63 - (m as u64).leading_zeros() as usize;
            let step = (m >> (top - 3)) & 7;
            Some(SizeClass((8 + (top - 7) * 8 + step) as u8))
        } else {
            None
        }
    }

    /// The smallest class of `size` bytes and up whose blocks all are multiples of `unit`, a
    /// power of two up to a slice: they are then aligned to it, since a slab starts a slice.
    pub const fn of_multiple(size: Bytes, unit: Bytes) -> Option<SizeClass> {
        let Some(size) = size.checked_align_up(unit) else {
            return None;
        };
        let Some(SizeClass(mut c)) = SizeClass::of(size) else {
            return None;
        };
        while (c as usize) < SIZES {
            if (BLOCK_SIZES[c as usize] as usize).is_multiple_of(unit.get()) {
                return Some(SizeClass(c));
            }
            c += 1;
        }
        None
    }

    /// The class for `size` bytes where the block may live in a cold tier.
    #[inline]
    pub const fn of_cold(size: Bytes) -> Option<SizeClass> {
        // From 2 KiB up every class is a multiple of 256 by itself.
        if size.get() >= COLD_UNIT.get() && size.get() <= MAX_DIRECT.get() {
            SizeClass::of_multiple(size, COLD_UNIT)
        } else {
            SizeClass::of(size)
        }
    }

    const fn has_colour(self) -> bool {
        self.0 as usize >= COLOURED && (self.0 as usize) < SIZES
    }

    /// The class of the same size whose blocks are as aligned as their size: up to `align`, a power of two
    /// that the size is a multiple of. A colour keeps 256.
    #[inline(always)]
    pub const fn aligned(self, align: Bytes) -> SizeClass {
        if align.get() > COLD_UNIT.get() && self.has_colour() {
            SizeClass(self.0 + (SIZES - COLOURED) as u8)
        } else {
            self
        }
    }

    /// How far from its start the first block of a slab lies that has `slack` bytes which are no block's and
    /// begins at slice `n`.
    pub const fn colour(self, n: usize, slack: Bytes) -> Bytes {
        if !self.has_colour() {
            return Bytes::ZERO;
        }
        let last = PAGE.get() - COLD_UNIT.get();
        let most = if slack.get() < last {
            slack.get()
        } else {
            last
        };
        COLD_UNIT.times(spread(n, most / COLD_UNIT.get() + 1))
    }

    pub const fn from_index(index: usize) -> Option<SizeClass> {
        if index < CLASSES {
            Some(SizeClass(index as u8))
        } else {
            None
        }
    }
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// The bytes of a block of this class.
    #[inline]
    pub const fn block(self) -> Bytes {
        Bytes::new(BLOCK_SIZES[self.0 as usize] as usize)
    }
    /// The slices of a slab of this class.
    pub const fn slab_slices(self) -> usize {
        SLAB_SLICES[self.0 as usize] as usize
    }
    /// The blocks of a slab of this class.
    pub const fn slab_blocks(self) -> usize {
        self.slab_slices() * SLICE.get() / self.block().get()
    }
}

const BLOCK_SIZES: [u32; CLASSES] = {
    let mut t = [0; CLASSES];
    let mut c = 0;
    while c < CLASSES {
        t[c] = if c < 8 {
            (c as u32 + 1) * 16
        } else {
            let c = if c < SIZES { c } else { c - (SIZES - COLOURED) };
            let base = 128u32 << ((c - 8) / 8);
            base + base / 8 * ((c as u32 - 8) % 8 + 1)
        };
        c += 1;
    }
    t
};

/// How many blocks a slab of this class has at least. The fewer, the sooner a slab is wholly free
/// and its memory fit for another class: with nine in ten blocks freed at random, a slab of
/// eight is free with chance 0.43, one of two with 0.81, one of one with 0.9. More blocks save
/// trips to the lane, which cost some 500 instructions: less the larger the block, for what a
/// program writes into it costs more.
const fn least_blocks(block: usize) -> usize {
    match block {
        0..=8_192 => 8,
        8_193..=32_768 => 4,
        32_769..=131_072 => 2,
        _ => 1,
    }
}

/// The smallest slab of [`least_blocks`] that wastes at most a 32nd at its end; where no number
/// of slices does, the one that wastes least.
const SLAB_SLICES: [u8; CLASSES] = {
    let mut t = [0; CLASSES];
    let mut c = 0;
    while c < CLASSES {
        let block = BLOCK_SIZES[c] as usize;
        let mut n = 1;
        let mut best = 0;
        let mut best_waste = usize::MAX; // in 1/65,536 of the slab
        while n <= 32 {
            let bytes = n * SLICE.get();
            let blocks = bytes / block;
            let waste = (bytes - blocks * block) * 65_536 / bytes;
            let enough = blocks >= least_blocks(block);
            if enough && waste <= 65_536 / 32 {
                best = n;
                break;
            }
            if enough && waste < best_waste {
                best = n;
                best_waste = waste;
            }
            n += 1;
        }
        t[c] = best as u8;
        c += 1;
    }
    t
};

const _: () = assert!(BLOCK_SIZES[SIZES - 1] as usize == MAX_CLASS.get());
const _: () = assert!(BLOCK_SIZES[COLOURED - 1] == 16_384 && BLOCK_SIZES[SIZES] > 16_384);
const _: () = assert!(CLASSES <= u8::MAX as usize);
const _: () = {
    let mut c = 0;
    while c < CLASSES {
        assert!(
            SLAB_SLICES[c] >= 1 && SLAB_SLICES[c] <= 32,
            "a slab fits a segment"
        );
        let blocks = SLAB_SLICES[c] as usize * SLICE.get() / BLOCK_SIZES[c] as usize;
        assert!(blocks <= 4096, "the largest bitmap is 64 words");
        if BLOCK_SIZES[c] > 2048 {
            assert!(BLOCK_SIZES[c].is_multiple_of(256));
        }
        c += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    /// All sizes from here on; Miri, which is a thousand times as slow, gets some of them.
    fn sizes(from: usize) -> impl Iterator<Item = usize> {
        (from..=MAX_CLASS.get()).step_by(if cfg!(miri) { 1021 } else { 1 })
    }

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for n in sizes(0) {
            let c = SizeClass::of(Bytes::new(n)).unwrap();
            assert!(c.block().get() >= n);
            assert!(c.index() < SIZES);
            if c.index() > 0 {
                let below = SizeClass::from_index(c.index() - 1).unwrap();
                assert!(below.block().get() < n.max(1), "size {n}");
            }
        }
        assert_eq!(SizeClass::of(Bytes::new(MAX_CLASS.get() + 1)), None);
    }

    #[test]
    fn waste_stays_below_an_eighth_above_128_bytes() {
        for n in sizes(129) {
            let c = SizeClass::of(Bytes::new(n)).unwrap();
            assert!((c.block().get() - n) * 8 <= c.block().get(), "size {n}");
        }
    }

    #[test]
    fn slabs_waste_little_and_hold_several_blocks() {
        for c in (0..CLASSES).map(|i| SizeClass::from_index(i).unwrap()) {
            let slab = c.slab_slices() * SLICE.get();
            assert!(c.slab_blocks() >= least_blocks(c.block().get()));
            let waste = slab - c.slab_blocks() * c.block().get();
            assert!(
                waste * 32 <= slab,
                "class of {:?} wastes {waste} of {slab}",
                c.block()
            );
        }
    }

    #[test]
    fn aligned_and_cold_classes_are_multiples() {
        for shift in 4..=16 {
            let unit = Bytes::new(1 << shift);
            for n in sizes(1).step_by(37) {
                if let Some(c) = SizeClass::of_multiple(Bytes::new(n), unit) {
                    assert!(c.block().get() >= n && c.block().get() % unit.get() == 0);
                }
            }
        }
        for n in sizes(256) {
            assert_eq!(
                SizeClass::of_cold(Bytes::new(n)).unwrap().block().get() % 256,
                0
            );
        }
    }

    #[test]
    fn colours_stay_within_the_slack_and_the_first_page() {
        for c in (0..CLASSES).map(|i| SizeClass::from_index(i).unwrap()) {
            let bytes = c.slab_slices() * SLICE.get();
            let slack = Bytes::new(bytes - c.slab_blocks() * c.block().get());
            let mut seen = std::collections::BTreeSet::new();
            for n in 0..if cfg!(miri) { 60 } else { 1_000 } {
                let colour = c.colour(n, slack);
                assert!(colour <= slack && colour < PAGE);
                assert!(colour.get().is_multiple_of(COLD_UNIT.get()));
                seen.insert(colour.get());
            }
            let all = slack.get().min(PAGE.get() - 1) / COLD_UNIT.get() + 1;
            let colours = if c.has_colour() { all } else { 1 };
            assert_eq!(seen.len(), colours, "{:?}", c.block());
        }
    }

    #[test]
    fn classes_without_a_colour_have_the_same_sizes() {
        for n in sizes(0) {
            let c = SizeClass::of(Bytes::new(n)).unwrap();
            assert_eq!(c.aligned(COLD_UNIT), c);
            let plain = c.aligned(PAGE);
            assert_eq!(plain.block(), c.block());
            assert_eq!(plain.slab_slices(), c.slab_slices());
            assert_eq!(plain != c, n > 16_384, "{n}");
            assert_eq!(plain.aligned(PAGE), plain);
        }
    }

    #[test]
    fn sizes_that_others_rely_on_are_exact() {
        for n in [512, 1024, 4096, 5120] {
            assert_eq!(SizeClass::of(Bytes::new(n)).unwrap().block().get(), n);
        }
    }
}
