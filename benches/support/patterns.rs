//! The patterns of calls that `GlobalAlloc`s are timed by.

use criterion::{BenchmarkId, Criterion, Throughput};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::mpsc;
use std::time::Duration;

/// By reference, so that the same code serves them all: each pays for one indirect call.
pub type Heap = &'static (dyn GlobalAlloc + Sync);

const BATCH: usize = 500;
const LIVE: usize = 1024;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).unwrap()
}

fn quick() -> bool {
    std::env::var("QUICK").is_ok_and(|v| !v.is_empty() && v != "0")
}

/// Allocates and frees one block at a time.
fn pair(c: &mut Criterion, heaps: &[(&str, Heap)]) {
    let mut group = c.benchmark_group("pair");
    for size in [16, 64, 512, 4096, 32 << 10, 1 << 20] {
        for &(name, heap) in heaps {
            group.bench_function(BenchmarkId::new(name, size), |b| {
                let layout = layout(size);
                // SAFETY: the layout is not empty; each block is freed once, with its layout.
                b.iter(|| unsafe { heap.dealloc(black_box(heap.alloc(layout)), layout) });
            });
        }
    }
}

/// Frees a batch in the order of its allocation, or against it.
fn batch(c: &mut Criterion, heaps: &[(&str, Heap)]) {
    for (order, backwards) in [("fifo", false), ("lifo", true)] {
        let mut group = c.benchmark_group(order);
        group.throughput(Throughput::Elements(BATCH as u64));
        for &(name, heap) in heaps {
            group.bench_function(BenchmarkId::new(name, 64), |b| {
                let layout = layout(64);
                let mut blocks = vec![std::ptr::null_mut(); BATCH];
                b.iter(|| {
                    for block in &mut blocks {
                        // SAFETY: the layout is not empty.
                        *block = unsafe { heap.alloc(layout) };
                    }
                    for i in 0..BATCH {
                        let block = blocks[if backwards { BATCH - 1 - i } else { i }];
                        // SAFETY: allocated above with this layout, freed once.
                        unsafe { heap.dealloc(block, layout) };
                    }
                });
            });
        }
    }
}

/// Replaces one of the live blocks, picked at random, by one of random size.
fn random(c: &mut Criterion, heaps: &[(&str, Heap)]) {
    let mut group = c.benchmark_group("random");
    for &(name, heap) in heaps {
        group.bench_function(BenchmarkId::new(name, "1 to 1024"), |b| {
            let mut live = vec![(std::ptr::null_mut::<u8>(), layout(1)); LIVE];
            let mut x = 0x9E37_79B9_7F4A_7C15u64;
            b.iter(|| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let slot = &mut live[(x >> 20) as usize % LIVE];
                if !slot.0.is_null() {
                    // SAFETY: allocated below with the layout beside it; overwritten next.
                    unsafe { heap.dealloc(slot.0, slot.1) };
                }
                slot.1 = layout((x >> 40) as usize % 1024 + 1);
                // SAFETY: the layout is not empty.
                slot.0 = unsafe { heap.alloc(slot.1) };
            });
            for (block, layout) in live.into_iter().filter(|(b, _)| !b.is_null()) {
                // SAFETY: the blocks that are left, each freed once.
                unsafe { heap.dealloc(block, layout) };
            }
        });
    }
}

fn zeroed(c: &mut Criterion, heaps: &[(&str, Heap)]) {
    let mut group = c.benchmark_group("zeroed");
    for size in [64, 4096, 1 << 20] {
        for &(name, heap) in heaps {
            group.bench_function(BenchmarkId::new(name, size), |b| {
                let layout = layout(size);
                // SAFETY: as in `pair`.
                b.iter(|| unsafe { heap.dealloc(black_box(heap.alloc_zeroed(layout)), layout) });
            });
        }
    }
}

/// A vector's growth: 16 bytes, doubled up to the size.
fn doubling(c: &mut Criterion, heaps: &[(&str, Heap)]) {
    let mut group = c.benchmark_group("doubling");
    for size in [64 << 10, 16 << 20] {
        for &(name, heap) in heaps {
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter(|| {
                    let mut now = 16;
                    // SAFETY: the layout is not empty.
                    let mut block = unsafe { heap.alloc(layout(now)) };
                    while now < size {
                        // SAFETY: a live block of that layout; the new size is not zero.
                        block = unsafe { heap.realloc(block, layout(now), now * 2) };
                        now *= 2;
                    }
                    // SAFETY: the last block, of that layout.
                    unsafe { heap.dealloc(block, layout(now)) };
                });
            });
        }
    }
}

/// One thread allocates batches, another frees them.
fn remote(c: &mut Criterion, heaps: &[(&str, Heap)]) {
    let mut group = c.benchmark_group("remote");
    group.throughput(Throughput::Elements(BATCH as u64));
    for &(name, heap) in heaps {
        group.bench_function(BenchmarkId::new(name, 64), |b| {
            let layout = layout(64);
            let (to, batches) = mpsc::sync_channel::<Vec<usize>>(4);
            let (back, empties) = mpsc::channel::<Vec<usize>>();
            let freer = std::thread::spawn(move || {
                for mut batch in batches {
                    for block in batch.drain(..) {
                        // SAFETY: allocated by the other thread with this layout, sent once.
                        unsafe { heap.dealloc(block as *mut u8, layout) };
                    }
                    if back.send(batch).is_err() {
                        break;
                    }
                }
            });
            b.iter(|| {
                let mut batch = empties
                    .try_recv()
                    .unwrap_or_else(|_| Vec::with_capacity(BATCH));
                // SAFETY: the layout is not empty.
                batch.extend((0..BATCH).map(|_| unsafe { heap.alloc(layout) } as usize));
                to.send(batch).unwrap();
            });
            drop(to);
            freer.join().unwrap();
        });
    }
}

/// Criterion's, shorter with `QUICK=1`.
fn settings() -> Criterion {
    let c = Criterion::default();
    if quick() {
        c.sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(300))
    } else {
        c.sample_size(40)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2))
    }
}

/// All of them, each heap after the other within a pattern. Criterion's own memory should come from
/// none of the heaps but the system's.
pub fn all(heaps: &[(&str, Heap)]) {
    let mut c = settings().configure_from_args();
    for pattern in [pair, batch, random, zeroed, doubling, remote] {
        pattern(&mut c, heaps);
    }
    c.final_summary();
}
