//! Writing to a program's own stdio stream, for the one call that is handed one (`malloc_info`).
//! Allocates and locks as libc does: never called on the allocator's own paths.

use super::report::Line;
use core::ffi::c_void;
use core::fmt::{self, Write};

/// A `FILE *` of the program.
#[derive(Clone, Copy)]
pub struct Stream(*mut libc::FILE);

impl Stream {
    /// # Safety
    /// `stream` is an open stream, and stays open while this is used.
    pub unsafe fn from_raw(stream: *mut c_void) -> Stream {
        Stream(stream.cast())
    }
}

/// 0, or -1 as stdio's errors are.
pub fn print(stream: Stream, args: fmt::Arguments<'_>) -> i32 {
    let mut line = Line::<1024>::new();
    let _ = line.write_fmt(args);
    let bytes = line.bytes();
    // SAFETY: the stream is open (`from_raw`), and the bytes are a live buffer of that length.
    let written = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stream.0) };
    if written == bytes.len() { 0 } else { -1 }
}
