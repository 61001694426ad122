//! The checker itself, on sources small enough to see through: each rule fails when broken, and
//! what looks like a breach and is none passes.

use super::rules::{check, module_of, read_table};

const TABLE: &str = "
Words before.

| room | may import | libc | holds |
|---|---|---|---|
| `base` | | no | values |
| `sync` | | no | atomics |
| `policy` | `base` | no | decisions |
| `lockfree` | `base`, `sync` | no | sharing |
| `os` | `base`, `sync` | yes | doors |
| `heap` | `base`, `sync`, `lockfree`, `policy`, `os` | no | blocks |
| `bin` | | no | the command |

Words after.
";

/// What the file breaks, as `line: what`.
fn breaches(file: &str, text: &str) -> Vec<String> {
    let rooms = read_table(TABLE).unwrap();
    let (found, _) = check(&rooms, file, text).unwrap();
    found
        .into_iter()
        .map(|b| format!("{}: {}", b.line, b.what))
        .collect()
}

#[track_caller]
fn passes(file: &str, text: &str) {
    assert_eq!(breaches(file, text), [""; 0]);
}

#[track_caller]
fn fails(file: &str, text: &str, what: &str) {
    assert_eq!(breaches(file, text), [what]);
}

#[test]
fn imports_down_pass() {
    passes(
        "heap/bin.rs",
        "use crate::base::Bytes;\nuse crate::{os, sync::Ordering};",
    );
    passes(
        "heap/bin.rs",
        "fn f() { crate::os::map::unmap(); self::g(); super::slab::h(); }",
    );
    passes(
        "heap/mod.rs",
        "pub use self::bin::Bin; use crate::heap::slab;",
    );
}

#[test]
fn imports_up_fail_however_they_are_written() {
    let what = "1: `base` may not import `heap`";
    fails("base/mod.rs", "use crate::heap::Bin;", what);
    fails(
        "base/units.rs",
        "use crate::{base::Bytes, heap::Bin as B};",
        what,
    );
    fails("base/units.rs", "fn f(b: &crate::heap::Bin) {}", what);
    fails(
        "base/units.rs",
        "pub use ::core::mem; pub use crate::heap as other;",
        what,
    );
}

#[test]
fn each_name_of_a_tree_counts() {
    let found = breaches(
        "base/mod.rs",
        "use crate::{\n heap::Bin,\n os::{map::Map, *},\n};",
    );
    assert_eq!(
        found,
        [
            "2: `base` may not import `heap`",
            "3: `base` may not import `os`",
            "3: `base` may not import `os`",
        ]
    );
}

#[test]
fn supers_are_counted() {
    fails(
        "base/units.rs",
        "use super::super::heap::Bin;",
        "1: `base` may not import `heap`",
    );
    fails(
        "base/mod.rs",
        "\nuse super::heap;",
        "2: `base` may not import `heap`",
    );
    // In heap/bin.rs, `super` is the room itself; `os` there is `heap::os`.
    passes("base/units.rs", "use super::heap;");
    fails(
        "base/units.rs",
        "mod inner { use super::super::super::os::map; }",
        "1: `base` may not import `os`",
    );
}

#[test]
fn sideways_fails() {
    fails(
        "policy/mod.rs",
        "use crate::lockfree::Inbox;",
        "1: `policy` may not import `lockfree`",
    );
    fails(
        "lockfree/gate.rs",
        "use crate::policy::Policy;",
        "1: `lockfree` may not import `policy`",
    );
}

#[test]
fn what_macros_expand_to_counts() {
    fails(
        "base/mod.rs",
        "macro_rules! m { () => {\n $crate::heap::f() } }",
        "2: `base` may not import `heap`",
    );
    fails(
        "heap/bin.rs",
        "m!(libc::PROT_READ)",
        "1: `heap` may not name libc",
    );
}

#[test]
fn the_crate_under_another_name_fails() {
    let what = "1: all rooms at once, or the crate by another name";
    fails("heap/bin.rs", "use crate as c;", what);
    fails("heap/bin.rs", "use crate::{self as c};", what);
    fails("heap/bin.rs", "use crate::*;", what);
}

#[test]
fn libc_is_named_in_os_only() {
    passes("os/map.rs", "use libc::c_int; fn f() { libc::getpid(); }");
    fails(
        "heap/bin.rs",
        "fn f() { libc::getpid(); }",
        "1: `heap` may not name libc",
    );
    fails(
        "heap/bin.rs",
        "use ::libc::getpid;",
        "1: `heap` may not name libc",
    );
    fails("heap/bin.rs", "use libc;", "1: `heap` may not name libc");
    fails(
        "heap/bin.rs",
        "use libc as c;",
        "1: `heap` may not name libc",
    );
    fails(
        "heap/bin.rs",
        "extern crate libc as c;",
        "1: `heap` may not name libc",
    );
    // A comment, a string and a name of one's own are no use of it.
    passes(
        "heap/bin.rs",
        "//! libc::getpid\n/* libc:: */ const S: &str = \"libc::x\"; fn libc() {}",
    );
}

