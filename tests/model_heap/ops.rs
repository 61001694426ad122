//! What a program may ask of the heap, as values: made at random, shrunk, and written as text, so
//! that a sequence that fails can be run again by itself.

use proptest::prelude::*;
use std::fmt;

/// The kinds that a sequence allocates from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Default,
    Dram,
    /// The standing cold kind: a memfd.
    Cold,
    /// All blocks in a file.
    File,
    /// By size: from 1 KiB up in a memfd.
    Sized,
    /// A megabyte of a memfd, then DRAM.
    Small,
    /// Two megabytes of a memfd, then NULL.
    Strict,
}

impl Target {
    pub const ALL: [Target; 7] = [
        Target::Default,
        Target::Dram,
        Target::Cold,
        Target::File,
        Target::Sized,
        Target::Small,
        Target::Strict,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Target::Default => "default",
            Target::Dram => "dram",
            Target::Cold => "cold",
            Target::File => "file",
            Target::Sized => "sized",
            Target::Small => "small",
            Target::Strict => "strict",
        }
    }
}

/// One call. Blocks are picked by a number that is taken modulo the live blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Malloc(Target, usize),
    /// The length, in elements of so many bytes.
    Calloc(Target, usize, usize),
    /// The alignment as a power of two.
    Aligned(Target, u32, usize),
    Posix(Target, u32, usize),
    /// In the block's own kind, or to another.
    Realloc(usize, usize, Option<Target>),
    Free(usize),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Op::Malloc(t, size) => write!(f, "malloc {} {size}", t.name()),
            Op::Calloc(t, count, size) => write!(f, "calloc {} {count} {size}", t.name()),
            Op::Aligned(t, shift, size) => write!(f, "aligned {} {shift} {size}", t.name()),
            Op::Posix(t, shift, size) => write!(f, "posix {} {shift} {size}", t.name()),
            Op::Realloc(pick, size, None) => write!(f, "realloc {pick} {size}"),
            Op::Realloc(pick, size, Some(t)) => write!(f, "realloc {pick} {size} {}", t.name()),
            Op::Free(pick) => write!(f, "free {pick}"),
        }
    }
}

// A failing sequence is printed in the form that `parse` reads.
impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text of a sequence: one call a line.
pub fn text(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("{op}\n")).collect()
}

/// The sequence that a text stands for.
pub fn parse(text: &str) -> Vec<Op> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| parse_line(line).unwrap_or_else(|| panic!("no such call: {line:?}")))
        .collect()
}

fn parse_line(line: &str) -> Option<Op> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let target = |word: &str| Target::ALL.into_iter().find(|t| t.name() == word);
    let number = |word: &str| word.parse::<usize>().ok();
    Some(match words[..] {
        ["malloc", t, size] => Op::Malloc(target(t)?, number(size)?),
        ["calloc", t, count, size] => Op::Calloc(target(t)?, number(count)?, number(size)?),
        ["aligned", t, shift, size] => Op::Aligned(target(t)?, shift.parse().ok()?, number(size)?),
        ["posix", t, shift, size] => Op::Posix(target(t)?, shift.parse().ok()?, number(size)?),
        ["realloc", pick, size] => Op::Realloc(number(pick)?, number(size)?, None),
        ["realloc", pick, size, t] => Op::Realloc(number(pick)?, number(size)?, Some(target(t)?)),
        ["free", pick] => Op::Free(number(pick)?),
        _ => return None,
    })
}

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
