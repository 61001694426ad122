//! Instructions per allocation and free, tierheap beside its peers: `cargo bench --bench instructions`.
//!
//! `pairs.c` runs each pattern N and 2N times under callgrind, each allocator preloaded: the
//! difference over N is free of start-up. The same with functions that do nothing is what the
//! loop and the calls cost; less that is the figure. Where callgrind does not run one of the
//! allocators, all are counted by single-stepping instead (`COUNTER=ptrace` asks for that).

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use support::{Allocator, fail};

struct Row {
    pattern: &'static str,
    size: usize,
    what: &'static str,
    /// Runs of the pattern, a multiple of the 500 blocks of a batch.
    n: u64,
}

const ROWS: &[Row] = &[
    Row {
        pattern: "pair",
        size: 16,
        what: "malloc+free",
        n: 20_000,
    },
    Row {
        pattern: "pair",
        size: 64,
        what: "malloc+free",
        n: 20_000,
    },
    Row {
        pattern: "pair",
        size: 512,
        what: "malloc+free",
        n: 20_000,
    },
    Row {
        pattern: "pair",
        size: 4096,
        what: "malloc+free",
        n: 20_000,
    },
    Row {
        pattern: "pair",
        size: 32768,
        what: "malloc+free",
        n: 20_000,
    },
    Row {
        pattern: "held",
        size: 16,
        what: "malloc+free, one more live",
        n: 20_000,
    },
    Row {
        pattern: "held",
        size: 64,
        what: "malloc+free, one more live",
        n: 20_000,
    },
    Row {
        pattern: "held",
        size: 512,
        what: "malloc+free, one more live",
        n: 20_000,
    },
    Row {
        pattern: "held",
        size: 4096,
        what: "malloc+free, one more live",
        n: 20_000,
    },
    Row {
        pattern: "held",
        size: 32768,
        what: "malloc+free, one more live",
        n: 20_000,
    },
    Row {
        pattern: "fifo",
        size: 64,
        what: "500 malloc, 500 free, first first",
        n: 50_000,
    },
    Row {
        pattern: "lifo",
        size: 64,
        what: "500 malloc, 500 free, last first",
        n: 50_000,
    },
    Row {
        pattern: "random",
        size: 1024,
        what: "1 to size bytes, 1,024 live",
        n: 50_000,
    },
    Row {
        pattern: "remote",
        size: 64,
        what: "500 malloc here, 500 free there",
        n: 50_000,
    },
    Row {
        pattern: "calloc",
        size: 64,
        what: "calloc+free",
        n: 20_000,
    },
    Row {
        pattern: "memalign",
        size: 64,
        what: "posix_memalign 64+free",
        n: 20_000,
    },
    Row {
        pattern: "realloc",
        size: 65536,
        what: "16 bytes, doubled to size, free",
        n: 1_000,
    },
    Row {
        pattern: "usable",
        size: 64,
        what: "malloc_usable_size",
        n: 20_000,
    },
];

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
    let args = [calls, row.pattern, &n.to_string(), &row.size.to_string()].map(str::to_string);
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
    // A single step costs some microseconds, a hundred times callgrind's price.
    let n = if counter == Counter::Ptrace {
        (row.n / 10).max(500)
    } else {
        row.n
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
    rows: &[&Row],
    allocators: &[Allocator],
) -> Result<Figures, String> {
    let none = support::glibc();
    rows.iter()
        .map(|row| {
            eprintln!("{} {} ...", row.pattern, row.size);
            let overhead = gross(driver, counter, &none, "empty", row)?;
            let each = allocators.iter().map(|a| {
                gross(driver, counter, a, "real", row)
                    .map_err(|e| format!("{}, {} of {} bytes: {e}", a.name, row.pattern, row.size))
            });
            Ok((overhead, each.collect::<Result<_, String>>()?))
        })
        .collect()
}

fn main() {
    support::only_under_cargo_bench();
    support::needs("valgrind", "valgrind");
    let mut allocators = vec![support::glibc(), support::jemalloc(), support::mimalloc()];
    if !support::quick() {
        allocators.push(support::tcmalloc());
    }
    allocators.extend(support::tierheap());
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|r| !support::quick() || r.pattern == "pair")
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
    let mut table = support::table(header);
    let mut results = Vec::new();
    for (row, (overhead, gross)) in rows.iter().zip(&figures) {
        let net: Vec<f64> = gross.iter().map(|g| g - overhead).collect();
        let mut cells = vec![row.what.to_string(), row.size.to_string()];
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
            "pattern": row.pattern, "size": row.size, "what": row.what, "overhead": overhead,
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
