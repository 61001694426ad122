use super::*;
use crate::base::SLICE;
use crate::os::Errno;
use crate::os::testing::{self, Ended, Mounted, in_child};
use std::format;
use std::string::ToString;

const MIB: Bytes = Bytes::mib(1);

#[test]
fn space_is_taken_by_commit_and_given_back_by_release() {
    let dir = tempfile::tempdir().unwrap();
    let tier = file_tier(dir.path());
    assert_eq!(tier.as_file().medium(), Medium::PageCache);
    let lane = Lane::new(Bytes::mib(8));
    lane.map(&tier, Bytes::ZERO, Bytes::mib(8)).unwrap();
    assert_eq!(tier.usage(), Some(Bytes::ZERO), "mapping takes nothing");
    lane.commit(&tier, Bytes::mib(2), Bytes::mib(4)).unwrap();
    let used = tier.usage().unwrap();
    assert!(used >= Bytes::mib(4) && used < Bytes::mib(5), "{used:?}");
    assert!(lane.is_zero(Bytes::mib(2), Bytes::mib(4)));
    lane.fill(Bytes::mib(2), Bytes::mib(4), 7);
    assert_eq!(
        lane.release(&tier, Bytes::mib(3), MIB, View::Shared),
        Released::Zeroed
    );
    let used = tier.usage().unwrap();
    assert!(used >= Bytes::mib(3) && used < Bytes::mib(4), "{used:?}");
    assert!(lane.holds(Bytes::mib(2), MIB, 7), "neighbours stay");
    lane.commit(&tier, Bytes::mib(3), MIB).unwrap();
    assert!(lane.is_zero(Bytes::mib(3), MIB));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "the file has no name"
    );
}

#[test]
fn unmapping_gives_space_and_address_range_back() {
    let dir = tempfile::tempdir().unwrap();
    let tier = file_tier(dir.path());
    let lane = Lane::new(Bytes::mib(4));
    lane.map(&tier, Bytes::ZERO, Bytes::mib(4)).unwrap();
    lane.commit(&tier, Bytes::ZERO, Bytes::mib(4)).unwrap();
    lane.fill(Bytes::ZERO, Bytes::mib(4), 3);
    // SAFETY: the test gives the contents up.
    unsafe { tier.unmap(lane.base, Bytes::ZERO, Bytes::mib(4)).unwrap() };
    assert_eq!(tier.usage(), Some(Bytes::ZERO));
    assert_eq!(
        map::at_free(lane.base, SEGMENT, Access::None),
        Err(Errno::EXIST),
        "still reserved"
    );
    lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    assert!(lane.is_zero(Bytes::ZERO, SEGMENT));
}

#[test]
fn a_memfd_takes_pages_on_touch_and_gives_them_back() {
    let tier = memfd_tier();
    assert_eq!(tier.name().to_string(), "memfd");
    let lane = Lane::new(Bytes::mib(8));
    lane.map(&tier, Bytes::ZERO, Bytes::mib(8)).unwrap();
    lane.commit(&tier, Bytes::ZERO, Bytes::mib(8)).unwrap();
    if crate::os::limits::overcommit() != crate::os::limits::Overcommit::Never {
        assert_eq!(tier.usage(), Some(Bytes::ZERO));
    }
    lane.fill(MIB, MIB, 5);
    assert!(tier.usage().unwrap() >= MIB);
    assert_eq!(map::resident(lane.base, Bytes::mib(8)), MIB);
    assert_eq!(
        lane.release(&tier, Bytes::ZERO, Bytes::mib(8), View::Shared),
        Released::Zeroed
    );
    assert_eq!(tier.usage(), Some(Bytes::ZERO));
    assert!(lane.is_zero(MIB, MIB));
}

#[test]
fn dram_is_usable_at_once_and_released() {
    let tier = Backing::open(Spec::Dram, Thp::Always).unwrap();
    assert_eq!(tier.name().to_string(), "dram");
    let lane = Lane::new(Bytes::mib(4));
    lane.map(&tier, Bytes::ZERO, Bytes::mib(4)).unwrap();
    lane.commit(&tier, Bytes::ZERO, Bytes::mib(4)).unwrap();
    lane.fill(Bytes::ZERO, Bytes::mib(4), 5);
    assert_eq!(map::resident(lane.base, Bytes::mib(4)), Bytes::mib(4));
    assert_eq!(
        lane.release(&tier, SEGMENT, SEGMENT, View::Shared),
        Released::Zeroed
    );
    assert!(lane.holds(Bytes::ZERO, SEGMENT, 5));
    assert!(lane.is_zero(SEGMENT, SEGMENT));
}

