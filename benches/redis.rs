//! Redis under each allocator, SET and GET of large values: `cargo bench --bench redis`.
//!
//! Every round starts a fresh server for each row in turn, so that what else the machine does
//! falls on all of them alike. Throughput is what redis-benchmark reports, CPU is the server's user
//! and system time for one request; both are medians over the rounds.
//!
//! The rows: Debian's redis-server is linked to jemalloc, so "plain" *is* jemalloc 5.3, and
//! "jemalloc" (the same library, preloaded) shows how much two equal rows differ by chance.
//! "glibc" is libc.so.6 preloaded, whose malloc is then found first. "memtier dram" and "memtier
//! cold" are memkind's libmemtier, all in DRAM and one part in four there, the rest in a file.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use support::redis::Redis;
use support::{Allocator, fail, median};

const ROUNDS: usize = 5;

struct Load {
    name: &'static str,
    test: &'static str,
    bytes: usize,
    requests: usize,
}

/// A keyspace of 10,000 and 1,000 keys: about 100 MB of values each, far more than the caches.
const LOADS: &[Load] = &[
    Load {
        name: "SET 10K",
        test: "set",
        bytes: 10 << 10,
        requests: 60_000,
    },
    Load {
        name: "GET 10K",
        test: "get",
        bytes: 10 << 10,
        requests: 60_000,
    },
    Load {
        name: "SET 100K",
        test: "set",
        bytes: 100 << 10,
        requests: 12_000,
    },
    Load {
        name: "GET 100K",
        test: "get",
        bytes: 100 << 10,
        requests: 12_000,
    },
];

impl Load {
    fn keys(&self) -> usize {
        (100 << 20) / self.bytes
    }
}

