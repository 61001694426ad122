//! The space behind a file: take it before it is touched, give it back, ask how much there is.

use super::errno::Errno;
use super::file::{Fd, Held};
use super::limits;
use super::map;
use super::sys::{call, call_retrying};
use crate::base::Bytes;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// A block to write where a file system cannot allocate without writing. In a cell, which makes it
/// memory that is zero by itself instead of 64 KiB of the library's text.
struct Zeroes(UnsafeCell<[u8; 64 << 10]>);
// SAFETY: nobody writes it.
unsafe impl Sync for Zeroes {}
static ZEROES: Zeroes = Zeroes(UnsafeCell::new([0; 64 << 10]));

/// Growth past the soft RLIMIT_FSIZE is not an errno but SIGXFSZ, which kills by default: so no
/// call that could grow a file to `end` is made before this says yes.
fn within_limit(end: usize) -> Result<(), Errno> {
    match limits::file_size() {
        Some(limit) if end > limit.get() => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

fn end_of(off: Bytes, len: Bytes) -> Result<usize, Errno> {
    // File offsets are signed.
    off.checked_add(len)
        .map(Bytes::get)
        .filter(|&end| i64::try_from(end).is_ok())
        .ok_or(Errno::FBIG)
}

/// Gives the range real space, growing the file to hold it, so that a full disk is an errno now
/// and not a SIGBUS at the first touch. A range that was a hole reads as zero. After an error no
/// space of the range is held any more (what was in it is lost; the size may stay grown).
pub fn allocate(held: &Held, off: Bytes, len: Bytes) -> Result<(), Errno> {
    within_limit(end_of(off, len)?)?;
    let fd = held.fd();
    let args = [fd.number() as usize, 0, off.get(), len.get(), 0, 0];
    // SAFETY: fallocate touches no memory of ours.
    let outcome = match unsafe { call_retrying(libc::SYS_fallocate, args) } {
        Ok(_) => return Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeroes(fd, off, len),
        Err(error) => Err(error),
    };
    if outcome.is_err() {
        let _ = punch(held, off, len);
    }
    outcome
}

/// What `allocate` does where the file system has no fallocate (FAT, NFS before 4.2): 64 KiB
/// writes, which such file systems must answer with ENOSPC.
#[cold]
fn write_zeroes(fd: Fd, off: Bytes, len: Bytes) -> Result<(), Errno> {
    let mut done = 0;
    while done < len.get() {
        let n = (len.get() - done).min(size_of::<Zeroes>());
        let args = [
            fd.number() as usize,
            ZEROES.0.get() as usize,
            n,
            off.get() + done,
            0,
            0,
        ];
        // SAFETY: the kernel reads `n` bytes of `ZEROES`, which has at least as many.
        match unsafe { call_retrying(libc::SYS_pwrite64, args) }? {
            0 => return Err(Errno::NOSPC),
            n => done += n,
        }
    }
    Ok(())
}

/// Sets the size, without giving space to the new part. The caller makes sure that it grows.
pub fn set_size(held: &Held, size: Bytes) -> Result<(), Errno> {
    within_limit(end_of(size, Bytes::ZERO)?)?;
    let args = [held.fd().number() as usize, size.get(), 0, 0, 0, 0];
    // SAFETY: ftruncate touches no memory of ours.
    unsafe { call_retrying(libc::SYS_ftruncate, args) }.map(drop)
}

/// Gives the range's space back to the file system; it reads as zero then. EOPNOTSUPP where the
/// file system cannot.
pub fn punch(held: &Held, off: Bytes, len: Bytes) -> Result<(), Errno> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let args = [
        held.fd().number() as usize,
        mode as usize,
        off.get(),
        len.get(),
        0,
        0,
    ];
    // SAFETY: fallocate touches no memory of ours.
    unsafe { call_retrying(libc::SYS_fallocate, args) }.map(drop)
}

/// Bytes of the device that the file occupies.
pub fn occupied(held: &Held) -> Result<Bytes, Errno> {
    // st_blocks counts 512-byte units on every file system.
    held.fd()
        .status()
        .map(|status| Bytes::new(status.st_blocks as usize * 512))
}

/// What kind of file system holds a file, and the room it has for an unprivileged user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    pub free: Bytes,
    pub size: Bytes,
    /// Page cache without a disk behind it: a "cold" tier of DRAM.
    pub is_tmpfs: bool,
}

pub fn volume(held: &Held) -> Result<Volume, Errno> {
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    let args = [
        held.fd().number() as usize,
        stat.as_mut_ptr() as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel fills the struct, whose layout is its own on 64-bit targets.
    let stat = unsafe {
        call(libc::SYS_fstatfs, args)?;
        stat.assume_init()
    };
    let block = stat.f_bsize as usize;
    Ok(Volume {
        free: Bytes::new((stat.f_bavail as usize).saturating_mul(block)),
        size: Bytes::new((stat.f_blocks as usize).saturating_mul(block)),
        is_tmpfs: stat.f_type == libc::TMPFS_MAGIC,
    })
}

/// Whether loads and stores reach the medium itself. A volatile tier needs no MAP_SYNC; being
/// granted it only names what the backing is.
pub fn is_dax(held: &Held) -> bool {
    map::grants_sync(held.fd())
}
