//! Commands chosen at random, with the arguments that they may have.

use super::{Command, is};

/// SplitMix64: a seed gives the same commands on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    pub(super) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

pub(super) const KEYS: [&str; 8] = ["", "k1", "k2", "k3", "counter", "float", "user:1", "caf\u{e9}"];
pub(super) const VALUES: [&str; 26] = [
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
pub(super) const NUMBERS: [&str; 18] = [
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

pub(super) fn command(random: &mut Random) -> Command {
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

pub(super) fn is_blocking(command: &Command) -> bool {
    command[0].eq_ignore_ascii_case(b"wait")
        && command.get(1).is_some_and(|n| n != b"0")
        && command.len() == 3
}
