//! Remote frees: a thread gathers the blocks it frees for another heap in a batch and hands the
//! whole batch over with one atomic operation. Batches are metadata: nothing is written into the
//! blocks, so a cold one stays untouched.

use core::num::NonZeroUsize;
use core::ptr::NonNull;

use super::fast::{Freed, Near};
use super::release;
use super::slab::{Slab, What};
use super::steps;
use super::thread_heap::{Shared, ThreadHeap};
use crate::arena::{WINDOW, meta};
use crate::base::{Addr, Bytes, spread};
use crate::lockfree::orphan::{self, Orphanable};
use crate::lockfree::{Chain, Inbox, Link, Ownership};
use crate::sync::{AtomicUsize, Ordering};

/// Blocks a batch takes: with its head it fills 512 bytes. One compare-and-swap for 60 blocks is
/// 0.017 a block.
const BATCH: usize = 60;
/// Batches being filled at once: as many threads as one usually frees for at a time. Owners that
/// share a place send each other's batches early.
pub const OUTBOXES: usize = 8;
/// A batch is sent early once this many bytes wait in it, so that large blocks do not pile up.
const BATCH_BYTES: usize = 256 << 10;
/// Blocks up to this one are too small for that, however many a batch takes, and not counted.
const UNCOUNTED: usize = 4 << 10;
const _: () = assert!(BATCH * UNCOUNTED < BATCH_BYTES);

#[repr(C)]
pub struct Batch {
    next: Option<BatchRef>,
    /// Whose blocks these were when the batch was begun; null in the one that stands for none.
    owner: *mut ThreadHeap,
    /// Written last, so that whoever closes the gate sees whole entries only.
    len: AtomicUsize,
    /// What its larger blocks make together.
    bytes: usize,
    /// Their addresses. Slab and index, which the freeing thread knows, would save the owner 16 instructions
    /// a block; but of a block freed twice the slab may be gone by the second time, and only the page map
    /// tells that.
    blocks: [usize; BATCH],
}

const BATCH_LEN: Bytes = Bytes::new(size_of::<Batch>());
const _: () = assert!(size_of::<Batch>() == 512);

/// A batch in someone's sole possession.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct BatchRef(NonZeroUsize);

// SAFETY: the word is the batch's address, and `next` is the batch's own field.
unsafe impl Link for BatchRef {
    fn into_word(self) -> NonZeroUsize {
        self.0
    }
    unsafe fn from_word(word: NonZeroUsize) -> Self {
        BatchRef(word)
    }
    unsafe fn set_next(self, next: Option<Self>) {
        // SAFETY: the caller possesses the batch.
        unsafe { (*self.ptr()).next = next }
    }
    unsafe fn next(self) -> Option<Self> {
        // SAFETY: the caller possesses the batch.
        unsafe { (*self.ptr()).next }
    }
}

impl BatchRef {
    fn ptr(self) -> *mut Batch {
        self.0.get() as *mut Batch
    }
}

/// What an outbox without a batch leads to: nobody's, so that the plain case needs no test for it. Never
/// written.
static NO_BATCH: Shared<Batch> = Shared::new(Batch {
    next: None,
    owner: core::ptr::null_mut(),
    len: AtomicUsize::new(0),
    bytes: 0,
    blocks: [0; BATCH],
});

/// A batch being filled, or [`NO_BATCH`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Outbox(*mut Batch);

impl Outbox {
    pub const NEW: Outbox = Outbox(&raw const NO_BATCH as *mut Batch);

    fn batch(self) -> Option<BatchRef> {
        // SAFETY: a batch of the thread's own, or the one that stands for none.
        let none = unsafe { (*self.0).owner.is_null() };
        NonZeroUsize::new(self.0 as usize)
            .filter(|_| !none)
            .map(BatchRef)
    }

    /// Where `me` gathers what it frees for `owner`.
    ///
    /// # Safety
    /// The caller owns `me`.
    #[inline(always)]
    unsafe fn of(me: *mut ThreadHeap, owner: *mut ThreadHeap) -> *mut Outbox {
        // By the heap's address, which the caller has; its number would be a miss in a line that
        // its owner writes.
        let place = spread(owner as usize, OUTBOXES);
        // SAFETY: below the number of outboxes.
        unsafe { (&raw mut (*me).outboxes).cast::<Outbox>().add(place) }
    }
}

