//! The account of a tier: bytes held against its limit, exact to the byte.

/// Charge before memory is taken, uncharge after it is given back; statistics read it. It lives
/// with the other lock-free pieces, where loom can reach it.
pub use crate::lockfree::AtomicAccount as Account;
