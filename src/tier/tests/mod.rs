//! The backings on real files, real limits and real forks.

mod children;
mod exchange;
mod files;
mod forks;
mod leftovers;
mod nodes;

use super::*;
use crate::base::config::Thp;
use crate::base::{Addr, Bytes, SEGMENT};
use crate::os::map::{self, Access};
use crate::os::maps;
use crate::os::testing::leaked;
use std::path::Path;

/// A lane of a window for one test.
struct Lane {
    base: Addr,
    len: Bytes,
}

impl Lane {
    fn new(len: Bytes) -> Lane {
        let all = Bytes::new(len.get() + SEGMENT.get());
        let at = map::anywhere(all, Access::None).unwrap();
        Lane {
            base: at.align_up(SEGMENT),
            len,
        }
    }
    fn at(&self, off: Bytes) -> Addr {
        assert!(off < self.len);
        self.base.add(off)
    }
    fn map(&self, tier: &Backing, off: Bytes, len: Bytes) -> Result<(), crate::os::Errno> {
        // SAFETY: the lane is this test's, and the range holds nothing.
        unsafe { tier.map(self.at(off), off, len) }
    }
    fn commit(&self, tier: &Backing, off: Bytes, len: Bytes) -> Result<(), crate::os::Errno> {
        // SAFETY: as above.
        unsafe { tier.commit(self.at(off), off, len) }
    }
    fn release(&self, tier: &Backing, off: Bytes, len: Bytes, view: View) -> Released {
        // SAFETY: the test gives the contents up.
        unsafe { tier.release(self.at(off), off, len, view) }
    }
    fn freeze(&self, tier: &Backing, off: Bytes, len: Bytes) -> Result<Frozen, crate::os::Errno> {
        self.freeze_used(tier, off, len, &|_| true)
    }
    fn freeze_used(
        &self,
        tier: &Backing,
        off: Bytes,
        len: Bytes,
        used: &dyn Fn(Addr) -> bool,
    ) -> Result<Frozen, crate::os::Errno> {
        // As the arena does: by the kernel's lines.
        let (from, to) = (self.at(off), self.at(off).add(len));
        let mut outcome = Ok(Frozen::Private);
        maps::each(|line| {
            let (start, end) = (line.start.max(from), line.end.min(to));
            if line.shared && start < end {
                let off = start.offset_from(self.base);
                assert_eq!(line.offset, line.start.offset_from(self.base));
                // SAFETY: the range is mapped by the tier.
                match unsafe { tier.freeze(start, off, end.offset_from(start), Some(line), used) } {
                    Ok(Frozen::Private) => {}
                    other => outcome = other,
                }
            }
        })
        .unwrap();
        outcome
    }
    fn thaw(&self, tier: &Backing, off: Bytes, len: Bytes) -> Result<Contents, crate::os::Errno> {
        // SAFETY: the test gives the contents up.
        unsafe { tier.thaw(self.at(off), off, len) }
    }
    fn fill(&self, off: Bytes, len: Bytes, seed: u64) {
        let words = self.at(off).as_ptr().cast::<u64>();
        for i in 0..len.get() / 8 {
            // SAFETY: the range is mapped and committed; no reference to it exists.
            unsafe { words.add(i).write_volatile(seed.wrapping_mul(i as u64 + 1)) };
        }
    }
    fn holds(&self, off: Bytes, len: Bytes, seed: u64) -> bool {
        let words = self.at(off).as_ptr().cast::<u64>();
        // SAFETY: as in `fill`.
        (0..len.get() / 8)
            .all(|i| unsafe { words.add(i).read_volatile() } == seed.wrapping_mul(i as u64 + 1))
    }
    fn is_zero(&self, off: Bytes, len: Bytes) -> bool {
        self.holds(off, len, 0)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // SAFETY: the lane is this test's, and the test is over.
        unsafe { map::unmap(self.base, self.len).unwrap() };
    }
}

fn file_tier(dir: &Path) -> Backing {
    Backing::open(
        Spec::File {
            dir: leaked(dir),
            must_be_dax: false,
        },
        Thp::System,
    )
    .unwrap()
}

fn memfd_tier() -> Backing {
    Backing::open(Spec::Memfd, Thp::System).unwrap()
}

impl Backing {
    fn as_file(&self) -> &FileBacking {
        match self {
            Backing::File(file) => file,
            _ => panic!("not a file tier"),
        }
    }
}