impl Orphanable for ThreadHeap {
    type Batch = BatchRef;
    fn inbox(&self) -> &Inbox<BatchRef> {
        &self.shared.inbox
    }
    fn ownership(&self) -> &Ownership {
        &self.shared.ownership
    }
    unsafe fn absorb(&self, batches: Chain<BatchRef>) {
        // SAFETY: the caller owns or has claimed the heap.
        unsafe { absorb(&raw const *self as *mut ThreadHeap, batches) }
    }
}

/// What came of [`append`].
pub enum Appended {
    Yes,
    /// Nothing has happened: it is a large block, or a place in one.
    Large(NonNull<Slab>),
    /// Nothing has happened.
    No,
}

/// The plain case of a remote free, outside of the gate: the batch for the owner is there and has
/// room for more than this block.
///
/// It commits by one store, like the other fast paths. The owner may change meanwhile; then the old
/// one sends the block on (`absorb_block`).
///
/// # Safety
/// `me` is the calling thread's heap; the program gives up the block, and the page map leads from it to
/// `slab`.
#[inline(always)]
pub unsafe fn append(me: *mut ThreadHeap, addr: usize, slab: *mut Slab) -> Appended {
    // SAFETY: the descriptor is live or the page of zeros, which describes nothing; outboxes are the
    // thread's own, and a batch in one is too.
    unsafe {
        // Relaxed: a heap that owned the slab a moment ago will do.
        let owner = (*slab).owner.load(Ordering::Relaxed);
        // Whatever is no slab of blocks has no owner.
        if owner.is_null() {
            return match (*slab).what {
                What::Large => Appended::Large(NonNull::new_unchecked(slab)),
                What::Blocks | What::Nothing => Appended::No,
            };
        }
        let b = (*Outbox::of(me, owner)).0;
        // Relaxed: this thread's own count.
        let len = (*b).len.load(Ordering::Relaxed);
        // No batch is for the thread itself.
        if (*b).owner != owner || len >= BATCH - 1 {
            return Appended::No;
        }
        let block = (*slab).block;
        if block > UNCOUNTED && (*b).bytes + block >= BATCH_BYTES {
            return Appended::No;
        }
        // As in `Slab::place`.
        let (index, rest) = steps::divide(slab, addr.wrapping_sub((*slab).base));
        if rest >= (*slab).magic {
            return Appended::No;
        }
        // Relaxed: as in `release::free`.
        if Slab::word(slab, index / 64).load(Ordering::Relaxed) >> (index % 64) & 1 == 1 {
            return Appended::No;
        }
        if block > UNCOUNTED {
            (*b).bytes += block;
        }
        (&raw mut (*b).blocks).cast::<usize>().add(len).write(addr);
        // Release: pairs with the Acquire in `forget`.
        (*b).len.store(len + 1, Ordering::Release);
        Appended::Yes
    }
}

/// Frees a block for the heap that owns its slab: puts it in the batch for that heap.
///
/// # Safety
/// The caller owns `me` (and is inside the gate); `addr` is a block of a live slab that another
/// heap owned when the caller looked.
pub unsafe fn free_remote(me: *mut ThreadHeap, owner: *mut ThreadHeap, addr: Addr, block: Bytes) {
    // SAFETY: heaps are never freed; the outboxes are the caller's.
    unsafe {
        debug_assert!(owner != me);
        let outbox = &mut *Outbox::of(me, owner);
        if (*outbox.0).owner != owner {
            send(outbox);
        }
        let batch = match outbox.batch() {
            Some(batch) => batch,
            None => {
                let Some(at) = meta::alloc(BATCH_LEN) else {
                    // No memory for a batch: the block is lost to reuse, which is what a program
                    // without memory for 512 bytes can bear best.
                    return;
                };
                let Some(word) = NonZeroUsize::new(at.get()) else {
                    return;
                };
                let batch = BatchRef(word);
                (*batch.ptr()).owner = owner;
                outbox.0 = batch.ptr();
                batch
            }
        };
        let b = batch.ptr();
        // Relaxed: this thread's own count.
        let len = (*b).len.load(Ordering::Relaxed);
        if let Some(place) = (*b).blocks.get_mut(len) {
            *place = addr.get();
            if block.get() > UNCOUNTED {
                (*b).bytes += block.get();
            }
            // Release: pairs with the Acquire in `forget`.
            (*b).len.store(len + 1, Ordering::Release);
        }
        if len + 1 == BATCH || (*b).bytes >= BATCH_BYTES {
            send(outbox);
        }
    }
}

