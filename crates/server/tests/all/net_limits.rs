//! The event loops with malicious or broken clients.

use std::{io::Write, sync::atomic::Ordering};

use crate::common::{Running, ask, command, expect, rest};

const PASSWORD: (&str, &str) = ("requirepass", "open sesame");
/// A timeout, in seconds, that a test on an overloaded machine does not reach.
const TIME_ENOUGH: (&str, &str) = ("auth-timeout", "600");

#[test]
fn post_and_host_close_the_connection() {
    let server = Running::start(&[]);
    for request in [
        "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "Host: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut client = server.tcp();
        client.write_all(request.as_bytes()).unwrap();
        client.write_all(b"SET stolen 1\r\n").unwrap_or_default();
        rest(&mut client);
    }
    assert!(server.shared.store.get(b"stolen").unwrap().is_none());
}

#[test]
fn protocol_error_is_answered_and_closes() {
    let server = Running::start(&[]);
    for (request, error) in [
        ("*1\r\n+PING\r\n", "-ERR Protocol error: expected '$', got '+'\r\n"),
        (
            "*99999999999\r\n",
            "-ERR Protocol error: invalid multibulk length (a command has at most 1048576 arguments)\r\n",
        ),
        (
            "*1\r\n$99999999999\r\n",
            "-ERR Protocol error: invalid bulk length (proto-max-bulk-len is 67108864 bytes)\r\n",
        ),
        ("SET \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    ] {
        let mut client = server.tcp();
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(&rest(&mut client)), error);
    }
    // A client that continues to send can still read the error.
    let mut client = server.tcp();
    client.write_all(b"*1\r\n+").unwrap();
    for _ in 0..16 {
        let _ = client.write_all(&[b'x'; 4096]);
    }
    expect(&mut client, b"-ERR Protocol error");
}

#[test]
fn endless_inline_request_is_refused() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    let _ = client.write_all(&[b'a'; 80 << 10]);
    assert_eq!(rest(&mut client), b"-ERR Protocol error: too big inline request (at most 65536 bytes)\r\n");
}

#[test]
fn too_long_value_is_refused_at_its_header() {
    let server = Running::start(&[("proto-max-bulk-len", "1mb")]);
    let mut client = server.connect();
    ask(&mut client, &command(&[b"SET", b"k", &[0; 1 << 20]]), b"+OK\r\n");
    ask(
        &mut client,
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n",
        b"-ERR Protocol error: invalid bulk length (proto-max-bulk-len is 1048576 bytes)\r\n",
    );
    assert!(rest(&mut client).is_empty());
    // An announced value takes no memory before its bytes arrive.
    let mut clients: Vec<_> = (0..64).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\nabc").unwrap();
    }
    ask(&mut server.connect(), b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn unauthenticated_input_is_limited() {
    let server = Running::start(&[PASSWORD, TIME_ENOUGH]);
    let cases: [(&[u8], &str); 3] = [
        (
            b"*11\r\n",
            "-ERR Protocol error: unauthenticated multibulk length (at most 10 arguments before AUTH)\r\n",
        ),
        (
            b"*2\r\n$4\r\nECHO\r\n$20000\r\n",
            "-ERR Protocol error: unauthenticated bulk length (at most 16384 bytes before AUTH)\r\n",
        ),
        (&[b'a'; 20 << 10], "-ERR Protocol error: too big inline request (at most 16384 bytes)\r\n"),
    ];
    for (request, error) in cases {
        let mut client = server.connect();
        let _ = client.write_all(request);
        assert_eq!(String::from_utf8_lossy(&rest(&mut client)), error);
    }
    let mut client = server.connect();
    ask(&mut client, b"GET k\r\n", b"-NOAUTH Authentication required.\r\n");
    ask(
        &mut client,
        b"AUTH wrong\r\n",
        b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    );
    ask(&mut client, b"AUTH \"open sesame\"\r\n", b"+OK\r\n");
    ask(&mut client, &command(&[b"SET", b"k", &[b'v'; 100_000]]), b"+OK\r\n");
}

#[test]
fn unauthenticated_output_is_limited() {
    let server = Running::start(&[PASSWORD, TIME_ENOUGH]);
    let mut client = server.connect();
    let _ = client.write_all(&b"GET k\r\n".repeat(2000));
    assert!(rest(&mut client).len() <= 4 << 10);
}

#[test]
fn unauthenticated_time_is_limited() {
    let server = Running::start(&[PASSWORD, TIME_ENOUGH]);
    let (mut client, mut known) = (server.connect(), server.connect());
    ask(&mut known, b"AUTH \"open sesame\"\r\n", b"+OK\r\n");
    ask(&mut client, b"PING\r\n", b"-NOAUTH Authentication required.\r\n");
    ask(&mut known, b"CONFIG SET auth-timeout 1\r\n", b"+OK\r\n");
    assert!(rest(&mut client).is_empty());
    ask(&mut known, b"PING\r\n", b"+PONG\r\n");
}

/// Output from before a RESET does not count towards the limit.
#[test]
fn reset_restarts_the_output_limit() {
    let server = Running::start(&[PASSWORD]);
    let value = vec![b'v'; 10_000];
    let mut client = server.connect();
    ask(&mut client, b"AUTH \"open sesame\"\r\n", b"+OK\r\n");
    ask(&mut client, &command(&[b"SET", b"k", &value]), b"+OK\r\n");
    for _ in 0..3 {
        client.write_all(b"GET k\r\nRESET\r\n").unwrap();
        expect(&mut client, &[b"$10000\r\n", &value[..], b"\r\n+RESET\r\n"].concat());
        ask(&mut client, &b"GET k\r\n".repeat(99), &b"-NOAUTH Authentication required.\r\n".repeat(99));
        ask(&mut client, b"AUTH \"open sesame\"\r\n", b"+OK\r\n");
    }
    client.write_all(b"RESET\r\n").unwrap();
    let _ = client.write_all(&b"GET k\r\n".repeat(2000));
    assert!(rest(&mut client).len() <= 5 << 10);
}

#[test]
fn idle_connection_is_closed_after_timeout() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    ask(&mut client, b"CONFIG SET timeout 1\r\n", b"+OK\r\n");
    assert!(rest(&mut client).is_empty());
}

