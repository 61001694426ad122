//! One type over the kinds of memory. The arena speaks to this and knows nothing of files.

use super::error::TierError;
use super::file::FileBacking;
use super::node::NodeBacking;
use crate::base::config::{NodeSet, Thp};
use crate::base::{Addr, Bytes, SEGMENT};
use crate::os::map::{self, Access, Advice};
use crate::os::maps::Mapping;
use crate::os::{Errno, limits};
use core::ffi::CStr;
use core::fmt;

/// What to open. The directory's string lives as long as the process (in metadata memory).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spec {
    Dram,
    Node(NodeSet),
    /// All nodes with memory and no processors.
    MemoryOnlyNodes,
    File {
        dir: &'static CStr,
        must_be_dax: bool,
    },
    Memfd,
}

/// The code that gives a tier its memory. It is a plain value that may stand in a static; all
/// operations take `&self` and may run in several threads at once, on ranges that do not overlap.
/// The fork operations are serialised by the caller: nothing else runs in this backing meanwhile.
pub enum Backing {
    Dram(Thp),
    Node(NodeBacking),
    /// A file of a directory, or a memfd: a file without a directory.
    File(FileBacking),
}

/// How a range of a file tier is mapped now. DRAM and nodes are always `Shared`'s equal: fork
/// copies them by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    Shared,
    /// Since a fork: private, copy on write, over a file that children may be reading. What was
    /// not committed at the freeze is a hole of the file and must stay unused: on a full tmpfs
    /// even reading it is a SIGBUS.
    Frozen,
}

/// What is in a range that nobody uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    Zero,
    /// Anything; `calloc` has to clear it.
    Unknown,
}

/// What `release` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Released {
    /// Given back. Commit it before its next use; it reads as zero then.
    Zeroed,
    /// Private copies were given back; contents are unknown, and it may be used without `commit`,
    /// the frozen file still having its space.
    Stale,
    /// Nothing was given back; contents are as before, and it may be used without `commit`.
    Kept,
}

/// How `freeze` kept a range for the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frozen {
    /// The view is `View::Frozen` now, in parent and child.
    Private,
    /// Copied for the child, where the view is `View::Frozen`; it stays `View::Shared` in the parent.
    Copied,
}

/// What a tier's place has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    pub free: Bytes,
    pub total: Bytes,
}

impl Backing {
    /// Makes sure that the tier can be had; takes nothing from it yet.
    pub fn open(spec: Spec, thp: Thp) -> Result<Backing, TierError> {
        Ok(match spec {
            Spec::Dram => Backing::Dram(thp),
            Spec::Node(nodes) => Backing::Node(NodeBacking::open(nodes, thp)?),
            Spec::MemoryOnlyNodes => Backing::Node(NodeBacking::open_memory_only(thp)?),
            Spec::File { dir, must_be_dax } => {
                Backing::File(FileBacking::open(dir, must_be_dax, thp)?)
            }
            Spec::Memfd => Backing::File(FileBacking::open_memfd(thp)?),
        })
    }

