//! CPython's own tests, Debian's package of them, by the system's interpreter.

use crate::everywhere::program;
use crate::server::need;
use crate::suite::{LONG, Outcome, Place, QUICK, Suite, skipped, tail};
use std::path::Path;
use std::time::Duration;

/// Not whatever else stands first in the path: the tests belong to this one.
const PYTHON: &str = "/usr/bin/python3";

/// Wants that a program finds no descriptors but those it was passed: a cold tier's is one more.
const DESCRIPTOR: &str = "test.test_subprocess.POSIXProcessTestCase.test_pass_fds_redirected";

/// Asserts that something takes less than a tenth of a second.
const TIMED: &str = "test_wait_for_timeout_less_then_0_or_0*";

/// Each module in a process of its own, so that a crash costs and names one module only.
fn regrtest(place: &Place, env: &[(&str, &str)], args: &[&str]) -> Outcome {
    let xml = place.dir.join("result.xml");
    let mut cmd = program(PYTHON);
    cmd.args(["-m", "test", "-j2", "--ignore", TIMED]);
    cmd.arg(format!("--junit-xml={}", xml.display()));
    cmd.args(args).envs(env.iter().copied());
    let ran = place.run(cmd);
    let said = format!("{}\n{}", tail(&ran.stdout), tail(&ran.stderr));
    let xml = std::fs::read_to_string(&xml)
        .unwrap_or_else(|e| panic!("no result: {e}; {:?}\n{said}", ran.status));
    let mut outcome = read(&xml, &ran.out());
    assert!(
        ran.status.success() || !outcome.failed.is_empty(),
        "{:?}, and no failed test\n{said}",
        ran.status
    );
    if args.contains(&"test_asyncio") {
        skipped(TIMED, "asserts a time");
    }
    if place.has_cold_tier() && outcome.failed.remove(DESCRIPTOR) {
        skipped(DESCRIPTOR, "known to fail with a cold tier");
    }
    outcome.said = said;
    outcome
}

/// Tests by the XML file, modules that ended without a result by the summary.
fn read(xml: &str, summary: &str) -> Outcome {
    let mut outcome = Outcome::whole(0);
    for case in xml.split("<testcase ").skip(1) {
        outcome.ran += 1;
        if case.contains("<failure") || case.contains("<error") {
            let name = case
                .strip_prefix("name=\"")
                .and_then(|c| c.split('"').next());
            outcome.failed.insert(name.unwrap_or(case).to_string());
        }
    }
    // "2 tests failed:", then one indented line a few modules.
    let mut lines = summary.lines();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        if matches!(words[..], [n, "test" | "tests", "failed:"] if n.parse::<u32>().is_ok()) {
            let modules = lines.by_ref().take_while(|l| l.starts_with("    "));
            for module in modules.flat_map(str::split_whitespace) {
                let tests = format!("test.{module}.");
                if !outcome.failed.iter().any(|f| f.starts_with(&tests)) {
                    outcome.failed.insert(module.to_string());
                }
            }
        }
    }
    outcome
}

#[track_caller]
fn python(name: &'static str, limit: Duration, env: &[(&str, &str)], args: &[&str]) {
    need("python3", "python3");
    let package = Path::new("/usr/lib/python3.11/test/test_list.py");
    assert!(
        package.exists(),
        "{} is missing: apt-get install libpython3.11-testsuite",
        package.display()
    );
    Suite::new(name, limit).run(|place| regrtest(place, env, args));
}

#[test]
fn python_containers() {
    let modules = "test_bytes test_dict test_list test_gc test_json test_mmap test_ctypes \
                   test_tracemalloc test_weakref test_pickle";
    let args: Vec<&str> = modules.split_whitespace().collect();
    python("python containers", QUICK, &[], &args);
}

/// Every object by malloc, not only those above 512 bytes.
#[test]
fn python_containers_by_malloc() {
    let modules = "test_bytes test_dict test_list test_set test_json test_array test_buffer \
                   test_memoryview test_struct test_re";
    let args: Vec<&str> = modules.split_whitespace().collect();
    let env = [("PYTHONMALLOC", "malloc")];
    python("python by malloc", QUICK, &env, &args);
}

#[test]
fn python_threads_and_forks() {
    let modules = "test_fork1 test_thread test_threading_local test_posix test_queue";
    let args: Vec<&str> = modules.split_whitespace().collect();
    python("python threads", QUICK, &[], &args);
}

/// Classes of the long ones.
#[test]
fn python_processes() {
    let args = "test_multiprocessing_fork test_subprocess test_concurrent_futures test_threading \
                -m *WithProcessesTestQueue* -m *WithProcessesTestArray* -m *TestHeap* \
                -m *WithProcessesTestSharedMemory* -m *RunFuncTestCase* -m *ThreadPoolExecutorTest* \
                -m *ThreadJoinOnShutdown*";
    let args: Vec<&str> = args.split_whitespace().collect();
    python("python processes", QUICK, &[], &args);
}

const MODULES: &str = "test_threading test_multiprocessing_fork test_subprocess test_mmap \
    test_ctypes test_gc test_tracemalloc test_json test_pickle test_fork1 test_thread test_queue \
    test_concurrent_futures test_weakref test_bytes test_dict test_list test_re test_zlib test_bz2 \
    test_lzma test_decimal test_set test_unicode test_buffer test_memoryview test_array test_io \
    test_struct test_posix test_os test_signal test_asyncio test_faulthandler \
    test_marshal test_hashlib test_selectors test_resource test_codecs test_deque test_heapq \
    test_long test_exceptions test_generators test_itertools test_functools test_context \
    test_xml_etree test_xml_etree_c test_pyexpat test_csv test_zipfile test_tarfile test_gzip \
    test_pty test_shutil test_tempfile test_multiprocessing_forkserver \
    test_multiprocessing_main_handling";

#[test]
#[ignore = "long: the whole modules, some minutes each"]
fn python_modules() {
    let args: Vec<&str> = MODULES.split_whitespace().collect();
    python("python modules", LONG, &[], &args);
}

#[test]
#[ignore = "long: the whole modules, some minutes each"]
fn python_modules_by_malloc() {
    // What counts Python's own arenas is meaningless without them.
    let args: Vec<&str> = MODULES.split_whitespace().collect();
    let env = [("PYTHONMALLOC", "malloc")];
    python("python modules by malloc", LONG, &env, &args);
}
