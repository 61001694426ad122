//! What the program gets: its arguments, environment, signals and tiers; and what comes back.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

use super::*;

#[test]
fn the_exit_status_is_the_programs() {
    for code in [0, 1, 37, 255] {
        let ran = ran(&mut tierheap(&[
            "run",
            "--cold",
            "memfd",
            "sh",
            "-c",
            &format!("exit {code}"),
        ]));
        assert_eq!(ran.status.code(), Some(code));
        assert!(
            ran.stderr.is_empty(),
            "said something unasked: {}",
            ran.err()
        );
    }
    let ran = ran(&mut tierheap(&["run", "--", "sh", "-c", "kill -TERM $$"]));
    assert_eq!(ran.status.signal(), Some(libc::SIGTERM));
}

#[test]
fn options_become_the_string() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    let file = format!("file:{here},limit:1G");
    let stats = format!("--stats={here}/out.json");
    let ran = ran(&mut tierheap(&[
        "run",
        "--cold",
        "memfd,limit:64M",
        "--cold",
        &file,
        "--dram",
        "1G",
        "--policy",
        "ratio",
        "--ratio",
        "1:2:3",
        "--threshold",
        "4K",
        "--strict",
        &stats,
        "--",
        "env",
    ]))
    .must_succeed("env");
    let string = format!(
        "cold=memfd,limit:64M;cold=file:{here},limit:1G;dram=1G;policy=ratio;threshold=4K;\
         ratio=1:2:3;strict=1;stats={here}/out.json"
    );
    assert_eq!(value(&ran, "TIERHEAP"), Some(string));
    assert_eq!(
        value(&ran, "LD_PRELOAD").map(PathBuf::from),
        Some(loaded("libc.so.6"))
    );
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "trying the tiers left {left:?}");
}

#[test]
fn an_option_replaces_its_key_and_leaves_the_others() {
    let string = |options: &[&str], before: &str| {
        let mut command = tierheap(&[&["run"], options, &["env"]].concat());
        if !before.is_empty() {
            command.env("TIERHEAP", before);
        }
        value(&ran(&mut command).must_succeed("env"), "TIERHEAP")
    };
    let some = |text: &str| Some(text.to_string());
    assert_eq!(string(&[], ""), None, "nothing asked for, nothing set");
    assert_eq!(
        string(&[], "cold=memfd;dram=1G;;"),
        some("cold=memfd;dram=1G")
    );
    assert_eq!(
        string(&["--cold", "memfd", "--stats"], "policy=size;threshold=4K"),
        some("cold=memfd;stats=1;policy=size;threshold=4K")
    );
    assert_eq!(
        string(
            &["--dram", "2G", "--cold", "memfd"],
            "dram=1G;cold=node:0;cold=memfd;thp=never"
        ),
        some("cold=memfd;dram=2G;thp=never")
    );
    assert_eq!(string(&["--stats=0"], "stats=1"), some("stats=0"));
}

#[test]
fn relative_paths_are_made_absolute() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().canonicalize().unwrap();
    std::fs::create_dir(here.join("sub")).unwrap();
    let ran = ran(
        tierheap(&["run", "--cold", "file:./sub,limit:1G", "--stats=out", "env"])
            .current_dir(&here),
    )
    .must_succeed("env");
    let here = here.display();
    let expected = format!("cold=file:{here}/sub,limit:1G;stats={here}/out");
    assert_eq!(value(&ran, "TIERHEAP"), Some(expected));
}

#[test]
fn a_path_of_any_bytes_arrives_whole() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir
        .path()
        .join(std::ffi::OsStr::from_bytes(b"a,b=c \xff,limit:1K"));
    std::fs::create_dir(&odd).unwrap();
    let tier = [b"file:", odd.as_os_str().as_bytes(), b"/"].concat();
    let arguments = [
        "run".as_ref(),
        "--cold".as_ref(),
        std::ffi::OsStr::from_bytes(&tier),
        "env".as_ref(),
    ];
    let ran = ran(&mut tierheap(&arguments)).must_succeed("env");
    let line = [b"TIERHEAP=cold=", tier.as_slice()].concat();
    assert!(
        ran.stdout.split(|&b| b == b'\n').any(|l| l == line),
        "{}",
        ran.out()
    );
}

