//! Instructions per allocation and free, tierheap beside its peers: `cargo bench --bench instructions`.
//!
//! `pairs.c` runs each pattern N and 2N times under callgrind, each allocator preloaded: the
//! difference over N is free of start-up. The same with functions that do nothing is what the
//! loop and the calls cost; less that is the figure. Where callgrind does not run one of the
//! allocators, all are counted by single-stepping instead (`COUNTER=ptrace` asks for that).
//! `ONLY=pattern` chooses one pattern. `-- --check` counts tierheap alone, by callgrind, and fails where a
//! figure is more than a tenth above what is written here: the guard that the tests run.
//!
//! The counts of `realloc` contain libc's copies, and callgrind counts every byte of a `rep movsb`
//! as one instruction: read them as bytes copied.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use support::{Allocator, fail};

struct Pattern {
    name: &'static str,
    what: &'static str,
    /// Runs of it, a multiple of the least that it can do (the 500 blocks of a batch).
    n: u64,
    least: u64,
    /// The sizes, and what tierheap took when this was last looked at.
    sizes: &'static [(usize, f64)],
}

const fn pattern(
    name: &'static str,
    what: &'static str,
    n: u64,
    sizes: &'static [(usize, f64)],
) -> Pattern {
    Pattern {
        name,
        what,
        n,
        least: 1,
        sizes,
    }
}

const fn batch(name: &'static str, what: &'static str, sizes: &'static [(usize, f64)]) -> Pattern {
    Pattern {
        least: 500,
        ..pattern(name, what, 50_000, sizes)
    }
}

#[rustfmt::skip]
const PATTERNS: &[Pattern] = &[
    pattern("pair", "malloc+free", 20_000, &[
        (16, 40.0), (64, 40.0), (512, 40.0), (4096, 60.0), (32_768, 60.0), (262_144, 60.0),
        (2_097_152, 163.7), (33_554_432, 163.7),
    ]),
    pattern("held", "malloc+free, one more live", 20_000, &[
        (16, 40.0), (64, 40.0), (512, 40.0), (4096, 60.0), (32_768, 60.0),
    ]),
    batch("fifo", "500 malloc, 500 free, first first", &[(64, 43.4)]),
    batch("lifo", "500 malloc, 500 free, last first", &[(64, 43.4)]),
    pattern("random", "1 to size bytes, 1,024 live", 50_000, &[(1024, 42.5)]),
    batch("remote", "500 malloc here, 500 free there", &[(64, 91.2)]),
    pattern("calloc", "calloc+free", 20_000, &[(64, 55.0)]),
    pattern("memalign", "posix_memalign 64+free", 20_000, &[(64, 60.0)]),
    pattern("realloc", "16 bytes, doubled to size, free", 1_000, &[(2048, 815.0), (65_536, 51_778.0)]),
    pattern("operators", "operator new, sized delete", 20_000, &[(32, 40.0)]),
    pattern("usable", "malloc_usable_size", 20_000, &[(64, 11.0)]),
];

/// A pattern with one of its sizes.
#[derive(Clone, Copy)]
struct Row {
    pattern: &'static Pattern,
    size: usize,
    known: f64,
}

