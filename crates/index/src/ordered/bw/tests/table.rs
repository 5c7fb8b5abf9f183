//! Tests of `table.rs`.

use super::super::ops::BwTree;
use super::super::stored::BwShape;
use super::*;
use crate::{PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_pool::Pool;

fn small(pool: &Pool<Dram>) -> BwTree<Dram, U64> {
    let shape = BwShape { most: 4, least: 2, slots: 2, numbers_log2: 3, spares: 1, is_scarce: false };
    BwTree::with_shape(pool, "map", shape).unwrap()
}

#[test]
fn names_keep_their_offsets() {
    for offset in [64, 0x12_3456_7890 & !63, (1 << 44) - 64] {
        assert_eq!(offset_in(named(offset)), Some(offset));
        assert_eq!(offset_in(named(offset) | DIRTY), Some(offset));
        let changes = (0..8).flat_map(|byte| (1..256u64).map(move |change| change << (8 * byte)));
        assert!(
            changes
                .filter(|&change| change != DIRTY)
                .all(|change| offset_in(named(offset) ^ change).is_none())
        );
    }
    assert_eq!(offset_in(0), None);
    let changes = (0..8).flat_map(|byte| (1..256u64).map(move |change| change << (8 * byte)));
    assert!(changes.into_iter().all(|change| offset_in(change).is_none()), "an unused word");
}

#[test]
fn segments_have_all_numbers_once() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let index = small(&pool);
    let guard = pool.pin();
    (0..4).for_each(|_| index.tree.add_segment(&guard).unwrap());
    assert_eq!(index.tree.numbers(), 8 * 31);
    let at = |pid: u64| index.tree.entry_word(pid as Pid).map(|word| pool.region().offset_of(word).raw());
    let places: std::collections::BTreeSet<_> = (0..8 * 31).map(|pid| at(pid).unwrap()).collect();
    assert_eq!(places.len(), 8 * 31);
    assert_eq!((at(8 * 31), at(u64::from(Pid::MAX))), (None, None));
}

/// Numbers are used again, so the table stays small while pages come and go.
#[test]
fn numbers_are_used_again() {
    let pool = Pool::<Dram>::anonymous(64 << 20).unwrap();
    let index = small(&pool);
    for round in 0..60u64 {
        (0..60).for_each(|key| assert!(index.insert(&pool.pin(), &key, round).is_ok()));
        (0..60).for_each(|key| assert_eq!(index.remove(&pool.pin(), &key), Some(round)));
        pool.reclaim_nonblocking();
    }
    assert!(index.stats(&pool.pin()).resizes > 1000);
    assert!(index.tree.numbers() <= 8 * 63, "{} numbers", index.tree.numbers());
    assert_eq!((index.len(), index.verify(&pool.pin())), (0, vec![]));
}

/// A number that is used again, with used ones behind it, does not make the table grow.
#[test]
fn reused_number_adds_no_segment() {
    let pool = Pool::<Dram>::anonymous(64 << 20).unwrap();
    let index = small(&pool);
    (0..3000u64).for_each(|key| assert!(index.insert(&pool.pin(), &key, key).is_ok()));
    for round in 0..20u64 {
        (0..4).for_each(|key| {
            assert_eq!(index.remove(&pool.pin(), &(100 * round + key)), Some(100 * round + key))
        });
        (0..3).for_each(|_| _ = pool.is_grace_period_over(pool.epoch()));
        (0..200).for_each(|key| assert!(index.insert(&pool.pin(), &(3000 + 200 * round + key), 1).is_ok()));
    }
    let pages: u64 = index.stats(&pool.pin()).nodes.iter().sum();
    assert!(index.tree.numbers() <= 3 * pages, "{} numbers for {pages} pages", index.tree.numbers());
}

/// A damaged name of a segment is said, also that of one that there is not yet.
#[test]
fn damaged_directory_ends_the_search_for_a_number() {
    for nth in 0..SEGMENTS {
        let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
        let index = small(&pool);
        (0..100u64).for_each(|key| assert!(index.insert(&pool.pin(), &key, key).is_ok()));
        let word = index.tree.directory_word(nth);
        word.store(pool.medium(), word.load(pool.medium(), Relaxed) ^ 0x5b << 8, Relaxed);
        let refused = (100..5000u64).find_map(|key| index.insert(&pool.pin(), &key, key).err());
        let is_used = index.tree.numbers() > index.tree.segment(nth).first || nth < 6;
        assert!(!is_used || matches!(refused, Some(ChangeError::Damaged(_))), "{nth}: {refused:?}");
    }
}
