//! memcached with more than it may hold: every hit is proved, and evictions must have happened.

use crate::common;
use crate::everywhere::program;
use crate::resp::{Client, Values};
use crate::server::{Server, need};
use crate::suite::{LONG, Outcome, Place, QUICK, Suite};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const KEYS: u64 = 3_000;
const BATCH: u64 = 50;

/// Of small ones most; some of pages, and some above the half megabyte from which memcached
/// splits would be too few to be evicted: a hundred thousand bytes are the largest.
fn len(key: u64) -> usize {
    match key % 16 {
        0 => 102_400,
        1..4 => 10_240,
        _ => 100 + (key * 37 % 900) as usize,
    }
}

/// What memcached answers when the items that it might evict are all being read by other connections. It
/// drops the key's old value then, so that a later hit would be wrong.
const REFUSED: &str = "SERVER_ERROR out of memory storing object";

/// Sets all keys of one connection and reads keys of long ago and of now, round by round; gives
/// the hits.
fn load(socket: &Path, v: &Values, connection: u64, rounds: u64) -> io::Result<u64> {
    let mut c = Client::connect(socket)?;
    let key = |n: u64| (connection << 32) | (n % KEYS);
    let (mut hits, mut refused) = (0, 0);
    for round in 1..=rounds {
        for from in (0..KEYS).step_by(BATCH as usize) {
            let mut out = Vec::new();
            for n in from..from + BATCH {
                let len = len(n);
                out.extend_from_slice(format!("set k{} 7 0 {len}\r\n", key(n)).as_bytes());
                v.append(key(n), round, len, &mut out);
                out.extend_from_slice(b"\r\n");
            }
            c.send_raw(&out)?;
            for _ in 0..BATCH {
                match c.line()? {
                    reply if reply == "STORED" => {}
                    reply if reply == REFUSED => refused += 1,
                    reply => return Err(io::Error::other(reply)),
                }
            }
            // From the batch just stored, and from the one after it, a round old if still there.
            for n in from..from + 2 * BATCH {
                c.send_raw(format!("get k{}\r\n", key(n)).as_bytes())?;
                if c.line()? == "END" {
                    continue;
                }
                let len = len(n % KEYS);
                let got = v.version(key(n), len, c.block(len)?);
                let new = n < from + BATCH || n >= KEYS;
                let wanted = if new { round } else { round - 1 };
                if got != Ok(wanted) {
                    let what = format!("{n}: {got:?} instead of {wanted}");
                    return Err(io::Error::other(what));
                }
                c.line()?;
                hits += 1;
            }
        }
    }
    if refused * 100 > rounds * KEYS {
        return Err(io::Error::other(format!("{refused} times {REFUSED}")));
    }
    Ok(hits)
}

fn evicting(place: &Place, rounds: u64) -> Outcome {
    let user = common::run(Command::new("id").arg("-un"), QUICK).out();
    let socket = place.dir.join("s");
    let mut cmd = program(need("memcached", "memcached"));
    cmd.args(["-m", "64", "-t", "4", "-u", user.trim(), "-s"])
        .arg(&socket);
    place.prepare(&mut cmd);
    let mut server = Server::start("memcached", cmd, &place.dir);
    server.wait_for(QUICK, || Client::connect(&socket).ok());
    let v = Values::new();
    let loads = std::thread::scope(|s| {
        let (socket, v) = (&socket, &v);
        let one = |n| s.spawn(move || load(socket, v, n, rounds));
        [one(1), one(2), one(3), one(4)].map(|t| t.join().unwrap())
    });
    let hits: u64 = loads.map(|l| server.ok(l)).iter().sum();
    let statistics = || -> io::Result<u64> {
        let mut c = Client::connect(&socket)?;
        c.send_raw(b"stats\r\n")?;
        loop {
            let line = c.line()?;
            if let Some(n) = line.strip_prefix("STAT evictions ") {
                return n.parse().map_err(io::Error::other);
            }
            if line == "END" {
                return Err(io::Error::other("no count of evictions"));
            }
        }
    };
    let evictions = server.ok(statistics());
    assert!(
        evictions > 0 && hits > 0,
        "{evictions} evictions, {hits} hits"
    );
    server.terminate();
    let status = server.wait(QUICK);
    assert!(status.success(), "{status:?}\n{}", server.said());
    Outcome::whole(4 * rounds * KEYS)
}

#[track_caller]
fn memcached(limit: Duration, rounds: u64) {
    Suite::new("memcached", limit).run(|place| evicting(place, rounds));
}

#[test]
fn memcached_evicting() {
    memcached(QUICK, 2);
}

#[test]
#[ignore = "long: a hundred rounds"]
fn memcached_evicting_long() {
    memcached(LONG, 100);
}
