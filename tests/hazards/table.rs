//! All rows against a list of allocators, as a table.

use crate::allocator::{Allocator, Config};
use crate::row::{Check, How, Outcome, Row};
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

/// One run of one check.
struct Run {
    row: usize,
    allocator: usize,
    check: &'static str,
    config: String,
    known: Option<&'static str>,
    outcome: Outcome,
}

pub struct Results<'a> {
    rows: &'a [Row],
    allocators: &'a [Allocator],
    times: usize,
    runs: Vec<Run>,
}

/// Runs all of it, some at a time, and says on stderr how far it is.
pub fn measure<'a>(
    rows: &'a [Row],
    allocators: &'a [Allocator],
    times: usize,
    jobs: usize,
) -> Results<'a> {
    struct Job<'a> {
        row: usize,
        allocator: usize,
        check: &'a Check,
        config: Config,
    }
    let mut work = Vec::new();
    let mut runs = Vec::new();
    for (row, one) in rows.iter().enumerate() {
        for (allocator, under) in allocators.iter().enumerate() {
            for check in one.checks.iter().filter(|c| !c.long) {
                match check.configs(under) {
                    Ok(configs) => work.extend(configs.into_iter().map(|config| Job {
                        row,
                        allocator,
                        check,
                        config,
                    })),
                    Err(reason) => runs.push(Run {
                        row,
                        allocator,
                        check: check.name,
                        config: String::new(),
                        known: None,
                        outcome: Outcome::NotApplicable(reason),
                    }),
                }
            }
        }
    }
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let said = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let send = send.clone();
            scope.spawn(|| {
                let send = send;
                // Relaxed: the counter hands out numbers and publishes nothing.
                while let Some(job) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for _ in 0..times {
                        let allocator = &allocators[job.allocator];
                        let outcome = job.check.run(allocator, &job.config);
                        if let Outcome::Fail(how, _) = &outcome {
                            let _one_line = said.lock().unwrap();
                            let (name, config) = (&allocator.name, &job.config.label);
                            eprintln!("{}: {name}, {config}: {}", job.check.name, how.word());
                        }
                        let run = Run {
                            row: job.row,
                            allocator: job.allocator,
                            check: job.check.name,
                            config: job.config.label.clone(),
                            known: job.check.known,
                            outcome,
                        };
                        send.send(run).unwrap();
                    }
                }
            });
        }
        drop(send);
        runs.extend(receive);
    });
    Results {
        rows,
        allocators,
        times,
        runs,
    }
}

/// What a cell says of its runs.
fn verdict(runs: &[&Run]) -> String {
    let failed: BTreeSet<How> = runs
        .iter()
        .filter_map(|r| match &r.outcome {
            Outcome::Fail(how, _) => Some(*how),
            _ => None,
        })
        .collect();
    match failed.last() {
        Some(_) => {
            let words: Vec<_> = failed.iter().rev().map(|h| h.word()).collect();
            format!("**FAIL**: {}", words.join(", "))
        }
        None if runs.iter().any(|r| r.outcome == Outcome::Pass) => "pass".to_string(),
        None => "n.a.".to_string(),
    }
}

/// The part of a message that says what was wrong.
fn gist(text: &str) -> String {
    // Where on this machine sources and temporary folders lie is nothing to a reader.
    let sources = format!("{}/", crate::build::sources().display());
    let text = text.replace(&sources, "");
    let text = text.replace(env!("CARGO_TARGET_TMPDIR"), "DIR");
    let lines = text.lines().map(str::trim);
    // The command line stands at the end.
    let lines: Vec<&str> = lines
        .filter(|l| !l.is_empty() && !l.starts_with("$ "))
        .collect();
    let says_where = |l: &&&str| [".c:", ".cpp:", ".h:"].iter().any(|e| l.contains(e));
    // A signal alone says little: what the program managed to say stands below it.
    let line = match (lines.iter().find(says_where), &lines[..]) {
        (Some(line), _) => line.to_string(),
        (None, [first, second, ..]) if first.starts_with("signal:") => {
            format!("{first}: {second}")
        }
        (None, lines) => lines.first().unwrap_or(&"").to_string(),
    };
    let mut short: String = line.chars().take(160).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short.replace('|', "\\|")
}

