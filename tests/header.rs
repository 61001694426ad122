//! include/tierheap.h: that it is what src/api/c.rs says now, that compilers take it, and that it
//! and the library declare and export the same functions.
//!
//! To make it anew after a change of src/api/c.rs, cbindgen.toml, build.rs or the version:
//!
//! ```sh
//! TIERHEAP_WRITE_HEADER=1 cargo test --test header committed
//! ```

#[allow(dead_code)]
#[path = "../build.rs"]
mod build;
mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn committed() -> String {
    let path = root().join("include/tierheap.h");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn committed_header_is_what_the_source_says() {
    let made = build::header::text(root());
    if std::env::var_os("TIERHEAP_WRITE_HEADER").is_some() {
        std::fs::create_dir_all(root().join("include")).unwrap();
        std::fs::write(root().join("include/tierheap.h"), &made).unwrap();
    }
    let committed = committed();
    if committed == made {
        return;
    }
    let mut lines = committed.lines().zip(made.lines());
    let first = lines.position(|(committed, made)| committed != made);
    let first = first.unwrap_or_else(|| committed.lines().count().min(made.lines().count()));
    panic!(
        "include/tierheap.h differs from src/api/c.rs from line {} on:\n  \
         committed: {}\n  source:    {}\n\
         TIERHEAP_WRITE_HEADER=1 cargo test --test header committed   makes it anew",
        first + 1,
        committed.lines().nth(first).unwrap_or("(ends)"),
        made.lines().nth(first).unwrap_or("(ends)")
    );
}

/// The names of the functions that the header declares, as a compiler sees them.
fn declared() -> BTreeSet<String> {
    let mut cmd = Command::new("cc");
    // Expands the header without those it includes, and drops comments.
    cmd.args(["-std=c11", "-E", "-P", "-nostdinc"])
        .args(["-D_STDDEF_H", "-I"])
        .arg(empty_system_headers())
        .arg(root().join("include/tierheap.h"));
    let text = common::run(&mut cmd, LIMIT)
        .must_succeed("preprocessing the header")
        .out();
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("tierheap_") {
        let name: String = text[at..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if text[at + name.len()..].starts_with('(') {
            names.insert(name);
        }
    }
    names
}

fn empty_system_headers() -> std::path::PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty-headers");
    std::fs::create_dir_all(&dir).unwrap();
    for name in ["stddef.h", "stdint.h"] {
        std::fs::write(dir.join(name), "").unwrap();
    }
    dir
}

/// The functions of this library that programs can link with.
fn exported() -> BTreeSet<String> {
    let mut cmd = Command::new("nm");
    cmd.args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(common::library());
    let text = common::run(&mut cmd, LIMIT)
        .must_succeed("nm of the library")
        .out();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, kind)| name.starts_with("tierheap_") && kind.starts_with('T'))
        .map(|(name, _)| name.to_string())
        .collect()
}

#[test]
fn header_and_library_have_the_same_functions() {
    let (declared, exported) = (declared(), exported());
    // The interface as its users know it: a function that vanished from both is an error too.
    for name in [
        "malloc",
        "calloc",
        "realloc",
        "aligned_alloc",
        "posix_memalign",
        "free",
        "usable_size",
        "kind_create",
        "kind_destroy",
        "kind_default",
        "kind_dram",
        "kind_cold",
        "kind_of",
        "tier_of",
        "advise",
        "configure",
        "stats",
        "stats_print",
        "strerror",
        "version",
    ] {
        let name = format!("tierheap_{name}");
        assert!(declared.contains(&name), "{name} is not declared");
    }
    let only =
        |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    assert_eq!(
        only(&declared, &exported),
        [""; 0],
        "declared, not exported"
    );
    assert_eq!(
        only(&exported, &declared),
        [""; 0],
        "exported, not declared"
    );
}

/// A program that uses every declaration, so that a compiler must have understood each.
fn user_of_everything() -> String {
    let mut text = String::from(
        "struct tierheap_stats figures;\n\
         int main(void)\n{\n\
         \tstruct tierheap_stats local;\n\
         \ttierheap_kind_t *kind = tierheap_kind_default();\n\
         \tstruct tierheap_kind *same = kind;\n\
         \tlocal.size = sizeof local;\n\
         \tif (!same || tierheap_stats(&local) != TIERHEAP_OK || local.tier[0].name[0] != 'd')\n\
         \t\treturn 1;\n\
         \tfigures.size = sizeof(struct tierheap_stats);\n\
         \tif (tierheap_stats(&figures) - TIERHEAP_EINVAL -TIERHEAP_OK != 1)\n\
         \t\treturn 2;\n",
    );
    for name in declared() {
        text += &format!("\tif (!(void (*)(void)){name})\n\t\treturn 3;\n");
    }
    text + "\treturn sizeof TIERHEAP_VERSION == 0;\n}\n"
}

