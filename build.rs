//! The link arguments of the shared library, and (feature `header`) the C header.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // A thread that ends calls the library (a pthread key's destructor), and other libraries
        // hold blocks of its making: `dlclose` must not unmap it.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Preloaded from one folder and linked from another it must stay one heap: the loader
        // takes a library that a program needs for loaded if the sonames agree.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtierheap.so");
        // Without std nothing else asks for the C library: its symbols would have no versions, and
        // pthread_atfork, which lies in its static part, would be missing.
        println!("cargo::rustc-cdylib-link-arg=-lc");
    }
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    // For build scripts of crates that compile C beside us: DEP_TIERHEAP_INCLUDE.
    println!("cargo::metadata=include={root}/include");
    #[cfg(feature = "header")]
    {
        println!("cargo::rerun-if-changed=src/api/c.rs");
        println!("cargo::rerun-if-changed=cbindgen.toml");
        // Only there: the sources may be read-only.
        let out = std::env::var("OUT_DIR").unwrap();
        std::fs::write(format!("{out}/tierheap.h"), header::text(root.as_ref())).unwrap();
    }
}

/// `tests/header.rs` includes this file to compare the committed header with what is made now.
#[cfg(any(feature = "header", test))]
pub mod header {
    use std::fmt::Write;
    use std::path::Path;

    const TOP: &str = "\
/* tierheap: one heap over DRAM and slower memory tiers. The interface for C11 and C++.
 *
 * Functions that can fail return 0 or a negative TIERHEAP_E code; allocation functions return NULL
 * and set errno to ENOMEM, or to EINVAL for a kind that does not exist or an alignment that is none.
 * Every function may be called from any thread; from a signal handler, only those that say so.
 *
 * Generated from src/api/c.rs by cbindgen. Do not edit. */";

    /// The header that belongs to the sources in this folder.
    pub fn text(root: &Path) -> String {
        let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
        config.header = Some(TOP.to_string());
        config.after_includes = Some(version());
        let mut raw = Vec::new();
        cbindgen::Builder::new()
            .with_config(config)
            .with_src(root.join("src/api/c.rs"))
            .generate()
            .unwrap()
            .write(&mut raw);
        for_c_readers(&String::from_utf8(raw).unwrap())
    }

    fn version() -> String {
        let mut lines = format!(
            "\n#define TIERHEAP_VERSION \"{}\"",
            env!("CARGO_PKG_VERSION")
        );
        for (part, number) in [
            ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
            ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
            ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
        ] {
            write!(lines, "\n#define TIERHEAP_VERSION_{part} {number}").unwrap();
        }
        lines
    }

    /// What cbindgen has from Rust: the heading over what the caller must see to goes, and a
    /// negative constant gets the parentheses that a macro needs.
    fn for_c_readers(raw: &str) -> String {
        let mut text = String::new();
        for line in raw.lines() {
            if line.trim() == "* # Safety" {
                continue;
            }
            match line
                .strip_prefix("#define ")
                .and_then(|rest| rest.split_once(" -"))
            {
                Some((name, number)) => writeln!(text, "#define {name} (-{number})").unwrap(),
                None => writeln!(text, "{line}").unwrap(),
            }
        }
        text
    }
}
