//! Tests: SPTree with its layers in DRAM: every suite again, what a search reads of the pool, and
//! layers that are new, full, or behind.

use crate::trees::{self, Model, NAME, Strings, spread};
use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use terrace_conformance::{Setup, point_index, point_index_races, range_index, range_index_races};
use terrace_index::ordered::{OrderedKind, SpTree};
use terrace_index::{
    Bytes, Decision, Direction, Fencing, Inserted, LayerOptions, PointIndex, RangeIndex, Stored, U64,
};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestKeys, TestRecord};

const MIB: u64 = 1 << 20;

fn layered<M: MappedMedium, K: OrderedKind>(setup: Setup) -> SpTree<M, K> {
    let mut index =
        SpTree::create(&setup.pool(), terrace_conformance::NAME, setup.capacity).expect("room for a root");
    index.set_layers(LayerOptions::of(64 * MIB));
    index
}

#[test]
fn on_counted_pmem() {
    point_index(layered::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_shm() {
    point_index(layered::<Shm, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(layered::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn ranges_on_pmem() {
    range_index(layered::<Pmem, U64>);
}

#[test]
fn ranges_of_byte_strings_on_dram() {
    range_index(layered::<Dram, Bytes<TestRecord>>);
}

#[test]
fn races_on_dram() {
    point_index_races(layered::<TappedShm, U64>);
}

#[test]
fn races_of_byte_strings_on_pmem() {
    point_index_races(layered::<TappedPmem, Bytes<TestRecord>>);
}

#[test]
fn races_of_ranges_of_byte_strings_on_pmem() {
    range_index_races(layered::<TappedPmem, Bytes<TestRecord>>);
}

/// A tree with layers of this size, and keys.
fn filled<K: TestKeys + OrderedKind>(keys: u64, layers: u64) -> SpTree<TappedPmem, K> {
    let mut index: SpTree<TappedPmem, K> = trees::tree(512 * MIB);
    index.set_layers(LayerOptions::of(layers));
    let guard = index.pool().pin();
    for n in 0..keys {
        let key = <K as TestKeys>::key(spread(n));
        let word = K::word(&guard, key.borrow(), n, 1).unwrap();
        assert_eq!(index.insert(&guard, key.borrow(), word), Ok(Inserted::New));
    }
    drop(guard);
    index
}

/// Bytes of the pool that are read for each of the keys that `key` makes, on average.
fn bytes_read<K: TestKeys + OrderedKind>(
    index: &SpTree<TappedPmem, K>,
    keys: u64,
    key: impl Fn(u64) -> u64,
    is_there: bool,
) -> f64 {
    let guard = index.pool().pin();
    let (counts, ()) = index.pool().medium().during(|| {
        for n in 0..keys {
            assert_eq!(index.get(&guard, <K as TestKeys>::key(key(n)).borrow()).is_some(), is_there, "{n}");
        }
    });
    counts.bytes_read as f64 / keys as f64
}

fn absent_keys_read_nothing<K: TestKeys + OrderedKind>() {
    const KEYS: u64 = 100_000;
    let index = filled::<K>(KEYS, 64 * MIB);
    let before = index.layers().unwrap();
    let read = bytes_read(&index, KEYS, |n| spread(KEYS + n), false);
    let layers = index.layers().unwrap();
    let [passed, filtered] = [layers.passed - before.passed, layers.filtered - before.filtered];
    let false_positives = layers.false_positives - before.false_positives;
    assert_eq!((passed, filtered + false_positives), (0, KEYS), "{layers:?}");
    assert!(false_positives * 1000 < KEYS * 12, "{layers:?}");
    // Each false positive reads less than 200 bytes of a node.
    assert!(read < 200.0 * 0.012, "{read} bytes an absent key");
}

#[test]
fn absent_keys_read_nothing_of_the_pool() {
    absent_keys_read_nothing::<U64>();
    absent_keys_read_nothing::<Strings>();
}

/// A get reads the head of a node, its tags, and a pair or two.
#[test]
fn get_reads_one_node() {
    const KEYS: u64 = 100_000;
    let index = filled::<U64>(KEYS, 64 * MIB);
    let read = bytes_read(&index, KEYS, spread, true);
    assert!(read < 140.0, "{read} bytes a get");
    let without = filled::<U64>(KEYS, 0);
    let more = bytes_read(&without, KEYS, spread, true);
    assert!(without.layers().is_none() && more > 2.0 * read, "{more} bytes a get without layers");
}

/// A part of what the nodes take: less without buffers, which only writers make.
#[test]
fn layers_take_little_memory() {
    const KEYS: u64 = 500_000;
    let share = |index: &SpTree<TappedPmem, U64>| {
        let layers = index.layers().unwrap();
        assert_eq!(layers.nodes[0], layers.nodes[1], "{layers:?}");
        layers.bytes as f64 / (layers.nodes[0] * 1152) as f64
    };
    let mut index = filled::<U64>(KEYS, 64 * MIB);
    let with_buffers = share(&index);
    assert!(with_buffers < 0.36, "{:?}: {with_buffers}", index.layers());
    index.set_layers(LayerOptions::of(64 * MIB));
    while index.maintain(&index.pool().pin()) {}
    let without = share(&index);
    assert!(without < 0.14, "{:?}: {without}", index.layers());
}

/// Keys that the layers do not know are found by the pool, and are known after `maintain`.
#[test]
fn new_layers_know_all_nodes_after_maintain() {
    const KEYS: u64 = 60_000;
    let mut index = filled::<Strings>(KEYS, 0);
    for round in 0..2 {
        index.set_layers(LayerOptions::of(64 * MIB));
        let known = |index: &SpTree<TappedPmem, Strings>| index.layers().unwrap().nodes;
        assert_eq!(known(&index)[1], 0);
        bytes_read(&index, 1000, spread, true);
        assert!(index.layers().unwrap().passed >= 1000);
        let mut steps = 0;
        while index.maintain(&index.pool().pin()) {
            steps += 1;
        }
        let nodes = known(&index);
        assert!(nodes[0] == nodes[1] && steps > 3, "round {round}: {nodes:?} after {steps} steps");
        let before = index.layers().unwrap().passed;
        bytes_read(&index, KEYS, spread, true);
        bytes_read(&index, KEYS, |n| spread(KEYS + n), false);
        assert_eq!(index.layers().unwrap().passed, before);
    }
}

/// Layers without memory leave the rest to the pool.
#[test]
fn full_layers_leave_keys_to_the_pool() {
    const KEYS: u64 = 500_000;
    {
        let index = filled::<U64>(KEYS, 1);
        let layers = index.layers().unwrap();
        assert!(layers.nodes[1] > 500 && layers.nodes[1] < layers.nodes[0] * 2 / 3, "{layers:?}");
        assert!(layers.bytes <= layers.budget && layers.budget == MIB, "{layers:?}");
        bytes_read(&index, KEYS, spread, true);
        bytes_read(&index, KEYS, |n| spread(KEYS + n), false);
        assert!(!index.maintain(&index.pool().pin()), "nothing is to be done without memory");
        let guard = index.pool().pin();
        for n in 0..KEYS {
            assert!(index.remove(&guard, &spread(n)).is_some());
        }
        // Emptied nodes give their part of the memory back.
        let layers = index.layers().unwrap();
        assert!(index.is_empty() && layers.nodes[1] < 10, "{layers:?}");
    }
}

/// Changes of few keys in narrow nodes, which split and join all the time: each answer is the
/// model's.
fn agrees_with_model<K: TestKeys + OrderedKind>(width: usize, layers: u64) {
    const UNIVERSE: u64 = 300;
    let mut index: SpTree<Dram, K> = SpTree::with_width(&trees::pool(64 * MIB), NAME, width).unwrap();
    index.set_layers(LayerOptions::of(layers));
    let guard = index.pool().pin();
    let (mut model, mut draw) = (Model::new(), 7u64);
    let mut next = |below: u64| {
        draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (draw >> 33) % below
    };
    for step in 0..60_000u64 {
        let n = next(UNIVERSE);
        let key = <K as TestKeys>::key(spread(n));
        let name = spread(n).to_be_bytes().to_vec();
        // More removals for a while, then more inserts.
        let inserts = if step / 3000 % 2 == 0 { 8 } else { 3 };
        if next(11) < inserts {
            let word = K::word(&guard, key.borrow(), step, 1).unwrap();
            let old =
                index.change(&guard, key.borrow(), Fencing::Now, |_| Decision::Set(Some(word))).unwrap();
            assert_eq!(old, model.insert(name, word), "step {step}");
        } else {
            assert_eq!(index.remove(&guard, key.borrow()), model.remove(&name), "step {step}");
        }
        for n in [next(UNIVERSE), n, next(2 * UNIVERSE)] {
            let key = <K as TestKeys>::key(spread(n));
            let expected = model.get(spread(n).to_be_bytes().as_slice()).copied();
            assert_eq!(index.get_sound(&guard, key.borrow()), Ok(expected), "step {step}, key {n}");
        }
        if step % 500 == 0 {
            let mut words = Vec::new();
            index.range(&guard, Bound::Unbounded, Bound::Unbounded, Direction::Forward, 9, |_, word| {
                words.push(word);
                ControlFlow::Continue(())
            });
            let mut expected: Vec<u64> = model.values().copied().collect();
            words.sort_unstable();
            expected.sort_unstable();
            assert_eq!(words, expected);
            index.maintain(&guard);
            let nodes = index.layers().unwrap().nodes;
            assert_eq!(nodes[0], nodes[1], "each node has one");
        }
    }
    drop(guard);
    let resizes = index.stats(&index.pool().pin()).resizes;
    assert!(resizes > 4000 / width as u64, "{resizes} splits and joins of nodes of {width}");
    assert_eq!(index.verify(&index.pool().pin()), []);
}

#[test]
fn answers_agree_with_a_model() {
    agrees_with_model::<U64>(4, 64 * MIB);
    agrees_with_model::<Strings>(4, 64 * MIB);
    agrees_with_model::<Strings>(64, 64 * MIB);
}
