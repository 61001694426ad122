//! Tiers: what gives a range of the window its physical memory, and what accounts for it.
//!
//! A backing never chooses addresses: the arena owns the window and says where. Offsets into a
//! tier's file keep step with addresses, so that neighbours merge into one mapping.
//!
//! The life of a range of a file tier, as the arena drives it:
//!
//! ```text
//! reserved --map--> shared, no space --commit--> shared, usable
//!                     ^         ^--release--------'    |
//!                     |                                | freeze, before a fork
//!                     |                                v
//!                     '--thaw (empty, children gone)-- frozen: private, copy on write
//! ```

mod account;
mod backing;
mod children;
mod copies;
mod error;
mod file;
mod freeze;
mod leftovers;
mod node;
#[cfg(test)]
mod tests;

pub use account::Account;
pub use backing::{Backing, Contents, Frozen, Name, Released, Room, Spec, View};
pub use children::{Children, Generation};
pub use error::TierError;
pub use file::{FileBacking, Medium};
pub use node::NodeBacking;
