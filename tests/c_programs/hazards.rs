//! The ways preloaded allocators fail in real programs, one program each.

use crate::build::{
    Case, Says, attempt, compile, folder, link_with, plain, plugin, preloaded, program,
};
use crate::common;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

macro_rules! everywhere {
    ($($program:ident),* $(,)?) => {$(
        #[test]
        fn $program() {
            Case::new(stringify!($program)).plain().matrix().done();
        }
    )*};
}

everywhere! {
    hazard_09_dlsym_recursion,
    hazard_10_interposed_libc,
    hazard_11_early_calls,
    hazard_12_fork_threads,
    hazard_13_fork_snapshot,
    hazard_13_spawn,
    hazard_15_after_thread_teardown,
    hazard_27_silent,
    hazard_32_producer_consumer,
}

fn word(prefix: &str, path: &Path) -> OsString {
    let mut word = OsString::from(prefix);
    word.push(path);
    word
}

/// A second library before ours in the preload list.
fn preload_before(cmd: &mut Command, first: &Path) {
    let own = cmd
        .get_envs()
        .find(|(k, _)| *k == "LD_PRELOAD")
        .and_then(|(_, v)| v.map(OsString::from));
    let mut list = first.as_os_str().to_os_string();
    if let Some(own) = own {
        list.push(":");
        list.push(own);
    }
    cmd.env("LD_PRELOAD", list);
}

