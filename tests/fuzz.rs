//! The fuzz target of `tests/fuzz`, without a fuzzer: over the corpus that is committed, and over
//! strings of bytes made at random. It needs nothing but the stable compiler.
//!
//! A string runs in a process of its own, so that what it crashes or hangs is told, and is kept:
//!
//! ```sh
//! TIERHEAP_FUZZ_BYTES=FILE cargo test --test fuzz -- --exact corpus --nocapture   # that file again
//! TIERHEAP_FUZZ_SECONDS=600 cargo test --test fuzz -- --ignored                   # more random ones
//! ```
//!
//! `TIERHEAP_FUZZ_SHOW=1` prints the acts first.

#[path = "model_heap/acts.rs"]
mod acts;
mod common;
#[allow(dead_code)] // what only other tests use
#[path = "model_heap/heap.rs"]
mod heap;
#[path = "model_heap/more.rs"]
mod more;
#[allow(dead_code)] // what only other tests use
#[path = "model_heap/ops.rs"]
mod ops;
#[path = "model_heap/session.rs"]
mod session;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BYTES: &str = "TIERHEAP_FUZZ_BYTES";
/// A string takes some fifty milliseconds, and a process gets twenty of them.
const LIMIT: Duration = Duration::from_secs(240);

/// The target over these files, one after the other, in a process of its own. Where it fails, each
/// alone, to say which; where none does alone, it was the whole.
fn run(files: &[PathBuf]) {
    let attempt = |files: &[PathBuf]| {
        let list: Vec<_> = files.iter().map(|f| f.to_str().unwrap()).collect();
        let mut cmd = Command::new(std::env::current_exe().unwrap());
        cmd.args(["--exact", "corpus", "--nocapture"])
            .env(BYTES, list.join(":"))
            .env_remove("TIERHEAP");
        match common::finish(&mut cmd, LIMIT) {
            Ok(ran) if ran.status.success() && ran.out().contains("1 passed") => Ok(()),
            Ok(ran) => Err(format!("{:?}\n{}", ran.status, ran.err())),
            Err(unended) => Err(format!("{unended:?}")),
        }
    };
    let Err(failure) = attempt(files) else {
        return;
    };
    for file in files.iter().filter(|_| files.len() > 1) {
        if let Err(failure) = attempt(std::slice::from_ref(file)) {
            panic!("{}: {failure}", file.display());
        }
    }
    panic!("one after the other, {files:?}: {failure}");
}

/// Plays files, in this process.
fn play(files: &OsStr) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for file in std::env::split_paths(files) {
        let acts = acts::of_bytes(&std::fs::read(&file).unwrap());
        if std::env::var_os("TIERHEAP_FUZZ_SHOW").is_some() {
            acts.iter().for_each(|act| eprintln!("{act:?}"));
        }
        session::play(&acts, folder.path(), true);
    }
}

#[test]
fn corpus() {
    if let Some(files) = std::env::var_os(BYTES) {
        return play(&files);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let mut files: Vec<_> = (std::fs::read_dir(&folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 20, "a corpus of {} files", files.len());
    files.chunks(TOGETHER).for_each(run);
}

/// Strings of up to two thousand bytes, the same for each seed.
fn string(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let len = next() % 2000;
    (0..len).map(|_| (next() >> 32) as u8).collect()
}

/// So many strings to a process: heaps, lanes and kinds of one are used again by the next.
const TOGETHER: usize = 20;

fn random(seconds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let first = match std::env::var("TIERHEAP_FUZZ_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 1,
    };
    let mut next = first;
    loop {
        let seeds = next..next + TOGETHER as u64;
        next = seeds.end;
        let file = |seed: u64| {
            let file = dir.path().join(format!("seed-{seed}"));
            std::fs::write(&file, string(seed)).unwrap();
            file
        };
        let files: Vec<_> = seeds.map(file).collect();
        let ran = std::panic::catch_unwind(|| run(&files));
        if let Err(panic) = ran {
            eprintln!("kept in {}", dir.keep().display());
            std::panic::resume_unwind(panic);
        }
        files.iter().for_each(|f| std::fs::remove_file(f).unwrap());
        if start.elapsed() > Duration::from_secs(seconds) {
            return eprintln!("{} strings of bytes", next - first);
        }
    }
}

#[test]
fn random_strings() {
    random(3);
}

#[test]
#[ignore = "long: five minutes, or TIERHEAP_FUZZ_SECONDS"]
fn random_strings_long() {
    let seconds = std::env::var("TIERHEAP_FUZZ_SECONDS").map_or(300, |s| s.parse().unwrap());
    random(seconds);
}
