//! The forty ways in which preloaded allocators fail in real programs: what each is, and which
//! programs show it. What a program checks stands at its top.

use crate::drives;
use crate::row::Load::{Audited, Below, ByItself};
use crate::row::Under::{Dram, Heat, InFile, Once, Own, Pair, Tier};
use crate::row::Word::{Library, Plugin};
use crate::row::{Check, Row};
use std::os::unix::process::CommandExt;
use std::process::Command;

const FALLS_BACK: &[(&str, &str)] = &[
    ("file", "cold=file:{},limit:32M;policy=cold"),
    ("memfd", "cold=memfd,limit:32M;policy=cold"),
];
const BUDGET: &[(&str, &str)] = &[
    ("file", "cold=file:{};policy=size;threshold=1M;dram=32M"),
    ("memfd", "cold=memfd;policy=size;threshold=1M;dram=32M"),
];
const GOES_ON: &[(&str, &str)] = &[
    ("dram", "policy=dram;abort=0"),
    ("size-memfd", "cold=memfd;policy=size;threshold=1K;abort=0"),
    ("cold-file", "cold=file:{};policy=cold;abort=0"),
];
const NODE: &[(&str, &str)] = &[("node", "cold=node:0;policy=size")];
const THREADS: &[(&str, &str)] = &[
    ("default", ""),
    ("size-file", "cold=file:{};policy=size;threshold=1K"),
];

const NO_TIERS: &str = "is about tierheap's own tiers and budgets";
const OWN_CALLS: &str = "is asked of tierheap's own interface";
const REPEATED: &str = "is tierheap's longer run of the same";

