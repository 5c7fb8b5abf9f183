//! Tests of `marks.rs`.

use super::super::super::test_pools::pool;
use super::super::ops::Level;
use super::super::shape::sealed::Shape;
use super::*;
use crate::{KeyKind, PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_testkit::TappedShm;

type Table = Level<Dram, U64>;

fn empty() -> Table {
    let pool = pool::<Dram>(1 << 20);
    Table::create(&pool, "table", 120).unwrap()
}

/// The buckets of a key, each with the place of its unit and its number in the unit.
fn places(table: &Table, key: u64) -> [(Offset<Bucket>, (u64, usize)); 4] {
    let view = table.units.view();
    let sides =
        positions(U64::hash(&key, table.units.seed)).map(|position| table.units.side(&view, position));
    let [one, other] = sides.map(|side| {
        [side.upper_at(), side.lower_at()].map(|at| {
            let behind = side.unit().iter().position(|&other| other == at).unwrap();
            (at, (side.first_position(), behind))
        })
    });
    [one[0], other[0], one[1], other[1]]
}

/// Puts a key into some of its buckets, in marked slots, as a crash in the middle of a movement
/// leaves it.
fn put(table: &Table, key: u64, buckets: &[Offset<Bucket>]) {
    let (guard, medium) = (table.units.pool.pin(), table.units.pool.medium());
    let probe = Probe::<U64>::new(&key, table.units.seed);
    for &at in buckets {
        let bucket = table.units.bucket(at);
        let slot = meta(medium, bucket).vacancy::<U64>().unwrap();
        U64::write(&guard, bucket, slot, U64::entry(&probe, 70));
        store_meta(medium, bucket, meta(medium, bucket).with_marked::<U64>(slot));
    }
    table.units.count().add(0, probe.hash, 1);
}

/// The buckets that have a key, and whether any of their slots is marked.
fn found(table: &Table, key: u64) -> (Vec<Offset<Bucket>>, bool) {
    let (guard, mut is_marked) = (table.units.pool.pin(), false);
    let has_it = |&at: &Offset<Bucket>| {
        let bucket = table.units.bucket(at);
        is_marked |= meta(table.units.pool.medium(), bucket).marks::<U64>() != 0;
        (0..U64::SLOTS).any(|slot| U64::read(&guard, bucket, slot).is_some_and(|entry| entry.key == key))
    };
    let mut buckets = places(table, key).map(|(at, _)| at).to_vec();
    buckets.dedup();
    (buckets.into_iter().filter(has_it).collect(), is_marked)
}

/// Calls `test` for each two buckets of a key, with a table that has it in both, and with the
/// bucket where it must stay.
fn for_each_two(mut test: impl FnMut(&Table, u64, Offset<Bucket>)) {
    let (pairs, mut in_one_unit) = ([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], 0);
    for (key, (one, other)) in (0..20).flat_map(|key| pairs.map(|pair| (key, pair))) {
        let table = empty();
        let (one, other) = (places(&table, key)[one], places(&table, key)[other]);
        if one.0 == other.0 {
            continue;
        }
        in_one_unit += usize::from(one.1.0 == other.1.0);
        put(&table, key, &[one.0, other.0]);
        assert_eq!((table.len(), table.verify(&table.units.pool.pin())), (1, vec![]));
        test(&table, key, if one.1 > other.1 { one.0 } else { other.0 });
    }
    assert!(in_one_unit >= 40);
}

#[test]
fn unmarked_or_different_copies_are_reported() {
    for_each_two(|table, key, later| {
        let (guard, medium) = (table.units.pool.pin(), table.units.pool.medium());
        let bucket = table.units.bucket(later);
        let slot = meta(medium, bucket).tokens::<U64>().trailing_zeros() as usize;
        let told = || {
            let findings = table.verify(&guard);
            findings.into_iter().map(|finding| (finding.offset, finding.expected)).collect::<Vec<_>>()
        };
        let probe = Probe::<U64>::new(&key, table.units.seed);
        U64::replace(&guard, bucket, slot, U64::entry(&probe, 71));
        let expected = "two copies with one word".to_string();
        assert_eq!(told().into_iter().filter(|(_, said)| *said == expected).count(), 2, "key {key}");
        U64::replace(&guard, bucket, slot, U64::entry(&probe, 70));
        assert_eq!(told(), []);
        store_meta(medium, bucket, meta(medium, bucket).unmarked::<U64>(slot));
        assert!(told().contains(&(later.raw(), "each key once".into())), "key {key}: {:?}", told());
    });
}

#[test]
fn scan_returns_one_copy_and_trace_keeps_the_later() {
    for_each_two(|table, key, later| {
        let (guard, mut seen) = (table.units.pool.pin(), 0);
        assert_eq!(table.units.scan_from(&guard, 0, usize::MAX, |_| seen += 1), 0);
        assert_eq!(seen, 1, "key {key}");
        table.units.pool.reachable(&mut |marker| table.trace(&guard, marker, |_, _| ()));
        assert_eq!(found(table, key), (vec![later], false), "key {key}");
        assert_eq!((table.len(), table.get(&guard, &key)), (1, Some(70)));
    });
}

#[test]
fn change_keeps_the_later_copy() {
    for_each_two(|table, key, later| {
        let guard = table.units.pool.pin();
        let starts = places(table, key);
        assert_eq!(table.update(&guard, &key, 71), Some(70));
        let (left, is_marked) = found(table, key);
        let start = |at: Offset<Bucket>| starts.iter().find(|place| place.0 == at).unwrap().1.0;
        assert_eq!((left.len(), start(left[0]), is_marked), (1, start(later), false), "key {key}");
        assert_eq!((table.get(&guard, &key), table.verify(&guard)), (Some(71), vec![]));
        assert_eq!(table.remove(&guard, &key), Some(71));
        assert_eq!((table.len(), found(table, key).0.len()), (0, 0));
    });
}

/// Only a mark makes a scan search for a copy: none of these keys is marked.
#[test]
fn scan_of_unmarked_keys_reads_each_once() {
    let pool = pool::<TappedShm>(1 << 20);
    let table = Level::<TappedShm, U64>::create(&pool, "table", 120).unwrap();
    let guard = pool.pin();
    (0..60).for_each(|key| _ = table.insert(&guard, &key, key).unwrap());
    let (counts, _) = pool.medium().during(|| table.units.scan_from(&guard, 0, usize::MAX, |_| ()));
    // Meta, key, word, and meta again; and in each of eight units three meta words twice, the
    // view, and the lock.
    assert!(counts.loads <= 60 * 4 + 8 * 20, "{counts:?}");
}

#[test]
fn mark_without_a_copy_is_cleared() {
    for (key, nth) in (0..20).flat_map(|key| (0..4).map(move |nth| (key, nth))) {
        let table = empty();
        let (guard, at) = (table.units.pool.pin(), places(&table, key)[nth].0);
        put(&table, key, &[at]);
        table.units.pool.reachable(&mut |marker| table.trace(&guard, marker, |_, _| ()));
        assert_eq!(found(&table, key), (vec![at], false));
        assert_eq!((table.len(), table.verify(&guard)), (1, vec![]));
    }
}
