//! Which pages of a private file mapping have become copies: what the kernel says of each page. It
//! takes no privilege, for nothing but a frame's number is hidden from others.

use super::errno::Errno;
use super::file::{self, Fd};
use super::sys::call_retrying;
use crate::base::{Addr, Bytes, PAGE};

/// Entries read by one call.
const ENTRIES: usize = 256;

/// /proc/self/pagemap, open: close it.
pub struct PageMap(Fd);

impl PageMap {
    pub fn open() -> Result<PageMap, Errno> {
        file::open_to_read(c"/proc/self/pagemap").map(PageMap)
    }

    pub fn close(self) {
        self.0.close();
    }

    /// Bytes of the range that are anonymous memory, or were and are in swap: in a private mapping
    /// of a file, what was written since. Takes about 20 ns a page. What cannot be read counts
    /// as none.
    pub fn copied(&self, addr: Addr, len: Bytes) -> Bytes {
        let (first, count) = (addr.get() / PAGE.get(), len.get() / PAGE.get());
        let (mut done, mut copied) = (0, 0);
        while done < count {
            let mut entries = [0u64; ENTRIES];
            let want = (count - done).min(ENTRIES);
            let at = (first + done) * size_of::<u64>();
            let args = [
                self.0.number() as usize,
                (&raw mut entries) as usize,
                want * size_of::<u64>(),
                at,
                0,
                0,
            ];
            // SAFETY: the kernel writes at most `want` entries into the buffer.
            let Ok(read) = (unsafe { call_retrying(libc::SYS_pread64, args) }) else {
                break;
            };
            let had = read / size_of::<u64>();
            copied += entries.iter().take(had).filter(|&&e| is_copy(e)).count();
            if had < want {
                break;
            }
            done += had;
        }
        PAGE.times(copied)
    }
}

/// Documentation/admin-guide/mm/pagemap.rst: bit 63 present, 62 swapped, 61 of a file or shared.
const fn is_copy(entry: u64) -> bool {
    entry >> 62 != 0 && entry >> 61 & 1 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::file::{Seals, memfd};
    use crate::os::map::{self, Access};
    use crate::os::space;

    #[test]
    fn only_pages_that_were_written_are_copies() {
        let held = memfd(Seals::Forbidden).unwrap();
        let len = PAGE.times(600);
        space::set_size(&held, len).unwrap();
        let shared = map::file_shared_anywhere(len, held.fd(), Bytes::ZERO).unwrap();
        let private =
            map::file_private_anywhere(len, Access::ReadWrite, held.fd(), Bytes::ZERO).unwrap();
        let pages = PageMap::open().unwrap();
        // SAFETY: both ranges were mapped above, and only this test knows them.
        unsafe {
            for page in 0..600 {
                *shared.add(PAGE.times(page)).as_ptr() = 1;
                assert_eq!(private.add(PAGE.times(page)).as_ptr().read_volatile(), 1);
            }
            assert_eq!(pages.copied(private, len), Bytes::ZERO);
            for page in [0, 3, 255, 256, 599] {
                *private.add(PAGE.times(page)).as_ptr() = 2;
            }
            assert_eq!(pages.copied(private, len), PAGE.times(5));
            assert_eq!(pages.copied(private.add(PAGE), PAGE.times(3)), PAGE);
            assert_eq!(pages.copied(shared, len), Bytes::ZERO);
            map::unmap(shared, len).unwrap();
            map::unmap(private, len).unwrap();
        }
        pages.close();
        held.close();
    }
}
