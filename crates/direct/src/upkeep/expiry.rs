//! Removal of expired entries.
//!
//! Readers never see an expired entry, so removing it only frees its memory. A sweep reads the
//! records of a piece of the index, in the order of the scan, and removes the expired ones. How
//! many it reads follows from what it finds: the whole budget where a tenth has expired, down to a
//! sixteenth of it where next to nothing has, and a handful where no entry has an expiry.

use crate::record::format::Role;
use crate::record::records::Records;
use crate::record::stage::REMOVALS;
use crate::record::view::Record;
use crate::slot::Slots;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_index::Place;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Pool};

/// Records read where no entry is known to expire. Not 0: the count may be off after a crash.
const IDLE: usize = 16;
/// The budget is halved this often at most.
const SLOWEST: u64 = 4;

/// The removal of expired entries. It borrows the slots, on which it stands, and the place where
/// the sweep continues in an index by order.
#[derive(Clone, Copy)]
pub(crate) struct Expiry<'s, M: MappedMedium> {
    pub(crate) slots: &'s Slots<M>,
    pub(crate) swept: &'s Mutex<Place>,
}

impl<'s, M: MappedMedium> Expiry<'s, M> {
    fn records(&self) -> &'s Records<M> {
        self.slots.records()
    }

    fn pool(&self) -> &'s Pool<M> {
        self.slots.pool()
    }

    pub(crate) fn sweep(&self, budget: usize) -> u64 {
        if self.records().check_writable().is_err() || budget == 0 {
            return 0;
        }
        let (medium, slowness) = (self.pool().medium(), self.records().root.sweep_slowness());
        let pace = slowness.load(medium, Relaxed).min(SLOWEST);
        let looks = match self.records().root.tally(&self.pool().pin()).expiring {
            0 => budget.min(IDLE),
            _ => (budget >> pace).max(1),
        };
        let (mut left, mut seen, mut removed) = (looks, 0, 0);
        loop {
            let (more, gone, at_end) = self.sweep_piece(left);
            (left, seen, removed) = (left.saturating_sub(more), seen + more, removed + gone);
            if left == 0 || at_end {
                break;
            }
        }
        slowness.store(medium, next_pace(pace, seen, removed), Relaxed);
        removed as u64
    }

    /// Reads the next records, as many as can be removed under one pin. Returns how many it read
    /// and how many it removed, and whether this was the end of the index.
    fn sweep_piece(&self, at_most: usize) -> (usize, usize, bool) {
        let guard = self.pool().pin();
        let (mut due, mut seen) = (Vec::new(), 0);
        let next =
            self.records().index.scan(&guard, &self.sweep_place(), at_most.min(REMOVALS), &mut |word| {
                seen += 1;
                if self.is_due(&guard, word) {
                    due.push(word);
                }
            });
        let at_end = next.is_end();
        self.set_sweep_place(next);
        let mut removed = 0;
        for word in due {
            removed += usize::from(self.remove_due(&guard, word));
            if guard.is_limbo_full() {
                // The rest is left to the next pass.
                break;
            }
        }
        if removed > 0 {
            self.records().root.count_expired(&guard, removed as u64);
        }
        (seen, removed, at_end)
    }

    /// Where the sweep continues. A place behind a key has no room in the pool's root, so the
    /// process keeps it; the next process that does the background work begins again.
    fn sweep_place(&self) -> Place {
        match self.records().index.ordered() {
            Some(_) => self.swept().clone(),
            None => Place::Hash(self.records().root.sweep_position().load(self.pool().medium(), Relaxed)),
        }
    }

    fn set_sweep_place(&self, next: Place) {
        let position = match next {
            Place::Hash(position) => position,
            _ => 0,
        };
        match self.records().index.ordered() {
            Some(_) => *self.swept() = if next.is_end() { Place::Start } else { next },
            None => self.records().root.sweep_position().store(self.pool().medium(), position, Relaxed),
        }
    }

    fn swept(&self) -> MutexGuard<'s, Place> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues a pass over all records, if one may find something, until it has removed records
    /// of `bytes` bytes, or taken so many steps. Returns whether it has removed any.
    pub(crate) fn sweep_for(&self, bytes: u64, steps: usize, pass: &mut Pass) -> bool {
        let (written, records, expiring) = {
            let guard = self.pool().pin();
            (
                self.records().root.written(&guard),
                self.records().index.len(),
                self.records().root.tally(&guard).expiring,
            )
        };
        if pass.place == Place::Start {
            if expiring == 0 || !pass.is_due(self.records().settings.clock.coarse_ms(), written, records) {
                return false;
            }
            *pass = Pass { place: Place::Start, next: u64::MAX, written };
        }
        let mut removed = 0;
        for _ in 0..steps {
            removed += self.sweep_step(pass);
            if pass.place == Place::Start || removed >= bytes {
                break;
            }
        }
        removed > 0
    }

    /// Continues a pass, as far as one pin allows. Returns the bytes of the records that it has
    /// removed.
    fn sweep_step(&self, pass: &mut Pass) -> u64 {
        let guard = self.pool().pin();
        let (now, mut due, mut earliest) = (self.records().settings.clock.coarse_ms(), Vec::new(), u64::MAX);
        let next = self.records().index.scan(&guard, &pass.place, REMOVALS, &mut |word| {
            let expires_at = Record::at(&guard, word).ok().and_then(|record| record.body.expires_at);
            match expires_at {
                Some(at) if at <= now => due.push(word),
                at => earliest = earliest.min(at.unwrap_or(u64::MAX)),
            }
        });
        let (mut removed, mut bytes) = (0, 0);
        for word in due {
            let size = Record::at(&guard, word).map_or(0, |it| it.shape.size() + it.shape.value_len) as u64;
            if !self.slots.claims().is_claimed(&guard, word) && self.remove_due(&guard, word) {
                (removed, bytes) = (removed + 1, bytes + size);
            }
            if guard.is_limbo_full() {
                // The next step starts at the same place and finds the rest again.
                self.records().root.count_expired(&guard, removed);
                return bytes;
            }
        }
        self.records().root.count_expired(&guard, removed);
        pass.place = if next.is_end() { Place::Start } else { next };
        pass.next = pass.next.min(earliest);
        bytes
    }

    /// Removes records that a reader has met and that have expired, unless the store is read-only.
    pub(crate) fn remove_met(&self, words: &[u64]) {
        if self.records().check_writable().is_err() {
            return;
        }
        let mut words = words.iter();
        while !words.as_slice().is_empty() {
            let (guard, mut removed) = (self.pool().pin(), 0);
            for &word in words.by_ref().take(REMOVALS) {
                let is_due = Record::at(&guard, word).is_ok_and(|record| self.is_over(&record))
                    && !self.slots.claims().is_claimed(&guard, word);
                removed += u64::from(is_due && self.remove_due(&guard, word));
                if guard.is_limbo_full() {
                    break;
                }
            }
            self.records().root.count_expired(&guard, removed);
        }
    }

    fn is_due(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        // A claimed key is left to the next pass.
        Record::at(guard, word).is_ok_and(|record| record.shape.role == Role::Stray || self.is_over(&record))
            && !self.slots.claims().is_claimed(guard, word)
    }

    /// Whether a record has expired for all threads: a thread at a stopped instant removes nothing
    /// that others still see.
    fn is_over(&self, record: &Record<'_>) -> bool {
        record.body.expires_at.is_some_and(|at| at <= self.records().settings.clock.coarse_ms())
    }

    /// Removes an expired record, unless it is damaged: its expiry may be wrong.
    fn remove_due(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        match Record::at(guard, word) {
            Ok(record) if record.verify().is_ok() => {
                matches!(self.slots.unlink(guard, record.body.key, word), Ok(true))
            }
            _ => false,
        }
    }
}

/// A pass over all records for those that have expired.
#[derive(Default)]
pub(crate) struct Pass {
    /// Where it continues; the start if it has finished.
    place: Place,
    /// The earliest expiry among the records it has visited that had not expired.
    next: u64,
    /// Number of records that had been written when it began.
    written: u64,
}

impl Pass {
    /// Whether another pass may find something: a record that was visited has expired by now, or
    /// many have been written since.
    fn is_due(&self, now: u64, written: u64, records: u64) -> bool {
        now >= self.next || written.wrapping_sub(self.written) > records / 16
    }
}

/// The next pace: faster where a tenth was due, slower where less than a hundredth was.
fn next_pace(pace: u64, seen: usize, due: usize) -> u64 {
    match due {
        due if due * 10 >= seen => pace.saturating_sub(2),
        due if due * 100 < seen => (pace + 1).min(SLOWEST),
        _ => pace,
    }
}

#[cfg(test)]
#[path = "tests/expiry.rs"]
mod tests;
