//! What is known of one segment, and the pure search for a run of slices in it.

use crate::base::SLICES_PER_SEGMENT;

/// A set of slices of one segment, bit `i` being slice `i`.
pub type SliceMask = u32;

/// The generation of what a child has from its parent: nobody reads it in a file of the child's.
pub const INHERITED: u32 = u32::MAX;

/// "No segment", as a link.
pub const NONE: u32 = u32::MAX;

/// How a segment stands to its backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// No address space is mapped here by us. All-zero memory reads as this.
    Unmapped = 0,
    /// Mapped: the frozen slices private over contents of a file, the others from the tier's own
    /// backing.
    Mapped = 1,
    /// Another mapping of the process stands there.
    Taken = 2,
    /// While fork runs: shared in the parent, copied for the child, where it will be inherited.
    Copied = 3,
}

/// One record of the segment table. All fields are guarded by the lane's lock. All-zero memory
/// is a valid record of an unmapped segment.
#[repr(C)]
pub struct Segment {
    /// Slices that no slab holds.
    pub free: SliceMask,
    /// Slices that are charged to the tier: they may hold physical memory.
    pub backed: SliceMask,
    /// Slices known to read as zero.
    pub zero: SliceMask,
    /// Slices mapped private since a fork, over file contents that a child may still read: writes
    /// land in DRAM, and the file's space is held until the children are gone.
    pub frozen: SliceMask,
    /// Neighbours in the list of segments with the same longest free run.
    pub next: u32,
    pub prev: u32,
    /// The next segment waiting to be purged.
    pub next_dirty: u32,
    /// Since when, in milliseconds of the coarse clock.
    pub dirty_since: u64,
    /// The first fork whose children may read what is frozen here; [`INHERITED`] where there is
    /// no such fork.
    pub generation: u32,
    pub state: State,
    /// Whether it stands in a list of free runs, and in which (1 to 32; 0 is none).
    pub listed: u8,
    pub queued: bool,
    pub _pad: u8,
}

const _: () = assert!(
    size_of::<Segment>() == 48,
    "one record a 2 MiB: 0.002 % of the heap"
);

impl Segment {
    pub const UNMAPPED: Segment = Segment {
        free: 0,
        backed: 0,
        zero: 0,
        frozen: 0,
        next: 0,
        prev: 0,
        next_dirty: 0,
        dirty_since: 0,
        generation: 0,
        state: State::Unmapped,
        listed: 0,
        queued: false,
        _pad: 0,
    };

    /// Free slices that may be given out.
    pub fn usable(&self) -> SliceMask {
        if self.state == State::Mapped {
            self.free & !self.frozen
        } else {
            0
        }
    }

    /// Those of them that are charged to the tier.
    pub fn dirty(&self) -> SliceMask {
        self.usable() & self.backed
    }

    /// Slices of a partly frozen segment that are not.
    pub fn thawed(&self) -> SliceMask {
        if self.state == State::Mapped {
            !self.frozen
        } else {
            0
        }
    }

    /// Free slices that wait for children.
    pub fn waiting(&self) -> SliceMask {
        self.free & self.frozen
    }
}

/// How many mappings more than one a segment with these frozen slices is.
pub const fn seams(frozen: SliceMask) -> u32 {
    ((frozen ^ frozen << 1) & !1).count_ones()
}

/// The bits of a run of `n` slices from slice `at`.
pub const fn run_mask(at: u32, n: u32) -> SliceMask {
    if n >= SLICES_PER_SEGMENT as u32 {
        u32::MAX
    } else {
        ((1 << n) - 1) << at
    }
}

/// The multiples of a power of two.
const fn multiples(step: u32) -> SliceMask {
    // A bit at each multiple is what all ones are of `step` ones.
    (u32::MAX as u64 / ((1u64 << step) - 1)) as SliceMask
}

/// The starts of all runs of `n` set bits.
const fn starts(mask: SliceMask, n: u32) -> SliceMask {
    // After the loop bit i is set iff bits i..i+n are: each step doubles the length proven.
    let mut m = mask;
    let mut have = 1;
    while have < n && m != 0 {
        let step = if n - have < have { n - have } else { have };
        m &= m >> step;
        have += step;
    }
    m
}

/// The longest run of set bits.
pub const fn longest_run(mask: SliceMask) -> u32 {
    let mut m = mask;
    let mut n = 0;
    while m != 0 {
        m &= m >> 1;
        n += 1;
    }
    n
}

/// Where a run of `n` slices that starts at a multiple of `step` fits best in `free`: first choice
/// is a place that is backed already (it costs no system call and no charge), then the lowest.
pub const fn find_run(free: SliceMask, backed: SliceMask, n: u32, step: u32) -> Option<u32> {
    let aligned = multiples(step);
    let ready = starts(free & backed, n) & aligned;
    if ready != 0 {
        return Some(ready.trailing_zeros());
    }
    let any = starts(free, n) & aligned;
    if any != 0 {
        Some(any.trailing_zeros())
    } else {
        None
    }
}

/// The runs of set bits in `mask`, lowest first, as (start, length).
pub fn runs(mask: SliceMask) -> impl Iterator<Item = (u32, u32)> {
    let mut rest = mask;
    core::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let at = rest.trailing_zeros();
        let n = (rest >> at).trailing_ones();
        rest &= !run_mask(at, n);
        Some((at, n))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive_starts(mask: u32, n: u32) -> u32 {
        (0..=32 - n)
            .filter(|&i| mask & run_mask(i, n) == run_mask(i, n))
            .fold(0, |m, i| m | 1 << i)
    }

    proptest! {
        #[test]
        fn starts_agree_with_looking_at_each_place(mask: u32, n in 1u32..=32) {
            prop_assert_eq!(starts(mask, n), naive_starts(mask, n));
        }

        #[test]
        fn a_run_is_found_iff_one_exists(free: u32, backed: u32, n in 1u32..=32, shift in 0u32..=5) {
            let step = 1 << shift;
            match find_run(free, backed, n, step) {
                Some(at) => {
                    prop_assert_eq!(free & run_mask(at, n), run_mask(at, n));
                    prop_assert_eq!(at % step, 0);
                }
                // A run longer by a step less one always has an aligned one in it.
                None => prop_assert!(longest_run(free) < (n + step - 1).min(32)),
            }
        }

        #[test]
        fn seams_are_where_neighbours_differ(mask: u32) {
            let differ = (1..32).filter(|i| (mask >> i & 1) != (mask >> (i - 1) & 1)).count();
            prop_assert_eq!(seams(mask) as usize, differ);
        }

        #[test]
        fn runs_cover_the_mask_once(mask: u32) {
            let mut seen = 0u32;
            for (at, n) in runs(mask) {
                prop_assert_eq!(seen & run_mask(at, n), 0);
                seen |= run_mask(at, n);
            }
            prop_assert_eq!(seen, mask);
        }
    }
}
