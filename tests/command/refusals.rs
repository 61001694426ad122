//! Status 2, a message that names the word, and the program not started.

use super::*;

/// The message; the program would leave a file if it were run.
#[track_caller]
fn refused(options: &[&str], environment: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("was-run");
    let arguments = [&["run"], options, &["--", "touch", mark.to_str().unwrap()]].concat();
    let mut command = tierheap(&arguments);
    command.envs(environment.iter().copied());
    let ran = ran(&mut command);
    assert_eq!(
        ran.status.code(),
        Some(2),
        "{options:?} {environment:?}: {}",
        ran.err()
    );
    assert!(
        !mark.exists(),
        "{options:?} {environment:?}: refused and yet run"
    );
    assert!(ran.stdout.is_empty(), "{}", ran.out());
    ran.err()
}

#[test]
fn bad_usage_is_status_2() {
    for (arguments, said) in [
        (&[][..], "Usage: tierheap"),
        (&["run"], "PROGRAM"),
        (&["run", "--cold"], "--cold"),
        (&["run", "--colder", "memfd", "true"], "--colder"),
        (&["probe", "memfd"], "unrecognized subcommand 'probe'"),
        (&["top"], "unrecognized subcommand 'top'"),
        (
            &["doctor", "--cold", "disk:/x"],
            "\"disk:/x\" is an unknown tier: a tier is fsdax:DIR",
        ),
        (
            &["doctor", "--cold", "memfd;dram=1"],
            "cold: \"memfd;dram=1\" holds a ';'",
        ),
    ] {
        let ran = ran(&mut tierheap(arguments));
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}");
        assert!(ran.err().contains(said), "{arguments:?}: {}", ran.err());
    }
    assert!(
        ran(&mut tierheap(&["run", "--help"]))
            .must_succeed("help")
            .out()
            .contains("--ratio")
    );
}

#[test]
fn a_wrong_word_is_named() {
    for (options, said) in [
        (
            &["--cold", "pmem:/x"][..],
            "cold: \"pmem:/x\" is an unknown tier: a tier is fsdax:DIR, file:DIR, node:LIST or memfd",
        ),
        (
            &["--cold", "devdax:/dev/dax0.0"],
            "\"devdax:/dev/dax0.0\" is a devdax tier, not built yet",
        ),
        (&["--cold", "memfd,limit:4GB"], "\"4GB\" is not a size"),
        (&["--cold", "file:"], "\"file:\" names no directory"),
        (
            &["--dram", "much"],
            "dram: \"much\" is not a size: write bytes, or a whole number with K, M, G or T",
        ),
        (
            &["--cold", "memfd", "--policy", "hot"],
            "the policies are dram, size, ratio, auto, heat, cold",
        ),
        (&["--policy", "size"], "policy: \"size\" needs a cold tier"),
        (
            &["--cold", "memfd", "--threshold=-1"],
            "threshold: \"-1\" is not a size",
        ),
        (
            &["--cold", "memfd", "--ratio", "1:2:3"],
            "3 weights for 2 tiers",
        ),
        (&["--cold", "memfd", "--ratio", "1"], "1 weight for 2 tiers"),
        (
            &["--cold", "memfd,limit:32K"],
            "cold: \"32K\" is below 64K, the least limit",
        ),
        (&["--cold", "memfd;dram=1G"], "holds a ';'"),
        (&["--stats="], "stats: \"\" is neither 0, 1 nor a path"),
    ] {
        let message = refused(options, &[]);
        assert!(message.contains(said), "{options:?}\n said {message}");
    }
    for (string, said) in [
        (
            "mmap=1",
            "\"mmap\" is an unknown key: the keys are cold, dram",
        ),
        ("dram=1G;junk", "\"junk\" is not a key=value pair"),
        ("strict=1;strict=1", "\"strict\" is given twice"),
    ] {
        let message = refused(&[], &[("TIERHEAP", string)]);
        assert!(
            message.contains(said) && message.contains(&format!("in TIERHEAP={string}")),
            "{message}"
        );
        // An option for another key does not hide it.
        assert!(refused(&["--cold", "memfd"], &[("TIERHEAP", string)]).contains(said));
    }
}

#[test]
fn memtiers_variable_is_checked_when_it_is_what_counts() {
    let bad = "KIND:DRAM,RATIO:1;KIND:HBM,RATIO:4;POLICY:STATIC_RATIO";
    let message = refused(&[], &[("MEMKIND_MEM_TIERS", bad)]);
    assert!(
        message.contains("KIND: \"HBM\" is an unknown kind"),
        "{message}"
    );
    assert!(
        message.contains("in MEMKIND_MEM_TIERS=KIND:DRAM"),
        "{message}"
    );
    let gone = "KIND:DRAM,RATIO:1;KIND:FS_DAX,PATH:/no/such,RATIO:4;POLICY:STATIC_RATIO";
    assert!(refused(&[], &[("MEMKIND_MEM_TIERS", gone)]).contains("/no/such: no such directory"));
    // A TIERHEAP comes first, and run says what is passed over, once.
    let good = "KIND:DRAM,RATIO:1;KIND:KMEM_DAX,RATIO:4;POLICY:STATIC_RATIO";
    for (options, before, why) in [
        (
            &["--cold", "memfd"][..],
            None,
            "the options make a TIERHEAP, which comes before it",
        ),
        (
            &[],
            Some("policy=dram"),
            "TIERHEAP is set, and comes before it",
        ),
        (
            &["--stats=0"],
            Some(""),
            "TIERHEAP is set, and comes before it",
        ),
    ] {
        for tiers in [bad, good] {
            let mut command = tierheap(&[&["run"], options, &["env"]].concat());
            command.env("MEMKIND_MEM_TIERS", tiers);
            command.envs(before.map(|text| ("TIERHEAP", text)));
            let said = ran(&mut command).must_succeed("env").err();
            let expected = format!("tierheap: warning: MEMKIND_MEM_TIERS is not used: {why}\n");
            assert_eq!(said, expected, "{options:?} {before:?}");
        }
    }
}

