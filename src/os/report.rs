//! Words for the user, without allocation, safe in a signal handler.

use super::errno::Errno;
use super::file::Fd;
use super::sys::call;
use crate::sync::{AtomicU8, AtomicU32, Ordering};
use core::fmt::{self, Write};

/// A line of fixed room; what does not fit is cut at a character's boundary, and `cut` says so.
pub struct Line<const N: usize> {
    buf: [u8; N],
    len: usize,
    cut: bool,
}

impl<const N: usize> Line<N> {
    pub const fn new() -> Line<N> {
        Line {
            buf: [0; N],
            len: 0,
            cut: false,
        }
    }
    pub fn bytes(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or(&[])
    }
    pub fn text(&self) -> &str {
        // Always whole: pieces are whole strings, cut at boundaries.
        core::str::from_utf8(self.bytes()).unwrap_or("")
    }
    pub fn is_cut(&self) -> bool {
        self.cut
    }
    pub fn clear(&mut self) {
        self.len = 0;
        self.cut = false;
    }
    /// A newline that always fits: it takes the place of the last byte if need be.
    fn end(&mut self) {
        let at = self.len.min(N.saturating_sub(1));
        if let Some(last) = self.buf.get_mut(at) {
            *last = b'\n';
            self.len = at + 1;
        }
    }
}

impl<const N: usize> Default for Line<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Write for Line<N> {
    /// Never fails: a message that is too long is still worth its beginning.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.cut {
            return Ok(());
        }
        let room = N.saturating_sub(self.len);
        let take = text.floor_char_boundary(room);
        self.cut = take < text.len();
        let taken = text.as_bytes().get(..take).unwrap_or(&[]);
        if let Some(free) = self.buf.get_mut(self.len..self.len + taken.len()) {
            free.copy_from_slice(taken);
            self.len += taken.len();
        }
        Ok(())
    }
}

/// Writes all of it, or as much as the descriptor takes. A reader that is gone, or a file at its
/// size limit, costs the message and not the process: SIGPIPE and SIGXFSZ are held off for the
/// thread, and taken back if they came from here.
pub fn write_all(fd: Fd, mut bytes: &[u8]) -> Result<(), Errno> {
    let signals = HeldOff::deadly();
    let mut waits = 0;
    let outcome = loop {
        if bytes.is_empty() {
            break Ok(());
        }
        let args = [
            fd.number() as usize,
            bytes.as_ptr() as usize,
            bytes.len(),
            0,
            0,
            0,
        ];
        // SAFETY: the kernel reads `bytes.len()` bytes of `bytes`.
        match unsafe { call(libc::SYS_write, args) } {
            Ok(n) => bytes = bytes.get(n..).unwrap_or(&[]),
            // A signal, or a pipe that a program made non-blocking and that is full: the reader
            // gets a second to drain it.
            Err(Errno::INTR | Errno::AGAIN) if waits < 1000 => {
                waits += 1;
                super::lock::nap(1_000_000);
            }
            Err(error) => break Err(error),
        }
    };
    signals.release(match outcome {
        Err(Errno::FBIG) => bit(libc::SIGXFSZ),
        Err(error) if error == libc::EPIPE => bit(libc::SIGPIPE),
        _ => 0,
    });
    outcome
}

/// The signals that a write can raise, blocked for this thread.
struct HeldOff {
    before: u64,
    pending: u64,
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

impl HeldOff {
    fn deadly() -> HeldOff {
        let mut pending = 0u64;
        let mut before = 0u64;
        let both = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ);
        // SAFETY: the kernel reads and writes 8-byte signal sets, as the last argument says.
        unsafe {
            let _ = call(
                libc::SYS_rt_sigpending,
                [(&raw mut pending) as usize, 8, 0, 0, 0, 0],
            );
            let args = [
                libc::SIG_BLOCK as usize,
                (&raw const both) as usize,
                (&raw mut before) as usize,
                8,
                0,
                0,
            ];
            let _ = call(libc::SYS_rt_sigprocmask, args);
        }
        HeldOff { before, pending }
    }

