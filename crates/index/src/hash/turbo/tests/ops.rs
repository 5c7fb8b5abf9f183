//! Tests of `ops.rs`.

use super::super::super::test_keys::{Numbered, UNREADABLE, key};
use super::super::super::test_pools::pool;
use super::super::shape::sealed::Shape;
use super::*;
use crate::{Bytes, KeyKind, U64};
use terrace_medium::Dram;
use terrace_testkit::TappedPmem;

#[test]
fn unreadable_record_is_reported_in_and_behind_full_buckets() {
    type Kind = Bytes<Numbered>;
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, Kind>::with_shards(&pool, "index", 0, 40).unwrap();
    let guard = pool.pin();
    let probe = |number: u64| {
        let hash = Kind::hash(key(number), index.seed);
        Probe::<Kind>::new(key(number), hash, index.route(hash).1)
    };
    let place = index.place(0);
    let numbers: Vec<u64> = (1..).filter(|&number| place.home(probe(number).inner) == 0).take(30).collect();
    for &number in &numbers {
        index.insert(&guard, key(number), 8 * number).unwrap();
    }
    let live = |at| meta(pool.medium(), index.bucket(place, at)).live::<Kind>().count_ones();
    assert_eq!((place.buckets(), live(0), live(1)), (2, 27, 3));
    for &number in &numbers {
        let look = probe(number);
        let find = |at| match Kind::find(&guard, index.bucket(place, at), &look) {
            Found::Here(slot, _) => Some((index.bucket(place, at), slot)),
            Found::Missing(_) => None,
        };
        let (bucket, slot) = [0, 1].into_iter().find_map(find).unwrap();
        Kind::replace(&guard, bucket, slot, Kind::entry(&look, UNREADABLE));
        let told = index.get_sound(&guard, key(number));
        assert_eq!(told.map_err(|damage| damage.offset), Err(UNREADABLE), "{number}");
        Kind::replace(&guard, bucket, slot, Kind::entry(&look, 8 * number));
        assert_eq!(index.get_sound(&guard, key(number)), Ok(Some(8 * number)));
    }
}

/// If the writer dies before it has written them back, the next holder of its lock does so.
#[test]
fn stores_are_announced_as_pending() {
    let pool = pool::<TappedPmem>(1 << 20);
    let index = Turbo::<TappedPmem, U64>::with_shards(&pool, "index", 0, 40).unwrap();
    let (guard, place) = (pool.pin(), index.place(0));
    let noted = || index.descriptor(0).pending(pool.medium(), place).collect::<Vec<_>>();
    let keys = (0..).filter(|key| place.home(U64::hash(key, index.seed)) == 1).take(29);
    let keys: Vec<u64> = keys.collect();
    for (nth, key) in keys.iter().enumerate() {
        index.insert(&guard, key, 1).unwrap();
        // Buckets whose overflow bits change are announced, too.
        assert_eq!(noted(), [vec![1], vec![2, 1], vec![3, 2, 1]][nth / 14]);
    }
    assert_eq!((index.update(&guard, &keys[20], 2), noted()), (Some(1), vec![2]));
    assert_eq!((index.remove(&guard, &keys[0]), noted()), (Some(1), vec![1]));
}
