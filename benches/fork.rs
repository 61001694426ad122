//! The time of a fork with 1, 4 and 10 GiB in the heap: `cargo bench --bench fork`.
//!
//! One row is glibc's malloc, whose memory is anonymous; the others have the same blocks in
//! tierheap's DRAM, in a memfd and in a file. For each: what fork itself takes in the parent, what
//! it takes until a child that reads a little is gone, and what the first write to each block
//! takes afterwards, in milliseconds. The first fork of a run stands by itself, for it is the one
//! that freezes a file tier; the others are medians. `QUICK=1`: 1 GiB only.
//! `DIR=folder` is where the file tier lies.

mod support;

use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use support::{fail, median, needs, scratch};

const BLOCK: usize = 100 << 10;
const ROUNDS: usize = 6;

fn main() {
    support::only_under_cargo_bench();
    needs("gcc", "gcc");
    let driver = scratch().join("fork_time");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/fork.c");
    let built = Command::new("gcc")
        .args(["-O2", "-o"])
        .arg(&driver)
        .arg(source)
        .status();
    if !built.is_ok_and(|s| s.success()) {
        fail("cannot compile benches/fork.c");
    }
    let dir = std::env::var_os("DIR").map_or_else(scratch, PathBuf::from);
    let Some(ours) = support::tierheap() else {
        fail("nothing to measure without tierheap")
    };
    let file = format!("policy=cold;cold=file:{}", dir.display());
    let rows = [
        support::glibc(),
        ours.with("tierheap dram", "TIERHEAP", "policy=dram"),
        ours.with("tierheap memfd", "TIERHEAP", "policy=cold;cold=memfd"),
        ours.with("tierheap file", "TIERHEAP", file),
    ];
    let sizes: &[f64] = if support::quick() {
        &[1.0]
    } else {
        &[1.0, 4.0, 10.0]
    };
    let mut table = support::table(
        2,
        [
            "GiB",
            "allocator",
            "first fork ms",
            "of glibc",
            "fork ms",
            "of glibc",
            "child ms",
            "writes ms",
        ],
    );
    let mut results = Vec::new();
    for gib in sizes {
        let mut plain = None;
        for row in &rows {
            eprintln!("{gib} GiB, {}", row.name);
            let mut cmd = Command::new("timeout");
            cmd.arg("300").arg(&driver).args([
                gib.to_string(),
                BLOCK.to_string(),
                ROUNDS.to_string(),
            ]);
            let ran = row.apply(&mut cmd).output().unwrap_or_else(|e| fail(e));
            if !ran.status.success() {
                let said = String::from_utf8_lossy(&ran.stderr);
                fail(format!("{}: {}: {said}", row.name, ran.status));
            }
            let text = String::from_utf8_lossy(&ran.stdout);
            let column = |at: usize| -> Vec<f64> {
                let values = text
                    .lines()
                    .filter_map(|l| l.split(' ').nth(at)?.parse().ok());
                values.map(|us: f64| us / 1000.0).collect()
            };
            let forks = column(0);
            let Some((&first, later)) = forks.split_first() else {
                fail(format!("{}: no figures", row.name))
            };
            let (fork, child, writes) = (median(later), median(&column(1)), median(&column(2)));
            let (first_of, of) = *plain.get_or_insert((first, fork));
            table.add_row([
                gib.to_string(),
                row.name.clone(),
                format!("{first:.2}"),
                format!("{:.2}", first / first_of),
                format!("{fork:.2}"),
                format!("{:.2}", fork / of),
                format!("{child:.1}"),
                format!("{writes:.1}"),
            ]);
            results.push(json!({
                "gib": gib, "allocator": row.name, "first_ms": first, "fork_ms": fork, "child_ms": child,
                "writes_ms": writes,
            }));
        }
    }
    println!(
        "Time of fork; after the first, medians of {}\n{table}",
        ROUNDS - 1
    );
    support::save("fork", &json!(results));
}
