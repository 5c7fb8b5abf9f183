//! Tests: Rewo-Hash's cached table; its answers, what it saves, and that it never returns a stale
//! word.
#![allow(missing_docs, clippy::print_stdout, reason = "tests, whose figures are printed")]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::spread as key;
use terrace_index::hash::{Rewo, RewoShape};
use terrace_index::{Bytes, CacheBounds, CacheStats, Deferred, Inserted, PointIndex, Stored, Swapped, U64};
use terrace_medium::{Dram, MappedMedium, Shm};
use terrace_pool::{Guard, Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped, TappedPmem, TappedShm, TestKeys, TestRecord, jittery};

fn pool<M: MappedMedium>() -> Pool<M> {
    PoolOptions::anonymous().size(64 << 20).hash_seed(11).create().expect("memory for a pool")
}

fn cached<M: MappedMedium>(min: u64, max: u64) -> Rewo<M, U64> {
    Rewo::with_shape(&pool(), "rewo", 10, 8).expect("room for a table").with_cache(CacheBounds { min, max })
}

fn cache_stats(index: &impl PointIndex) -> CacheStats {
    index.cache().expect("a cache")
}

/// The cost of searches, and how many of them the cache answered.
fn search<const V: bool>(index: &Rewo<Tapped<V>, U64>, keys: std::ops::Range<u64>) -> (Counts, u64) {
    let (guard, hits) = (index.pool().pin(), cache_stats(index).hits);
    let searches = || keys.clone().for_each(|n| _ = index.get(&guard, &key(n)));
    let counts = index.pool().medium().during(searches).0;
    (counts, cache_stats(index).hits - hits)
}

#[test]
fn hit_in_a_complete_cache_reads_no_line() {
    let index = cached::<TappedPmem>(1 << 20, 1 << 20);
    let guard = index.pool().pin();
    (0..3000).for_each(|n| assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New)));
    let (counts, hits) = search(&index, 0..6000);
    assert_eq!((counts, hits), (Counts::default(), 6000));
    let keys: Vec<u64> = (2990..3010).map(key).collect();
    let (counts, ()) = index.pool().medium().during(|| {
        index.get_many(&guard, &keys, |nth, word| assert_eq!(word, (nth < 10).then_some(2990 + nth as u64)));
        assert_eq!(index.get_sound(&guard, &key(1)), Ok(Some(1)));
        assert_eq!(index.get_sound(&guard, &key(4000)), Ok(None));
    });
    assert_eq!(counts, Counts::default());
}

#[test]
fn least_recently_used_key_is_replaced() {
    let index = cached::<TappedPmem>(128, 128);
    let guard = index.pool().pin();
    (0..100).for_each(|n| assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New)));
    let hits = |n: u64| search(&index, n..n + 1).1;
    // Seven keys fit.
    let all: Vec<u64> = (50..57).map(hits).collect();
    assert!(all.iter().all(|&hits| hits == 0), "{all:?}");
    assert!((50..57).all(|n| hits(n) == 1));
    assert_eq!((hits(60), hits(51), hits(50), hits(51)), (0, 1, 0, 1), "50 gave way to 60, and 52 to 50");
    assert_eq!((hits(52), hits(60), hits(53)), (0, 1, 0));
}

#[test]
fn get_many_fills_the_current_cache() {
    let index = cached::<TappedPmem>(1 << 16, 1 << 16);
    let guard = index.pool().pin();
    (0..100).for_each(|n| assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New)));
    index.resize_cache(1 << 15);
    let stats = cache_stats(&index);
    assert_eq!((stats.bytes, stats.misses), (1 << 15, 0));
    let keys: Vec<u64> = (0..100).map(key).collect();
    index.get_many(&guard, &keys, |nth, word| assert_eq!(word, Some(nth as u64)));
    assert_eq!(cache_stats(&index).misses, 100, "it was empty");
    assert_eq!(search(&index, 0..100), (Counts::default(), 100));
}

#[test]
fn changes_are_visible_at_once_and_cached_when_durable() {
    let index = cached::<TappedPmem>(1 << 16, 1 << 16);
    let guard = index.pool().pin();
    for n in 0..50 {
        assert_eq!(index.upsert(&guard, &key(n), n), Ok(None));
        assert_eq!(index.upsert(&guard, &key(n), n + 1), Ok(Some(n)));
        assert_eq!(index.update(&guard, &key(n), n + 2), Some(n + 1));
    }
    for n in 0..25 {
        assert_eq!(index.remove(&guard, &key(n)), Some(n + 2));
    }
    let (counts, hits) = search(&index, 0..50);
    assert_eq!((counts.lines_read, hits), (0, 50));
    for n in 0..50 {
        assert_eq!(index.get(&guard, &key(n)), (n >= 25).then_some(n + 2));
    }
}

