//! What fork means for a file: the shared view becomes a private one before it, and a shared one
//! again when the range is empty and no child reads the file any more.

use super::backing::{Contents, Frozen};
use super::file::{FileBacking, State};
use crate::base::{Addr, Bytes, PAGE};
use crate::os::file::Held;
use crate::os::limits::{self, Overcommit};
use crate::os::map::{self, Access, Advice};
use crate::os::maps::Mapping;
use crate::os::report::{Warning, warn_once};
use crate::os::{Errno, futex, space};
use crate::sync::Ordering;

impl FileBacking {
    /// # Safety
    /// As `Backing::freeze`.
    pub(super) unsafe fn freeze(
        &self,
        addr: Addr,
        off: Bytes,
        len: Bytes,
        seen: Option<&Mapping>,
        used: &dyn Fn(Addr) -> bool,
    ) -> Result<Frozen, Errno> {
        let access = seen.map_or(Access::ReadWrite, |line| line.access);
        let known = self.known(&mut self.state.lock());
        // By inode number alone: /proc shows another device than fstat on file systems with
        // subvolumes. A number that differs falsely (overlayfs) only costs a copy, and only after
        // a descriptor was lost.
        let is_current = |held: &Held| {
            !self.is_mixed() || seen.is_some_and(|line| line.inode == held.identity().inode())
        };
        let outcome = match known.filter(is_current) {
            Some(held) => {
                // SAFETY: as the caller promises; the range is mapped to this very file.
                unsafe { self.freeze_over(addr, off, len, access, &held) }.map(|()| Frozen::Private)
            }
            None => {
                // SAFETY: as the caller promises.
                unsafe { self.copies.lock().take(addr, len, access, used) }.map(|()| Frozen::Copied)
            }
        };
        if let Err(error) = outcome {
            warn_once(
                Warning::ForkIncomplete,
                format_args!("a child cannot have its parent's cold memory: {error}"),
            );
        }
        outcome
    }

    /// Puts a private view of the file over the shared one, while other threads use it: by one call
    /// and with its final protection, for the kernel exchanges mappings under its lock, so that they
    /// see the old one or the new.
    ///
    /// # Safety
    /// The caller owns the range; it is mapped `View::Shared` to this file.
    unsafe fn freeze_over(
        &self,
        addr: Addr,
        off: Bytes,
        len: Bytes,
        access: Access,
        held: &Held,
    ) -> Result<(), Errno> {
        // A child made past our handlers must be able to tell that it has none of it.
        if self.witness.is_some()
            && let Some(mut leftovers) = self.leftovers.try_lock()
        {
            // SAFETY: as the caller promises.
            unsafe { leftovers.move_aside(addr, len) };
        }
        // Before 6.12 mmap unmaps what was there before it asks whether the new memory may be
        // charged, and a refusal leaves a hole that other threads crash in. It is charged only in
        // this mode; the view is then made elsewhere first, where a refusal harms nobody, and
        // moved, which charges nothing more.
        if limits::overcommit() == Overcommit::Never {
            // SAFETY: as the caller promises.
            return unsafe { freeze_by_moving(addr, off, len, access, held) };
        }
        // SAFETY: the caller owns the range; the same bytes stand there afterwards.
        let frozen = unsafe { map::file_private(addr, len, access, held.fd(), off) };
        if frozen.is_err() {
            // Nothing is left to fail after the kernel's first checks, which leave all as it was;
            // if a hole was left all the same, the shared view closes it. (ENOMEM for the number of
            // mappings is such a check: a range that is one mapping needs no room for another.)
            // SAFETY: the caller owns the range; the same bytes stand there afterwards.
            unsafe {
                if map::file_shared(addr, len, access, held.fd(), off).is_ok() {
                    let _ = map::advise(addr, len, Advice::DontFork);
                }
            }
        }
        frozen
    }

