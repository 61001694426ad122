//! Memory from a file without a name: on persistent memory, on a disk, or a memfd.
//!
//! One file a tier, sparse, laid out like the tier's lane of the window. It is as long as what is
//! mapped of it, so no touch is ever past its end; what is mapped and not committed is a hole.

use super::backing::{Released, Room, View, advise_huge};
use super::copies::Copies;
use super::error::TierError;
use super::leftovers::Leftovers;
use crate::base::config::Thp;
use crate::base::{Addr, Bytes, PAGE};
use crate::os::file::{self, Held, Seals};
use crate::os::fork::Witness;
use crate::os::limits::{self, Overcommit};
use crate::os::lock::{Guard, Lock};
use crate::os::map::{self, Access, Advice};
use crate::os::report::{Warning, warn_once};
use crate::os::{Errno, space};
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use core::ffi::CStr;
use core::fmt::{self, Write};

/// What is behind the file, found by asking and not by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Loads and stores reach persistent memory itself.
    Dax,
    /// tmpfs or a memfd: DRAM in the end, or swap.
    Tmpfs,
    /// A disk behind the page cache, whose pages count against the memory limit of a container.
    PageCache,
}

#[derive(Clone, Copy)]
enum Place {
    Directory {
        dir: &'static CStr,
        must_be_dax: bool,
    },
    Memfd,
}

impl Place {
    fn open(self) -> Result<Held, Errno> {
        match self {
            Place::Directory { dir, .. } => file::unlinked_in(dir),
            Place::Memfd => file::memfd(Seals::Forbidden),
        }
    }
}

pub struct FileBacking {
    place: Place,
    medium: Medium,
    /// Whether `commit` takes the space. It must wherever a touch could fail otherwise: the
    /// SIGBUS of a full disk kills. A memfd lives on a mount of the kernel's without a size, so
    /// its pages may come on touch, at a fifth of the cost and only where touched; a container's
    /// limit meets them there as it meets DRAM's pages. Only `vm.overcommit_memory=2` makes a
    /// memfd's touch fail, so there it is allocated like the others (read when the tier is opened).
    allocates: bool,
    thp: Thp,
    pub(super) state: Lock<State>,
    /// Some range may be mapped to another file than the current one, or to none in a child made
    /// past our handlers: set before the first `State` that it is true for, and cleared only in a
    /// child, where nothing is shared.
    pub(super) mixed: AtomicBool,
    lost: AtomicU32,
    pub(super) witness: Option<Witness>,
    pub(super) copies: Lock<Copies>,
    /// Taken by nobody who would wait for it: a thread that a child lacks may have held it.
    pub(super) leftovers: Lock<Leftovers>,
}

pub(super) struct State {
    pub(super) file: Option<Held>,
    /// The size we gave the file. Only ever grown, under the lock: setting a size that another
    /// thread has passed would cut its memory off.
    pub(super) size: usize,
}

impl FileBacking {
    pub fn open(dir: &'static CStr, must_be_dax: bool, thp: Thp) -> Result<Self, TierError> {
        let held = file::unlinked_in(dir).map_err(TierError::of_directory)?;
        let medium = if space::is_dax(&held) {
            Medium::Dax
        } else if space::volume(&held).is_ok_and(|volume| volume.is_tmpfs) {
            Medium::Tmpfs
        } else {
            Medium::PageCache
        };
        let mappable = map::file_shared_anywhere(PAGE, held.fd(), Bytes::ZERO).map(|page| {
            // SAFETY: the page was mapped just now and nobody else knows it.
            let _ = unsafe { map::unmap(page, PAGE) };
        });
        let error = match mappable {
            Err(error) => Some(TierError::NotMappable(error)),
            Ok(()) if must_be_dax && medium != Medium::Dax => Some(TierError::NotDax),
            Ok(()) => None,
        };
        if let Some(error) = error {
            held.close();
            return Err(error);
        }
        Ok(Self::over(
            Place::Directory { dir, must_be_dax },
            held,
            medium,
            true,
            thp,
        ))
    }

