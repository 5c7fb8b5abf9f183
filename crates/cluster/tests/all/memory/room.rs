//! Segments, and memory that is full.

use super::client::{Client, FAR, SEGMENT, directory, link, options, start};
use std::time::Instant;
use terrace_cluster::memory::{Options, kept_bytes};
use terrace_cluster::message::{ToMemory, ToServing, WIRE};
use terrace_cluster::slot::SlotRange;
use terrace_medium::Shm;
use terrace_pool::PoolOptions;

#[test]
fn writer_waits_while_two_segments_are_unmerged() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    // The memory node merges only what it was told of.
    client.tells = Some(0);
    let value = vec![7; 400_000];
    let mut puts = 0_u64;
    loop {
        while client.try_put(&(puts % 20).to_le_bytes(), &value) {
            puts += 1;
            assert!(client.try_write());
            client.renew();
        }
        if client.keys.len() == 3 {
            break;
        }
        client.wait_for_segments(3);
    }
    for _ in 0..20 {
        client.renew();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!((client.keys.len(), node.stats().segments_unmerged), (3, 3));
    assert!(puts * 400_000 > 2 * SEGMENT && !client.try_put(b"key", &value));
    // What makes room goes on.
    assert!(client.remove(b"key"));
    client.tells = None;
    client.settle();
    client.wait_for_segments(4);
    assert!(client.try_put(b"key", &value));
    client.settle();
    assert_eq!(client.value(b"key").unwrap(), value);
    assert_eq!(client.count(), 21);
}

