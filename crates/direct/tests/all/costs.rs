//! Counts what the engine asks of its medium: write-backs and fences on a volatile cache, none
//! elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_direct::{Direct, Key, Settings};
use terrace_engine::{
    Commit, Costs, Cursor, Durability, Durably, Engine, ManualClock, Pooled, Put, Write, WriteKind,
};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree, SpTree};
use terrace_index::{Bytes, CacheBounds, PointIndex, Stored};
use terrace_medium::{LINE, MappedMedium, Mapping, Offset, Shm, Word};
use terrace_pool::{Geometry, Liveness, Lock, Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped, TappedShm};

const KEYS: u64 = 2000;

struct Counted<const V: bool> {
    pool: Pool<Tapped<V>>,
    store: Direct<Tapped<V>>,
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

pub(crate) fn settings(expected_keys: u64) -> Settings {
    Settings {
        expected_keys,
        index_cache: CacheBounds::default(),
        index_dram: Some(0),
        verify_reads: true,
        read_only: false,
        durability: Durability::Process,
        clock: Arc::new(ManualClock::at(0)),
    }
}

impl<const V: bool> Counted<V> {
    /// A store with `KEYS` keys and an index large enough for ten times as many.
    fn new() -> Self {
        let pool: Pool<Tapped<V>> = PoolOptions::anonymous().size(64 << 20).hash_seed(5).create().unwrap();
        let store = Direct::open::<Clht<_, Bytes<Key>>>(pool.clone(), settings(20_000)).unwrap();
        (0..KEYS).for_each(|n| store.put(put(&key(n)), Durably::Store).unwrap());
        Self { pool, store }
    }

