//! The C face: `tierheap_*`. The header is made from this file.
//!
//! Functions that can fail return 0 or a negative `TIERHEAP_E` code; allocation functions return
//! NULL and set errno to ENOMEM, or to EINVAL for a kind that does not exist. Every function may
//! be called from any thread; none from a signal handler but those that say so.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::base::{SLICE, TierId};
use crate::heap::KindId;
use crate::os::errno::{self, Errno};
use crate::runtime::{self, Refusal, kinds, report, stats};

/// Success.
pub const TIERHEAP_OK: c_int = 0;
/// A bad argument: NULL where none may be, a kind that does not exist, an unknown word.
pub const TIERHEAP_EINVAL: c_int = -1;
/// A wrong word in a configuration string; stderr has the word and the valid ones.
pub const TIERHEAP_ECONFIG: c_int = -2;
/// A tier cannot be had; stderr has the reason.
pub const TIERHEAP_ETIER: c_int = -3;
/// No memory.
pub const TIERHEAP_ENOMEM: c_int = -4;
/// No more kinds (512) or tiers (64).
pub const TIERHEAP_ETOOMANY: c_int = -5;
/// Too late, or not now: a configuration is in force already; the kind always exists.
pub const TIERHEAP_EBUSY: c_int = -6;
/// The pointer is not of this heap.
pub const TIERHEAP_EFOREIGN: c_int = -7;

/// Advice: the block will be used often.
pub const TIERHEAP_HOT: c_int = 1;
/// Advice: the block will be used seldom.
pub const TIERHEAP_COLD: c_int = 2;
/// Advice: nothing special is known of the block any more.
pub const TIERHEAP_NORMAL: c_int = 0;

/// The tiers that `struct tierheap_stats` has room for.
pub const TIERHEAP_STATS_TIERS: usize = 9;
/// The bytes of a tier's name in `struct tierheap_tier_stats`, with the final zero.
pub const TIERHEAP_NAME_SIZE: usize = 40;

/// An allocation target: a policy over tiers. Made by tierheap_kind_create, or one of the three
/// that always exist.
#[allow(non_camel_case_types)]
pub struct tierheap_kind {
    _private: [u8; 0],
}

/// A pointer to this names a kind; NULL is the default kind.
#[allow(non_camel_case_types)]
pub type tierheap_kind_t = tierheap_kind;

/// One tier's figures, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct tierheap_tier_stats {
    /// In live blocks; UINT64_MAX where they could not be counted (in a signal handler that
    /// interrupted the allocator).
    pub asked: u64,
    /// In slabs and large blocks: what counts against the limit.
    pub held: u64,
    /// Of physical memory or file space behind it.
    pub resident: u64,
    /// The most ever held.
    pub peak: u64,
    /// UINT64_MAX where there is none.
    pub limit: u64,
    /// Requests that this tier should have taken and another did.
    pub fallbacks: u64,
    /// "dram", "file:/mnt", "node:1", "memfd"; cut to fit.
    pub name: [c_char; TIERHEAP_NAME_SIZE],
}

/// The statistics of the process.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct tierheap_stats {
    /// Set it to sizeof(struct tierheap_stats) before the call.
    pub size: usize,
    /// How many entries of `tier` are filled in.
    pub tiers: u32,
    /// Not used.
    pub reserved: u32,
    /// Frees and reallocs of pointers that were not this heap's.
    pub foreign_frees: u64,
    /// The sum over all tiers.
    pub fallbacks: u64,
    /// Warnings, printed or not.
    pub warnings: u64,
    /// The first is DRAM.
    pub tier: [tierheap_tier_stats; TIERHEAP_STATS_TIERS],
}

fn code(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::Word => TIERHEAP_ECONFIG,
        Refusal::Tier => TIERHEAP_ETIER,
        Refusal::NoMemory => TIERHEAP_ENOMEM,
        Refusal::TooMany => TIERHEAP_ETOOMANY,
        Refusal::TooLate => TIERHEAP_EBUSY,
    }
}

#[inline(always)]
fn kind_of_handle(kind: *mut tierheap_kind) -> Option<KindId> {
    if kind.is_null() {
        Some(KindId::DEFAULT)
    } else {
        kinds::by_address(kind as usize)
    }
}

