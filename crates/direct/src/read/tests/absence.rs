//! Tests of `absence`.

use super::*;
use crate::tests::fixtures::store;

#[test]
fn counters_grow_with_the_pool_to_32_kib() {
    let lines = |slab_log2| lines(&Geometry { slab_log2, ..Geometry::default() });
    assert_eq!([12, 13, 14, 15, 16, 19].map(lines), [8, 16, 64, 128, 512, 512]);
}

#[test]
fn removal_counters_are_shared_by_few_keys() {
    let (store, _) = store();
    let keys: Vec<[u8; 4]> = (0..1000u32).map(u32::to_le_bytes).collect();
    keys.iter().for_each(|key| store.count_removal(key));
    let (root, medium) = (&store.root, store.pool().medium());
    let places = (0..root.removal_lines()).flat_map(|line| (0..8).map(move |index| (line, index)));
    let counts: Vec<u64> =
        places.map(|(line, index)| root.removal_line(line, index).load(medium, Acquire)).collect();
    assert_eq!(counts.iter().sum::<u64>(), 1000);
    assert!(
        counts.iter().all(|&count| count < 20) && counts.iter().filter(|&&count| count > 0).count() > 300
    );
    let before = store.removals(&keys[0]);
    store.count_removal(&keys[0]);
    assert_eq!(store.removals(&keys[0]), before + 1);
}
