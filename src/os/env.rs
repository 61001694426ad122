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

#[cfg(test)]
mod tests {
    use super::*;

    fn look(table: &[Option<&'static CStr>], name: &[u8]) -> Lookup {
        let table: std::vec::Vec<*const c_char> = table
            .iter()
            .map(|entry| entry.map_or(core::ptr::null(), CStr::as_ptr))
            .collect();
        // SAFETY: the tables below end with null.
        unsafe { find_in(table.as_ptr(), name) }
    }

    #[test]
    fn names_are_whole_and_the_first_wins() {
        let table = [
            Some(c"TIERHEAPS=no"),
            Some(c"TIERHEAP"),
            Some(c"XTIERHEAP=no"),
            Some(c"TIERHEAP=cold=memfd;dram=1G"),
            Some(c"TIERHEAP=second"),
            None,
        ];
        assert_eq!(
            look(&table, b"TIERHEAP"),
            Lookup::Value(b"cold=memfd;dram=1G")
        );
        assert_eq!(look(&table, b"TIER"), Lookup::Absent);
        assert_eq!(look(&[Some(c"A="), None], b"A"), Lookup::Value(b""));
        assert_eq!(look(&[None], b"A"), Lookup::Absent);
        // SAFETY: null is what is asked about.
        let early = unsafe { find_in(core::ptr::null(), b"A") };
        assert_eq!(early, Lookup::TooEarly);
    }

    #[test]
    fn the_processs_own_environment_is_found() {
        let Lookup::Value(path) = find(b"PATH") else {
            panic!("PATH is not set");
        };
        assert_eq!(std::env::var_os("PATH").unwrap().as_encoded_bytes(), path);
        assert_eq!(find(b"TIERHEAP_NO_SUCH_VARIABLE"), Lookup::Absent);
    }
}
