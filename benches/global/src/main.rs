//! The newest peers as Rust programs use them, beside tierheap and the system's allocator, in one run.

#[path = "../../support/patterns.rs"]
mod patterns;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_int;

struct Mimalloc;
struct Snmalloc;
struct Jemalloc;

// SAFETY (of the three): the libraries' own functions, which keep the trait's contract.
unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align()).cast() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe { libmimalloc_sys::mi_zalloc_aligned(layout.size(), layout.align()).cast() }
    }
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        unsafe { libmimalloc_sys::mi_free(block.cast()) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe { libmimalloc_sys::mi_realloc_aligned(block.cast(), size, layout.align()).cast() }
    }
}

unsafe impl GlobalAlloc for Snmalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { snmalloc_sys::sn_rust_alloc(layout.align(), layout.size()).cast() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe { snmalloc_sys::sn_rust_alloc_zeroed(layout.align(), layout.size()).cast() }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe {
            snmalloc_sys::sn_rust_dealloc(block.cast(), layout.align(), layout.size());
        }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe {
            snmalloc_sys::sn_rust_realloc(block.cast(), layout.align(), layout.size(), size).cast()
        }
    }
}

impl Jemalloc {
    /// 0 where every block of the size is aligned by itself.
    fn flags(layout: Layout) -> c_int {
        if layout.align() <= 16 && layout.align() <= layout.size() {
            0
        } else {
            layout.align().trailing_zeros() as c_int
        }
    }
}

unsafe impl GlobalAlloc for Jemalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe {
            match Jemalloc::flags(layout) {
                0 => tikv_jemalloc_sys::malloc(layout.size()).cast(),
                flags => tikv_jemalloc_sys::mallocx(layout.size(), flags).cast(),
            }
        }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe {
            match Jemalloc::flags(layout) {
                0 => tikv_jemalloc_sys::calloc(1, layout.size()).cast(),
                flags => {
                    let zero = tikv_jemalloc_sys::MALLOCX_ZERO;
                    tikv_jemalloc_sys::mallocx(layout.size(), flags | zero).cast()
                }
            }
        }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe {
            tikv_jemalloc_sys::sdallocx(block.cast(), layout.size(), Jemalloc::flags(layout));
        }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe {
            match Jemalloc::flags(layout) {
                0 => tikv_jemalloc_sys::realloc(block.cast(), size).cast(),
                flags => tikv_jemalloc_sys::rallocx(block.cast(), size, flags).cast(),
            }
        }
    }
}

static TIERHEAP: tierheap::TierHeap = tierheap::TierHeap::new();

fn main() {
    patterns::all(&[
        ("tierheap", &TIERHEAP),
        ("mimalloc", &Mimalloc),
        ("snmalloc", &Snmalloc),
        ("jemalloc", &Jemalloc),
        ("system", &System),
    ]);
}