fn handle(id: KindId) -> *mut tierheap_kind {
    kinds::address(id) as *mut tierheap_kind
}

#[cold]
fn bad_kind() -> *mut c_void {
    errno::set(Errno::INVAL);
    core::ptr::null_mut()
}

/// A block of at least `size` bytes in `kind` (NULL: the default kind), aligned to 16. Size 0
/// gives a block of its own. NULL with ENOMEM where no tier of the kind has room, with EINVAL for
/// a kind that does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_malloc(kind: *mut tierheap_kind_t, size: usize) -> *mut c_void {
    match kind_of_handle(kind) {
        Some(kind) => runtime::malloc_kind(kind, size).cast(),
        None => bad_kind(),
    }
}

/// A zeroed block of `count` times `size` bytes. NULL with ENOMEM where that overflows; else as
/// tierheap_malloc.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_calloc(
    kind: *mut tierheap_kind_t,
    count: usize,
    size: usize,
) -> *mut c_void {
    match kind_of_handle(kind) {
        Some(kind) => runtime::calloc_kind(kind, count, size).cast(),
        None => bad_kind(),
    }
}

/// Makes a block hold `size` bytes, moving it if need be; contents up to the smaller size stay.
/// With a kind the block moves there if it is not of it; NULL keeps its own kind. `ptr` NULL is
/// tierheap_malloc; `size` 0 frees and returns NULL, as in glibc. NULL with ENOMEM leaves the
/// block as it was.
///
/// # Safety
/// `ptr` must be NULL or a live block, of this heap or of the next allocator in link order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_realloc(
    kind: *mut tierheap_kind_t,
    ptr: *mut c_void,
    size: usize,
) -> *mut c_void {
    let Some(id) = kind_of_handle(kind) else {
        return bad_kind();
    };
    if ptr.is_null() {
        return runtime::malloc_kind(id, size).cast();
    }
    // SAFETY: the caller's promise.
    unsafe {
        if size == 0 {
            runtime::free(ptr.cast());
            return core::ptr::null_mut();
        }
        runtime::realloc_kind(ptr.cast(), size, (!kind.is_null()).then_some(id)).cast()
    }
}

/// A block whose address is a multiple of `alignment`. NULL with EINVAL where that is no power of
/// two; else as tierheap_malloc. Any size will do.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_aligned_alloc(
    kind: *mut tierheap_kind_t,
    alignment: usize,
    size: usize,
) -> *mut c_void {
    match kind_of_handle(kind) {
        Some(kind) if alignment.is_power_of_two() => {
            runtime::aligned_kind(kind, alignment, size).cast()
        }
        _ => bad_kind(),
    }
}

/// The same in POSIX's manner: 0 and the block in `*ptr`, or EINVAL (alignment no power of two or
/// no multiple of sizeof(void *), kind unknown, `ptr` NULL) or ENOMEM as a positive error number;
/// errno and, on an error, `*ptr` are left alone.
///
/// # Safety
/// `ptr` must be NULL or point to where the block's address can be stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_posix_memalign(
    kind: *mut tierheap_kind_t,
    ptr: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    let good = alignment.is_power_of_two() && alignment.is_multiple_of(size_of::<*mut c_void>());
    let Some(kind) = kind_of_handle(kind).filter(|_| good && !ptr.is_null()) else {
        return Errno::INVAL.get();
    };
    let _keep = errno::KeepErrno::new();
    let block = runtime::aligned_kind(kind, alignment, size);
    if block.is_null() {
        return Errno::NOMEM.get();
    }
    // SAFETY: the caller's promise.
    unsafe { ptr.write(block.cast()) };
    0
}

/// Frees a block of any kind. NULL is nothing. A pointer that is not this heap's goes to the next
/// `free` in link order. Errno stays.
///
/// # Safety
/// `ptr` must be NULL or a live block that nobody uses any more. A double free and a pointer into
/// a block are detected and abort the program with a message (configuration `abort=0`: are
/// counted).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_free(ptr: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { runtime::free(ptr.cast()) }
}

/// The bytes that may be used at `ptr`: at least what was asked for. 0 for NULL; for a pointer
/// that is not this heap's, what the next allocator says.
///
/// # Safety
/// `ptr` must be NULL or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_usable_size(ptr: *const c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { runtime::usable_size(ptr.cast_mut().cast()) }
}