    /// Wakes the threads that went to sleep on a word of the file while it was mapped shared; the
    /// kernel will look for them elsewhere now. Those of a file of which the descriptor was lost
    /// since the freeze cannot be reached.
    pub(super) fn wake(&self, off: Bytes) {
        let Some(held) = self.known(&mut self.state.lock()) else {
            return;
        };
        let within = Bytes::new(off.get() % PAGE.get());
        let page = off.saturating_sub(within);
        if let Ok(view) = map::file_shared_anywhere(PAGE, held.fd(), page) {
            futex::wake_shared(view.add(within));
            // SAFETY: the view was made just now and nobody else knows it.
            let _ = unsafe { map::unmap(view, PAGE) };
        }
    }

    /// # Safety
    /// As `Backing::thaw`.
    pub(super) unsafe fn thaw(
        &self,
        addr: Addr,
        off: Bytes,
        len: Bytes,
    ) -> Result<Contents, Errno> {
        let held = self.reaching(off, len)?;
        let contents = match space::punch(&held, off, len) {
            Ok(()) => Contents::Zero,
            // Space that cannot be given back is there for the next use.
            Err(_) => Contents::Unknown,
        };
        // SAFETY: the caller owns the range and gives up its contents.
        unsafe { self.map_shared(addr, off, len, &held) }?;
        Ok(contents)
    }

    /// # Safety
    /// As `Backing::reshare`.
    pub(super) unsafe fn reshare(&self, addr: Addr, off: Bytes, len: Bytes) -> Result<(), Errno> {
        let known = self.known(&mut self.state.lock());
        // The space that the range has is in a file before this one.
        let held = known.filter(|_| !self.is_mixed()).ok_or(Errno::BADF)?;
        // SAFETY: the caller owns the range and gives up its contents.
        unsafe { self.map_shared(addr, off, len, &held) }.inspect_err(|_| {
            // A reservation may be left, in which the program's next block would be a fault.
            // SAFETY: as above.
            let _ = unsafe { map::file_private(addr, len, Access::ReadWrite, held.fd(), off) };
        })
    }

    /// Unmaps some of the views that were put aside by a freeze.
    pub(super) fn drop_leftovers(&self, most: Bytes) {
        if self.has_leftovers()
            && let Some(mut leftovers) = self.leftovers.try_lock()
        {
            leftovers.drop_some(most);
        }
    }

    pub(super) fn has_leftovers(&self) -> bool {
        let ours = self.witness.as_ref().is_some_and(|w| !w.is_other_process());
        ours && self.leftovers.try_lock().is_some_and(|l| !l.is_empty())
    }

    pub(super) fn forget_leftovers(&self) {
        if let Some(mut leftovers) = self.leftovers.try_lock() {
            leftovers.forget();
        }
    }

    pub(super) fn after_fork_parent(&self) {
        self.copies.lock().drop_all();
    }

    /// All that the child inherited is frozen, copied or missing, and nothing is shared: what it
    /// maps from now on is of its own file.
    pub(super) fn after_fork_child(&self) {
        self.forget_leftovers();
        let mut state = self.state.lock();
        if let Some(held) = state.file {
            held.close();
        }
        *state = State {
            file: None,
            size: 0,
        };
        // Relaxed: the child has one thread yet.
        self.mixed.store(false, Ordering::Relaxed);
        if let Some(witness) = &self.witness {
            witness.renew();
        }
        self.copies.lock().put_in_place();
    }
}

/// Makes the private view elsewhere and moves it into place.
///
/// # Safety
/// As `FileBacking::freeze_over`.
pub(super) unsafe fn freeze_by_moving(
    addr: Addr,
    off: Bytes,
    len: Bytes,
    access: Access,
    held: &Held,
) -> Result<(), Errno> {
    let aside = map::file_private_anywhere(len, access, held.fd(), off)?;
    // SAFETY: `aside` was made just now; the other range the caller owns, and its contents are the
    // file's, so the same bytes stand there afterwards.
    unsafe { map::move_onto(aside, len, addr, len) }.inspect_err(|_| {
        // SAFETY: nobody else knows `aside`.
        let _ = unsafe { map::unmap(aside, len) };
    })
}