#[test]
fn deferred_change_is_persisted_before_it_is_cached() {
    let index = cached::<TappedPmem>(1 << 16, 1 << 16);
    let guard = index.pool().pin();
    let mut deferred = Deferred::default();
    for n in 0..3 {
        let done = index.compare_and_swap_deferred(&guard, &key(n), None, Some(n), &mut deferred);
        assert_eq!(done, Ok(Swapped::Done));
    }
    let (counts, hits) = search(&index, 0..1);
    assert!(hits == 0 && counts.fences == 1, "the reader sees to it: {counts:?}");
    let (counts, hits) = search(&index, 0..1);
    assert_eq!((counts, hits), (Counts::default(), 1));
    index.persist_deferred(&guard, deferred);
    let (counts, hits) = search(&index, 1..3);
    assert!(hits == 0 && counts.fences == 0, "{counts:?}");
    assert_eq!(search(&index, 0..100).1, 100, "nothing is missing in it");
    let mut deferred = Deferred::default();
    let done = index.compare_and_swap_deferred(&guard, &key(1), Some(1), None, &mut deferred);
    assert_eq!((done, index.get(&guard, &key(1))), (Ok(Swapped::Done), None));
    index.persist_deferred(&guard, deferred);
}

#[test]
fn cache_of_a_filled_table_is_incomplete() {
    let pool = pool::<Shm>();
    let bounds = CacheBounds { min: 1 << 18, max: 1 << 18 };
    let index = Rewo::<Shm, U64>::create(&pool, "rewo", 1000).unwrap();
    let guard = pool.pin();
    (0..1000).for_each(|n| assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New)));
    drop(index);
    let index = Rewo::<Shm, U64>::recover(&pool, "rewo").unwrap().unwrap().with_cache(bounds);
    for round in 0..2 {
        assert!((0..1000).all(|n| index.get(&guard, &key(n)) == Some(n)));
        assert!((1000..2000).all(|n| index.get(&guard, &key(n)).is_none()));
        let stats = cache_stats(&index);
        assert_eq!((stats.hits, stats.misses), (round * 1000, 2000 + round * 1000));
    }
    let full = Rewo::<Shm, U64>::create(&pool, "more", 1000).unwrap();
    (0..1000).for_each(|n| assert_eq!(full.insert(&guard, &key(n), n), Ok(Inserted::New)));
    let full = full.with_cache(bounds);
    assert!((0..1000).all(|n| full.get(&guard, &key(n)) == Some(n)), "it came too late to have seen them");
}

#[test]
fn no_bounds_make_no_cache() {
    let index = cached::<Dram>(0, 0);
    assert_eq!(index.cache(), None);
}

#[test]
fn cached_byte_strings_are_compared_by_record() {
    let pool = pool::<TappedPmem>();
    type Kind = Bytes<TestRecord>;
    let bounds = CacheBounds { min: 1 << 16, max: 1 << 16 };
    let index = Rewo::<_, Kind>::create(&pool, "rewo", 1000).unwrap().with_cache(bounds);
    let guard = pool.pin();
    let keys: Vec<_> = (0..500).map(Kind::key).collect();
    for (n, key) in keys.iter().enumerate() {
        let word = Kind::word(&guard, key, n as u64, 0).unwrap();
        index.insert(&guard, key, word).unwrap();
    }
    let reading = || keys.iter().for_each(|key| assert!(index.get(&guard, key).is_some()));
    let with = pool.medium().during(reading).0;
    let index = Rewo::<_, Kind>::recover(&pool, "rewo").unwrap().unwrap();
    let reading = || keys.iter().for_each(|key| assert!(index.get(&guard, key).is_some()));
    let without = pool.medium().during(reading).0;
    println!("500 byte strings: {} lines read with a cache, {} without", with.lines_read, without.lines_read);
    assert!(with.lines_read * 2 <= without.lines_read, "{with:?}, {without:?}");
}

/// A random number from 0 to below `n`, most of them small.
fn skewed(dice: &mut u64, n: u64) -> u64 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let fraction = (*dice >> 33) as f64 / (1u64 << 31) as f64;
    ((n as f64).powf(fraction) as u64).min(n - 1)
}