/// Makes a kind from a configuration string, for instance
/// "cold=file:/mnt/fast,limit:1G;policy=cold". Its cold tiers are its own. The keys `dram`, `stats`
/// and `abort` belong to the heap as a whole and are wrong words here. TIERHEAP_EINVAL for a NULL
/// argument, TIERHEAP_ECONFIG for a wrong word, TIERHEAP_ETIER where a tier cannot be had,
/// TIERHEAP_ETOOMANY, TIERHEAP_ENOMEM; `*kind` is then left alone.
///
/// # Safety
/// `spec` must be NULL or a string; `kind` must be NULL or point to where the kind can be stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_kind_create(
    spec: *const c_char,
    kind: *mut *mut tierheap_kind_t,
) -> c_int {
    if spec.is_null() || kind.is_null() {
        return TIERHEAP_EINVAL;
    }
    // SAFETY: the caller's promise.
    match kinds::create(unsafe { CStr::from_ptr(spec) }.to_bytes()) {
        Ok(id) => {
            // SAFETY: the caller's promise.
            unsafe { kind.write(handle(id)) };
            TIERHEAP_OK
        }
        Err(refusal) => code(refusal),
    }
}

/// Frees everything in a kind, closes its tiers and forgets it. TIERHEAP_EINVAL for NULL or what
/// is no kind, TIERHEAP_EBUSY for the three kinds that always exist.
///
/// # Safety
/// No thread may use the kind, or a block of it, any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_kind_destroy(kind: *mut tierheap_kind_t) -> c_int {
    match kind_of_handle(kind).filter(|_| !kind.is_null()) {
        None => TIERHEAP_EINVAL,
        Some(id) if kinds::destroy(id) => TIERHEAP_OK,
        Some(_) => TIERHEAP_EBUSY,
    }
}

/// The kind that malloc uses. Never NULL but where there is no memory at all.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_kind_default() -> *mut tierheap_kind_t {
    known(KindId::DEFAULT)
}

/// DRAM only.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_kind_dram() -> *mut tierheap_kind_t {
    known(KindId::DRAM)
}

fn known(id: KindId) -> *mut tierheap_kind {
    if kinds::prepare().is_ok() {
        handle(id)
    } else {
        core::ptr::null_mut()
    }
}

/// The configured cold tiers; without any, a memfd that is made at the first call. NULL where it
/// cannot be had.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_kind_cold() -> *mut tierheap_kind_t {
    kinds::cold().map_or(core::ptr::null_mut(), handle)
}

/// The kind of a live block; NULL for NULL and for what is not this heap's.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_kind_of(ptr: *const c_void) -> *mut tierheap_kind_t {
    runtime::kind_of(ptr.cast()).map_or(core::ptr::null_mut(), handle)
}

/// The tier that holds the memory at `ptr` now, be it the start or the middle of a block: 1 is
/// DRAM, 2 the first cold tier, and so on; 0 where nothing of this heap is. It may change at any
/// time while the address stays. Safe in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_tier_of(ptr: *const c_void) -> c_int {
    runtime::tier_of(ptr.cast()).map_or(0, |t: TierId| c_int::from(t.0) + 1)
}

/// Says how a range of a block will be used. A hint: this version checks and takes it, and no
/// policy acts on it yet. TIERHEAP_EINVAL for an unknown advice or a range that wraps,
/// TIERHEAP_EFOREIGN where part of the range is not this heap's.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_advise(ptr: *mut c_void, size: usize, advice: c_int) -> c_int {
    if !matches!(advice, TIERHEAP_HOT | TIERHEAP_COLD | TIERHEAP_NORMAL) {
        return TIERHEAP_EINVAL;
    }
    let start = ptr as usize;
    let Some(end) = start.checked_add(size) else {
        return TIERHEAP_EINVAL;
    };
    let mut at = start;
    loop {
        if runtime::tier_of(at as *const u8).is_none() {
            return TIERHEAP_EFOREIGN;
        }
        at = (at & !(SLICE.get() - 1)) + SLICE.get();
        if at >= end {
            return TIERHEAP_OK;
        }
    }
}