    /// What statistics call it: `dram`, `node:1`, `file:DIR`, `fsdax:DIR`, `memfd`.
    pub fn name(&self) -> Name<'_> {
        Name(self)
    }

    /// Makes a range of the tier's lane usable address space; `off` is the range's distance from
    /// the lane's start. DRAM and nodes may be touched afterwards; files after `commit`.
    /// On an error the range is as it was.
    ///
    /// # Safety
    /// The caller owns the range, and it holds nothing: it is reserved (mapped private, anonymous,
    /// `Access::None`), or was mapped by this backing before.
    pub unsafe fn map(&self, addr: Addr, off: Bytes, len: Bytes) -> Result<(), Errno> {
        match self {
            Backing::Dram(thp) => {
                // SAFETY: the caller owns the range.
                unsafe { map_anonymous(addr, len, *thp) }
            }
            // SAFETY: the caller owns the range.
            Backing::Node(node) => unsafe { node.map(addr, len) },
            // SAFETY: the caller owns the range.
            Backing::File(file) => unsafe { file.map(addr, off, len) },
        }
    }

    /// Back to a reservation: address space without memory, of no tier. Contents are lost.
    ///
    /// # Safety
    /// The caller owns the range and gives up its contents.
    pub unsafe fn unmap(&self, addr: Addr, _off: Bytes, len: Bytes) -> Result<(), Errno> {
        if let Backing::File(_) = self {
            // The file's space is not freed by losing a mapping.
            // SAFETY: the caller gives up the contents.
            let _ = unsafe { self.release(addr, _off, len, View::Shared) };
        }
        // SAFETY: the caller owns the range and gives up the contents.
        unsafe { map::over(addr, len, Access::None) }
    }

    /// Takes the physical memory for a range that is mapped `View::Shared` and holds nothing, so
    /// that no touch of it can fail later. On an error the tier is full (or limited, or lost) and
    /// the range is as it was: another tier takes its place.
    ///
    /// # Safety
    /// The caller owns the range, it is mapped by this backing, and it holds nothing.
    pub unsafe fn commit(&self, addr: Addr, off: Bytes, len: Bytes) -> Result<(), Errno> {
        match self {
            Backing::Dram(_) => Ok(()),
            Backing::Node(node) => node.commit(len),
            // SAFETY: the caller owns the range and it holds nothing.
            Backing::File(file) => unsafe { file.commit(addr, off, len) },
        }
    }

    /// Gives physical memory back. Never fails the caller: at worst it is `Kept`.
    ///
    /// # Safety
    /// The caller owns the range and gives up its contents.
    pub unsafe fn release(&self, addr: Addr, off: Bytes, len: Bytes, view: View) -> Released {
        match self {
            Backing::Dram(_) | Backing::Node(_) => {
                // SAFETY: the caller gives up the contents.
                match unsafe { map::advise(addr, len, Advice::DontNeed) } {
                    Ok(()) => Released::Zeroed,
                    // Locked in memory (mlockall): the program wants it resident.
                    Err(_) => Released::Kept,
                }
            }
            // SAFETY: the caller gives up the contents.
            Backing::File(file) => unsafe { file.release(addr, off, len, view) },
        }
    }

    /// Before a fork: makes the range copy on write over the frozen file, so that neither side
    /// sees the other's later writes. No thread is disturbed: the contents stay readable and
    /// writable throughout. DRAM and nodes need nothing and say `Private`.
    ///
    /// A shared range that is not frozen is a hole in the child (it is marked so that no fork, not
    /// even a raw one, can share it): freeze everything that is mapped `Shared`, in as few calls
    /// as possible, empty or not. An error leaves the range shared and usable in the parent, and
    /// absent in the child.
    ///
    /// `seen` is the kernel's line about the range, which tells what the program made of it by
    /// mprotect, and which file it belongs to. Without one it becomes readable and writable, and is
    /// copied once `lost` is not 0: give it segment by segment then, and lines too, for a copy
    /// of much memory at once may be refused.
    ///
    /// `used` says of a page whether it is committed and holds something. A copy leaves the others out:
    /// to read a hole of a memfd or a tmpfs takes a page of it, and is a SIGBUS where there is none.
    ///
    /// # Safety
    /// The caller owns the range; it is mapped by this backing, `View::Shared`.
    pub unsafe fn freeze(
        &self,
        addr: Addr,
        off: Bytes,
        len: Bytes,
        seen: Option<&Mapping>,
        used: &dyn Fn(Addr) -> bool,
    ) -> Result<Frozen, Errno> {
        match self {
            Backing::Dram(_) | Backing::Node(_) => Ok(Frozen::Private),
            // SAFETY: as the caller promises.
            Backing::File(file) => unsafe { file.freeze(addr, off, len, seen, used) },
        }
    }

    /// Wakes who fell asleep on the word at this offset before it was frozen, as the kernel cannot
    /// by its address any more. To be called for each word of a frozen range that a thread sleeps on
    /// by a call that does not say FUTEX_PRIVATE_FLAG: it looks at its word again, and sleeps on.
    pub fn wake(&self, off: Bytes) {
        if let Backing::File(file) = self {
            file.wake(off);
        }
    }

    /// Makes an empty frozen range shared again. `Zero`: as after `map`, to be committed before
    /// use. `Unknown`: its space could not be given back, so it may be used without. After an
    /// error nothing may be put in it; thawing may be tried again.
    ///
    /// In a child, what it inherited may be thawed at once (its file is its own); in a process
    /// that forked, only when all children since the freeze are gone.
    ///
    /// # Safety
    /// The caller owns the range, gives up its contents, and no other process reads them.
    pub unsafe fn thaw(&self, addr: Addr, off: Bytes, len: Bytes) -> Result<Contents, Errno> {
        match self {
            Backing::Dram(_) | Backing::Node(_) => Ok(Contents::Unknown),
            // SAFETY: as the caller promises.
            Backing::File(file) => unsafe { file.thaw(addr, off, len) },
        }
    }

    /// Makes part of a frozen range shared again without giving its space back: it may be used at
    /// once, and what was in it is lost. An error leaves it frozen.
    ///
    /// # Safety
    /// As for `thaw`; the range was committed before it was frozen, and not released since.
    pub unsafe fn reshare(&self, addr: Addr, off: Bytes, len: Bytes) -> Result<(), Errno> {
        match self {
            Backing::Dram(_) | Backing::Node(_) => Ok(()),
            // SAFETY: as the caller promises.
            Backing::File(file) => unsafe { file.reshare(addr, off, len) },
        }
    }

    /// In the parent, after a fork, whether it succeeded or not.
    pub fn after_fork_parent(&self) {
        if let Backing::File(file) = self {
            file.after_fork_parent();
        }
    }

    /// In the child, after a fork: the parent's file is forgotten (its descriptor is closed if it
    /// still is ours), and the next `map` or `thaw` opens a new one in the same place. What was
    /// `Shared` and not frozen is a hole in the child, to be mapped before use.
    pub fn after_fork_child(&self) {
        if let Backing::File(file) = self {
            file.after_fork_child();
        }
    }

    /// Freezing leaves page tables behind, which take a while to unmap: this unmaps those of so
    /// many bytes, at up to 55 ns a page.
    pub fn drop_leftovers(&self, most: Bytes) {
        if let Backing::File(file) = self {
            file.drop_leftovers(most);
        }
    }

    pub fn has_leftovers(&self) -> bool {
        matches!(self, Backing::File(file) if file.has_leftovers())
    }

    /// Closes what was opened for the tier; nothing of it is mapped any more.
    pub fn close(&self) {
        if let Backing::File(file) = self {
            file.drop_leftovers(Bytes::new(usize::MAX));
            file.after_fork_child();
        }
    }

    /// How often the program closed our descriptor under us. The mappings made before stay
    /// usable; new memory comes from a new file.
    pub fn lost(&self) -> u32 {
        match self {
            Backing::File(file) => file.lost(),
            Backing::Dram(_) | Backing::Node(_) => 0,
        }
    }

    /// Bytes of the device that the tier's file occupies now; `None` for tiers without a file
    /// (`os::map::resident` tells about their ranges).
    pub fn usage(&self) -> Option<Bytes> {
        match self {
            Backing::File(file) => file.usage(),
            Backing::Dram(_) | Backing::Node(_) => None,
        }
    }

    /// What the place as a whole has free and in total, if it can be known.
    pub fn room(&self) -> Option<Room> {
        match self {
            Backing::Dram(_) => {
                let (free, total) = (limits::free_ram(), limits::total_ram());
                Some(Room { free, total })
            }
            Backing::Node(node) => node.room(),
            Backing::File(file) => file.room(),
        }
    }
}

