//! Nodes whose sessions end: nothing that they write later changes anything.

use super::client::{Client, FAR, all, directory, link, options, start};
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_cluster::entry::{Change, ENTRY_MAX, Entry};
use terrace_cluster::memory::Options;
use terrace_cluster::message::{ToMemory, ToServing, WIRE};
use terrace_fabric::{Completion, Connection, Operation, Place, Posted, Until, Wait};

#[test]
fn lease_that_is_not_renewed_ends_the_session() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    let why = client.wait_for_the_end().unwrap();
    assert!(why.contains("lease"), "{why}");
    let mut other = Client::with_all(node.address(), "other");
    other.put(b"key", b"value");
    other.settle();
}

/// The pool is a copy of before the node's session, which the copy would give out once more.
#[test]
fn older_copy_of_a_pool_serves_no_node_of_the_newer() {
    let (newer, older) = (directory(), directory());
    let node = start(options(newer.path()));
    drop(Client::with_all(node.address(), "one"));
    node.stop().unwrap();
    for name in ["pool", "pool.log"] {
        std::fs::copy(newer.path().join(name), older.path().join(name)).unwrap();
    }
    let node = start(options(newer.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.put(b"key", b"value");
    client.settle();
    let last = client.session;
    drop(client);
    node.stop().unwrap();
    let hello = |directory: &Path| {
        let node = start(options(directory));
        let (sender, messages) = link(node.address());
        let hello = ToMemory::Hello { wire: WIRE, node: "one".into(), shards: 1, lanes: 2, last };
        sender.send(&hello).unwrap();
        messages.recv_timeout(FAR).unwrap()
    };
    let Some(ToServing::Fenced { why }) = hello(older.path()) else { panic!("it has a session") };
    assert!(why.contains("older copy"), "{why}");
    assert!(matches!(hello(newer.path()), Some(ToServing::Welcome { .. })));
}

#[test]
fn fenced_writer_that_goes_on_changes_nothing() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut zombie = Client::with_all(node.address(), "zombie");
    zombie.put(b"key", b"before");
    zombie.settle();
    zombie.wait_for_the_end();
    let mut other = Client::with_all(node.address(), "other");
    zombie.put(b"key", b"after");
    assert!(!zombie.try_write(), "its endpoint is closed");
    assert_eq!(other.value(b"key").unwrap(), b"before");
    other.put(b"key", b"later");
    other.settle();
    assert_eq!(other.value(b"key").unwrap(), b"later");
}

/// What arrived counts, even if its writer had no time to tell.
#[test]
fn entry_that_arrived_before_the_fence_is_merged() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut one = Client::with_all(node.address(), "one");
    one.put(b"key", b"value");
    assert!(one.try_write());
    one.sender.close();
    let mut other = Client::with_all(node.address(), "other");
    assert_eq!(other.value(b"key").unwrap(), b"value");
}

/// The bytes of the log area's segments that are not 0.
fn bytes_there(directory: &Path) -> usize {
    // What is before the segments, changes.
    let file = std::fs::read(directory.join("pool.log")).unwrap();
    file[274_432..].iter().filter(|byte| **byte != 0).count()
}

