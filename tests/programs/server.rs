//! Servers under test: started, watched, ended by their own id; and the reports that the library
//! leaves when a process exits.
// Two test programs share this file; neither uses all of it.
#![allow(dead_code)]

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Fails, naming the package to install, unless `program` can be found.
#[track_caller]
pub fn need(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/usr/sbin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|p| p.is_file())
        .unwrap_or_else(|| panic!("{program} is missing: apt-get install {package}"))
}

/// A place on the disk for `file:` tiers and dumps: the system's folder for temporary files is
/// often a tmpfs, and the whole point of these is to be files.
pub fn disk(name: &str) -> tempfile::TempDir {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(dir).unwrap();
    tempfile::Builder::new()
        .prefix(name)
        .tempdir_in(dir.canonicalize().unwrap())
        .unwrap()
}

pub struct Server {
    child: Child,
    what: String,
    out: PathBuf,
    err: PathBuf,
}

impl Server {
    /// Starts `cmd` in a process group of its own, its output going to files in `dir`.
    #[track_caller]
    pub fn start(what: &str, mut cmd: Command, dir: &Path) -> Server {
        let out = dir.join("stdout");
        let err = dir.join("stderr");
        // SAFETY: between fork and exec it makes one system call. A test program that is killed
        // takes its servers with it.
        unsafe {
            cmd.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = cmd
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("{what}: cannot start {cmd:?}: {e}"));
        Server {
            child,
            what: what.to_string(),
            out,
            err,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.err).unwrap_or_default()).into_owned()
    }

    /// The end of what it said, for a failure's message.
    pub fn said(&self) -> String {
        let out = std::fs::read(&self.out).unwrap_or_default();
        let out = String::from_utf8_lossy(&out).into_owned();
        let lines: Vec<&str> = out.lines().collect();
        let tail = lines[lines.len().saturating_sub(60)..].join("\n");
        format!("--- stdout (end)\n{tail}\n--- stderr\n{}", self.stderr())
    }

    /// Calls `attempt` until it gives something, the server dies, or `limit` is over.
    #[track_caller]
    pub fn wait_for<T>(&mut self, limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(t) = attempt() {
                return t;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!(
                    "{}: ended at once with {status:?}\n{}",
                    self.what,
                    self.said()
                );
            }
            if start.elapsed() > limit {
                panic!("{}: not ready within {limit:?}\n{}", self.what, self.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Unwraps what a client of this server got; a failure tells what the server said and how it
    /// ended, if it did.
    #[track_caller]
    pub fn ok<T, E: std::fmt::Display>(&mut self, result: Result<T, E>) -> T {
        match result {
            Ok(t) => t,
            Err(e) => {
                std::thread::sleep(Duration::from_millis(300));
                let state = self.child.try_wait().unwrap();
                panic!("{}: {e}; its status: {state:?}\n{}", self.what, self.said())
            }
        }
    }

    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if start.elapsed() > limit {
                panic!(
                    "{}: did not end within {limit:?}\n{}",
                    self.what,
                    self.said()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn terminate(&self) {
        // SAFETY: a signal to a child that has not been waited for, so the id is still its own.
        unsafe { libc::kill(self.pid() as libc::pid_t, libc::SIGTERM) };
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Its children, too: a child that hangs while it saves would stay for ever.
            // SAFETY: a signal to the group of a child that has not been waited for.
            unsafe { libc::kill(-(self.pid() as libc::pid_t), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

/// What one process wrote into the file of `stats=FILE.json`.
#[derive(Debug, Clone)]
pub struct Report(pub serde_json::Value);

impl Report {
    /// A number of a tier, 1 being DRAM; zero where the tier does not exist.
    #[track_caller]
    pub fn tier(&self, tier: u64, field: &str) -> u64 {
        let tiers = self.0["tiers"]
            .as_array()
            .unwrap_or_else(|| panic!("no tiers: {}", self.0));
        let Some(t) = tiers.iter().find(|t| t["tier"] == tier) else {
            return 0;
        };
        t[field]
            .as_u64()
            .unwrap_or_else(|| panic!("tier {tier} has no number {field}: {t}"))
    }

    pub fn number(&self, field: &str) -> u64 {
        self.0[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field}: {}", self.0))
    }

    /// All cold tiers together.
    pub fn cold(&self, field: &str) -> u64 {
        (2..10).map(|t| self.tier(t, field)).sum()
    }
}

/// All reports of a file: processes append one each.
#[track_caller]
pub fn reports(path: &Path) -> Vec<Report> {
    let text = std::fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("no statistics in {}: {e}", path.display()));
    let mut all = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    while let Some(report) = stream.next() {
        match report {
            Ok(r) => all.push(Report(r)),
            Err(e) => {
                let rest: String = text[stream.byte_offset()..].chars().take(600).collect();
                panic!("report {} is not JSON: {e}\n{rest}", all.len() + 1);
            }
        }
    }
    all
}

/// The report of one process.
#[track_caller]
pub fn report_of(path: &Path, pid: u32) -> Report {
    let all = reports(path);
    let mine: Vec<&Report> = all
        .iter()
        .filter(|r| r.number("pid") == u64::from(pid))
        .collect();
    assert_eq!(
        mine.len(),
        1,
        "one report of process {pid} is wanted, in {all:?}"
    );
    mine[0].clone()
}

/// Bytes of a process that lie in files of `dir`, by the kernel's own account.
#[track_caller]
pub fn resident_in(pid: u32, dir: &Path) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let dir = dir.to_str().unwrap();
    let mut inside = false;
    let mut kib = 0;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or("");
        if !first.ends_with(':') {
            inside = line.find('/').is_some_and(|at| line[at..].starts_with(dir));
        } else if inside && first == "Rss:" {
            kib += line
                .split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap();
        }
    }
    kib * 1024
}
