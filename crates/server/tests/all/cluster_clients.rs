//! Nodes of a cluster beside redis-server, over sockets, and driven by redis-py.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use crate::{
    common::{Client, Cluster, Running, START_MS, Spot, ask, command, expect, free_port, fresh},
    redis::{Connection, Redis},
};
use terrace::ManualClock;
use terrace_protocol::SLOTS;
use terrace_server::{config::Config, shared::Shared};

/// A redis-server that is a cluster of its own and serves some of the slots, and a client of ours
/// that is told the same about itself.
struct Both {
    redis: Redis,
    cluster: Cluster,
    theirs: Connection,
    ours: Client,
}

impl Both {
    /// Both serve the slots up to `last`. `None` if redis-server is not installed.
    fn start(last: u16, host: Option<&str>) -> Option<Both> {
        let (port, bus) = (free_port(), free_port());
        let (port_text, bus) = (port.to_string(), bus.to_string());
        let mut arguments = vec!["--cluster-enabled", "yes", "--port", &port_text, "--cluster-port", &bus];
        arguments.extend(["--cluster-require-full-coverage", "no", "--cluster-announce-ip", "127.0.0.1"]);
        if let Some(host) = host {
            arguments.extend(["--cluster-announce-hostname", host]);
            arguments.extend(["--cluster-preferred-endpoint-type", "hostname"]);
        }
        let redis = Redis::start_with(&arguments)?;
        let mut theirs = redis.connect();
        assert_eq!(line(&mut theirs, &format!("CLUSTER ADDSLOTSRANGE 0 5000 5001 {last}")), "+OK\r\n");
        while !line(&mut theirs, "CLUSTER INFO").contains("cluster_state:ok") {
            std::thread::yield_now();
        }
        let id = line(&mut theirs, "CLUSTER MYID");
        let cluster = Cluster::new(&[port]);
        cluster.set_epoch(0);
        cluster.change(|spots, nodes| {
            spots[usize::from(last) + 1..].fill(Spot::Nowhere);
            nodes[0].id = id.lines().nth(1).unwrap().into();
            nodes[0].host = host.map(String::from);
        });
        let clock = Arc::new(ManualClock::at(START_MS));
        let store = fresh().clock(clock.clone()).create().expect("memory for a store");
        let shared = Shared::of_node(store, Config::default(), cluster.routing(0));
        Some(Both { redis, cluster, theirs, ours: Client::of(Arc::new(shared), clock) })
    }

    fn compare(&mut self, lines: &[&str]) {
        for line in lines {
            let theirs = self.theirs.ask(format!("{line}\r\n").as_bytes(), 1).remove(0);
            let (mut input, mut ours) = (format!("{line}\r\n").into_bytes(), Vec::new());
            self.ours.session.process(&mut input, &mut ours, START_MS);
            let [ours, theirs] = [ours, theirs].map(|reply| comparable(&String::from_utf8(reply).unwrap()));
            assert_eq!(ours, theirs, "{line}");
        }
    }
}

fn line(connection: &mut Connection, line: &str) -> String {
    String::from_utf8(connection.ask(format!("{line}\r\n").as_bytes(), 1).remove(0)).unwrap()
}

