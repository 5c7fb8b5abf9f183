//! Random commands to a session and to Debian's redis-server: the replies must be equal, byte for
//! byte.
//!
//! Replies that must differ are normalized first: times within half a minute, the order of KEYS,
//! ids and versions. Redis 7.0 is the reference. Features from Redis 7.2 and Valkey (IFEQ, DELIFEQ,
//! CLIENT SETINFO) have other tests.

use std::sync::Arc;

use crate::redis::{Redis, frames};
use terrace_script::Script;
use terrace_server::{
    config::Config,
    session::{Flow, Peer, Session},
    shared::Shared,
};

/// SplitMix64: a seed gives the same commands on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

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
            self.store.sweep_expired(1 << 20);
            self.store.sweep_expired(1 << 20);
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

const KEYS: [&str; 8] = ["", "k1", "k2", "k3", "counter", "float", "user:1", "caf\u{e9}"];
const VALUES: [&str; 26] = [
    "",
    "a",
    "hello world",
    "1",
    "-1",
    "0",
    "-0",
    "10",
    "007",
    " 1",
    "1.5",
    "3.0e3",
    "-2.5e-3",
    "inf",
    "nan",
    "0x1f",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "+1",
    "abc\r\ndef",
    "\u{0}\u{1}",
    "NX",
    "1e400",
    "123456789012345678901234567890",
    "0.1",
];
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "-1",
    "2",
    "5",
    "10",
    "-3",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-",
    "",
    "1.0",
    "abc",
    "01",
    "4611686018427387904",
    "-100",
];
const FLOATS: [&str; 16] = [
    "0.1",
    "1",
    "-5",
    "2.0e2",
    "10.5",
    "1e17",
    "-1e-20",
    "inf",
    "-inf",
    "nan",
    "abc",
    " 1",
    "1e5000",
    "0x10",
    "123456789.987654321",
    "1e30",
];
/// Times far in the future or clearly in the past.
const SECONDS: [&str; 11] = [
    "100",
    "1000",
    "86400",
    "0",
    "-1",
    "abc",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775",
    "1.5",
    "5000000000",
];
const MILLISECONDS: [&str; 8] =
    ["100000", "1000000", "0", "-1", "abc", "9223372036854775807", "-9223372036854775808", "8640000000"];
const UNIX_SECONDS: [&str; 7] = ["4000000000", "5000000000", "0", "-1", "1", "abc", "9223372036854775807"];
const UNIX_MILLISECONDS: [&str; 6] = ["4000000000000", "5000000000000", "0", "-1", "1", "abc"];

/// Shapes of commands: a letter stands for a kind of argument.
const SHAPES: &[&str] = &[
    "get K",
    "get K",
    "set K V",
    "set K V",
    "set K V",
    "set K V ?set",
    "set K V ?set ?set",
    "set K V ?set ?set ?set",
    "setnx K V",
    "setex K S V",
    "psetex K M V",
    "getset K V",
    "getdel K",
    "getex K",
    "getex K ?getex",
    "getex K ?getex ?getex",
    "mget K",
    "mget K K K",
    "mset K V",
    "mset K V K V",
    "msetnx K V K V",
    "msetnx K V",
    "append K V",
    "strlen K",
    "getrange K N N",
    "substr K N N",
    "setrange K R V",
    "incr K",
    "decr K",
    "incr counter",
    "incrby K N",
    "decrby K N",
    "incrby counter N",
    "incrbyfloat K F",
    "incrbyfloat float F",
    "incrbyfloat float F",
    "del K",
    "del K K K",
    "unlink K K",
    "exists K",
    "exists K K K",
    "type K",
    "touch K K",
    "rename K K",
    "renamenx K K",
    "copy K K",
    "copy K K ?copy",
    "copy K K ?copy ?copy",
    "randomkey",
    "keys P",
    "keys *",
    "expire K S",
    "expire K S ?soon",
    "expire K S ?soon ?soon",
    "pexpire K M",
    "pexpire K M ?soon",
    "expireat K T",
    "expireat K T ?expire",
    "pexpireat K U",
    "pexpireat K U ?expire",
    "ttl K",
    "pttl K",
    "expiretime K",
    "pexpiretime K",
    "persist K",
    "ping",
    "ping V",
    "echo V",
    "select N",
    "select D",
    "select 0",
    "move K D",
    "move K N",
    "swapdb D D",
    "swapdb N D",
    "copy K K db D",
    "flushdb",
    "flushall",
    "time",
    "dbsize",
    "wait 0 0",
    "wait N abc",
    "multi",
    "exec",
    "discard",
    "watch K",
    "watch K K",
    "unwatch",
    "hello",
    "hello 3",
    "hello 2",
    "hello N",
    "hello 3 AUTH V V",
    "hello 2 setname V",
    "hello 3 V",
    "reset",
    "auth V",
    "auth V V",
    "client id",
    "client setname V",
    "client getname",
    "client no-evict on",
    "client no-evict V",
    "client V",
    "client",
    "config V",
    "config get nosuch",
    "config get",
    "config set nosuch V",
    "config set nosuch",
    "config resetstat",
    "memory usage K",
    "memory usage K samples N",
    "memory V",
    "object V K",
    "object refcount K",
    "object freq nosuch",
    "object idletime nosuch",
    "flushall V",
    "flushdb async",
    "scan V",
    "scan 0 count N X",
    "scan 0 match",
    "scan 0 count 0",
    "hset K V V",
    "lpush K V",
    "zadd K",
    "nosuch V V",
    "command V",
    "command info nosuch get set",
    "command list filterby V",
    "command count V",
    "shutdown V V V",
    "shutdown abort V",
];
const OPTIONS: &[(&str, &[&str])] = &[
    (
        "?set",
        &["NX", "XX", "get", "KEEPTTL", "EX S", "px M", "EXAT T", "PXAT U", "PERSIST", "EX", "bogus", "nx"],
    ),
    ("?getex", &["EX S", "px M", "EXAT T", "PXAT U", "PERSIST", "KEEPTTL", "NX", "EX"]),
    ("?copy", &["REPLACE", "DB 0", "DB N", "DB", "bogus"]),
    // Setting the same relative time twice may hit the same millisecond: GT and LT need fixed
    // times.
    ("?soon", &["NX", "XX", "nx", "bogus"]),
    ("?expire", &["NX", "XX", "GT", "LT", "gt", "bogus"]),
];

