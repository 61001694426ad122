//! The report at exit, for those who asked for it. The heap itself is never torn down: destructors
//! and stdio still use it.

use super::configure::kept;
use super::report;
use crate::base::config::Stats;
use crate::os::exit::{handler, process_id};
use crate::os::file::Fd;
use crate::os::report::write_all;
use crate::sync::{AtomicU32, Ordering};

/// The process that was asked; forked children stay silent.
static PROCESS: AtomicU32 = AtomicU32::new(0);

pub fn register() {
    if kept().stats != Stats::Off {
        // Relaxed: read by the exit handler of the same process.
        PROCESS.store(process_id(), Ordering::Relaxed);
        let _ = handler(at_exit);
    }
}

extern "C" fn at_exit() {
    // Relaxed: see `register`.
    if PROCESS.load(Ordering::Relaxed) != process_id() {
        return;
    }
    match kept().stats {
        Stats::Off => {}
        Stats::Stderr => report::text(|bytes| {
            let _ = write_all(Fd::STDERR, bytes);
        }),
        Stats::Path(path) => {
            let Some(file) = super::report::open_file(path) else {
                return;
            };
            let write = |bytes: &[u8]| {
                let _ = write_all(file.fd(), bytes);
            };
            if path.ends_with(b".json") {
                report::json(write)
            } else {
                report::text(write)
            }
        }
    }
}
