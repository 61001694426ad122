//! The calls that users make, each as a fast path and the slow half it falls into.
//!
//! All of them may be called from any thread at any time, before the heap has started and after
//! the thread's teardown. They leave errno alone but where they fail with ENOMEM.

use core::ptr::NonNull;

use super::configure::retry_environment;
use super::threads::{ensure_kind, with_heap};
use crate::arena::WINDOW;
use crate::base::{Addr, Bytes, MAX_CLASS, SLICE, TierId};
use crate::heap::fast::{self, Freed};
use crate::heap::remote::Appended;
use crate::heap::resize::{self, Resized};
use crate::heap::slab::Slab;
use crate::heap::{
    KindId, LargeBlock, ThreadHeap, alloc_large, orphans, refill, release, remote, shelf, slot,
    tidy,
};
use crate::os::errno::{self, Errno};
use crate::os::{clock, next};
use crate::sync::{AtomicU64, Ordering};

/// glibc's bound on a request: a difference of pointers into a block must fit `ptrdiff_t`.
const MAX_REQUEST: usize = isize::MAX as usize;

static FOREIGN: AtomicU64 = AtomicU64::new(0);

/// Frees and reallocs of pointers that were not ours.
pub fn foreign_frees() -> u64 {
    // Relaxed: a statistic.
    FOREIGN.load(Ordering::Relaxed)
}

fn no_memory() -> *mut u8 {
    errno::set(Errno::NOMEM);
    core::ptr::null_mut()
}

/// A block of at least `size` bytes, 16-aligned; null with ENOMEM where there is none. Size 0
/// gives a block of its own.
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    match fast::malloc(size, 1) {
        Some(block) => block.as_ptr(),
        None => malloc_slow(size),
    }
}

#[cold]
#[inline(never)]
fn malloc_slow(size: usize) -> *mut u8 {
    if size <= MAX_CLASS.get() {
        return block_slow(KindId::DEFAULT, size, 1);
    }
    // SAFETY: the slot's heap is this thread's, or a placeholder, which knows of no tier.
    let block = unsafe { shelf::at_hand(slot::get(), Bytes::new(size)) };
    if block.is_null() {
        return large_slow(KindId::DEFAULT, size, 1).addr;
    }
    block
}

/// The same in a kind.
#[inline(always)]
pub fn malloc_kind(kind: KindId, size: usize) -> *mut u8 {
    if kind == KindId::DEFAULT {
        return malloc(size);
    }
    match at_hand(kind, size, 1) {
        Some(block) => block.as_ptr(),
        None => block_slow(kind, size, 1),
    }
}

/// A block, if the current slab of its bin has one; if not, nothing has happened. `align` as for
/// `refill::alloc`.
#[inline(always)]
fn at_hand(kind: KindId, size: usize, align: usize) -> Option<NonNull<u8>> {
    at_hand_sized(kind, size, align).map(|(block, _)| block)
}

/// The same, and how long the block is.
#[inline(always)]
fn at_hand_sized(kind: KindId, size: usize, align: usize) -> Option<(NonNull<u8>, usize)> {
    if kind == KindId::DEFAULT {
        fast::malloc_sized(size, align)
    } else {
        fast::malloc_kind(kind, size, align)
    }
}

/// `align` as for `refill::alloc` where the size has a class; any power of two else.
#[cold]
#[inline(never)]
fn block_slow(kind: KindId, size: usize, align: usize) -> *mut u8 {
    if size > MAX_CLASS.get() {
        return large_slow(kind, size, align).addr;
    }
    let block = with_heap(|th| {
        retry_environment();
        // SAFETY: `with_heap` gives a heap of this thread's, inside the gate.
        unsafe {
            if !ensure_kind(th, kind) {
                return core::ptr::null_mut();
            }
            let Some(heap) = orphans::kind_heap(th, kind.0) else {
                return core::ptr::null_mut();
            };
            tidy::tidy(th, Bytes::new(size));
            refill::alloc(th, heap, Bytes::new(size), Bytes::new(align))
        }
    });
    block.filter(|b| !b.is_null()).unwrap_or_else(no_memory)
}

