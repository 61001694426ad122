//! Runs `c-tests/environment_load.c` in surroundings of a test's making and holds it to its word: all
//! bytes verified, no crash, no hang, and of each warning that the surroundings give cause for one
//! line a process.

use crate::build;
use crate::common::{self, Ran, Unended};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// What the library says, by the words that tell one warning from another.
pub const MISSING: &str = " cannot be had: ";
pub const FULL: &str = "; other tiers take its place";
pub const LOST: &str = "the program closed the descriptor of a tier's file";

/// The configurations that all surroundings are tried under; `{}` is the tier's folder.
pub const DRAM: &str = "policy=dram";
pub const MEMFD: &str = "policy=cold;cold=memfd";
pub const FILE: &str = "policy=size;threshold=4K;cold=file:{}";

/// A line that the summary of `tests/run` counts, past the capture of a test's output.
pub fn skipped(what: &str, why: &str) {
    let line = format!("SKIPPED {what}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

pub fn is_root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}

/// Whether this process may have mounts of its own; says so where it may not.
pub fn may_mount(what: &str) -> bool {
    let mut cmd = Command::new("unshare");
    cmd.args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]);
    let may = is_root() && common::finish(&mut cmd, LIMIT).is_ok_and(|ran| ran.status.success());
    if !may {
        skipped(what, "needs root and mounts of its own");
    }
    may
}

/// One run of the load.
pub struct Load {
    name: String,
    configuration: Option<String>,
    steps: Vec<String>,
    /// Shell words before the program is executed, in mounts of its own, `$1` being `arguments`' first.
    setup: Option<(String, Vec<OsString>)>,
    root: Option<PathBuf>,
    /// Where another user finds the program and the library.
    copies: Option<PathBuf>,
    user: Option<u32>,
    /// Whether to wait for what the program leaves running.
    until_closed: bool,
    limits: Vec<(libc::__rlimit_resource_t, u64)>,
    must: Vec<&'static str>,
    may: Vec<&'static str>,
    children: Vec<&'static str>,
}

/// What a run that was in order printed.
pub struct Verified {
    /// Requests that were refused.
    pub refused: u64,
    /// The report of `stats=1`, if it was asked for.
    pub report: String,
}

impl Load {
    /// With these steps, parted by blanks.
    pub fn new(name: &str, configuration: &str, steps: &str) -> Load {
        Load {
            name: format!("{name} under {configuration}"),
            configuration: Some(configuration.to_string()),
            ..Load::plain(name, steps)
        }
    }

    /// Under plain glibc: what the library is compared with.
    pub fn plain(name: &str, steps: &str) -> Load {
        Load {
            name: format!("{name} under glibc"),
            configuration: None,
            steps: steps.split_whitespace().map(str::to_string).collect(),
            setup: None,
            root: None,
            copies: None,
            user: None,
            until_closed: false,
            limits: Vec::new(),
            must: Vec::new(),
            may: Vec::new(),
            children: Vec::new(),
        }
    }

