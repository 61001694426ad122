//! The report at exit, for those who asked for it. The heap itself is never torn down: destructors
//! and stdio still use it.

use super::configure::exit_report;
use super::report;
use crate::arena::meta;
use crate::base::Bytes;
use crate::base::config::Stats;
use crate::os::Errno;
use crate::os::exit::{handler, process_id};
use crate::os::file::Fd;
use crate::os::report::{line, write_all};
use crate::sync::{AtomicU32, Ordering};

/// The process that was asked; forked children stay silent.
static PROCESS: AtomicU32 = AtomicU32::new(0);

pub fn register() {
    if exit_report() != Stats::Off {
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
    match exit_report() {
        Stats::Off => {}
        // Where stderr cannot be written, there is nowhere to say so.
        Stats::Stderr => in_one_write(Fd::STDERR, false).unwrap_or(()),
        Stats::Path(path) => {
            let written = super::report::open_file(path)
                .and_then(|file| in_one_write(file.fd(), path.ends_with(b".json")));
            if let Err(error) = written {
                // The path last: what a line has no room for is cut off.
                line(format_args!(
                    "stats: the report cannot be written ({error}) to {}",
                    path.escape_ascii()
                ));
            }
        }
    }
}

/// What a report of many tiers with long names takes; the rest would be cut.
const WHOLE: Bytes = meta::LARGEST;

/// Several processes append to one file, so each report is one write.
fn in_one_write(fd: Fd, json: bool) -> Result<(), Errno> {
    let memory = meta::alloc(WHOLE).ok_or(Errno::NOMEM)?;
    let mut len = 0;
    let gather = |piece: &[u8]| {
        let room = piece.len().min(WHOLE.get() - len);
        // SAFETY: the buffer is ours alone, and `room` bytes of it are left behind `len`.
        unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), memory.as_ptr().add(len), room) };
        len += room;
    };
    if json {
        report::json(gather)
    } else {
        report::text(gather)
    }
    // SAFETY: the first `len` bytes were written above; the buffer is given back after its last use.
    unsafe {
        let written = write_all(fd, core::slice::from_raw_parts(memory.as_ptr(), len));
        meta::free(memory, WHOLE);
        written
    }
}
