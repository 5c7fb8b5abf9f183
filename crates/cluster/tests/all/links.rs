//! The control channel over real connections.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use terrace_cluster::link::{LinkError, Receiver, Secret, Sender, accept, dial};
use terrace_cluster::message::{ToMemory, WIRE};

type Link = Result<(Sender, Receiver), LinkError>;

/// Both ends of a link whose client has this key; the server's is "key".
fn link(key: &str) -> (Link, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || accept(listener.accept().unwrap().0, &Secret::new("key")));
    let client = dial(address, &Secret::new(key));
    (client, server.join().unwrap())
}

fn request(id: u64) -> ToMemory {
    ToMemory::Get { id, key: vec![7; 1000] }
}

#[test]
fn messages_arrive_in_order() {
    let (client, server) = link("key\n");
    let ((to_server, mut at_client), (to_client, mut at_server)) = (client.unwrap(), server.unwrap());
    for id in 0..100 {
        to_server.send(&request(id)).unwrap();
        to_client.send(&request(id + 1000)).unwrap();
    }
    for id in 0..100 {
        assert_eq!(at_server.receive::<ToMemory>().unwrap(), request(id));
        assert_eq!(at_client.receive::<ToMemory>().unwrap(), request(id + 1000));
    }
    to_client.close();
    assert!(matches!(at_server.receive::<ToMemory>(), Err(LinkError::Closed(_))));
    assert!(matches!(at_client.receive::<ToMemory>(), Err(LinkError::Closed(_))));
}

#[test]
fn both_sides_tell_that_the_keys_differ() {
    let (client, server) = link("another");
    assert!(matches!(client, Err(LinkError::WrongKey(_))));
    assert!(matches!(server, Err(LinkError::WrongKey(_))));
}

#[test]
fn message_that_is_too_long_ends_nothing() {
    let (client, server) = link("key");
    let ((to_server, _at_client), (_to_client, mut at_server)) = (client.unwrap(), server.unwrap());
    let long = ToMemory::Get { id: 1, key: vec![0; 17 << 20] };
    assert!(matches!(to_server.send(&long), Err(LinkError::TooLong(_))));
    to_server.send(&request(2)).unwrap();
    assert_eq!(at_server.receive::<ToMemory>().unwrap(), request(2));
}

/// What a server answers to a client that sends these bytes, and what it says of it.
fn answer_to(bytes: &[u8]) -> (Vec<u8>, Option<LinkError>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || accept(listener.accept().unwrap().0, &Secret::new("key")));
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // The server may end the connection before it has read everything.
    let _ = client.shutdown(std::net::Shutdown::Write);
    let _ = client.read_to_end(&mut answer);
    (answer, server.join().unwrap().err())
}

#[test]
fn other_version_is_told_by_its_number() {
    let hello = [&b"terrace\0"[..], &99_u32.to_le_bytes(), &[5; 32]].concat();
    let (answer, error) = answer_to(&hello);
    assert_eq!(answer[8..12], WIRE.to_le_bytes());
    assert!(matches!(error, Some(LinkError::Version { theirs: 99, .. })));
}

#[test]
fn stranger_is_refused() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"", b"terrace\0"] {
        assert!(answer_to(bytes).1.is_some());
    }
}

/// Passes bytes on in one direction, but changes the one at `at`.
fn pass(mut from: TcpStream, mut to: TcpStream, at: Option<usize>) {
    let (mut passed, mut buffer) = (0, [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Some(at) = at.filter(|at| (passed..passed + count).contains(at)) {
            buffer[at - passed] ^= 1;
        }
        passed += count;
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// What the server receives if a byte of the client's is changed on its way.
fn received_with_change_at(at: usize) -> Result<ToMemory, LinkError> {
    let (listener, between) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, middle) = (listener.local_addr().unwrap(), between.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (_to_client, mut at_server) = accept(listener.accept().unwrap().0, &Secret::new("key"))?;
        at_server.receive::<ToMemory>()
    });
    thread::spawn(move || {
        let (client, server) = (between.accept().unwrap().0, TcpStream::connect(address).unwrap());
        let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || pass(server_too, client_too, None));
        pass(client, server, Some(at));
    });
    if let Ok((to_server, _at_client)) = dial(middle, &Secret::new("key")) {
        let _ = to_server.send(&request(1));
        to_server.close();
    }
    server.join().unwrap()
}

#[test]
fn changed_byte_is_noticed() {
    // Hello 44, proof 32, then the message: 4, 16, and more than 1000.
    for at in [0, 8, 12, 43, 44, 75, 76, 80, 95, 96, 97, 98, 500, 1000] {
        assert!(received_with_change_at(at).is_err(), "byte {at}");
    }
    assert_eq!(received_with_change_at(1 << 20).unwrap(), request(1));
}
