//! Slabs, thread heaps, and the two fast paths. Everything that says which block.

mod bin;
pub mod fast;
pub mod fault;
pub mod kind;
mod large;
mod obtain;
pub mod orphans;
pub mod refill;
pub mod release;
pub mod remote;
pub mod resize;
pub mod scrub;
pub mod shelf;
pub mod slab;
pub mod sleep;
pub mod slot;
mod steps;
pub mod thread_heap;
pub mod tidy;
pub mod walk;

pub use kind::KindId;
pub use thread_heap::{KindHeap, ThreadHeap};

pub use large::{LargeBlock, alloc as alloc_large};
