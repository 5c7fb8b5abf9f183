//! Commits: one key directly, several as a batch.

use crate::batch::descriptor::Descriptor;
use crate::batch::flight::{Replaced, RunningBatch};
use crate::batch::plan::{AbortReason, BatchStep, plan};
use crate::engine::Direct;
use crate::record::format::Role;
use crate::record::stage::{Draft, New, Source, Staged};
use crate::record::view::Record;
use terrace_engine::{Commit, Expected, Write, WriteKind};
use terrace_engine::{ReadError, Version, WriteError};
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Guard, Lock};

impl<M: MappedMedium> Direct<M> {
    pub(crate) fn commit_all(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Commit, WriteError> {
        for write in writes {
            let len = if let WriteKind::Put { value, .. } = write.what { value.len() } else { 0 };
            self.check_write(write.key, len)?;
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
            _ if reads_only => self.confirm(expected),
            [step] if !step.expects_absence() => self.commit_one(step),
            _ => self.commit_many(steps, |_| {}),
        };
        match done {
            Ok(()) => Ok(Commit::Done),
            Err(AbortReason::Changed(nth)) => Ok(Commit::Changed(nth)),
            Err(AbortReason::Failed(error)) => Err(error),
            Err(AbortReason::Moved) => unreachable!("a batch whose values were moved is prepared again"),
        }
    }

    /// Checks a commit that writes nothing. A key that still has its entry had it at every instant
    /// of this call; so has a key that was absent and has been absent all along. For an expectation
    /// of mere absence, no earlier state is known: such a key is read twice, and all other keys
    /// after its first read. So everything was as expected between the two.
    fn confirm(&self, expected: &[Expected<'_>]) -> Result<(), AbortReason> {
        let guard = self.pool().try_pin()?;
        let mut backoff = Backoff::new();
        loop {
            let mut since = Vec::with_capacity(expected.len());
            for (nth, &(key, version)) in expected.iter().enumerate() {
                let is_known = version.token.is_some() || version.absence.is_some();
                let seen = if is_known { version } else { self.find_version(&guard, key)? };
                if seen.token != version.token {
                    return Err(AbortReason::Changed(nth));
                }
                since.push(seen);
            }
            match self.changed(&guard, expected, &since)? {
                None => return Ok(()),
                // It may have been added and removed, or another key of its stripe was removed.
                Some(nth) if since[nth] != expected[nth].1 => _ = backoff.spin(),
                Some(nth) => return Err(AbortReason::Changed(nth)),
            }
        }
    }

    /// The first of these keys that has changed.
    fn changed(
        &self,
        guard: &Guard<'_, M>,
        expected: &[Expected<'_>],
        since: &[Version],
    ) -> Result<Option<usize>, ReadError> {
        for (nth, (&(key, _), since)) in expected.iter().zip(since).enumerate() {
            if !self.has_stayed_unchanged(key, since, self.find_version(guard, key)?) {
                return Ok(Some(nth));
            }
        }
        Ok(None)
    }

    /// Commits a single key, which needs no descriptor.
    fn commit_one(&self, step: &BatchStep<'_>) -> Result<(), AbortReason> {
        let guard = self.pool().try_pin()?;
        loop {
            let seen = self.wait_unclaimed_word(&guard, step.key)?;
            let live = self.expect(&guard, seen, step.expectation())?;
            let done = match (step.what, seen) {
                (None, _) | (Some(WriteKind::Remove), None) => true,
                (Some(WriteKind::Remove), Some(word)) => self.unlink(&guard, step.key, word)?,
                (Some(WriteKind::Put { value, expires_at }), _) => {
                    self.replace(&guard, seen, &Draft::single(step.key, Source::Bytes(value), expires_at))?
                }
                (Some(WriteKind::Expire(at)), _) => match live {
                    Some(record) => {
                        self.replace(&guard, seen, &Draft::single(step.key, Source::of(&record), at))?
                    }
                    None => true,
                },
            };
            if done {
                return Ok(());
            }
        }
    }

    /// The record that readers see at `word`, if it meets the expectation. (A damaged record may be
    /// replaced unless something is expected of it.)
    pub(crate) fn expect<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        word: Option<u64>,
        expected: Option<(usize, Version)>,
    ) -> Result<Option<Record<'g>>, AbortReason> {
        let live = match word {
            Some(word) => self.live_record(guard, word),
            None => Ok(None),
        };
        match (live, expected) {
            (Ok(live), Some((nth, version))) if live.map(|record| record.token()) != version.token => {
                Err(AbortReason::Changed(nth))
            }
            (Ok(live), _) => Ok(live),
            (Err(_), None) => Ok(None),
            (Err(error), Some(_)) => Err(error.into()),
        }
    }

    /// Commits as a batch. Calls `is_certain` once the batch can no longer fail and no reader has
    /// seen it.
    pub(crate) fn commit_many(
        &self,
        steps: &[BatchStep<'_>],
        mut is_certain: impl FnMut(&RunningBatch<'_, '_, M>),
    ) -> Result<(), AbortReason> {
        loop {
            match self.try_commit_many(steps, &mut is_certain) {
                Err(AbortReason::Moved) => {}
                done => return done,
            }
        }
    }

    fn try_commit_many(
        &self,
        steps: &[BatchStep<'_>],
        mut is_certain: impl FnMut(&RunningBatch<'_, '_, M>),
    ) -> Result<(), AbortReason> {
        let guard = self.pool().try_pin()?;
        let mut running = self.prepare(&guard, steps)?;
        let lock = Lock::of(self.root.lock()).acquire(&guard);
        self.finish_orphan_batch_locked();
        let published = running.publish();
        match published {
            Ok(()) => {
                is_certain(&running);
                running.commit();
            }
            Err(_) => running.abort(),
        }
        lock.release();
        if published.is_ok() {
            running.changed_steps().for_each(|step| self.pool().notify_watches(step.key));
        }
        let remains = running.remains();
        // A concurrent collection frees blocks that are neither linked nor retired, unless the
        // thread that holds them is pinned all the while.
        let _pinned = self.pool().is_shared().then_some(guard);
        self.retire_blocks(&remains);
        published
    }

    /// Calls `each` with the word of every key in `steps`, all as they were at one instant. Writers
    /// wait meanwhile.
    pub(crate) fn with_writers_stopped(
        &self,
        guard: &Guard<'_, M>,
        steps: &[BatchStep<'_>],
        mut each: impl FnMut(usize, Option<u64>),
    ) -> Result<(), WriteError> {
        self.check_writable()?;
        let mut running = self.prepare(guard, steps).map_err(failed)?;
        let lock = Lock::of(self.root.lock()).acquire(guard);
        self.finish_orphan_batch_locked();
        let published = running.publish();
        if published.is_ok() {
            running.old_records.iter().enumerate().for_each(|(index, &old)| each(index, old));
        }
        running.abort();
        lock.release();
        self.retire_blocks(&running.remains());
        published.map_err(failed)
    }

    /// Stages a batch. No other thread sees it.
    pub(crate) fn prepare<'s, 'g>(
        &'s self,
        guard: &'g Guard<'g, M>,
        steps: &'s [BatchStep<'s>],
    ) -> Result<RunningBatch<'s, 'g, M>, AbortReason> {
        let block = Descriptor::alloc(guard, steps.len())?;
        let descriptor = Descriptor::init(guard, block, steps.len());
        let mut new_records: Vec<New> = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let batch = Descriptor::<M>::batch_word(descriptor.offset(), index);
            match self.stage_step(guard, step, batch) {
                Ok(staged) => new_records.push(staged.into_new()),
                Err(reason) => {
                    let staged = new_records.iter().flat_map(New::blocks);
                    let all = staged.chain([(descriptor.offset(), descriptor.size())]);
                    all.for_each(|(offset, size)| guard.free(offset, size));
                    return Err(reason);
                }
            }
            descriptor.set_new(index, new_records[index].offset);
        }
        let (old_records, replaced) = (Vec::with_capacity(steps.len()), Replaced::with_room_for(steps.len()));
        Ok(RunningBatch {
            engine: self,
            guard,
            steps,
            descriptor,
            new_records,
            old_records,
            replaced,
            published: 0,
            finished: true,
        })
    }

    fn stage_step<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        step: &BatchStep<'_>,
        batch: u64,
    ) -> Result<Staged<'g, M>, AbortReason> {
        let none = Source::Bytes(&[]);
        let (role, value, expires_at) = match step.what {
            None => (Role::Keep, none, None),
            Some(WriteKind::Remove) => (Role::Tombstone, none, None),
            Some(WriteKind::Put { value, expires_at }) => (Role::Put, Source::Bytes(value), expires_at),
            Some(WriteKind::Expire(at)) => {
                match self.expect(guard, self.index.get(guard, step.key), step.expectation())? {
                    // The expectation ensures that the record still has its extent when the new one
                    // is published.
                    Some(record) if step.expected.is_some() => (Role::Put, Source::of(&record), at),
                    _ => (Role::Keep, none, None),
                }
            }
        };
        let used = match role {
            Role::Put => self.use_of_new_key(guard, step.key),
            _ => None,
        };
        Ok(self.stage(guard, &Draft { key: step.key, value, expires_at, role, batch, used })?)
    }
}

/// The error of a batch without expectations.
fn failed(reason: AbortReason) -> WriteError {
    match reason {
        AbortReason::Failed(error) => error,
        AbortReason::Changed(_) | AbortReason::Moved => unreachable!("nothing is expected"),
    }
}

#[cfg(test)]
#[path = "tests/commit.rs"]
mod tests;
