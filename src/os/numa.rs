//! NUMA nodes, from sysfs and by system calls: libnuma allocates, and containers lack it.

use super::errno::Errno;
use super::file;
use super::limits::{kib_field, leading_number};
use super::report::Line;
use super::sys::call;
use crate::base::config::NodeSet;
use crate::base::{Addr, Bytes};
use core::ffi::CStr;
use core::fmt::Write;

/// Nodes that have memory; empty where the kernel knows no NUMA.
pub fn with_memory() -> NodeSet {
    listed(c"/sys/devices/system/node/has_memory")
}

/// Nodes that have processors.
pub fn with_cpus() -> NodeSet {
    listed(c"/sys/devices/system/node/has_cpu")
}

/// Memory without processors: CXL, and persistent memory given to the system as RAM (kmem). A
/// processor's node may lose its last processor to hotplug; the kernel offers no better mark that
/// an unprivileged process can read everywhere.
pub fn memory_only() -> NodeSet {
    let cpus = with_cpus();
    let mut nodes = NodeSet::EMPTY;
    for node in with_memory().iter().filter(|&node| !cpus.contains(node)) {
        let _ = nodes.insert(node);
    }
    nodes
}

fn listed(path: &CStr) -> NodeSet {
    // "0-1,3,5-1023" at worst: every second of 1024 nodes takes 2.5 KiB.
    let mut buf = [0; 3072];
    file::read_small(path, &mut buf).map_or(NodeSet::EMPTY, parse_list)
}

/// The kernel's list form; what is not understood ends it.
fn parse_list(text: &[u8]) -> NodeSet {
    let mut nodes = NodeSet::EMPTY;
    for part in text.trim_ascii().split(|&byte| byte == b',') {
        let Some(first) = leading_number(part) else {
            break;
        };
        let mut last = first;
        if let Some(dash) = part.iter().position(|&byte| byte == b'-') {
            match part.get(dash + 1..).and_then(leading_number) {
                Some(number) => last = number,
                None => break,
            }
        }
        for node in first..=last {
            if !u32::try_from(node).is_ok_and(|node| nodes.insert(node)) {
                break;
            }
        }
    }
    nodes
}

/// A node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeMemory {
    pub total: Bytes,
    pub free: Bytes,
}

/// What sysfs says about one node's memory now (about 20 microseconds).
pub fn memory(node: u32) -> Result<NodeMemory, Errno> {
    let mut path = Line::<64>::new();
    let _ = write!(path, "/sys/devices/system/node/node{node}/meminfo\0");
    let path = CStr::from_bytes_with_nul(path.bytes()).map_err(|_| Errno::INVAL)?;
    let mut buf = [0; 4096];
    let text = file::read_small(path, &mut buf)?;
    match (kib_field(text, b"MemTotal:"), kib_field(text, b"MemFree:")) {
        (Some(total), Some(free)) => Ok(NodeMemory { total, free }),
        _ => Err(Errno::INVAL),
    }
}

/// Total and free over several nodes.
pub fn memory_of(nodes: &NodeSet) -> Result<NodeMemory, Errno> {
    let mut sum = NodeMemory {
        total: Bytes::ZERO,
        free: Bytes::ZERO,
    };
    for node in nodes.iter() {
        let one = memory(node)?;
        sum.total = Bytes::new(sum.total.get().saturating_add(one.total.get()));
        sum.free = Bytes::new(sum.free.get().saturating_add(one.free.get()));
    }
    Ok(sum)
}

/// How memory is asked to come from the nodes. Never a hard MPOL_BIND to one node: when that node
/// is full the kernel does not look elsewhere but kills the process as out of memory, or hangs it
/// in reclaim. Preferring may place pages elsewhere, which the free-memory check makes rare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// One node preferred: every kernel.
    PreferOne,
    /// Several nodes preferred: Linux 5.15.
    PreferMany,
    /// Several nodes on older kernels, where only a hard bind takes more than one; with several
    /// nodes the kill comes when all of them are full, and the free-memory check stops before.
    Bind,
}

impl Placement {
    const PREFERRED_MANY: usize = 5;

    const fn mode(self) -> usize {
        match self {
            Placement::PreferOne => libc::MPOL_PREFERRED as usize,
            Placement::PreferMany => Self::PREFERRED_MANY,
            Placement::Bind => libc::MPOL_BIND as usize,
        }
    }
}

/// Asks that pages of the range come from these nodes when they are first touched. Pages that are
/// there already stay where they are.
pub fn place(addr: Addr, len: Bytes, nodes: &NodeSet, how: Placement) -> Result<(), Errno> {
    let words = nodes.words();
    // The kernel reads one bit less than it is told (a quirk as old as the call).
    let bits = words.len() * 64 + 1;
    let args = [
        addr.get(),
        len.get(),
        how.mode(),
        words.as_ptr() as usize,
        bits,
        0,
    ];
    // SAFETY: the kernel reads `bits - 1` bits, all of them in `words`; contents are untouched.
    unsafe { call(libc::SYS_mbind, args) }.map(drop)
}

/// The best placement for these nodes that this kernel grants, tried on a range that nothing
/// depends on.
pub fn best_placement(probe: Addr, len: Bytes, nodes: &NodeSet) -> Result<Placement, Errno> {
    let choices: &[Placement] = if nodes.iter().count() == 1 {
        &[Placement::PreferOne]
    } else {
        &[Placement::PreferMany, Placement::Bind]
    };
    let mut outcome = Err(Errno::INVAL);
    for &how in choices {
        outcome = place(probe, len, nodes, how).map(|()| how);
        // EINVAL is an unknown mode (or a node without memory); others fail in any mode.
        if outcome != Err(Errno::INVAL) {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn list(text: &[u8]) -> Vec<u32> {
        parse_list(text).iter().collect()
    }

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(list(b"0\n"), [0]);
        assert_eq!(list(b"0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(list(b"\n"), [0u32; 0]);
        assert_eq!(list(b"1,x"), [1]);
        assert_eq!(list(b"3-"), [0u32; 0]);
        assert_eq!(
            list(b"1022-99999999999").len(),
            2,
            "past the last node that can exist"
        );
    }

    #[test]
    fn a_nodes_memory_is_part_of_the_machines() {
        let nodes = with_memory();
        if nodes.is_empty() {
            return crate::os::testing::skipped("this kernel knows no NUMA nodes");
        }
        let memory = memory_of(&nodes).unwrap();
        let all = crate::os::limits::total_ram();
        assert!(memory.free <= memory.total);
        // The kernel counts some reserved pages in one place and not in the other, and memory that a
        // hypervisor added later may stand in neither of the nodes.
        let most = all.get() + all.get() / 20;
        assert!(
            memory.total != Bytes::ZERO && memory.total.get() <= most,
            "{memory:?} {all:?}"
        );
        assert_eq!(memory_of(&parse_list(b"1023")), Err(Errno::NOENT));
        assert!(with_cpus().iter().all(|node| !memory_only().contains(node)));
    }
}
