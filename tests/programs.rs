//! Real programs under every policy, their output equal to a run without the library: status,
//! standard output and standard error, byte for byte.

mod common;
#[path = "programs/everywhere.rs"]
mod everywhere;
#[path = "programs/resp.rs"]
mod resp;
#[path = "programs/server.rs"]
mod server;
#[path = "programs/sources.rs"]
mod sources;

use everywhere::{Seen, everywhere, prints, program};
use resp::{Client, Values};
use server::{Server, disk, need};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A quick run takes seconds; a hang shows after this.
const QUICK: Duration = Duration::from_secs(120);
const LONG: Duration = Duration::from_secs(1800);

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

#[track_caller]
fn python(scale: &str, malloc: Option<&str>, limit: Duration) {
    need("python3", "python3");
    prints(
        &format!("python {}", malloc.unwrap_or("arenas")),
        limit,
        |_| {
            // Not whatever else stands first in the path.
            let mut cmd = program("/usr/bin/python3");
            cmd.arg("-B").arg(script("work.py")).arg(scale);
            cmd.envs(malloc.map(|m| ("PYTHONMALLOC", m)));
            cmd
        },
    );
}

#[test]
fn python_by_arenas() {
    python("1", None, QUICK);
}

/// Every object by malloc, not only those above 512 bytes.
#[test]
fn python_every_object() {
    python("1", Some("malloc"), QUICK);
}

#[test]
#[ignore = "long: ten times the work"]
fn python_long() {
    python("10", Some("malloc"), LONG);
}

#[track_caller]
fn sqlite(rows: u64, limit: Duration) {
    let sqlite = need("sqlite3", "sqlite3");
    let sql = std::fs::read_to_string(script("queries.sql")).unwrap();
    let sql = sql.replace("@ROWS@", &rows.to_string());
    prints("sqlite3", limit, |scratch| {
        std::fs::write(scratch.join("queries.sql"), &sql).unwrap();
        let mut cmd = program(&sqlite);
        cmd.args(["-bail", ":memory:", ".read queries.sql"]);
        cmd
    });
}

#[test]
fn sqlite_in_memory() {
    sqlite(60_000, QUICK);
}

#[test]
#[ignore = "long: a database of 1 GiB"]
fn sqlite_in_memory_long() {
    sqlite(1_000_000, LONG);
}

#[track_caller]
fn gcc(functions: usize, limit: Duration) {
    let gcc = need("gcc", "gcc");
    let source = sources::large_c(functions);
    prints("gcc", limit, |scratch| {
        std::fs::write(scratch.join("large.c"), &source).unwrap();
        let mut cmd = program(&gcc);
        cmd.args(["-O1", "-Wall", "-Wextra", "-S", "-o", "-", "large.c"]);
        cmd
    });
}

#[test]
fn gcc_large_file() {
    gcc(200, QUICK);
}

#[test]
#[ignore = "long: a file of a thousand functions"]
fn gcc_large_file_long() {
    gcc(1_000, LONG);
}

#[test]
fn git_clone_gc_fsck() {
    let git = need("git", "git");
    let home = disk("git");
    let config = home.path().join("config");
    std::fs::write(
        &config,
        // One thread: with more, which deltas are found depends on their speed.
        "[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n\
         [pack]\nthreads = 1\n[gc]\nauto = 0\n[core]\npager = cat\n[safe]\ndirectory = *\n",
    )
    .unwrap();
    let git_program = |name: &Path| {
        let mut cmd = program(name);
        cmd.env("GIT_CONFIG_GLOBAL", &config)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z")
            .env("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z");
        cmd
    };
    // The project's own repository as it is now, which commits meanwhile cannot change.
    let frozen = home.path().join("frozen");
    let mut clone = git_program(&git);
    clone
        .args(["clone", "-q", "--bare"])
        .arg(env!("CARGO_MANIFEST_DIR"))
        .arg(&frozen);
    common::run(&mut clone, QUICK).must_succeed("this test needs the project's git repository");
    prints("git", QUICK, |_| {
        let mut cmd = git_program(Path::new("/bin/sh"));
        cmd.arg(script("git.sh")).arg(&frozen);
        cmd
    });
}

#[test]
fn java_version() {
    let java = need("java", "default-jdk-headless");
    prints("java -version", QUICK, |_| {
        let mut cmd = program(&java);
        cmd.arg("-version");
        cmd
    });
}

#[track_caller]
fn java(scale: &str, limit: Duration) {
    let java = need("java", "default-jdk-headless");
    // The compiler runs in the same machine: one start for both.
    need("javac", "default-jdk-headless");
    prints("java", limit, |_| {
        let mut cmd = program(&java);
        cmd.arg("-Xmx256m").arg(script("Work.java")).arg(scale);
        cmd
    });
}

#[test]
fn java_program() {
    java("1", QUICK);
}

#[test]
#[ignore = "long: twenty times the work"]
fn java_program_long() {
    java("20", LONG);
}

#[track_caller]
fn perl(scale: &str, limit: Duration) {
    let perl = need("perl", "perl");
    prints("perl", limit, |_| {
        let mut cmd = program(&perl);
        cmd.arg(script("work.pl")).arg(scale);
        cmd
    });
}

#[test]
fn perl_program() {
    perl("1", QUICK);
}