#[test]
fn what_is_preloaded_already_stays_behind_ours() {
    let (ours, other) = (loaded("libc.so.6"), loaded("libgcc_s.so.1"));
    let both = format!("{}:{}", ours.display(), other.display());
    for before in [
        other.display().to_string(),
        both.clone(),
        format!("{} {}", other.display(), ours.display()),
    ] {
        let ran = ran(tierheap(&["run", "env"]).env("LD_PRELOAD", &before)).must_succeed("env");
        assert_eq!(
            value(&ran, "LD_PRELOAD"),
            Some(both.clone()),
            "before: {before}"
        );
    }
}

#[test]
fn arguments_arrive_as_they_were() {
    let script = "printf '%s|' \"$0\" \"$@\"";
    let ran = ran(&mut tierheap(&[
        "run", "sh", "-c", script, "a b", "", "--cold", "--", "-x", "\u{e9}",
    ]))
    .must_succeed("sh");
    assert_eq!(ran.out(), "a b||--cold|--|-x|\u{e9}|");
    // The program sees the name it was called by, not the path it was found at.
    let ran = super::ran(&mut tierheap(&["run", "cat", "/proc/self/cmdline"])).must_succeed("cat");
    assert_eq!(ran.out(), "cat\0/proc/self/cmdline\0");
}

#[test]
fn a_script_without_a_first_line_runs_as_a_shells_would() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "echo \"run by sh: $1\"\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let ran = ran(&mut tierheap(&["run", script.to_str().unwrap(), "x"])).must_succeed("script");
    assert_eq!(ran.out(), "run by sh: x\n");
}

/// The lines of /proc/self/status that tell signals apart, of a program run by `command`.
fn signals(command: &mut Command, ignore: bool) -> Vec<String> {
    // SAFETY: signal, sigemptyset, sigaddset and sigprocmask are async-signal-safe, and the set
    // lives in this function.
    unsafe {
        command.pre_exec(move || {
            let how = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
            libc::signal(libc::SIGPIPE, how);
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR2);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            Ok(())
        })
    };
    let ran = ran(command).must_succeed("grep");
    ran.out().lines().map(str::to_string).collect()
}

#[test]
fn signals_are_handed_over_as_they_came() {
    let program = ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"];
    let mut seen = Vec::new();
    for ignore in [true, false] {
        let plain = signals(Command::new("grep").args(&program[1..]), ignore);
        let through = signals(&mut tierheap(&[&["run"][..], &program].concat()), ignore);
        assert_eq!(through, plain, "SIGPIPE ignored: {ignore}");
        seen.push(plain);
    }
    assert_ne!(seen[0], seen[1], "the test tells the two apart");
}

/// A static x86-64 program that ends with status 7; `machine` is ELF's number.
fn static_program(path: &Path, machine: u16) {
    let code = [0xbf, 7, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]; // exit(7)
    let (base, at) = (0x40_0000u64, 64 + 56u64);
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
    elf.extend(machine.to_le_bytes());
    elf.extend(1u32.to_le_bytes());
    [base + at, 64, 0]
        .iter()
        .for_each(|n: &u64| elf.extend(n.to_le_bytes()));
    elf.extend(0u32.to_le_bytes());
    [64u16, 56, 1, 64, 0, 0]
        .iter()
        .for_each(|n| elf.extend(n.to_le_bytes()));
    [1u32, 5].iter().for_each(|n| elf.extend(n.to_le_bytes()));
    let len = at + code.len() as u64;
    [0, base, base, len, len, 0x1000]
        .iter()
        .for_each(|n: &u64| elf.extend(n.to_le_bytes()));
    elf.extend(code);
    std::fs::write(path, elf).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_program_that_will_not_load_the_library_is_said_and_run() {
    let dir = open_dir();
    let program = dir.path().join("static");
    static_program(&program, 62);
    let run = |path: &Path| ran(&mut tierheap(&["run", path.to_str().unwrap()]));
    let ran = run(&program);
    assert_eq!(ran.status.code(), Some(7), "{}", ran.err());
    assert!(
        ran.err().contains("warning") && ran.err().contains("is statically linked"),
        "{}",
        ran.err()
    );

    let script = dir.path().join("script");
    std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let ran = run(&script);
    assert_eq!(
        (
            ran.status.code(),
            ran.err().contains("is statically linked")
        ),
        (Some(7), true)
    );

    static_program(&program, 183);
    assert!(
        run(&program)
            .err()
            .contains("is for another architecture (Aarch64)")
    );

    let setuid = dir.path().join("setuid");
    std::fs::copy("/bin/true", &setuid).unwrap();
    std::os::unix::fs::chown(&setuid, Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4755)).unwrap();
    let ran = run(&setuid);
    assert!(
        ran.status.success() && ran.err().contains("other privileges"),
        "{}",
        ran.err()
    );
}

