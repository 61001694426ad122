//! The process: when things start and end, which thread has which heap, what fork does, which
//! kinds there are, and the slow halves of the calls that users make.

pub mod calls;
mod configure;
mod exit;
mod fork;
mod gate;
pub mod kinds;
pub mod report;
mod start;
pub mod stats;
mod threads;

pub use calls::*;
pub use configure::{Refusal, configure};
