//! A redis-server under some allocator, and what the benchmarks ask of it.

use super::{Allocator, fail};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub struct Redis {
    child: Child,
    pub port: u16,
    log: PathBuf,
}

impl Redis {
    /// Starts one that saves nothing, on a free port of this machine. An error says how it ended.
    pub fn start(allocator: &Allocator, dir: &Path) -> Result<Redis, String> {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
        let port = free
            .unwrap_or_else(|e| fail(format!("no free port: {e}")))
            .port();
        let log = dir.join("redis.log");
        let output = std::fs::File::create(&log).unwrap_or_else(|e| fail(e));
        let errors = output.try_clone().unwrap_or_else(|e| fail(e));
        let mut cmd = Command::new("redis-server");
        cmd.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--daemonize",
            "no",
        ])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
        let child = allocator.apply(&mut cmd).spawn();
        let child = child.unwrap_or_else(|e| fail(format!("cannot start redis-server: {e}")));
        let mut redis = Redis { child, port, log };
        let start = Instant::now();
        loop {
            if let Some(status) = redis.ended() {
                return Err(redis.describe(status));
            }
            if redis.connect().and_then(|mut c| c.call(&[b"PING"])).is_ok() {
                return Ok(redis);
            }
            if start.elapsed() > Duration::from_secs(30) {
                return Err("redis-server does not answer".to_string());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> Result<Client, String> {
        let stream = std::net::TcpStream::connect(("127.0.0.1", self.port));
        let stream = stream.map_err(|e| e.to_string())?;
        // A server that hangs is found out, not waited for.
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .map_err(|e| e.to_string())?;
        Ok(Client {
            replies: BufReader::new(stream),
        })
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap_or_else(|e| fail(e))
    }

    /// How it ended and the last thing it said, in a few words.
    fn describe(&self, status: ExitStatus) -> String {
        let how = match status.signal() {
            Some(signal) => format!("killed by signal {signal}"),
            None => status.to_string(),
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let bug = log
            .lines()
            .find(|l| l.contains("crashed by signal") || l.contains("ERROR"));
        format!(
            "{how}; {}",
            bug.or(log.lines().last())
                .unwrap_or("it said nothing")
                .trim()
        )
    }

    /// Why a request failed: the server's end, if it ended, or else the request's own error.
    pub fn why(&mut self, error: String) -> String {
        std::thread::sleep(Duration::from_millis(300));
        match self.ended() {
            Some(status) => self.describe(status),
            None => error,
        }
    }

    /// Ends it without saving. An error where it does not end well by itself.
    pub fn shut_down(mut self) -> Result<(), String> {
        let _ = self.connect()?.call(&[b"SHUTDOWN", b"NOSAVE"]);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("at its end: {}", self.describe(status))),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Err("does not end".to_string())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Client {
    replies: BufReader<std::net::TcpStream>,
}

impl Client {
    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), String> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        self.replies
            .get_mut()
            .write_all(&out)
            .map_err(|e| e.to_string())
    }

    /// A status, a number or a string; `None` for a value that is not there.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut line = String::new();
        self.replies
            .read_line(&mut line)
            .map_err(|e| e.to_string())?;
        let rest = line.get(1..).unwrap_or_default().trim_end().to_string();
        match line.as_bytes().first() {
            None => Err("the connection was closed".to_string()),
            Some(b'-') => Err(rest),
            Some(b'$') if rest == "-1" => Ok(None),
            Some(b'$') => {
                let n: usize = rest.parse().map_err(|_| format!("no length: {rest}"))?;
                let mut value = vec![0; n + 2];
                self.replies
                    .read_exact(&mut value)
                    .map_err(|e| e.to_string())?;
                value.truncate(n);
                Ok(Some(value))
            }
            Some(_) => Ok(Some(rest.into_bytes())),
        }
    }

    pub fn call(&mut self, words: &[&[u8]]) -> Result<Option<Vec<u8>>, String> {
        self.send(words)?;
        self.receive()
    }
}
