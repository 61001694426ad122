//! What is run: our own C workloads and real programs, with the inputs those need.

use crate::launch::{Cost, Launcher, Program, compile};
use crate::support::redis::Redis;
use crate::support::{self, Allocator, fail};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources of `compare-work`.
const SOURCES: &[&str] = &[
    "main.c",
    "churn.c",
    "exchange.c",
    "sharing.c",
    "large.c",
    "lives.c",
];

pub struct Workload {
    pub name: &'static str,
    pub what: &'static str,
    how: How,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// A subcommand of `compare-work`, and its threads.
    Own(u32),
    Python(&'static str),
    Sqlite,
    Gcc,
    Lua,
    Sort,
    Redis,
}

const fn workload(name: &'static str, how: How, what: &'static str) -> Workload {
    Workload { name, what, how }
}

pub const WORKLOADS: &[Workload] = &[
    workload("churn", How::Own(2), "small objects, replaced at random"),
    workload(
        "larson",
        How::Own(2),
        "threads that hand their live set over",
    ),
    workload(
        "exchange",
        How::Own(2),
        "threads that pass blocks to each other",
    ),
    workload("producer", How::Own(2), "one thread allocates, one frees"),
    workload("share-active", How::Own(2), "false sharing, active"),
    workload("share-passive", How::Own(2), "false sharing, passive"),
    workload(
        "large-first",
        How::Own(2),
        "1 to 32 MiB, first page touched",
    ),
    workload("large-all", How::Own(2), "1 to 32 MiB, all touched"),
    workload("grow", How::Own(1), "growth by realloc"),
    workload("lives", How::Own(1), "short and long lives"),
    workload("visitors", How::Own(2), "threads that come and go"),
    workload("redis", How::Redis, "Redis: SET and GET, the server alone"),
    workload("python", How::Python("pymalloc"), "Python"),
    workload(
        "python-malloc",
        How::Python("malloc"),
        "Python, all by malloc",
    ),
    workload("sqlite", How::Sqlite, "SQLite in memory"),
    workload("gcc", How::Gcc, "gcc -O2 of a generated file"),
    workload("lua", How::Lua, "Lua 5.4"),
    workload("sort", How::Sort, "sort of a generated text, two threads"),
];

/// Of these the throughput of two threads over that of one is reported.
pub const SCALES: &[&str] = &["churn", "larson"];

/// Where the programs and their inputs are.
pub struct Inputs {
    dir: PathBuf,
    work: PathBuf,
    percent: u32,
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (*state ^ *state >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ x >> 29
}

impl Inputs {
    pub fn new(dir: &Path) -> Self {
        let work = dir.join("compare-work");
        compile(&work, SOURCES);
        let percent = if support::quick() { 10 } else { 100 };
        let inputs = Inputs {
            dir: dir.to_path_buf(),
            work,
            percent,
        };
        inputs.write("text", inputs.text());
        inputs.write("source.c", inputs.source());
        let sql = std::fs::read_to_string(script("tests/programs/queries.sql"));
        let sql = sql.unwrap_or_else(|e| fail(format!("queries.sql: {e}")));
        let rows = 300 * percent;
        inputs.write("queries.sql", sql.replace("@ROWS@", &rows.to_string()));
        inputs
    }

    fn write(&self, name: &str, text: String) {
        std::fs::write(self.dir.join(name), text).unwrap_or_else(|e| fail(format!("{name}: {e}")));
    }

    fn text(&self) -> String {
        let (mut state, mut text) = (1, String::new());
        for _ in 0..20_000 * self.percent {
            let x = random(&mut state);
            let _ = writeln!(text, "{:x} {}", x >> (x % 40), x % 1000);
        }
        text
    }

    /// Functions of many shapes: loops, switches, structures, calls among them.
    fn source(&self) -> String {
        let (mut state, mut text) = (2, String::from("struct s { long a, b; double d[8]; };\n"));
        for i in 0..self.percent {
            let mut r = || random(&mut state) % 97 + 2;
            let (a, b, c, d) = (r(), r(), r(), r());
            let _ = writeln!(
                text,
                "long f{i}(struct s *s, long n)\n{{\n    long t = {a};\n    for (long i = 0; i < n; i++) {{\n\
                 \x20       s->d[i % 8] += (double)i * {b}.5 / (t % {c} + 1.0);\n        switch ((i * {b} + t) % 7) {{\n\
                 \x20       case 0: t += s->a * {c}; break;\n        case 1: t ^= s->b >> {sh}; break;\n\
                 \x20       case 2: s->a = t % {d}; break;\n        case 3: s->b -= i; break;\n\
                 \x20       default: t += {call}; break;\n        }}\n    }}\n    return t + (long)s->d[{k}];\n}}",
                sh = a % 31,
                k = d % 8,
                call = if i > 3 {
                    format!("f{}(s, n / {b})", i - 1 - a as u32 % 3)
                } else {
                    "1".to_string()
                },
            );
        }
        text
    }

    fn own(&self, name: &str, threads: u32) -> Program {
        Program {
            path: self.work.clone(),
            args: vec![
                name.into(),
                threads.to_string().into(),
                self.percent.to_string().into(),
            ],
            ..Program::default()
        }
    }

