//! jemalloc's own names, for programs that mix them with malloc: a Redis linked to jemalloc calls
//! `nallocx`, `mallctl` and `malloc_stats_print` on a heap that a preload has taken over.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;

use crate::base::{Bytes, SLICE, SizeClass};
use crate::heap::KindId;
use crate::os::errno::Errno;
use crate::runtime::{self, report, stats};

const ZERO: c_int = 0x40;

/// The alignment that the low six bits of jemalloc's flags ask for.
fn alignment(flags: c_int) -> usize {
    1usize.checked_shl((flags & 0x3f) as u32).unwrap_or(1)
}

/// The size of the block that `mallocx` would give.
fn rounded(size: usize, align: usize) -> usize {
    match SizeClass::of_multiple(Bytes::new(size), Bytes::new(align.clamp(16, SLICE.get()))) {
        Some(class) if align <= SLICE.get() => class.block().get(),
        _ => size
            .checked_next_multiple_of(align.max(SLICE.get()))
            .unwrap_or(0),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    let align = alignment(flags);
    let block = runtime::aligned_kind(KindId::DEFAULT, align, size);
    if flags & ZERO != 0 && !block.is_null() {
        // SAFETY: a block of at least `size` bytes, just handed out.
        unsafe { block.write_bytes(0, size) };
    }
    block.cast()
}

/// # Safety
/// `ptr` is a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rallocx(ptr: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        let have = runtime::usable_size(ptr.cast());
        let to = if alignment(flags) <= 16 && flags & ZERO == 0 {
            return runtime::realloc(ptr.cast(), size).cast();
        } else {
            mallocx(size, flags)
        };
        if !to.is_null() {
            core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), to.cast::<u8>(), have.min(size));
            runtime::free(ptr.cast());
        }
        to
    }
}

/// The block stays where it is: the result is the size it has.
///
/// # Safety
/// `ptr` is a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xallocx(
    ptr: *mut c_void,
    _size: usize,
    _extra: usize,
    _flags: c_int,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { runtime::usable_size(ptr.cast()) }
}

/// # Safety
/// `ptr` is a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sallocx(ptr: *const c_void, _flags: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { runtime::usable_size(ptr.cast_mut().cast()) }
}

/// # Safety
/// `ptr` is a live block that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dallocx(ptr: *mut c_void, _flags: c_int) {
    // SAFETY: the caller's promise.
    unsafe { runtime::free(ptr.cast()) }
}

/// # Safety
/// As for [`dallocx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdallocx(ptr: *mut c_void, _size: usize, _flags: c_int) {
    // SAFETY: the caller's promise.
    unsafe { runtime::free(ptr.cast()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    if size > isize::MAX as usize {
        return 0;
    }
    rounded(size, alignment(flags))
}

/// What a name of `mallctl` reads as; sizes in bytes. The names that programs ask for.
fn read(name: &[u8]) -> Option<usize> {
    let sum = |of: fn(&stats::TierStats) -> usize| {
        stats::tiers().filter_map(stats::tier).map(|t| of(&t)).sum()
    };
    Some(match name {
        b"stats.allocated" => sum(|t| t.asked.map_or(0, |b| b.get())),
        b"stats.active" | b"stats.mapped" | b"stats.retained" => sum(|t| t.held.get()),
        b"stats.resident" => sum(|t| t.resident.get()),
        b"stats.metadata" => stats::totals().metadata.get(),
        b"arenas.page" => crate::base::PAGE.get(),
        b"arenas.quantum" => 16,
        _ => return None,
    })
}

/// jemalloc's control call, for the names that programs use: `stats.*`, `arenas.page`, `version`,
/// and those that refresh, flush or purge. ENOENT for others, EINVAL where a size does not fit, and
/// EPERM, as in jemalloc, for reading what only acts and for writing what is only read: Redis tells
/// by it that there is no string in what it asked for.
///
/// # Safety
/// As jemalloc has it: `old` and `old_len` are both null, or a place and its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    if name.is_null() {
        return Errno::INVAL.get();
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let reads = !old.is_null() || !old_len.is_null();
    let writes = !new.is_null() || new_len != 0;
    let act = |action: fn()| {
        if reads || writes {
            return Errno::PERM.get();
        }
        action();
        0
    };
    match name {
        // What may be written, to no effect. Redis writes 1 to the first ten times a second to have
        // the statistics refreshed; they always are. A server that stays on the fast path would
        // give nothing back otherwise.
        b"epoch" if new.is_null() || new_len == size_of::<u64>() => {
            runtime::tidy();
            // SAFETY: the caller's promise on `old` and `old_len`.
            unsafe { put(old, old_len, 1u64) }
        }
        b"background_thread" if new.is_null() || new_len == size_of::<bool>() => {
            // SAFETY: as above.
            unsafe { put(old, old_len, false) }
        }
        b"epoch" | b"background_thread" => Errno::INVAL.get(),
        b"thread.tcache.flush" | b"thread.idle" => act(|| ()),
        n if n.starts_with(b"arena.") && (n.ends_with(b".purge") || n.ends_with(b".decay")) => {
            act(|| {
                runtime::trim();
            })
        }
        // SAFETY: nothing is put where both are null.
        n if writes => match unsafe { put_value(n, null_mut(), null_mut()) } {
            0 => Errno::PERM.get(),
            unknown => unknown,
        },
        // SAFETY: as above.
        n => unsafe { put_value(n, old, old_len) },
    }
}

/// What is only read. ENOENT for a name that is not known.
///
/// # Safety
/// As for [`put`].
unsafe fn put_value(name: &[u8], to: *mut c_void, len: *mut usize) -> c_int {
    const VERSION: &CStr = c"5.3.0-tierheap";
    // SAFETY: as promised.
    unsafe {
        match name {
            b"version" => put(to, len, VERSION.as_ptr()),
            b"config.stats" | b"config.prof" | b"opt.abort" => put(to, len, false),
            b"arenas.narenas" => put(to, len, 1u32),
            n => match read(n) {
                Some(value) => put(to, len, value),
                None => Errno::NOENT.get(),
            },
        }
    }
}

/// # Safety
/// Both are null, or a place of `*len` bytes.
unsafe fn put<T>(to: *mut c_void, len: *mut usize, value: T) -> c_int {
    if to.is_null() || len.is_null() {
        return 0;
    }
    // SAFETY: as promised.
    unsafe {
        if *len != size_of::<T>() {
            return Errno::INVAL.get();
        }
        to.cast::<T>().write_unaligned(value);
    }
    0
}

/// The statistics of this heap, by the caller's writer or on stderr.
///
/// # Safety
/// `write` takes a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    opaque: *mut c_void,
    _options: *const c_char,
) {
    report::text(|bytes| match write {
        None => {
            let _ = crate::os::report::write_all(crate::os::file::Fd::STDERR, bytes);
        }
        Some(write) => {
            let mut text = [0u8; 1025];
            let len = bytes.len().min(text.len() - 1);
            if let (Some(to), Some(from)) = (text.get_mut(..len), bytes.get(..len)) {
                to.copy_from_slice(from);
            }
            // SAFETY: terminated by the buffer's last zero; the callback is the caller's.
            unsafe { write(opaque, text.as_ptr().cast()) }
        }
    });
}
