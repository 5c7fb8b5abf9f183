//! Tests of `merge.rs`, `collapse.rs` and `in_place.rs`: what a thread leaves that dies in the
//! middle, while there is memory and while there is none.

use super::super::stored::BwShape;
use super::*;
use crate::{PointIndex, Stored, U64};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, Line, Offset};
use terrace_pool::Pool;

type Model = BTreeMap<u64, u64>;

/// A tree that has no memory for what works in a full pool, in every second epoch.
fn scarce(keys: u64) -> (BwTree<Dram, U64>, Model) {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let shape = BwShape { most: 4, least: 2, slots: 2, numbers_log2: 3, spares: 0, is_scarce: true };
    let index = BwTree::with_shape(&pool, "map", shape).unwrap();
    for key in 0..keys {
        go_to(&index, true);
        assert!(index.insert(&pool.pin(), &key, key).is_ok());
    }
    (index, (0..keys).map(|key| (key, key)).collect())
}

/// Goes on to an epoch with memory, or to one without.
fn go_to(index: &BwTree<Dram, U64>, has_memory: bool) {
    let pool = index.pool();
    while pool.epoch().is_multiple_of(2) == has_memory {
        // An odd number of epochs further.
        pool.is_grace_period_over(pool.epoch() - 1);
    }
}

fn leaf_of(index: &BwTree<Dram, U64>, key: u64) -> Pid {
    index.tree.descend(&index.pool().pin(), Probe::at(&key.to_be_bytes()), 0).unwrap().page.pid
}

fn state_of(index: &BwTree<Dram, U64>, pid: Pid) -> Option<State> {
    index.tree.page(&index.pool().pin(), pid).unwrap().map(|spot| spot.entry.state())
}

/// Takes the first three steps of a merge. Returns whether the page is doomed then.
fn doom(index: &BwTree<Dram, U64>, pid: Pid) -> bool {
    let guard = index.pool().pin();
    let spot = || index.tree.page(&guard, pid).unwrap().unwrap();
    assert!(index.enter(&spot(), State::Frozen));
    index.decide_merge(&guard, &spot()).unwrap();
    spot().entry.is_doomed()
}

/// Updates all keys and removes some.
fn change_all(index: &BwTree<Dram, U64>, model: &mut Model) {
    let guard = index.pool().pin();
    for (key, word) in model.iter_mut() {
        assert_eq!(index.update(&guard, key, *word + 1000), Some(*word), "key {key}");
        *word += 1000;
    }
    for key in model.keys().copied().filter(|key| key % 3 == 1).collect::<Vec<_>>() {
        assert_eq!(index.remove(&guard, &key), model.remove(&key), "key {key}");
    }
}

fn assert_holds(index: &BwTree<Dram, U64>, model: &Model) {
    let guard = index.pool().pin();
    for key in 0..100 {
        assert_eq!(index.get_sound(&guard, &key), Ok(model.get(&key).copied()), "key {key}");
    }
    assert_eq!((index.len(), index.verify(&guard)), (model.len() as u64, vec![]));
}

/// With memory again, all is as it was.
fn settle(index: &BwTree<Dram, U64>, model: &mut Model) {
    go_to(index, true);
    while index.maintain(&index.pool().pin()) {}
    assert_holds(index, model);
    change_all(index, model);
    for key in 0..60 {
        go_to(index, true);
        let old = index.upsert(&index.pool().pin(), &key, key);
        assert_eq!(old, Ok(model.insert(key, key)), "key {key}");
    }
    assert_holds(index, model);
}

#[test]
fn doomed_page_takes_changes_without_memory() {
    let mut doomed = 0;
    for key in 0..40 {
        let (index, mut model) = scarce(40);
        go_to(&index, false);
        let pid = leaf_of(&index, key);
        if !doom(&index, pid) {
            continue;
        }
        doomed += 1;
        assert!(matches!(index.settle_merge(&index.pool().pin(), pid), Err(ChangeError::Full(_))));
        change_all(&index, &mut model);
        assert_eq!(state_of(&index, pid), Some(State::DoomedInPlace));
        assert_holds(&index, &model);
        settle(&index, &mut model);
    }
    assert!(doomed > 20, "{doomed} pages");
}

#[test]
fn doomed_neighbours_take_changes_without_memory() {
    let mut doomed = 0;
    for key in 0..32 {
        let (index, mut model) = scarce(40);
        go_to(&index, false);
        let (pid, next) = (leaf_of(&index, key), leaf_of(&index, key + 4));
        if pid == next || !doom(&index, pid) || !doom(&index, next) {
            continue;
        }
        doomed += 1;
        let guard = index.pool().pin();
        assert_eq!(index.update(&guard, &(key + 4), 1), Some(key + 4));
        model.insert(key + 4, 1);
        drop(guard);
        assert_holds(&index, &model);
        change_all(&index, &mut model);
        settle(&index, &mut model);
    }
    assert!(doomed > 5, "{doomed} pairs of pages");
}

