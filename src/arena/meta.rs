//! The metadata allocator: slab descriptors, thread heaps, batches of remote frees. Always in
//! DRAM, never given back to the system, reused by size.
//!
//! Sizes are rounded up to 64 bytes (a cache line, so that two threads' descriptors never share
//! one) up to 1 KiB, then to powers of two. A freed piece is linked through its own first word:
//! this is DRAM of ours, not a block, so rule 2 of the design does not forbid it.

use crate::base::{Addr, Bytes};
use crate::os::lock::Lock;
use crate::os::map::{self, Access};
use crate::sync::{AtomicUsize, Ordering};

const LINE: usize = 64;
const SMALL: usize = 1024;
/// Sizes of 64 to 1,024 by lines, then powers of two to `LARGEST`.
const LISTS: usize = SMALL / LINE + 6;
/// The largest piece; a thread heap is the largest thing asked for.
pub const LARGEST: Bytes = Bytes::kib(64);
/// What is taken from the system at a time.
const CHUNK: Bytes = Bytes::kib(512);

struct Pool {
    free: [usize; LISTS],
    at: usize,
    end: usize,
}

static POOL: Lock<Pool> = Lock::new(Pool {
    free: [0; LISTS],
    at: 0,
    end: 0,
});
static TAKEN: AtomicUsize = AtomicUsize::new(0);

const fn list_of(size: usize) -> (usize, usize) {
    let size = if size == 0 { 1 } else { size };
    if size <= SMALL {
        let lines = size.div_ceil(LINE);
        (lines - 1, lines * LINE)
    } else {
        let rounded = size.next_power_of_two();
        let above = rounded.trailing_zeros() as usize - SMALL.trailing_zeros() as usize;
        (SMALL / LINE - 1 + above, rounded)
    }
}

const _: () = assert!(list_of(LARGEST.get()).0 == LISTS - 1);
const _: () = assert!(list_of(SMALL + 1).0 == SMALL / LINE);

/// Bytes of metadata taken from the system so far.
pub fn taken() -> Bytes {
    // Relaxed: a statistic.
    Bytes::new(TAKEN.load(Ordering::Relaxed))
}

/// Zeroed memory of at least `size` bytes, 64-aligned; `None` when the system has none or `size`
/// is above [`LARGEST`].
pub fn alloc(size: Bytes) -> Option<Addr> {
    if size > LARGEST {
        return None;
    }
    let (list, rounded) = list_of(size.get());
    let mut pool = POOL.lock();
    let head = pool.free.get_mut(list)?;
    let piece = *head;
    if piece != 0 {
        // SAFETY: pieces in the list are `rounded` bytes of ours that nobody else holds; their
        // first word is the link that `free` wrote.
        unsafe {
            *head = *(piece as *const usize);
            drop(pool);
            core::ptr::write_bytes(piece as *mut u8, 0, rounded);
        }
        return Some(Addr::new(piece));
    }
    if pool.end - pool.at < rounded {
        // What is left of the old chunk is lost: at most 64 KiB in each 512, and only when a
        // thread heap is asked for; descriptors leave less than a kilobyte.
        let chunk = map::anywhere(CHUNK, Access::ReadWrite).ok()?;
        // Relaxed: a statistic.
        TAKEN.fetch_add(CHUNK.get(), Ordering::Relaxed);
        pool.at = chunk.get();
        pool.end = chunk.get() + CHUNK.get();
    }
    let piece = pool.at;
    pool.at += rounded;
    Some(Addr::new(piece))
}

/// Takes a piece back.
///
/// # Safety
/// `piece` came from `alloc(size)` with the same size, and nobody uses it any more.
pub unsafe fn free(piece: Addr, size: Bytes) {
    let (list, _) = list_of(size.get());
    let mut pool = POOL.lock();
    if let Some(head) = pool.free.get_mut(list) {
        // SAFETY: the piece is ours again by the caller's promise and at least a line long.
        unsafe { *(piece.as_ptr().cast::<usize>()) = *head };
        *head = piece.get();
    }
}
