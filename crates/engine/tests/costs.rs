//! What the engine asks of its medium, counted: write-backs and fences on a volatile cache, none elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::direct::{Direct, Key, Settings};
use terrace_engine::{Commit, Costs, Durability, Durably, Engine, ManualClock, Pooled, Put, What, Write};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{Bytes, CacheBounds, PointIndex, Stored};
use terrace_medium::{Dram, LINE, MappedMedium, Mapping, Offset, Pmem, Shm, Word};
use terrace_pool::{Geometry, Liveness, Lock, Pool, PoolOptions};
use terrace_testkit::{Counting, Counts};

const KEYS: u64 = 2000;

struct Counted<M: MappedMedium> {
    pool: Pool<Counting<M>>,
    store: Direct<Counting<M>>,
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
        durability: Durability::Process,
        clock: Arc::new(ManualClock::at(0)),
    }
}

impl<M: MappedMedium> Counted<M> {
    /// A store with keys in it, its index large enough for as many again.
    fn new() -> Self {
        let pool: Pool<Counting<M>> = PoolOptions::anonymous().size(64 << 20).hash_seed(5).create().unwrap();
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

/// Blocks of 96 bytes begin in the middle of a line half of the time, but none of them takes more than two lines.
const RECORD_LINES: u64 = 2;
/// What the statistics say.
const SAID: Costs = Costs::POWER;

#[test]
fn a_put_costs_its_record_a_slot_and_two_fences() {
    let counted = Counted::<Pmem>::new();
    let (write_backs, fences) =
        counted.costs(|| (0..KEYS).for_each(|n| counted.store.put(put(&key(n)), Durably::Store).unwrap()));
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
    let (write_backs, fences) = counted
        .costs(|| assert!(counted.store.put_many(&puts, Durably::Store).iter().all(|done| done.is_ok())));
    // Two keys of one bucket make the second one's writer fence for the first.
    assert!((2..6).contains(&fences), "{fences}");
    assert!(write_backs <= (RECORD_LINES + 1) * 64 + 8, "{write_backs}");
}

#[test]
fn puts_together_share_their_fences_up_to_a_mebibyte() {
    let counted = Counted::<Pmem>::new();
    let (keys, value) = ((0..6).map(key).collect::<Vec<_>>(), vec![7; 600 << 10]);
    let puts: Vec<Put<'_>> = keys.iter().map(|key| Put { key, value: &value, expires_at: None }).collect();
    let (_, fences) = counted
        .costs(|| assert!(counted.store.put_many(&puts, Durably::Store).iter().all(|done| done.is_ok())));
    // What is not published holds memory up: two at a time.
    assert!((6..10).contains(&fences), "{fences}");
}

#[test]
fn a_removal_costs_one_of_each_and_a_read_nothing() {
    let counted = Counted::<Pmem>::new();
    let read = |n| assert!(counted.store.get(&key(n)).unwrap().is_some() == (n < KEYS));
    assert_eq!(counted.costs(|| (0..2 * KEYS).for_each(read)), (0, 0));
    let remove = |n| assert!(counted.store.remove(&key(n), Durably::Store).unwrap());
    let (write_backs, fences) = counted.costs(|| (0..100).for_each(remove));
    assert_eq!((SAID.write_backs_per_removal, SAID.fences_per_removal), (1, 1));
    assert!((100..103).contains(&write_backs) && (100..103).contains(&fences), "{write_backs}, {fences}");
}

#[test]
fn batch_costs_six_fences_and_two_for_each_further_64_keys() {
    let counted = Counted::<Pmem>::new();
    let keys: Vec<[u8; 16]> = (0..500).map(key).collect();
    let what = What::Put { value: &VALUE, expires_at: None };
    let writes: Vec<Write<'_>> = keys.iter().map(|key| Write { key, what }).collect();
    let commit = |writes: &[Write<'_>]| {
        counted.costs(|| assert_eq!(counted.store.commit(writes, &[], Durably::Store), Ok(Commit::Done))).1
    };
    // The first one takes slabs for its records.
    commit(&writes[..2]);
    assert_eq!(commit(&writes[..2]), u64::from(SAID.fences_per_batch));
    // 500 keys are 8 pieces. Now and then two keys of a piece have a bucket in common.
    let fences = commit(&writes);
    assert!((20..20 + 16).contains(&fences), "{fences}");
    assert_eq!(commit(&writes[..1]), 2, "a single key needs no descriptor");
}

/// What new values for 500 keys cost, put one by one and in one batch.
fn costs_of_500<M: MappedMedium, I>() -> [Counts; 2]
where
    I: PointIndex<Medium = Counting<M>, Kind = Bytes<Key>> + Stored<Medium = Counting<M>> + 'static,
{
    let pool: Pool<Counting<M>> = PoolOptions::anonymous().size(64 << 20).hash_seed(5).create().unwrap();
    let store = Direct::open::<I>(pool.clone(), settings(20_000)).unwrap();
    (0..KEYS).for_each(|n| store.put(put(&key(n)), Durably::Store).unwrap());
    let keys: Vec<[u8; 16]> = (0..KEYS).step_by(4).map(key).collect();
    let what = What::Put { value: &VALUE, expires_at: None };
    let writes: Vec<Write<'_>> = keys.iter().map(|key| Write { key, what }).collect();
    let one_by_one = || keys.iter().for_each(|key| store.put(put(key), Durably::Store).unwrap());
    let as_batch = || assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
    // The first batches take slabs for their records.
    (0..4).for_each(|_| as_batch());
    one_by_one();
    [pool.medium().during(one_by_one).0, pool.medium().during(as_batch).0]
}

#[test]
fn batch_of_500_costs_no_more_than_500_puts() {
    fn check<M: MappedMedium, I>()
    where
        I: PointIndex<Medium = Counting<M>, Kind = Bytes<Key>> + Stored<Medium = Counting<M>> + 'static,
    {
        let [puts, batch] = costs_of_500::<M, I>();
        let what = format!("{} {}: {puts:?} {batch:?}", I::NAME, M::VOLATILE_CACHE);
        // TurboHash has few shards, which keys of a piece have in common.
        assert!(4 * batch.fences <= puts.fences, "{what}");
        assert!(batch.lines_read <= puts.lines_read, "{what}");
        // It writes a descriptor, and reads less.
        let lines = |counts: Counts| counts.lines_read + counts.lines_written;
        assert!(lines(batch) <= lines(puts), "{what}");
        // For each key its batch word, its old record in the descriptor, and now and then a bucket
        // anew that two keys have in common.
        assert!(batch.write_backs <= puts.write_backs + 4 * 500, "{what}");
    }
    check::<Pmem, Clht<_, Bytes<Key>>>();
    check::<Pmem, Turbo<_, Bytes<Key>>>();
    check::<Pmem, Rewo<_, Bytes<Key>>>();
    check::<Pmem, Level<_, Bytes<Key>>>();
    check::<Shm, Clht<_, Bytes<Key>>>();
    check::<Shm, Turbo<_, Bytes<Key>>>();
    check::<Shm, Rewo<_, Bytes<Key>>>();
    check::<Shm, Level<_, Bytes<Key>>>();
}

#[test]
fn nothing_is_flushed_where_no_cache_is_lost() {
    fn run<M: MappedMedium>() {
        let counted = Counted::<M>::new();
        let work = || {
            (0..100).for_each(|n| counted.store.put(put(&key(n)), Durably::Store).unwrap());
            let writes = [key(1), key(2)];
            let writes = writes.each_ref().map(|key| Write { key, what: What::Remove });
            assert_eq!(counted.store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
        };
        assert_eq!(counted.costs(work), (0, 0));
        assert_eq!(counted.store.stats().costs, Costs::PROCESS);
    }
    run::<Dram>();
    run::<Shm>();
}

/// Nobody reads or writes a seat but its thread, and who wants to know whether somebody is inside.
fn assert_that_readers_store_to_their_seat_alone<I>()
where
    I: PointIndex<Medium = Counting<Shm>, Kind = Bytes<Key>> + Stored<Medium = Counting<Shm>> + 'static,
{
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(directory.path().join("pool")).size(16 << 20).hash_seed(5).shared(true);
    let [writer, reader] = [(); 2].map(|()| {
        let pool: Pool<Counting<Shm>> = options.open_or_create().unwrap();
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
        ("a scan", &|| assert_ne!(store.scan(0, 100, &mut |_, _| {}), Ok(0))),
        ("any key", &|| assert!(store.random_key().unwrap().is_some())),
    ];
    for (what, read) in reads {
        // The first time it takes its seat.
        read();
        let (touched, ()) = pool.medium().touched(read);
        let seat = pool.layout().thread_slot(pool.pin().slot_index() as u32) / LINE as u64;
        assert!(touched.lines_read.len() > 2, "{what}");
        assert_eq!(touched.lines_written.into_iter().collect::<Vec<_>>(), [seat], "{what}");
    }
}

#[test]
fn who_reads_beside_others_stores_to_no_line_but_that_of_its_seat() {
    assert_that_readers_store_to_their_seat_alone::<Clht<Counting<Shm>, Bytes<Key>>>();
    assert_that_readers_store_to_their_seat_alone::<Turbo<Counting<Shm>, Bytes<Key>>>();
    assert_that_readers_store_to_their_seat_alone::<Rewo<Counting<Shm>, Bytes<Key>>>();
    assert_that_readers_store_to_their_seat_alone::<Level<Counting<Shm>, Bytes<Key>>>();
}

/// Nobody else is there, on this machine or on another one.
struct Lonely {
    is_here: bool,
}

impl Liveness for Lonely {
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

/// Write-backs and fences of taking and freeing so many locks, all at a time, if the others are processes of this machine or hosts of their own.
fn cost_of_locks<M: MappedMedium>(locks: usize, is_here: bool) -> (u64, u64) {
    let medium = Counting::over(M::new(Mapping::anonymous(1 << 20, 0).unwrap()));
    let pool = PoolOptions::anonymous().create_shared_on(medium, Arc::new(Lonely { is_here })).unwrap();
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
fn a_lock_s_note_is_made_durable_where_a_host_s_cache_is_lost_with_it_and_nowhere_else() {
    for locks in [1, 16, 20] {
        // More than 16 go to a second seat.
        assert_eq!(cost_of_locks::<Pmem>(locks, false), (2 * locks as u64, locks as u64));
        assert_eq!(cost_of_locks::<Pmem>(locks, true), (0, 0));
        assert_eq!(cost_of_locks::<Shm>(locks, false), (0, 0));
    }
}

/// Each shard of TurboHash leaves a block of its old size whenever it doubles, and all double at about the same number of keys.
#[test]
fn what_a_growing_index_leaves_is_room_for_records() {
    const RECORDS: u64 = 120_000;
    // With the slabs of a large pool: the shards' blocks lie in some.
    let options = PoolOptions::anonymous().size(96 << 20).geometry(Geometry::default()).hash_seed(5);
    let pool: Pool<Shm> = options.create().unwrap();
    let store = Direct::open::<Turbo<Shm, Bytes<Key>>>(pool.clone(), settings(0)).unwrap();
    (0..RECORDS).for_each(|n| store.put(put(&key(n)), Durably::Store).unwrap());
    let before = pool.space();
    let idle = before.slab_free + before.waiting_bytes;
    // As the background does.
    (0..5).for_each(|_| _ = store.maintain());
    let (stats, space) = (store.stats(), pool.space());
    let now = space.slab_free + space.waiting_bytes;
    assert!(now < idle / 3, "{idle} bytes lay idle before, {now} do now");
    // A block of 96 bytes each, the index, and some slabs of sizes that are in use no more, or hardly, which the thread keeps.
    let over = stats.overhead_bytes - space.metadata;
    let expected = RECORDS * 16 + stats.index.unwrap().bytes;
    assert!(over < expected + expected / 4, "{over} bytes over the data, {expected} of them needed");
}
