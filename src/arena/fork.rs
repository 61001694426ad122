//! What fork means for a lane whose backing is a file.
//!
//! A shared file mapping would be one memory in two processes. So before the fork every mapped
//! segment of such a lane becomes a private mapping of the same file contents: parent and child
//! then copy on write, and nobody writes to those parts of the file again while a child lives.
//! New segments stay shared. Frozen slices return to the tier when they are free and the children
//! that could read the file are gone.

use super::lane::Lane;
use super::lane_state::LaneState;
use super::segment::{INHERITED, SliceMask, State, runs};
use super::start::{LANES, lane};
use super::window::WINDOW;
use crate::base::{Addr, Bytes, Millis, SEGMENT, SLICE, SegmentId, SliceId, TierId};
use crate::os::Errno;
use crate::os::lock::{Guard, Lock};
use crate::os::map::{self, Access, Advice};
use crate::os::maps::{self, Mapping};
use crate::os::sleepers;
use crate::sync::{AtomicU16, Ordering};
use crate::tier::{Backing, Children, Frozen, Generation};
use core::ops::RangeInclusive;

impl Lane {
    /// The state of a file lane in use. During a fork all other threads are outside of the
    /// allocator, so a lock that is taken is this thread's own: a signal handler forks and has
    /// interrupted its holder. `Err` then.
    fn file_alone(&self) -> Result<Option<Guard<'_, LaneState>>, Interrupted> {
        // Relaxed: lanes are opened inside the gate.
        if !self.file.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let st = self.state.try_lock().ok_or(Interrupted)?;
        let used = st.open && matches!(st.backing, Backing::File(_)) && st.top != 0;
        Ok(used.then_some(st))
    }

    /// Whether this lane's memory would be shared with a forked child.
    fn is_shared(&self) -> bool {
        !matches!(self.file_alone(), Ok(None))
    }

    /// Before a fork, all other threads being outside of the allocator: freezes all that is shared.
    ///
    /// By the kernel's lines: each part keeps the protection that the program gave it (code, guard
    /// pages below stacks), and what the program mapped over a block of its own stays. A part that
    /// could not be frozen is tried again at each later fork. The one thing lost is a protection
    /// that another thread changes in the microseconds between the reading of its line and the
    /// exchange; and protection keys, which the lines do not show.
    fn freeze(&self, generation: u32) -> Outcome {
        let mut outcome = Outcome::NOTHING;
        let mut st = match self.file_alone() {
            Ok(Some(st)) => st,
            Ok(None) => return outcome,
            // What is shared is kept from all children, and will be from this one.
            Err(Interrupted) => {
                outcome.failed = self.account().held();
                return outcome;
            }
        };
        let start = WINDOW.segment_addr(SegmentId(st.first));
        let end = WINDOW.segment_addr(SegmentId(st.first + st.top));
        let mut reached = start;
        st.patches = 0;
        let read = maps::each(|line| {
            let (from, to) = (line.start.max(reached), line.end.min(end));
            if line.end <= start || from >= to {
                return;
            }
            reached = to;
            // What is shared becomes one mapping with its neighbours; what stays is counted, seams
            // and all: too many rather than too few.
            st.patches += u32::from(!line.shared);
            // The tier's own shared mappings, and those only, keep step with the address.
            if line.shared && line.start >= start && line.offset == st.offset_of(line.start) {
                let frozen = self.freeze_range(&mut st, from, to, generation, Some(line));
                outcome = outcome.and(frozen);
            } else if !line.shared {
                // Frozen before, and hidden by `after_fork_parent`.
                let len = to.offset_from(from);
                if advise(from, len, Advice::DoFork).is_err() {
                    outcome.failed = outcome.failed.checked_add(len).unwrap_or(len);
                }
            }
        });
        st.has_lines = read.is_ok();
        let patched = core::mem::replace(&mut st.patched, Bytes::ZERO);
        if read.is_err() {
            outcome.failed = outcome.failed.checked_add(patched).unwrap_or(patched);
            // Without /proc all of it becomes readable and writable.
            let rest = reached.align_up(SEGMENT);
            let hidden = advise_frozen(&st, Advice::DoFork);
            outcome.failed = outcome.failed.checked_add(hidden).unwrap_or(hidden);
            outcome = outcome.and(self.freeze_range(&mut st, rest, end, generation, None));
        }
        outcome
    }

    /// The range is the lane's; with a line, all of it is mapped shared to a file of the tier.
    fn freeze_range(
        &self,
        st: &mut LaneState,
        from: Addr,
        to: Addr,
        generation: u32,
        seen: Option<&Mapping>,
    ) -> Outcome {
        let next = |id: SegmentId| SegmentId(id.0 + 1);
        let mut outcome = Outcome::NOTHING;
        let mut at = from;
        while at < to {
            let Some(first) = WINDOW.slice_of(at).map(SliceId::segment) else {
                break;
            };
            let mut last = first;
            if is_shared(st, first, seen) && st.backing.lost() == 0 {
                while WINDOW.segment_addr(next(last)) < to && is_shared(st, next(last), seen) {
                    last = next(last);
                }
            }
            let upto = WINDOW.segment_addr(next(last)).min(to);
            let len = upto.offset_from(at);
            if is_shared(st, first, seen) {
                let ids = first.0..=last.0;
                outcome = outcome.and(self.freeze_part(st, at, len, ids, generation, seen));
            } else if seen.is_none() {
                // SAFETY: the lane's lock is held, and the record is not kept.
                let thawed = unsafe { WINDOW.segment(first) }.thawed();
                for (i, n) in runs(thawed) {
                    let part = WINDOW.segment_addr(first).add(SLICE.times(i as usize));
                    let (len, ids) = (SLICE.times(n as usize), first.0..=first.0);
                    outcome = outcome.and(self.freeze_part(st, part, len, ids, generation, None));
                }
            }
            at = upto;
        }
        outcome
    }

    /// The range is shared and lies in these segments.
    fn freeze_part(
        &self,
        st: &mut LaneState,
        at: Addr,
        len: Bytes,
        ids: RangeInclusive<u32>,
        generation: u32,
        seen: Option<&Mapping>,
    ) -> Outcome {
        let used = |page: Addr| {
            WINDOW.slice_of(page).is_some_and(|slice| {
                // SAFETY: the lane's lock is held, and the record is not kept.
                let seg = unsafe { WINDOW.segment(slice.segment()) };
                seg.free >> slice.within_segment() & 1 == 0
            })
        };
        // SAFETY: the range is the lane's, mapped shared by its backing.
        match unsafe { st.backing.freeze(at, st.offset_of(at), len, seen, &used) } {
            Ok(kept) => Outcome {
                private: kept == Frozen::Private,
                // Each of them, whatever the first answers.
                older: ids.fold(false, |older, id| {
                    !self.note_frozen(st, SegmentId(id), kept, generation) | older
                }),
                failed: Bytes::ZERO,
            },
            Err(_) => Outcome {
                failed: len,
                ..Outcome::NOTHING
            },
        }
    }

    /// Part of the segment, or all, was made private, or copied. One that has parts of both kinds
    /// is frozen whole: what of it stayed shared is thawed with the rest. False if it was frozen
    /// before this generation: who waits for those children waits for later ones too.
    fn note_frozen(
        &self,
        st: &mut LaneState,
        id: SegmentId,
        kept: Frozen,
        generation: u32,
    ) -> bool {
        // SAFETY: the lane's lock is held, and the record is dropped before the state is used.
        let seg = unsafe { WINDOW.segment(id) };
        if kept == Frozen::Copied {
            if seg.frozen == 0 {
                seg.state = State::Copied;
            }
            return true;
        }
        self.note_idle(seg.free & seg.backed & !seg.frozen, false);
        seg.state = State::Mapped;
        if seg.frozen == 0 || seg.generation == INHERITED {
            seg.generation = generation;
        }
        let (waits, same) = (seg.free != 0, seg.generation == generation);
        st.set_frozen(id, SliceMask::MAX);
        if waits {
            st.enqueue_dirty(id, Millis(0));
        }
        same
    }

    /// Wakes who went to sleep on this word before it was frozen for this fork.
    fn wake(&self, word: Addr, generation: u32, outcome: Outcome) {
        let Ok(Some(st)) = self.file_alone() else {
            return;
        };
        let Some(id) = WINDOW.slice_of(word).map(SliceId::segment) else {
            return;
        };
        if !st.has(id) {
            return;
        }
        // SAFETY: the lane's lock is held, and the record is not kept.
        let seg = unsafe { WINDOW.segment(id) };
        if seg.frozen != 0 && (seg.generation == generation || outcome.older) {
            st.backing.wake(st.offset_of(word));
        }
    }

    /// In a child that lacks parts of its parent's memory: their addresses are kept from mappings of
    /// the program's, which a thaw of the segment would go over.
    fn close_holes(&self) {
        let Ok(Some(st)) = self.file_alone() else {
            return;
        };
        let mut reached = WINDOW.segment_addr(SegmentId(st.first));
        let end = WINDOW.segment_addr(SegmentId(st.first + st.top));
        let mut close = |upto: Addr, to: Addr| {
            if reached < upto {
                let _ = map::at_free(reached, upto.offset_from(reached), Access::None);
            }
            reached = reached.max(to);
        };
        let _ = maps::each(|line| close(line.start.min(end), line.end.min(end)));
        close(end, end);
    }

    /// In the parent, after the fork.
    fn after_fork_parent(&self) {
        let Ok(Some(st)) = self.file_alone() else {
            return;
        };
        st.backing.after_fork_parent();
        for id in (st.first..st.first + st.top).map(SegmentId) {
            // SAFETY: the lane's lock is held, and the record is not kept.
            let seg = unsafe { WINDOW.segment(id) };
            if seg.state == State::Copied {
                seg.state = State::Mapped;
            }
        }
        // A child made past our handlers would not be waited for before a frozen segment is used
        // again, and would see other contents: it has none of it instead, as of what is shared.
        let _ = advise_frozen(&st, Advice::DontFork);
        self.note_dirty(&st);
    }

    /// In the child: what is frozen belongs to the parent's file; our own account starts empty,
    /// and the next extent goes to a file of our own.
    fn adopt_in_child(&self) {
        let Ok(Some(mut st)) = self.file_alone() else {
            return;
        };
        self.account().restart(self.account().limit());
        self.forget_idle();
        st.backing.after_fork_child();
        for i in st.first..st.first + st.top {
            let id = SegmentId(i);
            // SAFETY: the lane's lock is held, and the record is not kept.
            let seg = unsafe { WINDOW.segment(id) };
            match seg.state {
                State::Mapped if seg.frozen == 0 => {
                    // It could not be frozen and is not mapped here: never to be used.
                    seg.state = State::Taken;
                    st.set_used(id, true);
                    st.relist(id);
                }
                State::Mapped | State::Copied => {
                    seg.state = State::Mapped;
                    seg.generation = INHERITED;
                    // The parent's account is charged for it, not ours.
                    seg.backed = 0;
                    st.set_frozen(id, SliceMask::MAX);
                }
                State::Unmapped | State::Taken => {}
            }
        }
    }

    /// Whether slices of the segment are private since a fork.
    pub fn is_partly_frozen(&self, id: SegmentId) -> bool {
        let st = self.lock();
        st.has(id) && st.is_partly_frozen(id)
    }

    /// Whether new blocks in this slice would land in DRAM instead of the tier.
    fn is_frozen(&self, slice: SliceId) -> bool {
        let st = self.lock();
        let id = slice.segment();
        // SAFETY: the lane's lock is held, and the record is not kept.
        st.has(id) && unsafe { WINDOW.segment(id) }.frozen >> slice.within_segment() & 1 == 1
    }
}

