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
    operators_new_and_delete: "libc_new.cpp",
    hazard_01_malloc_zero: "hazard_01_malloc_zero",
    hazard_05_entry_points: "hazard_05_entry_points",
    hazard_06_calloc_overflow: "hazard_06_calloc_overflow",
    hazard_16_usable_size: "hazard_16_usable_size",
    hazard_17_alignment: "hazard_17_alignment",
    hazard_37_calloc_is_zero: "hazard_37_calloc_is_zero",
}

#[test]
fn every_name_is_ours() {
    Case::new("libc_names").under("none", "").done();
}

#[test]
fn hazard_34_jemalloc_names() {
    Case::new("hazard_34_jemalloc_names").matrix().done();
}
