//! Removal of several keys at one instant, and of all keys.

use crate::batch::flight::RunningBatch;
use crate::batch::plan::{AbortReason, BatchStep, plan_removals};
use crate::read::range::DISORDER;
use crate::record::stage::REMOVALS;
use crate::record::view::{Record, corrupt};
use crate::write::single::Writes;
use terrace_engine::{ReadError, WriteError};
use terrace_index::{Damage, Place};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium> Writes<M> {
    /// Removes `keys` at one instant and returns how many had an entry. Unlike a transaction it
    /// reads nothing before, so no other writer makes it start over.
    pub(crate) fn remove_together(&self, keys: &[&[u8]]) -> Result<u64, WriteError> {
        let steps = plan_removals(keys, self.pool().hash_seed());
        match &*steps {
            [] => self.records().check_writable().map(|()| 0),
            [step] => self.remove_one(step.key).map(u64::from),
            steps => self.retry_after_reclaim(|| self.try_remove_together(steps)),
        }
    }

    fn try_remove_together(&self, steps: &[BatchStep<'_>]) -> Result<u64, WriteError> {
        let mut removed = 0;
        let count = |running: &RunningBatch<'_, '_, M>| {
            let words = running.old_records.iter().flatten();
            removed = words.filter(|&&word| self.had_entry(running, word)).count() as u64;
        };
        match self.batches.commit_many(steps, count) {
            Ok(()) => Ok(removed),
            Err(AbortReason::Failed(error)) => Err(error),
            Err(AbortReason::Changed(_) | AbortReason::Moved) => unreachable!("nothing is expected"),
        }
    }

    /// Whether a record that a batch replaces counts as an entry; the same rule for expired and
    /// damaged records as in [`Writes::remove_one`].
    fn had_entry(&self, running: &RunningBatch<'_, '_, M>, word: u64) -> bool {
        matches!(self.reads().visible_record(running.guard, word), Ok(Some(record)) if !self.records().has_expired(&record))
    }

    /// Removes every key that is present throughout. Frees no block that it did not unlink. An
    /// error if damage was met, or has left a record that its key does not find.
    pub(crate) fn clear_all(&self) -> Result<(), WriteError> {
        self.records().check_writable()?;
        let (mut place, mut words) = (Place::Start, Vec::with_capacity(2 * REMOVALS));
        let mut first_error = Ok(());
        loop {
            let guard = self.pool().try_pin()?;
            let next = self.records().index.scan(&guard, &place, REMOVALS, &mut |word| words.push(word));
            let last = words.last().copied();
            let is_cut_short = words.drain(..).any(|word| {
                let removed = self.remove_word(&guard, word);
                let should_end = removed == Ok(true) && guard.is_limbo_full();
                first_error = std::mem::replace(&mut first_error, Ok(())).and(removed.map(drop));
                should_end
            });
            if is_cut_short {
                // The next scan finds the rest again, under another pin, and less than this one.
                continue;
            }
            let moved = check_behind(&place, &next, last).map_err(WriteError::from);
            if next.is_end() || moved.is_err() {
                return first_error.and(moved).and_then(|()| self.check_cleared());
            }
            place = next;
        }
    }

    /// Removes the key whose word this was a moment ago. Returns whether a key was removed.
    fn remove_word(&self, guard: &Guard<'_, M>, word: u64) -> Result<bool, WriteError> {
        let removed = self.slots().remove_found(guard, &Record::at(guard, word)?)?;
        Ok(removed.is_some())
    }

    /// Fails if damage is why there are records after a removal of all. Others may have come since.
    fn check_cleared(&self) -> Result<(), WriteError> {
        let index = &self.records().index;
        let (mut place, mut left) = (Place::Start, index.len());
        while !place.is_end() && left > 0 {
            let guard = self.pool().try_pin()?;
            let (mut checked, mut last) = (Ok(()), None);
            let next = index.scan(&guard, &place, REMOVALS, &mut |word| {
                (last, left) = (Some(word), left.saturating_sub(1));
                let check = || Record::at(&guard, word).and_then(|record| record.verify());
                checked = std::mem::replace(&mut checked, Ok(())).and_then(|()| check());
            });
            checked.and_then(|()| check_behind(&place, &next, last))?;
            place = next;
        }
        match index.damage() {
            Some(Damage { offset, what }) if index.ordered().is_some() => Err(corrupt(offset, what).into()),
            _ => Ok(()),
        }
    }
}

/// Fails if a scan that came to the place `next` would go on there before `place`, where it began,
/// and so never end.
fn check_behind(place: &Place, next: &Place, word: Option<u64>) -> Result<(), ReadError> {
    match (place, next) {
        (Place::After(before), Place::After(behind)) if behind <= before => {
            Err(corrupt(word.unwrap_or(0), DISORDER))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "tests/remove.rs"]
mod tests;
