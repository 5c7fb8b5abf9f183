//! Tests: when P-CLHT chains a bucket, grows, rebuilds, and shrinks: at which key, chained bucket,
//! or removal.

use terrace_index::{Bytes, IndexStats, KeyKind, PointIndex, Stored, U64, hash::Clht};
use terrace_medium::Dram;
use terrace_pool::PoolOptions;
use terrace_testkit::{TestKeys, TestRecord};

const SEED: u64 = 11;
/// Pairs of a bucket.
const SLOTS: usize = 3;

type Index = Clht<Dram, U64>;

fn index(capacity: u64) -> Index {
    let pool = PoolOptions::anonymous().size(16 << 20).hash_seed(SEED).create().expect("memory for a pool");
    Clht::create(&pool, "growth", capacity).expect("room for a table")
}

fn hash(key: u64) -> u64 {
    U64::hash(&key, SEED)
}

/// Keys of one of eight buckets.
fn keys_of(bucket: u64) -> impl Iterator<Item = u64> {
    (1..).filter(move |&key| hash(key) >> 61 == bucket)
}

fn insert(index: &Index, keys: impl IntoIterator<Item = u64>) {
    let guard = index.pool().pin();
    keys.into_iter().for_each(|key| _ = index.insert(&guard, &key, key).expect("room for a pair"));
}

fn remove(index: &Index, keys: impl IntoIterator<Item = u64>) {
    let guard = index.pool().pin();
    keys.into_iter().for_each(|key| assert!(index.remove(&guard, &key).is_some(), "{key}"));
}

fn stats(index: &Index) -> IndexStats {
    index.stats(&index.pool().pin())
}

/// The number of buckets after the current resize, if there is one.
fn resizes_to(index: &Index) -> Option<u64> {
    let stats = stats(index);
    stats.resizing.then_some(stats.buckets)
}

fn finish(index: &Index) {
    let guard = index.pool().pin();
    while index.maintain(&guard) {}
}

#[test]
fn seventh_byte_string_chains_a_bucket_for_six() {
    type Strings = Bytes<TestRecord>;
    let pool = PoolOptions::anonymous().size(16 << 20).hash_seed(SEED).create().expect("memory for a pool");
    let index = Clht::<Dram, Strings>::create(&pool, "growth", 0).expect("room for a table");
    let guard = pool.pin();
    let put = |(number, key): (u64, &Vec<u8>)| {
        let word = Strings::word(&guard, key, number, 0).expect("room for a record");
        index.insert(&guard, key, word).expect("room for a slot");
    };
    let keys: Vec<_> =
        (0..).map(Strings::key).filter(|key| Strings::hash(key, SEED) >> 61 == 3).take(13).collect();
    for (number, key) in (0..).zip(&keys[..12]) {
        put((number, key));
        assert_eq!(index.stats(&guard).overflow_buckets, number / 6, "{number}");
    }
    // A removed key leaves room for another.
    assert!(index.remove(&guard, &keys[2]).is_some());
    put((12, &keys[12]));
    assert_eq!((index.stats(&guard).overflow_buckets, index.stats(&guard).resizes), (1, 0));
    assert_eq!(index.stats(&guard).slots, 9 * 6);
}

/// A table of eight buckets: `full` of them without an empty slot, and `more` keys in the last.
fn filled(full: u64, more: usize) -> Index {
    let index = index(0);
    assert_eq!(stats(&index).buckets, 8);
    (0..full).for_each(|bucket| insert(&index, keys_of(bucket).take(SLOTS)));
    insert(&index, keys_of(7).take(more));
    index
}

#[test]
fn table_grows_at_the_second_chained_bucket_of_eight() {
    // Room for 16.
    let full = filled(4, 0);
    insert(&full, keys_of(0).nth(SLOTS));
    assert_eq!((resizes_to(&full), stats(&full).overflow_buckets), (None, 1));
    insert(&full, keys_of(1).nth(SLOTS));
    assert_eq!(resizes_to(&full), Some(16));
    finish(&full);
    assert_eq!((stats(&full).buckets, stats(&full).resizes, stats(&full).keys), (16, 1, 14));
}

