//! Pure values: units, size classes, the configuration grammar. No unsafe, no state, no system.

pub mod config;
mod size_class;
mod units;

pub use size_class::{CLASSES, COLD_UNIT, DIRECT, MAX_CLASS, MAX_DIRECT, SizeClass};
pub use units::{
    Addr, Bytes, Millis, PAGE, SEGMENT, SLICE, SLICES_PER_SEGMENT, SegmentId, SliceId, TierId,
    spread,
};
