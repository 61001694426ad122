//! Compiles the programs with the system's compilers and runs them with a readable end.

use crate::common;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Programs take up to a few seconds; with others beside them a hang shows after this.
pub const LIMIT: Duration = Duration::from_secs(120);

pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c-tests")
}

/// A folder of this test's own on the disk that holds the build: a tmpfs would hide what only a
/// real file system does.
pub fn folder() -> tempfile::TempDir {
    std::fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Compiles `c-tests/<source>` to `output` with these arguments besides the usual ones.
pub fn compile(source: &str, output: &Path, arguments: &[OsString]) {
    let cpp = source.ends_with(".cpp");
    let compiler = std::env::var_os(if cpp { "CXX" } else { "CC" })
        .unwrap_or_else(|| if cpp { "c++" } else { "cc" }.into());
    // Two tests, or two runs, may build the same program at once: the name appears when it is whole.
    let unfinished = output.with_extension(format!(
        "{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let mut cmd = Command::new(compiler);
    cmd.arg(if cpp { "-std=c++17" } else { "-std=c11" })
        .args([
            "-D_GNU_SOURCE",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-pthread",
            "-rdynamic",
        ])
        // The compiler must not reason about malloc: the calls are what is tested.
        .args([
            "-fno-builtin",
            "-Wno-alloc-size-larger-than",
            "-Wno-unused-result",
        ])
        .arg(sources().join(source))
        .arg("-o")
        .arg(&unfinished)
        .args(arguments)
        .arg("-ldl");
    common::run(&mut cmd, LIMIT).must_succeed(&format!("compiling {source}"));
    std::fs::rename(&unfinished, output).unwrap();
}

pub fn output(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-tests");
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(name)
}

/// A program that knows nothing of the library; `name` with its suffix, if that is not `.c`.
pub fn program(name: &str) -> PathBuf {
    let path = output(name.trim_end_matches(".cpp"));
    let source = if name.ends_with(".cpp") {
        name.to_string()
    } else {
        format!("{name}.c")
    };
    compile(&source, &path, &[]);
    path
}

/// A shared object that a program loads, or that is preloaded beside the library.
pub fn plugin(name: &str) -> PathBuf {
    let path = output(&format!("{name}.so"));
    compile(
        &format!("{name}.c"),
        &path,
        &["-shared".into(), "-fPIC".into()],
    );
    path
}

/// A program that includes the header and is linked with the library.
pub fn linked(name: &str) -> PathBuf {
    let path = output(name.trim_end_matches(".cpp"));
    let source = if name.ends_with(".cpp") {
        name.to_string()
    } else {
        format!("{name}.c")
    };
    compile(
        &source,
        &path,
        &link_with(common::library().parent().unwrap()),
    );
    path
}

/// What the compiler needs to link with the library in this folder.
pub fn link_with(folder: &Path) -> Vec<OsString> {
    let join = |prefix: &str, path: &Path| {
        let mut word = OsString::from(prefix);
        word.push(path);
        word
    };
    vec![
        join("-I", &Path::new(env!("CARGO_MANIFEST_DIR")).join("include")),
        join("-L", folder),
        "-ltierheap".into(),
        join("-Wl,-rpath,", folder),
    ]
}

/// A command without the library, its environment clean, and only the three standard descriptors.
pub fn plain(program: &Path) -> Command {
    let mut cmd = Command::new(program);
    for name in [
        "LD_PRELOAD",
        "TIERHEAP",
        "EXPECT_TIERHEAP",
        "MEMKIND_MEM_TIERS",
        // Cargo's, where builds of the library lie that have not the names of libc.
        "LD_LIBRARY_PATH",
    ] {
        cmd.env_remove(name);
    }
    only_standard_descriptors(&mut cmd);
    cmd
}

/// A command with the library preloaded and told so.
pub fn preloaded(program: &Path, config: &str) -> Command {
    let mut cmd = common::preloaded(program, config);
    cmd.env_remove("MEMKIND_MEM_TIERS")
        .env_remove("LD_LIBRARY_PATH")
        .env("EXPECT_TIERHEAP", "1");
    only_standard_descriptors(&mut cmd);
    cmd
}

fn only_standard_descriptors(cmd: &mut Command) {
    // SAFETY: one system call between fork and exec; marking is safe for the pipe by which the
    // standard library learns that exec failed.
    unsafe {
        cmd.pre_exec(|| {
            libc::syscall(
                libc::SYS_close_range,
                3,
                u32::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            Ok(())
        });
    }
}

/// What a program may print when it succeeds.
#[derive(Clone, Copy, PartialEq)]
pub enum Says {
    Nothing,
    /// Warnings of the library on stderr, which a limit that was reached gives cause for.
    Warnings,
    /// Anything; the caller looks at it.
    Anything,
}

/// Nothing but a few warnings of the library.
pub fn only_warnings(ran: &common::Ran) -> bool {
    let lines = ran.err();
    ran.stdout.is_empty()
        && lines.lines().count() <= 5
        && lines.lines().all(|l| l.starts_with("tierheap"))
}

/// Runs to the end; the failure as a text, with the command line to repeat it.
pub fn attempt(label: &str, cmd: &mut Command, says: Says) -> Result<common::Ran, String> {
    let describe = |what: &str| format!("[{label}] {what}\n    {cmd:?}\n", cmd = cmd_line(cmd));
    let again = describe("");
    let ran = catch_unwind(AssertUnwindSafe(|| common::run(cmd, LIMIT))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        format!("[{label}] {text}\n")
    })?;
    let quiet = match says {
        Says::Nothing => ran.stdout.is_empty() && ran.stderr.is_empty(),
        Says::Warnings => only_warnings(&ran),
        Says::Anything => true,
    };
    if ran.status.success() && quiet {
        return Ok(ran);
    }
    let what = if ran.status.success() {
        "printed something"
    } else {
        "failed"
    };
    Err(format!(
        "{}  {what}: {:?}\n--- stdout\n{}\n--- stderr\n{}\n",
        again,
        ran.status,
        cut(&ran.out()),
        cut(&ran.err())
    ))
}

/// What a shell would be given to run it.
pub fn cmd_line(cmd: &Command) -> String {
    let mut line = String::new();
    for (name, value) in cmd.get_envs() {
        if let Some(value) = value {
            line += &format!("{}='{}' ", name.display(), value.display());
        }
    }
    line += &cmd.get_program().display().to_string();
    for argument in cmd.get_args() {
        line += &format!(" '{}'", argument.display());
    }
    line
}

pub fn cut(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= 40 {
        return text.to_string();
    }
    format!(
        "{}\n… {} lines …\n{}",
        lines[..30].join("\n"),
        lines.len() - 40,
        lines[lines.len() - 10..].join("\n")
    )
}

/// A program and the configurations it must pass under.
pub struct Case {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    failures: Vec<String>,
    says: Says,
    runs: usize,
}

impl Case {
    pub fn new(name: &str) -> Case {
        Case::of(name, program(name))
    }
    pub fn of(name: &str, program: PathBuf) -> Case {
        Case {
            name: name.to_string(),
            program,
            arguments: Vec::new(),
            failures: Vec::new(),
            says: Says::Nothing,
            runs: 0,
        }
    }
    pub fn arg(mut self, argument: impl Into<OsString>) -> Case {
        self.arguments.push(argument.into());
        self
    }
    fn one(&mut self, label: &str, mut cmd: Command) {
        cmd.args(&self.arguments);
        self.runs += 1;
        if let Err(failure) = attempt(label, &mut cmd, self.says) {
            self.failures.push(failure);
        }
    }
    /// From here on the library may warn.
    pub fn warns(mut self) -> Case {
        self.says = Says::Warnings;
        self
    }
    /// Once without the library: what the program claims is true of glibc.
    pub fn plain(mut self) -> Case {
        let cmd = plain(&self.program);
        self.one("plain glibc", cmd);
        self
    }
    /// Under this configuration; `{}` in it stands for a folder on disk, which must be empty
    /// again afterwards: a tier's files have no name.
    pub fn under(mut self, label: &str, config: &str) -> Case {
        let dir = folder();
        let cmd = preloaded(
            &self.program,
            &config.replace("{}", &dir.path().display().to_string()),
        );
        self.one(label, cmd);
        if std::fs::read_dir(dir.path()).unwrap().next().is_some() {
            self.failures
                .push(format!("[{label}] a file was left in the tier's folder\n"));
        }
        self
    }
    /// Under every configuration of the matrix for which `wanted` holds.
    pub fn matrix_of(mut self, wanted: impl Fn(&str) -> bool) -> Case {
        for (label, config) in common::policies(Path::new("{}")) {
            if wanted(label) {
                self = self.under(label, &config);
            }
        }
        self
    }
    pub fn matrix(self) -> Case {
        self.matrix_of(|_| true)
    }
    #[track_caller]
    pub fn done(self) {
        assert!(self.runs > 0, "{} was not run", self.name);
        assert!(
            self.failures.is_empty(),
            "{}: {} of {} runs failed\n{}",
            self.name,
            self.failures.len(),
            self.runs,
            self.failures.join("\n")
        );
    }
}
