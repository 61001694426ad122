//! What a lane's lock guards: its free runs by length, its dirty segments in the order they wait,
//! and the mapping of new ones. The charging and committing of slices is `lane`'s.

use super::bits::find_clear_run;
use super::lane::Refused;
use super::segment::{INHERITED, NONE, SliceMask, State, longest_run, seams};
use super::window::WINDOW;
use crate::base::config::Thp;
use crate::base::{Addr, Bytes, Millis, SEGMENT, SLICES_PER_SEGMENT, SegmentId, TierId};
use crate::os::Errno;
use crate::os::map::{self, Access};
use crate::tier::Backing;

pub(super) struct LaneState {
    pub(super) open: bool,
    pub(super) backing: Backing,
    pub(super) tier: TierId,
    pub(super) first: u32,
    pub(super) count: u32,
    /// One more than the highest segment ever mapped, counted from `first`.
    pub(super) top: u32,
    /// So many segments from `first` may be written about in the window's maps.
    pub(super) writable: u32,
    /// No segment below this one has its used bit clear.
    pub(super) hint: u32,
    /// Heads of the lists by longest free run; index 0 is unused.
    pub(super) lists: [u32; SLICES_PER_SEGMENT + 1],
    pub(super) nonempty: u64,
    pub(super) dirty_head: u32,
    pub(super) dirty_tail: u32,
    /// How many segments wait to be purged.
    pub(super) dirty: u32,
    /// The mappings that partly frozen segments take beyond one each.
    pub(super) seams: u32,
    /// An upper bound of those that patches in slabs take.
    pub(super) patches: u32,
    /// Bytes of frozen slices that patches made shared since the last freeze. Only the kernel's lines
    /// tell where they are.
    pub(super) patched: Bytes,
    /// The last freeze could read those lines.
    pub(super) has_lines: bool,
    /// The clock at the last request, and until when a full backing is not asked again: a file
    /// system takes long to say no.
    pub(super) now: u64,
    pub(super) full_until: u64,
}

impl LaneState {
    pub(super) const CLOSED: LaneState = LaneState {
        open: false,
        backing: Backing::Dram(Thp::System),
        tier: TierId(0),
        first: 0,
        count: 0,
        top: 0,
        writable: 0,
        hint: 0,
        lists: [NONE; SLICES_PER_SEGMENT + 1],
        nonempty: 0,
        dirty_head: NONE,
        dirty_tail: NONE,
        dirty: 0,
        seams: 0,
        patches: 0,
        patched: Bytes::ZERO,
        has_lines: false,
        now: 0,
        full_until: 0,
    };

    pub(super) fn has(&self, id: SegmentId) -> bool {
        id.0 >= self.first && id.0 - self.first < self.count
    }

    pub(super) fn state_of(&self, id: SegmentId) -> State {
        // SAFETY: the lane's lock is held (there is no `LaneState` without it), and the record is
        // not kept.
        unsafe { WINDOW.segment(id) }.state
    }

    pub(super) fn is_partly_frozen(&self, id: SegmentId) -> bool {
        // SAFETY: as in `state_of`.
        unsafe { WINDOW.segment(id) }.frozen != 0
    }

    /// All that is frozen in it came from the parent.
    pub(super) fn is_inherited(&self, id: SegmentId) -> bool {
        // SAFETY: as in `state_of`.
        unsafe { WINDOW.segment(id) }.generation == INHERITED
    }

    pub(super) fn offset_of(&self, addr: Addr) -> Bytes {
        addr.offset_from(WINDOW.segment_addr(SegmentId(self.first)))
    }

    /// A listed segment with a run of `n` free slices: the tightest fit.
    pub(super) fn listed_with(&self, n: u32) -> Option<SegmentId> {
        let fitting = self.nonempty & (u64::MAX << n);
        if fitting == 0 {
            return None;
        }
        let list = fitting.trailing_zeros() as usize;
        self.lists
            .get(list)
            .copied()
            .filter(|&id| id != NONE)
            .map(SegmentId)
    }

