//! Tests: how much room the disk engine takes, and how much it writes.

use crate::wip::{Draws, PATH};
use crate::wip_script::of;
use std::path::Path;
use std::sync::Arc;
use terrace_engine::wip::Wip;
use terrace_engine::{Chore, Durability, Durably, Engine, ManualClock, Put, Rest};
use terrace_testkit::simfs::SimFs;

const KEYS: u64 = 20_000;

fn store() -> (Wip<SimFs>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1000));
    let mut settings = of(Durability::Process);
    settings.clock = clock.clone();
    settings.fanout = 8;
    settings.split_into = 8;
    settings.read_aware = false;
    (Wip::create(SimFs::new(["/data"]), Path::new(PATH), settings).unwrap(), clock)
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn put(store: &Wip<SimFs>, number: u64, round: u8) {
    store.put(Put { key: &key(number), value: &[round; 100], expires_at: None }, Durably::Later).unwrap();
}

fn work(store: &Wip<SimFs>) {
    while store.step(Chore::Flush, &|| false) == Rest::More {}
    while store.step(Chore::Merge, &|| false) == Rest::More {}
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
    let (disk, live) = (store.stats().disk.unwrap(), KEYS * 116);
    let space = disk.table_bytes as f64 / live as f64;
    assert!(space <= 1.6, "{space:.2} times the live data");
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
    for _ in 0..60 {
        work(&store);
        clock.advance(1000);
    }
    let (disk, live) = (store.stats().disk.unwrap(), KEYS / 10 * 116);
    let space = disk.table_bytes as f64 / live as f64;
    assert!(space <= 1.3, "{space:.2} times the live data");
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
    for _ in 0..30 {
        work(&store);
        clock.advance(1000);
    }
    let (disk, live) = (store.stats().disk.unwrap(), KEYS / 10 * 116);
    let space = disk.table_bytes as f64 / live as f64;
    assert!(space <= 1.3, "{space:.2} times the live data");
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
    for _ in 0..60 {
        work(&store);
        clock.advance(1000);
    }
    let before = store.stats().disk.unwrap().blocks_read;
    let mut found = Vec::new();
    let mut range = terrace_engine::Ordered::range(
        &store,
        std::ops::Bound::Unbounded,
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
    assert_eq!(found, [(5 * KEYS - 1).to_be_bytes()]);
    let read = store.stats().disk.unwrap().blocks_read - before;
    assert!(read <= 4, "{read} blocks");
}