#[derive(Default, Clone)]
struct Samples {
    per_second: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Samples {
    fn medians(&self) -> (f64, f64) {
        (median(&self.per_second), median(&self.cpu_us))
    }
}

fn rows(dir: &Path) -> Vec<Allocator> {
    let plain = Allocator::new("plain (jemalloc)", None);
    let mut jemalloc = support::jemalloc();
    jemalloc.name = "jemalloc preloaded".to_string();
    let mut rows = vec![plain, jemalloc];
    if !support::quick() {
        let libc = support::installed("libc.so.6", "libc6");
        rows.push(Allocator::new("glibc", Some(libc)));
    }
    if let Some(tierheap) = support::tierheap() {
        rows.push(tierheap.with("tierheap dram", "TIERHEAP", "policy=dram"));
        let cold = "cold=memfd;policy=size;threshold=4K";
        rows.push(tierheap.with("tierheap cold memfd", "TIERHEAP", cold));
    }
    let memtier = support::installed("libmemtier.so.0", "libmemkind0");
    let memtier = Allocator::new("memtier", Some(memtier));
    let key = "MEMKIND_MEM_TIERS";
    let all = "KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO";
    rows.push(memtier.with("memtier dram", key, all));
    let cold = format!(
        "KIND:DRAM,RATIO:1;KIND:FS_DAX,PATH:{},RATIO:3;POLICY:STATIC_RATIO",
        dir.display()
    );
    rows.push(memtier.with("memtier cold", key, cold));
    rows
}

/// One load on a running server: requests a second, and CPU for one request in microseconds.
fn measure(redis: &Redis, load: &Load, requests: usize) -> Result<(f64, f64), String> {
    let cpu = || support::cpu_seconds(redis.pid()).ok_or("the server is gone".to_string());
    let before = cpu()?;
    let ran = Command::new("timeout")
        .args([
            "120",
            "redis-benchmark",
            "--csv",
            "-h",
            "127.0.0.1",
            "-c",
            "20",
        ])
        .args([
            "-p",
            &redis.port.to_string(),
            "-t",
            load.test,
            "-d",
            &load.bytes.to_string(),
        ])
        .args(["-n", &requests.to_string(), "-r", &load.keys().to_string()])
        .output()
        .unwrap_or_else(|e| fail(format!("cannot run redis-benchmark: {e}")));
    let used = cpu()? - before;
    // "SET","12345.67",... under a line of headings.
    let out = String::from_utf8_lossy(&ran.stdout);
    let rate = out
        .lines()
        .find(|l| l.to_lowercase().starts_with(&format!("\"{}\"", load.test)))
        .and_then(|l| l.split(',').nth(1))
        .and_then(|f| f.trim_matches('"').parse::<f64>().ok());
    match rate {
        Some(rate) if ran.status.success() => Ok((rate, used * 1e6 / requests as f64)),
        _ => Err(format!(
            "redis-benchmark: {} {out}",
            String::from_utf8_lossy(&ran.stderr)
        )),
    }
}

/// Every key set once, so that GET finds values and SET replaces some. Each value is read back.
fn fill(redis: &Redis, load: &Load) -> Result<(), String> {
    let mut client = redis.connect()?;
    let value = |key: usize| vec![b'a' + (key % 26) as u8; load.bytes];
    for key in 0..load.keys() {
        // redis-benchmark's own names.
        let name = format!("key:{key:012}");
        client.call(&[b"SET", name.as_bytes(), &value(key)])?;
    }
    for key in 0..load.keys() {
        let name = format!("key:{key:012}");
        if client.call(&[b"GET", name.as_bytes()])? != Some(value(key)) {
            return Err(format!("{name} has lost its value"));
        }
    }
    Ok(())
}

/// All loads on a fresh server.
fn round(row: &Allocator, dir: &Path, scale: usize) -> Result<Vec<(f64, f64)>, String> {
    let mut redis = Redis::start(row, dir)?;
    let mut results = Vec::new();
    for load in LOADS {
        let one = if load.test == "set" {
            fill(&redis, load)
        } else {
            Ok(())
        }
        .and_then(|()| measure(&redis, load, load.requests / scale));
        match one {
            Ok(figures) => results.push(figures),
            Err(e) => return Err(format!("{}: {}", load.name, redis.why(e))),
        }
    }
    redis.shut_down()?;
    Ok(results)
}

fn main() {
    support::only_under_cargo_bench();
    support::needs("redis-server", "redis-server");
    support::needs("redis-benchmark", "redis-tools");
    let dir = tempfile::tempdir_in(support::scratch()).unwrap_or_else(|e| fail(e));
    let rows = rows(dir.path());
    let (rounds, scale) = if support::quick() {
        (1, 6)
    } else {
        (ROUNDS, 1)
    };

    let mut samples = vec![vec![Samples::default(); LOADS.len()]; rows.len()];
    let mut failures: Vec<Option<String>> = vec![None; rows.len()];
    for n in 1..=rounds {
        for (i, row) in rows.iter().enumerate() {
            if failures[i].is_some() {
                continue;
            }
            eprintln!("round {n} of {rounds}: {}", row.name);
            match round(row, dir.path(), scale) {
                Ok(figures) => {
                    for (s, (rate, cpu)) in samples[i].iter_mut().zip(figures) {
                        s.per_second.push(rate);
                        s.cpu_us.push(cpu);
                    }
                }
                Err(why) => failures[i] = Some(why),
            }
        }
    }

    let header = [
        "load",
        "allocator",
        "requests/s",
        "of plain",
        "CPU µs",
        "of plain",
    ];
    let mut table = support::table(2, header);
    let mut results = Vec::new();
    for (l, load) in LOADS.iter().enumerate() {
        let (plain_rate, plain_cpu) = samples[0][l].medians();
        for (i, row) in rows
            .iter()
            .enumerate()
            .filter(|(i, _)| failures[*i].is_none())
        {
            let own = &samples[i][l];
            let (rate, cpu) = own.medians();
            let (rate_ratio, cpu_ratio) = (rate / plain_rate, cpu / plain_cpu);
            table.add_row([
                load.name.to_string(),
                row.name.clone(),
                format!("{rate:.0}"),
                format!("{rate_ratio:.2}"),
                format!("{cpu:.1}"),
                format!("{cpu_ratio:.2}"),
            ]);
            results.push(json!({
                "load": load.name, "allocator": row.name, "per_second": rate,
                "of_plain": rate_ratio, "cpu_us": cpu, "cpu_of_plain": cpu_ratio,
                "samples_per_second": own.per_second, "samples_cpu_us": own.cpu_us,
            }));
        }
    }
    println!("Redis, medians of {rounds} interleaved rounds; CPU: of the server, for one request");
    println!("{table}");
    for (row, why) in rows.iter().zip(&failures) {
        if let Some(why) = why {
            println!("{} fails: {why}", row.name);
        }
    }
    let failed: Value = rows
        .iter()
        .zip(&failures)
        .filter_map(|(row, why)| why.as_ref().map(|w| (row.name.clone(), json!(w))))
        .collect();
    support::save(
        "redis",
        &json!({ "rounds": rounds, "rows": results, "failures": failed }),
    );
    if failures
        .iter()
        .zip(&rows)
        .any(|(f, r)| f.is_some() && !r.name.starts_with("memtier"))
    {
        fail("a row other than memtier's failed");
    }
}
