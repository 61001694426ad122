//! The Rust faces: the global allocator, kinds, tiers, statistics, configuration, collections.
//!
//! This program's own allocator is tierheap, linked and not preloaded. What changes the state of a
//! process runs in one of its own: the test starts this program again for itself alone.

mod common;
#[path = "rust_faces/linked.rs"]
mod linked;

use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tierheap::{Error, Kind, Tier, TierHeap, TierStats, configure, stats, tier_of};

#[global_allocator]
static HEAP: TierHeap = TierHeap::new();

const ALONE: &str = "TIERHEAP_TEST_ALONE";
const LIMIT: Duration = Duration::from_secs(60);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Runs `body` in a process of its own with this configuration. `test` is the caller's name.
#[track_caller]
fn alone(test: &str, configuration: Option<&str>, body: fn()) {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return body();
    }
    let mut cmd = Command::new(std::env::current_exe().unwrap());
    cmd.args(["--exact", test, "--nocapture", "--test-threads=1"])
        .args(["--include-ignored"])
        .env(ALONE, test);
    match configuration {
        Some(text) => cmd.env("TIERHEAP", text),
        None => cmd.env_remove("TIERHEAP"),
    };
    let ran = common::run(&mut cmd, LIMIT).must_succeed(test);
    assert!(
        ran.out().contains("1 passed"),
        "{test} did not run: {}",
        ran.out()
    );
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn figures(tier: Tier) -> TierStats {
    stats()
        .tiers()
        .find(|t| t.tier == tier)
        .unwrap_or_else(|| panic!("no {tier:?}"))
}

/// Collections of all sorts, grown and shrunk on several threads, keep what is put into them.
fn exercise() {
    let workers: Vec<_> = (0..4u64)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut map = HashMap::new();
                let mut tree = BTreeMap::new();
                let mut text = String::new();
                for i in 0..20_000u64 {
                    map.insert(i, format!("{thread}:{i}"));
                    tree.insert(
                        i.wrapping_mul(0x9e37_79b9) % 65_537,
                        vec![i as u8; i as usize % 700],
                    );
                    text.push_str(&map[&i]);
                    if i % 3 == 0 {
                        map.remove(&(i / 2));
                    }
                }
                for (key, value) in &map {
                    assert_eq!(*value, format!("{thread}:{key}"));
                }
                assert!(tree.values().all(|v| v.iter().all(|b| *b == v[0])));
                let mut digits = text.len();
                text.retain(|c| c != ':');
                digits -= text.len();
                text.shrink_to_fit();
                assert_eq!(digits, 20_000);
                (text, tree)
            })
        })
        .collect();
    for worker in workers {
        // Freed here, by a thread that did not make them.
        let (text, tree) = worker.join().unwrap();
        assert!(text.bytes().all(|b| b.is_ascii_digit()) && !tree.is_empty());
    }
}

#[test]
fn global_allocator_in_dram() {
    alone("global_allocator_in_dram", None, || {
        exercise();
        let small = Box::new(1u8);
        let large = vec![7u8; 8 * MIB];
        assert_eq!(tier_of(&raw const *small), Some(Tier::DRAM));
        assert_eq!(tier_of(large.as_ptr()), Some(Tier::DRAM));
        assert_eq!(stats().tiers().count(), 1);
    });
}

#[test]
fn global_allocator_by_size() {
    let configuration = Some("cold=memfd;policy=size;threshold=64K");
    alone("global_allocator_by_size", configuration, || {
        exercise();
        let small = Box::new(1u8);
        assert_eq!(tier_of(&raw const *small), Some(Tier::DRAM));
        // Grows out of DRAM, its contents with it.
        let mut vector = Vec::new();
        for i in 0..MIB / 8 {
            vector.push(i as u64);
            let bytes = vector.capacity() * 8;
            let tier = if bytes >= 64 * KIB {
                Tier::COLD
            } else {
                Tier::DRAM
            };
            assert_eq!(tier_of(vector.as_ptr()), Some(tier), "{bytes} bytes");
        }
        assert!(vector.iter().enumerate().all(|(i, v)| i as u64 == *v));
        let asked = figures(Tier::COLD).asked.unwrap();
        assert!((MIB..2 * MIB).contains(&asked), "{asked}");
        // Back again when it shrinks.
        vector.truncate(100);
        vector.shrink_to_fit();
        assert_eq!(tier_of(vector.as_ptr()), Some(Tier::DRAM));
        assert!(vector.iter().enumerate().all(|(i, v)| i as u64 == *v));
    });
}

