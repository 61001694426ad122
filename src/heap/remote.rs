//! Remote frees: a thread gathers the blocks it frees for another heap in a batch and hands the
//! whole batch over with one atomic operation. Batches are metadata: nothing is written into the
//! blocks, so a cold one stays untouched.

use core::num::NonZeroUsize;
use core::ptr::NonNull;

use super::fast::{self, Freed};
use super::release;
use super::slab::{Place, Slab, What};
use super::thread_heap::ThreadHeap;
use crate::arena::{WINDOW, meta};
use crate::base::{Addr, Bytes, spread};
use crate::lockfree::orphan::{self, Orphanable};
use crate::lockfree::{Chain, Inbox, Link, Ownership};
use crate::sync::{AtomicUsize, Ordering};

/// Blocks a batch takes: with its head it fills 512 bytes. One compare-and-swap for 61 blocks is
/// 0.016 a block.
const BATCH: usize = 61;
/// Batches being filled at once: as many threads as one usually frees for at a time. Owners that
/// share a place send each other's batches early.
pub const OUTBOXES: usize = 8;
/// A batch is sent early once this many bytes wait in it, so that large blocks do not pile up.
const BATCH_BYTES: usize = 256 << 10;

#[repr(C)]
pub struct Batch {
    next: Option<BatchRef>,
    /// Written last, so that whoever closes the gate sees whole entries only.
    len: AtomicUsize,
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

/// A batch being filled, and for whom.
#[derive(Clone, Copy)]
pub struct Outbox {
    owner: *mut ThreadHeap,
    batch: Option<BatchRef>,
}

impl Outbox {
    pub const NEW: Outbox = Outbox {
        owner: core::ptr::null_mut(),
        batch: None,
    };

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
/// `me` is the calling thread's heap or a placeholder; the program gives up the block.
#[inline(always)]
pub unsafe fn append(me: *mut ThreadHeap, addr: usize) -> Appended {
    // SAFETY: a placeholder's view is empty. The descriptor is live or the page of zeros, which
    // describes nothing; outboxes are the thread's own, and a batch in one is too.
    unsafe {
        let Some(descriptor) = (*me).view.descriptor(addr) else {
            return Appended::No;
        };
        let slab = descriptor as *mut Slab;
        // Relaxed: a heap that owned the slab a moment ago will do.
        let owner = (*slab).owner.load(Ordering::Relaxed);
        match (*slab).what {
            What::Blocks if owner != me => {}
            What::Large => return Appended::Large(NonNull::new_unchecked(slab)),
            What::Blocks | What::Nothing => return Appended::No,
        }
        let outbox = Outbox::of(me, owner);
        let Some(batch) = (*outbox).batch else {
            return Appended::No;
        };
        let b = batch.ptr();
        // Relaxed: this thread's own count.
        let len = (*b).len.load(Ordering::Relaxed);
        let bytes = (*b).bytes + (*slab).block;
        if (*outbox).owner != owner || len >= BATCH - 1 || bytes >= BATCH_BYTES {
            return Appended::No;
        }
        let Place::Block(index) = (*slab).place(addr) else {
            return Appended::No;
        };
        // Relaxed: as in `release::free`.
        if Slab::word(slab, index / 64).load(Ordering::Relaxed) >> (index % 64) & 1 == 1 {
            return Appended::No;
        }
        (&raw mut (*b).blocks).cast::<usize>().add(len).write(addr);
        (*b).bytes = bytes;
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
        let outbox = &mut *Outbox::of(me, owner);
        if outbox.owner != owner {
            send(outbox);
            outbox.owner = owner;
        }
        let batch = match outbox.batch {
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
                outbox.batch = Some(batch);
                batch
            }
        };
        let b = batch.ptr();
        // Relaxed: this thread's own count.
        let len = (*b).len.load(Ordering::Relaxed);
        if let Some(place) = (*b).blocks.get_mut(len) {
            *place = addr.get();
            (*b).bytes += block.get();
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
    if let Some(batch) = outbox.batch.take() {
        // SAFETY: the batch is ours until now, heaps are never freed, and batches are metadata
        // that any thread may reuse.
        unsafe { orphan::post(&*outbox.owner, batch) }
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
            if let Some(batch) = outbox.batch {
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
        for &addr in blocks {
            // The thread's own blocks are freed as if it did so itself; those of an orphan it has
            // claimed, and of full slabs, miss.
            // SAFETY: the caller owns or has claimed `me` and is inside the gate; the block was
            // given up when it was put into the batch.
            unsafe {
                match fast::free(addr) {
                    Freed::Done => {}
                    Freed::Settle(slab) => release::settle(slab),
                    Freed::Miss => astray |= absorb_block(me, Addr::new(addr)),
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
