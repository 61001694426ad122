//! memtier's grammar, so that its users move by changing the path they preload:
//! `tier;tier;...;POLICY:NAME`, a tier being `KIND:k,RATIO:n[,PATH:p][,PMEM_SIZE_LIMIT:s]` with
//! its parameters in any order.
//!
//! What differs, and why:
//! - DRAM is the first tier wherever it stands, and has weight 0 where it is not named: a heap
//!   without DRAM has no place for what the program needs before its tiers are up.
//! - STATIC_RATIO is `ratio`; DYNAMIC_THRESHOLD is `auto`, started from the first INIT_VAL. The
//!   bounds MIN_VAL and MAX_VAL are checked and then not used: with the default ceiling of 1535
//!   bytes an all-small heap never reaches its ratio, which is a defect and no wish.
//! - Numbers are decimal and whole (memtier reads `1x` as 1, `0x10` as 16), the string is read
//!   to its end and not to byte 1023.

use super::error::{ConfigError, What};
use super::list::List;
use super::value::{Word, weight};
use super::{Backing, Config, MAX_COLD, PolicyName, TierSpec};
use crate::base::Bytes;

/// memtier's own start of its first threshold.
const DEFAULT_THRESHOLD: Bytes = Bytes::kib(1);
/// MEMKIND_PMEM_MIN_SIZE.
const MIN_LIMIT: Bytes = Bytes::mib(16);

pub fn parse<'a>(
    text: &'a [u8],
    thresholds: Option<&'a [u8]>,
) -> Result<Config<'a>, ConfigError<'a>> {
    let text = text.strip_suffix(b";").unwrap_or(text);
    let (tiers, last) = match text.iter().rposition(|&b| b == b';') {
        Some(at) => (
            text.get(..at).unwrap_or(b""),
            text.get(at + 1..).unwrap_or(b""),
        ),
        None => (&b""[..], text),
    };
    let name = last
        .strip_prefix(b"POLICY:")
        .ok_or(whole(last, What::MemtierNoPolicy))?;
    let dynamic = match name {
        b"STATIC_RATIO" => false,
        b"DYNAMIC_THRESHOLD" => true,
        _ => {
            return Err(ConfigError {
                key: b"POLICY",
                word: name,
                what: What::MemtierPolicy,
            });
        }
    };

    let mut config = Config::default();
    let mut dram = None;
    let mut cold = List::<u32, MAX_COLD>::empty(0);
    for part in tiers.split(|&b| b == b';').filter(|part| !part.is_empty()) {
        let (backing, ratio) = tier(part)?;
        let Some(spec) = backing else {
            if dram.replace(ratio).is_some() {
                return Err(whole(part, What::MemtierKindTwice));
            }
            continue;
        };
        if spec.backing == Backing::KmemNodes
            && config.cold.iter().any(|t| t.backing == spec.backing)
        {
            return Err(whole(part, What::MemtierKindTwice));
        }
        config
            .cold
            .push(spec)
            .map_err(|_| whole(part, What::TooManyTiers))?;
        cold.push(ratio)
            .map_err(|_| whole(part, What::TooManyTiers))?;
    }
    if dram.is_none() && cold.is_empty() {
        return Err(whole(text, What::MemtierNoTier));
    }

    // Pushes into a list with room for DRAM and every cold tier: they are not refused.
    let weights = core::iter::once(dram.unwrap_or(0)).chain(cold.iter().copied());
    weights.for_each(|w| config.ratio.push(w).unwrap_or(()));
    config.policy = match (cold.is_empty(), dynamic) {
        (true, _) => PolicyName::Dram,
        (false, false) => PolicyName::Ratio,
        (false, true) => PolicyName::Auto,
    };
    if dynamic {
        config.threshold = DEFAULT_THRESHOLD;
    }
    match thresholds {
        None => {}
        Some(text) if !dynamic => return Err(whole(text, What::MemtierThresholdsUnused)),
        Some(text) => {
            let between = usize::from(dram.is_some()) + cold.len() - 1;
            for (at, part) in text
                .split(|&b| b == b';')
                .filter(|p| !p.is_empty())
                .enumerate()
            {
                if at >= between {
                    return Err(whole(part, What::MemtierTooManyThresholds));
                }
                let init = threshold(part)?;
                if let (0, Some(init)) = (at, init) {
                    config.threshold = init;
                }
            }
        }
    }
    Ok(config)
}

