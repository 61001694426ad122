//! The units that cross a room's door. An address, a size and an index are all `usize` to the
//! machine; mixing them is the commonest bug of an allocator, so here they are types.

/// An address in this process. Never null when it names memory of ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(transparent)]
pub struct Addr(usize);

impl Addr {
    pub const fn new(addr: usize) -> Addr {
        Addr(addr)
    }
    pub fn of<T>(p: *const T) -> Addr {
        Addr(p as usize)
    }
    pub const fn get(self) -> usize {
        self.0
    }
    pub const fn as_ptr(self) -> *mut u8 {
        self.0 as *mut u8
    }
    /// The address `len` bytes further on; wraps, so the caller keeps it in the window.
    pub const fn add(self, len: Bytes) -> Addr {
        Addr(self.0.wrapping_add(len.0))
    }
    /// The distance from `base`, which must not lie above `self`.
    pub const fn offset_from(self, base: Addr) -> Bytes {
        Bytes(self.0.wrapping_sub(base.0))
    }
    pub const fn is_aligned(self, align: Bytes) -> bool {
        self.0 & (align.0 - 1) == 0
    }
    /// `align` is a power of two.
    pub const fn align_up(self, align: Bytes) -> Addr {
        Addr((self.0 + align.0 - 1) & !(align.0 - 1))
    }
    pub const fn align_down(self, align: Bytes) -> Addr {
        Addr(self.0 & !(align.0 - 1))
    }
}

/// A length in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(transparent)]
pub struct Bytes(usize);

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);
    pub const fn new(bytes: usize) -> Bytes {
        Bytes(bytes)
    }
    pub const fn kib(n: usize) -> Bytes {
        Bytes(n << 10)
    }
    pub const fn mib(n: usize) -> Bytes {
        Bytes(n << 20)
    }
    pub const fn get(self) -> usize {
        self.0
    }
    pub const fn times(self, n: usize) -> Bytes {
        Bytes(self.0 * n)
    }
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
    pub const fn checked_add(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Bytes(n)),
            None => None,
        }
    }
    /// `align` is a power of two; `None` where the result does not fit.
    pub const fn checked_align_up(self, align: Bytes) -> Option<Bytes> {
        match self.0.checked_add(align.0 - 1) {
            Some(n) => Some(Bytes(n & !(align.0 - 1))),
            None => None,
        }
    }
}

/// One of `over` places for `n`, spread evenly where the `n` are evenly spaced: by multiplying with 2^64
/// over the golden ratio.
#[inline(always)]
pub const fn spread(n: usize, over: usize) -> usize {
    let high = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((high * over as u64) >> 32) as usize
}

/// A reading of the coarse monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Millis(pub u64);

impl Millis {
    pub const fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A tier's place in the process's table. 0 is DRAM always; the others come in the order of the
/// configuration, then of kinds created later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct TierId(pub u8);

impl TierId {
    pub const DRAM: TierId = TierId(0);
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The index of a segment in the window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct SegmentId(pub u32);

impl SegmentId {
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    pub const fn first_slice(self) -> SliceId {
        SliceId(self.0 as usize * SLICES_PER_SEGMENT)
    }
}

/// The index of a slice in the window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct SliceId(pub usize);

impl SliceId {
    pub const fn index(self) -> usize {
        self.0
    }
    pub const fn segment(self) -> SegmentId {
        SegmentId((self.0 / SLICES_PER_SEGMENT) as u32)
    }
    pub const fn within_segment(self) -> usize {
        self.0 % SLICES_PER_SEGMENT
    }
}

/// The OS page. Other page sizes are refused at start (`os::limits`).
pub const PAGE: Bytes = Bytes::kib(4);
/// The unit that has a tier and that migrates; also the page map's grain.
pub const SLICE: Bytes = Bytes::kib(64);
/// The unit taken from the system, and that of huge pages.
pub const SEGMENT: Bytes = Bytes::mib(2);
pub const SLICES_PER_SEGMENT: usize = SEGMENT.get() / SLICE.get();

const _: () = assert!(
    SLICES_PER_SEGMENT == 32,
    "a segment's slices are one u32 mask"
);
const _: () = assert!(SLICE.get().is_power_of_two() && SLICE.get().is_multiple_of(PAGE.get()));