/// A thread that has read a doomed page before it was changed in place cannot absorb it any more.
#[test]
fn late_absorber_fails() {
    let (index, mut model) = scarce(40);
    go_to(&index, false);
    let is_open = |pid: &Pid| state_of(&index, *pid) == Some(State::Open);
    let pids = (0..40).map(|key| leaf_of(&index, key)).filter(is_open);
    let pid = pids.into_iter().find(|&pid| doom(&index, pid)).unwrap();
    let guard = index.pool().pin();
    let right = index.tree.page(&guard, pid).unwrap().unwrap();
    let left = index.absorber_of(&guard, &right).unwrap().unwrap();
    change_all(&index, &mut model);
    let content =
        united::<U64>(index.content_of(&guard, &left).unwrap(), index.content_of(&guard, &right).unwrap());
    let block = index.tree.write_page(&guard, &content, Need::Room).unwrap();
    assert!(!index.replace(&guard, &left, (block, 0)), "the left page has not changed");
    drop(guard);
    assert_holds(&index, &model);
    settle(&index, &mut model);
}

/// A thread that cannot have the left page changed in place, or dies before, leaves a doomed page
/// that takes no change: another may be about to absorb it as it is.
#[test]
fn left_page_is_changed_in_place_before_the_doomed_one() {
    let (index, mut model) = scarce(40);
    go_to(&index, false);
    let is_open = |pid: &Pid| state_of(&index, *pid) == Some(State::Open);
    let pids = (0..40).map(|key| leaf_of(&index, key)).filter(is_open);
    let pid = pids.into_iter().find(|&pid| doom(&index, pid)).unwrap();
    let guard = index.pool().pin();
    let right = index.tree.page(&guard, pid).unwrap().unwrap();
    let left = index.absorber_of(&guard, &right).unwrap().unwrap();
    let marks: &Line = index.pool().region().at(Offset::new(left.page.offset + LINE as u64));
    let store = |word| marks.0[0].store(index.pool().medium(), word, Relaxed);
    store(1);
    index.doom_in_place(&guard, pid).unwrap_err();
    assert_eq!(state_of(&index, pid), Some(State::Doomed));
    // Nobody is told of what was no damage.
    store(0);
    let index = BwTree::<Dram, U64>::recover(index.pool(), "map").unwrap().unwrap();
    drop(guard);
    change_all(&index, &mut model);
    assert_holds(&index, &model);
    settle(&index, &mut model);
}

fn low_of_absorber(index: &BwTree<Dram, U64>, pid: Pid) -> u64 {
    let guard = index.pool().pin();
    let right = index.tree.page(&guard, pid).unwrap().unwrap();
    let left = index.absorber_of(&guard, &right).unwrap().unwrap();
    left.page.low().first_chunk().map_or(0, |low| u64::from_be_bytes(*low))
}

/// The left page of a merge has got many keys meanwhile: both are two pages again, none too large.
#[test]
fn pages_of_too_many_keys_are_united_as_two() {
    let mut united = 0;
    for key in 0..40 {
        let (index, mut model) = scarce(0);
        for key in (0..40).map(|key| 10 * key) {
            go_to(&index, true);
            index.insert(&index.pool().pin(), &key, key).unwrap();
            model.insert(key, key);
        }
        let pid = leaf_of(&index, 10 * key);
        if !doom(&index, pid) {
            continue;
        }
        let low = low_of_absorber(&index, pid);
        let is_full = || {
            let guard = index.pool().pin();
            let left = index.tree.descend(&guard, Probe::at(&low.to_be_bytes()), 0).unwrap();
            index.tree.count_in(&guard, &left).unwrap() == 6
        };
        for key in (low + 1..low + 9).take_while(|_| !is_full()) {
            go_to(&index, true);
            index.insert(&index.pool().pin(), &key, key).unwrap();
            model.insert(key, key);
        }
        index.settle_merge(&index.pool().pin(), pid).unwrap();
        assert_eq!(state_of(&index, pid), None);
        let guard = index.pool().pin();
        for key in model.keys() {
            let leaf = index.tree.page(&guard, leaf_of(&index, *key)).unwrap().unwrap();
            assert!(leaf.page.len <= 6, "a page of {} entries", leaf.page.len);
            assert_eq!(index.get_sound(&guard, key), Ok(Some(*key)));
        }
        assert_eq!((index.len(), index.verify(&guard)), (model.len() as u64, vec![]));
        united += 1;
    }
    assert!(united > 5, "{united} merges");
}