/// Whether parts of the segment may be shared: of one that is frozen already after a thaw, or an
/// earlier refusal; of one that is copied for this child where they have a line of their own.
fn is_shared(st: &LaneState, id: SegmentId, seen: Option<&Mapping>) -> bool {
    match st.state_of(id) {
        State::Mapped => seen.is_some() || !st.is_partly_frozen(id),
        State::Copied => seen.is_some(),
        State::Unmapped | State::Taken => false,
    }
}

/// The lane's lock is held by the frame that the calling signal handler interrupted.
struct Interrupted;

/// Whether children get a range of a lane. Asked twice: a child without its memory is worse than
/// a call more.
fn advise(addr: Addr, len: Bytes, advice: Advice) -> Result<(), Errno> {
    // SAFETY: the range is a lane's, and its contents are untouched.
    let ask = || unsafe { map::advise(addr, len, advice) };
    ask().or_else(|_| ask())
}

/// Gives an advice for each run of frozen segments. Returns the bytes for which it was refused.
fn advise_frozen(st: &LaneState, advice: Advice) -> Bytes {
    let mut refused = Bytes::ZERO;
    let frozen = |i: u32| st.is_partly_frozen(SegmentId(i)) && !st.is_inherited(SegmentId(i));
    let (mut at, end) = (st.first, st.first + st.top);
    while at < end {
        let n = (at..end).take_while(|&i| frozen(i)).count();
        let addr = WINDOW.segment_addr(SegmentId(at));
        let len = SEGMENT.times(n);
        if n != 0 && self::advise(addr, len, advice).is_err() {
            refused = refused.checked_add(len).unwrap_or(len);
        }
        at += n.max(1) as u32;
    }
    refused
}

