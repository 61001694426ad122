//! Views that were shared and are put aside by a freeze: seen by nobody, in no child, and unmapped
//! bit by bit.

use super::*;
use crate::base::PAGE;
use crate::os::testing::{self, Child, Ended, How};
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec::Vec;

const LEN: Bytes = Bytes::mib(32);

/// A filled lane of the tier, frozen.
fn frozen(tier: &Backing) -> Lane {
    let lane = Lane::new(LEN);
    lane.map(tier, Bytes::ZERO, LEN).unwrap();
    lane.commit(tier, Bytes::ZERO, LEN).unwrap();
    lane.fill(Bytes::ZERO, LEN, 1);
    assert_eq!(lane.freeze(tier, Bytes::ZERO, LEN), Ok(Frozen::Private));
    lane
}

/// Where the file of the lane is mapped outside of it: the inode tells.
fn elsewhere(tier: &Backing, lane: &Lane) -> Vec<(Addr, Bytes)> {
    let inode = tier.as_file().current().unwrap().identity().inode();
    let mut seen = Vec::new();
    maps::each(|line| {
        let outside = line.end <= lane.base || line.start >= lane.base.add(lane.len);
        if line.inode == inode && outside {
            seen.push((line.start, line.end.offset_from(line.start)));
        }
    })
    .unwrap();
    seen
}

#[test]
fn a_frozen_view_is_put_aside_and_dropped_bit_by_bit() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = frozen(&tier);
        assert!(lane.holds(Bytes::ZERO, LEN, 1));
        let [(view, LEN)] = elsewhere(&tier, &lane)[..] else {
            panic!("{:?} of Linux 5.13", elsewhere(&tier, &lane))
        };
        assert!(view.is_aligned(SEGMENT));
        assert!(tier.has_leftovers());
        let half = Bytes::new(LEN.get() / 2);
        lane.fill(half, half, 2);
        for done in 1..=4 {
            tier.drop_leftovers(Bytes::mib(8));
            let left = LEN.saturating_sub(Bytes::mib(8).times(done));
            let expected = if done == 4 { &[][..] } else { &[(view, left)] };
            assert_eq!(elsewhere(&tier, &lane), expected);
        }
        assert!(!tier.has_leftovers());
        assert!(lane.holds(Bytes::ZERO, half, 1));
        assert!(lane.holds(half, half, 2), "what was written since");
    }
}

/// Where the parent has the view, a child may have a mapping of its own.
#[test]
fn no_child_has_the_view_or_unmaps_what_stands_in_its_place() {
    for how in [How::Fork, How::Raw] {
        let tier = memfd_tier();
        let lane = frozen(&tier);
        let [(view, _)] = elsewhere(&tier, &lane)[..] else {
            panic!("Linux 5.13")
        };
        let child = Child::start(how, || {
            if let How::Fork = how {
                tier.after_fork_child();
            }
            map::at_free(view, LEN, Access::ReadWrite).unwrap();
            let mine = view.as_ptr();
            // SAFETY: mapped just now.
            unsafe { mine.write_volatile(7) };
            let had = tier.has_leftovers();
            tier.drop_leftovers(LEN);
            // The first use that notices the other process.
            let other = Lane::new(SEGMENT);
            other.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
            tier.drop_leftovers(LEN);
            // SAFETY: as above.
            !had && unsafe { mine.read_volatile() } == 7
        });
        assert_eq!(child.end(), Ended::Exit(0));
        assert!(tier.has_leftovers());
        tier.drop_leftovers(LEN);
    }
}

#[test]
fn under_a_limit_of_address_space_nothing_is_put_aside() {
    let ended = testing::in_child(|| {
        let tier = memfd_tier();
        testing::limit_address_space(1 << 40);
        let lane = frozen(&tier);
        lane.holds(Bytes::ZERO, LEN, 1) && !tier.has_leftovers()
    });
    assert_eq!(ended, Ended::Exit(0));
}

/// Other threads write and read while their memory is frozen, and lose nothing.
#[test]
fn a_thread_that_writes_meanwhile_sees_no_hole() {
    let tier = memfd_tier();
    let lane = Lane::new(LEN);
    lane.map(&tier, Bytes::ZERO, LEN).unwrap();
    lane.commit(&tier, Bytes::ZERO, LEN).unwrap();
    lane.fill(Bytes::ZERO, LEN, 1);
    let over = AtomicBool::new(false);
    let words = LEN.get() / 8;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rounds = 0u64;
            let base = lane.base.as_ptr().cast::<u64>();
            while !over.load(Ordering::Relaxed) || rounds < 2 {
                rounds += 1;
                for at in (0..words).step_by(PAGE.get() / 8) {
                    // SAFETY: mapped as long as the lane is; this thread alone writes.
                    unsafe {
                        let word = base.add(at);
                        let before = word.read_volatile();
                        assert_eq!(before, at as u64 + rounds, "word {at}");
                        word.write_volatile(before + 1);
                    }
                }
            }
            rounds
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(lane.freeze(&tier, Bytes::ZERO, LEN), Ok(Frozen::Private));
        tier.drop_leftovers(LEN);
        over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() >= 2);
    });
}
