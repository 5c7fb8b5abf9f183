//! Tests of `verify.rs`.

use super::super::super::test_pools::pool;
use super::super::bucket::store_overflow;
use super::super::ops::Rewo;
use super::super::tables::Slot;
use super::*;
use crate::{KeyKind, PointIndex, Stored, U64};
use terrace_medium::Dram;

type Map = Rewo<Dram, U64>;

/// Findings about a key that is put into its home in this table, wherever else it is.
fn findings_of(map: &Map, place: Place, key: u64) -> Vec<String> {
    let (guard, medium, hash) = (map.pool().pin(), map.pool().medium(), U64::hash(&key, map.tables.seed));
    let (index, free) = (place.home(hash), |bucket| meta(medium, bucket).free::<U64>().trailing_zeros());
    let slot = free(map.base().bucket(place, index)) as usize;
    map.tables.install(&guard, Slot { place, index, slot }, Entry { tag: hash as u8, key, word: 1 });
    let findings = map.verify(&guard);
    map.tables.clear(place, index, 1 << slot);
    findings.into_iter().map(|finding| finding.expected).collect()
}

#[test]
fn key_in_a_table_of_other_cells_is_reported() {
    let pool = pool::<Dram>(1 << 20);
    let map = Map::with_shape(&pool, "map", 4, 5).unwrap();
    let (guard, mut keys) = (pool.pin(), 0..);
    while !map.base().view().is_moving() {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    let directory = map.base().view().directory();
    let (from, to) = (directory.cells[0], directory.to.unwrap());
    let key_of = |cells: std::ops::Range<u64>| {
        let has_room =
            |hash| meta(pool.medium(), map.base().bucket(from, from.home(hash))).free::<U64>() != 0;
        let hash = |key| U64::hash(&key, map.tables.seed);
        keys.clone()
            .take(100_000)
            .find(|&key| cells.contains(&(hash(key) >> 60)) && has_room(hash(key)))
            .unwrap()
    };
    let [low, high] = [key_of(0..8), key_of(8..16)];
    // The upper half of the cells moves to the new table; the lower half stays.
    let none: [String; 0] = [];
    assert_eq!((findings_of(&map, from, low), findings_of(&map, to, high)), (none.to_vec(), none.to_vec()));
    assert_eq!(findings_of(&map, to, low), ["a key of this bucket"]);
    // As if some buckets had been emptied.
    map.base().view().set_count(map.base().view().count() + 8);
    let told_of_moved = map.verify(&guard).into_iter().map(|finding| finding.expected);
    assert!(told_of_moved.collect::<Vec<_>>().contains(&"no key that has moved".into()));
    map.base().view().set_count(map.base().view().count() - 8);
    while map.maintain(&guard) {}
    let directory = map.base().view().directory();
    assert_eq!([0, 15].map(|cell| directory.cells[cell]), [from, to]);
    for (table, there, elsewhere) in [(from, low, high), (to, high, low)] {
        assert_eq!(findings_of(&map, table, there), none);
        assert_eq!(findings_of(&map, table, elsewhere), ["a key of this bucket"]);
    }
}

/// Only one of two entries can be moving.
#[test]
fn threefold_key_is_reported_despite_its_lock() {
    let pool = pool::<Dram>(1 << 20);
    let map = Map::with_shape(&pool, "map", 4, 3).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    map.insert(&guard, &7, 7).unwrap();
    let hash = U64::hash(&7, map.tables.seed);
    let (home, entry) = (place.home(hash), Entry { tag: hash as u8, key: 7, word: 7 });
    let (second, first) =
        (place.second(home, hash as u8), meta(pool.medium(), map.base().bucket(place, home)));
    map.tables.lock_slots(place, home, SlotLock::Slot(first.valid::<U64>().trailing_zeros() as usize));
    store_overflow::<_, U64>(pool.medium(), map.base().bucket(place, home), hash as u8);
    map.tables.install(&guard, Slot { place, index: second, slot: 3 }, entry);
    assert_eq!(map.verify(&guard), []);
    map.tables.install(&guard, Slot { place, index: second, slot: 5 }, entry);
    let findings_of: Vec<String> = map.verify(&guard).into_iter().map(|finding| finding.expected).collect();
    assert!(
        !findings_of.is_empty() && findings_of.iter().all(|expected| expected == "each key once"),
        "{findings_of:?}"
    );
}
