//! The malloc family by libc's names: as glibc documents it, under every configuration.

use crate::build::Case;

macro_rules! conform {
    ($($test:ident: $program:literal),* $(,)?) => {$(
        #[test]
        fn $test() {
            Case::new($program).plain().matrix().done();
        }
    )*};
}

conform! {
    malloc_and_free: "libc_malloc",
    realloc: "libc_realloc",
    information: "libc_info",
    callers_in_libc: "libc_callers",
    memory_is_given_back: "memory_returns",
    fork_with_stdio_locked: "fork_stdio",
    operators_new_and_delete: "libc_new.cpp",
}

/// Not under plain glibc, which holds twice the bytes of blocks aligned to MiBs.
#[test]
fn memory_is_what_was_asked() {
    Case::new("memory_exact").matrix().done();
}

#[test]
fn every_name_is_ours() {
    Case::new("libc_names").under("none", "").done();
}
