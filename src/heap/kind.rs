//! Kinds: what an allocation asks for. A kind is a policy over tiers; which tiers and with which
//! parameters is fixed when it is made, all but the threshold that `auto` moves.

use crate::arena::lane;
use crate::base::{Bytes, TierId};
use crate::os::lock::Lock;
use crate::policy::{self, AutoMemory, MAX_TIERS, Order, Policy, Side, TierView};
use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

pub const MAX_KINDS: usize = 512;

/// A kind's place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct KindId(pub u16);

impl KindId {
    pub const DEFAULT: KindId = KindId(0);
    pub const DRAM: KindId = KindId(1);
    pub const COLD: KindId = KindId(2);
    /// The first that `kind_create` gives out.
    pub const FIRST_FREE: u16 = 3;
}

/// What a kind is made of. Lives in metadata memory and never changes while the kind exists.
#[derive(Clone, Copy)]
pub struct Recipe {
    pub policy: Policy,
    pub strict: bool,
    /// Whether the tiers besides DRAM were opened for this kind and close with it.
    pub owns_tiers: bool,
    pub tiers: [TierId; MAX_TIERS],
    pub weights: [u32; MAX_TIERS],
    pub len: u8,
}

/// One place of the table.
pub struct Kind {
    /// Null while the place is free.
    recipe: AtomicPtr<Recipe>,
    /// Requests of this many bytes and up are far; read when a thread first uses the kind.
    threshold: AtomicUsize,
    /// Counts changes of the threshold, so that thread heaps notice them.
    epoch: AtomicU64,
    auto: Lock<AutoMemory>,
}

/// The process's kinds.
pub static KINDS: [Kind; MAX_KINDS] = [const {
    Kind {
        recipe: AtomicPtr::new(core::ptr::null_mut()),
        threshold: AtomicUsize::new(usize::MAX),
        epoch: AtomicU64::new(0),
        auto: Lock::new(AutoMemory::new()),
    }
}; MAX_KINDS];

/// The kind of this number, if it exists.
#[inline]
pub fn kind(id: KindId) -> Option<&'static Kind> {
    KINDS.get(id.0 as usize).filter(|k| k.exists())
}

impl Kind {
    pub fn exists(&self) -> bool {
        // Relaxed: decides nothing but whether to look further; `recipe` acquires.
        !self.recipe.load(Ordering::Relaxed).is_null()
    }

    pub fn recipe(&self) -> Option<&'static Recipe> {
        // Acquire: pairs with the Release in `set`.
        // SAFETY: a recipe is metadata memory that is reused only after the kind was destroyed,
        // which its users must have stopped using before (documented at `kind_destroy`).
        unsafe { self.recipe.load(Ordering::Acquire).as_ref() }
    }

    /// Puts a recipe in force, or (null) frees the place. Returns what was there.
    pub fn set(&self, recipe: *mut Recipe, threshold: Bytes) -> *mut Recipe {
        // Relaxed: published by the Release below.
        self.threshold.store(threshold.get(), Ordering::Relaxed);
        // AcqRel: Release pairs with `recipe`; Acquire so that the old one may be reused.
        self.recipe.swap(recipe, Ordering::AcqRel)
    }

    pub fn threshold(&self) -> Bytes {
        // Relaxed: a threshold a moment old places a block a moment late.
        Bytes::new(self.threshold.load(Ordering::Relaxed))
    }

    pub fn epoch(&self) -> u64 {
        // Acquire: pairs with the Releases where it is raised; the recipe and threshold that are read
        // afterwards are as new.
        self.epoch.load(Ordering::Acquire)
    }

    /// Lets thread heaps notice that the recipe or threshold has changed.
    pub fn renew(&self) {
        // Release: pairs with the Acquire in `epoch`.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The tiers to try for `grow` more bytes.
    pub fn place(&self, recipe: &Recipe, side: Side, grow: Bytes) -> Order {
        let mut views = [TierView {
            held: Bytes::ZERO,
            limit: None,
            weight: 0,
        }; MAX_TIERS];
        let n = (recipe.len as usize).min(MAX_TIERS);
        for ((view, tier), weight) in views
            .iter_mut()
            .zip(recipe.tiers)
            .zip(recipe.weights)
            .take(n)
        {
            if let Some(lane) = lane(tier) {
                view.held = lane.in_use();
                view.limit = lane.account().limit();
            }
            view.weight = weight;
        }
        let views = views.get(..n).unwrap_or(&[]);
        if recipe.policy == Policy::Auto {
            self.adjust(grow, views);
        }
        policy::place(recipe.policy, side, grow, views, recipe.strict)
    }

    fn adjust(&self, grow: Bytes, views: &[TierView]) {
        // Whoever finds the controller busy goes by the old threshold.
        let Some(mut memory) = self.auto.try_lock() else {
            return;
        };
        let old = self.threshold();
        let new = policy::next_threshold(old, grow, views, &mut memory);
        if new != old {
            // Relaxed: see `threshold`. Release: pairs with the Acquire in `epoch`.
            self.threshold.store(new.get(), Ordering::Relaxed);
            self.epoch.fetch_add(1, Ordering::Release);
        }
    }
}
