//! Large blocks that a thread has freed and may want again: kept for a moment, so that a buffer
//! of megabytes that comes and goes costs neither the tier's lock nor page faults.
//!
//! A block on a shelf is free for the program (a second free of it is found), and held for its
//! tier: charged, backed, and counted as idle. It goes back to its tier when nobody has wanted it for
//! 100 to 200 ms, when the shelf is full or has nothing that would do for its thread, when the tier refuses a request, when its
//! thread ends, and before a fork, which would make it a copy.
//!
//! [`at_hand`] and [`keep`] work outside of the gate, for entering it is half of what they cost. Each has one
//! step that counts, at the place itself; before and after it the block is in its thread's hands, like
//! one that the program holds. So a closed gate may find a block in flight, and a child that is forked then has
//! lost it; what comes to lie on a shelf after a fork has cleared it was frozen as in use, and is known
//! by its count of freezes.

use super::kind::{KINDS, KindId};
use super::slab::Slab;
use super::thread_heap::ThreadHeap;
use super::{large, tidy};
use crate::arena::{Lane, PURGE_DELAY_MS, WINDOW, freezes, lane};
use crate::base::{Addr, Bytes, Millis, SLICE, TierId};
use crate::lockfree::shelf::PLACES;
use crate::sync::{AtomicU64, Ordering};
use core::ptr::NonNull;

/// The largest block that is kept, and what all of a thread's may take, in slices.
const MAX_BLOCK: usize = Bytes::mib(32).get() / SLICE.get();
const MAX_ALL: usize = Bytes::mib(64).get() / SLICE.get();

/// How often shelves are looked over; what was there the last time goes. Short beside the tier's own
/// delay, which follows: memory should still return about a second after it was freed.
const AGE_MS: u64 = PURGE_DELAY_MS / 10;

/// When they were looked over last, in milliseconds.
static AGED: AtomicU64 = AtomicU64::new(0);

/// What the owner knows of a place without touching the block's descriptor, which another thread
/// may have taken away.
#[derive(Clone, Copy)]
pub struct Note {
    slices: u32,
    of: Of,
}

/// What two blocks must have in common for one to stand in for the other: kind and tier, in one word
/// to be compared at once.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Of(u32);

impl Of {
    const fn new(kind: u16, tier: TierId) -> Of {
        Of(kind as u32 | (tier.0 as u32) << 16)
    }

    const fn tier(self) -> TierId {
        TierId((self.0 >> 16) as u8)
    }
}

impl Note {
    /// # Safety
    /// The block is the caller's.
    #[inline(always)]
    unsafe fn of(slab: NonNull<Slab>) -> Note {
        // SAFETY: as promised.
        let slab = unsafe { slab.as_ref() };
        Note {
            slices: slab.slices,
            of: Of::new(slab.kind, TierId(slab.tier)),
        }
    }
}

/// The owner's side of its shelf.
pub struct Notes {
    notes: [Note; PLACES],
    /// A bit for each place that was filled, and what lies there in slices: too much where another
    /// thread has taken something away, never too little.
    filled: u8,
    held: u32,
    /// The place that is cleared next when there is no room.
    next: u8,
}

const _: () = assert!(PLACES == u8::BITS as usize);

impl Notes {
    pub const NEW: Notes = Notes {
        notes: [Note {
            slices: 0,
            of: Of::new(0, TierId::DRAM),
        }; PLACES],
        filled: 0,
        held: 0,
        next: 0,
    };

    /// A filled place with a block that will do.
    #[inline(always)]
    fn find(&self, of: Of, slices: usize) -> Option<usize> {
        let mut left = self.filled as u32;
        while left != 0 {
            let at = left.trailing_zeros() as usize % PLACES;
            left &= left - 1;
            let note = self.notes.get(at)?;
            // Smaller ones wrap round to more than any eighth.
            let over = (note.slices as usize).wrapping_sub(slices);
            if note.of == of && over <= slices / 8 {
                return Some(at);
            }
        }
        None
    }

    /// A place that is not filled, if so many slices more may lie on the shelf.
    #[inline(always)]
    fn room_for(&self, slices: usize) -> Option<usize> {
        let at = (self.filled as u32).trailing_ones() as usize;
        (at < PLACES && self.held as usize + slices <= MAX_ALL).then_some(at)
    }

    #[inline(always)]
    fn fill(&mut self, at: usize, note: Note) {
        if let Some(place) = self.notes.get_mut(at) {
            *place = note;
            self.filled |= 1 << at;
            self.held += note.slices;
        }
    }

    #[inline(always)]
    fn empty(&mut self, at: usize) {
        if let Some(note) = self.notes.get(at)
            && self.filled >> at & 1 == 1
        {
            self.filled ^= 1 << at;
            self.held -= note.slices;
        }
    }
}

/// A block of this thread's shelf with `slices` slices or up to an eighth more, out of this tier; it is the
/// caller's then, and its contents are anything.
///
/// # Safety
/// The caller owns `th` and is inside the gate.
pub unsafe fn take(
    th: *mut ThreadHeap,
    kind: KindId,
    tier: TierId,
    slices: usize,
) -> Option<NonNull<Slab>> {
    // SAFETY: as promised.
    unsafe { take_or(th, Of::new(kind.0, tier), slices, give_back_slow) }
}

