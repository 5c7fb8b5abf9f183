//! Tests of `write.rs`.

use super::super::super::test_pools::{Power, pool};
use super::super::shape::sealed::Shape;
use super::*;
use crate::{KeyKind, PointIndex, Stored, U64};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::{TappedPmem, TappedShm};

type Index<M> = Turbo<M, U64>;

/// One shard, of the size for `capacity` keys.
fn shard<M: MappedMedium>(pool: &Pool<M>, capacity: u64, buckets: u64) -> Index<M> {
    let index = Index::with_shards(pool, "index", 0, capacity).unwrap();
    assert_eq!(index.place(0).buckets(), buckets);
    index
}

/// Keys whose home is `bucket`, as long as the shard has this size.
fn keys_of<M: MappedMedium>(index: &Index<M>, bucket: u64) -> impl Iterator<Item = u64> {
    let (place, seed) = (index.place(0), index.seed);
    (0..).filter(move |key| place.home(U64::hash(key, seed)) == bucket)
}

fn insert<M: MappedMedium>(index: &Index<M>, keys: impl IntoIterator<Item = u64>) {
    let guard = index.pool().pin();
    keys.into_iter().for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
}

fn remove<M: MappedMedium>(index: &Index<M>, keys: impl IntoIterator<Item = u64>) {
    let guard = index.pool().pin();
    keys.into_iter().for_each(|key| assert_eq!(index.remove(&guard, &key), Some(key)));
}

/// Live and deleted slots of each bucket.
fn slots<M: MappedMedium>(index: &Index<M>) -> Vec<(u32, u32)> {
    let place = index.place(0);
    let metas = (0..place.buckets()).map(|at| meta(index.pool().medium(), index.bucket(place, at)));
    metas.map(|meta| (meta.live::<U64>().count_ones(), meta.deleted::<U64>().count_ones())).collect()
}

#[test]
fn full_shard_reports_twice_its_size() {
    let pool = pool::<Dram>(1 << 20);
    let index = shard(&pool, 0, 0);
    let full = index.shard_full(Place::new(1 << 12, 3));
    assert_eq!((full.wanted, full.size), (2 * 8 * 256, pool.size()));
}

#[test]
fn deleted_slot_is_filled_before_an_empty_one() {
    let pool = pool::<Dram>(1 << 20);
    let index = shard(&pool, 1, 1);
    insert(&index, 0..5);
    remove(&index, [2]);
    assert_eq!(slots(&index), [(4, 1)]);
    insert(&index, [7]);
    assert_eq!(slots(&index), [(5, 0)]);
}

#[test]
fn key_takes_the_first_vacancy_and_sets_overflow_bits() {
    let pool = pool::<Dram>(1 << 20);
    let index = shard(&pool, 40, 4);
    let keys: Vec<u64> = keys_of(&index, 0).take(30).collect();
    insert(&index, keys[..28].iter().copied());
    assert_eq!(slots(&index), [(14, 0), (14, 0), (0, 0), (0, 0)]);
    let place = index.place(0);
    let passed = || [0, 1, 2, 3].map(|at| word(index.bucket(place, at), 3).load(pool.medium(), Relaxed));
    let before = passed();
    assert_eq!(before[1..], [0, 0, 0]);
    insert(&index, [keys[28]]);
    assert_eq!(slots(&index)[2], (1, 0));
    let bit = overflow_bit::<U64>(U64::hash(&keys[28], index.seed) as u8);
    assert_eq!(passed(), [before[0] | bit, bit, 0, 0]);
    remove(&index, [keys[1], keys[20]]);
    assert_eq!(slots(&index), [(13, 1), (13, 1), (1, 0), (0, 0)]);
    insert(&index, [keys[29]]);
    assert_eq!(slots(&index), [(14, 0), (13, 1), (1, 0), (0, 0)]);
    assert_eq!(index.verify(&pool.pin()), []);
}

