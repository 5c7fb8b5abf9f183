//! Reads: one-sided, by request, and what keeps the memory that they reach.

use super::client::{Client, FAR, directory, options, start};
use std::collections::BTreeSet;
use std::time::Instant;
use terrace_cluster::message::ToServing;
use terrace_cluster::slot::{SLOTS, SlotRange};
use terrace_direct::remote;
use terrace_fabric::{Fabric, LibfabricConnection, Operation, Output, Place, RegionKey, perform};
use terrace_index::hash::remote::{Address, Answer, Read, Reads, Remote};

fn read(lane: &mut LibfabricConnection, pool: RegionKey, read: Read) -> Vec<u8> {
    let from = Place { region: pool, offset: read.offset };
    let outcomes = perform(lane, vec![Operation::Read { from, into: vec![0; read.len] }], FAR).unwrap();
    match outcomes.into_iter().next().unwrap() {
        Ok(Output::Buffer(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn key_is_found_by_one_sided_reads() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(1);
    for number in 0..5000_u32 {
        client.put(&number.to_le_bytes(), &number.to_be_bytes());
    }
    client.settle();
    let [root, seed, start, end] = client.access.index;
    let mut lane = super::client::fabric().connect(&client.access.lanes[1]).unwrap();
    let pool = RegionKey::from_bytes(client.access.pool[1]);
    let mut remote = Remote::new(Address { root, seed, start, end });
    for number in [0, 17, 4999_u32] {
        let mut fetch =
            |parts: Reads| Ok::<_, ()>(parts.iter().flat_map(|part| read(&mut lane, pool, part)).collect());
        let answer = remote::get(&mut remote, &number.to_le_bytes(), 64, &mut fetch).unwrap();
        assert!(matches!(answer, Answer::Found(value) if *value == number.to_be_bytes()), "{number}");
    }
    let mut fetch =
        |parts: Reads| Ok::<_, ()>(parts.iter().flat_map(|part| read(&mut lane, pool, part)).collect());
    assert!(matches!(remote::get(&mut remote, b"absent", 64, &mut fetch).unwrap(), Answer::Absent));
    // The pool may be read only, and the segments only be written.
    let to = Place { region: pool, offset: root };
    let write = Operation::Write { bytes: vec![0; 8], to, until: terrace_fabric::Until::Arrived };
    assert!(perform(&mut lane, vec![write], FAR).unwrap()[0].is_err());
}

/// Two nodes with half of the slots each.
fn halves(address: std::net::SocketAddr) -> [Client; 2] {
    let half = |name: &str, first, last| {
        let mut client = Client::hello(address, name);
        client.acquire(&[SlotRange::new(first, last).unwrap()]);
        client.wait_for_segments(1);
        client
    };
    [half("low", 0, SLOTS / 2 - 1), half("high", SLOTS / 2, SLOTS - 1)]
}

#[test]
fn scans_and_counts_are_of_the_owner_s_slots() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut clients = halves(node.address());
    let mut written = [const { BTreeSet::new() }; 2];
    for number in 0..3000_u32 {
        let key = number.to_le_bytes().to_vec();
        let owner = usize::from(terrace_protocol::slot(&key) >= SLOTS / 2);
        clients[owner].put(&key, b"value");
        written[owner].insert(key);
    }
    // The requests wait until what they name is merged.
    for (client, written) in clients.iter_mut().zip(&written) {
        assert!(client.try_write());
        assert_eq!(client.count(), written.len() as u64);
        let (mut found, mut cursor, mut pages) = (BTreeSet::new(), 0, 0);
        loop {
            let (items, next) = client.page(cursor, 100, true);
            assert!(items.iter().all(|item| item.value == b"value" && item.expires_at.is_none()));
            found.extend(items.into_iter().map(|item| item.key));
            (cursor, pages) = (next, pages + 1);
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(found, *written);
        assert!((10..=30).contains(&pages), "{pages}");
    }
    // And removed.
    let key = written[0].first().unwrap().clone();
    assert!(clients[0].remove(&key) && clients[0].remove(b"absent"));
    clients[0].put(written[0].last().unwrap(), b"other");
    assert!(clients[0].try_write());
    assert_eq!(clients[0].count(), written[0].len() as u64 - 1);
}

#[test]
fn page_of_a_scan_is_bounded() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    let value = vec![3; 300_000];
    for number in 0..20_u32 {
        client.put(&number.to_le_bytes(), &value);
        client.settle();
    }
    let (mut keys, mut cursor, mut largest) = (BTreeSet::new(), 0, 0);
    loop {
        let (items, next) = client.page(cursor, 1000, true);
        largest = largest.max(items.len());
        keys.extend(items.into_iter().map(|item| item.key));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    // A page ends behind the bucket whose keys fill it.
    assert!(keys.len() == 20 && (4..=8).contains(&largest), "{largest}");
    let (items, next) = client.page(0, 1000, false);
    assert!(items.len() == 20 && next == 0 && items.iter().all(|item| item.value.is_empty()));
}

#[test]
fn request_for_a_slot_of_another_node_is_refused() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut clients = halves(node.address());
    let owner = usize::from(terrace_protocol::slot(b"key") >= SLOTS / 2);
    assert_eq!(clients[owner].get(b"key"), Ok(None));
    assert!(clients[1 - owner].get(b"key").unwrap_err().contains("slot"));
}

/// Pins are taken as long as nodes confirm them, and kept while one does not.
#[test]
fn pins_move_on_when_all_nodes_confirm() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut lazy = Client::with_all(node.address(), "lazy");
    let mut other = Client::hello(node.address(), "other");
    lazy.renew();
    let first = std::mem::take(&mut lazy.pin);
    let (began, mut newest) = (Instant::now(), 0);
    // The lazy node renews, but its reads do not end: the threads run out.
    while node.stats().pins < 4 {
        assert!(began.elapsed() < FAR, "{:?}", node.stats());
        other.renew();
        lazy.renew();
        lazy.pin = 0;
        newest = other.pin;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for _ in 0..30 {
        other.renew();
        lazy.renew();
        lazy.pin = 0;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(other.pin <= first + 5 && other.pin >= newest, "{first} {newest} {}", other.pin);
    let stuck = other.pin;
    let began = Instant::now();
    while other.pin < stuck + 8 {
        assert!(began.elapsed() < FAR, "{:?}", node.stats());
        other.renew();
        lazy.renew();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // A node that is fenced confirms nothing any more.
    drop(lazy);
    let stuck = other.pin;
    while other.pin < stuck + 8 {
        assert!(began.elapsed() < FAR, "{:?}", node.stats());
        other.renew();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A node that renews its lease, and never confirms a later pin, while another one writes.
#[test]
fn reads_that_hold_back_much_memory_end_their_session() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut slow = Client::hello(node.address(), "slow");
    let mut writer = Client::with_all(node.address(), "writer");
    let value = vec![7; 1 << 20];
    let begun = node.stats().sessions;
    assert_eq!(begun, 2);
    while node.stats().serving == begun {
        while !writer.try_put(b"key", &value) {
            writer.renew();
        }
        writer.settle();
    }
    let ToServing::Fenced { why } = slow.wait(|message| matches!(message, ToServing::Fenced { .. })) else {
        unreachable!()
    };
    assert!(why.contains("reads hold back"), "{why}");
    writer.put(b"key", b"value");
    writer.settle();
    assert_eq!(writer.value(b"key").unwrap(), b"value");
}
