//! Checks that need more than a program and its environment: disks that are full, setuid
//! programs, debuggers, second copies, and what the command says.

use crate::build::{self, compile, folder};
use crate::common;
use crate::row::{Outcome, Scene, command_line, program, said, wrong};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

fn joined(prefix: &str, path: &Path) -> OsString {
    let mut word = OsString::from(prefix);
    word.push(path);
    word
}

fn not_applicable(reason: &str) -> Outcome {
    Outcome::NotApplicable(reason.to_string())
}

const NO_LIBRARY: &str = "is no library of its own";

/// How a small file system is mounted at `$1`, and its size.
pub struct Disk {
    mount: &'static str,
    mebibytes: &'static str,
}

pub const TMPFS: Disk = Disk {
    mount: "mount -t tmpfs -o size=8m none \"$1\"",
    mebibytes: "8",
};

/// Needs root, for the loop device.
pub const EXT4: Disk = Disk {
    mount: "truncate -s 64M \"$1.image\" && mkfs.ext4 -q -F -b 4096 -m 0 \"$1.image\" \
         && mount -o loop \"$1.image\" \"$1\" \
         && blockdev --setra 16384 \"$(findmnt -no SOURCE \"$1\")\"",
    mebibytes: "64",
};

/// A tier on a disk that is smaller than the tier may be, mounted where only the program sees it.
pub fn full_disk(scene: &Scene, disk: &Disk) -> Outcome {
    if !scene.config.in_file() {
        return not_applicable("is no tier in a folder");
    }
    let modes: &[(&str, &str)] = match scene.allocator.own {
        true => &[
            ("falls-back", "cold=file:{};policy=cold"),
            ("strict", "cold=file:{};policy=cold;strict=1"),
        ],
        // Either is fine with others.
        false => &[("strict", "")],
    };
    for (mode, own) in modes {
        // Not in the scene's folder, which holds the disk's image.
        let place = folder();
        let at = place.path().join("disk");
        std::fs::create_dir(&at).unwrap();
        let mut variables = Vec::new();
        for (key, value) in &scene.config.variables {
            let value = if scene.allocator.own { *own } else { value };
            variables.push(joined(
                &format!("{key}="),
                crate::allocator::within(value, &at).as_ref(),
            ));
        }
        if scene.allocator.own {
            variables.push("EXPECT_TIERHEAP=1".into());
        }
        // Only the program itself has the library.
        variables.push(joined("LD_PRELOAD=", scene.library()));
        let script = format!("{} || exit 99; shift; exec env \"$@\"", disk.mount);
        // SAFETY: a plain system call.
        let root = unsafe { libc::geteuid() } == 0;
        let mut cmd = build::plain(Path::new("unshare"));
        cmd.args([if root { "-m" } else { "-rm" }, "sh", "-c", &script, "sh"])
            .arg(&at)
            .args(variables)
            .arg(scene.program())
            .args([mode, disk.mebibytes]);
        match scene.judge(&mut cmd) {
            Outcome::Pass => (),
            other => return other,
        }
    }
    Outcome::Pass
}

/// A path of 3,000 bytes, and the words after it count.
pub fn long_path(scene: &Scene) -> Outcome {
    if !scene.config.in_file() {
        return not_applicable("is no tier in a folder");
    }
    let place = folder();
    let mut long = PathBuf::from(place.path());
    while long.as_os_str().len() < 3000 {
        long.push("a-folder-with-a-name-that-is-rather-long-to-get-there-in-fewer-steps".repeat(3));
    }
    std::fs::create_dir_all(&long).unwrap();
    let mut cmd = scene.command(&scene.program());
    cmd.arg("2");
    for (key, value) in &scene.config.variables {
        let value = match scene.allocator.own {
            true => "cold=file:{};policy=size;threshold=2000",
            false => value,
        };
        cmd.env(key, crate::allocator::within(value, &long));
    }
    scene.judge(&mut cmd)
}

