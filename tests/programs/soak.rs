//! Ten minutes of everything at once: values of all sizes that come, change, expire and are evicted,
//! and a dump by a forked child every twenty seconds. What the process takes of memory and of
//! the tier's file when it ends must be what it took after two minutes: a heap that loses a little
//! at each fork, or to holes, shows here.

use super::redis::Redis;
use super::resp::{Client, Values};
use super::server::{disk, report_of};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 3;
const KEYS: u64 = 20_000;
const DUMP_EVERY: Duration = Duration::from_secs(20);
const SETTLED: Duration = Duration::from_secs(120);
pub const WHOLE: Duration = Duration::from_secs(600);
/// Of two dumps: shows that the test works, and what goes wrong at once.
pub const MINUTE: Duration = Duration::from_secs(60);

/// Numbers that look random and are the same in each run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// Another length with each version, so that nothing fits where it was before.
fn length(key: u64, version: u64) -> usize {
    let mixed = (key * 31 + version).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (match mixed % 32 {
        0 => 100_000 + mixed % 30_000,
        1..6 => 9_000 + mixed % 5_000,
        6..16 => 600 + mixed % 3_000,
        _ => 24 + mixed % 200,
    }) as usize
}

fn name(key: u64) -> String {
    format!("v:{key}")
}

/// One connection's work on keys of its own until `end`: gives how many values it proved.
fn client(c: &mut Client, v: &Values, number: u64, end: Instant) -> io::Result<u64> {
    let mut dice = Dice(number + 1);
    let mut versions = vec![0u64; KEYS as usize];
    let mut proved = 0;
    while Instant::now() < end {
        for _ in 0..64 {
            let place = dice.below(KEYS);
            let key = (number << 32) | place;
            let version = &mut versions[place as usize];
            if dice.below(3) > 0 {
                *version += 1;
                let word = name(key);
                c.add_value(
                    &[b"SET", word.as_bytes()],
                    v,
                    key,
                    *version,
                    length(key, *version),
                );
                c.send()?;
                c.oks(1)?;
                match dice.below(8) {
                    // Within seconds, or while the next dump is made.
                    0 | 1 => {
                        let expiry = (1 + dice.below(30_000)).to_string();
                        c.ask(&["PEXPIRE", &word, &expiry])?;
                    }
                    2 => {
                        c.ask(&["UNLINK", &word])?;
                    }
                    _ => {}
                }
            }
            c.add(&[b"GET", name(key).as_bytes()]);
            c.send()?;
            if let Some(bytes) = c.bulk()? {
                let got = v.version(key, length(key, *version), bytes);
                if got != Ok(*version) {
                    let what = format!("key {key}: {got:?} instead of {version}");
                    return Err(io::Error::other(what));
                }
                proved += 1;
            }
        }
    }
    Ok(proved)
}

/// What the process takes, in bytes, by the kernel's account.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    /// Pages of its own.
    private: u64,
    /// Blocks of files in the tier's folder, or of memfds.
    file: u64,
}

fn sample(pid: u32, tier: &Path, at: Duration) -> Sample {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let private = status
        .lines()
        .find_map(|l| l.strip_prefix("RssAnon:"))
        .and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok())
        .expect("RssAnon");
    let mut file = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        // A descriptor may be closed between the two looks.
        let Ok(path) = entry.map(|e| e.path()) else {
            continue;
        };
        let Ok(target) = std::fs::read_link(&path) else {
            continue;
        };
        if target.starts_with(tier) || target.starts_with("/memfd:") {
            file += std::fs::metadata(&path).map_or(0, |m| m.blocks() * 512);
        }
    }
    Sample {
        at,
        private: private * 1024,
        file,
    }
}

/// The middle of the samples of one cycle of dumps, which ends at `end`: while one is made, more
/// is taken.
fn settled(samples: &[Sample], end: Duration) -> (u64, u64) {
    let middle = |of: fn(&Sample) -> u64| {
        let mut all: Vec<u64> = samples
            .iter()
            .filter(|s| s.at <= end && s.at + 2 * DUMP_EVERY > end)
            .map(of)
            .collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    (middle(|s| s.private), middle(|s| s.file))
}

/// Runs Redis under `config` for `whole`.
pub fn soak(config: &str, whole: Duration) {
    let dir = disk("soak");
    let tier = dir.path().join("tier");
    std::fs::create_dir(&tier).unwrap();
    let stats = dir.path().join("stats.json");
    let config = config.replace("DIR", tier.to_str().unwrap());
    let config = format!("{config};stats={}", stats.display());
    let options = [
        "--maxmemory",
        "128mb",
        "--maxmemory-policy",
        "allkeys-lru",
        "--io-threads",
        "2",
        "--io-threads-do-reads",
        "yes",
    ];
    let mut redis = Redis::preloaded(&config, dir.path(), &options);
    let pid = redis.server.pid();
    let v = Values::new();
    let start = Instant::now();
    let end = start + whole;
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| redis.client()).collect();
    let mut admin = redis.client();
    let mut samples = Vec::new();
    let mut dumps = 0;
    let results: Vec<io::Result<u64>> = std::thread::scope(|s| {
        let v = &v;
        let threads: Vec<_> = (0..)
            .zip(clients.drain(..))
            .map(|(n, mut c)| s.spawn(move || client(&mut c, v, n, end)))
            .collect();
        let mut next = start + DUMP_EVERY;
        while Instant::now() < end && !threads.iter().any(|t| t.is_finished()) {
            std::thread::sleep(Duration::from_secs(1));
            samples.push(sample(pid, &tier, start.elapsed()));
            if Instant::now() >= next {
                next += DUMP_EVERY;
                // Refused while the one before is still being made.
                dumps += u64::from(admin.ask(&["BGSAVE"]).is_ok());
            }
        }
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut proved = 0;
    for result in results {
        proved += redis.server.ok(result);
    }
    let said = admin.info("persistence", "rdb_last_bgsave_status");
    assert_eq!(said, "ok", "{config}: the last dump");
    let count = |section: &str, field: &str, c: &mut Client| -> u64 {
        c.info(section, field).parse().expect(field)
    };
    let evicted = count("stats", "evicted_keys", &mut admin);
    let expired = count("stats", "expired_keys", &mut admin);
    let forks = count("stats", "total_forks", &mut admin);
    redis.shut_down();
    let report = report_of(&stats, pid);
    let mib = |bytes: u64| bytes >> 20;
    for at in (1..).map(|i| DUMP_EVERY * i * 2).take_while(|&t| t < whole) {
        let (private, file) = settled(&samples, at);
        println!(
            "{at:>5.0?}: private {} MiB, tier {} MiB",
            mib(private),
            mib(file)
        );
    }
    let (before, after) = (
        settled(&samples, SETTLED.min(whole / 2)),
        settled(&samples, whole),
    );
    println!(
        "{config}: {proved} values proved, {evicted} evicted, {expired} expired, {dumps} dumps, {forks} forks; \
         private {} then {} MiB, tier {} then {} MiB; {}",
        mib(before.0),
        mib(after.0),
        mib(before.1),
        mib(after.1),
        report.0
    );
    assert!(evicted > 1_000 && expired > 100 && forks >= whole.as_secs() / 40);
    let steady = |before: u64, after: u64| after * 10 <= before * 11;
    assert!(
        steady(before.0 + before.1, after.0 + after.1) && steady(before.1, after.1),
        "{config}: memory grows: {before:?} bytes (private, tier) after {SETTLED:?}, {after:?} at the end"
    );
}
