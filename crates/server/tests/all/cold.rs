//! Commands whose records lie on a slower tier alone: they wait aside, and answer as ever.

use std::{io::Write, os::unix::net::UnixStream};

use crate::common::{Running, ask, command, expect, rest};
use terrace::{ByteSize, Engine, Store};

/// Keys, of which the least DRAM that a store can have holds a fifth.
const KEYS: usize = 60_000;
const VALUE: usize = 1000;

fn key(nth: usize) -> Vec<u8> {
    format!("key:{nth:06}").into_bytes()
}

fn value(nth: usize) -> Vec<u8> {
    format!("{nth:0>width$}", width = VALUE).into_bytes()
}

fn fill(store: &Store) {
    for nth in 0..KEYS {
        store.put(key(nth), value(nth)).unwrap();
    }
    store.put("large", vec![b'l'; 400 << 10]).unwrap();
}

fn over_two_tiers(io_uring: &str) -> (Running, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = Store::options().engine(Engine::Tiered).directory(directory.path().join("store"));
    let store = options.memory(ByteSize::mib(16)).create().unwrap();
    fill(&store);
    (Running::start_with(store, &[("threads", "1"), ("io-uring", io_uring)]), directory)
}

fn in_a_pool() -> Running {
    let store = Store::options().anonymous().size(ByteSize::mib(256)).create().unwrap();
    fill(&store);
    Running::start_with(store, &[("threads", "1")])
}

/// Numbers from a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn key(&mut self) -> Vec<u8> {
        match self.below(30) {
            0 => b"large".to_vec(),
            1 => b"counter".to_vec(),
            _ => {
                let limit = if self.below(2) == 0 { 300 } else { KEYS + 100 };
                key(self.below(limit))
            }
        }
    }
}

/// Commands that a client sends at once: a transaction as well, now and then.
fn some_commands(draws: &mut Draws) -> Vec<u8> {
    let mut requests = Vec::new();
    let is_transaction = draws.below(4) == 0;
    if is_transaction {
        requests.extend(command(&[b"WATCH", &draws.key(), &draws.key()]));
        requests.extend(command(&[b"MULTI"]));
    }
    for _ in 0..1 + draws.below(40) {
        let (one, two, three) = (draws.key(), draws.key(), draws.key());
        let (one, two, three) = (&one[..], &two[..], &three[..]);
        requests.extend(match draws.below(24) {
            0..8 => command(&[b"GET", one]),
            8..11 => command(&[b"SET", one, two]),
            11 => command(&[b"MGET", one, two, three]),
            12 => command(&[b"DEL", one, two]),
            13 => command(&[b"INCR", b"counter"]),
            14 => command(&[b"APPEND", one, b"tail"]),
            15 => command(&[b"SETNX", one, two]),
            16 => command(&[b"GETSET", one, two]),
            17 => command(&[b"EXISTS", one, two, three]),
            18 => command(&[b"STRLEN", one]),
            19 => command(&[b"MSET", one, b"1", two, b"2"]),
            20 => command(&[b"RENAME", one, two]),
            21 => command(&[b"COPY", one, two, b"REPLACE"]),
            22 => command(&[b"GETRANGE", one, b"0", b"10"]),
            _ => command(&[b"PEXPIREAT", one, b"99999999999999"]),
        });
    }
    if is_transaction {
        requests.extend(command(&[b"EXEC"]));
    }
    requests.extend(command(&[b"ECHO", b"all of them"]));
    requests
}

fn answers(stream: &mut UnixStream, requests: &[u8]) -> Vec<u8> {
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        scope.spawn(move || writer.write_all(requests).unwrap());
        while !answers.ends_with(b"$11\r\nall of them\r\n") {
            let mut buffer = [0; 64 << 10];
            let count = std::io::Read::read(stream, &mut buffer).unwrap();
            assert!(count > 0, "the server closed the connection");
            answers.extend_from_slice(&buffer[..count]);
        }
    });
    answers
}

