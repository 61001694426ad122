//! Emptying a kind: everything in it is freed at once, whoever owns the slabs.

use super::kind::KindId;
use super::remote;
use super::slab::{Slab, What};
use super::thread_heap::{KindHeap, ThreadHeap};
use super::walk::each_slab;
use super::{large, release, shelf};
use crate::arena::{LANES, WINDOW, meta};
use crate::base::{Addr, Bytes};

/// Frees every block of a kind and forgets its bins in all threads.
///
/// # Safety
/// No thread is inside a slow path (the gate is closed), and no thread uses the kind or any of
/// its blocks any more.
pub unsafe fn empty_kind(id: KindId) {
    // SAFETY: as promised: outboxes, inboxes and kind tables change only inside the gate, and
    // this kind's bins and slabs are nobody's any more.
    unsafe {
        shelf::clear_all();
        for th in ThreadHeap::all() {
            remote::forget(th, |addr| of_kind(addr, id));
        }
        for th in ThreadHeap::all() {
            if let Some(table) = (*th).kinds.as_mut()
                && let Some(heap) = table.get_mut(id.0 as usize)
                && !heap.is_null()
            {
                meta::free(Addr::of(*heap), Bytes::new(size_of::<KindHeap>()));
                *heap = core::ptr::null_mut();
            }
        }
        for lane in &LANES {
            each_slab(lane, |slab| {
                if (*slab).kind != id.0 {
                    return;
                }
                match (*slab).what {
                    What::Large => large::discard(slab),
                    _ => release::discard(slab),
                }
            });
        }
    }
}

/// Whether a block waiting in a batch is of this kind.
unsafe fn of_kind(addr: Addr, id: KindId) -> bool {
    let Some(slice) = WINDOW.slice_of(addr) else {
        return false;
    };
    let slab = WINDOW.descriptor(slice).as_ptr().cast::<Slab>();
    // SAFETY: a block in a batch is not free yet, so its slab is live.
    unsafe { (*slab).kind == id.0 && (*slab).what == What::Blocks }
}
