//! The next allocator in link order, for pointers that are not ours.

use super::errno::KeepErrno;
use crate::sync::{AtomicBool, Ordering};
use core::ffi::{CStr, c_void};
use core::num::NonZeroUsize;
use once_cell::race::OnceNonZeroUsize;

pub type Free = unsafe extern "C" fn(*mut c_void);
pub type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
pub type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;

/// A function's address, looked up at most once. A race looks it up twice and keeps one, which is
/// why no lock is needed: `dlsym` takes the loader's, and a thread that loads a library under it
/// may be waiting for us.
pub(super) struct Symbol {
    name: &'static CStr,
    scope: Scope,
    found: OnceNonZeroUsize,
}

/// Where a name is looked up.
#[derive(Clone, Copy)]
enum Scope {
    /// After this library.
    Next,
    /// From the program on: where a variable of libc's is, which the program may hold a copy of.
    Program,
}

/// What a cell holds when there is no such function; no function has this address.
const MISSING: NonZeroUsize = NonZeroUsize::MAX;

impl Symbol {
    pub(super) const fn new(name: &'static CStr) -> Symbol {
        Symbol {
            name,
            scope: Scope::Next,
            found: OnceNonZeroUsize::new(),
        }
    }

    /// A variable.
    pub(super) const fn variable(name: &'static CStr) -> Symbol {
        Symbol {
            scope: Scope::Program,
            ..Symbol::new(name)
        }
    }

    /// `None` when there is no such function, and while a lookup is under way: `dlsym` itself may
    /// allocate and free, and must not be entered again from there. What is freed in that moment
    /// is leaked, as a foreign pointer with no owner is.
    pub(super) fn get(&self) -> Option<usize> {
        let address = match self.found.get() {
            Some(address) => address,
            None => self.look_up_slow()?,
        };
        (address != MISSING).then_some(address.get())
    }

    #[cold]
    #[inline(never)]
    fn look_up_slow(&self) -> Option<NonZeroUsize> {
        static LOOKING: AtomicBool = AtomicBool::new(false);
        // Acquire with the Release below: only for the cell's sake, which synchronises itself;
        // the flag alone carries no data.
        if LOOKING.swap(true, Ordering::Acquire) {
            return None;
        }
        let _keep = KeepErrno::new();
        let scope = match self.scope {
            Scope::Next => libc::RTLD_NEXT,
            Scope::Program => libc::RTLD_DEFAULT,
        };
        // SAFETY: the name is terminated; dlsym runs no code of the library it finds it in (no
        // allocator defines malloc's names as ifuncs).
        let address = unsafe { libc::dlsym(scope, self.name.as_ptr()) };
        let address = NonZeroUsize::new(address as usize).unwrap_or(MISSING);
        let _ = self.found.set(address);
        LOOKING.store(false, Ordering::Release);
        self.found.get()
    }
}

static FREE: Symbol = Symbol::new(c"free");
static REALLOC: Symbol = Symbol::new(c"realloc");
static USABLE_SIZE: Symbol = Symbol::new(c"malloc_usable_size");

/// Looks all of them up now, while it is safe to: from the library's constructor.
pub fn resolve() {
    let _ = (FREE.get(), REALLOC.get(), USABLE_SIZE.get());
}

/// Whether the next definition is not our own come round again (a program that links this crate
/// and is not preloaded has ours as the only one; RTLD_NEXT then finds libc's or nothing).
fn other_than(own: usize, address: usize) -> Option<usize> {
    (own != address).then_some(address)
}

/// The next `free`; `own` is ours, which is never returned.
pub fn free(own: Option<Free>) -> Option<Free> {
    let address = other_than(own.map_or(0, |f| f as usize), FREE.get()?)?;
    // SAFETY: the symbol `free` of any libc or allocator has this type.
    Some(unsafe { core::mem::transmute::<usize, Free>(address) })
}

/// The next `realloc`; `own` is ours, which is never returned.
pub fn realloc(own: Option<Realloc>) -> Option<Realloc> {
    let address = other_than(own.map_or(0, |f| f as usize), REALLOC.get()?)?;
    // SAFETY: the symbol `realloc` of any libc or allocator has this type.
    Some(unsafe { core::mem::transmute::<usize, Realloc>(address) })
}

/// The next `malloc_usable_size`; `own` is ours, which is never returned.
pub fn usable_size(own: Option<UsableSize>) -> Option<UsableSize> {
    let address = other_than(own.map_or(0, |f| f as usize), USABLE_SIZE.get()?)?;
    // SAFETY: the symbol `malloc_usable_size` of any libc or allocator has this type.
    Some(unsafe { core::mem::transmute::<usize, UsableSize>(address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_allocator_is_libcs_here() {
        resolve();
        // SAFETY: the functions found are libc's, and the block is libc's.
        unsafe {
            let block = libc::malloc(100);
            let size = usable_size(None).unwrap()(block);
            assert!((100..200).contains(&size), "{size}");
            let block = realloc(None).unwrap()(block, 1000);
            assert!(usable_size(None).unwrap()(block) >= 1000);
            free(None).unwrap()(block);
        }
        let found = free(None).unwrap();
        assert!(free(Some(found)).is_none(), "our own is not the next one");
    }

    #[test]
    fn what_does_not_exist_is_looked_up_once_and_is_none() {
        static NONE: Symbol = Symbol::new(c"tierheap_no_such_function");
        crate::os::errno::set_raw(44);
        while NONE.found.get().is_none() {
            assert_eq!(NONE.get(), None); // another test may be looking something up
        }
        assert_eq!(NONE.get(), None);
        assert_eq!(crate::os::errno::get(), 44);
    }
}
