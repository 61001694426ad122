//! Resident memory of whole programs under each allocator: `cargo bench --bench memory`.
//!
//! A Python run (`memory.py`; once with Python's own small-object allocator above malloc, once
//! with every object from malloc) and a Redis run (strings of mixed sizes, a third overwritten,
//! nine tenths deleted). Each gives the peak (VmHWM) and what is left three seconds after most was
//! freed (VmRSS), in MiB, as medians of three runs. Memory of a cold tier counts as resident here,
//! be it a memfd's or a file's.

mod support;

use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::redis::Redis;
use support::{Allocator, fail, median};

const ROUNDS: usize = 3;
/// Replies that may be outstanding: Redis holds them in memory meanwhile.
const PIPELINE: usize = 64;

struct Figures {
    peak_mib: f64,
    end_mib: f64,
    /// What the program computed: equal under every allocator.
    result: String,
}

fn python(row: &Allocator, scale: f64, pymalloc: &str) -> Result<Figures, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/memory.py");
    let mut cmd = Command::new("timeout");
    cmd.args(["300", "/usr/bin/python3"])
        .arg(script)
        .arg(scale.to_string());
    let ran = row
        .apply(&mut cmd)
        .env("PYTHONMALLOC", pymalloc)
        .env("PYTHONHASHSEED", "0")
        .output();
    let ran = ran.map_err(|e| e.to_string())?;
    let out = String::from_utf8_lossy(&ran.stdout);
    let field = |name: &str| {
        out.lines()
            .find_map(|l| l.strip_prefix(name))
            .map(|v| v.trim().to_string())
    };
    let mib = |name: &str| {
        field(name)
            .and_then(|v| v.parse::<f64>().ok())
            .map(|k| k / 1024.0)
    };
    match (field("sum"), mib("VmHWM"), mib("VmRSS")) {
        (Some(result), Some(peak_mib), Some(end_mib)) if ran.status.success() => Ok(Figures {
            peak_mib,
            end_mib,
            result,
        }),
        _ => Err(format!(
            "{}: {}",
            ran.status,
            String::from_utf8_lossy(&ran.stderr)
        )),
    }
}