/// A block of `count` times `size` zero bytes; null with ENOMEM where that overflows.
#[inline(always)]
pub fn calloc_kind(kind: KindId, count: usize, size: usize) -> *mut u8 {
    // No block has a size that overflows.
    let len = count.saturating_mul(size);
    match at_hand_sized(kind, len, 1) {
        Some((block, has)) => {
            // SAFETY: a block of that many bytes, at least `len`, just handed out.
            unsafe { clear(block.as_ptr(), len, has) };
            block.as_ptr()
        }
        None => calloc_slow(kind, len),
    }
}

#[cold]
#[inline(never)]
fn calloc_slow(kind: KindId, len: usize) -> *mut u8 {
    let block = if len > MAX_CLASS.get() {
        large_slow(kind, len, 1)
    } else {
        LargeBlock {
            addr: block_slow(kind, len, 1),
            zero: false,
        }
    };
    if !block.addr.is_null() && !block.zero {
        // SAFETY: as in `calloc_kind`.
        unsafe { core::ptr::write_bytes(block.addr, 0, len) };
    }
    block.addr
}

/// Zeroes what was asked of a new block. Blocks up to 64 bytes by hand, and whole: a call of memset is
/// more than the rest of the fast path.
///
/// # Safety
/// A block that has `has` bytes, at least `len`.
#[inline(always)]
unsafe fn clear(block: *mut u8, len: usize, has: usize) {
    // SAFETY: blocks are whole sixteens, aligned to 16, and at least one.
    unsafe {
        if has > 64 {
            core::ptr::write_bytes(block, 0, len);
            return;
        }
        let sixteens = block.cast::<u128>();
        sixteens.write(0);
        block.add(has).cast::<u128>().sub(1).write(0);
        if has > 32 {
            sixteens.add(1).write(0);
            sixteens.add(2).write(0);
        }
    }
}

/// A large block; null, with ENOMEM, where there is none.
#[cold]
#[inline(never)]
fn large_slow(kind: KindId, size: usize, align: usize) -> LargeBlock {
    let none = || LargeBlock {
        addr: no_memory(),
        zero: false,
    };
    if size > MAX_REQUEST || align > MAX_REQUEST {
        return none();
    }
    let block = with_heap(|th| {
        retry_environment();
        // SAFETY: as in `block_slow`.
        unsafe {
            tidy::tidy(th, Bytes::ZERO);
            alloc_large(th, kind, Bytes::new(size), Bytes::new(align))
        }
    });
    block.filter(|b| !b.addr.is_null()).unwrap_or_else(none)
}

/// A block whose address is a multiple of `align`, a power of two; errno is ENOMEM where there is
/// none.
#[inline]
pub fn aligned_kind(kind: KindId, align: usize, size: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    if align <= 16 {
        return malloc_kind(kind, size);
    }
    // A size that is a multiple of the alignment has a class that is one too: either the steps
    // between classes are multiples of the alignment there, or the alignment is a multiple of
    // the step and the size itself is a class. Slabs start slices, so their blocks are aligned, to
    // 256 at least where they have a colour.
    let rounded = size.max(1).wrapping_add(align - 1) & !(align - 1);
    if align <= SLICE.get() && rounded >= size && rounded <= MAX_CLASS.get() {
        return match at_hand(kind, rounded, align) {
            Some(block) => block.as_ptr(),
            None => block_slow(kind, rounded, align),
        };
    }
    // Alignments above a slice, and sizes above all classes.
    large_slow(kind, size, align).addr
}

/// The same in the default kind, if a block is at hand; if not, nothing has happened.
#[cfg(feature = "libc-names")]
#[inline(always)]
pub fn aligned_at_hand(align: usize, size: usize) -> Option<NonNull<u8>> {
    debug_assert!(align.is_power_of_two());
    if align > SLICE.get() || size > MAX_CLASS.get() {
        return None;
    }
    // See `aligned_kind`; up to 16 this changes no class.
    fast::malloc((size.max(1) + align - 1) & !(align - 1), align)
}

