//! What fork means for a lane whose backing is a file.
//!
//! A shared file mapping would be one memory in two processes. So before the fork every mapped
//! segment of such a lane becomes a private mapping of the same file contents: parent and child
//! then copy on write, and nobody writes to those parts of the file again while a child lives.
//! New segments stay shared. A frozen segment returns to the tier when it is wholly free and the
//! children that could read the file are gone.

use super::lane::Lane;
use super::lane_state::LaneState;
use super::segment::{State, runs};
use super::start::{LANES, lane};
use super::window::WINDOW;
use crate::base::{Bytes, Millis, SEGMENT, SLICE, SegmentId, TierId};
use crate::os::lock::Lock;
use crate::sync::{AtomicU16, Ordering};
use crate::tier::{Backing, Children, Frozen, Generation, Released, View};

impl Lane {
    /// Whether this lane's memory would be shared with a forked child.
    fn is_shared(&self) -> bool {
        let st = self.lock();
        st.open && matches!(st.backing, Backing::File(_)) && st.top != 0
    }

    /// Before a fork, all other threads being outside of the allocator: freezes every segment
    /// that is not frozen yet. Returns the bytes that could not be; those are kept from the
    /// child altogether (it would crash on them rather than corrupt the parent).
    fn freeze(&self, generation: u32) -> Bytes {
        let mut st = self.lock();
        let mut failed = Bytes::ZERO;
        if !st.open || !matches!(st.backing, Backing::File(_)) {
            return failed;
        }
        let (first, end) = (st.first, st.first + st.top);
        let mut at = first;
        while at < end {
            let state = |i: u32| st.state_of(SegmentId(i));
            if state(at) != State::Mapped {
                at += 1;
                continue;
            }
            // After a lost descriptor one by one: a call that meets an older file copies all of
            // its range for the child.
            let most = if st.backing.lost() == 0 { end } else { at + 1 };
            let n = (at..most)
                .take_while(|&i| state(i) == State::Mapped)
                .count() as u32;
            let addr = WINDOW.segment_addr(SegmentId(at));
            let len = SEGMENT.times(n as usize);
            let offset = st.offset_of(addr);
            // SAFETY: the segments are the lane's, mapped shared by its backing.
            let frozen = unsafe { st.backing.freeze(addr, offset, len) };
            for id in (at..at + n).map(SegmentId) {
                // SAFETY: as above.
                let seg = unsafe { WINDOW.segment(id) };
                match frozen {
                    Ok(Frozen::Private) => {
                        self.note_idle(seg.free & seg.backed, false);
                        seg.state = State::Frozen;
                        seg.generation = generation;
                        let waits = seg.free != 0;
                        st.set_used(id, true);
                        st.relist(id);
                        if waits {
                            st.enqueue_dirty(id, Millis(0));
                        }
                    }
                    Ok(Frozen::Copied) => seg.state = State::Copied,
                    Err(_) => failed = failed.checked_add(SEGMENT).unwrap_or(failed),
                }
            }
            at += n;
        }
        failed
    }

    /// In the parent, after the fork.
    fn after_fork_parent(&self) {
        let st = self.lock();
        if !st.open || !matches!(st.backing, Backing::File(_)) {
            return;
        }
        st.backing.after_fork_parent();
        for id in (st.first..st.first + st.top).map(SegmentId) {
            // SAFETY: the lane's lock is held, and the record is not kept.
            let seg = unsafe { WINDOW.segment(id) };
            if seg.state == State::Copied {
                seg.state = State::Mapped;
            }
        }
    }

    /// In the child: what is frozen belongs to the parent's file; our own account starts empty,
    /// and the next extent goes to a file of our own.
    fn adopt_in_child(&self) {
        let mut st = self.lock();
        if !st.open || !matches!(st.backing, Backing::File(_)) {
            return;
        }
        self.account().restart(self.account().limit());
        self.forget_idle();
        st.backing.after_fork_child();
        for i in st.first..st.first + st.top {
            let id = SegmentId(i);
            // SAFETY: the lane's lock is held, and the record is not kept.
            let seg = unsafe { WINDOW.segment(id) };
            match seg.state {
                State::Frozen => seg.state = State::Inherited,
                State::Copied => {
                    seg.state = State::Inherited;
                    st.set_used(id, true);
                    st.relist(id);
                }
                // It could not be frozen and is not mapped here: never to be used.
                State::Mapped => {
                    seg.state = State::Taken;
                    st.set_used(id, true);
                    st.relist(id);
                }
                _ => {}
            }
        }
    }

