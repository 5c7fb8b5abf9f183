//! Tests: how much room the disk engine takes, and how much it writes.

use crate::small::{Draws, PATH, of};
use std::path::Path;
use std::sync::Arc;
use terrace_engine::{Chore, Durability, Durably, Engine, ManualClock, Put, Rest};
use terrace_testkit::simfs::SimFs;
use terrace_wip::Wip;

const KEYS: u64 = 20_000;

fn store() -> (Wip, Arc<ManualClock>) {
    let (_, store, clock) = store_in();
    (store, clock)
}

fn store_in() -> (SimFs, Wip, Arc<ManualClock>) {
    let files = SimFs::new(["/data"]);
    let clock = Arc::new(ManualClock::at(1000));
    let mut settings = of(Durability::Process);
    settings.clock = clock.clone();
    settings.fanout = 8;
    settings.split_into = 8;
    settings.read_aware = false;
    let store = Wip::create(files.clone(), Path::new(PATH), settings).unwrap();
    (files, store, clock)
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn put(store: &Wip, number: u64, round: u8) {
    store.put(Put { key: &key(number), value: &[round; 100], expires_at: None }, Durably::Later).unwrap();
}

fn work(store: &Wip) {
    while store.step(Chore::Flush, &|| false) == Rest::More {}
    while store.step(Chore::Merge, &|| false) == Rest::More {}
}

/// Lets so many seconds pass without a write.
fn idle(store: &Wip, clock: &ManualClock, seconds: u64) {
    for _ in 0..seconds {
        work(store);
        clock.advance(1000);
    }
}

/// Tables take at most so many times the bytes of the live records.
fn assert_space(store: &Wip, live: u64, most: f64) {
    let space = store.stats().disk.unwrap().table_bytes as f64 / (live * 116) as f64;
    assert!(space <= most, "{space:.2} times the live data");
}

#[test]
fn inserts_write_at_most_the_papers_bound() {
    let (store, _) = store();
    for number in 0..8 * KEYS {
        put(&store, number, 1);
        if number % 64 == 0 {
            work(&store);
        }
        if number > 0 && number % KEYS == 0 {
            let disk = store.stats().disk.unwrap();
            let written = disk.table_bytes_written as f64 / disk.written_bytes as f64;
            // The bound, and the bytes that blocks, indexes and filters add to each copy.
            assert!(written <= 4.143 * 1.25, "{number}: {written:.3}");
        }
    }
}

#[test]
fn overwritten_data_does_not_pile_up() {
    let (store, _) = store();
    (0..KEYS).for_each(|number| put(&store, number, 0));
    let mut draws = Draws(3);
    for turn in 0..3 * KEYS {
        put(&store, draws.roll(KEYS), turn as u8);
        if turn % 64 == 0 {
            work(&store);
        }
    }
    work(&store);
    assert_space(&store, KEYS, 1.6);
    let count = store.len().get() as f64 / KEYS as f64;
    assert!((0.7..1.6).contains(&count), "{count:.2} of the keys are counted");
}

#[test]
fn deleted_data_goes_when_the_store_is_idle() {
    let (store, clock) = store();
    (0..KEYS).for_each(|number| put(&store, number, 0));
    work(&store);
    for number in (0..KEYS).filter(|number| number % 10 != 0) {
        store.delete(&key(number), Durably::Later).unwrap();
    }
    idle(&store, &clock, 60);
    assert_space(&store, KEYS / 10, 1.3);
}

#[test]
fn expired_data_goes_when_the_store_is_idle() {
    let (store, clock) = store();
    for number in 0..KEYS {
        let expires_at = (number % 10 != 0).then_some(5000 + number % 1000);
        store.put(Put { key: &key(number), value: &[1; 100], expires_at }, Durably::Later).unwrap();
    }
    work(&store);
    assert!(store.stats().disk.unwrap().table_bytes > KEYS * 100);
    clock.advance(10_000);
    idle(&store, &clock, 30);
    assert_space(&store, KEYS / 10, 1.3);
}

#[test]
fn small_neighbours_are_joined_when_idle() {
    let (files, store, clock) = store_in();
    (0..8 * KEYS).for_each(|number| put(&store, number, 1));
    work(&store);
    let buckets = || store.stats().disk.unwrap().buckets;
    let many = buckets();
    assert!(many >= 8, "{many}");
    let is_kept = |number: u64| number.is_multiple_of(500);
    for number in (0..8 * KEYS).filter(|&number| !is_kept(number)) {
        store.delete(&key(number), Durably::Later).unwrap();
    }
    work(&store);
    idle(&store, &clock, 60);
    let disk = store.stats().disk.unwrap();
    assert_eq!(disk.buckets, 1);
    assert!(disk.joins >= many - 1, "{} joins of {many} buckets", disk.joins);
    let check = |store: &Wip| {
        for number in 0..8 * KEYS {
            assert_eq!(store.get(&key(number)).unwrap().is_some(), is_kept(number), "{number}");
        }
        assert_eq!(store.check(&mut |_, _| {}).findings, []);
    };
    check(&store);
    store.put(Put { key: &key(1), value: &[2; 100], expires_at: None }, Durably::Store).unwrap();
    drop(store);
    let store = crate::small::open(files, PATH).unwrap();
    assert_eq!(*store.get(&key(1)).unwrap().unwrap(), [2; 100]);
    store.delete(&key(1), Durably::Later).unwrap();
    check(&store);
}

/// The log may be longer than the memory with which it is read.
#[test]
fn replay_keeps_to_the_memory() {
    let files = SimFs::new(["/data"]);
    let mut settings = of(Durability::Process);
    (settings.memory, settings.log_bytes, settings.memtable_bytes) = (64 << 20, 64 << 20, 8 << 20);
    let store = Wip::create(files.clone(), Path::new(PATH), settings.clone()).unwrap();
    let batch = |number: u64| (0..50).map(move |nth| key(50 * number + nth));
    for number in 0..KEYS / 50 {
        let keys: Vec<[u8; 16]> = batch(number).collect();
        let puts: Vec<Put<'_>> =
            keys.iter().map(|key| Put { key, value: &[7; 100], expires_at: None }).collect();
        store.put_many(&puts, Durably::Store).into_iter().for_each(|done| done.unwrap());
    }
    store.put(Put { key: &key(3), value: b"newer", expires_at: None }, Durably::Store).unwrap();
    store.delete(&key(5), Durably::Store).unwrap();
    assert!(store.stats().disk.unwrap().memtable_bytes > 2 << 20);
    drop(store);
    (settings.memory, settings.memtable_bytes) = (512 << 10, 64 << 10);
    // Twice: the first open has flushed a part, and then the power fails.
    for _ in 0..2 {
        let store = Wip::open(files.clone(), Path::new(PATH), settings.clone()).unwrap();
        let memory = store.stats().disk.unwrap().memtable_bytes;
        assert!(memory <= settings.memory / 4 + 2 * settings.memtable_bytes, "{memory}");
        for number in (0..KEYS).filter(|number| ![3, 5].contains(number)) {
            assert_eq!(*store.get(&key(number)).unwrap().unwrap(), [7; 100], "{number}");
        }
        assert_eq!(*store.get(&key(3)).unwrap().unwrap(), *b"newer");
        assert!(store.get(&key(5)).unwrap().is_none());
        drop(store);
        files.crash(1);
    }
}

#[test]
fn seek_past_deleted_keys_reads_few_blocks() {
    let (store, clock) = store();
    (0..5 * KEYS).for_each(|number| {
        store.put(Put { key: &number.to_be_bytes(), value: b"v", expires_at: None }, Durably::Later).unwrap()
    });
    work(&store);
    for number in 0..5 * KEYS - 1 {
        store.delete(&number.to_be_bytes(), Durably::Later).unwrap();
    }
    idle(&store, &clock, 60);
    assert_seek(&store, 0, 5 * KEYS - 1);
}

/// Deleted keys in the midst of others, which no merge would touch for the garbage alone.
#[test]
fn deleted_keys_side_by_side_go_before_the_rest() {
    let files = SimFs::new(["/data"]);
    let mut settings = of(Durability::Process);
    (settings.memory, settings.memtable_bytes, settings.fanout) = (8 << 20, 1 << 20, 8);
    let store = Wip::create(files, Path::new(PATH), settings).unwrap();
    let put = |number: u64| {
        store.put(Put { key: &number.to_be_bytes(), value: &[7; 100], expires_at: None }, Durably::Later)
    };
    (0..3 * KEYS).for_each(|number| put(number).unwrap());
    terrace_engine::OnDisk::flush(&store).unwrap();
    work(&store);
    for number in KEYS..2 * KEYS {
        store.delete(&number.to_be_bytes(), Durably::Later).unwrap();
    }
    terrace_engine::OnDisk::flush(&store).unwrap();
    work(&store);
    assert_seek(&store, KEYS, 2 * KEYS);
}

/// A range from the key `from` on finds `expected` first, and reads few blocks for it.
fn assert_seek(store: &Wip, from: u64, expected: u64) {
    let before = store.stats().disk.unwrap().blocks_read;
    let mut found = Vec::new();
    let mut range = terrace_engine::Ordered::range(
        store,
        std::ops::Bound::Included(&from.to_be_bytes()),
        std::ops::Bound::Unbounded,
        terrace_engine::Direction::Forward,
    )
    .unwrap();
    range
        .visit(1, &mut |key, _| {
            found.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(found, [expected.to_be_bytes()]);
    let read = store.stats().disk.unwrap().blocks_read - before;
    assert!(read <= 4, "{read} blocks");
}

#[test]
fn close_leaves_little_to_the_log() {
    let files = SimFs::new(["/data"]);
    let mut settings = of(Durability::Process);
    (settings.memory, settings.memtable_bytes) = (32 << 20, 8 << 20);
    let store = Wip::create(files.clone(), Path::new(PATH), settings.clone()).unwrap();
    (0..KEYS).for_each(|number| put(&store, number, 1));
    assert!(store.stats().disk.unwrap().memtable_bytes > 2 << 20);
    Arc::new(store).close().unwrap();
    settings.read_only = true;
    let store = Wip::open(files, Path::new(PATH), settings).unwrap();
    assert!(store.stats().disk.unwrap().memtable_bytes < 64 << 10);
    (0..KEYS).for_each(|number| assert_eq!(*store.get(&key(number)).unwrap().unwrap(), [1; 100]));
}