fn command(random: &mut Random) -> Command {
    let shape = random.of(SHAPES);
    let mut command = Vec::new();
    for word in shape.split(' ') {
        push(&mut command, word, random);
    }
    mangle(&mut command, random);
    command
}

fn push(command: &mut Command, word: &str, random: &mut Random) {
    let choices: &[&str] = match word {
        "K" => &KEYS,
        "V" => &VALUES,
        "N" => &NUMBERS,
        "R" => &["0", "1", "5", "100", "-1", "abc", "1000000000000", "67108864", "9223372036854775807"],
        "F" => &FLOATS,
        "S" => &SECONDS,
        "M" => &MILLISECONDS,
        "T" => &UNIX_SECONDS,
        "U" => &UNIX_MILLISECONDS,
        "P" => &["k*", "k?", "*", "[kc]*", "[^k]*", "nosuch", "\\k1", "k[1-2]", "user:*", "", "*1"],
        "X" => &["bogus", "match"],
        "D" => &["0", "0", "1", "2", "15", "16", "-1", "x"],
        _ => match OPTIONS.iter().find(|(name, _)| *name == word) {
            Some((_, options)) => {
                return random.of(options).split(' ').for_each(|word| push(command, word, random));
            }
            None => return command.push(word.as_bytes().to_vec()),
        },
    };
    command.push(random.of(choices).as_bytes().to_vec());
}

/// Sometimes changes a command into one that no client should send.
fn mangle(command: &mut Command, random: &mut Random) {
    match random.below(40) {
        0 if command.len() > 1 => drop(command.pop()),
        1 => command.push(random.of(&VALUES).as_bytes().to_vec()),
        2 => command[0].make_ascii_uppercase(),
        _ => {}
    }
    // SHUTDOWN would stop Redis.
    let shuts_down = is(command, "shutdown");
    if shuts_down && !command[1..].iter().any(|arg| arg == b"abort") {
        command.push(b"bogus".to_vec());
    }
}

