//! `tierheap run`: compose the configuration, try every tier of it, and become the program.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::base::config::{Config, Stats, pairs};
use crate::machine::MemoryLimit;
use crate::{Refusal, library, machine, program, report, tiers};

#[derive(clap::Args)]
#[command(after_help = "\
An option replaces that key of the environment's TIERHEAP; its other keys stay. memtier's variables
(MEMKIND_MEM_TIERS) count where there is neither an option nor a TIERHEAP.
The library is TIERHEAP_LIB, else libtierheap.so beside this command, in ../lib or ../lib/tierheap,
else where the system's loader finds it.
Exit status: the program's; 2 the configuration is refused, 126 the program cannot be executed,
127 it is not found.")]
pub struct Options {
    /// A slower tier, fastest first: fsdax:DIR, file:DIR, node:LIST or memfd, then ,limit:SIZE
    #[arg(long, value_name = "TIER")]
    cold: Vec<OsString>,
    /// Budget of DRAM, in bytes or with K, M, G, T
    #[arg(long, value_name = "SIZE")]
    dram: Option<OsString>,
    /// dram, size, ratio, auto, heat or cold
    #[arg(long, value_name = "POLICY")]
    policy: Option<OsString>,
    /// Blocks of this size and up go to the cold tier (policy size)
    #[arg(long, value_name = "SIZE")]
    threshold: Option<OsString>,
    /// Weights of DRAM and each cold tier, like 1:4 (policies ratio and auto)
    #[arg(long, value_name = "DRAM:COLD")]
    ratio: Option<OsString>,
    /// A full tier is NULL and ENOMEM instead of a block in another tier
    #[arg(long)]
    strict: bool,
    /// Statistics at exit, on stderr or appended to PATH (JSON where it ends in .json)
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    stats: Option<OsString>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Returns only if the program was not executed.
pub fn run(options: &Options) -> Result<Infallible, Refusal> {
    let inherited = std::env::var_os("TIERHEAP");
    let text = options.compose(inherited.as_deref().unwrap_or_default().as_bytes())?;
    check(&text, inherited.is_some())?;

    let library = library::find()?;
    let (name, arguments) = options
        .program
        .split_first()
        .ok_or_else(|| Refusal::usage("no program was given"))?;
    let file = program::find(name)?;
    if let Some(why) = program::ignores_preload(&file, &library) {
        report::warning(&format!(
            "{} is {why}: it does not load the library and runs on its own allocator",
            name.to_string_lossy()
        ));
    }

    let preload = library::preload(&library, std::env::var_os("LD_PRELOAD").as_deref())?;
    // SAFETY: this process has one thread, the one that runs here, so no other reads the
    // environment while it changes.
    unsafe {
        std::env::set_var("LD_PRELOAD", preload);
        if !text.is_empty() {
            std::env::set_var("TIERHEAP", OsStr::from_bytes(&text));
        }
    }
    Err(execute(&file, name, arguments))
}

impl Options {
    /// The environment's string with the pairs of each option's key replaced.
    fn compose(&self, inherited: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut given: Vec<(&str, OsString)> = Vec::new();
        for tier in &self.cold {
            given.push(("cold", absolute_tier(tier)?));
        }
        for (key, value) in [
            ("dram", &self.dram),
            ("policy", &self.policy),
            ("threshold", &self.threshold),
            ("ratio", &self.ratio),
        ] {
            given.extend(value.as_ref().map(|value| (key, value.clone())));
        }
        if self.strict {
            given.push(("strict", "1".into()));
        }
        match &self.stats {
            Some(value) if matches!(value.as_bytes(), b"0" | b"1" | b"") => {
                given.push(("stats", value.clone()));
            }
            Some(path) => given.push(("stats", absolute(path)?)),
            None => {}
        }

        let mut parts: Vec<Vec<u8>> = Vec::new();
        for (key, value) in &given {
            one_value(key, value)?;
            parts.push([key.as_bytes(), b"=", value.as_bytes()].concat());
        }
        for pair in pairs(inherited) {
            match pair {
                Ok((key, _)) if given.iter().any(|(k, _)| k.as_bytes() == key) => {}
                Ok((key, value)) => parts.push([key, b"=", value].concat()),
                // Kept, so that the parser refuses it by name.
                Err(error) => parts.push(error.word.to_vec()),
            }
        }
        Ok(parts.join(&b';'))
    }
}

/// A `;` would begin the next pair of the string that the value is put into.
pub fn one_value(key: &str, value: &OsStr) -> Result<(), Refusal> {
    if value.as_bytes().contains(&b';') {
        let value = value.to_string_lossy();
        return Err(Refusal::usage(format!(
            "{key}: {value:?} holds a ';', which ends a value"
        )));
    }
    Ok(())
}

/// The program may change its directory before it first allocates, and its children inherit the
/// string in other directories: a relative path would mean another place to each of them.
fn absolute(path: &OsStr) -> Result<OsString, Refusal> {
    std::path::absolute(Path::new(path))
        .map(Into::into)
        .map_err(|error| {
            Refusal::usage(format!(
                "{}: no absolute path: {error}",
                path.to_string_lossy()
            ))
        })
}

fn absolute_tier(tier: &OsStr) -> Result<OsString, Refusal> {
    for prefix in ["file:", "fsdax:"] {
        if let Some(dir) = tier.as_bytes().strip_prefix(prefix.as_bytes())
            && !dir.is_empty()
            && !dir.starts_with(b",limit:")
        {
            let dir = absolute(OsStr::from_bytes(dir))?;
            return Ok(OsString::from_vec(
                [prefix.as_bytes(), dir.as_bytes()].concat(),
            ));
        }
    }
    Ok(tier.to_os_string())
}

/// Parses the configuration that the library will read, and tries it on the machine. memtier's
/// variables count where there is no `TIERHEAP`, `inherited` or made here.
fn check(text: &[u8], inherited: bool) -> Result<(), Refusal> {
    let tiers = std::env::var_os("MEMKIND_MEM_TIERS");
    if tiers.is_some() && (inherited || !text.is_empty()) {
        report::warning(if inherited {
            "MEMKIND_MEM_TIERS is not used: TIERHEAP is set, and comes before it"
        } else {
            "MEMKIND_MEM_TIERS is not used: the options make a TIERHEAP, which comes before it"
        });
    }
    let tiers = tiers.filter(|_| text.is_empty() && !inherited);
    let thresholds = std::env::var_os("MEMKIND_MEM_THRESHOLDS");
    let (source, shown, parsed) = if let Some(tiers) = &tiers {
        let thresholds = thresholds.as_deref().map(OsStr::as_bytes);
        (
            "MEMKIND_MEM_TIERS",
            tiers.as_bytes(),
            Config::from_memtier(tiers.as_bytes(), thresholds),
        )
    } else {
        ("TIERHEAP", text, Config::parse(text))
    };
    let config = parsed.map_err(|error| {
        Refusal::usage(format!(
            "{error}\ntierheap: in {source}={}",
            String::from_utf8_lossy(shown)
        ))
    })?;

    let mut refused = Vec::new();
    for spec in config.cold.iter() {
        let tried = tiers::check(spec);
        tried
            .warnings
            .iter()
            .for_each(|w| report::warning(&format!("{}: {w}", tried.name)));
        refused.extend(tried.refused.map(|why| format!("{}: {why}", tried.name)));
    }
    if let Some(budget) = config.dram {
        let of_group = match machine::memory_limit() {
            MemoryLimit::Bytes(limit) => Some((limit, "this control group's")),
            MemoryLimit::Unlimited | MemoryLimit::Unknown => None,
        };
        let of_machine = machine::memory_total().map(|total| (total, "this machine's"));
        let least = of_group.into_iter().chain(of_machine).min();
        if let Some((most, whose)) = least.filter(|&(most, _)| budget.get() as u64 > most) {
            report::warning(&format!(
                "dram: the budget {} is more than {whose} {}",
                report::size(budget.get() as u64),
                report::size(most)
            ));
        }
    }
    if let Stats::Path(path) = config.stats {
        let path = Path::new(OsStr::from_bytes(path));
        refused.extend(
            machine::cannot_append(path).map(|why| format!("stats: {}: {why}", path.display())),
        );
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(Refusal::usage(refused.join("\ntierheap: ")))
    }
}

fn execute(file: &Path, name: &OsStr, arguments: &[OsString]) -> Refusal {
    let text = |s: &OsStr| CString::new(s.as_bytes());
    let argv: Result<Vec<CString>, _> = std::iter::once(name)
        .chain(arguments.iter().map(OsString::as_os_str))
        .map(text)
        .collect();
    let (Ok(path), Ok(argv)) = (text(file.as_os_str()), argv) else {
        return Refusal::usage("an argument holds a NUL byte");
    };
    let mut pointers: Vec<*const libc::c_char> = argv.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: `path` and every string of `argv` are NUL-terminated and live until the call
    // returns, and `pointers` ends in a null pointer. `path` holds a slash, so there is no search.
    unsafe { libc::execvp(path.as_ptr(), pointers.as_ptr()) };
    let error = std::io::Error::last_os_error();
    let status = if error.raw_os_error() == Some(libc::ENOENT) {
        127
    } else {
        126
    };
    Refusal {
        status,
        message: format!("{}: {error}", file.display()),
    }
}
