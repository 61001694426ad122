//! Plays the files that it is given, in one process and without a fuzzer.

#[path = "../../model_heap/acts.rs"]
mod acts;
#[allow(dead_code)] // what only other tests use
#[path = "../../model_heap/heap.rs"]
mod heap;
#[path = "../../model_heap/more.rs"]
mod more;
#[allow(dead_code)] // what only other tests use
#[path = "../../model_heap/ops.rs"]
mod ops;
#[path = "../../model_heap/session.rs"]
mod session;

#[cfg(feature = "global")]
#[global_allocator]
static HEAP: tierheap::TierHeap = tierheap::TierHeap::new();

fn main() {
    let folder = tempfile::tempdir().unwrap();
    for file in std::env::args_os().skip(1) {
        let acts = acts::of_bytes(&std::fs::read(file).unwrap());
        session::play(&acts, folder.path(), cfg!(not(feature = "global")));
    }
}
