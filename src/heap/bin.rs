//! A bin: one thread's slabs of one size class, and the word of a bitmap it takes blocks from.

use core::num::NonZeroU64;
use core::ptr::NonNull;

use super::slab::{List, Slab};
use super::thread_heap::ThreadHeap;
use crate::policy::Side;
use crate::sync::{AtomicU64, Ordering};

/// The word a bin points to before it has a slab: no block is free in it. Never written.
pub static NO_WORD: AtomicU64 = AtomicU64::new(0);

/// Only the owner of the thread heap it belongs to touches a bin.
/// The first four fields are what a fast path reads: never across a cache line.
#[repr(C, align(32))]
pub struct Bin {
    /// The current word; null in a bin that was never used.
    pub word: *const AtomicU64,
    /// The address that bit 0 of the word stands for.
    pub base: usize,
    pub block: usize,
    /// The bits of the word that stand for blocks.
    pub valid: u64,
    /// The current slab; null when there is none.
    pub slab: *mut Slab,
    pub available: *mut Slab,
    pub frozen: *mut Slab,
    pub asleep: *mut Slab,
    /// The next slab that `sleep` looks at; null while no round is under way.
    pub cursor: *mut Slab,
    pub class: u8,
    pub side: Side,
    pub kind: u16,
    /// The current slab was empty when the heap was last looked over.
    pub idle: bool,
}

impl Bin {
    pub const NEW: Bin = Bin {
        word: core::ptr::null(),
        base: 0,
        block: 0,
        valid: 0,
        slab: core::ptr::null_mut(),
        available: core::ptr::null_mut(),
        frozen: core::ptr::null_mut(),
        asleep: core::ptr::null_mut(),
        cursor: core::ptr::null_mut(),
        class: 0,
        side: Side::Near,
        kind: 0,
        idle: false,
    };

    /// The bin every size points to in a heap that is not set up.
    pub const EMPTY: Bin = Bin {
        word: &raw const NO_WORD,
        ..Bin::NEW
    };

    /// Takes the lowest free block of the current word, and says how long it is; `None` when it has none.
    ///
    /// # Safety
    /// The caller owns the bin, and `word` is not null.
    #[inline(always)]
    pub unsafe fn pop(bin: *mut Bin) -> Option<(NonNull<u8>, usize)> {
        // SAFETY: the caller owns the bin; its word is NO_WORD or lies in a live descriptor.
        unsafe {
            let word = &*(*bin).word;
            // Relaxed: only the owner writes words.
            let free = word.load(Ordering::Relaxed);
            if free & (*bin).valid == 0 {
                return None;
            }
            // Bits that stand for no block are the highest, so the lowest one set is a block's. Not
            // zero: said for a `bsf` without a case for it. Spelled so that clearing is one `btr`.
            let index = NonZeroU64::new_unchecked(free).trailing_zeros() as usize;
            word.store(free & !(1 << index), Ordering::Relaxed);
            // No block lies at address 0.
            let block = (*bin).base + index * (*bin).block;
            Some((NonNull::new_unchecked(block as *mut u8), (*bin).block))
        }
    }

    /// Moves on to the next word of the current slab that has a free block.
    ///
    /// # Safety
    /// The caller owns the bin.
    pub unsafe fn advance(bin: *mut Bin) -> bool {
        // SAFETY: the current slab is live and the caller's; `word` lies in it.
        unsafe {
            let slab = (*bin).slab;
            if slab.is_null() {
                return false;
            }
            let start: *const AtomicU64 = Slab::word(slab, 0);
            let at = (*bin).word.offset_from(start) as usize;
            match Slab::find_word(slab, at + 1) {
                Some(index) => {
                    Bin::aim(bin, index);
                    true
                }
                None => false,
            }
        }
    }

