//! A tier's folder that is not to be written, that goes away, and whose disk others fill.

use super::load::{
    FILE, FULL, LOST, Load, MISSING, Verdicts, copies_in, figure, is_root, may_mount, skipped,
    within,
};
use crate::build;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const IN_DRAM: &str = "work fork grow=4 tier=1 close work fork";

#[test]
fn a_folder_that_may_not_be_written() {
    let mut verdicts = Verdicts::default();
    if may_mount("a tier on a read-only mount") {
        let dir = build::folder();
        let setup = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"";
        let load = Load::new("read-only mount", &within(FILE, dir.path()), IN_DRAM);
        verdicts.take(load.setup(setup, [dir.path()]).must_say(MISSING));
    }
    if is_root() {
        // Where any user gets to; the folder of the build may be in somebody's home.
        let place = tempfile::tempdir().unwrap();
        let tier = place.path().join("tier");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        copies_in(place.path());
        std::fs::create_dir(&tier).unwrap();
        mode(place.path(), 0o755);
        mode(&tier, 0o500);
        std::os::unix::fs::chown(&tier, Some(65534), Some(65534)).unwrap();
        let load = Load::new("mode 0500", &within(FILE, &tier), IN_DRAM);
        verdicts.take(load.user(65534, place.path()).must_say(MISSING));
        // The test of the test: this user has a tier where he may write.
        mode(&tier, 0o700);
        let in_tier = IN_DRAM.replace("tier=1", "tier=2");
        let load = Load::new("mode 0700", &within(FILE, &tier), &in_tier);
        verdicts.take(load.user(65534, place.path()).must_say(LOST));
    } else {
        skipped("a tier's folder with mode 0500", "needs root");
        let load = Load::new("root's folder", &within(FILE, Path::new("/usr")), IN_DRAM);
        verdicts.take(load.must_say(MISSING));
    }
    verdicts.done();
}

/// The open file lives on; a child, and who has lost the descriptor, gets no other and lives in DRAM.
#[test]
fn a_folder_that_is_deleted() {
    let place = build::folder();
    let tier = place.path().join("tier");
    let configuration = format!("{};stats=1", within(FILE, &tier));
    let mut verdicts = Verdicts::default();
    for (rest, loses) in [
        (
            "tier=2 work fork grow=8 tier=2 threads=3 fork tier=2",
            false,
        ),
        ("tier=2 fork close grow=40 work fork threads=3", true),
    ] {
        std::fs::create_dir(&tier).unwrap();
        let steps = format!("work rmdir={} {rest}", tier.display());
        let load = Load::new("deleted", &configuration, &steps).child_may_say(FULL);
        let load = match loses {
            true => load.must_say(LOST).must_say(FULL),
            false => load,
        };
        if let Some(ran) = verdicts.take(load) {
            let fallbacks = figure(&ran.report, 2, "fallbacks");
            verdicts.expect(fallbacks.is_some_and(|n| (n > 30) == loses), || {
                format!("{fallbacks:?} fallbacks after {rest}\n{}", ran.report)
            });
        }
    }
    verdicts.done();
}

/// Between `fill` and `unlink` there is not one page: neither to write nor, in a hole of the file, to
/// read. Above all a fork must not read any.
#[test]
fn a_disk_that_others_fill() {
    if !may_mount("a tier on a tmpfs that fills up") {
        return;
    }
    let dir = build::folder();
    let mount = |size: &str| format!("mount -t tmpfs -o {size} none \"$1\"");
    let full = dir.path().join("others");
    let full = full.display();
    let filled = format!("work tier=2 fill={full} work fork threads=3 work grow=12 fork");
    let freed = format!("{filled} unlink={full} trim work fork");
    let lost = format!("work grow=6 fill={full} close fork work fork unlink={full} work fork");
    let mut verdicts = Verdicts::default();
    for (steps, loses) in [(&freed, false), (&lost, true)] {
        for configuration in [FILE, "policy=cold;cold=file:{}"] {
            let configuration = within(configuration, dir.path());
            let load = Load::new("a full tmpfs", &configuration, steps).child_may_say(FULL);
            let load = load.setup(&mount("size=24m"), [dir.path()]).must_say(FULL);
            verdicts.take(if loses { load.must_say(LOST) } else { load });
        }
    }
    // A refusal instead of DRAM, and without a word.
    let strict = within("policy=cold;cold=file:{};strict=1;stats=1", dir.path());
    let load = Load::new("a full tmpfs", &strict, &format!("may-refuse {freed}"));
    if let Some(ran) = verdicts.take(load.setup(&mount("size=24m"), [dir.path()])) {
        verdicts.expect(ran.refused > 0, || "nothing was refused".into());
        verdicts.expect(figure(&ran.report, 1, "peak") == Some(0), || {
            format!("strict, and DRAM was taken\n{}", ran.report)
        });
    }
    // There is room, and no inode for another file: children and who lost the first have none.
    let configuration = within(FILE, dir.path());
    let load = Load::new(
        "no inode",
        &configuration,
        "work tier=2 fork close grow=40 work fork",
    );
    let load = load.setup(&mount("size=64m,nr_inodes=2"), [dir.path()]);
    verdicts.take(load.must_say(LOST).must_say(FULL).child_may_say(FULL));
    verdicts.done();
}
