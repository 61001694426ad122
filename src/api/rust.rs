//! The Rust face.

use core::alloc::{GlobalAlloc, Layout};
use core::fmt;

use crate::base::TierId;
use crate::heap::KindId;
use crate::runtime::{self, kinds, stats as figures};

/// The allocator as a value, for `#[global_allocator]`.
///
/// ```
/// use tierheap::TierHeap;
///
/// #[global_allocator]
/// static HEAP: TierHeap = TierHeap::new();
///
/// fn main() {
///     // Without a configuration everything is in DRAM, which is tier 1.
///     let text = String::from("hot");
///     assert_eq!(tierheap::tier_of(text.as_ptr()), Some(tierheap::Tier::DRAM));
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TierHeap;

impl TierHeap {
    pub const fn new() -> TierHeap {
        TierHeap
    }
}

// SAFETY: blocks are at least as large and as aligned as asked for, belong to nobody else until
// they are freed, and no call unwinds.
unsafe impl GlobalAlloc for TierHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        runtime::aligned_kind(KindId::DEFAULT, layout.align(), layout.size())
    }
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives up a block of ours.
        unsafe { runtime::free(block) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        unsafe { zeroed(KindId::DEFAULT, layout) }
    }
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller owns the block.
        unsafe { resized(KindId::DEFAULT, block, layout, size) }
    }
}

/// # Safety
/// None beyond a valid layout.
unsafe fn zeroed(kind: KindId, layout: Layout) -> *mut u8 {
    if layout.align() <= 16 {
        return runtime::calloc_kind(kind, layout.size(), 1);
    }
    let block = runtime::aligned_kind(kind, layout.align(), layout.size());
    if !block.is_null() {
        // SAFETY: a block of at least that size, just handed out.
        unsafe { block.write_bytes(0, layout.size()) };
    }
    block
}

/// # Safety
/// `block` is a live block of `layout`, in `kind`.
unsafe fn resized(kind: KindId, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    // SAFETY: as promised.
    unsafe {
        if layout.align() <= 16 {
            return runtime::realloc(block, size);
        }
        let to = runtime::aligned_kind(kind, layout.align(), size);
        if !to.is_null() {
            core::ptr::copy_nonoverlapping(block, to, layout.size().min(size));
            runtime::free(block);
        }
        to
    }
}

/// Why a configuration or a kind is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A word of the configuration string is wrong. Which one, and what is valid, stands on
    /// stderr.
    Configuration,
    /// A tier cannot be had; stderr has the reason.
    Tier,
    NoMemory,
    /// No more kinds or tiers: there are 512 and 64.
    TooMany,
    /// A configuration is in force already.
    TooLate,
}

impl From<runtime::Refusal> for Error {
    fn from(refusal: runtime::Refusal) -> Error {
        match refusal {
            runtime::Refusal::Word => Error::Configuration,
            runtime::Refusal::Tier => Error::Tier,
            runtime::Refusal::NoMemory => Error::NoMemory,
            runtime::Refusal::TooMany => Error::TooMany,
            runtime::Refusal::TooLate => Error::TooLate,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Configuration => "a word of the configuration is wrong",
            Error::Tier => "a tier cannot be had",
            Error::NoMemory => "no memory",
            Error::TooMany => "too many kinds or tiers",
            Error::TooLate => "a configuration is in force already",
        })
    }
}

impl core::error::Error for Error {}

/// A tier, by its number: 1 is DRAM, 2 the first slower one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tier(u8);

impl Tier {
    pub const DRAM: Tier = Tier(1);
    /// The first cold tier of the configuration (or the memfd that stands in for one).
    pub const COLD: Tier = Tier(2);

    /// As `tierheap_tier_of` gives it.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The tier that holds the memory at this address now; `None` where nothing of this heap is. It
/// may change at any time: a slice moves between tiers while its address stays.
pub fn tier_of<T: ?Sized>(address: *const T) -> Option<Tier> {
    runtime::tier_of(address.cast::<u8>()).map(|t| Tier(t.0 + 1))
}

/// Puts a configuration (the `TIERHEAP` string) in force, before any other with tiers is.
pub fn configure(text: &str) -> Result<(), Error> {
    kinds::prepare()?;
    Ok(runtime::configure(text.as_bytes())?)
}

/// An allocation target: a policy over tiers. A small value; blocks outlive it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind(pub(super) KindId);

impl Kind {
    /// What `malloc` uses.
    pub const DEFAULT: Kind = Kind(KindId::DEFAULT);
    /// DRAM only.
    pub const DRAM: Kind = Kind(KindId::DRAM);