    /// # Safety
    /// The caller owns the bin, its current slab is live and has that word.
    unsafe fn aim(bin: *mut Bin, index: usize) {
        // SAFETY: as promised.
        unsafe {
            let slab = (*bin).slab;
            (*bin).word = Slab::word(slab, index);
            (*bin).base = (*slab).base + index * 64 * (*slab).block;
            (*bin).valid = (*slab).valid(index);
        }
    }

    /// Makes `slab`, which stands in no list and has a free block, the current one.
    ///
    /// # Safety
    /// The caller owns the bin and the slab; the bin has no current slab.
    pub unsafe fn install(bin: *mut Bin, slab: *mut Slab, me: *mut ThreadHeap) {
        // SAFETY: as promised.
        unsafe {
            debug_assert!((*bin).slab.is_null() && (*slab).list == List::None);
            debug_assert!((*slab).asleep == 0);
            (*bin).slab = slab;
            (*bin).idle = false;
            (*slab).unsettled = 0;
            (*slab).seen = false;
            // Relaxed: the owner's own field.
            (*slab).local.store(me, Ordering::Relaxed);
            let index = Slab::find_word(slab, 0).unwrap_or(0);
            Bin::aim(bin, index);
        }
    }

    /// Lets go of the current slab. A full one then stands nowhere until a free brings it back.
    /// Returns the slab that was current.
    ///
    /// # Safety
    /// The caller owns the bin.
    pub unsafe fn detach(bin: *mut Bin) -> *mut Slab {
        // SAFETY: as promised; the current slab is live and the caller's.
        unsafe {
            let slab = (*bin).slab;
            if !slab.is_null() {
                (*slab).unsettled = u64::MAX;
                (*bin).slab = core::ptr::null_mut();
                (*bin).word = &raw const NO_WORD;
                (*bin).valid = 0;
            }
            slab
        }
    }

    /// The slab after this one in a walk over those available, then those asleep; null at its end.
    ///
    /// # Safety
    /// The caller owns the bin, and the slab stands in one of the two lists.
    pub unsafe fn after(bin: *mut Bin, slab: *mut Slab) -> *mut Slab {
        // SAFETY: as promised.
        unsafe {
            if !(*slab).next.is_null() || (*slab).list != List::Available {
                return (*slab).next;
            }
            (*bin).asleep
        }
    }

    unsafe fn head(bin: *mut Bin, list: List) -> *mut *mut Slab {
        // SAFETY: the caller owns the bin.
        unsafe {
            match list {
                List::Frozen => &raw mut (*bin).frozen,
                List::Asleep => &raw mut (*bin).asleep,
                _ => &raw mut (*bin).available,
            }
        }
    }

    /// Puts a slab that stands in no list into one.
    ///
    /// # Safety
    /// The caller owns bin and slab.
    pub unsafe fn push(bin: *mut Bin, slab: *mut Slab, list: List) {
        // SAFETY: as promised; list neighbours are live slabs of the same bin.
        unsafe {
            debug_assert!((*slab).list == List::None && list != List::None);
            let head = Bin::head(bin, list);
            (*slab).list = list;
            (*slab).prev = core::ptr::null_mut();
            (*slab).next = *head;
            if !(*head).is_null() {
                (**head).prev = slab;
            }
            *head = slab;
        }
    }

    /// Takes a slab out of the list it stands in, if any.
    ///
    /// # Safety
    /// The caller owns bin and slab.
    pub unsafe fn unlink(bin: *mut Bin, slab: *mut Slab) {
        // SAFETY: as for `push`.
        unsafe {
            if (*slab).list == List::None {
                return;
            }
            if (*bin).cursor == slab {
                (*bin).cursor = Bin::after(bin, slab);
            }
            if (*slab).prev.is_null() {
                *Bin::head(bin, (*slab).list) = (*slab).next;
            } else {
                (*(*slab).prev).next = (*slab).next;
            }
            if !(*slab).next.is_null() {
                (*(*slab).next).prev = (*slab).prev;
            }
            (*slab).list = List::None;
        }
    }
}
