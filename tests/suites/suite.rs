//! A suite: a name, what runs it, and how what it says of itself is read.

use crate::common::{self, Ran, Unended};
use crate::everywhere::tiers;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub const QUICK: Duration = Duration::from_secs(180);
pub const LONG: Duration = Duration::from_secs(3600);

/// What a suite says of itself.
pub struct Outcome {
    /// Tests, transactions, stressors: what it counts.
    pub ran: u64,
    /// Their names, where some of them run as often as time allows: then these are compared in
    /// place of the count.
    pub names: BTreeSet<String>,
    /// Those that failed, by a name that is the same in every run.
    pub failed: BTreeSet<String>,
    /// What it said of the failed ones.
    pub said: String,
}

impl Outcome {
    /// Of a run that checks itself as a whole.
    pub fn whole(ran: u64) -> Outcome {
        Outcome {
            ran,
            names: BTreeSet::new(),
            failed: BTreeSet::new(),
            said: String::new(),
        }
    }
}

/// Where a suite runs: an empty folder, and what makes a command run under the configuration.
pub struct Place {
    pub dir: PathBuf,
    preload: Option<(PathBuf, String)>,
    limit: Duration,
    unprivileged: bool,
}

/// Programs that refuse to run as root run as nobody.
const NOBODY: u32 = 65_534;

fn root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}

impl Place {
    pub fn has_cold_tier(&self) -> bool {
        self.preload
            .as_ref()
            .is_some_and(|(_, c)| c.contains("cold="))
    }

    /// Turns a command into one that runs here.
    pub fn prepare(&self, cmd: &mut Command) {
        cmd.current_dir(&self.dir)
            .env("HOME", &self.dir)
            .env("TMPDIR", &self.dir);
        if let Some((library, config)) = &self.preload {
            cmd.env("LD_PRELOAD", library).env("TIERHEAP", config);
        }
        if self.unprivileged && root() {
            cmd.uid(NOBODY).gid(NOBODY);
        }
    }

    /// Runs a command here to its end, whatever its status.
    #[track_caller]
    pub fn run(&self, mut cmd: Command) -> Ran {
        self.prepare(&mut cmd);
        match common::finish(&mut cmd, self.limit) {
            Ok(ran) => ran,
            Err(Unended::Hung { stdout, stderr }) => panic!(
                "{cmd:?} did not end within {:?}\n{}\n{}",
                self.limit,
                tail(&stdout),
                tail(&stderr)
            ),
            Err(Unended::LeftBehind { status, stderr }) => panic!(
                "{cmd:?} ended with {status:?} and left a process behind\n{}",
                tail(&stderr)
            ),
        }
    }

    /// Runs a command here that must succeed; gives what it printed.
    #[track_caller]
    pub fn output(&self, cmd: Command) -> String {
        let what = format!("{cmd:?}");
        let ran = self.run(cmd);
        assert!(
            ran.status.success(),
            "{what}: {:?}\n{}\n{}",
            ran.status,
            tail(&ran.stdout),
            tail(&ran.stderr)
        );
        ran.out()
    }
}

/// Past the test runner's capture: `tests/run` shows such lines again at its end.
pub fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// The end of a long text.
pub fn tail(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[text.len().saturating_sub(4_000)..]).into_owned()
}

