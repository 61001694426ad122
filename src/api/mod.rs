//! Faces: the same calls under the names that Rust, C, libc's users, C++ and jemalloc's users
//! know. No logic beyond each face's own manners (what null, zero and bad alignment mean).

#[cfg(all(feature = "allocator-api2", not(feature = "preload")))]
mod allocator_api2;
pub mod c;
#[cfg(feature = "libc-names")]
pub mod cxx_names;
#[cfg(feature = "libc-names")]
pub mod jemalloc_names;
#[cfg(feature = "libc-names")]
pub mod libc_names;
#[cfg(feature = "libc-names")]
mod mallinfo;
#[cfg(not(feature = "preload"))]
mod rust;

#[cfg(not(feature = "preload"))]
pub use rust::{Error, Kind, Stats, Tier, TierHeap, TierStats, configure, stats, tier_of, trim};
