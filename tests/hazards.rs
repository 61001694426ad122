//! The hazards suite: the ways in which preloaded allocators fail in real programs, a row each,
//! shown by the programs `c-tests/hazard_*.c`.
//!
//! `cargo test --test hazards` runs them under tierheap, one test for each program and
//! configuration. `cargo test --test hazards -- --allocators all` runs them under every allocator
//! that Debian has and prints a table; `--library PATH` adds any other, and needs no tierheap:
//!
//! ```text
//! cargo test --test hazards -- --allocators glibc --library /usr/lib/libother.so --rows 12,13
//! ```

#[path = "hazards/allocator.rs"]
mod allocator;
#[allow(dead_code)] // the driver of the other C programs uses the rest
#[path = "c_programs/build.rs"]
mod build;
mod common;
#[path = "hazards/drives.rs"]
mod drives;
#[path = "hazards/row.rs"]
mod row;
#[path = "hazards/rows.rs"]
mod rows;
#[path = "../benches/support/mod.rs"]
mod support;
#[path = "hazards/table.rs"]
mod table;

use allocator::{Allocator, Config, NAMES, by_name};
use clap::Parser;
use libtest_mimic::{Completion, Failed, Trial};
use row::{Check, Outcome, Row};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// Runs the hazards under tierheap as tests, or, where allocators are named, as a table.
#[derive(Parser)]
struct Suite {
    /// Allocators for the table: glibc, jemalloc, mimalloc, tcmalloc, tbbmalloc, memtier,
    /// tierheap; peers (all but the last), all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allocators: Vec<String>,
    /// Another allocator for the table, by the path of its shared object
    #[arg(long, value_name = "PATH")]
    library: Vec<PathBuf>,
    /// Only these rows, such as 12,13,20-25
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = range)]
    rows: Vec<(u32, u32)>,
    /// Runs of each program under each configuration of the table
    #[arg(long, value_name = "N", default_value_t = 2)]
    runs: usize,
    /// Programs at a time for the table
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Writes the table there
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Writes every single run there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    test: libtest_mimic::Arguments,
}

fn range(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err("neither a row nor a range of rows".to_string()),
    }
}

fn main() -> ExitCode {
    let arguments = Suite::parse();
    let wanted = |row: &Row| {
        let mut ranges = arguments.rows.iter();
        arguments.rows.is_empty() || ranges.any(|(a, b)| (*a..=*b).contains(&row.number))
    };
    let rows: Vec<Row> = rows::rows().into_iter().filter(wanted).collect();
    match arguments.allocators.is_empty() && arguments.library.is_empty() {
        true => test(&arguments, rows),
        false => tabulate(&arguments, &rows),
    }
}

/// One test for each program and configuration of tierheap; and one under glibc, so that a program
/// that is wrong itself is told from a library that is.
fn test(arguments: &Suite, rows: Vec<Row>) -> ExitCode {
    let own = Arc::new(by_name("tierheap").unwrap());
    let glibc = Arc::new(by_name("glibc").unwrap());
    let mut trials = Vec::new();
    for check in rows.into_iter().flat_map(|row| row.checks) {
        let check = Arc::new(check);
        if !check.beyond_glibc && !check.long && check.configs(&glibc).is_ok() {
            let config = glibc.configs[0].clone();
            trials.push(trial(&check, &glibc, config, "glibc"));
        }
        let mut configs = check.configs(&own).unwrap();
        // A failing that is known, and may be a hang, is looked at once.
        configs.truncate(check.known.map_or(usize::MAX, |_| 1));
        for config in configs {
            let label = config.label.clone();
            trials.push(trial(&check, &own, config, &label));
        }
    }
    libtest_mimic::run(&arguments.test, trials).exit_code()
}

fn trial(check: &Arc<Check>, allocator: &Arc<Allocator>, config: Config, label: &str) -> Trial {
    let (name, long) = (format!("{}::{label}", check.name), check.long);
    let (check, allocator) = (check.clone(), allocator.clone());
    let run = move || match (check.run(&allocator, &config), check.known) {
        (Outcome::Pass, _) => Ok(Completion::Completed),
        (Outcome::NotApplicable(why), _) => Ok(Completion::ignored_with(why)),
        (Outcome::Fail(..), Some(known)) if allocator.own => {
            Ok(Completion::ignored_with(format!("known failing: {known}")))
        }
        (Outcome::Fail(how, text), _) => Err(Failed::from(format!("{}: {text}", how.word()))),
    };
    Trial::ignorable_test(name, run).with_ignored_flag(long)
}

/// All rows under a list of allocators.
fn tabulate(arguments: &Suite, rows: &[Row]) -> ExitCode {
    let mut names: Vec<&str> = Vec::new();
    for name in &arguments.allocators {
        match &**name {
            "all" => names.extend(NAMES),
            "peers" => names.extend(&NAMES[..NAMES.len() - 1]),
            name => names.push(name),
        }
    }
    let mut allocators = Vec::new();
    for name in names {
        let Some(allocator) = by_name(name) else {
            let known = NAMES.join(", ");
            support::fail(format!(
                "no allocator {name}: there are {known}, peers, all"
            ));
        };
        allocators.push(allocator);
    }
    for path in &arguments.library {
        let Ok(path) = path.canonicalize() else {
            support::fail(format!("no library {}", path.display()));
        };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        allocators.push(Allocator::at(&name, path));
    }
    let results = table::measure(rows, &allocators, arguments.runs, arguments.jobs);
    let said: Vec<String> = std::env::args().skip(1).collect();
    let command = format!("cargo test --test hazards -- {}", said.join(" "));
    let text = results.markdown(&command, &system());
    println!("{text}");
    if let Some(path) = &arguments.markdown {
        std::fs::write(path, &text).unwrap_or_else(|e| support::fail(e));
    }
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", results.json());
        std::fs::write(path, text).unwrap_or_else(|e| support::fail(e));
    }
    match results.unexpected() {
        0 => ExitCode::SUCCESS,
        n => {
            eprintln!("error: {n} runs under tierheap failed that are not listed as known");
            ExitCode::FAILURE
        }
    }
}

/// The kernel and the distribution.
fn system() -> String {
    let out = Command::new("uname").args(["-sr"]).output();
    let kernel = out.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string());
    // What follows the three numbers names a builder's own kernel.
    let kernel = kernel.unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or_default().to_string();
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))
        .unwrap_or("Linux")
        .trim_matches('"');
    format!("{name}, {kernel}")
}
