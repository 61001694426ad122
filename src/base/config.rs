//! The configuration grammar: `TIERHEAP`, and the two variables of memtier that its users have.
//!
//! `key=value` pairs joined by `;`. The whole string must be understood: a word that is half
//! right is an error that names it, since a preloaded allocator that guesses places gigabytes
//! wrongly without a sign. Rules where allocators differ, and what was chosen:
//! - An empty pair (`;;`, a trailing `;`) is harmless, as in scripts that join strings.
//! - Blanks (space, tab, newline) before a key are skipped, so that a value may be folded in a
//!   unit file; everywhere else they belong to the word. A trailing blank can not be trimmed:
//!   a path may end in one.
//! - A single key given twice is an error and not "the last wins": of two budgets one is a mistake.
//! - A path may hold any byte but `;` (and NUL, which no path can). `,limit:SIZE` is split off at
//!   its last occurrence, unless a `/` follows, which no size holds: `DIR/` with the slash names a
//!   directory that ends in such a word.

mod error;
mod list;
mod memtier;
#[cfg(test)]
mod tests;
mod value;

use super::Bytes;
pub use error::{ConfigError, What};
pub use list::{Full, List, NodeSet};
use value::Word;

/// Cold tiers that one configuration may name; kinds made later bring their own.
pub const MAX_COLD: usize = 8;
/// DRAM and the cold tiers.
pub const MAX_TIERS: usize = 1 + MAX_COLD;

/// What the user asked for: complete and consistent, though nothing is checked against the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config<'a> {
    /// The slower tiers, fastest first.
    pub cold: List<TierSpec<'a>, MAX_COLD>,
    /// The budget of DRAM; `None` is unlimited.
    pub dram: Option<Bytes>,
    pub policy: PolicyName,
    /// Blocks of this size and up are large for `size`; where `auto` starts.
    pub threshold: Bytes,
    /// One weight a tier, DRAM first, not all zero. Empty: the policy derives them from the limits.
    pub ratio: List<u32, MAX_TIERS>,
    /// NULL and ENOMEM instead of another tier.
    pub strict: bool,
    pub stats: Stats<'a>,
    pub thp: Thp,
    /// Abort on a detected heap error.
    pub abort: bool,
}

/// One cold tier as asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierSpec<'a> {
    pub backing: Backing<'a>,
    pub limit: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing<'a> {
    /// A directory that must be DAX.
    FsDax(&'a [u8]),
    /// Any directory. `dax_expected`: the words said DAX, but so did memtier's, which take any
    /// directory and only report the difference.
    File {
        dir: &'a [u8],
        dax_expected: bool,
    },
    Node(NodeSet),
    /// memtier's KMEM_DAX: the nodes made of persistent memory, to be found at run time.
    KmemNodes,
    Memfd,
}

/// In the order of [`PolicyName::NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyName {
    Dram,
    Size,
    Ratio,
    Auto,
    Heat,
    Cold,
}

impl PolicyName {
    pub const NAMES: [(&'static str, PolicyName); 6] = [
        ("dram", PolicyName::Dram),
        ("size", PolicyName::Size),
        ("ratio", PolicyName::Ratio),
        ("auto", PolicyName::Auto),
        ("heat", PolicyName::Heat),
        ("cold", PolicyName::Cold),
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Dram => "dram",
            PolicyName::Size => "size",
            PolicyName::Ratio => "ratio",
            PolicyName::Auto => "auto",
            PolicyName::Heat => "heat",
            PolicyName::Cold => "cold",
        }
    }
}

/// Where the statistics go at exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stats<'a> {
    Off,
    Stderr,
    /// A file to append to.
    Path(&'a [u8]),
}

/// Transparent huge pages for memory of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thp {
    /// Nothing is advised.
    System,
    Never,
    Madvise,
    Always,
}

/// The keys, as a message lists them.
pub const KEYS: [&str; 9] = [
    "cold",
    "dram",
    "policy",
    "threshold",
    "ratio",
    "strict",
    "stats",
    "thp",
    "abort",
];

/// The keys that mean something for a kind: the others are about the heap as a whole, and a budget
/// or a report that is asked for and not had is a mistake that nobody would notice.
pub const KIND_KEYS: [&str; 6] = ["cold", "policy", "threshold", "ratio", "strict", "thp"];

/// A slice: the least block that has one to itself and so shares no other block's fate.
pub const DEFAULT_THRESHOLD: Bytes = Bytes::kib(64);
const _: () = assert!(DEFAULT_THRESHOLD.get() == super::SLICE.get());

impl Default for Config<'_> {
    /// What an absent or empty string means.
    fn default() -> Self {
        Config {
            cold: List::empty(TierSpec {
                backing: Backing::Memfd,
                limit: None,
            }),
            dram: None,
            policy: PolicyName::Dram,
            threshold: DEFAULT_THRESHOLD,
            ratio: List::empty(0),
            strict: false,
            stats: Stats::Off,
            thp: Thp::System,
            abort: true,
        }
    }
}

