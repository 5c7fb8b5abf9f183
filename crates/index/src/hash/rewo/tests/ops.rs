//! Tests of `ops.rs`.

use super::super::super::test_pools::pool;
use super::*;
use crate::{Stored, U64};
use terrace_medium::Dram;

#[test]
fn absent_key_during_a_move_is_no_damage() {
    let pool = pool::<Dram>(4 << 20);
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 4, 5).unwrap();
    let (guard, mut keys) = (pool.pin(), 0);
    while !map.base().view().is_moving() {
        map.insert(&guard, &keys, keys).unwrap();
        keys += 1;
    }
    for is_moving in [true, false] {
        assert_eq!(map.base().view().is_moving(), is_moving);
        assert!((0..keys).all(|key| map.get_sound(&guard, &key) == Ok(Some(key))));
        assert!((keys..keys + 1000).all(|key| map.get_sound(&guard, &key) == Ok(None)));
        while map.maintain(&guard) {}
    }
    assert_eq!(map.verify(&guard), []);
}

#[test]
fn cleared_overflow_bit_is_reported() {
    let pool = pool::<Dram>(1 << 20);
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 4, 2).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    let home = |key: &u64| place.home(<U64 as crate::KeyKind>::hash(key, map.tables.seed));
    // Three quarters of the home's slots; then a key that goes to its second bucket.
    let keys: Vec<u64> = (0..).filter(|key| home(key) == 1).take(12).collect();
    keys.iter().for_each(|key| _ = map.insert(&guard, key, *key).unwrap());
    let overflow = &map.base().bucket(place, 1)[0].0[<U64 as super::super::shape::sealed::Shape>::OVERFLOW];
    assert_ne!(overflow.load(pool.medium(), Relaxed), 0);
    overflow.store(pool.medium(), 0, Relaxed);
    let told = keys.iter().map(|key| map.get_sound(&guard, key).map_err(|damage| damage.offset));
    let denied = told.filter(|found| *found == Err(place.bucket(1).raw()));
    assert_eq!(denied.count(), 1);
    let smallest = Rewo::<Dram, U64>::with_shape(&pool, "smallest", 1, 0).unwrap();
    assert_eq!(smallest.get_sound(&guard, &1), Ok(None));
}
