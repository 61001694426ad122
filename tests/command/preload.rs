//! What the library itself says to who preloads it: the report, and that a report or a budget was
//! not had.

use super::*;

/// A program that allocates, says nothing of its own, and gets to the handlers of `exit`: dash takes
/// `_exit`, and GNU's small tools close stderr before the report is due.
fn shell(configuration: &str) -> Command {
    let mut command = common::preloaded("bash", configuration);
    command.args(["-c", "exit"]);
    command
}

#[track_caller]
fn said(configuration: &str) -> String {
    ran(&mut shell(configuration)).must_succeed("bash").err()
}

#[test]
fn a_report_that_cannot_be_written_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().display();
    for (path, why) in [
        (format!("{dir}/no/such"), "no such file or directory"),
        (format!("{dir}/no/such.json"), "no such file or directory"),
        (format!("{dir}"), "it is a directory"),
        ("/dev/full".into(), "no space left on the device"),
    ] {
        for tiers in ["", "cold=memfd;policy=cold;"] {
            assert_eq!(
                said(&format!("{tiers}stats={path}")),
                format!("tierheap: stats: the report cannot be written ({why}) to {path}\n")
            );
        }
    }
    // The reason is not lost where the line ends before the path does.
    let long = "x".repeat(600);
    let said = said(&format!("stats={dir}/{long}"));
    assert!(
        said.starts_with("tierheap: stats: the report cannot be written (error 36) to /")
            && said.ends_with("xxx\n"),
        "{said}"
    );
}

#[test]
fn a_report_beyond_the_file_size_limit_does_not_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report");
    let mut command = shell(&format!("stats={}", path.display()));
    limit_file_size(&mut command, 0);
    let ran = ran(&mut command).must_succeed("bash");
    assert_eq!(
        ran.err(),
        format!(
            "tierheap: stats: the report cannot be written (the file size limit (ulimit -f) is reached) to {}\n",
            path.display()
        )
    );
}

/// Where each word of a line ends.
fn ends(line: &str) -> Vec<usize> {
    let bytes = line.as_bytes();
    (1..=bytes.len())
        .filter(|&at| bytes[at - 1] != b' ' && (at == bytes.len() || bytes[at] == b' '))
        .collect()
}

#[test]
fn the_columns_of_the_report_stand_below_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("n".repeat(200)).join("m".repeat(200));
    std::fs::create_dir_all(&long).unwrap();
    let long = format!("file:{}", long.display());
    for (configuration, names) in [
        ("stats=1".to_string(), vec!["dram"]),
        ("stats=1;cold=memfd".into(), vec!["dram", "memfd"]),
        (
            format!("stats=1;cold={long},limit:64K;cold=memfd,limit:8388607T;policy=cold"),
            vec!["dram", &long, "memfd"],
        ),
    ] {
        let said = said(&configuration);
        let lines: Vec<&str> = said.lines().collect();
        let [_, header, rows @ .., totals] = &lines[..] else {
            panic!("{said}")
        };
        let expected = "tier asked held resident copied peak limit fallbacks name";
        let words: Vec<&str> = header.split_whitespace().collect();
        assert_eq!(words.join(" "), expected, "{said}");
        assert!(totals.starts_with("fallbacks "), "{said}");
        assert_eq!(rows.len(), names.len(), "{said}");
        let name_at = header.find("name").unwrap();
        for (row, name) in rows.iter().zip(names) {
            assert_eq!(ends(row)[..8], ends(header)[..8], "{said}");
            assert_eq!(&row[name_at..], name, "{said}");
        }
    }
}

/// A limit above the window's size takes all of its addresses.
#[test]
fn a_tier_without_addresses_is_said() {
    let said = said("cold=memfd,limit:8388607T;cold=memfd;policy=cold");
    let expected = "tierheap: cold tier memfd cannot be had: no addresses are left for it (give the tiers before it lower limits); going on without it\n";
    assert_eq!(said, expected);
}

#[test]
fn a_budget_that_is_passed_is_said_and_counted() {
    let warning = "tierheap: DRAM goes beyond its budget of 65536 bytes, for no other tier has room (strict=1 refuses instead)\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    for tiers in ["", "cold=memfd,limit:64K;policy=size;threshold=64K;"] {
        let said = said(&format!("{tiers}dram=64K;stats={}", path.display()));
        assert_eq!(said.matches(warning).count(), 1, "{said}");
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(report["beyond_budget"].as_u64() > Some(0), "{report}");
        assert!(report["warnings"].as_u64() >= report["beyond_budget"].as_u64());
        std::fs::remove_file(&path).unwrap();
    }
    let text = said("dram=64K;stats=1");
    assert!(text.contains(" beyond budget ") && !text.contains(" beyond budget 0 "));
    // Kept, or passed on to a tier with room: nothing is said.
    for kept in [
        "dram=1G;",
        "cold=memfd;dram=64K;",
        "dram=0;cold=memfd;policy=cold;",
    ] {
        let said = said(&format!("{kept}stats=1"));
        assert!(
            said.starts_with("tierheap 0.") && said.contains(" beyond budget 0 "),
            "{kept}: {said}"
        );
    }
}

#[test]
fn a_limit_in_the_wrong_words_is_explained() {
    assert_eq!(
        said("cold=file:/tmp,limit=1G"),
        "tierheap: cold tier file:/tmp,limit=1G cannot be had: the directory does not exist \
         (a limit is written ,limit:SIZE); going on without it\n"
    );
    assert_eq!(
        said("cold=file:/no-such"),
        "tierheap: cold tier file:/no-such cannot be had: the directory does not exist; going on \
         without it\n"
    );
}

/// What a parent writes after a fork into what the fork froze is in DRAM, and said to be.
#[test]
fn copies_after_a_fork_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let configuration = format!(
        "cold=file:{};policy=size;threshold=64K;stats={}",
        dir.path().display(),
        path.display()
    );
    let script = "import os\n\
        old = [bytearray(1 << 20) for _ in range(8)]\n\
        pid = os.fork()\n\
        pid or os._exit(0)\n\
        os.waitpid(pid, 0)\n\
        for each in old[:4]: each[:] = bytes(1 << 20)\n\
        import ctypes; ctypes.CDLL(None).exit(0)";
    let mut python = common::preloaded("python3", &configuration);
    ran(python.args(["-c", script])).must_succeed("python3");
    // Python's own start may run other programs, which report as well: its line is the last.
    let reports = std::fs::read_to_string(&path).unwrap();
    let report: serde_json::Value = serde_json::from_str(reports.lines().last().unwrap()).unwrap();
    assert_eq!(report["tiers"][0]["copied"], serde_json::Value::Null);
    let copied = report["tiers"][1]["copied"].as_u64().unwrap();
    // The arrays' last page holds the byte that ends them as well.
    assert!((4 << 20..5 << 20).contains(&copied), "{report}");
}