    /// In mounts of its own, after these words of a shell; `$1` and on are the arguments.
    pub fn setup<T: Into<OsString>>(
        mut self,
        words: &str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Load {
        let arguments = arguments.into_iter().map(Into::into).collect();
        self.setup = Some((words.to_string(), arguments));
        self
    }

    /// With this folder for its root, where `/load` and `/libtierheap.so` are.
    pub fn root(mut self, root: &Path) -> Load {
        self.root = Some(root.to_path_buf());
        self
    }

    /// As this user, with what `copies_in` put into this folder.
    pub fn user(mut self, user: u32, copies: &Path) -> Load {
        self.user = Some(user);
        self.copies = Some(copies.to_path_buf());
        self
    }

    /// The program goes on in a process that is not its first.
    pub fn until_closed(mut self) -> Load {
        self.until_closed = true;
        self
    }

    pub fn limit(mut self, resource: libc::__rlimit_resource_t, value: u64) -> Load {
        self.limits.push((resource, value));
        self
    }

    /// The program itself is warned of this, once.
    pub fn must_say(mut self, text: &'static str) -> Load {
        self.must.push(text);
        self
    }

    /// It may be, once.
    pub fn may_say(mut self, text: &'static str) -> Load {
        self.may.push(text);
        self
    }

    /// Each forked child may be, once.
    pub fn child_may_say(mut self, text: &'static str) -> Load {
        self.children.push(text);
        self
    }

    fn command(&self, program: &Path) -> Command {
        let mut variables: Vec<OsString> = Vec::new();
        if let Some(configuration) = &self.configuration {
            let mut preload = OsString::from("LD_PRELOAD=");
            match (&self.root, &self.copies) {
                (Some(_), _) => preload.push("/libtierheap.so"),
                (None, Some(copies)) => preload.push(copies.join("libtierheap.so")),
                (None, None) => preload.push(common::library()),
            }
            variables.push(preload);
            variables.push(format!("TIERHEAP={configuration}").into());
            variables.push("EXPECT_TIERHEAP=1".into());
        }
        let mut cmd = match &self.setup {
            Some((words, arguments)) => {
                let count = arguments.len();
                let script = format!("{{ {words}; }} || exit 99; shift {count}; exec env \"$@\"");
                let mut cmd = build::plain(Path::new("unshare"));
                cmd.args(["-m", "sh", "-c", &script, "sh"]).args(arguments);
                cmd
            }
            None if self.until_closed => {
                let mut cmd = build::plain(Path::new("sh"));
                cmd.args(["-c", "all=$(\"$@\") || exit; echo \"$all\"", "sh", "env"]);
                cmd
            }
            None => build::plain(Path::new("env")),
        };
        // `chroot` outside and `env` inside would need both of them in the folder: the program is
        // started at its new root by the loader's rules instead.
        if let Some(root) = &self.root {
            cmd = build::plain(Path::new("/load"));
            for variable in &variables {
                let text = variable.to_str().unwrap();
                let (key, value) = text.split_once('=').unwrap();
                cmd.env(key, value);
            }
            let root = std::ffi::CString::new(root.to_str().unwrap()).unwrap();
            // SAFETY: system calls between fork and exec, on a string made before.
            unsafe {
                cmd.pre_exec(move || {
                    match libc::chroot(root.as_ptr()) + libc::chdir(c"/".as_ptr()) {
                        0 => Ok(()),
                        _ => Err(std::io::Error::last_os_error()),
                    }
                });
            }
        } else {
            let copy = self.copies.as_ref().map(|dir| dir.join("load"));
            cmd.args(&variables).arg(copy.as_deref().unwrap_or(program));
        }
        cmd.args(&self.steps);
        if let Some(user) = self.user {
            cmd.uid(user).gid(user);
        }
        for &(resource, value) in &self.limits {
            let limit = libc::rlimit {
                rlim_cur: value,
                rlim_max: value,
            };
            // SAFETY: one system call between fork and exec.
            unsafe {
                cmd.pre_exec(move || match libc::setrlimit(resource, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
        }
        cmd
    }

    /// Runs it. An error is what went wrong.
    pub fn attempt(&self) -> Result<Verified, String> {
        let program = build::program("environment_load");
        let said = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
        // The children's stderr: the program's descriptor 0.
        let children = std::fs::OpenOptions::new()
            .append(true)
            .read(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(said.path())
            .map_err(|e| e.to_string())?;
        let mut cmd = self.command(&program);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&children);
        // SAFETY: one system call between fork and exec; the descriptor is open until the program
        // has started.
        unsafe {
            cmd.pre_exec(move || match libc::dup2(fd, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let line = build::cmd_line(&cmd);
        let wrong = |why: String| format!("{}: {why}\n    {line}\n", self.name);
        let ran = common::finish(&mut cmd, LIMIT).map_err(|unended| match unended {
            Unended::Hung { stderr, .. } => {
                wrong(format!("it hangs: {}", String::from_utf8_lossy(&stderr)))
            }
            Unended::LeftBehind { stderr, .. } => wrong(format!(
                "it left a process behind: {}",
                String::from_utf8_lossy(&stderr)
            )),
        })?;
        let of_children = std::fs::read_to_string(said.path()).map_err(|e| e.to_string())?;
        self.judge(&ran, &of_children).map_err(|why| {
            wrong(format!(
                "{why}\n{:?}\n{}{}{of_children}",
                ran.status,
                ran.out(),
                ran.err()
            ))
        })
    }

    fn judge(&self, ran: &Ran, of_children: &str) -> Result<Verified, String> {
        if !ran.status.success() {
            return Err("failed".into());
        }
        let out = ran.out();
        let mut words = out.split_whitespace();
        let (Some("verified"), Some(verified), Some("refused"), Some(refused), None) = (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) else {
            return Err("did not come to its end".into());
        };
        if !verified.parse::<u64>().is_ok_and(|n| n > 0) {
            return Err("verified nothing".into());
        }
        let err = ran.err();
        let (warnings, report): (Vec<&str>, Vec<&str>) =
            err.lines().partition(|l| l.starts_with("tierheap: "));
        let wanted = self.configuration.iter().any(|c| c.contains("stats=1"));
        let reports = report.iter().filter(|l| l.starts_with("tierheap ")).count();
        if reports != usize::from(wanted) || (!wanted && !report.is_empty()) {
            return Err(format!("{reports} reports, or words that are none"));
        }
        self.at_most(
            1,
            "the program",
            &warnings,
            &[&self.must[..], &self.may].concat(),
        )?;
        if let Some(missed) = self.must.iter().find(|text| !err.contains(**text)) {
            return Err(format!("did not warn: {missed:?}"));
        }
        let forks = self
            .steps
            .iter()
            .filter(|step| step.starts_with("fork"))
            .count();
        let mut parts: Vec<Vec<&str>> = vec![Vec::new()];
        for line in of_children.lines() {
            match line {
                "--" => parts.push(Vec::new()),
                line => parts.last_mut().unwrap().push(line),
            }
        }
        if parts.len() != forks + 1 || !parts[forks].is_empty() {
            return Err(format!(
                "{} of {forks} children came to their end",
                parts.len() - 1
            ));
        }
        for (i, part) in parts.iter().enumerate() {
            // A child and its own child, which may say it first: it is a copy from before it was said.
            self.at_most(2, &format!("child {i}"), part, &self.children)?;
        }
        let refused = refused.parse().map_err(|_| "refused nothing countable")?;
        Ok(Verified {
            refused,
            report: report.join("\n"),
        })
    }

    /// Each known line at most so often, and no other.
    fn at_most(
        &self,
        most: usize,
        who: &str,
        lines: &[&str],
        known: &[&str],
    ) -> Result<(), String> {
        if let Some(strange) = lines.iter().find(|l| !known.iter().any(|k| l.contains(k))) {
            return Err(format!("{who} said {strange:?}"));
        }
        for text in known {
            let times = lines.iter().filter(|l| l.contains(text)).count();
            if times > most {
                return Err(format!("{who} was warned {times} times: {text:?}"));
            }
        }
        Ok(())
    }
}

/// Collects what went wrong, so that one surrounding does not hide the next.
#[derive(Default)]
pub struct Verdicts {
    runs: usize,
    failures: Vec<String>,
}

impl Verdicts {
    /// Of a run in which nothing may be refused, unless its steps say so.
    pub fn take(&mut self, load: Load) -> Option<Verified> {
        self.runs += 1;
        load.attempt().map_err(|why| self.failures.push(why)).ok()
    }

    pub fn expect(&mut self, condition: bool, otherwise: impl FnOnce() -> String) {
        if !condition {
            self.failures.push(otherwise());
        }
    }

    #[track_caller]
    pub fn done(self) {
        assert!(self.runs > 0, "nothing was run");
        let failures = self.failures;
        assert!(
            failures.is_empty(),
            "{} of {}\n{}",
            failures.len(),
            self.runs,
            failures.join("\n")
        );
    }
}

/// The program and the library as `load` and `libtierheap.so` in this folder.
pub fn copies_in(folder: &Path) {
    std::fs::copy(build::program("environment_load"), folder.join("load")).unwrap();
    std::fs::copy(common::library(), folder.join("libtierheap.so")).unwrap();
}

/// The configuration with this folder for its tier.
pub fn within(configuration: &str, folder: &Path) -> String {
    configuration.replace("{}", &folder.display().to_string())
}

/// A figure of a tier's line in the report, by the place of its column.
pub fn figure(report: &str, tier: u32, column: &str) -> Option<u64> {
    let mut lines = report
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    let head = lines.find(|l| l.first() == Some(&"tier"))?;
    let at = head.iter().position(|c| *c == column)?;
    let line = lines.find(|l| l.first() == Some(&&*tier.to_string()))?;
    line.get(at)?.parse().ok()
}
