//! redis-server under test: how it is started, with and without the library, loaded and read.

use crate::common;
use crate::resp::{Client, Reply, Values};
use crate::server::{Server, need};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A redis-server in a folder of its own, reached through a socket in it.
pub struct Redis {
    pub server: Server,
    socket: PathBuf,
    sockets: tempfile::TempDir,
}

impl Redis {
    /// Starts redis-server by `cmd` (which names the program and what stands before it) in `dir`.
    #[track_caller]
    pub fn start(what: &str, mut cmd: Command, dir: &Path, options: &[&str]) -> Redis {
        // A socket's path has 107 bytes at most; the folder of the dumps may be deeper.
        let sockets = tempfile::tempdir().unwrap();
        let socket = sockets.path().join("s");
        cmd.args([
            "--port",
            "0",
            "--daemonize",
            "no",
            "--save",
            "",
            "--unixsocket",
        ])
        .arg(&socket)
        .arg("--dir")
        .arg(dir)
        .args([
            "--rdbcompression",
            "no",
            "--maxmemory-policy",
            "allkeys-lru",
        ])
        .args(options);
        let mut server = Server::start(what, cmd, dir);
        let path = socket.clone();
        server.wait_for(Duration::from_secs(120), || {
            let mut client = Client::connect(&path).ok()?;
            (client.ask(&["PING"]).ok()? == Reply::Status("PONG".into())).then_some(())
        });
        Redis {
            server,
            socket,
            sockets,
        }
    }

    /// Starts it under the library with this configuration.
    #[track_caller]
    pub fn preloaded(config: &str, dir: &Path, options: &[&str]) -> Redis {
        let program = need("redis-server", "redis-server");
        let what = format!("redis-server under \"{config}\"");
        Redis::start(&what, common::preloaded(program, config), dir, options)
    }

    /// Starts it without the library.
    #[track_caller]
    pub fn plain(dir: &Path, options: &[&str]) -> Redis {
        let mut cmd = Command::new(need("redis-server", "redis-server"));
        cmd.env_remove("LD_PRELOAD");
        Redis::start("plain redis-server", cmd, dir, options)
    }

    #[track_caller]
    pub fn client(&mut self) -> Client {
        let client = Client::connect(&self.socket);
        self.server.ok(client)
    }

    /// Shuts it down; it must end with status 0.
    #[track_caller]
    pub fn shut_down(mut self) -> Server {
        let mut client = self.client();
        client.add(&[b"SHUTDOWN", b"NOSAVE"]);
        let sent = client.send();
        self.server.ok(sent);
        let status = self.server.wait(Duration::from_secs(120));
        assert!(
            status.success(),
            "SHUTDOWN ended with {status:?}\n{}",
            self.server.said()
        );
        drop(self.sockets);
        self.server
    }
}

/// Bytes of requests, and of replies, that one batch may have.
pub const BATCH: usize = 1 << 20;

/// Sets `keys` to their values at `version`.
pub fn load(
    client: &mut Client,
    v: &Values,
    keys: impl Iterator<Item = (u64, usize)>,
    version: u64,
) -> std::io::Result<()> {
    let (mut bytes, mut count) = (0, 0);
    for (key, len) in keys {
        client.add_value(
            &[b"SET", format!("v:{key}").as_bytes()],
            v,
            key,
            version,
            len,
        );
        bytes += len + 64;
        count += 1;
        if bytes > BATCH {
            client.send()?;
            client.oks(count)?;
            (bytes, count) = (0, 0);
        }
    }
    client.send()?;
    client.oks(count)
}

/// Reads `keys` back and proves them; gives how many are not there.
pub fn verify(
    client: &mut Client,
    v: &Values,
    keys: impl Iterator<Item = (u64, usize)>,
    version: u64,
) -> std::io::Result<usize> {
    let mut missing = 0;
    let mut batch = Vec::new();
    let mut bytes = 0;
    let mut keys = keys.peekable();
    while let Some((key, len)) = keys.next() {
        client.add(&[b"GET", format!("v:{key}").as_bytes()]);
        batch.push((key, len));
        bytes += len + 64;
        if bytes > BATCH || keys.peek().is_none() {
            client.send()?;
            for (key, len) in batch.drain(..) {
                match client.bulk()? {
                    None => missing += 1,
                    Some(b) => match v.version(key, len, b) {
                        Ok(got) if got == version => {}
                        Ok(got) => {
                            return Err(std::io::Error::other(format!(
                                "key {key} has version {got} instead of {version}"
                            )));
                        }
                        Err(e) => return Err(std::io::Error::other(e)),
                    },
                }
            }
            bytes = 0;
        }
    }
    Ok(missing)
}

/// The length of the value of `key`: half of all bytes are in values of 10 KiB, half in 100 KiB.
pub fn length(key: u64) -> usize {
    if key % 11 == 10 { 102_400 } else { 10_240 }
}

/// The keys whose values have `bytes` bytes or a little more.
pub fn values_of(bytes: u64) -> (u64, u64) {
    let rounds = bytes.div_ceil(204_800);
    (rounds * 11, rounds * 204_800)
}

pub const SMALL: usize = 24;
/// Small keys are numbered from here.
pub const SMALL_FROM: u64 = 1 << 40;

/// Works by two connections at once, so that making requests overlaps with serving them.
#[track_caller]
pub fn both(redis: &mut Redis, work: impl Fn(&mut Client, u64) -> std::io::Result<()> + Sync) {
    let clients = [redis.client(), redis.client()];
    let results: Vec<_> = std::thread::scope(|s| {
        let work = &work;
        let start = |(i, mut c)| s.spawn(move || work(&mut c, i));
        let threads: Vec<_> = (0..).zip(clients).map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for r in results {
        redis.server.ok(r);
    }
}
