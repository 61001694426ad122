//! A row of the table, the checks that make it up, and one run of a check.

use crate::allocator::{Allocator, Config, within};
use crate::build::{self, Says, folder};
use crate::common::{self, Ran, Unended};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How one run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Pass,
    /// The row says nothing about this allocator, and why.
    NotApplicable(String),
    Fail(How, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    Wrong,
    Hang,
    Crash,
}

impl How {
    pub fn word(self) -> &'static str {
        match self {
            How::Wrong => "wrong",
            How::Hang => "hang",
            How::Crash => "crash",
        }
    }
}

/// An argument that is known when the allocator is.
#[derive(Clone, Copy)]
pub enum Word {
    Text(&'static str),
    /// A shared object of `c-tests/`.
    Plugin(&'static str),
    /// The library under test.
    Library,
}

/// How the library comes into the process.
#[derive(Clone, Copy, PartialEq)]
pub enum Load {
    Preload,
    /// Preloaded after this plugin.
    Below(&'static str),
    /// Preloaded, with an audit library at work.
    Audited(&'static str),
    /// By the program itself, or otherwise: the check sees to it.
    ByItself,
}

/// Under which configurations a check is run.
pub enum Under {
    /// All the allocator has.
    Each,
    /// Those in which all is DRAM.
    Dram,
    /// Those that move what turns out hot: tierheap's by heat, all tiered ones of another.
    Heat,
    /// Those with a slower tier in a file on a disk.
    InFile,
    /// Its first.
    Once,
    /// Its first and its last, for what takes seconds.
    Pair,
    /// All blocks in one tier with this limit; without tiers as it is, if that makes sense.
    Tier {
        limit: &'static str,
        else_as_it_is: bool,
    },
    /// tierheap under these, and no other allocator: the reason.
    Own(&'static [(&'static str, &'static str)], &'static str),
}

type Drive = Box<dyn Fn(&Scene) -> Outcome + Send + Sync>;
type Prepare = Box<dyn Fn(&mut Command) + Send + Sync>;

/// One program and how it is run.
pub struct Check {
    pub name: &'static str,
    pub program: &'static str,
    pub arguments: Vec<Word>,
    pub load: Load,
    pub under: Under,
    /// What tierheap may print; others may print what they like, unless `silent`.
    pub says: Says,
    pub silent: bool,
    pub seconds: u64,
    pub long: bool,
    /// Why tierheap fails it.
    pub known: Option<&'static str>,
    /// glibc fails it, always or at times: for all others it must pass, or the program is wrong.
    pub beyond_glibc: bool,
    /// Worth a run on DAX, where nothing but the program is needed.
    #[allow(dead_code)] // the driver of the emulated machine asks
    pub on_dax: bool,
    prepare: Option<Prepare>,
    drive: Option<Drive>,
}

impl Check {
    pub fn new(program: &'static str) -> Check {
        Check {
            name: program.trim_end_matches(".cpp"),
            program,
            arguments: Vec::new(),
            load: Load::Preload,
            under: Under::Each,
            says: Says::Nothing,
            silent: false,
            seconds: 40,
            long: false,
            known: None,
            beyond_glibc: false,
            on_dax: false,
            prepare: None,
            drive: None,
        }
    }
    pub fn named(self, name: &'static str) -> Check {
        Check { name, ..self }
    }
    pub fn arg(mut self, text: &'static str) -> Check {
        self.arguments.push(Word::Text(text));
        self
    }
    pub fn word(mut self, word: Word) -> Check {
        self.arguments.push(word);
        self
    }
    pub fn load(self, load: Load) -> Check {
        Check { load, ..self }
    }
    pub fn under(self, under: Under) -> Check {
        Check { under, ..self }
    }
    /// A limit that is reached, or a tier that cannot be had, gives cause for a warning.
    pub fn may_warn(self) -> Check {
        let says = Says::Warnings;
        Check { says, ..self }
    }
    pub fn silent(self) -> Check {
        let silent = true;
        Check { silent, ..self }
    }
    pub fn within(self, seconds: u64) -> Check {
        Check { seconds, ..self }
    }
    pub fn long(self) -> Check {
        Check { long: true, ..self }
    }
    pub fn known(self, reason: &'static str) -> Check {
        let known = Some(reason);
        Check { known, ..self }
    }
    pub fn beyond_glibc(self) -> Check {
        let beyond_glibc = true;
        Check {
            beyond_glibc,
            ..self
        }
    }
    pub fn on_dax(self) -> Check {
        let on_dax = true;
        Check { on_dax, ..self }
    }
    /// Limits and variables for each run.
    pub fn prepare(self, prepare: impl Fn(&mut Command) + Send + Sync + 'static) -> Check {
        let prepare: Option<Prepare> = Some(Box::new(prepare));
        Check { prepare, ..self }
    }
    /// Run otherwise than as one program.
    pub fn drive(self, drive: impl Fn(&Scene) -> Outcome + Send + Sync + 'static) -> Check {
        let drive: Option<Drive> = Some(Box::new(drive));
        Check { drive, ..self }
    }

    /// The configurations for this allocator, or why there are none.
    pub fn configs(&self, allocator: &Allocator) -> Result<Vec<Config>, String> {
        let some = |wanted: &dyn Fn(&Config) -> bool, without: &str| {
            let all = allocator.configs.iter().filter(|c| wanted(c));
            let all: Vec<Config> = all.cloned().collect();
            match all.is_empty() {
                true => Err(without.to_string()),
                false => Ok(all),
            }
        };
        match self.under {
            Under::Each => Ok(allocator.configs.clone()),
            Under::Dram => some(&|c| !c.tiered(), "has slower tiers only"),
            Under::Heat => some(
                &|c| c.tiered() && (!allocator.own || c.label.starts_with("heat")),
                "has no slower tier",
            ),
            Under::InFile => some(&Config::in_file, "has no tier in a file"),
            Under::Once => Ok(allocator.configs[..1].to_vec()),
            Under::Pair => {
                let all = &allocator.configs;
                Ok(all.iter().take(1).chain(all[1..].last()).cloned().collect())
            }
            Under::Tier {
                limit,
                else_as_it_is,
            } => match allocator.tiers {
                Some(tiers) => Ok(tiers(limit)),
                None if else_as_it_is => Ok(allocator.configs.clone()),
                None => Err("has no tier with a limit".to_string()),
            },
            Under::Own(_, reason) if !allocator.own => Err(reason.to_string()),
            Under::Own(list, _) => Ok(list.iter().map(|(l, c)| Config::own(*l, c)).collect()),
        }
    }

    /// One run under one configuration, in an empty folder on a disk.
    pub fn run(&self, allocator: &Allocator, config: &Config) -> Outcome {
        let folder = folder();
        let scene = Scene {
            check: self,
            allocator,
            config,
            folder: folder.path(),
        };
        let outcome = match &self.drive {
            Some(drive) => drive(&scene),
            None => scene.run_program(),
        };
        let left = std::fs::read_dir(folder.path()).unwrap().next();
        if let (true, Outcome::Pass, Some(Ok(left))) = (allocator.own, &outcome, left) {
            return wrong(format!("left in the tier's folder: {left:?}"));
        }
        outcome
    }
}

pub fn wrong(text: impl Into<String>) -> Outcome {
    Outcome::Fail(How::Wrong, text.into())
}

/// A check under an allocator's configuration, with a folder for its files.
pub struct Scene<'a> {
    pub check: &'a Check,
    pub allocator: &'a Allocator,
    pub config: &'a Config,
    pub folder: &'a Path,
}

impl Scene<'_> {
    pub fn program(&self) -> PathBuf {
        program(self.check.program)
    }
    /// The library; checks that need one are not run for glibc.
    pub fn library(&self) -> &Path {
        self.allocator.library.as_deref().unwrap()
    }
    /// What the configuration and the driver put into the environment, without the preload.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let config = self.config.variables.iter();
        let mut all: Vec<(&str, OsString)> = config
            .map(|(k, v)| (*k, within(v, self.folder).into()))
            .collect();
        if self.allocator.own {
            all.push(("EXPECT_TIERHEAP", "1".into()));
        }
        all
    }
    /// A clean command that has the variables and the library preloaded.
    pub fn command(&self, program: &Path) -> Command {
        let mut cmd = build::plain(program);
        cmd.envs(self.variables());
        if let Some(library) = &self.allocator.library {
            cmd.env("LD_PRELOAD", library);
        }
        cmd
    }
    /// Without the library and what it expects of being there, but with the configuration.
    pub fn unloaded(&self, program: &Path) -> Command {
        let mut cmd = build::plain(program);
        cmd.envs(self.variables()).env_remove("EXPECT_TIERHEAP");
        cmd
    }

    fn run_program(&self) -> Outcome {
        let program = self.program();
        let mut cmd = match self.check.load {
            Load::ByItself => self.unloaded(&program),
            _ => self.command(&program),
        };
        for word in &self.check.arguments {
            match word {
                Word::Text(text) => cmd.arg(text),
                Word::Plugin(name) => cmd.arg(plugin(name)),
                Word::Library if self.allocator.library.is_none() => {
                    return Outcome::NotApplicable("is no library of its own".to_string());
                }
                Word::Library => cmd.arg(self.library()),
            };
        }
        match self.check.load {
            Load::Below(first) => {
                let mut list = plugin(first).into_os_string();
                if let Some(library) = &self.allocator.library {
                    list.push(":");
                    list.push(library);
                }
                cmd.env("LD_PRELOAD", list);
            }
            Load::Audited(by) => {
                cmd.env("LD_AUDIT", plugin(by));
            }
            Load::Preload | Load::ByItself => (),
        }
        if let Some(prepare) = &self.check.prepare {
            prepare(&mut cmd);
        }
        self.judge(&mut cmd)
    }

    /// Runs a program that says by its status how it went.
    pub fn judge(&self, cmd: &mut Command) -> Outcome {
        let line = command_line(cmd);
        match self.watch(cmd) {
            Ok(ran) if self.quiet(&ran) => Outcome::Pass,
            Ok(ran) => wrong(format!("printed something: {}\n$ {line}", said(&ran))),
            Err(Outcome::Fail(how, text)) => Outcome::Fail(how, format!("{text}\n$ {line}")),
            Err(other) => other,
        }
    }

    /// Runs a command that must end with status 0; what it printed is the caller's to judge.
    pub fn watch(&self, cmd: &mut Command) -> Result<Ran, Outcome> {
        let limit = Duration::from_secs(self.check.seconds);
        let ran = match common::finish(cmd, limit) {
            Ok(ran) => ran,
            Err(Unended::Hung { stderr, .. }) => {
                let text = String::from_utf8_lossy(&stderr).trim().to_string();
                let text = format!("did not end within {} s\n{text}", limit.as_secs());
                return Err(Outcome::Fail(How::Hang, text));
            }
            Err(Unended::LeftBehind { .. }) => {
                let text = "left a process behind that does not end".to_string();
                return Err(Outcome::Fail(How::Hang, text));
            }
        };
        match (ran.status.code(), ran.status.signal()) {
            (Some(0), _) => Ok(ran),
            (Some(77), _) => Err(Outcome::NotApplicable(ran.out().trim().to_string())),
            (_, Some(libc::SIGALRM)) => Err(Outcome::Fail(
                How::Hang,
                format!("a child did not end in time\n{}", said(&ran)),
            )),
            // What a shell or a debugger says of a program that died.
            (None, _) | (Some(134 | 135 | 136 | 137 | 139), _) => Err(Outcome::Fail(
                How::Crash,
                format!("{}\n{}", ran.status, said(&ran)),
            )),
            _ => Err(wrong(said(&ran))),
        }
    }

    fn quiet(&self, ran: &Ran) -> bool {
        let nothing = ran.stdout.is_empty() && ran.stderr.is_empty();
        match self.check.says {
            _ if self.check.silent => nothing,
            _ if !self.allocator.own => true,
            Says::Nothing => nothing,
            Says::Warnings => build::only_warnings(ran),
            Says::Anything => true,
        }
    }
}

pub fn command_line(cmd: &Command) -> String {
    build::cmd_line(cmd)
}

/// All that a run printed, cut to what a reader wants of it.
pub fn said(ran: &Ran) -> String {
    let text = format!("{}{}", ran.err(), ran.out());
    build::cut(text.trim())
}

/// A number, the failure seen in the field, and the programs that show whether it is handled.
pub struct Row {
    pub number: u32,
    pub title: &'static str,
    pub checks: Vec<Check>,
}

/// Each program is compiled once in a run, by whoever needs it first.
fn compiled(name: &'static str, make: fn(&str) -> PathBuf) -> PathBuf {
    type Made = Mutex<HashMap<&'static str, Arc<OnceLock<PathBuf>>>>;
    static MADE: OnceLock<Made> = OnceLock::new();
    let made = MADE.get_or_init(Default::default);
    let one = made.lock().unwrap().entry(name).or_default().clone();
    one.get_or_init(|| make(name)).clone()
}

pub fn program(name: &'static str) -> PathBuf {
    compiled(name, build::program)
}

pub fn plugin(name: &'static str) -> PathBuf {
    compiled(name, build::plugin)
}
