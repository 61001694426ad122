//! System calls that fail: the load of `c-tests/fault_load.c` while strace makes one of the calls
//! that the library lives by fail, always, every other time or now and then. No crash, no hang, every
//! byte right; a request may be refused. What the library says of it, it says once.
//!
//! strace attaches when the program has started, so that it is not the loader's calls that fail.
//!
//! The modules in `faults/` are about surroundings that are hostile from the start, or become so:
//! `c-tests/environment_load.c` lives in them.

#[path = "c_programs/build.rs"]
#[allow(dead_code)]
mod build;
#[path = "faults/cgroup.rs"]
mod cgroup;
mod common;
#[path = "faults/folders.rs"]
mod folders;
#[path = "faults/load.rs"]
mod load;
#[path = "faults/missing.rs"]
mod missing;
#[path = "faults/narrow.rs"]
mod narrow;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(180);

/// Which calls of a kind fail: strace's words.
const WHEN: [&str; 3] = ["1+", "2+2", "3+7"];

/// Whether a forked child may lack memory for the fault: then no child verifies any.
#[derive(Clone, Copy, PartialEq)]
enum Children {
    Verify,
    None,
}
use Children::{None as NoChildren, Verify};

/// A system call, how it fails, and what a fork can do meanwhile.
type Fault = (&'static str, &'static str, Children);

/// Those of all tiers.
const MEMORY: [Fault; 6] = [
    ("mmap", "ENOMEM", NoChildren),
    ("mprotect", "ENOMEM", Verify),
    ("munmap", "ENOMEM", Verify),
    ("mremap", "ENOMEM", Verify),
    ("madvise", "ENOMEM", Verify),
    ("madvise", "EINVAL", Verify),
];

/// Those of file tiers.
const FILES: [Fault; 9] = [
    ("fallocate", "ENOSPC", Verify),
    ("fallocate", "EIO", Verify),
    ("fallocate", "EOPNOTSUPP", Verify),
    ("fallocate", "EINTR", Verify),
    ("ftruncate", "EFBIG", Verify),
    ("ftruncate", "EIO", Verify),
    ("openat", "EMFILE", NoChildren),
    ("memfd_create", "EMFILE", NoChildren),
    ("memfd_create", "EPERM", NoChildren),
];

/// Ends the program and all it has started when dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: a plain system call; the group is the child's own, and the child, not waited for
        // elsewhere, keeps its number from being another's.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:"));
    tracer.is_some_and(|t| t.trim() != "0")
}

/// One run. An error is what went wrong.
fn run(configuration: &str, fault: Fault, when: &str) -> Result<String, String> {
    let (call, error, children) = fault;
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut cmd = build::plain(&build::program("fault_load"));
    if children == Verify {
        cmd.arg("fork");
    }
    cmd.env("LD_PRELOAD", common::library())
        .env("TIERHEAP", configuration)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(said.reopen().unwrap());
    let mut program = Group(cmd.spawn().map_err(|e| e.to_string())?);
    let pid = program.0.id();
    let mut out = BufReader::new(program.0.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).map_err(|e| e.to_string())?;
    if line != "ready\n" {
        return Err(format!("the program began with {line:?}"));
    }
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
    strace.arg(format!("trace={call}")).arg("-e");
    strace.arg(format!("inject={call}:error={error}:when={when}"));
    strace.arg("-p").arg(pid.to_string()).process_group(0);
    let _tracer = Group(
        strace
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("strace: {e}"))?,
    );
    let start = Instant::now();
    while !is_traced(pid) {
        if start.elapsed() > Duration::from_secs(20) {
            return Err("strace did not attach".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut stdin = program.0.stdin.take().unwrap();
    stdin.write_all(b"go\n").map_err(|e| e.to_string())?;
    let status = loop {
        if let Some(status) = program.0.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        if start.elapsed() > LIMIT {
            return Err("it hangs".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut result = String::new();
    out.read_to_string(&mut result).map_err(|e| e.to_string())?;
    let said = std::fs::read_to_string(said.path()).map_err(|e| e.to_string())?;
    if !status.success() || !result.starts_with("verified ") {
        return Err(format!("{status}: {result}{said}"));
    }
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    if lines.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!("a warning was repeated: {said}"));
    }
    Ok(format!("{}{said}", result))
}

/// Each fault under each configuration, in two threads: most of a run is waiting for strace.
fn all(faults: &[Fault], configurations: &[String], whens: &[&str]) {
    build::program("fault_load");
    let mut runs = Vec::new();
    for (i, &fault) in faults.iter().enumerate() {
        for (k, configuration) in configurations.iter().enumerate() {
            let chosen = if whens.is_empty() {
                &WHEN[(i + k) % WHEN.len()..][..1]
            } else {
                whens
            };
            runs.extend(chosen.iter().map(|&when| (fault, configuration, when)));
        }
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(&(fault, configuration, when)) = runs.get(at) else {
                        return;
                    };
                    let (call, error, _) = fault;
                    let name = format!("{call} {error} at {when} under {configuration}");
                    match run(configuration, fault, when) {
                        Ok(result) => println!("{name}: {result}"),
                        Err(why) => failed.lock().unwrap().push(format!("{name}: {why}")),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("{} runs", runs.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn disk(dir: &Path) -> String {
    format!("policy=cold;cold=file:{}", dir.display())
}

/// Small enough that both tiers are in use all the time.
fn mixed(dir: &Path) -> String {
    format!(
        "policy=size;threshold=4K;dram=16M;cold=file:{},limit:48M",
        dir.display()
    )
}

#[test]
fn memory_calls_fail() {
    let dir = build::folder();
    let configurations = ["policy=dram".into(), disk(dir.path())];
    all(&MEMORY, &configurations, &[]);
}

#[test]
fn file_calls_fail() {
    let dir = build::folder();
    let configurations = ["policy=cold;cold=memfd".into(), disk(dir.path())];
    all(&FILES, &configurations, &[]);
}

#[test]
#[ignore = "long: every fault in every way under every kind of tier"]
fn every_call_fails_in_every_way() {
    let dir = build::folder();
    let configurations = [
        "policy=dram".into(),
        "policy=cold;cold=memfd".into(),
        disk(dir.path()),
        mixed(dir.path()),
    ];
    let faults: Vec<Fault> = MEMORY.into_iter().chain(FILES).collect();
    all(&faults, &configurations, &WHEN);
}
