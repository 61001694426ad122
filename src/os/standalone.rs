//! What a library without the standard library must bring itself.

/// There is no unwinding (`panic = "abort"` in every profile): the message, then SIGABRT.
#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    super::report::fatal(format_args!("internal error: {info}"))
}

// The precompiled core was built to unwind, and its tables name this function, which std would
// bring. Nothing unwinds through Rust code here, so it is never called. Hidden: programs that link
// Rust's standard library as a shared object look the name up, and must find theirs.
macro_rules! personality {
    ($trap:literal) => {
        core::arch::global_asm!(
            ".pushsection .text.unlikely,\"ax\",@progbits",
            ".hidden rust_eh_personality",
            ".globl rust_eh_personality",
            ".type rust_eh_personality,@function",
            "rust_eh_personality:",
            $trap,
            ".size rust_eh_personality, . - rust_eh_personality",
            ".popsection",
        );
    };
}
#[cfg(target_arch = "x86_64")]
personality!("ud2");
#[cfg(target_arch = "aarch64")]
personality!("brk #1");
