//! A lane: the part of the window that belongs to one tier, and the runs of slices in it.
//!
//! Invariants, all under the lane's lock:
//! - a slice is *free* (no slab holds it) or held; a *backed* slice is charged to the tier's
//!   account, any other is not: `charged = backed slices`, so the limit is exact;
//! - a *frozen* slice is not given out (new blocks there would land in DRAM); any other free one is
//!   *usable*, and its segment stands in the list of its longest usable run;
//! - a segment's used bit is clear iff it is unmapped, or all of it is usable.
//!
//! The tier's file offset keeps step with the address, so that a whole lane is one mapping.

use super::lane_state::LaneState;
use super::segment::{NONE, SliceMask, State, find_run, run_mask};
use super::start::{MAX_LANES, lane};
use super::window::WINDOW;
use crate::base::config::Thp;
use crate::base::{Bytes, Millis, SEGMENT, SLICE, SLICES_PER_SEGMENT, SegmentId, SliceId, TierId};
use crate::os::Errno;
use crate::os::lock::{Guard, Lock};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::tier::{Account, Backing, Released, View};

/// How long freed slices keep their physical memory, hoping to be used again: a tenth of
/// jemalloc's ten seconds. Zero would make a program that frees and allocates in turns pay the
/// page faults each time (2 to 4 µs a page here).
pub const PURGE_DELAY_MS: u64 = 1000;

/// Slices given to a slab or a large block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub first: SliceId,
    pub slices: usize,
    /// The memory is known to read as zero.
    pub zero: bool,
}

/// Why a lane has nothing to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The tier's limit would be passed.
    Limit,
    /// No run of addresses is left in the lane.
    Addresses,
    /// The system said no.
    System(Errno),
    /// There is no such lane.
    Closed,
}

/// One bit for each lane in which segments wait to be purged, so that a miss need not ask each.
static DIRTY: AtomicU64 = AtomicU64::new(0);

/// The lanes that have something to purge.
pub fn dirty_lanes() -> impl Iterator<Item = &'static Lane> {
    // Relaxed: a hint.
    let mut waiting = DIRTY.load(Ordering::Relaxed);
    core::iter::from_fn(move || {
        let tier = (waiting != 0).then(|| TierId(waiting.trailing_zeros() as u8))?;
        waiting &= waiting - 1;
        lane(tier)
    })
}

const _: () = assert!(MAX_LANES <= 64);

/// The lane of one tier.
pub struct Lane {
    pub(super) state: Lock<LaneState>,
    pub(super) account: Account,
    fallbacks: AtomicU64,
    /// Slices that are charged and free: they count against the limit, but any of them is had
    /// for the asking. Written under the lock.
    idle: AtomicUsize,
    /// What the state says, to be asked without the lock.
    pub(super) open: AtomicBool,
    /// Its memory is a file's: what the backing says, to be asked without the lock.
    pub(super) file: AtomicBool,
}

impl Lane {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Lane {
        Lane {
            state: Lock::new(LaneState::CLOSED),
            account: Account::new(None),
            fallbacks: AtomicU64::new(0),
            idle: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            file: AtomicBool::new(false),
        }
    }

    /// Puts the lane in force over `count` segments from `first`, both multiples of 64.
    pub fn open(
        &self,
        tier: TierId,
        backing: Backing,
        first: SegmentId,
        count: u32,
        limit: Option<Bytes>,
    ) {
        let mut st = self.state.lock();
        self.account.restart(limit);
        st.open = true;
        // Relaxed: read while no thread opens a lane.
        self.file
            .store(matches!(backing, Backing::File(_)), Ordering::Relaxed);
        st.backing = backing;
        st.tier = tier;
        st.first = first.0;
        st.count = count;
        // Relaxed: a statistic that starts anew.
        self.fallbacks.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `is_open`.
        self.open.store(true, Ordering::Release);
    }

    /// The addresses a closed lane has, in segments; 0 for one that was never open.
    pub fn closed_count(&self) -> Option<(SegmentId, u32)> {
        let st = self.state.lock();
        (!st.open && st.count != 0).then_some((SegmentId(st.first), st.count))
    }

    /// Advice on huge pages for DRAM mapped from now on.
    pub fn set_thp(&self, thp: Thp) {
        let mut st = self.state.lock();
        if let Backing::Dram(_) = st.backing {
            st.backing = Backing::Dram(thp);
        }
    }

