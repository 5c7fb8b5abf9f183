//! What the engine asks of its medium, counted: write-backs and fences on a volatile cache, none elsewhere.

use std::sync::Arc;
use terrace_engine::direct::{Direct, Key, Settings};
use terrace_engine::{Commit, Costs, Engine, ManualClock, Put, What, Write};
use terrace_index::hash::{Clht, Turbo};
use terrace_index::{Bytes, CacheBounds};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::{Geometry, Pool, PoolOptions};
use terrace_testkit::{Counting, Counts};

const KEYS: u64 = 2000;

struct Counted<M: MappedMedium> {
    pool: Pool<Counting<M>>,
    store: Direct<Clht<Counting<M>, Bytes<Key>>>,
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&n.to_le_bytes());
    key
}

const VALUE: [u8; 64] = [7; 64];

fn put(key: &[u8]) -> Put<'_> {
    Put { key, value: &VALUE, expires_at: None }
}

fn settings(expected_keys: u64) -> Settings {
    Settings {
        expected_keys,
        index_cache: CacheBounds::default(),
        verify_reads: true,
        read_only: false,
        clock: Arc::new(ManualClock::at(0)),
    }
}

impl<M: MappedMedium> Counted<M> {
    /// A store with keys in it, its index large enough for as many again.
    fn new() -> Self {
        let pool: Pool<Counting<M>> = PoolOptions::anonymous().size(64 << 20).hash_seed(5).create().unwrap();
        let store = Direct::open(pool.clone(), settings(20_000)).unwrap();
        (0..KEYS).for_each(|n| store.put(put(&key(n))).unwrap());
        Self { pool, store }
    }

    /// Write-backs and fences of `work`.
    fn costs(&self, work: impl FnOnce()) -> (u64, u64) {
        let (counts, ()): (Counts, ()) = self.pool.medium().during(work);
        (counts.write_backs, counts.fences)
    }
}

/// Blocks of 96 bytes begin in the middle of a line half of the time, but none of them takes more than two lines.
const RECORD_LINES: u64 = 2;
/// What the statistics say.
const SAID: Costs = Costs::POWER;

#[test]
fn a_put_costs_its_record_a_slot_and_two_fences() {
    let counted = Counted::<Pmem>::new();
    let (write_backs, fences) =
        counted.costs(|| (0..KEYS).for_each(|n| counted.store.put(put(&key(n))).unwrap()));
    // Now and then the allocator makes a hint durable.
    let said = u64::from(SAID.fences_per_put) * KEYS;
    assert!((said..said + KEYS / 100).contains(&fences), "{fences}");
    let said = (RECORD_LINES + u64::from(SAID.write_backs_per_put)) * KEYS;
    assert!(write_backs < said + KEYS / 100, "{write_backs}");
    assert!(write_backs >= said - KEYS, "{write_backs}");
}

#[test]
fn puts_together_share_two_fences() {
    let counted = Counted::<Pmem>::new();
    let keys: Vec<[u8; 16]> = (0..64).map(key).collect();
    let puts: Vec<Put<'_>> = keys.iter().map(|key| put(key)).collect();
    let (write_backs, fences) =
        counted.costs(|| assert!(counted.store.put_many(&puts).iter().all(|done| done.is_ok())));
    // Two keys of one bucket make the second one's writer fence for the first.
    assert!((2..6).contains(&fences), "{fences}");
    assert!(write_backs <= (RECORD_LINES + 1) * 64 + 8, "{write_backs}");
}

#[test]
fn a_removal_costs_one_of_each_and_a_read_nothing() {
    let counted = Counted::<Pmem>::new();
    let read = |n| assert!(counted.store.get(&key(n)).unwrap().is_some() == (n < KEYS));
    assert_eq!(counted.costs(|| (0..2 * KEYS).for_each(read)), (0, 0));
    let remove = |n| assert!(counted.store.remove(&key(n)).unwrap());
    let (write_backs, fences) = counted.costs(|| (0..100).for_each(remove));
    assert_eq!((SAID.write_backs_per_removal, SAID.fences_per_removal), (1, 1));
    assert!((100..103).contains(&write_backs) && (100..103).contains(&fences), "{write_backs}, {fences}");
}

#[test]
fn a_batch_costs_six_fences_whatever_its_size() {
    let counted = Counted::<Pmem>::new();
    let keys: Vec<[u8; 16]> = (0..500).map(key).collect();
    let what = What::Put { value: &VALUE, expires_at: None };
    let writes: Vec<Write<'_>> = keys.iter().map(|key| Write { key, what }).collect();
    let commit = |writes: &[Write<'_>]| {
        counted.costs(|| assert_eq!(counted.store.commit(writes, &[]), Ok(Commit::Done))).1
    };
    // The first one takes slabs for its records.
    commit(&writes[..2]);
    assert_eq!(commit(&writes[..2]), u64::from(SAID.fences_per_batch));
    // Some keys have a bucket in common.
    let fences = commit(&writes);
    assert!((6..60).contains(&fences), "{fences}");
    assert_eq!(commit(&writes[..1]), 2, "a single key needs no descriptor");
}

#[test]
fn nothing_is_flushed_where_no_cache_is_lost() {
    fn run<M: MappedMedium>() {
        let counted = Counted::<M>::new();
        let work = || {
            (0..100).for_each(|n| counted.store.put(put(&key(n))).unwrap());
            let writes = [key(1), key(2)];
            let writes = writes.each_ref().map(|key| Write { key, what: What::Remove });
            assert_eq!(counted.store.commit(&writes, &[]), Ok(Commit::Done));
        };
        assert_eq!(counted.costs(work), (0, 0));
        assert_eq!(counted.store.stats().costs, Costs::PROCESS);
    }
    run::<Dram>();
    run::<Shm>();
}

/// Each shard of TurboHash leaves a block of its old size whenever it doubles, and all double at about the same number of keys.
#[test]
fn what_a_growing_index_leaves_is_room_for_records() {
    const RECORDS: u64 = 120_000;
    // With the slabs of a large pool: the shards' blocks lie in some.
    let options = PoolOptions::anonymous().size(96 << 20).geometry(Geometry::default()).hash_seed(5);
    let pool: Pool<Shm> = options.create().unwrap();
    let store: Direct<Turbo<Shm, Bytes<Key>>> = Direct::open(pool.clone(), settings(0)).unwrap();
    (0..RECORDS).for_each(|n| store.put(put(&key(n))).unwrap());
    let before = pool.space();
    let idle = before.slab_free + before.waiting;
    // As the background does.
    (0..5).for_each(|_| _ = store.maintain());
    let (stats, space) = (store.stats(), pool.space());
    let now = space.slab_free + space.waiting;
    assert!(now < idle / 3, "{idle} bytes lay idle before, {now} do now");
    // A block of 96 bytes each, the index, and some slabs of sizes that are in use no more, or hardly, which the thread keeps.
    let over = stats.overhead_bytes - space.metadata;
    let expected = RECORDS * 16 + stats.index_bytes;
    assert!(over < expected + expected / 4, "{over} bytes over the data, {expected} of them needed");
}
