//! Mappings: reserve, map, move and give back address space.
//!
//! What replaces or discards memory is `unsafe`: the caller owns the range, and nobody holds a
//! reference into what is lost.

use super::errno::Errno;
use super::file::Fd;
use super::sys::call;
use crate::base::{Addr, Bytes, PAGE};
use libc::c_int;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Address space only: nothing is charged for it, and a touch is a SIGSEGV.
    None,
    Read,
    ReadWrite,
    // What only programs make of their memory:
    Write,
    Execute,
    ReadExecute,
    WriteExecute,
    All,
}

impl Access {
    pub const fn of(read: bool, write: bool, execute: bool) -> Access {
        match (read, write, execute) {
            (false, false, false) => Access::None,
            (true, false, false) => Access::Read,
            (true, true, false) => Access::ReadWrite,
            (false, true, false) => Access::Write,
            (false, false, true) => Access::Execute,
            (true, false, true) => Access::ReadExecute,
            (false, true, true) => Access::WriteExecute,
            (true, true, true) => Access::All,
        }
    }

    pub const fn can_read(self) -> bool {
        self.bits() & libc::PROT_READ as usize != 0
    }

    const fn bits(self) -> usize {
        (match self {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Access::Write => libc::PROT_WRITE,
            Access::Execute => libc::PROT_EXEC,
            Access::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
            Access::WriteExecute => libc::PROT_WRITE | libc::PROT_EXEC,
            Access::All => libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        }) as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Physical memory back to the system: anonymous memory reads as zero, a private file mapping
    /// as the file, afterwards.
    DontNeed,
    /// Punches a hole in the file that is mapped here, whichever it is.
    Remove,
    /// No read-ahead: the page cache then uses single pages.
    Random,
    HugePage,
    NoHugePage,
    /// A child made by fork does not get this range.
    DontFork,
    DoFork,
    /// A child made by fork, even a raw one, finds zeroes here. Private anonymous memory only.
    WipeOnFork,
    /// Faults pages in for writing; an errno where a touch would be a SIGBUS. Linux 5.14.
    PopulateWrite,
}

impl Advice {
    const fn bits(self) -> usize {
        (match self {
            Advice::DontNeed => libc::MADV_DONTNEED,
            Advice::Remove => libc::MADV_REMOVE,
            Advice::Random => libc::MADV_RANDOM,
            Advice::HugePage => libc::MADV_HUGEPAGE,
            Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
            Advice::DontFork => libc::MADV_DONTFORK,
            Advice::DoFork => libc::MADV_DOFORK,
            Advice::WipeOnFork => libc::MADV_WIPEONFORK,
            Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        }) as usize
    }
}

const ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

unsafe fn mmap(
    addr: Addr,
    len: Bytes,
    access: Access,
    flags: c_int,
    file: Option<(Fd, Bytes)>,
) -> Result<Addr, Errno> {
    let (fd, off) = match file {
        Some((fd, off)) => (fd.number() as usize, off.get()),
        None => (usize::MAX, 0),
    };
    let args = [
        addr.get(),
        len.get(),
        access.bits(),
        flags as usize,
        fd,
        off,
    ];
    // SAFETY: mmap reads no memory of ours; what it replaces is the caller's to vouch for.
    unsafe { call(libc::SYS_mmap, args) }.map(Addr::new)
}

/// Anonymous memory wherever the kernel finds room; never charged before it is touched, except
/// under `vm.overcommit_memory=2`, where the kernel charges what is writable at once.
pub fn anywhere(len: Bytes, access: Access) -> Result<Addr, Errno> {
    // SAFETY: without MAP_FIXED the kernel picks a free range, so nothing is replaced.
    unsafe { mmap(Addr::new(0), len, access, ANONYMOUS, None) }
}

/// Anonymous memory at exactly this address, if the whole range is free: EEXIST otherwise.
pub fn at_free(addr: Addr, len: Bytes, access: Access) -> Result<(), Errno> {
    // SAFETY: MAP_FIXED_NOREPLACE replaces nothing; kernels before 4.17 take it for a hint,
    // which replaces nothing either.
    let got = unsafe {
        mmap(
            addr,
            len,
            access,
            ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            None,
        )
    }?;
    if got == addr {
        return Ok(());
    }
    // SAFETY: this mapping was made just now and nobody else knows it.
    let _ = unsafe { unmap(got, len) };
    Err(Errno::EXIST)
}

/// Fresh anonymous memory over whatever is mapped here.
///
/// # Safety
/// The caller owns the range and gives up its contents. On an error the range may be unmapped
/// (kernels before 6.12 unmap before they check the rest).
pub unsafe fn over(addr: Addr, len: Bytes, access: Access) -> Result<(), Errno> {
    // SAFETY: the caller owns the range.
    unsafe { mmap(addr, len, access, ANONYMOUS | libc::MAP_FIXED, None) }.map(drop)
}

/// The file's bytes from `off` on, shared with every other mapping of it, over whatever is here.
///
/// # Safety
/// As [`over`].
pub unsafe fn file_shared(
    addr: Addr,
    len: Bytes,
    access: Access,
    fd: Fd,
    off: Bytes,
) -> Result<(), Errno> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the caller owns the range.
    unsafe { mmap(addr, len, access, flags, Some((fd, off))) }.map(drop)
}

