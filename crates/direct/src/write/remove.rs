//! Atomic removal of several keys.

use crate::batch::flight::RunningBatch;
use crate::batch::plan::{AbortReason, BatchStep, plan_removals};
use crate::engine::Direct;
use terrace_engine::WriteError;
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Direct<M> {
    /// Removes `keys` at one instant and returns how many had an entry. Unlike a transaction it
    /// reads nothing before, so no other writer makes it start over.
    pub(crate) fn remove_together(&self, keys: &[&[u8]]) -> Result<u64, WriteError> {
        let steps = plan_removals(keys, self.pool().hash_seed());
        match &*steps {
            [] => self.check_writable().map(|()| 0),
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
        match self.commit_many(steps, count) {
            Ok(()) => Ok(removed),
            Err(AbortReason::Failed(error)) => Err(error),
            Err(AbortReason::Changed(_) | AbortReason::Moved) => unreachable!("nothing is expected"),
        }
    }

    /// Whether a record that a batch replaces counts as an entry; the same rule for expired and
    /// damaged records as in [`Direct::remove_one`].
    fn had_entry(&self, running: &RunningBatch<'_, '_, M>, word: u64) -> bool {
        matches!(self.visible_record(running.guard, word), Ok(Some(record)) if !self.has_expired(&record))
    }
}

#[cfg(test)]
#[path = "tests/remove.rs"]
mod tests;