/// The sizes of values: mostly small, a few large, the same in every run.
fn size(key: usize, turn: usize) -> usize {
    let mut x = (key as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (turn as u64) << 32;
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 32;
    match x % 100 {
        0..70 => 16 + (x >> 8) as usize % 240,
        70..95 => 256 + (x >> 8) as usize % 4096,
        _ => 4096 + (x >> 8) as usize % 40_000,
    }
}

fn redis(row: &Allocator, dir: &Path, scale: f64) -> Result<Figures, String> {
    let mut server = Redis::start(row, dir)?;
    let keys = (200_000.0 * scale) as usize;
    let mut client = server.connect()?;
    let name = |key: usize| format!("key:{key}").into_bytes();
    let mut run = || -> Result<(f64, f64, usize), String> {
        let mut waiting = 0;
        let mut send = |client: &mut support::redis::Client, words: &[&[u8]]| {
            client.send(words)?;
            waiting += 1;
            if waiting == PIPELINE {
                waiting = 0;
                for _ in 0..PIPELINE {
                    client.receive()?;
                }
            }
            Ok::<(), String>(())
        };
        let bytes = vec![b'v'; 64 << 10];
        for turn in 0..4 {
            for key in (0..keys).filter(|k| turn == 0 || k % 3 == turn % 3) {
                send(
                    &mut client,
                    &[b"SET", &name(key), &bytes[..size(key, turn)]],
                )?;
            }
        }
        for key in (0..keys).filter(|k| k % 10 != 7) {
            send(&mut client, &[b"DEL", &name(key)])?;
        }
        for _ in 0..waiting {
            client.receive()?;
        }
        // Still in use, a little.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            client.call(&[b"SET", b"tick", &bytes[..100]])?;
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut left = 0;
        for key in (0..keys).filter(|k| k % 10 == 7) {
            let value = client.call(&[b"GET", &name(key)])?.unwrap_or_default();
            if value.iter().any(|b| *b != b'v') {
                return Err(format!("key {key} has lost its value"));
            }
            left += value.len();
        }
        let kib = |field| support::status_kib(server.pid(), field).map(|k| k as f64 / 1024.0);
        let figures = kib("VmHWM").zip(kib("VmRSS")).ok_or("the server is gone")?;
        Ok((figures.0, figures.1, left))
    };
    match run() {
        Ok((peak_mib, end_mib, left)) => {
            server.shut_down()?;
            Ok(Figures {
                peak_mib,
                end_mib,
                result: left.to_string(),
            })
        }
        Err(e) => Err(server.why(e)),
    }
}

fn main() {
    support::only_under_cargo_bench();
    support::needs("redis-server", "redis-server");
    let dir = tempfile::tempdir_in(support::scratch()).unwrap_or_else(|e| fail(e));
    // Preloaded, so that the server's jemalloc does not come first.
    let libc = support::installed("libc.so.6", "libc6");
    let mut rows = vec![
        Allocator::new("glibc", Some(libc)),
        support::jemalloc(),
        support::mimalloc(),
        support::tcmalloc(),
    ];
    if let Some(tierheap) = support::tierheap() {
        rows.push(tierheap.with("tierheap dram", "TIERHEAP", "policy=dram"));
        let cold = "cold=memfd;policy=size;threshold=4K";
        rows.push(tierheap.with("tierheap cold memfd", "TIERHEAP", cold));
    }
    let (rounds, scale) = if support::quick() {
        (1, 0.2)
    } else {
        (ROUNDS, 1.0)
    };

    type Program<'a> = (
        &'a str,
        Box<dyn Fn(&Allocator) -> Result<Figures, String> + 'a>,
    );
    let programs: Vec<Program> = vec![
        ("Python", Box::new(|row| python(row, scale, "pymalloc"))),
        (
            "Python, all by malloc",
            Box::new(|row| python(row, scale, "malloc")),
        ),
        ("Redis", Box::new(|row| redis(row, dir.path(), scale))),
    ];
    let mut table = support::table(2, ["program", "allocator", "peak MiB", "end MiB"]);
    let mut results = Vec::new();
    let mut failed = false;
    for (program, run) in &programs {
        let mut samples = vec![Vec::new(); rows.len()];
        let mut failures: Vec<Option<String>> = vec![None; rows.len()];
        let mut expected: Option<String> = None;
        for n in 1..=rounds {
            for (i, row) in rows.iter().enumerate() {
                eprintln!("{program}, round {n} of {rounds}: {}", row.name);
                match run(row) {
                    Ok(f) => {
                        let expected = expected.get_or_insert_with(|| f.result.clone());
                        if *expected != f.result {
                            failures[i] = Some(format!("computed {}, not {expected}", f.result));
                        }
                        samples[i].push((f.peak_mib, f.end_mib));
                    }
                    Err(why) => failures[i] = Some(why),
                }
            }
        }
        for ((row, samples), failure) in rows.iter().zip(&samples).zip(&failures) {
            if let Some(why) = failure {
                println!("{program} fails under {}: {why}", row.name);
                table.add_row([program, row.name.as_str(), "fails", ""]);
                results.push(json!({"program": program, "allocator": row.name, "failure": why}));
                failed = true;
                continue;
            }
            let (peaks, ends): (Vec<f64>, Vec<f64>) = samples.iter().copied().unzip();
            let (peak, end) = (median(&peaks), median(&ends));
            let cells = [program.to_string(), row.name.clone()];
            table.add_row(
                cells
                    .into_iter()
                    .chain([peak, end].map(|m| format!("{m:.1}"))),
            );
            results.push(json!({
                "program": program, "allocator": row.name, "peak_mib": peak, "end_mib": end,
                "peaks_mib": peaks, "ends_mib": ends,
            }));
        }
    }
    println!("Resident memory, medians of {rounds}");
    println!("{table}");
    support::save("memory", &json!({ "rounds": rounds, "rows": results }));
    if failed {
        fail("not every run succeeded");
    }
}
