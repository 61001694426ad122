//! Slabs asleep: the free blocks of a part-full slab of large blocks give their pages back.
//!
//! A slab goes back to its tier only when all of its blocks are free, which under random frees
//! takes long when it has many. Of a slab that stood in a bin's list for a round, with free blocks
//! that hold whole pages, those pages are given back and the tier's account is relieved of them;
//! before a block of it is used again all of them are charged anew (`wake`).
//!
//! Invariants:
//! - a slab with `asleep` pages is not its bin's current one, so no block of it is handed out, its
//!   free blocks only grow in number, and the pages under them may be counted again at any time;
//! - `asleep` pages of its slices are not charged, though the lane counts the slices as backed.
//!
//! Tiers of anonymous memory only (DRAM and nodes): a file's pages would have to be committed
//! again before use, which a full disk may refuse.

use super::bin::Bin;
use super::slab::{List, Slab};
use crate::arena::lane;
use crate::base::{Addr, Bytes, PAGE, TierId};
use crate::os::map::{self, Advice};
use crate::sync::Ordering;

/// Classes from here up: below, a free block holds no whole page.
pub const FROM: Bytes = PAGE;

/// What one look may do. A call takes 1 to 60 µs, so a miss is held up for about half a
/// millisecond at most.
pub struct Effort {
    slabs: u32,
    calls: u32,
    /// Whether pages were given back.
    pub gave: bool,
}

impl Effort {
    pub const fn one_look() -> Effort {
        Effort {
            slabs: 512,
            calls: 16,
            gave: false,
        }
    }
    pub const fn all() -> Effort {
        Effort {
            slabs: u32::MAX,
            calls: u32::MAX,
            gave: false,
        }
    }

    fn is_spent(&self) -> bool {
        self.slabs == 0 || self.calls == 0
    }
}

/// The pages wholly inside the runs of free blocks of a slab: as many, and where.
///
/// # Safety
/// The caller owns the slab, whose blocks are of `FROM` or more.
pub unsafe fn free_pages(slab: *mut Slab) -> impl Iterator<Item = (Addr, usize)> {
    // SAFETY: as promised; such slabs have one word.
    // Relaxed: the owner reads its own word.
    unsafe {
        let free = Slab::word(slab, 0).load(Ordering::Relaxed) & (*slab).valid(0);
        pages_of(free, Addr::new((*slab).base), (*slab).block)
    }
}

fn pages_of(free: u64, base: Addr, block: usize) -> impl Iterator<Item = (Addr, usize)> {
    let mut rest = free;
    core::iter::from_fn(move || {
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            let n = (rest >> at).trailing_ones() as usize;
            rest &= !(u64::MAX >> (64 - n) << at);
            let start = base.add(Bytes::new(at * block)).align_up(PAGE);
            let end = base.get() + (at + n) * block;
            let pages = end.saturating_sub(start.get()) / PAGE.get();
            if pages != 0 {
                return Some((start, pages));
            }
        }
        None
    })
}

/// Begins a round over the slabs of a bin, unless one is under way.
///
/// # Safety
/// The caller owns the bin.
pub unsafe fn begin(bin: *mut Bin) {
    // SAFETY: as promised.
    unsafe {
        if (*bin).block >= FROM.get() && (*bin).cursor.is_null() {
            (*bin).cursor = if (*bin).available.is_null() {
                (*bin).asleep
            } else {
                (*bin).available
            };
        }
    }
}

/// Goes on with the round. A slab that was there in the round before, too, or `at_once`, is put to
/// sleep. Says whether the round is through.
///
/// # Safety
/// The caller owns the bin and is inside the gate.
pub unsafe fn go_on(bin: *mut Bin, effort: &mut Effort, at_once: bool) -> bool {
    // SAFETY: as promised; the cursor is a slab in one of the bin's lists (`Bin::unlink`).
    unsafe {
        while !(*bin).cursor.is_null() {
            if effort.is_spent() {
                return false;
            }
            effort.slabs -= 1;
            let slab = (*bin).cursor;
            (*bin).cursor = Bin::after(bin, slab);
            if (*slab).seen || at_once {
                put_to_sleep(slab, effort);
                if (*slab).asleep != 0 && (*slab).list == List::Available {
                    Bin::unlink(bin, slab);
                    Bin::push(bin, slab, List::Asleep);
                }
            }
            (*slab).seen = true;
        }
        true
    }
}

unsafe fn put_to_sleep(slab: *mut Slab, effort: &mut Effort) {
    // SAFETY: the caller owns the slab, which is not current; whole pages inside of free blocks
    // are nobody's.
    unsafe {
        let runs = || free_pages(slab);
        let pages: usize = runs().map(|(_, n)| n).sum();
        let Some(lane) = lane(TierId((*slab).tier)) else {
            return;
        };
        let before = (*slab).asleep as usize;
        if pages <= before || !lane.is_anonymous() {
            return;
        }
        for (at, n) in runs() {
            effort.calls = effort.calls.saturating_sub(1);
            // Refused where the program has locked its memory.
            if map::advise(at, PAGE.times(n), Advice::DontNeed).is_err() {
                return;
            }
        }
        lane.account().uncharge(PAGE.times(pages - before));
        (*slab).asleep = pages as u16;
        effort.gave = true;
    }
}

/// Charges what the slab had given back, so that it may become current. False, and nothing
/// changed, where the tier's limit forbids it.
///
/// # Safety
/// The caller owns the slab.
pub unsafe fn wake(slab: *mut Slab) -> bool {
    // SAFETY: as promised.
    unsafe {
        let pages = (*slab).asleep as usize;
        let awake = pages == 0
            || lane(TierId((*slab).tier)).is_some_and(|lane| lane.restore(PAGE.times(pages)));
        if awake {
            (*slab).asleep = 0;
            (*slab).seen = false;
        }
        awake
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{CLASSES, SizeClass};
    use std::vec;

    use proptest::prelude::*;

    #[test]
    fn slabs_of_page_sized_blocks_have_one_word() {
        for class in (0..CLASSES).filter_map(SizeClass::from_index) {
            if class.block() >= FROM {
                assert_eq!(Slab::words_for(class.slab_blocks()), 1, "{class:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn pages_are_those_that_only_free_blocks_touch(free: u64, class in 0..CLASSES) {
            let block = SizeClass::from_index(class).unwrap().block().get();
            let free = free & ((1 << 20) - 1);
            let base = Addr::new(1 << 30);
            let mut pages = vec![0u32; 20 * block / PAGE.get() + 1];
            for i in (0..20).filter(|i| free >> i & 1 == 0) {
                let (first, last) = (i * block / PAGE.get(), ((i + 1) * block - 1) / PAGE.get());
                pages[first..=last].fill(1);
            }
            // What lies behind the last block is not the slab's.
            if !(20 * block).is_multiple_of(PAGE.get()) {
                *pages.last_mut().unwrap() = 1;
            }
            let whole = 20 * block / PAGE.get();
            for (at, n) in pages_of(free, base, block) {
                let first = at.offset_from(base).get() / PAGE.get();
                for page in &mut pages[first..first + n] {
                    prop_assert_eq!(*page, 0);
                    *page = 2;
                }
            }
            prop_assert!(pages[..whole].iter().all(|&p| p != 0), "a page was overlooked");
        }
    }
}
