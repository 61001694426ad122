//! The layers of the crate, as `src/README.md` has them, against what its files import.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "layering/rules.rs"]
mod rules;
#[path = "layering/scan.rs"]
mod scan;
#[path = "layering/self_test.rs"]
mod self_test;

use rules::{LONGEST_FILE, check, module_of, read_table};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `dir` with one of the extensions, as paths relative to it, sorted.
fn files(dir: &Path, extensions: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(next) = todo.pop() {
        let Ok(entries) = fs::read_dir(&next) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                todo.push(path);
            } else if path
                .extension()
                .is_some_and(|e| extensions.iter().any(|x| e == *x))
            {
                let below = path.strip_prefix(dir).expect("a path below");
                found.push(below.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_import_goes_down() {
    let src = root().join("src");
    let rooms = read_table(&read(&src.join("README.md"))).unwrap();
    let mut breaches = Vec::new();
    let mut tests: Vec<Vec<String>> = Vec::new();
    for file in files(&src, &["rs"]) {
        let (found, test_modules) = check(&rooms, &file, &read(&src.join(&file))).unwrap();
        breaches.extend(found);
        tests.extend(test_modules.into_iter().map(|name| {
            let mut module = module_of(&file);
            module.push(name);
            module
        }));
    }
    // A file that is a module of tests only may name what tests may name.
    breaches.retain(|b| {
        let of_tests = tests.iter().any(|t| module_of(&b.file).starts_with(t));
        !of_tests || b.what.starts_with("unsafe")
    });
    let text: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "{}", text.join("\n"));
}

#[test]
fn the_table_lists_the_rooms_there_are() {
    let src = root().join("src");
    let rooms = read_table(&read(&src.join("README.md"))).unwrap();
    let listed: BTreeSet<String> = rooms.into_iter().map(|r| r.name).collect();
    let there: BTreeSet<String> = files(&src, &["rs"])
        .iter()
        .filter_map(|f| module_of(f).first().cloned())
        .collect();
    assert_eq!(listed, there);
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut long = Vec::new();
    for dir in ["src", "tests", "benches", "c-tests"] {
        for file in files(&root().join(dir), &["rs", "c", "h", "cc", "cpp"]) {
            let lines = read(&root().join(dir).join(&file)).lines().count();
            if lines > LONGEST_FILE {
                long.push(format!("{dir}/{file}: {lines} lines"));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
