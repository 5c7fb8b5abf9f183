//! A memory node that is killed.

use super::client::{Client, FAR, FailingFabric, directory, options, start};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace::{ByteSize, Store};
use terrace_cluster::memory::{MemoryNode, Options, unmerged};
use terrace_cluster::message::ToMemory;
use terrace_cluster::slot::{SLOTS, SlotRange};
use terrace_server::databases::{self, Place};
use terrace_testkit::process::{Victim, task};

/// Not a test by itself: the process of a memory node.
#[test]
fn child() {
    let Some(task) = task() else { return };
    let (what, path) = task.split_once(' ').unwrap();
    let path = Path::new(path);
    let address = match what {
        "node" => {
            let node = start(options(path));
            let address = node.address();
            std::mem::forget(node);
            address
        }
        "fails" => {
            let node = MemoryNode::start(FailingFabric::new(), options(path), Box::new(|_| ())).unwrap();
            let address = node.address();
            std::mem::forget(node);
            address
        }
        _ => panic!("{task}"),
    };
    std::fs::write(path.join("new"), address.to_string()).unwrap();
    std::fs::rename(path.join("new"), path.join("address")).unwrap();
    loop {
        std::thread::park();
    }
}

/// A memory node in a process of its own.
pub(crate) fn node(what: &str, path: &Path) -> (Victim, SocketAddr) {
    let file = path.join("address");
    let _ = std::fs::remove_file(&file);
    let victim =
        Victim::of_test("memory::restart::child", &format!("{what} {}", path.display()), &[]).unwrap();
    let began = Instant::now();
    loop {
        if let Ok(address) = std::fs::read_to_string(&file) {
            return (victim, address.parse().unwrap());
        }
        assert!(began.elapsed() < FAR && victim.ended().unwrap().is_none(), "the node starts");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn entry_that_arrived_survives_a_kill() {
    let directory = directory();
    let (victim, address) = node("node", directory.path());
    let mut client = Client::with_all(address, "one");
    client.put(b"merged", b"value");
    client.settle();
    for number in 0..1000_u32 {
        client.put(&number.to_le_bytes(), b"value");
    }
    assert!(client.try_write());
    victim.kill();
    let pool = options(directory.path()).pool;
    assert!(unmerged(&pool).unwrap().is_some());
    let node = start(options(directory.path()));
    // It has no session of the node before: the old one ends first.
    let mut client = Client::with_all(node.address(), "one");
    assert_eq!(client.value(b"merged").unwrap(), b"value");
    for number in 0..1000_u32 {
        assert_eq!(client.value(&number.to_le_bytes()).unwrap(), b"value", "{number}");
    }
    assert_eq!(client.count(), 1001);
    // Not the one that was merged before.
    assert_eq!(node.stats().merged_entries, 1000);
    client.put(b"merged", b"again");
    client.settle();
    drop(client);
    node.stop().unwrap();
    assert_eq!(unmerged(&pool).unwrap(), None);
}

/// Another node has changed the slot since: a replay would undo that.
#[test]
fn entry_that_was_merged_is_not_merged_again() {
    let directory = directory();
    let (victim, address) = node("node", directory.path());
    let mut one = Client::with_all(address, "one");
    one.put(b"key", b"one");
    assert!(one.try_write());
    let slot = terrace_protocol::slot(b"key");
    let slot = SlotRange::new(slot, slot).unwrap();
    one.release(&[slot]);
    let mut other = Client::hello(address, "other");
    other.acquire(&[slot]);
    other.put(b"key", b"other");
    other.settle();
    // And back: now the slot is the first one's again.
    other.release(&[slot]);
    one.acquire(&[slot]);
    assert_eq!(one.value(b"key").unwrap(), b"other");
    victim.kill();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "third");
    assert_eq!(client.value(b"key").unwrap(), b"other");
    assert_eq!(node.stats().merged_entries, 0);
}

/// Kills at many moments of merges over several segments. Whatever was written is there once.
#[test]
fn kills_at_any_moment_lose_nothing() {
    let directory = directory();
    let value = vec![5; 100_000];
    let mut last = vec![None; 30];
    for round in 0..8_u32 {
        let (victim, address) = node("node", directory.path());
        let mut client = Client::with_all(address, "one");
        for (key, number) in last.iter().enumerate() {
            let found = client
                .value(&key.to_le_bytes())
                .map(|value| u32::from_le_bytes(value[..4].try_into().unwrap()));
            assert_eq!(found, *number, "round {round}, key {key}");
        }
        client.wait_for_segments(2);
        let began = Instant::now();
        let mut number = 0_u32;
        while number < 60 || began.elapsed() < Duration::from_millis(u64::from(round) * 17) {
            let key = number as usize % last.len();
            let named = [&(round * 10_000 + number).to_le_bytes(), &value[..]].concat();
            if !client.try_put(&key.to_le_bytes(), &named) {
                break;
            }
            assert!(client.try_write());
            last[key] = Some(round * 10_000 + number);
            if number.is_multiple_of(3) {
                client.renew();
            }
            number += 1;
        }
        victim.kill();
    }
}

/// Two threads that merge a log may free its segments in any order, and the node may die in
/// between: the log then seems to have a gap.
#[test]
fn segment_that_is_freed_after_a_later_one_is_no_gap() {
    let directory = directory();
    let (victim, address) = node("node", directory.path());
    let mut client = Client::with_all(address, "one");
    let value = vec![5; 100_000];
    // Until the third segment is the current one.
    for number in 0..120_u32 {
        while !client.try_put(&number.to_le_bytes(), &value) {
            client.settle();
            client.wait_for_segments(3);
        }
    }
    client.settle();
    let session = client.session;
    let log = Rows::open(&directory.path().join("pool.log"));
    // Segments are freed a moment after the client is told that they are merged.
    let is_freed = |row: u64| log.get(row, 0) == 0 || log.get(row, 2) >= 2;
    let began = Instant::now();
    while !(0..8).all(is_freed) {
        assert!(began.elapsed() < FAR, "the segments before are freed");
        std::thread::sleep(Duration::from_millis(1));
    }
    victim.kill();
    // The first segment's row, as if it had not been freed yet; the second one's is free.
    let free = (0..8).find(|row| log.get(*row, 0) == 0).unwrap();
    let is_current =
        |row: &u64| log.get(*row, 0) != 0 && [1, 2].map(|word| log.get(*row, word)) == [session, 2];
    let current = (0..8).find(is_current).unwrap();
    assert!(log.get(current, 3) > 1, "the log has gone on in the third segment");
    [1, session, 0, 1, 0].into_iter().zip(0..).for_each(|(number, word)| log.set(free, word, number));
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    for number in 0..120_u32 {
        assert_eq!(client.value(&number.to_le_bytes()).unwrap(), value, "{number}");
    }
    assert_eq!(client.count(), 120);
    assert_eq!(node.stats().segments_granted, 2);
}

/// The rows of segments in a log area that no node has open.
struct Rows(std::fs::File);

impl Rows {
    fn open(log: &Path) -> Self {
        Self(std::fs::OpenOptions::new().read(true).write(true).open(log).unwrap())
    }

    fn at(row: u64, word: u64) -> u64 {
        270_336 + 64 * row + 8 * word
    }

    fn get(&self, row: u64, word: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, Self::at(row, word)).unwrap();
        u64::from_le_bytes(bytes) & ((1 << 48) - 1)
    }

    fn set(&self, row: u64, word: u64, number: u64) {
        let at = Self::at(row, word);
        let seal = xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), at) >> 48 << 48;
        self.0.write_all_at(&(number | seal).to_le_bytes(), at).unwrap();
    }
}

