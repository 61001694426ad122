//! Sequences of calls made at random, which shrink when they fail.

use crate::ops::{Op, Target};
use proptest::prelude::*;

fn target() -> impl Strategy<Value = Target> {
    proptest::sample::select(&Target::ALL[..])
}

/// Mostly small as in real programs; every size class, both sides of every power of two, and
/// blocks of their own up to some megabytes.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        12 => 0usize..=128,
        12 => 129usize..=2048,
        8 => 2049usize..=16 << 10,
        6 => (4u32..=20, -1isize..=1).prop_map(|(shift, d)| (1usize << shift).wrapping_add_signed(d)),
        3 => (16usize << 10)..=512 << 10,
        1 => (512usize << 10)..=3 << 20,
    ]
}

/// An alignment's power of two: cache lines and pages above all, up to that of two segments.
fn shift() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 3u32..=8, 3 => 9u32..=13, 1 => 14u32..=22]
}

fn op() -> impl Strategy<Value = Op> {
    let calloc = (target(), size(), 0u32..=4)
        .prop_map(|(t, size, shift)| Op::Calloc(t, size >> shift, 1 << shift));
    let to = prop_oneof![3 => Just(None), 1 => target().prop_map(Some)];
    prop_oneof![
        4 => (target(), size()).prop_map(|(t, size)| Op::Malloc(t, size)),
        2 => calloc,
        1 => (target(), shift(), size()).prop_map(|(t, a, size)| Op::Aligned(t, a, size)),
        1 => (target(), shift(), size()).prop_map(|(t, a, size)| Op::Posix(t, a, size)),
        3 => (0usize..1 << 20, size(), to).prop_map(|(p, size, to)| Op::Realloc(p, size, to)),
        5 => (0usize..1 << 20).prop_map(Op::Free),
    ]
}

/// Sequences of up to so many calls.
pub fn sequence(calls: usize) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..=calls)
}
