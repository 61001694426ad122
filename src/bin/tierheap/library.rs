//! The library to preload: found, checked, and put before what is preloaded already.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use object::{Architecture, Object, ObjectSymbol};

use crate::{Refusal, report};

const NAME: &str = "libtierheap.so";

#[derive(Debug)]
pub struct Library {
    pub path: PathBuf,
    pub architecture: Architecture,
}

pub fn find() -> Result<Library, Refusal> {
    if let Some(path) = std::env::var_os("TIERHEAP_LIB").filter(|path| !path.is_empty()) {
        let path = std::path::absolute(&path).unwrap_or_else(|_| path.into());
        return inspect(path).map_err(|why| Refusal::usage(format!("TIERHEAP_LIB: {why}")));
    }
    let this = this_command();
    let beside = this.as_deref().and_then(Path::parent);
    for place in ["", "../lib", "../lib/tierheap"] {
        let Some(dir) = beside else { break };
        if let Ok(path) = dir.join(place).join(NAME).canonicalize() {
            return inspect(path).map_err(Refusal::usage);
        }
    }
    match by_loader() {
        Some(path) => inspect(path).map_err(Refusal::usage),
        None => Err(Refusal::usage(format!(
            "{NAME} is not found: it is looked for in TIERHEAP_LIB, beside this command, in ../lib \
             and ../lib/tierheap from there, and where the system's loader looks"
        ))),
    }
}

/// The file of this process: by /proc, and where that is not mounted (chroots) by the path that exec
/// was given.
fn this_command() -> Option<PathBuf> {
    std::env::current_exe().ok().or_else(|| {
        // SAFETY: reads a table that lives as long as the process.
        let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
        if path.is_null() {
            return None;
        }
        // SAFETY: the kernel left a terminated string there at exec.
        let path = unsafe { CStr::from_ptr(path) };
        Path::new(OsStr::from_bytes(path.to_bytes()))
            .canonicalize()
            .ok()
    })
}

/// Where the loader finds the plain name. Only loading asks all the places it knows: its cache,
/// LD_LIBRARY_PATH and the built-in folders.
fn by_loader() -> Option<PathBuf> {
    // SAFETY: the names are NUL-terminated. The library's constructors run in this process and
    // may not assume more than a loader's caller; its names stay local, so they replace nothing.
    unsafe {
        let handle = libc::dlopen(
            c"libtierheap.so".as_ptr(),
            libc::RTLD_LAZY | libc::RTLD_LOCAL,
        );
        if handle.is_null() {
            return None;
        }
        let symbol = libc::dlsym(handle, c"tierheap_version".as_ptr());
        let mut info: libc::Dl_info = std::mem::zeroed();
        if symbol.is_null() || libc::dladdr(symbol, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname);
        Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }
}

/// A library built without the feature `preload` loads well and changes nothing, so its table of
/// names is read before the program is started on it.
fn inspect(path: PathBuf) -> Result<Library, String> {
    let shown = path.display();
    let file = File::open(&path).map_err(|e| format!("{shown}: {}", report::plain(&e)))?;
    // SAFETY: private and read-only; nobody truncates the library between build and run.
    let data = unsafe { memmap2::Mmap::map(&file) }
        .map_err(|e| format!("{shown}: {}", report::plain(&e)))?;
    let elf = match object::File::parse(&*data) {
        Ok(elf) if elf.kind() == object::ObjectKind::Dynamic => elf,
        _ => return Err(format!("{shown}: not a shared library")),
    };
    let exports_malloc = elf
        .dynamic_symbols()
        .any(|s| s.is_definition() && s.name_bytes() == Ok(b"malloc"));
    if !exports_malloc {
        return Err(format!(
            "{shown}: exports no malloc, so preloading it changes nothing: build it with \
             cargo build --release --features preload,cli"
        ));
    }
    Ok(Library {
        architecture: elf.architecture(),
        path,
    })
}

/// The value of LD_PRELOAD: ours first, then what was there.
pub fn preload(library: &Library, before: Option<&OsStr>) -> Result<OsString, Refusal> {
    let ours = library.path.as_os_str().as_bytes();
    if ours.iter().any(|b| matches!(b, b':' | b' ')) {
        return Err(Refusal::usage(format!(
            "{}: LD_PRELOAD cannot name a path with a blank or a colon: set TIERHEAP_LIB to a copy or a link",
            library.path.display()
        )));
    }
    let mut list = vec![ours];
    let before = before.unwrap_or_default().as_bytes();
    list.extend(
        before
            .split(|b| matches!(b, b':' | b' '))
            .filter(|path| !path.is_empty() && *path != ours),
    );
    Ok(OsString::from_vec(list.join(&b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_once() {
        let library = |path: &str| Library {
            path: path.into(),
            architecture: Architecture::X86_64,
        };
        let ours = library("/l/libtierheap.so");
        let list = |before: &str| preload(&ours, Some(OsStr::new(before))).unwrap();
        assert_eq!(preload(&ours, None).unwrap(), "/l/libtierheap.so");
        assert_eq!(list(""), "/l/libtierheap.so");
        assert_eq!(list("/a.so b.so"), "/l/libtierheap.so:/a.so:b.so");
        assert_eq!(list("/a.so:/l/libtierheap.so"), "/l/libtierheap.so:/a.so");
        assert!(preload(&library("/a b/libtierheap.so"), None).is_err());
    }
}
