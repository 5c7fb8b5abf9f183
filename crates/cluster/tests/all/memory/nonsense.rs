//! Peers that send nonsense, and files with anything in them: nothing panics or is corrupted.

use super::client::{Client, all, directory, fabric, options, start};
use crate::random::Random;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use terrace_cluster::memory::{MemoryNode, Options};
use terrace_cluster::message::{ToMemory, ToServing};
use terrace_testkit::times;

/// The tables of the log area begin and end here: see `memory::format`.
const TABLES: Range<u64> = 4096..270_336 + 64 * 8;

#[test]
fn numbers_that_make_no_sense_change_nothing() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut other = Client::with_all(node.address(), "other");
    other.put(b"key", b"value");
    other.settle();
    let most = u64::MAX;
    let mut client = Client::hello(node.address(), "one");
    for message in [
        ToMemory::Renew { sent: most, pin: most, durable: vec![] },
        ToMemory::Renew { sent: most, pin: most, durable: vec![0; 9999] },
        ToMemory::Acquire { epoch: 0, ranges: vec![] },
        ToMemory::Release { ranges: all(), durable: vec![] },
        ToMemory::Release { ranges: vec![], durable: vec![0, most, most] },
        ToMemory::Segment { shard: u16::MAX },
        ToMemory::Get { id: most, key: vec![7; 1 << 20] },
        ToMemory::Scan { id: 1, cursor: most, at_least: u32::MAX, values: true, durable: vec![] },
        ToMemory::Count { id: most, durable: vec![] },
    ] {
        client.sender.send(&message).unwrap();
    }
    client.wait(|message| matches!(message, ToServing::Counted { id: u64::MAX, keys: Ok(0) }));
    assert_eq!(client.count(), 0);
    assert_eq!(other.value(b"key").unwrap(), b"value");
}

/// Writes anything in some places of this part of a file.
fn scribble(path: &Path, part: Range<u64>, random: &mut Random) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    for _ in 0..1 + random.below(40) {
        let at = part.start + random.below(part.end - part.start);
        let bytes: Vec<u8> = (0..1 + random.below(64)).map(|_| random.below(256) as u8).collect();
        file.write_all_at(&bytes, at).unwrap();
    }
}

#[test]
fn log_area_with_anything_in_it_is_refused_or_served() {
    let directory = directory();
    let path = directory.path().join("pool.log");
    // Each start waits for the lease of the session in the file. The pool goes on meanwhile.
    let short = || Options { lease: Duration::from_secs(2), adopt: true, ..options(directory.path()) };
    let node = start(short());
    let mut client = Client::with_all(node.address(), "one");
    client.put(b"key", b"value");
    client.settle();
    client.put(b"key", b"later");
    assert!(client.try_write());
    // As after a kill: with a session, and an entry that is not merged.
    let kept = std::fs::read(&path).unwrap();
    node.stop().unwrap();
    let bodies = TABLES.end.next_multiple_of(4096);
    let mut random = Random(1);
    let (mut refused, mut served) = (0, 0);
    let rounds = 20 * times();
    for round in 0..rounds {
        std::fs::write(&path, &kept).unwrap();
        // Bytes of the tables; or of the segments, where a node may have written anything.
        let is_table = round % 3 == 0;
        scribble(&path, if is_table { TABLES } else { bodies..bodies + 2000 }, &mut random);
        match MemoryNode::start(fabric(), short(), Box::new(|_| ())) {
            Ok(node) => {
                served += 1;
                let found = Client::with_all(node.address(), "two").value(b"key").unwrap();
                assert!([&b"value"[..], b"later"].contains(&&found[..]), "{found:?}");
                node.stop().unwrap();
            }
            Err(error) => {
                refused += 1;
                assert!(is_table && error.to_string().contains("pool.log"), "round {round}: {error}");
            }
        }
    }
    assert!(refused > rounds / 12 && served >= rounds * 2 / 3, "{refused} {served}");
}
