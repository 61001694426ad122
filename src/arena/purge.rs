//! What a lane gives back: the physical memory of slices that nobody took again, and, when its
//! tier is closed, everything.

use super::lane::Lane;
use super::lane_state::LaneState;
use super::segment::{NONE, Segment, State, run_mask, runs};
use super::window::WINDOW;
use crate::base::{Bytes, Millis, SEGMENT, SLICE, SegmentId};
use crate::os::map;
use crate::sync::Ordering;
use crate::tier::{Released, View};

/// Runs of frozen slices that one visit thaws: four system calls each, 10 to 60 µs.
const THAWS_AT_ONCE: u32 = 4;
/// What one visit unmaps of what freezing left behind: up to 0.1 ms.
const LEFTOVERS_AT_ONCE: Bytes = Bytes::mib(8);

impl Lane {
    /// Gives physical memory back for slices freed more than the delay ago, at most `most`
    /// segments of them (each a system call or a few). Says whether segments still wait.
    pub fn purge(&self, now: Millis, delay_ms: u64, most: usize) -> bool {
        let Some(mut st) = self.state.try_lock() else {
            return true;
        };
        st.backing.drop_leftovers(LEFTOVERS_AT_ONCE);
        for _ in 0..most {
            if !self.purge_one(&mut st, now, delay_ms, THAWS_AT_ONCE) {
                break;
            }
        }
        self.note_dirty(&st);
        st.dirty != 0
    }

    /// Gives all of it back at once. Says whether there was anything.
    pub fn purge_all(&self, now: Millis) -> bool {
        let mut st = self.state.lock();
        let some = st.dirty != 0 || st.backing.has_leftovers();
        st.backing.drop_leftovers(Bytes::new(usize::MAX));
        self.purge_waiting(&mut st, now);
        self.note_dirty(&st);
        some
    }

    /// Each segment once: a frozen one may have to wait on.
    pub(super) fn purge_waiting(&self, st: &mut LaneState, now: Millis) {
        for _ in 0..st.dirty {
            self.purge_one(st, now, 0, u32::MAX);
        }
    }

    fn purge_one(&self, st: &mut LaneState, now: Millis, delay_ms: u64, thaws: u32) -> bool {
        let id = st.dirty_head;
        if id == NONE {
            return false;
        }
        let id = SegmentId(id);
        // SAFETY: the lane's lock is held, and the record is dropped before `thaw`.
        let seg = unsafe { WINDOW.segment(id) };
        if now.since(Millis(seg.dirty_since)) < delay_ms {
            return false;
        }
        st.dirty_head = seg.next_dirty;
        if st.dirty_head == NONE {
            st.dirty_tail = NONE;
        }
        seg.queued = false;
        st.dirty -= 1;
        if seg.waiting() != 0 {
            self.thaw(st, id, now, thaws);
        }
        // SAFETY: the lane's lock is held, and no other record of it is borrowed here.
        let seg = unsafe { WINDOW.segment(id) };
        for (at, n) in runs(seg.dirty()) {
            let (len, addr) = (
                SLICE.times(n as usize),
                WINDOW.segment_addr(id).add(SLICE.times(at as usize)),
            );
            // SAFETY: the slices are the lane's and nobody holds them.
            match unsafe {
                st.backing
                    .release(addr, st.offset_of(addr), len, View::Shared)
            } {
                Released::Zeroed => {
                    self.account.uncharge(len);
                    st.full_until = 0;
                    self.note_idle(run_mask(at, n), false);
                    seg.backed &= !run_mask(at, n);
                    seg.zero |= run_mask(at, n);
                }
                // It stays charged, for it still takes room.
                Released::Stale | Released::Kept => {}
            }
        }
        true
    }

    /// Takes the lane out of force: unmaps what it has and closes the backing. Nobody holds a
    /// slice of it. The addresses wait for the next tier of this number.
    pub fn close(&self, now: Millis) {
        self.purge_all(now);
        let mut st = self.state.lock();
        if !st.open {
            return;
        }
        for id in (st.first..st.first + st.top).map(SegmentId) {
            // SAFETY: the lane's lock is held, and the record is not kept.
            let seg = unsafe { WINDOW.segment(id) };
            if !matches!(seg.state, State::Unmapped | State::Taken) {
                // SAFETY: the segment is the lane's and nobody holds a slice of it.
                if unsafe { map::unmap(WINDOW.segment_addr(id), SEGMENT) }.is_ok() {
                    *seg = Segment::UNMAPPED;
                    st.set_used(id, false);
                } else {
                    // Too many mappings to cut one more: it stays, and is never used again.
                    *seg = Segment {
                        state: State::Taken,
                        ..Segment::UNMAPPED
                    };
                    st.set_used(id, true);
                }
            }
        }
        st.backing.close();
        // Release: as in `open`.
        self.open.store(false, Ordering::Release);
        let (tier, first, count) = (st.tier, st.first, st.count);
        *st = LaneState {
            tier,
            first,
            count,
            ..LaneState::CLOSED
        };
        self.account.restart(None);
        self.forget_idle();
    }
}
