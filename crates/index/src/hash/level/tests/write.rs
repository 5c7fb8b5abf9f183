//! Tests of `write.rs`.

use super::super::super::test_pools::{Medium, Power, pool};
use super::super::shape::sealed::Shape;
use super::*;
use crate::{Deferred, PointIndex, Stored, Swapped, U64};
use terrace_medium::Dram;
use terrace_pool::Lock;
use terrace_testkit::{TappedPmem, What};

#[test]
fn balance_decays_by_a_sixteenth() {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
    let (view, medium, balance) = (table.units.view(), pool.medium(), &table.units.root[0].0[BALANCE]);
    let sides_of = |key: u64| {
        Probe::<U64>::new(&key, table.units.seed).positions.map(|position| table.units.side(&view, position))
    };
    // Two different units.
    let sides = (0..).map(sides_of).find(|[one, other]| one.lower_at() != other.lower_at()).unwrap();
    let weighed = |before: i64| {
        balance.store(medium, before as u64, Relaxed);
        table.update_balance(&sides);
        balance.load(medium, Relaxed) as i64
    };
    assert_eq!([1600, 0, -1600].map(weighed), [1500, 0, -1500]);
    let fill = |at: Offset<Bucket>, slots: usize| {
        let bucket = table.units.bucket(at);
        (0..slots).for_each(|slot| store_meta(medium, bucket, meta(medium, bucket).with::<U64>(slot)));
    };
    fill(sides[0].upper_at(), 3);
    fill(sides[1].upper_at(), 2);
    assert_eq!([1600, -1600].map(weighed), [1500 + 10 * 1024, -1500 + 10 * 1024]);
    fill(sides[0].lower_at(), 5);
    fill(sides[1].lower_at(), 7);
    assert_eq!([1600, -1600].map(weighed), [1500 - 2 * 1024, -1500 - 2 * 1024]);
    assert_eq!(table.units.places(&sides)[..2], sides.map(|side| side.lower_at()), "more lie below");
}

#[test]
fn insert_prefers_the_earlier_bucket() {
    for key in 0..40 {
        let pool = pool::<Dram>(1 << 20);
        let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
        let (view, medium) = (table.units.view(), pool.medium());
        let sides = Probe::<U64>::new(&key, table.units.seed)
            .positions
            .map(|position| table.units.side(&view, position));
        if sides[0].upper_at() == sides[1].upper_at() {
            continue;
        }
        let earlier = usize::from(sides[0].position > sides[1].position);
        let fill = |side: usize, slots: u64| {
            let bucket = table.units.bucket(sides[side].upper_at());
            store_meta(medium, bucket, meta(medium, bucket).becoming::<U64>(!(!0 << slots), 0));
        };
        // Keys in the earlier bucket and in the later one, and the bucket of the next key.
        for (in_earlier, in_later, goes) in [
            (0, 0, Some(0)),
            (1, 0, Some(0)),
            (2, 0, Some(1)),
            (3, 5, Some(0)),
            (6, 5, Some(0)),
            (7, 6, Some(1)),
        ] {
            fill(earlier, in_earlier);
            fill(1 - earlier, in_later);
            let place = table.less_loaded(&sides, Side::upper_at);
            let expected = goes.map(|goes: usize| if goes == 0 { earlier } else { 1 - earlier });
            assert_eq!(place.map(|place| place.side), expected, "{in_earlier} and {in_later}");
        }
        fill(earlier, 7);
        fill(1 - earlier, 7);
        assert!(table.less_loaded(&sides, Side::upper_at).is_none());
    }
}