    /// Counts a request that this tier should have taken and did not.
    pub fn count_fallback(&self) {
        // Relaxed: a statistic.
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    pub fn fallbacks(&self) -> u64 {
        // Relaxed: a statistic.
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Whether the lane is in force.
    pub fn is_open(&self) -> bool {
        // Acquire: pairs with the Release in `open`.
        self.open.load(Ordering::Acquire)
    }

    /// Whether memory of ours, of any state, is mapped for this segment.
    pub fn maps(&self, id: SegmentId) -> bool {
        let st = self.state.lock();
        // SAFETY: the lane's lock is held, and the record is not kept.
        st.open
            && st.has(id)
            && !matches!(
                unsafe { WINDOW.segment(id) }.state,
                State::Unmapped | State::Taken
            )
    }

    /// The segments that were ever mapped.
    pub fn segments(&self) -> core::ops::Range<u32> {
        let st = self.state.lock();
        st.first..st.first + st.top
    }

    /// What slabs and large blocks hold: the account's bytes less those that are only kept for
    /// reuse. Policies go by this, or freed memory would look like a full tier.
    pub fn in_use(&self) -> Bytes {
        // Relaxed: a snapshot of two numbers that change on their own. Below zero in a child that was
        // forked in the middle of a change, see `fork`.
        let idle = self.idle.load(Ordering::Relaxed) as isize;
        self.account
            .held()
            .saturating_sub(SLICE.times(idle.max(0) as usize))
    }

    /// Notes that `mask` of a segment's slices became idle, or (false) stopped being so.
    pub(super) fn note_idle(&self, backed: SliceMask, idle: bool) {
        self.note_idle_slices(backed.count_ones() as usize, idle);
    }

    /// The same for so many slices, which the lane need not have: a thread may keep a block it has
    /// freed.
    pub fn note_idle_slices(&self, slices: usize, idle: bool) {
        // Relaxed (both): see `in_use`.
        if idle {
            self.idle.fetch_add(slices, Ordering::Relaxed);
        } else {
            self.idle.fetch_sub(slices, Ordering::Relaxed);
        }
    }

    /// Nothing is idle: the lane is empty, or all of it is another process's.
    pub(super) fn forget_idle(&self) {
        // Relaxed: see `in_use`.
        self.idle.store(0, Ordering::Relaxed);
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Runs `f` with the lane's backing, for names and statistics. `None` for a closed lane, and in
    /// a signal handler that interrupted the holder of its lock.
    pub fn with_backing<R>(&self, f: impl FnOnce(&Backing) -> R) -> Option<R> {
        let st = self.state.lock_within()?;
        st.open.then(|| f(&st.backing))
    }

    pub(super) fn lock(&self) -> Guard<'_, LaneState> {
        self.state.lock()
    }

    /// Takes a run of `n` slices, charged and backed, that starts at a multiple of `align`, a power
    /// of two; `beyond` passes the limit if it must (DRAM as the last resort).
    pub fn alloc(&self, n: usize, align: Bytes, beyond: bool, now: Millis) -> Result<Run, Refused> {
        let mut st = self.state.lock();
        if !st.open {
            return Err(Refused::Closed);
        }
        st.now = now.0;
        match self.try_alloc(&mut st, n, align, beyond) {
            // What others have freed and not yet purged is still charged, and its addresses may
            // be what a large run lacks.
            Err(Refused::Limit | Refused::Addresses | Refused::System(_))
                if st.dirty_head != NONE =>
            {
                self.purge_waiting(&mut st, now);
                self.try_alloc(&mut st, n, align, beyond)
            }
            done => done,
        }
    }

    fn try_alloc(
        &self,
        st: &mut LaneState,
        n: usize,
        align: Bytes,
        beyond: bool,
    ) -> Result<Run, Refused> {
        let run = if n <= SLICES_PER_SEGMENT && align <= SEGMENT {
            let step = (align.get() / SLICE.get()).max(1);
            self.alloc_within(st, n as u32, step as u32, beyond)
        } else {
            self.alloc_spanning(st, n, align, beyond)
        }?;
        WINDOW.set_tier(run.first, n, Some(st.tier));
        Ok(run)
    }

    fn alloc_within(
        &self,
        st: &mut LaneState,
        n: u32,
        step: u32,
        beyond: bool,
    ) -> Result<Run, Refused> {
        // Any run longer by `step - 1` has an aligned one in it, and so has a whole segment.
        let long = (n + step - 1).min(SLICES_PER_SEGMENT as u32);
        let id = match st.listed_with(long) {
            Some(id) => id,
            None => st.map_new(1, SEGMENT)?,
        };
        // SAFETY: the lane's lock is held, and no other record of it is borrowed here.
        let seg = unsafe { WINDOW.segment(id) };
        let Some(at) = find_run(seg.usable(), seg.backed, n, step) else {
            return Err(Refused::Addresses);
        };
        let zero = self.take(st, core::iter::once((id, run_mask(at, n))), beyond)?;
        Ok(Run {
            first: SliceId(id.first_slice().index() + at as usize),
            slices: n as usize,
            zero,
        })
    }

    fn alloc_spanning(
        &self,
        st: &mut LaneState,
        n: usize,
        align: Bytes,
        beyond: bool,
    ) -> Result<Run, Refused> {
        let segments = n.div_ceil(SLICES_PER_SEGMENT);
        let first = st.map_new(segments, align)?;
        let parts = (0..segments).map(|i| {
            let here = (n - i * SLICES_PER_SEGMENT).min(SLICES_PER_SEGMENT) as u32;
            (SegmentId(first.0 + i as u32), run_mask(0, here))
        });
        let zero = self.take(st, parts, beyond)?;
        Ok(Run {
            first: first.first_slice(),
            slices: n,
            zero,
        })
    }

    /// Whether the tier's memory is anonymous: parts of held slices may then be given back to the
    /// system and uncharged by who holds them, to be had again with [`Lane::restore`].
    pub fn is_anonymous(&self) -> bool {
        self.with_backing(|b| matches!(b, Backing::Dram(_) | Backing::Node(_)))
            .unwrap_or(false)
    }

    /// Charges memory of held slices that was uncharged. False where it cannot be had.
    pub fn restore(&self, len: Bytes) -> bool {
        // The lock first: what is charged and may yet be refused is in no other thread's peak.
        let st = self.state.lock();
        if !self.account.charge(len) {
            return false;
        }
        let had = match &st.backing {
            Backing::Node(node) => node.commit(len).is_ok(),
            _ => true,
        };
        if had {
            self.account.note_peak();
        } else {
            self.account.uncharge(len);
        }
        had
    }

    /// Takes back `n` slices from `first`, which lie in one segment of this lane and of which
    /// `uncharged` bytes were given to the system while they were held. The rest follows at once:
    /// a slice is charged whole or not at all.
    pub fn free_in_part(&self, first: SliceId, n: usize, uncharged: Bytes, now: Millis) {
        let mut st = self.state.lock();
        let addr = WINDOW.slice_addr(first);
        let len = SLICE.times(n);
        // SAFETY: the caller gives up the slices.
        let released = unsafe {
            st.backing
                .release(addr, st.offset_of(addr), len, View::Shared)
        };
        if released == Released::Zeroed {
            self.account.uncharge(len.saturating_sub(uncharged));
            // SAFETY: the lane's lock is held, and the record is not kept.
            let seg = unsafe { WINDOW.segment(first.segment()) };
            let mask = run_mask(first.within_segment() as u32, n as u32);
            seg.backed &= !mask;
            seg.zero |= mask;
        } else {
            self.account.charge_beyond(uncharged);
            self.account.note_peak();
        }
        self.free_locked(&mut st, first, n, now);
    }

    /// Takes back `n` slices from `first`, which this lane gave out.
    pub fn free(&self, first: SliceId, n: usize, now: Millis) {
        let mut st = self.state.lock();
        self.free_locked(&mut st, first, n, now);
    }

    fn free_locked(&self, st: &mut LaneState, first: SliceId, n: usize, now: Millis) {
        WINDOW.set_tier(first, n, None);
        let mut at = first.index();
        let end = at + n;
        while at < end {
            let slice = SliceId(at);
            let here = (SLICES_PER_SEGMENT - slice.within_segment()).min(end - at);
            let mask = run_mask(slice.within_segment() as u32, here as u32);
            self.give_back(st, slice.segment(), mask, now);
            at += here;
        }
        self.note_dirty(st);
    }

    pub(super) fn give_back(
        &self,
        st: &mut LaneState,
        id: SegmentId,
        mask: SliceMask,
        now: Millis,
    ) {
        // SAFETY: the lane's lock is held, and the record is not kept.
        let seg = unsafe { WINDOW.segment(id) };
        self.note_idle(seg.backed & mask & !seg.frozen, true);
        st.give_back(id, mask, now);
    }

    /// Grows a run of this lane from `n` to `more` slices where its neighbours are free.
    pub fn extend(&self, first: SliceId, n: usize, more: usize) -> bool {
        let mut st = self.state.lock();
        let (from, to) = (first.index() + n, first.index() + more);
        if to > (st.first + st.count) as usize * SLICES_PER_SEGMENT {
            return false;
        }
        // First look, then take: nothing to undo when a neighbour is held.
        let parts = || {
            let mut at = from;
            core::iter::from_fn(move || {
                (at < to).then(|| {
                    let s = SliceId(at);
                    let here = (SLICES_PER_SEGMENT - s.within_segment()).min(to - at);
                    at += here;
                    (
                        s.segment(),
                        run_mask(s.within_segment() as u32, here as u32),
                    )
                })
            })
        };
        for (id, mask) in parts() {
            // SAFETY: the lane's lock is held, and the record is not kept.
            let seg = unsafe { WINDOW.segment(id) };
            let usable = match seg.state {
                State::Mapped => seg.usable() & mask == mask,
                State::Unmapped => st.map_at(id, 1).is_ok(),
                _ => false,
            };
            if !usable {
                return false;
            }
        }
        if self.take(&mut st, parts(), false).is_err() {
            return false;
        }
        WINDOW.set_tier(SliceId(from), to - from, Some(st.tier));
        true
    }

    /// Notes whether a visit of the purge finds anything to do.
    pub(super) fn note_dirty(&self, st: &LaneState) {
        let bit = 1u64 << (st.tier.0 % 64);
        // Relaxed: a hint; the lock orders what it is about.
        if st.dirty != 0 || st.backing.has_leftovers() {
            DIRTY.fetch_or(bit, Ordering::Relaxed);
        } else {
            DIRTY.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}
