//! Kinds that programs make and destroy.

use super::configure::{self, Refusal};
use super::gate;
use super::start;
use super::threads::with_heap;
use crate::arena::lane;
use crate::base::config::{Config, Thp};
use crate::base::{Bytes, TierId};
use crate::heap::kind::{KINDS, KindId, MAX_KINDS, Recipe, kind};
use crate::heap::{scrub, slot};
use crate::os::clock;
use crate::os::lock::Lock;
use crate::os::report;
use crate::policy::{MAX_TIERS, Policy};
use crate::tier::{Backing, Spec};

/// Held while a kind or its tiers are made or destroyed.
static MAKING: Lock<()> = Lock::new(());

/// Makes a kind from a configuration string that has none of the keys of the heap as a whole.
pub fn create(spec: &[u8]) -> Result<KindId, Refusal> {
    prepare()?;
    let config = Config::parse_kind(spec).map_err(|error| {
        report::line(format_args!("{error}"));
        Refusal::Word
    })?;
    let made = with_heap(|_| {
        let _making = MAKING.lock();
        let free = (KindId::FIRST_FREE..MAX_KINDS as u16)
            .map(KindId)
            .find(|&id| kind(id).is_none());
        let id = free.ok_or(Refusal::TooMany)?;
        let (recipe, _) = configure::recipe_of(&config, true)?;
        if configure::set_recipe(id, recipe, config.threshold) {
            Ok(id)
        } else {
            Err(Refusal::NoMemory)
        }
    });
    made.unwrap_or(Err(Refusal::NoMemory))
}

/// Frees everything in a kind, closes its tiers, and forgets it. The three kinds that always
/// exist stay. No thread may use the kind, or a block of it, any more.
pub fn destroy(id: KindId) -> bool {
    if id.0 < KindId::FIRST_FREE || kind(id).is_none() || with_heap(|_| ()).is_none() {
        return false;
    }
    let destroyed = gate::alone(slot::get(), || {
        // SAFETY: the gate is closed; that nobody uses the kind is the caller's promise, which
        // the function's documentation hands on.
        unsafe { scrub::empty_kind(id) };
        let recipe = kind(id).and_then(|k| k.recipe().copied());
        if let Some(recipe) = recipe {
            close_tiers(&recipe);
        }
        configure::clear_recipe(id);
    });
    destroyed.is_some()
}

/// Closes the tiers that were opened for a recipe.
pub fn close_tiers(recipe: &Recipe) {
    if recipe.owns_tiers {
        for &tier in recipe
            .tiers
            .iter()
            .take(recipe.len as usize)
            .filter(|&&t| t != TierId::DRAM)
        {
            if let Some(lane) = lane(tier) {
                lane.close(clock::now());
            }
        }
    }
}

/// The kind that places in the configured cold tiers; without a configuration, in a memfd that is
/// made now.
pub fn cold() -> Option<KindId> {
    prepare().ok()?;
    if !configure::has_cold(KindId::COLD) {
        with_heap(|_| {
            let _making = MAKING.lock();
            if configure::has_cold(KindId::COLD) {
                return;
            }
            let Ok(backing) = Backing::open(Spec::Memfd, Thp::System) else {
                return;
            };
            let Ok(tier) = configure::open_lane(backing, None, false) else {
                return;
            };
            let mut tiers = [TierId::DRAM; MAX_TIERS];
            tiers[1] = tier;
            let recipe = Recipe {
                policy: Policy::Cold,
                strict: false,
                owns_tiers: false,
                tiers,
                weights: [1; MAX_TIERS],
                len: 2,
            };
            configure::set_recipe(KindId::COLD, recipe, Bytes::ZERO);
        });
    }
    configure::has_cold(KindId::COLD).then_some(KindId::COLD)
}

/// Makes sure that the heap has started, so that there are kinds.
pub fn prepare() -> Result<(), Refusal> {
    if start::is_done() || with_heap(|_| ()).is_some() {
        Ok(())
    } else {
        Err(Refusal::NoMemory)
    }
}

/// Whether this is a kind's place in the table, and the kind exists.
pub fn by_address(address: usize) -> Option<KindId> {
    let offset = address.wrapping_sub(&raw const KINDS as usize);
    let size = size_of::<crate::heap::kind::Kind>();
    if !offset.is_multiple_of(size) || offset / size >= MAX_KINDS {
        return None;
    }
    let id = KindId((offset / size) as u16);
    kind(id).map(|_| id)
}

/// The address that stands for a kind outside.
pub fn address(id: KindId) -> usize {
    KINDS
        .get(id.0 as usize)
        .map_or(0, |k| core::ptr::from_ref(k) as usize)
}

/// The default kind has a new recipe: thread heaps made before notice at their next miss.
pub fn renew_default() {
    if let Some(kind) = KINDS.first() {
        kind.renew();
    }
}
