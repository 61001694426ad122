//! The main job: Debian's redis-server, unmodified, with its values in a cold tier. Everything
//! that goes in is read back and proved; what the tiers hold is checked against the statistics
//! and against the kernel's account; dumps made under overwrite must be one moment.

mod common;
#[path = "programs/redis.rs"]
mod redis;
#[path = "programs/resp.rs"]
mod resp;
#[path = "programs/server.rs"]
mod server;
#[path = "programs/snapshot.rs"]
mod snapshot;
#[path = "programs/soak.rs"]
mod soak;

use redis::{Redis, SMALL, SMALL_FROM, both, length, load, values_of, verify};
use resp::{LONGEST, Values};
use server::{disk, need, report_of, resident_in};
use snapshot::{GROUPS, LENGTHS, State, dumps_are_moments, faults, id, version};
use std::process::Command;
use std::time::Duration;

/// The command of the README, `bytes` of values, `small` small keys.
fn main_job(bytes: u64, small: u64) {
    let program = need("redis-server", "redis-server");
    let dir = disk("main-job");
    let tier = dir.path().join("tier");
    std::fs::create_dir(&tier).unwrap();
    let stats = dir.path().join("stats.json");
    let mut cmd = Command::new(common::command());
    cmd.env(
        "TIERHEAP",
        format!("policy=size;threshold=4K;stats={}", stats.display()),
    );
    cmd.args(["run", "--cold"])
        .arg(format!("file:{}", tier.display()))
        .arg("--")
        .arg(program);
    let mut redis = Redis::start("tierheap run redis-server", cmd, dir.path(), &[]);
    let pid = redis.server.pid();

    let v = Values::new();
    let (keys, bytes) = values_of(bytes);
    both(&mut redis, |c, half| {
        let of_mine = |n: u64| (0..n).filter(move |k| k % 2 == half);
        load(c, &v, of_mine(keys).map(|k| (k, length(k))), 1)?;
        load(c, &v, of_mine(small).map(|k| (SMALL_FROM + k, SMALL)), 1)
    });
    both(&mut redis, |c, half| {
        let of_mine = |n: u64| (0..n).filter(move |k| k % 2 == half);
        let missing = verify(c, &v, of_mine(keys).map(|k| (k, length(k))), 1)?
            + verify(c, &v, of_mine(small).map(|k| (SMALL_FROM + k, SMALL)), 1)?;
        match missing {
            0 => Ok(()),
            n => Err(std::io::Error::other(format!("{n} keys are lost"))),
        }
    });
    let mut client = redis.client();
    assert_eq!(client.number(&["DBSIZE"]), keys + small);

    // The kernel's account, which the library cannot embellish.
    let in_file = resident_in(pid, &tier);
    assert!(
        in_file * 100 >= bytes * 95,
        "only {in_file} of {bytes} bytes of values are resident in files of the tier"
    );

    redis.shut_down();
    let report = report_of(&stats, pid);
    println!(
        "{keys} values of {bytes} bytes and {small} small keys: {}",
        report.0
    );
    assert_eq!(report.0["policy"], "size");
    let cold = report.cold("asked");
    assert!(
        cold * 100 >= bytes * 95,
        "{cold} of {bytes} bytes in the cold tier: {}",
        report.0
    );
    // Without rounding, an entry of the table takes 24 bytes, a small key's name 17, a small
    // value 20 more than its length, a large one's object 16. Blocks round that up by less than
    // half. What DRAM holds beyond might be values.
    let dram = report.tier(1, "asked");
    let floor = small * (24 + 17 + 20 + SMALL as u64) + keys * (24 + 16 + 5);
    assert!(
        dram >= floor,
        "DRAM holds {dram} bytes; small objects alone ask for {floor}"
    );
    let more = dram - floor;
    assert!(
        more * 100 <= bytes * 5 + floor * 50,
        "DRAM holds {more} bytes that are no small objects, of {bytes} of values: {}",
        report.0
    );
    assert_eq!(report.number("fallbacks"), 0, "{}", report.0);
    assert!(
        report.tier(2, "resident") * 100 >= bytes * 95,
        "{}",
        report.0
    );
    assert!(
        report.tier(2, "held") >= cold && report.tier(1, "held") >= dram,
        "{}",
        report.0
    );
}

#[test]
fn main_job_quick() {
    main_job(256 << 20, 100_000);
}

#[test]
#[ignore = "long: 2 GiB of values and a million small keys"]
fn main_job_full() {
    main_job(2 << 30, 1_000_000);
}

#[test]
fn run_with_stats_shuts_down_cleanly_and_reports() {
    let program = need("redis-server", "redis-server");
    let dir = disk("stats");
    let cold = format!("file:{}", dir.path().display());
    let mut cmd = Command::new(common::command());
    cmd.env("TIERHEAP", "policy=size;threshold=4K");
    cmd.args(["run", "--cold", &cold, "--stats", "--"])
        .arg(program);
    let mut redis = Redis::start("tierheap run --stats", cmd, dir.path(), &[]);
    let mut client = redis.client();
    let v = Values::new();
    let keys = || (0..2_000).map(|k| (k, length(k)));
    redis.server.ok(load(&mut client, &v, keys(), 1));
    assert_eq!(redis.server.ok(verify(&mut client, &v, keys(), 1)), 0);
    let said = redis.shut_down().stderr();
    for word in ["dram", &cold, "size"] {
        assert!(
            said.contains(word),
            "the report does not name {word}:\n{said}"
        );
    }
}

