//! Every index is left and found again, on every medium and with both kinds of keys; and takes every integer for a key and for a word.

use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{Bytes, CacheBounds, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::Pool;
use terrace_testkit::conformance::{NAME, integers, stored};
use terrace_testkit::{Counting, TestRecord};

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

#[test]
fn clht_comes_back() {
    clht::<Dram>();
    clht::<Shm>();
    clht::<Pmem>();
    clht::<Counting<Pmem>>();
}

#[test]
fn turbohash_comes_back() {
    turbo::<Dram>();
    turbo::<Shm>();
    turbo::<Pmem>();
    turbo::<Counting<Pmem>>();
}

#[test]
fn rewo_hash_comes_back() {
    rewo::<Dram>();
    rewo::<Shm>();
    rewo::<Pmem>();
    rewo::<Counting<Pmem>>();
}

#[test]
fn level_hashing_comes_back() {
    level::<Dram>();
    level::<Shm>();
    level::<Pmem>();
    level::<Counting<Pmem>>();
}

fn made<I: Stored>(pool: &Pool<I::Medium>) -> I {
    I::create(pool, NAME, 0).expect("room for a table")
}

/// Every key meets every other, under a cache with room for some of them.
fn cached<M: MappedMedium>(pool: &Pool<M>) -> Rewo<M, U64> {
    let rewo = Rewo::with_shape(pool, NAME, 1, 0).expect("room for a table");
    rewo.with_cache(CacheBounds { min: 2048, max: 2048 })
}

fn every_index_takes_every_integer<M: MappedMedium>() {
    integers(made::<Clht<M, U64>>);
    integers(made::<Turbo<M, U64>>);
    integers(made::<Rewo<M, U64>>);
    integers(cached::<M>);
    integers(made::<Level<M, U64>>);
}

#[test]
fn every_integer_is_a_key_and_a_word() {
    every_index_takes_every_integer::<Dram>();
    every_index_takes_every_integer::<Shm>();
    every_index_takes_every_integer::<Pmem>();
    every_index_takes_every_integer::<Counting<Pmem>>();
}
