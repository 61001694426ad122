//! What freezing leaves behind: the page tables of the views that were shared.
//!
//! A mapping put over another has the kernel look at each page that the old one shows: 25 ns (ext4
//! on 6.18) to 55 ns (a memfd) each, a quarter of a second for 4 GiB, in which the forking program
//! stands still. To move the page tables aside first costs 0.1 µs for each 2 MiB of them, and what
//! they came from stays mapped as it was, so that a thread which touches it meanwhile faults its
//! page in again and sees no hole. The moved view is unmapped later, a bit at a time, by slow paths.
//!
//! Until then its pages count twice in what the kernel calls the resident size of the process.
//! No child has the view, and nobody has a pointer into it.

use crate::base::{Addr, Bytes, SEGMENT};
use crate::os::{Errno, limits, map};

/// Of length 0 where there is none.
#[derive(Clone, Copy)]
struct Leftover {
    start: Addr,
    len: Bytes,
}

const NOTHING: Leftover = Leftover {
    start: Addr::new(0),
    len: Bytes::ZERO,
};

pub(super) struct Leftovers {
    kept: [Leftover; Leftovers::PLACES],
    /// The kernel has refused once: before 5.13 it always does.
    refused: bool,
}

impl Leftovers {
    /// Each is a mapping more for a while, of which a process has 65,530.
    const PLACES: usize = 8;
    /// A smaller range goes faster than this is worth: 0.2 ms.
    const LEAST: Bytes = Bytes::mib(16);

    pub(super) const NONE: Leftovers = Leftovers {
        kept: [NOTHING; Leftovers::PLACES],
        refused: false,
    };

    /// Moves the page tables of the range aside if that is worth it and can be done; its contents
    /// and its mapping stay.
    ///
    /// # Safety
    /// The caller owns the range, which is one shared mapping of a file.
    pub(super) unsafe fn move_aside(&mut self, addr: Addr, len: Bytes) {
        // The kernel moves whole tables, and single pages where a range does not begin with one.
        let from = addr.align_up(SEGMENT);
        let end = addr.add(len).align_down(SEGMENT);
        if end < from.add(Self::LEAST) || self.refused {
            return;
        }
        let Some(place) = self.kept.iter_mut().find(|l| l.len == Bytes::ZERO) else {
            return;
        };
        // Under `ulimit -v` the program would be refused what the old view still takes.
        if limits::address_space().is_some() {
            return;
        }
        let len = end.offset_from(from);
        let whole = len.checked_add(SEGMENT).unwrap_or(len);
        let Ok(room) = map::anywhere(whole, map::Access::None) else {
            return;
        };
        let start = room.align_up(SEGMENT);
        // SAFETY: the room was made just now; the other range the caller owns, and the same bytes
        // of the file stand there afterwards.
        match unsafe { map::move_contents_onto(from, start, len) } {
            Ok(()) => {
                *place = Leftover { start, len };
                let (left, right) = (start.offset_from(room), start.add(len));
                for (at, len) in [(room, left), (right, room.add(whole).offset_from(right))] {
                    if len != Bytes::ZERO {
                        // SAFETY: the rest of the room, which nobody else knows.
                        let _ = unsafe { map::unmap(at, len) };
                    }
                }
            }
            Err(error) => {
                self.refused = true;
                // The kernel looks at the flags first. A later refusal may have made a hole where
                // somebody else's mapping is by now: then the room is left, for this once.
                if error == Errno::INVAL {
                    // SAFETY: the room is whole, and nobody else knows it.
                    let _ = unsafe { map::unmap(room, whole) };
                }
            }
        }
    }

    /// Unmaps so much of what is left, from the ends, so that no mapping is cut in two.
    pub(super) fn drop_some(&mut self, most: Bytes) {
        let mut still = most;
        for place in &mut self.kept {
            let Leftover { start, len } = *place;
            let part = len.min(still);
            if part == Bytes::ZERO {
                continue;
            }
            still = still.saturating_sub(part);
            let rest = len.saturating_sub(part);
            // Noted before it is done, so that a signal handler which forks here leaves its child
            // a list that is true but for this part.
            place.len = rest;
            // SAFETY: the range is a view that `move_aside` made, in this process, and that nobody
            // else knows.
            let _ = unsafe { map::unmap(start.add(rest), part) };
        }
    }

    /// In a child, which has none of the views.
    pub(super) fn forget(&mut self) {
        self.kept = [NOTHING; Self::PLACES];
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.iter().all(|l| l.len == Bytes::ZERO)
    }
}
