//! What a row is run against: a library to preload, and the configurations it has.

use crate::common;
use crate::support::installed;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to configure an allocator: variables in which `{}` stands for a folder on a disk.
#[derive(Clone, Debug)]
pub struct Config {
    pub label: String,
    pub variables: Vec<(&'static str, String)>,
}

impl Config {
    pub fn new(label: impl Into<String>, variables: &[(&'static str, &str)]) -> Config {
        Config {
            label: label.into(),
            variables: variables.iter().map(|(k, v)| (*k, v.to_string())).collect(),
        }
    }
    /// tierheap's, by its one variable; the empty text is none.
    pub fn own(label: impl Into<String>, text: &str) -> Config {
        let variables: &[_] = &[("TIERHEAP", text)];
        Config::new(label, if text.is_empty() { &[] } else { variables })
    }
    /// May blocks lie in slower memory under it?
    pub fn tiered(&self) -> bool {
        let words = ["cold=", "FS_DAX"];
        let mut values = self.variables.iter().map(|(_, v)| v);
        values.any(|v| words.iter().any(|w| v.contains(w)))
    }
    /// In files on a disk, that is.
    pub fn in_file(&self) -> bool {
        let mut values = self.variables.iter().map(|(_, v)| v);
        self.tiered() && values.any(|v| v.contains("{}") && !v.contains("memfd"))
    }
}

/// How an allocator is told to put every block into a slower tier with a limit.
type Tiers = fn(limit: &str) -> Vec<Config>;

pub struct Allocator {
    pub name: String,
    pub version: String,
    /// None: the C library's own.
    pub library: Option<PathBuf>,
    pub configs: Vec<Config>,
    pub tiers: Option<Tiers>,
    /// A variable that makes it print something or keep a file, for the row of setuid programs.
    pub telltale: Option<(&'static str, &'static str)>,
    /// tierheap: it is held to more, by programs that know its calls.
    pub own: bool,
}

impl Allocator {
    fn peer(name: &str, soname: &str, package: &str) -> Allocator {
        let library = installed(soname, package);
        Allocator {
            version: packaged(package),
            ..Allocator::at(name, library)
        }
    }

    /// A library by its path, of which nothing more is known.
    pub fn at(name: &str, library: PathBuf) -> Allocator {
        Allocator {
            name: name.to_string(),
            version: String::new(),
            library: Some(library),
            configs: vec![Config::new("as it is", &[])],
            tiers: None,
            telltale: None,
            own: false,
        }
    }
}

/// The upstream part of the version of an installed package.
fn packaged(package: &str) -> String {
    let mut cmd = Command::new("dpkg-query");
    let out = cmd.args(["-W", "-f", "${Version}", package]).output();
    let version = out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let version = version.unwrap_or_default();
    let upstream = version.rsplit_once('-').map_or(&*version, |(v, _)| v);
    upstream.trim_end_matches("+ds").to_string()
}

pub const NAMES: [&str; 7] = [
    "glibc",
    "jemalloc",
    "mimalloc",
    "tcmalloc",
    "tbbmalloc",
    "memtier",
    "tierheap",
];

pub fn by_name(name: &str) -> Option<Allocator> {
    let telling = |key, value, peer: Allocator| Allocator {
        telltale: Some((key, value)),
        ..peer
    };
    Some(match name {
        "glibc" => Allocator {
            version: packaged("libc6"),
            library: None,
            ..Allocator::at("glibc", PathBuf::new())
        },
        "jemalloc" => telling(
            "MALLOC_CONF",
            "stats_print:true",
            Allocator::peer("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
        ),
        "mimalloc" => telling(
            "MIMALLOC_VERBOSE",
            "1",
            Allocator::peer("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
        ),
        "tcmalloc" => telling(
            "MALLOCSTATS",
            "1",
            Allocator::peer(
                "tcmalloc",
                "libtcmalloc_minimal.so.4",
                "libtcmalloc-minimal4",
            ),
        ),
        "tbbmalloc" => telling(
            "TBB_VERSION",
            "1",
            Allocator::peer("tbbmalloc", "libtbbmalloc_proxy.so.2", "libtbbmalloc2"),
        ),
        "memtier" => Allocator {
            configs: vec![
                Config::new(
                    "dram",
                    &[("MEMKIND_MEM_TIERS", "KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO")],
                ),
                Config::new(
                    "file",
                    &[(
                        "MEMKIND_MEM_TIERS",
                        "KIND:DRAM,RATIO:1;KIND:FS_DAX,PATH:{},PMEM_SIZE_LIMIT:4G,RATIO:4;POLICY:STATIC_RATIO",
                    )],
                ),
            ],
            tiers: Some(memtier_in_a_file),
            telltale: Some((
                "MEMKIND_MEM_TIERS",
                "KIND:FS_DAX,PATH:{},PMEM_SIZE_LIMIT:1G,RATIO:1;POLICY:STATIC_RATIO",
            )),
            ..Allocator::peer("memtier", "libmemtier.so.0", "libmemkind0")
        },
        "tierheap" => Allocator {
            version: env!("CARGO_PKG_VERSION").to_string(),
            configs: own_configs(),
            tiers: Some(own_tiers),
            telltale: Some(("TIERHEAP", "cold=file:{};policy=cold;stats=1")),
            own: true,
            ..Allocator::at("tierheap", common::library())
        },
        _ => return None,
    })
}

fn memtier_in_a_file(limit: &str) -> Vec<Config> {
    let text = format!("KIND:FS_DAX,PATH:{{}},PMEM_SIZE_LIMIT:{limit},RATIO:1;POLICY:STATIC_RATIO");
    vec![Config::new("file", &[("MEMKIND_MEM_TIERS", &text)])]
}

fn own_tiers(limit: &str) -> Vec<Config> {
    let under = |backing| format!("cold={backing},limit:{limit};policy=cold;strict=1");
    vec![
        Config::own("file", &under("file:{}")),
        Config::own("memfd", &under("memfd")),
    ]
}

/// Every policy, with the slower tier in a file on a disk and in a memory file.
fn own_configs() -> Vec<Config> {
    let mut configs = vec![
        Config::own("default", ""),
        Config::own("dram", "policy=dram"),
    ];
    for (policy, words) in [
        ("cold", ""),
        ("size", ";threshold=1K"),
        ("ratio", ";ratio=1:3"),
        ("auto", ";ratio=1:1"),
        ("heat", ";threshold=4K;dram=64M"),
    ] {
        for (label, backing) in [("file", "file:{}"), ("memfd", "memfd")] {
            configs.push(Config::own(
                format!("{policy}-{label}"),
                &format!("cold={backing};policy={policy}{words}"),
            ));
        }
    }
    configs.push(Config::own(
        "heat-two",
        "cold=memfd,limit:64M;cold=file:{};policy=heat;dram=64M",
    ));
    configs
}

/// Replaces `{}` by a folder.
pub fn within(text: &str, folder: &Path) -> String {
    text.replace("{}", &folder.display().to_string())
}
