//! Statistics, in stripes so that writers do not share a line.
//!
//! They are not persisted. A killed process may leave them slightly off, and a power failure may
//! leave any value, so the collector counts again.

use crate::record::layout::{Root, STRIPES};
use crate::record::view::{Record, RecordFacts};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

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
#[path = "tests/counters.rs"]
mod tests;
