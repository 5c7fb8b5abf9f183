//! Tests: what P-BwTree does with little memory, and what it gives back.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use terrace_index::ordered::{BwShape, BwTree, OrderedKind};
use terrace_index::{Bytes, ChangeError, Direction, PointIndex, RangeIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{TappedPmem, TestKeys, TestRecord};

type Strings = Bytes<TestRecord>;

const SCARCE: BwShape = BwShape { most: 4, least: 2, slots: 2, numbers_log2: 3, spares: 2, is_scarce: true };

fn pool<M: MappedMedium>(bytes: u64) -> Pool<M> {
    PoolOptions::anonymous().size(bytes).hash_seed(11).create().expect("memory for a pool")
}

fn of_shape<M: MappedMedium, K: OrderedKind>(bytes: u64, shape: BwShape) -> BwTree<M, K> {
    BwTree::with_shape(&pool(bytes), "bw", shape).expect("room for a root")
}

/// A key whose bytes are spread.
fn spread(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn settle<M: MappedMedium, K: OrderedKind>(index: &BwTree<M, K>) {
    while index.maintain(&index.pool().pin()) {}
    while index.pool().reclaim_blocking() {}
}

#[test]
fn emptied_tree_is_one_page() {
    let usual = BwShape { most: 128, least: 32, slots: 12, is_scarce: false, ..SCARCE };
    for shape in [BwShape { is_scarce: false, ..SCARCE }, usual] {
        let index = of_shape::<Dram, U64>(32 << 20, shape);
        let pool = index.pool().clone();
        for round in 0..3 {
            (0..20_000).for_each(|key| _ = index.insert(&pool.pin(), &spread(key), key).unwrap());
            assert!(index.stats(&pool.pin()).nodes[1] > 0, "{:?}", index.stats(&pool.pin()));
            (0..20_000).for_each(|key| assert_eq!(index.remove(&pool.pin(), &spread(key)), Some(key)));
            settle(&index);
            assert_eq!(index.stats(&pool.pin()).nodes, [1, 0, 0, 0], "round {round} of {shape:?}");
            assert_eq!((index.len(), index.verify(&pool.pin())), (0, vec![]));
        }
    }
}

/// A tree of few keys has few levels, whatever it was before.
#[test]
fn levels_are_given_back() {
    let index = of_shape::<Pmem, U64>(32 << 20, BwShape { is_scarce: false, ..SCARCE });
    let pool = index.pool().clone();
    (0..5000).for_each(|key| _ = index.insert(&pool.pin(), &key, !key).unwrap());
    let large = index.stats(&pool.pin());
    (0..5000).filter(|key| key % 1000 != 7).for_each(|key| _ = index.remove(&pool.pin(), &key).unwrap());
    settle(&index);
    let small = index.stats(&pool.pin());
    assert!(small.nodes[0] <= 3 && small.nodes[1] <= 1, "{large:?}, then {small:?}");
    let mut found = Vec::new();
    let each = |key, word: u64| {
        found.push((key, !word));
        ControlFlow::Continue(())
    };
    index.range(&pool.pin(), Bound::Unbounded, Bound::Unbounded, Direction::Backward, 9, each);
    assert_eq!(found, [4007, 3007, 2007, 1007, 7].map(|key: u64| (key, key)));
    assert_eq!(index.verify(&pool.pin()), []);
}

#[test]
fn rising_keys_leave_full_pages() {
    let index = BwTree::<Dram, U64>::create(&pool(64 << 20), "bw", 0).unwrap();
    let guard = index.pool().pin();
    (0..200_000).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let stats = index.stats(&guard);
    assert!(stats.nodes[0] <= 200_000 / 126 && stats.nodes[1] <= 16, "{stats:?}");
    assert!(stats.bytes <= 200_000 * 22, "{} bytes a key", stats.bytes / 200_000);
    assert_eq!(index.verify(&guard), []);
}

/// Also where the keys that rise are not the last ones of all.
#[test]
fn rising_strings_between_others_leave_full_pages() {
    let index = BwTree::<Dram, Strings>::create(&pool(64 << 20), "bw", 0).unwrap();
    let guard = index.pool().pin();
    let insert = |key: String, n| {
        let word = Strings::word(&guard, key.as_bytes(), n, 1).unwrap();
        _ = index.insert(&guard, key.as_bytes(), word).unwrap();
    };
    (0..500).for_each(|n| insert(format!("z{n:09}"), n));
    let before = index.stats(&guard).nodes[0];
    (0..50_000).for_each(|n| insert(format!("event/{n:09}"), 1000 + n));
    let came = index.stats(&guard).nodes[0] - before;
    assert!(came <= 50_000 / 120, "{came} pages came");
    assert_eq!(index.verify(&guard), []);
}

/// What a pool full of records leaves: no page finds a block, and all present keys can be changed.
#[test]
fn changes_need_no_memory_at_all() {
    for spares in [0, 1, 8] {
        let index = of_shape::<Pmem, U64>(1 << 20, BwShape { spares, is_scarce: false, ..SCARCE });
        let pool = index.pool().clone();
        let keys = 3000;
        (0..keys).for_each(|key| _ = index.insert(&pool.pin(), &spread(key), key).unwrap());
        let guard = pool.pin();
        for bytes in [8192, 4096, 1024, 512, 448, 384, 320, 256, 192, 128, 64, 8] {
            while let Ok(block) = guard.alloc(bytes) {
                _ = block.persist().into_offset();
            }
        }
        (0..keys).for_each(|key| assert_eq!(index.update(&guard, &spread(key), !key), Some(key)));
        let absent = (keys..2 * keys).find(|&key| index.insert(&guard, &spread(key), 1).is_err());
        assert!(absent.is_some(), "the pool is full");
        let came = absent.unwrap_or(keys);
        assert!((0..keys).all(|key| index.get_sound(&guard, &spread(key)) == Ok(Some(!key))));
        (0..keys).for_each(|key| assert_eq!(index.remove(&guard, &spread(key)), Some(!key)));
        assert_eq!((index.len(), index.verify(&guard)), (came - keys, vec![]));
    }
}

/// A random history in which every second epoch has no memory, against a model.
#[test]
fn scarce_memory_loses_nothing() {
    for seed in 0..6 {
        let slots = 1 + seed as usize % 3;
        changes_and_model::<TappedPmem, U64>(seed, BwShape { slots, ..SCARCE });
        changes_and_model::<Dram, Strings>(seed, BwShape { slots, spares: 0, ..SCARCE });
    }
}

fn changes_and_model<M: MappedMedium, K: OrderedKind + TestKeys>(seed: u64, shape: BwShape) {
    let index = of_shape::<M, K>(16 << 20, shape);
    let pool = index.pool().clone();
    let (mut model, mut state, mut refused) = (BTreeMap::new(), spread(seed + 1), 0);
    for turn in 0..6000u64 {
        state = spread(state ^ turn);
        let (number, kind) = ((state >> 20) % 60, state >> 40 & 7);
        let (key, guard) = (K::key(number), pool.pin());
        let word = || K::word(&guard, std::borrow::Borrow::borrow(&key), number, turn).unwrap();
        // Waves of growth and removal.
        let is_removal = if turn / 700 % 2 == 0 { kind < 2 } else { kind < 6 };
        if is_removal {
            assert_eq!(index.remove(&guard, std::borrow::Borrow::borrow(&key)), model.remove(&number));
        } else if let Some(old) = model.get_mut(&number) {
            let new = word();
            assert_eq!(index.update(&guard, std::borrow::Borrow::borrow(&key), new), Some(*old));
            *old = new;
        } else {
            let new = word();
            match index.insert(&guard, std::borrow::Borrow::borrow(&key), new) {
                Ok(_) => _ = model.insert(number, new),
                Err(ChangeError::Full(_)) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        drop(guard);
        if kind == 7 {
            pool.reclaim_nonblocking();
        }
        if turn % 64 == 0 {
            while turn % 128 == 0 && index.maintain(&pool.pin()) {}
            assert_eq!((index.len(), index.verify(&pool.pin())), (model.len() as u64, vec![]), "turn {turn}");
        }
    }
    assert!(refused > 0, "it was scarce");
    for number in 0..60 {
        let key = K::key(number);
        let found = index.get_sound(&pool.pin(), std::borrow::Borrow::borrow(&key));
        assert_eq!(found, Ok(model.get(&number).copied()), "key {number}");
    }
}

/// A pool that was emptied under one pin, in place, has room again for others.
#[test]
fn pages_emptied_in_place_come_back() {
    let index = BwTree::<Pmem, U64>::create(&pool(1 << 20), "bw", 0).unwrap();
    let pool = index.pool().clone();
    let full = (0..).find(|&key| index.insert(&pool.pin(), &spread(key), key).is_err()).unwrap();
    let guard = pool.pin();
    (0..full).for_each(|key| assert_eq!(index.remove(&guard, &spread(key)), Some(key)));
    drop(guard);
    (0..20).for_each(|_| settle(&index));
    let stats = index.stats(&pool.pin());
    assert_eq!(stats.nodes, [1, 0, 0, 0], "{full} keys were there: {stats:?}");
    assert!((0..full / 2).all(|key| index.insert(&pool.pin(), &spread(key), 1).is_ok()));
    assert_eq!(index.verify(&pool.pin()), []);
}

/// While now and then a single block is free, pages grow: never beyond the marks that their keys
/// have for removals in place.
#[test]
fn pages_of_a_full_pool_keep_a_mark_for_each_key() {
    let index = BwTree::<Dram, U64>::create(&pool(2 << 20), "bw", 0).expect("room for a root");
    let pool = index.pool().clone();
    let mut model = BTreeMap::new();
    for n in 0..128 {
        assert!(index.insert(&pool.pin(), &(n << 32), n).is_ok());
        model.insert(n << 32, n);
    }
    let guard = pool.pin();
    let mut blocks: Vec<_> =
        (0..).map_while(|_| guard.alloc(4096).ok().map(|block| block.fenced_later().into_offset())).collect();
    for bytes in [2048, 1024, 512, 256, 128, 64] {
        while let Ok(block) = guard.alloc(bytes) {
            _ = block.fenced_later().into_offset();
        }
    }
    drop(guard);
    let mut next = 1u64;
    for round in 0..200 {
        if round % 2 == 0
            && let Some(block) = blocks.pop()
        {
            pool.pin().free(block, 4096);
        }
        for _ in 0..40 {
            if index.insert(&pool.pin(), &(next * 0x1234_5671), next).is_err() {
                break;
            }
            model.insert(next * 0x1234_5671, next);
            next += 1;
        }
        let (&key, word) = model.iter_mut().nth(round % 7).unwrap();
        assert_eq!(index.update(&pool.pin(), &key, *word + 1), Some(*word));
        *word += 1;
        (0..4).for_each(|_| _ = pool.is_grace_period_over(pool.epoch()));
    }
    for key in model.keys().copied().step_by(2).collect::<Vec<_>>() {
        assert_eq!(index.remove(&pool.pin(), &key), model.remove(&key));
    }
    let guard = pool.pin();
    for (key, word) in &model {
        assert_eq!(index.get_sound(&guard, key), Ok(Some(*word)));
    }
    assert_eq!((index.len(), index.verify(&guard)), (model.len() as u64, vec![]));
}
