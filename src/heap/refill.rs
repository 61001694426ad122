//! What a miss does: the next word, what others freed, the next slab, a new slab from the tier
//! that the policy names.

use super::bin::Bin;
use super::kind::{KindId, kind};
use super::obtain::{Obtained, Wish, obtain};
use super::orphans;
use super::remote;
use super::slab::{List, Slab, What};
use super::thread_heap::{KindHeap, ThreadHeap};
use super::{large, release, sleep};
use crate::arena::{Run, WINDOW, freezes, is_frozen, lane, meta, thaw_pages};
use crate::base::{Addr, Bytes, SLICE, SizeClass, TierId};
use crate::os::clock;
use crate::sync::{AtomicPtr, Ordering};

/// A block of at least `size` bytes from one of the thread's heaps; null when no tier has room.
/// `align` is a power of two up to a slice, and `size` a multiple of it or it is 16 or less.
///
/// # Safety
/// The caller owns `th`, of which `kh` is a heap, and is inside the gate.
pub unsafe fn alloc(th: *mut ThreadHeap, kh: *mut KindHeap, size: Bytes, align: Bytes) -> *mut u8 {
    // SAFETY: as promised.
    unsafe {
        notice_threshold(kh);
        let Some((side, class)) = (*kh).class_of(size, align) else {
            return large::alloc(th, KindId((*kh).kind), size, align).addr;
        };
        let bin = KindHeap::bin(kh, side, class);
        let block = take(th, bin);
        if !block.is_null() {
            KindHeap::point(kh, size, bin);
        }
        block
    }
}

/// `auto` moves its threshold; a heap's table of bins follows at its next miss.
pub(super) unsafe fn notice_threshold(kh: *mut KindHeap) {
    // SAFETY: the caller owns the heap.
    unsafe {
        let Some(kind) = kind(KindId((*kh).kind)) else {
            return;
        };
        // First: what is read after it is as new, and what is newer yet changes it again.
        let epoch = kind.epoch();
        if epoch != (*kh).epoch
            && let Some(recipe) = kind.recipe()
        {
            KindHeap::set_threshold(kh, recipe.policy, kind.threshold(), epoch);
        }
    }
}

/// A block of this bin's class.
///
/// # Safety
/// The caller owns `th`, to which the bin belongs, and is inside the gate.
pub unsafe fn take(th: *mut ThreadHeap, bin: *mut Bin) -> *mut u8 {
    // SAFETY: as promised, all of it.
    unsafe {
        loop {
            if let Some((block, _)) = Bin::pop(bin) {
                return block.as_ptr();
            }
            if Bin::advance(bin) && !rests((*bin).slab) {
                continue;
            }
            if remote::drain(th) {
                continue;
            }
            put_away(th, bin);
            if next_available(th, bin)
                || next_asleep(th, bin)
                || orphans::adopt_slab(th, bin)
                || grow(th, bin)
            {
                continue;
            }
            return core::ptr::null_mut();
        }
    }
}

/// Whether blocks of this slab should wait until the tier has no other room, because a fork froze
/// its segment. The answer is remembered until the next freeze.
unsafe fn rests(slab: *mut Slab) -> bool {
    // SAFETY: the caller owns the slab.
    unsafe {
        let freezes = freezes();
        if (*slab).seen_freezes == freezes {
            return false;
        }
        let frozen = is_frozen(TierId((*slab).tier), (*slab).first_slice());
        if !frozen {
            (*slab).seen_freezes = freezes;
            (*slab).patched = false;
        }
        frozen
    }
}

/// Lets go of the bin's current slab and puts it where its next free will find it right.
///
/// # Safety
/// The caller owns `th`, to which the bin belongs, and is inside the gate.
pub unsafe fn put_away(th: *mut ThreadHeap, bin: *mut Bin) {
    // SAFETY: as promised.
    unsafe {
        let slab = Bin::detach(bin);
        if slab.is_null() {
            return;
        }
        if Slab::find_word(slab, 0).is_none() {
            // Relaxed: the owner's own field. Its next free takes the slow path and relists it.
            (*slab)
                .local
                .store(core::ptr::null_mut(), Ordering::Relaxed);
        } else if Slab::is_empty(slab) {
            release::release_slab(slab);
        } else {
            file(bin, slab);
        }
        let _ = th;
    }
}

/// Puts a slab with free blocks into the list it belongs to.
///
/// # Safety
/// The caller owns bin and slab; the slab stands in no list.
pub unsafe fn file(bin: *mut Bin, slab: *mut Slab) {
    // SAFETY: as promised.
    unsafe {
        let list = if rests(slab) {
            List::Frozen
        } else {
            List::Available
        };
        Bin::push(bin, slab, list);
    }
}

