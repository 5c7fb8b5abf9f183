//! Tests: SPTree's write buffers and their log: what a put costs, and that nothing that was logged
//! is lost, comes back, or is seen too early.

use crate::trees::{self, Model, NAME, Strings, flushes, spread};
use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::ordered::{OrderedKind, SpTree};
use terrace_index::{
    ChangeError, Decision, Direction, Fencing, LayerOptions, PointIndex, RangeIndex, Stored, U64,
};
use terrace_medium::{Dram, MappedMedium, Pmem};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{TappedPmem, TestKeys};

const MIB: u64 = 1 << 20;

fn layered<M: MappedMedium, K: OrderedKind>(pool: &Pool<M>, width: usize) -> SpTree<M, K> {
    let mut index = SpTree::with_width(pool, NAME, width).expect("room for a root");
    index.set_layers(LayerOptions::of(32 * MIB));
    index
}

fn key<K: TestKeys>(n: u64) -> K::Owned {
    K::key(spread(n))
}

/// Gives a key a word, present or not, or none. Returns the one before.
fn set<M: MappedMedium, K: TestKeys + OrderedKind>(
    index: &SpTree<M, K>,
    n: u64,
    version: Option<u64>,
) -> (Option<u64>, Option<u64>) {
    let guard = index.pool().pin();
    let key = key::<K>(n);
    let word = version.map(|version| K::word(&guard, key.borrow(), n, version).unwrap());
    let decide = |found| if (found, word) == (None, None) { Decision::Keep } else { Decision::Set(word) };
    (index.change(&guard, key.borrow(), Fencing::Now, decide).unwrap(), word)
}

/// All words, in the order of the keys.
fn words<M: MappedMedium, K: OrderedKind>(index: &SpTree<M, K>, direction: Direction) -> Vec<u64> {
    let mut found = Vec::new();
    index.range(&index.pool().pin(), Bound::Unbounded, Bound::Unbounded, direction, 9, |_, word| {
        found.push(word);
        ControlFlow::Continue(())
    });
    found
}

/// The bytes of a key, by which they are ordered.
trait BytesOf: TestKeys {
    fn bytes_of(key: &Self::Owned) -> Vec<u8>;
}

impl BytesOf for U64 {
    fn bytes_of(key: &u64) -> Vec<u8> {
        key.to_be_bytes().to_vec()
    }
}

impl BytesOf for Strings {
    fn bytes_of(key: &Vec<u8>) -> Vec<u8> {
        key.clone()
    }
}

fn assert_is<M: MappedMedium, K: BytesOf + OrderedKind>(index: &SpTree<M, K>, model: &Model, keys: u64) {
    let guard = index.pool().pin();
    for n in 0..keys {
        let expected = model.get(K::bytes_of(&key::<K>(n)).as_slice()).copied();
        assert_eq!(index.get_sound(&guard, key::<K>(n).borrow()), Ok(expected), "key {n}");
    }
    let mut expected: Vec<u64> = model.values().copied().collect();
    assert_eq!(words(index, Direction::Forward), expected);
    expected.reverse();
    assert_eq!(words(index, Direction::Backward), expected);
    assert_eq!(index.len(), model.len() as u64);
    assert_eq!(index.verify(&guard), []);
}

/// Random changes of few keys, from a seed.
struct Changes(u64);

impl Changes {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }

    /// Makes so many changes, more inserts than removals or the other way.
    fn make<M: MappedMedium, K: BytesOf + OrderedKind>(
        &mut self,
        index: &SpTree<M, K>,
        model: &mut Model,
        (keys, changes, is_growing): (u64, u64, bool),
    ) {
        for version in 1..=changes {
            let n = self.below(keys);
            let puts = self.below(10) < if is_growing { 7 } else { 3 };
            let (before, word) = set(index, n, puts.then_some(version));
            let name = K::bytes_of(&key::<K>(n));
            let expected = match word {
                Some(word) => model.insert(name, word),
                None => model.remove(&name),
            };
            assert_eq!(before, expected, "key {n}");
        }
    }
}

