//! Putting a configuration in force.

use super::kinds;
use crate::arena::{self, LANES, MAX_LANES, lane, meta};
use crate::base::config::{self, Config, ConfigError, PolicyName, Stats, TierSpec};
use crate::base::{Addr, Bytes, SEGMENT, TierId};
use crate::heap::fault;
use crate::heap::kind::{KINDS, KindId, Recipe, kind};
use crate::os::env::{self, Lookup};
use crate::os::lock::Lock;
use crate::os::report::{self, Voice, Warning, warn_once};
use crate::policy::{MAX_TIERS, Policy};
use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::tier::{Backing, Spec, TierError};
use core::ffi::CStr;

/// Why a configuration or a kind's recipe is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A word of the string; the message went to stderr if a voice was asked for.
    Word,
    /// A tier cannot be had.
    Tier,
    NoMemory,
    TooMany,
    /// The heap has placed by another configuration already.
    TooLate,
}

/// Where the report at exit goes.
static STATS: Lock<Stats<'static>> = Lock::new(Stats::Off);
/// The policy's place among their names. Beside the lock: reports are made in signal handlers.
static POLICY: AtomicUsize = AtomicUsize::new(0);
/// The environment could not be read yet.
static PENDING: AtomicBool = AtomicBool::new(false);
/// A configuration with tiers is in force.
static CONFIGURED: AtomicBool = AtomicBool::new(false);
static NEXT_TIER: AtomicU8 = AtomicU8::new(1);

pub fn exit_report() -> Stats<'static> {
    *STATS.lock()
}

/// What the environment or the program asked for; `dram` without a configuration.
pub fn policy() -> PolicyName {
    // Relaxed: a number by itself.
    let place = POLICY.load(Ordering::Relaxed);
    PolicyName::NAMES
        .get(place)
        .map_or(PolicyName::Dram, |&(_, policy)| policy)
}

/// Reads `TIERHEAP`, or memtier's variables where it is not set. A wrong word is said on stderr,
/// and the program runs on plain DRAM.
pub fn from_environment() {
    let text = match env::find(b"TIERHEAP") {
        Lookup::TooEarly => {
            // Relaxed: looked at again on later slow paths.
            PENDING.store(true, Ordering::Relaxed);
            return;
        }
        Lookup::Absent => return from_memtier(),
        Lookup::Value(text) => text,
    };
    let Some(text) = keep(text) else { return };
    match Config::parse(text) {
        Ok(config) => {
            let _ = apply(&config);
        }
        Err(error) => complain(&error),
    }
}

/// Once more, if the first look came too early.
#[inline]
pub fn retry_environment() {
    // Relaxed: a flag of its own.
    if PENDING.load(Ordering::Relaxed) && PENDING.swap(false, Ordering::Relaxed) {
        from_environment();
    }
}

fn from_memtier() {
    let (Lookup::Value(tiers), thresholds) = (
        env::find(b"MEMKIND_MEM_TIERS"),
        env::find(b"MEMKIND_MEM_THRESHOLDS"),
    ) else {
        return;
    };
    let Some(tiers) = keep(tiers) else { return };
    let thresholds = match thresholds {
        Lookup::Value(text) => keep(text),
        _ => None,
    };
    match Config::from_memtier(tiers, thresholds) {
        Ok(config) => {
            let _ = apply(&config);
        }
        Err(error) => complain(&error),
    }
}

fn complain(error: &ConfigError<'_>) {
    report::set_voice(Voice::Spoken);
    warn_once(
        Warning::Configuration,
        format_args!("{error}; the heap runs on plain DRAM"),
    );
}

/// A copy that lasts: the environment's strings are the program's to change.
fn keep(text: &[u8]) -> Option<&'static [u8]> {
    let memory = meta::alloc(Bytes::new(text.len() + 1))?;
    // SAFETY: fresh metadata of that size, never freed, ending in a zero byte.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), memory.as_ptr(), text.len());
        Some(core::slice::from_raw_parts(memory.as_ptr(), text.len()))
    }
}

fn keep_path(path: &[u8]) -> Option<&'static CStr> {
    let kept = keep(path)?;
    // SAFETY: `keep` leaves a zero byte behind the copy.
    CStr::from_bytes_with_nul(unsafe { core::slice::from_raw_parts(kept.as_ptr(), kept.len() + 1) })
        .ok()
}

