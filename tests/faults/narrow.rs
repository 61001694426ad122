//! Descriptors that a program closes or takes over, and resource limits that leave little.

use super::load::{DRAM, FILE, FULL, LOST, Load, MEMFD, Verdicts, figure, skipped, within};
use crate::build;

/// The three usual configurations.
fn each(mut of: impl FnMut(&str, bool)) {
    let dir = build::folder();
    for configuration in [DRAM, MEMFD, FILE] {
        of(&within(configuration, dir.path()), configuration != DRAM);
    }
}

fn losing(load: Load, has_tier: bool) -> Load {
    match has_tier {
        true => load.must_say(LOST),
        false => load,
    }
}

/// Closed before any fork, after one, again after a fork has used the new file; the program's own file
/// on the tier's number, which not one byte of the tier may reach; forks from there.
#[test]
fn all_descriptors_are_closed() {
    let own = build::folder();
    let own = own.path().join("own");
    let covered = format!(
        "work fork cover={} fork work grow=8 fork threads=3 trim fork",
        own.display()
    );
    let mut verdicts = Verdicts::default();
    each(|configuration, has_tier| {
        for steps in [
            "work close fork work grow=8 fork threads=3 trim fork",
            "work fork grow=8 close work fork close fork trim work fork",
            &covered,
        ] {
            let load = Load::new("closed", configuration, steps);
            verdicts.take(losing(load, has_tier));
        }
    });
    verdicts.done();
}

/// Two forks, all closed, the parents gone: the daemon's cold memory is that of the process that began,
/// and it forks in its turn.
#[test]
fn a_daemon_lives_on() {
    let mut verdicts = Verdicts::default();
    each(|configuration, _| {
        // The second child closes what it has not opened yet: nothing is lost.
        for steps in [
            "work grow=8 daemon work fork grow=8 threads=3 fork",
            "work fork grow=4 close daemon work fork trim grow=8 fork",
            "work grow=4 daemon grow=8 close fork work daemon work fork",
        ] {
            let load = Load::new("daemon", configuration, steps).until_closed();
            verdicts.take(load.may_say(LOST).child_may_say(LOST));
        }
    });
    verdicts.done();
}

/// From the start, with the three standard ones open, and later, with no new one to be had at all.
#[test]
fn few_descriptors() {
    let mut verdicts = Verdicts::default();
    each(|configuration, has_tier| {
        let tier = if has_tier { "tier=2" } else { "tier=1" };
        for most in [4, 5, 6, 8] {
            let steps = format!("work {tier} fork grow=8 threads=3 fork {tier}");
            let load = Load::new(&format!("{most} descriptors"), configuration, &steps);
            // A child forks before it has a file of its own: the only number is the sentinel's then.
            verdicts.take(load.limit(libc::RLIMIT_NOFILE, most).child_may_say(FULL));
        }
        // A child, and who has closed the file, cannot have another.
        let steps = format!("work {tier} descriptors=3 fork grow=8 {tier} fork");
        let load = Load::new("no more descriptors", configuration, &steps);
        verdicts.take(load.child_may_say(FULL));
        let steps = "work descriptors=3 close grow=40 work fork";
        let load = losing(Load::new("no descriptor", configuration, steps), has_tier);
        let load = if has_tier { load.must_say(FULL) } else { load };
        verdicts.take(load.child_may_say(FULL));
    });
    verdicts.done();
}

/// Stacks of the least size, which `ulimit -s` makes the default of threads, among them one that forks;
/// nothing may be locked, or all is.
#[test]
fn small_stacks_and_locked_memory() {
    let mut verdicts = Verdicts::default();
    let may_lock = Load::plain("all locked", "lock work").attempt().is_ok();
    if !may_lock {
        skipped(
            "programs that lock all their memory",
            "mlockall is refused here",
        );
    }
    each(|configuration, has_tier| {
        let tier = if has_tier { "tier=2" } else { "tier=1" };
        let steps = format!("work threads=8 fork fork-on-stack=16384 small-stacks=16384 {tier}");
        let load = Load::new("small stacks", configuration, &steps);
        verdicts.take(load.limit(libc::RLIMIT_STACK, 64 << 10));
        let steps = format!("work fork grow=8 threads=3 fork {tier}");
        let load = Load::new("nothing locked", configuration, &steps);
        verdicts.take(load.limit(libc::RLIMIT_MEMLOCK, 0));
        if may_lock {
            let steps = format!("lock {steps} trim fork");
            verdicts.take(Load::new("all locked", configuration, &steps));
        }
    });
    verdicts.done();
}

/// Room for part of the load, down to hardly any. Blocks in use fill about half of what the heap holds
/// here (many sizes, few of each), so glibc, whose figure is shown, is refused later.
#[test]
fn little_address_space() {
    let steps = "may-refuse work fork grow=8 threads=3 fork trim work";
    let mut verdicts = Verdicts::default();
    for mebibytes in [40, 64, 200] {
        let name = format!("{mebibytes} MiB of addresses");
        let limited = |load: Load| load.limit(libc::RLIMIT_AS, mebibytes << 20);
        let peer = verdicts
            .take(limited(Load::plain(&name, steps)))
            .map(|ran| ran.refused);
        each(|configuration, _| {
            let load = limited(Load::new(&name, configuration, steps)).may_say(FULL);
            let Some(ran) = verdicts.take(load.child_may_say(FULL)) else {
                return;
            };
            if mebibytes == 200 {
                verdicts.expect(ran.refused == 0, || {
                    format!(
                        "{name} under {configuration}: {} refused, glibc {peer:?}",
                        ran.refused
                    )
                });
            }
            println!(
                "{name} under {configuration}: {} refused, glibc {peer:?}",
                ran.refused
            );
        });
    }
    verdicts.done();
}

/// `ulimit -f` bounds a tier's file, from the start and later: no SIGXFSZ, and DRAM takes the rest.
#[test]
fn small_files() {
    let mut verdicts = Verdicts::default();
    each(|configuration, has_tier| {
        let configuration = format!("{configuration};stats=1");
        for (name, steps, most) in [
            ("files of 4 KiB", "work fork grow=8 threads=3 fork", 4096),
            (
                "files of 8 MiB",
                "work fork grow=20 threads=3 fork",
                8 << 20,
            ),
            (
                "files that stop",
                "work tier=0 file-size=4096 fork grow=40 fork work",
                u64::MAX,
            ),
        ] {
            let steps = steps.replace("tier=0", if has_tier { "tier=2" } else { "tier=1" });
            let load = Load::new(name, &configuration, &steps).child_may_say(FULL);
            let load = load.limit(libc::RLIMIT_FSIZE, most);
            let load = if has_tier { load.must_say(FULL) } else { load };
            let Some(ran) = verdicts.take(load) else {
                continue;
            };
            let peak = figure(&ran.report, 2, "peak").unwrap_or(0);
            verdicts.expect(peak <= most, || {
                format!("{name}: the tier holds {peak}\n{}", ran.report)
            });
        }
    });
    verdicts.done();
}