#[test]
#[ignore = "long: ten times the work"]
fn perl_program_long() {
    perl("10", LONG);
}

#[test]
fn bash_pipelines() {
    let bash = need("bash", "bash");
    prints("bash", QUICK, |_| {
        let mut cmd = program(&bash);
        cmd.arg(script("pipelines.sh")).arg("2");
        cmd
    });
}

#[track_caller]
fn text(lines: &str, limit: Duration) {
    for (tool, package) in [("gawk", "gawk"), ("mawk", "mawk"), ("diff", "diffutils")] {
        need(tool, package);
    }
    prints("text tools", limit, |_| {
        let mut cmd = program("/bin/sh");
        cmd.arg(script("text.sh")).arg(lines);
        cmd
    });
}

#[test]
fn awk_sort_grep_sed() {
    text("10000", QUICK);
}

#[test]
#[ignore = "long: a hundred thousand lines"]
fn awk_sort_grep_sed_long() {
    text("100000", LONG);
}

#[test]
fn make_in_parallel() {
    need("gcc", "gcc");
    let make = need("make", "make");
    let files = sources::project(12);
    prints("make -j2", QUICK, |scratch| {
        for (name, text) in &files {
            std::fs::write(scratch.join(name), text).unwrap();
        }
        let mut cmd = program(&make);
        cmd.args(["-j2", "-s"]);
        cmd
    });
}

/// Keys of one connection and the lengths of their values: small ones, some pages, and above the
/// half megabyte from which memcached splits.
fn item(connection: u64, n: u64) -> (u64, usize) {
    let len = match n % 16 {
        0 => 102_400,
        1..4 => 10_240,
        _ => 100 + (n * 37 % 900) as usize,
    };
    (connection << 32 | n, len)
}

/// Sets, replaces, deletes and reads on one connection; gives all reply lines.
fn memcached_load(socket: &Path, v: &Values, connection: u64) -> io::Result<Vec<u8>> {
    const ITEMS: u64 = 4_000;
    let mut c = Client::connect(socket)?;
    let mut lines = Vec::new();
    let line = |c: &mut Client, lines: &mut Vec<u8>| -> io::Result<String> {
        let line = c.line()?;
        lines.extend_from_slice(line.as_bytes());
        lines.push(b'\n');
        Ok(line)
    };
    for version in 1..=3 {
        for from in (0..ITEMS).step_by(50) {
            let mut out = Vec::new();
            for n in from..from + 50 {
                let (key, len) = item(connection, n);
                let verb = if version == 1 { "set" } else { "replace" };
                out.extend_from_slice(format!("{verb} k{key} 7 0 {len}\r\n").as_bytes());
                v.append(key, version, len, &mut out);
                out.extend_from_slice(b"\r\n");
                if n % 5 == version {
                    out.extend_from_slice(format!("delete k{key}\r\n").as_bytes());
                }
            }
            c.send_raw(&out)?;
            for n in from..from + 50 {
                line(&mut c, &mut lines)?;
                if n % 5 == version {
                    line(&mut c, &mut lines)?;
                }
            }
        }
        for n in 0..ITEMS {
            let (key, len) = item(connection, n);
            c.send_raw(format!("get k{key}\r\n").as_bytes())?;
            if line(&mut c, &mut lines)? != "END" {
                match v.version(key, len, c.block(len)?) {
                    Ok(got) if got == version => {}
                    other => return Err(io::Error::other(format!("{key}: {other:?}"))),
                }
                line(&mut c, &mut lines)?;
            }
        }
    }
    Ok(lines)
}

#[test]
fn memcached_under_load() {
    let memcached = need("memcached", "memcached");
    let user = common::run(Command::new("id").arg("-un"), QUICK).out();
    let v = Values::new();
    everywhere("memcached", |scratch, prepare| {
        let sockets = tempfile::tempdir().unwrap();
        let socket = sockets.path().join("s");
        let mut cmd = program(&memcached);
        // As root it wants to be told to stay so; all others it leaves as they are.
        cmd.args(["-m", "512", "-t", "2", "-u", user.trim(), "-s"])
            .arg(&socket);
        prepare(&mut cmd);
        let mut server = Server::start("memcached", cmd, scratch);
        server.wait_for(QUICK, || Client::connect(&socket).ok());
        let loads = std::thread::scope(|s| {
            let (socket, v) = (&socket, &v);
            let load = |n| s.spawn(move || memcached_load(socket, v, n));
            [load(1), load(2), load(3)].map(|t| t.join().unwrap())
        });
        let stdout = loads.map(|l| server.ok(l)).concat();
        server.terminate();
        let status = server.wait(QUICK);
        Seen {
            status,
            stdout,
            stderr: server.stderr().into_bytes(),
        }
    });
}

/// The library is in the program and in what the program starts, whatever the policy.
#[test]
fn the_library_is_there() {
    let dir = disk("there");
    for (policy, config) in common::policies(dir.path()) {
        let mut cmd = common::preloaded("/bin/sh", &config);
        cmd.args(["-c", "cat /proc/self/maps"]);
        let ran = common::run(&mut cmd, QUICK).must_succeed(policy);
        let here = ran.out().contains("libtierheap.so");
        assert!(
            here,
            "under {policy} the library is not loaded:\n{}",
            ran.out()
        );
        assert_eq!(ran.err(), "", "under {policy} something is printed");
    }
}
