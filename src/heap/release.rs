//! What a free does when it is not the plain case: a full slab, an empty one, a block of another
//! thread's heap, a large block, a pointer that is not ours or not a block.

use super::bin::Bin;
use super::fault::{Fault, bad_free};
use super::slab::{Place, Slab, What};
use super::thread_heap::ThreadHeap;
use super::{large, refill, remote, tidy};
use crate::arena::{WINDOW, is_mapped, lane, meta};
use crate::base::{Addr, Bytes, MAX_DIRECT, PAGE, SizeClass, TierId};
use crate::os::clock;
use crate::sync::Ordering;

/// What a pointer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// In a slab or a large block, whose descriptor this is.
    Ours(*mut Slab),
    /// In memory of ours, but in no block.
    Stray,
    Foreign,
}

/// Looks a pointer up. For pointers to blocks the descriptor lives as long as the block does.
pub fn find(addr: Addr) -> Found {
    let Some(slice) = WINDOW.slice_of(addr) else {
        return Found::Foreign;
    };
    let descriptor = WINDOW.descriptor(slice);
    if !WINDOW.is_sentinel(descriptor) {
        return Found::Ours(descriptor.as_ptr().cast());
    }
    if is_mapped(slice.segment()) {
        Found::Stray
    } else {
        Found::Foreign
    }
}

/// Frees a pointer. Returns false for a foreign one, which is left alone.
///
/// # Safety
/// The caller owns `me` and is inside the gate; the program gives up the block.
pub unsafe fn free(me: *mut ThreadHeap, addr: Addr) -> bool {
    let slab = match find(addr) {
        Found::Ours(slab) => slab,
        Found::Foreign => return false,
        Found::Stray => {
            // A large block's middle, or a block whose slab is gone: freed before.
            let fault = if WINDOW.slice_of(addr).and_then(|s| WINDOW.tier(s)).is_some() {
                Fault::Interior
            } else {
                Fault::Double
            };
            bad_free(addr, fault);
            return true;
        }
    };
    // SAFETY: a descriptor in the page map is live while any of its blocks is; the rest as
    // promised.
    unsafe {
        if (*slab).what == What::Large {
            if (*slab).base == addr.get() {
                large::free(me, slab);
            } else {
                bad_free(addr, Fault::Interior);
            }
            return true;
        }
        if (*slab).block > MAX_DIRECT.get() {
            tidy::owe(me);
        }
        // Relaxed: if it is `me`, this thread wrote it or acquired it with its heap.
        let owner = (*slab).owner.load(Ordering::Relaxed);
        if owner == me {
            free_owned(me, slab, addr);
            return true;
        }
        match (*slab).place(addr.get()) {
            Place::Interior => bad_free(addr, Fault::Interior),
            // Relaxed: a picture of a moment; a block of this thread's cannot become free behind
            // its back, so a set bit is a double free.
            Place::Block(i)
                if Slab::word(slab, i / 64).load(Ordering::Relaxed) >> (i % 64) & 1 == 1 =>
            {
                bad_free(addr, Fault::Double)
            }
            Place::Block(_) => remote::free_remote(me, owner, addr, Bytes::new((*slab).block)),
        }
    }
    true
}

/// Frees a block of a slab that `me` owns.
///
/// # Safety
/// The caller owns or has claimed `me`, which owns the slab, and is inside the gate.
pub unsafe fn free_owned(me: *mut ThreadHeap, slab: *mut Slab, addr: Addr) {
    // SAFETY: as promised; `place` gives an index within the words (see `words_for`).
    unsafe {
        // Relaxed: the owner's own field. Another's slab would lose bits without a word.
        debug_assert!((*slab).owner.load(Ordering::Relaxed) == me);
        let index = match (*slab).place(addr.get()) {
            Place::Interior => return bad_free(addr, Fault::Interior),
            Place::Block(index) => index,
        };
        let word = Slab::word(slab, index / 64);
        let bit = 1 << (index % 64);
        // Relaxed: the owner's own word.
        let free = word.load(Ordering::Relaxed);
        if free & bit != 0 {
            return bad_free(addr, Fault::Double);
        }
        word.store(free | bit, Ordering::Relaxed);
        let bin = (*slab).bin;
        // Relaxed: the owner's own field.
        if (*slab).local.load(Ordering::Relaxed).is_null() {
            // It was full and stood nowhere.
            (*slab).local.store(me, Ordering::Relaxed);
            refill::file(bin, slab);
        }
        if free | bit == u64::MAX {
            settle(slab);
        }
    }
}

/// A word of the slab became wholly free: gives the slab back if all of it is.
///
/// # Safety
/// The caller owns the slab and is inside the gate.
pub unsafe fn settle(slab: *mut Slab) {
    // SAFETY: as promised.
    unsafe {
        if (*(*slab).bin).slab != slab && Slab::is_empty(slab) {
            release_slab(slab);
        }
    }
}

/// Gives an empty slab that is not current back to its tier.
///
/// # Safety
/// The caller owns the slab, all of whose blocks are free, and is inside the gate.
pub unsafe fn release_slab(slab: *mut Slab) {
    // SAFETY: as promised: nobody has a pointer into the slab, so nobody looks its descriptor up.
    unsafe {
        Bin::unlink((*slab).bin, slab);
        discard(slab);
    }
}

/// Gives a slab back to its tier, whatever is in it and whichever bin knew it.
///
/// # Safety
/// Nobody uses the slab, its blocks or its bin's lists any more; the caller is inside the gate or
/// has closed it.
pub unsafe fn discard(slab: *mut Slab) {
    // SAFETY: as promised.
    unsafe {
        let (first, slices, tier, asleep) = (
            (*slab).first_slice(),
            (*slab).slices as usize,
            TierId((*slab).tier),
            PAGE.times((*slab).asleep as usize),
        );
        let class = SizeClass::from_index((*slab).class as usize);
        WINDOW.set_descriptor(first, slices, None);
        if let Some(class) = class {
            meta::free(Addr::of(slab), Slab::descriptor_len(class));
        }
        if let Some(lane) = lane(tier) {
            if asleep == Bytes::ZERO {
                lane.free(first, slices, clock::now());
            } else {
                lane.free_in_part(first, slices, asleep, clock::now());
            }
        }
    }
}
