//! Random commands to a session and to Debian's redis-server: the replies must be equal, byte for
//! byte.
//!
//! Replies that must differ are normalized first: times within half a minute, the order of KEYS,
//! ids and versions. Redis 7.0 is the reference. Features from Redis 7.2 and Valkey (IFEQ, DELIFEQ,
//! CLIENT SETINFO) have other tests.

mod commands;
mod descriptions;
mod scripts;

use std::sync::Arc;

use self::commands::{KEYS, Random, command, is_blocking};
use crate::redis::{Redis, frames};
use terrace_server::{
    config::Config,
    session::{Flow, Peer, Session},
    shared::Shared,
};

/// A client of Terrace and of Redis.
struct Both {
    redis: crate::redis::Connection,
    session: Session,
    store: terrace::Store,
    input: Vec<u8>,
    /// Commands that MULTI has queued.
    queued: Vec<Command>,
}

#[allow(clippy::disallowed_methods, reason = "redis-server has a clock of its own: this must be the same")]
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn shared() -> Arc<Shared> {
    let store = crate::common::fresh().create().expect("memory for a store");
    Arc::new(Shared::new(store, Config::default()))
}

type Command = Vec<Vec<u8>>;

impl Both {
    fn new(redis: &Redis, shared: &Arc<Shared>) -> Both {
        let session = Session::new(Arc::clone(shared), Peer::default(), now_ms());
        Both {
            redis: redis.connect(),
            session,
            store: shared.store.clone(),
            input: Vec::new(),
            queued: Vec::new(),
        }
    }

    /// Sends commands to both, and compares the replies. Splits before DBSIZE and sweeps expired
    /// keys, because both servers count those until they notice.
    fn send(&mut self, commands: &[Command], seed: u64) {
        for piece in commands.chunk_by(|_, next| !is(next, "dbsize")) {
            self.store.upkeep().sweep_expired(1 << 20);
            self.store.upkeep().sweep_expired(1 << 20);
            self.send_piece(piece, seed);
        }
    }

    fn send_piece(&mut self, commands: &[Command], seed: u64) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| crate::redis::encode(command)).collect();
        let theirs = self.redis.ask(&bytes, commands.len());
        let mut ours = Vec::new();
        self.input.extend_from_slice(&bytes);
        while self.session.process(&mut self.input, &mut ours, now_ms()) == Flow::More {}
        assert!(self.input.is_empty(), "everything whole is executed");
        let ours = frames(&ours);
        let texts: Vec<String> = commands.iter().map(|command| text(command)).collect();
        assert_eq!(ours.len(), theirs.len(), "seed {seed}: as many replies to {texts:#?}");
        for ((command, ours), theirs) in commands.iter().zip(ours).zip(theirs) {
            let same = ours == theirs
                || match theirs[0] {
                    b'*' if is(command, "exec") => self.exec_equivalent(&ours, &theirs),
                    _ => are_equivalent(command, &ours, &theirs),
                };
            match (&theirs[..], command[0].to_ascii_lowercase().as_slice()) {
                (b"+QUEUED\r\n", _) => self.queued.push(command.clone()),
                (_, b"exec" | b"discard" | b"reset") => self.queued.clear(),
                _ => {}
            }
            assert!(
                same,
                "seed {seed}: {}\n ours:   {}\n theirs: {}\n after {texts:#?}",
                text(command),
                ours.escape_ascii(),
                theirs.escape_ascii()
            );
        }
    }
}

impl Both {
    /// Compares the replies within the reply of EXEC.
    fn exec_equivalent(&self, ours: &[u8], theirs: &[u8]) -> bool {
        let inner =
            |reply: &[u8]| frames(&reply[reply.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1..]);
        let (ours, theirs) = (inner(ours), inner(theirs));
        let all = ours.len() == theirs.len() && theirs.len() == self.queued.len();
        all && self
            .queued
            .iter()
            .zip(ours.iter().zip(&theirs))
            .all(|(command, (ours, theirs))| are_equivalent(command, ours, theirs))
    }
}

fn is(command: &[Vec<u8>], name: &str) -> bool {
    command[0].eq_ignore_ascii_case(name.as_bytes())
}

fn text(command: &[Vec<u8>]) -> String {
    command.iter().map(|arg| format!("{} ", arg.escape_ascii())).collect()
}

