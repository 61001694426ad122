//! Memory of NUMA nodes: CXL, persistent memory given to the system as RAM, or a far socket.

use super::backing::{Room, advise_huge, map_anonymous};
use super::error::TierError;
use crate::base::config::{NodeSet, Thp};
use crate::base::{Addr, Bytes, Millis, PAGE};
use crate::os::lock::Lock;
use crate::os::map::{self, Access};
use crate::os::numa::{self, NodeMemory, Placement};
use crate::os::{Errno, clock};

pub struct NodeBacking {
    nodes: NodeSet,
    placement: Placement,
    thp: Thp,
    budget: Lock<Budget>,
}

/// What may still be committed before the nodes' free memory is read again.
struct Budget {
    left: usize,
    read_at: Option<Millis>,
}

/// A reading is 20 microseconds of sysfs for each node: not for every slice.
const FRESH_MS: u64 = 250;
/// A full node is asked again this often.
const RETRY_MS: u64 = 20;

impl NodeBacking {
    pub fn open(nodes: NodeSet, thp: Thp) -> Result<NodeBacking, TierError> {
        let memory = numa::with_memory();
        // A kernel without NUMA has no list, and one node that is not worth a tier.
        if let Some(node) = nodes.iter().find(|&node| !memory.contains(node)) {
            return Err(TierError::NoSuchNode(node));
        }
        if nodes.is_empty() {
            return Err(TierError::NoMemoryOnlyNode);
        }
        let page = map::anywhere(PAGE, Access::ReadWrite).map_err(TierError::NumaRefused)?;
        let placement = numa::best_placement(page, PAGE, &nodes);
        // SAFETY: the page was mapped just now and nobody else knows it.
        let _ = unsafe { map::unmap(page, PAGE) };
        Ok(NodeBacking {
            nodes,
            placement: placement.map_err(TierError::NumaRefused)?,
            thp,
            budget: Lock::new(Budget {
                left: 0,
                read_at: None,
            }),
        })
    }

    pub fn open_memory_only(thp: Thp) -> Result<NodeBacking, TierError> {
        NodeBacking::open(numa::memory_only(), thp)
    }

    pub fn nodes(&self) -> &NodeSet {
        &self.nodes
    }

    /// # Safety
    /// As `Backing::map`.
    pub(super) unsafe fn map(&self, addr: Addr, len: Bytes) -> Result<(), Errno> {
        // Placed before it may be touched.
        numa::place(addr, len, &self.nodes, self.placement)?;
        // SAFETY: the caller owns the range.
        unsafe {
            map_anonymous(addr, len, Thp::System)?;
            advise_huge(addr, len, self.thp);
        }
        Ok(())
    }

    /// Refuses before the nodes are full: past that the kernel places pages on other nodes without
    /// a word (preferred), or kills (bind). Memory committed and not yet touched is seen only
    /// until the next reading; what slips through lands in DRAM and nothing breaks.
    pub fn commit(&self, len: Bytes) -> Result<(), Errno> {
        self.commit_at(len, clock::now(), || numa::memory_of(&self.nodes))
    }

    fn commit_at(
        &self,
        len: Bytes,
        now: Millis,
        read: impl Fn() -> Result<NodeMemory, Errno>,
    ) -> Result<(), Errno> {
        let mut budget = self.budget.lock();
        let age = budget.read_at.map_or(u64::MAX, |then| now.since(then));
        let short = budget.left < len.get();
        if age >= FRESH_MS || (short && age >= RETRY_MS) {
            // Not to be known: the kernel decides, as it would without us.
            let Ok(memory) = read() else { return Ok(()) };
            budget.left = memory.free.saturating_sub(margin(memory.total)).get();
            budget.read_at = Some(now);
        }
        match budget.left.checked_sub(len.get()) {
            Some(left) => {
                budget.left = left;
                Ok(())
            }
            None => Err(Errno::NOMEM),
        }
    }

    pub(super) fn room(&self) -> Option<Room> {
        let memory = numa::memory_of(&self.nodes).ok()?;
        Some(Room {
            free: memory.free,
            total: memory.total,
        })
    }
}

/// What is left to the kernel: it starts to reclaim at its own watermarks, well below this.
fn margin(total: Bytes) -> Bytes {
    Bytes::new((total.get() / 64).clamp(Bytes::mib(32).get(), Bytes::mib(512).get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_full_node_refuses_and_is_not_asked_too_often() {
        let node = NodeBacking {
            nodes: NodeSet::EMPTY,
            placement: Placement::PreferOne,
            thp: Thp::System,
            budget: Lock::new(Budget {
                left: 0,
                read_at: None,
            }),
        };
        let (free, reads) = (Cell::new(Bytes::mib(64)), Cell::new(0));
        let commit = |mib, at| {
            node.commit_at(Bytes::mib(mib), Millis(at), || {
                reads.set(reads.get() + 1);
                Ok(NodeMemory {
                    total: Bytes::mib(1024),
                    free: free.get(),
                })
            })
        };
        // 64 MiB are free, and 32 stay with the kernel.
        assert_eq!(commit(20, 1000), Ok(()));
        assert_eq!(commit(12, 1001), Ok(()));
        assert_eq!(reads.get(), 1);
        assert_eq!(commit(1, 1002), Err(Errno::NOMEM));
        assert_eq!(reads.get(), 1, "read a moment ago");
        free.set(Bytes::mib(32));
        assert_eq!(commit(1, 1000 + RETRY_MS), Err(Errno::NOMEM));
        assert_eq!(reads.get(), 2);
        free.set(Bytes::mib(100));
        assert_eq!(commit(1, 1001 + RETRY_MS), Err(Errno::NOMEM));
        assert_eq!(commit(1, 1000 + 2 * RETRY_MS), Ok(()));
        assert_eq!(reads.get(), 3);
        // A reading grows old though there is plenty left.
        free.set(Bytes::ZERO);
        assert_eq!(commit(1, 1000 + 2 * RETRY_MS + FRESH_MS), Err(Errno::NOMEM));
        // What cannot be known is the kernel's to decide.
        let blind = node.commit_at(Bytes::mib(1), Millis(9999), || Err(Errno::NOENT));
        assert_eq!(blind, Ok(()));
    }
}
