//! Tests: every index is closed and opened again, on every medium and with both kinds of keys; and
//! takes every integer as a key and as a word.

use terrace_conformance::{NAME, integers, stored};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree};
use terrace_index::{Bytes, CacheBounds, PointIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::Pool;
use terrace_testkit::{TappedPmem, TestRecord};

type Strings = Bytes<TestRecord>;

fn clht<M: MappedMedium>() {
    stored::<Clht<M, U64>, Clht<M, Strings>, Turbo<M, U64>>();
    stored::<Clht<M, Strings>, Clht<M, U64>, Level<M, Strings>>();
}

fn turbo<M: MappedMedium>() {
    stored::<Turbo<M, U64>, Turbo<M, Strings>, Rewo<M, U64>>();
    stored::<Turbo<M, Strings>, Turbo<M, U64>, Clht<M, Strings>>();
}

fn rewo<M: MappedMedium>() {
    stored::<Rewo<M, U64>, Rewo<M, Strings>, Level<M, U64>>();
    stored::<Rewo<M, Strings>, Rewo<M, U64>, Turbo<M, Strings>>();
}

fn level<M: MappedMedium>() {
    stored::<Level<M, U64>, Level<M, Strings>, Clht<M, U64>>();
    stored::<Level<M, Strings>, Level<M, U64>, Rewo<M, Strings>>();
}

fn art<M: MappedMedium>() {
    stored::<Art<M, U64>, Art<M, Strings>, Clht<M, U64>>();
    stored::<Art<M, Strings>, Art<M, U64>, Turbo<M, Strings>>();
}

fn masstree<M: MappedMedium>() {
    stored::<Masstree<M, U64>, Masstree<M, Strings>, Art<M, U64>>();
    stored::<Masstree<M, Strings>, Masstree<M, U64>, Art<M, Strings>>();
}

#[test]
fn masstree_is_reopened() {
    masstree::<Dram>();
    masstree::<Shm>();
    masstree::<Pmem>();
    masstree::<TappedPmem>();
}

fn hot<M: MappedMedium>() {
    stored::<Hot<M, U64>, Hot<M, Strings>, Art<M, U64>>();
    stored::<Hot<M, Strings>, Hot<M, U64>, Art<M, Strings>>();
}

fn bw<M: MappedMedium>() {
    stored::<BwTree<M, U64>, BwTree<M, Strings>, Art<M, U64>>();
    stored::<BwTree<M, Strings>, BwTree<M, U64>, Level<M, Strings>>();
}

#[test]
fn bwtree_is_reopened() {
    bw::<Dram>();
    bw::<Shm>();
    bw::<Pmem>();
    bw::<TappedPmem>();
}

#[test]
fn art_is_reopened() {
    art::<Dram>();
    art::<Shm>();
    art::<Pmem>();
    art::<TappedPmem>();
}

#[test]
fn hot_is_reopened() {
    hot::<Dram>();
    hot::<Shm>();
    hot::<Pmem>();
    hot::<TappedPmem>();
}

#[test]
fn clht_is_reopened() {
    clht::<Dram>();
    clht::<Shm>();
    clht::<Pmem>();
    clht::<TappedPmem>();
}

#[test]
fn turbohash_is_reopened() {
    turbo::<Dram>();
    turbo::<Shm>();
    turbo::<Pmem>();
    turbo::<TappedPmem>();
}

#[test]
fn rewo_hash_is_reopened() {
    rewo::<Dram>();
    rewo::<Shm>();
    rewo::<Pmem>();
    rewo::<TappedPmem>();
}

#[test]
fn level_hashing_is_reopened() {
    level::<Dram>();
    level::<Shm>();
    level::<Pmem>();
    level::<TappedPmem>();
}

fn create<I: Stored>(pool: &Pool<I::Medium>) -> I {
    I::create(pool, NAME, 0).expect("room for a table")
}

/// Every key meets every other, under a cache with room for some of them.
fn cached<M: MappedMedium>(pool: &Pool<M>) -> Rewo<M, U64> {
    let rewo = Rewo::with_shape(pool, NAME, 1, 0).expect("room for a table");
    rewo.with_cache(CacheBounds { min: 2048, max: 2048 })
}

fn check_every_integer<M: MappedMedium>() {
    integers(create::<Art<M, U64>>);
    integers(create::<Masstree<M, U64>>);
    integers(create::<Hot<M, U64>>);
    integers(create::<BwTree<M, U64>>);
    integers(create::<Clht<M, U64>>);
    integers(create::<Turbo<M, U64>>);
    integers(create::<Rewo<M, U64>>);
    integers(cached::<M>);
    integers(create::<Level<M, U64>>);
}

#[test]
fn every_integer_is_a_key_and_a_word() {
    check_every_integer::<Dram>();
    check_every_integer::<Shm>();
    check_every_integer::<Pmem>();
    check_every_integer::<TappedPmem>();
}

/// Checks that a table in memory that is full of ones starts empty, and names all memory that it
/// has grown to.
fn check_in_used_memory<I: Stored<Medium = Dram> + PointIndex<Medium = Dram, Kind = U64>>() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let guard = pool.pin();
    let mut left = Vec::new();
    for bytes in [64 << 10, 4 << 10, 1 << 10, 64] {
        while let Ok(block) = guard.alloc(bytes) {
            block.stream_lines(0, &vec![[!0; 8]; bytes / 64]);
            left.push((block.persist().into_offset(), bytes));
        }
    }
    left.into_iter().for_each(|(block, bytes)| guard.free(block, bytes));
    let index = I::create(&pool, NAME, 1000).unwrap();
    assert_eq!((index.len(), index.verify(&guard)), (0, vec![]), "{}", I::NAME);
    for key in 0..5000 {
        index.insert(&guard, &key, !key).unwrap();
        if key % 100 == 0 {
            assert_eq!(index.verify(&guard), [], "{}, {key} keys", I::NAME);
        }
    }
    while index.maintain(&guard) {}
    assert_eq!((index.len(), index.verify(&guard)), (5000, vec![]), "{}", I::NAME);
    let stats = index.stats(&guard);
    drop(guard);
    while pool.reclaim_blocking() {}
    // The collector's walk names all memory that was allocated, by its size.
    let blocks = pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
    let bytes: u64 = blocks.iter().map(|&(_, bytes)| bytes).sum();
    assert_eq!(bytes, pool.space().used_by_blocks, "{}", I::NAME);
    // The allocator rounds up, each node of a tree for itself.
    let more = bytes.checked_sub(stats.bytes);
    let most = 256 * stats.nodes.iter().sum::<u64>().max(1);
    assert!(more.is_some_and(|more| more < most), "{}: {stats:?}, in {bytes} bytes", I::NAME);
}

#[test]
fn table_in_used_memory_starts_empty() {
    check_in_used_memory::<Art<_, U64>>();
    check_in_used_memory::<Masstree<_, U64>>();
    check_in_used_memory::<Hot<_, U64>>();
    check_in_used_memory::<BwTree<_, U64>>();
    check_in_used_memory::<Clht<_, U64>>();
    check_in_used_memory::<Level<_, U64>>();
    check_in_used_memory::<Rewo<_, U64>>();
    check_in_used_memory::<Turbo<_, U64>>();
}
