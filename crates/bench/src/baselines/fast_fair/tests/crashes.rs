//! Crashes at every store, in one process and in several in a row.

use super::super::node::TURNS;
use super::super::*;
use crate::Random;
use crate::baselines::StringKeys;
use crate::baselines::tests::crash::{Crashing, History, Left, Recovers, opened, shuffled};
use std::collections::HashSet;
use terrace_testkit::crash::Op;

/// What the next process does: it removes some keys, so that leaves are merged, and adds others.
fn then(keys: usize) -> Vec<Op> {
    let removed = (0..keys).filter(|key| key % 3 != 0).map(Op::Remove);
    removed
        .chain((0..keys).filter(|key| key % 5 == 0).map(|key| Op::Insert(key, 1000 + key as u64)))
        .collect()
}

fn crash_everywhere<K: KeyForm>()
where
    FastFair<Crashing, K>: Recovers<K>,
{
    const KEYS: usize = 40;
    let mut ops = shuffled(KEYS, 3);
    ops.extend([Op::Update(7, 500), Op::Update(23, 501)]);
    ops.extend((0..KEYS).filter(|key| key % 4 != 1).map(Op::Remove));
    ops.push(Op::Insert(8, 600));
    let history = History::new::<K, FastFair<Crashing, K>>(KEYS, ops);
    let explored = history.explore::<K, FastFair<Crashing, K>>(0, &then(KEYS));
    assert!(explored.points > 1000, "{explored:?}");
    // The count of turns is for the threads that run now.
    assert!(history.not_durable().iter().all(|at| at % NODE == 8 * TURNS as u64));
}

#[test]
fn crash_at_any_store_loses_no_integer() {
    crash_everywhere::<IntegerKeys>();
}

#[test]
fn crash_at_any_store_loses_no_string() {
    crash_everywhere::<StringKeys>();
}

#[test]
fn first_node_and_root_are_durable_at_once() {
    type Tree = FastFair<Crashing>;
    let history = History::new::<IntegerKeys, Tree>(1, vec![Op::Insert(0, 1)]);
    let tree: Tree = opened(&history.left(history.events(0).start, Left::Durable));
    assert_eq!((tree.get(&0), tree.insert(&0, 2), tree.get(&0)), (None, Ok(true), Some(2)));
}

/// A crash in a split, then one in the removals that merge its halves.
#[test]
fn crash_in_a_split_then_in_a_merge_loses_nothing() {
    type Tree = FastFair<Crashing>;
    const KEYS: usize = CAPACITY + 2;
    let split = History::new::<IntegerKeys, Tree>(KEYS, shuffled(CAPACITY + 1, 5));
    let merge: Vec<Op> = (3..KEYS - 2).map(Op::Remove).collect();
    let (mut merges, mut images) = (0, HashSet::new());
    for events in split.events(split.longest()) {
        for left in [Left::All, Left::Durable] {
            if !images.insert(split.left(events, left)) {
                continue;
            }
            let second = split.crashed::<IntegerKeys, Tree>((events, left), 64 << 10, merge.clone());
            let longest = second.events(second.longest());
            merges += usize::from(longest.len() > 60);
            second.explore::<IntegerKeys, Tree>(longest.start, &then(KEYS));
        }
    }
    assert!(merges > 50 && merges == images.len(), "{merges} merges after {} crashes", images.len());
}

/// Makes 100 splits, each by another process, which crashes at the event that `crash` chooses.
/// Returns the tree at the end.
fn after_crashed_splits(keys: usize, crash: &mut dyn FnMut(&History) -> usize) -> FastFair<Crashing> {
    const INSERTS: usize = CAPACITY / 2 + 2;
    let ascending = |first: usize, count: usize| -> Vec<Op> {
        (first..first + count).map(|key| Op::Insert(key, key as u64)).collect()
    };
    let mut history = History::new::<IntegerKeys, FastFair<Crashing>>(keys, ascending(0, CAPACITY + 1));
    for round in 0.. {
        let (first, events) = (CAPACITY + round * INSERTS, crash(&history));
        if first + INSERTS > keys {
            return opened(&history.left(events, Left::All));
        }
        let next = (round as u64 + 1) * 4 * NODE;
        history = history.crashed::<IntegerKeys, FastFair<Crashing>>(
            (events, Left::All),
            next,
            ascending(first, INSERTS),
        );
    }
    unreachable!("the loop returns")
}

const KEYS_OF_SPLITS: usize = CAPACITY + 100 * (CAPACITY / 2 + 2);

#[test]
fn hundred_crashed_splits_make_no_linked_list() {
    // The last moment at which the parent does not know the right half.
    let mut told = 0;
    let mut untold = |history: &History| {
        let events = history.events(history.longest());
        let is_untold = |&events: &usize| {
            let tree: FastFair<Crashing> = opened(&history.left(events, Left::All));
            tree.steps(&(1 << 40)) > tree.root().level() + 1
        };
        let found = events.clone().rev().find(is_untold);
        told += usize::from(found.is_none());
        found.unwrap_or(events.end)
    };
    let tree = after_crashed_splits(KEYS_OF_SPLITS, &mut untold);
    assert_eq!(told, 0, "each crash came before the parent knew");
    let (level, keys) = (tree.root().level(), 0..KEYS_OF_SPLITS as u64);
    assert_eq!(level, 2, "a hundred leaves need two levels above them");
    let longest = keys.clone().map(|key| tree.steps(&key)).max();
    assert_eq!(longest, Some(level + 2), "only the last right half is unknown to its parent");
    keys.clone().for_each(|key| _ = tree.update(&key, key));
    assert!({ keys }.all(|key| tree.steps(&key) == level + 1), "a write tells the parent");
}

#[test]
fn hundred_splits_crashed_anywhere_keep_the_height() {
    let mut random = Random::new(11);
    let mut anywhere = |history: &History| {
        let events = history.events(history.longest());
        events.start + random.below(events.len() as u64) as usize
    };
    let tree = after_crashed_splits(KEYS_OF_SPLITS, &mut anywhere);
    let keys = 0..KEYS_OF_SPLITS as u64;
    keys.clone().for_each(|key| _ = tree.update(&key, key));
    let level = tree.root().level();
    assert!(
        level <= 2 && { keys }.all(|key| tree.steps(&key) == level + 1),
        "{level} levels above the leaves"
    );
}
