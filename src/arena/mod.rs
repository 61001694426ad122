//! Segments and slices: the window of addresses, a lane of it for each tier, and the metadata
//! allocator. Everything that says what an address is.

mod bits;
mod fork;
pub mod lane;
mod lane_state;
pub mod meta;
mod purge;
mod segment;
mod start;
mod take;
mod thaw;
pub mod window;

pub use fork::{after_fork_child, after_fork_parent, before_fork, freezes, is_frozen};
pub use lane::{Lane, PURGE_DELAY_MS, Refused, Run, dirty_lanes};
pub use start::{LANES, MAX_LANES, is_mapped, lane, open_lane, start};
pub use thaw::thaw_pages;
pub use window::{View, WINDOW};