/// A copy-on-write view of the file over whatever is here.
///
/// # Safety
/// As [`over`].
pub unsafe fn file_private(
    addr: Addr,
    len: Bytes,
    access: Access,
    fd: Fd,
    off: Bytes,
) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the caller owns the range.
    unsafe { mmap(addr, len, access, flags, Some((fd, off))) }.map(drop)
}

/// A copy-on-write view of the file where the kernel finds room.
pub fn file_private_anywhere(
    len: Bytes,
    access: Access,
    fd: Fd,
    off: Bytes,
) -> Result<Addr, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED nothing is replaced.
    unsafe { mmap(Addr::new(0), len, access, flags, Some((fd, off))) }
}

/// A shared view of the file where the kernel finds room.
pub fn file_shared_anywhere(len: Bytes, fd: Fd, off: Bytes) -> Result<Addr, Errno> {
    // SAFETY: without MAP_FIXED nothing is replaced.
    unsafe {
        mmap(
            Addr::new(0),
            len,
            Access::ReadWrite,
            libc::MAP_SHARED,
            Some((fd, off)),
        )
    }
}

/// Whether a shared mapping of the file reaches the medium without the page cache: MAP_SYNC is
/// granted on DAX only, but only MAP_SHARED_VALIDATE makes others refuse it (plain MAP_SHARED
/// ignores the flag, and tmpfs would pass for persistent memory).
pub fn grants_sync(fd: Fd) -> bool {
    let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
    // SAFETY: without MAP_FIXED nothing is replaced.
    let probe = unsafe {
        mmap(
            Addr::new(0),
            PAGE,
            Access::ReadWrite,
            flags,
            Some((fd, Bytes::ZERO)),
        )
    };
    match probe {
        Ok(addr) => {
            // SAFETY: made just now, never touched, known to nobody else.
            let _ = unsafe { unmap(addr, PAGE) };
            true
        }
        Err(_) => false,
    }
}

/// # Safety
/// The caller owns the range, and nothing in it is referred to any more.
pub unsafe fn unmap(addr: Addr, len: Bytes) -> Result<(), Errno> {
    // SAFETY: the caller owns the range.
    unsafe { call(libc::SYS_munmap, [addr.get(), len.get(), 0, 0, 0, 0]) }.map(drop)
}

