//! The table of rooms, and what breaks its rules.

use std::fmt;

use super::scan::{Named, scan};

/// The only file that may name core's atomics.
const DOOR_TO_ATOMICS: &str = "sync.rs";
/// The command is a program of its own, with the standard library.
const COMMAND: &str = "bin";
/// Rooms of pure values.
const WITHOUT_UNSAFE: [&str; 2] = ["base", "policy"];
pub const LONGEST_FILE: usize = 500;

/// One row: a room, bottom up.
#[derive(Debug, PartialEq)]
pub struct Room {
    pub name: String,
    pub may_import: Vec<String>,
    pub may_name_libc: bool,
}

/// Reads the table whose head is `| room | may import | libc | … |`. A cell lists names in
/// backquotes; `yes` in the third lets the room name libc.
pub fn read_table(readme: &str) -> Result<Vec<Room>, String> {
    let mut rows = readme
        .lines()
        .skip_while(|l| !l.starts_with("| room | may import | libc |"))
        .skip(2)
        .take_while(|l| l.starts_with('|'))
        .peekable();
    if rows.peek().is_none() {
        return Err("no table of rooms".to_owned());
    }
    let mut rooms: Vec<Room> = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let [_, name, imports, libc, ..] = cells[..] else {
            return Err(format!("a row with too few cells: {row}"));
        };
        let names = |cell: &str| -> Vec<String> {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        let [name] = &names(name)[..] else {
            return Err(format!("a row without a room: {row}"));
        };
        let may_import = names(imports);
        for import in &may_import {
            if !rooms.iter().any(|r| r.name == *import) {
                return Err(format!(
                    "`{name}` may import `{import}`, which is not below it"
                ));
            }
        }
        rooms.push(Room {
            name: name.clone(),
            may_import,
            may_name_libc: libc.trim() == "yes",
        });
    }
    let sideways = |a: &str, b: &str| {
        rooms
            .iter()
            .any(|r| r.name == a && r.may_import.iter().any(|i| i == b))
    };
    if sideways("policy", "lockfree") || sideways("lockfree", "policy") {
        return Err("policy and lockfree are on one level and do not import each other".to_owned());
    }
    Ok(rooms)
}

#[derive(Debug, PartialEq)]
pub struct Breach {
    pub file: String,
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {}", self.file, self.line, self.what)
    }
}

/// What one file under src/ breaks, and which of its modules are tests. `file` is its path
/// below src/, with slashes.
pub fn check(rooms: &[Room], file: &str, text: &str) -> Result<(Vec<Breach>, Vec<String>), String> {
    let module = module_of(file);
    let scan = scan(text, &module).map_err(|e| format!("src/{file}: {e}"))?;
    let top = module.first().map_or("", String::as_str);
    if top == COMMAND {
        return Ok((Vec::new(), scan.test_modules));
    }
    let room = rooms.iter().find(|r| r.name == top);
    let mut breaches = Vec::new();
    let mut breach = |line: usize, what: String| {
        let file = file.to_owned();
        breaches.push(Breach { file, line, what });
    };
    if room.is_none() && !top.is_empty() {
        breach(1, format!("`{top}` is not in the table of rooms"));
    }
    for Named { line, path } in &scan.paths {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match names[..] {
            // lib.rs lists the rooms and may re-export from any; and `extern crate std` is its.
            _ if top.is_empty() => {}
            ["crate", "*", ..] => {
                breach(
                    *line,
                    "all rooms at once, or the crate by another name".to_owned(),
                );
            }
            ["crate", to, ..]
                if to != top
                    && rooms.iter().any(|r| r.name == to)
                    && !room.is_some_and(|r| r.may_import.iter().any(|i| i == to)) =>
            {
                breach(*line, format!("`{top}` may not import `{to}`"));
            }
            ["libc", _, ..] if !room.is_some_and(|r| r.may_name_libc) => {
                breach(*line, format!("`{top}` may not name libc"));
            }
            ["core", "sync" | "*", ..] | ["loom", _, ..] if file != DOOR_TO_ATOMICS => {
                breach(*line, "atomics come from `crate::sync` only".to_owned());
            }
            ["std" | "alloc", _, ..] => {
                breach(*line, format!("`{}` outside of tests", names[0]));
            }
            _ => {}
        }
    }
    if WITHOUT_UNSAFE.contains(&top) {
        for line in &scan.unsafe_at {
            breach(*line, format!("unsafe in `{top}`"));
        }
    }
    Ok((breaches, scan.test_modules))
}

/// `heap/bin.rs` is the module `heap::bin`, `heap/mod.rs` is `heap`, `lib.rs` the crate itself.
pub fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}
