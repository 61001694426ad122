//! The statistics as text and as JSON. No allocation: each line is made in a fixed buffer and
//! handed to a writer, so that this works at exit and in a signal handler.

use super::configure::policy;
use super::gate;
use super::stats::{self, TierStats};
use crate::arena::{lane, meta};
use crate::base::{Bytes, TierId};
use crate::heap::slot;
use crate::os::Errno;
use crate::os::exit::process_id;
use crate::os::file::{self, Held};
use crate::os::report::Line;
use core::ffi::CStr;
use core::fmt::{self, Write};

/// Opens the file that the report is appended to.
pub fn open_file(path: &[u8]) -> Result<Held, Errno> {
    let len = Bytes::new(path.len() + 1);
    let memory = meta::alloc(len).ok_or(Errno::NOMEM)?;
    // SAFETY: fresh zeroed metadata of that size, given back below.
    let opened = unsafe {
        core::ptr::copy_nonoverlapping(path.as_ptr(), memory.as_ptr(), path.len());
        let name = core::slice::from_raw_parts(memory.as_ptr(), path.len() + 1);
        CStr::from_bytes_with_nul(name)
            .map_err(|_| Errno::INVAL)
            .and_then(file::append_to)
    };
    // SAFETY: from `alloc` above, and the name is not used any more.
    unsafe { meta::free(memory, len) };
    opened
}

/// A tier's name as statistics give it: a path of any length, in pieces. The lane's lock is held
/// while one is copied, not while it is written: who prints may allocate from that lane.
pub struct TierName(pub TierId);

impl fmt::Display for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(lane) = lane(self.0) else {
            return Ok(());
        };
        let mut done = 0;
        loop {
            let mut piece = Piece::after(done);
            let copy = || lane.with_backing(|b| write!(piece, "{}", b.name()));
            // In a handler that interrupted the allocator, the lock may be free all the same.
            if gate::visit(slot::get(), copy).is_none() {
                let _ = lane.with_backing(|b| write!(piece, "{}", b.name()));
            }
            f.write_str(piece.text())?;
            if !piece.full {
                return Ok(());
            }
            done += piece.len;
        }
    }
}

/// What is written, without its first `skip` bytes, as far as there is room.
struct Piece {
    skip: usize,
    len: usize,
    full: bool,
    buffer: [u8; 256],
}

impl Piece {
    fn after(skip: usize) -> Piece {
        Piece {
            skip,
            len: 0,
            full: false,
            buffer: [0; 256],
        }
    }

    fn text(&self) -> &str {
        let bytes = self.buffer.get(..self.len).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Write for Piece {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let len = c.len_utf8();
            if self.skip > 0 {
                self.skip = self.skip.saturating_sub(len);
                continue;
            }
            let room = self.buffer.get_mut(self.len..self.len + len);
            let Some(room) = room.filter(|_| !self.full) else {
                self.full = true;
                return Ok(());
            };
            c.encode_utf8(room);
            self.len += len;
        }
        Ok(())
    }
}

/// A text within a JSON string.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '"' | '\\' => write!(self.0, "\\{c}")?,
                c if (c as u32) < 0x20 => write!(self.0, "\\u{:04x}", c as u32)?,
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn emit(write: &mut impl FnMut(&[u8]), args: fmt::Arguments<'_>) {
    let mut line = Line::<1024>::new();
    let _ = line.write_fmt(args);
    write(line.bytes());
}

/// What goes to a writer without passing through a buffer: a path may be longer than any.
struct Unbuffered<W>(W);

impl<W: FnMut(&[u8])> Write for Unbuffered<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        (self.0)(text.as_bytes());
        Ok(())
    }
}

/// One line a tier, then the totals; `write` is called with a piece of it several times. All
/// columns of figures have one width, and the name, of any length, is the last.
pub fn text(mut write: impl FnMut(&[u8])) {
    // One digit more: figures grow while they are printed.
    let digits = stats::widest().checked_ilog10().unwrap_or(0) as usize + 2;
    let wide = digits.max("fallbacks".len());
    emit(
        &mut write,
        format_args!(
            "tierheap {} pid {} policy {}\ntier {:>wide$} {:>wide$} {:>wide$} {:>wide$} {:>wide$} {:>wide$} {:>wide$}  name\n",
            env!("CARGO_PKG_VERSION"),
            process_id(),
            policy().as_str(),
            "asked",
            "held",
            "resident",
            "copied",
            "peak",
            "limit",
            "fallbacks",
        ),
    );
    for id in stats::tiers() {
        let Some(t) = stats::tier(id) else { continue };
        emit(
            &mut write,
            format_args!(
                "{:>4} {:>wide$} {:>wide$} {:>wide$} {:>wide$} {:>wide$} {:>wide$} {:>wide$}  ",
                id.0 + 1,
                Maybe(t.asked),
                t.held.get(),
                t.resident.get(),
                Maybe(stats::copied(id)),
                t.peak.get(),
                Maybe(t.limit),
                t.fallbacks,
            ),
        );
        let _ = writeln!(Unbuffered(&mut write), "{}", TierName(id));
    }
    let t = stats::totals();
    emit(
        &mut write,
        format_args!(
            "fallbacks {} beyond budget {} foreign frees {} warnings {} heap errors {} metadata {}\n",
            t.fallbacks,
            t.beyond_budget,
            t.foreign_frees,
            t.warnings,
            t.faults,
            t.metadata.get(),
        ),
    );
}

/// One line, one object; `write` is called with a piece of it several times.
pub fn json(mut write: impl FnMut(&[u8])) {
    emit(
        &mut write,
        format_args!(
            "{{\"version\":\"{}\",\"pid\":{},\"policy\":\"{}\",\"tiers\":[",
            env!("CARGO_PKG_VERSION"),
            process_id(),
            policy().as_str(),
        ),
    );
    for (i, (id, t)) in stats::tiers()
        .filter_map(|id| Some((id, stats::tier(id)?)))
        .enumerate()
    {
        json_tier(&mut write, i == 0, id, &t);
    }
    let t = stats::totals();
    emit(
        &mut write,
        format_args!(
            "],\"foreign_frees\":{},\"fallbacks\":{},\"beyond_budget\":{},\"warnings\":{},\"heap_errors\":{},\"metadata\":{}}}\n",
            t.foreign_frees,
            t.fallbacks,
            t.beyond_budget,
            t.warnings,
            t.faults,
            t.metadata.get(),
        ),
    );
}

fn json_tier(write: &mut impl FnMut(&[u8]), first: bool, id: TierId, t: &TierStats) {
    let comma = if first { "" } else { "," };
    emit(
        write,
        format_args!("{comma}{{\"tier\":{},\"name\":\"", id.0 + 1),
    );
    let _ = write!(Escaped(Unbuffered(&mut *write)), "{}", TierName(id));
    emit(
        write,
        format_args!(
            "\",\"asked\":{},\"held\":{},\"resident\":{},\"copied\":{},\"peak\":{},\"limit\":{},\"fallbacks\":{}}}",
            Null(t.asked),
            t.held.get(),
            t.resident.get(),
            Null(stats::copied(id)),
            t.peak.get(),
            Null(t.limit),
            t.fallbacks,
        ),
    );
}

struct Maybe(Option<Bytes>);
impl fmt::Display for Maybe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => bytes.get().fmt(f),
            None => f.pad("-"),
        }
    }
}

struct Null(Option<Bytes>);
impl fmt::Display for Null {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => bytes.get().fmt(f),
            None => f.write_str("null"),
        }
    }
}