fn is_blocking(command: &Command) -> bool {
    command[0].eq_ignore_ascii_case(b"wait")
        && command.get(1).is_some_and(|n| n != b"0")
        && command.len() == 3
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
fn command_info_equals_redis() {
    let Some(redis) = Redis::start() else { return };
    let shared = shared();
    let mut both = Both::new(&redis, &shared);
    let word = |text: &str| text.as_bytes().to_vec();
    for protocol in ["2", "3"] {
        both.send(&[vec![word("hello"), word(protocol)]], 0);
        for command in terrace_server::command::table::TABLE {
            // Containers have other subcommands here; Redis 7.0 has neither DELIFEQ nor the ranges.
            let is_ours =
                command.name == "delifeq" || command.name.starts_with("x.") || command.since >= "7.1";
            if command.subcommands.is_empty() && !is_ours {
                both.send(&[["command", "info", command.name].map(word).to_vec()], 0);
            }
            for sub in command.subcommands.iter().filter(|sub| sub.since < "7.1") {
                both.send(
                    &[["command", "info", &format!("{}|{}", command.name, sub.name)].map(word).to_vec()],
                    0,
                );
            }
        }
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

#[test]
fn command_getkeys_equals_redis() {
    let Some(redis) = Redis::start() else { return };
    let shared = shared();
    let mut both = Both::new(&redis, &shared);
    for command in [
        "set a b",
        "set a b get",
        "set a b xx get",
        "mset a b c d",
        "mset a b c",
        "mget a b c",
        "del a b",
        "copy a b",
        "rename a b",
        "memory usage a",
        "object encoding a",
        "ping x",
        "get a b",
        "nosuch a",
        "object nosuch a",
        "getex a ex 1",
    ] {
        for ask in ["getkeys", "getkeysandflags"] {
            let words = ["command", ask].into_iter().chain(command.split(' '));
            both.send(&[words.map(|word| word.as_bytes().to_vec()).collect::<Command>()], 0);
        }
    }
}

/// An argument as COMMAND DOCS describes it: its fields except versions, and the parts of a group.
#[derive(Debug, PartialEq, Eq)]
struct Described(Vec<(String, String)>, Vec<Described>);

/// The `arguments` in a reply to COMMAND DOCS for one command, in RESP2.
fn described(reply: &[u8]) -> Vec<Described> {
    let items = |reply: &[u8]| frames(&reply[reply.iter().position(|byte| *byte == b'\n').unwrap() + 1..]);
    let text = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).into_owned();
        text.trim_end().rsplit("\r\n").next().unwrap().trim_start_matches(['+', ':']).to_string()
    };
    fn field<'a>(map: &'a [Vec<u8>], name: &str, text: &dyn Fn(&[u8]) -> String) -> Option<&'a Vec<u8>> {
        map.chunks(2).find(|pair| text(&pair[0]) == name).map(|pair| &pair[1])
    }
    fn arguments(
        map: &[Vec<u8>],
        items: &dyn Fn(&[u8]) -> Vec<Vec<u8>>,
        text: &dyn Fn(&[u8]) -> String,
    ) -> Vec<Described> {
        let Some(found) = field(map, "arguments", text) else { return Vec::new() };
        let each = items(found).into_iter().map(|argument| {
            let argument = items(&argument);
            let fields = ["name", "type", "token", "key_spec_index"]
                .into_iter()
                .filter_map(|name| Some((name.to_string(), text(field(&argument, name, text)?))));
            let flags = field(&argument, "flags", text).map(|flags| items(flags)).unwrap_or_default();
            let flags = flags.iter().map(|flag| ("flag".to_string(), text(flag)));
            Described(fields.chain(flags).collect(), arguments(&argument, items, text))
        });
        each.collect()
    }
    items(reply).get(1).map_or(Vec::new(), |map| arguments(&items(map), &items, &text))
}

