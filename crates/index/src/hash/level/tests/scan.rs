//! Tests of `scan.rs`.

use super::super::super::test_pools::pool;
use super::super::ops::Level;
use super::super::shape::positions;
use super::super::shape::sealed::Shape;
use crate::key::WordRecords;
use crate::{Bytes, KeyKind, PointIndex, Stored, U64};
use terrace_medium::Dram;

/// The walk continues in the middle of a unit, which was two units at the walk's last visit.
#[test]
fn entries_before_the_walk_are_already_counted() {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
    let guard = pool.pin();
    (0..130).for_each(|key| _ = table.insert(&guard, &key, key).unwrap());
    let (view, mut seen) = (table.units.view(), [[0; 2]; 2]);
    for unit in 0..view.mid.buckets() {
        let first = view.mid.first_position(unit);
        let (side, middle) = (table.units.side(&view, first), first + (1 << 63 >> view.mid.log2()));
        for (nth, at) in side.unit().into_iter().enumerate() {
            for entry in (0..U64::SLOTS).filter_map(|slot| U64::read(&guard, table.units.bucket(at), slot)) {
                let (tier, index) =
                    if nth == 2 { (view.mid, unit) } else { (view.high, 2 * unit + nth as u64) };
                let mut places = positions(U64::hash(&entry.key, table.units.seed)).into_iter();
                let lies_before = places.find(|&place| tier.index(place) == index).unwrap() < middle;
                let was_passed = |position| table.units.was_passed(&guard, &side, at, entry, position);
                assert_eq!((was_passed(first), was_passed(middle)), (false, lies_before), "{entry:?}");
                seen[usize::from(nth == 2)][usize::from(lies_before)] += 1;
            }
        }
    }
    assert!(seen.as_flattened().iter().all(|&seen| seen > 0), "{seen:?}");
}

/// For an entry whose record is unsound only the bucket is known, which the walk may be about
/// to visit.
#[test]
fn entries_from_the_walk_on_are_not_counted() {
    type Strings = Bytes<WordRecords>;
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, Strings>::create(&pool, "table", 224).unwrap();
    let (guard, view) = (pool.pin(), table.units.view());
    let records: Vec<u64> = (1..60)
        .map(|key: u64| {
            let record = WordRecords::put(&guard, key);
            table.insert(&guard, &key.to_le_bytes(), record).unwrap();
            record
        })
        .collect();
    records.into_iter().for_each(|record| WordRecords::erase(&guard, record));
    for unit in 0..view.mid.buckets() {
        let middle = view.high.first_position(2 * unit + 1);
        let (side, at) = (table.units.side(&view, middle), view.high.bucket(2 * unit + 1));
        let entry = Strings::read(&guard, table.units.bucket(at), 0).expect("a key came here");
        let was_passed = |position| table.units.was_passed(&guard, &side, at, entry, position);
        assert_eq!([middle - 1, middle, middle + 1].map(was_passed), [false, false, true]);
    }
}
