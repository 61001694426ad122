//! Hazards of limits and of words: full disks, file-size limits, tiers' limits, wrong
//! configurations.

use crate::build::{Case, Says, attempt, folder, plain, preloaded, program};
use crate::common;
use crate::hazards::limit;
use std::path::{Path, PathBuf};

/// A tier on a tmpfs of 8 MiB, mounted where only the program sees it.
#[test]
fn hazard_24_full_disk() {
    on_full_disk("mount -t tmpfs -o size=8m none \"$1\"", "8");
}

/// The same on ext4, read ahead as widely as on large disks: the page cache then has folios that
/// span what is allocated and what is not. Needs root, for the loop device.
#[test]
fn hazard_24_full_disk_with_large_folios() {
    on_full_disk(
        "truncate -s 64M \"$1.image\" && mkfs.ext4 -q -F -b 4096 -m 0 \"$1.image\" \
         && mount -o loop \"$1.image\" \"$1\" \
         && blockdev --setra 16384 \"$(findmnt -no SOURCE \"$1\")\"",
        "64",
    );
}

fn on_full_disk(mount: &str, mebibytes: &str) {
    let path = program("hazard_24_full_disk");
    for (argument, strict) in [("falls-back", "0"), ("strict", "1")] {
        let dir = folder();
        let at = dir.path().join("disk");
        std::fs::create_dir(&at).unwrap();
        let script = format!(
            "{mount} || exit 99; \
             LD_PRELOAD=\"$3\" TIERHEAP=\"cold=file:$1;policy=cold;strict={strict}\" EXPECT_TIERHEAP=1 \
             exec \"$2\" {argument} {mebibytes}"
        );
        // SAFETY: a plain system call.
        let namespaces = if unsafe { libc::geteuid() } == 0 {
            "-m"
        } else {
            "-rm"
        };
        let mut cmd = plain(Path::new("unshare"));
        cmd.args([namespaces, "sh", "-c", &script, "sh"])
            .args([&at, &path, &common::library()]);
        let ran = attempt(argument, &mut cmd, Says::Warnings);
        ran.unwrap_or_else(|f| panic!("{f}"));
    }
}

/// SIGXFSZ must not be the program's death, whether the limit was there first or the tier.
#[test]
fn hazard_24_file_size_limit() {
    let tiered = |l: &str| l != "none" && l != "dram";
    Case::new("hazard_24_file_size_limit")
        .says(Says::Warnings)
        .prepare(|cmd| limit(cmd, libc::RLIMIT_FSIZE, 1 << 20))
        .plain()
        .matrix_of(tiered)
        .done();
    Case::new("hazard_24_file_size_limit")
        .arg("later")
        .says(Says::Warnings)
        .plain()
        .matrix_of(tiered)
        .done();
}

#[test]
fn hazard_26_limit_is_null() {
    Case::new("hazard_26_limit_is_null")
        .says(Says::Warnings)
        .under("file", "cold=file:{},limit:32M;policy=cold;strict=1")
        .under("memfd", "cold=memfd,limit:32M;policy=cold;strict=1")
        .done();
}

#[test]
fn hazard_26_falls_back() {
    Case::new("hazard_26_falls_back")
        .says(Says::Warnings)
        .under("file", "cold=file:{},limit:32M;policy=cold")
        .under("memfd", "cold=memfd,limit:32M;policy=cold")
        .done();
}

#[test]
fn hazard_26_dram_budget() {
    Case::new("hazard_26_dram_budget")
        .says(Says::Warnings)
        .under("file", "cold=file:{};policy=size;threshold=1M;dram=32M")
        .under("memfd", "cold=memfd;policy=size;threshold=1M;dram=32M")
        .done();
}

/// A path of 3,000 bytes, and the words after it count.
#[test]
fn hazard_28_whole_configuration() {
    let dir = folder();
    let mut long = PathBuf::from(dir.path());
    while long.as_os_str().len() < 3000 {
        long.push("a-folder-with-a-name-that-is-rather-long-to-get-there-in-fewer-steps".repeat(3));
    }
    std::fs::create_dir_all(&long).unwrap();
    let mut cmd = preloaded(
        &program("hazard_28_whole_configuration"),
        &format!("cold=file:{};policy=size;threshold=2000", long.display()),
    );
    attempt("long", cmd.arg("2"), Says::Nothing).unwrap_or_else(|f| panic!("{f}"));
}

/// A wrong word is named, the valid ones are listed, and the program runs, on plain DRAM.
#[test]
fn hazard_28_wrong_words() {
    let path = program("hazard_28_whole_configuration");
    let mut failures = Vec::new();
    for (config, wrong, valid) in [
        ("cold=memfd;policy=cold;junk", "junk", "policy"),
        ("cold=memfd;polcy=cold", "polcy", "policy"),
        ("cold=memfd;policy=colder", "colder", "ratio"),
        ("cold=memfd,limit:12Q;policy=cold", "12Q", "G"),
        ("cold=disk:/tmp;policy=cold", "disk", "file"),
        ("cold=memfd;policy=cold trailing", "trailing", "size"),
        (
            "cold=file:/no/such/folder;policy=cold",
            "/no/such/folder",
            "",
        ),
        ("cold=devdax:/dev/dax0.0", "devdax", "fsdax"),
    ] {
        let mut cmd = preloaded(&path, config);
        match attempt(config, cmd.arg("1"), Says::Anything) {
            Err(failure) => failures.push(failure),
            Ok(ran) => {
                let said = ran.err();
                let one_line = said.starts_with("tierheap") && said.lines().count() == 1;
                if !(said.contains(wrong)
                    && said.contains(valid)
                    && one_line
                    && ran.stdout.is_empty())
                {
                    failures.push(format!(
                        "TIERHEAP={config:?}: not one line with {wrong:?} and {valid:?}: {said:?}"
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