/// The same; `unfit` gets what a place held that will not do.
///
/// # Safety
/// The caller owns `th`.
#[inline(always)]
unsafe fn take_or(
    th: *mut ThreadHeap,
    of: Of,
    slices: usize,
    unfit: unsafe fn(*mut ThreadHeap, usize, NonNull<Slab>),
) -> Option<NonNull<Slab>> {
    // SAFETY: as promised; what is taken from a shelf is the taker's.
    unsafe {
        let at = (*th).shelved.find(of, slices)?;
        // The place before the note: whoever takes over a heap that a fork found in between reads of a block
        // that is gone, and not of a free place where one lies.
        let slab = (*th).shared.shelf.take(at);
        (*th).shelved.empty(at);
        let slab = slab?;
        // A signal handler may have put another there since the note was read.
        let fits = (*slab.as_ptr()).slices as usize >= slices;
        if (*slab.as_ptr()).seen_freezes != freezes() || !fits {
            unfit(th, at, slab);
            return None;
        }
        let first = (*slab.as_ptr()).first_slice();
        let tier = of.tier();
        if let Some(lane) = lane(tier) {
            lane.note_idle_slices((*slab.as_ptr()).slices as usize, false);
        }
        WINDOW.set_tier(first, 1, Some(tier));
        WINDOW.set_descriptor(first, 1, Some(Addr::of(slab.as_ptr())));
        Some(slab)
    }
}

