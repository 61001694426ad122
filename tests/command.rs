//! The command, as a shell and a user meet it: what it refuses, how it hands over to the program,
//! what it says of this machine; and what the library says to who preloads it.
//!
//! `run` is given the C library as the library to preload: it exports a malloc, and preloading
//! what is loaded anyway changes nothing. So these tests judge the command, whatever state the
//! allocator is in; the last ones take the real library. Some need root (mounts, other users).

mod common;
#[path = "command/doctor.rs"]
mod doctor;
#[path = "command/handover.rs"]
mod handover;
#[path = "command/preload.rs"]
mod preload;
#[path = "command/refusals.rs"]
mod refusals;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::Ran;

const LIMIT: Duration = Duration::from_secs(20);
const NOBODY: u32 = 65534;

/// A shared library that this process has loaded.
fn loaded(name: &str) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .lines()
        .filter_map(|l| l.split_whitespace().nth(5))
        .find(|p| p.contains(name));
    PathBuf::from(path.unwrap_or_else(|| panic!("{name} is not loaded")))
}

/// `tierheap ARGUMENTS` in an environment without any configuration.
fn tierheap<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(common::command());
    command
        .args(arguments)
        .env("TIERHEAP_LIB", loaded("libc.so.6"));
    for name in [
        "TIERHEAP",
        "LD_PRELOAD",
        "MEMKIND_MEM_TIERS",
        "MEMKIND_MEM_THRESHOLDS",
    ] {
        command.env_remove(name);
    }
    command
}

#[track_caller]
fn ran(command: &mut Command) -> Ran {
    common::run(command, LIMIT)
}

/// The value that `env`, run as the program, printed.
fn value(ran: &Ran, name: &str) -> Option<String> {
    let out = ran.out();
    out.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_string()))
}

/// `ulimit -f` of the command.
fn limit_file_size(command: &mut Command, bytes: u64) {
    // SAFETY: setrlimit is async-signal-safe, and the limit lives in this closure.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: bytes,
            };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
}

/// A folder that every user can enter; the owner alone may write in it.
fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    dir
}

/// As another user, who can reach a copy of the command in `dir`.
fn as_nobody(dir: &Path, arguments: &[&str]) -> Command {
    let copy = dir.join("tierheap");
    std::fs::copy(common::command(), &copy).unwrap();
    let mut command = Command::new(copy);
    command
        .args(arguments)
        .env("TIERHEAP_LIB", loaded("libc.so.6"))
        .env_remove("TIERHEAP");
    command.uid(NOBODY).gid(NOBODY);
    command
}