    /// Makes `n` neighbouring unused segments mapped and listed, from an address that is a multiple
    /// of `align`.
    pub(super) fn map_new(&mut self, n: usize, align: Bytes) -> Result<SegmentId, Refused> {
        // Any run longer by an alignment less a segment has an aligned one in it.
        let spare = align.saturating_sub(SEGMENT).get() / SEGMENT.get();
        // Another mapping in our window is rare; each try marks at least one segment as taken.
        for _ in 0..64 {
            let first_word = self.first as usize / 64;
            // SAFETY: the lane's lock is held, and the word is not kept.
            let word = |i: usize| unsafe { *WINDOW.used_word(first_word + i) };
            let from = self.hint as usize;
            let Some(at) = find_clear_run(word, self.count as usize, n + spare, from) else {
                return Err(Refused::Addresses);
            };
            if n + spare == 1 {
                self.hint = at as u32;
            }
            let start = WINDOW.segment_addr(SegmentId(self.first + at as u32));
            let lead = start.align_up(align.max(SEGMENT)).offset_from(start);
            let at = at + lead.get() / SEGMENT.get();
            let id = SegmentId(self.first + at as u32);
            match self.map_at(id, n) {
                Ok(()) => return Ok(id),
                Err(Errno::EXIST) => continue,
                Err(e) => return Err(Refused::System(e)),
            }
        }
        Err(Refused::Addresses)
    }

    /// Makes the window's maps writable for the first `n` segments, in steps of 2 GiB of addresses:
    /// 330 KiB of maps, of which the kernel gives only the pages that are written.
    fn open_maps(&mut self, n: u32) -> Result<(), Errno> {
        const STEP: u32 = 1024;
        if n > self.writable {
            let upto = n.next_multiple_of(STEP).min(self.count);
            WINDOW.open_maps(
                SegmentId(self.first + self.writable),
                (upto - self.writable) as usize,
            )?;
            self.writable = upto;
        }
        Ok(())
    }

    /// Maps those of `n` segments from `id` that are not mapped yet.
    pub(super) fn map_at(&mut self, id: SegmentId, n: usize) -> Result<(), Errno> {
        self.open_maps(id.0 - self.first + n as u32)?;
        let mut i = 0;
        while i < n {
            let here = SegmentId(id.0 + i as u32);
            let unmapped = |i: usize| self.state_of(SegmentId(id.0 + i as u32)) == State::Unmapped;
            if !unmapped(i) {
                i += 1;
                continue;
            }
            let mut len = (i..n).take_while(|&j| unmapped(j)).count();
            let addr = WINDOW.segment_addr(here);
            let mut reserved = map::at_free(addr, SEGMENT.times(len), Access::None);
            if reserved == Err(Errno::EXIST) && len > 1 {
                // Something stands in the way: find out where, one segment at a time.
                len = 1;
                reserved = map::at_free(addr, SEGMENT, Access::None);
            }
            if reserved == Err(Errno::EXIST) {
                // SAFETY: as above.
                unsafe { WINDOW.segment(here) }.state = State::Taken;
                self.set_used(here, true);
            }
            reserved?;
            // SAFETY: the range was reserved just now, in a lane of this backing.
            if let Err(e) = unsafe {
                self.backing
                    .map(addr, self.offset_of(addr), SEGMENT.times(len))
            } {
                // SAFETY: as above; nothing is in it.
                let _ = unsafe { map::unmap(addr, SEGMENT.times(len)) };
                return Err(e);
            }
            for j in 0..len {
                let new = SegmentId(here.0 + j as u32);
                // SAFETY: as above.
                let seg = unsafe { WINDOW.segment(new) };
                seg.state = State::Mapped;
                seg.free = u32::MAX;
                seg.backed = 0;
                seg.zero = u32::MAX;
                self.relist(new);
                self.top = self.top.max(new.0 - self.first + 1);
            }
            i += len;
        }
        Ok(())
    }

