//! The window: the one range of addresses in which everything of ours lies, and the three flat
//! maps over it.
//!
//! A pointer is ours only if it lies in the window and its slice has an entry, so a foreign
//! pointer costs one subtraction and one comparison. Flat maps over a bounded window were
//! chosen over a radix tree (four instructions more on each free) and over a flat map of the
//! whole address space (three fewer, but 16 GiB of address space, which `ulimit -v` forbids and
//! `mlockall` would fill).
//!
//! One mapping, reserved without backing, holds in this order: a page of zeros that reads as a
//! slab nobody owns; the page map, eight bytes a slice; the tier map, one byte a slice; the
//! segment table; one bit a segment that says it is in use. Together 11 bytes of address space
//! for each 64 KiB of the window; physical memory only where the heap has been.

use super::segment::Segment;
use crate::base::{
    Addr, Bytes, PAGE, SEGMENT, SLICE, SLICES_PER_SEGMENT, SegmentId, SliceId, TierId,
};
use crate::os::Errno;
use crate::os::map::{self, Access};
use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Where the window and its maps are. All zero before [`Window::install`]: then every pointer is
/// foreign. Written once; `slices` last, with Release.
#[repr(C)]
pub struct Window {
    base: AtomicUsize,
    slices: AtomicUsize,
    maps: AtomicUsize,
}

/// The process's window.
pub static WINDOW: Window = Window {
    base: AtomicUsize::new(0),
    slices: AtomicUsize::new(0),
    maps: AtomicUsize::new(0),
};

/// A copy of it in plain words, for who has it at hand.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    base: usize,
    slices: usize,
    maps: usize,
}

impl View {
    /// The view in which every pointer is foreign.
    pub const NOTHING: View = View {
        base: 0,
        slices: 0,
        maps: 0,
    };

    /// [`Window::descriptor`] by address; `None` outside of the window.
    ///
    /// # Safety
    /// The view is [`View::NOTHING`] or from [`Window::view`].
    #[inline(always)]
    pub unsafe fn descriptor(&self, addr: usize) -> Option<usize> {
        let index = addr.wrapping_sub(self.base) / SLICE.get();
        if index >= self.slices {
            return None;
        }
        // SAFETY: the index is below the number of slices, so the entry lies in the maps.
        let entry = unsafe { &*((self.maps + SENTINEL) as *const AtomicU64).add(index) };
        // Relaxed: see `Window::descriptor`.
        Some(
            self.maps
                .wrapping_add(entry.load(Ordering::Relaxed) as usize),
        )
    }
}

/// What lies before the page map: a slab descriptor read at the maps' base is all zero.
const SENTINEL: usize = PAGE.get();

/// The address space the maps take for a window of `slices`.
pub const fn maps_len(slices: usize) -> Bytes {
    let segments = slices / SLICES_PER_SEGMENT;
    let len = SENTINEL + slices * 9 + segments * size_of::<Segment>() + segments / 8;
    Bytes::new((len + PAGE.get() - 1) & !(PAGE.get() - 1))
}

/// Where the page map has the entry of a slice.
#[inline(always)]
fn entry_in(maps: *mut u8, slice: SliceId) -> *const AtomicU64 {
    maps.wrapping_add(SENTINEL + slice.index() * 8).cast()
}

impl Window {
    /// Puts the window in force.
    ///
    /// # Safety
    /// `maps` is zeroed readable memory of `maps_len(slices)` bytes, which `open_maps` can make
    /// writable and which is never unmapped, and this is called once.
    pub unsafe fn install(&self, base: Addr, slices: usize, maps: Addr) {
        self.base.store(base.get(), Ordering::Relaxed);
        self.maps.store(maps.get(), Ordering::Relaxed);
        // Relaxed would do (see `slice_of`); Release keeps `slices` the last to be seen.
        self.slices.store(slices, Ordering::Release);
    }

