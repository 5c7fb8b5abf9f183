//! Tests: TurboHash's accesses to its medium, load factors and path lengths, counted; and damaged
//! words.
#![allow(missing_docs, clippy::print_stdout, reason = "tests, whose figures are printed")]

use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::{
    costs_of_inserts, costs_of_single_changes, gets_only_read, loads_before_growth, most_lines,
    never_flushes, spread as key,
};
use terrace_index::hash::Turbo;
use terrace_index::{Bytes, Inserted, PointIndex, Stored, U64};
use terrace_medium::{Dram, Line, MappedMedium, Offset, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped, TestRecord};

fn pool<M: MappedMedium>() -> Pool<M> {
    PoolOptions::anonymous().size(256 << 20).hash_seed(11).create().expect("memory for a pool")
}

fn turbo<const V: bool>(shards_log2: u32, capacity: u64) -> Turbo<Tapped<V>, U64> {
    Turbo::with_shards(&pool(), "turbo", shards_log2, capacity).expect("room for a table")
}

fn cost(write_backs: u64, fences: u64) -> Counts {
    Counts { write_backs, fences, ..Counts::default() }
}

#[test]
fn insert_costs_two_fences_and_other_changes_one() {
    let index = turbo::<true>(4, 50_000);
    let costs = costs_of_single_changes(&index, 50_000);
    // In a bucket's first line, which has the meta word, one fence is enough.
    assert_eq!(costs.insert, (cost(1, 1), cost(2, 2)), "inserts");
    assert_eq!(costs.update, (cost(1, 1), cost(1, 1)), "updates");
    assert_eq!(costs.remove, (cost(1, 1), cost(1, 1)), "removals");
}

/// The longest wait that a writer causes, in lines instead of time: a shard is counted, read and
/// written out at twice its size.
#[test]
fn write_touches_at_most_a_shard_and_its_successor() {
    const KEYS: u64 = 300_000;
    // 4,700 keys a shard at the end, like ten million keys in a pool of two gibibytes.
    let index = turbo::<false>(6, 0);
    let growing = most_lines(&index, (0..KEYS).map(|n| (key(n), true)));
    let shard = index.stats(&index.pool().pin()).bytes / 64 / 64;
    let shrinking = most_lines(&index, (0..KEYS).map(|n| (key(n), false)));
    println!("at most {growing} lines while it grows, {shrinking} while it shrinks; a shard has {shard}");
    assert!(growing <= 3 * shard && shrinking <= 3 * shard, "{growing} and {shrinking} lines of {shard}");
}

#[test]
fn change_writes_one_block_except_for_overflow_bits() {
    let index = turbo::<true>(4, 50_000);
    let guard = index.pool().pin();
    let (mut more, mut passing) = (0, 0);
    for key in (0..50_000).map(key) {
        let resizes = index.stats(&guard).resizes;
        let (counts, inserted) = index.pool().medium().during(|| index.insert(&guard, &key, key));
        assert_eq!(inserted, Ok(Inserted::New));
        if resizes == index.stats(&guard).resizes {
            // The counter counts a block anew after a fence, so twice in an insert with two fences.
            // The additional blocks are full buckets whose overflow bit is set, once for each class
            // of tags.
            more += counts.blocks_written - counts.fences;
            passing += u64::from(counts.blocks_written > counts.fences);
        }
    }
    println!("{passing} of 50,000 inserts write {more} more blocks");
    assert!(more < 2500, "{more} blocks");
    let (counts, _) = index.pool().medium().during(|| index.update(&guard, &key(7), 8));
    assert_eq!(counts.blocks_written, 1);
}

#[test]
fn million_inserts_cost_at_most_2_25_fences_each() {
    const KEYS: u64 = 1_000_000;
    let index = turbo::<true>(10, 0);
    let counts = costs_of_inserts(&index, KEYS);
    let each = |count: u64| count as f64 / KEYS as f64;
    let (write_backs, fences) = (each(counts.write_backs), each(counts.fences));
    println!("{write_backs:.3} write-backs and {fences:.3} fences an insert");
    // A rehash streams its buckets on x86-64; on aarch64 each of these lines is also written back.
    let most = if cfg!(target_arch = "aarch64") { 3.5 } else { 2.25 };
    assert!(write_backs <= most && fences <= 2.25, "{write_backs} write-backs and {fences} fences an insert");
}

