//! Whether the children of a fork are gone, so that the file they read may be written again.
//!
//! A sentinel is a memfd whose one page is mapped, shared and writable, just while the process
//! forks. Each child inherits the mapping, and its children do, until they exit or exec. The
//! kernel refuses to seal a memfd against writing while any process maps it so: that answers the
//! question. A pipe that ends when the last writer goes does not: programs close all descriptors
//! and live on.

use crate::base::{Addr, Bytes, PAGE};
use crate::os::file::{self, Held, Seals};
use crate::os::lock::Lock;
use crate::os::{map, space};

/// The forks of this process in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Generation(pub u64);

/// The outstanding children of this process. The fork operations are serialised by the caller.
pub struct Children(Lock<Table>);

struct Table {
    sentinels: [Option<Sentinel>; Table::MAX],
    /// The latest generation.
    now: Generation,
    /// Children up to this generation may live for ever as far as we can tell: their sentinel
    /// could not be made, or its descriptor is lost.
    never: Option<Generation>,
    /// The page that the child of the fork under way inherits.
    page: Option<Addr>,
}

#[derive(Clone, Copy)]
struct Sentinel {
    held: Held,
    /// The last generation whose children map it.
    last: Generation,
}

impl Children {
    /// More generations than this share the latest sentinel, and are gone together.
    pub const MAX: usize = Table::MAX;

    pub const fn new() -> Children {
        Children(Lock::new(Table {
            sentinels: [None; Table::MAX],
            now: Generation(0),
            never: None,
            page: None,
        }))
    }

    /// Begins a generation: the next child is of it. `None` where the calling thread itself, in a
    /// signal handler, has interrupted who looks whether children are gone.
    pub fn before_fork(&self) -> Option<Generation> {
        Some(self.0.try_lock()?.begin())
    }

    /// In the parent, whether the fork succeeded or not.
    pub fn after_fork_parent(&self, _generation: Generation) {
        if let Some(page) = self.0.lock().page.take() {
            // SAFETY: the page was mapped by `begin` and nobody else knows it.
            let _ = unsafe { map::unmap(page, PAGE) };
        }
    }

    /// In the child: it has no children yet. The page stays mapped, for as long as this process
    /// and its children live.
    pub fn after_fork_child(&self) {
        let mut table = self.0.lock();
        for sentinel in table.sentinels.iter_mut().filter_map(Option::take) {
            sentinel.held.close();
        }
        table.never = None;
        table.page = None;
    }

    /// Whether all children of this generation and the later ones are gone. (Later ones inherit
    /// what was frozen before and not thawed; earlier ones never had it.) False when in doubt.
    pub fn all_gone_since(&self, generation: Generation) -> bool {
        let mut table = self.0.lock();
        table.look();
        table.never.is_none_or(|never| never < generation)
            && table
                .sentinels
                .iter()
                .flatten()
                .all(|sentinel| sentinel.last < generation)
    }
}

impl Default for Children {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    const MAX: usize = 32;

    /// Drops the sentinels that are mapped no more.
    fn look(&mut self) {
        for slot in &mut self.sentinels {
            let Some(sentinel) = slot else { continue };
            if !sentinel.held.still_mine() {
                self.never = self.never.max(Some(sentinel.last));
                *slot = None;
            } else if file::seal_against_writing(&sentinel.held).is_ok() {
                sentinel.held.close();
                *slot = None;
            }
        }
    }

    fn begin(&mut self) -> Generation {
        self.now = Generation(self.now.0 + 1);
        let now = self.now;
        self.look();
        let free = self.sentinels.iter_mut().find(|slot| slot.is_none());
        self.page = match free {
            Some(slot) => Table::fresh(now).map(|(sentinel, page)| {
                *slot = Some(sentinel);
                page
            }),
            // All in use: the latest one stands for this generation too.
            None => self
                .sentinels
                .iter_mut()
                .flatten()
                .max_by_key(|sentinel| sentinel.last)
                .and_then(|sentinel| {
                    let page =
                        map::file_shared_anywhere(PAGE, sentinel.held.fd(), Bytes::ZERO).ok()?;
                    sentinel.last = now;
                    Some(page)
                }),
        };
        if self.page.is_none() {
            self.never = Some(now);
        }
        now
    }

    fn fresh(now: Generation) -> Option<(Sentinel, Addr)> {
        let held = file::memfd(Seals::Allowed).ok()?;
        let page = space::set_size(&held, PAGE)
            .and_then(|()| map::file_shared_anywhere(PAGE, held.fd(), Bytes::ZERO));
        match page {
            Ok(page) => Some((Sentinel { held, last: now }, page)),
            Err(_) => {
                held.close();
                None
            }
        }
    }
}
