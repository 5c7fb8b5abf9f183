//! Tests of `resize.rs`.

use super::super::super::test_pools::{Medium, Power, interrupted, pool};
use super::super::ops::Level;
use super::*;
use crate::{Deferred, PointIndex, Stored, Swapped, U64};
use std::sync::{Arc, Mutex};
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::TappedPmem;
use terrace_testkit::schedule::Scheduler;

#[test]
fn unchanged_state_keeps_its_unfenced_mark() {
    let pool = Pool::<TappedPmem>::anonymous(1 << 20).unwrap();
    let table = Level::<TappedPmem, U64>::create(&pool, "table", 0).unwrap();
    let (guard, view) = (pool.pin(), table.units.view());
    let is_open = || Lock::may_be_unfenced(table.units.root[0].0[ROOT_LOCK].load(pool.medium(), Relaxed));
    Lock::of(&table.units.root[0].0[ROOT_LOCK]).acquire(&guard).release_unfenced();
    let full = || Err(PoolFull { wanted: 0, size: 0, longest: None, waiting_bytes: 0, collecting: false });
    assert!(table.resize(&guard).turn(&view, (2, Phase::Expand), full).is_err() && is_open());
    let stale = View { state: view.state.next(2, Phase::Expand), ..view };
    assert!(!table.resize(&guard).turn(&stale, (2, Phase::Two), || Ok(())).unwrap());
    assert!(is_open());
    table.resize(&guard).start_expanding(&view).unwrap();
    assert!(!is_open(), "the next state is durable, and so is the last");
}

#[test]
fn insert_retries_after_others_grew_the_table() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let table = Level::<Dram, U64>::create(&pool, "table", 0).unwrap();
    let guard = pool.pin();
    let before = table.units.view();
    for key in 0..10_000 {
        table.insert(&guard, &key, key).unwrap();
        let has_changed = table.units.state() != before.state;
        assert!(!has_changed || table.resize(&guard).check_load(&before).is_ok(), "after {key} keys");
    }
    assert!(before.state.top() + 2 < table.units.state().top());
}

#[test]
fn freed_tier_is_not_named_after_power_loss() {
    let power = Power::new();
    let table = Level::<Medium, U64>::create(&power.pool, "table", 0).unwrap();
    let guard = power.pool.pin();
    table.resize(&guard).start_expanding(&table.units.view()).unwrap();
    let view = table.units.view();
    (0..view.low.buckets()).for_each(|unit| _ = table.resize(&guard).move_unit(&view, unit, false));
    let lock = Lock::of(&table.units.root[0].0[ROOT_LOCK]).acquire(&guard);
    let next = view.state.next(view.state.top(), Phase::Two);
    store_state(power.pool.medium(), &table.units.root, next);
    // The thread died.
    lock.release_unfenced();
    drop(guard);
    power.pool.request_collection();
    let report =
        power.pool.collect(&mut |marker| table.trace(&power.pool.pin(), marker, |_, _| unreachable!()));
    assert!(report.freed >= view.low.bytes() as u64, "{report:?}");
    let pool = power.after_power_loss();
    let after = Level::<Medium, U64>::recover(&pool, "table").unwrap().unwrap();
    assert!(after.units.state() == next);
    drop(after);
    pool.abandon();
}

#[test]
fn unmoved_unit_keeps_its_unfenced_mark() {
    let pool = Pool::<TappedPmem>::anonymous(1 << 20).unwrap();
    let table = Level::<TappedPmem, U64>::create(&pool, "table", 0).unwrap();
    let (guard, before) = (pool.pin(), table.units.view());
    let side = table.units.side(&before, 0);
    let is_open = || Lock::may_be_unfenced(table.units.lock(&side).load_word(pool.medium()));
    table.units.lock(&side).acquire(&guard).release_unfenced();
    table.resize(&guard).start_expanding(&before).unwrap();
    assert!(table.units.try_lock_third(&guard, &before, &side).is_none() && is_open());
    let stale = View { state: before.state, ..table.units.view() };
    assert!(matches!(table.resize(&guard).move_unit(&stale, 0, false), Step::Already) && is_open());
    assert!(
        matches!(table.resize(&guard).move_unit(&table.units.view(), 0, false), Step::Moved) && !is_open()
    );
}

