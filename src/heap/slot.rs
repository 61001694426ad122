//! The thread's slot: one word of initial-exec thread-local storage that leads to its heap.
//!
//! `thread_local!` in a shared object calls `__tls_get_addr` on every access, and with a
//! destructor it allocates. A hidden symbol in `.tdata`, read through the GOT's offset, costs two
//! instructions, and eight bytes of static TLS leave room for late `dlopen`. Its initial value
//! is the empty heap, so that the fast path needs no test for "no heap yet".

use core::num::NonZeroUsize;

use super::thread_heap::ThreadHeap;
use crate::lockfree::ThreadId;

core::arch::global_asm!(
    ".pushsection .tdata,\"awT\",@progbits",
    ".balign 8",
    ".hidden tierheap_thread_slot",
    ".globl tierheap_thread_slot",
    ".type tierheap_thread_slot,@object",
    ".size tierheap_thread_slot,8",
    "tierheap_thread_slot:",
    ".quad {empty}",
    ".popsection",
    empty = sym super::thread_heap::EMPTY,
);

/// The calling thread's heap: its own, or one of the two placeholders. Never null.
#[inline(always)]
pub fn get() -> *mut ThreadHeap {
    let heap: *mut ThreadHeap;
    // SAFETY: reads the word above; initial-exec is right in an executable and in any library
    // that is loaded at start or fits the static TLS reserve.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + tierheap_thread_slot@gottpoff]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) heap,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "adrp {1}, :gottprel:tierheap_thread_slot",
            "ldr {1}, [{1}, :gottprel_lo12:tierheap_thread_slot]",
            "mrs {0}, tpidr_el0",
            "ldr {0}, [{0}, {1}]",
            out(reg) heap, out(reg) _,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    heap
}

/// The calling thread, by where its control block lies: the kernel lets a forked child keep it.
pub fn thread() -> ThreadId {
    let block: usize;
    // SAFETY: by the ABI the first word of the block, which `fs` leads to, is its own address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr fs:[0]",
            out(reg) block,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    // SAFETY: reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "mrs {0}, tpidr_el0",
            out(reg) block,
            options(nostack, nomem, preserves_flags)
        );
    }
    // It is never 0: libc has set it before any code of ours runs.
    ThreadId(NonZeroUsize::new(block).unwrap_or(NonZeroUsize::MIN))
}

/// Sets the calling thread's heap.
pub fn set(heap: *mut ThreadHeap) {
    // SAFETY: as for `get`.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + tierheap_thread_slot@gottpoff]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _, in(reg) heap,
            options(nostack, preserves_flags)
        );
    }
    // SAFETY: as for `get`.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "adrp {1}, :gottprel:tierheap_thread_slot",
            "ldr {1}, [{1}, :gottprel_lo12:tierheap_thread_slot]",
            "mrs {0}, tpidr_el0",
            "str {2}, [{0}, {1}]",
            out(reg) _, out(reg) _, in(reg) heap,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("tierheap knows the thread slot of x86-64 and AArch64 only");
