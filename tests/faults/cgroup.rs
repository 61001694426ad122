//! A memory control group at its limit, as a container has one; of either version.

use super::load::{FILE, FULL, Load, MEMFD, Verdicts, is_root, skipped, within};
use crate::{build, common};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group of this test's own, without swap, removed with its last process.
struct Group {
    folder: PathBuf,
    limit: &'static str,
}

impl Group {
    /// `None` where no group can be made.
    fn new() -> Option<Group> {
        if !is_root() {
            return None;
        }
        for (root, limit) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(root).join(format!("tierheap-{}", std::process::id()));
            if !Path::new(root).join("cgroup.procs").exists()
                || std::fs::create_dir(&folder).is_err()
            {
                continue;
            }
            let group = Group { folder, limit };
            // In version 2 the parent must hand the controller down.
            if group.folder.join(limit).exists() {
                let _ = std::fs::write(group.folder.join("memory.swap.max"), "0");
                return Some(group);
            }
        }
        None
    }

    fn set(&self, mebibytes: u64) {
        // What the runs before left in the page cache is charged to the group until it is reclaimed.
        let file = self.folder.join(self.limit);
        std::fs::write(file, (mebibytes << 20).to_string()).unwrap();
    }

    fn enter(&self, load: Load) -> Load {
        load.setup("echo $$ >\"$1/cgroup.procs\"", [&self.folder])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Glibc's peak in this load is 61 MiB with its children's.
const STEPS: &str = "work grow=20 work fork threads=4 work fork";

#[test]
fn a_control_group_at_its_limit() {
    let Some(group) = Group::new() else {
        return skipped(
            "a memory control group at its limit",
            "needs root and the memory controller",
        );
    };
    let dir = build::folder();
    let mut verdicts = Verdicts::default();
    // What was freed within the last second is still held: half as much again as glibc.
    group.set(120);
    for configuration in ["policy=dram", MEMFD, "policy=cold;cold=memfd,limit:16M"] {
        let load = group.enter(Load::new("120 MiB", configuration, STEPS));
        let limited = configuration.contains("limit");
        verdicts.take(if limited {
            load.must_say(FULL).child_may_say(FULL)
        } else {
            load
        });
    }
    // Less than the load needs in DRAM. Of a file tier's pages all but those in use go to the disk;
    // `auto` knows nothing of the limit and lives by its ratio.
    group.set(48);
    let plain = group.enter(Load::plain("48 MiB", STEPS)).attempt();
    verdicts.expect(plain.is_err(), || {
        "glibc lives in 48 MiB: the limit is none".into()
    });
    for configuration in [FILE, "policy=auto;ratio=1:3;cold=file:{}"] {
        let configuration = within(configuration, dir.path());
        verdicts.take(group.enter(Load::new("48 MiB", &configuration, STEPS)));
    }
    verdicts.done();

    // The command says what it finds.
    let words = "echo $$ >\"$1/cgroup.procs\" || exit 99; shift; exec \"$@\"";
    let command = |arguments: &[&str]| {
        let mut cmd = build::plain(Path::new("sh"));
        cmd.args(["-c", words, "sh"]).arg(&group.folder);
        cmd.arg(common::command()).args(arguments);
        common::run(&mut cmd, Duration::from_secs(60)).must_succeed("the command")
    };
    let doctor: serde_json::Value =
        serde_json::from_str(&command(&["doctor", "--json"]).out()).unwrap();
    assert_eq!(
        doctor["system"]["cgroup_memory_limit"],
        48 << 20,
        "{doctor}"
    );
    let warned = command(&["run", "--dram", "49M", "--cold", "memfd", "--", "true"]).err();
    assert!(
        warned.contains("49M is more than this control group's 48M"),
        "{warned}"
    );
    let quiet = command(&["run", "--dram", "48M", "--cold", "memfd", "--", "true"]).err();
    assert_eq!(quiet, "");
}
