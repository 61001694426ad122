//! The fast paths. Each commits by a single store, so that a thread stopped anywhere in one
//! (by a signal, by fork) leaves the heap whole; each does nothing but tell its caller to take
//! the slow path when anything is unusual.

use core::ptr::NonNull;

use super::bin::Bin;
use super::kind::KindId;
use super::slab::{Place, Slab};
use super::slot;
use super::steps::{self, Set};
use super::thread_heap::{KindHeap, ThreadHeap};
use crate::arena::WINDOW;
use crate::base::{Addr, Bytes, CLASSES, MAX_CLASS, MAX_DIRECT, SizeClass};
use crate::sync::Ordering;

/// A block for `size` bytes of the default kind; `None`: ask the slow path. `align` as for
/// `refill::alloc`.
#[inline(always)]
pub fn malloc(size: usize, align: usize) -> Option<NonNull<u8>> {
    malloc_sized(size, align).map(|(block, _)| block)
}

/// The same, and how long the block is.
#[inline(always)]
pub fn malloc_sized(size: usize, align: usize) -> Option<(NonNull<u8>, usize)> {
    // SAFETY: the slot's heap is the thread's own or a placeholder, whose bins hand nothing out.
    unsafe { pop(&raw mut (*slot::get()).heap, size, align) }
}

/// The same in any kind.
#[inline(always)]
pub fn malloc_kind(kind: KindId, size: usize, align: usize) -> Option<(NonNull<u8>, usize)> {
    let th = slot::get();
    // SAFETY: as above; the table and the heaps in it are the thread's own.
    unsafe {
        match (*th).kinds.as_ref()?.get(kind.0 as usize) {
            Some(&heap) if !heap.is_null() => pop(heap, size, align),
            _ => None,
        }
    }
}

/// # Safety
/// The caller owns the heap, or it is a placeholder's.
#[inline(always)]
unsafe fn pop(heap: *mut KindHeap, size: usize, align: usize) -> Option<(NonNull<u8>, usize)> {
    // SAFETY: as promised; entries of the table are bins of this heap or the empty bin.
    unsafe {
        if size <= MAX_DIRECT.get() {
            let index = size.wrapping_add(15) / 16;
            return Bin::pop(
                (&raw const (*heap).direct)
                    .cast::<*mut Bin>()
                    .add(index)
                    .read(),
            );
        }
        if size > MAX_CLASS.get() {
            return None;
        }
        let class = SizeClass::of(Bytes::new(size))?.aligned(Bytes::new(align));
        // Above 2 KiB classes are the same for both sides.
        let side = if size >= (*heap).far_from { CLASSES } else { 0 };
        let bin = (&raw mut (*heap).bins)
            .cast::<Bin>()
            .add(side + class.index());
        if (*bin).word.is_null() {
            return None;
        }
        Bin::pop(bin)
    }
}

/// What became of a free.
pub enum Freed {
    Done,
    /// Freed, and a whole word of the slab is free now.
    Settle(*mut Slab),
    /// Nothing happened yet: the page map leads to this, which is no slab of the thread's own with a
    /// block in use.
    Elsewhere(*mut Slab),
    /// Nothing happened yet.
    Miss,
}

/// Frees a block that lies in a slab of the calling thread's own.
///
/// # Safety
/// The program gives up the block.
#[inline(always)]
pub unsafe fn free(addr: usize) -> Freed {
    let th = slot::get();
    // SAFETY: the heap is the thread's own or a placeholder, whose view of the window is empty.
    // The descriptor is a live one or the page of zeros, whose `local` is null, which no slot
    // ever holds. Where `local` is this thread's heap the slab is this thread's.
    unsafe {
        let Some(descriptor) = (*th).view.descriptor(addr) else {
            return Freed::Miss;
        };
        let slab = descriptor as *mut Slab;
        if !steps::is_local(slab, th) {
            return Freed::Elsewhere(slab);
        }
        // As in `Slab::place`.
        let (index, rest) = steps::divide(slab, addr.wrapping_sub((*slab).base));
        if rest >= (*slab).magic {
            return Freed::Miss;
        }
        set_free(slab, index)
    }
}

/// # Safety
/// The caller owns the slab, which has that block.
#[inline(always)]
unsafe fn set_free(slab: *mut Slab, index: usize) -> Freed {
    // SAFETY: as promised.
    match unsafe { steps::set_bit(slab, index) } {
        Set::Done => Freed::Done,
        Set::Unsettled => Freed::Settle(slab),
        Set::Before => Freed::Miss,
    }
}

