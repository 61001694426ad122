//! Looking a heap over now and then: slabs that were kept because they were current and have
//! stood empty since the last look are given back.

use super::bin::Bin;
use super::orphans::each_bin;
use super::refill::put_away;
use super::remote;
use super::slab::Slab;
use super::thread_heap::ThreadHeap;
use crate::arena::{PURGE_DELAY_MS, dirty_lanes};
use crate::base::{Bytes, MAX_DIRECT, Millis};
use crate::os::clock;

/// How often a heap is looked over.
const INTERVAL_MS: u64 = PURGE_DELAY_MS / 2;
/// Segments purged by one miss: at most that many system calls stand between a thread and its
/// block.
const PURGE_AT_ONCE: usize = 2;

/// Slow paths between two looks at the clock: reading it costs as much as the rest of a short one.
const EVERY: u32 = 32;

/// Called on slow paths, with the size they are about: large ones look at the clock each time.
///
/// # Safety
/// The caller owns `th` and is inside the gate.
#[inline]
pub unsafe fn tidy(th: *mut ThreadHeap, size: Bytes) {
    // SAFETY: as promised.
    unsafe {
        (*th).slow_paths += if size > MAX_DIRECT { EVERY } else { 1 };
        if (*th).slow_paths >= EVERY {
            (*th).slow_paths = 0;
            tidy_slow(th, clock::now());
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn tidy_slow(th: *mut ThreadHeap, now: Millis) {
    // SAFETY: the caller owns `th` and is inside the gate.
    unsafe {
        if now.since(Millis((*th).looked_over)) >= INTERVAL_MS {
            (*th).looked_over = now.0;
            look_over_slow(th, false);
        }
    }
    for lane in dirty_lanes() {
        lane.purge(now, PURGE_DELAY_MS, PURGE_AT_ONCE);
    }
}

/// Gives back what this heap and the lanes can spare, at once (`malloc_trim`). Says whether there
/// was anything.
///
/// # Safety
/// As for [`tidy`].
pub unsafe fn trim(th: *mut ThreadHeap, now: Millis) -> bool {
    // SAFETY: as promised.
    unsafe { look_over_slow(th, true) };
    let mut some = false;
    for lane in dirty_lanes() {
        some |= lane.purge_all(now);
    }
    some
}

#[cold]
#[inline(never)]
unsafe fn look_over_slow(th: *mut ThreadHeap, at_once: bool) {
    // SAFETY: the caller owns `th` and is inside the gate.
    unsafe {
        remote::drain(th);
        remote::send_all(th);
        each_bin(th, |bin: *mut Bin| {
            let slab = (*bin).slab;
            if slab.is_null() {
                return;
            }
            let empty = Slab::is_empty(slab);
            if empty && ((*bin).idle || at_once) {
                put_away(th, bin);
            } else {
                (*bin).idle = empty;
            }
        });
    }
}
