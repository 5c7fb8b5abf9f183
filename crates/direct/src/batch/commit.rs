//! Commits: one key directly, several as a batch.

use crate::batch::descriptor::Descriptor;
use crate::batch::flight::{Replaced, RunningBatch, TOGETHER, expect};
use crate::batch::plan::{AbortReason, BatchStep};
use crate::read::get::Reads;
use crate::record::format::Role;
use crate::record::records::Records;
use crate::record::stage::{Draft, New, Source, Staged};
use crate::slot::Slots;
use terrace_engine::{Expected, WriteKind};
use terrace_engine::{ReadError, Version, WriteError};
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Guard, Lock, Pool};

/// Batches of a store. It owns the slots, on which it stands, and how many keys are published
/// together. A batch takes no more than one try: writes, above it, make room and try again.
pub(crate) struct Batches<M: MappedMedium> {
    pub(crate) slots: Slots<M>,
    /// Keys of a batch that are published together.
    pub(crate) piece: usize,
}

impl<M: MappedMedium> Batches<M> {
    pub(crate) fn new(slots: Slots<M>) -> Self {
        Self { slots, piece: TOGETHER }
    }

    #[inline(always)]
    pub(crate) fn reads(&self) -> &Reads<M> {
        &self.slots.reads
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &Records<M> {
        self.slots.records()
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        self.records().pool()
    }

    /// Checks a commit that writes nothing. A key that still has its entry had it at every instant
    /// of this call; so has a key that was absent and has been absent all along. For an expectation
    /// of mere absence, no earlier state is known: such a key is read twice, and all other keys
    /// after its first read. So everything was as expected between the two.
    pub(crate) fn confirm(&self, expected: &[Expected<'_>]) -> Result<(), AbortReason> {
        let guard = self.pool().try_pin()?;
        let mut backoff = Backoff::new();
        loop {
            let mut since = Vec::with_capacity(expected.len());
            for (nth, &(key, version)) in expected.iter().enumerate() {
                let is_known = version.token.is_some() || version.absence.is_some();
                let seen = if is_known { version } else { self.reads().find_version(&guard, key)? };
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
            if !self.reads().has_stayed_unchanged(key, since, self.reads().find_version(guard, key)?) {
                return Ok(Some(nth));
            }
        }
        Ok(None)
    }

    /// Commits a single key, which needs no descriptor.
    pub(crate) fn commit_one(&self, step: &BatchStep<'_>) -> Result<(), AbortReason> {
        let guard = self.pool().try_pin()?;
        loop {
            let seen = self.slots.claims().wait_unclaimed_word(&guard, step.key)?;
            let live = expect(self.reads(), &guard, seen, step.expectation())?;
            let done = match (step.what, seen) {
                (None, _) | (Some(WriteKind::Remove), None) => true,
                (Some(WriteKind::Remove), Some(word)) => self.slots.unlink(&guard, step.key, word)?,
                (Some(WriteKind::Put { value, expires_at }), _) => self.slots.replace(
                    &guard,
                    seen,
                    &Draft::single(step.key, Source::Bytes(value), expires_at),
                )?,
                (Some(WriteKind::Expire(at)), _) => match live {
                    Some(record) => {
                        self.slots.replace(&guard, seen, &Draft::single(step.key, Source::of(&record), at))?
                    }
                    None => true,
                },
            };
            if done {
                return Ok(());
            }
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
        let lock = Lock::of(self.records().root.lock()).acquire(&guard);
        self.slots.claims().finish_orphan_batch_locked();
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
        self.records().retire_blocks(&remains);
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
        self.records().check_writable()?;
        let mut running = self.prepare(guard, steps).map_err(failed)?;
        let lock = Lock::of(self.records().root.lock()).acquire(guard);
        self.slots.claims().finish_orphan_batch_locked();
        let published = running.publish();
        if published.is_ok() {
            running.old_records.iter().enumerate().for_each(|(index, &old)| each(index, old));
        }
        running.abort();
        lock.release();
        self.records().retire_blocks(&running.remains());
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
            reads: self.reads(),
            piece: self.piece,
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
                match expect(
                    self.reads(),
                    guard,
                    self.records().index.get(guard, step.key),
                    step.expectation(),
                )? {
                    // The expectation ensures that the record still has its extent when the new one
                    // is published.
                    Some(record) if step.expected.is_some() => (Role::Put, Source::of(&record), at),
                    _ => (Role::Keep, none, None),
                }
            }
        };
        let used = match role {
            Role::Put => self.reads().use_of_new_key(guard, step.key),
            _ => None,
        };
        Ok(self.records().stage(guard, &Draft { key: step.key, value, expires_at, role, batch, used })?)
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
