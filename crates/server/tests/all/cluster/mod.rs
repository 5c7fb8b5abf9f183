//! A node of a cluster: which commands it executes, and where it sends the others.

mod descriptions;

use std::sync::Arc;

use crate::common::{Client, Cluster, Refusing, START_MS, Spot, command, fresh};
use terrace::{Clock, ManualClock, ReadError};
use terrace_protocol::{Queue, slot};
use terrace_server::{
    command::{Command, table},
    config::Config,
    databases::slot_of,
    routing::HELD_MOST_MS,
    session::Flow,
    shared::Shared,
};

const CROSSSLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
const DOWN: &str = "-CLUSTERDOWN Hash slot not served";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";
const TRYAGAIN: &str = "-TRYAGAIN The slot of the keys is being moved, or the memory node is away: nothing was done, send the command again";
/// The reply to commands with the key `foo`, which the other node serves.
const MOVED: &str = "-MOVED 12182 127.0.0.1:7001";

/// A cluster of two nodes, and a client of the first. It serves `bar`, `hello` and `b`; the other
/// one serves `foo` and `a`.
fn cluster() -> (Cluster, Client) {
    let clock = Arc::new(ManualClock::at(START_MS));
    let store = fresh().clock(clock.clone()).create().expect("memory for a store");
    over(store, clock)
}

fn over(store: terrace::Store, clock: Arc<ManualClock>) -> (Cluster, Client) {
    let cluster = Cluster::new(&[7000, 7001]);
    let shared = Shared::of_node(store, Config::default(), cluster.routing(0));
    let client = Client::of(Arc::new(shared), clock);
    (cluster, client)
}

/// The commands that have keys, each with the words before its arguments.
fn keyed() -> Vec<(Vec<&'static str>, &'static Command)> {
    let all = table::TABLE.iter().flat_map(|command| {
        let subs = command.subcommands.iter().map(|sub| (vec![command.name, sub.name], sub));
        std::iter::once((vec![command.name], *command)).chain(subs)
    });
    all.filter(|(_, command)| !command.keys.is_empty()).collect()
}

/// A call of a command with these keys, in turn, as many as it takes at least; two if it takes
/// several. Returns the number of keys, too.
fn call(words: &[&str], command: &Command, keys: [&str; 2]) -> (String, usize) {
    let least = command.arity.unsigned_abs() as usize;
    let is_open = command.keys.iter().any(|spec| spec.last < 0);
    let is_counted = command.keys.iter().any(|spec| spec.is_counted);
    let len = least + if is_open { command.keys[0].step as usize } else { usize::from(is_counted) };
    let mut call = vec!["1"; len];
    call[..words.len()].copy_from_slice(words);
    let mut queue = Queue::default();
    call.iter().for_each(|word| queue.add(word.as_bytes()));
    queue.end();
    let args = queue.iter().next().unwrap();
    let places: Vec<usize> = command.keys.iter().flat_map(|spec| spec.places(args)).collect();
    places.iter().zip(keys.iter().cycle()).for_each(|(place, key)| call[*place] = key);
    (call.join(" "), places.len())
}

#[test]
fn foreign_keys_of_each_command_are_moved() {
    let (_, mut client) = cluster();
    let keyed = keyed();
    assert!(keyed.len() > 40, "{}", keyed.len());
    for (words, command) in keyed {
        let (foreign, _) = call(&words, command, ["{foo}1", "{foo}2"]);
        client.expect(&[
            (&foreign, MOVED),
            ("MULTI", "+OK"),
            (&foreign, MOVED),
            ("SET bar 1", "+QUEUED"),
            ("EXEC", ABORTED),
        ]);
        // In one piece: commands that are grouped, and such as are not, before and behind.
        let lines = [&foreign, &foreign, "GET bar", "GET bar", &foreign, "DEL bar", &foreign];
        let expected = [MOVED, MOVED, "$-1", "$-1", MOVED, ":0", MOVED];
        assert_eq!(client.send(format!("{}\r\n", lines.join("\r\n")).as_bytes()).0, expected.join(" "));
    }
    client.expect(&[("DBSIZE", ":0")]);
}

