//! On which words this process's threads sleep in the kernel.
//!
//! The kernel finds the sleepers of a futex by a key: process and address, or, when the call lacks
//! FUTEX_PRIVATE_FLAG and the word is mapped shared, file and offset. It makes the key as a thread
//! goes to sleep; who exchanges a mapping under the word leaves the thread where no later wake looks.

use super::clock;
use super::errno::Errno;
use super::file::{self, Fd};
use super::sys::call;
use super::thread;
use crate::base::Addr;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use libc::c_long;

/// Linux 6.7; the number is the same on all architectures.
const SYS_FUTEX_WAIT: c_long = 455;

/// FUTEX_PRIVATE_FLAG in the flags of `futex_waitv` and `futex_wait`.
const PRIVATE: usize = 128;

/// How long threads that were seen running are looked at again: a few times at once, then after
/// sleeps. On a machine with a processor for each it takes 20 microseconds.
const PATIENCE_NANOS: u64 = 5_000_000;
const LOOKS_AT_ONCE: usize = 4;
const BETWEEN_NANOS: u32 = 50_000;

/// Between the making of its key and its sleep a thread runs for a microsecond or two. One that has
/// used this much of a processor since we saw it running is not there any more.
const PAST_NANOS: u64 = 20_000;

/// Threads that may be on their way to sleep at once; more than this on runnable threads would
/// have to be preempted inside of a few hundred instructions of the kernel.
const MOST_RUNNING: usize = 32;

/// Calls `visit` with each word on which another thread of this process sleeps by a futex call
/// without FUTEX_PRIVATE_FLAG. For a mapping exchanged before this call, no thread that used the
/// old one is missed, but for:
/// - waiters that were moved to another word by FUTEX_REQUEUE (theirs is not to be seen) and those
///   that wait by io_uring;
/// - threads that stay preempted on their way to sleep for as long as this looks, five milliseconds;
/// - all of them where /proc is not there, or not ours to read (a process that is not dumpable).
///
/// Costs some 10 microseconds a thread.
pub fn each_shared(mut visit: impl FnMut(Addr)) -> Result<(), Errno> {
    let tasks = file::open_folder(c"/proc/self/task")?;
    let me = thread::id();
    let mut running = [None; MOST_RUNNING];
    let mut slots = running.iter_mut();
    let read = each_name(tasks, |name| {
        if let Some(thread) = number(name).filter(|&thread| thread != me)
            && look(tasks, thread, &mut visit) == Seen::Running
            && let Some(slot) = slots.next()
        {
            *slot = Some((thread, clock::of_thread(thread)));
        }
    });
    let start = clock::nanos();
    for round in 0.. {
        if running.iter().all(Option::is_none)
            || clock::nanos().wrapping_sub(start) > PATIENCE_NANOS
        {
            break;
        }
        if round >= LOOKS_AT_ONCE {
            clock::sleep(BETWEEN_NANOS);
        }
        for slot in &mut running {
            let Some((thread, ran)) = *slot else { continue };
            if clock::of_thread(thread).saturating_sub(ran) > PAST_NANOS
                || look(tasks, thread, &mut visit) == Seen::Still
            {
                *slot = None;
            }
        }
    }
    tasks.close();
    read
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Running,
    /// Asleep, stopped or gone: whatever it waits for has been visited.
    Still,
}

fn look(tasks: Fd, thread: u32, visit: &mut impl FnMut(Addr)) -> Seen {
    let mut path = [0; 24];
    let mut text = [0; 256];
    let Ok(text) = file::read_at(tasks, syscall_of(thread, &mut path), &mut text) else {
        return Seen::Still;
    };
    if text.starts_with(b"running") {
        return Seen::Running;
    }
    let Some((number, [first, second, _, fourth, ..])) = parse(text) else {
        return Seen::Still; // blocked outside of a call (`-1`), or a kernel's form we do not know
    };
    match number {
        libc::SYS_futex if second & libc::FUTEX_PRIVATE_FLAG as usize == 0 => {
            visit(Addr::new(first));
        }
        SYS_FUTEX_WAIT if fourth & PRIVATE == 0 => visit(Addr::new(first)),
        libc::SYS_futex_waitv => {
            for entry in 0..second.min(libc::FUTEX_WAITV_MAX as usize) {
                let at = Addr::new(first.wrapping_add(entry * size_of::<Waiter>()));
                if let Some(waiter) = Waiter::read(at)
                    && waiter.flags as usize & PRIVATE == 0
                {
                    visit(Addr::new(waiter.word as usize));
                }
            }
        }
        _ => {}
    }
    Seen::Still
}

/// Calls `visit` with each name in a folder.
fn each_name(folder: Fd, mut visit: impl FnMut(&[u8])) -> Result<(), Errno> {
    // Of an entry of getdents64: its length is at 16, the terminated name from 19 on.
    const LEN: usize = 16;
    const NAME: usize = 19;
    // Some 80 threads a call: only between two calls can one that exits make the kernel pass
    // another over.
    let mut buf = [0u8; 2048];
    loop {
        let args = [
            folder.number() as usize,
            buf.as_mut_ptr() as usize,
            buf.len(),
            0,
            0,
            0,
        ];
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
        let filled = unsafe { call(libc::SYS_getdents64, args) }?;
        if filled == 0 {
            return Ok(());
        }
        let mut rest = buf.get(..filled).unwrap_or(&[]);
        while let Some(&[low, high]) = rest.get(LEN..LEN + 2) {
            let len = u16::from_ne_bytes([low, high]) as usize;
            let name = rest.get(NAME..len).unwrap_or(&[]);
            visit(name.split(|&byte| byte == 0).next().unwrap_or(&[]));
            rest = rest.get(len.max(NAME)..).unwrap_or(&[]);
        }
    }
}

