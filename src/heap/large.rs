//! Large blocks: above 512 KiB, or with an alignment above a slice. Each has slices of its own, a
//! descriptor in the page map for its first one, and no owner: any thread frees it.

use super::kind::{KindId, kind};
use super::obtain::{Obtained, Wish, obtain};
use super::refill::notice_threshold;
use super::slab::{List, Slab, What};
use super::thread_heap::ThreadHeap;
use super::{shelf, tidy};
use crate::arena::{Run, WINDOW, freezes, lane, meta};
use crate::base::{Addr, Bytes, SLICE, SliceId, TierId};
use crate::os::{clock, map};
use crate::policy::{side, steady_tier};
use crate::sync::AtomicPtr;
use core::ptr::NonNull;

/// A large block, and whether it is known to read as zero.
#[derive(Clone, Copy)]
pub struct LargeBlock {
    pub addr: *mut u8,
    pub zero: bool,
}

const NONE: LargeBlock = LargeBlock {
    addr: core::ptr::null_mut(),
    zero: false,
};

/// From this length up the pages of a DRAM block are moved rather than copied: mremap and the
/// mapping it splits off cost about as much as copying this.
const MOVE_FROM: Bytes = Bytes::mib(1);

/// A large block of this kind; null when no tier has room. `align` is a power of two.
///
/// # Safety
/// The caller owns `th` and is inside the gate.
pub unsafe fn alloc(th: *mut ThreadHeap, id: KindId, size: Bytes, align: Bytes) -> LargeBlock {
    if id == KindId::DEFAULT {
        // SAFETY: as promised.
        unsafe { notice_threshold(&raw mut (*th).heap) };
    }
    let Some((kind, recipe)) = kind(id).and_then(|k| Some((k, k.recipe()?))) else {
        return NONE;
    };
    let size = size.max(Bytes::new(1));
    // glibc's bound: a difference of pointers into the block must fit ptrdiff_t.
    if size.get() > isize::MAX as usize {
        return NONE;
    }
    let slices = size.get().div_ceil(SLICE.get());
    let wish = Wish {
        kind: id,
        side: side(recipe.policy, kind.threshold(), size),
        slices,
        least: slices,
        align,
    };
    let steady = steady_tier(recipe.policy, wish.side, recipe.len as usize);
    let steady = steady.and_then(|at| recipe.tiers.get(at).copied());
    if id == KindId::DEFAULT {
        // For `shelf::at_hand`, the next time. The recipe was read after the epoch that the heap has
        // noted, so it is no older.
        // SAFETY: as promised.
        unsafe {
            if let Some(known) = (*th).heap.large.get_mut(wish.side as usize) {
                *known = steady.map_or(0, |tier| tier.0 + 1);
            }
        }
    }
    if align <= SLICE
        && let Some(tier) = steady
        // SAFETY: as promised.
        && let Some(slab) = unsafe { shelf::take(th, id, tier, slices) }
    {
        return LargeBlock {
            // SAFETY: taken from the shelf, it is this call's.
            addr: Addr::new(unsafe { (*slab.as_ptr()).base }).as_ptr(),
            zero: false,
        };
    }
    // SAFETY: as promised.
    match unsafe {
        shelf::make_way(th, steady, slices);
        tidy::owe(th);
        obtain(th, &wish, || false)
    } {
        Obtained::Run(tier, run) => describe(id, tier, run),
        _ => NONE,
    }
}

fn describe(id: KindId, tier: TierId, run: Run) -> LargeBlock {
    let base = WINDOW.slice_addr(run.first);
    let Some(descriptor) = meta::alloc(Slab::LARGE_LEN) else {
        if let Some(lane) = lane(tier) {
            lane.free(run.first, run.slices, clock::now());
        }
        return NONE;
    };
    // SAFETY: fresh metadata of the right size.
    unsafe {
        descriptor.as_ptr().cast::<Slab>().write(Slab {
            // Null: frees take the slow path, whoever frees.
            local: AtomicPtr::new(core::ptr::null_mut()),
            base: base.get(),
            magic: 0,
            unsettled: 0,
            block: SLICE.times(run.slices).get(),
            bin: core::ptr::null_mut(),
            owner: AtomicPtr::new(core::ptr::null_mut()),
            kind: id.0,
            class: 0,
            what: What::Large,
            tier: tier.0,
            list: List::None,
            slices: run.slices as u32,
            blocks: 1,
            asleep: 0,
            seen_freezes: freezes(),
            first: run.first.index() as u32,
            seen: false,
            patched: false,
            next: core::ptr::null_mut(),
            prev: core::ptr::null_mut(),
        });
    }
    WINDOW.set_descriptor(run.first, 1, Some(descriptor));
    LargeBlock {
        addr: base.as_ptr(),
        zero: run.zero,
    }
}