impl Results<'_> {
    fn cell(&self, row: usize, wanted: impl Fn(&Run) -> bool) -> Vec<&Run> {
        let here = self.runs.iter().filter(|r| r.row == row);
        here.filter(|r| wanted(r)).collect()
    }

    /// Rows by allocators.
    fn by_allocator(&self) -> Table {
        let mut header = vec!["#".to_string(), "what fails in the field".to_string()];
        header.extend(
            self.allocators
                .iter()
                .map(|a| format!("{} {}", a.name, a.version)),
        );
        let mut table = markdown(header);
        for (i, row) in self.rows.iter().enumerate() {
            let mut line = vec![row.number.to_string(), row.title.to_string()];
            for allocator in 0..self.allocators.len() {
                line.push(verdict(&self.cell(i, |r| r.allocator == allocator)));
            }
            table.add_row(line);
        }
        let mut line = vec![String::new(), "passed, of those that apply".to_string()];
        for allocator in 0..self.allocators.len() {
            let verdicts: Vec<String> = (0..self.rows.len())
                .map(|i| verdict(&self.cell(i, |r| r.allocator == allocator)))
                .collect();
            let passed = verdicts.iter().filter(|v| *v == "pass").count();
            let apply = verdicts.iter().filter(|v| *v != "n.a.").count();
            line.push(format!("{passed} of {apply}"));
        }
        table.add_row(line);
        table
    }

    /// Rows by the configurations of one allocator.
    fn by_config(&self, allocator: usize) -> Table {
        let configs = &self.allocators[allocator].configs;
        let mut header = vec!["#".to_string()];
        header.extend(configs.iter().map(|c| c.label.clone()));
        header.push("configurations of its own".to_string());
        let mut table = markdown(header);
        for (i, row) in self.rows.iter().enumerate() {
            let mut line = vec![row.number.to_string()];
            for config in configs {
                let cell = self.cell(i, |r| r.allocator == allocator && r.config == config.label);
                line.push(if cell.is_empty() {
                    String::new()
                } else {
                    verdict(&cell)
                });
            }
            let others = self.cell(i, |r| {
                r.allocator == allocator
                    && !r.config.is_empty()
                    && configs.iter().all(|c| c.label != r.config)
            });
            let labels: BTreeSet<&str> = others.iter().map(|r| &*r.config).collect();
            line.push(match labels.is_empty() {
                true => String::new(),
                false => {
                    let labels: Vec<&str> = labels.into_iter().collect();
                    format!("{} ({})", verdict(&others), labels.join(", "))
                }
            });
            table.add_row(line);
        }
        table
    }

    /// For each row that an allocator does not simply pass: which program, where, and why. Those
    /// of whom the same is to be said share a line.
    fn reasons(&self) -> String {
        let mut lines: Vec<(u32, &str, String, Vec<&str>)> = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            for (a, allocator) in self.allocators.iter().enumerate() {
                let cell = self.cell(i, |r| r.allocator == a);
                let word = verdict(&cell);
                let mut checks: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
                for run in cell {
                    checks.entry(run.check).or_default().push(run);
                }
                for (name, runs) in checks {
                    // What one program of several does not apply to matters if none does.
                    let Some(why) = reason(allocator, &runs, word == "n.a.") else {
                        continue;
                    };
                    let mut before = lines.iter_mut();
                    match before.find(|l| l.0 == row.number && l.1 == name && l.2 == why) {
                        Some(line) => line.3.push(&allocator.name),
                        None => lines.push((row.number, name, why, vec![&allocator.name])),
                    }
                }
            }
        }
        let mut text = String::new();
        for (row, check, why, who) in lines {
            writeln!(text, "- {row}, {}, `{check}`: {why}", who.join(", ")).unwrap();
        }
        text
    }

    pub fn markdown(&self, command: &str, system: &str) -> String {
        let mut text = format!(
            "# The hazards table\n\n\
             Forty ways in which preloaded allocators fail in real programs, one or more small programs each \
             (`hazard_*.c` here), run against tierheap and against others. Made by\n\n\
             ```\n{command}\n```\n\n\
             on {system}. Each program ran {} times under each configuration; a row passes when every \
             run of every program of it passed. \"n.a.\": the row says nothing about that allocator. What \
             a program checks stands at its top. Of others less is asked than of tierheap where a row goes \
             beyond the C library's promises.\n\n",
            self.times
        );
        writeln!(text, "{}\n", self.by_allocator()).unwrap();
        for (i, allocator) in self.allocators.iter().enumerate() {
            if allocator.configs.len() < 2 {
                continue;
            }
            writeln!(text, "## {} by configuration\n", allocator.name).unwrap();
            for config in &allocator.configs {
                let set: Vec<String> = config
                    .variables
                    .iter()
                    .map(|(k, v)| format!("`{k}=\"{}\"`", v.replace("{}", "DIR")))
                    .collect();
                let set = if set.is_empty() {
                    "no variable".to_string()
                } else {
                    set.join(" ")
                };
                writeln!(text, "- {}: {set}", config.label).unwrap();
            }
            writeln!(text, "\n{}\n", self.by_config(i)).unwrap();
        }
        text.push_str("## What is behind each cell that is not \"pass\"\n\n");
        text.push_str("By row, allocator and program, with the first message:\n\n");
        text + &self.reasons()
    }

    pub fn json(&self) -> Value {
        let runs: Vec<Value> = self
            .runs
            .iter()
            .map(|r| {
                let (outcome, text) = match &r.outcome {
                    Outcome::Pass => ("pass", ""),
                    Outcome::NotApplicable(why) => ("n.a.", &**why),
                    Outcome::Fail(how, said) => (how.word(), &**said),
                };
                json!({
                    "row": self.rows[r.row].number,
                    "allocator": self.allocators[r.allocator].name,
                    "version": self.allocators[r.allocator].version,
                    "check": r.check,
                    "configuration": r.config,
                    "outcome": outcome,
                    "text": text,
                })
            })
            .collect();
        Value::Array(runs)
    }

    /// Failures of tierheap that are not listed with a reason.
    pub fn unexpected(&self) -> usize {
        let own = |r: &&Run| self.allocators[r.allocator].own && r.known.is_none();
        let failed = |r: &&Run| matches!(r.outcome, Outcome::Fail(..));
        self.runs.iter().filter(own).filter(failed).count()
    }
}