#[test]
fn gets_of_present_and_absent_keys_only_read() {
    gets_only_read(&turbo::<true>(2, 10_000), 10_000);
}

#[test]
fn dram_and_shm_never_flush_or_fence() {
    never_flushes(&turbo::<false>(4, 0), 100_000);
    never_flushes(&turbo::<false>(4, 0), 100_000);
}

#[test]
fn shard_grows_at_85_percent_load() {
    let pairs = Turbo::<Dram, U64>::with_shards(&pool(), "turbo", 0, 0).unwrap();
    let pairs = loads_before_growth(&pairs, |_, buckets| buckets > 4096);
    let strings = Turbo::<Dram, Bytes<TestRecord>>::with_shards(&pool(), "turbo", 0, 0).unwrap();
    let strings = loads_before_growth(&strings, |_, buckets| buckets > 4096);
    println!("u64 keys: {pairs:.3?}, byte strings: {strings:.3?}");
    for loads in [pairs, strings] {
        assert!(loads.len() >= 12 && loads.iter().all(|&load| load >= 0.85), "{loads:?}");
    }
}

/// Mean number of buckets that a search for an absent key reads.
fn absent_path<const V: bool>(index: &Turbo<Tapped<V>, U64>, absent: std::ops::Range<u64>) -> f64 {
    let (guard, searches) = (index.pool().pin(), absent.end - absent.start);
    let reading = || absent.for_each(|n| assert_eq!(index.get(&guard, &key(n)), None));
    // The place of the shard is among the blocks that count as cached.
    let (counts, ()) = index.pool().medium().during(reading);
    counts.blocks_read as f64 / searches as f64
}

#[test]
fn absent_get_reads_at_most_1_4_buckets() {
    const KEYS: u64 = 1024 * 14 * 4 / 5;
    let index = turbo::<false>(0, KEYS - 100);
    let guard = index.pool().pin();
    (0..KEYS).for_each(|n| assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New)));
    let stats = index.stats(&guard);
    assert!((0.79..0.81).contains(&stats.load_factor()) && stats.resizes == 0, "{stats:?}");
    let path = absent_path(&index, KEYS..2 * KEYS);
    println!("{path:.3} blocks for each absent key, at a load of {:.3}", stats.load_factor());
    assert!(path <= 1.25, "{path} buckets");
}

#[test]
fn deleted_slots_are_collected_when_paths_are_long() {
    const KEYS: u64 = 1024 * 14 * 3 / 4;
    let index = turbo::<false>(0, KEYS);
    let guard = index.pool().pin();
    // Keys are inserted and removed, so none of the old ones stays. Without collection every slot
    // would be deleted in the end, and every path as long as the shard.
    for n in 0..20 * KEYS {
        assert_eq!(index.insert(&guard, &key(n), n), Ok(Inserted::New));
        if n >= KEYS {
            assert_eq!(index.remove(&guard, &key(n - KEYS)), Some(n - KEYS));
        }
    }
    let stats = index.stats(&guard);
    assert_eq!((stats.keys, stats.buckets), (KEYS, 1024), "it was rehashed at its size");
    assert!((1..200).contains(&stats.resizes), "{stats:?}");
    let path = absent_path(&index, 20 * KEYS..21 * KEYS);
    println!("{} collections, then {path:.3} blocks for each absent key", stats.resizes);
    assert!(path <= 4.0, "{path} buckets");
    assert_eq!(index.verify(&guard), []);
}

#[test]
fn maintain_releases_buckets_of_empty_shards_only() {
    let index = Turbo::<Dram, U64>::with_shards(&pool(), "turbo", 10, 0).unwrap();
    let guard = index.pool().pin();
    let free = || {
        while index.pool().reclaim_blocking() {}
        index.pool().space().free
    };
    let before = free();
    (0..20_000).for_each(|n| _ = index.insert(&guard, &key(n), n).unwrap());
    assert!(index.stats(&guard).buckets >= 1024, "each shard has some");
    // One key stays.
    (1..20_000).for_each(|n| assert_eq!(index.remove(&guard, &key(n)), Some(n)));
    assert!(index.stats(&guard).buckets >= 1024, "removals leave them one each");
    let pieces = 1 + std::iter::from_fn(|| index.maintain(&guard).then_some(())).count();
    assert!((2..=1024).contains(&pieces), "{pieces} pieces");
    assert_eq!(index.stats(&guard).buckets, 1);
    assert_eq!((index.get(&guard, &key(0)), index.verify(&guard)), (Some(0), vec![]));
    assert_eq!(index.remove(&guard, &key(0)), Some(0));
    while index.maintain(&guard) {}
    assert_eq!(index.stats(&guard).buckets, 0);
    assert_eq!(index.insert(&guard, &key(1), 7), Ok(Inserted::New));
    assert_eq!(index.remove(&guard, &key(1)), Some(7));
    while index.maintain(&guard) {}
    drop(guard);
    assert_eq!(free(), before);
}

