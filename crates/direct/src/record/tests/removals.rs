//! Tests of `removals`.

use super::*;
use crate::tests::fixtures::store;

#[test]
fn removal_counters_are_shared_by_few_keys() {
    let (store, _) = store();
    let keys: Vec<[u8; 4]> = (0..1000u32).map(u32::to_le_bytes).collect();
    let (root, medium) = (store.root(), store.pool().medium());
    keys.iter().for_each(|key| root.count_removal(key));
    let places = (0..root.removal_lines()).flat_map(|line| (0..8).map(move |index| (line, index)));
    let counts: Vec<u64> =
        places.map(|(line, index)| root.removal_line(line, index).load(medium, Acquire)).collect();
    assert_eq!(counts.iter().sum::<u64>(), 1000);
    assert!(
        counts.iter().all(|&count| count < 20) && counts.iter().filter(|&&count| count > 0).count() > 300
    );
    let before = root.removals(&keys[0]);
    root.count_removal(&keys[0]);
    assert_eq!(root.removals(&keys[0]), before + 1);
}