/// The pairs of a string, empty ones left out; each is (key, value), or the error of a pair
/// without `=`. The command uses it to replace the pairs of one key.
pub fn pairs(text: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), ConfigError<'_>>> {
    text.split(|&b| b == b';')
        .map(skip_blanks)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            match pair
                .iter()
                .position(|&b| b == b'=')
                .and_then(|at| pair.split_at_checked(at))
            {
                Some((key, rest)) => Ok((key, rest.strip_prefix(b"=").unwrap_or(rest))),
                None => Err(ConfigError {
                    key: b"",
                    word: pair,
                    what: What::NotAPair,
                }),
            }
        })
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'))
        .count();
    text.get(blanks..).unwrap_or(b"")
}

impl<'a> Config<'a> {
    /// The string `TIERHEAP`.
    pub fn parse(text: &'a [u8]) -> Result<Config<'a>, ConfigError<'a>> {
        Config::parse_over(text, 0)
    }

    /// A kind's specification: the same words, without the keys of the heap as a whole.
    pub fn parse_kind(text: &'a [u8]) -> Result<Config<'a>, ConfigError<'a>> {
        let ours = |key: &[u8]| KIND_KEYS.iter().any(|k| k.as_bytes() == key);
        match pairs(text).find(|pair| !pair.is_ok_and(|(key, _)| ours(key))) {
            None => Config::parse(text),
            Some(Ok((key, _))) => Err(ConfigError {
                key: b"",
                word: key,
                what: What::NoKeyOfAKind,
            }),
            Some(Err(error)) => Err(ConfigError {
                what: What::NoPairOfAKind,
                ..error
            }),
        }
    }

    /// A kind's specification in a heap that has `inherited` cold tiers: one that names no tier
    /// of its own places over those, so the policy and the weights are checked against them.
    pub fn parse_over(text: &'a [u8], inherited: usize) -> Result<Config<'a>, ConfigError<'a>> {
        let mut config = Config::default();
        // Each single key's value as first seen, in the order of KEYS: it finds the second one,
        // and names the word when a check needs the whole string.
        let mut seen: [Option<&'a [u8]>; KEYS.len()] = [None; KEYS.len()];
        for pair in pairs(text) {
            let (key, value) = pair?;
            let word = Word { key, text: value };
            let Some(slot) = KEYS
                .iter()
                .position(|k| k.as_bytes() == key)
                .and_then(|at| seen.get_mut(at))
            else {
                return Err(ConfigError {
                    key: b"",
                    word: key,
                    what: What::UnknownKey,
                });
            };
            if slot.replace(value).is_some() && key != b"cold" {
                return Err(ConfigError {
                    key: b"",
                    word: key,
                    what: What::Twice,
                });
            }
            match key {
                b"cold" => {
                    let tier = word.tier()?;
                    config
                        .cold
                        .push(tier)
                        .map_err(|_| word.is(What::TooManyTiers))?;
                }
                b"dram" => config.dram = Some(word.size()?),
                b"policy" => config.policy = word.policy()?,
                b"threshold" => config.threshold = word.size()?,
                b"ratio" => config.ratio = word.ratio()?,
                b"strict" => config.strict = word.switch()?,
                b"stats" => config.stats = word.stats()?,
                b"thp" => config.thp = word.thp()?,
                _ => config.abort = word.switch()?,
            }
        }
        let [_, _, policy, _, ratio, ..] = seen;
        let cold = if config.cold.is_empty() {
            inherited
        } else {
            config.cold.len()
        };
        match policy {
            None if cold > 0 => config.policy = PolicyName::Heat,
            Some(word) if cold == 0 && config.policy != PolicyName::Dram => {
                return Err(ConfigError {
                    key: b"policy",
                    word,
                    what: What::PolicyNeedsCold,
                });
            }
            _ => {}
        }
        match ratio {
            Some(word) if config.ratio.len() != 1 + cold => {
                let what = What::RatioCount {
                    weights: config.ratio.len(),
                    tiers: 1 + cold,
                };
                Err(ConfigError {
                    key: b"ratio",
                    word,
                    what,
                })
            }
            _ => Ok(config),
        }
    }

    /// memtier's `MEMKIND_MEM_TIERS`, with `MEMKIND_MEM_THRESHOLDS` where it is set. What differs
    /// from memtier is in the module's comment.
    pub fn from_memtier(
        tiers: &'a [u8],
        thresholds: Option<&'a [u8]>,
    ) -> Result<Config<'a>, ConfigError<'a>> {
        memtier::parse(tiers, thresholds)
    }
}