/// Terrace's addition to the error about commands of other types.
const OTHER_TYPES: &[u8] =
    b"(Terrace holds strings: it has no hashes, lists, sets, sorted sets, streams or other types)";

/// An error without Terrace's additions: why a command does not exist, or the limit that was
/// exceeded.
fn without_additions(error: &[u8]) -> &[u8] {
    let Some(line) = error.strip_suffix(b"\r\n").filter(|_| error.starts_with(b"-")) else { return error };
    if let Some(plain) = line.strip_suffix(OTHER_TYPES) {
        return plain;
    }
    let added =
        [&b" (proto-max-bulk-len is "[..], b" (a command has at most ", b" (at most ", b", which is "];
    let is_limit = |at: &usize| added.iter().any(|begin| line[*at..].starts_with(begin));
    (0..line.len()).find(is_limit).map_or(line, |at| &line[..at])
}

fn are_equivalent(command: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let name = command[0].to_ascii_lowercase();
    match &name[..] {
        b"ttl" | b"expiretime" => are_close(ours, theirs, MAX_SECONDS_APART),
        b"pttl" | b"pexpiretime" => are_close(ours, theirs, 1000 * MAX_SECONDS_APART),
        b"keys" => sorted(ours) == sorted(theirs),
        b"memory" | b"client" | b"object" => integer(ours).is_some() && integer(theirs).is_some(),
        b"randomkey" => ours[0] == theirs[0] && (ours[1] == b'-') == (theirs[1] == b'-'),
        b"scan" if is_foreign_cursor(&command[1]) => {
            ours.starts_with(b"-ERR invalid cursor") && theirs[0] == b'*'
        }
        b"scan" => ours[..2] == theirs[..2] && ours[0] == b'*',
        // The two servers have different commands.
        b"command" if command.len() <= 2 => ours[0] == theirs[0] && ours[0] != b'-',
        b"time" => ours[..2] == theirs[..2],
        b"hello" => redacted(ours) == redacted(theirs),
        _ => {
            ours.starts_with(b"-")
                && without_additions(ours) == theirs.strip_suffix(b"\r\n").unwrap_or_default()
        }
    }
}

/// Whether Redis accepts this cursor and Terrace does not: Terrace's cursors fit in a double
/// without loss.
fn is_foreign_cursor(text: &[u8]) -> bool {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i128>().ok());
    number.is_some_and(|number| !(0..1 << 53).contains(&number))
}

/// Maximum time between the two executions of a command on an overloaded machine.
const MAX_SECONDS_APART: u64 = 30;

/// Whether both are times at most `apart` from each other.
fn are_close(ours: &[u8], theirs: &[u8], apart: u64) -> bool {
    let both = integer(ours).zip(integer(theirs));
    both.is_some_and(|(ours, theirs)| ours.min(theirs) >= 0 && ours.abs_diff(theirs) <= apart)
}

fn integer(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply.strip_prefix(b":")?).ok()?.trim().parse().ok()
}

fn sorted(reply: &[u8]) -> Vec<Vec<u8>> {
    let head = reply.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    let mut items = frames(&reply[head..]);
    items.push(reply[..head].to_vec());
    items.sort();
    items
}

/// The reply of HELLO without version and id.
fn redacted(reply: &[u8]) -> Vec<Vec<u8>> {
    let head = reply.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    let mut items = frames(&reply[head..]);
    if items.len() == 14 {
        items.drain(6..8);
        items.remove(3);
    }
    items
}

fn run_seed(seed: u64, rounds: usize, redis: &Redis) {
    let mut random = Random(seed);
    let shared = shared();
    let mut clients = [Both::new(redis, &shared), Both::new(redis, &shared)];
    clients[0].send(&[vec![b"flushall".to_vec()]], seed);
    for _ in 0..rounds {
        let len = 1 + if random.once_in(3) { random.below(20) } else { 0 };
        let mut commands: Vec<Command> = Vec::new();
        while commands.len() < len {
            let command = command(&mut random);
            let is_first_scan = is(&command, "scan") && command.get(1).is_some_and(|cursor| *cursor == b"0");
            if crate::common::is_on_disk()
                && (is(&command, "dbsize") || is(&command, "scan") && !is_first_scan)
            {
                // On a disk, the one is an estimate, and the other's cursors are no hashes.
                continue;
            }
            if is(&command, "dbsize") || is(&command, "memory") {
                // Redis counts expired keys until they are accessed.
                commands
                    .push(std::iter::once("exists").chain(KEYS).map(|arg| arg.as_bytes().to_vec()).collect());
            }
            if !is_blocking(&command) {
                commands.push(command);
            }
        }
        let nth = usize::from(random.once_in(4));
        clients[nth].send(&commands, seed);
    }
}