#[test]
fn size_adapts_to_the_load() {
    const KEYS: u64 = 100_000;
    let index = cached::<Dram>(4 << 10, 1 << 20);
    let guard = index.pool().pin();
    (0..KEYS).for_each(|n| assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New)));
    let mut dice = 7;
    let mut sizes = vec![cache_stats(&index).bytes];
    for _ in 0..2_000_000 {
        let n = skewed(&mut dice, KEYS);
        assert_eq!(index.get(&guard, &key(n)), Some(n));
    }
    sizes.push(cache_stats(&index).bytes);
    for _ in 0..2_000_000 {
        let n = skewed(&mut dice, 100);
        assert_eq!(index.get(&guard, &key(n)), Some(n));
    }
    sizes.push(cache_stats(&index).bytes);
    for n in 0..500_000 {
        assert_eq!(index.update(&guard, &key(n % KEYS), n % KEYS), Some(n % KEYS));
        assert_eq!(index.get(&guard, &key(n % 1000)), Some(n % 1000));
    }
    println!("{sizes:?}, {:?}", cache_stats(&index));
    assert_eq!(sizes[0], 4 << 10);
    assert!(sizes[1] >= 64 << 10, "so many keys are asked for: {sizes:?}");
    assert!(sizes[2] <= sizes[1] / 4, "so few: {sizes:?}");
}

/// The number and version of a word.
fn decode<M: MappedMedium, K: TestKeys>(guard: &Guard<'_, M>, word: u64) -> (u64, u64) {
    K::read(guard, word)
}

/// One writer for each key, whose values only grow. Readers never see a value decrease, nor a
/// removed key present again. Meanwhile the cache is replaced and evicts.
fn check_never_stale<M: MappedMedium, K: TestKeys + RewoShape>()
where
    K::Owned: Sync + Send,
{
    use std::borrow::Borrow;
    const KEYS: u64 = 24;
    const ROUNDS: u64 = 1500;
    let pool = jittery(pool::<M>);
    let index = Rewo::<M, K>::with_shape(&pool, "rewo", 4, 1).unwrap();
    let index = index.with_cache(CacheBounds { min: 256, max: 256 });
    let keys: Vec<K::Owned> = (0..KEYS).map(K::key).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (index, keys, is_over, pool) = (&index, &keys, &is_over, &pool);
        let writers: Vec<_> = (0..2)
            .map(|mine: u64| {
                threads.spawn(move || {
                    for round in 1..=ROUNDS {
                        for number in (mine..KEYS).step_by(2) {
                            let guard = pool.pin();
                            let key = keys[number as usize].borrow();
                            let word = K::word(&guard, key, number, round).unwrap();
                            let old = index.upsert(&guard, key, word).unwrap();
                            old.into_iter().for_each(|old| K::free_word(&guard, old, true));
                            if (round + number).is_multiple_of(4) {
                                let old = index.remove(&guard, key).expect("its own");
                                assert_eq!(index.get(&guard, key), None);
                                K::free_word(&guard, old, true);
                            } else {
                                let found = index.get(&guard, key).map(|word| decode::<M, K>(&guard, word).1);
                                assert_eq!(found, Some(round), "its own");
                            }
                        }
                    }
                })
            })
            .collect();
        for reader in 0..2 {
            threads.spawn(move || {
                let mut seen = vec![0; KEYS as usize];
                let mut turn: u64 = reader;
                while !is_over.load(Relaxed) {
                    turn += 7;
                    let number = turn * turn / 3 % KEYS;
                    let guard = pool.pin();
                    let found = index.get(&guard, keys[number as usize].borrow());
                    let Some((whose, round)) = found.map(|word| decode::<M, K>(&guard, word)) else {
                        continue;
                    };
                    assert_eq!(whose, number);
                    assert!(round >= seen[number as usize], "key {number} went back to {round}: {seen:?}");
                    seen[number as usize] = round;
                    if turn.is_multiple_of(97) {
                        index.resize_cache(128 << (turn % 3));
                    }
                }
            });
        }
        // A writer that failed has reported why.
        let failed =
            writers.into_iter().map(|writer| writer.join().is_err()).filter(|&failed| failed).count();
        is_over.store(true, Relaxed);
        assert_eq!(failed, 0);
    });
    assert_eq!(index.verify(&pool.pin()), []);
}

#[test]
fn cached_reads_are_never_stale() {
    check_never_stale::<TappedShm, U64>();
    check_never_stale::<TappedPmem, U64>();
    check_never_stale::<TappedPmem, Bytes<TestRecord>>();
}
