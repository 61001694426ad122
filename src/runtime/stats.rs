//! Statistics: what each tier was asked for, holds, and takes of physical memory.

use super::calls::foreign_frees;
use super::gate;
use crate::arena::{LANES, Lane, WINDOW, meta};
use crate::base::{Bytes, SEGMENT, SegmentId, TierId};
use crate::heap::{fault, slot, walk};
use crate::os::pagemap::PageMap;
use crate::os::report::Warning;
use crate::os::{map, report};
use crate::tier::Backing;

/// One tier's figures, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TierStats {
    /// Bytes of live blocks. `None` where they could not be counted: in a signal handler that
    /// interrupted the allocator.
    pub asked: Option<Bytes>,
    /// Bytes of slabs and large blocks, and of freed ones not yet given back: what counts
    /// against the limit.
    pub held: Bytes,
    /// Bytes of physical memory or file space behind it; 0 where `asked` is `None`.
    pub resident: Bytes,
    /// The most ever held.
    pub peak: Bytes,
    pub limit: Option<Bytes>,
    /// Requests that this tier should have taken and another did (with `strict`: that failed).
    pub fallbacks: u64,
}

/// What concerns the process as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub foreign_frees: u64,
    pub fallbacks: u64,
    pub warnings: u64,
    /// Slabs and large blocks that DRAM took beyond its budget.
    pub beyond_budget: u64,
    /// Heap errors survived because of `abort=0`.
    pub faults: u64,
    pub metadata: Bytes,
}

/// The figures of a tier; `None` where there is none of this number. Stops slow paths of other
/// threads while it counts (about 5 ms for each 100 GiB), fast paths go on.
pub fn tier(id: TierId) -> Option<TierStats> {
    let lane = LANES.get(id.index()).filter(|l| l.is_open())?;
    // SAFETY: `alone` keeps all threads out of the slow paths.
    let asked = gate::alone(slot::get(), || unsafe { walk::live_bytes(lane) });
    Some(TierStats {
        asked,
        held: lane.account().held(),
        resident: resident(lane).unwrap_or_default(),
        peak: lane.account().peak(),
        limit: lane.account().limit(),
        fallbacks: lane.fallbacks(),
    })
}

/// Looks at what the lane's lock guards; `None` in a signal handler that interrupted the allocator.
/// Piece by piece: fork waits for it.
fn look<R>(lane: &Lane, f: impl FnOnce(&Lane) -> R) -> Option<R> {
    gate::visit(slot::get(), || f(lane))
}

fn is_file(lane: &Lane) -> Option<bool> {
    look(lane, |l| l.with_backing(|b| matches!(b, Backing::File(_)))).flatten()
}

/// Bytes of DRAM that a tier of a file takes beyond what it holds: pages that this process has
/// written since a fork froze them. Beside the figures of [`tier`], which servers ask for many
/// times a second: this takes about 5 ms for each GiB that is frozen. `None` for other tiers, and
/// without /proc.
pub fn copied(id: TierId) -> Option<Bytes> {
    let lane = LANES.get(id.index()).filter(|l| l.is_open())?;
    is_file(lane).filter(|&is_file| is_file)?;
    let pages = PageMap::open().ok()?;
    let mut sum = 0;
    for id in look(lane, Lane::segments)?.map(SegmentId) {
        if look(lane, |l| l.is_partly_frozen(id))? {
            sum += pages.copied(WINDOW.segment_addr(id), SEGMENT).get();
        }
    }
    pages.close();
    Some(Bytes::new(sum))
}

/// The tiers there are.
pub fn tiers() -> impl Iterator<Item = TierId> {
    (0..LANES.len())
        .filter(|&i| LANES.get(i).is_some_and(Lane::is_open))
        .map(|i| TierId(i as u8))
}

/// The widest figure of any tier, as far as it can be had without stopping anybody: what blocks ask
/// for and what is held are not above the peak.
pub fn widest() -> u64 {
    let of = |id: TierId| {
        let lane = LANES.get(id.index())?;
        let limit = lane.account().limit().map_or(0, Bytes::get);
        let bytes = lane.account().peak().get().max(limit);
        Some(lane.fallbacks().max(bytes as u64))
    };
    tiers().filter_map(of).max().unwrap_or(0)
}

pub fn totals() -> Totals {
    Totals {
        foreign_frees: foreign_frees(),
        fallbacks: LANES.iter().map(Lane::fallbacks).sum(),
        warnings: report::warnings(),
        beyond_budget: u64::from(report::warned(Warning::BeyondBudget)),
        faults: fault::faults(),
        metadata: meta::taken(),
    }
}

fn resident(lane: &Lane) -> Option<Bytes> {
    if is_file(lane)? {
        let usage = look(lane, |l| l.with_backing(Backing::usage))?;
        if let Some(usage) = usage.flatten() {
            return Some(usage);
        }
    }
    let mut sum = 0;
    for id in look(lane, Lane::segments)?.map(SegmentId) {
        if look(lane, |l| l.maps(id))? {
            sum += map::resident(WINDOW.segment_addr(id), SEGMENT).get();
        }
    }
    Some(Bytes::new(sum))
}