#[test]
fn overflow_bit_is_stored_once_a_class() {
    let pool = pool::<TappedPmem>(1 << 20);
    let index = shard(&pool, 40, 4);
    insert(&index, keys_of(&index, 0).take(14));
    let class = |key: &u64| overflow_bit::<U64>(U64::hash(key, index.seed) as u8);
    let more: Vec<u64> = keys_of(&index, 0).skip(14).take(200).collect();
    let alike: Vec<u64> = more.iter().copied().filter(|key| class(key) == class(&more[0])).take(2).collect();
    let cost = |key: u64| {
        let (counts, ()) = pool.medium().during(|| insert(&index, [key]));
        (counts.write_backs, counts.fences)
    };
    // Both go to the first line of the next bucket, where one fence is enough.
    assert_eq!([cost(alike[0]), cost(alike[1])], [(3, 2), (1, 1)]);
}

#[test]
fn one_bucket_takes_a_key_in_each_slot() {
    let pool = pool::<Dram>(1 << 20);
    let index = shard(&pool, 0, 0);
    for key in 0..14 {
        insert(&index, [key]);
        assert_eq!((index.stats(&pool.pin()).buckets, index.stats(&pool.pin()).resizes), (1, 1));
    }
    insert(&index, [14]);
    assert_eq!(index.stats(&pool.pin()).buckets, 2);
    remove(&index, 0..15);
    assert_eq!(index.stats(&pool.pin()).buckets, 1, "nor does it become smaller");
}

#[test]
fn shard_shrinks_below_an_eighth() {
    let pool = pool::<Dram>(1 << 20);
    // 112 slots.
    let index = shard(&pool, 80, 8);
    insert(&index, 0..16);
    let buckets = [15, 14, 13].map(|keys| {
        remove(&index, [keys]);
        index.stats(&pool.pin()).buckets
    });
    assert_eq!(buckets, [8, 2, 2]);
    assert_eq!((index.len(), index.verify(&pool.pin())), (13, vec![]));
}

#[test]
fn long_path_grows_a_full_shard() {
    let pool = pool::<Dram>(1 << 20);
    // 448 slots, of which 85% are 381.
    let index = shard(&pool, 300, 32);
    let buckets = || index.stats(&pool.pin()).buckets;
    let keys: Vec<u64> = keys_of(&index, 0).take(225).collect();
    insert(&index, keys[..223].iter().copied());
    for bucket in 17..32 {
        insert(&index, keys_of(&index, bucket).take(11));
    }
    assert_eq!((slots(&index)[15], index.len(), buckets()), ((13, 0), 388, 32));
    insert(&index, [keys[223]]);
    assert_eq!(buckets(), 32, "the sixteenth bucket of its path had a slot for it");
    insert(&index, [keys[224]]);
    assert_eq!((buckets(), index.verify(&pool.pin())), (64, vec![]));
}

#[test]
fn long_average_path_grows_a_full_shard() {
    for (keys, log2) in [(95, 3), (96, 4)] {
        let pool = pool::<Dram>(1 << 20);
        // 112 slots, of which 85% are 95.2; at most 12 keys have the same home.
        let index = shard(&pool, 80, 8);
        let all: Vec<u64> = (0..8).flat_map(|bucket| keys_of(&index, bucket).take(12)).collect();
        insert(&index, all[..keys].iter().copied());
        let measure = |average: u64| {
            let set = |_| index.descriptor(0).measure(pool.medium(), average, 3);
            (0..1000).map(set).last().unwrap()
        };
        let more: Vec<u64> = keys_of(&index, 0).skip(12).take(2).collect();
        assert!(measure(2) <= CROWDED);
        insert(&index, [more[0]]);
        remove(&index, [more[0]]);
        assert_eq!(index.place(0).log2(), 3);
        assert!(measure(3) > CROWDED);
        insert(&index, [more[1]]);
        assert_eq!(index.place(0).log2(), log2, "{keys} keys");
        // If it did not help, it is not tried again at once.
        assert!(index.descriptor(0).measure(pool.medium(), 1, 3) <= ONE_PROBE + ONE_PROBE / 8);
        assert_eq!(index.verify(&pool.pin()), []);
    }
}

