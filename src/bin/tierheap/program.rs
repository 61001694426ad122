//! The program to run: where it is, and whether the loader will preload into it.

use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Object;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::Refusal;
use crate::library::Library;

/// As a shell finds it: a name with a slash is a path, another is searched for in PATH.
pub fn find(name: &OsStr) -> Result<PathBuf, Refusal> {
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Err(error) => {
                let status = if error.raw_os_error() == Some(libc::ENOENT) {
                    127
                } else {
                    126
                };
                let error = crate::report::plain(&error);
                Err(Refusal {
                    status,
                    message: format!("{shown}: {error}"),
                })
            }
            Ok(found) if found.is_dir() => Err(Refusal {
                status: 126,
                message: format!("{shown}: is a directory"),
            }),
            Ok(_) if !executable(&path) => Err(Refusal {
                status: 126,
                message: format!("{shown}: not executable"),
            }),
            Ok(_) => Ok(path),
        };
    }
    // What `execvp` searches where PATH is not set.
    let list = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut there = None;
    for dir in std::env::split_paths(&list) {
        // An empty entry is the current directory; a slash keeps `execvp` from a search of its own.
        let dir = if dir.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            dir
        };
        let path = dir.join(name);
        match path.metadata() {
            Ok(found) if found.is_file() && executable(&path) => return Ok(path),
            Ok(found) if found.is_file() => there = Some(path),
            _ => {}
        }
    }
    Err(match there {
        Some(path) => Refusal {
            status: 126,
            message: format!("{}: not executable", path.display()),
        },
        None => Refusal {
            status: 127,
            message: format!("{shown}: program not found in PATH"),
        },
    })
}

fn executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Why a preloaded library would be left out without a word, if it would.
pub fn ignores_preload(file: &Path, library: &Library) -> Option<String> {
    // The kernel follows scripts four deep.
    let mut file = file.to_path_buf();
    for _ in 0..4 {
        match interpreter(&file) {
            Some(next) => file = next,
            None => break,
        }
    }
    let opened = File::open(&file).ok()?;
    let metadata = opened.metadata().ok()?;
    // SAFETY: these calls take no argument and cannot fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    if gains_privilege(&metadata, uid, gid) || (uid != 0 && has_capabilities(&file)) {
        return Some("set to run with other privileges (setuid, setgid or capabilities)".into());
    }
    // SAFETY: the mapping is private and read-only; a program file that is truncated while it is
    // started would fault here as it would in the program.
    let data = unsafe { memmap2::Mmap::map(&opened) }.ok()?;
    let object::File::Elf64(elf) = object::File::parse(&*data).ok()? else {
        return Some("no 64-bit program".into());
    };
    if elf.architecture() != library.architecture {
        let other = elf.architecture();
        return Some(format!("for another architecture ({other:?})"));
    }
    let endian = elf.elf_header().endian().ok()?;
    let dynamic = elf
        .elf_program_headers()
        .iter()
        .any(|header| header.p_type(endian) == object::elf::PT_INTERP);
    if dynamic {
        None
    } else {
        Some("statically linked".into())
    }
}

fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut head = [0u8; 256];
    let len = File::open(file).ok()?.read(&mut head).ok()?;
    let line = head[..len]
        .strip_prefix(b"#!")?
        .split(|&b| b == b'\n')
        .next()?;
    let word = line
        .trim_ascii_start()
        .split(|b| b.is_ascii_whitespace())
        .next()?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// Whether the bits on the file make it run as somebody else, in which case the loader drops
/// LD_PRELOAD paths. Set-group-ID without group execution meant mandatory locking.
fn gains_privilege(file: &Metadata, uid: u32, gid: u32) -> bool {
    gains(file.mode(), (file.uid(), file.gid()), (uid, gid))
}

fn gains(mode: u32, owner: (u32, u32), caller: (u32, u32)) -> bool {
    let other_user = mode & libc::S_ISUID != 0 && owner.0 != caller.0;
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    let other_group = mode & group_bits == group_bits && owner.1 != caller.1;
    other_user || other_group
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both strings are NUL-terminated; a null buffer of length 0 asks for the length only.
    unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::gains;

    #[test]
    fn only_bits_that_change_who_runs_count() {
        assert!(
            gains(0o4755, (0, 0), (1000, 1000)),
            "setuid root, run by a user"
        );
        assert!(!gains(0o4755, (0, 0), (0, 0)), "setuid root, run by root");
        assert!(
            !gains(0o4755, (1000, 1000), (1000, 1000)),
            "setuid to oneself"
        );
        assert!(gains(0o2755, (0, 42), (1000, 1000)), "setgid");
        assert!(!gains(0o2745, (0, 42), (1000, 1000)), "mandatory locking");
        assert!(!gains(0o755, (0, 0), (1000, 1000)));
    }
}