#[test]
fn keys_of_two_slots_are_refused_for_each_command() {
    let (_, mut client) = cluster();
    let mut refused = 0;
    for (words, command) in keyed() {
        for keys in [["{foo}1", "{bar}2"], ["{bar}1", "{foo}2"], ["bar", "hello"]] {
            let (line, count) = call(&words, command, keys);
            if count > 1 {
                refused += 1;
                client.expect(&[(&line, CROSSSLOT), ("MULTI", "+OK"), (&line, CROSSSLOT), ("EXEC", ABORTED)]);
            }
        }
    }
    assert!(refused > 3 * 8, "{refused}");
    client.expect(&[("DBSIZE", ":0")]);
}

#[test]
fn own_keys_of_each_command_are_served() {
    let (_, mut client) = cluster();
    for (words, command) in keyed() {
        let (line, _) = call(&words, command, ["{bar}1", "{bar}2"]);
        for line in [&line, &format!("{line}\r\n{line}")] {
            let reply = client.ask(line);
            let is_routed = ["-MOVED", "-ASK", "-CROSSSLOT", "-CLUSTERDOWN", "-TRYAGAIN"];
            assert!(!is_routed.iter().any(|code| reply.contains(code)), "{line}: {reply}");
        }
        client.expect(&[("UNWATCH", "+OK")]);
    }
}

#[test]
fn pipelines_stop_for_foreign_keys_and_go_on() {
    let (_, mut client) = cluster();
    let sent = client.send(b"SET bar 1\r\nSET foo 2\r\nSET b 3\r\nSET a 4\r\nSET hello 5\r\nSET {b} 6\r\n");
    assert_eq!(sent.0, format!("+OK {MOVED} +OK -MOVED 15495 127.0.0.1:7001 +OK +OK"));
    let sent = client.send(b"GET bar\r\nGET b\r\nGET foo\r\nGET hello\r\nGET a\r\n");
    assert_eq!(sent.0, format!("$1 1 $1 3 {MOVED} $1 5 -MOVED 15495 127.0.0.1:7001"));
    client.expect(&[("MGET {b} b", "*2 $1 6 $1 3"), ("DBSIZE", ":4")]);
}

#[test]
fn moved_names_the_host_if_there_is_one() {
    let (cluster, mut client) = cluster();
    cluster.change(|_, nodes| nodes[1].host = Some("two.example".into()));
    client.expect(&[("GET foo", "-MOVED 12182 two.example:7001")]);
    cluster.change(|_, nodes| (nodes[1].host, nodes[1].address) = (None, "::1".parse().unwrap()));
    client.expect(&[("GET foo", "-MOVED 12182 ::1:7001")]);
}

#[test]
fn slot_of_no_node_is_down() {
    let (cluster, mut client) = cluster();
    cluster.put("bar", Spot::Nowhere);
    client.expect(&[
        ("GET bar", DOWN),
        ("MULTI", "+OK"),
        ("SET bar 1", DOWN),
        ("EXEC", ABORTED),
        ("GET hello", "$-1"),
        ("PING", "+PONG"),
    ]);
    assert_eq!(client.send(b"GET hello\r\nGET bar\r\n").0, format!("$-1 {DOWN}"));
}

#[test]
fn exec_refuses_keys_of_several_slots() {
    let (_, mut client) = cluster();
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET bar 1", "+QUEUED"),
        ("SET hello 1", "+QUEUED"),
        ("EXEC", CROSSSLOT),
        ("EXEC", "-ERR EXEC without MULTI"),
        // One slot, and commands without keys.
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("SET bar 1", "+QUEUED"),
        ("APPEND {bar} 2", "+QUEUED"),
        ("EXEC", "*3 +PONG +OK :1"),
        ("MULTI", "+OK"),
        ("EXEC", "*0"),
        // WATCH has its own slot.
        ("WATCH hello", "+OK"),
        ("WATCH bar hello", CROSSSLOT),
        ("MULTI", "+OK"),
        ("GET bar", "+QUEUED"),
        ("EXEC", "*1 $1 1"),
        ("MULTI", "+OK"),
        ("WATCH foo", MOVED),
        ("EXEC", ABORTED),
    ]);
}