#[test]
fn payload_that_is_half_there_is_merged_to_its_last_whole_entry() {
    let directory = directory();
    let segments = Options { log_segments: 4, segment_bytes: 20 << 20, ..options(directory.path()) };
    let node = start(Options { pool_bytes: 256 << 20, ..segments });
    let mut zombie = Client::with_all(node.address(), "zombie");
    zombie.put(b"key", b"before");
    zombie.settle();
    let value = vec![1; ENTRY_MAX / 4];
    for number in 0..18_u8 {
        zombie.put(&[number], &value);
    }
    zombie.put(b"key", b"after");
    let [piece] = zombie.log.take_write().unwrap().try_into().unwrap();
    let to = Place { region: zombie.keys[0].1, offset: piece.offset };
    let operation = Operation::Write { bytes: piece.bytes, to, until: Until::Arrived };
    // Posted, and then left alone: it goes on only while it is polled.
    zombie.lane.post(vec![Posted { number: 1, operation }]).unwrap();
    zombie.wait_for_the_end();
    let mut other = Client::with_all(node.address(), "other");
    let before = bytes_there(directory.path());
    assert!(before > value.len() && before < 17 * value.len(), "a part of it is there: {before}");
    let mut completions: Vec<Completion> = Vec::new();
    while completions.is_empty() {
        zombie.lane.poll(&mut completions);
        zombie.lane.wait(Duration::from_millis(10)).unwrap();
    }
    assert!(completions[0].outcome.is_err());
    assert_eq!(bytes_there(directory.path()), before);
    let there: Vec<bool> =
        (0..18_u8).map(|number| other.value(&[number]).is_some_and(|found| found == value)).collect();
    let whole = before / value.len();
    assert!(
        there.iter().enumerate().all(|(number, is_there)| *is_there == (number < whole)),
        "{there:?} {before}"
    );
    assert_eq!(other.value(b"key").unwrap(), b"before");
}

#[test]
fn node_that_tells_of_entries_that_are_not_there_is_fenced() {
    let directory = directory();
    let node = start(options(directory.path()));
    for told in [2, u64::MAX] {
        let mut client = Client::with_all(node.address(), "one");
        client.put(b"key", b"value");
        assert!(client.try_write());
        client.tells = Some(told);
        client.sender.send(&ToMemory::Renew { sent: 1, pin: 0, durable: vec![told, 9] }).unwrap();
        let why = client.wait_for_the_end().unwrap();
        assert!(why.contains("log"), "{why}");
        let mut other = Client::with_all(node.address(), "one");
        assert_eq!(other.value(b"key").unwrap(), b"value");
        other.remove(b"key");
        other.settle();
        other.sender.send(&ToMemory::Leave).unwrap();
        other.wait_for_the_end();
    }
}

/// A node that begins another session has ended the one before.
#[test]
fn node_that_comes_again_replaces_itself() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut before = Client::with_all(node.address(), "one");
    before.put(b"key", b"value");
    assert!(before.try_write());
    let mut client = Client::with_all(node.address(), "one");
    assert_eq!(client.value(b"key").unwrap(), b"value");
    assert!(client.session > before.session);
    assert!(before.wait_for_the_end().is_some());
    before.put(b"key", b"after");
    assert!(!before.try_write());
    assert_eq!(client.value(b"key").unwrap(), b"value");
}

/// A node that leaves gives its slots to the next one at once.
#[test]
fn node_that_leaves_is_merged() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut one = Client::with_all(node.address(), "one");
    one.wait_for_segments(1);
    let put = |key: &'static [u8]| Change::Put { key, value: b"value", expires_at: None };
    assert!(one.append(&Entry::Changes(vec![put(b"a"), put(b"b")])));
    assert!(one.try_write());
    one.sender.send(&ToMemory::Leave).unwrap();
    let mut other = Client::with_all(node.address(), "other");
    assert_eq!((other.value(b"a"), other.value(b"b")), (Some(b"value".into()), Some(b"value".into())));
    let began = Instant::now();
    while node.stats().sessions > 1 || node.stats().segments_granted > 2 {
        assert!(began.elapsed() < FAR, "{:?}", node.stats());
        other.renew();
    }
}

#[test]
fn link_without_a_session_is_told_so() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::hello(node.address(), "one");
    let (sender, messages) = super::client::link(node.address());
    sender.send(&ToMemory::Acquire { epoch: 1, ranges: all() }).unwrap();
    assert!(matches!(messages.recv_timeout(FAR).unwrap(), Some(ToServing::Fenced { .. })));
    sender.send(&ToMemory::Get { id: 3, key: b"key".to_vec() }).unwrap();
    let Some(ToServing::Got { id: 3, found: Err(_) }) = messages.recv_timeout(FAR).unwrap() else { panic!() };
    client.renew();
}
