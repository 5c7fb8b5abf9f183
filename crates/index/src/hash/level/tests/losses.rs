//! Tests: the table after a power loss, behind every store of changes, movements and resizes.

use super::super::super::test_pools::{Medium, Power};
use super::super::ops::Level;
use super::super::shape::positions;
use super::super::shape::sealed::Shape;
use super::*;
use crate::{Inserted, KeyKind, PointIndex, Stored, U64};
use std::ops::Range;
use terrace_medium::{Offset, Word};
use terrace_pool::Pool;
use terrace_testkit::What;

type Table = Level<Medium, U64>;

/// An empty table, sixteen buckets above eight.
fn table(power: &Power) -> Table {
    let table = Table::create(&power.pool, "table", 120).unwrap();
    assert_eq!(table.units.view().high.buckets(), 16);
    table
}

fn events(power: &Power) -> usize {
    power.trace().events().len()
}

/// Opens the table in `pool` for a look; the pool is not used after that.
fn found<T>(pool: Pool<Medium>, look: impl FnOnce(&Table) -> T) -> T {
    let table = Table::recover(&pool, "table").unwrap().unwrap();
    let seen = look(&table);
    drop(table);
    pool.abandon();
    seen
}

fn line_of(power: &Power, bucket: &Bucket, line: usize) -> u64 {
    power.pool.region().offset_of(&bucket[line]).raw()
}

/// Findings of a check, except for the count, which a power loss may leave wrong.
fn wrong(table: &Table) -> Vec<String> {
    let findings = table.verify(&table.units.pool.pin());
    findings.iter().map(ToString::to_string).filter(|finding| !finding.contains("a count of")).collect()
}

/// Checks that the keys are present once, each with its word, and can be changed and removed.
fn check_has_all(table: &Table, keys: Range<u64>, word: impl Fn(u64) -> u64) {
    assert_eq!(wrong(table), [""; 0]);
    let guard = table.units.pool.pin();
    assert!(keys.clone().all(|key| table.get(&guard, &key) == Some(word(key))));
    let mut words = Vec::new();
    table.for_each(&guard, |word| words.push(word));
    words.sort_unstable();
    let mut expected: Vec<u64> = keys.clone().map(&word).collect();
    expected.sort_unstable();
    assert_eq!(words, expected);
    assert!(keys.clone().all(|key| table.update(&guard, &key, key + 5000) == Some(word(key))));
    assert_eq!(wrong(table), [""; 0]);
    assert!(keys.clone().all(|key| table.remove(&guard, &key) == Some(key + 5000)));
    table.for_each(&guard, |word| panic!("{word} has come back"));
}

#[test]
fn answered_changes_survive_power_loss_in_every_slot() {
    const KEYS: u64 = 150;
    let power = Power::new();
    let table = table(&power);
    let guard = power.pool.pin();
    let kept = |key: u64| found(power.after_power_loss(), |table| table.get(&table.units.pool.pin(), &key));
    for key in 0..KEYS {
        assert_eq!(table.insert(&guard, &key, key), Ok(Inserted::New));
        assert_eq!(kept(key), Some(key));
    }
    let mut loads = (0..16)
        .map(|index| meta(power.pool.medium(), table.units.bucket(table.units.view().high.bucket(index))));
    assert!(loads.any(|now| now.load::<U64>() == 7), "some bucket is full");
    for key in 0..KEYS {
        assert_eq!(table.update(&guard, &key, key + 1000), Some(key));
        assert_eq!(kept(key), Some(key + 1000));
    }
    for key in (0..KEYS).rev() {
        assert_eq!(table.remove(&guard, &key), Some(key + 1000));
        assert_eq!(kept(key), None);
    }
}

/// Moves a key from the upper bucket at one position to that at the other, to a slot of the second
/// line, and calls `then` with both. `None` if both are the same bucket.
fn moved<T>(power: &Power, key: u64, then: impl FnOnce(&Table, [&Bucket; 2]) -> T) -> Option<T> {
    let table = table(power);
    let (guard, view) = (power.pool.pin(), table.units.view());
    table.insert(&guard, &key, 70).unwrap();
    let mut buckets = Probe::<U64>::new(&key, table.units.seed).positions.map(|at| view.high.index(at));
    buckets.sort_unstable();
    if buckets[0] == buckets[1] {
        return None;
    }
    let [from, to] = buckets.map(|index| table.units.bucket(view.high.bucket(index)));
    let entry = U64::read(&guard, from, 0).unwrap();
    assert_eq!(entry.key, key);
    table.units.relocate(&guard, (from, 0), (to, 5), entry);
    Some(then(&table, [from, to]))
}