#[test]
fn full_log_area_serves_the_next_node_when_one_ends() {
    let directory = directory();
    let node = start(Options { log_segments: 2, ..options(directory.path()) });
    let mut one = Client::with_all(node.address(), "one");
    one.wait_for_segments(2);
    let mut other = Client::hello(node.address(), "other");
    for _ in 0..20 {
        one.renew();
        other.renew();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!((other.keys.len(), node.stats().segments_free), (0, 0));
    assert!(!other.try_put(b"key", b"value") && !other.remove(b"key"));
    one.sender.send(&ToMemory::Leave).unwrap();
    other.wait_for_segments(2);
    assert_eq!(node.stats().segments_free, 0);
}

/// Puts are refused once the pool has no room; removals go on, however many, and make some.
#[test]
fn full_pool_takes_removals_and_then_puts() {
    let directory = directory();
    let node = start(Options { pool_bytes: 64 << 20, ..options(directory.path()) });
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    let value = vec![7; 200_000];
    let keys = fill(&mut client, 0, &value, 1);
    assert_eq!(client.count(), keys);
    assert!(keys > 50, "{keys}");
    assert!(!client.try_put(b"key", &value));
    // More removals than the reserve of a segment takes, of keys that are not there.
    for key in 0..20_000_u64 {
        while !client.remove(&[&key.to_le_bytes()[..], b"absent"].concat()) {
            client.settle();
        }
    }
    client.settle();
    assert!(client.is_full);
    // Less than what it takes until puts are taken again: no room is told of.
    for key in 1..20_u64 {
        assert!(client.remove(&key.to_le_bytes()));
    }
    client.settle();
    let room = (node.figures())().into_iter().find(|figure| figure.name == "room_bytes").unwrap();
    assert!(client.is_full && room.value == 0, "{}", room.value);
    for key in 20..keys {
        assert!(client.remove(&key.to_le_bytes()));
    }
    client.settle();
    assert_eq!(client.count(), 1);
    let began = Instant::now();
    while client.is_full {
        assert!(began.elapsed() < FAR, "there is room");
        client.renew();
    }
    assert!(client.try_put(b"key", &value));
    client.settle();
    assert_eq!(client.value(b"key").unwrap(), value);
}

/// Puts keys until the pool is full, from this number on; returns the number behind the last.
fn fill(client: &mut Client, from: u64, value: &[u8], together: u64) -> u64 {
    let mut keys = from;
    while !client.is_full {
        for _ in 0..together {
            if !client.try_put(&keys.to_le_bytes(), value) {
                break;
            }
            keys += 1;
        }
        client.settle();
    }
    keys
}

/// The rest of the pool is kept for what the logs may have: the more logs, the more of it.
#[test]
fn keys_take_nine_tenths_of_what_logs_leave() {
    for mib in [64_u64, 256] {
        let pool_bytes = mib << 20;
        let directory = directory();
        let node = start(Options { pool_bytes, segment_bytes: 0, ..options(directory.path()) });
        let mut client = Client::with_all(node.address(), "one");
        client.wait_for_segments(2);
        let value = [7; 1000];
        let taken = 1008 * fill(&mut client, 0, &value, 1000);
        let left = pool_bytes - kept_bytes(pool_bytes, 1);
        assert!(taken * 10 >= left * 9, "{taken} bytes of {left} in {mib} MiB");
    }
}

/// Whatever size is asked for: that of a pool that is there counts.
#[test]
fn segments_suit_the_pool_that_is_there() {
    let directory = directory();
    let path = directory.path().join("pool");
    let made = PoolOptions::at(&path).size(64 << 20).create::<Shm>().unwrap();
    made.close().unwrap();
    let options = Options { pool_bytes: 8 << 30, segment_bytes: 0, ..options(directory.path()) };
    let node = start(options);
    let mut client = Client::with_all(node.address(), "one");
    let segment = client.wait(|message| matches!(message, ToServing::Segment { .. }));
    let ToServing::Segment { bytes, .. } = segment else { unreachable!() };
    assert_eq!(bytes, (4 << 20) + (128 << 10));
    client.put(b"key", b"value");
    client.settle();
    assert_eq!(client.value(b"key").unwrap(), b"value");
    assert_eq!(std::fs::metadata(path).unwrap().len(), 64 << 20);
}

#[test]
fn full_pool_grows_at_a_start_that_asks_for_it() {
    let directory = directory();
    let begin = |pool_bytes, grows| start(Options { pool_bytes, grows, ..options(directory.path()) });
    let size = || std::fs::metadata(directory.path().join("pool")).unwrap().len();
    let (small, large) = (64 << 20, 128 << 20);
    let node = begin(small, true);
    let value = vec![7; 200_000];
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    let before = fill(&mut client, 0, &value, 1);
    drop(client);
    node.stop().unwrap();
    begin(large, false).stop().unwrap();
    assert_eq!(size(), small);
    let node = begin(large, true);
    assert_eq!(size(), large);
    let mut client = Client::with_all(node.address(), "one");
    let told = client.wait(|message| matches!(message, ToServing::Space(_)));
    let ToServing::Space(space) = told else { unreachable!() };
    assert!(space.size == large && space.room > 60 << 20, "{space:?}");
    client.wait_for_segments(2);
    assert!(!client.is_full);
    let keys = fill(&mut client, before, &value, 1);
    assert!(keys - before > 250, "{before} keys, then {keys}");
    for key in 0..keys {
        assert_eq!(client.value(&key.to_le_bytes()).as_ref(), Some(&value), "{key}");
    }
    drop(client);
    drop(node);
    // It never shrinks.
    let node = begin(small, true);
    assert_eq!(size(), large);
    let mut client = Client::with_all(node.address(), "one");
    assert_eq!(client.count(), keys);
}

#[test]
fn node_whose_logs_have_no_room_is_refused() {
    let directory = directory();
    let node = start(Options { pool_bytes: 64 << 20, ..options(directory.path()) });
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    let hello = |name: &str, last| {
        let (sender, messages) = link(node.address());
        let hello = ToMemory::Hello { wire: WIRE, node: name.into(), shards: 1, lanes: 2, last };
        sender.send(&hello).unwrap();
        messages.recv_timeout(FAR).unwrap().unwrap()
    };
    let ToServing::Fenced { why } = hello("other", 0) else { panic!("a node that was refused") };
    assert!(why.contains("no room for the 1 logs of the node other") && why.contains("--shards"), "{why}");
    // The first one goes on.
    client.put(b"key", b"value");
    client.settle();
    assert!(!client.is_full && client.value(b"key").unwrap() == b"value");
    // It may come back.
    let again = hello("one", client.session);
    assert!(matches!(again, ToServing::Welcome { .. }), "{again:?}");
}

/// Batches of a node end where the next node's begin, through many sessions and few segments.
#[test]
fn segments_are_used_again() {
    let directory = directory();
    let node = start(Options { log_segments: 3, ..options(directory.path()) });
    let mut numbers = Vec::new();
    for round in 0..10_u32 {
        let mut client = Client::with_all(node.address(), "one");
        if round > 0 {
            assert_eq!(client.value(b"key").unwrap(), (round - 1).to_le_bytes());
        }
        client.put(b"key", &round.to_le_bytes());
        assert!(client.try_write());
        numbers.extend(client.keys.iter().map(|(number, _)| *number));
        client.sender.send(&ToMemory::Leave).unwrap();
        client.wait_for_the_end();
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number is never used again");
    let mut client = Client::hello(node.address(), "one");
    client.acquire(&[SlotRange::new(3, 3).unwrap()]);
    assert!(client.get(b"key").is_err());
}
