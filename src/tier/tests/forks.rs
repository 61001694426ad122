use super::*;
use crate::base::SLICE;
use crate::os::Errno;
use crate::os::testing::{self, Child, Ended, How, Pipe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::vec::Vec;

/// Parent and child both write after the fork; each must see its own, and what neither wrote as
/// it was.
fn each_sees_its_own(tier: &Backing, lane: &Lane, expected: Frozen) {
    let all = SEGMENT.times(2);
    lane.map(tier, Bytes::ZERO, all).unwrap();
    lane.commit(tier, Bytes::ZERO, all).unwrap();
    lane.fill(Bytes::ZERO, all, 1);
    if expected == Frozen::Copied {
        testing::close_descriptor(tier.as_file().current().unwrap().fd());
    }
    assert_eq!(lane.freeze(tier, Bytes::ZERO, all), Ok(expected));
    assert!(lane.holds(Bytes::ZERO, all, 1), "frozen is readable");
    let (to_child, to_parent) = (Pipe::new(), Pipe::new());
    let child = Child::start(How::Fork, || {
        tier.after_fork_child();
        let mut right = lane.holds(Bytes::ZERO, all, 1);
        lane.fill(Bytes::ZERO, SLICE, 2);
        to_parent.send();
        to_child.wait();
        right &= lane.holds(Bytes::ZERO, SLICE, 2);
        right &= {
            // The parent wrote these after the fork.
            let off = SEGMENT;
            let words = lane.at(off).as_ptr().cast::<u64>();
            // SAFETY: mapped; no reference exists.
            (0..SLICE.get() / 8).all(|i| unsafe {
                words.add(i).read_volatile() == (SEGMENT.get() / 8 + i + 1) as u64
            })
        };
        right
    });
    tier.after_fork_parent();
    to_parent.wait();
    let words = lane.base.as_ptr().cast::<u64>();
    for i in 0..SLICE.get() / 8 {
        // SAFETY: mapped; no reference exists.
        let got = unsafe { words.add(i).read_volatile() };
        assert_eq!(got, i as u64 + 1, "the child's write shows");
    }
    lane.fill(SEGMENT, SLICE, 3);
    to_child.send();
    assert_eq!(child.end(), Ended::Exit(0));
    assert!(lane.holds(SEGMENT, SLICE, 3));
}

#[test]
fn neither_side_of_a_fork_sees_the_others_writes() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        each_sees_its_own(&tier, &Lane::new(SEGMENT.times(2)), Frozen::Private);
    }
}

#[test]
fn a_lost_descriptor_costs_the_child_a_copy_and_the_parent_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(SEGMENT.times(2));
        each_sees_its_own(&tier, &lane, Frozen::Copied);
        // Still shared in the parent: given back from the old file, and used from the new one.
        let all = SEGMENT.times(2);
        assert_eq!(
            lane.release(&tier, Bytes::ZERO, all, View::Shared),
            Released::Zeroed
        );
        lane.commit(&tier, Bytes::ZERO, all).unwrap();
        lane.fill(Bytes::ZERO, all, 5);
        // All of it is the new file's now, so the next fork needs no copy.
        assert_eq!(lane.freeze(&tier, Bytes::ZERO, all), Ok(Frozen::Private));
        assert!(lane.holds(Bytes::ZERO, all, 5));
        assert_eq!(tier.lost(), 1);
    }
}