#[test]
fn exec_is_moved_when_its_slot_left_after_queueing() {
    let (cluster, mut client) = cluster();
    client.expect(&[("SET bar 0", "+OK"), ("WATCH bar", "+OK"), ("MULTI", "+OK"), ("SET bar 1", "+QUEUED")]);
    cluster.put("bar", Spot::At(1));
    client.expect(&[
        ("PING", "+QUEUED"),
        ("EXEC", "-MOVED 5061 127.0.0.1:7001"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("GET hello", "$-1"),
    ]);
    cluster.put("bar", Spot::At(0));
    // Neither the queue nor the watch is left.
    client.expect(&[("GET bar", "$1 0"), ("SET bar 2", "+OK"), ("MULTI", "+OK"), ("EXEC", "*0")]);
    client.expect(&[("MULTI", "+OK"), ("GET bar", "+QUEUED")]);
    cluster.put("bar", Spot::Nowhere);
    client.expect(&[("EXEC", DOWN), ("MULTI", "+OK"), ("DISCARD", "+OK")]);
}

#[test]
fn asking_holds_for_one_command_or_transaction() {
    let (cluster, mut client) = cluster();
    // This node sends `bar` to the other one, and may be asked for `foo`.
    cluster.put("bar", Spot::Ask(0, 1));
    cluster.put("foo", Spot::Ask(1, 0));
    client.expect(&[
        ("GET bar", "-ASK 5061 127.0.0.1:7001"),
        ("MULTI", "+OK"),
        ("GET bar", "-ASK 5061 127.0.0.1:7001"),
        ("EXEC", ABORTED),
        ("GET foo", MOVED),
        ("ASKING", "+OK"),
        ("SET foo 1", "+OK"),
        ("GET foo", MOVED),
        ("ASKING", "+OK"),
        ("PING", "+PONG"),
        ("GET foo", MOVED),
        ("ASKING", "+OK"),
        ("ASKING", "+OK"),
        ("GET foo", "$1 1"),
        ("ASKING", "+OK"),
        ("MULTI", "+OK"),
        ("GET foo", "+QUEUED"),
        ("GET foo", "+QUEUED"),
        ("EXEC", "*2 $1 1 $1 1"),
        ("GET foo", MOVED),
        ("ASKING", "+OK"),
        ("RESET", "+RESET"),
        ("GET foo", MOVED),
        ("ASKING", "+OK"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("GET foo", MOVED),
    ]);
    let sent = client.send(b"ASKING\r\nGET foo\r\nGET foo\r\nGET hello\r\nASKING\r\nGET foo\r\n");
    assert_eq!(sent.0, format!("+OK $1 1 {MOVED} $-1 +OK $1 1"));
}

/// Executes input that may have to wait; returns the replies and what comes next.
fn go_on(client: &mut Client, input: &mut Vec<u8>) -> (String, Flow) {
    go_on_at(START_MS, client, input)
}

fn go_on_at(now_ms: u64, client: &mut Client, input: &mut Vec<u8>) -> (String, Flow) {
    let mut output = Vec::new();
    // Forward or back.
    client.clock.advance(now_ms.wrapping_sub(client.clock.now_ms()));
    let flow = client.session.process_short(input, &mut output, now_ms);
    (String::from_utf8(output).unwrap().replace("\r\n", " ").trim_end().to_string(), flow)
}

#[test]
fn held_slot_lets_commands_wait_in_order() {
    let (cluster, mut client) = cluster();
    cluster.put("bar", Spot::Held);
    let mut input = b"SET hello 1\r\nSET bar 2\r\nGET bar\r\nGET hello\r\nSET b 3\r\n".to_vec();
    assert_eq!(go_on(&mut client, &mut input), ("+OK".into(), Flow::Later));
    for _ in 0..3 {
        assert_eq!(go_on(&mut client, &mut input), (String::new(), Flow::Later));
    }
    // A worker does not wait either.
    let mut output = Vec::new();
    assert_eq!(client.session.process(&mut input, &mut output, START_MS), Flow::Later);
    // The others do not wait, and nothing has happened.
    client.another().expect(&[("GET hello", "$1 1"), ("DBSIZE", ":1")]);
    cluster.put("bar", Spot::At(0));
    assert_eq!(go_on(&mut client, &mut input), ("+OK $1 2 $1 1 +OK".into(), Flow::Continue));
    assert!(input.is_empty() && output.is_empty());
}

#[test]
fn held_slot_that_leaves_is_moved() {
    let (cluster, mut client) = cluster();
    cluster.put("bar", Spot::Held);
    let mut input = b"SET bar 1\r\nPING\r\n".to_vec();
    assert_eq!(go_on(&mut client, &mut input), (String::new(), Flow::Later));
    cluster.put("bar", Spot::At(1));
    assert_eq!(go_on(&mut client, &mut input).0, "-MOVED 5061 127.0.0.1:7001 +PONG");
}

#[test]
fn held_slot_lets_exec_wait_but_not_queueing() {
    let (cluster, mut client) = cluster();
    cluster.put("bar", Spot::Held);
    let mut input = b"MULTI\r\nSET bar 1\r\nGET bar\r\nEXEC\r\nPING\r\n".to_vec();
    assert_eq!(go_on(&mut client, &mut input), ("+OK +QUEUED +QUEUED".into(), Flow::Later));
    assert_eq!(go_on(&mut client, &mut input), (String::new(), Flow::Later));
    cluster.put("bar", Spot::At(0));
    assert_eq!(go_on(&mut client, &mut input).0, "*2 +OK $1 1 +PONG");
    // WATCH is not queued.
    cluster.put("bar", Spot::Held);
    let mut input = b"WATCH bar\r\nMULTI\r\n".to_vec();
    assert_eq!(go_on(&mut client, &mut input), (String::new(), Flow::Later));
}

#[test]
fn held_slot_lets_commands_wait_a_bounded_time() {
    let (cluster, mut client) = cluster();
    let client = &mut client;
    cluster.put("bar", Spot::Held);
    cluster.put("hello", Spot::Held);
    let waits = |so_far: &str| (so_far.to_string(), Flow::Later);
    let (start, most) = (START_MS, HELD_MOST_MS);
    let mut input = b"SET bar 1\r\nGET hello\r\n".to_vec();
    assert_eq!(go_on_at(start, client, &mut input), waits(""));
    assert_eq!(go_on_at(start + most - 1, client, &mut input), waits(""));
    // The next command has its own time.
    assert_eq!(go_on_at(start + most, client, &mut input), waits(TRYAGAIN));
    assert_eq!(go_on_at(start + 2 * most - 1, client, &mut input), waits(""));
    // A clock that was set back does not make it wait much longer.
    assert_eq!(go_on_at(start, client, &mut input), waits(""));
    assert_eq!(go_on_at(start + most, client, &mut input), (TRYAGAIN.into(), Flow::Continue));
    // Nor has a command less time because one before it has waited.
    let mut input = b"GET bar\r\nGET bar\r\nGET hello\r\n".to_vec();
    assert_eq!(go_on_at(start, client, &mut input), waits(""));
    cluster.put("bar", Spot::At(0));
    assert_eq!(go_on_at(start + most - 1, client, &mut input), waits("$-1 $-1"));
    assert_eq!(go_on_at(start + 2 * most - 2, client, &mut input), waits(""));
}

/// A client of a node whose store can be told to refuse.
fn refusing() -> (Arc<Refusing>, Cluster, Client) {
    let clock = Arc::new(ManualClock::at(START_MS));
    let engine = Refusing::new(clock.clone());
    let (cluster, client) = over(engine.store(), clock);
    (engine, cluster, client)
}

#[test]
fn store_that_lost_a_slot_makes_each_command_move() {
    const BAR_MOVED: &str = "-MOVED 5061 127.0.0.1:7001";
    let (engine, cluster, mut client) = refusing();
    let mut process = |input: &mut Vec<u8>| {
        let mut output = Vec::new();
        let flow = client.session.process(input, &mut output, START_MS);
        (String::from_utf8(output).unwrap().replace("\r\n", " ").trim_end().to_string(), flow)
    };
    let (keyed, mut moved) = (keyed(), 0);
    for (words, command) in &keyed {
        // The slot leaves between the server's check and the store's: the map tells it afterwards.
        engine.refuse(Some(ReadError::NotOwner { slot: 5061 }));
        let mut input = format!("{}\r\n", call(words, command, ["{bar}1", "{bar}2"]).0).into_bytes();
        let (reply, flow) = process(&mut input);
        cluster.put("bar", Spot::At(1));
        // Some find an error in the arguments first, or the kind of store.
        if !reply.starts_with("-ERR ") && !reply.starts_with("-NOSCRIPT ") {
            moved += 1;
            assert_eq!((reply.as_str(), flow), ("", Flow::Later), "{words:?}");
            assert_eq!(process(&mut input), (BAR_MOVED.into(), Flow::Continue), "{words:?}");
        }
        cluster.put("bar", Spot::At(0));
        engine.refuse(None);
    }
    assert!(moved > keyed.len() / 2, "{moved} of {}", keyed.len());
    // In one piece.
    engine.refuse(Some(ReadError::NotOwner { slot: 5061 }));
    let mut input = b"GET bar\r\nGET b\r\nSET bar 1\r\nSET b 1\r\nPING\r\n".to_vec();
    assert_eq!(process(&mut input), (String::new(), Flow::Later));
    ["bar", "b"].into_iter().for_each(|key| cluster.put(key, Spot::At(1)));
    let b_moved = "-MOVED 3300 127.0.0.1:7001";
    let expected = [BAR_MOVED, b_moved, BAR_MOVED, b_moved, "+PONG"].join(" ");
    assert_eq!(process(&mut input), (expected, Flow::Continue));
}

#[test]
fn command_of_a_lost_slot_waits_a_bounded_time() {
    let (engine, cluster, mut client) = refusing();
    engine.refuse(Some(ReadError::NotOwner { slot: 12_182 }));
    // Where the map says that the slot is then, if it knows that it has left.
    for (spot, expected) in [(Spot::At(0), TRYAGAIN), (Spot::At(1), MOVED), (Spot::Nowhere, DOWN)] {
        cluster.put("foo", spot);
        for line in ["GET bar", "SET bar 1", "INCR bar"] {
            let mut input = format!("{line}\r\n").into_bytes();
            let waits = (String::new(), Flow::Later);
            assert_eq!(go_on(&mut client, &mut input), waits, "{line}");
            assert_eq!(go_on_at(START_MS + HELD_MOST_MS - 1, &mut client, &mut input), waits, "{line}");
            let (reply, flow) = go_on_at(START_MS + HELD_MOST_MS, &mut client, &mut input);
            assert_eq!((reply.as_str(), flow), (expected, Flow::Continue), "{line}");
        }
    }
}

#[test]
fn store_that_cannot_answer_makes_commands_fail() {
    let (engine, _, mut client) = refusing();
    engine.refuse(Some(ReadError::Unavailable("it has no lease".into())));
    let down = "-CLUSTERDOWN this node of the cluster cannot answer now: it has no lease; try again, or ask another node";
    client.expect(&[("GET bar", down), ("SET bar 1", down), ("WATCH bar", down), ("INCR bar", down)]);
    assert_eq!(client.send(b"GET bar\r\nGET b\r\n").0, [down, down].join(" "));
}

#[test]
fn transaction_that_loses_its_slot_has_no_effect() {
    let (engine, _, mut client) = refusing();
    let lost = [
        (ReadError::NotOwner { slot: 12_182 }, MOVED),
        (ReadError::Unavailable("it has no lease".into()), "-CLUSTERDOWN this node"),
    ];
    for (why, expected) in lost {
        // By the first read, and by the commit.
        for command in ["GET bar", "SET bar 1"] {
            client.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED"), (command, "+QUEUED")]);
            client.expect(&[("SET {bar}2 1", "+QUEUED")]);
            engine.refuse(Some(why.clone()));
            let reply = client.ask("EXEC");
            assert!(reply.starts_with(expected) && !reply.contains("PONG"), "{command}: {reply}");
            engine.refuse(None);
            client.expect(&[("EXEC", "-ERR EXEC without MULTI"), ("DBSIZE", ":0")]);
        }
        // By the first read alone: the slot is back when the transaction would commit.
        client.expect(&[("MULTI", "+OK"), ("GET bar", "+QUEUED"), ("SET bar 1", "+QUEUED")]);
        engine.refuse_once(why);
        let reply = client.ask("EXEC");
        assert!(reply.starts_with(expected), "{reply}");
        client.expect(&[("DBSIZE", ":0")]);
    }
}

/// They would make the loop wait, and all its clients.
#[test]
fn commands_that_ask_the_memory_node_are_long() {
    for line in ["DBSIZE", "SCAN 0", "KEYS *", "RANDOMKEY", "FLUSHALL", "FLUSHDB", "INFO"] {
        let (_, mut client) = cluster();
        let (mut input, mut output) = (format!("{line}\r\n").into_bytes(), Vec::new());
        let flow = client.session.process_short(&mut input, &mut output, START_MS);
        assert_eq!((flow, output.len()), (Flow::Long, 0), "{line}");
    }
}

/// The store has them as a single server's store does, in the slots of the keys that clients name.
#[test]
fn keys_with_the_mark_are_stored_as_a_single_server_does() {
    const MARK: &[u8] = b"\xfe\xa7<\xd1^\x92\x0b";
    let (_, mut client) = cluster();
    let mut keys = (0..=255).map(|byte| [MARK, &[byte], b"k"].concat()).chain([[MARK, b"\xff"].concat()]);
    let key = keys.find(|key| slot(key) < 8192).unwrap();
    let escaped = [MARK, b"\0", &key[MARK.len()..]].concat();
    assert_ne!(slot(&escaped), slot(&key));
    let number = slot(&key).to_string();
    let listed = format!("${} {}", key.len(), String::from_utf8_lossy(&key));
    let calls: &[(&[&[u8]], &str)] = &[
        (&[b"SET", &key, b"1"], "+OK"),
        (&[b"WATCH", &key], "+OK"),
        (&[b"MULTI"], "+OK"),
        (&[b"INCR", &key], "+QUEUED"),
        (&[b"EXEC"], "*1 :2"),
        (&[b"EVAL", b"return redis.call('INCR', KEYS[1])", b"1", &key], ":3"),
        (&[b"COPY", &key, &key, b"DB", b"0"], "-ERR source and destination objects are the same"),
        (&[b"PEXPIRE", &key, b"1000"], ":1"),
        (&[b"GET", &key], "$1 3"),
        (&[b"MGET", &key, &key], "*2 $1 3 $1 3"),
        (&[b"DBSIZE"], ":1"),
        (&[b"RANDOMKEY"], &listed),
        (&[b"KEYS", b"*"], &format!("*1 {listed}")),
        (&[b"SCAN", b"0"], &format!("*2 $1 0 *1 {listed}")),
        (&[b"CLUSTER", b"KEYSLOT", &key], &format!(":{number}")),
        (&[b"CLUSTER", b"COUNTKEYSINSLOT", number.as_bytes()], ":1"),
        (&[b"CLUSTER", b"GETKEYSINSLOT", number.as_bytes(), b"9"], &format!("*1 {listed}")),
    ];
    for (words, reply) in calls {
        assert_eq!(client.send(&command(words)).0, *reply, "{}", words[0].escape_ascii());
    }
    // In one piece.
    assert_eq!(client.send(&command(&[b"SET", &key, b"4"]).repeat(2)).0, "+OK +OK");
    assert_eq!(client.send(&command(&[b"GET", &key]).repeat(2)).0, "$1 4 $1 4");
    let stored: Vec<Vec<u8>> = client.shared.store.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(stored, [&escaped[..]]);
    assert_eq!(slot_of(&escaped), slot(&key));
    assert_eq!(client.send(&command(&[b"DEL", &key])).0, ":1");
    client.expect(&[("DBSIZE", ":0")]);
}