/// Frees a block of any kind. Null is nothing; a pointer that is not ours goes to the next `free`
/// in link order, or is counted and left alone.
///
/// # Safety
/// The pointer is null, or a live block that nobody uses any more. Double frees, frees of
/// interior pointers and of memory that was never handed out are detected and end the process
/// with a message (`abort=0`: are counted).
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { end_free(block, fast::free(block as usize)) }
}

/// What is left to do of a free.
///
/// # Safety
/// As for [`free`]; this came of its fast path.
#[inline(always)]
unsafe fn end_free(block: *mut u8, freed: Freed) {
    match freed {
        Freed::Done => {}
        Freed::Settle(slab) => settle_slow(slab),
        // SAFETY: the caller's promise; where the page map led somewhere the thread has a heap.
        Freed::Elsewhere(slab) => unsafe { free_elsewhere(block, slab, slot::get()) },
        // SAFETY: the caller's promise.
        Freed::Miss => unsafe { free_slow(block) },
    }
}

/// What is not in a slab of this thread's own. What the fast path knows is passed on: to find it again
/// is ten instructions.
#[inline(never)]
unsafe fn free_elsewhere(block: *mut u8, slab: *mut Slab, th: *mut ThreadHeap) {
    // SAFETY: the heap is this thread's, and the page map leads from the block to the descriptor; the
    // rest is the caller's promise.
    unsafe {
        match remote::append(th, block as usize, slab) {
            Appended::Yes => {}
            Appended::Large(slab) if shelf::keep(th, slab, block as usize) => {}
            Appended::Large(_) | Appended::No => free_slow(block),
        }
    }
}

#[cold]
#[inline(never)]
fn settle_slow(slab: *mut Slab) {
    // SAFETY: the fast path found the slab to be this thread's, and a thread that owns slabs has
    // a heap.
    with_heap(|th| unsafe {
        release::settle(slab);
        tidy::tidy(th, Bytes::ZERO);
    });
}

#[cold]
#[inline(never)]
unsafe fn free_slow(block: *mut u8) {
    if block.is_null() {
        return;
    }
    let addr = Addr::of(block);
    if WINDOW.slice_of(addr).is_some() {
        // SAFETY: `with_heap` gives a heap of this thread's, inside the gate; the rest is the
        // caller's promise.
        let ours = with_heap(|th| unsafe {
            let ours = release::free(th, addr);
            tidy::tidy(th, Bytes::ZERO);
            ours
        });
        if ours != Some(false) {
            return;
        }
    }
    // Relaxed: a statistic.
    FOREIGN.fetch_add(1, Ordering::Relaxed);
    if let Some(free) = next::free(None) {
        // SAFETY: not ours, so whoever made it is the next in line.
        unsafe { free(block.cast()) };
    }
}

/// Makes a block hold `size` bytes in its own kind; see [`realloc_kind`].
///
/// # Safety
/// As for [`realloc_kind`].
#[inline(always)]
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { realloc_kind(block, size, None) }
}

/// Makes a block hold `size` bytes, in its own kind or moved to `kind`; its contents up to the
/// smaller of both sizes stay. Null with ENOMEM where there is no memory: the block stays as it is.
///
/// # Safety
/// As for [`free`]; null is a block of no bytes in no kind, and goes to the default one. `size` 0 makes the
/// smallest block.
#[inline(always)]
pub unsafe fn realloc_kind(block: *mut u8, size: usize, kind: Option<KindId>) -> *mut u8 {
    // Three steps that commit by themselves, outside of the gate: look, take a block, free the old one.
    // SAFETY: the caller's promise; the new block holds `size` bytes and is this call's.
    unsafe {
        if let Some(old) = fast::look(block as usize) {
            let (have, id) = (old.len(), kind.unwrap_or(old.kind()));
            if id == old.kind() && resize::stays(have, size) {
                return block;
            }
            if let Some(to) = at_hand(id, size, 1) {
                let (to, len) = (to.as_ptr(), have.min(size));
                // Freed after the copy, not before, which would save seven instructions: a signal handler in
                // between that allocates would get the old block and write over what is still to be copied.
                core::ptr::copy_nonoverlapping(block, to, len);
                end_free(block, old.free());
                return to;
            }
        }
        realloc_slow(block, size, kind)
    }
}

