//! Slices for a new slab or large block, from the first tier in the policy's order that has room.

use super::kind::{KindId, kind};
use super::thread_heap::ThreadHeap;
use super::tidy;
use crate::arena::{Lane, Refused, Run, lane};
use crate::base::{Bytes, Millis, SLICE, TierId};
use crate::os::clock;
use crate::os::report::{Warning, warn_once};
use crate::policy::Side;

/// What is asked for.
pub struct Wish {
    pub kind: KindId,
    pub side: Side,
    pub slices: usize,
    /// So few slices would do where a tier's limit leaves no more.
    pub least: usize,
    /// They start at a multiple of this, a power of two.
    pub align: Bytes,
}

pub enum Obtained {
    Run(TierId, Run),
    /// The caller has found room of its own.
    Instead,
    Nothing,
}

/// Slices for this wish. `instead` is asked, at most once, before another tier than those the
/// policy named is, and where all refuse: blocks in frozen segments cost DRAM, but so does a
/// fall back.
///
/// # Safety
/// The caller owns `th` and is inside the gate.
pub unsafe fn obtain(
    th: *mut ThreadHeap,
    wish: &Wish,
    mut instead: impl FnMut() -> bool,
) -> Obtained {
    let Some((kind, recipe)) = kind(wish.kind).and_then(|k| Some((k, k.recipe()?))) else {
        return Obtained::Nothing;
    };
    let (mut may_spare, mut may_ask) = (true, true);
    let (mut refused, now) = (None, clock::now());
    'again: loop {
        let order = kind.place(recipe, wish.side, SLICE.times(wish.slices));
        let Some(&wanted) = recipe.tiers.get(order.wanted()) else {
            return Obtained::Nothing;
        };
        for (position, index) in order.iter().enumerate() {
            // SAFETY: as promised.
            if index != order.wanted() && take(&mut may_spare) && unsafe { tidy::spare(th, wanted) }
            {
                continue 'again;
            }
            let falls_back = position >= order.fallback_from();
            if falls_back && take(&mut may_ask) && instead() {
                return Obtained::Instead;
            }
            let Some(&tier) = recipe.tiers.get(index) else {
                continue;
            };
            match ask(tier, wish, falls_back && tier == TierId::DRAM, now) {
                Ok(run) => {
                    if falls_back && tier == TierId::DRAM {
                        went_beyond();
                    }
                    if tier != wanted {
                        fell_back(wanted, !falls_back, refused);
                    }
                    return Obtained::Run(tier, run);
                }
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        // SAFETY: as promised.
        if take(&mut may_spare) && unsafe { tidy::spare(th, wanted) } {
            continue;
        }
        if take(&mut may_ask) && instead() {
            return Obtained::Instead;
        }
        if recipe.strict {
            lane(wanted).inspect(|l| l.count_fallback());
        }
        return Obtained::Nothing;
    }
}

/// What `once` was; it is false from here on.
fn take(once: &mut bool) -> bool {
    core::mem::replace(once, false)
}

fn ask(tier: TierId, wish: &Wish, beyond: bool, now: Millis) -> Result<Run, Refused> {
    let lane = lane(tier).ok_or(Refused::Closed)?;
    match lane.alloc(wish.slices, wish.align, beyond, now) {
        Err(Refused::Limit | Refused::System(_)) if wish.least < wish.slices => {
            lane.alloc(wish.least, wish.align, beyond, now)
        }
        done => done,
    }
}

/// Counts a request that another tier than the wanted one took. It is warned of where the policy
/// did not name that other tier; a budget of DRAM that is used up is what the user asked for.
fn fell_back(wanted: TierId, named: bool, why: Option<Refused>) {
    if let Some(lane) = lane(wanted) {
        lane.count_fallback();
        if !named && wanted != TierId::DRAM {
            warn_slow(wanted, why);
        }
    }
}

/// Counts what DRAM gave as the last resort, if that was beyond its budget: a bound was asked for,
/// and does not hold.
fn went_beyond() {
    if let Some(account) = lane(TierId::DRAM).map(Lane::account)
        && let Some(budget) = account.limit()
        && account.held() > budget
    {
        warn_once(
            Warning::BeyondBudget,
            format_args!(
                "DRAM goes beyond its budget of {} bytes, for no other tier has room (strict=1 refuses instead)",
                budget.get()
            ),
        );
    }
}

#[cold]
#[inline(never)]
fn warn_slow(wanted: TierId, why: Option<Refused>) {
    let name = |f: &mut core::fmt::Formatter<'_>| match lane(wanted) {
        Some(lane) => lane
            .with_backing(|b| write!(f, "{}", b.name()))
            .unwrap_or(Ok(())),
        None => Ok(()),
    };
    let name = core::fmt::from_fn(name);
    match why {
        Some(Refused::System(e)) => warn_once(
            Warning::TierFull,
            format_args!("tier {name} has no room ({e}); other tiers take its place"),
        ),
        _ => warn_once(
            Warning::TierFull,
            format_args!("tier {name} has reached its limit; other tiers take its place"),
        ),
    }
}
