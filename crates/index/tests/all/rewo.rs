//! Tests: Rewo-Hash's accesses to its medium, load factors and growth, counted; and damaged words.
#![allow(missing_docs, clippy::print_stdout, reason = "tests, whose figures are printed")]

use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::{
    costs_of_inserts, costs_of_single_changes, gets_only_read, most_lines, never_flushes, spread as key,
};
use terrace_index::hash::Rewo;
use terrace_index::{Bytes, Inserted, KeyKind, PointIndex, Stored, U64};
use terrace_medium::{BLOCK, Dram, Line, MappedMedium, Offset};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped, TestKeys, TestRecord};

const SEED: u64 = 11;

fn pool<M: MappedMedium>() -> Pool<M> {
    PoolOptions::anonymous().size(256 << 20).hash_seed(SEED).create().expect("memory for a pool")
}

fn rewo<const V: bool>(buckets_log2: u32) -> Rewo<Tapped<V>, U64> {
    Rewo::with_shape(&pool(), "rewo", 10, buckets_log2).expect("room for a table")
}

fn cost(write_backs: u64, fences: u64) -> Counts {
    Counts { write_backs, fences, ..Counts::default() }
}

#[test]
fn insert_costs_two_fences_and_other_changes_one() {
    const KEYS: u64 = 4096 * 14 * 3 / 4;
    let costs = costs_of_single_changes(&rewo::<true>(12), KEYS);
    // In a bucket's first line, which has the meta word, one fence is enough.
    assert_eq!(costs.insert, (cost(1, 1), cost(2, 2)), "inserts");
    assert_eq!(costs.update, (cost(1, 1), cost(1, 1)), "updates");
    assert_eq!(costs.remove, (cost(1, 1), cost(1, 1)), "removals");
}

#[test]
fn eviction_costs_three_fences_at_most_twice() {
    let index = rewo::<true>(8);
    let guard = index.pool().pin();
    let mut by_fences = [0u64; 16];
    for n in 0.. {
        let before = index.stats(&guard);
        let (counts, inserted) = index.pool().medium().during(|| index.insert(&guard, &key(n), n));
        assert_eq!(inserted, Ok(Inserted::New));
        let now = index.stats(&guard);
        if now.buckets > before.buckets {
            break;
        }
        // Without inserts that allocate the next table or clear some of it.
        if !before.resizing && now.bytes == before.bytes {
            by_fences[counts.fences as usize] += 1;
        }
    }
    println!("inserts by their fences: {by_fences:?}");
    // One more if both buckets of an eviction have the same lock.
    assert!(by_fences[4] > 0 && by_fences[11..].iter().all(|&inserts| inserts == 0), "{by_fences:?}");
    let (all, plain) = (by_fences.iter().sum::<u64>(), by_fences[..3].iter().sum::<u64>());
    assert!(plain * 100 >= all * 90, "{by_fences:?}");
}

#[test]
fn million_inserts_from_nothing() {
    const KEYS: u64 = 1_000_000;
    let index = rewo::<true>(6);
    let counts = costs_of_inserts(&index, KEYS);
    let each = |count: u64| count as f64 / KEYS as f64;
    let (write_backs, fences) = (each(counts.write_backs), each(counts.fences));
    println!("{write_backs:.3} write-backs and {fences:.3} fences an insert");
    assert!(write_backs <= 5.0 && fences <= 3.1, "{write_backs} write-backs and {fences} fences an insert");
}

#[test]
fn gets_of_present_and_absent_keys_only_read() {
    gets_only_read(&rewo::<true>(10), 10_000);
}

#[test]
fn dram_and_shm_never_flush_or_fence() {
    never_flushes(&rewo::<false>(0), 100_000);
    never_flushes(&rewo::<false>(0), 100_000);
}

#[test]
fn write_does_a_bounded_piece_of_a_resize() {
    const KEYS: u64 = 300_000;
    let index = rewo::<false>(0);
    let growing = most_lines(&index, (0..KEYS).map(|n| (key(n), true)));
    let most = index.stats(&index.pool().pin());
    let shrinking = most_lines(&index, (0..KEYS).map(|n| (key(n), false)));
    let least = index.stats(&index.pool().pin());
    println!("at most {growing} lines while it grows, {shrinking} while it shrinks");
    // The largest table that was begun has a line to clear in each of 32,768 buckets.
    assert!(most.buckets >= 24_000 && least.buckets <= most.buckets / 8, "{most:?}, {least:?}");
    assert!(growing <= 3000 && shrinking <= 3000, "{growing} and {shrinking} lines");
}