fn rows() -> impl Iterator<Item = Row> {
    PATTERNS.iter().flat_map(|pattern| {
        let row = move |&(size, known)| Row {
            pattern,
            size,
            known,
        };
        pattern.sizes.iter().map(row)
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Counter {
    Callgrind,
    Ptrace,
}

impl Counter {
    fn name(self) -> &'static str {
        match self {
            Counter::Callgrind => "callgrind",
            Counter::Ptrace => "single steps (ptrace)",
        }
    }
}

/// The driver, compiled into the benchmarks' folder.
fn compile() -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/pairs.c");
    let driver = support::scratch().join("pairs");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let done = Command::new(&cc)
        .args(["-O2", "-fPIE", "-pie", "-fno-plt", "-pthread", "-o"])
        .args([&driver, &source])
        .args(["-Wl,--no-as-needed", "-lstdc++"])
        .status();
    if !done.is_ok_and(|s| s.success()) {
        fail(format!("cannot compile {} with {cc}", source.display()));
    }
    driver
}

/// Instructions of one run, and where its malloc came from.
fn run(
    driver: &Path,
    counter: Counter,
    allocator: &Allocator,
    calls: &str,
    row: &Row,
    n: u64,
) -> Result<u64, String> {
    let args = [
        calls,
        row.pattern.name,
        &n.to_string(),
        &row.size.to_string(),
    ]
    .map(str::to_string);
    let (count, output) = match counter {
        Counter::Ptrace => {
            let mut cmd = Command::new(driver);
            allocator.apply(cmd.args(&args).arg("mark"));
            support::step::count(&mut cmd).map_err(|e| e.to_string())?
        }
        Counter::Callgrind => {
            let mut cmd = Command::new("timeout");
            cmd.args([
                "120",
                "valgrind",
                "--tool=callgrind",
                "--callgrind-out-file=/dev/null",
            ]);
            cmd.arg(driver).args(&args);
            // glibc's timeout and valgrind's launcher run with the library too: no matter.
            let ran = allocator
                .apply(&mut cmd)
                .output()
                .map_err(|e| e.to_string())?;
            let err = String::from_utf8_lossy(&ran.stderr);
            let last = err.lines().last().unwrap_or_default();
            if !ran.status.success() {
                return Err(format!("{}: {last}", ran.status));
            }
            let count = err.lines().find_map(|l| l.split_once("Collected : "));
            let count = count.and_then(|(_, n)| n.trim().parse().ok());
            let count = count.ok_or_else(|| format!("callgrind gave no count: {last}"))?;
            (count, String::from_utf8_lossy(&ran.stdout).into_owned())
        }
    };
    let from = output
        .lines()
        .find_map(|l| l.strip_prefix("malloc of "))
        .unwrap_or_default();
    match &allocator.preload {
        Some(library) if !support::same_file(library, Path::new(from)) => Err(format!(
            "malloc came from {from:?}, not from {}",
            library.display()
        )),
        _ => Ok(count),
    }
}

/// Instructions for one run of the pattern, all included.
fn gross(
    driver: &Path,
    counter: Counter,
    allocator: &Allocator,
    calls: &str,
    row: &Row,
) -> Result<f64, String> {
    let n = match counter {
        Counter::Callgrind => row.pattern.n,
        // A single step costs up to 50 us in a virtual machine, so that only few can be had:
        // what happens once in a thousand calls may be missing.
        Counter::Ptrace => (row.pattern.n / 400).next_multiple_of(row.pattern.least),
    };
    let once = run(driver, counter, allocator, calls, row, n)?;
    let twice = run(driver, counter, allocator, calls, row, 2 * n)?;
    Ok((twice as f64 - once as f64) / n as f64)
}

type Figures = Vec<(f64, Vec<f64>)>;

/// For each row the overhead and every allocator's gross figure; the first failure ends it.
fn measure(
    driver: &Path,
    counter: Counter,
    rows: &[Row],
    allocators: &[Allocator],
) -> Result<Figures, String> {
    let none = support::glibc();
    rows.iter()
        .map(|row| {
            eprintln!("{} {} ...", row.pattern.name, row.size);
            let overhead = gross(driver, counter, &none, "empty", row)?;
            let each = allocators.iter().map(|a| {
                gross(driver, counter, a, "real", row).map_err(|e| {
                    format!(
                        "{}, {} of {} bytes: {e}",
                        a.name, row.pattern.name, row.size
                    )
                })
            });
            Ok((overhead, each.collect::<Result<_, String>>()?))
        })
        .collect()
}

/// Tierheap's figures against the known ones.
fn check() {
    let dram: Vec<Allocator> = support::tierheap().into_iter().collect();
    let rows: Vec<Row> = rows().collect();
    let figures = measure(&compile(), Counter::Callgrind, &rows, &dram).unwrap_or_else(|e| fail(e));
    let mut above = Vec::new();
    for (row, (overhead, gross)) in rows.iter().zip(&figures) {
        let net = gross.first().map_or(f64::NAN, |g| g - overhead);
        println!(
            "{} {}: {net:.1}, known {}",
            row.pattern.name, row.size, row.known
        );
        let within = net <= row.known * 1.1;
        if !within {
            above.push(format!("{} {}", row.pattern.name, row.size));
        }
    }
    if !above.is_empty() {
        fail(format!(
            "more instructions than known: {}",
            above.join(", ")
        ));
    }
}

fn main() {
    support::only_under_cargo_bench();
    support::needs("valgrind", "valgrind");
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--check"] => return check(),
        _ => fail("usage: cargo bench --bench instructions [-- --check]"),
    }
    let mut allocators = vec![support::glibc(), support::jemalloc(), support::mimalloc()];
    if !support::quick() {
        allocators.push(support::tcmalloc());
    }
    allocators.extend(support::tierheap());
    let only = std::env::var("ONLY").ok();
    let rows: Vec<Row> = rows()
        .filter(|r| match &only {
            Some(pattern) => r.pattern.name == pattern,
            None => !support::quick() || r.pattern.name == "pair",
        })
        .collect();
    let driver = compile();

    let asked = std::env::var("COUNTER").is_ok_and(|c| c == "ptrace");
    let mut counter = if asked {
        Counter::Ptrace
    } else {
        Counter::Callgrind
    };
    let mut figures = measure(&driver, counter, &rows, &allocators);
    if let (Counter::Callgrind, Err(why)) = (counter, &figures) {
        println!("callgrind does not run them all ({why}): counting single steps for all");
        counter = Counter::Ptrace;
        figures = measure(&driver, counter, &rows, &allocators);
    }
    let figures = figures.unwrap_or_else(|e| fail(e));

    let mut header = vec!["pattern".to_string(), "size".to_string()];
    header.extend(allocators.iter().map(|a| a.name.clone()));
    header.extend(["overhead".to_string()]);
    let mut table = support::table(1, header);
    let mut results = Vec::new();
    for (row, (overhead, gross)) in rows.iter().zip(&figures) {
        let net: Vec<f64> = gross.iter().map(|g| g - overhead).collect();
        let mut cells = vec![row.pattern.what.to_string(), row.size.to_string()];
        cells.extend(net.iter().map(|n| format!("{n:.1}")));
        cells.push(format!("{overhead:.1}"));
        table.add_row(cells);
        let by_name = |values: &[f64]| -> Value {
            allocators
                .iter()
                .zip(values)
                .map(|(a, v)| (a.name.clone(), json!(v)))
                .collect()
        };
        results.push(json!({
            "pattern": row.pattern.name, "size": row.size, "what": row.pattern.what, "overhead": overhead,
            "net": by_name(&net), "gross": by_name(gross),
        }));
    }
    println!(
        "Instructions by {}, less the overhead of loop, call and return",
        counter.name()
    );
    println!("{table}");
    support::save(
        "instructions",
        &json!({ "counter": counter.name(), "rows": results }),
    );
}