#[test]
fn global_allocator_in_a_file() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let configuration = format!("cold=file:{};policy=cold", dir.path().display());
    alone("global_allocator_in_a_file", Some(&configuration), || {
        exercise();
        assert_eq!(tier_of(&raw const *Box::new(1u8)), Some(Tier::COLD));
    });
}

/// Each call of the trait, at every alignment that a layout may have, with contents.
#[test]
fn global_alloc_keeps_layouts() {
    for shift in 0..=22 {
        for size in [1, 15, 100, 4000, 70_000, 3 * MIB] {
            let (heap, align) = (TierHeap::new(), 1 << shift);
            let all = |block: *mut u8, n: usize, byte: u8| {
                assert!(
                    !block.is_null() && (block as usize).is_multiple_of(align),
                    "{size} at {align}"
                );
                // SAFETY: a live block of at least `n` bytes.
                unsafe { std::slice::from_raw_parts(block, n) }
                    .iter()
                    .all(|b| *b == byte)
            };
            // SAFETY: blocks are used with the layouts they were made with.
            unsafe {
                let block = heap.alloc(layout(size, align));
                assert!(!block.is_null());
                block.write_bytes(9, size);
                let block = heap.realloc(block, layout(size, align), size * 3);
                assert!(all(block, size, 9));
                let block = heap.realloc(block, layout(size * 3, align), size / 2 + 1);
                assert!(all(block, size / 2 + 1, 9));
                heap.dealloc(block, layout(size / 2 + 1, align));
                let block = heap.alloc_zeroed(layout(size, align));
                assert!(all(block, size, 0), "{size} at {align} is not zero");
                heap.dealloc(block, layout(size, align));
            }
        }
    }
}

#[test]
fn kinds_place_where_they_say() {
    alone("kinds_place_where_they_say", None, || {
        let cold = Kind::cold().unwrap();
        assert_eq!(Kind::cold(), Some(cold));
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = Kind::new(&format!("cold=file:{};policy=cold", dir.path().display())).unwrap();
        let limited = Kind::new("cold=memfd,limit:4M;policy=cold;strict=1").unwrap();
        let kinds = [
            (Kind::DEFAULT, 1),
            (Kind::DRAM, 1),
            (cold, 2),
            (file, 3),
            (limited, 4),
        ];
        for (kind, tier) in kinds {
            for size in [1, 300, 5000, 100_000, 600_000] {
                let block = kind.alloc_zeroed(layout(size, 64));
                assert_eq!(
                    tier_of(block).map(Tier::number),
                    Some(tier),
                    "{kind:?}, {size}"
                );
                // SAFETY: a live block of `size` bytes, then of twice as many in the same kind.
                unsafe {
                    assert!(
                        std::slice::from_raw_parts(block, size)
                            .iter()
                            .all(|b| *b == 0)
                    );
                    block.write_bytes(5, size);
                    let more = kind.realloc(block, layout(size, 64), size + 100);
                    let block = if more.is_null() { block } else { more };
                    assert_eq!(tier_of(block).map(Tier::number), Some(tier));
                    assert!(
                        std::slice::from_raw_parts(block, size)
                            .iter()
                            .all(|b| *b == 5)
                    );
                    kind.dealloc(block);
                }
            }
        }
        assert!(
            limited.alloc(layout(4 * MIB + 1, 1)).is_null(),
            "above the limit"
        );
        assert!(
            std::fs::read_dir(dir.path()).unwrap().next().is_none(),
            "the file has a name"
        );

        // Blocks that are left go with their kind.
        let left = file.alloc(layout(100, 1));
        // SAFETY: neither the kinds nor their blocks are used any more.
        unsafe {
            assert!(file.destroy() && limited.destroy());
            assert!(!Kind::DEFAULT.destroy() && !Kind::DRAM.destroy() && !cold.destroy());
        }
        assert_eq!(tier_of(left), None);
        assert_eq!(stats().tiers().count(), 2);
    });
}

