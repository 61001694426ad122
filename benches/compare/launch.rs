//! Runs one program under one allocator and says what it cost; looks whether the allocator is used.

use crate::support::{self, Allocator, fail, same_file};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Touched before each run: the host takes freed memory back, and what comes after pays for it.
const TOUCH_MIB: u64 = 400;

/// What is run: a program, its arguments, its own environment.
#[derive(Clone, Default)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(&'static str, String)>,
    /// Arguments with which it starts, does nothing and ends.
    pub idle: Vec<OsString>,
}

/// What a run cost.
#[derive(Clone)]
pub struct Cost {
    pub cpu: f64,
    pub peak_mib: f64,
    /// By the clock, of the work alone; only our own workloads say it.
    pub seconds: Option<f64>,
    /// What no allocator may change.
    pub result: String,
}

pub struct Launcher {
    path: PathBuf,
    dir: PathBuf,
    seconds: u64,
}

impl Launcher {
    pub fn new(dir: &Path, seconds: u64) -> Self {
        let path = dir.join("launch");
        compile(&path, &["launch.c"]);
        Launcher {
            path,
            dir: dir.to_path_buf(),
            seconds,
        }
    }

    pub fn touch(&self) {
        let mib = if support::quick() {
            TOUCH_MIB / 4
        } else {
            TOUCH_MIB
        };
        let _ = Command::new(&self.path)
            .args(["touch", &mib.to_string()])
            .status();
    }

    pub fn run(&self, program: &Program, row: &Allocator) -> Result<Cost, String> {
        self.touch();
        let (out, err) = (self.dir.join("stdout"), self.dir.join("stderr"));
        let mut cmd = Command::new(&self.path);
        cmd.arg(self.seconds.to_string()).arg(&out).arg(&err);
        for (key, value) in row.env.iter().chain(&program.env) {
            cmd.arg(format!("{key}={value}"));
        }
        if let Some(library) = &row.preload {
            cmd.arg(format!("LD_PRELOAD={}", library.display()));
        }
        cmd.arg("--").arg(&program.path).args(&program.args);
        for inherited in ["TIERHEAP", "LD_PRELOAD", "MEMKIND_MEM_TIERS"] {
            cmd.env_remove(inherited);
        }
        let ran = cmd
            .output()
            .unwrap_or_else(|e| fail(format!("cannot run launch: {e}")));
        let line = String::from_utf8_lossy(&ran.stdout).into_owned();
        let n: Vec<i64> = line
            .split_whitespace()
            .filter_map(|w| w.parse().ok())
            .collect();
        let [status, signal, late, user, system, peak_kib] = n[..] else {
            fail(format!(
                "launch: {line} {}",
                String::from_utf8_lossy(&ran.stderr)
            ))
        };
        // Lossy: a sorted text or an assembler file is compared, not understood.
        let read =
            |path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let (out, err) = (read(out), read(err));
        let last = err.lines().last().unwrap_or("it said nothing");
        if late != 0 {
            return Err(format!("hangs ({} s)", self.seconds));
        } else if signal != 0 {
            return Err(format!("signal {signal}: {last}"));
        } else if status != 0 {
            return Err(format!("status {status}: {last}"));
        }
        let word = |name: &str| out.lines().find_map(|l| l.strip_prefix(name));
        if let (Some(found), Some(library)) = (word("malloc "), &row.preload)
            && !same_file(Path::new(found), library)
        {
            return Err(format!("not used: runs on the malloc of {found}"));
        }
        let result = out
            .lines()
            .filter(|l| {
                !["malloc ", "seconds ", "Vm"]
                    .iter()
                    .any(|p| l.starts_with(p))
            })
            .fold(String::new(), |all, l| all + l + "\n");
        Ok(Cost {
            cpu: (user + system) as f64 / 1e6,
            peak_mib: peak_kib as f64 / 1024.0,
            seconds: word("seconds ").and_then(|s| s.parse().ok()),
            result,
        })
    }
}

/// Does every process of the program take malloc from the row's library? The dynamic linker says
/// so. What the linker's other users (the allocator's own libraries) bind is their affair.
pub fn uses(program: &Program, row: &Allocator) -> Result<(), String> {
    let Some(library) = &row.preload else {
        return Ok(());
    };
    let mut cmd = Command::new("timeout");
    cmd.arg("60").arg(&program.path).args(&program.idle);
    row.apply(&mut cmd);
    let ran = cmd
        .env("LD_DEBUG", "bindings")
        .env("LD_BIND_NOW", "1")
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let name = program.path.file_name().unwrap_or_default();
    let mut bound = 0;
    for line in said.lines().filter(|l| l.contains("symbol `malloc'")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|w| *w == "binding") else {
            continue;
        };
        let (Some(from), Some(to)) = (words.get(at + 2), words.get(at + 5)) else {
            continue;
        };
        let program = Path::new(from);
        if same_file(Path::new(to), library) {
            bound += usize::from(program.file_name() == Some(name));
        } else if !from.contains(".so") && from != to {
            // From itself to itself: a program whose own stub for malloc stands for its address
            // everywhere. The stub leads on.
            return Err(format!("{from} takes malloc from {to}"));
        }
    }
    if bound == 0 {
        return Err(format!(
            "{} does not use the library",
            program.path.display()
        ));
    }
    Ok(())
}

/// C sources beside this file, into one program.
pub fn compile(program: &Path, sources: &[&str]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let done = Command::new(&cc)
        // Without -fno-builtin-malloc the compiler may leave out a malloc whose block is only freed.
        .args([
            "-O2",
            "-Wall",
            "-Wextra",
            "-fno-builtin-malloc",
            "-pthread",
            "-o",
        ])
        .arg(program)
        .args(sources.iter().map(|s| dir.join(s)))
        .status();
    if !done.is_ok_and(|s| s.success()) {
        fail(format!("cannot compile {} with {cc}", sources.join(", ")));
    }
}
