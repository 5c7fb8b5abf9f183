//! Segments, and memory that is full.

use super::client::{Client, FAR, SEGMENT, directory, options, start};
use std::time::Instant;
use terrace_cluster::memory::Options;
use terrace_cluster::message::ToMemory;
use terrace_cluster::slot::SlotRange;

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
        (one.renew(), other.renew());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!((other.keys.len(), node.stats().segments_free), (0, 0));
    assert!(!other.try_put(b"key", b"value") && !other.remove(b"key"));
    one.sender.send(&ToMemory::Leave).unwrap();
    other.wait_for_segments(2);
    assert_eq!(node.stats().segments_free, 0);
}

/// Puts find no segment once the pool has no room; removals make some.
#[test]
fn full_pool_takes_removals_and_then_puts() {
    let directory = directory();
    let node = start(Options { pool_bytes: 64 << 20, ..options(directory.path()) });
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    let value = vec![7; 200_000];
    let mut keys = Vec::new();
    let mut turns = 0;
    // Until no segment comes for a while.
    while turns < 50 {
        let key = (keys.len() as u64).to_le_bytes();
        if client.try_put(&key, &value) {
            keys.push(key);
            turns = 0;
        } else {
            turns += 1;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        client.settle();
    }
    assert_eq!(client.count(), keys.len() as u64);
    assert!(keys.len() > 50, "{}", keys.len());
    let granted = client.keys.len();
    for key in &keys[1..] {
        assert!(client.remove(key));
    }
    client.settle();
    assert_eq!(client.count(), 1);
    let began = Instant::now();
    while client.keys.len() == granted {
        assert!(began.elapsed() < FAR, "a segment comes");
        client.renew();
    }
    assert!(client.try_put(b"key", &value));
    client.settle();
    assert_eq!(client.value(b"key").unwrap(), value);
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
