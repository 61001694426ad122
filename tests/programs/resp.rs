//! A pipelining client of Redis's protocol, and values that prove themselves. Own code, because
//! the load has to outrun the server from an unoptimised test binary: a value is two memcpys, its
//! proof is one memcmp, a reply costs one scan of a short line.
// Two test programs share this file; neither uses all of it.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest value the pool can make.
pub const LONGEST: usize = 256 * 1024;
/// Where values start in the pool: an odd number of places, so that neighbours share nothing.
const STARTS: u64 = (1 << 20) - 3;
/// Key and version stand in front of every value.
const HEAD: usize = 16;

/// The source of all values: `key` and `version` in clear, then bytes cut from one random pool at
/// a place that both decide. A block that was swapped, torn, shifted or lost cannot pass.
pub struct Values {
    pool: Vec<u8>,
}

impl Values {
    pub fn new() -> Values {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        let words = (STARTS as usize + LONGEST).div_ceil(8);
        let mut pool = Vec::with_capacity(words * 8);
        for _ in 0..words {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            pool.extend_from_slice(&x.to_le_bytes());
        }
        Values { pool }
    }

    fn body(&self, key: u64, version: u64, len: usize) -> &[u8] {
        let mixed = (key ^ version.rotate_left(32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let start = ((mixed >> 20) % STARTS) as usize;
        &self.pool[start..start + len]
    }

    /// Appends the value of `key` at `version`, `len` bytes long.
    pub fn append(&self, key: u64, version: u64, len: usize, to: &mut Vec<u8>) {
        to.extend_from_slice(&key.to_le_bytes());
        to.extend_from_slice(&version.to_le_bytes());
        to.extend_from_slice(self.body(key, version, len - HEAD));
    }

    /// The version that all of `bytes` belongs to, or what is wrong with them.
    pub fn version(&self, key: u64, len: usize, bytes: &[u8]) -> Result<u64, String> {
        if bytes.len() != len || len < HEAD {
            return Err(format!("key {key}: {} bytes instead of {len}", bytes.len()));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let version = word(8);
        if word(0) != key {
            return Err(format!("key {key}: holds the value of key {}", word(0)));
        }
        let body = self.body(key, version, len - HEAD);
        if &bytes[HEAD..] != body {
            let at = bytes[HEAD..]
                .iter()
                .zip(body)
                .position(|(a, b)| a != b)
                .unwrap_or(0);
            return Err(format!(
                "key {key}: says version {version}, is another from byte {} of {len}",
                at + HEAD
            ));
        }
        Ok(version)
    }
}

/// One reply other than an array's elements, which are read one by one.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Number(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(usize),
}

/// One connection. Requests are collected, sent together, and answered in order.
pub struct Client {
    stream: UnixStream,
    out: Vec<u8>,
    /// A buffer of fixed size: what came and is not read yet lies between `at` and `end`.
    input: Vec<u8>,
    at: usize,
    end: usize,
}

impl Client {
    /// Connects, or says why not yet. No answer within two minutes counts as a hang.
    pub fn connect(socket: &Path) -> std::io::Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        stream.set_write_timeout(Some(Duration::from_secs(120)))?;
        Ok(Client {
            stream,
            out: Vec::new(),
            input: vec![0; 4 << 20],
            at: 0,
            end: 0,
        })
    }

    /// Adds a request to the next batch.
    pub fn add(&mut self, args: &[&[u8]]) {
        self.begin(args.len());
        for arg in args {
            self.arg(arg);
        }
    }

    /// Adds a request whose last argument is a value.
    pub fn add_value(&mut self, args: &[&[u8]], v: &Values, key: u64, version: u64, len: usize) {
        self.begin(args.len() + 1);
        for arg in args {
            self.arg(arg);
        }
        self.length(b'$', len);
        v.append(key, version, len, &mut self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    fn begin(&mut self, count: usize) {
        self.length(b'*', count);
    }

    fn arg(&mut self, arg: &[u8]) {
        self.length(b'$', arg.len());
        self.out.extend_from_slice(arg);
        self.out.extend_from_slice(b"\r\n");
    }

    fn length(&mut self, mark: u8, n: usize) {
        self.out.push(mark);
        let _ = write!(self.out, "{n}\r\n");
    }

    /// Sends the batch. Its replies must fit the socket's buffer or be read by the caller before
    /// the next one: a batch is therefore kept to about a megabyte of requests or of replies.
    pub fn send(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Sends raw bytes, for protocols that are not Redis's.
    pub fn send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn more(&mut self) -> std::io::Result<()> {
        if self.at == self.end {
            self.at = 0;
            self.end = 0;
        } else if self.end == self.input.len() {
            self.input.copy_within(self.at..self.end, 0);
            self.end -= self.at;
            self.at = 0;
        }
        match self.stream.read(&mut self.input[self.end..])? {
            0 => Err(std::io::Error::other("the server closed the connection")),
            n => {
                self.end += n;
                Ok(())
            }
        }
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> std::io::Result<String> {
        let mut seen = 0;
        loop {
            let have = &self.input[self.at..self.end];
            if let Some(n) = have[seen..].iter().position(|b| *b == b'\n') {
                let line = &have[..seen + n];
                let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
                let text = text.into_owned();
                self.at += seen + n + 1;
                return Ok(text);
            }
            seen = have.len();
            self.more()?;
        }
    }

    /// The next `n` bytes and the line end after them; `n` is below the buffer's size.
    pub fn block(&mut self, n: usize) -> std::io::Result<&[u8]> {
        while self.end - self.at < n + 2 {
            self.more()?;
        }
        let from = self.at;
        self.at += n + 2;
        if &self.input[from + n..from + n + 2] != b"\r\n" {
            return Err(std::io::Error::other(
                "a reply does not end where its length says",
            ));
        }
        Ok(&self.input[from..from + n])
    }

    /// The next bulk string, still in the buffer; `None` for nil; errors are errors.
    pub fn bulk(&mut self) -> std::io::Result<Option<&[u8]>> {
        let line = self.line()?;
        match line.strip_prefix('$').map(str::parse::<i64>) {
            Some(Ok(-1)) => Ok(None),
            Some(Ok(n)) => self.block(n as usize).map(Some),
            _ => Err(std::io::Error::other(format!("not a bulk string: {line}"))),
        }
    }

    pub fn reply(&mut self) -> std::io::Result<Reply> {
        let line = self.line()?;
        let bad = || std::io::Error::other(format!("not a reply: {line}"));
        let rest = line.get(1..).ok_or_else(bad)?;
        let number = || rest.parse::<i64>().map_err(|_| bad());
        Ok(match line.as_bytes()[0] {
            b'+' => Reply::Status(rest.to_string()),
            b'-' => Reply::Error(rest.to_string()),
            b':' => Reply::Number(number()?),
            b'*' => Reply::Array(number()?.max(0) as usize),
            b'$' => match number()? {
                -1 => Reply::Nil,
                n => Reply::Bulk(self.block(n as usize)?.to_vec()),
            },
            _ => return Err(bad()),
        })
    }

    /// One request, one reply.
    pub fn ask(&mut self, args: &[&str]) -> std::io::Result<Reply> {
        let args: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
        self.add(&args);
        self.send()?;
        self.reply()
    }

    /// Reads `n` replies that must all be `+OK`.
    pub fn oks(&mut self, n: usize) -> std::io::Result<()> {
        for i in 0..n {
            match self.reply()? {
                Reply::Status(s) if s == "OK" => {}
                other => {
                    return Err(std::io::Error::other(format!(
                        "reply {i} of {n}: {other:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// A request whose reply is text; anything else is a failure.
    #[track_caller]
    pub fn text(&mut self, args: &[&str]) -> String {
        match self.ask(args) {
            Ok(Reply::Bulk(b)) => String::from_utf8_lossy(&b).into_owned(),
            Ok(Reply::Status(s)) => s,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    /// A request whose reply is a number, or text that is one.
    #[track_caller]
    pub fn number(&mut self, args: &[&str]) -> u64 {
        match self.ask(args) {
            Ok(Reply::Number(n)) => n as u64,
            Ok(Reply::Bulk(b)) => String::from_utf8_lossy(&b).parse().unwrap(),
            other => panic!("{args:?}: {other:?}"),
        }
    }

    /// A field of INFO.
    #[track_caller]
    pub fn info(&mut self, section: &str, field: &str) -> String {
        let text = self.text(&["INFO", section]);
        text.lines()
            .find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))
            .unwrap_or_else(|| panic!("INFO {section} has no {field}:\n{text}"))
            .trim()
            .to_string()
    }
}