/// The slab that the last of several blocks lay in that one heap frees in a row: others free its
/// blocks for it in batches, and those mostly lie side by side. Twelve instructions less for each that
/// lies there, five more for one that does not.
pub struct Near {
    slab: *mut Slab,
    base: usize,
    len: usize,
    magic: u64,
}

impl Near {
    pub const NONE: Near = Near {
        slab: core::ptr::null_mut(),
        base: 0,
        len: 0,
        magic: 0,
    };

    /// As [`free`], for a block in a slab of `owner`.
    ///
    /// # Safety
    /// The caller owns or has claimed `owner`, is inside the gate, and has released no slab since the last
    /// call; the program gives up the block.
    #[inline(always)]
    pub unsafe fn free(&mut self, owner: *mut ThreadHeap, addr: usize) -> Freed {
        // SAFETY: as in `free`; where `local` is the owner's heap the slab is the caller's, and stays so
        // and live, for only it could change that.
        unsafe {
            let mut offset = addr.wrapping_sub(self.base);
            if offset >= self.len {
                let Some(descriptor) = (*owner).view.descriptor(addr) else {
                    return Freed::Miss;
                };
                let slab = descriptor as *mut Slab;
                if !steps::is_local(slab, owner) {
                    return Freed::Elsewhere(slab);
                }
                *self = Near {
                    slab,
                    base: (*slab).base,
                    len: (*slab).blocks as usize * (*slab).block,
                    magic: (*slab).magic,
                };
                offset = addr.wrapping_sub(self.base);
            }
            let Place::Block(index) = Slab::place_of(offset, self.magic) else {
                return Freed::Miss;
            };
            set_free(self.slab, index)
        }
    }
}

/// A live block that lies in a slab, whoever owns that.
#[derive(Clone, Copy)]
pub struct Live {
    slab: *mut Slab,
    index: usize,
}

impl Live {
    /// # Safety
    /// The block is still live (both).
    #[inline(always)]
    pub unsafe fn kind(self) -> KindId {
        // SAFETY: a descriptor is live as long as a block of its slab is.
        KindId(unsafe { (*self.slab).kind })
    }
    #[inline(always)]
    pub unsafe fn len(self) -> usize {
        // SAFETY: as in `kind`.
        unsafe { (*self.slab).block }
    }

    /// Frees it, if its slab is the calling thread's own.
    ///
    /// # Safety
    /// The block is still live, and the program gives it up.
    #[inline(always)]
    pub unsafe fn free(self) -> Freed {
        // SAFETY: as in `free` below; a slab that has changed hands since the look is found out here.
        unsafe {
            if !steps::is_local(self.slab, slot::get()) {
                return Freed::Elsewhere(self.slab);
            }
            set_free(self.slab, self.index)
        }
    }
}

/// What the pointer leads to; `None` for all but a live block in a slab: a large block, a foreign
/// pointer, one that is no live block's.
///
/// # Safety
/// The pointer is to a live block, or the program is at fault, or it is foreign.
#[inline(always)]
pub unsafe fn look(addr: usize) -> Option<Live> {
    // SAFETY: as in `free`; what `descriptor` leads to is live as long as the block is.
    unsafe {
        let slab = (*slot::get()).view.descriptor(addr)? as *mut Slab;
        // As in `Slab::place`; what is no slab of blocks has 0 for its magic number, and no place.
        let (index, rest) = steps::divide(slab, addr.wrapping_sub((*slab).base));
        if rest >= (*slab).magic {
            return None;
        }
        // Relaxed: a live block's bit does not change behind the caller's back.
        if Slab::word(slab, index / 64).load(Ordering::Relaxed) >> (index % 64) & 1 == 1 {
            return None;
        }
        Some(Live { slab, index })
    }
}

/// The bytes that may be used at a pointer to a block; 0 for what is not ours.
///
/// # Safety
/// The pointer is to a live block, or foreign.
#[inline(always)]
pub unsafe fn usable_size(addr: usize) -> usize {
    match WINDOW.slice_of(Addr::new(addr)) {
        // SAFETY: a live descriptor, or the page of zeros.
        Some(slice) => unsafe { (*WINDOW.descriptor(slice).as_ptr().cast::<Slab>()).block },
        None => 0,
    }
}
