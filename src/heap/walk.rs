//! Looking at every slab and large block there is, for statistics and to empty a kind.

use super::slab::{Slab, What};
use crate::arena::{Lane, WINDOW};
use crate::base::{Bytes, SegmentId};

/// Calls `f` with each live descriptor of a lane.
///
/// # Safety
/// No thread is inside a slow path meanwhile (the gate is closed), so that no descriptor comes
/// or goes; `f` may release the one it is given.
pub unsafe fn each_slab(lane: &Lane, mut f: impl FnMut(*mut Slab)) {
    for id in lane.segments() {
        let first = SegmentId(id).first_slice().index();
        let mut at = first;
        while at < first + crate::base::SLICES_PER_SEGMENT {
            let slice = crate::base::SliceId(at);
            let descriptor = WINDOW.descriptor(slice);
            at += 1;
            if WINDOW.is_sentinel(descriptor) {
                continue;
            }
            let slab = descriptor.as_ptr().cast::<Slab>();
            // SAFETY: descriptors in the page map are live.
            unsafe {
                // A slab has an entry for each slice, a large block one in all.
                if (*slab).what == What::Blocks {
                    at += (*slab).slices as usize - 1;
                }
                f(slab);
            }
        }
    }
}

/// Bytes of live blocks in a lane.
///
/// # Safety
/// As for [`each_slab`].
pub unsafe fn live_bytes(lane: &Lane) -> Bytes {
    let mut sum = 0;
    // SAFETY: as promised.
    unsafe {
        each_slab(lane, |slab| {
            sum += match (*slab).what {
                What::Large => (*slab).block,
                _ => ((*slab).blocks as usize - Slab::free_blocks(slab)) * (*slab).block,
            };
        });
    }
    Bytes::new(sum)
}
