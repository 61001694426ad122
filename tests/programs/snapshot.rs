//! Is a dump one moment of a database under overwrite? Writers bump groups of keys in
//! transactions; every transaction also bumps a counter of its writer and one counter of all.
//! From these two the version of every key at that moment follows exactly.

use crate::redis::{Redis, length, load, values_of, verify};
use crate::resp::{Client, Reply, Values};
use crate::server::disk;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Groups of each writer, written in turn.
pub const GROUPS: usize = 24;
/// Lengths of a group's keys: small blocks, medium ones in either tier, large ones. Keys at even
/// places are overwritten in place (SETRANGE), the others by new blocks (SET).
pub const LENGTHS: [usize; 7] = [32, 720, 3_000, 10_240, 10_240, 102_400, 102_400];
/// Writers, each with one connection.
pub const WRITERS: usize = 2;

/// The number that a key's value carries.
pub fn id(writer: usize, group: usize, key: usize) -> u64 {
    ((writer * GROUPS + group) * LENGTHS.len() + key) as u64
}

/// The key's name.
pub fn name(writer: usize, group: usize, key: usize) -> String {
    format!("g:{writer}:{group}:{key}")
}

/// How often `group` has been written when its writer has done `done` transactions.
pub fn version(group: usize, done: u64) -> u64 {
    (done + (GROUPS - 1 - group) as u64) / GROUPS as u64
}

/// What a database holds: the counter of all, the writers' counters, and for each key the version
/// that all its bytes belong to or what is wrong with them.
#[derive(Clone, Debug)]
pub struct State {
    pub all: u64,
    pub done: [u64; WRITERS],
    pub keys: Vec<Result<u64, String>>,
}

/// All the ways in which `state` is not one moment between the counts `from` and `to`.
pub fn faults(state: &State, from: u64, to: u64) -> Vec<String> {
    let mut faults = Vec::new();
    let sum: u64 = state.done.iter().sum();
    if state.all != sum {
        faults.push(format!(
            "{} transactions in all, {sum} by the writers' counts",
            state.all
        ));
    }
    if !(from..=to).contains(&state.all) {
        faults.push(format!(
            "the moment is {}, not from {from} to {to}",
            state.all
        ));
    }
    for writer in 0..WRITERS {
        for group in 0..GROUPS {
            let want = version(group, state.done[writer]);
            for key in 0..LENGTHS.len() {
                match &state.keys[id(writer, group, key) as usize] {
                    Ok(v) if *v == want => {}
                    Ok(v) => faults.push(format!(
                        "{} has version {v}, the moment has {want}",
                        name(writer, group, key)
                    )),
                    Err(e) => faults.push(format!("{}: {e}", name(writer, group, key))),
                }
            }
        }
    }
    faults
}

/// Writes transactions from the state after `done` until told to stop; gives the new count.
fn write_groups(
    c: &mut Client,
    v: &Values,
    writer: usize,
    mut done: u64,
    stop: &AtomicBool,
) -> std::io::Result<u64> {
    // Relaxed: the flag publishes nothing, a late look costs one transaction.
    while !stop.load(Ordering::Relaxed) {
        let group = (done % GROUPS as u64) as usize;
        let next = version(group, done + 1);
        c.add(&[b"MULTI"]);
        for (key, len) in LENGTHS.into_iter().enumerate() {
            let number = id(writer, group, key);
            let name = name(writer, group, key);
            if key % 2 == 0 && next > 1 {
                c.add_value(&[b"SETRANGE", name.as_bytes(), b"0"], v, number, next, len);
            } else {
                c.add_value(&[b"SET", name.as_bytes()], v, number, next, len);
            }
        }
        c.add(&[b"INCR", format!("done:{writer}").as_bytes()]);
        c.add(&[b"INCR", b"all"]);
        c.add(&[b"EXEC"]);
        c.send()?;
        done += 1;
        for _ in 0..LENGTHS.len() + 3 {
            if let Reply::Error(e) = c.reply()? {
                return Err(std::io::Error::other(e));
            }
        }
        let n = LENGTHS.len() + 2;
        let replies = match c.reply()? {
            Reply::Array(n) => (0..n).map(|_| c.reply()).collect::<Result<Vec<_>, _>>()?,
            other => return Err(std::io::Error::other(format!("EXEC: {other:?}"))),
        };
        if replies.len() != n || replies[n - 2] != Reply::Number(done as i64) {
            return Err(std::io::Error::other(format!(
                "EXEC of {done}: {replies:?}"
            )));
        }
    }
    Ok(done)
}