/// # Safety
/// The caller owns the range, and nobody uses it in a way that `access` forbids.
pub unsafe fn protect(addr: Addr, len: Bytes, access: Access) -> Result<(), Errno> {
    // SAFETY: the caller owns the range.
    unsafe {
        call(
            libc::SYS_mprotect,
            [addr.get(), len.get(), access.bits(), 0, 0, 0],
        )
    }
    .map(drop)
}

/// # Safety
/// The caller owns the range; for `DontNeed` and `Remove` it gives up the contents too.
pub unsafe fn advise(addr: Addr, len: Bytes, advice: Advice) -> Result<(), Errno> {
    // SAFETY: the caller owns the range.
    unsafe {
        call(
            libc::SYS_madvise,
            [addr.get(), len.get(), advice.bits(), 0, 0, 0],
        )
    }
    .map(drop)
}

unsafe fn mremap(
    addr: Addr,
    old: Bytes,
    new: Bytes,
    flags: c_int,
    to: Addr,
) -> Result<Addr, Errno> {
    let args = [
        addr.get(),
        old.get(),
        new.get(),
        flags as usize,
        to.get(),
        0,
    ];
    // SAFETY: the caller owns both ranges.
    unsafe { call(libc::SYS_mremap, args) }.map(Addr::new)
}

/// Moves pages from one place onto another, growing or shrinking the mapping; no byte is copied.
/// `from` becomes a hole.
///
/// # Safety
/// The caller owns both ranges and gives up what was in the second; the ranges do not overlap.
pub unsafe fn move_onto(from: Addr, old: Bytes, to: Addr, new: Bytes) -> Result<(), Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller owns both ranges.
    unsafe { mremap(from, old, new, flags, to) }.map(drop)
}

/// As [`move_onto`] with one length, but `from` stays mapped, empty: no other thread's mapping can
/// land there. Private anonymous memory since Linux 5.7, any mapping since 5.13; EINVAL before.
///
/// # Safety
/// As [`move_onto`].
pub unsafe fn move_contents_onto(from: Addr, to: Addr, len: Bytes) -> Result<(), Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: the caller owns both ranges.
    unsafe { mremap(from, len, len, flags, to) }.map(drop)
}

/// Grows (or shrinks) a mapping where it stands; ENOMEM when the next addresses are taken.
///
/// # Safety
/// The caller owns the range; when shrinking it gives up the tail.
pub unsafe fn resize_in_place(addr: Addr, old: Bytes, new: Bytes) -> Result<(), Errno> {
    // SAFETY: the caller owns the range; without MAYMOVE nothing else is touched.
    unsafe { mremap(addr, old, new, 0, Addr::new(0)) }.map(drop)
}

