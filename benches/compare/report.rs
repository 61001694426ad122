//! The tables and the JSON: ratios to the best peer of each workload, and their geometric means.

use crate::rows::Column;
use crate::support::{self, median};
use crate::workloads::{SCALES, Workload};
use serde_json::{Value, json};

/// What the runs of one workload under one allocator gave.
#[derive(Clone, Default)]
pub struct Samples {
    pub cpu: Vec<f64>,
    pub peak_mib: Vec<f64>,
    /// CPU time and time by the clock with one thread and with two.
    pub alone: Vec<(f64, f64)>,
    pub both: Vec<(f64, f64)>,
    pub failure: Option<String>,
}

impl Samples {
    fn figure(&self, values: &[f64]) -> Option<f64> {
        (self.failure.is_none() && !values.is_empty()).then(|| median(values))
    }

    fn cpu(&self) -> Option<f64> {
        self.figure(&self.cpu)
    }

    fn peak(&self) -> Option<f64> {
        self.figure(&self.peak_mib)
    }

    /// Throughput of two threads over that of one, which does half the work: by the clock, and as
    /// it would be if both threads had a processor to themselves all the time.
    fn scaling(&self) -> Option<(f64, f64)> {
        let of = |runs: &[(f64, f64)], clock: bool| {
            let values: Vec<f64> = runs.iter().map(|r| if clock { r.1 } else { r.0 }).collect();
            self.figure(&values)
        };
        let clock = 2.0 * of(&self.alone, true)? / of(&self.both, true)?;
        let cpu = 4.0 * of(&self.alone, false)? / of(&self.both, false)?;
        Some((clock, cpu))
    }
}

/// Figures by workload and allocator, over the best peer's.
fn ratios(figures: &[Vec<Option<f64>>], columns: &[Column]) -> Vec<Vec<Option<f64>>> {
    let over_best = |row: &Vec<Option<f64>>| {
        let peers = row.iter().zip(columns).filter(|(_, c)| c.peer);
        let best = peers.filter_map(|(f, _)| *f).fold(f64::INFINITY, f64::min);
        // Where no peer ran there is nothing to compare with.
        let ratio = |f: &Option<f64>| f.filter(|_| best.is_finite()).map(|f| f / best);
        row.iter().map(ratio).collect()
    };
    figures.iter().map(over_best).collect()
}

/// The geometric mean of a column, and how many workloads are missing from it.
fn mean(ratios: &[Vec<Option<f64>>], column: usize) -> (Option<f64>, usize) {
    let there: Vec<f64> = ratios.iter().filter_map(|row| row[column]).collect();
    let missing = ratios.len() - there.len();
    let sum: f64 = there.iter().map(|r| r.ln()).sum();
    let mean = (!there.is_empty()).then(|| (sum / there.len() as f64).exp());
    (mean, missing)
}

fn short(why: &str) -> String {
    // The whole reason stands under the tables.
    why.split([':', '(', ';'])
        .next()
        .unwrap_or(why)
        .trim()
        .to_string()
}

fn print_table(
    title: &str,
    workloads: &[&Workload],
    columns: &[Column],
    samples: &[Vec<Samples>],
    ratios: &[Vec<Option<f64>>],
) {
    let mut header = vec!["workload".to_string()];
    header.extend(columns.iter().map(|c| c.allocator.name.replace('-', "\n")));
    let mut table = support::table(1, header);
    for ((workload, samples), ratios) in workloads.iter().zip(samples).zip(ratios) {
        let mut cells = vec![workload.name.to_string()];
        cells.extend(
            samples
                .iter()
                .zip(ratios)
                .map(|(s, r)| match (r, &s.failure) {
                    (Some(r), _) => format!("{r:.2}"),
                    (None, Some(why)) => short(why),
                    (None, None) => "-".to_string(),
                }),
        );
        table.add_row(cells);
    }
    let mut last = vec!["geometric mean".to_string()];
    for i in 0..columns.len() {
        last.push(match mean(ratios, i) {
            (None, _) => "-".to_string(),
            (Some(m), 0) => format!("{m:.3}"),
            (Some(m), n) => format!("{m:.3}\nwithout {n}"),
        });
    }
    table.add_row(last);
    println!("{title}\n{table}");
}