#[test]
fn a_copy_reads_nothing_that_is_not_used() {
    let tier = memfd_tier();
    let lane = Lane::new(SEGMENT.times(2));
    lane.map(&tier, Bytes::ZERO, SEGMENT.times(2)).unwrap();
    lane.commit(&tier, Bytes::ZERO, SLICE).unwrap();
    lane.fill(Bytes::ZERO, SLICE, 3);
    testing::close_descriptor(tier.as_file().current().unwrap().fd());
    let end_of_used = lane.at(SLICE);
    let frozen = lane.freeze_used(&tier, Bytes::ZERO, SEGMENT.times(2), &|page| {
        page < end_of_used
    });
    assert_eq!(frozen, Ok(Frozen::Copied));
    let child = Child::start(How::Fork, || {
        tier.after_fork_child();
        let rest = SEGMENT.times(2).saturating_sub(SLICE);
        lane.holds(Bytes::ZERO, SLICE, 3) && lane.is_zero(SLICE, rest)
    });
    tier.after_fork_parent();
    assert_eq!(child.end(), Ended::Exit(0));
    // To read a hole of a memfd takes a page of it, which on a full tmpfs is a SIGBUS.
    assert_eq!(map::resident(lane.base, SEGMENT.times(2)), SLICE);
}

#[test]
fn what_an_older_file_holds_is_not_taken_for_the_current_ones() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(SEGMENT.times(3));
        lane.map(&tier, Bytes::ZERO, SEGMENT.times(3)).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.fill(Bytes::ZERO, SEGMENT, 11);
        testing::close_descriptor(tier.as_file().current().unwrap().fd());
        lane.commit(&tier, SEGMENT, SEGMENT).unwrap();
        lane.fill(SEGMENT, SEGMENT, 13);
        // The current file has nothing but zeroes where the older one is mapped.
        assert_eq!(lane.freeze(&tier, Bytes::ZERO, SEGMENT), Ok(Frozen::Copied));
        assert_eq!(lane.freeze(&tier, SEGMENT, SEGMENT), Ok(Frozen::Private));
        assert_eq!(
            lane.freeze(&tier, SEGMENT.times(2), SEGMENT),
            Ok(Frozen::Copied),
            "never used, and mapped to the older file"
        );
        let child = Child::start(How::Fork, || {
            tier.after_fork_child();
            lane.holds(Bytes::ZERO, SEGMENT, 11)
                && lane.holds(SEGMENT, SEGMENT, 13)
                && lane.is_zero(SEGMENT.times(2), SEGMENT)
        });
        tier.after_fork_parent();
        assert_eq!(child.end(), Ended::Exit(0));
        assert!(lane.holds(Bytes::ZERO, SEGMENT, 11) && lane.holds(SEGMENT, SEGMENT, 13));
    }
}

#[test]
fn freezing_aside_keeps_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let tier = file_tier(dir.path());
    let lane = Lane::new(SEGMENT);
    lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.fill(Bytes::ZERO, SEGMENT, 7);
    let held = tier.as_file().current().unwrap();
    // SAFETY: the range is mapped to this file.
    unsafe {
        super::super::freeze::freeze_by_moving(
            lane.base,
            Bytes::ZERO,
            SEGMENT,
            Access::ReadWrite,
            &held,
        )
        .unwrap();
    }
    assert!(lane.holds(Bytes::ZERO, SEGMENT, 7));
    lane.fill(Bytes::ZERO, SEGMENT, 8);
    let again = map::file_shared_anywhere(SEGMENT, held.fd(), Bytes::ZERO).unwrap();
    // SAFETY: mapped just now.
    let got = unsafe { again.as_ptr().cast::<u64>().read() };
    assert_eq!(got, 7, "the file is frozen");
}

#[test]
fn a_refused_freeze_leaves_the_range_shared() {
    let dir = tempfile::tempdir().unwrap();
    let tier = file_tier(dir.path());
    let lane = Lane::new(SEGMENT);
    lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.fill(Bytes::ZERO, SEGMENT, 7);
    // No file offset is unaligned: the kernel refuses.
    // SAFETY: the range is mapped by the tier.
    let refused = unsafe { tier.freeze(lane.base, Bytes::new(1), SEGMENT, None, &|_| true) };
    assert_eq!(refused, Err(Errno::INVAL));
    assert!(lane.holds(Bytes::ZERO, SEGMENT, 7));
    let child = Child::start(How::Fork, || {
        map::at_free(lane.base, SEGMENT, Access::None).is_ok() // a hole: nothing is shared
    });
    assert_eq!(child.end(), Ended::Exit(0));
    lane.fill(Bytes::ZERO, SEGMENT, 9);
    assert!(lane.holds(Bytes::ZERO, SEGMENT, 9));
}

