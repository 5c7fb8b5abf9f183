//! Readers beside a writer, in many orders of their accesses, each from a seed.

use super::super::*;
use crate::baselines::tests::space;
use crate::run_on;
use std::sync::Arc;
use terrace_medium::{Dram, MappedMedium};
use terrace_testkit::crash::RandomSource;
use terrace_testkit::schedule::{Job, Policy, Scheduled, Scheduler};
use terrace_testkit::{TappedShm, jittery};

type Tree = FastFair<Scheduled<Dram>>;

/// Keys that are always there. The writer changes others.
const STEADY: u64 = 10;

/// The value of a key after its nth insert.
fn value(key: u64, nth: u64) -> u64 {
    key << 8 | nth
}

/// What a writer does, from a seed: entries shift to and fro, a leaf is split, two are merged.
fn changes(seed: u64) -> Vec<(u64, bool)> {
    let near = |key: u64| [(key + 1, true), (key + 2, true), (key + 1, false), (key + 2, false)];
    let (insert, remove) = (|key| (key, true), |key| (key, false));
    let others = |range: std::ops::Range<u64>| range.filter(|key| !key.is_multiple_of(STEADY));
    match seed % 4 {
        0 => [near(0), near(10), near(0)].concat(),
        1 => others(42..50).map(insert).chain(near(0)).collect(),
        2 => others(21..33).map(remove).chain(others(21..30).map(insert)).collect(),
        _ => others(21..35).flat_map(|key| [remove(key), insert(key + 30)]).collect(),
    }
}

/// A tree of one leaf or two, for the changes of a seed.
fn prepared(seed: u64) -> Tree {
    let medium = |mapping| Scheduled::over(Dram::new(mapping));
    let space = Arc::new(Space::anonymous(64 << 10, medium).expect("memory"));
    let tree = Tree::create(space).expect("room for a tree");
    let few = (0..42).filter(|&key: &u64| key.is_multiple_of(STEADY) || key > 20);
    let more = if seed % 4 < 2 { 0..0 } else { 101..110 };
    few.chain(more).for_each(|key| assert_eq!(tree.insert(&key, value(key, 0)), Ok(true)));
    tree
}

fn write(tree: &Tree, seed: u64) {
    for (nth, (key, is_insert)) in (1..).zip(changes(seed)) {
        match is_insert {
            true => assert_eq!(tree.insert(&key, value(key, nth)), Ok(true), "insert of {key}"),
            false => assert!(tree.remove(&key).is_some(), "removal of {key}"),
        }
    }
}

fn read(tree: &Tree, seed: u64) {
    for nth in 0..6 {
        let key = (seed + nth) % 5 * STEADY;
        assert_eq!(tree.get(&key), Some(value(key, 0)), "key {key} is always there");
        let other = key + 1 + seed % 3;
        let found = tree.get(&other);
        assert!(found.is_none_or(|found| found >> 8 == other), "{found:?} for key {other}");
        let mut all = Vec::new();
        tree.scan(&0, usize::MAX, &mut |value| all.push(value >> 8));
        assert!(all.is_sorted_by(|one, next| one < next), "a scan is in order: {all:?}");
        let steady = all.into_iter().filter(|key| key.is_multiple_of(STEADY));
        assert!(steady.eq((0..5).map(|nth| nth * STEADY)), "a scan visits each key that is always there");
    }
}

#[test]
fn readers_find_steady_keys_in_every_order() {
    let scheduler = Scheduler::new();
    for seed in 0..1200 {
        let tree = Arc::new(prepared(seed));
        let before = tree.bytes();
        let job = |work: fn(&Tree, u64)| -> Job {
            let tree = tree.clone();
            Box::new(move || work(&tree, seed))
        };
        let policy = Policy::draw(&mut RandomSource::new(seed), 4000);
        let ran = scheduler.run(vec![job(write), job(read), job(read)], &policy, seed);
        assert_eq!(ran.wrong, None, "seed {seed}");
        tree.verify();
        // One leaf was split; where there were two, they had been merged before.
        assert_eq!(tree.bytes() - before, [0, 2, 1, 0][seed as usize % 4] * NODE, "seed {seed}");
    }
}

#[test]
fn threads_append_to_one_end() {
    const KEYS: u64 = 20_000;
    let tree = FastFair::<TappedShm>::create(jittery(|| space(4 << 20))).expect("room for a tree");
    run_on(3, |thread| {
        for key in (thread as u64..KEYS).step_by(3) {
            assert_eq!(tree.insert(&key, key), Ok(true));
            assert_eq!(tree.get(&key), Some(key));
            assert!(
                key < 300 || tree.update(&(key - 300), key - 300) && tree.get(&(key - 3)) == Some(key - 3)
            );
        }
    });
    (0..KEYS).for_each(|key| assert_eq!(tree.get(&key), Some(key)));
    tree.verify();
}
