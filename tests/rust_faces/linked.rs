//! Programs that have the library linked in: what they export, and what the examples print.

use super::*;

/// Without the feature `libc-names` the C library's malloc stays its own.
#[test]
fn linking_does_not_replace_malloc() {
    let replaced = cfg!(feature = "libc-names");
    // SAFETY: malloc, freed below.
    let block = unsafe { libc::malloc(1000) };
    assert_eq!(tier_of(block).is_some(), replaced);
    // SAFETY: made above.
    unsafe { libc::free(block) };
    let local = 0;
    for address in [&raw const local, std::ptr::null(), usize::MAX as *const i32] {
        assert_eq!(tier_of(address), None);
    }
    assert_eq!(tier_of("constant".as_ptr()), None);
    // Of this program, and of one that has tierheap as its allocator and nothing else.
    for program in [
        std::env::current_exe().unwrap(),
        example("global_allocator"),
    ] {
        let mut cmd = Command::new("nm");
        cmd.args(["--defined-only", "--format=posix"]).arg(&program);
        let names = common::run(&mut cmd, LIMIT).must_succeed("nm").out();
        let has = |name: &str| {
            names
                .lines()
                .any(|line| line.split(' ').next() == Some(name))
        };
        assert!(
            has("main"),
            "nm does not see the names of {}",
            program.display()
        );
        for name in [
            "malloc",
            "calloc",
            "realloc",
            "free",
            "posix_memalign",
            "_Znwm",
            "mallctl",
        ] {
            assert_eq!(has(name), replaced, "{name} in {}", program.display());
        }
    }
}

/// An example, built now as this test was: `cargo test --test` alone does not build it.
fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    // TARGET/PROFILE/deps/this
    let profile = exe.parent().and_then(Path::parent).unwrap();
    let mut cmd = Command::new(env!("CARGO"));
    cmd.current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--example", name, "--target-dir"])
        .arg(profile.parent().unwrap());
    let name_of_profile = match profile.file_name().and_then(|name| name.to_str()).unwrap() {
        "debug" => "dev",
        other => other,
    };
    cmd.args(["--profile", name_of_profile]);
    for (feature, on) in [
        ("libc-names", cfg!(feature = "libc-names")),
        ("cli", cfg!(feature = "cli")),
        ("header", cfg!(feature = "header")),
        ("allocator-api2", cfg!(feature = "allocator-api2")),
    ] {
        if on {
            cmd.args(["--features", feature]);
        }
    }
    // The whole library once more where the example was not built yet.
    common::run(&mut cmd, Duration::from_secs(900)).must_succeed("building the example");
    profile.join("examples").join(name)
}

#[test]
fn example_global_allocator() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let sized = format!(
        "cold=file:{};policy=size;threshold=64K",
        dir.path().display()
    );
    for (configuration, cold) in [("", 0), ("policy=dram", 0), (&sized, 100)] {
        let mut cmd = Command::new(example("global_allocator"));
        cmd.env("TIERHEAP", configuration);
        let ran = common::run(&mut cmd, LIMIT).must_succeed(configuration);
        let said = format!("100 texts, {cold} of them in a cold tier\n");
        assert!(
            ran.out().starts_with(&said),
            "{configuration}: {}",
            ran.out()
        );
        assert_eq!(ran.err(), "");
    }
}

#[test]
fn example_kinds() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut cmd = Command::new(example("kinds"));
    cmd.arg(dir.path()).env_remove("TIERHEAP");
    let ran = common::run(&mut cmd, LIMIT).must_succeed("kinds");
    let mut said = "2000 of 2000 values in the cold tier\n".to_string();
    if cfg!(feature = "allocator-api2") {
        said += "2000 of 2000 boxes in the cold tier\n";
    }
    assert_eq!((ran.out(), ran.err()), (said, String::new()));
}
