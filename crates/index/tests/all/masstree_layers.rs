//! Tests: P-Masstree's layers, as deep as keys are long; and readers, ranges and writers beside
//! nodes and layers that go.

use crate::trees::{self, NAME, Strings, fill, spread, tree, visited};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_index::ordered::{Masstree, OrderedKind};
use terrace_index::{Direction, Inserted, PointIndex, RangeIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium};
use terrace_testkit::{TappedShm, TestKeys, jittery};

const UNBOUNDED: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn narrow<M: MappedMedium, K: OrderedKind>(width: usize) -> Masstree<M, K> {
    Masstree::with_width(&trees::pool(64 << 20), NAME, width).expect("room for a root")
}

/// Keys that end at an edge of a slice, just before it and behind it, beside those that go on. They
/// come and go in every order that a step makes.
#[test]
fn keys_at_the_edges_of_slices_part() {
    let mut keys: Vec<Vec<u8>> = (0..26).map(|length| vec![b's'; length]).collect();
    keys.extend((6..19).map(|length| [vec![b's'; length], vec![0]].concat()));
    keys.extend((6..19).map(|length| [vec![b's'; length], vec![0xff; 3]].concat()));
    let count = keys.len();
    for (width, step) in [3, 15].into_iter().flat_map(|width| [1, 3, 7, 25, 51].map(|step| (width, step))) {
        let index = narrow::<Dram, Strings>(width);
        let mut model = fill(&index, (0..count).map(|nth| keys[nth * step % count].clone()));
        let guard = index.pool().pin();
        for nth in 0..count {
            assert_eq!((index.verify(&guard), index.len()), (vec![], model.len() as u64), "{width}, {step}");
            let expected: Vec<u64> = model.values().copied().collect();
            assert_eq!(visited(&index, UNBOUNDED, Direction::Forward), expected);
            let mut found = visited(&index, UNBOUNDED, Direction::Backward);
            found.reverse();
            assert_eq!(found, expected);
            let gone = &keys[nth * 5 % count];
            for key in &keys {
                assert_eq!(index.get_sound(&guard, key), Ok(model.get(key).copied()), "{key:?}");
                let upper = model.range(key.clone()..).map(|(_, word)| *word);
                let found = visited(&index, (Bound::Included(key), Bound::Unbounded), Direction::Forward);
                assert!(found.into_iter().eq(upper), "{key:?}");
            }
            assert_eq!(index.remove(&guard, gone), model.remove(gone));
        }
        assert!(index.stats(&guard).nodes[0] <= 2, "the layers go: {:?}", index.stats(&guard));
    }
}

/// The bytes that all deep keys begin with.
fn path(bytes: usize) -> Vec<u8> {
    vec![b'p'; bytes]
}

/// A layer at each `step`th slice of a key of 65,535 bytes, and two keys in the deepest: those that
/// made the others have gone.
fn deep<M: MappedMedium>(step: usize) -> (Masstree<M, Strings>, [Vec<u8>; 2], u64) {
    let index: Masstree<M, Strings> = tree(64 << 20);
    let keys = [path(65_535), [path(65_534), vec![b'q']].concat()];
    let pool = index.pool().clone();
    let insert = |key: &[u8]| {
        let guard = pool.pin();
        let word = Strings::word(&guard, key, key.len() as u64, 1).unwrap();
        assert_eq!(index.insert(&guard, key, word), Ok(Inserted::New));
    };
    insert(&keys[0]);
    for slices in (step..8191).step_by(step) {
        let side = [path(slices * 8), vec![b'z']].concat();
        insert(&side);
        let guard = pool.pin();
        let word = index.remove(&guard, &side).expect("the key that has come");
        Strings::free_word(&guard, word, true);
    }
    insert(&keys[1]);
    let layers = index.stats(&pool.pin()).nodes[0];
    (index, keys, layers)
}

/// Work on the longest keys costs as much as there are layers.
fn costs_its_layers(index: &Masstree<TappedShm, Strings>, layers: u64, what: &str, work: impl FnOnce()) {
    let loads = index.pool().medium().during(work).0.loads;
    assert!(loads <= layers * 250, "{what}: {loads} loads for {layers} layers");
}

