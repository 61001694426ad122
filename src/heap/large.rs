//! Large blocks: above 512 KiB, or with an alignment above a slice. Each has slices of its own, a
//! descriptor in the page map for its first one, and no owner: any thread frees it.

use super::kind::{KindId, kind};
use super::refill::fell_back;
use super::slab::{List, Slab, What};
use crate::arena::{Lane, Run, WINDOW, lane, meta};
use crate::base::{Addr, Bytes, SLICE, TierId};
use crate::os::{clock, map};
use crate::policy::side;
use crate::sync::AtomicPtr;

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
pub fn alloc(id: KindId, size: Bytes, align: Bytes) -> LargeBlock {
    let Some((kind, recipe)) = kind(id).and_then(|k| Some((k, k.recipe()?))) else {
        return NONE;
    };
    let size = size.max(Bytes::new(1));
    // glibc's bound: a difference of pointers into the block must fit ptrdiff_t.
    let Some(padded) = size
        .checked_add(align.saturating_sub(SLICE))
        .filter(|l| l.get() <= isize::MAX as usize)
    else {
        return NONE;
    };
    let slices = padded.get().div_ceil(SLICE.get()).max(1);
    let order = kind.place(
        recipe,
        side(recipe.policy, kind.threshold(), size),
        SLICE.times(slices),
    );
    let now = clock::now();
    let mut refused = None;
    for (position, index) in order.iter().enumerate() {
        let Some(&tier) = recipe.tiers.get(index) else {
            continue;
        };
        let Some(lane) = lane(tier) else { continue };
        let falls_back = position >= order.fallback_from();
        match lane.alloc(slices, falls_back && tier == TierId::DRAM, now) {
            Ok(run) => {
                if index != order.wanted()
                    && let Some(wanted) = recipe.tiers.get(order.wanted())
                {
                    fell_back(*wanted, !falls_back, refused);
                }
                return describe(id, tier, lane, run, align);
            }
            Err(e) => refused = refused.or(Some(e)),
        }
    }
    if recipe.strict
        && let Some(wanted) = recipe.tiers.get(order.wanted())
    {
        crate::arena::lane(*wanted).inspect(|l| l.count_fallback());
    }
    NONE
}

fn describe(id: KindId, tier: TierId, lane: &Lane, run: Run, align: Bytes) -> LargeBlock {
    let start = WINDOW.slice_addr(run.first);
    let base = start.align_up(align);
    let Some(descriptor) = meta::alloc(Slab::LARGE_LEN) else {
        lane.free(run.first, run.slices, clock::now());
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
            block: SLICE.times(run.slices).get() - base.offset_from(start).get(),
            bin: core::ptr::null_mut(),
            owner: AtomicPtr::new(core::ptr::null_mut()),
            kind: id.0,
            class: 0,
            what: What::Large,
            tier: tier.0,
            list: List::None,
            slices: run.slices as u32,
            blocks: 1,
            seen_freezes: 0,
            first: run.first.index(),
            next: core::ptr::null_mut(),
            prev: core::ptr::null_mut(),
        });
    }
    if let Some(slice) = WINDOW.slice_of(base) {
        WINDOW.set_descriptor(slice, 1, Some(descriptor));
    }
    LargeBlock {
        addr: base.as_ptr(),
        zero: run.zero,
    }
}

/// Frees a large block.
///
/// # Safety
/// `slab` is the live descriptor of a large block that the program gives up.
pub unsafe fn free(slab: *mut Slab) {
    // SAFETY: as promised.
    unsafe {
        let (first, slices, tier) = (
            (*slab).first_slice(),
            (*slab).slices as usize,
            TierId((*slab).tier),
        );
        if let Some(slice) = WINDOW.slice_of(Addr::new((*slab).base)) {
            WINDOW.set_descriptor(slice, 1, None);
        }
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
        let start = WINDOW.slice_addr((*slab).first_slice());
        let lead = Addr::new((*slab).base).offset_from(start);
        let Some(len) = size
            .checked_add(lead)
            .filter(|l| l.get() <= isize::MAX as usize)
        else {
            return false;
        };
        let want = len.get().div_ceil(SLICE.get()).max(1);
        let have = (*slab).slices as usize;
        let Some(lane) = lane(TierId((*slab).tier)) else {
            return false;
        };
        if want > have {
            if !lane.extend((*slab).first_slice(), have, want) {
                return false;
            }
        } else if want < have {
            let tail = crate::base::SliceId((*slab).first + want);
            lane.free(tail, have - want, clock::now());
        }
        (*slab).slices = want as u32;
        (*slab).block = SLICE.times(want).get() - lead.get();
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
