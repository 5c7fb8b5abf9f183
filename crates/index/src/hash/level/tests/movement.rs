//! Tests of `movement.rs`.

use super::super::super::test_pools::pool;
use super::super::ops::Level;
use super::super::shape::{Probe, sealed::Shape};
use super::*;
use crate::key::WordRecords;
use crate::{Bytes, PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_testkit::TappedPmem;

/// A table of sixteen buckets above eight.
fn table<K: BucketShape>() -> Level<Dram, K> {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::create(&pool, "table", 8 * K::SLOTS as u64 * 2).unwrap();
    assert_eq!(table.units.view().high.buckets(), 16);
    table
}

fn tier(view: &View, which: Which) -> Tier {
    if which == Top { view.high } else { view.mid }
}

/// The possible targets of a key at the first of these positions, computed from both positions.
fn expected(view: &View, [here, there]: [u64; 2], from: Which, to: Which) -> [Option<u64>; 2] {
    let unit = |position| view.mid.index(position);
    let bucket = |position| tier(view, to).index(position);
    match (from, to) {
        // Also within its unit, except for its own bucket.
        (Top, Top) => {
            let is_other = unit(there) >= unit(here) && bucket(there) != bucket(here);
            [Some(there).filter(|_| is_other).map(bucket), None]
        }
        (Bottom, Bottom) | (Top, Bottom) => {
            [Some(there).filter(|_| unit(there) > unit(here)).map(bucket), None]
        }
        (Bottom, Top) => {
            [here, there].map(|position| Some(position).filter(|_| unit(position) >= unit(here)).map(bucket))
        }
    }
}

fn sorted([one, other]: [Option<u64>; 2]) -> [Option<u64>; 2] {
    [one.min(other), one.max(other)]
}

#[test]
fn targets_are_in_the_same_or_later_units() {
    let table = table::<U64>();
    let (guard, view) = (table.units.pool.pin(), table.units.view());
    for (key, (from, to)) in (0..500).flat_map(|key| MOVEMENTS.map(|movement| (key, movement))) {
        let [one, other] = Probe::<U64>::new(&key, table.units.seed).positions;
        for here in [[one, other], [other, one]] {
            let at = (tier(&view, from), tier(&view, from).index(here[0]));
            let targets = table.units.targets(&guard, &view, Entry { key, word: 0 }, at, tier(&view, to));
            assert_eq!(sorted(targets), sorted(expected(&view, here, from, to)), "key {key}");
        }
    }
}

#[test]
fn byte_string_needs_its_record_only_to_move_up() {
    let table = table::<Bytes<WordRecords>>();
    let (guard, view) = (table.units.pool.pin(), table.units.view());
    for (key, (from, to)) in (1..200u64).flat_map(|key| MOVEMENTS.map(|movement| (key, movement))) {
        let (key, record) = (key.to_le_bytes(), WordRecords::put(&guard, key));
        let probe = Probe::<Bytes<WordRecords>>::new(&key[..], table.units.seed);
        let at = (tier(&view, from), tier(&view, from).index(probe.positions[0]));
        let entry = <Bytes<WordRecords> as Shape>::entry(&probe, record);
        let targets = || sorted(table.units.targets(&guard, &view, entry, at, tier(&view, to)));
        assert_eq!(targets(), sorted(expected(&view, probe.positions, from, to)));
        let before = targets();
        WordRecords::erase(&guard, record);
        assert_eq!(targets(), if (from, to) == (Bottom, Top) { [None; 2] } else { before });
    }
}

/// A key in the first free slot of the upper bucket at its earlier position; that side, and the
/// bucket of the later position. Its units differ.
fn at_its_earlier_place(table: &Level<Dram, U64>, key: u64) -> Option<(usize, u64)> {
    let (guard, view) = (table.units.pool.pin(), table.units.view());
    let positions = Probe::<U64>::new(&key, table.units.seed).positions;
    let side = usize::from(positions[0] > positions[1]);
    let [here, there] = [positions[side], positions[1 - side]];
    if view.mid.index(here) == view.mid.index(there) {
        return None;
    }
    table.insert(&guard, &key, key).unwrap();
    let bucket = table.units.bucket(view.high.bucket(view.high.index(here)));
    assert_eq!(U64::read(&guard, bucket, 0).map(|entry| entry.key), Some(key));
    Some((side, view.high.index(there)))
}

#[test]
fn key_that_moves_during_recount_counts_once() {
    for key in 0..20 {
        let table = table::<U64>();
        let (guard, view) = (table.units.pool.pin(), table.units.view());
        let Some((side, later)) = at_its_earlier_place(&table, key) else { continue };
        let held = table.lock_units(&guard, Probe::<U64>::new(&key, table.units.seed).positions);
        let (source, end) = (held.sides[side].upper_at(), held.sides[side].end());
        // The walk has counted it at its old place, and will count it at its new one.
        table.units.count().start_recount();
        table.units.count().advance_frontier(end);
        let (bucket, entry) = (table.units.bucket(source), Entry { key, word: key });
        let place = SlotRef { bucket, slot: 0, side };
        assert!(table.units.move_to(&guard, &held, place, entry, (view.high, later)));
        table.units.count().advance_frontier(0);
        table.units.count().finish_recount(2);
        assert_eq!(table.len(), 1);
        drop(held);
        assert_eq!((table.get(&guard, &key), table.verify(&guard)), (Some(key), vec![]));
    }
}

#[test]
fn key_moves_to_an_unlocked_third_unit() {
    let mut seen = 0;
    for key in 0..20 {
        let table = table::<U64>();
        let (guard, view) = (table.units.pool.pin(), table.units.view());
        let Some((_, later)) = at_its_earlier_place(&table, key) else { continue };
        // The key of another thread: its first unit is also this key's, and neither unit is the
        // target.
        let [here, there] = {
            let [one, other] = Probe::<U64>::new(&key, table.units.seed).positions;
            [one.min(other), one.max(other)].map(|position| view.mid.index(position))
        };
        let units =
            |key: &u64| Probe::<U64>::new(key, table.units.seed).positions.map(|at| view.mid.index(at));
        let is_near = |other: &u64| units(other).contains(&here) && !units(other).contains(&there);
        let other = (100..).find(is_near).unwrap();
        let held = table.lock_units(&guard, Probe::<U64>::new(&other, table.units.seed).positions);
        let side = units(&other).iter().position(|&unit| unit == here).unwrap();
        let at = Probe::<U64>::new(&key, table.units.seed).positions.into_iter().min().unwrap();
        let bucket = table.units.bucket(view.high.bucket(view.high.index(at)));
        let place = SlotRef { bucket, slot: 0, side };
        let moves =
            || table.units.move_to(&guard, &held, place, Entry { key, word: key }, (view.high, later));
        let third = Lock::of(lock_word(table.units.bucket(view.mid.bucket(there)))).acquire(&guard);
        assert!(!moves() && meta(table.units.pool.medium(), bucket).load::<U64>() == 1);
        third.release();
        assert!(moves() && meta(table.units.pool.medium(), bucket).load::<U64>() == 0);
        drop(held);
        assert_eq!((table.get(&guard, &key), table.verify(&guard)), (Some(key), vec![]));
        seen += 1;
    }
    assert!(seen > 5);
}

#[test]
fn unfenced_third_unit_is_persisted() {
    let pool = pool::<TappedPmem>(1 << 20);
    let table = Level::<TappedPmem, U64>::create(&pool, "table", 120).unwrap();
    let (guard, view) = (pool.pin(), table.units.view());
    let side = table.units.side(&view, 0);
    let fences = || pool.medium().during(|| drop(table.units.try_lock_third(&guard, &view, &side))).0.fences;
    assert_eq!(fences(), 0);
    table.units.lock(&side).acquire(&guard).release_unfenced();
    assert_eq!([fences(), fences()], [1, 0]);
}

#[test]
fn marked_key_is_not_evicted() {
    let table = table::<U64>();
    let (guard, medium) = (table.units.pool.pin(), table.units.pool.medium());
    let (key, (side, _)) = (0..).find_map(|key| Some((key, at_its_earlier_place(&table, key)?))).unwrap();
    let held = table.lock_units(&guard, Probe::<U64>::new(&key, table.units.seed).positions);
    let bucket = table.units.bucket(held.sides[side].upper_at());
    store_meta(medium, bucket, meta(medium, bucket).with_marked::<U64>(0));
    assert!(table.units.move_one(&guard, &held, Top, Top).is_none());
    store_meta(medium, bucket, meta(medium, bucket).unmarked::<U64>(0));
    let place = table.units.evict(&guard, &held).unwrap();
    assert_eq!((place.slot, place.side, std::ptr::eq(place.bucket, bucket)), (0, side, true));
}