    /// Notes which slices of a segment are frozen from now on.
    pub(super) fn set_frozen(&mut self, id: SegmentId, frozen: SliceMask) {
        // SAFETY: the lane's lock is held, and the record is not kept.
        let seg = unsafe { WINDOW.segment(id) };
        self.seams = (self.seams + seams(frozen)).saturating_sub(seams(seg.frozen));
        seg.frozen = frozen;
        let used = seg.usable() != u32::MAX;
        self.set_used(id, used);
        self.relist(id);
    }

    pub(super) fn hold(&mut self, id: SegmentId, mask: SliceMask) {
        // SAFETY: the lane's lock is held, and no other record of it is borrowed here.
        let seg = unsafe { WINDOW.segment(id) };
        seg.free &= !mask;
        seg.zero &= !mask;
        self.set_used(id, true);
        self.relist(id);
    }

    pub(super) fn give_back(&mut self, id: SegmentId, mask: SliceMask, now: Millis) {
        // SAFETY: the lane's lock is held, and no other record of it is borrowed here.
        let seg = unsafe { WINDOW.segment(id) };
        debug_assert!(seg.free & mask == 0, "slices freed twice");
        seg.free |= mask;
        if seg.usable() == u32::MAX {
            self.set_used(id, false);
        }
        // SAFETY: as above; the record before is not used again.
        self.enqueue_dirty(id, now);
        self.relist(id);
    }

    pub(super) fn enqueue_dirty(&mut self, id: SegmentId, now: Millis) {
        // SAFETY: the lane's lock is held; each record is dropped before the next is taken.
        let seg = unsafe { WINDOW.segment(id) };
        if seg.queued {
            return;
        }
        seg.queued = true;
        self.dirty += 1;
        seg.dirty_since = now.0;
        seg.next_dirty = NONE;
        if self.dirty_tail == NONE {
            self.dirty_head = id.0;
        } else {
            // SAFETY: as above; the tail is another segment, since `id` was not queued.
            unsafe { WINDOW.segment(SegmentId(self.dirty_tail)) }.next_dirty = id.0;
        }
        self.dirty_tail = id.0;
    }

    /// Puts the segment in the list that its longest free run asks for, or in none.
    pub(super) fn relist(&mut self, id: SegmentId) {
        // SAFETY: the lane's lock is held; `next` and `prev` are other segments than `id`, and
        // each record is dropped before another of the same is taken.
        let seg = unsafe { WINDOW.segment(id) };
        let want = longest_run(seg.usable()) as u8;
        let (have, next, prev) = (seg.listed, seg.next, seg.prev);
        if want == have {
            return;
        }
        if have != 0 {
            if next != NONE {
                // SAFETY: as above.
                unsafe { WINDOW.segment(SegmentId(next)) }.prev = prev;
            }
            if prev != NONE {
                // SAFETY: as above.
                unsafe { WINDOW.segment(SegmentId(prev)) }.next = next;
            } else if let Some(head) = self.lists.get_mut(have as usize) {
                *head = next;
                if next == NONE {
                    self.nonempty &= !(1 << have);
                }
            }
        }
        let mut next = NONE;
        if want != 0
            && let Some(head) = self.lists.get_mut(want as usize)
        {
            next = core::mem::replace(head, id.0);
            self.nonempty |= 1 << want;
            if next != NONE {
                // SAFETY: as above.
                unsafe { WINDOW.segment(SegmentId(next)) }.prev = id.0;
            }
        }
        // SAFETY: as above.
        let seg = unsafe { WINDOW.segment(id) };
        seg.listed = want;
        seg.next = next;
        seg.prev = NONE;
    }

    pub(super) fn set_used(&mut self, id: SegmentId, used: bool) {
        let bit = 1u64 << (id.0 % 64);
        // SAFETY: the lane's lock is held, and the word is not kept.
        let word = unsafe { WINDOW.used_word(id.index() / 64) };
        if used {
            *word |= bit;
        } else {
            *word &= !bit;
            self.hint = self.hint.min(id.0 - self.first);
        }
    }
}
