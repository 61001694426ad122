//! Programs under valgrind's memcheck, which is told to leave malloc to the library. It then sees
//! what the library itself does: a read or a write of memory that is not mapped, a decision by
//! bytes that nobody wrote, a system call that is handed such bytes. Blocks are plain mapped memory
//! to it. No report is suppressed.
//!
//! Left out, because valgrind changes what they look at:
//! - `fork_protection`: fails there on glibc's malloc, too (a guard page reads as if it were not there);
//! - `fork_stdio`: takes minutes there, whoever's malloc it is;
//! - `libc_callers`: posix_spawn becomes a clone that copies memory and runs no fork handler, and such
//!   a child lacks the file tiers;
//! - `libc_new`: valgrind replaces the operators in libstdc++ itself, which the library calls for the
//!   forms that do not throw, and then no new_handler is asked;
//! - `stress_threads`, `memory_*`: they count operations, mappings and memory.

use crate::build::{LIMIT, cmd_line, cut, folder, linked, output, preloaded, program};
use crate::common;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What memcheck ends with where it has something to report.
const REPORT: i32 = 99;
/// Twenty to fifty times as slow as the program is.
const SLOW: Duration = Duration::from_secs(600);

fn memcheck(program: &Path, config: &str) -> Command {
    let mut cmd = preloaded(Path::new("valgrind"), config);
    // Without turns, threads that wait for a lock by trying keep its holder from running.
    cmd.args(["-q", "--fair-sched=yes"])
        .arg(format!("--error-exitcode={REPORT}"))
        .arg("--soname-synonyms=somalloc=nouserintercepts")
        .arg(program);
    cmd
}

/// It succeeds, and memcheck has nothing to say. (What the library says by itself is no report.)
#[track_caller]
fn no_report(cmd: &mut Command) {
    let ran = common::run(cmd, SLOW);
    let reports = ran.err().lines().any(|line| line.starts_with("=="));
    assert!(
        ran.status.success() && !reports,
        "{}\n{:?}\n{}\n{}",
        cmd_line(cmd),
        ran.status,
        cut(&ran.out()),
        cut(&ran.err())
    );
}

/// Preloaded: all in DRAM, all in a memory file, and by size in a file.
#[track_caller]
fn clean(name: &str) {
    let program = program(name);
    let dir = folder();
    let file = format!(
        "cold=file:{};policy=size;threshold=1K",
        dir.path().display()
    );
    for config in ["", "cold=memfd;policy=cold", &file] {
        no_report(&mut memcheck(&program, config));
    }
}

/// A program that has the library by its link, with a folder as its argument.
#[track_caller]
fn clean_linked(name: &str, arguments: &[&str]) {
    let program = linked(name);
    let dir = folder();
    let mut cmd = memcheck(&program, "");
    cmd.env_remove("LD_PRELOAD").args(arguments).arg(dir.path());
    no_report(&mut cmd);
}

/// Without this the others would pass if memcheck looked at nothing.
#[test]
fn memcheck_reports_what_is_wrong() {
    let source = output("memcheck_control.c");
    let text = "#include <stdlib.h>\n\
        int main(int n, char **v) {\n\
        \tvolatile int never[64];\n\
        \tchar *p = malloc(10 << 20);\n\
        \tif (n > 1 && never[n])\n\
        \t\tp[0] = 1;\n\
        \tfree(p);\n\
        \treturn 0;\n\
        }\n";
    std::fs::write(&source, text).unwrap();
    let program = output("memcheck_control");
    let mut cc = Command::new("cc");
    cc.args(["-O0", "-w"]).arg(&source).arg("-o").arg(&program);
    common::run(&mut cc, LIMIT).must_succeed("compiling the control");
    for (argument, expected) in [(None, 0), (Some("x"), REPORT)] {
        let mut cmd = memcheck(&program, "");
        let ran = common::run(cmd.args(argument), SLOW);
        assert_eq!(
            ran.status.code(),
            Some(expected),
            "{argument:?}: {}",
            ran.err()
        );
    }
}

/// With this the malloc that the others run on is known to be the library's, not memcheck's.
#[test]
fn every_name_is_ours_under_memcheck() {
    no_report(&mut memcheck(&program("libc_names"), ""));
}

#[test]
fn malloc_under_memcheck() {
    clean("libc_malloc");
}

#[test]
fn queries_under_memcheck() {
    clean_linked("api_query", &[]);
}

#[test]
#[ignore = "long: minutes under valgrind"]
fn interface_under_memcheck_long() {
    for name in [
        "api_alloc",
        "api_kinds",
        "api_limits",
        "api_stats",
        "api_advise",
    ] {
        clean_linked(name, &[]);
    }
    clean_linked("api_configure", &["before"]);
}

#[test]
#[ignore = "long: minutes under valgrind"]
fn libc_names_under_memcheck_long() {
    for name in ["libc_realloc", "libc_info"] {
        clean(name);
    }
}

/// Threads that end and hand blocks on, forks beside threads, calls before main and after a
/// thread's teardown, memory that must be zero.
#[test]
#[ignore = "long: minutes under valgrind"]
fn hazards_under_memcheck_long() {
    for name in [
        "hazard_05_entry_points",
        "hazard_09_dlsym_recursion",
        "hazard_11_early_calls",
        "hazard_12_fork_threads",
        "hazard_13_fork_snapshot",
        "hazard_15_after_thread_teardown",
        "hazard_16_usable_size",
        "hazard_17_alignment",
        "hazard_32_producer_consumer",
        "hazard_37_calloc_is_zero",
    ] {
        clean(name);
    }
}