#[test]
fn units_are_locked_in_order_and_once() {
    let power = Power::new();
    let table = Level::<Medium, U64>::create(&power.pool, "table", 120).unwrap();
    let (guard, view, mut seen) = (power.pool.pin(), table.units.view(), [0, 0]);
    for key in 0..40 {
        let probe = Probe::<U64>::new(&key, table.units.seed);
        let [one, other] = probe.positions;
        let lock = |position| {
            power.pool.region().offset_of(table.units.lock(&table.units.side(&view, position))).raw()
        };
        let before = power.trace().events().len();
        drop(table.lock_units(&guard, [one, other]));
        drop(table.lock_units(&guard, [other, one]));
        let trace = power.trace();
        let taken: Vec<u64> = trace.events()[before..]
            .iter()
            .filter_map(|event| if let What::Rmw { at, .. } = event.what { Some(at) } else { None })
            .filter(|at| [one, other].map(lock).contains(at))
            .collect();
        let (first, second) = (lock(one.min(other)), lock(one.max(other)));
        match first == second {
            true => assert_eq!(taken, [first, first], "key {key}"),
            false => assert_eq!(taken, [first, second, first, second], "key {key}"),
        }
        seen[usize::from(first == second)] += 1;
    }
    assert!(seen.iter().all(|&seen| seen > 0), "{seen:?}");
}

#[test]
fn one_new_key_in_256_updates_the_balance() {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
    let (guard, balance) = (pool.pin(), &table.units.root[0].0[BALANCE]);
    for (end, expected) in [(0, 1500), (0xff, 1600), (1, 1600), (0x80, 1600)] {
        let has_it = |key: &u64| Probe::<U64>::new(key, table.units.seed).hash & 0xff == end;
        let key = (0..).find(has_it).unwrap();
        balance.store(pool.medium(), 1600, Relaxed);
        table.insert(&guard, &key, 0).unwrap();
        assert_eq!(balance.load(pool.medium(), Relaxed), expected, "{end:#x}");
        assert_eq!(table.remove(&guard, &key), Some(0));
    }
}

#[test]
fn deferred_write_marks_its_own_unit_unfenced() {
    // In the smaller table both sides are one unit.
    for capacity in [0, 120] {
        let pool = pool::<TappedPmem>(1 << 20);
        let table = Level::<TappedPmem, U64>::create(&pool, "table", capacity).unwrap();
        let (guard, view) = (pool.pin(), table.units.view());
        for key in 0..12 {
            let probe = Probe::<U64>::new(&key, table.units.seed);
            let sides = probe.positions.map(|position| table.units.side(&view, position));
            for (before, after) in [(None, Some(70)), (Some(70), Some(71)), (Some(71), Some(72))] {
                let mut deferred = Deferred::default();
                let done = table.compare_and_swap_deferred(&guard, &key, before, after, &mut deferred);
                assert_eq!(done, Ok(Swapped::Done));
                let has_it =
                    |at| matches!(U64::find(&guard, table.units.bucket(at), &probe), Found::Here(..));
                let side =
                    sides.iter().find(|side| [side.upper_at(), side.lower_at()].into_iter().any(has_it));
                let own = side.unwrap().lower_at();
                assert_eq!(deferred.0, [pool.region().offset_of(lock_word(table.units.bucket(own))).raw()]);
                let open = || {
                    let is_open =
                        |side: &&Side| Lock::may_be_unfenced(table.units.lock(side).load_word(pool.medium()));
                    sides.iter().filter(is_open).map(Side::lower_at).collect::<Vec<_>>()
                };
                assert!(!open().is_empty() && open().iter().all(|&at| at == own), "key {key}");
                table.persist_deferred(&guard, deferred);
                assert_eq!(open(), []);
            }
        }
    }
}

#[test]
fn update_of_an_unmarked_key_stores_no_meta() {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
    let (guard, view) = (pool.pin(), table.units.view());
    for key in 0..60 {
        table.insert(&guard, &key, 70).unwrap();
        let sides = Probe::<U64>::new(&key, table.units.seed).positions.map(|at| table.units.side(&view, at));
        let metas = || table.units.places(&sides).map(|at| meta(pool.medium(), table.units.bucket(at)));
        let before = metas();
        assert_eq!(table.update(&guard, &key, 71), Some(70));
        assert_eq!(metas(), before, "key {key}");
    }
}