fn limited(megabytes: u64) -> impl Fn(&mut Command) {
    move |cmd| limit(cmd, libc::RLIMIT_AS, megabytes * 1_000_000)
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

fn row(number: u32, title: &'static str, checks: impl IntoIterator<Item = Check>) -> Row {
    let checks = checks.into_iter().collect();
    Row {
        number,
        title,
        checks,
    }
}

pub fn rows() -> Vec<Row> {
    let mut rows = early_rows();
    rows.extend(late_rows());
    rows
}

/// What fails in ordinary use, at the start, in threads, at fork and at the end.
fn early_rows() -> Vec<Row> {
    let pool = |limit| Tier {
        limit,
        else_as_it_is: true,
    };
    vec![
        row(
            1,
            "malloc(0) gives NULL",
            [Check::new("hazard_01_malloc_zero").on_dax()],
        ),
        row(
            2,
            "crash at thread exit after the library was unloaded",
            [Check::new("hazard_02_unloaded_library")
                .load(ByItself)
                .word(Library)],
        ),
        row(
            3,
            "file space is never used again",
            [Check::new("hazard_03_space_reuse").under(pool("64M"))],
        ),
        row(
            4,
            "a small pool fails after reuse",
            [Check::new("hazard_04_small_pool").under(pool("16M"))],
        ),
        row(
            5,
            "an entry point of the family is missing",
            [
                Check::new("hazard_05_entry_points").on_dax(),
                Check::new("libc_new.cpp"),
            ],
        ),
        row(
            6,
            "calloc overflows",
            [Check::new("hazard_06_calloc_overflow").on_dax()],
        ),
        row(
            7,
            "free of a foreign pointer crashes",
            [Check::new("hazard_07_foreign_pointer").word(Plugin("plugin_deepbind"))],
        ),
        row(
            8,
            "no room in the static TLS block",
            [
                Check::new("hazard_08_late_dlopen").word(Plugin("plugin_tls")),
                Check::new("hazard_08_late_dlopen")
                    .named("hazard_08_loaded_late")
                    .load(ByItself)
                    .under(Once)
                    .word(Plugin("plugin_tls"))
                    .word(Library),
            ],
        ),
        row(
            9,
            "recursion through dlsym at the start",
            [
                Check::new("hazard_09_dlsym_recursion").on_dax(),
                Check::new("hazard_09_dlsym_recursion")
                    .named("hazard_09_below_a_tracer")
                    .load(Below("plugin_tracer"))
                    .prepare(|cmd| {
                        cmd.env("EXPECT_TRACER", "1");
                    }),
            ],
        ),
        row(
            10,
            "interposed libc functions deadlock",
            [Check::new("hazard_10_interposed_libc").within(20).on_dax()],
        ),
        row(
            11,
            "very early callers crash",
            [
                Check::new("hazard_11_early_calls").on_dax(),
                Check::new("hazard_11_early_calls")
                    .named("hazard_11_audited")
                    .load(Audited("plugin_audit")),
            ],
        ),
        row(
            12,
            "the child of a threaded program deadlocks",
            [
                Check::new("hazard_12_fork_threads").on_dax(),
                Check::new("hazard_12_fork_threads")
                    .named("hazard_12_fork_threads_long")
                    .arg("500")
                    .within(400)
                    .long(),
            ],
        ),
        row(
            13,
            "fork with a heap in a shared file corrupts both",
            [
                Check::new("hazard_13_fork_snapshot").on_dax(),
                Check::new("hazard_13_spawn").on_dax(),
                Check::new("hazard_13_fork_snapshot")
                    .named("hazard_13_fork_snapshot_long")
                    .arg("25")
                    .within(120)
                    .long(),
            ],
        ),
        row(
            14,
            "output is lost at exit",
            [Check::new("hazard_14_exit_output").on_dax()],
        ),
        row(
            15,
            "malloc after thread teardown crashes",
            [Check::new("hazard_15_after_thread_teardown").on_dax()],
        ),
        row(
            16,
            "usable size is not copied in full",
            [Check::new("hazard_16_usable_size").on_dax()],
        ),
        row(
            17,
            "alignments and their errors are not glibc's",
            [Check::new("hazard_17_alignment").on_dax()],
        ),
        row(
            18,
            "the limit of mappings is reached",
            // With all mappings spent, a tier that cannot grow is worth a warning.
            [Check::new("hazard_18_mapping_limit").may_warn()],
        ),
        row(
            19,
            "ulimit -v kills the start",
            // Half of the limit must be there. glibc's threads reserve 64 MiB each: it has that by luck.
            [
                Check::new("hazard_19_ulimit_v")
                    .named("hazard_19_300_megabytes")
                    .arg("150")
                    .beyond_glibc()
                    .may_warn()
                    .prepare(limited(300)),
                Check::new("hazard_19_ulimit_v")
                    .named("hazard_19_100_megabytes")
                    .arg("40")
                    .beyond_glibc()
                    .may_warn()
                    .prepare(limited(100)),
            ],
        ),
        row(
            20,
            "huge pages inflate resident memory",
            [
                Check::new("hazard_20_huge_pages"),
                Check::new("hazard_20_huge_pages")
                    .named("hazard_20_option")
                    .arg("huge")
                    .under(Own(&[("always", "thp=always")], OWN_CALLS)),
            ],
        ),
    ]
}

/// What fails in sandboxes, at limits, under tools and by misuse.
fn late_rows() -> Vec<Row> {
    vec![
        row(
            21,
            "a sandbox kills for an unexpected system call",
            [
                Check::new("hazard_21_seccomp").arg("kill").under(Dram),
                // All else answered by EPERM: what the tiers cannot have comes from DRAM.
                Check::new("hazard_21_seccomp")
                    .named("hazard_21_seccomp_denies")
                    .arg("deny")
                    .may_warn(),
            ],
        ),
        row(
            22,
            "userfaultfd is denied",
            [
                Check::new("hazard_22_denied_userfaultfd").on_dax(),
                Check::new("hazard_22_denied_userfaultfd")
                    .named("hazard_22_doctor")
                    .under(Own(&[("doctor", "")], OWN_CALLS))
                    .drive(drives::doctor_under_denial),
            ],
        ),
        row(
            23,
            "malloc in a signal handler deadlocks",
            [
                Check::new("hazard_23_signal_handler")
                    .named("hazard_23_report_in_a_signal_handler")
                    .arg("1")
                    .arg("report")
                    .within(30),
                Check::new("hazard_23_signal_handler")
                    .named("hazard_23_malloc_in_a_signal_handler")
                    .arg("1")
                    .arg("malloc")
                    .within(15)
                    .beyond_glibc()
                    .known(
                        "malloc in a handler that interrupted malloc in the same thread may wait for \
                         itself or hand out a block twice, as with every allocator here: POSIX does \
                         not list malloc among what a handler may call",
                    ),
            ],
        ),
        row(
            24,
            "a full disk is SIGBUS",
            [
                // SIGXFSZ must not be the program's death, whether the limit was first or the tier.
                Check::new("hazard_24_file_size_limit")
                    .may_warn()
                    .prepare(|cmd| limit(cmd, libc::RLIMIT_FSIZE, 1 << 20)),
                Check::new("hazard_24_file_size_limit")
                    .named("hazard_24_file_size_limit_later")
                    .arg("later")
                    .may_warn()
                    .on_dax(),
                on_full_disk("hazard_24_full_disk", drives::TMPFS),
                // Read ahead as widely as on large disks, the page cache has folios that span what
                // is allocated and what is not.
                on_full_disk("hazard_24_full_disk_with_large_folios", drives::EXT4),
            ],
        ),
        row(
            25,
            "a global preload breaks the boot",
            [Check::new("hazard_25_global_preload")
                .load(ByItself)
                .under(Once)
                .word(Library)],
        ),
        row(
            26,
            "the process is killed at a limit",
            [
                Check::new("hazard_26_limit_is_null")
                    .may_warn()
                    .under(Tier {
                        limit: "32M",
                        else_as_it_is: false,
                    }),
                Check::new("hazard_26_falls_back")
                    .may_warn()
                    .under(Own(FALLS_BACK, NO_TIERS)),
                Check::new("hazard_26_dram_budget")
                    .may_warn()
                    .under(Own(BUDGET, NO_TIERS)),
            ],
        ),
        row(
            27,
            "diagnostics on stdout or stderr",
            [Check::new("hazard_27_silent").silent().on_dax()],
        ),
        row(
            28,
            "a configuration is cut or half understood",
            [
                Check::new("hazard_28_whole_configuration")
                    .arg("2")
                    .under(Tier {
                        limit: "64M",
                        else_as_it_is: false,
                    })
                    .drive(drives::long_path),
                Check::new("hazard_28_whole_configuration")
                    .named("hazard_28_wrong_words")
                    .under(Own(&[("words", "")], OWN_CALLS))
                    .drive(drives::wrong_words),
            ],
        ),
        row(
            29,
            "a descriptor leaks, or is closed by the program",
            // That a tier goes on in a new file is worth a warning.
            [Check::new("hazard_29_close_range").may_warn().on_dax()],
        ),
        row(
            30,
            "a setuid program obeys the environment",
            [Check::new("hazard_30_secure_execution")
                .under(Once)
                .drive(drives::setuid)],
        ),
        row(31, "short-lived threads leak", many_threads()),
        row(
            32,
            "what another thread frees is lost",
            [Check::new("hazard_32_producer_consumer").on_dax()],
        ),
        row(
            33,
            "two copies of the library",
            [
                Check::new("hazard_33_two_copies")
                    .named("hazard_33_copy_loaded_late")
                    .drive(|scene| drives::two_copies(scene, false)),
                Check::new("hazard_33_two_copies").drive(|scene| drives::two_copies(scene, true)),
            ],
        ),
        row(
            34,
            "jemalloc's own calls are mixed in",
            [
                Check::new("hazard_34_jemalloc_names").on_dax(),
                Check::new("hazard_34_linked_with_jemalloc").drive(drives::linked_with_jemalloc),
            ],
        ),
        row(
            35,
            "debuggers and sanitizers hang",
            [
                under_tool("hazard_35_gdb").drive(drives::gdb),
                under_tool("hazard_35_valgrind").drive(drives::valgrind),
                under_tool("hazard_35_address_sanitizer").drive(drives::address_sanitizer),
            ],
        ),
        row(
            36,
            "NUMA calls are denied",
            [
                Check::new("hazard_36_denied_numa").on_dax(),
                Check::new("hazard_36_denied_numa")
                    .named("hazard_36_node_tier")
                    .under(Own(NODE, NO_TIERS))
                    .may_warn(),
                Check::new("hazard_36_denied_numa")
                    .named("hazard_36_node_tier_granted")
                    .arg("placed")
                    .under(Own(NODE, NO_TIERS)),
            ],
        ),
        row(
            37,
            "data of a former process, or of a former block in calloc",
            [
                Check::new("hazard_37_calloc_is_zero").on_dax(),
                Check::new("hazard_37_calloc_is_zero")
                    .named("hazard_37_former_process")
                    .arg("former")
                    .on_dax(),
            ],
        ),
        row(
            38,
            "double and interior frees corrupt silently",
            [
                Check::new("hazard_38_bad_free")
                    .within(60)
                    .beyond_glibc()
                    .on_dax(),
                // abort=0: said, counted, refused; the heap stays sound.
                Check::new("hazard_38_bad_free")
                    .named("hazard_38_bad_free_goes_on")
                    .arg("harmless")
                    .within(90)
                    .under(Own(GOES_ON, OWN_CALLS)),
            ],
        ),
        row(
            39,
            "a large but hot table goes to the slow tier",
            [Check::new("hazard_39_hot_table")
                .arg("8")
                .under(Heat)
                .known(
                    "the policy heat places as size in this version: nothing is moved after its birth",
                )],
        ),
        row(
            40,
            "page cache of a file tier counts against the container",
            [
                Check::new("hazard_40_page_cache").under(InFile),
                Check::new("hazard_40_page_cache")
                    .named("hazard_40_doctor")
                    .under(Own(&[("doctor", "cold=file:{}")], OWN_CALLS))
                    .drive(drives::doctor_on_page_cache),
            ],
        ),
    ]
}

fn on_full_disk(name: &'static str, disk: drives::Disk) -> Check {
    Check::new("hazard_24_full_disk")
        .named(name)
        .may_warn()
        .under(Tier {
            limit: "1G",
            else_as_it_is: false,
        })
        .drive(move |scene| drives::full_disk(scene, &disk))
}

fn under_tool(name: &'static str) -> Check {
    Check::new("hazard_35_tools").named(name).under(Pair)
}

fn many_threads() -> [Check; 3] {
    let threads = || Check::new("hazard_31_many_threads");
    [
        threads().arg("3000"),
        threads()
            .named("hazard_31_hundred_thousand_threads")
            .arg("100000")
            .within(120)
            .under(Own(THREADS, REPEATED)),
        threads()
            .named("hazard_31_many_threads_long")
            .arg("100000")
            .within(300)
            .long(),
    ]
}