#[test]
fn moved_key_does_not_return_to_its_old_slot() {
    for key in 0..10 {
        let power = Power::new();
        moved(&power, key, |table, _| {
            let guard = power.pool.pin();
            assert_eq!(
                found(power.after_power_loss(), |table| table.get(&table.units.pool.pin(), &key)),
                Some(70)
            );
            assert_eq!(table.update(&guard, &key, 71), Some(70));
            found(power.after_power_loss(), |table| check_has_all(table, key..key + 1, |_| 71));
            assert_eq!(table.remove(&guard, &key), Some(71));
            found(power.after_power_loss(), |table| check_has_all(table, 0..0, |_| 0));
        });
    }
}

#[test]
fn interrupted_movement_leaves_one_key() {
    let mut twice = 0;
    for key in 0..4 {
        let power = Power::new();
        let lines = moved(&power, key, |_, [from, to]| {
            [line_of(&power, from, 0), line_of(&power, to, 0), line_of(&power, to, 1)]
        });
        let Some([from, to, copy]) = lines else { continue };
        // Behind the fence of the insert, which stored the first token.
        let trace = power.trace();
        let mut done = trace.events().iter().map(|event| event.what).enumerate();
        assert!(done.any(|(_, what)| matches!(what, What::Store { at, .. } if at == from)));
        let (start, _) = done.find(|&(_, what)| what == What::Fence).unwrap();
        for events in start + 1..=trace.events().len() {
            for kept in [&[][..], &[from], &[to], &[copy], &[from, to]] {
                found(power.after_power_loss_at(events, kept), |table| {
                    let has_token = |&at: &u64| {
                        let now = table
                            .units
                            .pool
                            .region()
                            .at(Offset::<Word>::new(at))
                            .load(table.units.pool.medium(), Relaxed);
                        Meta(now).load::<U64>() == 1
                    };
                    twice += usize::from([from, to].iter().all(has_token));
                    check_has_all(table, key..key + 1, |_| 70);
                });
            }
        }
    }
    assert!(twice > 0);
}

/// Calls `judge` with the table after a power loss behind each event from `start` on, with and
/// without these lines kept.
fn after_each_event(power: &Power, start: usize, lines: &[u64], judge: impl Fn(&Table)) {
    for events in start..=events(power) {
        found(power.after_power_loss_at(events, &[]), &judge);
        found(power.after_power_loss_at(events, lines), &judge);
    }
}

#[test]
fn interrupted_growth_loses_no_key() {
    const KEYS: u64 = 60;
    let power = Power::new();
    let table = table(&power);
    let guard = power.pool.pin();
    (0..KEYS).for_each(|key| _ = table.insert(&guard, &key, !key).unwrap());
    let low = (0..8).map(|unit| table.units.bucket(table.units.view().mid.bucket(unit)));
    let lines: Vec<u64> = low.map(|bucket| line_of(&power, bucket, 0)).collect();
    let start = events(&power);
    table.resize(&guard).start_expanding(&table.units.view()).unwrap();
    while !table.units.state().is_resting() {
        table.resize(&guard).help_resize(&table.units.view());
    }
    after_each_event(&power, start, &lines, |table| check_has_all(table, 0..KEYS, |key| !key));
}

#[test]
fn interrupted_shrink_loses_no_key() {
    const KEYS: u64 = 30;
    let power = Power::new();
    let table = table(&power);
    let guard = power.pool.pin();
    (0..KEYS).for_each(|key| _ = table.insert(&guard, &key, !key).unwrap());
    let start = events(&power);
    assert_eq!(table.resize(&guard).start_clearing(&table.units.view()), Ok(true));
    let low = (0..4).map(|unit| table.units.bucket(table.units.view().low.bucket(unit)));
    let lines: Vec<u64> = low.map(|bucket| line_of(&power, bucket, 0)).collect();
    while !table.units.state().is_resting() {
        table.resize(&guard).help_resize(&table.units.view());
    }
    assert_eq!(table.units.state().top(), 3);
    after_each_event(&power, start, &lines, |table| check_has_all(table, 0..KEYS, |key| !key));
    // In slots of either line.
    for key in 0..KEYS {
        assert_eq!(table.update(&guard, &key, key), Some(!key));
    }
    found(power.after_power_loss(), |table| check_has_all(table, 0..KEYS, |key| key));
}