fn deep_layers_cost_their_number(step: usize) {
    let (index, keys, layers) = deep::<TappedShm>(step);
    assert!(layers as usize > 8190 / step, "{layers}");
    let guard = index.pool().pin();
    let costs = |what: &str, work: &dyn Fn()| costs_its_layers(&index, layers, what, work);
    let words = [0, 1].map(|nth| index.get(&guard, &keys[nth]).unwrap());
    costs("a get", &|| assert!(index.get_sound(&guard, &keys[1]) == Ok(Some(words[1]))));
    costs("a get of an absent key", &|| assert_eq!(index.get(&guard, &path(65_530)), None));
    costs("an update", &|| assert_eq!(index.update(&guard, &keys[0], words[0]), Some(words[0])));
    costs("a removal of an absent key", &|| assert_eq!(index.remove(&guard, &path(65_528)), None));
    let side = [path(40_000), vec![b'a']].concat();
    let word = Strings::word(&guard, &side, 7, 1).unwrap();
    costs("an insert", &|| assert_eq!(index.insert(&guard, &side, word), Ok(Inserted::New)));
    deep_ranges_cost_their_layers(
        &index,
        layers,
        &[(&side, word), (&keys[0], words[0]), (&keys[1], words[1])],
    );
    assert_eq!((index.verify(&guard), index.len()), (vec![], 3));
    costs("a removal", &|| assert_eq!(index.remove(&guard, &side), Some(word)));
    costs("a removal", &|| assert_eq!(index.remove(&guard, &keys[0]), Some(words[0])));
    costs("the last removal", &|| assert_eq!(index.remove(&guard, &keys[1]), Some(words[1])));
    assert_eq!((index.verify(&guard), index.stats(&guard).nodes), (vec![], [1, 0, 0, 0]));
}

/// Ranges over all keys, and from behind each one on.
fn deep_ranges_cost_their_layers(index: &Masstree<TappedShm, Strings>, layers: u64, all: &[(&Vec<u8>, u64)]) {
    let guard = index.pool().pin();
    let words: Vec<u64> = all.iter().map(|(_, word)| *word).collect();
    let lower_ends = all.iter().map(|(key, _)| Bound::Excluded(&key[..]));
    for (skipped, from) in std::iter::once(Bound::Unbounded).chain(lower_ends).enumerate() {
        for direction in [Direction::Forward, Direction::Backward] {
            costs_its_layers(index, layers, "a range", || {
                let mut found = Vec::new();
                index.range(&guard, from, Bound::Unbounded, direction, 9, |(), word| {
                    found.push(word);
                    ControlFlow::Continue(())
                });
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert_eq!(found, words[skipped..], "{direction:?}");
            });
        }
    }
}

/// Runs on a stack on which a call for each layer would not fit.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(work).expect("a thread");
    thread.join().expect("no panic");
}

#[test]
fn deep_layers_that_skip_none_or_some_slices_cost_their_number() {
    [8, 17].into_iter().for_each(|step| on_a_small_stack(move || deep_layers_cost_their_number(step)));
}

/// As deep as can be. No call for each layer has room on this stack.
#[test]
fn eight_thousand_layers_come_and_go() {
    on_a_small_stack(|| {
        let (index, keys, layers) = deep::<Dram>(1);
        assert_eq!(layers, 8192);
        let guard = index.pool().pin();
        let words = keys.each_ref().map(|key| index.get_sound(&guard, key).unwrap().unwrap());
        assert_eq!(visited(&index, UNBOUNDED, Direction::Forward), words);
        let from = (Bound::Excluded(&keys[0][..]), Bound::Unbounded);
        assert_eq!(visited(&index, from, Direction::Backward), words[1..]);
        let mut found = Vec::new();
        let both = keys.each_ref().map(|key| &key[..]);
        index.get_many(&guard, both, |_, word| found.push(word));
        assert_eq!(found, words.map(Some));
        assert_eq!((index.verify(&guard), index.len()), (vec![], 2));
        assert_eq!(trees::nodes(&index).len(), 8192);
        keys.iter().zip(words).for_each(|(key, word)| assert_eq!(index.remove(&guard, key), Some(word)));
        assert_eq!((index.verify(&guard), index.stats(&guard).nodes), (vec![], [1, 0, 0, 0]));
    });
}