#[test]
fn random_commands_get_equal_replies() {
    let Some(redis) = Redis::start() else { return };
    let seeds = std::env::var("TERRACE_DIFFERENTIAL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    for seed in 0..seeds {
        run_seed(seed, 1000, &redis);
    }
}

/// Sends `bytes` to both, and compares everything up to the end of the connection.
fn check_until_close(redis: &Redis, bytes: &[u8]) {
    let theirs = redis.connect().ask_last(bytes);
    let mut session = Session::new(shared(), Peer::default(), now_ms());
    let mut ours = Vec::new();
    let flow = session.process(&mut bytes.to_vec(), &mut ours, now_ms());
    assert_eq!(flow, Flow::Close, "{}", bytes.escape_ascii());
    let (ours, theirs) = [&ours, &theirs]
        .map(|replies| {
            let replies = frames(replies);
            replies
                .iter()
                .map(|reply| without_additions(reply).escape_ascii().to_string())
                .collect::<Vec<_>>()
        })
        .into();
    assert_eq!(ours, theirs, "{}", bytes.escape_ascii());
}

#[test]
fn broken_requests_get_equal_replies() {
    let Some(redis) = Redis::start() else { return };
    let endless = |start: &[u8]| [start, &[b'1'; 70_000]].concat();
    let cases: [&[u8]; 20] = [
        b"*a\r\n",
        b"*\r\n",
        b"*99999999999\r\n",
        b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n:1\r\n",
        b"*1\r\nPING\r\n",
        b"*1\r\n\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$abc\r\n",
        b"*1\r\n$67108865\r\n",
        b"*1\r\n$+4\r\nPING\r\n",
        &endless(b"*"),
        &endless(b"*1\r\n$"),
        &endless(b""),
        b"set \"a\r\n",
        b"set 'a\r\n",
        b"ping \"a\"b\r\n",
        b"ping \"a b\" \r\nping '\\''\r\nquit\r\n",
        b"POST / HTTP/1.1\r\nping\r\n",
        b"host: example.com\r\nping\r\n",
        b"*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n",
    ];
    for case in cases {
        check_until_close(&redis, case);
    }
}

#[test]
fn scans_and_large_pipelines_equal_redis() {
    let Some(redis) = Redis::start() else { return };
    let shared = shared();
    let mut both = Both::new(&redis, &shared);
    let word = |text: String| text.into_bytes();
    let line = |text: String| -> Command { text.split(' ').map(|part| word(part.into())).collect() };
    both.send(&[line("flushall".into())], 0);
    both.send(&(0..500).map(|n| line(format!("set key:{n} {n}"))).collect::<Vec<_>>(), 0);
    both.send(&(0..600).map(|n| line(format!("get key:{n}"))).collect::<Vec<_>>(), 0);
    let mixed = [
        "get key:1",
        "set key:1 x",
        "get key:1",
        "strlen key:1",
        "ttl key:1",
        "set key:2 y EX 100",
        "setex key:3 100 z",
        "getrange key:3 0 0",
        "get",
    ];
    both.send(&(0..900).map(|n| line(mixed[n % 9].to_string())).collect::<Vec<_>>(), 0);
    both.send(&[line("keys key:*".into()), line("keys *9".into())], 0);
    if !crate::common::is_on_disk() {
        both.send(&[line("dbsize".into())], 0);
    }
    let mut keys = std::collections::BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        both.input = crate::redis::encode(&[b"scan".to_vec(), cursor, b"match".to_vec(), b"key:*".to_vec()]);
        let mut reply = Vec::new();
        both.session.process(&mut both.input, &mut reply, now_ms());
        let parts = frames(&reply[4..]);
        cursor = parts[0].split(|byte| *byte == b'\n').nth(1).unwrap().strip_suffix(b"\r").unwrap().to_vec();
        let head = parts[1].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        keys.extend(frames(&parts[1][head..]));
        if cursor == b"0" {
            break;
        }
    }
    assert_eq!(keys.len(), 500);
}
