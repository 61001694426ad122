//! Faces: the same calls under the names that Rust, C, libc's users, C++ and jemalloc's users
//! know. No logic beyond each face's own manners (what null, zero and bad alignment mean).

#[cfg(feature = "allocator-api2")]
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
mod rust;

pub use rust::{Error, Kind, Stats, Tier, TierHeap, TierStats, configure, stats, tier_of, trim};
