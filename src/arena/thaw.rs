//! How what a fork froze returns to its tier once the children are gone: free slices with their file
//! space, and free blocks of a slab, in place, before they are used again. Blocks that live on stay
//! private: nothing unprivileged stops their writers for the moment that a change of mapping takes.

use super::fork::CHILDREN;
use super::lane::Lane;
use super::lane_state::LaneState;
use super::segment::{INHERITED, SliceMask, run_mask, runs, seams};
use super::start::lane;
use super::window::WINDOW;
use crate::base::{Addr, Millis, PAGE, SLICE, SegmentId, SliceId, TierId};
use crate::tier::{Contents, Generation, View};

/// Mappings that partly frozen segments of one lane may take beyond one each: a quarter of what
/// Linux gives a process (`vm.max_map_count`, 65,530). Beyond that a run is thawed where it takes
/// none more.
const MAX_SEAMS: u32 = 16384;

impl Lane {
    /// A segment with free slices that are frozen: drops what was copied on write for them, and
    /// returns them to the tier, at most `most` runs, when no child can read them any more.
    pub(super) fn thaw(&self, st: &mut LaneState, id: SegmentId, now: Millis, most: u32) {
        // SAFETY: the lane's lock is held, and the record is not kept.
        let seg = unsafe { WINDOW.segment(id) };
        let (waiting, mut frozen, generation) = (seg.waiting(), seg.frozen, seg.generation);
        let gone =
            generation == INHERITED || CHILDREN.all_gone_since(Generation(u64::from(generation)));
        let mut left = most;
        for (at, n) in runs(waiting) {
            let after = frozen & !run_mask(at, n);
            let part = WINDOW.segment_addr(id).add(SLICE.times(at as usize));
            let (off, len) = (st.offset_of(part), SLICE.times(n as usize));
            if gone && st.seams + seams(after) <= MAX_SEAMS + seams(frozen) {
                if left == 0 {
                    break;
                }
                left -= 1;
                // SAFETY: the slices are the lane's, nobody holds them, and no other process
                // reads them any more.
                if let Ok(contents) = unsafe { st.backing.thaw(part, off, len) } {
                    self.note_thawed(st, id, run_mask(at, n), contents);
                    frozen = after;
                }
            } else {
                // The copies are private pages; the file's own contents stay for the children.
                // SAFETY: the slices are the lane's and nobody holds them.
                unsafe { st.backing.release(part, off, len, View::Frozen) };
            }
        }
        // SAFETY: the lane's lock is held, and the record is not kept.
        if unsafe { WINDOW.segment(id) }.waiting() != 0 {
            // After the next delay, but for what was only too much for one visit.
            st.enqueue_dirty(id, if gone && left == 0 { Millis(0) } else { now });
        }
    }

    fn note_thawed(&self, st: &mut LaneState, id: SegmentId, run: SliceMask, contents: Contents) {
        // SAFETY: the lane's lock is held, and the record is dropped before the state is used.
        let seg = unsafe { WINDOW.segment(id) };
        let charged = (seg.backed & run).count_ones() as usize;
        seg.backed &= !run;
        seg.zero &= !run;
        if contents == Contents::Zero {
            seg.zero |= run;
        }
        let frozen = seg.frozen & !run;
        self.account().uncharge(SLICE.times(charged));
        st.full_until = 0;
        st.set_frozen(id, frozen);
    }

    /// Returns pages under free blocks of a frozen slab to the tier, so that the next blocks there
    /// do not take DRAM: those of these runs that may be, which are not all while a child lives.
    fn thaw_pages(&self, slice: SliceId, runs: impl Iterator<Item = (Addr, usize)>) {
        let mut st = self.lock();
        // SAFETY: the lane's lock is held, and the record is not kept.
        let seg = unsafe { WINDOW.segment(slice.segment()) };
        let frozen = seg.frozen >> slice.within_segment() & 1 == 1;
        // What was inherited has no space in a file of this process's.
        // The next fork must find what is made shared here.
        if !frozen
            || !st.has_lines
            || seg.generation == INHERITED
            || !CHILDREN.all_gone_since(Generation(u64::from(seg.generation)))
        {
            return;
        }
        for (at, pages) in runs {
            if st.seams + st.patches >= MAX_SEAMS {
                return;
            }
            let len = PAGE.times(pages);
            // SAFETY: the caller's free blocks; no other process reads them any more, and slices
            // in use are committed.
            if unsafe { st.backing.reshare(at, st.offset_of(at), len) }.is_err() {
                return;
            }
            st.patches += 2;
            st.patched = st.patched.checked_add(len).unwrap_or(st.patched);
        }
    }
}

/// See [`Lane::thaw_pages`]; for whole pages of free blocks in a slab of the caller's that begins
/// with this slice.
pub fn thaw_pages(tier: TierId, slice: SliceId, runs: impl Iterator<Item = (Addr, usize)>) {
    if let Some(lane) = lane(tier) {
        lane.thaw_pages(slice, runs);
    }
}
