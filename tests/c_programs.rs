//! The C and C++ programs of `c-tests/`, one test each, but for the hazards, which
//! `tests/hazards.rs` runs under other allocators too. What a program checks stands at its top;
//! here stands how it is run: under which configurations, with which limits and companions, and
//! once under plain glibc where its claim is about malloc as such, so that a program that is
//! wrong itself is told from a library that is.

#[path = "c_programs/api.rs"]
mod api;
#[allow(dead_code)] // the drivers of the hazards and of the emulated machine use the rest
#[path = "c_programs/build.rs"]
mod build;
mod common;
#[path = "c_programs/fork.rs"]
mod fork;
#[path = "c_programs/libc.rs"]
mod libc_names;
#[path = "c_programs/stress.rs"]
mod stress;
#[path = "c_programs/valgrind.rs"]
mod valgrind;
