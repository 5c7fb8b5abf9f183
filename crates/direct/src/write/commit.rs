//! Commits: one key directly, several as a batch.

use crate::batch::plan::{AbortReason, BatchStep, plan};
use crate::write::single::Writes;
use terrace_engine::WriteError;
use terrace_engine::{Commit, Expected, Write, WriteKind};
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Writes<M> {
    pub(crate) fn commit_all(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Commit, WriteError> {
        for write in writes {
            let len = if let WriteKind::Put { value, .. } = write.what { value.len() } else { 0 };
            self.records().check_write(write.key, len)?;
        }
        let steps = match plan(writes, expected, self.pool().hash_seed()) {
            Ok(steps) => steps,
            Err(nth) => return Ok(Commit::Changed(nth)),
        };
        self.retry_after_reclaim(|| self.try_commit(&steps, writes.is_empty(), expected))
    }

    fn try_commit(
        &self,
        steps: &[BatchStep<'_>],
        reads_only: bool,
        expected: &[Expected<'_>],
    ) -> Result<Commit, WriteError> {
        let done = match steps {
            _ if reads_only => self.batches.confirm(expected),
            [step] if !step.expects_absence() => self.batches.commit_one(step),
            _ => self.batches.commit_many(steps, |_| {}),
        };
        match done {
            Ok(()) => Ok(Commit::Done),
            Err(AbortReason::Changed(nth)) => Ok(Commit::Changed(nth)),
            Err(AbortReason::Failed(error)) => Err(error),
            Err(AbortReason::Moved) => unreachable!("a batch whose values were moved is prepared again"),
        }
    }
}