/// Finding that there is no room takes a search of the whole pool.
#[test]
fn full_pool_is_not_searched_by_every_insert() {
    let index = rewo::<false>(8);
    let guard = index.pool().pin();
    let blocks: Vec<_> = std::iter::from_fn(|| guard.alloc(BLOCK << 8).ok()).collect();
    let costs: Vec<u64> = (0..)
        .map_while(|n| {
            let (counts, inserted) = index.pool().medium().during(|| index.insert(&guard, &key(n), n));
            inserted.ok().map(|_| counts.lines_read)
        })
        .collect();
    let (keys, looks) = (costs.len(), costs.iter().filter(|&&lines| lines > 1000).count());
    let most = costs.iter().max().expect("keys");
    println!("{keys} keys, {looks} of them at more than 1000 lines, {most} at most");
    assert!(index.stats(&guard).load_factor() > 0.95, "{keys} keys");
    assert!(looks <= 1, "{looks} inserts have looked for the next table");
    drop(blocks);
    let more = (costs.len() as u64..).take(2000).filter(|&n| index.insert(&guard, &key(n), n).is_ok());
    assert_eq!(more.count(), 2000, "there is room again");
}

/// The load factor of all tables together, each time before the number of buckets passes a power of
/// two: with 1, 2, 4, 8 and 16 tables of one size, and with one that T0 became.
fn loads_before_growth<K: TestKeys + terrace_index::hash::RewoShape>(
    doublings: usize,
    key_of: impl Fn(u64) -> K::Owned,
) -> Vec<f64> {
    use std::borrow::Borrow;
    let index = Rewo::<Dram, K>::with_shape(&pool(), "rewo", 10, 7).unwrap();
    let guard = index.pool().pin();
    let (mut loads, mut buckets) = (Vec::new(), 128);
    for number in 0.. {
        let before = index.stats(&guard);
        let key = key_of(number);
        let word = K::word(&guard, key.borrow(), number, 0).unwrap();
        index.insert(&guard, key.borrow(), word).unwrap();
        if index.stats(&guard).buckets > buckets {
            loads.push(before.load_factor());
            if loads.len() == doublings {
                break;
            }
            while index.maintain(&guard) {}
            buckets = (buckets + 1).next_power_of_two();
        }
    }
    loads
}

#[test]
fn tables_grow_at_92_percent_load() {
    let pairs = loads_before_growth::<U64>(7, key);
    let strings = loads_before_growth::<Bytes<TestRecord>>(7, Bytes::<TestRecord>::key);
    println!("u64 keys: {pairs:.3?}, byte strings: {strings:.3?}");
    for loads in [pairs, strings] {
        assert!(loads.iter().all(|&load| load >= 0.92), "{loads:?}");
    }
}

#[test]
fn absent_get_reads_at_most_two_buckets() {
    const KEYS: u64 = 1024 * 14 * 4 / 5;
    let index = rewo::<false>(10);
    let guard = index.pool().pin();
    (0..KEYS).for_each(|n| assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New)));
    let stats = index.stats(&guard);
    assert!((0.79..0.81).contains(&stats.load_factor()) && stats.resizes == 0, "{stats:?}");
    let blocks = |range: std::ops::Range<u64>, is_there: bool| {
        let searches = (range.end - range.start) as f64;
        let reading = || range.for_each(|n| assert_eq!(index.get(&guard, &key(n)).is_some(), is_there));
        index.pool().medium().during(reading).0.blocks_read as f64 / searches
    };
    let (absent, present) = (blocks(KEYS..2 * KEYS, false), blocks(0..KEYS, true));
    println!("{absent:.3} blocks for each absent key, {present:.3} for a present one");
    // Root and view are among the blocks that count as cached.
    assert!(absent <= 2.0 && present <= 1.5, "{absent}, {present}");
}

#[test]
fn colliding_keys_are_refused_without_memory() {
    let index = Rewo::<Dram, U64>::with_shape(&pool(), "rewo", 10, 6).unwrap();
    let guard = index.pool().pin();
    // Keys of one home and one tag: chosen by an adversary with the seed.
    let bits = |key: u64| {
        let hash = U64::hash(&key, SEED);
        (hash >> 60, hash << 14 >> 58, hash as u8)
    };
    let alike: Vec<u64> = (0..).filter(|&key| bits(key) == (3, 5, 7)).take(60).collect();
    let before = index.stats(&guard).bytes;
    let (fit, refused) = alike.split_at(28);
    for &key in fit {
        assert_eq!(index.insert(&guard, &key, !key), Ok(Inserted::New));
    }
    for key in refused {
        let error = index.insert(&guard, key, 1).expect_err("both buckets are full of such keys");
        assert!(error.to_string().contains("no room"), "{error}");
        assert_eq!(index.get(&guard, key), None);
    }
    assert!(fit.iter().all(|key| index.get(&guard, key) == Some(!key)));
    assert_eq!(index.stats(&guard).bytes, before);
    assert_eq!(index.insert(&guard, &1, 1), Ok(Inserted::New), "others find room");
    assert_eq!(index.verify(&guard), []);
}

