//! Redis's own tests, from Debian's source package, with Debian's server.

use crate::everywhere::program;
use crate::server::need;
use crate::suite::{LONG, Outcome, Place, QUICK, Suite, skipped, tail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where tests/run unpacks the source package.
fn source() -> PathBuf {
    let dir = std::env::var_os("TIERHEAP_REDIS_SOURCE").map(PathBuf::from);
    let dir =
        dir.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/redis-source"));
    assert!(
        dir.join("tests/test_helper.tcl").exists(),
        "{} is missing: apt-get source redis, or let tests/run unpack it",
        dir.display()
    );
    dir
}

fn runtest(place: &Place, args: &[&str]) -> Outcome {
    let copy = Command::new("cp")
        .arg("-r")
        .arg(source().join("tests"))
        .arg(&place.dir)
        .status();
    assert!(copy.unwrap().success(), "cp -r");
    let src = place.dir.join("src");
    std::fs::create_dir(&src).unwrap();
    for (name, package) in [
        ("redis-server", "redis-server"),
        ("redis-cli", "redis-tools"),
        ("redis-benchmark", "redis-tools"),
        ("redis-check-aof", "redis-tools"),
        ("redis-check-rdb", "redis-tools"),
    ] {
        std::os::unix::fs::symlink(need(name, package), src.join(name)).unwrap();
    }
    let mut cmd = program(need("tclsh8.6", "tcl8.6"));
    cmd.args([
        "tests/test_helper.tcl",
        "--clients",
        "2",
        "--timeout",
        "600",
        // A test that throws fails alone; without this the whole run ends there, each time elsewhere.
        "--durable",
    ]);
    // Of the ports below those that the kernel gives away; the tests look for free ones there.
    cmd.args(["--baseport", "21500", "--portcount", "4000"]);
    cmd.args(args);
    let ran = place.run(cmd);
    let out = ran.out();
    let mut outcome = Outcome::whole(0);
    for line in out.lines() {
        if let Some((_, rest)) = line.split_once("[ok]: ") {
            // Behind the name stands how long it took.
            let name = rest.rsplit_once(" (").map_or(rest, |(name, _)| name);
            if !name.is_empty() {
                outcome.ran += 1;
                outcome.names.insert(without_numbers(name));
            }
        } else if let Some((_, rest)) = line
            .split_once("[err]: ")
            .or_else(|| line.split_once("[exception]: "))
        {
            outcome.ran += 1;
            // What it expected and got stands in the line, too, after the file's name.
            let end = rest.find(".tcl").map_or(rest.len(), |at| at + 4);
            outcome.failed.insert(rest[..end].to_string());
            let name = rest[..end].rsplit_once(" in ").map_or("", |(name, _)| name);
            outcome.names.insert(without_numbers(name));
        }
    }
    outcome.said = format!("{}\n{}", tail(&ran.stdout), tail(&ran.stderr));
    let all = out.contains("All tests passed without errors!");
    assert!(
        all == outcome.failed.is_empty() && all == ran.status.success(),
        "{:?}\n{}",
        ran.status,
        outcome.said
    );
    outcome
}

/// "PSYNC2: --- CYCLE 7 ---": as many as there is time for.
fn without_numbers(name: &str) -> String {
    let digit = |c: char| c.is_ascii_digit();
    name.split(digit).filter(|part| !part.is_empty()).collect()
}

/// Of jemalloc, and only where the server says that it has it: what is in use of an arena after a
/// load is less than 1.05 of what was asked for, and more than 1.4 after most of it is deleted.
const FRAGMENTATION: &str = "Active defrag eval scripts";

#[track_caller]
fn redis(name: &'static str, limit: Duration, args: &[&str]) {
    Suite::new(name, limit).run(|place| runtest(place, args));
}

fn single(units: &str) -> Vec<&str> {
    units
        .split_whitespace()
        .flat_map(|u| ["--single", u])
        .collect()
}

#[test]
fn redis_units() {
    let units = "unit/type/incr unit/keyspace unit/bitfield unit/protocol unit/quit unit/auth \
                 unit/multi unit/lazyfree unit/pubsub integration/convert-ziplist-hash-on-load";
    redis("redis units", QUICK, &single(units));
}

/// Some fail plainly, too: in unit/dump and integration/corrupt-dump, whose messages a fix changed,
/// and in integration/replication, which sets what this server does not know.
#[test]
#[ignore = "long: all of Redis's tests, some minutes each"]
fn redis_all() {
    skipped(
        FRAGMENTATION,
        "asserts how much jemalloc's own arenas waste",
    );
    redis("redis", LONG, &["--skiptest", FRAGMENTATION]);
}
