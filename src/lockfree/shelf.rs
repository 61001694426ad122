//! Places where a thread leaves what it may soon want again. Only the owner puts something there;
//! any thread may take it away when it has lain there for long.
//!
//! Whoever empties a place by a compare-and-swap owns what was in it. A look at the place itself says nothing about
//! what it leads to: that may be gone by then, so the owner keeps notes of its own on what it put
//! where, and finds out by that whether they are still true.

use super::const_unless_loom;
use crate::sync::{AtomicPtr, Ordering};
use core::ptr::NonNull;

/// A handful: what a program frees and wants again in turn, such as the buffers of one request.
pub const PLACES: usize = 8;

/// The mark on what has been seen before by who ages the shelf; records are aligned to more.
const OLD: usize = 1;

pub struct Shelf<T> {
    places: [AtomicPtr<T>; PLACES],
}

impl<T> Shelf<T> {
    const_unless_loom! {
        pub fn new() -> Shelf<T> {
            Shelf { places: empty() }
        }
    }

    fn place(&self, at: usize) -> &AtomicPtr<T> {
        let [first, ..] = &self.places;
        self.places.get(at).unwrap_or(first)
    }

    /// For the owner: whether it may put something there.
    pub fn is_free(&self, at: usize) -> bool {
        // Relaxed: only the owner fills a place, so null stays null under its eyes.
        self.place(at).load(Ordering::Relaxed).is_null()
    }

    /// Leaves a record in a free place; for the owner.
    pub fn put(&self, at: usize, record: NonNull<T>) {
        debug_assert!(self.is_free(at) && record.as_ptr().addr() & OLD == 0);
        // Release: pairs with the Acquire in `take`.
        self.place(at).store(record.as_ptr(), Ordering::Release);
    }

    /// Takes what lies there; for any thread.
    pub fn take(&self, at: usize) -> Option<NonNull<T>> {
        loop {
            // Relaxed: only the address is looked at.
            let is = self.place(at).load(Ordering::Relaxed);
            if is.is_null() {
                return None;
            }
            if self.remove(at, is) {
                return NonNull::new(is.map_addr(|a| a & !OLD));
            }
        }
    }

    /// Takes what lies there if it lay there at the last call; else marks it; for any thread.
    pub fn take_old(&self, at: usize) -> Option<NonNull<T>> {
        // Relaxed: only the address is looked at.
        let is = self.place(at).load(Ordering::Relaxed);
        if is.is_null() {
            return None;
        }
        let record = is.map_addr(|a| a & !OLD);
        if is.addr() & OLD != 0 {
            return NonNull::new(record).filter(|_| self.remove(at, is));
        }
        // Relaxed (both): nothing is read through it. If the same record has been taken and put back
        // meanwhile it is marked too early, and given back too early, no more.
        let _ = self.place(at).compare_exchange(
            is,
            is.map_addr(|a| a | OLD),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        None
    }

    /// Empties a place that holds just this.
    fn remove(&self, at: usize, is: *mut T) -> bool {
        // Acquire: pairs with the Release in `put`, so that the record is whole. Relaxed: after a
        // failure nothing is read.
        self.place(at)
            .compare_exchange(
                is,
                core::ptr::null_mut(),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

#[cfg(not(loom))]
const fn empty<T>() -> [AtomicPtr<T>; PLACES] {
    [const { AtomicPtr::new(core::ptr::null_mut()) }; PLACES]
}
#[cfg(loom)]
fn empty<T>() -> [AtomicPtr<T>; PLACES] {
    core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut()))
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use std::sync::Arc;

    #[repr(align(8))]
    struct Record(UnsafeCell<u32>);
    struct Model {
        shelf: Shelf<Record>,
        record: Record,
    }
    // SAFETY: the shelf hands the record from one thread to another; loom checks.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    impl Model {
        /// Touches a record that is this thread's.
        fn use_up(&self, record: NonNull<Record>) {
            // SAFETY: the record lives as long as the model; loom checks that nobody else uses it.
            unsafe { record.as_ref().0.with_mut(|p| *p += 1) };
        }
    }

    #[test]
    fn what_lies_on_a_shelf_is_taken_once() {
        loom::model(|| {
            let model = Arc::new(Model {
                shelf: Shelf::new(),
                record: Record(UnsafeCell::new(0)),
            });
            let record = NonNull::from(&model.record);
            model.use_up(record);
            model.shelf.put(0, record);
            let ager = {
                let model = model.clone();
                loom::thread::spawn(move || {
                    let old = (0..2).find_map(|_| model.shelf.take_old(0));
                    old.inspect(|&r| model.use_up(r)).is_some()
                })
            };
            let mut mine = false;
            if let Some(record) = model.shelf.take(0) {
                model.use_up(record);
                assert!(model.shelf.is_free(0));
                model.shelf.put(0, record);
                mine = true;
            }
            let aged = ager.join().unwrap();
            let left = model.shelf.take(0);
            if let Some(record) = left {
                model.use_up(record);
            }
            assert!(left.is_some() != aged, "taken twice, or lost");
            assert!(mine || aged);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_again_in_time_does_not_grow_old() {
        let shelf = Shelf::<u64>::new();
        let mut record = 7u64;
        let record = NonNull::from(&mut record);
        shelf.put(3, record);
        assert!(!shelf.is_free(3) && shelf.is_free(2));
        assert_eq!(shelf.take_old(3), None);
        assert_eq!(shelf.take(3), Some(record), "without its mark");
        assert_eq!(shelf.take(3), None);
        shelf.put(3, record);
        assert_eq!(shelf.take_old(3), None, "the mark went with it");
        assert_eq!(shelf.take_old(3), Some(record));
        assert!(shelf.is_free(3));
    }
}
