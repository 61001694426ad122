//! Why a tier cannot be had, in words that a user can act on.

use crate::os::Errno;
use core::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierError {
    NoDirectory,
    NotADirectory,
    NoPermission,
    ReadOnly,
    /// `fsdax:` on a directory that is not DAX.
    NotDax,
    /// The file system has no shared writable mappings (some network and FUSE file systems).
    NotMappable(Errno),
    TooManyFiles,
    NoMemfd(Errno),
    /// A node that does not exist or has no memory.
    NoSuchNode(u32),
    /// No node has memory without processors.
    NoMemoryOnlyNode,
    /// `mbind` is refused (containers), or the kernel is built without NUMA.
    NumaRefused(Errno),
    File(Errno),
    /// The window has no addresses for it, or the table of tiers no place.
    NoAddresses,
}

impl TierError {
    /// What an error of opening a file in a directory means.
    pub(super) fn of_directory(error: Errno) -> TierError {
        match error {
            Errno::NOENT => TierError::NoDirectory,
            Errno::NOTDIR => TierError::NotADirectory,
            Errno::ACCES | Errno::PERM => TierError::NoPermission,
            Errno::ROFS => TierError::ReadOnly,
            Errno::MFILE | Errno::NFILE => TierError::TooManyFiles,
            error => TierError::File(error),
        }
    }
}

impl fmt::Display for TierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TierError::NoAddresses => f.write_str(
                "no addresses are left for it (give the tiers before it lower limits)",
            ),
            TierError::NoDirectory => f.write_str("the directory does not exist"),
            TierError::NotADirectory => f.write_str("not a directory"),
            TierError::NoPermission => f.write_str("no permission to make a file in the directory"),
            TierError::ReadOnly => f.write_str("the file system is read-only"),
            TierError::NotDax => f.write_str(
                "the directory is not DAX (mount with -o dax=always, or use file: for a plain file)",
            ),
            TierError::NotMappable(error) => {
                write!(f, "the file system has no shared writable mappings: {error}")
            }
            TierError::TooManyFiles => f.write_str("too many open files"),
            TierError::NoMemfd(error) => write!(f, "memfd_create failed: {error}"),
            TierError::NoSuchNode(node) => write!(f, "there is no node {node} with memory"),
            TierError::NoMemoryOnlyNode => f.write_str("no node has memory without processors"),
            TierError::NumaRefused(error) => write!(f, "mbind failed: {error}"),
            TierError::File(error) => write!(f, "making a file failed: {error}"),
        }
    }
}
