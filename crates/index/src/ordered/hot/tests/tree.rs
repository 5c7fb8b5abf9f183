//! Tests of `tree.rs`.

use super::super::ops::Hot;
use super::super::root::Growth;
use crate::{PointIndex, Stored, U64};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;
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

#[test]
fn growth_with_a_changed_byte_is_none() {
    let word = Growth::USUAL.to_word();
    assert_eq!(Growth::of_word(word), Some(Growth::USUAL));
    for (byte, change) in (0..8).flat_map(|byte| (1..256u64).map(move |change| (byte, change))) {
        assert_eq!(Growth::of_word(word ^ change << (8 * byte)), None, "{byte} {change:#x}");
    }
}