/// `<thread>/syscall`.
fn syscall_of(thread: u32, buf: &mut [u8; 24]) -> &CStr {
    const NAME: &[u8] = b"/syscall\0";
    let digits = thread.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = thread;
    for slot in buf.iter_mut().take(digits).rev() {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    for (slot, &byte) in buf.iter_mut().skip(digits).zip(NAME) {
        *slot = byte;
    }
    // At most 10 digits and 9 bytes of 24: the terminator is always there.
    CStr::from_bytes_until_nul(buf).unwrap_or(c"")
}

fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// `202 0x7f.. 0x0 0x1 0x0 0x0 0x0 0x7ff.. 0x7f..`: the call, its arguments, stack, instruction.
fn parse(text: &[u8]) -> Option<(c_long, [usize; 6])> {
    let mut fields = core::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        let digits = fields.next()?.strip_prefix("0x")?;
        *argument = usize::from_str_radix(digits, 16).ok()?;
    }
    Some((number, arguments))
}

/// An entry of the list that `futex_waitv` is given.
#[repr(C)]
struct Waiter {
    value: u64,
    word: u64,
    flags: u32,
    reserved: u32,
}

impl Waiter {
    /// Copied by the kernel: the thread may wake and take its list away at any time.
    fn read(at: Addr) -> Option<Waiter> {
        let len = size_of::<Waiter>();
        let mut waiter = MaybeUninit::<Waiter>::zeroed();
        let to = [waiter.as_mut_ptr() as usize, len];
        let from = [at.get(), len];
        // SAFETY: getpid touches no memory; then the kernel writes `len` bytes into the struct, which
        // any bytes are a value of, and says EFAULT where there is nothing to read.
        unsafe {
            let process = call(libc::SYS_getpid, [0; 6]).ok()?;
            let args = [
                process,
                (&raw const to) as usize,
                1,
                (&raw const from) as usize,
                1,
                0,
            ];
            (call(libc::SYS_process_vm_readv, args) == Ok(len)).then(|| waiter.assume_init())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::vec::Vec;

    fn seen() -> Vec<usize> {
        let mut words = Vec::new();
        each_shared(|word| words.push(word.get())).unwrap();
        words
    }

    #[test]
    fn lines_are_read() {
        let line = b"202 0x7f0000000010 0x80 0x1 0x0 0x0 0xffffffff 0x7ffc0 0x7f1\n";
        assert_eq!(
            parse(line),
            Some((202, [0x7f00_0000_0010, 0x80, 1, 0, 0, 0xffff_ffff]))
        );
        assert_eq!(parse(b"-1 0x7ffc0 0x7f1\n"), None);
        assert_eq!(parse(b""), None);
        let mut buf = [0xff; 24];
        assert_eq!(syscall_of(7, &mut buf), c"7/syscall");
        assert_eq!(syscall_of(u32::MAX, &mut buf), c"4294967295/syscall");
    }

    /// Sleeps on the word by the given call until it is not 0.
    fn sleep_by(kind: usize, word: &AtomicU32) {
        let at = core::ptr::from_ref(word) as usize;
        let waiter = Waiter {
            value: 0,
            word: at as u64,
            flags: 2, // 32 bits, shared
            reserved: 0,
        };
        while word.load(Ordering::SeqCst) == 0 {
            // SAFETY: the word and the list outlive the call.
            let _ = unsafe {
                match kind {
                    0 => call(libc::SYS_futex, [at, libc::FUTEX_WAIT as usize, 0, 0, 0, 0]),
                    1 => call(
                        libc::SYS_futex_waitv,
                        [(&raw const waiter) as usize, 1, 0, 0, 0, 0],
                    ),
                    2 => call(SYS_FUTEX_WAIT, [at, 0, u32::MAX as usize, 2, 0, 0]),
                    _ => {
                        let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
                        call(libc::SYS_futex, [at, operation, 0, 0, 0, 0])
                    }
                }
            };
        }
    }

    #[test]
    fn shared_sleepers_are_found_by_each_call_and_private_ones_are_not() {
        let words: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Always running: never waited for without end.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    core::hint::spin_loop();
                }
            });
            for (kind, word) in words.iter().enumerate() {
                scope.spawn(move || sleep_by(kind, word));
            }
            let at = |kind: usize| core::ptr::from_ref(&words[kind]) as usize;
            // Kernels before 6.7 know no `futex_wait`: that thread spins, and is not to be found.
            // SAFETY: an unaligned word is refused before anything is read.
            let has_wait = unsafe { call(SYS_FUTEX_WAIT, [1, 0, 0, 2, 0, 0]) } != Err(Errno::NOSYS);
            let wanted: Vec<usize> = if has_wait {
                (0..3).collect()
            } else {
                (0..2).collect()
            };
            let start = std::time::Instant::now();
            loop {
                let found = seen();
                assert!(!found.contains(&at(3)), "a private one needs no help");
                if wanted.iter().all(|&kind| found.contains(&at(kind))) {
                    break;
                }
                assert!(start.elapsed().as_secs() < 60, "not found");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            stop.store(true, Ordering::SeqCst);
            for word in &words {
                word.store(1, Ordering::SeqCst);
                let at = core::ptr::from_ref(word) as usize;
                for operation in [
                    libc::FUTEX_WAKE,
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                ] {
                    // SAFETY: the kernel only takes the address for a key.
                    let _ = unsafe { call(libc::SYS_futex, [at, operation as usize, 1, 0, 0, 0]) };
                }
            }
        });
    }
}