pub fn limit(cmd: &mut Command, resource: libc::__rlimit_resource_t, bytes: u64) {
    // SAFETY: one system call between fork and exec.
    unsafe {
        cmd.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: bytes,
            };
            match libc::setrlimit(resource, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

#[test]
fn hazard_02_unloaded_library() {
    let mut cmd = plain(&program("hazard_02_unloaded_library"));
    attempt("late", cmd.arg(common::library()), Says::Nothing).unwrap_or_else(|f| panic!("{f}"));
    for (label, config) in [
        ("cold", "cold=memfd;policy=cold"),
        ("size", "cold=memfd;policy=size;threshold=512"),
    ] {
        attempt(label, cmd.env("TIERHEAP", config), Says::Nothing)
            .unwrap_or_else(|f| panic!("{f}"));
    }
}

#[test]
fn hazard_03_space_reuse() {
    Case::new("hazard_03_space_reuse")
        .plain()
        .under("file", "cold=file:{},limit:64M;policy=cold;strict=1")
        .under("memfd", "cold=memfd,limit:64M;policy=cold;strict=1")
        .done();
}

#[test]
fn hazard_04_small_pool() {
    Case::new("hazard_04_small_pool")
        .plain()
        .under("file", "cold=file:{},limit:16M;policy=cold;strict=1")
        .under("memfd", "cold=memfd,limit:16M;policy=cold;strict=1")
        .done();
}

#[test]
fn hazard_07_foreign_pointer() {
    Case::new("hazard_07_foreign_pointer")
        .arg(plugin("plugin_deepbind"))
        .plain()
        .matrix()
        .done();
}

#[test]
fn hazard_08_late_dlopen() {
    let with_plugin = || Case::new("hazard_08_late_dlopen").arg(plugin("plugin_tls"));
    with_plugin().plain().matrix().done();
    with_plugin().arg(common::library()).plain().done();
}

#[test]
fn hazard_09_below_a_tracer() {
    let tracer = plugin("plugin_tracer");
    Case::new("hazard_09_dlsym_recursion")
        .prepare(move |cmd| {
            preload_before(cmd, &tracer);
            cmd.env("EXPECT_TRACER", "1");
        })
        .plain()
        .matrix()
        .done();
}

#[test]
fn hazard_11_audited() {
    let audit = plugin("plugin_audit");
    Case::new("hazard_11_early_calls")
        .prepare(move |cmd| {
            cmd.env("LD_AUDIT", &audit);
        })
        .plain()
        .matrix()
        .done();
}

#[test]
#[ignore = "long: many forks"]
fn hazard_12_fork_threads_long() {
    Case::new("hazard_12_fork_threads")
        .arg("500")
        .matrix()
        .done();
}

#[test]
#[ignore = "long: many generations"]
fn hazard_13_fork_snapshot_long() {
    Case::new("hazard_13_fork_snapshot")
        .arg("25")
        .matrix()
        .done();
}

/// What stdio holds back until exit, byte for byte as with plain glibc.
#[test]
fn hazard_14_exit_output() {
    let path = program("hazard_14_exit_output");
    let run = |label: &str, mut cmd: Command| {
        let dir = folder();
        let file = dir.path().join("written");
        let ran = attempt(label, cmd.arg(&file), Says::Anything).unwrap_or_else(|f| panic!("{f}"));
        assert_eq!(ran.err(), "", "{label}");
        (ran.stdout, std::fs::read(file).unwrap())
    };
    let expected = run("plain glibc", plain(&path));
    assert!(expected.0.len() > 200_000 && expected.1.len() > 150_000);
    let dir = folder();
    for (label, config) in common::policies(dir.path()) {
        let got = run(label, preloaded(&path, &config));
        assert!(
            got == expected,
            "{label}: {} and {} bytes came through, not {} and {}",
            got.0.len(),
            got.1.len(),
            expected.0.len(),
            expected.1.len()
        );
    }
}

/// With all mappings spent, a tier that cannot grow is worth a warning.
#[test]
fn hazard_18_mapping_limit() {
    Case::new("hazard_18_mapping_limit")
        .says(Says::Warnings)
        .plain()
        .matrix()
        .done();
}

/// At least half of the limit must be there for the program.
#[test]
fn hazard_19_ulimit_v() {
    for (megabytes, least) in [(300, "150"), (100, "40")] {
        Case::new("hazard_19_ulimit_v")
            .arg(least)
            .says(Says::Warnings)
            .prepare(move |cmd| limit(cmd, libc::RLIMIT_AS, megabytes * 1_000_000))
            .plain()
            .matrix()
            .done();
    }
}

/// No system call that glibc's malloc would not make. No plain run: glibc counts processors by
/// opening a file when threads contend, which is no part of what is granted here.
#[test]
fn hazard_21_seccomp() {
    Case::new("hazard_21_seccomp")
        .arg("kill")
        .under("none", "")
        .under("dram", "policy=dram")
        .done();
}

/// All else answered by EPERM: what the tiers cannot have comes from DRAM.
#[test]
fn hazard_21_seccomp_denies() {
    Case::new("hazard_21_seccomp")
        .arg("deny")
        .says(Says::Warnings)
        .plain()
        .matrix()
        .done();
}

#[test]
fn hazard_23_report_in_a_signal_handler() {
    Case::new("hazard_23_signal_handler")
        .arg("1")
        .arg("report")
        .within(15)
        .plain()
        .matrix()
        .done();
}

/// glibc waits for itself here, so there is no plain run.
#[test]
#[ignore = "known: malloc in a handler that interrupted the allocator waits for itself"]
fn hazard_23_malloc_in_a_signal_handler() {
    Case::new("hazard_23_signal_handler")
        .arg("1")
        .arg("malloc")
        .within(15)
        .matrix()
        .done();
}

/// A setuid program obeys no environment of its caller's. Needs root, to make one.
#[test]
fn hazard_30_secure_execution() {
    // SAFETY: plain system calls.
    assert_eq!(
        unsafe { libc::geteuid() },
        0,
        "only root can make the setuid program this test needs"
    );
    let dir = tempfile::tempdir().unwrap();
    let everyone = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let (tier, report) = (dir.path().join("tier"), dir.path().join("tier/report.json"));
    std::fs::create_dir(&tier).unwrap();
    std::fs::copy(common::library(), dir.path().join("libtierheap.so")).unwrap();
    let path = dir.path().join("program");
    compile(
        "hazard_30_secure_execution.c",
        &path,
        &link_with(dir.path()),
    );
    everyone(dir.path(), 0o755);
    everyone(&tier, 0o777);
    everyone(&path, 0o4755);
    let mut cmd = plain(&path);
    cmd.uid(65534).env(
        "TIERHEAP",
        format!(
            "cold=file:{};policy=cold;stats={}",
            tier.display(),
            report.display()
        ),
    );
    attempt("setuid", &mut cmd, Says::Nothing).unwrap_or_else(|f| panic!("{f}"));
    assert!(
        !report.exists(),
        "the report of a setuid program was written where its caller asked for it"
    );
    everyone(&path, 0o755);
    attempt("not setuid", cmd.arg("obey"), Says::Anything).unwrap_or_else(|f| panic!("{f}"));
    assert!(
        report.exists(),
        "without the setuid bit the report must be there"
    );
}

/// That a tier goes on in a new file is worth a warning.
#[test]
fn hazard_29_close_range() {
    Case::new("hazard_29_close_range")
        .says(Says::Warnings)
        .plain()
        .matrix()
        .done();
}

#[test]
fn hazard_31_many_threads() {
    Case::new("hazard_31_many_threads")
        .arg("3000")
        .plain()
        .matrix()
        .done();
}

#[test]
fn hazard_31_hundred_thousand_threads() {
    Case::new("hazard_31_many_threads")
        .arg("100000")
        .under("none", "")
        .under("size-file", "cold=file:{};policy=size;threshold=1K")
        .done();
}

#[test]
#[ignore = "long: 100,000 threads for each configuration"]
fn hazard_31_many_threads_long() {
    Case::new("hazard_31_many_threads")
        .arg("100000")
        .matrix()
        .done();
}

/// Preloaded beside a copy under another path, and with a copy loaded late.
#[test]
fn hazard_33_two_copies() {
    let dir = folder();
    let copy = dir.path().join("another.so");
    std::fs::copy(common::library(), &copy).unwrap();
    Case::new("hazard_33_two_copies").arg(&copy).matrix().done();
    Case::new("hazard_33_two_copies")
        .arg(&copy)
        .prepare(move |cmd| {
            let mut list = common::library().into_os_string();
            list.push(":");
            list.push(&copy);
            cmd.env("LD_PRELOAD", list).env("COPY_IS_PRELOADED", "1");
        })
        .matrix()
        .done();
}

/// gdb and valgrind start the program with the library; neither may hang or see it fail.
#[test]
fn hazard_35_debuggers() {
    let path = program("hazard_35_tools");
    let preload = word("LD_PRELOAD=", &common::library());
    for config in ["policy=dram", "cold=memfd;policy=size;threshold=1K"] {
        let mut gdb = plain(Path::new("gdb"));
        gdb.args(["-q", "-batch", "-iex", "set debuginfod enabled off", "-ex"])
            .arg(word("set environment ", Path::new(&preload)))
            .arg("-ex")
            .arg(format!("set environment TIERHEAP={config}"))
            .args(["-ex", "set environment EXPECT_TIERHEAP=1", "-ex", "run"])
            .arg(&path);
        let mut valgrind = plain(Path::new("valgrind"));
        valgrind.arg("-q").arg("--error-exitcode=9").arg(&path);
        valgrind
            .env("LD_PRELOAD", common::library())
            .env("TIERHEAP", config)
            .env("EXPECT_TIERHEAP", "1");
        for (label, mut cmd) in [("gdb", gdb), ("valgrind", valgrind)] {
            let ran = attempt(label, &mut cmd, Says::Anything).unwrap_or_else(|f| panic!("{f}"));
            assert!(
                ran.out().contains("the tools let it work"),
                "{label}, {config}:\n{}\n{}",
                ran.out(),
                ran.err()
            );
        }
    }
}

/// AddressSanitizer brings an allocator of its own. Statically linked it comes first and the
/// library is called by nobody; preloaded before it, the library is the one that is called.
#[test]
fn hazard_35_address_sanitizer() {
    let dir = folder();
    let path = dir.path().join("sanitized");
    for link in ["-static-libasan", "-shared-libasan"] {
        let mut arguments: Vec<OsString> = vec!["-fsanitize=address".into()];
        if link == "-static-libasan" {
            arguments.push(link.into());
        }
        compile("hazard_35_tools.c", &path, &arguments);
        for config in ["policy=dram", "cold=memfd;policy=cold"] {
            let mut cmd = preloaded(&path, config);
            cmd.env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
            let ran = attempt(link, &mut cmd, Says::Anything).unwrap_or_else(|f| panic!("{f}"));
            assert!(
                ran.out().contains("the tools let it work"),
                "{link}, {config}:\n{}",
                ran.err()
            );
        }
    }
}

/// What one process left in a tier, no later one reads.
#[test]
fn hazard_37_former_process() {
    let path = program("hazard_37_calloc_is_zero");
    let dir = folder();
    for (label, config) in common::policies(dir.path()) {
        for step in ["fill", "scan", "fill", "scan"] {
            attempt(label, preloaded(&path, &config).arg(step), Says::Nothing)
                .unwrap_or_else(|f| panic!("{f}"));
        }
    }
}

#[test]
fn hazard_38_bad_free() {
    Case::new("hazard_38_bad_free").matrix().done();
}

/// abort=0: said, counted, refused; the heap stays sound.
#[test]
fn hazard_38_bad_free_goes_on() {
    Case::new("hazard_38_bad_free")
        .arg("harmless")
        .under("dram", "policy=dram;abort=0")
        .under("size-memfd", "cold=memfd;policy=size;threshold=1K;abort=0")
        .under("cold-file", "cold=file:{};policy=cold;abort=0")
        .done();
}
