//! Counts instructions by single-stepping, for allocators that valgrind does not run.

use std::io::{Error, Read, Result};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Instructions that `cmd` executes in all its threads between its two SIGUSR1, and what it
/// printed. A system call counts as one instruction, as it does under callgrind.
pub fn count(cmd: &mut Command) -> Result<(u64, String)> {
    // SAFETY: between fork and exec only one system call is made, which allocates nothing.
    unsafe {
        cmd.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        });
    }
    let mut child = cmd.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let main = child.id() as libc::pid_t;
    wait(main)?;
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    // SAFETY: a request without pointers, on a child that is stopped.
    if unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, main, 0, options) } != 0 {
        return Err(Error::last_os_error());
    }
    resume(main, false, 0);

    let (mut steps, mut marks) = (0, 0);
    let ended = loop {
        let (pid, status) = wait(-1)?;
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if pid == main {
                break status;
            }
            continue;
        }
        let mut deliver = 0;
        match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, 0) => steps += u64::from(marks == 1),
            // A clone is reported, and the new thread begins with a stop.
            (libc::SIGTRAP | libc::SIGSTOP, _) => {}
            (libc::SIGUSR1, _) => marks += 1,
            (other, _) => deliver = other,
        }
        resume(pid, marks == 1, deliver);
    };
    let mut output = String::new();
    child
        .stdout
        .take()
        .map(|mut pipe| pipe.read_to_string(&mut output))
        .transpose()?;
    if !libc::WIFEXITED(ended) || libc::WEXITSTATUS(ended) != 0 || marks != 2 {
        return Err(Error::other(format!(
            "ended with wait status {ended:#x} after {marks} marks"
        )));
    }
    Ok((steps, output))
}

/// The next report of a traced thread.
fn wait(pid: libc::pid_t) -> Result<(libc::pid_t, libc::c_int)> {
    let mut status = 0;
    // SAFETY: status is ours and lives through the call.
    match unsafe { libc::waitpid(pid, &mut status, libc::__WALL) } {
        -1 => Err(Error::last_os_error()),
        pid => Ok((pid, status)),
    }
}

/// Lets a stopped thread run on, for one instruction or freely. Fails only where the thread has
/// died meanwhile, which the next wait reports.
fn resume(pid: libc::pid_t, step: bool, signal: libc::c_int) {
    let how = if step {
        libc::PTRACE_SINGLESTEP
    } else {
        libc::PTRACE_CONT
    };
    // SAFETY: a request without pointers; an id that is gone makes it fail, nothing else.
    unsafe { libc::ptrace(how, pid, 0, signal) };
}
