//! Tests of `tree.rs`.

use super::super::ops::Hot;
use super::super::root::Growth;
use crate::key::WordRecords;
use crate::ordered::links::{load, store};
use crate::{Bytes, PointIndex, Stored, U64};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, Pmem};
use terrace_pool::Pool;

fn tree(pool: &Pool<Dram>) -> Hot<Dram, U64> {
    Hot::create(pool, "hot", 0).unwrap()
}

/// The nodes on the way to a key that are marked.
fn marked(index: &Hot<Dram, U64>, key: u64) -> Vec<bool> {
    let guard = index.pool().pin();
    let path = index.tree.locate(&guard, &key.to_be_bytes()).unwrap();
    path.steps.iter().map(|step| index.tree.is_obsolete(index.tree.holder(step.node))).collect()
}

#[test]
fn marks_of_dead_threads_are_cleared() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let (index, guard) = (tree(&pool), pool.pin());
    (0..2000).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let mark = |key: u64| {
        let path = index.tree.locate(&guard, &key.to_be_bytes()).unwrap();
        path.steps.iter().for_each(|step| index.tree.set_obsolete(step.node));
    };
    mark(1000);
    assert!(marked(&index, 1000).len() > 1 && marked(&index, 1000).into_iter().all(|marked| marked));
    assert_eq!(index.update(&guard, &1000, 7), Some(1000));
    assert!(marked(&index, 1000).into_iter().all(|marked| !marked));
    mark(1000);
    mark(3000);
    assert_eq!(index.insert(&guard, &3000, 8), Ok(crate::Inserted::New));
    assert_eq!(index.remove(&guard, &1000), Some(7));
    assert_eq!(index.verify(&guard), []);
}

#[test]
fn first_open_of_a_cycle_clears_all_marks() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let (index, guard) = (tree(&pool), pool.pin());
    (0..2000).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let paths = [3, 700, 1999].map(|key: u64| index.tree.locate(&guard, &key.to_be_bytes()).unwrap());
    paths.iter().flat_map(|path| &path.steps).for_each(|step| index.tree.set_obsolete(step.node));
    assert!(marked(&index, 700).into_iter().all(|marked| marked));
    index.tree.root[1].0[crate::ordered::base::ROOT_CYCLE].store(pool.medium(), 9, Relaxed);
    index.tree.begin_cycle();
    assert!([3, 700, 1999].into_iter().all(|key| marked(&index, key).into_iter().all(|marked| !marked)));
}

/// A thread died before its swap, and the records are damaged. Writers that come after it change
/// the links under the lock, and the collector has no lock.
#[test]
fn collector_clears_no_held_link_of_a_marked_node() {
    let pool = Pool::<Pmem>::anonymous(4 << 20).unwrap();
    let index = Hot::<Pmem, Bytes<WordRecords>>::create(&pool, "hot", 0).unwrap();
    let guard = pool.pin();
    let records = [1u64, 2, 3].map(|key| (key.to_le_bytes(), WordRecords::put(&guard, key)));
    records.iter().for_each(|(key, record)| _ = index.insert(&guard, key, *record).unwrap());
    let node = index.tree.locate(&guard, &records[0].0).unwrap().steps[0].node;
    index.tree.set_obsolete(node);
    records.iter().for_each(|(_, record)| WordRecords::erase(&guard, *record));
    let (word, medium) = (node.link(pool.region(), 1), pool.medium());
    let held = load(medium, word).held();
    store(medium, word, held);
    pool.reachable(&mut |marker| index.trace(&guard, marker, |_, _| ()));
    assert_eq!(load(medium, word), held);
}

#[test]
fn growth_with_a_changed_byte_is_none() {
    let word = Growth::USUAL.to_word();
    assert_eq!(Growth::of_word(word), Some(Growth::USUAL));
    for (byte, change) in (0..8).flat_map(|byte| (1..256u64).map(move |change| (byte, change))) {
        assert_eq!(Growth::of_word(word ^ change << (8 * byte)), None, "{byte} {change:#x}");
    }
}