#[test]
fn bad_kinds_are_refused() {
    alone("bad_kinds_are_refused", None, || {
        let refusal = |spec: &str| Kind::new(spec).unwrap_err();
        assert_eq!(refusal("cold=memfd;polcy=cold"), Error::Configuration);
        assert_eq!(refusal("cold=memfd,limit:1X"), Error::Configuration);
        assert_eq!(
            refusal("cold=file:/no/such/folder;policy=cold"),
            Error::Tier
        );
        // Each error has a text of its own.
        assert_ne!(Error::Configuration.to_string(), Error::Tier.to_string());
        let error: Box<dyn std::error::Error> = refusal("x").into();
        assert!(error.to_string().contains("configuration"));
        // As many as there is room for; destroyed ones make room again.
        let mut kinds = Vec::new();
        let full = loop {
            match Kind::new("policy=dram") {
                Ok(kind) => kinds.push(kind),
                Err(error) => break error,
            }
        };
        assert_eq!((full, kinds.len()), (Error::TooMany, 512 - 3));
        // SAFETY: it was never used.
        assert!(unsafe { kinds.pop().unwrap().destroy() });
        assert!(Kind::new("policy=dram").is_ok());
    });
}

#[test]
fn configured_once() {
    alone("configured_once", None, || {
        let before = Box::new(1u8);
        assert_eq!(
            configure("cold=memfd;policy=sise"),
            Err(Error::Configuration)
        );
        assert_eq!(configure("cold=memfd;policy=size;threshold=4K"), Ok(()));
        assert_eq!(configure("cold=memfd;policy=cold"), Err(Error::TooLate));
        let large = vec![1u8; 4 * KIB];
        assert_eq!(tier_of(large.as_ptr()), Some(Tier::COLD));
        assert_eq!(tier_of(&raw const *Box::new(1u8)), Some(Tier::DRAM));
        assert_eq!(tier_of(&raw const *before), Some(Tier::DRAM));
        assert_eq!(
            Kind::cold().map(|k| tier_of(k.alloc(layout(1, 1)))),
            Some(Some(Tier::COLD))
        );
    });
}

#[test]
fn configured_without_a_folder() {
    alone("configured_without_a_folder", None, || {
        let missing = "cold=file:/no/such/folder;policy=cold";
        assert_eq!(configure(missing), Err(Error::Tier));
        // The program goes on.
        assert_eq!(tier_of(vec![1u8; MIB].as_ptr()), Some(Tier::DRAM));
    });
}

#[test]
fn statistics_count_blocks() {
    alone("statistics_count_blocks", None, || {
        // Another allocator's blocks are in the default kind of the same process.
        let kind = Kind::new("cold=memfd,limit:64M;policy=cold").unwrap();
        let tier = tier_of(kind.alloc(layout(1, 1))).unwrap();
        let before = figures(tier);
        assert_eq!((before.asked, before.limit), (Some(16), Some(64 * MIB)));
        let blocks: Vec<_> = (0..1000).map(|_| kind.alloc(layout(1000, 1))).collect();
        let after = figures(tier);
        // A thousand bytes in the cold tier are four write units of 256.
        assert_eq!(after.asked.unwrap() - 16, 1000 * 1024);
        assert!(
            after.held >= after.asked.unwrap() && after.peak >= after.held,
            "{after:?}"
        );
        // Pages that were never written may have no memory behind them yet.
        for block in &blocks {
            // SAFETY: a live block of a thousand bytes.
            unsafe { block.write_bytes(1, 1000) };
        }
        assert!(figures(tier).resident >= 1000 * 1000);
        for block in blocks {
            // SAFETY: a live block that nobody uses any more.
            unsafe { kind.dealloc(block) };
        }
        assert_eq!(figures(tier).asked, Some(16));
        assert!(figures(tier).peak >= after.held);
        // What does not fit goes to DRAM, and is counted.
        let large = kind.alloc(layout(65 * MIB, 1));
        assert_eq!(tier_of(large), Some(Tier::DRAM));
        assert_eq!((figures(tier).fallbacks, stats().fallbacks), (1, 1));
        assert!(stats().metadata > 0);
    });
}