pub(super) static CHILDREN: Children = Children::new();
/// The generation of the fork under way, if any lane takes part in it, and what came of it.
static UNDER_WAY: Lock<Option<(Generation, Outcome)>> = Lock::new(None);

/// What freezing did.
#[derive(Clone, Copy)]
struct Outcome {
    /// Something shared became private.
    private: bool,
    /// Some of that is in segments of an earlier generation.
    older: bool,
    /// What the child will not have.
    failed: Bytes,
}

impl Outcome {
    const NOTHING: Outcome = Outcome {
        private: false,
        older: false,
        failed: Bytes::ZERO,
    };

    fn and(self, other: Outcome) -> Outcome {
        Outcome {
            private: self.private | other.private,
            older: self.older | other.older,
            failed: self.failed.checked_add(other.failed).unwrap_or(self.failed),
        }
    }
}

/// Before a fork, all other threads being outside of the allocator. Returns the bytes that the
/// child will not have.
pub fn before_fork() -> Bytes {
    let mut outcome = Outcome::NOTHING;
    if LANES.iter().any(Lane::is_shared) {
        let Some(generation) = CHILDREN.before_fork() else {
            // The lane that asks is locked, too; the others are not worth a child that has half.
            return LANES
                .iter()
                .filter(|lane| lane.is_shared())
                .fold(Bytes::ZERO, |sum, lane| {
                    sum.checked_add(lane.account().held()).unwrap_or(sum)
                });
        };
        for lane in &LANES {
            outcome = outcome.and(lane.freeze(generation.0 as u32));
        }
        // Relaxed: see `freezes`.
        FREEZES.fetch_add(1, Ordering::Relaxed);
        *UNDER_WAY.lock() = Some((generation, outcome));
    }
    outcome.failed
}

