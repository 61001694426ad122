//! The clock of purges and rate limits.

use super::sys::call;
use super::vdso;
use crate::base::Millis;
use core::mem::MaybeUninit;
use core::num::NonZeroUsize;
use once_cell::race::OnceNonZeroUsize;

/// The address of the vDSO's function; 1 where there is none.
static FOUND: OnceNonZeroUsize = OnceNonZeroUsize::new();
const NONE: NonZeroUsize = NonZeroUsize::MIN;

fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    let found = FOUND.get_or_init(|| {
        vdso::clock_gettime()
            .and_then(|f| NonZeroUsize::new(f as usize))
            .unwrap_or(NONE)
    });
    // SAFETY: the vDSO's function or the kernel fills the struct; on an error (a clock of a
    // thread that is gone) it stays zero. The address came from a function of that type.
    let now = unsafe {
        if found == NONE {
            let _ = call(
                libc::SYS_clock_gettime,
                [clock as usize, now.as_mut_ptr() as usize, 0, 0, 0, 0],
            );
        } else {
            let gettime = core::mem::transmute::<usize, vdso::ClockGettime>(found.get());
            gettime(clock, now.as_mut_ptr());
        }
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

/// Nanoseconds that a thread of this process has used of a processor, up to this moment; 0 for one
/// that is gone.
pub(super) fn of_thread(thread: u32) -> u64 {
    // How the kernel encodes a thread's number as a clock: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
    let clock = (!(thread as libc::clockid_t) << 3) | 6;
    let (seconds, nanos) = read(clock);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

/// Lets other threads run for so long, or less when a signal comes.
pub(super) fn sleep(nanos: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(nanos),
    };
    // SAFETY: the kernel reads the struct, and writes nothing where no place for the rest is given.
    let _ = unsafe {
        call(
            libc::SYS_nanosleep,
            [(&raw const time) as usize, 0, 0, 0, 0, 0],
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_a_clock_without_a_call() {
        assert!(vdso::clock_gettime().is_some());
    }

    #[test]
    fn a_threads_clock_goes_on_while_it_runs() {
        let me = super::super::thread::id();
        let before = of_thread(me);
        let start = std::time::Instant::now();
        while of_thread(me) < before + 5_000_000 {
            assert!(start.elapsed().as_secs() < 60);
        }
        let before = of_thread(me);
        sleep(50_000_000);
        assert!(
            of_thread(me) < before + 40_000_000,
            "asleep it does not run"
        );
        assert_eq!(of_thread(u32::MAX >> 4), 0, "no such thread");
    }

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
