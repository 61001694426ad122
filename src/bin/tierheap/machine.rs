//! What the kernel says about this machine, read from its files.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A line of /proc/self/mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub fstype: String,
    pub source: String,
    /// The mount's own options and the file system's.
    pub options: Vec<String>,
}

impl Mount {
    /// The DAX option as it stands there (`dax`, `dax=always`, `dax=inode`); not `dax=never`.
    pub fn dax(&self) -> Option<&str> {
        let mut options = self.options.iter().map(String::as_str);
        options.find(|o| (*o == "dax" || o.starts_with("dax=")) && *o != "dax=never")
    }
}

pub fn mounts() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&b| b == b'\n').filter_map(mount).collect()
}

/// `ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPEROPTIONS`
fn mount(line: &[u8]) -> Option<Mount> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mut fields = line.split(|&b| b == b' ').skip(4);
    let point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let own = text(fields.next()?);
    let mut fields = fields.skip_while(|f| *f != b"-").skip(1);
    let (fstype, source) = (text(fields.next()?), text(fields.next()?));
    let of_super = text(fields.next().unwrap_or_default());
    let options = own
        .split(',')
        .chain(of_super.split(','))
        .map(str::to_string)
        .collect();
    Some(Mount {
        point,
        fstype,
        source,
        options,
    })
}

/// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// The mount that holds `path`: the deepest point above it, of several there the last.
pub fn mount_of(path: &Path) -> Option<Mount> {
    let path = path.canonicalize().ok()?;
    let above = mounts().into_iter().filter(|m| path.starts_with(&m.point));
    above.max_by_key(|m| m.point.components().count())
}

/// A NUMA node.
#[derive(Debug, Clone)]
pub struct Node {
    pub id: u32,
    /// As sysfs lists them; empty for a node of memory alone.
    pub cpus: String,
    pub total: u64,
    pub free: u64,
}

pub fn nodes() -> Vec<Node> {
    let mut nodes: Vec<Node> = fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()
        })
        .map(|id: u32| {
            let dir = format!("/sys/devices/system/node/node{id}");
            let memory = read(format!("{dir}/meminfo")).unwrap_or_default();
            // `Node 0 MemTotal:       24684092 kB`
            let field = |name: &str| {
                let line = memory.lines().find(|l| l.contains(name))?;
                line.split_whitespace().rev().nth(1)?.parse::<u64>().ok()
            };
            Node {
                id,
                cpus: read(format!("{dir}/cpulist")).unwrap_or_default(),
                total: field("MemTotal:").unwrap_or(0) << 10,
                free: field("MemFree:").unwrap_or(0) << 10,
            }
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// A device on the dax bus.
#[derive(Debug, Clone)]
pub struct DaxDevice {
    pub name: String,
    pub size: u64,
    /// `device_dax`: a devdax device; `kmem`: its memory is the node `target`.
    pub driver: String,
    pub target: Option<u32>,
}

pub fn dax_devices() -> Vec<DaxDevice> {
    let mut devices: Vec<DaxDevice> = fs::read_dir("/sys/bus/dax/devices")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let dir = entry.ok()?.path();
            let driver = fs::read_link(dir.join("driver")).ok();
            let driver = driver
                .as_deref()
                .and_then(Path::file_name)
                .map(OsStr::to_string_lossy);
            let number = |name: &str| read(dir.join(name))?.parse::<i64>().ok();
            Some(DaxDevice {
                name: dir.file_name()?.to_string_lossy().into_owned(),
                size: number("size").unwrap_or(0).max(0) as u64,
                driver: driver.map_or_else(|| "none".into(), |d| d.into_owned()),
                target: number("target_node").and_then(|n| u32::try_from(n).ok()),
            })
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// Persistent memory block devices: `pmem0`, …
pub fn pmem_disks() -> Vec<String> {
    let names = fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok());
    let mut names: Vec<String> = names
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| name.starts_with("pmem"))
        .collect();
    names.sort();
    names
}

/// A small kernel file, trimmed.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_string())
}