#[test]
fn clients_over_maxclients_get_an_error() {
    let server = Running::start(&[("maxclients", "3"), ("threads", "2")]);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        ask(client, b"PING\r\n", b"+PONG\r\n");
    }
    assert_eq!(rest(&mut server.connect()), b"-ERR max number of clients reached\r\n");
    assert_eq!(rest(&mut server.tcp()), b"-ERR max number of clients reached\r\n");
    assert_eq!(server.shared.stats.connections_rejected.load(Ordering::Relaxed), 2);
    ask(&mut clients[0], b"CONFIG SET maxclients 4\r\n", b"+OK\r\n");
    ask(&mut server.connect(), b"PING\r\n", b"+PONG\r\n");
}

/// CLIENT KILL: the connection executes nothing more, and is closed.
#[test]
fn killed_connections_are_closed() {
    let server = Running::start(&[("threads", "2")]);
    let mut own = server.tcp();
    ask(&mut own, b"CLIENT ID\r\n", b":1\r\n");
    let mut one = server.tcp();
    ask(&mut one, b"CLIENT ID\r\n", b":2\r\n");
    let mut other = server.connect();
    ask(&mut other, b"CLIENT ID\r\n", b":3\r\n");
    for (request, reply) in [
        ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command"),
        ("CLIENT KILL ID 10 WRONG", "-ERR syntax error"),
        ("CLIENT KILL ID str", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL TYPE wrong", "-ERR Unknown client type 'wrong'"),
        ("CLIENT KILL USER nobody", "-ERR No such user 'nobody'"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
        ("CLIENT KILL MAXAGE str", "-ERR maxage is not an integer or out of range"),
        ("CLIENT KILL MAXAGE -1", "-ERR maxage should be greater than 0"),
        ("CLIENT KILL MAXAGE 9000000", ":0"),
        ("CLIENT KILL 127.0.0.1:1", "-ERR No such client"),
        ("CLIENT KILL ID 999", ":0"),
        ("CLIENT KILL TYPE pubsub", ":0"),
        ("CLIENT KILL ID 1", ":0"),
        ("CLIENT KILL ID 2 TYPE normal USER default", ":1"),
        ("CLIENT KILL ID 2", ":0"),
    ] {
        ask(&mut own, format!("{request}\r\n").as_bytes(), format!("{reply}\r\n").as_bytes());
    }
    let _ = one.write_all(b"SET k v\r\n");
    assert!(rest(&mut one).is_empty());
    assert_eq!(server.shared.clients.len(), 2);
    let address = format!("CLIENT KILL {}:0\r\n", server.socket().display());
    ask(&mut own, address.as_bytes(), b"+OK\r\n");
    assert!(rest(&mut other).is_empty());
    // Its own connection closes behind the reply.
    own.write_all(b"EXISTS k\r\nCLIENT KILL SKIPME no\r\nSET k v\r\n").unwrap();
    assert_eq!(rest(&mut own), b":0\r\n:1\r\n");
    assert!(server.shared.store.get(b"k").unwrap().is_none());
}

#[test]
fn closed_connection_frees_its_place() {
    let server = Running::start(&[("maxclients", "1")]);
    for _ in 0..20 {
        let mut client = server.connect();
        ask(&mut client, b"QUIT\r\n", b"+OK\r\n");
        assert!(rest(&mut client).is_empty());
    }
}