    /// One frozen or inherited segment with free slices: drops what was copied on write for
    /// them, and returns the segment to the tier when it can.
    pub(super) fn purge_frozen(&self, st: &mut LaneState, id: SegmentId, now: Millis) {
        // SAFETY: the lane's lock is held, and no other record of it is borrowed here.
        let seg = unsafe { WINDOW.segment(id) };
        let addr = WINDOW.segment_addr(id);
        let gone = match seg.state {
            State::Frozen => CHILDREN.all_gone_since(Generation(u64::from(seg.generation))),
            State::Inherited => true,
            _ => return,
        };
        if seg.free != u32::MAX || !gone {
            for (at, n) in runs(seg.free) {
                let (part, len) = (addr.add(SLICE.times(at as usize)), SLICE.times(n as usize));
                // The copies are private pages; the file's own contents stay for the children.
                // SAFETY: the slices are the lane's and nobody holds them.
                unsafe {
                    st.backing
                        .release(part, st.offset_of(part), len, View::Frozen)
                };
            }
            if seg.free == u32::MAX {
                // Only the children are waited for; look again after the next delay.
                st.enqueue_dirty(id, now);
            }
            return;
        }
        // SAFETY: the whole segment is the lane's, nobody holds a slice of it, and no other
        // process reads it any more.
        if unsafe { st.backing.thaw(addr, st.offset_of(addr), SEGMENT) }.is_err() {
            st.enqueue_dirty(id, now);
            return;
        }
        if seg.state == State::Frozen {
            self.account()
                .uncharge(SLICE.times(seg.backed.count_ones() as usize));
        }
        // It came back committed; what nobody has asked for yet should not take room.
        // SAFETY: as above.
        let released = unsafe {
            st.backing
                .release(addr, st.offset_of(addr), SEGMENT, View::Shared)
        };
        seg.backed = 0;
        seg.zero = if released == Released::Zeroed {
            u32::MAX
        } else {
            0
        };
        seg.state = State::Mapped;
        st.set_used(id, false);
        st.relist(id);
    }

    /// Whether new blocks in this segment would land in DRAM instead of the tier.
    fn is_frozen(&self, id: SegmentId) -> bool {
        let st = self.lock();
        // SAFETY: the lane's lock is held, and the record is not kept.
        st.has(id)
            && matches!(
                unsafe { WINDOW.segment(id) }.state,
                State::Frozen | State::Inherited
            )
    }
}

static CHILDREN: Children = Children::new();
/// The generation of the fork under way, if any lane takes part in it.
static UNDER_WAY: Lock<Option<Generation>> = Lock::new(None);

/// Before a fork, all other threads being outside of the allocator. Returns the bytes that the
/// child will not have.
pub fn before_fork() -> Bytes {
    let mut failed = Bytes::ZERO;
    if LANES.iter().any(Lane::is_shared) {
        let generation = CHILDREN.before_fork();
        for lane in &LANES {
            failed = failed
                .checked_add(lane.freeze(generation.0 as u32))
                .unwrap_or(failed);
        }
        // Relaxed: see `freezes`.
        FREEZES.fetch_add(1, Ordering::Relaxed);
        *UNDER_WAY.lock() = Some(generation);
    }
    failed
}

/// After it, in the parent, whether there is a child or not.
pub fn after_fork_parent() {
    if let Some(generation) = UNDER_WAY.lock().take() {
        CHILDREN.after_fork_parent(generation);
        for lane in &LANES {
            lane.after_fork_parent();
        }
    }
}

/// After it, in the child.
pub fn after_fork_child() {
    if UNDER_WAY.lock().take().is_some() {
        CHILDREN.after_fork_child();
        for lane in &LANES {
            lane.adopt_in_child();
        }
    }
}

/// How often file tiers were frozen, modulo 65,536.
static FREEZES: AtomicU16 = AtomicU16::new(0);

pub fn freezes() -> u16 {
    // Relaxed: a slab used a moment too long costs DRAM for a few blocks.
    FREEZES.load(Ordering::Relaxed)
}

/// Whether the segment is frozen in the tier's lane.
pub fn is_frozen(tier: TierId, id: SegmentId) -> bool {
    // DRAM never is; it need not be asked for its lock.
    tier != TierId::DRAM && lane(tier).is_some_and(|l| l.is_frozen(id))
}