/// A block of the default kind for `size` bytes, if its tier is known and the shelf has one: then
/// neither the kind's recipe nor the tier is asked. Null, and nothing has happened, otherwise.
///
/// # Safety
/// The caller owns `th`, or it is a placeholder; `size` is that of a large block.
#[inline(always)]
pub unsafe fn at_hand(th: *mut ThreadHeap, size: Bytes) -> *mut u8 {
    // SAFETY: as promised.
    unsafe {
        let heap = &(*th).heap;
        let [near, far] = heap.large;
        let known = if size.get() >= heap.far_from {
            far
        } else {
            near
        };
        if known == 0 || heap.epoch != KINDS[0].epoch() || size.get() > MAX_BLOCK * SLICE.get() {
            return core::ptr::null_mut();
        }
        let slices = size.get().div_ceil(SLICE.get());
        let of = Of::new(KindId::DEFAULT.0, TierId(known - 1));
        match take_or(th, of, slices, put_again_slow) {
            Some(slab) => (*slab.as_ptr()).base as *mut u8,
            None => core::ptr::null_mut(),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn give_back_slow(_: *mut ThreadHeap, _: usize, slab: NonNull<Slab>) {
    // SAFETY: the caller has taken it and is inside the gate.
    unsafe { give_back(slab) }
}

/// Puts a block where it lay: outside of the gate it cannot be given back.
#[cold]
#[inline(never)]
unsafe fn put_again_slow(th: *mut ThreadHeap, at: usize, slab: NonNull<Slab>) {
    // SAFETY: the caller owns `th` and has taken the block out of that place.
    unsafe {
        (*th).shelved.fill(at, Note::of(slab));
        (*th).shared.shelf.put(at, slab);
    }
}

/// Keeps a large block that the program has freed, if there is room and nothing else to do. If not,
/// nothing has happened.
///
/// # Safety
/// The caller owns `th`; `slab` is the live descriptor of a large block, to which the page map leads from
/// `addr`, and the program gives up what begins there.
#[inline(always)]
pub unsafe fn keep(th: *mut ThreadHeap, slab: NonNull<Slab>, addr: usize) -> bool {
    // SAFETY: as promised.
    unsafe {
        if (*slab.as_ptr()).base != addr || !tidy::is_quiet(th) {
            return false;
        }
        let Some(lane) = lane_if_kept(slab) else {
            return false;
        };
        let room = (*th).shelved.room_for((*slab.as_ptr()).slices as usize);
        room.map(|at| put_at(th, slab, lane, at)).is_some()
    }
}

/// Keeps a large block that the program has freed, in the place of others if it must be. False where it
/// is not one to keep.
///
/// # Safety
/// The caller owns `th` and is inside the gate; `slab` is the live descriptor of a large block
/// that the program gives up.
pub unsafe fn put(th: *mut ThreadHeap, slab: NonNull<Slab>) -> bool {
    // SAFETY: as promised.
    unsafe {
        let Some(lane) = lane_if_kept(slab) else {
            return false;
        };
        let slices = (*slab.as_ptr()).slices as usize;
        let at = match (*th).shelved.room_for(slices) {
            Some(at) => at,
            None => make_room_slow(th, slices),
        };
        put_at(th, slab, lane, at);
        true
    }
}

/// The lane of a block that is one to keep.
#[inline(always)]
unsafe fn lane_if_kept(slab: NonNull<Slab>) -> Option<&'static Lane> {
    // SAFETY: the caller's own.
    let slab = unsafe { slab.as_ref() };
    if slab.slices as usize > MAX_BLOCK || slab.seen_freezes != freezes() {
        return None;
    }
    lane(TierId(slab.tier))
}

/// # Safety
/// As for [`keep`]; the lane is the block's, and `at` a place that is not filled.
#[inline(always)]
unsafe fn put_at(th: *mut ThreadHeap, slab: NonNull<Slab>, lane: &Lane, at: usize) {
    // SAFETY: as promised.
    unsafe {
        let s = slab.as_ptr();
        let first = (*s).first_slice();
        // Nobody finds it any more; without a tier its start is no block's middle either.
        WINDOW.set_descriptor(first, 1, None);
        WINDOW.set_tier(first, 1, None);
        lane.note_idle_slices((*s).slices as usize, true);
        (*th).shelved.fill(at, Note::of(slab));
        (*th).shared.shelf.put(at, slab);
    }
}

/// A place on a shelf that has room for so many slices more.
#[cold]
#[inline(never)]
unsafe fn make_room_slow(th: *mut ThreadHeap, slices: usize) -> usize {
    // SAFETY: the caller owns `th` and is inside the gate.
    unsafe {
        for at in 0..PLACES {
            if (*th).shared.shelf.is_free(at) {
                (*th).shelved.empty(at);
            }
        }
        loop {
            if let Some(at) = (*th).shelved.room_for(slices) {
                return at;
            }
            drop_next(th, None);
        }
    }
}

/// Gives back as much of a tier (`None`: of any) as is about to be taken from it because nothing on the
/// shelf would do: a thread whose blocks differ from one to the next would otherwise hold a shelf full
/// of what it does not use beside all that it does.
///
/// # Safety
/// The caller owns `th` and is inside the gate.
pub unsafe fn make_way(th: *mut ThreadHeap, tier: Option<TierId>, slices: usize) {
    let mut given = 0;
    for _ in 0..PLACES {
        if given >= slices {
            return;
        }
        // SAFETY: as promised.
        given += unsafe { drop_next(th, tier) };
    }
}

/// Gives back what lies at the place whose turn it is, if it is of this tier (`None`: of any); says how many
/// slices that were.
///
/// # Safety
/// As for [`make_way`].
unsafe fn drop_next(th: *mut ThreadHeap, tier: Option<TierId>) -> usize {
    // SAFETY: as promised; what is taken is the taker's.
    unsafe {
        let shelved = &mut (*th).shelved;
        let at = shelved.next as usize % PLACES;
        shelved.next = shelved.next.wrapping_add(1);
        if tier.is_some_and(|tier| shelved.notes.get(at).is_none_or(|n| n.of.tier() != tier)) {
            return 0;
        }
        shelved.empty(at);
        let Some(slab) = (*th).shared.shelf.take(at) else {
            return 0;
        };
        let slices = (*slab.as_ptr()).slices as usize;
        give_back(slab);
        slices
    }
}

/// Gives a block that was taken from a shelf back to its tier.
unsafe fn give_back(slab: NonNull<Slab>) {
    // SAFETY: it is the caller's.
    unsafe {
        let slab = slab.as_ptr();
        if let Some(lane) = lane(TierId((*slab).tier)) {
            lane.note_idle_slices((*slab).slices as usize, false);
        }
        large::give_back(slab);
    }
}

/// Gives back what lies on a thread's shelf. Says whether there was anything.
///
/// # Safety
/// The caller is inside the gate or has closed it.
pub unsafe fn clear(th: *mut ThreadHeap) -> bool {
    let mut some = false;
    for at in 0..PLACES {
        // SAFETY: heaps are never freed, and the shelf is what others may touch of one.
        if let Some(slab) = unsafe { (*th).shared.shelf.take(at) } {
            // SAFETY: taken.
            unsafe { give_back(slab) };
            some = true;
        }
    }
    some
}

/// The same for all threads.
///
/// # Safety
/// As for [`clear`].
pub unsafe fn clear_all() -> bool {
    // SAFETY: as promised.
    ThreadHeap::all().fold(false, |some, th| unsafe { clear(th) } | some)
}

/// Drops what lies on the shelves without giving it back, for which locks may be needed that are held
/// below: in a child that a signal handler forked over an interrupted allocator.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn forget_all() {
    for th in ThreadHeap::all() {
        for at in 0..PLACES {
            // SAFETY: as in `clear`.
            let _ = unsafe { (*th).shared.shelf.take(at) };
        }
    }
}

/// Gives back what nobody has wanted for a while, on the shelves of all threads: those that no
/// longer run cannot.
///
/// # Safety
/// As for [`clear`].
pub unsafe fn age(now: Millis) {
    // Relaxed (both): whoever wins the exchange looks them over; nothing else depends on it.
    let last = AGED.load(Ordering::Relaxed);
    if now.since(Millis(last)) < AGE_MS
        || AGED
            .compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
    {
        return;
    }
    for th in ThreadHeap::all() {
        for at in 0..PLACES {
            // SAFETY: as in `clear`.
            if let Some(slab) = unsafe { (*th).shared.shelf.take_old(at) } {
                // SAFETY: taken.
                unsafe { give_back(slab) };
            }
        }
    }
}
