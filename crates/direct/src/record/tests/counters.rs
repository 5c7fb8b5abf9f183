//! Tests of `counters`.

use super::*;
use crate::tests::fixtures::{Store, store};
use std::collections::BTreeSet;
use terrace_engine::{Commit, Durably, Engine, Pooled, Write, WriteKind};

#[test]
fn stamps_are_distinct_across_threads() {
    let (store, _) = store();
    let here = store.pool().pin();
    let stripe = here.slot_index() % STRIPES;
    let there = std::thread::scope(|scope| {
        let stamps = || {
            let guard = store.pool().pin();
            assert_ne!(guard.slot_index() % STRIPES, stripe);
            (0..1000).map(|_| store.root().stamp(&guard)).collect::<Vec<u32>>()
        };
        scope.spawn(stamps).join().unwrap()
    });
    let stamps = (0..1000).map(|_| store.root().stamp(&here)).chain(there);
    assert_eq!(stamps.collect::<BTreeSet<u32>>().len(), 2000);
}

#[test]
fn concurrent_threads_count_in_separate_lines() {
    let (store, _) = store();
    let threads = STRIPES + 2;
    let barrier = std::sync::Barrier::new(threads as usize);
    let count = || {
        let guard = store.pool().pin();
        barrier.wait();
        // A bit for each thread slot.
        store.root().count_expired(&guard, 1 << guard.slot_index());
        barrier.wait();
        guard.slot_index()
    };
    let slots: BTreeSet<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(slots.len() as u64, threads);
    assert_eq!(store.stats().expired, slots.iter().map(|slot| 1 << slot).sum::<u64>());
    let medium = store.pool().medium();
    for line in 0..STRIPES {
        let bits = store.root().word(2 + line, EXPIRED).load(medium, Relaxed);
        assert!((1..=2).contains(&bits.count_ones()), "{bits:#x} in line {line} of {slots:?}");
    }
}

/// Bytes of data, and number of entries that expire.
fn counted(store: &Store) -> (u64, u64) {
    let stats = store.stats();
    (stats.data_bytes, stats.expiring)
}

#[test]
fn data_is_counted_for_every_kind_of_write() {
    let (store, clock) = store();
    let put = |key, value, expires_at| Write { key, what: WriteKind::Put { value, expires_at } };
    let commit =
        |writes: &[Write<'_>]| assert_eq!(store.commit(writes, &[], Durably::Store), Ok(Commit::Done));
    let (late, long) = (Some(5000), vec![7; 9000]);
    store.put_entry(b"one", b"12345", None);
    assert_eq!(counted(&store), (8, 0));
    store.put_entry(b"one", b"123", late);
    assert_eq!(counted(&store), (6, 1));
    store.put_entry(b"one", b"123", Some(6000));
    assert_eq!(counted(&store), (6, 1));
    store.put_entry(b"long", &long, None);
    store.modify(b"long", &mut |_| terrace_engine::Change::Expire(late), Durably::Store).unwrap();
    assert_eq!(counted(&store), (6 + 9004, 2));
    store.modify(b"long", &mut |_| terrace_engine::Change::Expire(None), Durably::Store).unwrap();
    assert_eq!(counted(&store), (6 + 9004, 1));
    // A batch that replaces, adds and removes; then a batch that only removes.
    commit(&[
        put(b"one", b"1", None),
        put(b"two", &long, late),
        Write { key: b"long", what: WriteKind::Remove },
    ]);
    assert_eq!(counted(&store), (4 + 9003, 1));
    commit(&[put(b"one", b"12", None), Write { key: b"absent", what: WriteKind::Remove }]);
    assert_eq!(counted(&store), (5 + 9003, 1));
    clock.advance(10_000);
    assert_eq!(store.sweep_expired(1000), 1);
    assert_eq!(counted(&store), (5, 0));
    assert_eq!((store.stats().expired, store.remove(b"one", Durably::Store)), (1, Ok(true)));
    assert_eq!(counted(&store), (0, 0));
}

#[test]
fn recount_corrects_counts_after_a_crash() {
    let (store, _) = store();
    (0..50u8).for_each(|n| store.put_entry(&[n], b"123", (n < 10).then_some(5000)));
    let guard = store.pool().pin();
    let root = store.root();
    root.add(&guard, DATA, 200u64.wrapping_neg() - 1);
    root.add(&guard, EXPIRING, 1000);
    assert_eq!(counted(&store), (0, 1010));
    drop(guard);
    store.pool().request_collection();
    store.collect(&|| false);
    assert_eq!(counted(&store), (200, 10));
    store.put_entry(b"b", b"1234", Some(5000));
    assert_eq!(counted(&store), (205, 11));

    // A recount that sees half of the concurrent changes.
    let guard = store.pool().pin();
    let before = root.start_recount(&guard);
    root.add(&guard, DATA, 100);
    root.add(&guard, EXPIRING, 6u64.wrapping_neg());
    root.finish_recount(&guard, before, Tally { data_bytes: 1050, expiring: 17 });
    assert_eq!(counted(&store), (1100, 14));
}