/// Gives a reservation its rights. By mprotect and not by a new mapping: when the kernel refuses
/// (`overcommit_memory=2`, `ulimit -d`), mprotect leaves the reservation in place, where mmap may
/// leave a hole for another thread's mapping to land in.
///
/// # Safety
/// The caller owns the range, a reservation.
pub(super) unsafe fn map_anonymous(addr: Addr, len: Bytes, thp: Thp) -> Result<(), Errno> {
    // SAFETY: the caller owns the range, and rights are only added.
    unsafe { map::protect(addr, len, Access::ReadWrite) }?;
    // SAFETY: advice on huge pages loses nothing.
    unsafe { advise_huge(addr, len, thp) };
    Ok(())
}

/// What the user asked about huge pages. A refusal (kernels without them) costs nothing.
///
/// # Safety
/// The caller owns the range.
pub(super) unsafe fn advise_huge(addr: Addr, len: Bytes, thp: Thp) {
    let whole = addr.is_aligned(SEGMENT) && len.get().is_multiple_of(SEGMENT.get());
    let advice = match thp {
        Thp::System => return,
        Thp::Never => Advice::NoHugePage,
        // Whole segments only: part of one never becomes huge, and the advice would cut mappings
        // that merge otherwise.
        Thp::Madvise if !whole => return,
        Thp::Madvise | Thp::Always => Advice::HugePage,
    };
    // SAFETY: the caller owns the range; contents are untouched.
    let _ = unsafe { map::advise(addr, len, advice) };
}

/// See [`Backing::name`].
pub struct Name<'a>(&'a Backing);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Backing::Dram(_) => f.write_str("dram"),
            Backing::Node(node) => write!(f, "node:{}", node.nodes()),
            Backing::File(file) => file.write_name(f),
        }
    }
}
