//! Tests: each baseline behaves as a map, gets as full as its paper says, and costs the fences that
//! its head states.

pub(super) mod crash;
mod ordered;

use super::*;
use crate::{Random, spread};
use std::collections::BTreeMap;
use terrace_medium::{Dram, MappedMedium};
use terrace_testkit::TappedPmem;

pub(super) fn space<M: MappedMedium>(bytes: u64) -> Arc<Space<M>> {
    Arc::new(Space::anonymous(bytes, M::new).expect("memory"))
}

fn table<M: MappedMedium, B: Baseline<M>>(slots: u64) -> B {
    B::create(space(32 << 20), slots).expect("room for a table")
}

/// Applies random changes of few keys, so that each key occurs often, to a table and to a model.
fn check_map<B: Baseline<Dram>>(slots: u64, numbers: u64, changes: u64) -> B {
    let (mut table, mut model, mut random) = (table::<Dram, B>(slots), BTreeMap::new(), Random::new(7));
    for nth in 0..changes {
        let key = spread(random.below(numbers));
        match random.below(8) {
            0..4 => match table.insert(key, nth) {
                Ok(true) => assert_eq!(model.insert(key, nth), None),
                Ok(false) => assert!(model.contains_key(&key), "a key that is not there was found"),
                Err(SpaceFull) => assert!(!model.contains_key(&key), "a full table has lost the key"),
            },
            4 => assert_eq!(table.update(key, nth), model.get_mut(&key).map(|value| *value = nth).is_some()),
            5 => assert_eq!(table.remove(key), model.remove(&key)),
            _ => assert_eq!(table.get(key), model.get(&key).copied()),
        }
    }
    assert_eq!(table.keys(), model.len() as u64);
    (0..numbers).for_each(|n| assert_eq!(table.get(spread(n)), model.get(&spread(n)).copied()));
    table
}

#[test]
fn baselines_are_maps_up_to_full() {
    for (numbers, changes) in [(500, 20_000), (3000, 60_000)] {
        check_map::<Bch<Dram>>(1000, numbers, changes);
        check_map::<Pfht<Dram>>(1000, numbers, changes);
        check_map::<PathHashing<Dram>>(1000, numbers, changes);
    }
}

#[test]
fn cceh_is_a_map_that_grows() {
    let table = check_map::<Cceh<Dram>>(0, 50_000, 400_000);
    assert!(table.slots() > 32 * 1024, "{} slots", table.slots());
}

/// The load factor at which a table refuses a key.
fn fullness<B: Baseline<Dram>>() -> f64 {
    let mut table = table::<Dram, B>(20_000);
    let mut n = 0;
    while table.insert(spread(n), n).is_ok() {
        n += 1;
    }
    (0..n).for_each(|n| assert_eq!(table.get(spread(n)), Some(n), "{}", B::NAME));
    table.keys() as f64 / table.slots() as f64
}

#[test]
fn load_factors_are_those_of_the_paper() {
    // Figure 10 there: all of them over 0.9; 94.2% at most for path hashing.
    let full = [fullness::<Bch<Dram>>(), fullness::<Pfht<Dram>>(), fullness::<PathHashing<Dram>>()];
    assert!(full.iter().all(|&load| load >= 0.9), "{full:?}");
}

/// The most fences that an insert, an update and a removal of `keys` keys cost.
fn fences<B: Baseline<TappedPmem>>(slots: u64, keys: u64) -> [u64; 3] {
    let space = space::<TappedPmem>(32 << 20);
    let mut table = B::create(space.clone(), slots).expect("room for a table");
    let mut most = |change: &mut dyn FnMut(&mut B, u64) -> bool| {
        let counts = (0..keys).map(|n| space.medium().during(|| assert!(change(&mut table, n))).0.fences);
        counts.max().unwrap_or(0)
    };
    [
        most(&mut |table, n| table.insert(spread(n), n) == Ok(true)),
        most(&mut |table, n| table.update(spread(n), n + 1)),
        most(&mut |table, n| table.remove(spread(n)) == Some(n + 1)),
    ]
}

#[test]
fn changes_cost_the_documented_fences() {
    // Half full: nothing is evicted, stashed or split.
    assert_eq!(fences::<Bch<_>>(7 << 10, 3000), [2, 1, 1]);
    assert_eq!(fences::<Pfht<_>>(7 << 10, 3000), [2, 1, 1]);
    assert_eq!(fences::<PathHashing<_>>(8 << 10, 4000), [1, 1, 1]);
    assert_eq!(fences::<Cceh<_>>(16 << 10, 3000), [1, 1, 1]);
}

#[test]
fn cceh_threads_insert_and_read_during_splits() {
    const KEYS: u64 = 100_000;
    let table = table::<Dram, Cceh<Dram>>(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let table = &table;
            scope.spawn(move || {
                for n in (thread..KEYS).step_by(2) {
                    assert_eq!(table.insert(spread(n), n), Ok(true));
                    assert_eq!(table.get(spread(n)), Some(n));
                    let before = n / 2 * 2 / 3 + thread;
                    if before % 2 == thread && before <= n {
                        assert_eq!(table.get(spread(before)), Some(before), "after {n}");
                    }
                }
            });
        }
    });
    (0..KEYS).for_each(|n| assert_eq!(table.get(spread(n)), Some(n)));
    assert_eq!(table.keys(), KEYS);
}
