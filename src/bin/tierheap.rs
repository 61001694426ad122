//! The command `tierheap`: `run` a program on tiers that were tried first, and `doctor`, which
//! says what this machine offers.
//!
//! The grammar is compiled into the command from the library's own files and the library itself
//! is not linked: built with the feature `preload`, it would become the malloc of this process
//! too, read `TIERHEAP` before it is checked, and open the tiers it is about to try.
//!
//! There is no Rust `main`: its start-up would set SIGPIPE to ignored and open closed standard
//! descriptors, and `run` has to hand both to the program as it got them.
#![cfg_attr(not(test), no_main)]

#[allow(dead_code, unused_imports)]
#[path = "../base/mod.rs"]
mod base;
#[path = "tierheap/capabilities.rs"]
mod capabilities;
#[path = "tierheap/doctor.rs"]
mod doctor;
#[path = "tierheap/library.rs"]
mod library;
#[path = "tierheap/machine.rs"]
mod machine;
#[path = "tierheap/program.rs"]
mod program;
#[path = "tierheap/report.rs"]
mod report;
#[path = "tierheap/run.rs"]
mod run;
#[path = "tierheap/tiers.rs"]
mod tiers;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "tierheap",
    version,
    about = "One heap over DRAM and slower memory: run a program on it, or see what this machine offers",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the tiers, then run a program on them; the exit status is the program's
    Run(run::Options),
    /// Say what this machine offers: tiers, and what the heat policy could use
    Doctor(doctor::Options),
}

/// Why the command ends without having done what was asked, and its exit status: 2 bad usage or
/// configuration, 126 a program that cannot be executed, 127 a program that is not there.
#[derive(Debug)]
struct Refusal {
    status: i32,
    message: String,
}

impl Refusal {
    fn usage(message: impl Into<String>) -> Refusal {
        Refusal {
            status: 2,
            message: message.into(),
        }
    }
}

/// The exit status.
#[cfg_attr(test, allow(dead_code))]
fn start() -> i32 {
    let result = match Cli::parse().command {
        Command::Run(options) => run::run(&options).map(|never| match never {}),
        Command::Doctor(options) => doctor::doctor(&options),
    };
    result.unwrap_or_else(|refusal| {
        eprintln!("tierheap: {}", refusal.message);
        refusal.status
    })
}

#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    start()
}