    /// Write-backs and fences of `work`.
    fn costs(&self, work: impl FnOnce()) -> (u64, u64) {
        let (counts, ()): (Counts, ()) = self.pool.medium().during(work);
        (counts.write_backs, counts.fences)
    }
}

/// A block of 96 bytes starts in the middle of a line half of the time, but never touches more than
/// two lines.
const RECORD_LINES: u64 = 2;
/// The costs that the statistics state.
const STATED: Costs = Costs::POWER;

#[test]
fn put_costs_record_slot_and_two_fences() {
    let counted = Counted::<true>::new();
    let (write_backs, fences) =
        counted.costs(|| (0..KEYS).for_each(|n| counted.store.put(put(&key(n)), Durably::Store).unwrap()));
    // Now and then the allocator persists a hint.
    let stated = u64::from(STATED.fences_per_put) * KEYS;
    assert!((stated..stated + KEYS / 100).contains(&fences), "{fences}");
    let stated = (RECORD_LINES + u64::from(STATED.write_backs_per_put)) * KEYS;
    assert!(write_backs < stated + KEYS / 100, "{write_backs}");
    assert!(write_backs >= stated - KEYS, "{write_backs}");
}

#[test]
fn puts_together_share_two_fences() {
    let counted = Counted::<true>::new();
    let keys: Vec<[u8; 16]> = (0..64).map(key).collect();
    let puts: Vec<Put<'_>> = keys.iter().map(|key| put(key)).collect();
    let (write_backs, fences) = counted
        .costs(|| assert!(counted.store.put_many(&puts, Durably::Store).iter().all(|done| done.is_ok())));
    // If two keys share a bucket, the put of the second fences for the first.
    assert!((2..6).contains(&fences), "{fences}");
    assert!(write_backs <= (RECORD_LINES + 1) * 64 + 8, "{write_backs}");
}

#[test]
fn puts_together_share_their_fences_up_to_a_mebibyte() {
    let counted = Counted::<true>::new();
    let (keys, value) = ((0..6).map(key).collect::<Vec<_>>(), vec![7; 600 << 10]);
    let puts: Vec<Put<'_>> = keys.iter().map(|key| Put { key, value: &value, expires_at: None }).collect();
    let (_, fences) = counted
        .costs(|| assert!(counted.store.put_many(&puts, Durably::Store).iter().all(|done| done.is_ok())));
    // Unpublished records delay the reuse of memory, so only two share a fence.
    assert!((6..10).contains(&fences), "{fences}");
}

#[test]
fn removal_costs_one_fence_and_read_nothing() {
    let counted = Counted::<true>::new();
    let read = |n| assert!(counted.store.get(&key(n)).unwrap().is_some() == (n < KEYS));
    assert_eq!(counted.costs(|| (0..2 * KEYS).for_each(read)), (0, 0));
    let remove = |n| assert!(counted.store.remove(&key(n), Durably::Store).unwrap());
    let (write_backs, fences) = counted.costs(|| (0..100).for_each(remove));
    assert_eq!((STATED.write_backs_per_removal, STATED.fences_per_removal), (1, 1));
    assert!((100..103).contains(&write_backs) && (100..103).contains(&fences), "{write_backs}, {fences}");
}

#[test]
fn batch_costs_six_fences_and_two_for_each_further_64_keys() {
    let counted = Counted::<true>::new();
    let keys: Vec<[u8; 16]> = (0..500).map(key).collect();
    let what = WriteKind::Put { value: &VALUE, expires_at: None };
    let writes: Vec<Write<'_>> = keys.iter().map(|key| Write { key, what }).collect();
    let commit = |writes: &[Write<'_>]| {
        counted.costs(|| assert_eq!(counted.store.commit(writes, &[], Durably::Store), Ok(Commit::Done))).1
    };
    // The first batch allocates slabs for its records.
    commit(&writes[..2]);
    assert_eq!(commit(&writes[..2]), u64::from(STATED.fences_per_batch));
    // 500 keys are 8 pieces. Now and then two keys of a piece share a bucket.
    let fences = commit(&writes);
    assert!((20..20 + 16).contains(&fences), "{fences}");
    assert_eq!(commit(&writes[..1]), 2, "a single key needs no descriptor");
}

/// The costs of new values for 500 keys, put one by one and in one batch.
fn costs_of_500<const V: bool, I>() -> [Counts; 2]
where
    I: PointIndex<Medium = Tapped<V>, Kind = Bytes<Key>> + Stored<Medium = Tapped<V>> + 'static,
{
    let pool: Pool<Tapped<V>> = PoolOptions::anonymous().size(64 << 20).hash_seed(5).create().unwrap();
    let store = Direct::open::<I>(pool.clone(), settings(20_000)).unwrap();
    (0..KEYS).for_each(|n| store.put(put(&key(n)), Durably::Store).unwrap());
    let keys: Vec<[u8; 16]> = (0..KEYS).step_by(4).map(key).collect();
    let what = WriteKind::Put { value: &VALUE, expires_at: None };
    let writes: Vec<Write<'_>> = keys.iter().map(|key| Write { key, what }).collect();
    let one_by_one = || keys.iter().for_each(|key| store.put(put(key), Durably::Store).unwrap());
    let as_batch = || assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
    // The first batches allocate slabs for their records.
    (0..4).for_each(|_| as_batch());
    one_by_one();
    [pool.medium().during(one_by_one).0, pool.medium().during(as_batch).0]
}

#[test]
fn batch_of_500_costs_no_more_than_500_puts() {
    /// A batch has at most one fence for so many of single puts, and so many more write-backs for
    /// each key.
    fn check<const V: bool, I>(share: u64, more: u64)
    where
        I: PointIndex<Medium = Tapped<V>, Kind = Bytes<Key>> + Stored<Medium = Tapped<V>> + 'static,
    {
        let [puts, batch] = costs_of_500::<V, I>();
        let what = format!("{} {}: {puts:?} {batch:?}", I::NAME, V);
        // TurboHash has few shards, so keys of a piece share them.
        assert!(share * batch.fences <= puts.fences, "{what}");
        assert!(batch.lines_read <= puts.lines_read, "{what}");
        // A batch writes a descriptor, and reads less.
        let lines = |counts: Counts| counts.lines_read + counts.lines_written;
        assert!(lines(batch) <= lines(puts), "{what}");
        // For each key its batch word, its old record in the descriptor, and now and then once more
        // a bucket that two keys share.
        assert!(batch.write_backs <= puts.write_backs + more * 500, "{what}");
    }
    check::<true, Clht<_, Bytes<Key>>>(4, 4);
    check::<true, Turbo<_, Bytes<Key>>>(4, 4);
    check::<true, Rewo<_, Bytes<Key>>>(4, 4);
    check::<true, Level<_, Bytes<Key>>>(4, 4);
    check::<true, Art<_, Bytes<Key>>>(4, 4);
    check::<true, Hot<_, Bytes<Key>>>(4, 4);
    check::<true, Masstree<_, Bytes<Key>>>(4, 4);
    // Each of its changes has a slot, which is durable before the page's entry counts it.
    check::<true, BwTree<_, Bytes<Key>>>(1, 4);
    // Many keys lie in one node, whose lock is unfenced for each but the first: a fence more.
    check::<true, SpTree<_, Bytes<Key>>>(1, 4);
    check::<false, Clht<_, Bytes<Key>>>(4, 4);
    check::<false, Turbo<_, Bytes<Key>>>(4, 4);
    check::<false, Rewo<_, Bytes<Key>>>(4, 4);
    check::<false, Level<_, Bytes<Key>>>(4, 4);
    check::<false, Art<_, Bytes<Key>>>(4, 4);
}

/// How often changes of single keys by the store over SPTree cost so many write-backs and fences:
/// puts of absent keys, puts of present ones, and removals.
fn costs_over_sptree() -> [BTreeMap<(u64, u64), u64>; 3] {
    let pool: Pool<Tapped<true>> = PoolOptions::anonymous().size(64 << 20).hash_seed(5).create().unwrap();
    let store = Direct::open_ordered::<SpTree<_, Bytes<Key>>>(pool.clone(), settings(0)).unwrap();
    let put = |n| store.put(put(&key(n)), Durably::Store).unwrap();
    let remove = |n| assert!(store.remove(&key(n), Durably::Store).unwrap());
    let changes: [&dyn Fn(u64); 3] = [&put, &put, &remove];
    changes.map(|change| {
        let mut times = BTreeMap::new();
        for n in 0..KEYS {
            let (counts, ()) = pool.medium().during(|| change(n));
            *times.entry((counts.write_backs, counts.fences)).or_default() += 1;
        }
        times
    })
}

/// Splits, joins and slabs cost more.
#[test]
fn change_over_sptree_costs_its_lines() {
    // The slot and its tag, then the bit; the slot; the bit.
    let expected = [(RECORD_LINES + 3, 3), (RECORD_LINES + 1, 2), (1, 1)];
    for (times, expected) in costs_over_sptree().iter().zip(expected) {
        assert!(times[&expected] > KEYS * 97 / 100, "{expected:?} of {times:?}");
    }
}

#[test]
fn no_flush_without_a_volatile_cache() {
    fn run<const V: bool>() {
        let counted = Counted::<V>::new();
        let work = || {
            (0..100).for_each(|n| counted.store.put(put(&key(n)), Durably::Store).unwrap());
            let writes = [key(1), key(2)];
            let writes = writes.each_ref().map(|key| Write { key, what: WriteKind::Remove });
            assert_eq!(counted.store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
        };
        assert_eq!(counted.costs(work), (0, 0));
        assert_eq!(counted.store.stats().costs, Costs::PROCESS);
    }
    run::<false>();
    run::<false>();
}

/// Only a slot's own thread writes its line, so other threads' reads do not contend for it.
fn assert_readers_store_to_own_slot_only<I>()
where
    I: PointIndex<Medium = TappedShm, Kind = Bytes<Key>> + Stored<Medium = TappedShm> + 'static,
{
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(directory.path().join("pool")).size(16 << 20).hash_seed(5).shared(true);
    let [writer, reader] = [(); 2].map(|()| {
        let pool: Pool<TappedShm> = options.open_or_create().unwrap();
        (pool.clone(), Direct::open::<I>(pool, settings(KEYS)).unwrap())
    });
    (0..KEYS).for_each(|n| writer.1.put(put(&key(n)), Durably::Store).unwrap());
    let (pool, store) = (&reader.0, &reader.1);
    let keys: Vec<[u8; 16]> = (KEYS - 50..KEYS + 50).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let get = |n| assert_eq!(store.get(&key(n)).unwrap().is_some(), n < KEYS);
    let reads: [(&str, &dyn Fn()); 7] = [
        ("a hit", &|| (0..100).for_each(get)),
        ("a miss", &|| (KEYS..KEYS + 100).for_each(get)),
        ("many", &|| store.get_many(&keys, &mut |_, entry| assert!(entry.is_ok()))),
        ("a snapshot", &|| store.snapshot_many(&keys, &mut |_, entry| assert!(entry.is_ok()))),
        ("a version", &|| keys.iter().for_each(|key| assert!(store.version(key).is_ok()))),
        ("a scan", &|| assert_ne!(store.scan(&Cursor::START, 100, &mut |_, _| {}), Ok(Cursor::END))),
        ("any key", &|| assert!(store.random_key().unwrap().is_some())),
    ];
    for (what, read) in reads {
        // The first read takes the thread slot.
        read();
        let (touched, ()) = pool.medium().touched(read);
        let slot = pool.layout().thread_slot(pool.pin().slot_index() as u32) / LINE as u64;
        assert!(touched.lines_read.len() > 2, "{what}");
        assert_eq!(touched.lines_written.into_iter().collect::<Vec<_>>(), [slot], "{what}");
    }
}

#[test]
fn shared_reads_store_to_own_slot_only() {
    assert_readers_store_to_own_slot_only::<Clht<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<Turbo<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<Rewo<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<Level<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<Art<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<Hot<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<Masstree<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<BwTree<TappedShm, Bytes<Key>>>();
    assert_readers_store_to_own_slot_only::<SpTree<TappedShm, Bytes<Key>>>();
}

/// Liveness for a process without others, on this machine or on another one.
struct NoOthers {
    is_here: bool,
}

impl Liveness for NoOthers {
    fn claim(&self, _: u32) -> std::io::Result<bool> {
        Ok(true)
    }
    fn release(&self, _: u32) {}
    fn is_alive(&self, _: u32) -> bool {
        false
    }
    fn enter(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn leave(&self) {}
    fn has_common_kernel(&self) -> bool {
        self.is_here
    }
}

/// Write-backs and fences of taking and freeing `locks` locks, all held at a time. Other
/// participants are processes of this machine (`is_here`) or other hosts.
fn cost_of_locks<const V: bool>(locks: usize, is_here: bool) -> (u64, u64) {
    let medium = Tapped::<V>::new(Mapping::anonymous(1 << 20, 0).unwrap());
    let pool = PoolOptions::anonymous().create_shared_on(medium, Arc::new(NoOthers { is_here })).unwrap();
    let guard = pool.pin();
    let at = guard.alloc(8 * locks).unwrap().persist().into_offset();
    let words: Vec<&Word> =
        (0..locks as u64).map(|nth| pool.region().at(Offset::new(at + 8 * nth))).collect();
    words.iter().for_each(|word| word.store(pool.medium(), 0, Relaxed));
    let (counts, ()) = pool.medium().during(|| {
        let held: Vec<_> = words.iter().map(|word| Lock::of(word).acquire(&guard)).collect();
        drop(held);
    });
    (counts.write_backs, counts.fences)
}

#[test]
fn lock_intent_is_persisted_among_hosts_only() {
    for locks in [1, 16, 20] {
        // More than 16 need a second slot.
        assert_eq!(cost_of_locks::<true>(locks, false), (2 * locks as u64, locks as u64));
        assert_eq!(cost_of_locks::<true>(locks, true), (0, 0));
        assert_eq!(cost_of_locks::<false>(locks, false), (0, 0));
    }
}

/// Each shard of TurboHash retires a block of its old size whenever it doubles, and all double at
/// about the same number of keys. These blocks must serve records.
#[test]
fn blocks_of_grown_index_serve_records() {
    const RECORDS: u64 = 120_000;
    // With the slabs of a large pool, some contain the shards' blocks.
    let options = PoolOptions::anonymous().size(96 << 20).geometry(Geometry::default()).hash_seed(5);
    let pool: Pool<Shm> = options.create().unwrap();
    let store = Direct::open::<Turbo<Shm, Bytes<Key>>>(pool.clone(), settings(0)).unwrap();
    (0..RECORDS).for_each(|n| store.put(put(&key(n)), Durably::Store).unwrap());
    let before = pool.space();
    let idle = before.slab_free + before.waiting_bytes;
    // As the background work does.
    (0..5).for_each(|_| _ = store.maintain());
    let (stats, space) = (store.stats(), pool.space());
    let now = space.slab_free + space.waiting_bytes;
    assert!(now < idle / 3, "{idle} bytes were unused before, {now} are now");
    // Per record a block of 96 bytes; the index; and some slabs of sizes that are hardly used any
    // more, which the thread keeps.
    let over = stats.overhead_bytes - space.metadata;
    let expected = RECORDS * 16 + stats.index.unwrap().bytes;
    assert!(over < expected + expected / 4, "{over} bytes over the data, {expected} of them needed");
}