/// After it, in the parent, whether there is a child or not.
///
/// A thread that sleeps on a word of what was frozen, by a futex that is not marked private
/// (process-shared semaphores, a join of a thread whose stack is a block), does so where nobody
/// will look any more; it is woken, as futexes allow at any time, and sleeps again by the new
/// mapping. Not to be helped are waiters for a lock with priority inheritance, whom the kernel
/// wakes by the lock's owner only, and those that `sleepers` does not find.
pub fn after_fork_parent() {
    let under_way = UNDER_WAY.lock().take();
    if let Some((generation, outcome)) = under_way {
        CHILDREN.after_fork_parent(generation);
        for lane in &LANES {
            lane.after_fork_parent();
        }
        if outcome.private {
            let wake = |word| {
                for lane in &LANES {
                    lane.wake(word, generation.0 as u32, outcome);
                }
            };
            let _ = sleepers::each_shared(wake);
        }
    }
}

/// After it, in the child.
pub fn after_fork_child() {
    let under_way = UNDER_WAY.lock().take();
    if let Some((_, outcome)) = under_way {
        CHILDREN.after_fork_child();
        for lane in &LANES {
            lane.adopt_in_child();
            if outcome.failed != Bytes::ZERO {
                lane.close_holes();
            }
        }
    }
}

/// How often file tiers were frozen, modulo 65,536.
static FREEZES: AtomicU16 = AtomicU16::new(0);

pub fn freezes() -> u16 {
    // Relaxed: a slab used a moment too long costs DRAM for a few blocks.
    FREEZES.load(Ordering::Relaxed)
}

/// Whether the slice is frozen in the tier's lane.
pub fn is_frozen(tier: TierId, slice: SliceId) -> bool {
    // DRAM never is; it need not be asked for its lock.
    tier != TierId::DRAM && lane(tier).is_some_and(|l| l.is_frozen(slice))
}