/// A wrong word is named, the valid ones are listed, and the program runs, on plain DRAM.
pub fn wrong_words(scene: &Scene) -> Outcome {
    for (config, named, valid) in [
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
        let mut cmd = scene.command(&scene.program());
        let ran = match scene.watch(cmd.arg("1").env("TIERHEAP", config)) {
            Ok(ran) => ran,
            Err(outcome) => return outcome,
        };
        let text = ran.err();
        let one_line = text.starts_with("tierheap") && text.lines().count() == 1;
        if !(text.contains(named) && text.contains(valid) && one_line && ran.stdout.is_empty()) {
            return wrong(format!(
                "TIERHEAP={config:?}: not one line with {named:?} and {valid:?}: {text:?}"
            ));
        }
    }
    Outcome::Pass
}

/// The program, linked with the library and made setuid, is started by another user who sets the
/// variable that makes the library talk. Then the same without the bit.
pub fn setuid(scene: &Scene) -> Outcome {
    let Some((key, value)) = scene.allocator.telltale else {
        return not_applicable("has no variable known here that would show");
    };
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } != 0 {
        return wrong("only root can make the setuid program this check needs");
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let mode = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let tier = dir.join("tier");
    std::fs::create_dir(&tier).unwrap();
    let name = scene.library().file_name().unwrap();
    std::fs::copy(scene.library(), dir.join(name)).unwrap();
    let path = dir.join("program");
    let arguments = [
        "-Wl,--no-as-needed".into(),
        joined("-L", dir),
        joined("-l:", Path::new(name)),
        joined("-Wl,-rpath,", dir),
    ];
    compile("hazard_30_secure_execution.c", &path, &arguments);
    mode(dir, 0o755);
    mode(&tier, 0o777);
    mode(&path, 0o4755);
    let start = || {
        use std::os::unix::process::CommandExt;
        let mut cmd = build::plain(&path);
        cmd.uid(65534)
            .env(key, crate::allocator::within(value, &tier));
        if scene.allocator.own {
            cmd.env("EXPECT_TIERHEAP", "1");
        }
        cmd
    };
    let ran = match scene.watch(&mut start()) {
        Ok(ran) => ran,
        Err(outcome) => return outcome,
    };
    if !ran.stdout.is_empty() || !ran.stderr.is_empty() {
        return wrong(format!("obeys {key} in a setuid program: {}", said(&ran)));
    }
    mode(&path, 0o755);
    match scene.watch(start().arg("obey")) {
        Ok(ran) if ran.stdout.is_empty() && ran.stderr.is_empty() => {
            wrong(format!("{key} shows nothing without the setuid bit either"))
        }
        Ok(_) => Outcome::Pass,
        Err(outcome) => outcome,
    }
}

/// A copy under another path, loaded late or preloaded beside the first.
pub fn two_copies(scene: &Scene, preloaded: bool) -> Outcome {
    let Some(library) = &scene.allocator.library else {
        return not_applicable(NO_LIBRARY);
    };
    let place = folder();
    let copy = place.path().join("another.so");
    std::fs::copy(library, &copy).unwrap();
    let mut cmd = scene.command(&scene.program());
    cmd.arg(&copy);
    if preloaded {
        let mut list = library.clone().into_os_string();
        list.push(":");
        list.push(&copy);
        cmd.env("LD_PRELOAD", list).env("COPY_IS_PRELOADED", "1");
    }
    scene.judge(&mut cmd)
}

/// The program brings jemalloc along; what is preloaded comes before it.
pub fn linked_with_jemalloc(scene: &Scene) -> Outcome {
    if scene.allocator.library.is_none() {
        return not_applicable("is not preloaded: jemalloc is then all of malloc");
    }
    let place = folder();
    let path = place.path().join("program");
    let jemalloc = crate::support::installed("libjemalloc.so.2", "libjemalloc2");
    let arguments = ["-Wl,--no-as-needed".into(), jemalloc.into_os_string()];
    compile("hazard_34_linked_with_jemalloc.c", &path, &arguments);
    scene.judge(scene.command(&path).arg("preloaded"))
}

const WORKS: &str = "the tools let it work";

/// The tool's own words may surround what the program says.
fn works(scene: &Scene, cmd: &mut Command) -> Outcome {
    let line = command_line(cmd);
    match scene.watch(cmd) {
        Ok(ran) if ran.out().contains(WORKS) => Outcome::Pass,
        Ok(ran) => wrong(format!("{}\n$ {line}", said(&ran))),
        Err(outcome) => outcome,
    }
}

