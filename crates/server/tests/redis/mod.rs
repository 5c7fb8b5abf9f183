//! A redis-server process on a Unix socket of its own, and a minimal client for it.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// No reply takes longer, unless the server hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A redis-server process; dropping the value kills it.
pub(crate) struct Redis {
    process: Child,
    directory: TempDir,
}

pub(crate) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Redis {
    /// Starts redis-server. Returns `None` and prints a message if it is not installed. It has no
    /// TCP port, because another program could take that.
    pub(crate) fn start() -> Option<Redis> {
        Redis::start_with(&["--port", "0"])
    }

    /// As [`Redis::start`], with these arguments.
    #[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
    pub(crate) fn start_with(arguments: &[&str]) -> Option<Redis> {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let started = Command::new("redis-server")
            .args(["--save", "", "--proto-max-bulk-len", "64mb"])
            .args(arguments)
            .arg("--unixsocket")
            .arg(directory.path().join("socket"))
            // Terrace does not know commands of other types; make them unknown here too.
            .args(["hset", "lpush", "zadd"].map(|name| ["--rename-command", name, ""]).concat())
            .stdout(Stdio::null())
            .current_dir(directory.path())
            .spawn();
        let Ok(process) = started else {
            eprintln!(
                "\n*** SKIPPED: there is no redis-server here to compare with (apt-get install redis-server) ***\n"
            );
            return None;
        };
        let mut redis = Redis { process, directory };
        redis.wait_until_it_accepts();
        Some(redis)
    }

    fn stream(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.directory.path().join("socket"))
    }

    #[allow(clippy::disallowed_methods, reason = "nothing tells when redis-server listens")]
    fn wait_until_it_accepts(&mut self) {
        let start = Instant::now();
        while self.stream().is_err() {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none() && start.elapsed() < PATIENCE, "redis-server does not start: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = self.stream().expect("redis-server answers");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection { stream, received: Vec::new() }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Connection {
    /// Sends bytes and returns the next `count` replies.
    pub(crate) fn ask(&mut self, bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
        self.stream.write_all(bytes).expect("redis-server takes commands");
        let mut replies = Vec::new();
        while replies.len() < count {
            match frame(&self.received) {
                Some(len) => replies.push(self.received.drain(..len).collect()),
                None => {
                    let mut chunk = [0; 65536];
                    let read = self.stream.read(&mut chunk).expect("redis-server answers every command");
                    assert!(
                        read > 0,
                        "redis-server closed the connection after {} of {count} replies",
                        replies.len()
                    );
                    self.received.extend_from_slice(&chunk[..read]);
                }
            }
        }
        replies
    }

    /// Sends bytes and returns everything until the server closes the connection.
    pub(crate) fn ask_last(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.stream.write_all(bytes).expect("redis-server takes commands");
        let mut reply = Vec::new();
        let _ = self.stream.read_to_end(&mut reply);
        reply
    }
}

/// Encodes a command as an array of bulk strings.
pub(crate) fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Splits `bytes` into replies.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut replies = Vec::new();
    while let Some(len) = frame(bytes) {
        replies.push(bytes[..len].to_vec());
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty(), "whole replies, then {}", bytes.escape_ascii());
    replies
}

/// The length of the first reply, if it is complete.
fn frame(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' | b'=' => {
            let len = usize::try_from(number()?).map_or(line, |len| line + len + 2);
            (bytes.len() >= len).then_some(len)
        }
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            let items = number()?.max(0) * if kind == b'%' { 2 } else { 1 };
            (0..items).try_fold(line, |at, _| Some(at + frame(&bytes[at..])?))
        }
        _ => Some(line),
    }
}
