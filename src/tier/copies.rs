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

#[derive(Clone, Copy)]
struct Copy {
    place: Addr,
    copy: Addr,
    len: Bytes,
}

/// Between prepare and the parent's or child's handler of one fork.
pub(super) struct Copies {
    table: [Option<Copy>; Copies::MAX],
}

impl Copies {
    const MAX: usize = 64;
    pub(super) const NONE: Copies = Copies {
        table: [None; Copies::MAX],
    };

    /// Copies the range aside. ENOMEM when that would take more than half of the memory to be had:
    /// a child without its cold memory is better than a machine out of memory.
    ///
    /// # Safety
    /// The caller owns the range, and it is readable.
    pub(super) unsafe fn take(&mut self, addr: Addr, len: Bytes) -> Result<(), Errno> {
        let slot = self
            .table
            .iter_mut()
            .find(|slot| slot.is_none())
            .ok_or(Errno::NOMEM)?;
        if limits::available_ram().is_some_and(|available| len.get() > available.get() / 2) {
            return Err(Errno::NOMEM);
        }
        let copy = map::anywhere(len, Access::ReadWrite)?;
        let mut done = 0;
        while done < len.get() {
            let from = addr.add(Bytes::new(done)).as_ptr();
            let to = copy.add(Bytes::new(done)).as_ptr();
            // Pages of zeroes stay untouched, so that holes cost the copy nothing.
            // SAFETY: both ranges are mapped for this page; other threads may write the first
            // meanwhile, so it is read by volatile words and never through a reference.
            unsafe {
                for word in 0..PAGE.get() / 8 {
                    let value = from.cast::<u64>().add(word).read_volatile();
                    if value != 0 {
                        to.cast::<u64>().add(word).write(value);
                    }
                }
            }
            done += PAGE.get();
        }
        *slot = Some(Copy {
            place: addr,
            copy,
            len,
        });
        Ok(())
    }

    /// In the parent: the child has its own by now.
    pub(super) fn drop_all(&mut self) {
        for copy in self.table.iter_mut().filter_map(Option::take) {
            // SAFETY: the copy was mapped by `take`, and nobody else knows it.
            let _ = unsafe { map::unmap(copy.copy, copy.len) };
        }
    }

    /// In the child: each copy goes where the parent's mapping is missing.
    pub(super) fn put_in_place(&mut self) {
        for copy in self.table.iter_mut().filter_map(Option::take) {
            // SAFETY: the place is the tier's own, and a hole in the child; the copy is known to
            // nobody else.
            let _ = unsafe { map::move_onto(copy.copy, copy.len, copy.place, copy.len) };
        }
    }
}