    /// The window as it is and will be; call it once there is one.
    pub fn view(&self) -> View {
        // Relaxed (all): the caller has passed `install` or synchronised with who did.
        View {
            base: self.base.load(Ordering::Relaxed),
            slices: self.slices.load(Ordering::Relaxed),
            maps: self.maps.load(Ordering::Relaxed),
        }
    }

    pub fn base(&self) -> Addr {
        // Relaxed: a caller comes after the start or holds a pointer that came after it.
        Addr::new(self.base.load(Ordering::Relaxed))
    }

    pub fn segments(&self) -> usize {
        // Relaxed: as for `base`.
        self.slices.load(Ordering::Relaxed) / SLICES_PER_SEGMENT
    }

    /// The slice of `addr`; `None` outside the window.
    #[inline(always)]
    pub fn slice_of(&self, addr: Addr) -> Option<SliceId> {
        // Relaxed: a pointer that lies in the window was made after `install`, and reached this
        // thread by a happens-before edge of the program's own; for any other pointer stale
        // zeros say "foreign", which is right.
        let base = self.base.load(Ordering::Relaxed);
        let index = addr.get().wrapping_sub(base) / SLICE.get();
        if index < self.slices.load(Ordering::Relaxed) {
            Some(SliceId(index))
        } else {
            None
        }
    }

    #[inline(always)]
    fn maps(&self) -> *mut u8 {
        // Relaxed: as in `slice_of`.
        self.maps.load(Ordering::Relaxed) as *mut u8
    }

    #[inline(always)]
    fn entry(&self, slice: SliceId) -> &AtomicU64 {
        // SAFETY: `slice` is below `slices` (who makes a SliceId takes it from `slice_of` or from
        // a lane, which lies in the window), so the entry lies in the maps, which live for ever.
        unsafe { &*entry_in(self.maps(), slice) }
    }

    /// The address of the descriptor registered for this slice; where none is, of a page of
    /// zeros, which is never null and reads as a slab that nobody owns.
    #[inline(always)]
    pub fn descriptor(&self, slice: SliceId) -> Addr {
        // The entry is the distance from the maps' base, so that an empty one needs no test; the base is
        // read once for both, which nobody else would do for an atomic.
        let maps = self.maps();
        // SAFETY: as in `entry`.
        let entry = unsafe { &*entry_in(maps, slice) };
        // Relaxed: the descriptor was filled before its first block was handed out, and the
        // block reached us by the program's own synchronisation.
        Addr::new((maps as usize).wrapping_add(entry.load(Ordering::Relaxed) as usize))
    }

    /// Whether `descriptor` is the page of zeros.
    #[inline(always)]
    pub fn is_sentinel(&self, descriptor: Addr) -> bool {
        descriptor.get() == self.maps() as usize
    }

    /// Registers `descriptor` for `n` slices from `first`; `None` clears them.
    pub fn set_descriptor(&self, first: SliceId, n: usize, descriptor: Option<Addr>) {
        let value = match descriptor {
            Some(d) => d.get().wrapping_sub(self.maps() as usize) as u64,
            None => 0,
        };
        for i in 0..n {
            // Release: pairs with the data dependency of `descriptor`'s readers (Relaxed there,
            // see its comment) and makes a half-written descriptor impossible to see.
            self.entry(SliceId(first.index() + i))
                .store(value, Ordering::Release);
        }
    }

    fn tier_cell(&self, slice: SliceId) -> &AtomicU8 {
        // Relaxed: as in `slice_of`.
        let slices = self.slices.load(Ordering::Relaxed);
        // SAFETY: as for `entry`; the tier map follows the page map.
        unsafe {
            &*self
                .maps()
                .add(SENTINEL + slices * 8 + slice.index())
                .cast::<AtomicU8>()
        }
    }