/// `tierheap_configure`: the same string, from the program. Must come before the first
/// configuration with tiers is in force.
pub fn configure(text: &[u8]) -> Result<(), Refusal> {
    // Relaxed: two configurations at once are the caller's mistake, and one of them wins.
    if CONFIGURED.load(Ordering::Relaxed) {
        return Err(Refusal::TooLate);
    }
    let text = keep(text).ok_or(Refusal::NoMemory)?;
    let config = Config::parse(text).map_err(|e| {
        report::line(format_args!("{e}"));
        Refusal::Word
    })?;
    apply(&config)
}

fn apply(config: &Config<'static>) -> Result<(), Refusal> {
    report::set_voice(Voice::Spoken);
    fault::set_abort(config.abort);
    // Relaxed: see `configure`.
    CONFIGURED.store(true, Ordering::Relaxed);
    *STATS.lock() = config.stats;
    // Relaxed: see `policy`.
    POLICY.store(config.policy as usize, Ordering::Relaxed);
    LANES[0].account().set_limit(config.dram);
    LANES[0].set_thp(config.thp);
    let (mut recipe, missing) = recipe_of(config, false)?;
    if recipe.len == 1 {
        // No tier could be had: it has been said, and nothing is left to fall back from.
        recipe.policy = Policy::Dram;
    }
    let plain = Recipe {
        policy: Policy::Dram,
        len: 1,
        ..recipe
    };
    set_recipe(KindId::DRAM, plain, Bytes::new(usize::MAX));
    if recipe.len > 1 {
        set_recipe(
            KindId::COLD,
            Recipe {
                policy: Policy::Cold,
                ..recipe
            },
            Bytes::ZERO,
        );
    }
    set_recipe(KindId::DEFAULT, recipe, config.threshold);
    kinds::renew_default();
    if missing { Err(Refusal::Tier) } else { Ok(()) }
}

/// The recipe of a configuration, its tiers opened. With `strict_tiers` a tier that cannot be
/// had is an error; without, it is warned of and left out.
pub fn recipe_of(config: &Config<'_>, own: bool) -> Result<(Recipe, bool), Refusal> {
    let mut recipe = Recipe {
        policy: match config.policy {
            PolicyName::Dram => Policy::Dram,
            // Until its own placement exists, heat places by size.
            PolicyName::Size | PolicyName::Heat => Policy::Size,
            PolicyName::Ratio => Policy::Ratio,
            PolicyName::Auto => Policy::Auto,
            PolicyName::Cold => Policy::Cold,
        },
        strict: config.strict,
        owns_tiers: own,
        tiers: [TierId::DRAM; MAX_TIERS],
        weights: [1; MAX_TIERS],
        len: 1,
    };
    let mut missing = false;
    for (i, spec) in config.cold.iter().enumerate() {
        match open_tier(spec, config, own) {
            Ok(tier) => {
                if let (Some(place), Some(weight)) = (
                    recipe.tiers.get_mut(recipe.len as usize),
                    recipe.weights.get_mut(recipe.len as usize),
                ) {
                    *place = tier;
                    *weight = weight_of(config, i + 1, spec.limit);
                    recipe.len += 1;
                }
            }
            Err(error) => {
                missing = true;
                if own {
                    super::kinds::close_tiers(&recipe);
                    return Err(error);
                }
            }
        }
    }
    if let Some(weight) = recipe.weights.first_mut() {
        *weight = weight_of(config, 0, config.dram);
    }
    Ok((recipe, missing))
}

/// A tier's share: as asked for; else its limit in MiB; else 1.
fn weight_of(config: &Config<'_>, index: usize, limit: Option<Bytes>) -> u32 {
    let all_limited = config.dram.is_some() && config.cold.iter().all(|t| t.limit.is_some());
    match (config.ratio.get(index), limit) {
        (Some(&weight), _) => weight,
        (None, Some(limit)) if config.ratio.is_empty() && all_limited => {
            u32::try_from(limit.get() >> 20).unwrap_or(u32::MAX).max(1)
        }
        _ => 1,
    }
}

fn open_tier(spec: &TierSpec<'_>, config: &Config<'_>, own: bool) -> Result<TierId, Refusal> {
    let wanted = match spec.backing {
        config::Backing::FsDax(dir) => Spec::File {
            dir: keep_path(dir).ok_or(Refusal::NoMemory)?,
            must_be_dax: true,
        },
        config::Backing::File { dir, .. } => Spec::File {
            dir: keep_path(dir).ok_or(Refusal::NoMemory)?,
            must_be_dax: false,
        },
        config::Backing::Node(nodes) => Spec::Node(nodes),
        config::Backing::KmemNodes => Spec::MemoryOnlyNodes,
        config::Backing::Memfd => Spec::Memfd,
    };
    let backing = Backing::open(wanted, config.thp).map_err(|error| {
        warn_tier(spec, error);
        Refusal::Tier
    })?;
    open_lane(backing, spec.limit, own).inspect_err(|_| warn_tier(spec, TierError::NoAddresses))
}

