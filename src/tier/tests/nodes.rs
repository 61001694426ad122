use super::*;
use crate::base::config::NodeSet;
use crate::os::{Errno, numa};
use std::string::ToString;

fn set(nodes: &[u32]) -> NodeSet {
    let mut set = NodeSet::EMPTY;
    nodes.iter().for_each(|&node| assert!(set.insert(node)));
    set
}

#[test]
fn a_node_of_this_machine_serves() {
    let Some(node) = numa::with_memory().iter().next() else {
        return crate::os::testing::skipped("this kernel knows no NUMA nodes");
    };
    let tier = Backing::open(Spec::Node(set(&[node])), Thp::Never).unwrap();
    assert_eq!(tier.name().to_string(), std::format!("node:{node}"));
    let lane = Lane::new(SEGMENT.times(2));
    lane.map(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.commit(&tier, Bytes::ZERO, SEGMENT).unwrap();
    lane.fill(Bytes::ZERO, SEGMENT, 3);
    assert_eq!(
        lane.release(&tier, Bytes::ZERO, SEGMENT, View::Shared),
        Released::Zeroed
    );
    assert!(lane.is_zero(Bytes::ZERO, SEGMENT));
    let room = tier.room().unwrap();
    assert!(room.free > Bytes::ZERO && room.free < room.total);
    // More than the node has is refused before the kernel has to find it elsewhere.
    assert_eq!(lane.commit(&tier, SEGMENT, room.total), Err(Errno::NOMEM));
    lane.commit(&tier, SEGMENT, SEGMENT).unwrap();
}

#[test]
fn a_node_that_is_not_there_is_named() {
    let error = Backing::open(Spec::Node(set(&[0, 1023])), Thp::System)
        .err()
        .unwrap();
    assert!(matches!(
        error,
        TierError::NoSuchNode(1023) | TierError::NoSuchNode(0)
    ));
    assert!(error.to_string().contains("node"));
    if numa::memory_only().is_empty() {
        let error = Backing::open(Spec::MemoryOnlyNodes, Thp::System).err();
        assert_eq!(error, Some(TierError::NoMemoryOnlyNode));
    }
}
