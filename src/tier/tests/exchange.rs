//! What the exchange of mappings before a fork leaves as it was: protections and sleeping threads.

use super::*;
use crate::base::PAGE;
use crate::os::testing::{self, Child, Ended, How};
use crate::os::{futex, sleepers};
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

/// How each page of the range is mapped, as the kernel sees it.
fn accesses(lane: &Lane, pages: usize) -> Vec<(Access, bool)> {
    let mut seen = Vec::new();
    for page in 0..pages {
        let at = lane.at(PAGE.times(page));
        maps::each(|line| {
            if line.start <= at && at < line.end {
                seen.push((line.access, line.shared));
            }
        })
        .unwrap();
    }
    seen
}

const MADE: [Access; 6] = [
    Access::None,
    Access::ReadWrite,
    Access::Read,
    Access::ReadExecute,
    Access::All,
    Access::ReadWrite,
];

/// As a program does by mprotect.
fn protect_pages(lane: &Lane) {
    for (page, access) in MADE.into_iter().enumerate() {
        // SAFETY: the range is this test's.
        unsafe { map::protect(lane.at(PAGE.times(page)), PAGE, access).unwrap() };
    }
}

#[test]
fn what_the_program_protects_stays_so_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    for (tier, lose) in [
        (file_tier(dir.path()), false),
        (memfd_tier(), false),
        (file_tier(dir.path()), true),
    ] {
        let lane = Lane::new(SEGMENT);
        lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        let rest = (PAGE.times(MADE.len()), Bytes::new(SEGMENT.get() / 2));
        lane.fill(rest.0, rest.1, 5);
        protect_pages(&lane);
        if lose {
            testing::close_descriptor(tier.as_file().current().unwrap().fd());
        }
        let frozen = lane.freeze(&tier, Bytes::ZERO, SEGMENT);
        let expected = if lose {
            Frozen::Copied
        } else {
            Frozen::Private
        };
        assert_eq!(frozen, Ok(expected));
        let child = Child::start(How::Fork, || {
            tier.after_fork_child();
            accesses(&lane, MADE.len()) == MADE.map(|access| (access, false))
                && lane.holds(rest.0, rest.1, 5)
        });
        tier.after_fork_parent();
        assert_eq!(child.end(), Ended::Exit(0));
        assert_eq!(
            accesses(&lane, MADE.len()),
            MADE.map(|access| (access, lose)),
            "in the parent"
        );
        assert!(lane.holds(rest.0, rest.1, 5));
        // Thawed it is as new, whatever the program left behind.
        if !lose {
            assert_eq!(lane.thaw(&tier, Bytes::ZERO, SEGMENT), Ok(Contents::Zero));
            lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
            assert!(lane.is_zero(Bytes::ZERO, SEGMENT));
        }
    }
}

#[test]
fn a_part_that_is_moved_aside_keeps_its_protection() {
    let dir = tempfile::tempdir().unwrap();
    let tier = file_tier(dir.path());
    let lane = Lane::new(SEGMENT);
    lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    protect_pages(&lane);
    let held = tier.as_file().current().unwrap();
    for (page, access) in MADE.into_iter().enumerate() {
        let off = PAGE.times(page);
        // SAFETY: the range is mapped to this file.
        unsafe {
            super::super::freeze::freeze_by_moving(lane.at(off), off, PAGE, access, &held).unwrap();
        }
    }
    assert_eq!(
        accesses(&lane, MADE.len()),
        MADE.map(|access| (access, false))
    );
}

/// The freeze costs a step for each guard page, and adds no mapping: where the process has all that
/// it may have, each part still gives its place to its successor.
#[test]
fn thousands_of_guard_pages_freeze_at_once_and_at_the_limit_of_mappings() {
    const GUARDS: usize = 4096;
    let dir = tempfile::tempdir().unwrap();
    let tier = file_tier(dir.path());
    let len = SEGMENT.times(GUARDS * 2 * PAGE.get() / SEGMENT.get());
    let lane = Lane::new(len);
    let ended = testing::in_child(|| {
        lane.map(&tier, Bytes::ZERO, len).unwrap();
        lane.commit(&tier, Bytes::ZERO, len).unwrap();
        for guard in 0..GUARDS {
            // SAFETY: the range is this test's.
            unsafe { map::protect(lane.at(PAGE.times(guard * 2)), PAGE, Access::None).unwrap() };
        }
        // As many mappings as the kernel allows.
        let filler = map::anywhere(PAGE.times(1 << 18), Access::None).unwrap();
        let mut filled = 0;
        // SAFETY: the range is this test's.
        while unsafe { map::protect(filler.add(PAGE.times(filled * 2)), PAGE, Access::Read) }
            .is_ok()
        {
            filled += 1;
            assert!(
                filled < 1 << 17,
                "vm.max_map_count is larger than this test thinks"
            );
        }
        let start = std::time::Instant::now();
        assert_eq!(lane.freeze(&tier, Bytes::ZERO, len), Ok(Frozen::Private));
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
        let (mut guards, mut others) = (0, 0);
        maps::each(|line| {
            if line.start >= lane.base && line.end <= lane.base.add(len) {
                assert!(!line.shared);
                match line.access {
                    Access::None => guards += 1,
                    _ => others += 1,
                }
            }
        })
        .unwrap();
        (guards, others) == (GUARDS, GUARDS)
    });
    assert_eq!(ended, Ended::Exit(0));
}

/// One thread sleeps on a word of the tier by a call that does not say that it is private, and the
/// word is frozen meanwhile.
#[test]
fn who_sleeps_on_a_frozen_word_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(SEGMENT);
        lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        let off = Bytes::new(3 * PAGE.get() + 64);
        let at = lane.at(off);
        // SAFETY: mapped as long as the lane is.
        let word = unsafe { &*at.as_ptr().cast::<std::sync::atomic::AtomicU32>() };
        let woken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::SeqCst) == 0 {
                    testing::wait_shared(at, 0);
                    woken.fetch_add(1, Ordering::SeqCst);
                }
            });
            let asleep = || {
                let mut found = false;
                sleepers::each_shared(|word| found |= word == at).unwrap();
                found
            };
            let until = |what: &str, done: &dyn Fn() -> bool| {
                let start = std::time::Instant::now();
                while !done() {
                    assert!(start.elapsed().as_secs() < 60, "{what}");
                    std::thread::yield_now();
                }
            };
            until("it sleeps", &asleep);
            assert_eq!(
                lane.freeze(&tier, Bytes::ZERO, SEGMENT),
                Ok(Frozen::Private)
            );
            let before = woken.load(Ordering::SeqCst);
            // What the program would do does not reach it any more: else this test proves nothing.
            futex::wake_shared(at);
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert_eq!(woken.load(Ordering::SeqCst), before);
            tier.wake(off);
            until("it is woken", &|| woken.load(Ordering::SeqCst) > before);
            until("it sleeps again", &asleep);
            word.store(1, Ordering::SeqCst);
            futex::wake_shared(at);
        });
    }
}