unsafe fn next_available(th: *mut ThreadHeap, bin: *mut Bin) -> bool {
    // SAFETY: the caller owns the bin.
    unsafe {
        loop {
            let slab = (*bin).available;
            if slab.is_null() {
                return false;
            }
            Bin::unlink(bin, slab);
            if rests(slab) {
                Bin::push(bin, slab, List::Frozen);
                continue;
            }
            if (*slab).patched {
                patch(slab);
            }
            Bin::install(bin, slab, th);
            return true;
        }
    }
}

/// Wakes a slab. One that cannot be woken for its tier's limit stands for all of them.
unsafe fn next_asleep(th: *mut ThreadHeap, bin: *mut Bin) -> bool {
    // SAFETY: the caller owns the bin.
    unsafe {
        let slab = (*bin).asleep;
        if slab.is_null() || !sleep::wake(slab) {
            return false;
        }
        Bin::unlink(bin, slab);
        Bin::install(bin, slab, th);
        true
    }
}

unsafe fn use_frozen(th: *mut ThreadHeap, bin: *mut Bin) -> bool {
    // SAFETY: the caller owns the bin.
    unsafe {
        let slab = (*bin).frozen;
        if slab.is_null() {
            return false;
        }
        Bin::unlink(bin, slab);
        // Until the next freeze it is used like any other.
        (*slab).seen_freezes = freezes();
        (*slab).patched = true;
        patch(slab);
        Bin::install(bin, slab, th);
        true
    }
}

/// Before a frozen slab is used: what of its free blocks can be the tier's own again is made so.
unsafe fn patch(slab: *mut Slab) {
    // SAFETY: the caller owns the slab, which is not current: nobody uses its free blocks.
    unsafe {
        if (*slab).block >= sleep::FROM.get() {
            let (tier, first) = (TierId((*slab).tier), (*slab).first_slice());
            thaw_pages(tier, first, sleep::free_pages(slab));
        }
    }
}

/// A new slab for the bin, from the first tier in the policy's order that has room.
unsafe fn grow(th: *mut ThreadHeap, bin: *mut Bin) -> bool {
    // SAFETY: the caller owns the bin.
    let (class, kind, side) = unsafe { ((*bin).class, KindId((*bin).kind), (*bin).side) };
    let Some(class) = SizeClass::from_index(class as usize) else {
        return false;
    };
    let wish = Wish {
        kind,
        side,
        slices: class.slab_slices(),
        // Under a limit a tier may still have room for a smaller slab.
        least: class.block().get().div_ceil(SLICE.get()),
        align: SLICE,
    };
    // SAFETY: the caller owns `th` and the bin; a run it is given is fresh.
    unsafe {
        match obtain(th, &wish, || use_frozen(th, bin)) {
            Obtained::Run(tier, run) => add_slab(th, bin, class, tier, run),
            Obtained::Instead => true,
            Obtained::Nothing => false,
        }
    }
}

unsafe fn add_slab(
    th: *mut ThreadHeap,
    bin: *mut Bin,
    class: SizeClass,
    tier: TierId,
    run: Run,
) -> bool {
    let give_back = |run: Run| {
        if let Some(lane) = lane(tier) {
            lane.free(run.first, run.slices, clock::now());
        }
        false
    };
    let Some(descriptor) = meta::alloc(Slab::descriptor_len(class)) else {
        return give_back(run);
    };
    let slab = descriptor.as_ptr().cast::<Slab>();
    let block = class.block();
    let len = SLICE.times(run.slices).get();
    let blocks = len / block.get();
    let slack = Bytes::new(len - blocks * block.get());
    let colour = class.colour(run.first.index(), slack);
    // SAFETY: fresh metadata of the right size; the caller owns the bin.
    unsafe {
        slab.write(Slab {
            local: AtomicPtr::new(th),
            base: WINDOW.slice_addr(run.first).add(colour).get(),
            magic: Slab::magic_for(block.get()),
            unsettled: u64::MAX,
            block: block.get(),
            bin,
            owner: AtomicPtr::new(th),
            kind: (*bin).kind,
            class: class.index() as u8,
            what: What::Blocks,
            tier: tier.0,
            list: List::None,
            slices: run.slices as u32,
            blocks: blocks as u16,
            asleep: 0,
            seen_freezes: freezes(),
            first: run.first.index() as u32,
            seen: false,
            patched: false,
            next: core::ptr::null_mut(),
            prev: core::ptr::null_mut(),
        });
        for i in 0..(*slab).words() {
            // Relaxed: published with the page map's entry.
            Slab::word(slab, i).store(u64::MAX, Ordering::Relaxed);
        }
        WINDOW.set_descriptor(run.first, run.slices, Some(Addr::of(slab)));
        Bin::install(bin, slab, th);
    }
    true
}
