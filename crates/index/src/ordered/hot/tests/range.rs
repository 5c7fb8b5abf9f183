//! Tests of `range.rs`.

use super::super::super::keys::sealed::Order;
use super::super::super::links::store;
use super::super::ops::Hot;
use super::*;
use crate::hash::test_pools::{Medium, Power, interrupted};
use crate::{PointIndex, Stored, U64};
use std::sync::{Arc, OnceLock};
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::schedule::Scheduler;

/// A thread that died may have left a node without a link. A range that begins there does not begin
/// with all keys of the tree.
#[test]
fn range_begins_beside_a_node_without_links() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let (index, guard) = (Hot::<Dram, U64>::create(&pool, "hot", 0).unwrap(), pool.pin());
    let mut keys: Vec<u64> = (0..5000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    keys.iter().for_each(|key| _ = index.insert(&guard, key, !key).unwrap());
    keys.sort_unstable();
    let (tree, medium) = (&index.tree, pool.medium());
    let node = keys[2000..].iter().find_map(|key| {
        let node = tree.locate(&guard, &key.to_be_bytes()).unwrap().last()?.node;
        let is_leaf = |entry| load(medium, node.link(pool.region(), entry)).kind() == LEAF;
        (0..node.len()).all(is_leaf).then_some(node)
    });
    let node = node.expect("a node of leaves");
    (0..node.len()).for_each(|entry| store(medium, node.link(pool.region(), entry), Link::NONE));
    let is_gone = |key: &u64| index.get(&guard, key).is_none();
    let first = keys.iter().position(is_gone).unwrap();
    assert_eq!(keys.iter().filter(|key| is_gone(key)).count(), node.len());
    let (below, above) = (keys[first - 1], keys[first + node.len()]);
    for key in &keys[first..first + node.len()] {
        let end = || End::of::<U64>(Bound::Included(key));
        let forward = tree.walk(&guard, (end(), End::NONE), Direction::Forward, 1);
        let backward = tree.walk(&guard, (End::NONE, end()), Direction::Backward, 1);
        for (mut walk, next) in [(forward, above), (backward, below)] {
            assert!(walk.place(&key.to_be_bytes()).is_some());
            let found = walk.next().map(|(_, link)| U64::told(&guard, link.offset()));
            assert_eq!(found, Some(next), "beside {key:#x}");
        }
    }
}

/// A tree of these keys, in nodes of at most four entries.
fn tree_of<M: MappedMedium>(pool: &Pool<M>, keys: impl IntoIterator<Item = u64>) -> Hot<M, U64> {
    let index = Hot::<M, U64>::with_growth(pool, "hot", 4, 2).unwrap();
    let guard = pool.pin();
    keys.into_iter().for_each(|key| _ = index.insert(&guard, &key, !key).unwrap());
    index
}

/// The keys that a range from behind this key on visits.
fn visited<M: MappedMedium>(index: &Hot<M, U64>, key: u64, direction: Direction) -> Vec<u64> {
    let (guard, mut found) = (index.pool().pin(), Vec::new());
    let (from, to) = match direction {
        Direction::Forward => (Bound::Excluded(&key), Bound::Unbounded),
        Direction::Backward => (Bound::Unbounded, Bound::Excluded(&key)),
    };
    index.tree.range_from_to(&guard, (from, to), direction, 1, |key, _| {
        found.push(key);
        ControlFlow::Continue(())
    });
    found
}

/// Those of some keys that a range from behind `key` on visits.
fn behind(key: u64, others: impl Iterator<Item = u64>, direction: Direction) -> Vec<u64> {
    let is_behind = |other: &u64| if direction == Direction::Forward { *other > key } else { *other < key };
    let mut behind: Vec<u64> = others.filter(is_behind).collect();
    behind.sort_unstable_by_key(|key| if direction == Direction::Forward { *key } else { !key });
    behind
}

