//! Copies for a child of ranges whose file can no longer be mapped, because its descriptor is
//! lost: there is no way from a mapping back to its file without privileges.
//!
//! The parent keeps its shared mapping and loses nothing. The child's copy is exact for what the
//! forking thread wrote, and for everything in a program with one thread; another thread that
//! writes during the copy may be seen half-way, which such a thread's data in a forked child are
//! anyway wherever it held no lock over the fork.

use crate::base::{Addr, Bytes, PAGE};
use crate::os::map::{self, Access};
use crate::os::{Errno, limits};

/// Stands in the first page of a copy's mapping; the copy begins with the second. There is no
/// other place for a list that may be long: each segment may be one entry.
struct Header {
    place: Addr,
    len: Bytes,
    access: Access,
    next: Option<Addr>,
}

/// Between prepare and the parent's or child's handler of one fork.
pub(super) struct Copies {
    first: Option<Addr>,
}

impl Copies {
    pub(super) const NONE: Copies = Copies { first: None };

    /// Copies the range aside, to have this protection in the child. What cannot be read (guard
    /// pages), and what `used` says no of, is left out and reads as zero there, should it ever be
    /// made readable.
    ///
    /// ENOMEM when that would take more than half of the memory to be had:
    /// a child without its cold memory is better than a machine out of memory.
    ///
    /// # Safety
    /// The caller owns the range, and what is used of it is readable if `access` says so.
    pub(super) unsafe fn take(
        &mut self,
        addr: Addr,
        len: Bytes,
        access: Access,
        used: &dyn Fn(Addr) -> bool,
    ) -> Result<(), Errno> {
        if limits::available_ram().is_some_and(|available| len.get() > available.get() / 2) {
            return Err(Errno::NOMEM);
        }
        let whole = len.checked_add(PAGE).ok_or(Errno::NOMEM)?;
        let header = map::anywhere(whole, Access::ReadWrite)?;
        let copy = header.add(PAGE);
        let readable = if access.can_read() { len.get() } else { 0 };
        for page in (0..readable).step_by(PAGE.get()).map(Bytes::new) {
            if !used(addr.add(page)) {
                continue;
            }
            let (from, to) = (addr.add(page).as_ptr(), copy.add(page).as_ptr());
            for word in 0..PAGE.get() / 8 {
                // SAFETY: both ranges are mapped for this page. Other threads may write the first
                // meanwhile, so it is read by volatile words and never through a reference.
                unsafe {
                    let value = from.cast::<u64>().add(word).read_volatile();
                    // Pages of zeroes stay untouched, so that holes cost the copy nothing.
                    if value != 0 {
                        to.cast::<u64>().add(word).write(value);
                    }
                }
            }
        }
        let entry = Header {
            place: addr,
            len,
            access,
            next: self.first,
        };
        // SAFETY: the mapping was made above and is larger than a header, which a page aligns.
        unsafe { header.as_ptr().cast::<Header>().write(entry) };
        self.first = Some(header);
        Ok(())
    }

    fn pop(&mut self) -> Option<(Addr, Header)> {
        let header = self.first?;
        // SAFETY: `take` wrote a header there, and the mapping stands until it is popped.
        let entry = unsafe { header.as_ptr().cast::<Header>().read() };
        self.first = entry.next;
        Some((header, entry))
    }

    /// In the parent: the child has its own by now.
    pub(super) fn drop_all(&mut self) {
        while let Some((header, entry)) = self.pop() {
            // SAFETY: the mapping was made by `take`, and nobody else knows it.
            let _ = unsafe { map::unmap(header, Bytes::new(PAGE.get() + entry.len.get())) };
        }
    }

    /// In the child: each copy goes where the parent's mapping is missing.
    pub(super) fn put_in_place(&mut self) {
        while let Some((header, entry)) = self.pop() {
            // SAFETY: the place is the tier's own, and a hole in the child; the copy and its header
            // are known to nobody else.
            unsafe {
                let _ = map::move_onto(header.add(PAGE), entry.len, entry.place, entry.len);
                if entry.access != Access::ReadWrite {
                    let _ = map::protect(entry.place, entry.len, entry.access);
                }
                let _ = map::unmap(header, PAGE);
            }
        }
    }
}
