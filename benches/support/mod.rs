//! What the whole-program benchmarks share: the allocators compared, the library under test,
//! medians, tables and results as JSON.
//!
//! `QUICK=1` chooses a short selection. `PEERS_ONLY=1` leaves tierheap out, to look at the
//! benchmark itself. `TIERHEAP_TEST_DIR` names a folder with a built `libtierheap.so`.
#![allow(dead_code)]

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub mod redis;
pub mod step;

/// Ends the benchmark with a message.
pub fn fail(message: impl std::fmt::Display) -> ! {
    eprintln!("error: {message}");
    std::process::exit(1)
}

fn set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| !v.is_empty() && v != "0")
}

pub fn quick() -> bool {
    set("QUICK")
}

/// `cargo bench` passes `--bench`; without it (`cargo test --all-targets`) nothing is measured.
pub fn only_under_cargo_bench() {
    if !std::env::args().any(|a| a == "--bench") {
        println!("not measuring: run by `cargo bench`");
        std::process::exit(0);
    }
}

/// Where a benchmark may write: compiled drivers, data, results.
pub fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// One row of a comparison: a name and what is preloaded how.
#[derive(Clone, Debug)]
pub struct Allocator {
    pub name: String,
    pub preload: Option<PathBuf>,
    pub env: Vec<(&'static str, String)>,
}

impl Allocator {
    pub fn new(name: &str, preload: Option<PathBuf>) -> Self {
        Allocator {
            name: name.to_string(),
            preload,
            env: Vec::new(),
        }
    }

    /// The same library with one variable more, as a row of its own.
    pub fn with(&self, name: &str, key: &'static str, value: impl Into<String>) -> Self {
        let mut new = self.clone();
        new.name = name.to_string();
        new.env.push((key, value.into()));
        new
    }

    /// Sets what this row preloads, and nothing that the caller's environment did.
    pub fn apply<'a>(&self, cmd: &'a mut Command) -> &'a mut Command {
        cmd.env_remove("TIERHEAP")
            .env_remove("LD_PRELOAD")
            .env_remove("MEMKIND_MEM_TIERS");
        if let Some(library) = &self.preload {
            cmd.env("LD_PRELOAD", library);
        }
        cmd.envs(self.env.iter().map(|(k, v)| (k, v)))
    }
}

/// A shared object that the dynamic linker knows, by its soname.
pub fn find_library(soname: &str) -> Option<PathBuf> {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output();
    let listed = listed.unwrap_or_else(|e| fail(format!("cannot run ldconfig: {e}")));
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter(|l| l.split_whitespace().next() == Some(soname))
        .find_map(|l| l.rsplit(" => ").next().map(PathBuf::from))
}

/// The same, or an end with the name of its package.
pub fn installed(soname: &str, package: &str) -> PathBuf {
    find_library(soname)
        .unwrap_or_else(|| fail(format!("no {soname}: install the Debian package {package}")))
}

/// Is there such a program on PATH (or by its path)?
pub fn has_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(program).is_file())
}

/// A program on PATH, or an end with the name of its package.
pub fn needs(program: &str, package: &str) {
    if !has_program(program) {
        fail(format!(
            "no {program} on PATH: install the Debian package {package}"
        ));
    }
}

pub fn glibc() -> Allocator {
    Allocator::new("glibc", None)
}

pub fn jemalloc() -> Allocator {
    Allocator::new(
        "jemalloc",
        Some(installed("libjemalloc.so.2", "libjemalloc2")),
    )
}

pub fn mimalloc() -> Allocator {
    Allocator::new(
        "mimalloc",
        Some(installed("libmimalloc.so.2", "libmimalloc2.0")),
    )
}

pub fn tcmalloc() -> Allocator {
    let library = installed("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4");
    Allocator::new("tcmalloc", Some(library))
}

/// The library of this tree, all in DRAM; none with `PEERS_ONLY`.
///
/// Built here, into a folder of its own: what is measured is this tree, whatever was built with
/// whatever features in `target/release`.
pub fn tierheap() -> Option<Allocator> {
    if set("PEERS_ONLY") {
        return None;
    }
    let dir = match std::env::var_os("TIERHEAP_TEST_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let target = scratch().join("preload");
            let built = Command::new(env!("CARGO"))
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args([
                    "build",
                    "--quiet",
                    "--release",
                    "--lib",
                    "--features",
                    "preload",
                ])
                .arg("--target-dir")
                .arg(&target)
                .status();
            if !built.is_ok_and(|s| s.success()) {
                fail("cannot build libtierheap.so");
            }
            target.join("release")
        }
    };
    let library = dir.join("libtierheap.so");
    if !library.is_file() {
        fail(format!("no {}", library.display()));
    }
    Some(Allocator::new("tierheap", Some(library)))
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// A table with its first columns, of words, to the left and the figures to the right.
pub fn table(words: usize, header: impl IntoIterator<Item = impl ToString>) -> Table {
    let mut t = Table::new();
    t.load_preset(UTF8_FULL_CONDENSED)
        .set_header(header.into_iter().map(|h| h.to_string()));
    for column in t.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    t
}

/// Writes the results where a later run or a script finds them, and says where.
pub fn save(name: &str, results: &Value) {
    let path = scratch().join(format!("{name}.json"));
    let text = format!("{results:#}\n");
    std::fs::write(&path, text).unwrap_or_else(|e| fail(format!("{}: {e}", path.display())));
    println!("results: {}", path.display());
}

/// A figure of `/proc/PID/status` in KiB, such as `VmHWM`.
pub fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find(|l| l.split(':').next() == Some(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Seconds of user and system time that a process has used, all threads together.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the command's name, which may hold blanks: field 3 on; utime and stime are 14 and 15.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // SAFETY: sysconf takes no pointer and has no precondition.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(ticks / hz as f64)
}

/// Does `path` name the same file as `other`? A preloaded library shows by its own path.
pub fn same_file(path: &Path, other: &Path) -> bool {
    matches!((path.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
