//! Thread heaps without a thread: leaving one, taking one over, and taking a slab from one.

use super::bin::Bin;
use super::refill::put_away;
use super::remote;
use super::shelf;
use super::slab::List;
use super::sleep;
use super::thread_heap::{KindHeap, ThreadHeap};
use crate::base::CLASSES;
use crate::lockfree::orphan;
use crate::sync::{AtomicUsize, Ordering};

/// How many orphans there are, so that a miss need not look for slabs where none can be.
static ORPHANS: AtomicUsize = AtomicUsize::new(0);

/// Orphans looked at for one slab: enough to find one in a pool of exited workers, few enough
/// that a miss stays short.
const LOOK_AT: usize = 8;

/// The thread that owns `th` leaves it.
///
/// # Safety
/// The caller owns `th`, is inside the gate, and does not touch it again.
pub unsafe fn leave(th: *mut ThreadHeap) {
    // SAFETY: as promised.
    unsafe {
        remote::send_all(th);
        remote::drain(th);
        shelf::clear(th);
        each_bin(th, |bin| put_away(th, bin));
        // Relaxed: a hint.
        ORPHANS.fetch_add(1, Ordering::Relaxed);
        orphan::abandon(&*th);
    }
}

/// Makes some orphan the caller's own; null when there is none.
pub fn take_over() -> *mut ThreadHeap {
    // Relaxed: a hint.
    if ORPHANS.load(Ordering::Relaxed) == 0 {
        return core::ptr::null_mut();
    }
    for th in ThreadHeap::all() {
        // SAFETY: heaps are never freed, and `adopt` looks at their shared part only.
        if unsafe { orphan::adopt(&*th) } {
            // Relaxed: a hint.
            ORPHANS.fetch_sub(1, Ordering::Relaxed);
            return th;
        }
    }
    core::ptr::null_mut()
}

/// In a forked child whose own heap is in the middle of something: of the others only the seats
/// are set right, for making them orphans takes locks that may be held below.
///
/// # Safety
/// The caller is the only thread; `me` is its heap (or null).
pub unsafe fn empty_all_seats_but(me: *mut ThreadHeap) {
    for th in ThreadHeap::all().filter(|&th| th != me) {
        // SAFETY: heaps are never freed; this thread is alone.
        unsafe { (*th).shared.seat.reset_in_child() };
    }
}

/// In a forked child: heaps whose threads did not come along become orphans. All of them were
/// outside of the gate, so they are whole.
///
/// # Safety
/// The caller is the only thread; `me` is its heap (or a placeholder).
pub unsafe fn orphan_all_but(me: *mut ThreadHeap) {
    for th in ThreadHeap::all() {
        // SAFETY: heaps are never freed; this thread is alone.
        unsafe {
            if th == me {
                continue;
            }
            (*th).shared.seat.reset_in_child();
            if !(*th).shared.ownership.is_orphan() {
                // Relaxed: a hint.
                ORPHANS.fetch_add(1, Ordering::Relaxed);
                orphan::abandon(&*th);
            }
        }
    }
}

fn all_orphans() -> impl Iterator<Item = *mut ThreadHeap> {
    ThreadHeap::all().filter(|&th| {
        // SAFETY: heaps are never freed; this looks at their shared part only.
        unsafe { (*th).shared.ownership.is_orphan() }
    })
}

/// Calls `f` with each orphan in turn, which is the caller's while it runs.
///
/// # Safety
/// The caller is inside the gate, and `f` does not keep the heap.
pub unsafe fn each_orphan(mut f: impl FnMut(*mut ThreadHeap)) {
    for orphan in all_orphans() {
        // SAFETY: as promised; who claims a heap may do all that its owner may.
        let _ = unsafe { orphan::with_claim(&*orphan, || f(orphan)) };
    }
}

/// Takes a slab with free blocks of this bin's class from an orphan, so that the memory of
/// threads that are gone serves those that stay.
///
/// # Safety
/// The caller owns `th`, to which the bin belongs, and is inside the gate.
pub unsafe fn adopt_slab(th: *mut ThreadHeap, bin: *mut Bin) -> bool {
    // Relaxed: a hint.
    if ORPHANS.load(Ordering::Relaxed) == 0 {
        return false;
    }
    for orphan in all_orphans().filter(|&o| o != th).take(LOOK_AT) {
        // SAFETY: under the claim the orphan is this thread's; the bin is the caller's.
        let found = unsafe {
            orphan::with_claim(&*orphan, || {
                let Some(theirs) = same_bin(orphan, bin) else {
                    return false;
                };
                let mut slab = (*theirs).available;
                if slab.is_null() {
                    slab = (*theirs).asleep;
                    if slab.is_null() || !sleep::wake(slab) {
                        return false;
                    }
                }
                Bin::unlink(theirs, slab);
                (*slab).bin = bin;
                // Relaxed (both): who frees a block of this slab meanwhile and sees the old owner
                // posts to it; whoever drains that sends the block on (`remote::absorb_block`).
                (*slab).owner.store(th, Ordering::Relaxed);
                (*slab).local.store(th, Ordering::Relaxed);
                debug_assert!((*slab).list == List::None);
                Bin::install(bin, slab, th);
                true
            })
        };
        if found == Some(true) {
            return true;
        }
    }
    false
}

/// The orphan's bin of the same kind, side and class, if it was ever used.
unsafe fn same_bin(orphan: *mut ThreadHeap, bin: *mut Bin) -> Option<*mut Bin> {
    // SAFETY: the caller has claimed the orphan and owns the bin.
    unsafe {
        let heap = kind_heap(orphan, (*bin).kind)?;
        let theirs = (&raw mut (*heap).bins)
            .cast::<Bin>()
            .add((*bin).side as usize * CLASSES + (*bin).class as usize);
        (!(*theirs).word.is_null()).then_some(theirs)
    }
}

/// The thread's heap for this kind, if it has one.
///
/// # Safety
/// The caller owns or has claimed `th`.
pub unsafe fn kind_heap(th: *mut ThreadHeap, kind: u16) -> Option<*mut KindHeap> {
    // SAFETY: as promised.
    unsafe {
        if kind == 0 {
            return Some(&raw mut (*th).heap);
        }
        let table = (*th).kinds.as_ref()?;
        table.get(kind as usize).copied().filter(|h| !h.is_null())
    }
}

/// Calls `f` with each bin of the thread's heaps that was ever used.
///
/// # Safety
/// The caller owns or has claimed `th`.
pub unsafe fn each_bin(th: *mut ThreadHeap, mut f: impl FnMut(*mut Bin)) {
    // SAFETY: as promised.
    unsafe {
        KindHeap::each_bin(&raw mut (*th).heap, &mut f);
        if let Some(table) = (*th).kinds.as_ref() {
            for &heap in table.iter().filter(|h| !h.is_null()) {
                KindHeap::each_bin(heap, &mut f);
            }
        }
    }
}