#[cold]
#[inline(never)]
unsafe fn realloc_slow(block: *mut u8, size: usize, kind: Option<KindId>) -> *mut u8 {
    if block.is_null() {
        return malloc_kind(kind.unwrap_or(KindId::DEFAULT), size);
    }
    if size > MAX_REQUEST {
        return no_memory();
    }
    let addr = Addr::of(block);
    // SAFETY: `with_heap` gives a heap of this thread's, inside the gate; the rest is the
    // caller's promise.
    let resized = with_heap(|th: *mut ThreadHeap| unsafe {
        tidy::tidy(th, Bytes::new(size));
        resize::realloc(th, addr, Bytes::new(size), kind, |id| ensure_kind(th, id))
    });
    match resized {
        Some(Resized::At(at)) => at,
        Some(Resized::Foreign) => {
            // Relaxed: a statistic.
            FOREIGN.fetch_add(1, Ordering::Relaxed);
            match next::realloc(None) {
                // SAFETY: not ours, so whoever made it is the next in line.
                Some(realloc) => unsafe { realloc(block.cast(), size).cast() },
                None => no_memory(),
            }
        }
        Some(Resized::NoMemory | Resized::Refused) | None => no_memory(),
    }
}

/// The bytes that may be used at a live block; 0 for null and for what is nobody's.
///
/// # Safety
/// The pointer is null, or a live block (of ours or of the next allocator in line).
#[inline(always)]
pub unsafe fn usable_size(block: *mut u8) -> usize {
    // SAFETY: the caller's promise.
    match unsafe { fast::usable_size(block as usize) } {
        0 => foreign_usable_size_slow(block),
        size => size,
    }
}

#[cold]
#[inline(never)]
fn foreign_usable_size_slow(block: *mut u8) -> usize {
    // What is ours but no block any more would be a wild pointer to the next in line.
    if block.is_null() || release::find(Addr::of(block)) == release::Found::Stray {
        return 0;
    }
    match next::usable_size(None) {
        // SAFETY: not ours, so whoever made it is the next in line.
        Some(usable_size) => unsafe { usable_size(block.cast()) },
        None => 0,
    }
}

/// The tier that holds the memory at `addr` now, whether of a block's start or middle; `None`
/// where nothing of ours is.
#[inline]
pub fn tier_of(addr: *const u8) -> Option<TierId> {
    WINDOW
        .slice_of(Addr::of(addr))
        .and_then(|slice| WINDOW.tier(slice))
}

/// The kind that the live block at `addr` belongs to; `None` for what is not ours.
pub fn kind_of(addr: *const u8) -> Option<KindId> {
    match release::find(Addr::of(addr)) {
        // SAFETY: descriptors in the page map are live while a block of theirs is.
        release::Found::Ours(slab) => Some(KindId(unsafe { (*slab).kind })),
        _ => None,
    }
}

/// Gives back what has not been used for a while, as misses do now and then.
#[cfg(feature = "libc-names")]
pub fn tidy() {
    // SAFETY: `with_heap` gives a heap of this thread's, inside the gate.
    with_heap(|th| unsafe { tidy::tidy_now(th) });
}

/// Gives back to the system what can be spared at once. Says whether there was anything.
pub fn trim() -> bool {
    // SAFETY: `with_heap` gives a heap of this thread's, inside the gate.
    with_heap(|th| unsafe { tidy::trim(th, clock::now()) }).unwrap_or(false)
}
