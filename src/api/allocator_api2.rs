//! `Kind` as an allocator of collections, by the crate `allocator-api2`.

use super::rust::Kind;
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use core::ptr::NonNull;

fn slice(block: *mut u8, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    NonNull::new(block)
        .map(|b| NonNull::slice_from_raw_parts(b, layout.size()))
        .ok_or(AllocError)
}

// SAFETY: a block stays valid until it is freed, whatever becomes of the `Kind` value; copies of
// a `Kind` are the same allocator; zero-sized layouts get a block of their own.
unsafe impl Allocator for Kind {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        slice(self.alloc(layout), layout)
    }
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        slice(self.alloc_zeroed(layout), layout)
    }
    unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller gives up a block of this allocator.
        unsafe { self.dealloc(block.as_ptr()) }
    }
    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller owns the block, of layout `old`.
        unsafe { relayout(*self, block, old, new) }
    }
    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as for `grow`.
        unsafe { relayout(*self, block, old, new) }
    }
}

unsafe fn relayout(
    kind: Kind,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    // The stronger alignment: what `realloc` is told must cover both.
    let layout = Layout::from_size_align(old.size(), old.align().max(new.align()))
        .map_err(|_| AllocError)?;
    // SAFETY: the caller owns the block; an alignment above the old one only makes it move.
    slice(
        unsafe { kind.realloc(block.as_ptr(), layout, new.size()) },
        new,
    )
}
