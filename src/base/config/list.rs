//! Small values of fixed room: the parser has no allocator to ask, it is the allocator.

use core::fmt;
use core::ops::Deref;

/// Up to `N` items in place; reads as a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List<T, const N: usize> {
    /// Items from `len` on keep the filler, so that derived equality is that of the slices.
    items: [T; N],
    len: usize,
}

/// A list refused an item more than it has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl<T: Copy, const N: usize> List<T, N> {
    pub const fn empty(filler: T) -> List<T, N> {
        List {
            items: [filler; N],
            len: 0,
        }
    }
    pub fn push(&mut self, item: T) -> Result<(), Full> {
        *self.items.get_mut(self.len).ok_or(Full)? = item;
        self.len += 1;
        Ok(())
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&[])
    }
}

/// A set of NUMA nodes, in the form that `mbind` takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeSet([u64; NodeSet::WORDS]);

impl NodeSet {
    /// The kernel's own ceiling (CONFIG_NODES_SHIFT is at most 10).
    pub const MAX_NODE: u32 = 1023;
    pub const WORDS: usize = 16;
    pub const EMPTY: NodeSet = NodeSet([0; NodeSet::WORDS]);

    /// False: the node is past the last that can exist, and was not added.
    pub fn insert(&mut self, node: u32) -> bool {
        match self.0.get_mut(node as usize / 64) {
            Some(word) => {
                *word |= 1 << (node % 64);
                true
            }
            None => false,
        }
    }
    pub fn contains(&self, node: u32) -> bool {
        self.0
            .get(node as usize / 64)
            .is_some_and(|word| word >> (node % 64) & 1 == 1)
    }
    pub fn is_empty(&self) -> bool {
        *self == NodeSet::EMPTY
    }
    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..=NodeSet::MAX_NODE).filter(|&node| self.contains(node))
    }
    /// Node `n` is bit `n % 64` of word `n / 64`.
    pub fn words(&self) -> &[u64; NodeSet::WORDS] {
        &self.0
    }
}

const _: () = assert!(NodeSet::WORDS * 64 == NodeSet::MAX_NODE as usize + 1);

/// As the grammar and sysfs write it: `1,3-5`.
impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut first = None;
        for node in 0..=NodeSet::MAX_NODE {
            if !self.contains(node) {
                continue;
            }
            let from = *first.get_or_insert(node);
            if self.contains(node + 1) {
                continue;
            }
            write!(f, "{comma}{from}")?;
            if from != node {
                write!(f, "-{node}")?;
            }
            comma = ",";
            first = None;
        }
        Ok(())
    }
}
