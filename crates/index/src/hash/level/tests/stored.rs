//! Tests of `stored.rs`.

use super::super::super::test_pools::{Place, pool};
use super::*;
use crate::key::NoRecords;
use crate::{Bytes, U64};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, Shm};
use terrace_pool::PoolOptions;

#[test]
fn presized_table_is_four_fifths_full() {
    // 21, 42, 84, 168 slots; twice as many for byte strings.
    let cases = [(0, 1), (17, 1), (18, 2), (34, 2), (35, 3), (67, 3), (68, 4), (135, 4), (136, 5)];
    for (capacity, top) in cases {
        assert_eq!(top_for::<U64>(capacity), top, "{capacity}");
        assert_eq!(top_for::<Bytes<NoRecords>>(capacity), (top - 1).max(1), "{capacity}");
    }
    assert_eq!(top_for::<U64>(u64::MAX), LOG2_MAX);
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 100).unwrap();
    assert_eq!((table.units.view().high.log2(), table.units.view().mid.log2()), (4, 3));
}

#[test]
fn open_requires_sound_state_and_tiers() {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 0).unwrap();
    for word in [STATE, TIERS, TIERS + 1] {
        let word = &table.units.root[0].0[word];
        let sound = word.load(pool.medium(), Acquire);
        word.store(pool.medium(), sound ^ 0x1000, Relaxed);
        assert!(!has_sound_tiers(&pool, &table.units.root));
        word.store(pool.medium(), sound, Relaxed);
        assert!(has_sound_tiers(&pool, &table.units.root));
    }
}

#[test]
fn read_only_open_changes_no_table() {
    let place = Place::new();
    let pool: Pool<Shm> = place.options().create().unwrap();
    let table = Level::<Shm, U64>::create(&pool, "table", 0).unwrap();
    table.units.root[0].0[CURSOR].store(pool.medium(), 7, Relaxed);
    drop(table);
    pool.close().unwrap();
    let cursor = |options: PoolOptions| {
        let pool: Pool<Shm> = options.open().unwrap();
        let table = Level::<Shm, U64>::recover(&pool, "table").unwrap().unwrap();
        table.units.root[0].0[CURSOR].load(pool.medium(), Relaxed)
    };
    assert_eq!(cursor(place.options().read_only(true)), 7);
    assert_eq!(cursor(place.options()), 0);
}
