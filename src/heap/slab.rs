//! Slabs: the descriptor of a run of slices that holds blocks of one size class, and the bitmap
//! that says which of them are free. Descriptors live in metadata memory, never in the slab.
//!
//! Invariants (the owner is the thread whose heap `owner` names, or who has claimed that heap):
//! - only the owner writes `local`, `unsettled`, the links and the words;
//! - bit `i` of the words is set iff block `i` is free; bits past the last block are set, so a
//!   pointer into the slab's waste reads as a double free;
//! - `local` is the owner's thread heap, or null when frees must take the slow path: the slab is
//!   full, or is no slab of blocks at all (a large block);
//! - `unsettled` is 0 while the slab is its bin's current one and all ones otherwise: the value
//!   of a word at which a free must look whether the whole slab is empty.

use super::bin::Bin;
use super::thread_heap::ThreadHeap;
use crate::base::{Bytes, SizeClass, SliceId};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// What the descriptor describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(
    dead_code,
    reason = "`Nothing` is read, from zeroed memory, and never made"
)]
pub enum What {
    /// Zeroed memory: nothing. The page of zeros before the page map reads as this.
    Nothing = 0,
    /// A slab of blocks.
    Blocks = 1,
    /// One large block with slices of its own.
    Large = 2,
}

/// The descriptor; `words` bitmap words follow it in memory.
#[repr(C, align(32))]
pub struct Slab {
    // What a free reads, on one cache line.
    pub local: AtomicPtr<ThreadHeap>,
    /// Where the first block begins: the start of the first slice and the colour
    /// (`SizeClass::colour`).
    pub base: usize,
    /// ceil(2^64 / block): multiplying an offset by it gives the block's index above and, below,
    /// a remainder that is smaller than the magic number iff the offset is a block's start.
    pub magic: u64,
    pub unsettled: u64,
    /// The size of a block; of a large block the bytes that may be used.
    pub block: usize,
    pub bin: *mut Bin,
    pub owner: AtomicPtr<ThreadHeap>,
    pub kind: u16,
    pub class: u8,
    pub what: What,
    pub tier: u8,
    /// In which of its bin's lists the slab stands.
    pub list: List,
    /// How many freezes there had been when the slab was last seen outside of a frozen segment,
    /// modulo 65,536: a slab that sleeps through all of them costs some DRAM, no more.
    pub seen_freezes: u16,
    // What only slow paths read.
    pub slices: u32,
    pub blocks: u16,
    /// Pages under free blocks that were given back: see `sleep`.
    pub asleep: u16,
    /// The number of its first slice: below 2^31, addresses having 47 bits.
    pub first: u32,
    /// It stood in a list when `sleep` last came by.
    pub seen: bool,
    /// It is used though its slices are frozen.
    pub patched: bool,
    pub next: *mut Slab,
    pub prev: *mut Slab,
}

/// Where a slab stands in its bin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum List {
    /// Full, current, or large: in no list.
    None = 0,
    /// Has free blocks.
    Available = 1,
    /// Has free blocks that should not be used while the tier has room: they lie in a segment
    /// that a fork froze, so that writing them takes DRAM.
    Frozen = 2,
    /// Has free blocks whose pages were given back.
    Asleep = 3,
}

const HEADER: usize = size_of::<Slab>();
const _: () = assert!(
    HEADER == 96,
    "with 128 bytes of bitmap a slab of 64-byte blocks takes 0.4 %"
);
const _: () = assert!(core::mem::offset_of!(Slab, kind) < 64);

/// How an address lies in its slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Block(usize),
    Interior,
}

impl Slab {
    /// Where in the descriptor the bitmap begins.
    pub const WORDS: usize = HEADER;

    /// Words of a bitmap for `blocks` blocks: one bit more than blocks, so that an offset into the
    /// waste after the last block has a bit to be caught by.
    pub const fn words_for(blocks: usize) -> usize {
        blocks / 64 + 1
    }

    /// The metadata a slab of a class takes.
    pub const fn descriptor_len(class: SizeClass) -> Bytes {
        Bytes::new(HEADER + Slab::words_for(class.slab_blocks()) * 8)
    }

    /// The metadata a large block takes.
    pub const LARGE_LEN: Bytes = Bytes::new(HEADER);

    pub const fn magic_for(block: usize) -> u64 {
        (u64::MAX / block as u64).wrapping_add(1)
    }

    pub fn words(&self) -> usize {
        Slab::words_for(self.blocks as usize)
    }

    pub fn first_slice(&self) -> SliceId {
        SliceId(self.first as usize)
    }

