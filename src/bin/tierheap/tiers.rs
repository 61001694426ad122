//! One tier, tried for real: what the library will do with it is done once here, on one segment,
//! so that what fails there fails before the program is started.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::base::SEGMENT;
use crate::base::config::{Backing, NodeSet, TierSpec};
use crate::{machine, report};

/// What was found out about a tier.
#[derive(Debug, Default)]
pub struct Tried {
    /// As the configuration names it.
    pub name: String,
    /// What backs it, in a few words.
    pub what: String,
    /// Room for the tier, where the backing knows.
    pub free: Option<u64>,
    /// Whether the bytes are reached without a page cache; `None` where that is no question.
    pub dax: Option<bool>,
    /// Facts worth knowing.
    pub notes: Vec<String>,
    /// What the user may not have meant.
    pub warnings: Vec<String>,
    /// Why the tier cannot be used.
    pub refused: Option<String>,
}

pub fn check(spec: &TierSpec) -> Tried {
    let mut tried = Tried::default();
    let result = match spec.backing {
        Backing::FsDax(dir) => {
            tried.name = format!("fsdax:{}", String::from_utf8_lossy(dir));
            try_directory(&mut tried, Path::new(OsStr::from_bytes(dir)), true)
        }
        Backing::File { dir, dax_expected } => {
            tried.name = format!("file:{}", String::from_utf8_lossy(dir));
            let result = try_directory(&mut tried, Path::new(OsStr::from_bytes(dir)), false);
            if dax_expected && tried.dax == Some(false) {
                tried
                    .warnings
                    .push("FS_DAX was asked for, but the directory is not DAX".into());
            }
            result
        }
        Backing::Node(set) => {
            tried.name = format!("node:{set}");
            try_nodes(&mut tried, &set)
        }
        Backing::KmemNodes => {
            tried.name = "KMEM_DAX".into();
            try_kmem(&mut tried)
        }
        Backing::Memfd => {
            tried.name = "memfd".into();
            try_memfd(&mut tried)
        }
    };
    tried.refused = result.err();
    if let Some(limit) = spec.limit.map(|limit| limit.get() as u64) {
        if limit < SEGMENT.get() as u64 {
            let (limit, segment) = (report::size(limit), report::size(SEGMENT.get() as u64));
            tried.warnings.push(format!(
                "the limit {limit} is less than one segment ({segment})"
            ));
        }
        if let Some(free) = tried.free.filter(|&free| limit > free) {
            let (limit, free) = (report::size(limit), report::size(free));
            tried.warnings.push(format!(
                "the limit {limit} is more than the {free} that are free"
            ));
        }
    }
    tried
}

fn says(what: &str) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("{what}: {}", report::plain(&error))
}

fn try_directory(tried: &mut Tried, dir: &Path, must_be_dax: bool) -> Result<(), String> {
    let found = dir.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "no such directory".to_string(),
        _ => report::plain(&error),
    })?;
    if !found.is_dir() {
        return Err("not a directory".into());
    }
    let mount = machine::mount_of(dir);
    let fstype = match &mount {
        Some(mount) => mount.fstype.as_str(),
        // Without /proc.
        None if is_tmpfs(dir) => "tmpfs",
        None => "unknown",
    };
    tried.what = format!("{fstype} file");
    tried.free = free_space(dir);

    let file = unnamed_file(tried, dir)?;
    let dax = is_dax(&file);
    tried.dax = Some(dax);
    if dax {
        tried.what = format!("{fstype} DAX file");
    } else if must_be_dax {
        let option = mount.as_ref().and_then(machine::Mount::dax);
        let option = option.map_or("is not mounted with dax".into(), |o| format!("says {o}"));
        return Err(format!(
            "not DAX: MAP_SYNC is refused ({fstype}, which {option}); mount it with -o dax=always, or use file:"
        ));
    } else if fstype == "tmpfs" || fstype == "ramfs" {
        tried.what = format!("{fstype} file, which is DRAM or swap");
        tried
            .notes
            .push("this file system is DRAM itself: the tier saves none".into());
    } else {
        let limit = machine::memory_limit().shown();
        tried.what = format!("{fstype} file through the page cache");
        tried.notes.push(format!(
            "its pages in the page cache count against the memory limit of this control group ({limit})"
        ));
    }

    try_extent(tried, &file)
}

fn unnamed_file(tried: &mut Tried, dir: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(dir);
    match unnamed {
        Ok(file) => Ok(file),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL | libc::ENOENT)
            ) =>
        {
            let path = dir.join(format!(".tierheap-{}-check", std::process::id()));
            let file = options
                .create_new(true)
                .open(&path)
                .map_err(says("cannot make a file"))?;
            std::fs::remove_file(&path).map_err(says("cannot remove a file"))?;
            tried
                .notes
                .push("no O_TMPFILE here: the file has a name for a moment".into());
            Ok(file)
        }
        Err(error) => Err(says("cannot make a file")(error)),
    }
}

