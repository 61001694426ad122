//! What every driver of whole programs shares: where the built library and command are, and
//! how to run a program under it with a bound on its time.
#![allow(dead_code)]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The folder `cargo build --release --features preload,cli` fills, or `TIERHEAP_TEST_DIR`.
fn built(name: &str) -> PathBuf {
    let dir = std::env::var_os("TIERHEAP_TEST_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release"));
    let path = dir.join(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --release --features preload,cli` first",
        path.display()
    );
    path
}

/// The library to preload.
pub fn library() -> PathBuf {
    built("libtierheap.so")
}

/// The command `tierheap`.
pub fn command() -> PathBuf {
    built("tierheap")
}

/// What a finished program left.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Ran {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
    /// Panics with all the program printed unless it ended with status 0.
    #[track_caller]
    pub fn must_succeed(self, what: &str) -> Ran {
        assert!(
            self.status.success(),
            "{what}: {:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            self.out(),
            self.err()
        );
        self
    }
}

/// Ends a child and all it started: each runs in a process group of its own.
fn kill_group(child: u32) {
    // SAFETY: a plain system call; the group is the child's own, made at its start.
    unsafe { libc::kill(-(child as i32), libc::SIGKILL) };
}

/// Why a program left nothing to judge.
#[derive(Debug)]
pub enum Unended {
    /// It did not end in time, and was killed with all it had forked; what it had printed.
    Hung { stdout: Vec<u8>, stderr: Vec<u8> },
    /// It ended, and a child of its held on to the streams.
    LeftBehind { status: ExitStatus, stderr: Vec<u8> },
}

/// Runs `cmd` to its end with no standard input, but not longer than `limit`.
pub fn finish(cmd: &mut Command, limit: Duration) -> Result<Ran, Unended> {
    let mut child = cmd
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {cmd:?}: {e}"));
    let drain = |mut r: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut v = Vec::new();
            let _ = r.read_to_end(&mut v);
            v
        })
    };
    let out = drain(Box::new(child.stdout.take().unwrap()));
    let err = drain(Box::new(child.stderr.take().unwrap()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > limit {
            kill_group(child.id());
            let _ = child.wait();
            let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
            return Err(Unended::Hung { stdout, stderr });
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // A forked child that hangs holds the pipes open beyond its parent's end.
    let ended = Instant::now();
    while !(out.is_finished() && err.is_finished()) && ended.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
    }
    if !(out.is_finished() && err.is_finished()) {
        kill_group(child.id());
        let stderr = err.join().unwrap();
        return Err(Unended::LeftBehind { status, stderr });
    }
    Ok(Ran {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    })
}

/// Runs `cmd` to its end with no standard input; kills it, and what it forked, and panics after
/// `limit`.
#[track_caller]
pub fn run(cmd: &mut Command, limit: Duration) -> Ran {
    match finish(cmd, limit) {
        Ok(ran) => ran,
        Err(Unended::Hung { stdout, stderr }) => panic!(
            "{cmd:?} did not end within {limit:?}\n--- stdout\n{}\n--- stderr\n{}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        ),
        Err(Unended::LeftBehind { status, stderr }) => panic!(
            "{cmd:?} ended with {status:?} and left a process behind\n--- stderr\n{}",
            String::from_utf8_lossy(&stderr)
        ),
    }
}

/// The configurations that every program must pass under, `dir` being a folder for `file:` tiers.
pub fn policies(dir: &Path) -> Vec<(&'static str, String)> {
    let d = dir.display();
    vec![
        ("none", String::new()),
        ("dram", "policy=dram".to_string()),
        (
            "size-file",
            format!("cold=file:{d};policy=size;threshold=4K"),
        ),
        (
            "size-memfd",
            "cold=memfd;policy=size;threshold=1K".to_string(),
        ),
        ("cold-file", format!("cold=file:{d};policy=cold")),
        ("cold-memfd", "cold=memfd;policy=cold".to_string()),
        (
            "ratio-file",
            format!("cold=file:{d};policy=ratio;ratio=1:3"),
        ),
        ("auto-memfd", "cold=memfd;policy=auto;ratio=1:1".to_string()),
        (
            "heat-two",
            format!("cold=memfd,limit:64M;cold=file:{d};policy=heat;dram=64M"),
        ),
    ]
}

/// A command that preloads the library with this configuration.
pub fn preloaded(program: impl AsRef<std::ffi::OsStr>, config: &str) -> Command {
    let mut cmd = Command::new(program);
    cmd.env("LD_PRELOAD", library());
    if config.is_empty() {
        cmd.env_remove("TIERHEAP");
    } else {
        cmd.env("TIERHEAP", config);
    }
    cmd
}
