//! The newest peers, as shared libraries that can be preloaded.
//!
//! The package `benches/peers` fetches and compiles their crates; what those are made for is to be
//! linked into Rust programs, so what counts here is the archive that each build script leaves.
//! It becomes a shared library by the C compiler, not as a `cdylib`, whose exports are those of
//! Rust code alone: the calls of the malloc family would be one jump longer than the peer's own.

use crate::support::fail;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Peer {
    pub feature: &'static str,
    package: &'static str,
    archive: &'static str,
    linker: &'static str,
    /// What the archive puts before the names of the malloc family.
    prefix: &'static str,
}

pub const PEERS: &[Peer] = &[
    Peer {
        feature: "jemalloc",
        package: "tikv-jemalloc-sys",
        archive: "lib/libjemalloc_pic.a",
        linker: "cc",
        prefix: "",
    },
    Peer {
        feature: "mimalloc",
        package: "libmimalloc-sys",
        archive: "libmimalloc.a",
        linker: "cc",
        prefix: "",
    },
    // Its crate has no unprefixed names. C++'s operators are then libstdc++'s, which call malloc.
    Peer {
        feature: "snmalloc",
        package: "snmalloc-sys",
        archive: "libsnmallocshim-rust.a",
        linker: "c++",
        prefix: "sn_",
    },
];

const FAMILY: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "cfree",
];

/// The library and the version of its crate, or why there is none.
pub fn build(peer: &Peer, target: &Path) -> Result<(PathBuf, String), String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/Cargo.toml");
    eprintln!("building the peer {}", peer.feature);
    let mut cmd = Command::new("timeout");
    cmd.args(["1800", env!("CARGO"), "build", "--locked", "--release"])
        .args(["--message-format", "json", "--features", peer.feature])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(target);
    // The crate's build script leaves snmalloc's assertions in.
    cmd.env("CXXFLAGS", "-DNDEBUG");
    let built = cmd
        .output()
        .unwrap_or_else(|e| fail(format!("cannot run cargo: {e}")));
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        let why = said.lines().find(|l| l.trim_start().starts_with("error"));
        return Err(format!("cargo: {}", why.unwrap_or("timed out").trim()));
    }
    let said = String::from_utf8_lossy(&built.stdout);
    let (out, version) = said
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .find_map(|m| script_of(peer, &m))
        .ok_or("its build script has not run")?;
    let library = target.join(format!("lib{}-newest.so", peer.feature));
    link(peer, &out.join(peer.archive), &library)?;
    Ok((library, version))
}

/// From cargo's message that this peer's build script ran: its folder, and the version.
fn script_of(peer: &Peer, message: &Value) -> Option<(PathBuf, String)> {
    if message["reason"] != "build-script-executed" {
        return None;
    }
    // registry+https://...#name@version
    let (name, version) = message["package_id"]
        .as_str()?
        .rsplit_once('#')?
        .1
        .split_once('@')?;
    (name == peer.package).then_some(())?;
    Some((message["out_dir"].as_str()?.into(), version.to_string()))
}

fn link(peer: &Peer, archive: &Path, library: &Path) -> Result<(), String> {
    // Beside it and then renamed: another run may have the old one mapped.
    let new = library.with_extension("so.new");
    let mut cmd = Command::new(peer.linker);
    cmd.args(["-shared", "-pthread", "-Wl,--whole-archive"])
        .arg(archive)
        .arg("-Wl,--no-whole-archive");
    if !peer.prefix.is_empty() {
        cmd.args(
            FAMILY
                .iter()
                .map(|f| format!("-Wl,--defsym={f}={}{f}", peer.prefix)),
        );
    }
    let ran = cmd
        .arg("-o")
        .arg(&new)
        .output()
        .map_err(|e| format!("no {}: {e}", peer.linker))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!(
            "linking: {}",
            said.lines().last().unwrap_or_default()
        ));
    }
    std::fs::rename(&new, library).map_err(|e| e.to_string())
}