/// Sends all batches that are being filled.
///
/// # Safety
/// The caller owns `me` and is inside the gate.
pub unsafe fn send_all(me: *mut ThreadHeap) {
    // SAFETY: the outboxes are the caller's.
    unsafe {
        for outbox in &mut (*me).outboxes {
            send(outbox);
        }
    }
}

fn send(outbox: &mut Outbox) {
    if let Some(batch) = outbox.batch() {
        *outbox = Outbox::NEW;
        // SAFETY: the batch is ours until now, heaps are never freed, and batches are metadata
        // that any thread may reuse.
        unsafe { orphan::post(&*(*batch.ptr()).owner, batch) }
    }
}

/// Takes out of a heap's batches, those it fills and those it was sent, the blocks that `gone`
/// says are no more.
///
/// # Safety
/// No thread is inside a slow path (the gate is closed): batches move only there.
pub unsafe fn forget(th: *mut ThreadHeap, gone: impl Fn(Addr) -> bool) {
    // SAFETY: as promised.
    unsafe {
        let clean = |batch: BatchRef| {
            let b = batch.ptr();
            // Acquire: pairs with the Release in `append`, which goes on while the gate is closed.
            if let Some(blocks) = (*b).blocks.get_mut(..(*b).len.load(Ordering::Acquire)) {
                for block in blocks
                    .iter_mut()
                    .filter(|b| **b != 0 && gone(Addr::new(**b)))
                {
                    *block = 0;
                }
            }
        };
        for outbox in &(*th).outboxes {
            if let Some(batch) = outbox.batch() {
                clean(batch);
            }
        }
        for batch in (*th).shared.inbox.take() {
            clean(batch);
            // Not `post`: an orphan must not be drained while the gate is closed.
            (*th).shared.inbox.push(batch);
        }
    }
}

/// Takes what others have freed for this heap.
///
/// # Safety
/// The caller owns or has claimed the heap and is inside the gate.
pub unsafe fn drain(me: *mut ThreadHeap) -> bool {
    // SAFETY: as promised.
    unsafe {
        if (*me).shared.inbox.is_empty() {
            return false;
        }
        absorb(me, (*me).shared.inbox.take());
        true
    }
}

unsafe fn absorb(me: *mut ThreadHeap, batches: Chain<BatchRef>) {
    let mut astray = false;
    for batch in batches {
        let b = batch.ptr();
        // SAFETY: the chain is this thread's alone.
        // Relaxed: the batch was acquired with the chain.
        let blocks = unsafe {
            (*b).blocks
                .get(..(*b).len.load(Ordering::Relaxed))
                .unwrap_or(&[])
        };
        let mut near = Near::NONE;
        for &addr in blocks {
            // SAFETY: the caller owns or has claimed `me` and is inside the gate; the block was
            // given up when it was put into the batch. What the last two arms do may end the slab that is
            // remembered.
            unsafe {
                match near.free(me, addr) {
                    Freed::Done => {}
                    Freed::Settle(slab) => {
                        near = Near::NONE;
                        release::settle(slab);
                    }
                    Freed::Elsewhere(_) | Freed::Miss => {
                        near = Near::NONE;
                        astray |= absorb_block(me, Addr::new(addr));
                    }
                }
            }
        }
        // SAFETY: taken from `meta::alloc(BATCH_LEN)`, and nobody else has it.
        unsafe { meta::free(Addr::of(b), BATCH_LEN) };
    }
    if astray {
        // An orphan's batches would wait for its next owner.
        // SAFETY: as promised.
        unsafe { send_all(me) };
    }
}

/// Says whether the block belongs to another heap by now and was sent on.
unsafe fn absorb_block(me: *mut ThreadHeap, addr: Addr) -> bool {
    // 0 is what `forget` left: outside of the window.
    let Some(slice) = WINDOW.slice_of(addr) else {
        return false;
    };
    let slab = WINDOW.descriptor(slice).as_ptr().cast::<Slab>();
    // SAFETY: the block was live when it was freed and its slab cannot be released before the
    // block is free, so the descriptor is live. Only the owner frees blocks of a slab.
    unsafe {
        if (*slab).what != What::Blocks {
            super::fault::bad_free(addr, super::fault::Fault::Double);
            return false;
        }
        // Relaxed: if it is `me`, this thread wrote it or acquired it with the heap.
        let owner = (*slab).owner.load(Ordering::Relaxed);
        if owner == me {
            release::free_owned(me, slab, addr);
        } else {
            // The slab changed hands after the block was put in the batch.
            free_remote(me, owner, addr, Bytes::new((*slab).block));
        }
        owner != me
    }
}
