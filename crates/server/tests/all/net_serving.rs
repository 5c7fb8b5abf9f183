//! The event loops with regular clients: pipelines, large values, slow and half-closed connections.

use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::atomic::Ordering,
};

use crate::common::{Running, ask, command, expect, rest};

#[test]
fn tcp_and_unix_sockets_are_served() {
    let server = Running::start(&[]);
    ask(&mut server.tcp(), b"PING\r\n", b"+PONG\r\n");
    ask(&mut server.connect(), b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n");
}

#[test]
fn connections_of_all_loops_share_one_store() {
    let server = Running::start(&[("threads", "3")]);
    let mut clients: Vec<_> = (0..7).map(|_| server.connect()).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        let key = nth.to_string();
        ask(client, &command(&[b"SET", key.as_bytes(), key.as_bytes()]), b"+OK\r\n");
    }
    for client in &mut clients {
        ask(client, &command(&[b"MGET", b"0", b"3", b"6"]), b"*3\r\n$1\r\n0\r\n$1\r\n3\r\n$1\r\n6\r\n");
    }
}

#[test]
fn request_in_single_bytes_is_answered() {
    let server = Running::start(&[]);
    let mut client = server.tcp();
    client.set_nodelay(true).unwrap();
    for byte in command(&[b"SET", b"key", b"a value in many pieces"]) {
        client.write_all(&[byte]).unwrap();
    }
    expect(&mut client, b"+OK\r\n");
    ask(&mut client, b"GET key\r\n", b"$22\r\na value in many pieces\r\n");
}

#[test]
fn huge_pipeline_is_answered_in_order() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    const COMMANDS: usize = 200_000;
    let mut writer = client.try_clone().unwrap();
    let sender = std::thread::Builder::new()
        .spawn(move || {
            let mut bytes = Vec::new();
            for nth in 0..COMMANDS {
                bytes.extend(command(&[b"ECHO", nth.to_string().as_bytes()]));
            }
            writer.write_all(&bytes).unwrap();
        })
        .unwrap();
    let mut expected = Vec::new();
    for nth in 0..COMMANDS {
        let text = nth.to_string();
        expected.extend(format!("${}\r\n{text}\r\n", text.len()).bytes());
    }
    let mut found = vec![0; expected.len()];
    client.read_exact(&mut found).unwrap();
    sender.join().unwrap();
    assert!(found == expected);
}

#[test]
fn client_may_send_everything_before_it_reads() {
    // 64 MiB of replies wait in the server, because the client does not read meanwhile.
    let server = Running::start(&[]);
    let mut client = server.connect();
    let value = vec![b'v'; 64 << 10];
    ask(&mut client, &command(&[b"SET", b"key", &value]), b"+OK\r\n");
    client.write_all(&b"GET key\r\n".repeat(1000)).unwrap();
    let reply = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut found = vec![0; reply.len()];
    for _ in 0..1000 {
        client.read_exact(&mut found).unwrap();
        assert!(found == reply);
    }
    ask(&mut client, b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn server_stops_reading_from_client_that_does_not_read() {
    let server = Running::start(&[("threads", "1"), ("client-output-buffer", "1mb")]);
    let mut other = server.connect();
    let value = vec![b'v'; 1 << 20];
    ask(&mut other, &command(&[b"SET", b"key", &value]), b"+OK\r\n");

    let slow = server.connect();
    // Without this, the kernel of some machines would buffer all of it.
    rustix::net::sockopt::set_socket_send_buffer_size(&slow, 64 << 10).unwrap();
    let mut writer = slow.try_clone().unwrap();
    const GETS: usize = 100_000;
    let sender = std::thread::Builder::new().spawn(move || {
        // Far more than the socket buffers hold: it is written only as fast as the server reads.
        writer.write_all(&b"GET key\r\n".repeat(GETS)).is_ok()
    });
    for _ in 0..100 {
        ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    }
    // 1 MiB may wait, plus one reply, plus the kernel's buffers: far less than 100 GB.
    assert!(server.shared.stats.bytes_out.load(Ordering::Relaxed) < 64 << 20);
    slow.shutdown(Shutdown::Both).unwrap();
    assert!(!sender.unwrap().join().unwrap());
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn half_closed_client_gets_its_replies() {
    let server = Running::start(&[]);
    for large in [1, 4 << 20] {
        let mut client = server.tcp();
        let value = vec![b'x'; large];
        client.write_all(&[command(&[b"SET", b"k", &value]), command(&[b"GET", b"k"])].concat()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let expected = [b"+OK\r\n", format!("${large}\r\n").as_bytes(), &value, b"\r\n"].concat();
        assert!(rest(&mut client) == expected);
    }
}

#[test]
fn large_values_are_stored_and_returned() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    let value: Vec<u8> = (0..48_u32 << 20).map(|nth| (nth % 251) as u8).collect();
    ask(&mut client, &command(&[b"SET", b"large", &value]), b"+OK\r\n");
    client.write_all(&command(&[b"GET", b"large"])).unwrap();
    expect(&mut client, format!("${}\r\n", value.len()).as_bytes());
    let mut found = vec![0; value.len()];
    client.read_exact(&mut found).unwrap();
    assert!(found == value);
    expect(&mut client, b"\r\n");
    ask(&mut client, b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn reset_connection_does_not_affect_others() {
    let server = Running::start(&[("threads", "1")]);
    let mut other = server.tcp();
    ask(&mut other, &command(&[b"SET", b"k", &[b'v'; 1 << 20]]), b"+OK\r\n");
    for _ in 0..50 {
        let mut client = server.tcp();
        // The client closes with a reply unread, which resets the connection.
        client.write_all(&b"GET k\r\n".repeat(10)).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        drop(client);
        ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    }
}

#[test]
fn shutdown_stops_server_and_closes_clients() {
    let mut server = Running::start(&[]);
    let mut other = server.connect();
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    let mut client = server.connect();
    client.write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
    server.wait();
    assert!(rest(&mut client).is_empty());
    assert!(rest(&mut other).is_empty());
    assert!(!server.socket().exists());
}

#[test]
fn requests_before_the_stop_are_answered() {
    let mut server = Running::start(&[("threads", "2")]);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        ask(client, b"PING\r\n", b"+PONG\r\n");
        client.write_all(&b"INCR n\r\n".repeat(5000)).unwrap();
    }
    server.stop();
    let answered: usize =
        clients.iter_mut().map(|client| rest(client).iter().filter(|&&byte| byte == b':').count()).sum();
    assert_eq!(answered, 4 * 5000);
    assert_eq!(server.shared.store.get(b"n").unwrap().unwrap(), b"20000");
}

#[test]
fn bytes_of_a_reply_sent_in_later_turns_are_counted() {
    let server = Running::start(&[("threads", "1")]);
    let mut client = server.connect();
    let value = vec![b'v'; 16 << 20];
    ask(&mut client, &command(&[b"SET", b"key", &value]), b"+OK\r\n");
    let before = server.shared.stats.bytes_out.load(Ordering::Relaxed);
    client.write_all(b"GET key\r\n").unwrap();
    let mut reply = vec![0; b"$16777216\r\n".len() + value.len() + 2];
    client.read_exact(&mut reply).unwrap();
    let counted = || server.shared.stats.bytes_out.load(Ordering::Relaxed) - before;
    // The server adds to its counters at the end of a turn, and no other request may cause one.
    let is_counted = (0..10_000_000).any(|_| {
        std::thread::yield_now();
        counted() >= reply.len() as u64
    });
    assert!(is_counted, "{} of {} bytes counted", counted(), reply.len());
}