#[test]
fn largest_shard_refuses_keys_when_full() {
    let pool = pool::<Dram>(64 << 20);
    let index = shard(&pool, 450_000, 1 << BUCKETS_LOG2_MAX);
    let (guard, place) = (pool.pin(), index.place(0));
    for bucket in (0..place.buckets()).map(|at| index.bucket(place, at)) {
        store_meta(pool.medium(), bucket, Meta(0).becoming::<U64>(all_slots::<U64>(), 0));
    }
    let key = (1..).find(|key| U64::hash(key, index.seed) as u8 != 0).unwrap();
    let full = index.insert(&guard, &key, 1).expect_err("every slot has a key");
    let crate::ChangeError::Full(full) = full else { panic!("{full}") };
    assert_eq!((full.wanted, index.place(0)), (2 * place.bytes() as u64, place));
    assert_eq!(index.get(&guard, &key), None);
}

/// The thread that moved a shard may die before it publishes the new place.
#[test]
fn writer_publishes_the_place_of_a_moved_shard() {
    let pool = pool::<Dram>(1 << 20);
    let index = shard(&pool, 1, 1);
    insert(&index, 0..10);
    let (guard, before) = (pool.pin(), index.place(0));
    let (lock, mut held) = index.lock_shard(&guard, 0);
    index.rehash(&guard, &mut held, 1).unwrap();
    drop(lock);
    let now = index.place(0);
    let writes: [&dyn Fn(); 3] =
        [&|| _ = index.update(&guard, &1, 100), &|| _ = index.update(&guard, &100, 100), &|| {
            drop(index.lock_shard(&guard, 0))
        }];
    for write in writes {
        index.publish(0, before);
        write();
        assert_eq!(index.place(0), now);
    }
    assert_eq!((index.get(&guard, &1), index.verify(&guard)), (Some(100), vec![]));
}

#[test]
fn home_is_read_once_if_it_decides() {
    let pool = pool::<TappedShm>(1 << 20);
    let index = shard(&pool, 1, 1);
    insert(&index, 0..9);
    let guard = pool.pin();
    let loads = |work: &dyn Fn()| pool.medium().during(work).0.loads;
    let locking = loads(&|| drop(index.lock_shard(&guard, 0)));
    for key in 0..12 {
        let hash = U64::hash(&key, index.seed);
        let probe = Probe::<U64>::new(&key, hash, index.route(hash).1);
        let bucket = index.bucket(index.place(0), 0);
        let live = meta(pool.medium(), bucket).live::<U64>();
        let is_alike =
            |&slot: &usize| live >> slot & 1 == 1 && tag_of(pool.medium(), bucket, slot) == probe.tag;
        assert!((0..U64::SLOTS).filter(is_alike).count() <= 1);
        let finding = loads(&|| _ = U64::find(&guard, bucket, &probe));
        assert_eq!(loads(&|| _ = index.update(&guard, &key, key)), locking + finding, "{key}");
        // The shard's place, and the overflow bits.
        assert_eq!(loads(&|| _ = index.get(&guard, &key)), 1 + finding + u64::from(key >= 9), "{key}");
    }
}

#[test]
fn answered_change_survives_power_loss_during_rehash() {
    let power = Power::new();
    let index = shard(&power.pool, 0, 0);
    let holds = |keys: std::ops::Range<u64>| {
        let pool = power.after_power_loss();
        let after = Index::recover(&pool, "index").unwrap().unwrap();
        let found: Vec<u64> = (0..60).filter(|key| after.get(&pool.pin(), key) == Some(*key)).collect();
        assert_eq!(found, keys.clone().collect::<Vec<_>>());
        pool.abandon();
    };
    for key in 0..60 {
        insert(&index, [key]);
        holds(0..key + 1);
    }
    let resizes = index.stats(&power.pool.pin()).resizes;
    for key in 0..60 {
        remove(&index, [key]);
        holds(key + 1..60);
    }
    assert!(resizes >= 3 && index.stats(&power.pool.pin()).resizes > resizes);
}