    /// `raised`: the signal's bit, or 0.
    fn release(self, raised: u64) {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if raised & !self.pending != 0 {
            let args = [
                (&raw const raised) as usize,
                0,
                (&raw const at_once) as usize,
                8,
                0,
                0,
            ];
            // SAFETY: the kernel reads the 8-byte set and the time; no information is asked for.
            let _ = unsafe { call(libc::SYS_rt_sigtimedwait, args) };
        }
        let args = [
            libc::SIG_SETMASK as usize,
            (&raw const self.before) as usize,
            0,
            8,
            0,
            0,
        ];
        // SAFETY: the kernel reads the 8-byte set.
        let _ = unsafe { call(libc::SYS_rt_sigprocmask, args) };
    }
}

const WIDTH: usize = 512;

/// `tierheap: ` and the message as one write to stderr, so that lines of several processes do not
/// mix.
pub fn line(args: fmt::Arguments<'_>) {
    let mut line = Line::<WIDTH>::new();
    let _ = line.write_str("tierheap: ");
    let _ = line.write_fmt(args);
    line.end();
    let _ = write_all(Fd::STDERR, line.bytes());
}

/// What is worth one line in a process's life, and a count after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Warning {
    /// The configuration string is wrong; the heap runs on DRAM.
    Configuration,
    /// A tier of the configuration cannot be had.
    TierMissing,
    /// A tier is full (its disk, its node, its limit), and DRAM takes its place.
    TierFull,
    /// DRAM went beyond its budget, for want of room elsewhere.
    BeyondBudget,
    /// A program closed our descriptors.
    DescriptorLost,
    /// Space could not be given back to the file system.
    NotGivenBack,
    /// A child cannot have the cold memory of its parent.
    ForkIncomplete,
    /// A wrong free was ignored (`abort=0`).
    HeapError,
    /// Anything else that degrades.
    Other,
}

const WARNINGS: usize = Warning::Other as usize + 1;

static COUNTS: [AtomicU32; WARNINGS] = [const { AtomicU32::new(0) }; WARNINGS];

/// Whether the first warning of a kind is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Voice {
    /// Counted only.
    Silent,
    /// The first of each kind is printed.
    Spoken,
}

static VOICE: AtomicU8 = AtomicU8::new(Voice::Silent as u8);

/// Silent until the user asked for tiers: scripts compare what a program writes to stderr.
pub fn set_voice(voice: Voice) {
    // Relaxed: a warning printed or not by a racing thread is either way right.
    VOICE.store(voice as u8, Ordering::Relaxed);
}

/// Counts the warning, and prints it if it is the first of its kind.
#[cold]
#[inline(never)]
pub fn warn_once(kind: Warning, args: fmt::Arguments<'_>) {
    let Some(count) = COUNTS.get(kind as usize) else {
        return;
    };
    // Relaxed: the counter carries no other data; read-modify-write makes one thread the first.
    let before = count.fetch_add(1, Ordering::Relaxed);
    // Relaxed: see `set_voice`.
    if before == 0 && VOICE.load(Ordering::Relaxed) == Voice::Spoken as u8 {
        line(args);
    }
}

/// How often this was warned of.
pub fn warned(kind: Warning) -> u32 {
    // Relaxed: a statistic.
    COUNTS
        .get(kind as usize)
        .map_or(0, |count| count.load(Ordering::Relaxed))
}

/// All warnings, for the statistics.
pub fn warnings() -> u64 {
    // Relaxed: a statistic.
    COUNTS
        .iter()
        .map(|count| u64::from(count.load(Ordering::Relaxed)))
        .sum()
}

