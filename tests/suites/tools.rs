//! Stressors with verification, collectors of garbage, git, and the build of this crate.

use crate::everywhere::program;
use crate::server::need;
use crate::suite::{LONG, Outcome, Place, QUICK, Suite};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/suites")
        .join(name)
}

/// `--verify` makes each stressor check what it wrote; one that finds a fault fails the whole.
fn stress(place: &Place, seconds: u32, stressors: &[&str]) -> Outcome {
    let mut cmd = program(need("stress-ng", "stress-ng"));
    cmd.args(["--verify", "--metrics-brief", "--temp-path"])
        .arg(&place.dir);
    cmd.args(["--timeout", &seconds.to_string(), "--vm-bytes", "64M"]);
    cmd.args(["--mmap-bytes", "64M", "--malloc-bytes", "128M"]);
    // Among two dozen others on two cores a tree of the default size is not done once in two minutes.
    cmd.args(["--tree-size", "10000"]);
    for stressor in stressors {
        cmd.args([&format!("--{stressor}"), "1"]);
    }
    let ran = place.run(cmd);
    let said = format!("{}{}", ran.out(), ran.err());
    assert!(ran.status.success(), "{:?}\n{said}", ran.status);
    // "stress-ng: metrc: [pid] malloc  12345 ...": one that did nothing has shown nothing.
    let busy = |stressor: &&&str| {
        said.lines().any(|line| {
            let mut words = line
                .split_whitespace()
                .skip_while(|w| w != *stressor)
                .skip(1);
            let ops = words.next().and_then(|n| n.parse::<u64>().ok());
            line.contains("metrc:") && ops.is_some_and(|n| n > 0)
        })
    };
    let count = stressors.iter().filter(busy).count();
    assert_eq!(count, stressors.len(), "a stressor was idle\n{said}");
    assert!(!said.contains("fail:"), "{said}");
    Outcome::whole(count as u64)
}

#[test]
fn stress_ng() {
    let stressors = ["malloc", "vm", "fork", "mmap"];
    Suite::new("stress-ng", QUICK).run(|place| stress(place, 4, &stressors));
}

#[test]
#[ignore = "long: two minutes for each configuration"]
fn stress_ng_long() {
    // Not brk: it writes below the first break, where nothing is unless malloc moves the break
    // (its children die under mimalloc and jemalloc as well). Not tmpfs, which wants one with space, nor
    // exec, which does nothing as root.
    let stressors = [
        "malloc",
        "vm",
        "fork",
        "mmap",
        "vfork",
        "clone",
        "daemon",
        "tree",
        "bsearch",
        "qsort",
        "list",
        "hash",
        "zlib",
        "stack",
        "bad-altstack",
        "sigsegv",
        "pthread",
        "mremap",
        "madvise",
        "remap",
        "vm-splice",
        "zombie",
    ];
    Suite::new("stress-ng", LONG).run(|place| stress(place, 120, &stressors));
}

/// A program that checks itself and ends with "N checks"; all else it prints must be its last run's.
#[track_caller]
fn checked(name: &'static str, limit: Duration, make: impl Fn(&Place) -> std::process::Command) {
    let first = std::cell::RefCell::new(None::<String>);
    Suite::new(name, limit).run(|place| {
        let said = place.output(make(place));
        let checks = said.lines().last().and_then(|l| l.strip_suffix(" checks"));
        let checks = checks.and_then(|n| n.parse().ok());
        let mut first = first.borrow_mut();
        match first.as_ref() {
            None => *first = Some(said.clone()),
            Some(plain) => assert_eq!(&said, plain, "other output than plainly"),
        }
        Outcome::whole(checks.unwrap_or_else(|| panic!("no count of checks:\n{said}")))
    });
}

#[track_caller]
fn jvm(limit: Duration, collector: &'static str, scale: &'static str) {
    need("javac", "openjdk-17-jdk-headless");
    checked("java", limit, |_| {
        let mut cmd = program(need("java", "openjdk-17-jdk-headless"));
        cmd.args(["-Xmx96m", "-Xms16m", collector])
            .arg(script("Gc.java"))
            .arg(scale);
        cmd
    });
}

#[test]
fn jvm_collects() {
    jvm(QUICK, "-XX:+UseG1GC", "1");
}

#[test]
#[ignore = "long: three collectors, twenty times the work"]
fn jvm_collects_long() {
    for collector in ["-XX:+UseG1GC", "-XX:+UseParallelGC", "-XX:+UseZGC"] {
        jvm(LONG, collector, "20");
    }
}

#[track_caller]
fn node(limit: Duration, scale: &'static str) {
    checked("node", limit, |_| {
        let mut cmd = program(need("node", "nodejs"));
        cmd.arg("--max-old-space-size=128")
            .arg(script("gc.js"))
            .arg(scale);
        cmd
    });
}

#[test]
fn node_collects() {
    node(QUICK, "1");
}

#[test]
#[ignore = "long: twenty times the work"]
fn node_collects_long() {
    node(LONG, "20");
}

/// With as many threads as git likes, unlike the comparison byte by byte.
#[test]
fn git_repository() {
    need("git", "git");
    checked("git", QUICK, |_| {
        let mut cmd = program("/bin/sh");
        cmd.arg(script("git.sh")).arg(env!("CARGO_MANIFEST_DIR"));
        cmd
    });
}

#[test]
fn rustc_version() {
    Suite::new("rustc", QUICK).run(|place| {
        let mut cmd = program("rustc");
        rust_homes(&mut cmd);
        let version = place.output({
            cmd.arg("-vV");
            cmd
        });
        assert!(version.starts_with("rustc 1."), "{version}");
        let source = "fn main() { let v: Vec<u64> = (1..=9).collect(); \
                      println!(\"{}\", v.iter().sum::<u64>()); }";
        std::fs::write(place.dir.join("sum.rs"), source).unwrap();
        let mut cmd = program("rustc");
        rust_homes(&mut cmd);
        cmd.args(["-O", "sum.rs"]);
        place.output(cmd);
        assert_eq!(place.output(program(place.dir.join("sum"))), "45\n");
        Outcome::whole(3)
    });
}

/// Where rustup and cargo keep what they have, HOME being another here.
fn rust_homes(cmd: &mut std::process::Command) {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    for (name, default) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let value = std::env::var_os(name).map(PathBuf::from);
        cmd.env(name, value.unwrap_or_else(|| home.join(default)));
    }
}

#[test]
#[ignore = "long: a release build under each configuration"]
fn cargo_build() {
    Suite::new("cargo build", LONG).run(|place| {
        let mut cmd = program("cargo");
        rust_homes(&mut cmd);
        cmd.args([
            "build",
            "--offline",
            "--locked",
            "--features",
            "preload,cli",
        ]);
        cmd.arg("--manifest-path")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        cmd.env("CARGO_TARGET_DIR", place.dir.join("target"))
            .arg("--release");
        place.output(cmd);
        let built = place.dir.join("target/release");
        let mut version = program(built.join("tierheap"));
        version.arg("--version");
        assert!(place.output(version).starts_with("tierheap "));
        // A library that was compiled wrongly would not carry a program.
        let mut cmd = program("/bin/sh");
        cmd.args([
            "-c",
            "LD_PRELOAD=target/release/libtierheap.so ls -l target/release",
        ]);
        assert!(place.output(cmd).contains("libtierheap.so"));
        Outcome::whole(2)
    });
}
