//! A program runs plainly, then under every configuration; what it prints must not differ.

use crate::common;
use crate::server::{disk, reports};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// What can be seen of a run.
#[derive(Clone, PartialEq)]
pub struct Seen {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// A program with all that makes its output the same in every run.
pub fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut cmd = Command::new(path);
    cmd.env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("PYTHONHASHSEED", "0")
        .env("PERL_HASH_SEED", "0");
    cmd
}

/// Runs `work` in an empty folder, always of the same name: first with a command that has no
/// preload, then under every configuration with one that has. `work` gets the folder and a
/// function that turns a command into the one to start.
pub fn everywhere(name: &str, work: impl Fn(&Path, &dyn Fn(&mut Command)) -> Seen) {
    let dir = disk("programs");
    let scratch = dir.path().join("work");
    let tier = dir.path().join("tier");
    std::fs::create_dir(&tier).unwrap();
    let once = |prepare: &dyn Fn(&mut Command)| {
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir(&scratch).unwrap();
        work(&scratch, prepare)
    };
    let plain = once(&|_| {});
    assert!(
        plain.status.success() && plain.stdout.len() + plain.stderr.len() > 0,
        "{name} without the library: {:?}\n{}{}",
        plain.status,
        String::from_utf8_lossy(&plain.stdout),
        String::from_utf8_lossy(&plain.stderr)
    );
    let mut failures = Vec::new();
    for (policy, config) in common::policies(&tier) {
        let stats = dir.path().join(format!("{policy}.json"));
        let config = match config.as_str() {
            "" => String::new(),
            some => format!("{some};stats={}", stats.display()),
        };
        let start = Instant::now();
        let seen = catch_unwind(AssertUnwindSafe(|| {
            once(&|cmd| {
                cmd.env("LD_PRELOAD", common::library());
                if !config.is_empty() {
                    cmd.env("TIERHEAP", &config);
                }
            })
        }));
        let verdict = match seen {
            Err(e) => Err(said(e)),
            Ok(seen) => same(&plain, &seen).and_then(|()| match config.is_empty() {
                true => Ok(String::new()),
                false => catch_unwind(|| tiers(policy, &stats)).unwrap_or_else(|e| Err(said(e))),
            }),
        };
        let took = start.elapsed();
        match verdict {
            Ok(note) => println!("{name} under {policy}: equal, {took:.1?}{note}"),
            Err(e) => {
                println!("{name} under {policy}: FAILED, {took:.1?}");
                failures.push(format!("=== {name} under {policy} ({config})\n{e}"));
            }
        }
    }
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{count} configurations fail\n{}",
        failures.join("\n")
    );
}

pub fn said(e: Box<dyn std::any::Any + Send>) -> String {
    let text = e.downcast_ref::<String>().cloned();
    text.or_else(|| e.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_default()
}

/// A program that runs once and prints.
pub fn prints(name: &str, limit: Duration, make: impl Fn(&Path) -> Command) {
    everywhere(name, |scratch, prepare| {
        let mut cmd = make(scratch);
        cmd.current_dir(scratch);
        prepare(&mut cmd);
        let ran = common::run(&mut cmd, limit);
        Seen {
            status: ran.status,
            stdout: ran.stdout,
            stderr: ran.stderr,
        }
    });
}

/// What differs, with both sides of the first line that does.
fn same(plain: &Seen, seen: &Seen) -> Result<(), String> {
    let mut wrong = Vec::new();
    if plain.status != seen.status {
        let signal = seen
            .status
            .signal()
            .map(|n| format!(" (signal {n})"))
            .unwrap_or_default();
        wrong.push(format!(
            "ended with {:?}{signal}, plain with {:?}",
            seen.status, plain.status
        ));
    }
    for (what, a, b) in [
        ("stdout", &plain.stdout, &seen.stdout),
        ("stderr", &plain.stderr, &seen.stderr),
    ] {
        if a != b {
            let line = a
                .iter()
                .zip(b)
                .take_while(|(x, y)| x == y)
                .filter(|(x, _)| **x == b'\n');
            let n = line.count();
            let show = |all: &[u8]| {
                let line = all.split(|b| *b == b'\n').nth(n).unwrap_or_default();
                String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned()
            };
            wrong.push(format!(
                "{what} differs in line {}: {} bytes instead of {}\n- plain: {}\n- here:  {}",
                n + 1,
                b.len(),
                a.len(),
                show(a),
                show(b)
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let tail = &seen.stderr[seen.stderr.len().saturating_sub(2000)..];
    wrong.push(format!(
        "--- stderr (end)\n{}",
        String::from_utf8_lossy(tail)
    ));
    Err(wrong.join("\n"))
}

/// Equal output could also come from a run without the library, or from one that never used the
/// tiers of its policy: the reports of its processes say.
pub fn tiers(policy: &str, stats: &Path) -> Result<String, String> {
    let reports = reports(stats);
    if reports.is_empty() {
        return Err("no process left a report".to_string());
    }
    let sum = |of: &dyn Fn(&crate::server::Report) -> u64| reports.iter().map(of).sum::<u64>();
    let cold = sum(&|r| r.cold("peak"));
    let (fallbacks, foreign) = (
        sum(&|r| r.number("fallbacks")),
        sum(&|r| r.number("foreign_frees")),
    );
    let note = format!(
        ", {} reports, peaks: DRAM {} KiB, cold {} KiB; {fallbacks} fallbacks, {foreign} foreign",
        reports.len(),
        sum(&|r| r.tier(1, "peak")) >> 10,
        cold >> 10,
    );
    let wanted = policy.split('-').next().unwrap_or(policy);
    if let Some(r) = reports.iter().find(|r| r.0["policy"] != wanted) {
        return Err(format!("a process had another policy: {}", r.0));
    }
    match wanted {
        "dram" if cold > 0 => Err(format!("DRAM only was asked for{note}")),
        "cold" | "size" | "ratio" if cold == 0 => Err(format!("the cold tier was not used{note}")),
        _ => Ok(note),
    }
}