/// Frees a large block: keeps it for the thread, or gives it back to its tier.
///
/// # Safety
/// The caller owns `th` and is inside the gate; `slab` is the live descriptor of a large block
/// that the program gives up.
pub unsafe fn free(th: *mut ThreadHeap, slab: *mut Slab) {
    // SAFETY: as promised.
    unsafe {
        if NonNull::new(slab).is_some_and(|s| shelf::put(th, s)) {
            return;
        }
        tidy::owe(th);
        discard(slab);
    }
}

/// Gives a large block back to its tier.
///
/// # Safety
/// `slab` is the live descriptor of a large block that nobody uses any more; the caller is inside the
/// gate or has closed it.
pub unsafe fn discard(slab: *mut Slab) {
    // SAFETY: as promised.
    unsafe {
        WINDOW.set_descriptor((*slab).first_slice(), 1, None);
        give_back(slab);
    }
}

/// The same for one whose descriptor the page map does not lead to.
///
/// # Safety
/// As for [`discard`].
pub unsafe fn give_back(slab: *mut Slab) {
    // SAFETY: as promised.
    unsafe {
        let (first, slices, tier) = (
            (*slab).first_slice(),
            (*slab).slices as usize,
            TierId((*slab).tier),
        );
        meta::free(Addr::of(slab), Slab::LARGE_LEN);
        if let Some(lane) = lane(tier) {
            lane.free(first, slices, clock::now());
        }
    }
}

/// Makes a large block hold `size` bytes where it stands: gives its tail back, or takes the slices
/// behind it. False when it cannot.
///
/// # Safety
/// `slab` is the live descriptor of a large block of the caller's.
pub unsafe fn resize_in_place(slab: *mut Slab, size: Bytes) -> bool {
    // SAFETY: as promised.
    unsafe {
        if size.get() > isize::MAX as usize {
            return false;
        }
        let want = size.get().div_ceil(SLICE.get()).max(1);
        let have = (*slab).slices as usize;
        let Some(lane) = lane(TierId((*slab).tier)) else {
            return false;
        };
        if want > have {
            if !lane.extend((*slab).first_slice(), have, want) {
                return false;
            }
        } else if want < have {
            let tail = SliceId((*slab).first_slice().index() + want);
            lane.free(tail, have - want, clock::now());
        }
        (*slab).slices = want as u32;
        (*slab).block = SLICE.times(want).get();
        true
    }
}

/// Moves the pages of one large DRAM block into another, whose contents are lost. False when the
/// kernel cannot (before 5.7) or copying is cheaper; then nothing has changed.
///
/// # Safety
/// Both are live descriptors of large blocks of the caller's, `to` at least as long as `len`, and
/// `len` at most what `from` has.
pub unsafe fn move_pages(from: *mut Slab, to: *mut Slab, len: Bytes) -> bool {
    // SAFETY: as promised.
    unsafe {
        let dram = |s: *mut Slab| TierId((*s).tier) == TierId::DRAM;
        let whole = Bytes::new(len.get() & !(crate::base::PAGE.get() - 1));
        if len < MOVE_FROM || !dram(from) || !dram(to) {
            return false;
        }
        let (source, target) = (Addr::new((*from).base), Addr::new((*to).base));
        if !source.is_aligned(crate::base::PAGE) || !target.is_aligned(crate::base::PAGE) {
            return false;
        }
        // The bytes past the last whole page first: they are still there if the move fails.
        let rest = len.get() - whole.get();
        core::ptr::copy_nonoverlapping(
            source.as_ptr().add(whole.get()),
            target.as_ptr().add(whole.get()),
            rest,
        );
        map::move_contents_onto(source, target, whole).is_ok()
    }
}
