use super::*;
use crate::os::testing::{self, Child, Ended, How, Pipe};
use std::time::{Duration, Instant};
use std::vec::Vec;

/// Other tests fork this process at the same time, and their children hold a sentinel's page for
/// the moment that they live.
fn gone_soon(children: &Children, generation: Generation) -> bool {
    let start = Instant::now();
    while !children.all_gone_since(generation) {
        if start.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// A child that lives until told, after `first`.
fn waiting(children: &Children, release: &Pipe, first: impl FnOnce()) -> (Generation, Child) {
    let ready = Pipe::new();
    let generation = children.before_fork().unwrap();
    let child = Child::start(How::Fork, || {
        children.after_fork_child();
        first();
        ready.send();
        release.wait();
        true
    });
    children.after_fork_parent(generation);
    ready.wait();
    (generation, child)
}

#[test]
fn a_generation_is_gone_when_its_children_are() {
    let children = Children::new();
    let (one, two) = (Pipe::new(), Pipe::new());
    let (first, a) = waiting(&children, &one, || ());
    let (second, b) = waiting(&children, &two, || ());
    assert!(first < second);
    assert!(!children.all_gone_since(first) && !children.all_gone_since(second));
    one.send();
    assert_eq!(a.end(), Ended::Exit(0));
    assert!(
        !children.all_gone_since(first),
        "a later child reads what was frozen earlier"
    );
    assert!(!children.all_gone_since(second));
    two.send();
    assert_eq!(b.end(), Ended::Exit(0));
    assert!(gone_soon(&children, first) && gone_soon(&children, second));
    // An earlier child does not matter to what was frozen later.
    let (_, c) = waiting(&children, &one, || ());
    let later = children.before_fork().unwrap();
    children.after_fork_parent(later);
    assert!(gone_soon(&children, later), "that fork failed");
    one.send();
    assert_eq!(c.end(), Ended::Exit(0));
}

#[test]
fn closing_descriptors_and_grandchildren_do_not_deceive_it() {
    let children = Children::new();
    let release = Pipe::new();
    let ready = Pipe::new();
    let generation = children.before_fork().unwrap();
    let child = Child::start(How::Fork, || {
        children.after_fork_child();
        // The grandchild outlives the child.
        let _ = Child::start(How::Raw, || {
            ready.send();
            release.wait();
            ready.send();
            true
        });
        true
    });
    children.after_fork_parent(generation);
    assert_eq!(child.end(), Ended::Exit(0));
    ready.wait();
    assert!(
        !children.all_gone_since(generation),
        "the grandchild reads on"
    );
    release.send();
    ready.wait();
    assert!(gone_soon(&children, generation));

    let ready = Pipe::new();
    let generation = children.before_fork().unwrap();
    let child = Child::start(How::Fork, || {
        children.after_fork_child();
        ready.send();
        testing::close_all();
        // Lives, without a descriptor, until it is killed.
        loop {
            std::thread::park();
        }
    });
    children.after_fork_parent(generation);
    ready.wait();
    assert!(!children.all_gone_since(generation));
    child.kill();
    assert_eq!(child.end(), Ended::Signal(9));
    assert!(gone_soon(&children, generation));
}

#[test]
fn more_generations_than_sentinels_are_gone_together() {
    let children = Children::new();
    let release = Pipe::new();
    let all: Vec<(Generation, Child)> = (0..Children::MAX + 3)
        .map(|_| waiting(&children, &release, || ()))
        .collect();
    let first = all[0].0;
    let last = all[Children::MAX + 2].0;
    assert!(!children.all_gone_since(last));
    let count = all.len();
    (0..count).for_each(|_| release.send());
    for (_, child) in all {
        assert_eq!(child.end(), Ended::Exit(0));
    }
    assert!(gone_soon(&children, first) && gone_soon(&children, last));
}

#[test]
fn without_a_sentinel_nobody_is_ever_gone() {
    let ended = testing::in_child(|| {
        let children = Children::new();
        testing::limit_descriptors(0);
        let denied = children.before_fork().unwrap();
        children.after_fork_parent(denied);
        testing::limit_descriptors(1024);
        let granted = children.before_fork().unwrap();
        children.after_fork_parent(granted);
        !children.all_gone_since(denied) && children.all_gone_since(granted)
    });
    assert_eq!(ended, Ended::Exit(0));
    let ended = testing::in_child(|| {
        let children = Children::new();
        let generation = children.before_fork().unwrap();
        testing::close_all();
        children.after_fork_parent(generation);
        !children.all_gone_since(generation)
    });
    assert_eq!(ended, Ended::Exit(0), "its descriptor is lost");
}