/// Reads all the groups.
fn state(c: &mut Client, v: &Values) -> std::io::Result<State> {
    let mut done = [0; WRITERS];
    for (writer, d) in done.iter_mut().enumerate() {
        *d = c.number(&["GET", &format!("done:{writer}")]);
    }
    let all = c.number(&["GET", "all"]);
    let mut keys = Vec::new();
    for writer in 0..WRITERS {
        for group in 0..GROUPS {
            for key in 0..LENGTHS.len() {
                c.add(&[b"GET", name(writer, group, key).as_bytes()]);
            }
            c.send()?;
            for (key, len) in LENGTHS.into_iter().enumerate() {
                keys.push(match c.bulk()? {
                    None => Err("is not there".to_string()),
                    Some(b) => v.version(id(writer, group, key), len, b),
                });
            }
        }
    }
    Ok(State { all, done, keys })
}

/// Values that nobody overwrites: 32 MiB in the dump beside the groups.
fn still() -> impl Iterator<Item = (u64, usize)> {
    (1_000_000..1_000_000 + values_of(32 << 20).0).map(|k| (k, length(k)))
}

/// Loads a dump into a plain server and checks that it is one moment from `from` to `to`.
fn check_dump(what: &str, dir: &Path, options: &[&str], v: &Values, from: u64, to: u64) -> u64 {
    let mut redis = Redis::plain(dir, options);
    let mut c = redis.client();
    let read = state(&mut c, v);
    let state = redis.server.ok(read);
    let faults = faults(&state, from, to);
    assert!(
        faults.is_empty(),
        "{what} is no moment:\n{}",
        faults.join("\n")
    );
    let missing = redis.server.ok(verify(&mut c, v, still(), 7));
    assert_eq!(missing, 0, "{what} has lost values");
    redis.shut_down();
    state.all
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Three BGSAVEs and a BGREWRITEAOF while two writers overwrite everything.
pub fn dumps_are_moments(config: &str) {
    let dir = disk("dumps");
    let config = config.replace("DIR", dir.path().to_str().unwrap());
    let mut redis = Redis::preloaded(
        &config,
        dir.path(),
        // The child sleeps after every tenth key, so that all is overwritten meanwhile. After
        // each key, a machine with many busy processes takes minutes: every sleep costs a turn.
        &[
            "--rdb-key-save-delay",
            "-10",
            "--aof-use-rdb-preamble",
            "no",
        ],
    );
    let v = Values::new();
    let mut admin = redis.client();
    redis.server.ok(load(&mut admin, &v, still(), 7));
    let zeros = [
        ["SET", "all", "0"],
        ["SET", "done:0", "0"],
        ["SET", "done:1", "0"],
    ];
    for zero in zeros {
        assert_eq!(admin.text(&zero), "OK");
    }
    let stop = AtomicBool::new(false);
    let mut clients: Vec<_> = (0..WRITERS).map(|_| redis.client()).collect();
    let mut moments = Vec::new();
    let written: Vec<std::io::Result<u64>> = std::thread::scope(|s| {
        let (stop, v) = (&stop, &v);
        // The writers end when a failure unwinds, too.
        let end = StopOnDrop(stop);
        let writers: Vec<_> = (clients.iter_mut().enumerate())
            .map(|(w, c)| s.spawn(move || write_groups(c, v, w, 0, stop)))
            .collect();
        // Every group once, so that each dump has all the keys.
        redis.server.wait_for(Duration::from_secs(60), || {
            let mut done = (0..WRITERS).map(|w| admin.number(&["GET", &format!("done:{w}")]));
            done.all(|n| n >= GROUPS as u64).then_some(())
        });
        for (i, command) in ["BGSAVE", "BGSAVE", "BGREWRITEAOF", "BGSAVE"]
            .into_iter()
            .enumerate()
        {
            moments.push((command, dump(&mut redis, &mut admin, command, i)));
        }
        drop(end);
        writers.into_iter().map(|t| t.join().unwrap()).collect()
    });

    // The parent, after all those forks: exactly what was acknowledged.
    let read = state(&mut admin, &v);
    let parent = redis.server.ok(read);
    for (writer, done) in written.into_iter().enumerate() {
        assert_eq!(
            redis.server.ok(done),
            parent.done[writer],
            "{config}: writer {writer}"
        );
    }
    let wrong = faults(&parent, parent.all, parent.all);
    assert!(
        wrong.is_empty(),
        "{config}: the parent has changed:\n{}",
        wrong.join("\n")
    );
    assert_eq!(
        redis.server.ok(verify(&mut admin, &v, still(), 7)),
        0,
        "{config}"
    );
    redis.shut_down();

    for (i, (command, (from, to, end))) in moments.into_iter().enumerate() {
        let what = format!("{config}: dump {i} by {command}");
        let folder = dir.path().join(i.to_string());
        let aof: &[&str] = if command == "BGSAVE" {
            &[]
        } else {
            &["--appendonly", "yes"]
        };
        let at = check_dump(&what, &folder, aof, &v, from, to);
        println!(
            "{what}: moment {at}, {} transactions while it was written",
            end - at
        );
        // A dump that nothing disturbed proves nothing.
        assert!(
            end - at >= 2 * GROUPS as u64,
            "{what}: only {} transactions",
            end - at
        );
    }
}

/// Makes a dump and moves it to folder `i`. Gives the counts of transactions before and after the
/// command, between which its moment lies, and the count when the dump was complete.
#[track_caller]
fn dump(redis: &mut Redis, admin: &mut Client, command: &str, i: usize) -> (u64, u64, u64) {
    let dir = PathBuf::from(match admin.ask(&["CONFIG", "GET", "dir"]) {
        Ok(Reply::Array(2)) => {
            admin.reply().unwrap();
            match admin.reply().unwrap() {
                Reply::Bulk(b) => String::from_utf8(b).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    });
    let from = admin.number(&["GET", "all"]);
    let reply = admin.ask(&[command]);
    match redis.server.ok(reply) {
        Reply::Status(_) => {}
        other => panic!("{command}: {other:?}\n{}", redis.server.said()),
    }
    let to = admin.number(&["GET", "all"]);
    let (busy, last) = match command {
        "BGSAVE" => ("rdb_bgsave_in_progress", "rdb_last_bgsave_status"),
        _ => ("aof_rewrite_in_progress", "aof_last_bgrewrite_status"),
    };
    // A dump ends with fsync, which on a disk that others write to takes its time.
    redis.server.wait_for(Duration::from_secs(300), || {
        (admin.info("persistence", busy) == "0").then_some(())
    });
    let status = admin.info("persistence", last);
    assert_eq!(status, "ok", "{command}\n{}", redis.server.said());
    let end = admin.number(&["GET", "all"]);
    let folder = dir.join(i.to_string());
    std::fs::create_dir(&folder).unwrap();
    let made = if command == "BGSAVE" {
        "dump.rdb"
    } else {
        "appendonlydir"
    };
    std::fs::rename(dir.join(made), folder.join(made)).unwrap();
    (from, to, end)
}
