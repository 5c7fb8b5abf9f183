//! Tests of `expiry`.

use super::*;
use crate::Settings;
use crate::record::counters::Tally;
use crate::tests::fixtures::{self, CountingClock, Store, count_clock_reads, settings, store};
use std::sync::Arc;
use terrace_engine::{Engine, Pooled};
use terrace_pool::Pool;

#[test]
fn pace_follows_share_of_expired() {
    for (pace, due, next) in
        [(4, 100, 2), (0, 1000, 0), (1, 100, 0), (2, 99, 2), (2, 10, 2), (2, 9, 3), (4, 0, 4)]
    {
        assert_eq!(next_pace(pace, 1000, due), next, "{due} of 1000 at {pace}");
    }
}

/// More entries than a chain of the index has; a sweep reads a chain to its end.
const CHAIN: u64 = 16;

/// A store of a thousand entries that expire later.
fn thousand() -> (Store, Arc<CountingClock>) {
    let clock = Arc::new(CountingClock::default());
    let settings = Settings { clock: clock.clone(), ..settings() };
    let store = fixtures::open(Pool::anonymous(4 << 20).unwrap(), settings).unwrap();
    (0..1000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", Some(5000)));
    (store, clock)
}

#[test]
fn sweep_slows_down_where_nothing_is_due() {
    let (store, clock) = thousand();
    for budget in [160, 80, 40, 20, 10, 10] {
        let looks = count_clock_reads(&clock, || assert_eq!(store.sweep_expired(160), 0));
        assert!((budget..budget + CHAIN).contains(&looks), "{looks} looks for {budget}");
    }
    assert!((1..1 + CHAIN).contains(&count_clock_reads(&clock, || assert_eq!(store.sweep_expired(1), 0))));
    assert_eq!(count_clock_reads(&clock, || assert_eq!(store.sweep_expired(0), 0)), 0);
}

#[test]
fn sweep_reads_its_budget_and_a_chain_at_most() {
    let clock = Arc::new(CountingClock::default());
    // Many chains with few entries each.
    let settings = Settings { clock: clock.clone(), expected_keys: 100_000, ..settings() };
    let pool = terrace_pool::PoolOptions::anonymous().size(16 << 20).hash_seed(5).create().unwrap();
    let store = fixtures::open(pool, settings).unwrap();
    (0..1000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", Some(5000)));
    for budget in [1, 7, 8, 9, 10, 17] {
        store.root().sweep_slowness().store(store.pool().medium(), 0, Relaxed);
        let looks = count_clock_reads(&clock, || assert_eq!(store.sweep_expired(budget), 0));
        assert!((budget as u64..budget as u64 + 3).contains(&looks), "{looks} looks for {budget}");
    }
}

#[test]
fn sweep_stops_at_end_and_in_stopped_store() {
    let (store, clock) = thousand();
    store.root().sweep_slowness().store(store.pool().medium(), 0, Relaxed);
    assert_eq!(count_clock_reads(&clock, || assert_eq!(store.sweep_expired(1 << 20), 0)), 1000);
    store.stop("a test".into());
    assert_eq!(count_clock_reads(&clock, || assert_eq!(store.sweep_expired(1000), 0)), 0);
}

#[test]
fn sweep_reads_a_few_where_nothing_expires() {
    let (store, clock) = thousand();
    let guard = store.pool().pin();
    // As after a loss of power.
    let counts = store.root().start_recount(&guard);
    store.root().finish_recount(&guard, counts, Tally::default());
    let looks = count_clock_reads(&clock, || assert_eq!(store.sweep_expired(1000), 0));
    assert!((16..16 + CHAIN).contains(&looks), "{looks}");
    assert!((3..3 + CHAIN).contains(&count_clock_reads(&clock, || assert_eq!(store.sweep_expired(3), 0))));
}

#[test]
fn sweep_removes_all_expired_and_nothing_else() {
    let (store, clock) = store();
    (0..1000u32).for_each(|n| {
        store.put_entry(&n.to_le_bytes(), b"value", [None, Some(2000), Some(5000)][n as usize % 3])
    });
    clock.advance(1000);
    let mut gone = 0;
    (0..100).for_each(|_| gone += store.sweep_expired(100));
    assert_eq!((gone, store.len().get(), store.stats().expired), (333, 667, 333));
    assert!((0..1000u32).all(|n| store.get(&n.to_le_bytes()).unwrap().is_some() == (n % 3 != 1)));
}

/// An index by order continues behind keys, which the process keeps.
#[test]
fn sweep_goes_through_an_ordered_store() {
    let (store, clock) = fixtures::ordered_store();
    (0..1000u32).for_each(|n| store.put_entry(&n.to_be_bytes(), b"value", (n % 3 == 1).then_some(2000)));
    clock.advance(5000);
    store.root().sweep_position().store(store.pool().medium(), u64::MAX, Relaxed);
    let gone: u64 = (0..100).map(|_| store.sweep_expired(100)).sum();
    assert_eq!((gone, store.len().get()), (333, 667));
    assert_eq!(store.root().sweep_position().load(store.pool().medium(), Relaxed), u64::MAX);
    (0..1000u32).for_each(|n| store.put_entry(&n.to_be_bytes(), b"value", Some(6000)));
    clock.advance(5000);
    let mut pass = Pass::default();
    assert!(
        store.writes.upkeep.expiry(store.slots()).sweep_for(u64::MAX, usize::MAX, &mut pass)
            && store.is_empty()
    );
}

/// What a refused write waits for.
#[test]
fn bounded_pass_goes_on_where_it_ended() {
    let (store, clock) = store();
    (0..1000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", Some(2000)));
    clock.advance(5000);
    let (mut pass, mut left, mut calls) = (Pass::default(), 1000, 0);
    while left > 0 {
        store.writes.upkeep.expiry(store.slots()).sweep_for(u64::MAX, 1, &mut pass);
        let gone = left - store.len().get();
        assert!((1..REMOVALS as u64 + CHAIN).contains(&gone), "{gone} of {left}");
        (left, calls) = (left - gone, calls + 1);
    }
    assert!(calls >= 1000 / (REMOVALS as u64 + CHAIN));
}

#[test]
fn sweep_keeps_record_with_damaged_expiry() {
    let (store, clock) = store();
    [&b"whole"[..], b"damaged"].iter().for_each(|key| store.put_entry(key, b"value", Some(2000)));
    // Its expiry, which precedes the key.
    store.damage(store.record_offset(b"damaged") + 16);
    clock.advance(1 << 40);
    (0..10).for_each(|_| _ = store.sweep_expired(100));
    assert_eq!((store.len().get(), store.stats().expired), (1, 1));
    assert!(store.get(b"damaged").is_err());
}
