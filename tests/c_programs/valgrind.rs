//! Programs under valgrind's memcheck, which is told to leave malloc to the library. It then sees
//! what the library itself does: a read or a write of memory that is not mapped, a decision by
//! bytes that nobody wrote, a system call that is handed such bytes. Blocks are plain mapped memory
//! to it.

use crate::build::{LIMIT, Says, attempt, folder, linked, output, preloaded, program};
use crate::common;
use std::path::Path;
use std::process::Command;

/// What memcheck ends with where it has something to report.
const REPORT: i32 = 99;

fn memcheck(program: &Path, config: &str) -> Command {
    let mut cmd = preloaded(Path::new("valgrind"), config);
    cmd.arg("-q")
        .arg(format!("--error-exitcode={REPORT}"))
        .arg("--soname-synonyms=somalloc=nouserintercepts")
        .arg(program);
    cmd
}

fn clean(name: &str, arguments: &[&str], says: Says) {
    let program = program(name);
    let dir = folder();
    let file = format!("cold=file:{};policy=size;threshold=1K", dir.path().display());
    for config in ["", "cold=memfd;policy=cold", &file] {
        let mut cmd = memcheck(&program, config);
        cmd.args(arguments);
        let label = format!("{name} under memcheck, {config:?}");
        if let Err(failure) = attempt(&label, &mut cmd, says) {
            panic!("{failure}");
        }
    }
}

/// A program that includes the header, with a folder as its argument.
fn clean_linked(name: &str, says: Says) {
    let program = linked(name);
    let dir = folder();
    let mut cmd = memcheck(&program, "");
    // The program has the library by its link.
    cmd.env_remove("LD_PRELOAD").arg(dir.path());
    if let Err(failure) = attempt(&format!("{name} under memcheck"), &mut cmd, says) {
        panic!("{failure}");
    }
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
        let ran = common::run(cmd.args(argument), LIMIT);
        assert_eq!(ran.status.code(), Some(expected), "{argument:?}: {}", ran.err());
    }
}

/// With this the malloc that the others run on is known to be the library's, not memcheck's.
#[test]
fn every_name_is_ours_under_memcheck() {
    let program = program("libc_names");
    let mut cmd = memcheck(&program, "");
    if let Err(failure) = attempt("libc_names under memcheck", &mut cmd, Says::Nothing) {
        panic!("{failure}");
    }
}

#[test]
fn malloc_under_memcheck() {
    clean("libc_malloc", &[], Says::Nothing);
}

#[test]
fn kinds_under_memcheck() {
    clean_linked("api_alloc", Says::Nothing);
}
