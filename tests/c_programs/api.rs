//! The C interface: programs that include the header and link with the library.

use crate::build::{Case, LIMIT, Says, attempt, folder, linked, plain};
use crate::common;
use std::path::Path;
use std::process::Command;

/// A linked program, given a folder on disk as its last argument, and no configuration.
fn linked_run(name: &str, arguments: &[&str], says: Says) -> common::Ran {
    let dir = folder();
    let mut cmd = plain(&linked(name));
    cmd.args(arguments)
        .arg(dir.path())
        .env("EXPECT_TIERHEAP", "1");
    let ran = attempt(name, &mut cmd, says).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(
        std::fs::read_dir(dir.path()).unwrap().next().is_none(),
        "{name} left a file in the tier's folder"
    );
    ran
}

/// Bad specifications are named on stderr, each with its wrong word.
#[test]
fn kinds() {
    let said = linked_run("api_kinds", &[], Says::Anything).err();
    for word in [
        "polcy",
        "warm",
        "limt",
        "5X",
        "1.5K",
        "lots",
        "sometimes",
        "maybe",
        "junk",
        "65535",
        "\"dram\" is no key of a kind",
        "\"stats\" is no key of a kind",
        "\"abort\" is no key of a kind",
    ] {
        assert!(said.contains(word), "no message names {word:?}:\n{said}");
    }
    assert!(
        said.lines().all(|l| l.starts_with("tierheap")),
        "lines that do not say whose they are:\n{said}"
    );
}

#[test]
fn allocation_in_every_kind() {
    linked_run("api_alloc", &[], Says::Nothing);
}

#[test]
fn cold_blocks_are_not_touched() {
    linked_run("api_untouched", &[], Says::Nothing);
}

#[test]
fn large_blocks_that_come_and_go() {
    linked_run("api_large_again", &[], Says::Nothing);
}

#[test]
fn queries() {
    linked_run("api_query", &[], Says::Nothing);
}

/// Preloaded and configured, the program's linked copy is the same library: hints do no harm.
#[test]
fn advice() {
    linked_run("api_advise", &[], Says::Nothing);
    Case::of("api_advise", linked("api_advise")).matrix().done();
}

#[test]
fn configure_before_the_first_block() {
    linked_run("api_configure", &["before"], Says::Nothing);
}

#[test]
fn configure_after_plain_blocks() {
    linked_run("api_configure", &["after-plain-blocks"], Says::Nothing);
}

#[test]
fn configure_with_a_wrong_word() {
    let said = linked_run("api_configure", &["bad"], Says::Anything).err();
    for word in ["polcy", "colder", "10Q"] {
        assert!(said.contains(word), "no message names {word:?}:\n{said}");
    }
}

#[test]
fn configure_with_a_missing_tier() {
    let said = linked_run("api_configure", &["missing-tier"], Says::Anything).err();
    assert!(
        said.contains("/no/such/folder"),
        "no message names the folder:\n{said}"
    );
}

#[test]
fn limits() {
    linked_run("api_limits", &[], Says::Nothing);
}

#[test]
fn texts() {
    linked_run("api_text.cpp", &[], Says::Nothing);
}

#[test]
fn statistics() {
    let ran = linked_run("api_stats", &[], Says::Anything);
    let json: serde_json::Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.out()));
    assert_eq!(json["policy"], "size", "{json}");
    assert!(
        json["version"].is_string() && json["pid"].is_u64(),
        "{json}"
    );
    let tiers = json["tiers"].as_array().expect("tiers");
    assert_eq!(tiers.len(), 3, "{json}");
    for (i, tier) in tiers.iter().enumerate() {
        assert_eq!(tier["tier"], i + 1, "{json}");
        for figure in ["asked", "held", "resident", "peak", "fallbacks"] {
            assert!(tier[figure].is_u64(), "{figure} of tier {}: {json}", i + 1);
        }
    }
    assert!(tiers[0]["limit"].is_null(), "{json}");
    assert_eq!(tiers[1]["limit"], 8 << 20, "{json}");
    assert_eq!(
        (&tiers[0]["name"], &tiers[1]["name"]),
        (&"dram".into(), &"memfd".into()),
        "{json}"
    );
    // The program holds 5 MiB at that moment, by size in the cold tiers.
    let asked = tiers[1]["asked"].as_u64().unwrap() + tiers[2]["asked"].as_u64().unwrap();
    assert!((5 << 20..6 << 20).contains(&asked), "{json}");
    for figure in ["foreign_frees", "fallbacks", "warnings"] {
        assert!(json[figure].is_u64(), "{figure}: {json}");
    }
}

/// The example of the README: an index in DRAM, values in the cold tier.
#[test]
fn example_kinds() {
    let ran = linked_run("example_kinds", &[], Says::Anything);
    assert_eq!(
        ran.out(),
        "2000 entries in DRAM, 2000 values in the cold tier\n"
    );
    assert_eq!(ran.err(), "");
}

/// The header by itself, in strict C11 and in C++: no warning, no other header needed.
#[test]
fn header_stands_alone() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tierheap.h");
    for (compiler, language, standard) in [
        ("cc", "c", "-std=c11"),
        ("c++", "c++", "-std=c++11"),
        ("c++", "c++", "-std=c++17"),
    ] {
        let mut cmd = Command::new(compiler);
        cmd.args([
            "-x",
            language,
            standard,
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
            "-fsyntax-only",
        ])
        .arg("-include")
        .arg(&header)
        .arg("/dev/null");
        common::run(&mut cmd, LIMIT).must_succeed(&format!("{standard} reads the header"));
    }
}
