//! A thread's heap: bins for the default kind, further ones for other kinds, the inbox where
//! others put what they free for it, and the batches it fills for others.
//!
//! Thread heaps are never freed: a thread that exits leaves its heap as an orphan, whole, and
//! the next new thread takes it over. Their number is the largest number of threads at once.

use super::bin::Bin;
use super::kind::MAX_KINDS;
use super::remote::{BatchRef, OUTBOXES, Outbox};
use super::shelf::Notes;
use super::slab::Slab;
use crate::arena::View;
use crate::base::{Bytes, CLASSES, DIRECT, MAX_DIRECT, SizeClass};
use crate::lockfree::{Inbox, Ownership, Seat, Shelf};
use crate::policy::{Policy, Side, may_be_cold, side};
use crate::sync::{AtomicPtr, Ordering};

const USED_WORDS: usize = (2 * CLASSES).div_ceil(64);

/// One thread's bins for one kind.
#[repr(C)]
pub struct KindHeap {
    /// The bin of each size up to 2 KiB, by `(size + 15) / 16`.
    pub direct: [*mut Bin; DIRECT],
    /// Sizes from here up take their bins from the far set. Only of sizes above 2 KiB: the
    /// table above has the answer for the others.
    pub far_from: usize,
    pub policy: Policy,
    /// The tier, plus one, that large blocks come from whatever the tiers hold: of the near and of
    /// the far ones. 0 while it is not known, or depends.
    pub large: [u8; 2],
    pub kind: u16,
    /// The kind's epoch when the table was made.
    pub epoch: u64,
    /// One bit for each bin that was ever used, so that looking at all of them touches no others.
    pub used: [u64; USED_WORDS],
    pub bins: [[Bin; CLASSES]; 2],
}

#[repr(transparent)]
pub(super) struct Shared<T>(T);
// SAFETY: used for values that are never written (the empty bin, the empty heap, the empty batch).
unsafe impl<T> Sync for Shared<T> {}
impl<T> Shared<T> {
    pub(super) const fn new(value: T) -> Shared<T> {
        Shared(value)
    }
}
static NO_BIN: Shared<Bin> = Shared(Bin::EMPTY);

pub fn no_bin() -> *mut Bin {
    &raw const NO_BIN.0 as *mut Bin
}

impl KindHeap {
    const EMPTY: KindHeap = KindHeap {
        direct: [&raw const NO_BIN.0 as *mut Bin; DIRECT],
        far_from: usize::MAX,
        policy: Policy::Dram,
        large: [0; 2],
        kind: 0,
        epoch: 0,
        used: [0; USED_WORDS],
        bins: [const { [const { Bin::NEW }; CLASSES] }; 2],
    };

    /// Fills in the tables of zeroed memory that becomes a heap of this kind.
    ///
    /// # Safety
    /// `heap` is zeroed memory of this size that the caller owns.
    pub unsafe fn init(
        heap: *mut KindHeap,
        kind: u16,
        policy: Policy,
        threshold: Bytes,
        epoch: u64,
    ) {
        // SAFETY: as promised; zeroed bins are unused ones (a null word).
        unsafe {
            (*heap).kind = kind;
            KindHeap::set_threshold(heap, policy, threshold, epoch);
        }
    }

    /// Points every size at no bin, so that the slow path finds its bin anew.
    ///
    /// # Safety
    /// The caller owns the heap.
    pub unsafe fn set_threshold(heap: *mut KindHeap, policy: Policy, threshold: Bytes, epoch: u64) {
        // SAFETY: as promised.
        unsafe {
            (*heap).policy = policy;
            (*heap).epoch = epoch;
            (*heap).large = [0; 2];
            (*heap).far_from = match policy {
                Policy::Size | Policy::Auto => threshold.get(),
                Policy::Cold => 0,
                Policy::Dram | Policy::Ratio => usize::MAX,
            };
            (*heap).direct = [no_bin(); DIRECT];
        }
    }

    /// The side of a request. Up to 2 KiB sizes are told apart by 16 bytes (the table's grain):
    /// a threshold within such a group counts for the whole group.
    pub fn side_of(&self, size: Bytes) -> Side {
        let size = if size <= MAX_DIRECT {
            size.checked_align_up(Bytes::new(16)).unwrap_or(size)
        } else {
            size
        };
        side(self.policy, Bytes::new(self.far_from), size)
    }

    /// The class of a request, and its side; `None` for large ones. `align` as for `refill::alloc`.
    pub fn class_of(&self, size: Bytes, align: Bytes) -> Option<(Side, SizeClass)> {
        let side = self.side_of(size);
        let class = if may_be_cold(self.policy, side) {
            // By the group of 16 as well: all its sizes share one bin.
            SizeClass::of_cold(if size <= MAX_DIRECT {
                size.checked_align_up(Bytes::new(16))?
            } else {
                size
            })
        } else {
            SizeClass::of(size)
        }?;
        Some((side, class.aligned(align)))
    }

    /// The bin of a class, set up for use, with the sizes up to `size`'s group that lead to it.
    ///
    /// # Safety
    /// The caller owns the heap.
    pub unsafe fn bin(heap: *mut KindHeap, side: Side, class: SizeClass) -> *mut Bin {
        // SAFETY: as promised; both indexes are in range by their types.
        unsafe {
            let index = side as usize * CLASSES + class.index();
            let bin = (&raw mut (*heap).bins).cast::<Bin>().add(index);
            if (*bin).word.is_null() {
                if let Some(word) = (*heap).used.get_mut(index / 64) {
                    *word |= 1 << (index % 64);
                }
                *bin = Bin {
                    block: class.block().get(),
                    class: class.index() as u8,
                    side,
                    kind: (*heap).kind,
                    ..Bin::EMPTY
                };
            }
            bin
        }
    }

