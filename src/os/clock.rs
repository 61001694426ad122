//! The clock of purges and rate limits.

use crate::base::Millis;
use core::mem::MaybeUninit;

fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    let _keep = super::errno::KeepErrno::new();
    // The named wrapper and not the system call: it reads the vDSO's page in some nanoseconds,
    // and sandboxes that kill for clock_gettime never see it (the coarse clocks need no kernel
    // whatever the hardware).
    // SAFETY: libc fills the struct; on an error (which these clocks never give) it stays zero.
    let now = unsafe {
        let _ = libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    };
    (now.tv_sec as u64, now.tv_nsec as u64)
}

/// Milliseconds since boot, at the timer's grain of 1 to 10 ms.
pub fn now() -> Millis {
    let (seconds, nanos) = read(libc::CLOCK_MONOTONIC_COARSE);
    Millis(seconds.wrapping_mul(1000).wrapping_add(nanos / 1_000_000))
}

/// Nanoseconds since boot, at full resolution, for seeds.
pub(super) fn nanos() -> u64 {
    let (seconds, nanos) = read(libc::CLOCK_MONOTONIC);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_at_the_walls_pace() {
        let (before, wall) = (now(), std::time::Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(60));
        let (passed, real) = (now().since(before), wall.elapsed().as_millis() as u64);
        // A grain of up to 10 ms at either end.
        assert!(
            passed + 10 >= 60 && passed <= real + 10,
            "{passed} of {real}"
        );
    }
}