/// The key at the end of a range was removed, and its node has another node beside it, and leaves.
/// Then a writer has removed the last key of that node, too, and not yet the node.
#[test]
fn range_begins_beside_a_node() {
    // Each fork has a leaf on one side, and all keys that differ later on the other.
    const STEM: u64 = 0x9e37_79b9_7f4a_7c15;
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let keys: Vec<u64> = (0..64).map(|bit| STEM ^ 1 << bit).collect();
    let (index, guard, mut nodes) = (tree_of(&pool, keys.iter().copied()), pool.pin(), 0);
    let (tree, medium, region) = (&index.tree, pool.medium(), pool.region());
    for (&key, side) in keys.iter().flat_map(|key| [(key, 1), (key, -1)]) {
        let path = tree.locate(&guard, &key.to_be_bytes()).unwrap();
        let last = path.last().unwrap();
        let beside = last.entry.checked_add_signed(side).filter(|entry| *entry < last.node.len());
        let Some(word) = beside.map(|entry| last.node.link(region, entry)) else { continue };
        let Ok(node) = tree.node_behind(&guard, word, load(medium, word), 0) else { continue };
        let links = (0..node.len()).map(|entry| node.link(region, entry));
        let words: Vec<_> = std::iter::once(path.word).chain(links).collect();
        let links: Vec<Link> = words.iter().map(|word| load(medium, word)).collect();
        for gone in [&words[..1], &words[1..]] {
            gone.iter().for_each(|word| store(medium, word, Link::NONE));
            for direction in [Direction::Forward, Direction::Backward] {
                let is_there = |key: &u64| index.get(&guard, key).is_some();
                let there = behind(key, keys.iter().copied().filter(is_there), direction);
                assert_eq!(visited(&index, key, direction), there, "behind {key:#x}, {direction:?}");
            }
        }
        words.iter().zip(links).for_each(|(word, link)| store(medium, word, link));
        nodes += 1;
    }
    assert!(nodes > 8, "{nodes} nodes");
}

/// Runs a range from behind a removed key on, which stops after so many steps, until the keys
/// `goes` are removed, of those below `keys`. Returns the keys that it visits, and whether it had
/// ended before.
fn visited_while(
    scheduler: &Scheduler,
    steps: u32,
    (keys, key, direction): (u64, u64, Direction),
    goes: [u64; 2],
) -> (Vec<u64>, bool) {
    let power = Power::new();
    let index = Arc::new(tree_of::<Medium>(&power.pool, 0..keys));
    index.remove(&power.pool.pin(), &key).unwrap();
    let (found, had_ended) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let range = {
        let (index, found) = (index.clone(), found.clone());
        move || _ = found.set(visited(&index, key, direction))
    };
    let remove = {
        let (found, had_ended) = (found.clone(), had_ended.clone());
        move || {
            _ = had_ended.set(found.get().is_some());
            goes.iter().for_each(|key| _ = index.remove(&index.pool().pin(), key));
        }
    };
    interrupted(scheduler, steps, range, remove);
    (found.get().unwrap().clone(), *had_ended.get().unwrap())
}

/// A range begins where a key was removed, and stops after each of its steps in turn. Meanwhile the
/// next keys go, with one of which it compares its end.
#[test]
fn range_misses_no_key_where_others_go() {
    const KEYS: u64 = 16;
    let scheduler = Scheduler::new();
    let ends = (0..KEYS).flat_map(|key| [(key, Direction::Forward), (key, Direction::Backward)]);
    for (key, direction) in ends {
        let goes = match direction {
            Direction::Forward => [key + 1, key + 2],
            Direction::Backward => [key.wrapping_sub(1), key.wrapping_sub(2)],
        };
        for steps in 1.. {
            let (found, had_ended) = visited_while(&scheduler, steps, (KEYS, key, direction), goes);
            let stays = (0..KEYS).filter(|other| !goes.contains(other));
            let mut missed = behind(key, stays, direction);
            missed.retain(|other| !found.contains(other));
            assert_eq!(missed, [0; 0], "behind {key}, {direction:?}, after {steps} steps: {found:?}");
            if had_ended {
                break;
            }
        }
    }
}
