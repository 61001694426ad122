//! The configuration grammar.
