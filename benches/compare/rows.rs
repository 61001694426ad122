//! The allocators compared, and which of them can be had here.

use crate::peers::{self, PEERS};
use crate::support::{self, Allocator, find_library};
use std::path::Path;

/// One column of the tables.
pub struct Column {
    pub allocator: Allocator,
    pub peer: bool,
    /// Of the crate, where it came from one.
    pub version: Option<String>,
}

/// Debian's shared libraries: the name here, the soname, the package.
const DEBIAN: &[(&str, &str, &str)] = &[
    ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
    (
        "tcmalloc",
        "libtcmalloc_minimal.so.4",
        "libtcmalloc-minimal4",
    ),
    ("tbbmalloc", "libtbbmalloc_proxy.so.2", "libtbbmalloc2"),
    ("memtier", "libmemtier.so.0", "libmemkind0"),
];

pub const NAMES: &[&str] = &[
    "glibc",
    "jemalloc",
    "mimalloc",
    "tcmalloc",
    "tbbmalloc",
    "memtier",
    "jemalloc-newest",
    "mimalloc-newest",
    "snmalloc-newest",
    "tierheap",
    "tierheap-memfd",
];

/// The columns of these names, and the names that cannot be had with why.
pub fn columns(wanted: &[&str], peers_dir: &Path) -> (Vec<Column>, Vec<(String, String)>) {
    let (mut columns, mut missing) = (Vec::new(), Vec::new());
    let mut ours = None;
    for name in wanted {
        match one(name, peers_dir, &mut ours) {
            Ok(Some(column)) => columns.push(column),
            Ok(None) => {}
            Err(why) => missing.push((name.to_string(), why)),
        }
    }
    (columns, missing)
}

fn one(
    name: &str,
    peers_dir: &Path,
    ours: &mut Option<Allocator>,
) -> Result<Option<Column>, String> {
    let peer = |allocator, version| {
        Ok(Some(Column {
            allocator,
            peer: true,
            version,
        }))
    };
    if name == "glibc" {
        return peer(support::glibc(), None);
    }
    if let Some((_, soname, package)) = DEBIAN.iter().find(|d| d.0 == name) {
        let library = find_library(soname);
        let library =
            library.ok_or_else(|| format!("not installed: the Debian package {package} has it"))?;
        let mut row = Allocator::new(name, Some(library));
        if name == "memtier" {
            // Without one it refuses to start.
            let all = "KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO";
            row = row.with(name, "MEMKIND_MEM_TIERS", all);
        }
        return peer(row, None);
    }
    if let Some(p) = PEERS
        .iter()
        .find(|p| name == format!("{}-newest", p.feature))
    {
        let (library, version) =
            peers::build(p, peers_dir).map_err(|why| format!("not built: {why}"))?;
        return peer(Allocator::new(name, Some(library)), Some(version));
    }
    if ours.is_none() {
        *ours = support::tierheap();
    }
    let policy = match name {
        "tierheap" => "policy=dram",
        _ => "cold=memfd;policy=size;threshold=4K",
    };
    Ok(ours.as_ref().map(|row| Column {
        allocator: row.with(name, "TIERHEAP", policy),
        peer: false,
        version: None,
    }))
}
