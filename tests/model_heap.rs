//! Random sequences of calls against a model of a heap: an interval for each live block, and its
//! contents. Each sequence runs in a process of its own, so that it also shrinks where the heap
//! aborts, crashes or hangs. To run one again:
//!
//! ```sh
//! TIERHEAP_MODEL_SCRIPT=FILE cargo test --test model_heap -- --exact one_thread
//! ```
//!
//! with calls as a failure prints them, one a line. More and longer ones: PROPTEST_CASES=5000.

mod common;
#[allow(dead_code)] // what only other tests use
#[path = "model_heap/heap.rs"]
mod heap;
#[allow(dead_code)] // what only other tests use
#[path = "model_heap/ops.rs"]
mod ops;
#[path = "model_heap/random.rs"]
mod random;

use heap::{Block, Heap};
use ops::{Op, Target};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const SCRIPT: &str = "TIERHEAP_MODEL_SCRIPT";
const SEED: &str = "TIERHEAP_MODEL_SEED";
/// A sequence takes milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

/// This test again, in a process of its own.
fn again(test: &str) -> Command {
    let mut cmd = Command::new(std::env::current_exe().unwrap());
    cmd.args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("RUST_BACKTRACE", "0")
        .env_remove("TIERHEAP");
    cmd
}

/// On the disk that holds the build: a tmpfs would hide what only a real file system does.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn run_script(ops: &[Op]) {
    let folder = folder();
    let heap = Heap::new(folder.path(), true);
    let mut live = Vec::new();
    for &op in ops {
        heap.step(&mut live, op);
        live.iter().for_each(Block::verify_ends);
    }
    live.iter().for_each(Block::verify);
    heap.audit(live.iter());
    heap.end(live);
}

#[test]
fn one_thread() {
    if let Some(script) = std::env::var_os(SCRIPT) {
        return run_script(&ops::parse(&std::fs::read_to_string(script).unwrap()));
    }
    let config = Config {
        // PROPTEST_CASES, if set, is in the default.
        cases: std::env::var("PROPTEST_CASES").map_or(150, |_| Config::default().cases),
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..Config::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    proptest!(config, |(ops in random::sequence(600))| {
        std::fs::write(&script, ops::text(&ops)).unwrap();
        let ran = common::run(again("one_thread").env(SCRIPT, &script), LIMIT);
        prop_assert!(
            ran.status.success() && ran.out().contains("1 passed"),
            "{:?}\n{}",
            ran.status,
            ran.err()
        );
    });
}

#[test]
fn scripts_survive_their_text() {
    proptest!(Config { failure_persistence: None, ..Config::default() }, |(ops in random::sequence(50))| {
        prop_assert_eq!(ops::parse(&ops::text(&ops)), ops);
    });
}

/// A kind of which no block lives has room for whatever its limit allows, whatever sizes it was
/// used for before.
#[test]
fn an_emptied_kind_has_room() {
    if std::env::var_os(SCRIPT).is_none() {
        let mut cmd = again("an_emptied_kind_has_room");
        cmd.env(SCRIPT, "-");
        let ran = common::run(&mut cmd, LIMIT).must_succeed("the same alone");
        return assert!(ran.out().contains("1 passed"), "{}", ran.out());
    }
    let folder = folder();
    let heap = Heap::new(folder.path(), true);
    for size in [16, 3000, 64 << 10, 65_544, 1 << 20] {
        let block = heap.malloc(Target::Strict, size);
        heap.free(block.unwrap_or_else(|| panic!("no {size} bytes in an empty kind of 2 MiB")));
    }
}

const THREADS: usize = 4;
const ROUNDS: usize = 6;
const CALLS: usize = 2500;
/// More live blocks than this, and a thread hands on or frees one at each call.
const PLENTY: usize = 400;

/// One thread's life: allocates by a sequence, hands every third block to another thread, and
/// takes what others hand it. Returns what it still has.
fn worker(
    heap: &Heap,
    ops: &[Op],
    mut live: Vec<Block>,
    inbox: Receiver<Block>,
    others: Vec<Sender<Block>>,
) -> Vec<Block> {
    for (turn, &op) in ops.iter().enumerate() {
        heap.step(&mut live, op);
        if turn % 3 == 0 && !live.is_empty() {
            let block = live.swap_remove(turn % live.len());
            // A thread that has ended takes no more: the block stays here.
            if let Err(back) = others[turn / 3 % others.len()].send(block) {
                live.push(back.0);
            }
        }
        for block in inbox.try_iter() {
            block.verify_ends();
            // Half of them are freed at once, by a thread that did not make them.
            if block.size % 2 == 0 {
                heap.free(block);
            } else {
                live.push(block);
            }
        }
        if live.len() > PLENTY {
            heap.free(live.swap_remove(turn % live.len()));
        }
    }
    drop(others);
    live.extend(inbox);
    live
}

/// Rounds of threads that start and end, so that heaps are left behind and adopted; the blocks of
/// one round go to the threads of the next.
fn run_threads(seed: u64) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let sequences = proptest::collection::vec(random::sequence(CALLS), THREADS);
    let folder = folder();
    let heap = Heap::new(folder.path(), true);
    let mut shares: Vec<Vec<Block>> = (0..THREADS).map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        let sequences = sequences.new_tree(&mut runner).unwrap().current();
        let (senders, inboxes): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
        let left: Vec<Block> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (i, (live, inbox)) in shares.drain(..).zip(inboxes).enumerate() {
                let others: Vec<_> = (1..THREADS)
                    .map(|d| senders[(i + d) % THREADS].clone())
                    .collect();
                let (heap, ops) = (&heap, &sequences[i]);
                threads.push(scope.spawn(move || worker(heap, ops, live, inbox, others)));
            }
            drop(senders);
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        left.iter().for_each(Block::verify);
        heap.audit(left.iter());
        shares = (0..THREADS).map(|_| Vec::new()).collect();
        for (i, block) in left.into_iter().enumerate() {
            shares[i % THREADS].push(block);
        }
    }
    // By a thread that ends: frees of other threads' blocks wait in batches, and count as live,
    // until then.
    let left = shares.into_iter().flatten().collect();
    std::thread::scope(|scope| scope.spawn(|| heap.end(left)).join().unwrap());
    heap::expect_empty();
}

#[test]
fn several_threads() {
    if let Ok(seed) = std::env::var(SEED) {
        return run_threads(seed.parse().unwrap());
    }
    for seed in 1..=6 {
        let mut cmd = again("several_threads");
        let ran = common::run(cmd.env(SEED, seed.to_string()), LIMIT);
        let ran = ran.must_succeed(&format!("{SEED}={seed}"));
        assert!(ran.out().contains("1 passed"), "{}", ran.out());
    }
}