/// Puts a configuration string (as in the environment's TIERHEAP) in force. It must come before
/// any other with tiers is: TIERHEAP_EBUSY otherwise. TIERHEAP_EINVAL for NULL, TIERHEAP_ECONFIG
/// for a wrong word, TIERHEAP_ETIER where a tier cannot be had (the others are in force then).
///
/// # Safety
/// `text` must be NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_configure(text: *const c_char) -> c_int {
    if text.is_null() {
        return TIERHEAP_EINVAL;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    match kinds::prepare().and_then(|()| runtime::configure(text)) {
        Ok(()) => TIERHEAP_OK,
        Err(refusal) => code(refusal),
    }
}

/// Fills in the statistics. TIERHEAP_EINVAL for NULL or a `size` too small. Safe in signal
/// handlers.
///
/// # Safety
/// `out` must be NULL or point to a structure whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_stats(out: *mut tierheap_stats) -> c_int {
    // SAFETY: the caller's promise.
    let Some(out) = (unsafe { out.as_mut() }) else {
        return TIERHEAP_EINVAL;
    };
    if out.size < size_of::<tierheap_stats>() {
        return TIERHEAP_EINVAL;
    }
    let totals = stats::totals();
    out.foreign_frees = totals.foreign_frees;
    out.fallbacks = totals.fallbacks;
    out.warnings = totals.warnings;
    out.tiers = 0;
    for (place, id) in out.tier.iter_mut().zip(stats::tiers()) {
        let Some(t) = stats::tier(id) else { continue };
        *place = tierheap_tier_stats {
            asked: t.asked.map_or(u64::MAX, |b| b.get() as u64),
            held: t.held.get() as u64,
            resident: t.resident.get() as u64,
            peak: t.peak.get() as u64,
            limit: t.limit.map_or(u64::MAX, |b| b.get() as u64),
            fallbacks: t.fallbacks,
            name: name(id),
        };
        out.tiers += 1;
    }
    TIERHEAP_OK
}

fn name(id: TierId) -> [c_char; TIERHEAP_NAME_SIZE] {
    use core::fmt::Write;
    let mut line = crate::os::report::Line::<{ TIERHEAP_NAME_SIZE - 1 }>::new();
    let _ = write!(line, "{}", report::TierName(id));
    let mut name = [0; TIERHEAP_NAME_SIZE];
    for (to, from) in name.iter_mut().zip(line.bytes()) {
        *to = *from as c_char;
    }
    name
}

/// Prints the statistics as "text" or "json" by calling `write` with pieces of it, in order.
/// TIERHEAP_EINVAL for a NULL `write` or another format. Safe in signal handlers if `write` is.
///
/// # Safety
/// `format` must be NULL (for "text") or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tierheap_stats_print(
    write: Option<unsafe extern "C" fn(opaque: *mut c_void, text: *const c_char, len: usize)>,
    opaque: *mut c_void,
    format: *const c_char,
) -> c_int {
    let Some(write) = write else {
        return TIERHEAP_EINVAL;
    };
    // SAFETY: the callback is the caller's to make sound.
    let piece = |bytes: &[u8]| unsafe { write(opaque, bytes.as_ptr().cast(), bytes.len()) };
    let format = if format.is_null() {
        b"text"
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(format) }.to_bytes()
    };
    match format {
        b"text" => report::text(piece),
        b"json" => report::json(piece),
        _ => return TIERHEAP_EINVAL,
    }
    TIERHEAP_OK
}

/// What a code means, as a text that lasts; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_strerror(code: c_int) -> *const c_char {
    match code {
        TIERHEAP_OK => c"success",
        TIERHEAP_EINVAL => c"invalid argument",
        TIERHEAP_ECONFIG => c"a word of the configuration is wrong",
        TIERHEAP_ETIER => c"a tier cannot be had",
        TIERHEAP_ENOMEM => c"no memory",
        TIERHEAP_ETOOMANY => c"too many kinds or tiers",
        TIERHEAP_EBUSY => c"too late: in force or in use already",
        TIERHEAP_EFOREIGN => c"the pointer is not of this heap",
        _ => c"unknown code",
    }
    .as_ptr()
}

/// The version, as a text that lasts.
#[unsafe(no_mangle)]
pub extern "C" fn tierheap_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