/// In strict C11 and C++17, without another header before it or needed by it.
#[test]
fn compilers_take_it_without_a_word() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = common::library();
    for (compiler, standard, name) in [
        ("cc", "-std=c11", "everything.c"),
        ("c++", "-std=c++17", "everything.cc"),
    ] {
        let (source, program) = (
            dir.path().join(name),
            dir.path().join(format!("{name}.out")),
        );
        let alone = "#include \"tierheap.h\"\n#include \"tierheap.h\"\n";
        // Functions compared with NULL are what the program is for.
        let quiet = "#pragma GCC diagnostic ignored \"-Waddress\"\n\
                     #pragma GCC diagnostic ignored \"-Wpragmas\"\n";
        std::fs::write(&source, format!("{alone}{quiet}{}", user_of_everything())).unwrap();
        let mut cmd = Command::new(compiler);
        cmd.args([
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-Wno-cast-function-type",
        ])
        .arg("-I")
        .arg(root().join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg(&library);
        common::run(&mut cmd, LIMIT).must_succeed(&format!("{compiler} {standard}"));
        let mut cmd = Command::new(&program);
        cmd.env("LD_LIBRARY_PATH", library.parent().unwrap());
        cmd.env_remove("TIERHEAP");
        common::run(&mut cmd, LIMIT).must_succeed(name);
    }
}

/// The version stands in four macros, the function, and the package.
#[test]
fn versions_agree() {
    let header = committed();
    let value = |name: &str| {
        let line = header
            .lines()
            .find_map(|l| l.strip_prefix(&format!("#define {name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).to_string()
    };
    assert_eq!(
        value("TIERHEAP_VERSION"),
        format!("{:?}", env!("CARGO_PKG_VERSION"))
    );
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|p| value(&format!("TIERHEAP_VERSION_{p}")));
    assert_eq!(parts.join("."), env!("CARGO_PKG_VERSION"));
}

/// Comments are for readers of C.
#[test]
fn comments_speak_c() {
    let header = committed();
    for word in [
        "# Safety", "null", "None", "Some(", "usize", "u64", "unsafe", "rustdoc", "::",
    ] {
        let line = header.lines().find(|l| {
            l.split(|c: char| !(c.is_alphanumeric() || "_#(:".contains(c)))
                .any(|w| w == word)
                || (word.contains(' ') && l.contains(word))
        });
        assert_eq!(line, None, "{word:?} stands in the header");
    }
}

/// What the shared library says of itself to the loader, and what the loader makes of it: a
/// program linked with the library in one folder and run under a copy preloaded from another has
/// one heap.
#[test]
fn the_library_has_a_soname_and_stays_loaded() {
    let mut cmd = Command::new("readelf");
    cmd.args(["--dynamic", "--wide"])
        .arg(common::library())
        .env("LC_ALL", "C");
    let text = common::run(&mut cmd, LIMIT).must_succeed("readelf").out();
    assert!(text.contains("soname: [libtierheap.so]"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");

    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, program) = (dir.path().join("linked.c"), dir.path().join("linked"));
    let copy = dir.path().join("copy.so");
    std::fs::copy(common::library(), &copy).unwrap();
    std::fs::write(
        &source,
        "#include <tierheap.h>\nint main(void) { return !tierheap_version(); }\n",
    )
    .unwrap();
    let mut cmd = Command::new("cc");
    cmd.arg("-I")
        .arg(root().join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg(common::library());
    common::run(&mut cmd, LIMIT).must_succeed("cc");
    let mut cmd = Command::new(&program);
    cmd.env("LD_PRELOAD", &copy)
        .env("LD_LIBRARY_PATH", common::library().parent().unwrap())
        .env("LD_TRACE_LOADED_OBJECTS", "1");
    let loaded = common::run(&mut cmd, LIMIT).must_succeed("ld.so").out();
    assert!(loaded.contains("copy.so"), "{loaded}");
    assert!(!loaded.contains("libtierheap.so"), "two copies:\n{loaded}");
}