    pub fn open_memfd(thp: Thp) -> Result<Self, TierError> {
        let held = file::memfd(Seals::Forbidden).map_err(TierError::NoMemfd)?;
        let allocates = limits::overcommit() == Overcommit::Never;
        Ok(Self::over(
            Place::Memfd,
            held,
            Medium::Tmpfs,
            allocates,
            thp,
        ))
    }

    fn over(place: Place, held: Held, medium: Medium, allocates: bool, thp: Thp) -> Self {
        FileBacking {
            place,
            medium,
            allocates,
            thp,
            state: Lock::new(State {
                file: Some(held),
                size: 0,
            }),
            mixed: AtomicBool::new(false),
            lost: AtomicU32::new(0),
            witness: Witness::new(),
            copies: Lock::new(Copies::NONE),
            leftovers: Lock::new(Leftovers::NONE),
        }
    }

    #[cfg(test)]
    pub(super) fn current(&self) -> Option<Held> {
        self.known(&mut self.state.lock())
    }

    pub fn medium(&self) -> Medium {
        self.medium
    }

    pub(super) fn lost(&self) -> u32 {
        // Relaxed: a statistic, and a hint for the size of the pieces to freeze.
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn is_mixed(&self) -> bool {
        // Acquire pairs with the Release in `turn_to_new_file`: who gets a newer file from the
        // lock knows that it has to map it, even without this; the pairing covers the readers
        // that do not take the lock.
        self.mixed.load(Ordering::Acquire)
    }

    /// Leaves the current file to the mappings that have it.
    fn turn_to_new_file(&self, state: &mut State) {
        // Release: pairs with the Acquire in `is_mixed`.
        self.mixed.store(true, Ordering::Release);
        *state = State {
            file: None,
            size: 0,
        };
    }

    /// The current file, if its descriptor still is ours and this process made it.
    pub(super) fn known(&self, state: &mut State) -> Option<Held> {
        if let Some(witness) = self
            .witness
            .as_ref()
            .filter(|witness| witness.is_other_process())
        {
            // A fork past our handlers: this file is the parent's.
            self.forget_leftovers();
            witness.renew();
            if let Some(held) = state.file {
                held.close();
            }
            self.turn_to_new_file(state);
        }
        let held = state.file?;
        if held.still_mine() {
            return Some(held);
        }
        self.turn_to_new_file(state);
        // Relaxed: a statistic.
        self.lost.fetch_add(1, Ordering::Relaxed);
        warn_once(
            Warning::DescriptorLost,
            format_args!(
                "the program closed the descriptor of a tier's file; a new file is opened"
            ),
        );
        None
    }

    /// The current file, at least `end` bytes long; a new one where there is none.
    pub(super) fn reaching(&self, off: Bytes, len: Bytes) -> Result<Held, Errno> {
        let end = off.checked_add(len).ok_or(Errno::FBIG)?;
        let mut state: Guard<'_, State> = self.state.lock();
        let held = match self.known(&mut state) {
            Some(held) => held,
            None => {
                let held = self.place.open()?;
                state.file = Some(held);
                held
            }
        };
        if state.size < end.get() {
            space::set_size(&held, end)?;
            state.size = end.get();
        }
        Ok(held)
    }

    /// Maps the file over the range, out of reach of every fork. On an error the range is
    /// reserved or as it was.
    ///
    /// # Safety
    /// The caller owns the range and gives up its contents.
    pub(super) unsafe fn map_shared(
        &self,
        addr: Addr,
        off: Bytes,
        len: Bytes,
        held: &Held,
    ) -> Result<(), Errno> {
        // SAFETY: the caller owns the range and gives up its contents.
        let mapped = unsafe { map::file_shared(addr, len, Access::ReadWrite, held.fd(), off) };
        if let Err(error) = mapped {
            // Where the kernel left a hole it is closed again before anybody maps there; where it
            // left what was here, this refuses.
            let _ = map::at_free(addr, len, Access::None);
            return Err(error);
        }
        // Where read-ahead makes large folios (ext4, XFS on large disks), the first write to a page
        // takes file space for all holes of its folio: past the limit, and on a full disk a SIGBUS.
        // SAFETY: the caller owns the range; the advice loses nothing.
        let _ = unsafe { map::advise(addr, len, Advice::Random) };
        // SAFETY: as above; the advice loses nothing.
        let mut outcome = unsafe { map::advise(addr, len, Advice::DontFork) };
        if outcome.is_ok() && !held.still_mine() {
            // Closed and reused between the check and the mapping: this may be anybody's file.
            outcome = Err(Errno::BADF);
        }
        if outcome.is_err() {
            // Fork would share it with the child.
            // SAFETY: as above; nothing was written through the new mapping.
            let _ = unsafe { map::over(addr, len, Access::None) };
        } else if self.medium == Medium::Tmpfs {
            // SAFETY: the caller owns the range.
            unsafe { advise_huge(addr, len, self.thp) };
        }
        outcome
    }

    /// # Safety
    /// As `Backing::map`.
    pub(super) unsafe fn map(&self, addr: Addr, off: Bytes, len: Bytes) -> Result<(), Errno> {
        let held = self.reaching(off, len)?;
        // SAFETY: the caller owns the range, which holds nothing.
        unsafe { self.map_shared(addr, off, len, &held) }
    }

    /// # Safety
    /// As `Backing::commit`.
    pub(super) unsafe fn commit(&self, addr: Addr, off: Bytes, len: Bytes) -> Result<(), Errno> {
        let held = self.reaching(off, len)?;
        if self.allocates {
            space::allocate(&held, off, len)?;
        }
        if self.is_mixed() {
            // The range may still belong to a file before this one.
            // SAFETY: the caller owns the range, which holds nothing.
            if let Err(error) = unsafe { self.map_shared(addr, off, len, &held) } {
                let _ = space::punch(&held, off, len);
                return Err(error);
            }
        }
        Ok(())
    }

    /// # Safety
    /// As `Backing::release`.
    pub(super) unsafe fn release(
        &self,
        addr: Addr,
        off: Bytes,
        len: Bytes,
        view: View,
    ) -> Released {
        if view == View::Frozen {
            // SAFETY: the caller gives up the contents. The file is not touched: children read it.
            return match unsafe { map::advise(addr, len, Advice::DontNeed) } {
                Ok(()) => Released::Stale,
                Err(_) => Released::Kept,
            };
        }
        // By address and not by descriptor: it reaches the file that is mapped here, whichever
        // that is, and needs no number that somebody may have closed.
        // SAFETY: the caller gives up the contents.
        let Err(error) = (unsafe { map::advise(addr, len, Advice::Remove) }) else {
            return Released::Zeroed;
        };
        // Locked pages (mlockall) refuse the advice and not the descriptor.
        if !self.is_mixed() {
            let known = self.known(&mut self.state.lock());
            if known.is_some_and(|held| space::punch(&held, off, len).is_ok()) {
                return Released::Zeroed;
            }
        }
        if error == Errno::OPNOTSUPP {
            warn_once(
                Warning::NotGivenBack,
                format_args!("the file system of a tier cannot take back the space of a hole"),
            );
        }
        Released::Kept
    }

    pub(super) fn usage(&self) -> Option<Bytes> {
        let held = self.known(&mut self.state.lock())?;
        space::occupied(&held).ok()
    }

    pub(super) fn room(&self) -> Option<Room> {
        if let Place::Memfd = self.place {
            return Some(Room {
                free: limits::available_ram()?,
                total: limits::total_ram(),
            });
        }
        let held = self.known(&mut self.state.lock())?;
        let volume = space::volume(&held).ok()?;
        Some(Room {
            free: volume.free,
            total: volume.size,
        })
    }

    pub(super) fn write_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place::Directory { dir, must_be_dax } = self.place else {
            return f.write_str("memfd");
        };
        f.write_str(if must_be_dax { "fsdax:" } else { "file:" })?;
        for chunk in dir.to_bytes().utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}