#[test]
fn a_fork_past_the_handlers_can_not_reach_the_parents_file() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(SEGMENT.times(2));
        lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.fill(Bytes::ZERO, SEGMENT, 11);
        let child = Child::start(How::Raw, || {
            // The child believes the range its own, takes it again and writes to it.
            let took = lane.commit(&tier, Bytes::ZERO, SEGMENT).is_ok()
                && lane.map(&tier, SEGMENT, SEGMENT).is_ok()
                && lane.commit(&tier, SEGMENT, SEGMENT).is_ok();
            lane.fill(Bytes::ZERO, SEGMENT, 13);
            lane.fill(SEGMENT, SEGMENT, 13);
            took
        });
        assert_eq!(child.end(), Ended::Exit(0));
        assert!(lane.holds(Bytes::ZERO, SEGMENT, 11));
        lane.map(&tier, SEGMENT, SEGMENT).unwrap();
        lane.commit(&tier, SEGMENT, SEGMENT).unwrap();
        assert!(
            lane.is_zero(SEGMENT, SEGMENT),
            "the child wrote to a file of its own"
        );
        assert_eq!(
            tier.lost(),
            0,
            "the parent's descriptor is not the child's to close"
        );
    }
}

#[test]
fn a_child_takes_new_memory_from_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(SEGMENT.times(4));
        lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.fill(Bytes::ZERO, SEGMENT, 11);
        assert_eq!(
            lane.freeze(&tier, Bytes::ZERO, SEGMENT),
            Ok(Frozen::Private)
        );
        let child = Child::start(How::Fork, || {
            tier.after_fork_child();
            lane.map(&tier, SEGMENT, SEGMENT).unwrap();
            lane.commit(&tier, SEGMENT, SEGMENT).unwrap();
            let mut right = lane.is_zero(SEGMENT, SEGMENT);
            lane.fill(SEGMENT, SEGMENT, 13);
            // What it inherited it may thaw at once: into its own file.
            right &= lane.holds(Bytes::ZERO, SEGMENT, 11);
            right &= lane.release(&tier, Bytes::ZERO, SEGMENT, View::Frozen) == Released::Stale;
            right &= lane.thaw(&tier, Bytes::ZERO, SEGMENT) == Ok(Contents::Zero);
            right &= lane.commit(&tier, Bytes::ZERO, SEGMENT).is_ok();
            right &= lane.is_zero(Bytes::ZERO, SEGMENT);
            lane.fill(Bytes::ZERO, SEGMENT, 15);
            // And it can fork in turn.
            right &= lane.freeze(&tier, Bytes::ZERO, SEGMENT.times(2)) == Ok(Frozen::Private);
            let grandchild = Child::start(How::Fork, || {
                tier.after_fork_child();
                let right =
                    lane.holds(SEGMENT, SEGMENT, 13) && lane.holds(Bytes::ZERO, SEGMENT, 15);
                lane.fill(SEGMENT, SEGMENT, 17);
                right
            });
            right &= grandchild.end() == Ended::Exit(0);
            right && lane.holds(SEGMENT, SEGMENT, 13) && tier.lost() == 0
        });
        tier.after_fork_parent();
        assert_eq!(child.end(), Ended::Exit(0));
        assert!(lane.holds(Bytes::ZERO, SEGMENT, 11));
        // With the child gone the parent thaws too.
        assert_eq!(
            lane.release(&tier, Bytes::ZERO, SEGMENT, View::Frozen),
            Released::Stale
        );
        assert_eq!(lane.thaw(&tier, Bytes::ZERO, SEGMENT), Ok(Contents::Zero));
        assert_eq!(tier.usage(), Some(Bytes::ZERO));
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        assert!(lane.is_zero(Bytes::ZERO, SEGMENT));
        lane.fill(Bytes::ZERO, SEGMENT, 19);
        assert!(lane.holds(Bytes::ZERO, SEGMENT, 19));
        assert!(tier.usage().unwrap() >= SEGMENT);
    }
}

