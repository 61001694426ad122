//! Surroundings in which something is not there that programs count on: /proc, /sys, and in a
//! chroot nearly everything.

use super::load::{
    DRAM, FILE, FULL, LOST, Load, MEMFD, MISSING, Verdicts, copies_in, figure, is_root, may_mount,
    skipped, within,
};
use crate::{build, common};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// An empty tmpfs over what is missing.
const WITHOUT: [(&str, &str); 3] = [
    ("without /proc", "mount -t tmpfs none /proc"),
    ("without /sys", "mount -t tmpfs none /sys"),
    (
        "without /proc and /sys",
        "mount -t tmpfs none /sys && mount -t tmpfs none /proc",
    ),
];

/// Forks before and after the descriptors are lost, and from a thread with the least stack.
const ALL_STEPS: &str =
    "work fork grow=8 threads=3 fork-on-stack=16384 tier=2 close work fork grow=8 fork";

#[test]
fn without_proc_and_sys() {
    if !may_mount("programs without /proc and /sys") {
        return;
    }
    let dir = build::folder();
    let mut verdicts = Verdicts::default();
    for (name, setup) in WITHOUT {
        let none: [&str; 0] = [];
        let steps = ALL_STEPS.replace("tier=2", "tier=1");
        verdicts.take(Load::new(name, DRAM, &steps).setup(setup, none));
        for configuration in [MEMFD, FILE] {
            let configuration = format!("{};stats=1", within(configuration, dir.path()));
            let load = Load::new(name, &configuration, ALL_STEPS).setup(setup, none);
            let Some(ran) = verdicts.take(load.must_say(LOST)) else {
                continue;
            };
            verdicts.expect(figure(&ran.report, 2, "peak") > Some(8 << 20), || {
                format!("{name}: no such peak of the cold tier\n{}", ran.report)
            });
        }
    }
    verdicts.done();
}

/// What a command prints on both streams; it must end with this status.
fn says(setup: &str, status: i32, words: &[&str]) -> Result<String, String> {
    let script = format!("{{ {setup}; }} || exit 99; exec \"$@\"");
    let mut cmd = build::plain(Path::new("unshare"));
    cmd.args(["-m", "sh", "-c", &script, "sh"]);
    cmd.arg(common::command()).args(words);
    let ran = common::run(&mut cmd, LIMIT);
    let said = ran.out() + &ran.err();
    match ran.status.code() {
        Some(code) if code == status => Ok(said),
        _ => Err(format!("{setup}: {words:?}: {:?}\n{said}", ran.status)),
    }
}

