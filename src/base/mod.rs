//! Pure values: units, size classes, the configuration grammar. No unsafe, no state, no system.

pub mod config;
pub mod size_class;
mod units;

pub use units::{
    Addr, Bytes, Millis, PAGE, SEGMENT, SLICE, SLICES_PER_SEGMENT, SegmentId, SliceId, TierId,
};
