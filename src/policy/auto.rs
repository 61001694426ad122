//! `auto`: moves the threshold until the bytes held have the ratio asked for.

use super::TierView;
use crate::base::{Bytes, SLICE};

/// The threshold never goes below this: smaller blocks in a cold tier would share its 256-byte
/// write unit and cost more metadata than they are worth.
pub const MIN_THRESHOLD: Bytes = Bytes::new(512);
/// Nor above this.
pub const MAX_THRESHOLD: Bytes = Bytes::mib(1);

/// What the controller remembers between two decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoMemory {
    /// Held bytes at the last decision.
    near: u64,
    far: u64,
    /// Bytes placed since.
    placed: u64,
    /// The next step, in parts of `WHOLE` of the threshold.
    step: u8,
    /// The direction of the last step: -1 down, 1 up, 0 none yet.
    direction: i8,
}

impl AutoMemory {
    pub const fn new() -> AutoMemory {
        AutoMemory {
            near: 0,
            far: 0,
            placed: 0,
            step: MAX_STEP,
            direction: 0,
        }
    }
}

impl Default for AutoMemory {
    fn default() -> AutoMemory {
        AutoMemory::new()
    }
}

const WHOLE: usize = 128;
const MIN_STEP: u8 = 2;
const MAX_STEP: u8 = 64;
/// A decision is taken when this part of the bytes has been added or given back ...
const DECIDE_AT: u64 = 64;
/// ... or when this part of them has been placed, since a heap that frees as much as it allocates
/// does not change what it holds. Bytes and not placements: one may be of 64 KiB or of many MiB.
const TURNOVER: u64 = 8;
/// Within this part of the bytes around the goal the ratio counts as reached.
const BAND: u64 = 100;

/// The threshold to use from now on; to be called for each slab or large block of `grow` bytes
/// placed under [`super::Policy::Auto`].
///
/// Blocks do not move, so what is held follows the threshold late. A controller that went on
/// turning while the ratio is already on its way would overshoot by all that is placed in
/// between and swing for ever. So it holds still while the error shrinks, and turns while it does
/// not, by steps that halve when the error changes sign and grow a little when it keeps it.
///
/// The constants are those of the least mean error over the runs of `simulation`; larger steps
/// reach the ratio no sooner and swing, smaller ones take several turnovers of the heap.
pub fn next_threshold(
    current: Bytes,
    grow: Bytes,
    tiers: &[TierView],
    memory: &mut AutoMemory,
) -> Bytes {
    let clamped = current.clamp(MIN_THRESHOLD, MAX_THRESHOLD);
    let Some((dram, cold)) = tiers.split_first() else {
        return clamped;
    };
    let near = dram.held.get() as u64;
    let far = cold
        .iter()
        .fold(0u64, |sum, t| sum.saturating_add(t.held.get() as u64));
    let far_weight: u64 = cold.iter().map(|t| t.weight as u64).sum();
    let weights = dram.weight as u64 + far_weight;
    if weights == 0 {
        return clamped;
    }
    let total = near.saturating_add(far);

    memory.placed = memory.placed.saturating_add(grow.get() as u64);
    let moved = near
        .abs_diff(memory.near)
        .saturating_add(far.abs_diff(memory.far));
    let enough = (total / DECIDE_AT).max(SLICE.get() as u64);
    let turned_over = memory.placed >= (total / TURNOVER).max(32 * SLICE.get() as u64);
    if moved < enough && !turned_over {
        return clamped;
    }

    let error_of = |near: u64, far: u64| -> i128 {
        let total = near as u128 + far as u128;
        far as i128 - (total * far_weight as u128 / weights as u128) as i128
    };
    let error = error_of(near, far);
    let before = error_of(memory.near, memory.far);
    let total_before = memory.near.saturating_add(memory.far);
    *memory = AutoMemory {
        near,
        far,
        placed: 0,
        ..*memory
    };

    if error.unsigned_abs() <= (total / BAND) as u128 {
        return clamped;
    }
    // Too much in the cold tiers: up. Too little: down.
    let direction = if error > 0 { 1 } else { -1 };
    // |error| / total < |before| / total_before
    let shrinks = error.signum() == before.signum()
        && error.unsigned_abs().saturating_mul(total_before as u128)
            < before.unsigned_abs().saturating_mul(total as u128);
    if shrinks {
        return clamped;
    }
    memory.step = match memory.direction * direction {
        -1 => memory.step / 2,
        1 => memory.step + 1,
        _ => memory.step,
    }
    .clamp(MIN_STEP, MAX_STEP);
    memory.direction = direction;
    // Equal factors both ways: down by s/(1+s) undoes up by s.
    let step = memory.step as usize;
    let next = if direction > 0 {
        clamped.get() + clamped.get() * step / WHOLE
    } else {
        clamped.get() * WHOLE / (WHOLE + step)
    };
    Bytes::new(next).clamp(MIN_THRESHOLD, MAX_THRESHOLD)
}
