//! The C and C++ programs of `c-tests/`, one test each. What a program checks stands at its top;
//! here stands how it is run: under which configurations, with which limits and companions, and
//! once under plain glibc where its claim is about malloc as such, so that a program that is
//! wrong itself is told from a library that is.

#[path = "c_programs/api.rs"]
mod api;
#[path = "c_programs/build.rs"]
mod build;
mod common;
#[path = "c_programs/hazards.rs"]
mod hazards;
#[path = "c_programs/libc.rs"]
mod libc_names;
#[path = "c_programs/limits.rs"]
mod limits;
#[path = "c_programs/stress.rs"]
mod stress;
