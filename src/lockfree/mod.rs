//! What threads share without locks, each piece with a loom model that fails when its ordering
//! is weakened.
//!
//! | piece | shared between | argument in one line |
//! |---|---|---|
//! | [`inbox`] | freeing threads, one owner | only whole chains are taken, so there is no ABA |
//! | [`ownership`], [`orphan`] | an exiting thread, freeing threads, an adopter | who posts to an orphan drains it |
//! | [`gate`] | every thread, the one that forks | Dekker: announce yourself, then look |
//! | [`shelf`] | a thread, those that tidy up after it | whoever empties a place owns what was there |
//! | [`account`] | every thread that grows a tier | a charge is one compare-and-swap |

// These live in statics and in zeroed tables, where no `Default` can be called.
#![allow(clippy::new_without_default)]

pub mod account;
pub mod gate;
pub mod inbox;
#[cfg(all(test, loom))]
mod model;
pub mod orphan;
pub mod ownership;
pub mod shelf;

pub use account::AtomicAccount;
pub use gate::{Gate, Seat, ThreadId};
pub use inbox::{Chain, Inbox, Link};
pub use orphan::Orphanable;
pub use ownership::Ownership;
pub use shelf::Shelf;

/// A constructor that statics can call. loom's atomics register themselves with the model that
/// runs, so there it cannot be `const`.
macro_rules! const_unless_loom {
    ($(#[$doc:meta])* pub fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$doc])*
        pub const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(loom)]
        $(#[$doc])*
        pub fn $name($($arg: $ty),*) -> $ret $body
    };
}
use const_unless_loom;