#[test]
fn a_refused_thaw_leaves_the_range_frozen() {
    let dir = tempfile::tempdir().unwrap();
    let tier = file_tier(dir.path());
    let lane = Lane::new(SEGMENT.times(2));
    lane.map(&tier, Bytes::ZERO, SEGMENT.times(2)).unwrap();
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.fill(Bytes::ZERO, SEGMENT, 3);
    assert_eq!(
        lane.freeze(&tier, Bytes::ZERO, SEGMENT),
        Ok(Frozen::Private)
    );
    let child = Child::start(How::Fork, || {
        tier.after_fork_child();
        // The child's file is new, and may not be made long enough.
        testing::limit_file_size(1 << 20);
        lane.thaw(&tier, Bytes::ZERO, SEGMENT) == Err(Errno::FBIG)
            && lane.holds(Bytes::ZERO, SEGMENT, 3)
    });
    tier.after_fork_parent();
    assert_eq!(child.end(), Ended::Exit(0));
    assert_eq!(lane.thaw(&tier, Bytes::ZERO, SEGMENT), Ok(Contents::Zero));
    assert_eq!(tier.usage(), Some(Bytes::ZERO));
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    assert!(lane.is_zero(Bytes::ZERO, SEGMENT));
}

/// Threads count in cold memory while the process forks: no count is lost in the parent, and each
/// child sees numbers that stand still.
#[test]
fn forks_under_writing_threads_lose_nothing() {
    const THREADS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(SEGMENT.times(16));
        let stop = AtomicBool::new(false);
        let counted: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        for round in 0..16 {
            let off = SEGMENT.times(round);
            lane.map(&tier, off, SEGMENT).unwrap();
            lane.commit(&tier, off, SEGMENT).unwrap();
            stop.store(false, Ordering::SeqCst);
            std::thread::scope(|scope| {
                for (thread, counted) in counted.iter().enumerate() {
                    let (lane, stop) = (&lane, &stop);
                    scope.spawn(move || {
                        let mut n = 0;
                        while !stop.load(Ordering::Relaxed) {
                            // A word in each of 64 pages.
                            let page = n as usize % 64;
                            let at = off.get() + page * 4096 + thread * 8;
                            let word = lane.at(Bytes::new(at)).as_ptr().cast::<AtomicU64>();
                            // SAFETY: mapped as long as the lane is.
                            unsafe { (*word).fetch_add(1, Ordering::Relaxed) };
                            n += 1;
                        }
                        counted.store(n, Ordering::SeqCst);
                    });
                }
                let read = |thread: usize, page: usize| {
                    let at = lane.at(Bytes::new(off.get() + page * 4096 + thread * 8));
                    // SAFETY: mapped as long as the lane is.
                    unsafe { at.as_ptr().cast::<u64>().read_volatile() }
                };
                while read(0, 63) < 1000 {
                    std::thread::yield_now();
                }
                assert_eq!(lane.freeze(&tier, off, SEGMENT), Ok(Frozen::Private));
                let child = Child::start(How::Fork, || {
                    tier.after_fork_child();
                    let sum = || (0..64).map(|page| read(0, page)).sum::<u64>();
                    let before = sum();
                    (0..1000).all(|_| sum() == before) && before >= 64_000 - 64
                });
                tier.after_fork_parent();
                assert_eq!(child.end(), Ended::Exit(0));
                stop.store(true, Ordering::SeqCst);
            });
            for (thread, counted) in counted.iter().enumerate() {
                let sum: u64 = (0..64)
                    .map(|page| {
                        let at = lane.at(Bytes::new(off.get() + page * 4096 + thread * 8));
                        // SAFETY: mapped as long as the lane is.
                        unsafe { at.as_ptr().cast::<u64>().read_volatile() }
                    })
                    .sum();
                assert_eq!(sum, counted.load(Ordering::SeqCst));
            }
        }
    }
}