#[test]
fn the_command_without_proc_and_sys() {
    if !may_mount("the command without /proc and /sys") {
        return;
    }
    let dir = build::folder();
    let tier = format!("file:{}", dir.path().display());
    let load = build::program("environment_load");
    let load = load.to_str().unwrap();
    let mut failures = Vec::new();
    for (_, setup) in WITHOUT {
        // The library is beside the command, which /proc/self/exe is not there to tell.
        let run = [
            "run",
            "--cold",
            &tier,
            "--policy",
            "size",
            "--threshold",
            "4K",
        ];
        let program = ["--", load, "work", "tier=2"];
        let runs = [&run[..], &program].concat();
        let ran = says(setup, 0, &runs).and_then(|said| match said.starts_with("verified ") {
            true => Ok(()),
            false => Err(said),
        });
        failures.extend(ran.err());
        let json = says(setup, 0, &["doctor", "--json", "--cold", &tier]);
        let report = json.and_then(|text| {
            serde_json::from_str::<serde_json::Value>(&text).map_err(|e| format!("{e}: {text}"))
        });
        match report {
            Err(why) => failures.push(why),
            Ok(report) => {
                let expected = [
                    (&report["asked"][0]["usable"], serde_json::json!(true)),
                    (
                        &report["system"]["cgroup_memory_limit"],
                        serde_json::json!("unknown"),
                    ),
                ];
                for (have, want) in expected {
                    if *have != want {
                        failures.push(format!("{setup}: {have} is not {want}: {report}"));
                    }
                }
            }
        }
        let shm = says(setup, 0, &["doctor", "--json", "--cold", "file:/dev/shm"]);
        if !shm
            .as_ref()
            .is_ok_and(|text| text.contains("tmpfs file, which is DRAM"))
        {
            failures.push(format!(
                "{setup}: /dev/shm is not known for a tmpfs: {shm:?}"
            ));
        }
    }
    let nodes = says(WITHOUT[1].1, 2, &["run", "--cold", "node:0", "--", "true"]);
    if !nodes
        .as_ref()
        .is_ok_and(|text| text.contains("/sys/devices/system/node"))
    {
        failures.push(format!("without /sys: {nodes:?}"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A folder that has the program, the library, what both are linked with, and a tier's place.
fn nearly_empty_root() -> tempfile::TempDir {
    let root = build::folder();
    copies_in(root.path());
    std::fs::create_dir(root.path().join("tier")).unwrap();
    std::fs::copy(common::command(), root.path().join("tierheap")).unwrap();
    for name in ["load", "tierheap"] {
        let mut cmd = Command::new("ldd");
        cmd.arg(root.path().join(name));
        let listed = common::run(&mut cmd, LIMIT).must_succeed("ldd").out();
        // Without Cargo's: `ldd` looks where LD_LIBRARY_PATH says.
        for file in listed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            let place = root.path().join(&file[1..]);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::copy(file, place).unwrap();
        }
    }
    root
}

#[test]
fn in_a_chroot() {
    if !is_root() {
        return skipped("programs in a chroot", "needs root");
    }
    let root = nearly_empty_root();
    let root = root.path();
    let mut verdicts = Verdicts::default();
    let without_tier = ALL_STEPS.replace("tier=2", "tier=1");
    verdicts.take(Load::new("in a chroot", DRAM, &without_tier).root(root));
    verdicts.take(
        Load::new("in a chroot", MEMFD, ALL_STEPS)
            .root(root)
            .must_say(LOST),
    );
    let there = format!("{};stats=1", FILE.replace("{}", "/tier"));
    verdicts.take(
        Load::new("in a chroot", &there, ALL_STEPS)
            .root(root)
            .must_say(LOST),
    );
    let not_there = FILE.replace("{}", "/elsewhere");
    let load = Load::new("in a chroot", &not_there, &without_tier).root(root);
    verdicts.take(load.must_say(MISSING));
    verdicts.done();

    let command = |words: &[&str]| {
        let mut cmd = Command::new("chroot");
        cmd.arg(root).arg("/tierheap").args(words);
        cmd.env_remove("LD_LIBRARY_PATH");
        common::run(&mut cmd, LIMIT)
    };
    let doctor = command(&["doctor", "--cold", "file:/tier"]).must_succeed("doctor");
    assert!(doctor.out().contains("file:/tier"), "{}", doctor.out());
    let run = [
        "run",
        "--policy",
        "cold",
        "--cold",
        "file:/tier",
        "--",
        "/load",
        "work",
        "tier=2",
    ];
    let ran = command(&run).must_succeed("run");
    assert!(
        ran.out().starts_with("verified ") && ran.err().is_empty(),
        "{}",
        ran.err()
    );
    let refused = command(&["run", "--cold", "file:/elsewhere", "--", "/load", "work"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.err().contains("/elsewhere"), "{}", refused.err());
}

/// A server goes into its chroot when it has started: the tier's file is open, and its folder out of
/// reach. The process keeps its tier; a child, and a process that has lost the descriptor, cannot make
/// a new file there and live in DRAM.
#[test]
fn a_program_that_goes_into_a_chroot() {
    if !is_root() {
        return skipped("programs that go into a chroot", "needs root");
    }
    let (dir, root) = (build::folder(), build::folder());
    let steps = |rest: &str| format!("work grow=4 chroot={} {rest}", root.path().display());
    let mut verdicts = Verdicts::default();
    let plain = steps("work fork close grow=40 work fork threads=3");
    verdicts.take(Load::new("into a chroot", DRAM, &plain));
    verdicts.take(Load::new("into a chroot", MEMFD, &plain).must_say(LOST));
    let file = format!("{};stats=1", within(FILE, dir.path()));
    let kept = steps("work tier=2 fork grow=40 tier=2 work fork threads=3 tier=2");
    let kept = Load::new("into a chroot", &file, &kept);
    if let Some(ran) = verdicts.take(kept.child_may_say(FULL)) {
        verdicts.expect(figure(&ran.report, 2, "fallbacks") == Some(0), || {
            format!("the process's own blocks fell back\n{}", ran.report)
        });
    }
    let lost = Load::new("into a chroot", &file, &plain)
        .must_say(LOST)
        .must_say(FULL);
    if let Some(ran) = verdicts.take(lost.child_may_say(FULL)) {
        verdicts.expect(figure(&ran.report, 2, "fallbacks") > Some(30), || {
            format!("a file was made outside of the chroot\n{}", ran.report)
        });
    }
    verdicts.done();
}