/// A range whose caller removes keys while it stands in their layer, or before their leaves.
#[test]
fn range_goes_on_when_its_layer_goes() {
    for (width, direction) in [3, 15]
        .into_iter()
        .flat_map(|width| [Direction::Forward, Direction::Backward].map(|way| (width, way)))
    {
        let index = narrow::<Dram, Strings>(width);
        let keys = |first: u8| (0..40).map(move |last| [vec![first; 20], vec![last]].concat());
        let mut model = fill(&index, keys(b'a').chain(keys(b'b')).chain(keys(b'c')));
        let guard = index.pool().pin();
        let mut found = Vec::new();
        index.range(&guard, Bound::Unbounded, Bound::Unbounded, direction, 9, |(), word| {
            let (number, _) = Strings::read(&guard, word);
            if number == 50 {
                // The range stands in the second layer, which goes.
                keys(b'b').for_each(|key| assert_eq!(index.remove(&guard, &key), model.remove(&key)));
            }
            found.push(number);
            ControlFlow::Continue(())
        });
        // The rest of a leaf that was read before its keys went may come.
        let place = found.iter().position(|number| *number == 50).expect("it was there");
        let rest = found[place + 1..].iter().filter(|number| (40..80).contains(*number)).count();
        assert!(rest < width, "{rest} keys that were gone");
        let mut others: Vec<u64> = found.into_iter().filter(|number| !(40..80).contains(number)).collect();
        if direction == Direction::Backward {
            others.reverse();
        }
        assert!(others.into_iter().eq((0..40).chain(80..120)), "{direction:?}");
        assert_eq!((index.verify(&guard), index.len()), (vec![], 80));
    }
}

/// A range backwards, all leaves before which are emptied meanwhile, ends.
#[test]
fn range_backwards_over_emptied_leaves_ends() {
    for width in [3, 15] {
        let index = narrow::<Dram, U64>(width);
        let guard = index.pool().pin();
        (0..1000).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
        let mut found = Vec::new();
        index.range(&guard, Bound::Unbounded, Bound::Unbounded, Direction::Backward, 9, |key, _| {
            if key == 700 {
                (1..700).for_each(|key| assert_eq!(index.remove(&guard, &key), Some(key)));
            }
            found.push(key);
            ControlFlow::Continue(())
        });
        let rest = found.iter().filter(|key| **key > 0 && **key < 700).count();
        assert!(rest < width, "{rest} keys that were gone");
        assert_eq!(found.iter().filter(|key| **key >= 700 || **key == 0).count(), 301);
    }
}

/// Layers come and go: their nodes are given back, the first leaf's too, and a scan does not meet
/// them.
#[test]
fn layers_that_are_emptied_go() {
    let index = narrow::<Dram, Strings>(4);
    let pool = index.pool().clone();
    let key = |layer: u64, n: u64| {
        [format!("layer {layer:010}").into_bytes(), spread(n).to_be_bytes().to_vec()].concat()
    };
    let mut used = Vec::new();
    for round in 0..4 {
        for layer in 0..200 {
            for n in 0..12 {
                let guard = pool.pin();
                let word = Strings::word(&guard, &key(layer, n), n, 1).unwrap();
                assert_eq!(index.insert(&guard, &key(layer, n), word), Ok(Inserted::New));
            }
        }
        assert!(index.stats(&pool.pin()).nodes[0] > 600);
        for (layer, n) in (0..12).flat_map(|n| (0..200).map(move |layer| (layer, n))) {
            // From the first leaf on, from the last one back, and across.
            let n = [n, 11 - n, n * 5 % 12, n * 7 % 12][round];
            let guard = pool.pin();
            let word = index.remove(&guard, &key(layer, n)).expect("a key");
            Strings::free_word(&guard, word, true);
        }
        let nodes = index.stats(&pool.pin()).nodes;
        assert_eq!((index.verify(&pool.pin()), index.len()), (vec![], 0));
        assert!(nodes[0] <= 2 && nodes[1] <= 12, "{nodes:?}");
        assert_eq!(visited(&index, UNBOUNDED, Direction::Forward), []);
        while pool.reclaim_blocking() {}
        used.push(pool.space().used_by_blocks - 320 * (nodes[0] + nodes[1]));
    }
    assert_eq!(used.iter().max(), used.iter().min(), "{used:?}");
}