    /// Word `index` of the bitmap.
    ///
    /// # Safety
    /// `slab` is a live slab of blocks and `index` is below its `words()`.
    #[inline(always)]
    pub unsafe fn word<'a>(slab: *const Slab, index: usize) -> &'a AtomicU64 {
        // SAFETY: the words follow the header in the same piece of metadata (who makes the
        // descriptor allocates `descriptor_len`); the pointer keeps that provenance.
        unsafe { &*slab.cast::<u8>().add(HEADER).cast::<AtomicU64>().add(index) }
    }

    /// Where `addr`, which the page map led here, lies.
    #[inline(always)]
    pub fn place(&self, addr: usize) -> Place {
        Slab::place_of(addr.wrapping_sub(self.base), self.magic)
    }

    /// The same for an offset from the first block of a slab with that magic number.
    #[inline(always)]
    pub fn place_of(offset: usize, magic: u64) -> Place {
        let product = offset as u128 * magic as u128;
        // Exact for offsets below 2 MiB and blocks up to 512 KiB: the magic number is too large by
        // less than `block`/2^64, which offset * that keeps far below 1. Before the first block, in
        // the colour, offsets wrap round: for -d with d < block, and a colour is less than any
        // coloured block, the lower half is 2^64 - d * magic, not below the magic number either.
        if product as u64 >= magic {
            Place::Interior
        } else {
            Place::Block((product >> 64) as usize)
        }
    }

    /// The bits of word `index` that stand for blocks.
    pub fn valid(&self, index: usize) -> u64 {
        let left = (self.blocks as usize).saturating_sub(index * 64);
        if left >= 64 {
            u64::MAX
        } else {
            (1 << left) - 1
        }
    }

    /// Whether every block is free.
    ///
    /// # Safety
    /// `slab` is a live slab of blocks that the caller owns.
    pub unsafe fn is_empty(slab: *const Slab) -> bool {
        // SAFETY: as promised; indexes are below `words()`.
        // Relaxed: the owner reads its own writes.
        unsafe {
            (0..(*slab).words()).all(|i| Slab::word(slab, i).load(Ordering::Relaxed) == u64::MAX)
        }
    }

    /// The first word from `from` on, then from the start, that has a free block.
    ///
    /// # Safety
    /// As for [`Slab::is_empty`].
    pub unsafe fn find_word(slab: *const Slab, from: usize) -> Option<usize> {
        // SAFETY: as promised; indexes are below `words()`.
        unsafe {
            let n = (*slab).words();
            (from..n).chain(0..from.min(n)).find(|&i| {
                // Relaxed: the owner reads its own writes.
                Slab::word(slab, i).load(Ordering::Relaxed) & (*slab).valid(i) != 0
            })
        }
    }

    /// The free blocks, for statistics: exact for the owner, a moment's picture for others.
    ///
    /// # Safety
    /// `slab` is a live slab of blocks.
    pub unsafe fn free_blocks(slab: *const Slab) -> usize {
        // SAFETY: as promised; indexes are below `words()`.
        // Relaxed: a statistic.
        unsafe {
            (0..(*slab).words())
                .map(|i| {
                    (Slab::word(slab, i).load(Ordering::Relaxed) & (*slab).valid(i)).count_ones()
                        as usize
                })
                .sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{CLASSES, PAGE, SLICE};

    #[test]
    fn the_magic_number_divides_exactly_and_tells_interiors_for_every_class() {
        for class in (0..CLASSES).filter_map(SizeClass::from_index) {
            let block = class.block().get();
            let magic = Slab::magic_for(block);
            for offset in
                (0..class.slab_slices() * SLICE.get()).step_by(if block < 256 { 1 } else { 8 })
            {
                let product = offset as u128 * magic as u128;
                assert_eq!(
                    (product >> 64) as usize,
                    offset / block,
                    "{offset} by {block}"
                );
                assert_eq!(
                    (product as u64) < magic,
                    offset % block == 0,
                    "{offset} by {block}"
                );
            }
        }
    }

    #[test]
    fn what_lies_before_the_first_block_is_no_block() {
        for class in (0..CLASSES).filter_map(SizeClass::from_index) {
            if class == class.aligned(PAGE) {
                continue;
            }
            let magic = Slab::magic_for(class.block().get());
            for before in 1..PAGE.get() as u64 {
                let product = before.wrapping_neg() as u128 * magic as u128;
                assert!(product as u64 >= magic, "{before} before {class:?}");
            }
        }
    }

    #[test]
    fn metadata_stays_below_half_a_percent_from_64_bytes_up() {
        // 8 + 1 bytes a slice in the maps, and the segment's record.
        for class in (0..CLASSES).filter_map(SizeClass::from_index) {
            let slab = class.slab_slices() * SLICE.get();
            let meta =
                Slab::descriptor_len(class).get().next_multiple_of(64) + class.slab_slices() * 11;
            if class.block().get() >= 64 {
                assert!(
                    meta * 200 <= slab,
                    "{} of {slab} for blocks of {:?}",
                    meta,
                    class.block()
                );
            }
        }
    }
}
