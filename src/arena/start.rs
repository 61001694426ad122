//! Choosing the window, and cutting lanes from it.

use super::lane::Lane;
use super::window::{WINDOW, maps_len};
use crate::base::config::Thp;
use crate::base::{Addr, Bytes, SEGMENT, SLICE, SLICES_PER_SEGMENT, SegmentId, TierId};
use crate::os::Errno;
use crate::os::lock::Lock;
use crate::os::map::Access;
use crate::os::{limits, map};
use crate::tier::Backing;

/// Tiers at once: DRAM, eight from the configuration, the rest for kinds made at run time.
pub const MAX_LANES: usize = 64;

/// The lanes, indexed by tier.
pub static LANES: [Lane; MAX_LANES] = [const { Lane::new() }; MAX_LANES];

/// The first segment no lane has taken; lanes are not given back, only reused.
static NEXT: Lock<u32> = Lock::new(0);

/// Where the window may start: far above programs and far below libraries and stacks of any
/// 47-bit layout, and clear of the shadows of the sanitizers (below 16 TiB).
const LOWEST: usize = 16 << 40;
const SPREAD: usize = 32 << 40;
/// Lanes start at multiples of 64 segments, a word of the bitmap.
const LANE_GRAIN: usize = 64;
/// Addresses of the smallest lane, 2 GiB: a closed one serves tiers of other sizes later.
const LEAST_LANE: usize = 1024;
const LARGEST_WINDOW: usize = 16 << 40;
const SMALLEST_WINDOW: usize = 64 << 30;

/// The lane of a tier.
#[inline]
pub fn lane(tier: TierId) -> Option<&'static Lane> {
    LANES.get(tier.index())
}

/// Whether memory of ours is mapped for this segment, in whichever lane.
pub fn is_mapped(id: SegmentId) -> bool {
    LANES.iter().any(|lane| lane.maps(id))
}

/// How large the window should be: sixteen times the machine's memory, for slower tiers are
/// larger and addresses are reused late; under an address-space limit four times that, for
/// more can never be mapped and the maps themselves count.
fn wanted(ram: Bytes, limit: Option<Bytes>) -> Bytes {
    match limit {
        None => Bytes::new(
            ram.get()
                .saturating_mul(16)
                .clamp(SMALLEST_WINDOW, LARGEST_WINDOW)
                .next_power_of_two(),
        ),
        Some(l) => Bytes::new(
            l.get()
                .saturating_mul(4)
                .clamp(1 << 30, LARGEST_WINDOW)
                .next_power_of_two(),
        ),
    }
}

/// Chooses the window and opens DRAM's lane, half of it. Called once, before any block exists.
pub fn start(thp: Thp) -> Result<(), Errno> {
    let mut len = wanted(limits::total_ram(), limits::address_space());
    let maps = loop {
        match map::anywhere(maps_len(len.get() / SLICE.get()), Access::Read) {
            Ok(at) => break at,
            Err(e) if len.get() <= 1 << 30 => return Err(e),
            Err(_) => len = Bytes::new(len.get() / 2),
        }
    };
    let base = place(len)?;
    // SAFETY: the maps are fresh zeroed memory of just that size, never unmapped, and the
    // caller sees to it that this runs once.
    unsafe { WINDOW.install(base, len.get() / SLICE.get(), maps) };
    let half = (len.get() / 2 / SEGMENT.get()) as u32;
    *NEXT.lock() = half;
    LANES[0].open(TierId::DRAM, Backing::Dram(thp), SegmentId(0), half, None);
    Ok(())
}

/// A place for the window: a random one of the usual region, if a trial mapping succeeds there;
/// else (39-bit machines, emulators) wherever the kernel finds room for the whole of it, which
/// is then kept reserved.
fn place(len: Bytes) -> Result<Addr, Errno> {
    let random = limits::random() as usize % (SPREAD >> 30);
    let base = Addr::new(LOWEST + (random << 30));
    if map::at_free(base, SEGMENT, Access::None).is_ok() {
        // SAFETY: mapped by the line above.
        let _ = unsafe { map::unmap(base, SEGMENT) };
        return Ok(base);
    }
    let room = len.checked_add(SEGMENT).ok_or(Errno::NOMEM)?;
    let got = map::anywhere(room, Access::None)?;
    // The lanes map at exact places that must be empty, so the reservation cannot stay; other
    // mappings may move in and are then avoided one segment at a time.
    // SAFETY: mapped by the line above.
    let _ = unsafe { map::unmap(got, room) };
    Ok(got.align_up(SEGMENT))
}

/// Cuts a lane for a tier of about `capacity` and puts it in force. Twice the capacity in
/// addresses, so that fragmentation of addresses never is what a tier runs out of; but without a
/// limit at most one part in `share` of the addresses that are left.
pub fn open_lane(
    tier: TierId,
    backing: Backing,
    capacity: Bytes,
    limit: Option<Bytes>,
    share: usize,
) -> Result<(), Errno> {
    let lane = lane(tier).ok_or(Errno::INVAL)?;
    // Closed lanes keep their addresses for the next tier of the same number, which may be of
    // another size: then its fragmentation is what it can bear.
    if let Some((first, count)) = lane.closed_count() {
        lane.open(tier, backing, first, count, limit);
        return Ok(());
    }
    let mut next = NEXT.lock();
    let left = WINDOW.segments() - *next as usize;
    let wanted = capacity.get() / SEGMENT.get() * 2 + LANE_GRAIN * 4;
    let count = wanted
        .max(LEAST_LANE)
        .min(
            (left / share.max(1))
                .max(limit.map_or(LEAST_LANE, |l| l.get() / SEGMENT.get() + LANE_GRAIN)),
        )
        .min(left)
        / LANE_GRAIN
        * LANE_GRAIN;
    if count == 0 {
        return Err(Errno::NOMEM);
    }
    let first = SegmentId(*next);
    *next += count as u32;
    lane.open(tier, backing, first, count as u32, limit);
    Ok(())
}

const _: () = assert!((SMALLEST_WINDOW / SEGMENT.get() / 2).is_multiple_of(LANE_GRAIN));
const _: () = assert!(((1usize << 30) / SEGMENT.get() / 2).is_multiple_of(LANE_GRAIN));
const _: () = assert!(SLICES_PER_SEGMENT == 32);