#[test]
fn what_cannot_be_opened_says_why() {
    let open = |dir: &Path, must_be_dax| {
        Backing::open(
            Spec::File {
                dir: leaked(dir),
                must_be_dax,
            },
            Thp::System,
        )
        .err()
    };
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        open(&dir.path().join("missing"), false),
        Some(TierError::NoDirectory)
    );
    let plain = dir.path().join("plain");
    std::fs::write(&plain, b"").unwrap();
    assert_eq!(open(&plain, false), Some(TierError::NotADirectory));
    assert_eq!(open(dir.path(), true), Some(TierError::NotDax));
    assert_eq!(open(dir.path(), false), None);
    let name = file_tier(dir.path()).name().to_string();
    assert_eq!(name, format!("file:{}", dir.path().display()));
    if !testing::is_root() {
        return testing::skipped("a directory without permission, as root only");
    }
    let closed = tempfile::tempdir().unwrap();
    let ended = in_child(|| {
        testing::become_nobody();
        open(closed.path(), false) == Some(TierError::NoPermission)
    });
    assert_eq!(ended, Ended::Exit(0));
    if let Some(read_only) = Mounted::new("tmpfs", "ro") {
        assert_eq!(open(read_only.path(), false), Some(TierError::ReadOnly));
    }
}

#[test]
fn a_full_disk_is_an_errno_and_leaves_nothing_half_taken() {
    let Some(disk) = Mounted::new("tmpfs", "size=4m") else {
        return;
    };
    let tier = file_tier(disk.path());
    assert_eq!(tier.as_file().medium(), Medium::Tmpfs);
    let lane = Lane::new(Bytes::mib(16));
    lane.map(&tier, Bytes::ZERO, Bytes::mib(16)).unwrap();
    lane.commit(&tier, Bytes::ZERO, Bytes::mib(2)).unwrap();
    lane.fill(Bytes::ZERO, Bytes::mib(2), 9);
    let free = tier.room().unwrap().free;
    assert_eq!(
        lane.commit(&tier, Bytes::mib(2), Bytes::mib(3)),
        Err(Errno::NOSPC)
    );
    assert_eq!(
        tier.room().unwrap().free,
        free,
        "the part that was taken is given back"
    );
    let mut slices = 0;
    while lane
        .commit(
            &tier,
            Bytes::new(Bytes::mib(4).get() + slices * SLICE.get()),
            SLICE,
        )
        .is_ok()
    {
        slices += 1;
    }
    assert_eq!(slices, 32);
    // Every committed byte can be touched on the full disk.
    lane.fill(Bytes::mib(4), Bytes::mib(2), 11);
    assert!(
        lane.holds(Bytes::ZERO, Bytes::mib(2), 9) && lane.holds(Bytes::mib(4), Bytes::mib(2), 11)
    );
    assert_eq!(
        lane.release(&tier, Bytes::ZERO, SLICE, View::Shared),
        Released::Zeroed
    );
    lane.commit(&tier, Bytes::mib(8), SLICE).unwrap();
    assert_eq!(lane.commit(&tier, Bytes::ZERO, SLICE), Err(Errno::NOSPC));
}

#[test]
fn a_full_ext4_gives_all_of_a_failed_request_back() {
    // Unlike tmpfs, ext4 leaves what it could allocate when the rest fails.
    let Some(disk) = Mounted::ext4(32) else {
        return;
    };
    let tier = file_tier(disk.path());
    let lane = Lane::new(Bytes::mib(64));
    lane.map(&tier, Bytes::ZERO, Bytes::mib(64)).unwrap();
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.fill(Bytes::ZERO, SEGMENT, 9);
    let used = tier.usage().unwrap();
    let refused = lane.commit(&tier, SEGMENT, Bytes::mib(48));
    assert_eq!(refused, Err(Errno::NOSPC));
    let after = tier.usage().unwrap();
    // A block or two of the file's own map may stay.
    assert!(after.get() < used.get() + MIB.get(), "{used:?} {after:?}");
    let mut segments = 1;
    while lane.commit(&tier, SEGMENT.times(segments), SEGMENT).is_ok() {
        segments += 1;
    }
    assert!(segments > 4, "{segments}");
    for segment in 1..segments {
        lane.fill(SEGMENT.times(segment), SEGMENT, segment as u64);
    }
    assert!(lane.holds(Bytes::ZERO, SEGMENT, 9));
    for segment in 1..segments {
        assert!(lane.holds(SEGMENT.times(segment), SEGMENT, segment as u64));
    }
    // What is frozen and written to after a fork needs no space on the full disk.
    let all = SEGMENT.times(segments);
    assert_eq!(lane.freeze(&tier, Bytes::ZERO, all), Ok(Frozen::Private));
    lane.fill(Bytes::ZERO, all, 77);
    assert!(lane.holds(Bytes::ZERO, all, 77));
}

#[test]
fn a_file_system_without_fallocate_is_filled_by_writing_and_keeps_its_space() {
    // ramfs knows neither fallocate nor holes.
    let Some(disk) = Mounted::new("ramfs", "") else {
        return;
    };
    let tier = file_tier(disk.path());
    let lane = Lane::new(Bytes::mib(4));
    lane.map(&tier, Bytes::ZERO, Bytes::mib(4)).unwrap();
    lane.commit(&tier, MIB, MIB).unwrap();
    assert_eq!(
        map::resident(lane.base, Bytes::mib(4)),
        MIB,
        "written, so its pages are there"
    );
    lane.fill(MIB, MIB, 13);
    assert_eq!(lane.release(&tier, MIB, MIB, View::Shared), Released::Kept);
    assert!(lane.holds(MIB, MIB, 13), "kept is as it was");
    assert!(crate::os::report::warned(crate::os::report::Warning::NotGivenBack) >= 1);
}

