//! The environment without `getenv`, which takes a lock in some C libraries and is interposed by
//! preloaded shells and sandboxes.

use super::limits;
use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// libc has not been told its environment yet (malloc from a constructor that runs before
    /// libc's own): ask again later.
    TooEarly,
    /// Not set, or not to be believed because the program has more rights than its user.
    Absent,
    /// The value. It lies in memory of the program, which may change it (`setenv`, `putenv`): copy
    /// it before any other code runs.
    Value(&'static [u8]),
}

/// Looks for `name` (without `=`).
pub fn find(name: &[u8]) -> Lookup {
    if limits::secure() {
        return Lookup::Absent;
    }
    // SAFETY: `environ` is libc's variable; reading a pointer-sized word cannot tear.
    let table = unsafe { (&raw const environ).read() };
    // SAFETY: as POSIX has it, the table ends with a null pointer.
    unsafe { find_in(table, name) }
}

/// # Safety
/// `table` is null, or an array of terminated strings with a null pointer at its end.
unsafe fn find_in(mut table: *const *const c_char, name: &[u8]) -> Lookup {
    if table.is_null() {
        return Lookup::TooEarly;
    }
    loop {
        // SAFETY: the null pointer at the end has not been passed.
        let entry = unsafe { table.read() };
        if entry.is_null() {
            return Lookup::Absent;
        }
        // SAFETY: entries are terminated strings.
        let entry: &'static [u8] = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some([b'=', value @ ..]) = entry.strip_prefix(name) {
            return Lookup::Value(value);
        }
        // SAFETY: this entry was not the last.
        table = unsafe { table.add(1) };
    }
}
