//! C++'s operators new and delete, in all their forms, under their mangled names.
//!
//! When there is no memory, `new` calls the program's new_handler as long as there is one, and
//! then throws bad_alloc. Both may unwind, and no Rust frame may be unwound (the library aborts
//! on panic), so the part that calls them is assembly with unwind tables of its own.

use core::ffi::{CStr, c_void};

use crate::heap::{KindId, fast};
use crate::os::{cxx, report};
use crate::runtime;

const DEFAULT: KindId = KindId::DEFAULT;

// new_or_throw(size, align): try, handler, try, ..., throw.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.unlikely,\"ax\",@progbits",
    ".hidden tierheap_new_or_throw",
    ".globl tierheap_new_or_throw",
    ".type tierheap_new_or_throw,@function",
    "tierheap_new_or_throw:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rbx, -16",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset r12, -24",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2:",
    "mov rdi, rbx",
    "mov rsi, r12",
    "call {attempt}",
    "test rax, rax",
    "jnz 3f",
    "call {handler}",
    "test rax, rax",
    "jz 4f",
    "call rax",
    "jmp 2b",
    "3:",
    "add rsp, 8",
    ".cfi_remember_state",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_restore_state",
    "4:",
    "call {thrower}",
    "call rax",
    "ud2",
    ".cfi_endproc",
    ".size tierheap_new_or_throw, . - tierheap_new_or_throw",
    ".popsection",
    attempt = sym attempt,
    handler = sym handler,
    thrower = sym thrower,
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn tierheap_new_or_throw(size: usize, align: usize) -> *mut c_void;
}

/// Without the assembly above a handler may be called but must not throw, and instead of
/// bad_alloc the program ends with a message.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn tierheap_new_or_throw(size: usize, align: usize) -> *mut c_void {
    loop {
        let block = attempt(size, align);
        if !block.is_null() {
            return block;
        }
        match cxx::new_handler() {
            // SAFETY: the program's own handler.
            Some(handler) => unsafe { handler() },
            None => no_library(),
        }
    }
}

extern "C" fn attempt(size: usize, align: usize) -> *mut c_void {
    runtime::aligned_kind(DEFAULT, align, size).cast()
}

#[cfg(target_arch = "x86_64")]
extern "C" fn handler() -> *const () {
    cxx::new_handler().map_or(core::ptr::null(), |h| h as *const ())
}

#[cfg(target_arch = "x86_64")]
extern "C" fn thrower() -> *const () {
    let thrower = cxx::bad_alloc_thrower();
    if thrower.is_null() {
        no_library as *const ()
    } else {
        thrower
    }
}

extern "C" fn no_library() -> ! {
    report::fatal(format_args!(
        "operator new: no memory, and no C++ library to throw bad_alloc"
    ))
}

#[inline(always)]
fn new(size: usize) -> *mut c_void {
    match fast::malloc(size, 1) {
        Some(block) => block.as_ptr().cast(),
        // SAFETY: the assembly above keeps the C ABI.
        None => unsafe { tierheap_new_or_throw(size, 16) },
    }
}

#[inline(always)]
fn new_aligned(size: usize, align: usize) -> *mut c_void {
    // SAFETY: the assembly above keeps the C ABI.
    unsafe { tierheap_new_or_throw(size, align) }
}

/// There is no memory: the C++ library's form of this name asks the program's new_handler, which may
/// throw, and tries the plain form again. Null where there is no such library.
#[cold]
#[inline(never)]
fn nothrow_slow(name: &'static CStr, size: usize, align: usize) -> *mut c_void {
    match cxx::library_new_nothrow(name) {
        // SAFETY: the library's function of this name; what it throws it catches itself.
        Some(new) => unsafe { new(size, align) }.cast(),
        None => core::ptr::null_mut(),
    }
}

/// A name as a C string.
macro_rules! symbol {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

/// The forms of new: plain and array, each also nothrow, aligned, and both.
macro_rules! operators_new {
    ($($plain:ident $nothrow:ident $aligned:ident $aligned_nothrow:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $plain(size: usize) -> *mut c_void {
            new(size)
        }
        #[unsafe(no_mangle)]
        pub extern "C" fn $nothrow(size: usize, _nothrow: *const c_void) -> *mut c_void {
            let block = runtime::malloc(size);
            if block.is_null() {
                return nothrow_slow(symbol!($nothrow), size, 16);
            }
            block.cast()
        }
        #[unsafe(no_mangle)]
        pub extern "C" fn $aligned(size: usize, align: usize) -> *mut c_void {
            new_aligned(size, align)
        }
        #[unsafe(no_mangle)]
        pub extern "C" fn $aligned_nothrow(size: usize, align: usize, _nothrow: *const c_void) -> *mut c_void {
            let block = runtime::aligned_kind(DEFAULT, align, size);
            if block.is_null() {
                return nothrow_slow(symbol!($aligned_nothrow), size, align);
            }
            block.cast()
        }
    )*};
}

#[allow(non_snake_case)]
mod mangled_new {
    use super::*;
    operators_new! {
        _Znwm _ZnwmRKSt9nothrow_t _ZnwmSt11align_val_t _ZnwmSt11align_val_tRKSt9nothrow_t
        _Znam _ZnamRKSt9nothrow_t _ZnamSt11align_val_t _ZnamSt11align_val_tRKSt9nothrow_t
    }
}

/// The forms of delete: what they are told besides the pointer is not needed.
macro_rules! operators_delete {
    ($($name:ident($($extra:ty),*))*) => {$(
        /// # Safety
        /// The operator's: null, or a live block that nobody uses any more.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(ptr: *mut c_void $(, _: $extra)*) {
            // SAFETY: the caller's promise.
            unsafe { runtime::free(ptr.cast()) }
        }
    )*};
}

#[allow(non_snake_case)]
mod mangled_delete {
    use super::*;
    operators_delete! {
        _ZdlPv() _ZdaPv()
        _ZdlPvm(usize) _ZdaPvm(usize)
        _ZdlPvRKSt9nothrow_t(*const c_void) _ZdaPvRKSt9nothrow_t(*const c_void)
        _ZdlPvSt11align_val_t(usize) _ZdaPvSt11align_val_t(usize)
        _ZdlPvmSt11align_val_t(usize, usize) _ZdaPvmSt11align_val_t(usize, usize)
        _ZdlPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void)
        _ZdaPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void)
    }
}