/// A reply without the port of the cluster bus, which Terrace lacks, and the length that it
/// changes.
fn comparable(reply: &str) -> String {
    let Some((before, after)) = reply.split_once('@').filter(|_| reply.contains(" myself,")) else {
        return reply.into();
    };
    let before = before.split_once("\r\n").unwrap().1;
    format!("{before}@{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[test]
fn replies_of_a_node_equal_those_of_redis() {
    for host in [None, Some("one.example")] {
        let Some(mut both) = Both::start(SLOTS - 1, host) else { return };
        for protocol in ["HELLO 2", "HELLO 3"] {
            both.ours.ask(protocol);
            line(&mut both.theirs, protocol);
            both.compare(&[
                "CLUSTER SLOTS",
                "CLUSTER SHARDS",
                "CLUSTER NODES",
                "CLUSTER INFO",
                "CLUSTER LINKS",
                "CLUSTER MYID",
            ]);
        }
    }
}

#[test]
fn refused_cluster_commands_equal_those_of_redis() {
    let Some(mut both) = Both::start(8191, None) else { return };
    both.compare(&[
        "CLUSTER KEYSLOT foo",
        "CLUSTER KEYSLOT {a}{b}",
        "CLUSTER KEYSLOT",
        "CLUSTER",
        "CLUSTER NONE",
        "CLUSTER MYID x",
        "CLUSTER REPLICAS x",
        "CLUSTER COUNT-FAILURE-REPORTS x",
        "CLUSTER COUNTKEYSINSLOT x",
        "CLUSTER COUNTKEYSINSLOT -1",
        "CLUSTER COUNTKEYSINSLOT 16384",
        "CLUSTER COUNTKEYSINSLOT 5061",
        "CLUSTER GETKEYSINSLOT 5061 x",
        "CLUSTER GETKEYSINSLOT 5061 -1",
        "CLUSTER GETKEYSINSLOT 16384 1",
    ]);
}

#[test]
fn redirections_equal_those_of_redis() {
    let Some(mut both) = Both::start(8191, None) else { return };
    both.compare(&[
        "SELECT 0",
        "SELECT 1",
        "SELECT x",
        "READONLY",
        "READWRITE x",
        "READWRITE",
        "ASKING",
        "GET foo",
        "GET",
        "SET bar 1",
        "CLUSTER COUNTKEYSINSLOT 5061",
        "CLUSTER GETKEYSINSLOT 5061 10",
        "MGET bar {bar}x",
        "MGET bar hello",
        // The other way round, Redis finds no node for the first key, and looks no further.
        "MGET bar foo",
        "MSET bar 1 hello",
        "MSET bar 1 {bar}x",
        "DEL foo",
        "RENAME bar foo",
        "RENAME bar {bar}y",
        "OBJECT ENCODING foo",
        "MEMORY USAGE foo",
        "WATCH foo",
        "WATCH bar hello",
        "DBSIZE",
        "INFO cluster",
    ]);
}

#[test]
fn redirected_transactions_equal_those_of_redis() {
    let Some(mut both) = Both::start(8191, None) else { return };
    both.compare(&["MULTI", "SET bar 1", "APPEND {bar}x 1", "CLUSTER KEYSLOT foo", "READONLY", "EXEC"]);
    both.compare(&["MULTI", "GET bar", "GET hello", "EXEC", "EXEC"]);
    both.compare(&["MULTI", "GET foo", "GET bar", "EXEC"]);
    both.compare(&["MULTI", "GET foo", "GET bar", "GET hello", "EXEC"]);
    both.compare(&["MULTI", "GET bar", "GET hello", "GET foo", "EXEC"]);
    both.compare(&["MULTI", "GET bar", "NONE", "GET hello", "EXEC"]);
    both.compare(&["MULTI", "GET bar", "GET hello", "EXEC x", "EXEC"]);
    both.compare(&["MULTI", "MGET bar hello", "DISCARD", "MULTI", "EXEC"]);
    both.compare(&["MULTI", "WATCH foo", "EXEC", "MULTI", "WATCH bar", "EXEC"]);
    both.compare(&[
        "WATCH hello",
        "MULTI",
        "GET bar",
        "EXEC",
        "WATCH bar",
        "SET bar 2",
        "MULTI",
        "GET bar",
        "EXEC",
    ]);
    // A slot that leaves between queueing and EXEC; and it is not served then.
    both.compare(&["MULTI", "GET bar"]);
    let mut another = both.redis.connect();
    assert_eq!(line(&mut another, "CLUSTER DELSLOTS 5061"), "+OK\r\n");
    both.cluster.put("bar", Spot::Nowhere);
    both.compare(&["PING", "EXEC", "EXEC", "GET bar", "MULTI", "GET bar", "EXEC"]);
}

#[test]
fn descriptions_of_cluster_commands_equal_those_of_redis() {
    let Some(mut both) = Both::start(8191, None) else { return };
    for name in [
        "asking",
        "readonly",
        "readwrite",
        "cluster|count-failure-reports",
        "cluster|countkeysinslot",
        "cluster|getkeysinslot",
        "cluster|help",
        "cluster|info",
        "cluster|keyslot",
        "cluster|links",
        "cluster|myid",
        "cluster|nodes",
        "cluster|replicas",
        "cluster|shards",
        "cluster|slots",
    ] {
        both.compare(&[&format!("COMMAND INFO {name}")]);
    }
}

#[test]
fn held_connection_waits_while_its_loop_serves_others() {
    let cluster = Cluster::new(&[7000, 7001]);
    let store = fresh().size(terrace::ByteSize::mib(64)).create().unwrap();
    let running = Running::start_node(store, &[("threads", "1")], Some(cluster.routing(0)));
    cluster.put("bar", Spot::Held);
    let (mut waiting, mut other) = (running.connect(), running.connect());
    // A worker executes the first command, which is long, and meets the one that waits.
    let long: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain((0..2000).map(|_| &b"hello"[..])).collect();
    let mut input = command(&long);
    input.extend(command(&[b"SET", b"bar", b"1"]));
    input.extend(command(&[b"GET", b"bar"]));
    waiting.write_all(&input).unwrap();
    expect(&mut waiting, format!("*2000\r\n{}", "$-1\r\n".repeat(2000)).as_bytes());
    ask(&mut other, &command(&[b"GET", b"bar"]), b"");
    let mut third = running.connect();
    for _ in 0..100 {
        ask(&mut third, b"GET hello\r\n", b"$-1\r\n");
    }
    cluster.put("bar", Spot::At(0));
    expect(&mut waiting, b"+OK\r\n$1\r\n1\r\n");
    let mut reply = [0; 4];
    std::io::Read::read_exact(&mut other, &mut reply).unwrap();
    assert!(reply == *b"$-1\r" || reply == *b"$1\r\n", "{reply:?}");
    // It has left: the next ones are sent there.
    cluster.put("hello", Spot::Held);
    third.write_all(b"GET hello\r\nPING\r\n").unwrap();
    cluster.put("hello", Spot::At(1));
    expect(&mut third, b"-MOVED 866 127.0.0.1:7001\r\n+PONG\r\n");
}

/// Whether python3 has redis-py. If not, says so.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn has_redis_py() -> bool {
    let found = Command::new("python3").args(["-c", "import redis.cluster"]).output();
    let has = found.is_ok_and(|found| found.status.success());
    if !has {
        eprintln!("\n*** SKIPPED: python3 has no redis-py to drive the cluster (pip install redis) ***\n");
    }
    has
}

#[test]
fn redis_py_follows_the_slots() {
    if !has_redis_py() {
        return;
    }
    let cluster = Cluster::new(&[7000, 7001]);
    // The nodes share their memory: a slot that moves takes its keys along.
    let store = fresh().size(terrace::ByteSize::mib(64)).create().unwrap();
    let running = [0, 1].map(|me| Running::start_node(store.clone(), &[], Some(cluster.routing(me))));
    cluster.change(|_, nodes| {
        nodes.iter_mut().zip(&running).for_each(|(node, running)| node.port = running.port);
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/cluster.py");
    let ports = running.each_ref().map(|running| running.port.to_string());
    let mut python = Command::new("python3")
        .arg(script)
        .args(&ports)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut stdin = python.stdin.take().unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let mut next = || lines.next().map(Result::unwrap);
    assert_eq!(next().as_deref(), Some("settled"));
    // Every third slot changes its owner.
    cluster.change(|spots, _| {
        spots.iter_mut().step_by(3).for_each(|spot| *spot = Spot::At(usize::from(*spot == Spot::At(0))));
    });
    stdin.write_all(b"moved\n").unwrap();
    assert_eq!(next().as_deref(), Some("followed"));
    cluster.change(|spots, _| spots.fill(Spot::At(1)));
    stdin.write_all(b"moved\n").unwrap();
    assert_eq!(next().as_deref(), Some("passed"));
    assert!(python.wait().unwrap().success());
    for running in &running {
        let mut stream = running.connect();
        stream.write_all(b"INFO errorstats\r\nQUIT\r\n").unwrap();
        let page = String::from_utf8(crate::common::rest(&mut stream)).unwrap();
        assert!(page.contains("errorstat_MOVED:count="), "clients were redirected by {page}");
    }
}
