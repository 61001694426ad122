//! tierheap: one heap over DRAM and slower memory tiers.
#![no_std]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::todo,
        clippy::unimplemented
    )
)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

// The standard library is linked for its panic machinery only; no room below the tests names it.
// Preloaded, the library does without: what std does on a panic is half a megabyte of code that
// would be mapped and relocated at the start of every program.
#[cfg(any(test, not(any(loom, feature = "preload"))))]
#[allow(unused_extern_crates)]
extern crate std;

#[deny(unsafe_code)]
pub mod base;
pub mod sync;
// loom's atomics cannot be made in statics, so its models stop above this room.
#[cfg(not(any(loom, feature = "preload")))]
pub mod api;
// No Rust program links the preloaded library, and what none can reach the compiler may take for its
// own: the window is then addressed without a detour through the table of symbols.
#[cfg(all(not(loom), feature = "preload"))]
mod api;
#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod heap;
pub mod lockfree;
#[cfg(not(loom))]
pub mod os;
#[cfg(not(loom))]
#[deny(unsafe_code)]
pub mod policy;
#[cfg(not(loom))]
mod runtime;
#[cfg(not(loom))]
pub mod tier;

#[cfg(not(any(loom, feature = "preload")))]
pub use api::{Error, Kind, Stats, Tier, TierHeap, TierStats, configure, stats, tier_of, trim};