#[test]
fn table_with_few_keys_does_not_grow() {
    for (more, grows) in [(2, None), (3, None), (4, Some(16)), (5, Some(16))] {
        // Three in each of two buckets, the rest elsewhere; then one more behind each of the two.
        let index = filled(2, 0);
        insert(&index, keys_of(7).take(more.min(SLOTS)));
        insert(&index, keys_of(5).take(more.saturating_sub(SLOTS)));
        insert(&index, keys_of(0).nth(SLOTS));
        assert_eq!(resizes_to(&index), None, "{more}");
        insert(&index, keys_of(1).nth(SLOTS));
        assert_eq!(resizes_to(&index), grows, "{more}: {} keys", stats(&index).keys);
    }
}

#[test]
fn long_chains_with_few_keys_are_rebuilt_in_place() {
    let index = index(0);
    for bucket in 0..4 {
        assert_eq!(resizes_to(&index), None, "{bucket} chained buckets");
        insert(&index, keys_of(bucket).take(SLOTS + 1));
        if bucket < 3 {
            remove(&index, keys_of(bucket).take(SLOTS));
        }
    }
    assert_eq!(resizes_to(&index), Some(8));
    finish(&index);
    let stats = stats(&index);
    assert_eq!((stats.buckets, stats.resizes, stats.keys, stats.overflow_buckets), (8, 1, 7, 1));
}

#[test]
fn large_table_counts_one_chained_bucket_in_eight() {
    for (capacity, log2, weight) in [(4096, 11, 1), (8192, 12, 8)] {
        let index = index(capacity);
        assert_eq!(stats(&index).buckets, 1 << log2);
        // Keys of one bucket, of which the last has a hash that is counted.
        let crowded = |is_sampled: bool| {
            let crowd = (1..).filter(move |&key| hash(key) >> (64 - log2) == u64::from(is_sampled));
            let mut first: Vec<u64> = crowd.clone().take(SLOTS).collect();
            let last = crowd.skip(SLOTS).find(|&key| hash(key).is_multiple_of(8) == is_sampled);
            first.extend(last);
            first
        };
        insert(&index, crowded(false));
        assert_eq!(stats(&index).overflow_buckets, if weight == 1 { 1 } else { 0 }, "2^{log2}");
        insert(&index, crowded(true));
        assert_eq!(stats(&index).overflow_buckets, if weight == 1 { 2 } else { 8 }, "2^{log2}");
    }
}

/// A table of 128 buckets with `left` keys and one more, whose removal checks for a shrink or not.
fn shrunk(left: usize, looks: bool) -> Option<u64> {
    let index = index(150);
    assert_eq!(stats(&index).buckets, 128);
    let last = (1..).find(|&key| hash(key).trailing_zeros() >= 8 && looks || hash(key) & 0xff == 1 && !looks);
    insert(&index, (1..).filter(|&key| hash(key) & 0xff > 1).take(left).chain(last));
    assert_eq!(resizes_to(&index), None);
    remove(&index, last);
    resizes_to(&index)
}

#[test]
fn table_shrinks_below_an_eighth() {
    // Room for 256 before; for 32, 64 and 128 after.
    let cases = [(0, Some(16)), (8, Some(16)), (9, Some(32)), (16, Some(32)), (17, Some(64)), (32, Some(64))];
    for (left, buckets) in cases.into_iter().chain([(33, None), (40, None)]) {
        assert_eq!(shrunk(left, true), buckets, "{left} keys");
        assert_eq!(shrunk(left, false), None, "{left} keys, and a removal in 256 looks");
    }
}

#[test]
fn smallest_table_does_not_shrink() {
    let index = index(0);
    let key = (1..).find(|&key| hash(key) & 0xff == 0);
    insert(&index, key);
    remove(&index, key);
    assert_eq!((resizes_to(&index), stats(&index).buckets), (None, 8));
}