/// A slot is emptied and taken by another key again and again, so that the permutation is the same
/// each time, while readers are between a key's slice and its word.
#[test]
fn reader_of_a_slot_that_is_used_again_sees_no_other_keys_word() {
    const ROUNDS: u64 = 4000;
    let index: Masstree<TappedShm, U64> = jittery(|| tree(16 << 20));
    let pool = index.pool().clone();
    let is_done = AtomicBool::new(false);
    let word = |key: u64, round: u64| key << 32 | round;
    // Keys before and behind stay, and two alternate.
    [1, 9].iter().for_each(|key| _ = index.insert(&pool.pin(), key, word(*key, 0)).unwrap());
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (index, pool, is_done) = (&index, &pool, &is_done);
            scope.spawn(move || {
                while !is_done.load(Relaxed) {
                    let guard = pool.pin();
                    for key in [4, 5] {
                        if reader == 0 {
                            let found = index.get(&guard, &key);
                            assert!(found.is_none_or(|found| found >> 32 == key), "{key}: {found:x?}");
                        }
                    }
                    let each = |key, found| {
                        assert_eq!(found >> 32, key, "in a range");
                        ControlFlow::Continue(())
                    };
                    index.range(&guard, Bound::Unbounded, Bound::Unbounded, Direction::Forward, 9, each);
                }
            });
        }
        for round in 0..ROUNDS {
            let key = 4 + round % 2;
            assert_eq!(index.insert(&pool.pin(), &key, word(key, round)), Ok(Inserted::New));
            assert_eq!(index.remove(&pool.pin(), &key), Some(word(key, round)));
        }
        is_done.store(true, Relaxed);
    });
}

/// One thread's share of [`keys_of_leaves_that_split_and_go_are_found`].
fn add_and_remove_own<K: TestKeys + OrderedKind>(
    index: &Masstree<TappedShm, K>,
    thread: u64,
    key_of: fn(u64) -> <K as TestKeys>::Owned,
) {
    const KEYS: u64 = 60;
    const ROUNDS: u64 = 25;
    let (pool, mut own) = (index.pool(), BTreeMap::new());
    for n in (0..ROUNDS * KEYS).map(|n| spread(n + thread) % KEYS * 3 + thread) {
        let (guard, key) = (pool.pin(), key_of(n));
        let key = key.borrow();
        match own.remove(&n) {
            Some(word) => {
                assert_eq!(index.get(&guard, key), Some(word));
                assert_eq!(index.remove(&guard, key), Some(word));
                assert_eq!(index.get(&guard, key), None);
            }
            None => {
                let word = K::word(&guard, key, n, 1).unwrap();
                assert_eq!(index.insert(&guard, key, word), Ok(Inserted::New));
                assert_eq!(index.get(&guard, key), Some(word));
                own.insert(n, word);
            }
        }
    }
    for (n, word) in own {
        assert_eq!(index.remove(&pool.pin(), key_of(n).borrow()), Some(word));
    }
}

/// Threads add and remove keys of their own in leaves that are split and emptied all the time: what
/// a thread has added it finds, and what it has removed it does not.
#[test]
fn keys_of_leaves_that_split_and_go_are_found() {
    fn work<K: TestKeys + OrderedKind>(width: usize, key_of: fn(u64) -> <K as TestKeys>::Owned) {
        let index: Masstree<TappedShm, K> =
            jittery(|| Masstree::with_width(&trees::pool(64 << 20), NAME, width)).expect("room for a root");
        let index = &index;
        std::thread::scope(|scope| {
            (0..3).for_each(|thread| _ = scope.spawn(move || add_and_remove_own(index, thread, key_of)));
        });
        assert_eq!((index.verify(&index.pool().pin()), index.len()), (vec![], 0));
    }
    for width in [3, 6] {
        work::<U64>(width, |n| n);
        // A few keys a layer, so that layers come and go, and skip slices.
        work::<Strings>(width, |n| {
            [vec![b'l'; 20], vec![n as u8 / 9], vec![b'k'; 9], vec![n as u8]].concat()
        });
    }
}