    fn program(&self, path: &str, args: &[&str], idle: &[&str]) -> Program {
        let file = |a: &&str| match a.strip_prefix('@') {
            Some(name) => self.dir.join(name).into_os_string(),
            None => a.into(),
        };
        Program {
            path: path.into(),
            args: args.iter().map(file).collect(),
            env: vec![("LC_ALL", "C".to_string())],
            idle: idle.iter().map(file).collect(),
        }
    }
}

impl Workload {
    pub fn ours(&self) -> bool {
        matches!(self.how, How::Own(_))
    }

    /// The program that must be there, and its Debian package.
    pub fn needs(&self) -> &'static [(&'static str, &'static str)] {
        match self.how {
            How::Own(_) => &[],
            How::Python(_) => &[("/usr/bin/python3", "python3")],
            How::Sqlite => &[("sqlite3", "sqlite3")],
            How::Gcc => &[("gcc", "gcc")],
            How::Lua => &[("lua5.4", "lua5.4")],
            How::Sort => &[("sort", "coreutils")],
            How::Redis => &[
                ("redis-server", "redis-server"),
                ("redis-benchmark", "redis-tools"),
            ],
        }
    }

    pub fn program(&self, inputs: &Inputs) -> Program {
        let scale = (f64::from(inputs.percent) / 100.0 * 0.5).to_string();
        match self.how {
            How::Own(threads) => inputs.own(self.name, threads),
            How::Python(malloc) => {
                let path = script("benches/memory.py");
                let path = path.to_string_lossy();
                // By the path, for python3 may be something else on PATH; no second of idling.
                let mut p = inputs.program("/usr/bin/python3", &[&path, &scale, "0"], &["-c", ""]);
                p.env.push(("PYTHONMALLOC", malloc.to_string()));
                p.env.push(("PYTHONHASHSEED", "0".to_string()));
                p
            }
            How::Sqlite => {
                let read = format!(".read {}", inputs.dir.join("queries.sql").display());
                inputs.program("sqlite3", &[":memory:", &read], &["--version"])
            }
            How::Gcc => inputs.program(
                "gcc",
                &["-O2", "-S", "-o", "-", "@source.c"],
                &["-S", "-x", "c", "/dev/null", "-o", "/dev/null"],
            ),
            How::Lua => {
                let path = script("benches/compare/program.lua");
                let turns = inputs.percent.to_string();
                inputs.program("lua5.4", &[&path.to_string_lossy(), &turns], &["-v"])
            }
            How::Sort => inputs.program(
                "sort",
                &["--parallel=2", "-S", "64M", "@text"],
                &["--version"],
            ),
            How::Redis => inputs.program("redis-server", &[], &["--version"]),
        }
    }

    pub fn run(
        &self,
        inputs: &Inputs,
        launcher: &Launcher,
        row: &Allocator,
    ) -> Result<Cost, String> {
        match self.how {
            How::Redis => redis(inputs, launcher, row),
            _ => launcher.run(&self.program(inputs), row),
        }
    }

    /// With one thread instead of two: the other half of the figure for scaling.
    pub fn run_alone(
        &self,
        inputs: &Inputs,
        launcher: &Launcher,
        row: &Allocator,
    ) -> Result<Cost, String> {
        launcher.run(&inputs.own(self.name, 1), row)
    }
}

/// Debian's redis-server is linked to jemalloc: plain glibc has to be put in front of it.
pub fn for_redis(row: &Allocator) -> Allocator {
    let mut row = row.clone();
    if row.preload.is_none() {
        row.preload = Some(support::installed("libc.so.6", "libc6"));
    }
    row
}

/// The server's cost, from the first request to the last.
fn redis(inputs: &Inputs, launcher: &Launcher, row: &Allocator) -> Result<Cost, String> {
    launcher.touch();
    let mut server = Redis::start(&for_redis(row), &inputs.dir)?;
    let cpu =
        |server: &Redis| support::cpu_seconds(server.pid()).ok_or("the server is gone".to_string());
    let before = cpu(&server)?;
    for (bytes, requests, keys) in [("100", 4_000, 20_000), ("3000", 800, 10_000)] {
        let ran = Command::new("timeout")
            .args([
                "120",
                "redis-benchmark",
                "-q",
                "-h",
                "127.0.0.1",
                "-c",
                "20",
                "-P",
                "16",
            ])
            .args(["-p", &server.port.to_string(), "-t", "set,get", "-d", bytes])
            .args([
                "-n",
                &(requests * inputs.percent).to_string(),
                "-r",
                &keys.to_string(),
            ])
            .env_remove("LD_PRELOAD")
            .output();
        let ran = ran.unwrap_or_else(|e| fail(format!("cannot run redis-benchmark: {e}")));
        if !ran.status.success() {
            return Err(server.why(format!("redis-benchmark: {}", ran.status)));
        }
    }
    let used = cpu(&server).map(|after| after - before);
    let peak = support::status_kib(server.pid(), "VmHWM").ok_or("the server is gone".to_string());
    let (cpu, peak_kib) = match used.and_then(|u| peak.map(|p| (u, p))) {
        Ok(both) => both,
        Err(e) => return Err(server.why(e)),
    };
    server.shut_down()?;
    Ok(Cost {
        cpu,
        peak_mib: peak_kib as f64 / 1024.0,
        seconds: None,
        result: String::new(),
    })
}
