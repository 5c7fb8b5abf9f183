//! The order of commands of several connections: those of a connection that its client has closed
//! come before those of connections that were made afterwards, or not at all.

use std::{io::Write, net::TcpStream, os::unix::net::UnixStream, sync::Arc};

use terrace::ManualClock;

use crate::common::{Cluster, GATE, Refusing, Running, START_MS, Spot, array, ask, command, expect, fresh};

fn set(key: &str, value: &str) -> Vec<u8> {
    command(&[b"SET", key.as_bytes(), value.as_bytes()])
}

/// Checks that every key has the value that was written last.
fn check_all(server: &Running, keys: &[String]) {
    let mut client = server.connect();
    for key in keys {
        ask(&mut client, &command(&[b"GET", key.as_bytes()]), b"$5\r\nfinal\r\n");
    }
}

/// Returns once the loops have seen all that was sent before.
fn wait_for_loops(server: &Running) {
    ask(&mut server.connect(), b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn closed_connections_are_served_before_later_ones() {
    let keys: Vec<String> = (0..100).map(|nth| format!("key{nth}")).collect();
    let mut last = Vec::new();
    let connect = |port| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let send_all = |port| {
        for key in &keys {
            for value in ["stale", "older", "other"] {
                connect(port).write_all(&set(key, value)).unwrap();
            }
            let mut client = connect(port);
            client.write_all(&set(key, "final")).unwrap();
            last.push(client);
        }
    };
    let settings = [("threads", "4"), ("tcp-backlog", "1000")];
    let server = Running::start_late(fresh().create().unwrap(), &settings, None, send_all);
    last.iter_mut().for_each(|client| expect(client, b"+OK\r\n"));
    check_all(&server, &keys);
}

#[test]
fn closed_connections_of_busy_loops_come_first() {
    const LOOPS: usize = 3;
    let engine = Refusing::new(Arc::new(ManualClock::at(START_MS)));
    let server = Running::start_with(engine.store(), &[("threads", &LOOPS.to_string())]);
    // One of each loop.
    let connect = || -> Vec<UnixStream> { (0..LOOPS).map(|_| server.connect()).collect() };
    let mut busy = connect();
    let keys: Vec<String> = (0..LOOPS).map(|nth| format!("key{nth}")).collect();
    for _ in 0..20 {
        let mut old = connect();
        old.iter_mut().chain(&mut busy).for_each(|client| ask(client, b"PING\r\n", b"+PONG\r\n"));
        engine.close_gate(true);
        busy.iter_mut().for_each(|client| client.write_all(&command(&[b"SET", GATE, b""])).unwrap());
        engine.wait_for_writers(LOOPS);
        old.iter_mut().zip(&keys).for_each(|(client, key)| client.write_all(&set(key, "stale")).unwrap());
        drop(old);
        // So that other loops have the new ones.
        let _between = server.connect();
        let mut new = connect();
        new.iter_mut().zip(&keys).for_each(|(client, key)| client.write_all(&set(key, "final")).unwrap());
        engine.close_gate(false);
        new.iter_mut().chain(&mut busy).for_each(|client| expect(client, b"+OK\r\n"));
        check_all(&server, &keys);
    }
}

/// A node of a cluster with four loops, whose slot of `foo` is on its way.
fn waiting_node() -> (Running, Cluster) {
    let cluster = Cluster::new(&[7000]);
    cluster.put("foo", Spot::Held);
    let server =
        Running::start_node(fresh().create().unwrap(), &[("threads", "4")], Some(cluster.routing(0)));
    (server, cluster)
}

#[test]
fn commands_that_wait_end_with_their_connection() {
    let (server, cluster) = waiting_node();
    let send = |bytes: &[u8]| {
        let mut client = server.connect();
        client.write_all(bytes).unwrap();
        client
    };
    let append = |text: &[u8]| send(&command(&[b"APPEND", b"foo", text]));
    let clients: Vec<UnixStream> = (0..8).map(|_| append(b"gone")).collect();
    let mut other = append(b"here");
    wait_for_loops(&server);
    drop(clients);
    wait_for_loops(&server);
    // The slot is here, and everything that still waits runs.
    cluster.put("foo", Spot::At(0));
    expect(&mut other, b":4\r\n");
    wait_for_loops(&server);
    ask(&mut server.connect(), b"GET foo\r\n", b"$4\r\nhere\r\n");
}

/// The slot leaves and comes back while a connection waits to be let in.
#[test]
fn closed_connection_of_before_its_slot_came_back_is_dropped() {
    let cluster = Cluster::new(&[7000]);
    let engine = Refusing::new(Arc::new(ManualClock::at(START_MS)));
    let server = Running::start_node(engine.store(), &[("threads", "2")], Some(cluster.routing(0)));
    // The second one is of the loop that does not accept.
    let (mut first, mut busy) = (server.connect(), server.connect());
    ask(&mut first, b"PING\r\n", b"+PONG\r\n");
    ask(&mut busy, b"PING\r\n", b"+PONG\r\n");
    engine.close_gate(true);
    busy.write_all(&command(&[b"SET", GATE, b""])).unwrap();
    engine.wait_for_writers(1);
    server.connect().write_all(&set("foo", "stale")).unwrap();
    // Once it is accepted. It waits for the loop that is busy.
    let mut has_accepted = || {
        first.write_all(b"MULTI\r\nINFO stats\r\nEXEC\r\n").unwrap();
        expect(&mut first, b"+OK\r\n+QUEUED\r\n");
        String::from_utf8_lossy(&array(&mut first)[0]).contains("total_connections_received:3\r")
    };
    while !has_accepted() {}
    cluster.put("foo", Spot::Held);
    cluster.put("foo", Spot::At(0));
    engine.close_gate(false);
    expect(&mut busy, b"+OK\r\n");
    ask(&mut server.connect(), b"GET foo\r\n", b"$-1\r\n");
}

#[test]
fn commands_that_wait_run_in_the_order_of_arrival() {
    let (server, cluster) = waiting_node();
    let mut clients = Vec::new();
    for letter in b'a'..=b'p' {
        let mut client = server.connect();
        client.write_all(&command(&[b"APPEND", b"foo", &[letter]])).unwrap();
        clients.push(client);
        wait_for_loops(&server);
    }
    cluster.put("foo", Spot::At(0));
    for (nth, client) in clients.iter_mut().enumerate() {
        expect(client, format!(":{}\r\n", nth + 1).as_bytes());
    }
    ask(&mut server.connect(), b"GET foo\r\n", b"$16\r\nabcdefghijklmnop\r\n");
}