/// Bytes of the range that physical memory backs now. For a file's range the page cache counts,
/// mapped or not. Chunks with a hole in them count as nothing.
pub fn resident(addr: Addr, len: Bytes) -> Bytes {
    const CHUNK_PAGES: usize = 512;
    const CHUNK: usize = CHUNK_PAGES * PAGE.get();
    let mut pages = 0;
    let mut done = 0;
    while done < len.get() {
        let mut seen = [0u8; CHUNK_PAGES];
        let chunk = (len.get() - done).min(CHUNK);
        let at = addr.add(Bytes::new(done)).get();
        // SAFETY: mincore writes a byte a page into `seen`, which has room for a whole chunk, and
        // reads no memory of the range.
        let told = unsafe {
            call(
                libc::SYS_mincore,
                [at, chunk, (&raw mut seen) as usize, 0, 0, 0],
            )
        };
        if told.is_ok() {
            pages += seen.iter().filter(|&&page| page & 1 == 1).count();
        }
        done += chunk;
    }
    PAGE.times(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::SEGMENT;

    fn write(at: Addr, value: u64) {
        // SAFETY: the tests below write to what they mapped.
        unsafe { at.as_ptr().cast::<u64>().write_volatile(value) };
    }
    fn read(at: Addr) -> u64 {
        // SAFETY: as in `write`.
        unsafe { at.as_ptr().cast::<u64>().read_volatile() }
    }

    #[test]
    fn an_exact_address_is_given_only_if_it_is_free() {
        let at = anywhere(PAGE.times(4), Access::None).unwrap();
        let middle = at.add(PAGE);
        assert_eq!(at_free(middle, PAGE, Access::ReadWrite), Err(Errno::EXIST));
        // SAFETY: mapped above.
        unsafe { unmap(middle, PAGE).unwrap() };
        assert_eq!(
            at_free(middle, PAGE.times(2), Access::ReadWrite),
            Err(Errno::EXIST)
        );
        at_free(middle, PAGE, Access::ReadWrite).unwrap();
        write(middle, 5);
        // SAFETY: mapped above.
        unsafe {
            over(middle, PAGE, Access::ReadWrite).unwrap();
            assert_eq!(read(middle), 0);
            unmap(at, PAGE.times(4)).unwrap();
        }
    }

    #[test]
    fn moving_takes_contents_along_and_leaves_what_it_says() {
        let from = anywhere(PAGE.times(2), Access::ReadWrite).unwrap();
        let to = anywhere(PAGE.times(4), Access::None).unwrap();
        write(from, 7);
        write(from.add(PAGE), 8);
        // SAFETY: mapped above.
        unsafe { move_contents_onto(from, to, PAGE.times(2)).unwrap() };
        assert_eq!((read(to), read(to.add(PAGE))), (7, 8));
        assert_eq!(read(from), 0, "still mapped, and empty");
        // SAFETY: mapped above.
        unsafe { move_onto(to, PAGE.times(2), from, PAGE.times(2)).unwrap() };
        assert_eq!((read(from), read(from.add(PAGE))), (7, 8));
        at_free(to, PAGE.times(2), Access::None).unwrap();
        // SAFETY: mapped above.
        unsafe {
            unmap(from, PAGE.times(2)).unwrap();
            unmap(to, PAGE.times(4)).unwrap();
        }
    }

    #[test]
    fn growing_in_place_needs_free_neighbours() {
        let at = anywhere(PAGE.times(4), Access::ReadWrite).unwrap();
        // SAFETY: mapped above.
        unsafe {
            assert_eq!(resize_in_place(at, PAGE, PAGE.times(2)), Err(Errno::NOMEM));
            unmap(at.add(PAGE), PAGE.times(3)).unwrap();
            write(at, 9);
            resize_in_place(at, PAGE, PAGE.times(3)).unwrap();
            write(at.add(PAGE.times(2)), 10);
            assert_eq!(read(at), 9);
            unmap(at, PAGE.times(4)).unwrap();
        }
    }

    #[test]
    fn resident_memory_is_counted_page_by_page_over_chunks_and_holes() {
        let len = SEGMENT.times(3);
        let at = anywhere(len, Access::ReadWrite).unwrap();
        // SAFETY: mapped above.
        let _ = unsafe { advise(at, len, Advice::NoHugePage) };
        assert_eq!(resident(at, len), Bytes::ZERO);
        for page in [0, 1, 600, 1100, 1101, 1102] {
            write(at.add(PAGE.times(page)), 1);
        }
        assert_eq!(resident(at, len), PAGE.times(6));
        // SAFETY: mapped above.
        unsafe {
            advise(at, PAGE, Advice::DontNeed).unwrap();
            assert_eq!(read(at.add(PAGE)), 1);
            assert_eq!(resident(at, len), PAGE.times(5));
            unmap(at.add(SEGMENT), SEGMENT).unwrap();
            assert_eq!(resident(at, len), PAGE.times(4), "the hole counts nothing");
            unmap(at, len).unwrap();
        }
    }

    #[test]
    fn refusals_are_errnos() {
        assert_eq!(
            anywhere(Bytes::new(1 << 62), Access::None),
            Err(Errno::NOMEM)
        );
        assert_eq!(anywhere(Bytes::ZERO, Access::None), Err(Errno::INVAL));
    }
}