/// What there is to say of a program's runs under one allocator.
fn reason(allocator: &Allocator, runs: &[&Run], not_applicable: bool) -> Option<String> {
    let fails = |r: &&&Run| matches!(r.outcome, Outcome::Fail(..));
    let failed: Vec<&Run> = runs.iter().filter(fails).copied().collect();
    let Some(first) = failed.first() else {
        return match &runs.first()?.outcome {
            Outcome::NotApplicable(why) if not_applicable => Some(format!("n.a.: {}", gist(why))),
            _ => None,
        };
    };
    let Outcome::Fail(_, said) = &first.outcome else {
        return None;
    };
    let mut text = "fails".to_string();
    let wheres: BTreeSet<&str> = failed.iter().map(|r| &*r.config).collect();
    if wheres.len() > 1 || allocator.configs.len() > 1 {
        let wheres: Vec<&str> = wheres.iter().copied().collect();
        write!(text, " under {}", wheres.join(", ")).unwrap();
    }
    // Where it fails at all, does it always?
    let there = runs.iter().filter(|r| wheres.contains(&*r.config)).count();
    if failed.len() < there {
        write!(text, ", in {} of {there} runs there", failed.len()).unwrap();
    }
    write!(text, ": {}", gist(said)).unwrap();
    if let (true, Some(known)) = (allocator.own, first.known) {
        write!(text, ". Known: {known}").unwrap();
    }
    Some(text)
}

fn markdown(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::ASCII_MARKDOWN)
        .set_header(header);
    table
}
