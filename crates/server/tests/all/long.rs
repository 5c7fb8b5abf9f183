//! Long commands: they do not block the other connections of their loop, and stay atomic.
//!
//! Reading a record with an expiry reads the clock. The clock of these tests can block a worker
//! that reads it, until the test releases the worker.

use std::{
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use crate::common::{Running, ask, command, expect, rest};
use terrace::{Clock, ManualClock, Store};
use terrace_server::{
    config::Config,
    session::{Flow, Peer, Session},
    shared::Shared,
};

/// A clock that blocks the next worker that reads it, once armed.
#[derive(Default)]
struct Gate {
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Clock for Gate {
    fn now_ms(&self) -> u64 {
        let is_worker = std::thread::current().name().is_some_and(|name| name.starts_with("worker-"));
        if is_worker && let Some((blocked, release)) = self.gate.lock().unwrap().take() {
            blocked.send(()).unwrap();
            // A test that failed has dropped the sender.
            let _ = release.recv();
        }
        1000
    }
}

/// The gate's other end: waits until a worker is blocked, and releases it.
struct BlockedWorker {
    blocked: Receiver<()>,
    release: Sender<()>,
}

impl Gate {
    /// Blocks the next worker that reads the clock.
    fn arm(&self) -> BlockedWorker {
        let ((blocked_tx, blocked), (release, released)) = (channel(), channel());
        *self.gate.lock().unwrap() = Some((blocked_tx, released));
        BlockedWorker { blocked, release }
    }
}

impl BlockedWorker {
    fn wait(&self) {
        self.blocked.recv_timeout(Duration::from_secs(60)).expect("a worker runs the command");
    }

    fn release(self) {
        self.release.send(()).unwrap();
    }
}

const KEYS: usize = 3000;

fn key(nth: usize) -> String {
    format!("key:{nth:04}")
}

/// The command `name` for all keys, each followed by `value` if there is one.
fn with_all_keys(name: &str, value: Option<&str>) -> Vec<u8> {
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let mut words: Vec<&[u8]> = vec![name.as_bytes()];
    for key in &keys {
        words.push(key.as_bytes());
        words.extend(value.map(str::as_bytes));
    }
    command(&words)
}

/// A server with one loop, and many keys that expire far in the future.
fn running() -> (Running, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let options = Store::options().anonymous().size(terrace::ByteSize::mib(64)).clock(gate.clone());
    let store = options.expiry_thread(false).create().unwrap();
    let server = Running::start_with(store, &[("threads", "1")]);
    for nth in 0..KEYS {
        let name = key(nth);
        server.shared.store.put_expiring(name.as_bytes(), b"old", Duration::from_secs(1 << 30)).unwrap();
    }
    (server, gate)
}

#[test]
fn long_command_does_not_block_other_clients() {
    let (server, gate) = running();
    let commands = [
        (command(&[b"KEYS", b"*"]), format!("*{KEYS}\r\n")),
        (command(&[b"SCAN", b"0", b"COUNT", b"10000"]), format!("*2\r\n$1\r\n0\r\n*{KEYS}\r\n")),
        (with_all_keys("EXISTS", None), format!(":{KEYS}\r\n")),
        (with_all_keys("MGET", None), format!("*{KEYS}\r\n$3\r\nold\r\n")),
        (with_all_keys("DEL", None), format!(":{KEYS}\r\n")),
    ];
    for (request, answer) in commands {
        let worker = gate.arm();
        let mut long = server.connect();
        // A command before the long one is answered at once, a command behind it only after it.
        long.write_all(&[command(&[b"ECHO", b"before"]), request, command(&[b"ECHO", b"behind"])].concat())
            .unwrap();
        expect(&mut long, b"$6\r\nbefore\r\n");
        worker.wait();
        for _ in 0..10 {
            ask(&mut server.connect(), b"GET nothing\r\n", b"$-1\r\n");
            ask(&mut server.tcp(), b"SET new 1\r\nDEL new\r\n", b"+OK\r\n:1\r\n");
        }
        worker.release();
        expect(&mut long, answer.as_bytes());
        long.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(rest(&mut long).ends_with(b"$6\r\nbehind\r\n"));
    }
}

#[test]
fn del_of_many_keys_is_atomic_and_blocks_no_client() {
    let (server, gate) = running();
    let worker = gate.arm();
    let mut long = server.connect();
    long.write_all(&with_all_keys("DEL", None)).unwrap();
    worker.wait();
    // No key is removed yet. A command that waits for the removal does so on a worker.
    let (mut other, mut waiting) = (server.connect(), server.connect());
    waiting.write_all(&command(&[b"MSET", b"a", b"1", b"b", b"2"])).unwrap();
    for nth in [0, 1, KEYS / 2, KEYS - 1] {
        ask(&mut other, &command(&[b"GET", key(nth).as_bytes()]), b"$3\r\nold\r\n");
    }
    worker.release();
    expect(&mut long, format!(":{KEYS}\r\n").as_bytes());
    expect(&mut waiting, b"+OK\r\n");
    ask(&mut other, b"DBSIZE\r\n", b":2\r\n");
}

#[test]
fn client_closed_during_its_command_is_removed() {
    let (server, gate) = running();
    let worker = gate.arm();
    let mut long = server.connect();
    long.write_all(&with_all_keys("DEL", None)).unwrap();
    worker.wait();
    let mut other = server.connect();
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    drop(long);
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    worker.release();
    // The next long command runs on the same worker, after the first.
    ask(&mut other, &with_all_keys("EXISTS", None), b":0\r\n");
    while server.shared.clients.len() > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn write_behind_a_long_command_comes_before_later_connections() {
    let (server, gate) = running();
    let mut other = server.connect();
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    let worker = gate.arm();
    let mut gone = server.connect();
    gone.write_all(&[with_all_keys("EXISTS", None), command(&[b"SET", b"key", b"stale"])].concat()).unwrap();
    worker.wait();
    drop(gone);
    let mut last = server.connect();
    last.write_all(&command(&[b"SET", b"key", b"final"])).unwrap();
    // Turns in which the loop executes it, if it does not wait.
    (0..500).for_each(|_| ask(&mut other, b"PING\r\n", b"+PONG\r\n"));
    worker.release();
    expect(&mut last, b"+OK\r\n");
    // The next long command runs on the same worker, after the first.
    ask(&mut other, &with_all_keys("EXISTS", None), format!(":{KEYS}\r\n").as_bytes());
    ask(&mut other, b"GET key\r\n", b"$5\r\nfinal\r\n");
}

#[test]
fn reads_of_a_closed_connection_hold_up_nobody() {
    let (server, gate) = running();
    let worker = gate.arm();
    let mut gone = server.connect();
    gone.write_all(&with_all_keys("EXISTS", None)).unwrap();
    worker.wait();
    drop(gone);
    ask(&mut server.connect(), b"SET key value\r\n", b"+OK\r\n");
    worker.release();
}

#[test]
fn server_stops_after_its_long_commands() {
    let (mut server, gate) = running();
    let worker = gate.arm();
    let mut long = server.connect();
    long.write_all(&with_all_keys("DEL", None)).unwrap();
    worker.wait();
    let mut other = server.connect();
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    std::thread::scope(|scope| {
        scope.spawn(|| server.stop());
        // The other connection is closed; the one with the long command is not.
        assert!(rest(&mut other).is_empty());
        worker.release();
        assert_eq!(String::from_utf8_lossy(&rest(&mut long)), format!(":{KEYS}\r\n"));
    });
}

struct Client {
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Client {
    fn new(shared: &Arc<Shared>) -> Client {
        let session = Session::new(Arc::clone(shared), Peer::default(), 1000);
        Client { session, input: Vec::new(), output: Vec::new() }
    }

    /// Executes these bytes as a loop does.
    fn loop_turn(&mut self, bytes: &[u8]) -> Flow {
        self.input.extend_from_slice(bytes);
        self.session.process_short(&mut self.input, &mut self.output, 1000)
    }

    /// Executes the remaining input as a worker does.
    fn worker_turn(&mut self) -> Flow {
        self.session.process(&mut self.input, &mut self.output, 1000)
    }

    /// Executes these bytes; returns the last replies.
    fn ask(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        self.input = bytes;
        while self.worker_turn() == Flow::More {
            self.output.clear();
        }
        std::mem::take(&mut self.output)
    }
}

fn shared(keys: usize) -> Arc<Shared> {
    let clock = Arc::new(ManualClock::at(1000));
    let store = Store::options().anonymous().size(terrace::ByteSize::mib(256)).clock(clock).create().unwrap();
    (0..keys).for_each(|nth| store.put(key(nth).as_bytes(), b"old").unwrap());
    Arc::new(Shared::new(store, Config::default()))
}

#[test]
fn turn_ends_before_a_long_command() {
    let shared = shared(KEYS);
    let many_sets = || {
        let sets: Vec<u8> = (0..KEYS).flat_map(|nth| command(&[b"SET", key(nth).as_bytes(), b"x"])).collect();
        [b"MULTI\r\n".as_slice(), &sets].concat()
    };
    let long = [
        ("KEYS", command(&[b"KEYS", b"x*"])),
        ("a large COUNT", command(&[b"SCAN", b"0", b"COUNT", b"5000"])),
        ("MGET", with_all_keys("MGET", None)),
        ("WATCH", with_all_keys("WATCH", None)),
        ("MSETNX", with_all_keys("MSETNX", Some("1"))),
        ("a large value", command(&[b"SET", b"k", &vec![b'v'; 9 << 20]])),
        ("FLUSHALL", command(&[b"FLUSHALL"])),
    ];
    for (name, request) in long {
        let mut client = Client::new(&shared);
        assert_eq!(
            client.loop_turn(&[b"PING\r\n", &request[..], b"PING\r\n"].concat()),
            Flow::Long,
            "{name}"
        );
        assert_eq!(client.output, b"+PONG\r\n", "{name}");
        // The loop never executes it, however often it tries.
        assert_eq!(client.loop_turn(b""), Flow::Long, "{name}");
        assert_eq!(client.worker_turn(), Flow::Continue, "{name}");
        assert!(client.output.ends_with(b"+PONG\r\n") && client.input.is_empty(), "{name}");
    }
    let short: [&[u8]; 4] = [b"KEYS x*\r\n", b"FLUSHALL\r\n", b"SCAN 0 COUNT 100\r\n", b"MSET a 1 b 2\r\n"];
    for request in short {
        // The store is nearly empty by now.
        assert_eq!(Client::new(&shared).loop_turn(request), Flow::Continue);
    }
    let mut client = Client::new(&shared);
    assert_eq!(client.loop_turn(&many_sets()), Flow::Continue);
    assert_eq!(client.loop_turn(b"EXEC\r\n"), Flow::Long);
    assert_eq!(client.worker_turn(), Flow::Continue);
    // Concurrent writes could make this transaction run again forever, so it is not long.
    assert_eq!(client.loop_turn(&[&many_sets()[..], b"GET a\r\nEXEC\r\n"].concat()), Flow::Continue);
}

#[test]
fn unauthenticated_commands_are_never_long() {
    let shared = shared(KEYS);
    shared.config.assign("requirepass", "secret").unwrap();
    let mut client = Client::new(&shared);
    assert_eq!(client.loop_turn(b"KEYS *\r\n"), Flow::Continue);
    assert!(client.output.starts_with(b"-NOAUTH"));
}

/// Commands with 300,000 arguments each: with quadratic cost, this would take more than a day.
#[test]
fn commands_with_many_arguments_are_answered() {
    const MANY: usize = 300_000;
    let shared = shared(0);
    let numbers: Vec<String> = (0..MANY).map(|nth| (1_000_000 + nth).to_string()).collect();
    let words = |head: &[&'static str], each: &[&'static str]| {
        let mut words: Vec<&[u8]> = head.iter().map(|word| word.as_bytes()).collect();
        for number in &numbers {
            words.push(number.as_bytes());
            words.extend(each.iter().map(|word| word.as_bytes()));
        }
        command(&words)
    };
    let multi = |commands: &dyn Fn(&str) -> String| -> Vec<u8> {
        let queued: String = numbers.iter().take(MANY / 3).map(|number| commands(number)).collect();
        format!("MULTI\r\nFLUSHALL\r\n{queued}EXEC\r\n").into_bytes()
    };
    let cases: Vec<(Vec<u8>, String)> = vec![
        (words(&["WATCH"], &[]), "+OK\r\n".into()),
        (b"UNWATCH\r\n".to_vec(), "+OK\r\n".into()),
        (words(&["MSET"], &["v"]), "+OK\r\n".into()),
        (words(&["MSETNX"], &["v"]), ":0\r\n".into()),
        (words(&["EXISTS"], &[]), format!(":{MANY}\r\n")),
        (words(&["TOUCH"], &[]), format!(":{MANY}\r\n")),
        (words(&["UNLINK"], &[]), format!(":{MANY}\r\n")),
        (words(&["CLIENT", "LIST", "ID"], &[]), "$0\r\n\r\n".into()),
        (words(&["CONFIG", "GET"], &[]), "*0\r\n".into()),
        (
            words(&["CONFIG", "SET"], &["1"]),
            "-ERR Unknown option or number of arguments for CONFIG SET - '1000000'\r\n".into(),
        ),
        (words(&["COMMAND", "DOCS"], &[]), "*0\r\n".into()),
        (words(&["INFO"], &[]), "$0\r\n\r\n".into()),
        (multi(&|number| format!("SET {number} v\r\nDBSIZE\r\n")), format!(":{}\r\n", MANY / 3)),
        (
            multi(&|number| format!("SET {number} v\r\nRANDOMKEY\r\nDEL {number}\r\n")),
            format!("$7\r\n{}\r\n:1\r\n", numbers[MANY / 3 - 1]),
        ),
        (multi(&|number| format!("SET {number} v\r\nDEL {number}\r\nRANDOMKEY\r\n")), ":1\r\n$-1\r\n".into()),
    ];
    for (request, end) in cases {
        let replies = Client::new(&shared).ask(request);
        let shown = String::from_utf8_lossy(&replies[replies.len().saturating_sub(100)..]);
        assert!(replies.ends_with(end.as_bytes()), "{shown} and not {end}");
    }
}

/// A clock that counts its readings: one per record with an expiry that is read.
#[derive(Default)]
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Relaxed);
        1000
    }
}

/// Number of records that commands about `keys` keys read.
fn count_reads(keys: usize, commands: &dyn Fn(&[String]) -> Vec<u8>) -> u64 {
    let clock = Arc::new(CountingClock::default());
    let options = Store::options().anonymous().size(terrace::ByteSize::mib(64)).clock(clock.clone());
    let store = options.expiry_thread(false).create().unwrap();
    let names: Vec<String> = (0..keys).map(key).collect();
    for name in &names {
        store.put_expiring(name.as_bytes(), b"old", Duration::from_secs(1 << 30)).unwrap();
    }
    let mut client = Client::new(&Arc::new(Shared::new(store, Config::default())));
    clock.0.store(0, Relaxed);
    assert!(!client.ask(commands(&names)).starts_with(b"-"));
    clock.0.load(Relaxed)
}

#[test]
fn reads_per_key_are_constant() {
    let all = |name: &'static str| {
        move |keys: &[String]| {
            let mut words = vec![name.as_bytes()];
            words.extend(keys.iter().map(|key| key.as_bytes()));
            command(&words)
        }
    };
    let queued = |each: &'static str| {
        move |keys: &[String]| {
            let queued: String = keys.iter().map(|key| format!("{}\r\n", each.replace('?', key))).collect();
            format!("MULTI\r\n{queued}EXEC\r\n").into_bytes()
        }
    };
    type Make<'a> = &'a dyn Fn(&[String]) -> Vec<u8>;
    let cases: [(&str, Make<'_>); 8] = [
        ("DEL", &all("DEL")),
        ("EXISTS", &all("EXISTS")),
        ("MGET", &all("MGET")),
        ("WATCH", &all("WATCH")),
        ("KEYS", &|_| command(&[b"KEYS", b"*"])),
        ("DBSIZE in MULTI", &queued("SET ? v\r\nDBSIZE")),
        ("RANDOMKEY in MULTI", &queued("DEL ?\r\nRANDOMKEY")),
        ("EXEC", &queued("APPEND ? v")),
    ];
    for (name, commands) in cases {
        let [few, many] = [500, 4000].map(|keys| count_reads(keys, commands));
        // Eight times as many keys cause eight times as many reads, or 64 times with quadratic
        // cost.
        assert!(many <= 20 * few.max(500), "{name}: {few} reads of 500 keys and {many} at 4,000");
    }
}