/// Whether a table of 168 slots begins to shrink with `keys` keys, of which it counts
/// `counted`, if an earlier shrink failed with `stuck` keys.
fn shrinks(keys: u64, counted: u64, stuck: u64) -> bool {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
    let guard = pool.pin();
    (0..keys).for_each(|key| _ = table.insert(&guard, &key, key).unwrap());
    table.units.count().add(0, 0, counted as i64 - keys as i64);
    table.units.root[2].0[STUCK].store(pool.medium(), stuck, Relaxed);
    assert_eq!((table.stats(&guard).slots, table.units.state().phase()), (168, Phase::Two));
    let has_more_to_do = table.maintain(&guard);
    assert_eq!(has_more_to_do, table.units.state().phase() == Phase::Clearing);
    has_more_to_do
}

#[test]
fn table_shrinks_below_an_eighth() {
    assert!(shrinks(0, 0, 0) && shrinks(21, 21, 0) && !shrinks(22, 22, 0));
    // After a crash the counter may have any value.
    assert!(shrinks(31, 21, 0) && !shrinks(32, 21, 0) && !shrinks(10, 22, 0));
    assert!(shrinks(10, 10, 21) && !shrinks(10, 10, 20), "half of what was too much last time");
}

#[test]
fn empty_table_shrinks_to_the_smallest() {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
    let guard = pool.pin();
    while table.maintain(&guard) {}
    let stats = table.stats(&guard);
    assert_eq!((stats.buckets, stats.resizes, table.units.state().top()), (3, 3, LOG2_MIN));
    table.resize(&guard).shrink_if_sparse(&table.units.view());
    assert!(table.units.state().is_resting());
}

#[test]
fn marked_key_survives_a_shrink() {
    let pool = pool::<Dram>(1 << 20);
    let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
    let guard = pool.pin();
    (0..11).for_each(|key| _ = table.insert(&guard, &key, key).unwrap());
    for bucket in (0..16).map(|index| table.units.bucket(table.units.view().high.bucket(index))) {
        let now = meta(pool.medium(), bucket);
        store_meta(pool.medium(), bucket, now.becoming::<U64>(now.tokens::<U64>(), now.tokens::<U64>()));
    }
    while table.maintain(&guard) {}
    assert!((0..11).all(|key| table.get(&guard, &key) == Some(key)));
    assert_eq!((table.stats(&guard).resizes, table.len(), table.verify(&guard)), (1, 11, vec![]));
}

/// A thread writes with a deferred fence. Another looks at that write, delayed at every step,
/// while a resize begins.
fn check_state_turns(look: impl Fn(&Level<Medium, U64>) + Clone + Send + 'static) {
    const KEY: u64 = 7;
    let scheduler = Scheduler::new();
    for steps in 1..100 {
        let power = Power::new();
        let table = Arc::new(Level::<Medium, U64>::create(&power.pool, "table", 0).unwrap());
        let mut deferred = Deferred::default();
        let guard = power.pool.pin();
        let swapped = table.compare_and_swap_deferred(&guard, &KEY, None, Some(70), &mut deferred);
        assert_eq!(swapped, Ok(Swapped::Done));
        drop(guard);
        let [reader, other] = [table.clone(), table];
        let found = Arc::new(Mutex::new(None));
        let (look, answer) = (look.clone(), found.clone());
        let read = move || {
            look(&reader);
            *answer.lock().unwrap() = reader.get(&reader.units.pool.pin(), &KEY);
        };
        interrupted(&scheduler, steps, read, move || {
            other.resize(&other.units.pool.pin()).start_expanding(&other.units.view()).unwrap();
        });
        assert_eq!(*found.lock().unwrap(), Some(70));
        let pool = power.after_power_loss();
        let after = Level::<Medium, U64>::recover(&pool, "table").unwrap().unwrap();
        assert_eq!(after.get(&pool.pin(), &KEY), Some(70), "held up after {steps} steps");
        drop(after);
        pool.abandon();
    }
}

#[test]
fn reader_delayed_by_a_resize_persists_the_unit() {
    check_state_turns(|table| _ = table.insert(&table.units.pool.pin(), &7, 71));
    check_state_turns(|table| {
        table.units.pool.reachable(&mut |marker| table.trace(&table.units.pool.pin(), marker, |_, _| ()));
    });
}
