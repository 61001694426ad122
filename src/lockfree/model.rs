//! What the loom models share: records whose link and contents loom watches for races.

use std::sync::Arc;
use std::vec::Vec;

use core::num::NonZeroUsize;
use loom::cell::UnsafeCell;

use super::{Chain, Inbox, Link, Orphanable, Ownership};

/// A record and the number in it. A model makes an array of them.
pub struct Record {
    next: UnsafeCell<Option<Handle>>,
    contents: UnsafeCell<u32>,
}

/// The place of a record in the array of its model, which outlives the model's threads.
#[derive(Clone, Copy)]
pub struct Handle(*const Record);

// SAFETY: a record is used by one thread at a time; that this holds is what the models check.
unsafe impl Send for Handle {}

pub fn records<const N: usize>() -> Arc<[Record; N]> {
    Arc::new(core::array::from_fn(|i| Record {
        next: UnsafeCell::new(None),
        contents: UnsafeCell::new(i as u32),
    }))
}

impl Handle {
    pub fn of(array: &[Record], place: usize) -> Handle {
        Handle(&array[place])
    }
    fn record(&self) -> &Record {
        // SAFETY: the array outlives the threads of its model.
        unsafe { &*self.0 }
    }
    pub fn read(self) -> u32 {
        // SAFETY: the caller owns the record; loom checks.
        self.record().contents.with(|p| unsafe { *p })
    }
    pub fn write(self, value: u32) {
        // SAFETY: as above.
        self.record().contents.with_mut(|p| unsafe { *p = value });
    }
}

// SAFETY: the word is the address of the record; the link is a cell of it.
unsafe impl Link for Handle {
    fn into_word(self) -> NonZeroUsize {
        NonZeroUsize::new(self.0 as usize).unwrap()
    }
    unsafe fn from_word(word: NonZeroUsize) -> Handle {
        Handle(word.get() as *const Record)
    }
    unsafe fn set_next(self, next: Option<Handle>) {
        // SAFETY: the caller's promise; loom checks.
        self.record().next.with_mut(|p| unsafe { *p = next });
    }
    unsafe fn next(self) -> Option<Handle> {
        // SAFETY: as above.
        self.record().next.with(|p| unsafe { *p })
    }
}

/// A thread heap reduced to what its ownership guards: the list of what was freed to it.
pub struct Heap {
    inbox: Inbox<Handle>,
    ownership: Ownership,
    absorbed: UnsafeCell<Vec<u32>>,
}

// SAFETY: `absorbed` is touched under ownership only; loom checks.
unsafe impl Sync for Heap {}
// SAFETY: as above.
unsafe impl Send for Heap {}

impl Heap {
    pub fn new() -> Heap {
        Heap {
            inbox: Inbox::new(),
            ownership: Ownership::new_owned(),
            absorbed: UnsafeCell::new(Vec::new()),
        }
    }
    /// What was absorbed so far, in order of number. The caller owns the heap.
    pub fn absorbed(&self) -> Vec<u32> {
        // SAFETY: the caller's promise; loom checks.
        let mut all = self.absorbed.with(|p| unsafe { (*p).clone() });
        all.sort_unstable();
        all
    }
}

impl Orphanable for Heap {
    type Batch = Handle;
    fn inbox(&self) -> &Inbox<Handle> {
        &self.inbox
    }
    fn ownership(&self) -> &Ownership {
        &self.ownership
    }
    unsafe fn absorb(&self, batches: Chain<Handle>) {
        // SAFETY: the caller owns the heap; loom checks, also where there is nothing to absorb.
        self.absorbed.with_mut(|p| unsafe {
            (*p).extend(batches.map(Handle::read));
        });
    }
}
