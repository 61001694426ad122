//! libc's names. Each function keeps glibc's manners, errno included.

use core::ffi::{c_int, c_void};

use crate::base::PAGE;
use crate::heap::KindId;
use crate::os::errno::{self, Errno, KeepErrno};
use crate::runtime::{self, report};

const DEFAULT: KindId = KindId::DEFAULT;

fn invalid() -> *mut c_void {
    errno::set(Errno::INVAL);
    core::ptr::null_mut()
}

fn no_memory() -> *mut c_void {
    errno::set(Errno::NOMEM);
    core::ptr::null_mut()
}

#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    runtime::malloc(size).cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    runtime::calloc_kind(DEFAULT, count, size).cast()
}

/// # Safety
/// libc's: null, or a live block that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { runtime::free(ptr.cast()) }
}

/// Gone from glibc since 2.26, still called by binaries older than that.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { runtime::free(ptr.cast()) }
}

/// Size 0 frees and returns null, as glibc does.
///
/// # Safety
/// As for [`free`], if the block moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        if size == 0 {
            return realloc_to_nothing(ptr);
        }
        runtime::realloc(ptr.cast(), size).cast()
    }
}

/// # Safety
/// As for [`free`].
#[cold]
#[inline(never)]
unsafe fn realloc_to_nothing(ptr: *mut c_void) -> *mut c_void {
    if ptr.is_null() {
        return malloc(0);
    }
    // SAFETY: the caller's promise.
    unsafe { runtime::free(ptr.cast()) };
    core::ptr::null_mut()
}

/// # Safety
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(len) => unsafe { realloc(ptr, len) },
        None => no_memory(),
    }
}

/// Alignments that are no power of two count as the next one, as in glibc's memalign.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    match alignment.checked_next_power_of_two() {
        Some(alignment) => runtime::aligned_kind(DEFAULT, alignment, size).cast(),
        _ => invalid(),
    }
}

/// In glibc until 2.37 the same function as memalign, and this takes what either version takes
/// but for alignments that are no power of two, which 2.38 refuses.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    memalign(alignment, size)
}

/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    if !alignment.is_power_of_two() || alignment < size_of::<*mut c_void>() {
        return Errno::INVAL.get();
    }
    let block = match runtime::aligned_at_hand(alignment, size) {
        Some(block) => block.as_ptr(),
        None => aligned_slow(alignment, size),
    };
    if block.is_null() {
        return Errno::NOMEM.get();
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(block.cast()) };
    0
}

/// Leaves errno as it was.
#[cold]
#[inline(never)]
fn aligned_slow(alignment: usize, size: usize) -> *mut u8 {
    let _keep = KeepErrno::new();
    runtime::aligned_kind(DEFAULT, alignment, size)
}

#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    runtime::aligned_kind(DEFAULT, PAGE.get(), size).cast()
}

/// Whole pages: the size is rounded up.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_add(PAGE.get() - 1) {
        Some(n) => valloc((n & !(PAGE.get() - 1)).max(PAGE.get())),
        None => no_memory(),
    }
}

/// # Safety
/// Null, or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { runtime::usable_size(ptr.cast()) }
}

/// Gives back all that can be spared; the padding glibc keeps at the heap's top has no meaning
/// here.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(runtime::trim())
}

/// Accepts every parameter and changes nothing: what they tune does not exist here.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    1
}

/// On stderr, as glibc does.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    report::text(|bytes| {
        let _ = crate::os::report::write_all(crate::os::file::Fd::STDERR, bytes);
    });
}
