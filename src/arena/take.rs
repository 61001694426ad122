//! How a lane takes slices: charged as a whole before any is committed. A run that the limit
//! forbids then costs no file space, not even for a moment, and leaves no trace in the peak.

use super::lane::{Lane, Refused};
use super::lane_state::LaneState;
use super::segment::{SliceMask, run_mask, runs};
use super::window::WINDOW;
use crate::base::{Bytes, Millis, SLICE, SegmentId};
use crate::os::Errno;

/// How long a backing that had no space is not asked again, unless something was given back.
const FULL_MS: u64 = 100;

impl Lane {
    /// Makes these free slices of mapped segments held, all of them or none; charges and commits
    /// what is not backed yet. Says whether all read as zero.
    pub(super) fn take(
        &self,
        st: &mut LaneState,
        parts: impl Iterator<Item = (SegmentId, SliceMask)> + Clone,
        beyond: bool,
    ) -> Result<bool, Refused> {
        if let Err(refused) = self.charge(st, parts.clone(), beyond) {
            // What lies beside the run may be had back from the system.
            parts
                .take(1)
                .for_each(|(id, _)| st.enqueue_dirty(id, Millis(0)));
            return Err(refused);
        }
        let mut zero = true;
        for (at, (id, mask)) in parts.clone().enumerate() {
            match self.commit(st, id, mask) {
                Ok(()) => {
                    // SAFETY: the lane's lock is held, and the record is not kept.
                    zero &= unsafe { WINDOW.segment(id) }.zero & mask == mask;
                    st.hold(id, mask);
                }
                Err(error) => {
                    st.full_until = st.now + FULL_MS;
                    let uncommitted = unbacked(parts.clone().skip(at));
                    self.account.uncharge(uncommitted);
                    self.account.note_peak();
                    // What was committed stays charged, as free and dirty, until the next purge.
                    for (done, mask) in parts.take(at) {
                        self.give_back(st, done, mask, Millis(0));
                    }
                    st.enqueue_dirty(id, Millis(0));
                    return Err(Refused::System(error));
                }
            }
        }
        self.account.note_peak();
        Ok(zero)
    }

    fn charge(
        &self,
        st: &LaneState,
        parts: impl Iterator<Item = (SegmentId, SliceMask)>,
        beyond: bool,
    ) -> Result<(), Refused> {
        let needed = unbacked(parts);
        if needed == Bytes::ZERO {
            return Ok(());
        }
        if st.now < st.full_until {
            return Err(Refused::System(Errno::NOSPC));
        }
        if beyond {
            self.account.charge_beyond(needed);
        } else if !self.account.charge(needed) {
            return Err(Refused::Limit);
        }
        Ok(())
    }

    /// Backs what is charged of one segment. After an error the runs before the one that failed
    /// are backed.
    fn commit(&self, st: &LaneState, id: SegmentId, mask: SliceMask) -> Result<(), Errno> {
        // SAFETY: the lane's lock is held, and no other record of it is borrowed here.
        let seg = unsafe { WINDOW.segment(id) };
        debug_assert!(seg.usable() & mask == mask);
        for (at, n) in runs(mask & !seg.backed) {
            let len = SLICE.times(n as usize);
            let addr = WINDOW.segment_addr(id).add(SLICE.times(at as usize));
            // SAFETY: the slices are the lane's, mapped by its backing, and nobody holds them.
            unsafe { st.backing.commit(addr, st.offset_of(addr), len) }?;
            seg.backed |= run_mask(at, n);
            // Until the whole of it is had it is as good as freed.
            self.note_idle(run_mask(at, n), true);
        }
        self.note_idle(mask, false);
        Ok(())
    }
}

/// What is to be charged before these slices are held. The caller holds the lane's lock.
fn unbacked(parts: impl Iterator<Item = (SegmentId, SliceMask)>) -> Bytes {
    let slices = parts.map(|(id, mask)| {
        // SAFETY: the lane's lock is held, and the record is not kept.
        let seg = unsafe { WINDOW.segment(id) };
        (mask & !seg.backed).count_ones() as usize
    });
    SLICE.times(slices.sum())
}