    /// Calls `f` with each bin that was ever used.
    ///
    /// # Safety
    /// The caller owns or has claimed the heap.
    pub unsafe fn each_bin(heap: *mut KindHeap, f: &mut impl FnMut(*mut Bin)) {
        // SAFETY: as promised; bits stand for bins only.
        unsafe {
            let used = (*heap).used;
            for (w, mut word) in used.into_iter().enumerate() {
                while word != 0 {
                    let index = w * 64 + word.trailing_zeros() as usize;
                    word &= word - 1;
                    f((&raw mut (*heap).bins).cast::<Bin>().add(index));
                }
            }
        }
    }

    /// Lets the fast path find `bin` for the group of sizes that `size` belongs to.
    ///
    /// # Safety
    /// The caller owns the heap; `bin` is the one `class_of` leads to.
    pub unsafe fn point(heap: *mut KindHeap, size: Bytes, bin: *mut Bin) {
        // SAFETY: as promised.
        unsafe {
            let index = size.get().div_ceil(16);
            if let Some(entry) = (*heap).direct.get_mut(index) {
                *entry = bin;
            }
        }
    }
}

const _: () = assert!(Side::Near as usize == 0 && Side::Far as usize == 1);

/// A thread's heap. The default kind's bins come first: the thread's slot leads straight to them.
#[repr(C)]
pub struct ThreadHeap {
    pub heap: KindHeap,
    /// The window as it has been since before this heap existed: plain words that a free reads
    /// with the heap it needs anyway.
    pub view: View,
    /// Further kinds, made when first used; null until the first of them.
    pub kinds: *mut [*mut KindHeap; MAX_KINDS],
    pub outboxes: [Outbox; OUTBOXES],
    /// When the bins were last looked over for idle slabs, in milliseconds.
    pub looked_over: u64,
    /// The last look had more to do than one look should.
    pub unfinished: bool,
    /// What lies on the shelf, as far as the owner knows.
    pub shelved: Notes,
    /// Slow paths taken, to look at the clock now and then.
    pub slow_paths: u32,
    // What other threads touch, on lines of its own.
    pub shared: SharedPart,
}

#[repr(C, align(64))]
pub struct SharedPart {
    pub inbox: Inbox<BatchRef>,
    pub ownership: Ownership,
    pub seat: Seat,
    /// Large blocks kept for this thread.
    pub shelf: Shelf<Slab>,
    /// The list of all heaps; written once, before the heap is published.
    pub next: AtomicPtr<ThreadHeap>,
}

#[allow(
    clippy::declare_interior_mutable_const,
    reason = "only ever the value of a static"
)]
const PLACEHOLDER: ThreadHeap = ThreadHeap {
    heap: KindHeap::EMPTY,
    view: View::NOTHING,
    kinds: core::ptr::null_mut(),
    outboxes: [const { Outbox::NEW }; OUTBOXES],
    looked_over: 0,
    unfinished: false,
    shelved: Notes::NEW,
    slow_paths: 0,
    shared: SharedPart {
        inbox: Inbox::new(),
        ownership: Ownership::new_owned(),
        seat: Seat::new(),
        shelf: Shelf::new(),
        next: AtomicPtr::new(core::ptr::null_mut()),
    },
};
/// The heap of a thread that has none yet: every request misses.
pub(super) static EMPTY: Shared<ThreadHeap> = Shared(PLACEHOLDER);
/// The heap of a thread whose own is torn down: as empty, told apart by its address.
static GONE: Shared<ThreadHeap> = Shared(PLACEHOLDER);
/// The heap of a thread without one of its own while it is in the middle of something that takes
/// locks: what a signal handler must know.
static BUSY: Shared<ThreadHeap> = Shared(PLACEHOLDER);

/// The head of the list of all heaps; heaps are only ever added.
static ALL: AtomicPtr<ThreadHeap> = AtomicPtr::new(core::ptr::null_mut());

impl ThreadHeap {
    pub fn empty() -> *mut ThreadHeap {
        &raw const EMPTY.0 as *mut ThreadHeap
    }
    pub fn gone() -> *mut ThreadHeap {
        &raw const GONE.0 as *mut ThreadHeap
    }
    pub fn busy() -> *mut ThreadHeap {
        &raw const BUSY.0 as *mut ThreadHeap
    }
    /// Whether it is one of those that own nothing.
    pub fn is_placeholder(th: *mut ThreadHeap) -> bool {
        th == ThreadHeap::empty() || th == ThreadHeap::gone() || th == ThreadHeap::busy()
    }

    /// Adds a new heap to the list.
    ///
    /// # Safety
    /// `th` is a set-up heap that is not in the list and is never freed.
    pub unsafe fn publish(th: *mut ThreadHeap) {
        // Relaxed: the exchange publishes.
        let mut head = ALL.load(Ordering::Relaxed);
        loop {
            // SAFETY: as promised.
            // Relaxed: published by the exchange.
            unsafe { (*th).shared.next.store(head, Ordering::Relaxed) };
            // Release: pairs with the Acquire in `all`.
            match ALL.compare_exchange_weak(head, th, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// All heaps there ever were. Only what is shared in them may be touched.
    pub fn all() -> impl Iterator<Item = *mut ThreadHeap> {
        // Acquire: pairs with the Release in `publish`.
        let mut at = ALL.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            let th = at;
            if th.is_null() {
                return None;
            }
            // SAFETY: heaps in the list are never freed, and `next` was published with them.
            at = unsafe { (*th).shared.next.load(Ordering::Relaxed) };
            Some(th)
        })
    }
}