#[test]
fn a_budget_that_is_passed_is_counted() {
    alone(
        "a_budget_that_is_passed_is_counted",
        Some("dram=8M"),
        || {
            assert_eq!(stats().beyond_budget, 0);
            let large = vec![1u8; 9 * MIB];
            assert_eq!(tier_of(large.as_ptr()), Some(Tier::DRAM));
            assert_eq!((stats().beyond_budget, stats().fallbacks), (1, 0));
            assert_eq!(stats().warnings, 1);
            drop(large);
            tierheap::trim();
            drop(vec![1u8; MIB]);
            assert_eq!(stats().beyond_budget, 1);
        },
    );
}

#[test]
#[cfg_attr(
    not(feature = "allocator-api2"),
    ignore = "needs --features allocator-api2"
)]
fn collections_in_a_kind() {
    #[cfg(not(feature = "allocator-api2"))]
    panic!("run with --features allocator-api2");
    #[cfg(feature = "allocator-api2")]
    alone("collections_in_a_kind", None, collections::in_a_kind);
}

#[cfg(feature = "allocator-api2")]
mod collections {
    use super::*;
    use allocator_api2::alloc::Allocator;
    use allocator_api2::{boxed::Box, vec::Vec};

    #[repr(align(128))]
    #[derive(Clone, Copy)]
    struct Line(u8);

    pub fn in_a_kind() {
        let kind = Kind::new("cold=memfd,limit:32M;policy=cold;strict=1").unwrap();
        let cold = tier_of(kind.alloc(layout(1, 1)));
        assert_eq!(cold.map(Tier::number), Some(2));
        let empty = figures(Tier::COLD).asked;

        let mut bytes: Vec<u8, Kind> = Vec::new_in(kind);
        for i in 0..3 * MIB {
            bytes.push(i as u8);
        }
        bytes.truncate(70_000);
        bytes.shrink_to_fit();
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == i as u8));
        assert_eq!(tier_of(bytes.as_ptr()), cold);

        let mut lines: Vec<Line, Kind> = Vec::with_capacity_in(3, kind);
        for i in 0..1000 {
            lines.push(Line(i as u8));
            assert!(lines.as_ptr().is_aligned());
        }
        assert!(lines.iter().enumerate().all(|(i, line)| line.0 == i as u8));

        let nested: Box<Vec<Box<u64, Kind>, Kind>, Kind> = Box::new_in(
            {
                let mut inner = Vec::new_in(kind);
                inner.extend((0..500).map(|i| Box::new_in(i, kind)));
                inner
            },
            kind,
        );
        assert!(
            nested
                .iter()
                .enumerate()
                .all(|(i, n)| **n == i as u64 && tier_of(&raw const **n) == cold)
        );
        let nothing: Vec<(), Kind> = {
            let mut units = Vec::new_in(kind);
            units.resize(1000, ());
            units
        };
        assert_eq!(nothing.len(), 1000);

        // Another alignment on the way, as the trait allows.
        let (old, new) = (layout(100, 8), layout(5000, 4096));
        let block = kind.allocate_zeroed(old).unwrap();
        // SAFETY: the block is live, of the layout named each time.
        unsafe {
            let block = kind.grow_zeroed(block.cast(), old, new).unwrap();
            assert!(block.cast::<u8>().addr().get().is_multiple_of(4096));
            assert!(block.as_ref().iter().all(|b| *b == 0));
            let block = kind.shrink(block.cast(), new, old).unwrap();
            kind.deallocate(block.cast(), old);
        }
        // A strict kind has no more than its limit; what was there stays.
        assert!(bytes.try_reserve(40 * MIB).is_err());
        assert_eq!(bytes.len(), 70_000);

        drop((bytes, lines, nested, nothing));
        assert_eq!(figures(Tier::COLD).asked, empty);
    }
}