/// The log of a node that was killed is merged while the keys of before are counted.
#[test]
fn keys_are_counted_beside_merges() {
    const KEYS: u32 = 120_000;
    let directory = directory();
    let (victim, address) = node("node", directory.path());
    let mut client = Client::with_all(address, "one");
    for number in 0..KEYS {
        while !client.try_put(&number.to_le_bytes(), b"value") {
            client.settle();
        }
    }
    client.settle();
    client.wait_for_segments(2);
    // Told to nobody, so nothing of it is merged yet.
    for number in 0..KEYS / 8 {
        assert!(client.remove(&(8 * number).to_le_bytes()));
        assert!(client.try_put(&(KEYS + 2 * number).to_le_bytes(), b"new"));
        assert!(client.try_put(&(KEYS + 2 * number + 1).to_le_bytes(), b"new"));
    }
    assert!(client.try_write());
    victim.kill();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "two");
    assert_eq!(u64::from(KEYS / 8 * 3), node.stats().merged_entries);
    assert_eq!(client.count(), u64::from(KEYS + KEYS / 8));
}

#[test]
fn clean_stop_merges_everything() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    for number in 0..500_u32 {
        client.put(&number.to_le_bytes(), b"value");
    }
    assert!(client.try_write());
    let figures = node.figures();
    let figure = |name| figures().iter().find(|figure| figure.name == name).map(|figure| figure.value);
    assert_eq!((figure("sessions_serving"), figure("pool_bytes")), (Some(1), Some(128 << 20)));
    node.stop().unwrap();
    assert_eq!(figure("sessions_serving"), None);
    assert!(client.wait_for_the_end().unwrap().contains("stops"));
    let store = terrace::Store::options().path(directory.path().join("pool")).open().unwrap();
    assert_eq!(store.len(), 500);
    assert_eq!(store.stats().pool.unwrap().found, terrace::Start::Clean);
    drop(store);
    // Its slots are free once its lease is over, and its keys are counted.
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "two");
    assert_eq!(client.count(), 500);
    assert_eq!(node.stats().merged_entries, 0);
}

