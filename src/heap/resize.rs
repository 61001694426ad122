//! `realloc`: stay where it fits, grow where the neighbours are free, move pages where that is
//! cheaper than copying, and copy otherwise.

use super::fault::{Fault, bad_free};
use super::kind::KindId;
use super::large;
use super::orphans::kind_heap;
use super::refill;
use super::release::{self, Found};
use super::slab::{Place, Slab, What};
use super::thread_heap::ThreadHeap;
use crate::base::{Addr, Bytes, MAX_CLASS};
use crate::sync::Ordering;

/// What became of a block that should hold `size` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resized {
    At(*mut u8),
    /// The old block stands as it was.
    NoMemory,
    Foreign,
    /// A heap error, survived because of `abort=0`.
    Refused,
}

/// Whether a block of `have` bytes should keep `size` bytes rather than move: it fits and at
/// least half is used. Below 128 bytes moving saves less than it costs.
pub fn stays(have: usize, size: usize) -> bool {
    size <= have && (size >= have / 2 || have <= 128)
}

/// Makes the block at `addr` hold `size` bytes, there or elsewhere, in the same kind or in `kind`.
///
/// # Safety
/// The caller owns `me`, is inside the gate, and gives up the block if it moves.
pub unsafe fn realloc(
    me: *mut ThreadHeap,
    addr: Addr,
    size: Bytes,
    kind: Option<KindId>,
    heap_of: impl FnOnce(KindId) -> bool,
) -> Resized {
    let slab = match release::find(addr) {
        Found::Ours(slab) => slab,
        Found::Foreign => return Resized::Foreign,
        Found::Stray => {
            bad_free(addr, Fault::Double);
            return Resized::Refused;
        }
    };
    // SAFETY: the descriptor is live while the block is.
    unsafe {
        if let Some(fault) = fault_of(slab, addr) {
            bad_free(addr, fault);
            return Resized::Refused;
        }
        let id = kind.unwrap_or(KindId((*slab).kind));
        let have = (*slab).block;
        if id.0 == (*slab).kind {
            let fits = match (*slab).what {
                What::Large => size > MAX_CLASS && large::resize_in_place(slab, size),
                _ => stays(have, size.get()),
            };
            if fits {
                return Resized::At(addr.as_ptr());
            }
        }
        let to = if size > MAX_CLASS {
            large::alloc(me, id, size, Bytes::new(1)).addr
        } else if heap_of(id)
            && let Some(heap) = kind_heap(me, id.0)
        {
            refill::alloc(me, heap, size, Bytes::new(1))
        } else {
            core::ptr::null_mut()
        };
        if to.is_null() {
            // Moving would have saved memory; without any there is only staying.
            if id.0 == (*slab).kind && size.get() <= have {
                return Resized::At(addr.as_ptr());
            }
            return Resized::NoMemory;
        }
        let len = have.min(size.get());
        let moved = match release::find(Addr::of(to)) {
            Found::Ours(target) if (*slab).what == What::Large && (*target).what == What::Large => {
                large::move_pages(slab, target, Bytes::new(len))
            }
            _ => false,
        };
        if !moved {
            core::ptr::copy_nonoverlapping(addr.as_ptr(), to, len);
        }
        release::free(me, addr);
        Resized::At(to)
    }
}

/// What is wrong with a pointer that should be a live block's, as far as can be told.
///
/// # Safety
/// `slab` is a live descriptor that the page map led to from `addr`.
pub unsafe fn fault_of(slab: *mut Slab, addr: Addr) -> Option<Fault> {
    // SAFETY: as promised; `place` gives an index within the words.
    unsafe {
        if (*slab).what == What::Large {
            return ((*slab).base != addr.get()).then_some(Fault::Interior);
        }
        match (*slab).place(addr.get()) {
            Place::Interior => Some(Fault::Interior),
            // Relaxed: a live block's bit does not change behind the caller's back.
            Place::Block(i) => (Slab::word(slab, i / 64).load(Ordering::Relaxed) >> (i % 64) & 1
                == 1)
                .then_some(Fault::Double),
        }
    }
}
