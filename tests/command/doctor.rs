//! What doctor says is so: compared with what the kernel's own files say.

use serde_json::Value;

use super::*;

fn json(command: &mut Command) -> Value {
    let ran = ran(command);
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", ran.out(), ran.err()))
}

fn number(path: &str) -> Value {
    std::fs::read_to_string(path)
        .unwrap()
        .trim()
        .parse::<i64>()
        .unwrap()
        .into()
}

#[test]
fn the_system_is_described_as_it_is() {
    let said = json(&mut tierheap(&["doctor", "--json"]));
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        said["system"]["max_map_count"],
        number("/proc/sys/vm/max_map_count")
    );
    assert_eq!(
        said["system"]["overcommit"],
        number("/proc/sys/vm/overcommit_memory")
    );
    let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    let word = said["system"]["thp"].as_str().unwrap();
    assert!(thp.contains(&format!("[{word}]")), "{thp}: {word}");

    let tiers: Vec<&str> = said["tiers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["tier"].as_str().unwrap())
        .collect();
    assert!(
        tiers.contains(&"memfd") && tiers.contains(&"file:DIR"),
        "{tiers:?}"
    );
    for entry in std::fs::read_dir("/sys/devices/system/node").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(id) = name
            .strip_prefix("node")
            .filter(|id| id.parse::<u32>().is_ok())
        {
            assert!(
                tiers.contains(&format!("node:{id}").as_str()),
                "{name}: {tiers:?}"
            );
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dax = mounts.lines().filter(|l| l.contains("dax=always")).count();
    assert!(
        tiers.iter().filter(|t| t.starts_with("fsdax:")).count() >= dax,
        "{tiers:?}"
    );

    let heat = &said["heat"];
    assert_eq!(heat["places_as"], "size");
    assert!(
        heat["today"]
            .as_str()
            .unwrap()
            .contains("places as policy=size in this version")
    );
    let rung = heat["rung"].as_u64().unwrap();
    assert_eq!(
        heat["next"].as_array().unwrap().is_empty(),
        rung == 3,
        "{heat}"
    );
}

#[test]
fn limits_of_the_caller_are_seen() {
    let mut command = tierheap(&["doctor", "--json"]);
    // SAFETY: setrlimit is async-signal-safe, and the limits live in this closure.
    unsafe {
        command.pre_exec(|| {
            for (resource, bytes) in [(libc::RLIMIT_AS, 8 << 30), (libc::RLIMIT_FSIZE, 1 << 20)] {
                let limit = libc::rlimit {
                    rlim_cur: bytes,
                    rlim_max: bytes,
                };
                if libc::setrlimit(resource, &limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        })
    };
    let said = json(&mut command);
    assert_eq!(said["system"]["rlimit_as"], 8u64 << 30);
    assert_eq!(said["system"]["rlimit_fsize"], 1 << 20);
}

/// The kernel's rule: without CAP_SYS_PTRACE full userfaultfd needs the setting or the device.
#[test]
fn another_user_is_told_the_rung_it_has_and_the_way_up() {
    let dir = open_dir();
    let said = json(&mut as_nobody(dir.path(), &["doctor", "--json"]));
    let allowed = number("/proc/sys/vm/unprivileged_userfaultfd") == 1;
    let device = std::fs::metadata("/dev/userfaultfd")
        .is_ok_and(|found| found.permissions().mode() & 0o006 == 0o006);
    let can = &said["capabilities"];
    assert_eq!(said["user"], NOBODY);
    if allowed || device {
        assert_eq!(can["userfaultfd"], "full", "{can}");
    } else {
        assert_eq!(can["userfaultfd"], "user-mode-only", "{can}");
        assert_eq!(said["heat"]["rung"], 2);
        let next = said["heat"]["next"][0].as_str().unwrap();
        assert!(next.contains("vm.unprivileged_userfaultfd=1"), "{next}");
    }
    assert_eq!(
        can["move_pages"], true,
        "moving one's own pages needs no privilege: {can}"
    );
}

#[test]
fn a_tier_asked_for_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dax) = (
        format!("file:{}", dir.path().display()),
        format!("fsdax:{}", dir.path().display()),
    );
    let good = ran(&mut tierheap(&[
        "doctor", "--json", "--cold", &file, "--cold", "memfd",
    ]))
    .must_succeed("doctor");
    let said: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!(said["asked"][0]["tier"], file);
    assert_eq!(said["asked"][0]["usable"], true);
    assert_eq!(said["asked"][0]["dax"], false);
    assert!(said["asked"][0]["free"].as_u64().unwrap() > 0);
    assert_eq!(said["asked"][1]["tier"], "memfd");
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );

    let bad = ran(&mut tierheap(&["doctor", "--cold", &dax, "--cold", &file]));
    assert_eq!(bad.status.code(), Some(1), "{}", bad.err());
    assert!(
        bad.out().contains("Tiers asked for") && bad.out().contains("not DAX"),
        "{}",
        bad.out()
    );
}

#[test]
fn the_tables_say_the_same() {
    let text = ran(&mut tierheap(&["doctor"])).must_succeed("doctor");
    assert!(text.stderr.is_empty(), "{}", text.err());
    let said = json(&mut tierheap(&["doctor", "--json"]));
    let out = text.out();
    for group in ["system", "capabilities"] {
        for name in said[group].as_object().unwrap().keys() {
            // Given in brackets behind the value they explain.
            if !["userfaultfd_by", "move_pages_refused"].contains(&name.as_str()) {
                assert!(
                    out.contains(&format!(" {name} ")),
                    "{name} is missing:\n{out}"
                );
            }
        }
    }
    let rung = format!(
        "rung {} of 3 here: {}",
        said["heat"]["rung"],
        said["heat"]["would"].as_str().unwrap()
    );
    for words in [
        "memfd",
        "file:DIR",
        "places as policy=size in this version",
        &rung,
    ] {
        assert!(out.contains(words), "{words} is missing:\n{out}");
    }
    assert!(
        out.lines().all(|line| line.chars().count() <= 120),
        "too wide for a mail:\n{out}"
    );
}
