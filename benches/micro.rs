//! The heap's own speed, through Rust's `GlobalAlloc`, beside the system's allocator:
//! `cargo bench --bench micro`. Nothing is preloaded and criterion's own memory comes from the
//! system, so that only the calls measured reach the heap. `benches/global` has the newest peers, too.

#[path = "support/patterns.rs"]
mod patterns;

use std::alloc::System;
use tierheap::TierHeap;

static TIERHEAP: TierHeap = TierHeap::new();

fn main() {
    patterns::all(&[("tierheap", &TIERHEAP), ("system", &System)]);
}