    /// The configured cold tiers; without any, a memfd made now. `None` where that cannot be had.
    pub fn cold() -> Option<Kind> {
        kinds::cold().map(Kind)
    }

    /// A kind of its own, with its own tiers, from a configuration string. The keys `dram`, `stats`
    /// and `abort` belong to the heap as a whole and are wrong words here.
    pub fn new(spec: &str) -> Result<Kind, Error> {
        Ok(kinds::create(spec.as_bytes()).map(Kind)?)
    }

    /// Frees everything in a kind that `new` made, and closes its tiers. False for the three
    /// kinds that always exist.
    ///
    /// # Safety
    /// No block of the kind, and no copy of it, is used any more by any thread.
    pub unsafe fn destroy(self) -> bool {
        kinds::destroy(self.0)
    }

    /// A block, or null where no tier of the kind has room. Free it with [`Kind::dealloc`] of any
    /// kind, or with C's `tierheap_free`.
    pub fn alloc(self, layout: Layout) -> *mut u8 {
        runtime::aligned_kind(self.0, layout.align(), layout.size())
    }

    /// The same, zeroed.
    pub fn alloc_zeroed(self, layout: Layout) -> *mut u8 {
        // SAFETY: a `Layout` is valid by its type.
        unsafe { zeroed(self.0, layout) }
    }

    /// # Safety
    /// `block` is a live block of `layout` in this kind, and moves.
    pub unsafe fn realloc(self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as promised.
        unsafe { resized(self.0, block, layout, size) }
    }

    /// # Safety
    /// `block` is a live block of this heap that nobody uses any more.
    pub unsafe fn dealloc(self, block: *mut u8) {
        // SAFETY: as promised.
        unsafe { runtime::free(block) }
    }
}

/// One tier's figures, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TierStats {
    pub tier: Tier,
    /// In live blocks. `None` where they could not be counted (in a signal handler that
    /// interrupted the allocator).
    pub asked: Option<usize>,
    /// In slabs and large blocks, counting against the limit.
    pub held: usize,
    /// Of physical memory or file space behind it.
    pub resident: usize,
    /// Of DRAM that a tier of a file takes beside that: pages written since a fork. `None` for
    /// other tiers, and without /proc.
    pub copied: Option<usize>,
    /// The most ever held.
    pub peak: usize,
    pub limit: Option<usize>,
    /// Requests that this tier should have taken and another did.
    pub fallbacks: u64,
}

/// What concerns the process as a whole; the tiers one by one from [`Stats::tiers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Frees of pointers that were not this heap's.
    pub foreign_frees: u64,
    pub fallbacks: u64,
    pub warnings: u64,
    /// Slabs and large blocks that DRAM took beyond its budget.
    pub beyond_budget: u64,
    /// Bytes of DRAM for the heap's own tables.
    pub metadata: usize,
}

impl Stats {
    /// The figures of each tier, counted as the iterator reaches it.
    pub fn tiers(&self) -> impl Iterator<Item = TierStats> {
        figures::tiers().filter_map(|id: TierId| {
            let t = figures::tier(id)?;
            Some(TierStats {
                tier: Tier(id.0 + 1),
                asked: t.asked.map(|b| b.get()),
                held: t.held.get(),
                resident: t.resident.get(),
                copied: figures::copied(id).map(|b| b.get()),
                peak: t.peak.get(),
                limit: t.limit.map(|b| b.get()),
                fallbacks: t.fallbacks,
            })
        })
    }
}

/// The statistics of the process.
pub fn stats() -> Stats {
    let t = figures::totals();
    Stats {
        foreign_frees: t.foreign_frees,
        fallbacks: t.fallbacks,
        warnings: t.warnings,
        beyond_budget: t.beyond_budget,
        metadata: t.metadata.get(),
    }
}

/// Gives back to the system at once what freed memory the heap keeps for reuse (it does so by
/// itself after a second). Says whether there was anything.
pub fn trim() -> bool {
    runtime::trim()
}
