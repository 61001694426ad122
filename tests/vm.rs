//! One boot of an emulated machine that has what this one lacks, a DAX file system on persistent
//! memory and a NUMA node without CPUs, to see the tiers `fsdax:` and `node:` work in it:
//! `tests/vm/smoke` says what is checked, `tests/vm/vm-run` how the machine is made.
//!
//! Needs QEMU, root and a kernel package that apt-get can download. Without them it fails and
//! names the packages; `TIERHEAP_NO_VM=1` makes it count as ignored instead.

#[allow(dead_code)] // the row table is looked through here, not run
#[path = "hazards/allocator.rs"]
mod allocator;
#[allow(dead_code)] // the driver of the C programs uses all of it
#[path = "c_programs/build.rs"]
mod build;
mod common;
#[allow(dead_code)]
#[path = "hazards/drives.rs"]
mod drives;
#[allow(dead_code)]
#[path = "hazards/row.rs"]
mod row;
#[allow(dead_code)]
#[path = "hazards/rows.rs"]
mod rows;
#[path = "../benches/support/mod.rs"]
mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Most that the guest may take. Under software emulation it needs about three minutes of one core,
/// and twice that where other work shares the machine.
const LIMIT: Duration = Duration::from_secs(900);

const PACKAGES: &str = "qemu-system-x86 busybox-static cpio kmod xz-utils zstd ndctl daxctl \
    e2fsprogs redis-server";

/// The C programs that are run on both tiers: those in which the backing matters. `{}` stands for the
/// tier.
const BY_SIZE: &str = "cold={};policy=size;threshold=1K";
const LIMITED: &str = "cold={},limit:64M;policy=cold;strict=1";
/// The hazards that the row table marks for it are run on the DAX file system alone.
const ON_DAX: &str = "cold=fsdax:/mnt/pmem;policy=size;threshold=1K";
const PROGRAMS: &[(&str, &str, &str)] = &[
    (BY_SIZE, "libc_malloc", ""),
    (BY_SIZE, "libc_realloc", ""),
    (BY_SIZE, "hazard_12_fork_threads", ""),
    (BY_SIZE, "hazard_13_fork_snapshot", ""),
    (BY_SIZE, "hazard_13_spawn", ""),
    (BY_SIZE, "hazard_17_alignment", ""),
    (BY_SIZE, "hazard_29_close_range", ""),
    (BY_SIZE, "hazard_37_calloc_is_zero", ""),
    (BY_SIZE, "stress_threads", "2 4 fork"),
    (LIMITED, "hazard_03_space_reuse", ""),
];

/// Those hazards: program and arguments.
fn hazards_on_dax() -> Vec<(&'static str, String)> {
    let all = rows::rows().into_iter().flat_map(|row| row.checks);
    let on_dax = all.filter(|check| check.on_dax && !check.long);
    let with_arguments = on_dax.map(|check| {
        let texts = check.arguments.iter().map(|word| match word {
            row::Word::Text(text) => *text,
            _ => panic!("{} needs more than its program", check.name),
        });
        (check.program, texts.collect::<Vec<_>>().join(" "))
    });
    let new = |(program, arguments): &(&str, String)| {
        let mut known = PROGRAMS.iter();
        !known.any(|(_, p, a)| p == program && a == arguments)
    };
    with_arguments.filter(new).collect()
}

fn missing() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let needed = ["qemu-system-x86_64", "busybox", "cpio", "depmod", "ndctl"];
    needed
        .into_iter()
        .chain(["mkfs.ext4", "redis-server"])
        .find(|program| !path.iter().any(|dir| dir.join(program).is_file()))
}

fn smoke() -> Result<(), Failed> {
    if let Some(program) = missing() {
        return Err(format!(
            "no {program}: apt-get install {PACKAGES}\n\
             (TIERHEAP_NO_VM=1 leaves this test out, and the summary counts it as ignored)"
        )
        .into());
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm");
    let mut cmd = Command::new(tests.join("vm-run"));
    cmd.arg("--").arg(tests.join("smoke"));
    cmd.arg(common::library()).arg(common::command());
    // The guest sees this machine's file system, but of /tmp only what it is told.
    let mut bind = OsString::from(common::library().as_os_str());
    let hazards = hazards_on_dax();
    let on_dax = hazards.iter().map(|(p, a)| (ON_DAX, *p, &**a));
    for (config, source, arguments) in PROGRAMS.iter().copied().chain(on_dax) {
        let program = row::program(source);
        bind.push(" ");
        bind.push(&program);
        cmd.arg(format!("{config} {} {arguments}", program.display()));
    }
    let huge = row::program("hazard_20_huge_pages");
    bind.push(" ");
    bind.push(&huge);
    cmd.env("HUGE_PAGES", &huge);
    let load = row::program("environment_load");
    bind.push(" ");
    bind.push(&load);
    cmd.env("ENVIRONMENT_LOAD", &load);
    cmd.env("VM_BIND", bind)
        .env("VM_ENV", "HUGE_PAGES ENVIRONMENT_LOAD")
        .env("VM_TIMEOUT", (LIMIT.as_secs() - 20).to_string())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let ran = common::run(&mut cmd, LIMIT);
    // Shown whether it passed or not: what was checked, and how long each took.
    let verdict = |l: &&str| l.starts_with("ok ") || l.starts_with("not ok ");
    let said = ran.out();
    said.lines().filter(verdict).for_each(|l| println!("{l}"));
    let done = said.lines().last().unwrap_or_default();
    let all = 7 + 2 * PROGRAMS.len() + hazards.len();
    if ran.status.success() && done == format!("done {all} of {all}") {
        return Ok(());
    }
    Err(format!("{:?}\n{said}\n{}", ran.status, ran.err()).into())
}

fn main() {
    let mut arguments = Arguments::from_args();
    let without = std::env::var("TIERHEAP_NO_VM").is_ok_and(|v| v == "1");
    if without {
        println!("the emulated machine is left out: TIERHEAP_NO_VM=1");
        // What is left out on purpose is not run by --include-ignored either.
        arguments.include_ignored = false;
        arguments.ignored = false;
    }
    let smoke = Trial::test("smoke", smoke).with_ignored_flag(without);
    libtest_mimic::run(&arguments, vec![smoke]).exit();
}
