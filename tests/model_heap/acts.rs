//! A program's life as bytes: what a fuzzer changes and a corpus holds. Every string of bytes is
//! some sequence of acts, and one that is cut short is the same sequence cut short.

use crate::ops::{Op, Target};

/// One thing that a program does. Blocks are picked by a number that is taken modulo the live
/// ones, threads and children likewise.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Call(Op),
    /// The same in another thread, at the same time as what follows.
    Elsewhere(usize, Op),
    /// A thread ends; the next call in it starts a new one.
    End(usize),
    /// All other threads have done what they were to do.
    Meet,
    /// What is known of a block has not changed.
    Ask(usize),
    Advise(usize, usize),
    /// Writes a block anew.
    Rewrite(usize),
    /// Calls that must be refused.
    Misuse(u8),
    Trim,
    /// The statistics add up.
    Audit,
    /// A kind is destroyed, with its blocks, and one like it made.
    Renew(Target),
    /// A child is forked, while other threads allocate or not; see `session` for what it does.
    Fork {
        busy: bool,
    },
    /// A child looks at its memory and ends.
    Reap(usize),
}

/// More acts than this find nothing new, and take long.
const MOST: usize = 400;

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> usize {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first as usize
    }

    fn pair(&mut self) -> usize {
        self.byte() | self.byte() << 8
    }

    fn target(&mut self) -> Target {
        Target::ALL[self.byte() % Target::ALL.len()]
    }

    /// Mostly small; both sides of the bounds between classes, slices and segments.
    fn size(&mut self) -> usize {
        match self.byte() % 16 {
            0..=3 => self.byte() % 129,
            4..=7 => self.pair() % 2049,
            8..=10 => self.pair() % ((16 << 10) + 1),
            11 | 12 => {
                let shift = 4 + self.byte() % 17;
                (1 << shift) + self.byte() % 3 - 1
            }
            13 | 14 => (16 << 10) + self.pair() * 8,
            _ => (512 << 10) + self.pair() * 40,
        }
    }

    fn op(&mut self) -> Op {
        match self.byte() % 16 {
            0..=3 => Op::Malloc(self.target(), self.size()),
            4 | 5 => {
                let shift = self.byte() % 5;
                Op::Calloc(self.target(), self.size() >> shift, 1 << shift)
            }
            6 => Op::Aligned(self.target(), 3 + self.byte() as u32 % 20, self.size()),
            7 => Op::Posix(self.target(), 3 + self.byte() as u32 % 20, self.size()),
            8..=10 => {
                let to = self.byte().is_multiple_of(4).then(|| self.target());
                Op::Realloc(self.byte(), self.size(), to)
            }
            _ => Op::Free(self.byte()),
        }
    }

    fn act(&mut self) -> Act {
        match self.byte() % 64 {
            0..=33 => Act::Call(self.op()),
            34..=47 => Act::Elsewhere(self.byte(), self.op()),
            48 => Act::End(self.byte()),
            49 => Act::Meet,
            50 => Act::Ask(self.byte()),
            51 => Act::Advise(self.byte(), self.pair()),
            52 | 53 => Act::Rewrite(self.byte()),
            54 => Act::Misuse(self.byte() as u8),
            55 | 56 => Act::Trim,
            57 | 58 => Act::Audit,
            59 => Act::Renew(self.target()),
            60 | 61 => Act::Fork {
                busy: self.byte() % 2 == 1,
            },
            _ => Act::Reap(self.byte()),
        }
    }
}

/// The sequence that a string of bytes stands for.
pub fn of_bytes(bytes: &[u8]) -> Vec<Act> {
    let mut reader = Reader(bytes);
    let mut acts = Vec::new();
    while !reader.0.is_empty() && acts.len() < MOST {
        acts.push(reader.act());
    }
    acts
}