#[test]
fn colliding_keys_take_at_most_four_times_their_slots() {
    let pool: Pool<Dram> = pool();
    let index = Turbo::<Dram, U64>::with_shards(&pool, "turbo", 0, 0).unwrap();
    let guard = pool.pin();
    // Keys of one home in any shard: chosen by an adversary with the seed. Found by trying, instead
    // of inverting the hash.
    let top = |key: u64| <U64 as terrace_index::KeyKind>::hash(&key, pool.hash_seed()) >> 50;
    let alike: Vec<u64> = (0..).filter(|&key| top(key) == 5).take(700).collect();
    for &key in &alike {
        assert_eq!(index.insert(&guard, &key, !key), Ok(Inserted::New));
    }
    assert!(alike.iter().all(|key| index.get(&guard, key) == Some(!key)));
    let stats = index.stats(&guard);
    assert!(stats.slots <= 4 * stats.keys, "{stats:?}");
    assert_eq!(index.verify(&guard), []);
}

#[test]
fn capacity_hints_of_zero_and_beyond_the_pool() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let before = pool.space().free;
    for capacity in [1 << 20, 1 << 40, u64::MAX] {
        let Err(error) = Turbo::<Dram, U64>::create(&pool, "turbo", capacity) else {
            panic!("{capacity} fit")
        };
        assert!(error.to_string().contains("has no room"), "{error}");
    }
    pool.reclaim_blocking();
    assert_eq!(pool.space().free, before, "what was taken for it came back");
    let index = Turbo::<Dram, U64>::create(&pool, "turbo", 0).unwrap();
    assert_eq!(index.stats(&pool.pin()).buckets, 0, "nothing is taken for nothing");
}

fn line(pool: &Pool<Dram>, at: u64) -> &Line {
    pool.region().at(Offset::new(at))
}

#[test]
fn root_with_a_changed_word_is_refused() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    drop(Turbo::<Dram, U64>::create(&pool, "turbo", 100).unwrap());
    let root = pool.roots()[0].offset.unwrap();
    let descriptor = line(&pool, root).0[3].load(pool.medium(), Relaxed);
    let words = [
        (root, 0, "not of a hash table for this kind of keys"),
        (root, 1, "does not fit its check"),
        (root, 2, "does not fit its check"),
        (root, 3, "does not fit its check"),
        (root, 4, "does not fit its check"),
        (root, 5, "does not fit its check"),
        (descriptor, 1, "names no shard"),
        (descriptor, 2, "names no shard"),
    ];
    for (at, word, says) in words {
        let word = &line(&pool, at).0[word];
        let sound = word.load(pool.medium(), Relaxed);
        word.store(pool.medium(), sound ^ 0x1000, Relaxed);
        let Err(error) = Turbo::<Dram, U64>::recover(&pool, "turbo") else { panic!("not refused: {says}") };
        assert!(error.to_string().contains(says), "{error}");
        word.store(pool.medium(), sound, Relaxed);
    }
    assert!(Turbo::<Dram, U64>::recover(&pool, "turbo").unwrap().is_some());
    assert!(Turbo::<Dram, Bytes<TestRecord>>::recover(&pool, "turbo").is_err(), "another kind of keys");
}

/// A shard without buckets is at offset 0, where the pool's header lies. Nothing there is taken for
/// a bucket, whatever the key's tag.
#[test]
fn shard_without_buckets_has_no_keys() {
    for seed in 0..600 {
        let pool: Pool<Shm> = PoolOptions::anonymous().size(1 << 20).hash_seed(seed).create().unwrap();
        let (index, guard) = (Turbo::<Shm, U64>::create(&pool, "index", 0).unwrap(), pool.pin());
        for key in [0, 1, u64::MAX] {
            assert_eq!(index.remove(&guard, &key), None, "key {key}, seed {seed}");
            assert_eq!(index.insert(&guard, &key, 7).unwrap(), Inserted::New, "key {key}, seed {seed}");
        }
    }
}