#[test]
fn command_docs_arguments_equal_redis() {
    let Some(redis) = Redis::start() else { return };
    let mut theirs = redis.connect();
    let mut session = Session::new(shared(), Peer::default(), now_ms());
    let mut compared = 0;
    for command in terrace_server::command::table::TABLE {
        let subs = command.subcommands.iter().map(|sub| format!("{}|{}", command.name, sub.name));
        for name in std::iter::once(command.name.to_string()).chain(subs) {
            let request =
                crate::redis::encode(&[b"command".to_vec(), b"docs".to_vec(), name.clone().into_bytes()]);
            let mut ours = Vec::new();
            session.process(&mut request.clone(), &mut ours, now_ms());
            let (ours, theirs) = (described(&ours), described(&theirs.ask(&request, 1)[0]));
            // These have more arguments here, or an order of Redis's own; or Redis describes none.
            let differs = ["set", "bgsave", "client|kill"].contains(&&*name);
            if !differs && !theirs.is_empty() {
                assert_eq!(ours, theirs, "{name}");
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

/// Scripts, each run with two keys and two arguments that are chosen at random.
const SCRIPTS: &[&str] = &[
    "return redis.call('get', KEYS[1])",
    "return redis.pcall('incr', KEYS[1])",
    "return redis.call('set', KEYS[1], ARGV[1])",
    "return redis.call('set', KEYS[1], ARGV[1], 'PX', 100000, 'NX')",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    "local n = redis.call('incr', 'script:n') if n == 1 then redis.call('pexpire', 'script:n', 100000) end return n",
    "return redis.call('mget', KEYS[1], KEYS[2], 'none')",
    "return {redis.call('exists', KEYS[1], KEYS[2]), redis.call('type', KEYS[1]), redis.call('strlen', KEYS[2])}",
    "return redis.pcall('incrby', KEYS[1], ARGV[1])",
    "return redis.pcall('incrbyfloat', KEYS[1], 0.1)",
    "return redis.pcall('append', KEYS[1], 3.3)",
    "return redis.pcall('set', KEYS[1], 1e14 + 0.5)",
    "return redis.pcall('getrange', KEYS[1], 1, -2)",
    "return redis.pcall('setrange', KEYS[1], ARGV[2], 'x')",
    "return redis.call('incr', KEYS[1])",
    "return redis.call('rename', KEYS[1], KEYS[2])",
    "return redis.call('get')",
    "return redis.call('nope', KEYS[1])",
    "return redis.call('multi')",
    "return redis.call('set', KEYS[1], {})",
    "local x = ARGV[1] + 1 return x",
    "return tonumber(ARGV[1])",
    "return tostring(tonumber(ARGV[1]))",
    "return {1, 2.7, 'x', true, false, {ok = 'fine'}, {err = 'NO way'}, nil, 3}",
    "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}",
    "error(ARGV[1])",
    "error({err = ARGV[1]})",
    "return redis.error_reply(ARGV[1])",
    "return redis.status_reply(ARGV[1])",
    "return redis.sha1hex(ARGV[1])",
    "local ok, e = pcall(redis.call, 'incr', KEYS[1]) return {tostring(ok), e}",
    "local ok, e = pcall(redis.call, 'get') return {tostring(ok), e}",
    "return cjson.encode({ARGV[1], {ARGV[2]}, 0.1, 1e20, cjson.null})",
    "local ok, v = pcall(cjson.decode, ARGV[1]) return {tostring(ok), type(v), tostring(v)}",
    "return cmsgpack.pack({ARGV[1], 1, -300, 0.5, 0.1, true, {}})",
    "return {cmsgpack.unpack(cmsgpack.pack(ARGV[1], tonumber(ARGV[2]), {1, 2}))}",
    "return struct.pack('>I2hBsc0', 513, -2, 7, ARGV[1], ARGV[2])",
    "return {struct.unpack('<hBs', struct.pack('<hBs', -513, 200, 'abc'))}",
    "return {bit.bxor(#ARGV[1], 255), bit.tohex(#ARGV[2], 4), bit.arshift(-7, 1), bit.bswap(1)}",
    "return ('%5.1f|%s|%q'):format(1.25, ARGV[1], 'a\\nb')",
    "return {string.find(ARGV[1], '[0-9]+'), (string.gsub(ARGV[1], 'l', 'L'))}",
    "x = 1",
    "return undefined",
    "redis.call('set', 'script:n', 'x') return redis.pcall('incr', 'script:n')",
    "syntax error",
    "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 1)",
    "#!lua flags=nothing\nreturn 1",
    "redis.setresp(3) return {redis.call('get', 'none') == nil, redis.pcall('incrbyfloat', 'float:n', 1)}",
    "return loadstring('return 1 + ' .. #ARGV[1])()",
    "return {math.floor(-1.5), math.fmod(7, 3), math.max(1, 2), math.huge == 1 / 0}",
    "return table.concat({ARGV[1], ARGV[2]}, '-')",
    "local t = {3, 1, 2} table.sort(t) return t",
    "return select('#', unpack({1, 2, 3}))",
    "redis.call('select', 3) return {redis.call('set', KEYS[1], ARGV[1]), redis.call('exists', KEYS[1], KEYS[2])}",
    "return {redis.pcall('move', KEYS[1], 3), redis.pcall('copy', KEYS[1], KEYS[2], 'DB', 3)}",
    "return redis.pcall('select', ARGV[2])",
];

#[test]
fn scripts_equal_redis() {
    let Some(redis) = Redis::start() else { return };
    let shared = shared();
    let mut both = Both::new(&redis, &shared);
    let words = |words: &[&str]| -> Command { words.iter().map(|word| word.as_bytes().to_vec()).collect() };
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut commands = vec![words(&["set", random.of(&KEYS), random.of(&VALUES)])];
        for script in SCRIPTS {
            let name = *random.of(&[&"eval", &"eval", &"eval_ro"]);
            let (a, b) = (random.of(&KEYS), random.of(&KEYS));
            commands.push(words(&[name, script, "2", a, b, random.of(&VALUES), random.of(&NUMBERS)]));
        }
        let sha = Script::sha(SCRIPTS[0].as_bytes());
        commands.push(words(&["evalsha", &sha, "1", random.of(&KEYS)]));
        commands.push(words(&["evalsha", "ffffffffffffffffffffffffffffffffffffffff", "0"]));
        commands.push(words(&["script", "exists", &sha, "x"]));
        commands.push(words(&["eval", "return 1", random.of(&NUMBERS), "a"]));
        commands.push(words(&["multi"]));
        commands.push(words(&["eval", SCRIPTS[random.below(8)], "2", "k1", "k2", "1", "2"]));
        commands.push(words(&["exec"]));
        both.send(&commands, seed);
    }
}