/// gdb starts the program with the library, stays outside of it, and can put a string into it, for
/// which it calls the `malloc` whose type it reads off the library's symbols.
pub fn gdb(scene: &Scene) -> Outcome {
    let mut cmd = build::plain(Path::new("gdb"));
    cmd.args(["-q", "-batch", "-iex", "set debuginfod enabled off"]);
    let mut variables = scene.variables();
    if let Some(library) = &scene.allocator.library {
        variables.push(("LD_PRELOAD", library.into()));
    }
    for (key, value) in variables {
        let set = joined(&format!("set environment {key}="), Path::new(&value));
        cmd.arg("-ex").arg(set);
    }
    const TEXT: &str = "put here by the debugger";
    let call = format!("call (int)puts(\"{TEXT}\")");
    cmd.args(["-ex", "break pthread_create", "-ex", "run", "-ex", &call]);
    cmd.args(["-ex", "delete", "-ex", "continue"]);
    let line = command_line(cmd.arg(scene.program()));
    match scene.watch(&mut cmd) {
        Ok(ran) if ran.out().contains(WORKS) && ran.out().lines().any(|l| l == TEXT) => {
            Outcome::Pass
        }
        Ok(ran) => wrong(format!("{}\n$ {line}", said(&ran))),
        Err(outcome) => outcome,
    }
}

/// valgrind has the library in its own process, and puts its malloc before the library's.
pub fn valgrind(scene: &Scene) -> Outcome {
    let mut cmd = scene.command(Path::new("valgrind"));
    works(
        scene,
        cmd.args(["-q", "--error-exitcode=9"]).arg(scene.program()),
    )
}

/// AddressSanitizer brings an allocator of its own. Statically linked it comes first and the
/// library is called by nobody; preloaded before it, the library is the one that is called.
pub fn address_sanitizer(scene: &Scene) -> Outcome {
    let place = folder();
    let path = place.path().join("sanitized");
    for link in ["-static-libasan", "-shared-libasan"] {
        let mut arguments: Vec<OsString> = vec!["-fsanitize=address".into()];
        if link == "-static-libasan" {
            arguments.push(link.into());
        }
        compile("hazard_35_tools.c", &path, &arguments);
        let mut cmd = scene.command(&path);
        cmd.env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
        match works(scene, &mut cmd) {
            Outcome::Pass => (),
            Outcome::Fail(how, text) => return Outcome::Fail(how, format!("{link}: {text}")),
            other => return other,
        }
    }
    Outcome::Pass
}

/// Where userfaultfd is denied, `tierheap doctor` says so.
pub fn doctor_under_denial(scene: &Scene) -> Outcome {
    let mut cmd = build::plain(&program("hazard_22_denied_userfaultfd"));
    cmd.arg("EXECUTE").arg(common::command());
    doctor_says(scene, &mut cmd, "userfaultfd", "none")
}

/// That a file tier's page cache counts against the container's limit is said where one asks.
pub fn doctor_on_page_cache(scene: &Scene) -> Outcome {
    let mut cmd = build::plain(&common::command());
    let tier = joined("file:", scene.folder).into_string().unwrap();
    cmd.args(["doctor", "--json", "--cold", &tier]);
    let report = match report(scene, &mut cmd) {
        Ok(report) => report,
        Err(outcome) => return outcome,
    };
    let notes = report["asked"][0]["notes"].to_string();
    match notes.contains("page cache") && notes.contains("memory limit") {
        true => Outcome::Pass,
        false => wrong(format!("the doctor's notes on {tier} are {notes}")),
    }
}

fn doctor_says(scene: &Scene, cmd: &mut Command, capability: &str, value: &str) -> Outcome {
    match report(scene, cmd.args(["doctor", "--json"])) {
        Ok(report) if report["capabilities"][capability] == value => Outcome::Pass,
        Ok(report) => wrong(format!(
            "the doctor says {capability}: {}",
            report["capabilities"][capability]
        )),
        Err(outcome) => outcome,
    }
}

fn report(scene: &Scene, cmd: &mut Command) -> Result<serde_json::Value, Outcome> {
    let ran = scene.watch(cmd)?;
    serde_json::from_slice(&ran.stdout).map_err(|e| wrong(format!("no JSON: {e}: {}", said(&ran))))
}
