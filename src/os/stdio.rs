//! stdio, where the allocator meets it: a program's stream to write to, for the one call that is
//! handed one (`malloc_info`), and the lock of the list of streams. Both allocate and lock as libc
//! does: never called on the allocator's own paths.

use super::next::Symbol;
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

// glibc's own, exported for a threads library that is history. The lock counts its owner's takings.
static LOCK_LIST: Symbol = Symbol::new(c"_IO_list_lock");
static UNLOCK_LIST: Symbol = Symbol::new(c"_IO_list_unlock");
static RESET_LIST: Symbol = Symbol::new(c"_IO_list_resetlock");
/// A byte that is not 0 while the process has one thread; glibc 2.32.
static ONE_THREAD: Symbol = Symbol::variable(c"__libc_single_threaded");

fn call(symbol: &Symbol) {
    if let Some(address) = symbol.get() {
        // SAFETY: the functions above take nothing and return nothing.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn()>(address)() }
    }
}

/// Takes the lock of the list of all streams before a fork; says whether it did.
///
/// fork takes it after the prepare handlers, and a thread in `fflush(NULL)` allocates while it
/// holds it: who keeps threads from allocating until fork is done must have this lock before, or
/// the three wait for each other. In a process of one thread fork takes none and sets none anew in
/// the child; so does this.
#[must_use = "it is given back in the parent and set anew in the child"]
pub fn lock_list() -> bool {
    // All or none of them.
    let known = UNLOCK_LIST.get().and(RESET_LIST.get()).and(LOCK_LIST.get());
    let one_thread = ONE_THREAD.get().is_some_and(|byte| {
        // SAFETY: the symbol of this name is a `char`, which glibc writes as it makes threads.
        unsafe { (byte as *const u8).read_volatile() != 0 }
    });
    let takes = known.is_some() && !one_thread;
    if takes {
        call(&LOCK_LIST);
    }
    takes
}

/// Gives it back in the parent.
pub fn unlock_list() {
    call(&UNLOCK_LIST);
}

/// Sets it anew in the child, where fork has done so already if it counted threads as we did.
pub fn reset_list() {
    call(&RESET_LIST);
}

/// Looks all of them up, while it is safe to.
pub fn resolve() {
    for symbol in [&LOCK_LIST, &UNLOCK_LIST, &RESET_LIST, &ONE_THREAD] {
        let _ = symbol.get();
    }
}