fn whole(word: &[u8], what: What) -> ConfigError<'_> {
    ConfigError {
        key: b"",
        word,
        what,
    }
}

/// The `NAME:VALUE` words of a part; a word without `:` has no value and is refused by its name.
fn parameters(part: &[u8]) -> impl Iterator<Item = (&[u8], Word<'_>)> {
    part.split(|&b| b == b',').map(|text| {
        let at = text.iter().position(|&b| b == b':').unwrap_or(text.len());
        let (key, rest) = text.split_at_checked(at).unwrap_or((text, b""));
        (
            text,
            Word {
                key,
                text: rest.strip_prefix(b":").unwrap_or(b""),
            },
        )
    })
}

/// `None` is DRAM.
fn tier(part: &[u8]) -> Result<(Option<TierSpec<'_>>, u32), ConfigError<'_>> {
    let (mut kind, mut ratio, mut path, mut limit) = (None, None, None, None);
    for (text, word) in parameters(part) {
        let slot = match word.key {
            b"KIND" => &mut kind,
            b"RATIO" => &mut ratio,
            b"PATH" => &mut path,
            b"PMEM_SIZE_LIMIT" => &mut limit,
            _ => return Err(whole(text, What::MemtierParameter)),
        };
        if slot.replace(word).is_some() {
            return Err(whole(text, What::MemtierParameter));
        }
    }
    let kind = kind.ok_or(whole(part, What::MemtierNoKind))?;
    let ratio = ratio.ok_or(whole(part, What::MemtierNoRatio))?;
    let ratio = weight(ratio.text)
        .filter(|&n| n > 0)
        .ok_or(ratio.is(What::MemtierRatio))?;
    let spec = match kind.text {
        b"DRAM" => None,
        b"KMEM_DAX" => Some(TierSpec {
            backing: Backing::KmemNodes,
            limit: None,
        }),
        b"FS_DAX" => {
            let path = path.ok_or(whole(part, What::MemtierNoPath))?;
            let backing = Backing::File {
                dir: path.path(path.text)?,
                dax_expected: true,
            };
            let limit = limit.map(pmem_limit).transpose()?.flatten();
            return Ok((Some(TierSpec { backing, limit }), ratio));
        }
        _ => return Err(kind.is(What::MemtierKind)),
    };
    if path.is_some() || limit.is_some() {
        return Err(whole(part, What::MemtierOnlyFsDax));
    }
    Ok((spec, ratio))
}

/// 0 is no limit.
fn pmem_limit(word: Word<'_>) -> Result<Option<Bytes>, ConfigError<'_>> {
    match word.size()? {
        Bytes::ZERO => Ok(None),
        size if size < MIN_LIMIT => Err(word.is(What::MemtierLimit)),
        size => Ok(Some(size)),
    }
}

fn threshold(part: &[u8]) -> Result<Option<Bytes>, ConfigError<'_>> {
    let (mut init, mut min, mut max) = (None, None, None);
    for (text, word) in parameters(part) {
        let slot = match word.key {
            b"INIT_VAL" => &mut init,
            b"MIN_VAL" => &mut min,
            b"MAX_VAL" => &mut max,
            _ => return Err(whole(text, What::MemtierThreshold)),
        };
        if slot.replace(word.size()?).is_some() {
            return Err(whole(text, What::MemtierThreshold));
        }
    }
    let given = [min, init, max];
    if !given.iter().flatten().is_sorted() {
        return Err(whole(part, What::MemtierThresholdOrder));
    }
    Ok(init)
}