#[test]
fn dumps_are_moments_size_file() {
    dumps_are_moments("cold=file:DIR;policy=size;threshold=4K");
}

#[test]
fn dumps_are_moments_size_memfd() {
    dumps_are_moments("cold=memfd;policy=size;threshold=4K");
}

#[test]
fn dumps_are_moments_cold_file() {
    dumps_are_moments("cold=file:DIR;policy=cold");
}

#[test]
fn dumps_are_moments_cold_memfd() {
    dumps_are_moments("cold=memfd;policy=cold");
}

#[test]
fn dumps_are_moments_in_dram() {
    dumps_are_moments("policy=dram");
}

/// The check itself: it must see a group that is older, a torn key, and a moment out of bounds.
#[test]
fn the_check_of_dumps_sees_what_is_torn() {
    let done = [100, 103];
    let mut keys = Vec::new();
    for d in done {
        for g in 0..GROUPS {
            keys.extend(LENGTHS.map(|_| Ok(version(g, d))));
        }
    }
    let whole = State {
        all: 203,
        done,
        keys,
    };
    assert_eq!(faults(&whole, 200, 203), Vec::<String>::new());
    assert_eq!(faults(&whole, 204, 210).len(), 1);
    let mut old = whole.clone();
    old.keys[id(1, 3, 2) as usize] = Ok(version(3, 103) - 1);
    assert_eq!(faults(&old, 200, 203).len(), 1);
    let mut later = whole.clone();
    later.done[0] += 1;
    assert_eq!(faults(&later, 200, 203).len(), 1 + LENGTHS.len());
    let mut torn = whole.clone();
    torn.keys[5] = Err("torn".to_string());
    assert_eq!(faults(&torn, 200, 203).len(), 1);

    let v = Values::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    v.append(9, 4, LONGEST / 2, &mut a);
    v.append(9, 5, LONGEST / 2, &mut b);
    assert_eq!(v.version(9, LONGEST / 2, &a), Ok(4));
    let mut mixed = b.clone();
    mixed[65_536..].copy_from_slice(&a[65_536..]);
    assert!(v.version(9, LONGEST / 2, &mixed).is_err());
    assert!(v.version(8, LONGEST / 2, &a).is_err());
    assert!(v.version(9, LONGEST / 2, &a[..100]).is_err());
}

/// Four times as much as fits, under an eviction policy: what is still there is right, and the
/// space of what is gone is used again.
fn evictions(config: &str) {
    let dir = disk("evictions");
    let stats = dir.path().join("stats.json");
    let config = config.replace("DIR", dir.path().to_str().unwrap());
    let config = format!("{config};stats={}", stats.display());
    let mut redis = Redis::preloaded(&config, dir.path(), &["--maxmemory", "64mb"]);
    let mut c = redis.client();
    let v = Values::new();
    let (keys, bytes) = values_of(256 << 20);
    for round in 1..=2 {
        redis
            .server
            .ok(load(&mut c, &v, (0..keys).map(|k| (k, length(k))), round));
        // Keys that an earlier round left and this one evicted before writing are gone, so all
        // that is there is of this round.
        let there = keys
            - redis
                .server
                .ok(verify(&mut c, &v, (0..keys).map(|k| (k, length(k))), round))
                as u64;
        let evicted: u64 = c.info("stats", "evicted_keys").parse().unwrap();
        assert!(
            evicted >= round * (keys / 2),
            "{config}: {evicted} evictions"
        );
        // The replies take memory, too, so that reading evicts.
        let left = c.number(&["DBSIZE"]);
        assert!(
            (keys / 8..=there).contains(&left),
            "{config}: {left} keys are left of {there}"
        );
        let used: u64 = c.info("memory", "used_memory").parse().unwrap();
        assert!(
            (32 << 20..80 << 20).contains(&used),
            "{config}: {used} bytes used"
        );
    }
    let pid = redis.server.pid();
    redis.shut_down();
    let report = report_of(&stats, pid);
    println!("{config}: {}", report.0);
    let peak = report.cold("peak") + report.tier(1, "peak");
    assert!(
        peak < 160 << 20,
        "{config}: {peak} bytes held for 64 MiB, {bytes} written twice"
    );
}

#[test]
fn evictions_reuse_the_space_size_file() {
    evictions("cold=file:DIR;policy=size;threshold=4K");
}

#[test]
fn evictions_reuse_the_space_cold_memfd() {
    evictions("cold=memfd;policy=cold");
}

