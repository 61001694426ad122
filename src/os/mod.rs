//! The only room that names libc: typed doors to the kernel and to the C library.
//!
//! What holds for every door:
//! - It allocates nothing and takes no lock of libc, unless its comment says so (`thread`, `fork`,
//!   `exit` and `next` register and look up; their callers do so when it is safe).
//! - It leaves `errno` as it was.
//! - System calls go past libc's named wrappers, which other preloaded libraries interpose.
//! - What can fail returns `Result<_, Errno>`; nothing is printed but by `report`.

pub mod clock;
pub mod cxx;
pub mod env;
pub mod errno;
pub mod exit;
pub mod file;
pub mod fork;
pub mod futex;
pub mod limits;
pub mod lock;
pub mod map;
pub mod maps;
pub mod next;
pub mod numa;
pub mod pagemap;
pub mod report;
pub mod sleepers;
pub mod space;
#[cfg(all(feature = "preload", not(any(test, loom))))]
mod standalone;
pub mod stdio;
mod sys;
#[cfg(test)]
pub mod testing;
pub mod thread;
mod vdso;

pub use errno::Errno;