    /// The tier that holds this slice; `None` where no block of ours is.
    #[inline(always)]
    pub fn tier(&self, slice: SliceId) -> Option<TierId> {
        // Relaxed: a byte on its own; it may change under the reader at any time (migration).
        match self.tier_cell(slice).load(Ordering::Relaxed) {
            0 => None,
            t => Some(TierId(t - 1)),
        }
    }

    /// Says which tier holds `n` slices from `first`.
    pub fn set_tier(&self, first: SliceId, n: usize, tier: Option<TierId>) {
        let value = tier.map_or(0, |t| t.0 + 1);
        for i in 0..n {
            // Relaxed: as in `tier`.
            self.tier_cell(SliceId(first.index() + i))
                .store(value, Ordering::Relaxed);
        }
    }

    /// The record of a segment.
    ///
    /// # Safety
    /// The caller holds the lock of the lane that owns this segment, and keeps no other
    /// reference to the same record.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn segment(&self, id: SegmentId) -> &mut Segment {
        // Relaxed: as in `slice_of`.
        let slices = self.slices.load(Ordering::Relaxed);
        let table = SENTINEL + slices * 9;
        // SAFETY: the table follows the tier map and has a record for each segment; zeroed memory
        // is a valid record; exclusive by the caller's promise.
        unsafe { &mut *self.maps().add(table).cast::<Segment>().add(id.index()) }
    }

    /// A word of the bitmap of segments in use, `word` counting 64 segments each.
    ///
    /// # Safety
    /// As for [`Window::segment`]; lanes start at multiples of 64 segments, so that a word
    /// belongs to one lane.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn used_word(&self, word: usize) -> &mut u64 {
        // Relaxed: as in `slice_of`.
        let slices = self.slices.load(Ordering::Relaxed);
        let at = SENTINEL + slices * 9 + slices / SLICES_PER_SEGMENT * size_of::<Segment>();
        // SAFETY: the bitmap follows the segment table; exclusive by the caller's promise.
        unsafe { &mut *self.maps().add(at).cast::<u64>().add(word) }
    }

    /// Lets the maps be written for `n` segments from `first`. They start readable only, so that
    /// neither a limit on data (RLIMIT_DATA) nor strict overcommit counts what is never used.
    pub fn open_maps(&self, first: SegmentId, n: usize) -> Result<(), Errno> {
        // Relaxed: as in `slice_of`.
        let slices = self.slices.load(Ordering::Relaxed);
        let (from, to) = (first.index(), first.index() + n);
        let table = SENTINEL + slices * 9;
        let bits = table + slices / SLICES_PER_SEGMENT * size_of::<Segment>();
        // Where each map starts, and its bytes for eight segments.
        let maps = [
            (SENTINEL, 8 * SLICES_PER_SEGMENT * 8),
            (SENTINEL + slices * 8, 8 * SLICES_PER_SEGMENT),
            (table, 8 * size_of::<Segment>()),
            (bits, 1),
        ];
        for (start, bytes) in maps {
            let page = PAGE.get();
            let begin = (start + from * bytes / 8) & !(page - 1);
            let end = (start + (to * bytes).div_ceil(8) + page - 1) & !(page - 1);
            let at = Addr::new(self.maps() as usize + begin);
            // SAFETY: the maps are ours, and rights are only added.
            unsafe { map::protect(at, Bytes::new(end - begin), Access::ReadWrite) }?;
        }
        Ok(())
    }

    pub fn segment_addr(&self, id: SegmentId) -> Addr {
        self.base().add(SEGMENT.times(id.index()))
    }

    pub fn slice_addr(&self, id: SliceId) -> Addr {
        self.base().add(SLICE.times(id.index()))
    }
}

const _: () = assert!(align_of::<Segment>() <= 8 && SENTINEL.is_multiple_of(8));
// The table starts at SENTINEL + 9 * slices: aligned since slices is a multiple of 32.
const _: () = assert!((9 * SLICES_PER_SEGMENT).is_multiple_of(8));
