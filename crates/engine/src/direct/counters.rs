//! Statistics that writers keep, in stripes so that they do not share a line.
//!
//! Not persisted. A killed process may leave them off by a little, a power failure may leave anything; so the collector's walk counts again.

use super::root::Root;
use super::view::{Facts, Record};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Lines of counters.
pub(super) const STRIPES: u64 = 16;

const DATA: usize = 0;
const EXPIRING: usize = 1;
const STAMPS: usize = 2;
const EXPIRED: usize = 3;

/// What the collector's walk has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) data_bytes: u64,
    pub(super) expiring: u64,
}

impl Tally {
    pub(super) fn add(&mut self, record: &Record<'_>) {
        self.data_bytes += record.facts().data_bytes;
        self.expiring += u64::from(record.shape.expires);
    }
}

impl<M: MappedMedium> Root<M> {
    #[inline(always)]
    fn add(&self, guard: &Guard<'_, M>, counter: usize, by: u64) -> u64 {
        let stripe = guard.seat_index() % STRIPES;
        self.word(2 + stripe, counter).fetch_add(guard.pool().medium(), by, Relaxed)
    }

    fn sum(&self, guard: &Guard<'_, M>, counter: usize) -> u64 {
        let medium = guard.pool().medium();
        (0..STRIPES)
            .fold(0, |sum, stripe| sum.wrapping_add(self.word(2 + stripe, counter).load(medium, Relaxed)))
    }

    /// A number that no record made shortly before or after has.
    #[inline(always)]
    pub(super) fn stamp(&self, guard: &Guard<'_, M>) -> u32 {
        (self.add(guard, STAMPS, STRIPES) | (guard.seat_index() % STRIPES)) as u32
    }

    /// One record took another's place, or came, or went.
    #[inline(always)]
    pub(super) fn replaced(&self, guard: &Guard<'_, M>, old: Option<Facts>, new: Option<Facts>) {
        let bytes = |facts: Option<Facts>| facts.map_or(0, |facts| facts.data_bytes);
        let expiring = |facts: Option<Facts>| facts.is_some_and(|facts| facts.expires);
        let more = bytes(new).wrapping_sub(bytes(old));
        if more != 0 {
            self.add(guard, DATA, more);
        }
        if expiring(new) != expiring(old) {
            self.add(guard, EXPIRING, if expiring(new) { 1 } else { u64::MAX });
        }
    }

    pub(super) fn count_expired(&self, guard: &Guard<'_, M>, count: u64) {
        self.add(guard, EXPIRED, count);
    }

    /// What there is now, near enough.
    pub(super) fn tally(&self, guard: &Guard<'_, M>) -> Tally {
        let total = |counter| {
            let base = self.word(1, counter).load(guard.pool().medium(), Relaxed);
            (base.wrapping_add(self.sum(guard, counter)) as i64).max(0) as u64
        };
        Tally { data_bytes: total(DATA), expiring: total(EXPIRING) }
    }

    pub(super) fn expired(&self, guard: &Guard<'_, M>) -> u64 {
        self.sum(guard, EXPIRED)
    }

    /// The sums before a walk.
    pub(super) fn start_recount(&self, guard: &Guard<'_, M>) -> [u64; 2] {
        [self.sum(guard, DATA), self.sum(guard, EXPIRING)]
    }

    /// Corrects the bases by what a walk has found. What others changed meanwhile counts half, as if the walk had passed half of it.
    pub(super) fn finish_recount(&self, guard: &Guard<'_, M>, before: [u64; 2], found: Tally) {
        for (counter, found) in [(DATA, found.data_bytes), (EXPIRING, found.expiring)] {
            let change = self.sum(guard, counter).wrapping_sub(before[counter]) as i64 / 2;
            let base = found.wrapping_sub(before[counter]).wrapping_sub(change as u64);
            self.word(1, counter).store(guard.pool().medium(), base, Relaxed);
        }
    }
}
