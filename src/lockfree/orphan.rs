//! Remote frees to a thread heap whose thread may exit: who posts to an orphan drains it.
//!
//! Without this rule the blocks freed to an orphan would lie in its inbox until some thread
//! adopts it, which may be never. A poster that found the heap owned may go, because the owner
//! drains, at the latest when it leaves. So the question each side asks last is the other's first
//! act, with a fence in between:
//!
//! | poster | who lets go of the heap |
//! |---|---|
//! | push to the inbox | state := Orphan |
//! | fence | fence |
//! | state is Orphan? then claim and drain | inbox not empty? then claim and drain |
//!
//! Of the two fences one is first, so at least one of the two sees what the other did.

use super::{Chain, Inbox, Link, Ownership};
use crate::sync::{Ordering, fence};

/// A heap that has an inbox and may lose its thread.
pub trait Orphanable {
    type Batch: Link;
    fn inbox(&self) -> &Inbox<Self::Batch>;
    fn ownership(&self) -> &Ownership;
    /// Frees the blocks of the batches. Called by the owner, or under a claim.
    ///
    /// # Safety
    /// The caller owns or has claimed the heap.
    unsafe fn absorb(&self, batches: Chain<Self::Batch>);
}

/// Hands a batch to `heap`, and if nobody is there to take it, takes it on the heap's behalf.
///
/// # Safety
/// As for [`Inbox::push`].
pub unsafe fn post<H: Orphanable>(heap: &H, batch: H::Batch) {
    // SAFETY: the caller's promise.
    unsafe { heap.inbox().push(batch) };
    // The poster's fence of the table above.
    fence(Ordering::SeqCst);
    if heap.ownership().is_orphan() {
        drain_slow(heap);
    }
}

/// The owner leaves; from here on the heap is an orphan. What is in the inbox then is drained
/// before this returns, by this thread or by a poster.
///
/// # Safety
/// The caller owns the heap and does not touch it again.
pub unsafe fn abandon<H: Orphanable>(heap: &H) {
    heap.ownership().orphan();
    if posted_before_let_go(heap) {
        drain_slow(heap);
    }
}

/// Takes over an orphan; the caller is then its owner and drains it as its own.
#[must_use = "an adopted heap has no owner but the caller"]
pub fn adopt<H: Orphanable>(heap: &H) -> bool {
    let adopted = heap.ownership().is_orphan() && heap.ownership().try_claim();
    if adopted {
        heap.ownership().keep_as_owner();
    }
    adopted
}

/// Runs `f` with an orphan that nobody else can touch meanwhile; `None` where the heap cannot be
/// claimed. What is in its inbox is drained before and after.
///
/// # Safety
/// `f` touches the heap only while it runs.
pub unsafe fn with_claim<H: Orphanable, R>(heap: &H, f: impl FnOnce() -> R) -> Option<R> {
    if !heap.ownership().try_claim() {
        return None;
    }
    // SAFETY: claimed, until the release below.
    unsafe { heap.absorb(heap.inbox().take()) };
    let result = f();
    heap.ownership().release_as_orphan();
    if posted_before_let_go(heap) {
        drain_slow(heap);
    }
    Some(result)
}

/// What who lets go of a heap asks last: did a post come that nobody is going to drain?
fn posted_before_let_go<H: Orphanable>(heap: &H) -> bool {
    // The fence of who lets go of the table above.
    fence(Ordering::SeqCst);
    !heap.inbox().is_empty()
}

/// Drains an orphan until it is seen empty after having been let go. A claim that fails ends it
/// too: whoever has the claim looks again after its release.
#[cold]
#[inline(never)]
pub fn drain_slow<H: Orphanable>(heap: &H) {
    while heap.ownership().try_claim() {
        // SAFETY: claimed, until the release below.
        unsafe { heap.absorb(heap.inbox().take()) };
        heap.ownership().release_as_orphan();
        if !posted_before_let_go(heap) {
            return;
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use super::super::model::{Handle, Heap, records};
    use super::*;

    #[test]
    fn a_post_to_an_orphan_is_always_drained() {
        loom::model(|| {
            let all = records::<2>();
            let heap = Arc::new(Heap::new());
            let threads = [0, 1].map(|place| {
                let (all, heap) = (all.clone(), heap.clone());
                // SAFETY: each record is posted once; the array stays.
                loom::thread::spawn(move || unsafe { post(&*heap, Handle::of(&*all, place)) })
            });
            // SAFETY: this thread made the heap and does not touch it after.
            unsafe { abandon(&*heap) };
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(heap.inbox().is_empty(), "left undrained");
            assert!(heap.ownership().try_claim(), "an orphan in the end");
            assert_eq!(heap.absorbed(), [0, 1]);
        });
    }

    /// A thread that takes a slab out of an orphan claims it for longer than a drain does; what
    /// is posted meanwhile is drained by whoever lets go last.
    #[test]
    fn a_post_during_a_claim_is_drained_after_it() {
        loom::model(|| {
            let all = records::<2>();
            let heap = Arc::new(Heap::new());
            // SAFETY: this thread made the heap and does not touch it after.
            unsafe { abandon(&*heap) };
            let threads = [0, 1].map(|place| {
                let (all, heap) = (all.clone(), heap.clone());
                // SAFETY: each record is posted once; the array stays.
                loom::thread::spawn(move || unsafe { post(&*heap, Handle::of(&*all, place)) })
            });
            // SAFETY: the heap is touched by the closure only.
            let seen = unsafe { with_claim(&*heap, || heap.absorbed()) };
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(heap.inbox().is_empty(), "left undrained");
            assert!(heap.ownership().try_claim(), "an orphan in the end");
            assert_eq!(heap.absorbed(), [0, 1]);
            assert!(seen.is_none_or(|early| early.len() <= 2));
        });
    }

    #[test]
    fn an_adopted_heap_is_one_threads_at_a_time() {
        loom::model(|| {
            let all = records::<1>();
            let heap = Arc::new(Heap::new());
            let poster = {
                let (all, heap) = (all.clone(), heap.clone());
                // SAFETY: the record is posted once; the array stays.
                loom::thread::spawn(move || unsafe { post(&*heap, Handle::of(&*all, 0)) })
            };
            let adopter = {
                let heap = heap.clone();
                loom::thread::spawn(move || {
                    let adopted = adopt(&*heap);
                    if adopted {
                        // SAFETY: adopted just now; not touched after it is abandoned.
                        unsafe {
                            heap.absorb(heap.inbox().take());
                            abandon(&*heap);
                        }
                    }
                })
            };
            // SAFETY: this thread made the heap and does not touch it after it is abandoned.
            unsafe {
                heap.absorb(heap.inbox().take());
                abandon(&*heap);
            }
            poster.join().unwrap();
            adopter.join().unwrap();
            assert!(heap.inbox().is_empty(), "left undrained");
            assert!(adopt(&*heap), "an orphan in the end");
            assert_eq!(heap.absorbed(), [0]);
        });
    }
}