#[test]
fn a_doubtful_tier_is_warned_of_and_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = |limit: &str| format!("file:{},limit:{limit}", dir.path().display());
    for (options, said) in [
        (
            ["--cold", &file("4096T")],
            "the limit 4096T is more than the",
        ),
        (
            ["--cold", &file("1000K")],
            "the limit 1000K is less than one segment (2M)",
        ),
        (["--cold", "node:0"], "node 0 has processors"),
        (
            ["--dram", "4096T"],
            "the budget 4096T is more than this machine's",
        ),
    ] {
        let ran =
            ran(&mut tierheap(&[&["run"], &options[..], &["true"]].concat())).must_succeed("true");
        assert!(
            ran.err().contains("tierheap: warning: ") && ran.err().contains(said),
            "{}",
            ran.err()
        );
    }
    let tier = format!("KIND:FS_DAX,PATH:{},RATIO:4", dir.path().display());
    let tiers = format!("KIND:DRAM,RATIO:1;{tier};POLICY:STATIC_RATIO");
    let ran = ran(tierheap(&["run", "env"]).env("MEMKIND_MEM_TIERS", tiers)).must_succeed("env");
    assert!(
        ran.err()
            .contains("FS_DAX was asked for, but the directory is not DAX"),
        "{}",
        ran.err()
    );
    assert_eq!(
        value(&ran, "TIERHEAP"),
        None,
        "memtier's words are left to the library"
    );
}

#[test]
fn a_file_size_limit_does_not_kill_and_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let tier = format!("file:{}", dir.path().display());
    // Below one segment, where nothing is tried, and above.
    for (limit, said) in [(1 << 20, "1M"), (4 << 20, "4M")] {
        let mut command = tierheap(&["run", "--cold", &tier, "true"]);
        limit_file_size(&mut command, limit);
        let ran = ran(&mut command).must_succeed("true");
        assert_eq!(
            ran.err(),
            format!("tierheap: warning: {tier}: RLIMIT_FSIZE lets the tier hold {said}, no more\n")
        );
    }
}

#[test]
fn the_built_library_is_found_beside_the_command_below_it_and_by_the_loader() {
    let dir = open_dir();
    let place = |path: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let copy = place("bin/tierheap");
    std::fs::copy(common::command(), &copy).unwrap();
    let mut path = std::ffi::OsString::new();
    for library in [
        "lib/tierheap/libtierheap.so",
        "lib/libtierheap.so",
        "bin/libtierheap.so",
        "far/libtierheap.so",
    ] {
        let library = place(library);
        std::fs::copy(common::library(), &library).unwrap();
        if library.parent().unwrap().ends_with("far") {
            path = library.parent().unwrap().into();
            std::fs::remove_dir_all(dir.path().join("lib")).unwrap();
            std::fs::remove_file(dir.path().join("bin/libtierheap.so")).unwrap();
        }
        let mut command = Command::new(&copy);
        command.args(["run", "env"]).env("LD_LIBRARY_PATH", &path);
        for name in ["TIERHEAP", "TIERHEAP_LIB", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        let ran = ran(&mut command).must_succeed("env under the built library");
        let preload = value(&ran, "LD_PRELOAD").map(PathBuf::from);
        assert_eq!(
            preload,
            Some(library.canonicalize().unwrap()),
            "nearer ones come first"
        );
        assert!(ran.stderr.is_empty(), "{}", ran.err());
    }
}
