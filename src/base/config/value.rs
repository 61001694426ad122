//! The values: sizes, tiers, node lists, weights, switches.

use super::error::{ConfigError, What};
use super::list::{List, NodeSet};
use super::{Backing, MAX_TIERS, PolicyName, Stats, Thp, TierSpec};
use crate::base::{Bytes, SLICE};

/// PATH_MAX without its NUL: a longer path is one that the system refuses anyway.
const MAX_PATH: usize = 4095;

/// A tier is charged by the slice, so one of less would be empty for ever, and each request to it
/// a fallback.
pub const LEAST_LIMIT: Bytes = SLICE;

/// A value and the key it was given to, which every message repeats.
#[derive(Clone, Copy)]
pub struct Word<'a> {
    pub key: &'a [u8],
    pub text: &'a [u8],
}

impl<'a> Word<'a> {
    pub fn is(self, what: What) -> ConfigError<'a> {
        ConfigError {
            key: self.key,
            word: self.text,
            what,
        }
    }
    fn part(self, text: &'a [u8]) -> Word<'a> {
        Word {
            key: self.key,
            text,
        }
    }

    pub fn size(self) -> Result<Bytes, ConfigError<'a>> {
        let (digits, unit) = match self.text.split_last() {
            Some((b'K', digits)) => (digits, 1 << 10),
            Some((b'M', digits)) => (digits, 1 << 20),
            Some((b'G', digits)) => (digits, 1 << 30),
            Some((b'T', digits)) => (digits, 1 << 40),
            _ => (self.text, 1u64),
        };
        match number(digits).map(|n| n.and_then(|n| n.checked_mul(unit))) {
            None => Err(self.is(What::Size)),
            // Bounded by the signed type of file offsets, which a limit becomes.
            Some(Some(n)) if n <= i64::MAX as u64 => Ok(Bytes::new(n as usize)),
            Some(_) => Err(self.is(What::SizeTooBig)),
        }
    }

    pub fn tier(self) -> Result<TierSpec<'a>, ConfigError<'a>> {
        let (rest, limit) = split_limit(self.text);
        let backing = if let Some(dir) = rest.strip_prefix(b"fsdax:") {
            Backing::FsDax(self.path(dir)?)
        } else if let Some(dir) = rest.strip_prefix(b"file:") {
            Backing::File {
                dir: self.path(dir)?,
                dax_expected: false,
            }
        } else if let Some(list) = rest.strip_prefix(b"node:") {
            Backing::Node(self.part(list).nodes()?)
        } else if rest == b"memfd" {
            Backing::Memfd
        } else if rest.strip_prefix(b"devdax:").is_some() {
            return Err(self.part(rest).is(What::Devdax));
        } else {
            return Err(self.part(rest).is(What::UnknownTier));
        };
        let limit = match limit.map(|text| self.part(text)) {
            None => None,
            Some(word) => match word.size()? {
                // memtier reads 0 as "no limit"; a tier that holds nothing is asked for by nobody.
                Bytes::ZERO => return Err(word.is(What::LimitZero)),
                size if size < LEAST_LIMIT => return Err(word.is(What::LimitTooSmall)),
                size => Some(size),
            },
        };
        Ok(TierSpec { backing, limit })
    }

    /// `dir`, which lies in this word, as a path.
    pub fn path(self, dir: &'a [u8]) -> Result<&'a [u8], ConfigError<'a>> {
        if dir.is_empty() {
            Err(self.is(What::NoPath))
        } else if dir.contains(&0) {
            Err(self.part(dir).is(What::PathNul))
        } else if dir.len() > MAX_PATH {
            Err(self.part(dir).is(What::PathTooLong))
        } else {
            Ok(dir)
        }
    }

    fn nodes(self) -> Result<NodeSet, ConfigError<'a>> {
        let mut set = NodeSet::EMPTY;
        for item in self.text.split(|&b| b == b',') {
            let mut ends = item.split(|&b| b == b'-');
            let from = ends.next().and_then(node);
            let to = match ends.next() {
                None => from,
                Some(end) => node(end),
            };
            match (from, to, ends.next()) {
                (Some(from), Some(to), None) if from <= to => {
                    if !(from..=to).all(|n| set.insert(n)) {
                        return Err(self.is(What::Nodes));
                    }
                }
                _ => return Err(self.is(What::Nodes)),
            }
        }
        Ok(set)
    }

    pub fn policy(self) -> Result<PolicyName, ConfigError<'a>> {
        PolicyName::NAMES
            .iter()
            .find(|(name, _)| name.as_bytes() == self.text)
            .map(|&(_, policy)| policy)
            .ok_or(self.is(What::UnknownPolicy))
    }

    pub fn ratio(self) -> Result<List<u32, MAX_TIERS>, ConfigError<'a>> {
        let mut weights = List::empty(0);
        for text in self.text.split(|&b| b == b':') {
            let weight = weight(text).ok_or(self.is(What::Ratio))?;
            weights.push(weight).map_err(|_| self.is(What::Ratio))?;
        }
        if weights.iter().all(|&w| w == 0) {
            return Err(self.is(What::RatioZero));
        }
        Ok(weights)
    }

    pub fn switch(self) -> Result<bool, ConfigError<'a>> {
        match self.text {
            b"0" => Ok(false),
            b"1" => Ok(true),
            _ => Err(self.is(What::Switch)),
        }
    }

    pub fn stats(self) -> Result<Stats<'a>, ConfigError<'a>> {
        match self.text {
            b"0" => Ok(Stats::Off),
            b"1" => Ok(Stats::Stderr),
            b"" => Err(self.is(What::Stats)),
            path => Ok(Stats::Path(self.path(path)?)),
        }
    }

    pub fn thp(self) -> Result<Thp, ConfigError<'a>> {
        match self.text {
            b"never" => Ok(Thp::Never),
            b"madvise" => Ok(Thp::Madvise),
            b"always" => Ok(Thp::Always),
            _ => Err(self.is(What::Thp)),
        }
    }
}

/// `file:/a,limit:4G` is (`file:/a`, `4G`).
fn split_limit(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    const MARK: &[u8] = b",limit:";
    let split = text
        .windows(MARK.len())
        .rposition(|w| w == MARK)
        .and_then(|at| text.split_at_checked(at))
        .and_then(|(rest, tail)| Some((rest, tail.strip_prefix(MARK)?)));
    match split {
        Some((rest, limit)) if !limit.contains(&b'/') => (rest, Some(limit)),
        _ => (text, None),
    }
}

/// Digits alone. `None`: not a number; `Some(None)`: one that does not fit.
pub fn number(digits: &[u8]) -> Option<Option<u64>> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().try_fold(0u64, |n, d| {
        n.checked_mul(10)?.checked_add(u64::from(d - b'0'))
    }))
}

pub fn weight(text: &[u8]) -> Option<u32> {
    number(text)?.and_then(|n| u32::try_from(n).ok())
}

fn node(text: &[u8]) -> Option<u32> {
    weight(text).filter(|&n| n <= NodeSet::MAX_NODE)
}