/// Changes, a handle that goes without merging anything, and the next one: with layers or without.
fn survives_its_handle<M: MappedMedium, K: BytesOf + OrderedKind>(width: usize, keys: u64) {
    let pool = trees::pool::<M>(64 * MIB);
    let mut index: SpTree<M, K> = layered(&pool, width);
    let (mut model, mut changes, mut buffered) = (Model::new(), Changes(width as u64), 0);
    for round in 0..24 {
        changes.make(&index, &mut model, (keys, 2 * keys, round % 8 < 5));
        buffered += index.layers().map_or(0, |layers| layers.log_bytes);
        if round % 3 == 0 {
            assert_is(&index, &model, keys);
        }
        index = trees::reopened(&pool);
        if round % 3 == 1 {
            assert_is(&index, &model, keys);
        }
        index.set_layers(LayerOptions::of(if round % 5 == 3 { 0 } else { 32 * MIB }));
    }
    assert_is(&index, &model, keys);
    assert!(buffered > 1000, "{buffered} bytes of the log were in use");
}

#[test]
fn logged_changes_survive_their_handle() {
    survives_its_handle::<Dram, U64>(4, 100);
    survives_its_handle::<Dram, U64>(64, 2000);
    survives_its_handle::<Pmem, Strings>(4, 100);
    survives_its_handle::<Dram, Strings>(64, 2000);
}

/// A log of few places, which is written again and again.
fn log_wraps<K: BytesOf + OrderedKind>() {
    let pool = trees::pool::<Dram>(32 * MIB);
    let mut index: SpTree<Dram, K> = layered(&pool, 4);
    let (mut model, mut changes) = (Model::new(), Changes(3));
    for round in 0..20 {
        changes.make(&index, &mut model, (200, 3000, round % 4 < 2));
        let layers = index.layers().unwrap();
        assert!(layers.log_bytes <= 32 << 10, "{layers:?}");
        assert_is(&index, &model, 200);
        index = trees::reopened(&pool);
        index.set_layers(LayerOptions::of(MIB));
    }
}

#[test]
fn places_of_the_log_are_used_again() {
    log_wraps::<U64>();
    log_wraps::<Strings>();
}

#[test]
fn layers_that_end_merge_what_they_had() {
    let pool = trees::pool::<Dram>(64 * MIB);
    let mut index: SpTree<Dram, Strings> = layered(&pool, 64);
    let (mut model, mut changes) = (Model::new(), Changes(5));
    changes.make(&index, &mut model, (1000, 5000, true));
    assert!(index.layers().unwrap().buffers > 5);
    index.set_layers(LayerOptions::of(0));
    assert_eq!(index.layers(), None);
    assert_is(&index, &model, 1000);
    changes.make(&index, &mut model, (1000, 5000, false));
    assert_is::<Dram, Strings>(&trees::reopened(&pool), &model, 1000);
}

/// The collector reaches the records of buffered words, and no other ones.
#[test]
fn collection_keeps_what_is_buffered() {
    let pool = trees::pool::<Dram>(64 * MIB);
    let index: SpTree<Dram, Strings> = layered(&pool, 64);
    let (mut model, mut changes) = (Model::new(), Changes(9));
    for round in 0..10 {
        changes.make(&index, &mut model, (500, 600, round % 2 == 0));
        let guard = pool.pin();
        let mut reached = Vec::new();
        let _ = pool.reachable(&mut |marker| index.trace(&guard, marker, |_, word| reached.push(word)));
        let mut expected: Vec<u64> = model.values().copied().collect();
        reached.sort_unstable();
        expected.sort_unstable();
        assert_eq!(reached, expected);
        assert_eq!(index.len(), model.len() as u64);
    }
    assert_is(&index, &model, 500);
}

/// Flushes a change of keys that are there, or come, on average: of a put one line and one fence,
/// and its part of a merge.
#[test]
fn buffered_put_costs_one_line_and_one_fence() {
    const KEYS: u64 = 100_000;
    let pool = trees::pool::<TappedPmem>(512 * MIB);
    let mut index: SpTree<TappedPmem, U64> = SpTree::with_width(&pool, NAME, 64).unwrap();
    index.set_layers(LayerOptions::of(64 * MIB));
    let cost = |version: u64| {
        let (counts, ()) = pool.medium().during(|| (0..KEYS).for_each(|n| _ = set(&index, n, Some(version))));
        let (lines, fences) = flushes(counts);
        (lines as f64 / KEYS as f64, fences as f64 / KEYS as f64)
    };
    let (inserts, updates) = (cost(1), cost(2));
    assert!(inserts.0 < 1.95 && inserts.1 < 1.27, "{inserts:?}");
    assert!(updates.0 < 1.7 && updates.1 < 1.16, "{updates:?}");
    let guard = pool.pin();
    let (counts, ()) = pool.medium().during(|| {
        (0..KEYS).for_each(|n| assert!(index.get(&guard, &spread(n)).is_some()));
        assert_eq!(words(&index, Direction::Forward).len() as u64, KEYS);
    });
    assert_eq!((counts.write_backs, counts.fences), (0, 0), "reads only read");
    assert!(counts.stores < 10, "stores of pins: {}", counts.stores);
}