#[test]
fn atomics_come_through_their_door() {
    passes(
        "sync.rs",
        "pub use core::sync::atomic::AtomicU8; pub use loom::sync::atomic::AtomicBool;",
    );
    let what = "1: atomics come from `crate::sync` only";
    fails("os/lock.rs", "use core::sync::atomic::AtomicU8;", what);
    fails(
        "os/lock.rs",
        "use core::{mem, sync::atomic::AtomicU8};",
        what,
    );
    fails("os/lock.rs", "use core::sync;", what);
    fails(
        "lockfree/gate.rs",
        "use loom::sync::atomic::AtomicU8;",
        what,
    );
    passes(
        "os/lock.rs",
        "use core::{mem, ptr}; use crate::sync::AtomicU8;",
    );
}

#[test]
fn std_is_for_tests_and_the_command() {
    fails(
        "heap/bin.rs",
        "use std::vec::Vec;",
        "1: `std` outside of tests",
    );
    fails(
        "heap/bin.rs",
        "use alloc::vec::Vec;",
        "1: `alloc` outside of tests",
    );
    fails(
        "heap/bin.rs",
        "extern crate alloc;",
        "1: `alloc` outside of tests",
    );
    passes(
        "bin/tierheap.rs",
        "use std::fs; fn main() { libc::getpid(); }",
    );
    passes(
        "lib.rs",
        "extern crate std; pub mod base; pub use heap::Bin;",
    );
}

#[test]
fn tests_may_name_anything() {
    let tests = "mod tests { use std::vec; use crate::heap::Bin; fn f() { libc::getpid(); } }";
    for cfg in ["test", "all(test, loom)", "all(not(loom), test)"] {
        passes(
            "base/mod.rs",
            &format!("#[cfg({cfg})] #[allow(unused)] {tests}"),
        );
    }
    for cfg in ["loom", "not(test)", "any(test, loom)"] {
        let found = breaches("base/mod.rs", &format!("#[cfg({cfg})] {tests}"));
        assert_eq!(found.len(), 3, "{cfg}: {found:?}");
    }
    // What follows the tests is none.
    fails(
        "base/mod.rs",
        "#[cfg(test)] use std::{vec, fs};\n#[cfg(test)] mod t;\nuse crate::heap::Bin;",
        "3: `base` may not import `heap`",
    );
}

#[test]
fn modules_of_tests_are_found() {
    let rooms = read_table(TABLE).unwrap();
    let text = "#[cfg(test)]\nmod simulation;\n#[cfg(all(test, loom))] pub mod model;\nmod other;";
    let (_, tests) = check(&rooms, "policy/mod.rs", text).unwrap();
    assert_eq!(tests, ["simulation", "model"]);
}

#[test]
fn pure_rooms_are_safe_even_in_tests() {
    fails(
        "policy/mod.rs",
        "fn f() { unsafe { g() } }",
        "1: unsafe in `policy`",
    );
    fails(
        "base/mod.rs",
        "#[cfg(test)] mod t { fn f() { unsafe { g() } } }",
        "1: unsafe in `base`",
    );
    passes("policy/mod.rs", "//! No unsafe\n#![deny(unsafe_code)]");
    passes("heap/mod.rs", "fn f() { unsafe { g() } }");
}

#[test]
fn a_room_that_is_not_in_the_table_fails() {
    fails(
        "attic/mod.rs",
        "",
        "1: `attic` is not in the table of rooms",
    );
}

#[test]
fn a_table_that_goes_up_or_sideways_is_refused() {
    let row = |row: &str| format!("| room | may import | libc |\n|---|---|---|\n{row}\n");
    assert!(read_table(&row("| `a` | `b` | no |\n| `b` | | no |")).is_err());
    assert!(read_table(&row("| `a` | `a` | no |")).is_err());
    assert!(read_table(&row("| `policy` | | no |\n| `lockfree` | `policy` | no |")).is_err());
    assert!(read_table("no table").is_err());
    assert!(read_table(&row("| a | | no |")).is_err());
}

#[test]
fn files_are_modules() {
    assert!(module_of("lib.rs").is_empty());
    assert_eq!(module_of("sync.rs"), ["sync"]);
    assert_eq!(module_of("heap/mod.rs"), ["heap"]);
    assert_eq!(module_of("base/config/list.rs"), ["base", "config", "list"]);
}
