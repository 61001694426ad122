//! What a program may ask of the heap, as values, and written as text, so that a sequence that
//! fails can be run again by itself.

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

    /// Whether it is made by `tierheap_kind_create`, and can be destroyed.
    pub fn is_made(self) -> bool {
        self as usize >= Target::File as usize
    }

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

impl Op {
    /// Which block it is about.
    pub fn pick(self) -> Option<usize> {
        match self {
            Op::Realloc(pick, ..) | Op::Free(pick) => Some(pick),
            _ => None,
        }
    }
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