/// The word in brackets: `always [madvise] never`.
pub fn chosen(path: &str) -> Option<String> {
    let text = read(path)?;
    let inner = text.split_once('[')?.1.split_once(']')?.0;
    Some(inner.to_string())
}

pub fn memory_total() -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

pub fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into())
}

/// What bounds the memory of this process's control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryLimit {
    Bytes(u64),
    Unlimited,
    /// Neither /proc nor the control groups are to be seen here.
    Unknown,
}

impl MemoryLimit {
    pub fn shown(self) -> String {
        match self {
            MemoryLimit::Bytes(bytes) => crate::report::size(bytes),
            MemoryLimit::Unlimited => "unlimited".into(),
            MemoryLimit::Unknown => "unknown".into(),
        }
    }
}

/// The least memory limit of this process's control groups.
pub fn memory_limit() -> MemoryLimit {
    let Some(groups) = read("/proc/self/cgroup") else {
        return MemoryLimit::Unknown;
    };
    let mut least: Option<u64> = None;
    let (mut asked, mut mounted) = (false, false);
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (roots, file): (&[&str], _) = match controllers {
            "" => (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max"),
            "memory" => (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes"),
            _ => continue,
        };
        asked = true;
        for root in roots {
            // Not memory.max, which the root of version 2 lacks.
            mounted |= Path::new(root).join("cgroup.procs").exists();
            let group = Path::new(root).join(path.trim_start_matches('/'));
            for dir in group.ancestors().take_while(|dir| dir.starts_with(root)) {
                // "max" does not parse; version 1 writes a number near 2^63 for no limit.
                let limit = read(dir.join(file)).and_then(|text| text.parse::<u64>().ok());
                if let Some(limit) = limit.filter(|&n| n < 1 << 62) {
                    least = Some(least.map_or(limit, |n| n.min(limit)));
                }
            }
        }
    }
    match least {
        Some(limit) => MemoryLimit::Bytes(limit),
        None if asked && !mounted => MemoryLimit::Unknown,
        None => MemoryLimit::Unlimited,
    }
}

/// A resource limit's soft value; `None` is unlimited.
pub fn rlimit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for one rlimit.
    let result = unsafe { libc::getrlimit(resource, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Why a file could not be appended to, or made, at `path`; nothing is made.
pub fn cannot_append(path: &Path) -> Option<String> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Some("is a directory".into()),
        Ok(_) => denied(path, libc::W_OK),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = dir.unwrap_or(Path::new("."));
            let why = denied(dir, libc::W_OK | libc::X_OK)?;
            Some(format!("{}: {why}", dir.display()))
        }
        Err(error) => Some(crate::report::plain(&error)),
    }
}

fn denied(path: &Path, access: libc::c_int) -> Option<String> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    let result =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), access, libc::AT_EACCESS) };
    (result != 0).then(|| crate::report::plain(&std::io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_line_is_read_with_its_options_and_escapes() {
        let line = b"36 35 98:0 / /mnt/a\\040b\\134 rw,noatime master:1 shared:2 - ext4 /dev/pmem0 rw,dax=always";
        let mount = mount(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/a b\\"));
        assert_eq!((&*mount.fstype, &*mount.source), ("ext4", "/dev/pmem0"));
        assert_eq!(mount.dax(), Some("dax=always"));
        let plain =
            super::mount(b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,dax=never").unwrap();
        assert_eq!(plain.dax(), None);
        assert_eq!(super::mount(b""), None);
        assert_eq!(super::mount(b"1 2 3:4 / /x rw"), None);
    }

    #[test]
    fn the_root_is_mounted_and_deeper_mounts_win() {
        assert_eq!(mount_of(Path::new("/")).unwrap().point, Path::new("/"));
        assert_eq!(mount_of(Path::new("/proc/self")).unwrap().fstype, "proc");
    }
}