/// A pool that can only be read shows what its log has.
#[test]
fn pool_that_can_only_be_read_shows_the_log() {
    let path = std::env::temp_dir().join(format!("terrace-sptree-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (mut model, mut changes) = (Model::new(), Changes(2));
    {
        let pool: Pool<Dram> = PoolOptions::at(&path).size(8 * MIB).create().unwrap();
        let index: SpTree<Dram, Strings> = layered(&pool, 64);
        changes.make(&index, &mut model, (700, 5000, true));
        assert!(index.layers().unwrap().log_bytes > 0);
        drop(index);
        pool.close().unwrap();
    }
    {
        let pool: Pool<Dram> = PoolOptions::at(&path).read_only(true).open().unwrap();
        let mut index: SpTree<Dram, Strings> = SpTree::recover(&pool, NAME).unwrap().unwrap();
        assert_is(&index, &model, 700);
        index.set_layers(LayerOptions::of(MIB));
        assert_is(&index, &model, 700);
        drop(index);
        pool.close().unwrap();
    }
    let pool: Pool<Dram> = PoolOptions::at(&path).open().unwrap();
    assert_is(&SpTree::<Dram, Strings>::recover(&pool, NAME).unwrap().unwrap(), &model, 700);
    drop(pool);
    std::fs::remove_file(&path).unwrap();
}

/// A log with a changed byte may lack a change of any key: each answer is an error then, and the
/// open changes nothing, so that what can be read is there for a salvage.
#[test]
fn changed_byte_of_the_log_makes_each_answer_an_error() {
    const KEYS: u64 = 30;
    let pool = trees::pool::<Dram>(4 * MIB);
    let mut changes = Changes(7);
    let mut model = Model::new();
    let log = {
        let index: SpTree<Dram, Strings> = SpTree::with_width(&pool, NAME, 4).unwrap();
        let without = trees::nodes(&index);
        let mut index = index;
        index.set_layers(LayerOptions::of(MIB));
        let with = trees::nodes(&index);
        changes.make(&index, &mut model, (KEYS, 60, true));
        with.into_iter().find(|block| !without.contains(block)).expect("the block of a log")
    };
    let guard = pool.pin();
    let mut told = 0;
    for at in (log.0..log.0 + log.1).step_by(8) {
        let place = trees::word(&pool, at);
        let sound = place.load(pool.medium(), Relaxed);
        for byte in (0..if sound == 0 { 0 } else { 8 }).step_by(3) {
            place.store(pool.medium(), sound ^ 0x21 << (8 * byte), Relaxed);
            let mut damaged: SpTree<Dram, Strings> = trees::reopened(&pool);
            damaged.set_layers(LayerOptions::of(MIB));
            assert!(damaged.damage().is_some(), "byte {byte} of {at:#x}");
            for n in 0..KEYS {
                assert!(damaged.get_sound(&guard, key::<Strings>(n).borrow()).is_err());
            }
            let record = Strings::word(&guard, b"key", 1, 1).unwrap();
            let set = damaged.change(&guard, b"key", Fencing::Now, |_| Decision::Set(Some(record)));
            assert!(matches!(set, Err(ChangeError::Damaged(_))), "{set:?}");
            let mut seen = 0;
            damaged.for_each(&guard, |_| seen += 1);
            assert!(seen + 6 > model.len(), "{seen} keys of {}", model.len());
            place.store(pool.medium(), sound, Relaxed);
            told += 1;
        }
    }
    assert!(told > 100, "{told} bytes");
    assert_is::<Dram, Strings>(&trees::reopened(&pool), &model, KEYS);
}
