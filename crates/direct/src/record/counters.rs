//! Statistics, in stripes so that writers do not share a line.
//!
//! They are not persisted. A killed process may leave them slightly off, and a power failure may
//! leave any value, so the collector counts again.

use crate::record::layout::Root;
use crate::record::view::{Record, RecordFacts};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Lines of counters.
pub(crate) const STRIPES: u64 = 16;

const DATA: usize = 0;
const EXPIRING: usize = 1;
const STAMPS: usize = 2;
const EXPIRED: usize = 3;

/// The result of the collector's count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) data_bytes: u64,
    pub(crate) expiring: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, record: &Record<'_>) {
        self.data_bytes += record.facts().data_bytes;
        self.expiring += u64::from(record.shape.expires);
    }
}

/// The change of the counters. Wraps around.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterChange {
    data_bytes: u64,
    expiring: u64,
}

impl CounterChange {
    /// One record replaces another, is added, or is removed.
    #[inline(always)]
    pub(crate) fn add(&mut self, old: Option<RecordFacts>, new: Option<RecordFacts>) {
        let bytes = |facts: Option<RecordFacts>| facts.map_or(0, |facts| facts.data_bytes);
        let expiring = |facts: Option<RecordFacts>| u64::from(facts.is_some_and(|facts| facts.expires));
        self.data_bytes = self.data_bytes.wrapping_add(bytes(new)).wrapping_sub(bytes(old));
        self.expiring = self.expiring.wrapping_add(expiring(new)).wrapping_sub(expiring(old));
    }
}

impl<M: MappedMedium> Root<M> {
    #[inline(always)]
    fn add(&self, guard: &Guard<'_, M>, counter: usize, by: u64) -> u64 {
        let stripe = guard.slot_index() % STRIPES;
        self.word(2 + stripe, counter).fetch_add(guard.pool().medium(), by, Relaxed)
    }

    fn sum(&self, guard: &Guard<'_, M>, counter: usize) -> u64 {
        let medium = guard.pool().medium();
        (0..STRIPES)
            .fold(0, |sum, stripe| sum.wrapping_add(self.word(2 + stripe, counter).load(medium, Relaxed)))
    }

    /// A number that differs from those of all records written shortly before or after.
    #[inline(always)]
    pub(crate) fn stamp(&self, guard: &Guard<'_, M>) -> u32 {
        (self.add(guard, STAMPS, STRIPES) | (guard.slot_index() % STRIPES)) as u32
    }

    /// Number of records that have been written, by any process.
    pub(crate) fn written(&self, guard: &Guard<'_, M>) -> u64 {
        self.sum(guard, STAMPS) / STRIPES
    }

    /// Counts that one record replaced another, was added, or was removed.
    #[inline(always)]
    pub(crate) fn count_replaced(
        &self,
        guard: &Guard<'_, M>,
        old: Option<RecordFacts>,
        new: Option<RecordFacts>,
    ) {
        let mut change = CounterChange::default();
        change.add(old, new);
        self.count(guard, change);
    }

    #[inline(always)]
    pub(crate) fn count(&self, guard: &Guard<'_, M>, change: CounterChange) {
        if change.data_bytes != 0 {
            self.add(guard, DATA, change.data_bytes);
        }
        if change.expiring != 0 {
            self.add(guard, EXPIRING, change.expiring);
        }
    }

    pub(crate) fn count_expired(&self, guard: &Guard<'_, M>, count: u64) {
        self.add(guard, EXPIRED, count);
    }

    /// The present values, approximately.
    pub(crate) fn tally(&self, guard: &Guard<'_, M>) -> Tally {
        let total = |counter| {
            let base = self.word(1, counter).load(guard.pool().medium(), Relaxed);
            (base.wrapping_add(self.sum(guard, counter)) as i64).max(0) as u64
        };
        Tally { data_bytes: total(DATA), expiring: total(EXPIRING) }
    }

    pub(crate) fn expired(&self, guard: &Guard<'_, M>) -> u64 {
        self.sum(guard, EXPIRED)
    }

    /// The sums before a recount.
    pub(crate) fn start_recount(&self, guard: &Guard<'_, M>) -> [u64; 2] {
        [self.sum(guard, DATA), self.sum(guard, EXPIRING)]
    }

    /// Corrects the bases by the result of a recount. Concurrent changes count half, as if the
    /// recount had seen half of them.
    pub(crate) fn finish_recount(&self, guard: &Guard<'_, M>, before: [u64; 2], found: Tally) {
        for (counter, found) in [(DATA, found.data_bytes), (EXPIRING, found.expiring)] {
            let change = self.sum(guard, counter).wrapping_sub(before[counter]) as i64 / 2;
            let base = found.wrapping_sub(before[counter]).wrapping_sub(change as u64);
            self.word(1, counter).store(guard.pool().medium(), base, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
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
                (0..1000).map(|_| store.root.stamp(&guard)).collect::<Vec<u32>>()
            };
            scope.spawn(stamps).join().unwrap()
        });
        let stamps = (0..1000).map(|_| store.root.stamp(&here)).chain(there);
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
            store.root.count_expired(&guard, 1 << guard.slot_index());
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
            let bits = store.root.word(2 + line, EXPIRED).load(medium, Relaxed);
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
        let root = &store.root;
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
}