#[test]
fn write_to_a_shrunk_unit_survives_power_loss() {
    let power = Power::new();
    let table = table(&power);
    let guard = power.pool.pin();
    // All above one lowest bucket, so that some get into its second line.
    let keys: Vec<u64> =
        (0..).filter(|key| positions(U64::hash(key, table.units.seed))[0] >> 62 == 1).take(6).collect();
    keys.iter().for_each(|key| _ = table.insert(&guard, key, 70).unwrap());
    assert_eq!(table.resize(&guard).start_clearing(&table.units.view()), Ok(true));
    table.resize(&guard).help_resize(&table.units.view());
    let view = table.units.view();
    assert_eq!(view.state.phase(), Phase::Shrink);
    assert!((0..4).all(|unit| table.resize(&guard).move_unit(&view, unit, false) == Step::Moved));
    for key in &keys {
        assert_eq!(table.update(&guard, key, 71), Some(70));
        assert_eq!(
            found(power.after_power_loss(), |table| table.get(&table.units.pool.pin(), key)),
            Some(71)
        );
    }
}

#[test]
fn persist_unit_covers_exactly_its_buckets() {
    let power = Power::new();
    let table = table(&power);
    let guard = power.pool.pin();
    let persisted = |view: &View, position: u64| {
        let before = events(&power);
        table.units.persist_unit(view, position);
        let trace = power.trace();
        let written = |what: What| if let What::WriteBack { line } = what { Some(line) } else { None };
        let mut lines: Vec<u64> =
            trace.events()[before..].iter().filter_map(|event| written(event.what)).collect();
        assert_eq!(trace.events().last().unwrap().what, What::Fence);
        lines.sort_unstable();
        lines.dedup();
        lines
    };
    let lines = |buckets: &[(Tier, Range<u64>)]| {
        let all = buckets.iter().flat_map(|(tier, range)| range.clone().map(|index| tier.bucket(index)));
        let mut lines: Vec<u64> = all.flat_map(|at| [at.raw(), at.raw() + 64]).collect();
        lines.sort_unstable();
        lines
    };
    let view = table.units.view();
    for unit in 0..8 {
        let expected = lines(&[(view.high, 2 * unit..2 * unit + 2), (view.mid, unit..unit + 1)]);
        assert_eq!(persisted(&view, view.mid.first_position(unit) + 9), expected);
    }
    table.resize(&guard).start_expanding(&view).unwrap();
    let view = table.units.view();
    for unit in 0..8 {
        let above = [(view.high, 4 * unit..4 * unit + 4), (view.mid, 2 * unit..2 * unit + 2)];
        let expected = lines(&[&above[..], &[(view.low, unit..unit + 1)]].concat());
        assert_eq!(persisted(&view, view.low.first_position(unit) + 9), expected);
    }
}

#[test]
fn resize_persists_the_unit_of_a_dead_mover() {
    let power = Power::new();
    let table = table(&power);
    let guard = power.pool.pin();
    table.resize(&guard).start_expanding(&table.units.view()).unwrap();
    let view = table.units.view();
    let lowest = table.units.bucket(view.low.bucket(0));
    let is_durable = || {
        found(power.after_power_loss(), |table| {
            table.resize(&table.units.pool.pin()).has_moved_durably(&table.units.view(), 0)
        })
    };
    assert!(!table.resize(&guard).has_moved_durably(&view, 0) && !is_durable());
    // The thread died between the store and its fence.
    let lock = Lock::of(lock_word(lowest)).acquire(&guard);
    store_meta(power.pool.medium(), lowest, meta(power.pool.medium(), lowest).with_upper::<U64>());
    lock.release_unfenced();
    assert!(!is_durable());
    assert!(table.resize(&guard).has_moved_durably(&view, 0) && is_durable());
}