/// An inner page was absorbed, and not buried; then the tree has become lower. That is no damage.
#[test]
fn absorbed_page_is_buried_in_a_lower_tree() {
    let (index, _) = scarce(100);
    go_to(&index, true);
    let guard = index.pool().pin();
    let root = index.tree.page(&guard, ROOT_PAGE).unwrap().unwrap();
    assert!(root.page.level >= 2, "a tree of level {}", root.page.level);
    let inner = |key: u64| index.tree.descend(&guard, Probe::at(&key.to_be_bytes()), 1).unwrap().page;
    let pids = (0..100).map(|key| inner(key).pid).filter(|&pid| state_of(&index, pid) == Some(State::Open));
    let pid = pids.into_iter().find(|&pid| !doom_is_off(&index, pid)).unwrap();
    let right = index.tree.page(&guard, pid).unwrap().unwrap();
    let left = index.absorber_of(&guard, &right).unwrap().unwrap();
    index.absorb_into(&guard, &left, pid, &mut None).unwrap();
    assert_eq!(state_of(&index, pid), Some(State::Doomed));
    drop(guard);
    for key in 0..100 {
        go_to(&index, true);
        assert_eq!(index.remove(&index.pool().pin(), &key), Some(key));
    }
    merge_all(&index);
    let guard = index.pool().pin();
    let root = index.tree.page(&guard, ROOT_PAGE).unwrap().unwrap();
    assert_eq!((root.page.level, state_of(&index, pid)), (0, Some(State::Doomed)));
    index.settle_merge(&guard, pid).unwrap();
    assert_eq!((state_of(&index, pid), index.damage(), index.verify(&guard)), (None, None, vec![]));
}

/// Merges all pages that are in the tree.
fn merge_all(index: &BwTree<Dram, U64>) {
    let level_of_root = || index.tree.page(&index.pool().pin(), ROOT_PAGE).unwrap().unwrap().page.level;
    for level in (0..50).flat_map(|_| 0..level_of_root()) {
        for key in (0..100u64).map(u64::to_be_bytes) {
            go_to(index, true);
            let guard = index.pool().pin();
            let pid = index.tree.descend(&guard, Probe::at(&key), level).unwrap().page.pid;
            index.merge(&guard, pid).unwrap();
        }
    }
}

/// Whether a page's merge is given up.
fn doom_is_off(index: &BwTree<Dram, U64>, pid: Pid) -> bool {
    pid == ROOT_PAGE || !doom(index, pid)
}

#[test]
fn walk_counts_keys_of_doomed_pages_once() {
    let mut doomed = 0;
    for key in 0..40 {
        let (index, model) = scarce(40);
        go_to(&index, false);
        let pid = leaf_of(&index, key);
        doomed += u64::from(doom(&index, pid));
        let pool = index.pool().clone();
        pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
        assert_eq!(index.len(), 40);
        go_to(&index, true);
        while index.maintain(&pool.pin()) {}
        assert_holds(&index, &model);
    }
    assert!(doomed > 20, "{doomed} pages");
}

/// Removes keys until the root's two children can be united, and unites them. Returns the child.
fn root_of_one(index: &BwTree<Dram, U64>, model: &mut Model) -> Pid {
    let guard = index.pool().pin();
    for key in [0, 4, 1, 5, 2, 6] {
        let left = index.tree.page(&guard, leaf_of(index, 0)).unwrap().unwrap();
        if index.absorb_into_left(&guard, left.page.sibling).unwrap().is_some() {
            break;
        }
        assert_eq!(index.remove(&guard, &key), model.remove(&key));
    }
    let root = index.tree.page(&guard, ROOT_PAGE).unwrap().unwrap();
    assert_eq!((root.page.level, root.page.len), (1, 1));
    root.page.child(0)
}

#[test]
fn root_and_only_child_take_changes_after_each_step() {
    for (step, has_memory) in (0..4).flat_map(|step| [(step, true), (step, false)]) {
        let (index, mut model) = scarce(8);
        go_to(&index, true);
        let child = root_of_one(&index, &mut model);
        go_to(&index, has_memory);
        let guard = index.pool().pin();
        let spot = |pid| index.tree.page(&guard, pid).unwrap().unwrap();
        let steps = [(child, State::Frozen), (ROOT_PAGE, State::Frozen), (child, State::Doomed)];
        steps.iter().take(step).for_each(|&(pid, state)| assert!(index.enter(&spot(pid), state)));
        drop(guard);
        assert_holds(&index, &model);
        change_all(&index, &mut model);
        assert_holds(&index, &model);
        settle(&index, &mut model);
        (0..100).for_each(|key| assert_eq!(index.remove(&index.pool().pin(), &key), model.remove(&key)));
        for _ in 0..4 {
            go_to(&index, true);
            while index.maintain(&index.pool().pin()) {}
        }
        assert_eq!(index.stats(&index.pool().pin()).nodes, [1, 0, 0, 0], "step {step}, {has_memory}");
    }
}