/// A node that cannot be fenced off must not outlive it.
#[test]
fn process_ends_if_an_endpoint_is_not_closed() {
    let directory = directory();
    let (victim, address) = node("fails", directory.path());
    let client = Client::with_all(address, "one");
    assert!(victim.ended().unwrap().is_none());
    client.sender.send(&ToMemory::Leave).unwrap();
    let began = Instant::now();
    let status = loop {
        match victim.ended().unwrap() {
            Some(status) => break status,
            None => assert!(began.elapsed() < FAR, "it ends"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status:?}");
}

/// Slots are not free before the lease of the node that had them is over, also through a kill.
#[test]
fn lease_is_waited_for_after_a_kill() {
    let directory = directory();
    let long = |path: &Path| Options { lease: Duration::from_secs(3), ..options(path) };
    let (victim, address) = node("node", directory.path());
    let _one = Client::with_all(address, "one");
    victim.kill();
    let began = Instant::now();
    let node = start(long(directory.path()));
    let mut other = Client::hello(node.address(), "other");
    other.acquire(&[SlotRange::new(0, SLOTS - 1).unwrap()]);
    assert!(began.elapsed() >= Duration::from_secs(3));
}

/// A directory with what each of two sessions had put, one after the other: copies of pool and log
/// area from between them, and the files from behind them.
fn of_two_times(ends_in_order: bool) -> (tempfile::TempDir, Options) {
    let directory = directory();
    let options = options(directory.path());
    for (key, copies) in [(b"first", true), (b"later", false)] {
        let (victim, address) = node("node", directory.path());
        let mut client = Client::with_all(address, "one");
        client.put(key, b"value");
        client.settle();
        drop(client);
        victim.kill();
        if ends_in_order {
            start(options.clone()).stop().unwrap();
        }
        if copies {
            for file in [options.pool.clone(), log_of(&options)] {
                std::fs::copy(&file, beside(&file, ".copy")).unwrap();
            }
        }
    }
    (directory, options)
}

fn beside(path: &Path, ends: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ends);
    path.into()
}

fn log_of(options: &Options) -> PathBuf {
    beside(&options.pool, ".log")
}

#[test]
fn older_copy_of_pool_or_log_area_is_refused() {
    for ends_in_order in [false, true] {
        for nth in 0..2 {
            let (_directory, options) = of_two_times(ends_in_order);
            let files = [options.pool.clone(), log_of(&options)];
            // A log area that was left in order has nothing that the pool has not.
            if ends_in_order && nth == 1 {
                continue;
            }
            std::fs::rename(beside(&files[nth], ".copy"), &files[nth]).unwrap();
            let refused = MemoryNode::start(FailingFabric::new(), options.clone(), Box::new(|_| ()));
            let error = refused.err().expect("files of two times").to_string();
            let start = format!("{} is older than {}", files[nth].display(), files[1 - nth].display());
            assert!(error.starts_with(&start), "{error}");
            let adopted = Options { adopt: true, ..options.clone() };
            drop(MemoryNode::start(FailingFabric::new(), adopted, Box::new(|_| ())).unwrap());
            drop(MemoryNode::start(FailingFabric::new(), options, Box::new(|_| ())).unwrap());
        }
    }
}

#[test]
fn used_pool_without_keys_needs_its_log_area() {
    let directory = directory();
    let options = options(directory.path());
    let (victim, _) = node("node", directory.path());
    victim.kill();
    std::fs::remove_file(log_of(&options)).unwrap();
    let used = Options { was_used: true, ..options.clone() };
    let refused = MemoryNode::start(FailingFabric::new(), used, Box::new(|_| ()));
    assert!(refused.err().expect("a missing log area").to_string().contains("is missing"));
    start(options).stop().unwrap();
}

/// A pool with keys in another database than 0 stays as it is. One without them is adopted.
#[test]
fn pool_with_keys_of_other_databases_is_not_adopted() {
    let directory = directory();
    let options = Options { adopt: true, grows: true, ..options(directory.path()) };
    let stored = |database: u8, key: &[u8]| Place::numbered(database).encode(key).into_owned();
    let fill = |act: &dyn Fn(&Store)| {
        let store = Store::options().path(&options.pool).size(ByteSize::mib(64)).open_or_create().unwrap();
        act(&store);
        store.close().unwrap();
    };
    let put = |store: &Store, database: u8, key: &[u8]| {
        databases::use_place(store, Place::numbered(database)).unwrap();
        store.put(stored(database, key), b"value").unwrap();
    };
    fill(&|store| {
        put(store, 0, b"zero");
        [&b"one"[..], b"two"].iter().for_each(|key| put(store, 3, key));
        put(store, 15, b"one");
    });
    let before = std::fs::read(&options.pool).unwrap();
    let refused = MemoryNode::start(FailingFabric::new(), options.clone(), Box::new(|_| ()));
    let error = refused.err().expect("keys of other databases").to_string();
    assert!(error.contains("has 2 keys in database 3, 1 key in database 15, and"), "{error}");
    assert!(error.contains("terrace dump --db 0"), "{error}");
    assert!(std::fs::read(&options.pool).unwrap() == before && !log_of(&options).exists());
    // They have been moved.
    fill(&|store| {
        [(3, &b"one"[..]), (3, b"two"), (15, b"one")].iter().for_each(|(database, key)| {
            store.remove(stored(*database, key)).unwrap();
        })
    });
    MemoryNode::start(FailingFabric::new(), options.clone(), Box::new(|_| ())).unwrap().stop().unwrap();
    fill(&|store| assert_eq!(store.len(), 1, "the key of database 0 alone"));
}