/// FLUSHALL ASYNC frees everything in a thread that allocated nothing of it; and the calls of
/// jemalloc's own interface that Debian's redis-server makes.
#[test]
fn freed_by_another_thread_and_asked_by_mallctl() {
    let dir = disk("flush");
    let stats = dir.path().join("stats.json");
    let config = format!(
        "cold=file:{};policy=size;threshold=4K;stats={}",
        dir.path().display(),
        stats.display()
    );
    // Threads that read and write for the main one, too: buffers change hands all the time.
    let threads = ["--io-threads", "2", "--io-threads-do-reads", "yes"];
    let mut redis = Redis::preloaded(&config, dir.path(), &threads);
    let mut c = redis.client();
    let v = Values::new();
    let (keys, _) = values_of(96 << 20);
    for round in 1..=4 {
        redis
            .server
            .ok(load(&mut c, &v, (0..keys).map(|k| (k, length(k))), round));
        redis.server.ok(load(
            &mut c,
            &v,
            (0..50_000).map(|k| (SMALL_FROM + k, SMALL)),
            round,
        ));
        let all = (0..keys).map(|k| (k, length(k)));
        assert_eq!(redis.server.ok(verify(&mut c, &v, all, round)), 0);
        let all = (0..50_000).map(|k| (SMALL_FROM + k, SMALL));
        assert_eq!(redis.server.ok(verify(&mut c, &v, all, round)), 0);
        for request in [&["MEMORY", "MALLOC-STATS"][..], &["MEMORY", "DOCTOR"]] {
            assert!(!c.text(request).is_empty(), "{request:?}");
        }
        assert_eq!(c.text(&["MEMORY", "PURGE"]), "OK");
        assert_eq!(c.text(&["FLUSHALL", "ASYNC"]), "OK");
        redis.server.wait_for(Duration::from_secs(60), || {
            (c.info("memory", "lazyfree_pending_objects") == "0").then_some(())
        });
    }
    // Space goes back to the system while the server does a little, without a request for it.
    let pid = redis.server.pid();
    let tier = dir.path();
    let before = resident_in(pid, tier);
    redis.server.wait_for(Duration::from_secs(60), || {
        load(&mut c, &v, (0..100).map(|k| (k, length(k))), 9).unwrap();
        assert_eq!(c.text(&["FLUSHALL", "ASYNC"]), "OK");
        let now = resident_in(pid, tier);
        (now < 32 << 20).then(|| println!("{before} bytes resident, later {now}"))
    });
    redis.shut_down();
    let report = report_of(&stats, pid);
    println!("{}", report.0);
    let peak = report.tier(2, "peak");
    assert!(
        peak < 200 << 20,
        "{peak} bytes held at most for 96 MiB: {}",
        report.0
    );
    let resident = report.tier(2, "resident");
    assert!(
        resident < 40 << 20,
        "{resident} bytes are resident: {}",
        report.0
    );
    let left = report.tier(2, "asked");
    assert!(
        left < 8 << 20,
        "{left} bytes are live after everything was freed: {}",
        report.0
    );
}

/// A cold tier of 48 MiB for 128 MiB of values: the rest goes to DRAM, counted, and none is lost.
#[test]
fn a_full_cold_tier_loses_nothing() {
    let dir = disk("full");
    let stats = dir.path().join("stats.json");
    let config = format!(
        "cold=file:{},limit:48M;policy=size;threshold=4K;stats={}",
        dir.path().display(),
        stats.display()
    );
    let mut redis = Redis::preloaded(&config, dir.path(), &[]);
    let mut c = redis.client();
    let v = Values::new();
    let (keys, bytes) = values_of(128 << 20);
    redis
        .server
        .ok(load(&mut c, &v, (0..keys).map(|k| (k, length(k))), 3));
    assert_eq!(
        redis
            .server
            .ok(verify(&mut c, &v, (0..keys).map(|k| (k, length(k))), 3)),
        0
    );
    let pid = redis.server.pid();
    redis.shut_down();
    let report = report_of(&stats, pid);
    println!("{}", report.0);
    assert!(
        report.tier(2, "fallbacks") > 0 && report.number("fallbacks") > 0,
        "{}",
        report.0
    );
    assert_eq!(report.tier(2, "limit"), 48 << 20);
    assert!(report.tier(2, "peak") <= 48 << 20, "{}", report.0);
    assert!(report.tier(2, "asked") >= 32 << 20, "{}", report.0);
    assert!(
        report.tier(1, "asked") >= bytes - (48 << 20),
        "{}",
        report.0
    );
}

#[test]
fn soak_of_a_minute() {
    soak::soak("cold=file:DIR;policy=size;threshold=4K", soak::MINUTE);
}

#[test]
#[ignore = "long: ten minutes"]
fn soak_file() {
    soak::soak("cold=file:DIR;policy=size;threshold=4K", soak::WHOLE);
}

#[test]
#[ignore = "long: ten minutes"]
fn soak_memfd() {
    soak::soak("cold=memfd;policy=size;threshold=4K", soak::WHOLE);
}

#[test]
#[ignore = "long: ten minutes"]
fn soak_everything_cold() {
    soak::soak("cold=file:DIR;policy=cold", soak::WHOLE);
}
