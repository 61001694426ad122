//! What else can be asked of the heap, each answer checked against the model.

use crate::heap::{Block, Heap, errno, set_errno};
use crate::ops::Target;
use std::ffi::{CStr, c_char, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use tierheap::api::c::*;

impl Heap {
    /// What was said of a block at its birth still holds, for every address in it.
    pub fn ask(&self, block: &Block) {
        let addr = block.addr as *const c_void;
        // SAFETY: a live block.
        assert_eq!(
            unsafe { tierheap_usable_size(addr) },
            block.usable,
            "{block:x?}"
        );
        assert_eq!(
            tierheap_kind_of(addr),
            self.kind(block.target),
            "{block:x?}"
        );
        let last = block.usable.max(1) - 1;
        for at in (0..=last).step_by(4096).chain([last]) {
            let here = tierheap_tier_of((block.addr + at) as *const c_void);
            assert_eq!(here, block.tier, "byte {at} of {block:x?}");
        }
    }

    /// `how` says which part and which advice, good ones and bad.
    pub fn advise(&self, block: &Block, how: usize) {
        let start = (how >> 3) % block.usable.max(1);
        let at = (block.addr + start) as *mut c_void;
        let len = block.usable - start.min(block.usable);
        let advice = [TIERHEAP_HOT, TIERHEAP_COLD, TIERHEAP_NORMAL, 3, -1][how % 5];
        let expected = if advice == 3 || advice == -1 {
            TIERHEAP_EINVAL
        } else {
            TIERHEAP_OK
        };
        assert_eq!(tierheap_advise(at, len, advice), expected, "{block:x?}");
        let wraps = tierheap_advise(at, usize::MAX, TIERHEAP_HOT);
        assert_eq!(wraps, TIERHEAP_EINVAL, "{block:x?}");
    }

    /// Calls that must be refused, each in its manner, and change nothing.
    pub fn misuse(&self, which: u8) {
        let kind = self.kind(Target::ALL[which as usize % 7]);
        let no_kind = kind.cast::<u8>().wrapping_add(1).cast::<tierheap_kind>();
        let here = black_box(&which) as *const u8 as *mut c_void;
        let refused = |error: i32, call: &dyn Fn() -> *mut c_void| {
            set_errno(0);
            assert!(call().is_null());
            assert_eq!(errno(), error);
        };
        // Where the sizes cannot be: not a byte is touched.
        let huge = [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize];
        let huge = huge[which as usize % 3] - which as usize % 17;
        match which / 7 % 7 {
            0 => refused(libc::ENOMEM, &|| tierheap_malloc(kind, huge)),
            1 => refused(libc::ENOMEM, &|| tierheap_calloc(kind, huge / 2, 3)),
            2 => refused(libc::EINVAL, &|| tierheap_malloc(no_kind, 1)),
            3 => {
                refused(libc::EINVAL, &|| tierheap_aligned_alloc(kind, 48, 1));
                refused(libc::ENOMEM, &|| tierheap_aligned_alloc(kind, 64, huge));
            }
            4 => {
                let mut at = here;
                // SAFETY: a place for the address.
                let mut posix =
                    |align, size| unsafe { tierheap_posix_memalign(kind, &mut at, align, size) };
                assert_eq!(posix(4, 1), libc::EINVAL);
                assert_eq!(posix(64, huge), libc::ENOMEM);
                assert_eq!(at, here, "an error leaves the pointer alone");
            }
            5 => {
                // SAFETY: null is nothing to all of these, and strings end.
                unsafe {
                    tierheap_free(null_mut());
                    assert_eq!(tierheap_usable_size(null()), 0);
                    assert_eq!(tierheap_kind_destroy(null_mut()), TIERHEAP_EINVAL);
                    assert_eq!(tierheap_kind_destroy(no_kind), TIERHEAP_EINVAL);
                    assert_eq!(tierheap_kind_create(null(), null_mut()), TIERHEAP_EINVAL);
                    assert_eq!(tierheap_stats(null_mut()), TIERHEAP_EINVAL);
                }
            }
            _ => {
                // The stack is not of the heap.
                assert_eq!(tierheap_tier_of(here), 0);
                assert!(tierheap_kind_of(here).is_null());
                assert_eq!(tierheap_advise(here, 1, TIERHEAP_HOT), TIERHEAP_EFOREIGN);
            }
        }
    }

    /// The statistics in C's words say what Rust's do, and are printed whole.
    pub fn same_in_c(&self) {
        let mut c = MaybeUninit::<tierheap_stats>::zeroed();
        // SAFETY: a structure of numbers, whose size is set.
        let c = unsafe {
            (*c.as_mut_ptr()).size = size_of::<tierheap_stats>();
            assert_eq!(tierheap_stats(c.as_mut_ptr()), TIERHEAP_OK);
            c.assume_init()
        };
        let rust: Vec<_> = tierheap::stats().tiers().collect();
        assert_eq!(c.tiers as usize, rust.len());
        for (c, rust) in c
            .tier
            .iter()
            .zip(&rust)
            .filter(|(_, r)| !self.is_shared(r.tier))
        {
            assert_eq!(c.asked, rust.asked.unwrap() as u64, "{rust:?}");
            assert_eq!(c.held, rust.held as u64, "{rust:?}");
            assert_eq!(
                c.limit,
                rust.limit.map_or(u64::MAX, |l| l as u64),
                "{rust:?}"
            );
            assert_eq!(c.fallbacks, rust.fallbacks, "{rust:?}");
        }
        let mut text = Vec::<u8>::with_capacity(16 << 10);
        let to = (&raw mut text).cast();
        // SAFETY: the callback's pointer is to the vector.
        let code = unsafe { tierheap_stats_print(Some(append), to, c"json".as_ptr()) };
        assert_eq!(code, TIERHEAP_OK);
        assert!(text.starts_with(b"{") && text.ends_with(b"}\n"), "{text:?}");
        // SAFETY: texts that last.
        let name = unsafe { CStr::from_ptr(tierheap_strerror(TIERHEAP_OK)) };
        assert_eq!(name, c"success");
    }

    pub fn handles(&self) -> Kinds {
        Kinds(Target::ALL.map(|t| self.kind(t) as usize))
    }
}

/// The kinds' handles, as numbers that threads may share.
pub struct Kinds([usize; Target::ALL.len()]);

impl Kinds {
    /// Allocates and frees in all of them, without the model, until told to stop.
    pub fn churn(&self, stop: &AtomicBool) {
        let mut held = [null_mut::<c_void>(); 32];
        let mut turn = 0;
        // Relaxed: only to be seen some time.
        while !stop.load(Ordering::Relaxed) {
            turn += 1;
            let place = &mut held[turn * 7 % 32];
            // SAFETY: null or a block of this thread's.
            unsafe { tierheap_free(*place) };
            let size = (turn * 2_654_435_761) % (64 << (turn % 10));
            let kind = self.0[turn % self.0.len()] as *mut tierheap_kind;
            *place = tierheap_malloc(kind, size);
        }
        for block in held {
            // SAFETY: as above.
            unsafe { tierheap_free(block) };
        }
    }
}

unsafe extern "C" fn append(to: *mut c_void, text: *const c_char, len: usize) {
    // SAFETY: `to` is the vector, and there is a text of that length.
    unsafe {
        let text = std::slice::from_raw_parts(text.cast::<u8>(), len);
        (*to.cast::<Vec<u8>>()).extend_from_slice(text);
    }
}
