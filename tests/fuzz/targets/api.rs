//! The whole interface against the model heap: see `tests/model_heap/session.rs`.
#![no_main]

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

use std::sync::OnceLock;

#[cfg(feature = "global")]
#[global_allocator]
static HEAP: tierheap::TierHeap = tierheap::TierHeap::new();

/// The files of the file tier have no name: the folder stays empty, and is left in place.
static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap());
    session::play(
        &acts::of_bytes(bytes),
        folder.path(),
        cfg!(not(feature = "global")),
    );
});
