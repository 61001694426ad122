//! What happens when a program frees what it must not.

use crate::base::Addr;
use crate::os::report;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Ways a pointer given to `free` or `realloc` can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Double,
    Interior,
}

static ABORT: AtomicBool = AtomicBool::new(true);
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// The configuration's `abort`.
pub fn set_abort(abort: bool) {
    // Relaxed: set while the configuration is read, before it matters to anybody.
    ABORT.store(abort, Ordering::Relaxed);
}

/// Heap errors survived because of `abort=0`.
pub fn faults() -> u64 {
    // Relaxed: a statistic.
    FAULTS.load(Ordering::Relaxed)
}

/// Ends the program with a message, or with `abort=0` counts the error and leaves the block.
#[cold]
#[inline(never)]
pub fn bad_free(addr: Addr, fault: Fault) {
    // Relaxed (both): see `set_abort` and `faults`.
    if ABORT.load(Ordering::Relaxed) {
        match fault {
            Fault::Double => report::fatal(format_args!(
                "double free or free of a block never allocated: {:#x}",
                addr.get()
            )),
            Fault::Interior => report::fatal(format_args!(
                "free of a pointer into a block, not to its start: {:#x}",
                addr.get()
            )),
        }
    }
    FAULTS.fetch_add(1, Ordering::Relaxed);
}