#[test]
fn a_tier_that_does_not_work_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (dir, file) = (dir.path().display(), file.display());
    for (tier, said) in [
        (
            "file:/no/such/place".to_string(),
            "file:/no/such/place: no such directory".to_string(),
        ),
        (
            format!("file:{file}"),
            format!("file:{file}: not a directory"),
        ),
        (format!("file:{file}/below"), "Not a directory".into()),
        (
            "file:/proc/self".into(),
            "file:/proc/self: cannot make a file".into(),
        ),
        (
            format!("fsdax:{dir}"),
            format!("fsdax:{dir}: not DAX: MAP_SYNC is refused"),
        ),
        (
            "node:1022".into(),
            "node:1022: there is no node 1022: this machine's nodes are 0".into(),
        ),
    ] {
        let message = refused(&["--cold", &tier], &[]);
        assert!(message.contains(&said), "{tier}\n said {message}");
    }
    // Every one that fails is said, not the first only.
    let both = refused(
        &[
            "--cold",
            "file:/no/a",
            "--cold",
            "memfd",
            "--cold",
            "file:/no/b",
        ],
        &[],
    );
    assert!(
        both.contains("/no/a: no such") && both.contains("/no/b: no such"),
        "{both}"
    );
}

#[test]
fn no_permission_is_refused() {
    let dir = open_dir();
    let tier = format!("file:{}", dir.path().display());
    let ran = ran(&mut as_nobody(
        dir.path(),
        &["run", "--cold", &tier, "--", "true"],
    ));
    assert_eq!(ran.status.code(), Some(2), "{}", ran.err());
    assert!(
        ran.err().contains("cannot make a file: Permission denied"),
        "{}",
        ran.err()
    );
}

#[test]
fn a_full_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "mount -t tmpfs -o size=1m none \"$1\" && exec \"$0\" run --cold file:\"$1\" -- true";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .arg(common::command())
        .arg(dir.path());
    command
        .env("TIERHEAP_LIB", loaded("libc.so.6"))
        .env_remove("TIERHEAP");
    let ran = ran(&mut command);
    assert_eq!(ran.status.code(), Some(2), "{}", ran.err());
    assert!(
        ran.err()
            .contains("no room for one segment of 2M: No space left"),
        "{}",
        ran.err()
    );
}

#[test]
fn a_statistics_file_that_cannot_be_written_is_refused() {
    assert!(
        refused(&["--stats=/no/such/file"], &[])
            .contains("stats: /no/such/file: /no/such: No such")
    );
    let dir = tempfile::tempdir().unwrap();
    let option = format!("--stats={}", dir.path().display());
    assert!(refused(&[&option], &[]).contains("is a directory"));
}

#[test]
fn a_library_that_would_do_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let blank = dir.path().join("a b.so");
    std::fs::copy(loaded("libc.so.6"), &blank).unwrap();
    // Loaded by every Rust program, and exports no malloc.
    let other = loaded("libgcc_s.so.1");
    for (library, said) in [
        (
            "/no/such.so".to_string(),
            "TIERHEAP_LIB: /no/such.so: No such file",
        ),
        ("/etc/passwd".into(), "/etc/passwd: not a shared library"),
        (other.display().to_string(), "exports no malloc"),
        (
            blank.display().to_string(),
            "LD_PRELOAD cannot name a path with a blank",
        ),
    ] {
        let message = refused(&[], &[("TIERHEAP_LIB", &library)]);
        assert!(message.contains(said), "{library}\n said {message}");
    }
    // A copy with no library near it.
    let alone = open_dir();
    let copy = alone.path().join("tierheap");
    std::fs::copy(common::command(), &copy).unwrap();
    // Cargo's search path has the library that it built for other tests.
    let ran = ran(Command::new(&copy)
        .args(["run", "true"])
        .env_remove("TIERHEAP_LIB")
        .env_remove("LD_LIBRARY_PATH"));
    assert_eq!(ran.status.code(), Some(2), "{}", ran.err());
    assert!(
        ran.err()
            .contains("libtierheap.so is not found: it is looked for in TIERHEAP_LIB")
    );
}

#[test]
fn a_program_that_cannot_be_run_is_126_or_127() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "echo no").unwrap();
    let broken = dir.path().join("broken");
    std::fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&broken, PermissionsExt::from_mode(0o755)).unwrap();
    for (program, status, said) in [
        (
            "no-such-program-at-all",
            127,
            "no-such-program-at-all: program not found in PATH",
        ),
        (
            "/no/such/program",
            127,
            "/no/such/program: No such file or directory",
        ),
        (dir.path().to_str().unwrap(), 126, "is a directory"),
        (plain.to_str().unwrap(), 126, "not executable"),
        (broken.to_str().unwrap(), 127, "broken: No such file"),
    ] {
        let ran = ran(&mut tierheap(&["run", "--", program]));
        assert_eq!(ran.status.code(), Some(status), "{program}: {}", ran.err());
        assert!(ran.err().contains(said), "{program}: {}", ran.err());
    }
    let ran = ran(tierheap(&["run", "plain"]).env("PATH", dir.path()));
    assert_eq!(
        (
            ran.status.code(),
            ran.err().contains("plain: not executable")
        ),
        (Some(126), true)
    );
    // The configuration is judged first.
    assert_eq!(
        super::ran(&mut tierheap(&["run", "--dram", "x", "no-such"]))
            .status
            .code(),
        Some(2)
    );
}
