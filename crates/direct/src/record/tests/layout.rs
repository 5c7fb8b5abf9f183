//! Tests of `layout`.

use super::*;
use crate::tests::fixtures::{self, Store, settings, store};
use std::sync::atomic::Ordering::Relaxed;

/// The error when a store is opened after `change`.
fn open_error(change: impl FnOnce(&Store)) -> String {
    let (store, _) = store();
    change(&store);
    let pool = store.pool().clone();
    drop(store);
    fixtures::open(pool, settings()).err().expect("it is damaged").to_string()
}

#[test]
fn invalid_root_is_rejected() {
    let bytes = |store: &Store| store.root().block().1 as u64;
    for short in [8, 64, 1 << 10] {
        // It would not end in the pool.
        let text = open_error(|store| {
            let at = store.pool().size() - bytes(store) + short;
            store.pool().set_root(NAME, KIND, at.next_multiple_of(64)).unwrap();
        });
        assert!(text.contains("outside the pool"), "{text}");
    }
    // It ends where the pool does, but is no root.
    let text = open_error(|store| {
        store.pool().set_root(NAME, KIND, store.pool().size() - bytes(store)).unwrap();
    });
    assert!(text.contains("of an unknown format"), "{text}");
    let text = open_error(|store| {
        store.root().word(0, 2).store(store.pool().medium(), FORMAT + 1, Relaxed);
    });
    assert!(text.contains("of an unknown format"), "{text}");
}

#[test]
fn root_words_are_distinct_and_inside_its_block() {
    let (store, _) = store();
    let root = store.root();
    let stripes = (0..STRIPES).flat_map(|stripe| (0..4).map(move |counter| root.word(2 + stripe, counter)));
    let removals =
        (0..root.removal_lines()).flat_map(|line| (0..8).map(move |index| root.removal_line(line, index)));
    let head = [root.lock(), root.word(0, 1), root.word(0, 2), root.sweep_position(), root.sweep_slowness()];
    let words = head.into_iter().chain([root.sweeper(), root.word(1, 0), root.word(1, 1)]);
    let places: Vec<usize> =
        words.chain(stripes).chain(removals).map(|word| std::ptr::from_ref(word).addr()).collect();
    let first = std::ptr::from_ref(root.lock()).addr();
    assert!(places.iter().all(|place| (first..first + root.block().1).contains(place)));
    assert_eq!(places.iter().collect::<std::collections::BTreeSet<_>>().len(), places.len());
    let last = places.iter().max().unwrap();
    assert_eq!(last + 8, first + root.block().1, "the block has no unused word");
}

#[test]
fn counters_grow_with_the_pool_to_32_kib() {
    let lines = |slab_log2| removal_lines(&Geometry { slab_log2, ..Geometry::default() });
    assert_eq!([12, 13, 14, 15, 16, 19].map(lines), [8, 16, 64, 128, 512, 512]);
}
