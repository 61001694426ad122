//! What a fork must leave as it was in the parent, whose cold memory is mapped anew for it.

use crate::build::Case;

#[test]
fn fork_shared_futex() {
    Case::new("fork_shared_futex").plain().matrix().done();
}

#[test]
fn fork_protection() {
    Case::new("fork_protection").plain().matrix().done();
}

/// A child that is forked over an interrupted allocator lacks memory of file tiers, with a warning.
#[test]
fn fork_odd() {
    Case::new("fork_odd").plain().warns().matrix().done();
}

#[test]
fn fork_leftover() {
    Case::new("fork_leftover").plain().matrix().done();
}

/// What the limit refuses is warned of.
#[test]
fn fork_space() {
    Case::new("fork_space")
        .plain()
        .warns()
        .under("limited", "cold=memfd,limit:160M;policy=size;threshold=4K")
        .matrix()
        .done();
}
