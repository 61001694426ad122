//! Whole programs under each allocator: `cargo bench --bench compare`.
//!
//! Preloads each allocator in turn over workloads of our own (C, in this folder) and over real
//! programs; reports CPU time and peak resident memory, as ratios to the best peer (every allocator
//! but tierheap) of each workload and as geometric means. In every round each workload runs once
//! under each allocator, the first of them another each time; figures are medians. One that
//! crashes, hangs or computes something else is shown as such and is in no mean; under tierheap it
//! makes the benchmark fail.
//!
//! `WORKLOADS=a,b` and `ALLOCATORS=x,y` select, `ROUNDS=n` (5) and `TIMEOUT=s` (120) bound, `QUICK=1` runs
//! one round of a tenth of the length. An allocator that cannot be had is left out, with the reason.
//! Speed is of use to nobody where others keep the processors busy: CPU time suffers, too.
//!
//! `cargo bench --bench compare -- --plot FILE.json OUT.svg` draws the results that a run has saved.

mod launch;
mod peers;
mod plot;
mod report;
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod workloads;

use launch::{Cost, Launcher};
use report::Samples;
use rows::Column;
use std::path::Path;
use support::fail;
use workloads::{Inputs, WORKLOADS, Workload};

/// The words of a variable, each of which must be known; all that are known where it is not set.
fn selected<'a>(variable: &str, known: &[&'a str]) -> Vec<&'a str> {
    let Ok(words) = std::env::var(variable) else {
        return known.to_vec();
    };
    let find = |w: &str| {
        let found = known.iter().find(|k| **k == w);
        *found.unwrap_or_else(|| {
            fail(format!(
                "{variable}: no {w:?}; there are: {}",
                known.join(", ")
            ))
        })
    };
    let words: Vec<&str> = words.split(',').map(|w| find(w.trim())).collect();
    // In the order of the tables, and once each.
    known
        .iter()
        .copied()
        .filter(|k| words.contains(k))
        .collect()
}

fn number(variable: &str, default: usize) -> usize {
    match std::env::var(variable) {
        Err(_) => default,
        Ok(n) => match n.parse() {
            Ok(n) if n > 0 => n,
            _ => fail(format!("{variable}: {n:?} is no number above 0")),
        },
    }
}

/// Takes a run into account, unless it computed something else than the runs before it.
fn note(
    samples: &mut Samples,
    ran: Result<Cost, String>,
    expected: &mut Option<String>,
) -> Option<Cost> {
    let ran = ran.and_then(|cost| {
        if *expected.get_or_insert_with(|| cost.result.clone()) == cost.result {
            Ok(cost)
        } else {
            Err("computes something else".to_string())
        }
    });
    match ran {
        Ok(cost) => Some(cost),
        Err(why) => {
            samples.failure = Some(why);
            None
        }
    }
}

/// What there is to run; says what is left out.
fn runnable(missing: &mut Vec<(String, String)>) -> Vec<&'static Workload> {
    let names: Vec<&str> = WORKLOADS.iter().map(|w| w.name).collect();
    let wanted = selected("WORKLOADS", &names);
    let mut workloads = Vec::new();
    for workload in WORKLOADS.iter().filter(|w| wanted.contains(&w.name)) {
        let absent = workload.needs().iter().find(|n| !support::has_program(n.0));
        match absent {
            None => workloads.push(workload),
            Some((program, package)) => missing.push((
                workload.name.to_string(),
                format!("no {program}: the Debian package {package} has it"),
            )),
        }
    }
    workloads
}

/// No figure of a program that does not take its malloc from the library.
fn refuse_unused(
    workload: &Workload,
    inputs: &Inputs,
    columns: &[Column],
    samples: &mut [Samples],
) {
    // Our own say themselves, in every run.
    if workload.ours() {
        return;
    }
    for (column, samples) in columns.iter().zip(samples) {
        let row = match workload.name {
            "redis" => workloads::for_redis(&column.allocator),
            _ => column.allocator.clone(),
        };
        if let Err(why) = launch::uses(&workload.program(inputs), &row) {
            samples.failure = Some(format!("not used: {why}"));
        }
    }
}

fn main() {
    support::only_under_cargo_bench();
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--plot", from, to] => return plot::draw(Path::new(from), Path::new(to)),
        _ => fail("usage: cargo bench --bench compare [-- --plot FILE.json OUT.svg]"),
    }
    let mut missing = Vec::new();
    let workloads = runnable(&mut missing);
    let allocators = selected("ALLOCATORS", rows::NAMES);
    let rounds = number("ROUNDS", if support::quick() { 1 } else { 5 });
    let timeout = number("TIMEOUT", 120);
    let dir = tempfile::tempdir_in(support::scratch()).unwrap_or_else(|e| fail(e));
    let target = support::scratch().with_file_name("peers");
    let (columns, absent) = rows::columns(&allocators, &target);
    missing.extend(absent);
    if columns.is_empty() || workloads.is_empty() {
        missing
            .iter()
            .for_each(|(name, why)| println!("{name}: {why}"));
        fail("nothing to compare");
    }
    let launcher = Launcher::new(dir.path(), timeout as u64);
    let inputs = Inputs::new(dir.path());

    let mut samples = vec![vec![Samples::default(); columns.len()]; workloads.len()];
    let mut expected = vec![(None, None); workloads.len()];
    for (workload, samples) in workloads.iter().zip(&mut samples) {
        refuse_unused(workload, &inputs, &columns, samples);
    }
    for round in 0..rounds {
        for (w, workload) in workloads.iter().enumerate() {
            eprintln!("round {} of {rounds}: {}", round + 1, workload.name);
            for turn in 0..columns.len() {
                let i = (turn + round) % columns.len();
                let (s, row) = (&mut samples[w][i], &columns[i].allocator);
                if s.failure.is_some() {
                    continue;
                }
                let ran = workload.run(&inputs, &launcher, row);
                let Some(cost) = note(s, ran, &mut expected[w].0) else {
                    continue;
                };
                s.cpu.push(cost.cpu);
                s.peak_mib.push(cost.peak_mib);
                if report::scales(workload) {
                    s.both.extend(cost.seconds.map(|t| (cost.cpu, t)));
                    let ran = workload.run_alone(&inputs, &launcher, row);
                    if let Some(cost) = note(s, ran, &mut expected[w].1) {
                        s.alone.extend(cost.seconds.map(|t| (cost.cpu, t)));
                    }
                }
            }
        }
    }
    if !report::report(rounds, &workloads, &columns, &missing, &samples) {
        fail("a workload failed under tierheap");
    }
}
