//! Looking a heap over now and then: slabs that were kept because they were current and have
//! stood empty since the last look are given back, and part-full ones are put to sleep.

use super::bin::Bin;
use super::orphans::{each_bin, each_orphan};
use super::refill::put_away;
use super::remote;
use super::shelf;
use super::slab::Slab;
use super::sleep::{self, Effort};
use super::thread_heap::ThreadHeap;
use crate::arena::{PURGE_DELAY_MS, dirty_lanes};
use crate::base::{Bytes, MAX_CLASS, MAX_DIRECT, Millis, TierId};
use crate::os::clock;

/// How often a heap is looked over.
const INTERVAL_MS: u64 = PURGE_DELAY_MS / 2;
/// How long a look that had too much to do waits before it goes on.
const CONTINUE_MS: u64 = 10;
/// Segments purged by one miss: at most that many system calls stand between a thread and its
/// block.
const PURGE_AT_ONCE: usize = 2;

/// Slow paths between two looks at the clock: reading it costs as much as the rest of a short one.
const EVERY: u32 = 32;

/// Called on slow paths, with the size they are about. Those of large classes look at the clock each
/// time; so do those for large blocks that no shelf served (see [`owe`]).
///
/// # Safety
/// The caller owns `th` and is inside the gate.
#[inline]
pub unsafe fn tidy(th: *mut ThreadHeap, size: Bytes) {
    // SAFETY: as promised.
    unsafe {
        let large_class = size > MAX_DIRECT && size <= MAX_CLASS;
        (*th).slow_paths += if large_class { EVERY } else { 1 };
        if (*th).slow_paths >= EVERY {
            (*th).slow_paths = 0;
            tidy_slow(th, clock::now());
        }
    }
}

/// Whether a path that is about no size in particular has no look at the clock to do; it is counted then.
///
/// # Safety
/// The caller owns `th`.
#[inline(always)]
pub unsafe fn is_quiet(th: *mut ThreadHeap) -> bool {
    // SAFETY: as promised.
    unsafe {
        let paths = (*th).slow_paths + 1;
        if paths >= EVERY {
            return false;
        }
        (*th).slow_paths = paths;
        true
    }
}

/// The next [`tidy`] looks at the clock: a tier has given or taken much.
///
/// # Safety
/// The caller owns `th`.
pub unsafe fn owe(th: *mut ThreadHeap) {
    // SAFETY: as promised.
    unsafe { (*th).slow_paths += EVERY };
}

#[cold]
#[inline(never)]
unsafe fn tidy_slow(th: *mut ThreadHeap, now: Millis) {
    // SAFETY: the caller owns `th` and is inside the gate.
    unsafe {
        let since = now.since(Millis((*th).looked_over));
        if since >= INTERVAL_MS {
            look_over_slow(th, now, false);
        } else if (*th).unfinished && since >= CONTINUE_MS {
            (*th).unfinished = !sleep_all(th, &mut Effort::one_look(), false);
        }
        shelf::age(now);
    }
    for lane in dirty_lanes() {
        lane.purge(now, PURGE_DELAY_MS, PURGE_AT_ONCE);
    }
}

/// The same without waiting for misses to add up: for calls that programs make now and then,
/// such as a server that reads its statistics.
///
/// # Safety
/// As for [`tidy`].
#[cfg(feature = "libc-names")]
pub unsafe fn tidy_now(th: *mut ThreadHeap) {
    // SAFETY: as promised.
    unsafe { tidy_slow(th, clock::now()) }
}

/// Gives back what this heap, those of ended threads, and the lanes can spare, at once
/// (`malloc_trim`). Says whether there was anything.
///
/// # Safety
/// As for [`tidy`].
pub unsafe fn trim(th: *mut ThreadHeap, now: Millis) -> bool {
    let mut some = false;
    // SAFETY: as promised; an orphan is the caller's while it is claimed.
    unsafe {
        some |= look_over_slow(th, now, true);
        each_orphan(|orphan| some |= look_over_slow(orphan, now, true));
        some |= shelf::clear_all();
    }
    for lane in dirty_lanes() {
        some |= lane.purge_all(now);
    }
    some
}

/// Frees what the heap only keeps for reuse in this tier: a request is about to be refused there.
/// Says whether there was anything.
///
/// # Safety
/// As for [`tidy`].
#[cold]
#[inline(never)]
pub unsafe fn spare(th: *mut ThreadHeap, tier: TierId) -> bool {
    let mut some = false;
    // SAFETY: as promised.
    unsafe {
        some |= shelf::clear_all();
        remote::drain(th);
        each_bin(th, |bin: *mut Bin| {
            let slab = (*bin).slab;
            if !slab.is_null() && (*slab).tier == tier.0 && Slab::is_empty(slab) {
                put_away(th, bin);
                some = true;
            }
        });
    }
    some
}

/// Says whether memory was given back.
#[cold]
#[inline(never)]
unsafe fn look_over_slow(th: *mut ThreadHeap, now: Millis, at_once: bool) -> bool {
    let mut some = false;
    // SAFETY: the caller owns `th` and is inside the gate.
    unsafe {
        (*th).looked_over = now.0;
        remote::drain(th);
        remote::send_all(th);
        each_bin(th, |bin: *mut Bin| {
            let slab = (*bin).slab;
            if slab.is_null() {
                return;
            }
            let empty = Slab::is_empty(slab);
            let large = (*bin).block >= sleep::FROM.get();
            if at_once && (empty || large) || empty && (*bin).idle {
                put_away(th, bin);
                some |= empty;
            } else {
                (*bin).idle = empty;
            }
        });
        each_bin(th, |bin| sleep::begin(bin));
        let mut effort = if at_once {
            Effort::all()
        } else {
            Effort::one_look()
        };
        (*th).unfinished = !sleep_all(th, &mut effort, at_once);
        some | effort.gave
    }
}

unsafe fn sleep_all(th: *mut ThreadHeap, effort: &mut Effort, at_once: bool) -> bool {
    let mut through = true;
    // SAFETY: the caller owns `th` and is inside the gate.
    unsafe { each_bin(th, |bin| through &= sleep::go_on(bin, effort, at_once)) };
    through
}
