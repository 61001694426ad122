//! What the kernel says is mapped where, and how, for what our own books cannot know: what the
//! program made of its memory by mprotect, and which file stands behind a range after it has closed
//! our descriptors.

use super::errno::Errno;
use super::file;
use super::map::Access;
use crate::base::{Addr, Bytes};
use core::ffi::CStr;

/// A line of /proc/self/maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub start: Addr,
    pub end: Addr,
    pub access: Access,
    pub shared: bool,
    /// Of `start` in the file.
    pub offset: Bytes,
    /// 0 for anonymous memory.
    pub inode: u64,
}

/// Calls `visit` for each mapping, in ascending order. What changes meanwhile is seen as it was or
/// as it is; when mappings merge, a line may begin before the last one's end.
pub fn each(mut visit: impl FnMut(&Mapping)) -> Result<(), Errno> {
    // The thread's own file: the process's is empty once its first thread has exited.
    match each_of(c"/proc/thread-self/maps", &mut visit) {
        // Before Linux 3.17.
        Err(Errno::NOENT) => each_of(c"/proc/self/maps", &mut visit),
        read => read,
    }
}

fn each_of(path: &CStr, visit: &mut impl FnMut(&Mapping)) -> Result<(), Errno> {
    let mut head = Head::new();
    file::read_through(path, |byte| {
        if byte == b'\n' {
            if let Some(mapping) = parse(head.text()) {
                visit(&mapping);
            }
            head = Head::new();
        } else {
            head.push(byte);
        }
    })
}

/// A line's beginning: all but the path, which may be longer than any buffer of ours.
struct Head {
    buf: [u8; 128],
    len: usize,
}

impl Head {
    const fn new() -> Head {
        Head {
            buf: [0; 128],
            len: 0,
        }
    }
    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.buf.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }
    fn text(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or(&[])
    }
}

/// `7f..0-7f..f rw-s 00000000 fd:01 1234567   /path (deleted)`
fn parse(line: &[u8]) -> Option<Mapping> {
    let line = core::str::from_utf8(line.get(..line.len().min(96))?).or_else(|error| {
        // Cut inside a character of the path, which is of no interest.
        core::str::from_utf8(line.get(..error.valid_up_to()).unwrap_or(b""))
    });
    let mut fields = line.ok()?.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let letters = fields.next()?;
    let offset = fields.next()?;
    let inode = fields.nth(1)?;
    Some(Mapping {
        start: Addr::new(usize::from_str_radix(start, 16).ok()?),
        end: Addr::new(usize::from_str_radix(end, 16).ok()?),
        access: Access::of(
            letters.contains('r'),
            letters.contains('w'),
            letters.contains('x'),
        ),
        shared: letters.ends_with('s'),
        offset: Bytes::new(usize::from_str_radix(offset, 16).ok()?),
        inode: inode.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PAGE;
    use crate::os::file::{Seals, memfd};
    use crate::os::map;

    #[test]
    fn lines_are_read() {
        let line =
            b"7f1200000000-7f1200200000 rw-s 00403000 fd:01 9007199254740993  /a b (deleted)";
        let mapping = parse(line).unwrap();
        assert_eq!(mapping.start, Addr::new(0x7f12_0000_0000));
        assert_eq!(mapping.end, Addr::new(0x7f12_0020_0000));
        assert!(mapping.shared);
        assert_eq!(mapping.access, Access::ReadWrite);
        assert_eq!(mapping.offset, Bytes::new(0x40_3000));
        assert_eq!(mapping.inode, 9_007_199_254_740_993);
        let anonymous = parse(b"00400000-00401000 r--p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.shared, anonymous.inode), (false, 0));
        assert_eq!(anonymous.access, Access::Read);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn own_mappings_are_found_with_their_file() {
        let held = memfd(Seals::Forbidden).unwrap();
        let at = map::file_shared_anywhere(PAGE.times(3), held.fd(), Bytes::ZERO).unwrap();
        let anonymous = map::anywhere(PAGE, Access::ReadWrite).unwrap();
        let (mut file_seen, mut anonymous_seen, mut last) = (0, 0, Addr::new(0));
        each(|mapping| {
            assert!(mapping.start >= last, "ascending");
            last = mapping.end;
            if mapping.inode == held.identity().inode() && mapping.start == at {
                file_seen += 1;
                assert!(mapping.shared);
                assert_eq!(mapping.end, at.add(PAGE.times(3)));
            }
            if mapping.start <= anonymous && anonymous < mapping.end {
                anonymous_seen += 1;
                assert!(!mapping.shared);
            }
        })
        .unwrap();
        assert_eq!((file_seen, anonymous_seen), (1, 1));
        held.close();
    }
}