/// Gives an opened backing a tier number and a lane.
pub fn open_lane(backing: Backing, limit: Option<Bytes>, own: bool) -> Result<TierId, Refusal> {
    let capacity = match (limit, backing.room()) {
        (Some(limit), _) => limit,
        (None, Some(room)) => room.total,
        (None, None) => crate::os::limits::total_ram(),
    };
    let tier = next_tier(limit).ok_or(Refusal::TooMany)?;
    // The tiers of the configuration are few and large, those of kinds may be many.
    let share = if own { 8 } else { 2 };
    // What it can lack is addresses: others have taken the window.
    arena::open_lane(tier, backing, capacity, limit, share).map_err(|_| Refusal::TooMany)?;
    Ok(tier)
}

/// A tier number that is free: one of a closed lane that has addresses enough, else a new one,
/// else one of any closed lane.
fn next_tier(limit: Option<Bytes>) -> Option<TierId> {
    // Relaxed: lanes are opened by one thread at a time (guest's seat, or the kinds' lock).
    let used = NEXT_TIER.load(Ordering::Relaxed);
    let closed = |at_least: usize| {
        (1..used).map(TierId).find(|&t| {
            lane(t)
                .and_then(|l| l.closed_count())
                .is_some_and(|(_, n)| SEGMENT.times(n as usize).get() >= at_least)
        })
    };
    let enough = limit.map_or(0, |l| l.get());
    closed(enough)
        .or_else(|| {
            (usize::from(used) < MAX_LANES).then(|| {
                NEXT_TIER.store(used + 1, Ordering::Relaxed);
                TierId(used)
            })
        })
        .or_else(|| closed(0))
}

fn warn_tier(spec: &TierSpec<'_>, error: TierError) {
    let name = core::fmt::from_fn(|f| match spec.backing {
        config::Backing::FsDax(dir) => write!(f, "fsdax:{}", dir.escape_ascii()),
        config::Backing::File { dir, .. } => write!(f, "file:{}", dir.escape_ascii()),
        config::Backing::Node(nodes) => write!(f, "node:{nodes}"),
        config::Backing::KmemNodes => f.write_str("nodes of persistent memory"),
        config::Backing::Memfd => f.write_str("memfd"),
    });
    // A name may contain any of it, so it is no error before the directory is looked for.
    let looks_like_a_limit = match spec.backing {
        config::Backing::FsDax(dir) | config::Backing::File { dir, .. } => {
            error == TierError::NoDirectory && dir.windows(7).any(|part| part == b",limit=")
        }
        _ => false,
    };
    let hint = if looks_like_a_limit {
        " (a limit is written ,limit:SIZE)"
    } else {
        ""
    };
    warn_once(
        Warning::TierMissing,
        format_args!("cold tier {name} cannot be had: {error}{hint}; going on without it"),
    );
}

/// Puts a recipe in force for a kind's place. False where there is no memory for it.
pub fn set_recipe(id: KindId, recipe: Recipe, threshold: Bytes) -> bool {
    let Some(memory) = meta::alloc(Bytes::new(size_of::<Recipe>())) else {
        return false;
    };
    let place = memory.as_ptr().cast::<Recipe>();
    // SAFETY: fresh metadata of the right size.
    unsafe { place.write(recipe) };
    if let Some(kind) = KINDS.get(id.0 as usize) {
        let old = kind.set(place, threshold);
        if !old.is_null() {
            // SAFETY: recipes come from `meta::alloc` with this size. Readers of the old one are
            // inside the gate or before the first tier; see `Kind::recipe`.
            unsafe { meta::free(Addr::of(old), Bytes::new(size_of::<Recipe>())) };
        }
    }
    true
}

/// Frees a kind's place.
pub fn clear_recipe(id: KindId) {
    if let Some(kind) = KINDS.get(id.0 as usize) {
        let old = kind.set(core::ptr::null_mut(), Bytes::new(usize::MAX));
        if !old.is_null() {
            // SAFETY: as in `set_recipe`; nobody uses the kind any more.
            unsafe { meta::free(Addr::of(old), Bytes::new(size_of::<Recipe>())) };
        }
    }
}

/// Whether the kind's recipe has a tier besides DRAM.
pub fn has_cold(id: KindId) -> bool {
    kind(id).and_then(|k| k.recipe()).is_some_and(|r| r.len > 1)
}