/// Says why and ends the process by SIGABRT, as glibc does on a corrupt heap.
#[cold]
#[inline(never)]
pub fn fatal(args: fmt::Arguments<'_>) -> ! {
    line(args);
    // SAFETY: abort is async-signal-safe and returns to nobody.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::testing::{self, Ended, Pipe, in_child};
    use std::string::ToString;

    #[test]
    fn a_line_is_cut_between_characters_and_ends() {
        let mut line = Line::<8>::new();
        write!(line, "{}gé", "abcdef".trim()).unwrap();
        assert_eq!((line.text(), line.is_cut()), ("abcdefg", true));
        line.write_str("x").unwrap();
        assert_eq!(line.text(), "abcdefg", "nothing follows a cut");
        line.end();
        assert_eq!(line.bytes(), b"abcdefg\n");
        line.clear();
        write!(line, "{:x}", 0xabcd_ef01u32).unwrap();
        line.end();
        assert_eq!(
            line.bytes(),
            b"abcdef0\n",
            "a newline takes the last byte of a full line"
        );
        assert!(!Line::<0>::default().is_cut());
    }

    #[test]
    fn writing_leaves_errno_alone_and_survives_a_reader_that_is_gone() {
        let ended = in_child(|| {
            testing::default_action(libc::SIGPIPE);
            let pipe = Pipe::new();
            let end = pipe.close_reader();
            super::super::errno::set_raw(55);
            let gone = write_all(end, b"nobody reads this");
            // Were the signal still pending, or blocked for good, the next raise would not kill.
            super::super::errno::get() == 55
                && gone == Err(Errno::new(libc::EPIPE))
                && testing::raise_is_deadly(libc::SIGPIPE)
        });
        assert_eq!(ended, Ended::Exit(0));
    }

    #[test]
    fn a_file_at_its_size_limit_costs_the_message_alone() {
        let ended = in_child(|| {
            testing::default_action(libc::SIGXFSZ);
            testing::limit_file_size(0);
            let file = super::super::file::memfd(super::super::file::Seals::Forbidden).unwrap();
            write_all(file.fd(), b"too much") == Err(Errno::FBIG)
                && testing::raise_is_deadly(libc::SIGXFSZ)
        });
        assert_eq!(ended, Ended::Exit(0));
    }

    #[test]
    fn a_blocked_and_pending_signal_stays_so() {
        let ended = in_child(|| {
            let pipe = Pipe::new();
            testing::default_action(libc::SIGPIPE);
            testing::block_and_raise(libc::SIGPIPE);
            let end = pipe.close_reader();
            write_all(end, b"x").is_err() && testing::is_pending(libc::SIGPIPE)
        });
        assert_eq!(ended, Ended::Exit(0));
    }

    #[test]
    fn the_first_warning_of_a_kind_is_printed_and_all_are_counted() {
        let ended = in_child(|| {
            let printed = testing::capture_stderr(|| {
                warn_once(Warning::Other, format_args!("silent"));
                set_voice(Voice::Spoken);
                warn_once(Warning::TierFull, format_args!("{} is full", "memfd"));
                warn_once(Warning::TierFull, format_args!("again"));
                warn_once(Warning::Configuration, format_args!("{}", "x".repeat(2000)));
            });
            let mut lines = printed.lines();
            warned(Warning::Other) == 1
                && warned(Warning::TierFull) == 2
                && warnings() >= 4
                && lines.next() == Some("tierheap: memfd is full")
                && lines
                    .next()
                    .is_some_and(|long| long.len() == 511 && long.ends_with('x'))
                && lines.next().is_none()
        });
        assert_eq!(ended, Ended::Exit(0));
    }

    #[test]
    fn a_fatal_error_says_why_and_aborts() {
        let reader = Pipe::new();
        let ended = in_child(|| {
            reader.as_stderr();
            fatal(format_args!("double free of {:#x}", 0x1000))
        });
        assert_eq!(ended, Ended::Signal(libc::SIGABRT));
        assert_eq!(
            reader.read_line().to_string(),
            "tierheap: double free of 0x1000\n"
        );
    }
}
