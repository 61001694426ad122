//! What is wrong with a configuration, said in one line without an allocator.

use super::{KEYS, KIND_KEYS, MAX_COLD, NodeSet, PolicyName, value};
use core::fmt;

/// One wrong word. Displays as `key: "word" what is wrong: what is valid`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigError<'a> {
    /// The key whose value is wrong; empty where the word is no value.
    pub key: &'a [u8],
    pub word: &'a [u8],
    pub what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    NotAPair,
    UnknownKey,
    NoPairOfAKind,
    NoKeyOfAKind,
    Twice,
    UnknownTier,
    Devdax,
    NoPath,
    PathNul,
    PathTooLong,
    Size,
    SizeTooBig,
    LimitZero,
    LimitTooSmall,
    Nodes,
    TooManyTiers,
    UnknownPolicy,
    PolicyNeedsCold,
    Ratio,
    RatioZero,
    RatioCount { weights: usize, tiers: usize },
    Switch,
    Stats,
    Thp,
    MemtierParameter,
    MemtierKind,
    MemtierKindTwice,
    MemtierNoKind,
    MemtierNoRatio,
    MemtierRatio,
    MemtierNoPath,
    MemtierOnlyFsDax,
    MemtierLimit,
    MemtierNoTier,
    MemtierNoPolicy,
    MemtierPolicy,
    MemtierThreshold,
    MemtierThresholdOrder,
    MemtierTooManyThresholds,
    MemtierThresholdsUnused,
}

const TIERS: &str =
    "a tier is fsdax:DIR, file:DIR, node:LIST or memfd, with ,limit:SIZE after it or not";

impl fmt::Display for ConfigError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(
                f,
                "{}: ",
                Quoted {
                    text: self.key,
                    quote: ""
                }
            )?;
        }
        write!(
            f,
            "{} {}",
            Quoted {
                text: self.word,
                quote: "\""
            },
            self.what
        )
    }
}

impl core::error::Error for ConfigError<'_> {}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = match self {
            What::NotAPair => {
                f.write_str("is not a key=value pair: the keys are ")?;
                return comma_separated(f, KEYS);
            }
            What::UnknownKey => {
                f.write_str("is an unknown key: the keys are ")?;
                return comma_separated(f, KEYS);
            }
            What::NoPairOfAKind => {
                f.write_str("is not a key=value pair: the keys of a kind are ")?;
                return comma_separated(f, KIND_KEYS);
            }
            What::NoKeyOfAKind => {
                f.write_str("is no key of a kind: the keys of a kind are ")?;
                return comma_separated(f, KIND_KEYS);
            }
            What::LimitTooSmall => {
                let least = value::LEAST_LIMIT.get() >> 10;
                return write!(
                    f,
                    "is below {least}K, the least limit: a tier takes memory in slices of {least}K, so it could hold nothing"
                );
            }
            What::UnknownPolicy => {
                f.write_str("is an unknown policy: the policies are ")?;
                return comma_separated(f, PolicyName::NAMES.map(|(name, _)| name));
            }
            What::UnknownTier => return write!(f, "is an unknown tier: {TIERS}"),
            What::Devdax => return write!(f, "is a devdax tier, not built yet: {TIERS}"),
            What::Nodes => {
                let max = NodeSet::MAX_NODE;
                return write!(
                    f,
                    "is not a node list: write 1 or 1,2 or 1-3, nodes 0 to {max}"
                );
            }
            What::TooManyTiers => return write!(f, "is one cold tier more than {MAX_COLD}"),
            What::RatioCount { weights, tiers } => {
                return write!(
                    f,
                    "has {} for {}: write one for DRAM and one for each cold tier",
                    Counted(*weights, "weight"),
                    Counted(*tiers, "tier")
                );
            }
            What::Twice => "is given twice: only cold may be repeated",
            What::NoPath => "names no directory",
            What::PathNul => "holds a NUL byte, which no path can",
            What::PathTooLong => "is longer than the 4095 bytes a path may have",
            What::Size => "is not a size: write bytes, or a whole number with K, M, G or T",
            What::SizeTooBig => "is too large: sizes are below 8388608T",
            What::LimitZero => "leaves the tier no room: for no limit, leave ,limit: away",
            What::PolicyNeedsCold => "needs a cold tier: add cold=TIER, or use the policy dram",
            What::Ratio => "is not a ratio: write whole weights with : between them, like 1:4",
            What::RatioZero => "gives no tier a share: one weight at least must not be 0",
            What::Switch => "is neither 0 nor 1",
            What::Stats => "is neither 0, 1 nor a path",
            What::Thp => "is none of never, madvise, always",
            What::MemtierParameter => {
                "is an unknown parameter: they are KIND, RATIO, PATH, PMEM_SIZE_LIMIT, each with :VALUE and once a tier"
            }
            What::MemtierKind => "is an unknown kind: the kinds are DRAM, KMEM_DAX, FS_DAX",
            What::MemtierKindTwice => "is given for two tiers: only FS_DAX may be repeated",
            What::MemtierNoKind => "has no KIND: DRAM, KMEM_DAX or FS_DAX",
            What::MemtierNoRatio => "has no RATIO",
            What::MemtierRatio => "is not a RATIO: write a whole number from 1 to 4294967295",
            What::MemtierNoPath => "has no PATH, which KIND:FS_DAX needs",
            What::MemtierOnlyFsDax => "has a PATH or a PMEM_SIZE_LIMIT: only KIND:FS_DAX may",
            What::MemtierLimit => "is below 16M, the least PMEM_SIZE_LIMIT, and not 0 (no limit)",
            What::MemtierNoTier => "names no tier before its POLICY",
            What::MemtierNoPolicy => {
                "is not the last part: a POLICY:STATIC_RATIO or POLICY:DYNAMIC_THRESHOLD is to end the string"
            }
            What::MemtierPolicy => {
                "is an unknown policy: the policies are STATIC_RATIO, DYNAMIC_THRESHOLD"
            }
            What::MemtierThreshold => {
                "is an unknown parameter: they are INIT_VAL, MIN_VAL, MAX_VAL, each with :SIZE and once a threshold"
            }
            What::MemtierThresholdOrder => "is out of order: MIN_VAL <= INIT_VAL <= MAX_VAL",
            What::MemtierTooManyThresholds => {
                "is a threshold too many: there is one between each tier and the next"
            }
            What::MemtierThresholdsUnused => {
                "is for POLICY:DYNAMIC_THRESHOLD, which MEMKIND_MEM_TIERS does not ask for"
            }
        };
        f.write_str(fixed)
    }
}

/// So many of a noun that takes an s: `1 tier`, `2 tiers`.
struct Counted(usize, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

fn comma_separated<const N: usize>(f: &mut fmt::Formatter<'_>, words: [&str; N]) -> fmt::Result {
    let mut comma = "";
    for word in words {
        write!(f, "{comma}{word}")?;
        comma = ", ";
    }
    Ok(())
}

/// Bytes of the user's for a terminal: UTF-8 as it is, the rest escaped, and cut where a line
/// would be lost in it.
struct Quoted<'a> {
    text: &'a [u8],
    quote: &'static str,
}

const MAX_SHOWN: usize = 200;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.text.get(..MAX_SHOWN).unwrap_or(self.text);
        f.write_str(self.quote)?;
        for chunk in shown.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\'' => f.write_str("'")?,
                    _ => write!(f, "{}", c.escape_debug())?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_str(self.quote)?;
        if shown.len() < self.text.len() {
            f.write_str("...")
        } else {
            Ok(())
        }
    }
}