fn print_scaling(workloads: &[&Workload], columns: &[Column], samples: &[Vec<Samples>]) {
    let mut table = support::table(2, ["workload", "allocator", "by the clock", "by CPU time"]);
    for (workload, samples) in workloads.iter().zip(samples) {
        for (column, s) in columns.iter().zip(samples) {
            if let Some((clock, cpu)) = s.scaling() {
                let name = column.allocator.name.clone();
                let figures = [clock, cpu].map(|f| format!("{f:.2}"));
                table.add_row([&[workload.name.to_string(), name], &figures[..]].concat());
            }
        }
    }
    if !table.is_empty() {
        println!("Throughput of two threads over that of one\n{table}");
    }
}

/// Prints everything and saves it; false where a figure of tierheap's is missing.
pub fn report(
    rounds: usize,
    workloads: &[&Workload],
    columns: &[Column],
    missing: &[(String, String)],
    samples: &[Vec<Samples>],
) -> bool {
    let all = |f: fn(&Samples) -> Option<f64>| -> Vec<Vec<Option<f64>>> {
        let row = |r: &Vec<Samples>| r.iter().map(f).collect();
        samples.iter().map(row).collect()
    };
    let (cpu, memory) = (all(Samples::cpu), all(Samples::peak));
    let (cpu_ratios, memory_ratios) = (ratios(&cpu, columns), ratios(&memory, columns));
    println!("Ratios to the best peer of each workload; medians of {rounds} interleaved rounds");
    print_table("CPU time", workloads, columns, samples, &cpu_ratios);
    print_table(
        "Peak resident memory",
        workloads,
        columns,
        samples,
        &memory_ratios,
    );
    print_scaling(workloads, columns, samples);
    for (name, why) in missing {
        println!("{name}: {why}");
    }

    let mut well = true;
    let mut rows = Vec::new();
    for (w, workload) in workloads.iter().enumerate() {
        let mut cells = Vec::new();
        for (i, column) in columns.iter().enumerate() {
            let (s, name) = (&samples[w][i], &column.allocator.name);
            if let Some(why) = &s.failure {
                println!("{} under {name}: {why}", workload.name);
                well &= column.peer;
                cells.push(json!({"allocator": name, "failure": why}));
                continue;
            }
            let mut cell = json!({
                "allocator": name, "cpu_seconds": cpu[w][i], "peak_mib": memory[w][i],
                "cpu_ratio": cpu_ratios[w][i], "memory_ratio": memory_ratios[w][i],
                "samples_cpu": s.cpu, "samples_peak": s.peak_mib,
            });
            if let Some((clock, cpu)) = s.scaling() {
                cell["scaling"] = json!({"clock": clock, "cpu": cpu});
            }
            cells.push(cell);
        }
        rows.push(json!({"workload": workload.name, "what": workload.what, "cells": cells}));
    }
    let describe = |(i, column): (usize, &Column)| {
        let ((cpu, without), (memory, _)) = (mean(&cpu_ratios, i), mean(&memory_ratios, i));
        json!({
            "name": column.allocator.name, "peer": column.peer, "version": column.version,
            "cpu_mean": cpu, "memory_mean": memory, "without": without,
        })
    };
    let described: Vec<Value> = columns.iter().enumerate().map(describe).collect();
    support::save(
        "compare",
        &json!({
            "rounds": rounds, "quick": support::quick(), "allocators": described, "rows": rows,
            "missing": missing.iter().map(|(n, w)| json!({"name": n, "why": w})).collect::<Vec<_>>(),
        }),
    );
    well
}

/// Does this workload get a second run with one thread?
pub fn scales(workload: &Workload) -> bool {
    SCALES.contains(&workload.name)
}
