//! Steps of the fast paths for which the compiler has no words: what an instruction leaves in the flags
//! besides its result, and a word that another thread may write as the operand of a comparison. Four
//! instructions of a free; the portable halves say what is meant, and a test holds both to it.

use super::slab::Slab;
use super::thread_heap::ThreadHeap;

/// What setting the bit of a block came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    Done,
    /// Done, and the word is now what the slab has in `unsettled`.
    Unsettled,
    /// It was set.
    Before,
}

/// Whether frees by this heap may go straight to the slab's bitmap.
///
/// # Safety
/// `slab` is a descriptor, or the page of zeros.
#[inline(always)]
pub unsafe fn is_local(slab: *const Slab, th: *const ThreadHeap) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: reads a word of the descriptor.
        unsafe {
            core::arch::asm!(
                "cmp qword ptr [{slab} + {local}], {th}",
                "jne {other}",
                slab = in(reg) slab,
                th = in(reg) th,
                local = const core::mem::offset_of!(Slab, local),
                other = label { return false },
                options(nostack, readonly),
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        portable::is_local(slab, th)
    }
}

/// The high and the low half of an offset times the slab's magic number.
///
/// # Safety
/// `slab` is a descriptor of a slab of blocks.
#[inline(always)]
pub unsafe fn divide(slab: *const Slab, offset: usize) -> (usize, u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (high, low);
        // SAFETY: reads a word of the descriptor that does not change while it is one.
        unsafe {
            core::arch::asm!(
                "mul qword ptr [{slab} + {magic}]",
                slab = in(reg) slab,
                magic = const core::mem::offset_of!(Slab, magic),
                inlateout("rax") offset => low,
                lateout("rdx") high,
                options(nostack, pure, readonly),
            );
        }
        (high, low)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        portable::divide(slab, offset)
    }
}

/// Says in the bitmap that a block is free.
///
/// # Safety
/// The caller owns the slab, which has that block.
#[inline(always)]
pub unsafe fn set_bit(slab: *mut Slab, index: usize) -> Set {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: the word lies in the descriptor, and only the caller writes it; to others that read it
        // this is one store of an aligned word.
        unsafe {
            core::arch::asm!(
                "mov {free}, qword ptr [{slab} + 8 * {word} + {words}]",
                "bts {free}, {index}",
                "jc {before}",
                "mov qword ptr [{slab} + 8 * {word} + {words}], {free}",
                "cmp {free}, qword ptr [{slab} + {unsettled}]",
                "je {unsettled_now}",
                slab = in(reg) slab,
                word = in(reg) index / 64,
                index = in(reg) index,
                free = out(reg) _,
                words = const Slab::WORDS,
                unsettled = const core::mem::offset_of!(Slab, unsettled),
                before = label { return Set::Before },
                unsettled_now = label { return Set::Unsettled },
                options(nostack),
            );
        }
        Set::Done
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        portable::set_bit(slab, index)
    }
}

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod portable {
    use super::{Set, Slab, ThreadHeap};
    use crate::sync::Ordering;

    pub unsafe fn is_local(slab: *const Slab, th: *const ThreadHeap) -> bool {
        // SAFETY: the caller's promise.
        // Relaxed: only this thread can have stored its own heap here (or another before it gave
        // the heap up, which this thread acquired).
        unsafe { (*slab).local.load(Ordering::Relaxed).cast_const() == th }
    }

    pub unsafe fn divide(slab: *const Slab, offset: usize) -> (usize, u64) {
        // SAFETY: the caller's promise.
        let product = offset as u128 * unsafe { (*slab).magic } as u128;
        ((product >> 64) as usize, product as u64)
    }

    pub unsafe fn set_bit(slab: *mut Slab, index: usize) -> Set {
        // SAFETY: the caller's promise.
        unsafe {
            let word = Slab::word(slab, index / 64);
            // Relaxed (both): only the owner writes words.
            let free = word.load(Ordering::Relaxed);
            let bit = 1u64 << (index % 64);
            if free & bit != 0 {
                return Set::Before;
            }
            word.store(free | bit, Ordering::Relaxed);
            if free | bit == (*slab).unsettled {
                return Set::Unsettled;
            }
            Set::Done
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    const WORDS: usize = 4;
    #[repr(C, align(64))]
    struct Piece([u64; 12 + WORDS]);
    const _: () = assert!(Slab::WORDS == 12 * 8);

    /// Zeroed metadata is a descriptor of nothing.
    fn descriptor(piece: &mut Piece) -> *mut Slab {
        (&raw mut *piece).cast()
    }

    #[test]
    fn a_slab_is_local_to_the_heap_it_names() {
        let mut piece = Piece([0; 12 + WORDS]);
        let slab = descriptor(&mut piece);
        let (mine, other) = (ThreadHeap::gone(), ThreadHeap::empty());
        for is in [core::ptr::null_mut(), mine, other] {
            // SAFETY: the piece lives; nothing is read through the heaps.
            unsafe {
                (*slab).local.store(is, Ordering::Relaxed);
                for th in [mine, other] {
                    assert_eq!(is_local(slab, th), is == th);
                    assert_eq!(portable::is_local(slab, th), is == th);
                }
            }
        }
    }

    #[test]
    fn dividing_is_a_multiplication_by_the_magic_number() {
        let mut piece = Piece([0; 12 + WORDS]);
        let slab = descriptor(&mut piece);
        for block in [16usize, 48, 112, 640, 10_240, 524_288] {
            for offset in [0, 1, block, block * 3 - 1, 7 * block, block.wrapping_neg()] {
                // SAFETY: the piece lives.
                unsafe {
                    (*slab).magic = Slab::magic_for(block);
                    let done = divide(slab, offset);
                    assert_eq!(done, portable::divide(slab, offset));
                    if offset < 1 << 21 {
                        assert_eq!(done.0, offset / block);
                        assert_eq!(done.1 < (*slab).magic, offset.is_multiple_of(block));
                    }
                }
            }
        }
    }

    #[test]
    fn a_bit_is_set_once_and_alone() {
        for unsettled in [0, u64::MAX, 0b101] {
            let mut pieces = [Piece([0; 12 + WORDS]), Piece([0; 12 + WORDS])];
            let mut expected = [0u64; WORDS];
            let mut seen = std::collections::BTreeSet::new();
            // Every bit once, in an order that fills no word early, and some of them again.
            let once = (0..64 * WORDS).map(|i| i * 77 % (64 * WORDS));
            for index in once.chain([0, 63, 64, 255, 130]) {
                let before = expected[index / 64] >> (index % 64) & 1 == 1;
                expected[index / 64] |= 1 << (index % 64);
                let word = expected[index / 64];
                let due = match (before, word == unsettled) {
                    (true, _) => Set::Before,
                    (false, true) => Set::Unsettled,
                    (false, false) => Set::Done,
                };
                for (at, piece) in pieces.iter_mut().enumerate() {
                    let slab = descriptor(piece);
                    // SAFETY: the piece lives and has these words behind its header.
                    let came = unsafe {
                        (*slab).unsettled = unsettled;
                        [set_bit, portable::set_bit][at](slab, index)
                    };
                    assert_eq!(came, due, "{index} of {unsettled:#x}");
                    assert_eq!(piece.0[12..], expected);
                }
                seen.insert(due as u8);
            }
            assert_eq!(seen.len(), if unsettled == u64::MAX { 3 } else { 2 });
        }
    }
}