/// Allocates, maps, writes, reads and gives back one segment.
fn try_extent(tried: &mut Tried, file: &File) -> Result<(), String> {
    let len = SEGMENT.get();
    if let Some(most) = machine::rlimit(libc::RLIMIT_FSIZE) {
        let size = report::size(most);
        tried
            .warnings
            .push(format!("RLIMIT_FSIZE lets the tier hold {size}, no more"));
        if most < len as u64 {
            // Trying would be answered by SIGXFSZ, from a memfd no less than from a disk.
            return Ok(());
        }
    }
    allocate(file, 0, len).map_err(|error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => {
            "this file system cannot allocate ahead (fallocate), so a full disk would kill the program"
                .to_string()
        }
        _ => says("no room for one segment of 2M")(error),
    })?;
    // SAFETY: the file has no name and no other holder, so nobody truncates it while it is mapped.
    let mut map = unsafe { memmap2::MmapOptions::new().len(len).map_mut(file) }
        .map_err(says("cannot map a file"))?;
    for at in [0, len / 2, len - 1] {
        map[at] = 0x5a;
    }
    drop(map);
    if allocate(
        file,
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        len,
    )
    .is_err()
    {
        tried
            .warnings
            .push("no holes can be punched: freed space is reused, not given back".into());
    }
    Ok(())
}

fn allocate(file: &File, mode: libc::c_int, len: usize) -> io::Result<()> {
    // SAFETY: the descriptor is open for writing while `file` is borrowed.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, len as libc::off_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Only a DAX file takes MAP_SYNC, and only with MAP_SHARED_VALIDATE is it looked at. The file may
/// be empty: nothing is touched.
fn is_dax(file: &File) -> bool {
    let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
    let (len, rights) = (SEGMENT.get(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice; it is not touched, and unmapped
    // at once with the length it was made with.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            len,
            rights,
            flags,
            file.as_raw_fd(),
            0,
        );
        at != libc::MAP_FAILED && libc::munmap(at, len) == 0
    }
}

/// Whether a mount really is DAX, for doctor; an error says why that is not known.
pub fn directory_is_dax(dir: &Path) -> Result<bool, String> {
    unnamed_file(&mut Tried::default(), dir).map(|file| is_dax(&file))
}

fn is_tmpfs(dir: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: statfs is plain numbers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is NUL-terminated and `found` a valid place for the answer.
    let result = unsafe { libc::statfs(path.as_ptr(), &mut found) };
    result == 0 && found.f_type == libc::TMPFS_MAGIC
}

pub fn free_space(dir: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).ok()?;
    // SAFETY: statvfs is plain numbers, for which zero is a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is NUL-terminated and `found` a valid place for the answer.
    let result = unsafe { libc::statvfs(path.as_ptr(), &mut found) };
    (result == 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

fn try_memfd(tried: &mut Tried) -> Result<(), String> {
    tried.what = "memory file in DRAM or swap".into();
    // SAFETY: the name is NUL-terminated.
    let fd: RawFd = unsafe { libc::memfd_create(c"tierheap-check".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(says("memfd_create")(io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was made just now and has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    try_extent(tried, &file)?;
    tried
        .notes
        .push("this is DRAM itself: for trials and for explicit kinds".into());
    Ok(())
}

fn try_kmem(tried: &mut Tried) -> Result<(), String> {
    let mut set = NodeSet::EMPTY;
    for node in machine::nodes()
        .iter()
        .filter(|node| node.total > 0 && node.cpus.is_empty())
    {
        set.insert(node.id);
    }
    if set.is_empty() {
        return Err("this machine has no memory node without processors".into());
    }
    try_nodes(tried, &set)
}

fn try_nodes(tried: &mut Tried, set: &NodeSet) -> Result<(), String> {
    tried.what = "memory node".into();
    let known = machine::nodes();
    if known.is_empty() {
        return Err(
            "the nodes of this machine are not to be seen in /sys/devices/system/node".into(),
        );
    }
    let listed = known
        .iter()
        .map(|node| node.id.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let mut free = 0;
    for id in set.iter() {
        let node = known
            .iter()
            .find(|node| node.id == id)
            .ok_or_else(|| format!("there is no node {id}: this machine's nodes are {listed}"))?;
        if node.total == 0 {
            return Err(format!("node {id} has no memory"));
        }
        if !node.cpus.is_empty() {
            let cpus = &node.cpus;
            tried.warnings.push(format!(
                "node {id} has processors ({cpus}): it is fast memory"
            ));
        }
        free += node.free;
    }
    tried.free = Some(free);
    bind(set).map_err(says("mbind"))
}

fn bind(set: &NodeSet) -> io::Result<()> {
    const MPOL_BIND: libc::c_long = 2;
    let map = memmap2::MmapMut::map_anon(SEGMENT.get())?;
    let mask = set.words();
    // SAFETY: the range is the mapping above, which is not touched afterwards; the mask has one
    // bit for each node up to MAX_NODE, and the kernel reads one bit less than the number given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            map.as_ptr(),
            map.len(),
            MPOL_BIND,
            mask.as_ptr(),
            NodeSet::MAX_NODE as libc::c_long + 2,
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