fn figure(server: &Running, name: &str) -> String {
    let mut stream = server.connect();
    stream.write_all(b"INFO\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let text = String::from_utf8(rest(&mut stream)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

fn compare_with_a_pool(io_uring: &str, rounds: usize) {
    let ((server, _directory), pool) = (over_two_tiers(io_uring), in_a_pool());
    let mut draws = Draws(7);
    let (mut one, mut other) = (server.connect(), pool.connect());
    for round in 0..rounds {
        let requests = some_commands(&mut draws);
        let (found, expected) = (answers(&mut one, &requests), answers(&mut other, &requests));
        let differs = || {
            let at = found.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
            let around = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(60)..bytes.len().min(at + 60)]).into_owned()
            };
            format!("round {round} at {at}: {:?} for {:?}", around(&found), around(&expected))
        };
        assert!(found == expected, "{}", differs());
    }
    let calls = |server: &Running| {
        let mut stream = server.connect();
        stream.write_all(b"INFO commandstats stats\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let text = String::from_utf8(rest(&mut stream)).unwrap();
        let counts = text.lines().filter_map(|line| {
            let (name, fields) = line.split_once(":calls=")?;
            Some((name.to_owned(), fields.split(',').next()?.to_owned()))
        });
        let lookups = text.lines().filter(|line| line.starts_with("keyspace_"));
        let mut all: Vec<_> = counts.collect();
        all.extend(
            lookups.filter_map(|line| line.split_once(':')).map(|(a, b)| (a.to_owned(), b.to_owned())),
        );
        all
    };
    assert_eq!(calls(&server), calls(&pool), "a command that waited counts once");
    assert!(figure(&server, "tier_parked_commands").parse::<usize>().unwrap() > rounds / 4);
    assert_eq!(figure(&server, "tier_io"), if io_uring == "yes" { "io_uring" } else { "threads" });
}

#[test]
fn cold_commands_answer_as_those_of_a_pool() {
    compare_with_a_pool("yes", 400);
}

#[test]
fn cold_commands_without_io_uring_answer_as_those_of_a_pool() {
    compare_with_a_pool("no", 200);
}

/// A command that reads many cold keys, one after the other, makes each read a few times at most.
#[test]
fn cold_reads_of_scripts_and_transactions_are_linear() {
    const COUNT: usize = 300;
    let (server, _directory) = over_two_tiers("yes");
    let mut stream = server.connect();
    let reads = || figure(&server, "tier_cold_reads").parse::<usize>().unwrap();
    let mut keys = (0..KEYS).step_by(37).map(key);
    let mut some_keys = || keys.by_ref().take(COUNT).collect::<Vec<_>>();
    let transaction = |keys: Vec<Vec<u8>>| {
        let queued = keys.iter().flat_map(|key| command(&[b"STRLEN", key]));
        let queued: Vec<u8> = queued.collect();
        (
            [command(&[b"MULTI"]), queued, command(&[b"EXEC"])].concat(),
            format!(
                "+OK\r\n{}*{COUNT}\r\n{}",
                "+QUEUED\r\n".repeat(COUNT),
                format!(":{VALUE}\r\n").repeat(COUNT)
            ),
        )
    };
    let sum = b"local n = 0; for _, key in ipairs(#KEYS > 0 and KEYS or ARGV) do \
                n = n + redis.call('STRLEN', key) end; return n";
    let script = |keys: Vec<Vec<u8>>, count: &[u8]| {
        let mut words: Vec<&[u8]> = vec![b"EVAL", sum, count];
        words.extend(keys.iter().map(|key| &key[..]));
        (command(&words), format!(":{}\r\n", VALUE * COUNT))
    };
    let requests = [transaction(some_keys()), script(some_keys(), b"300"), script(some_keys(), b"0")];
    for (nth, (request, answer)) in requests.into_iter().enumerate() {
        let before = reads();
        ask(&mut stream, &request, answer.as_bytes());
        let made = reads() - before;
        assert!((COUNT / 2..12 * COUNT).contains(&made), "{nth}: {made} for {COUNT} keys");
    }
}

#[test]
fn parked_commands_are_answered_before_the_server_stops() {
    let (mut server, _directory) = over_two_tiers("yes");
    let mut streams: Vec<UnixStream> = (0..50).map(|_| server.connect()).collect();
    for (nth, stream) in streams.iter_mut().enumerate() {
        // A connection that is not accepted yet is none.
        ask(stream, b"PING\r\n", b"+PONG\r\n");
        stream.write_all(&command(&[b"GET", &key(nth * 97)])).unwrap();
    }
    server.stop();
    for (nth, stream) in streams.iter_mut().enumerate() {
        expect(stream, format!("${VALUE}\r\n{}\r\n", String::from_utf8(value(nth * 97)).unwrap()).as_bytes());
    }
}

#[test]
fn client_that_goes_while_its_command_is_parked_harms_nobody() {
    let (server, _directory) = over_two_tiers("yes");
    for round in 0..200 {
        let mut stream = server.connect();
        stream.write_all(&command(&[b"GET", &key(round * 211)])).unwrap();
        drop(stream);
        let mut other = server.connect();
        let nth = round * 173;
        other.write_all(&command(&[b"GET", &key(nth)])).unwrap();
        expect(&mut other, format!("${VALUE}\r\n{}", String::from_utf8(value(nth)).unwrap()).as_bytes());
    }
}
