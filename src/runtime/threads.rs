//! Which thread has which heap.

use super::gate::{inside, inside_as_guest};
use super::start;
use crate::arena::{WINDOW, meta};
use crate::base::Bytes;
use crate::heap::kind::{MAX_KINDS, kind};
use crate::heap::remote::{OUTBOXES, Outbox};
use crate::heap::{KindHeap, KindId, ThreadHeap, orphans, slot};
use crate::lockfree::{Inbox, Ownership, Seat, Shelf};
use crate::os::thread::Key;
use crate::sync::AtomicPtr;
use core::ffi::c_void;
use once_cell::race::OnceNonZeroUsize;

/// Runs `f` on the calling thread's heap, inside the gate. A thread that is being torn down
/// borrows one for the call. `None` where there is no memory for a heap.
#[inline]
pub fn with_heap<R>(f: impl FnOnce(*mut ThreadHeap) -> R) -> Option<R> {
    let mut th = slot::get();
    if ThreadHeap::is_placeholder(th) {
        if th == ThreadHeap::gone() {
            return borrowed_slow(f);
        }
        th = bind_slow();
        if th.is_null() {
            return None;
        }
    }
    // SAFETY: the slot's heap is this thread's.
    Some(unsafe { inside(th, || f(th)) })
}

#[cold]
#[inline(never)]
fn borrowed_slow<R>(f: impl FnOnce(*mut ThreadHeap) -> R) -> Option<R> {
    inside_as_guest(|| {
        let th = take_or_make();
        if th.is_null() {
            return None;
        }
        let result = f(th);
        // SAFETY: taken above, and not touched again.
        unsafe { orphans::leave(th) };
        Some(result)
    })
}

/// Gives the calling thread a heap; null where there is no memory for one.
#[cold]
#[inline(never)]
fn bind_slow() -> *mut ThreadHeap {
    let th = inside_as_guest(|| {
        if !start::ensure() {
            return core::ptr::null_mut();
        }
        let th = take_or_make();
        if !th.is_null() {
            slot::set(th);
        }
        th
    });
    if !th.is_null() {
        // From here on this thread allocates by itself, which what follows may do.
        start::late();
        mark_for_teardown(th);
    }
    th
}

fn take_or_make() -> *mut ThreadHeap {
    let th = orphans::take_over();
    if !th.is_null() {
        return th;
    }
    let Some(memory) = meta::alloc(Bytes::new(size_of::<ThreadHeap>())) else {
        return core::ptr::null_mut();
    };
    let th = memory.as_ptr().cast::<ThreadHeap>();
    let Some(default) = kind(KindId::DEFAULT) else {
        return core::ptr::null_mut();
    };
    let Some(recipe) = default.recipe() else {
        return core::ptr::null_mut();
    };
    // SAFETY: fresh zeroed metadata of the right size, which becomes a heap here and is never
    // freed. All-zero bins and tables are empty ones.
    unsafe {
        KindHeap::init(
            &raw mut (*th).heap,
            0,
            recipe.policy,
            default.threshold(),
            default.epoch(),
        );
        (*th).view = WINDOW.view();
        (*th).outboxes = [Outbox::NEW; OUTBOXES];
        (&raw mut (*th).shared).write(crate::heap::thread_heap::SharedPart {
            inbox: Inbox::new(),
            ownership: Ownership::new_owned(),
            seat: Seat::new(),
            shelf: Shelf::new(),
            next: AtomicPtr::new(core::ptr::null_mut()),
        });
        ThreadHeap::publish(th);
    }
    th
}

/// Makes sure that the thread has a heap for this kind. False where it cannot.
///
/// # Safety
/// The caller owns `th` and is inside the gate.
pub unsafe fn ensure_kind(th: *mut ThreadHeap, id: KindId) -> bool {
    // SAFETY: as promised; fresh metadata is zeroed, which is an empty table.
    unsafe {
        if orphans::kind_heap(th, id.0).is_some() {
            return true;
        }
        let Some(kind) = kind(id) else { return false };
        let Some(recipe) = kind.recipe() else {
            return false;
        };
        if (*th).kinds.is_null() {
            let Some(table) = meta::alloc(Bytes::new(size_of::<[*mut KindHeap; MAX_KINDS]>()))
            else {
                return false;
            };
            (*th).kinds = table.as_ptr().cast();
        }
        let Some(memory) = meta::alloc(Bytes::new(size_of::<KindHeap>())) else {
            return false;
        };
        let heap = memory.as_ptr().cast::<KindHeap>();
        KindHeap::init(heap, id.0, recipe.policy, kind.threshold(), kind.epoch());
        match (*th).kinds.as_mut().and_then(|t| t.get_mut(id.0 as usize)) {
            Some(place) => {
                *place = heap;
                true
            }
            None => false,
        }
    }
}

const _: () = assert!(size_of::<ThreadHeap>() <= meta::LARGEST.get());

/// The key whose destructor tells of a thread's end, plus one.
static KEY: OnceNonZeroUsize = OnceNonZeroUsize::new();

fn key() -> Option<Key> {
    let raw = KEY.get_or_init(|| {
        // usize::MAX stands for "none to be had": then heaps of ended threads stay theirs.
        let raw = Key::create(at_thread_end).map_or(usize::MAX, |k| k.into_raw() as usize + 1);
        core::num::NonZeroUsize::new(raw).unwrap_or(core::num::NonZeroUsize::MAX)
    });
    (raw.get() != usize::MAX).then(|| Key::from_raw(raw.get() as u32 - 1))
}

fn mark_for_teardown(th: *mut ThreadHeap) {
    if let Some(key) = key() {
        // For high keys glibc callocs here; the slot is set, so that finds a heap. Should it fail,
        // the heap of this thread stays owned after its end.
        let _ = key.set(th.cast::<c_void>());
    }
}

/// Runs among the destructors of the thread's keys. Other destructors may still allocate and
/// free: from here on they borrow a heap for each call.
unsafe extern "C" fn at_thread_end(value: *mut c_void) {
    let th = value.cast::<ThreadHeap>();
    if slot::get() != th {
        return;
    }
    slot::set(ThreadHeap::gone());
    // The guest's seat: the heap's own is the next owner's as soon as it is left.
    // SAFETY: this thread owned the heap until here.
    inside_as_guest(|| unsafe { orphans::leave(th) });
}