#[test]
fn pool_full_during_growth_keeps_the_table_whole() {
    let pool: Pool<Dram> = PoolOptions::anonymous().size(1 << 20).hash_seed(SEED).create().unwrap();
    let index = Rewo::<Dram, U64>::with_shape(&pool, "rewo", 4, 4).unwrap();
    let guard = pool.pin();
    let full = (0..).find(|&n| index.insert(&guard, &key(n), n).is_err()).unwrap();
    let at_first = index.stats(&guard);
    // Until every table is full: those that are not take more.
    let more: Vec<u64> =
        (full..full + 5000).filter(|&n| index.insert(&guard, &key(n), n) == Ok(Inserted::New)).collect();
    assert!(!more.is_empty() && more.len() < 5000, "{at_first:?}");
    for n in (0..full).chain(more.iter().copied()) {
        assert_eq!(index.get(&guard, &key(n)), Some(n));
        assert_eq!(index.update(&guard, &key(n), !n), Some(n), "an update takes no memory");
    }
    assert_eq!(index.verify(&guard), []);
    for n in (0..full).chain(more) {
        assert_eq!(index.remove(&guard, &key(n)), Some(!n));
    }
    drop(guard);
    let guard = pool.pin();
    while index.maintain(&guard) {}
    assert!(
        index.is_empty() && index.stats(&guard).buckets <= at_first.buckets / 8,
        "{:?}",
        index.stats(&guard)
    );
}

#[test]
fn capacity_hints_of_zero_and_beyond_the_pool() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let before = pool.space().free;
    for capacity in [1 << 20, 1 << 40, u64::MAX] {
        let Err(error) = Rewo::<Dram, U64>::create(&pool, "rewo", capacity) else { panic!("{capacity} fit") };
        assert!(error.to_string().contains("has no room"), "{error}");
    }
    pool.reclaim_blocking();
    assert_eq!(pool.space().free, before, "what was taken for it came back");
    let index = Rewo::<Dram, U64>::create(&pool, "rewo", 0).unwrap();
    assert_eq!(index.stats(&pool.pin()).buckets, 64, "one for each 64 KiB of the pool");
    let index = Rewo::<Dram, U64>::create(&pool, "more", 1000).unwrap();
    assert_eq!(index.stats(&pool.pin()).buckets, 128);
}

fn line(pool: &Pool<Dram>, at: u64) -> &Line {
    pool.region().at(Offset::new(at))
}

#[test]
fn root_with_a_changed_word_is_refused() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    drop(Rewo::<Dram, U64>::create(&pool, "rewo", 100).unwrap());
    let root = pool.roots()[0].offset.unwrap();
    let view = line(&pool, root + 64).0[1].load(pool.medium(), Relaxed);
    let words = [
        (root, 0, "not of a hash table for this kind of keys"),
        (root, 1, "does not fit its check"),
        (root, 2, "does not fit its check"),
        (root, 3, "does not fit its check"),
        (root, 4, "does not fit its check"),
        (root + 64, 1, "names no tables"),
        (view, 0, "names no tables"),
        (view, 1, "names no tables"),
        (view, 2, "names no tables"),
        (view, 3, "names no tables"),
        (view, 4, "names no tables"),
        (view, 7, "names no tables"),
        (view + 64, 0, "names no tables"),
        (view + 128, 7, "names no tables"),
    ];
    for (at, word, says) in words {
        let word = &line(&pool, at).0[word];
        let sound = word.load(pool.medium(), Relaxed);
        word.store(pool.medium(), sound ^ 0x1000, Relaxed);
        let Err(error) = Rewo::<Dram, U64>::recover(&pool, "rewo") else { panic!("not refused: {says}") };
        assert!(error.to_string().contains(says), "{error}");
        word.store(pool.medium(), sound, Relaxed);
    }
    assert!(Rewo::<Dram, U64>::recover(&pool, "rewo").unwrap().is_some());
    assert!(Rewo::<Dram, Bytes<TestRecord>>::recover(&pool, "rewo").is_err(), "another kind of keys");
}

#[test]
fn damaged_count_restarts_the_resize() {
    let pool: Pool<Dram> = pool();
    let index = Rewo::<Dram, U64>::with_shape(&pool, "rewo", 4, 5).unwrap();
    let guard = pool.pin();
    let mut keys = 0;
    while index.stats(&guard).buckets == 32 {
        index.insert(&guard, &key(keys), keys).unwrap();
        keys += 1;
    }
    let root = pool.roots()[0].offset.unwrap();
    let view = line(&pool, root + 64).0[1].load(pool.medium(), Relaxed);
    let count = &line(&pool, view + 192).0[0];
    let sound = count.load(pool.medium(), Relaxed);
    // As if the first eight buckets had been emptied.
    count.store(pool.medium(), u64::from(!8u32) << 32 | 8, Relaxed);
    assert!(index.verify(&guard).iter().any(|finding| finding.expected == "no key that has moved"));
    count.store(pool.medium(), sound, Relaxed);
    // As if all had moved.
    count.store(pool.medium(), count.load(pool.medium(), Relaxed) | 0xff, Relaxed);
    while index.maintain(&guard) {}
    assert!((0..keys).all(|n| index.get(&guard, &key(n)) == Some(n)));
    assert_eq!(index.verify(&guard), []);
}