/// The number that follows `label`.
#[track_caller]
pub fn number_after(text: &str, label: &str) -> u64 {
    let rest = text.split_once(label).map(|(_, rest)| rest.trim_start());
    let digits = rest.map(|r| r.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
    digits
        .and_then(|d| d.parse().ok())
        .unwrap_or_else(|| panic!("no number after {label:?} in:\n{text}"))
}

pub struct Suite {
    pub name: &'static str,
    pub limit: Duration,
    pub unprivileged: bool,
}

impl Suite {
    pub fn new(name: &'static str, limit: Duration) -> Suite {
        Suite {
            name,
            limit,
            unprivileged: false,
        }
    }

    /// As nobody, should the tests run as root.
    pub fn unprivileged(self) -> Suite {
        Suite {
            unprivileged: true,
            ..self
        }
    }

    /// Runs `work` without the library, then under each configuration, and compares.
    #[track_caller]
    pub fn run(&self, work: impl Fn(&Place) -> Outcome) {
        // Not in the build's folder: nobody might not reach it. The library lies beside.
        let home = tempfile::Builder::new()
            .prefix("tierheap-suite-")
            .tempdir_in("/var/tmp")
            .unwrap();
        let home = home.path();
        let library = home.join("libtierheap.so");
        std::fs::copy(common::library(), &library).unwrap();
        self.give(home);
        let tier = home.join("tier");
        std::fs::create_dir(&tier).unwrap();
        self.give(&tier);
        let once = |preload| {
            let place = Place {
                dir: home.join("work"),
                preload,
                limit: self.limit,
                unprivileged: self.unprivileged,
            };
            let _ = std::fs::remove_dir_all(&place.dir);
            std::fs::create_dir(&place.dir).unwrap();
            self.give(&place.dir);
            let start = Instant::now();
            let outcome = work(&place);
            (outcome, start.elapsed())
        };
        let (plain, took) = once(None);
        println!("{} plainly: {} ran, {took:.1?}", self.name, plain.ran);
        assert!(plain.ran > 0, "{}: nothing ran\n{}", self.name, plain.said);
        if !plain.failed.is_empty() {
            println!("{} fails plainly, too: {:?}", self.name, plain.failed);
        }
        let mut failures = Vec::new();
        for (policy, config) in configurations(&tier) {
            let stats = home.join(format!("{policy}.json"));
            let config = format!("{config};stats={}", stats.display());
            let tried = catch_unwind(AssertUnwindSafe(|| {
                let (outcome, took) = once(Some((library.clone(), config.clone())));
                judge(&plain, &outcome)?;
                let used = tiers(policy, &stats)?;
                Ok::<_, String>(format!("{} ran, {took:.1?}{used}", outcome.ran))
            }));
            match tried.unwrap_or_else(|e| Err(crate::everywhere::said(e))) {
                Ok(note) => println!("{} under {policy}: {note}", self.name),
                Err(e) => {
                    println!("{} under {policy}: FAILED\n{e}", self.name);
                    failures.push(format!("=== {} under {policy} ({config})\n{e}", self.name));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    fn give(&self, path: &Path) {
        if self.unprivileged && root() {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

/// Few: whole suites are long, and every configuration has passed the short programs.
/// With a limit: tests that ask for absurd sizes take nothing plainly, because nothing is written
/// there, while a tier's file takes its room at once and would fill the disk.
fn configurations(dir: &Path) -> Vec<(&'static str, String)> {
    let wanted = ["dram", "size-file", "cold-memfd"];
    let mut all = common::policies(dir);
    all.retain(|(name, _)| wanted.contains(name));
    assert_eq!(all.len(), wanted.len());
    for (_, config) in &mut all {
        *config = config.replacen(";policy", ",limit:8G;policy", 1);
    }
    all
}

fn judge(plain: &Outcome, here: &Outcome) -> Result<(), String> {
    let ours: Vec<&String> = here.failed.difference(&plain.failed).collect();
    if !ours.is_empty() {
        return Err(format!(
            "{} fail that do not without the library: {ours:?}\n{}",
            ours.len(),
            here.said
        ));
    }
    let missing: Vec<&String> = plain.names.difference(&here.names).collect();
    if !missing.is_empty() {
        return Err(format!(
            "{} ran of {}, not these: {missing:?}\n{}",
            here.ran, plain.ran, here.said
        ));
    }
    if plain.names.is_empty() && here.ran != plain.ran {
        return Err(format!(
            "{} ran instead of {}\n{}",
            here.ran, plain.ran, here.said
        ));
    }
    Ok(())
}