#[test]
fn a_closed_and_reused_descriptor_is_not_touched_and_old_memory_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(Bytes::mib(8));
        lane.map(&tier, Bytes::ZERO, Bytes::mib(4)).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.fill(Bytes::ZERO, SEGMENT, 17);

        let foreign = tempfile::tempfile().unwrap();
        testing::replace_descriptor(tier.as_file().current().unwrap().fd(), &foreign);

        // A range that was mapped to the old file, and one that never was.
        lane.commit(&tier, SEGMENT, SEGMENT).unwrap();
        assert_eq!(tier.lost(), 1);
        lane.fill(SEGMENT, SEGMENT, 19);
        lane.map(&tier, Bytes::mib(4), SEGMENT).unwrap();
        lane.commit(&tier, Bytes::mib(4), SEGMENT).unwrap();
        lane.fill(Bytes::mib(4), SEGMENT, 23);
        assert_eq!(
            foreign.metadata().unwrap().len(),
            0,
            "the program's file was not touched"
        );
        assert!(lane.holds(Bytes::ZERO, SEGMENT, 17));
        assert!(lane.holds(SEGMENT, SEGMENT, 19));
        assert!(tier.usage().unwrap() >= Bytes::mib(4));

        // The old file's range is given back and used again, from the new file.
        assert_eq!(
            lane.release(&tier, Bytes::ZERO, SEGMENT, View::Shared),
            Released::Zeroed
        );
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        assert!(lane.is_zero(Bytes::ZERO, SEGMENT));
        lane.fill(Bytes::ZERO, SEGMENT, 29);
        assert!(tier.usage().unwrap() >= Bytes::mib(6));
        assert!(lane.holds(SEGMENT, SEGMENT, 19) && lane.holds(Bytes::mib(4), SEGMENT, 23));
        assert_eq!(tier.lost(), 1);
    }
}

#[test]
fn all_descriptors_closed_at_once_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ended = in_child(|| {
        let tier = file_tier(dir.path());
        let lane = Lane::new(SEGMENT.times(2));
        lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.fill(Bytes::ZERO, SEGMENT, 31);
        testing::close_all();
        lane.map(&tier, SEGMENT, SEGMENT).unwrap();
        lane.commit(&tier, SEGMENT, SEGMENT).unwrap();
        lane.fill(SEGMENT, SEGMENT, 37);
        lane.holds(Bytes::ZERO, SEGMENT, 31) && lane.holds(SEGMENT, SEGMENT, 37)
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn the_file_size_limit_is_an_errno_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let lane = Lane::new(Bytes::mib(8));
    let ended = in_child(|| {
        let tiers = [file_tier(dir.path()), memfd_tier()];
        tiers.iter().all(|tier| {
            testing::limit_file_size(3 << 20);
            let refused = lane.map(tier, Bytes::mib(2), SEGMENT) == Err(Errno::FBIG);
            let granted = lane.map(tier, Bytes::ZERO, SEGMENT).is_ok()
                && lane.commit(tier, Bytes::ZERO, SEGMENT).is_ok();
            lane.fill(Bytes::ZERO, SEGMENT, 41);
            // Lowered below what is there already.
            testing::limit_file_size(1 << 20);
            let again = lane.commit(tier, MIB, MIB);
            let kept = lane.holds(Bytes::ZERO, MIB, 41);
            refused && granted && kept && (again == Err(Errno::FBIG) || again.is_ok())
        })
    });
    assert_eq!(
        ended,
        Ended::Exit(0),
        "{} would be SIGXFSZ",
        testing::SIGXFSZ
    );
}

#[test]
fn memory_locked_by_the_program_is_still_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let ended = in_child(|| {
        let tier = file_tier(dir.path());
        let lane = Lane::new(SEGMENT);
        if !testing::lock_all_memory() {
            testing::skipped("mlockall is not allowed here");
            return true;
        }
        lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
        lane.fill(Bytes::ZERO, SEGMENT, 43);
        let released = lane.release(&tier, Bytes::ZERO, SEGMENT, View::Shared);
        released == Released::Zeroed && lane.is_zero(Bytes::ZERO, SEGMENT)
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn two_threads_never_cut_each_others_memory_off() {
    let dir = tempfile::tempdir().unwrap();
    for tier in [file_tier(dir.path()), memfd_tier()] {
        let lane = Lane::new(SEGMENT.times(64));
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (tier, lane) = (&tier, &lane);
                scope.spawn(move || {
                    for round in 0..16 {
                        let off = SEGMENT.times(round * 4 + thread);
                        lane.map(tier, off, SEGMENT).unwrap();
                        lane.commit(tier, off, SEGMENT).unwrap();
                        // A size set too small would be a SIGBUS here.
                        lane.fill(off, SEGMENT, off.get() as u64 + 1);
                    }
                });
            }
        });
        for segment in 0..64 {
            let off = SEGMENT.times(segment);
            assert!(lane.holds(off, SEGMENT, off.get() as u64 + 1));
        }
    }
}
