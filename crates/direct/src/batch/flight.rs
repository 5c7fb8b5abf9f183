//! A running batch: publish, then commit or abort, then finalize. See `batch` for the steps and
//! why they are correct.

use crate::batch::descriptor::{Descriptor, Status};
use crate::batch::plan::{AbortReason, BatchStep};
use crate::engine::Direct;
use crate::read::scan::REMOVALS;
use crate::record::counters::CounterChange;
use crate::record::format::Role;
use crate::record::stage::{Block, New, blocks_of};
use crate::record::view::Record;
use std::ops::Range;
use std::sync::atomic::Ordering::Release;
use terrace_engine::WriteKind;
use terrace_index::{ChangeError, Deferred, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Steps that are published together and share their fences.
pub(crate) const TOGETHER: usize = 64;

/// A running batch.
pub(crate) struct RunningBatch<'s, 'g, M: MappedMedium> {
    pub(crate) engine: &'s Direct<M>,
    pub(crate) guard: &'g Guard<'g, M>,
    pub(crate) steps: &'s [BatchStep<'s>],
    pub(crate) descriptor: Descriptor<'g, M>,
    pub(crate) new_records: Vec<New>,
    pub(crate) old_records: Vec<Option<u64>>,
    pub(crate) replaced: Replaced,
    /// Number of steps whose new record is in its slot.
    pub(crate) published: usize,
    /// Whether it is not announced yet, or has finished.
    pub(crate) finished: bool,
}

/// The records that the published records replace, collected while they are in the cache. Applied
/// once the batch is committed.
pub(crate) struct Replaced {
    /// Blocks to retire.
    blocks: Vec<Block>,
    change: CounterChange,
}

impl Replaced {
    pub(crate) fn with_room_for(steps: usize) -> Self {
        // One more for the descriptor.
        Self { blocks: Vec::with_capacity(steps + 1), change: CounterChange::default() }
    }

    fn add(&mut self, new: &New, old: Option<&Record<'_>>) {
        let mut add_block = |block| self.blocks.push(block);
        let successor = match new.shape().role {
            Role::Single | Role::Put => Some(new.facts()),
            Role::Tombstone => None,
            Role::Keep | Role::Stray => return new.blocks().for_each(add_block),
        };
        self.change.add(old.map(Record::facts), successor);
        old.into_iter().for_each(|old| blocks_of(old, successor).for_each(&mut add_block));
        if successor.is_none() {
            new.blocks().for_each(add_block);
        }
    }
}

impl<M: MappedMedium> RunningBatch<'_, '_, M> {
    /// Announces the batch and puts the new records into the slots, piece by piece; records the old
    /// records of a piece before. The caller holds the lock of batches.
    pub(crate) fn publish(&mut self) -> Result<(), AbortReason> {
        let engine = self.engine;
        engine.check_writable()?;
        let first = 0..self.steps.len().min(engine.piece);
        self.look_up_old_records(first.clone());
        self.descriptor.write_back();
        // PERSIST: (1) records, descriptor and the first old records, before the root names them.
        engine.pool().region().fence();
        self.finished = false;
        // PERSIST: (2) from here on, recovery finds the batch.
        engine.root.set_active(self.descriptor.offset());
        self.publish_piece(first)?;
        self.publish_rest()
    }

    fn publish_rest(&mut self) -> Result<(), AbortReason> {
        let keys = self.engine.piece;
        for from in (keys..self.steps.len()).step_by(keys) {
            let piece = from..self.steps.len().min(from.saturating_add(keys));
            self.look_up_old_records(piece.clone());
            self.descriptor.write_back_entries(piece.clone());
            // PERSIST: the old records, before the slots name the new ones, so that recovery can
            // restore them. Until then no slot names a record of this piece, and its entries' old
            // records are not used.
            self.engine.pool().region().fence();
            self.publish_piece(piece)?;
        }
        Ok(())
    }

    /// Looks the old records up; their cache misses overlap, and they are still in the cache when
    /// the piece is published.
    fn look_up_old_records(&mut self, piece: Range<usize>) {
        let keys: Vec<&[u8]> = self.steps[piece.clone()].iter().map(|step| step.key).collect();
        self.engine.index.get_many(self.guard, &keys, &mut |_, old| self.old_records.push(old));
        piece.for_each(|index| self.descriptor.set_old(index, self.old_records[index]));
    }

    fn publish_piece(&mut self, piece: Range<usize>) -> Result<(), AbortReason> {
        let mut deferred = Deferred::default();
        let done = piece.into_iter().try_for_each(|index| self.publish_one(index, &mut deferred));
        // PERSIST: (3) all slots, before the commit. Per piece: in a large batch many keys share a
        // bucket, and the second key of a bucket waits for a fence of its own.
        self.engine.index.persist_deferred(self.guard, deferred);
        done
    }

    pub(crate) fn publish_one(&mut self, index: usize, deferred: &mut Deferred) -> Result<(), AbortReason> {
        let (step, new) = (&self.steps[index], &self.new_records[index]);
        loop {
            let old = self.old_records[index];
            if step.expected.is_some() {
                let live = self.engine.expect(self.guard, old, step.expectation())?;
                if takes_over_moved_value(new, live.as_ref()) {
                    return Err(AbortReason::Moved);
                }
            }
            match self.engine.index.compare_and_swap_deferred(
                self.guard,
                step.key,
                old,
                Some(new.offset),
                deferred,
            )? {
                Swapped::Done => {
                    self.published += 1;
                    let old = old.and_then(|old| Record::at(self.guard, old).ok());
                    self.replaced.add(new, old.as_ref());
                    return self.expect_absence(index);
                }
                Swapped::Found(now) => {
                    self.old_records[index] = now;
                    self.descriptor.persist_old(index, now);
                }
            }
        }
    }

    /// Checks that a key, now claimed, was absent all along, if the step expects it.
    fn expect_absence(&self, index: usize) -> Result<(), AbortReason> {
        let step = &self.steps[index];
        match step.expectation().and_then(|(nth, version)| Some((nth, version.absence?))) {
            Some((nth, absence))
                if !self.engine.has_stayed_absent(self.guard, absence, step.key, self.old_records[index]) =>
            {
                Err(AbortReason::Changed(nth))
            }
            _ => Ok(()),
        }
    }

    /// The steps that change something, once all are published: neither the removal nor the expiry
    /// of an absent key does.
    pub(crate) fn changed_steps(&self) -> impl Iterator<Item = &BatchStep<'_>> {
        let states = self.steps.iter().zip(&self.old_records);
        states.filter_map(|(step, old)| match step.what {
            None => None,
            Some(WriteKind::Put { .. }) => Some(step),
            Some(WriteKind::Remove | WriteKind::Expire(_)) => old.map(|_| step),
        })
    }

    /// Commits and finalizes the batch. Every slot is durable.
    pub(crate) fn commit(&mut self) {
        let changed = self.changed_steps().filter(|step| matches!(step.what, Some(WriteKind::Remove)));
        changed.for_each(|step| self.engine.count_removal(step.key));
        self.descriptor.set_status(Status::Committed);
        // PERSIST: (4) the commit.
        self.descriptor.persist_status();
        self.engine.finalize_entries(self.guard, &self.descriptor, Status::Committed);
        self.finish();
    }

    /// Aborts the batch: puts the old records back into the slots that have new ones.
    pub(crate) fn abort(&mut self) {
        self.descriptor.set_status(Status::Aborted);
        if !self.finished {
            self.engine.finalize_entries(self.guard, &self.descriptor, Status::Aborted);
            self.finish();
        }
    }

    pub(crate) fn finish(&mut self) {
        // PERSIST: (6) after `finalize_entries` has fenced.
        self.engine.root.set_active(0);
        self.finished = true;
    }

    /// The blocks that are unused now that the batch has finished. Frees blocks that no other
    /// thread has seen at once.
    pub(crate) fn remains(mut self) -> Vec<Block> {
        let mut blocks = if self.descriptor.status() == Some(Status::Committed) {
            self.engine.root.count(self.guard, self.replaced.change);
            std::mem::take(&mut self.replaced.blocks)
        } else {
            let (seen, unseen) = self.new_records.split_at(self.published);
            unseen.iter().flat_map(New::blocks).for_each(|(offset, size)| self.guard.free(offset, size));
            seen.iter().flat_map(New::blocks).collect()
        };
        blocks.push((self.descriptor.offset(), self.descriptor.size()));
        blocks
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Retires unlinked blocks, a few per pin: when the pool is full, there may be no memory to
    /// record more of them in limbo.
    pub(crate) fn retire_blocks(&self, blocks: &[Block]) {
        let mut blocks = blocks.iter();
        while !blocks.as_slice().is_empty() {
            let guard = self.pool().pin();
            for &(offset, size) in blocks.by_ref().take(REMOVALS) {
                guard.retire(offset, size);
                if guard.is_limbo_full() {
                    break;
                }
            }
        }
    }
}

/// Whether a new record takes over a value that is no longer that of `live`: it has been moved
/// since the record was staged.
fn takes_over_moved_value(new: &New, live: Option<&Record<'_>>) -> bool {
    new.shared_extent().is_some_and(|extent| live.is_none_or(|live| live.facts().extent != Some(extent)))
}

impl<M: MappedMedium> Drop for RunningBatch<'_, '_, M> {
    fn drop(&mut self) {
        if !self.finished {
            self.engine.disable_writes("a batch was interrupted by a failure of this program");
        }
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Brings every slot and record of a decided batch into the state that `status` requires, and
    /// fences. Idempotent.
    pub(crate) fn finalize_entries(
        &self,
        guard: &Guard<'_, M>,
        descriptor: &Descriptor<'_, M>,
        status: Status,
    ) {
        let mut deferred = Deferred::default();
        for index in 0..descriptor.count() {
            let (new, old) = descriptor.entry(index);
            // A record that cannot be read is in no slot under a key that can be looked up.
            let Ok(record) = Record::at(guard, new) else { continue };
            let becomes = match (status, record.shape.role) {
                (Status::Committed, Role::Put | Role::Single) => {
                    self.clear_batch_word(guard, &record);
                    continue;
                }
                (Status::Committed, Role::Tombstone) => None,
                _ => old,
            };
            // Neither takes memory. A slot with another record was finalized before; a slot that
            // damage hides is reported by the reads that meet it.
            let _: Result<Swapped, ChangeError> = self.index.compare_and_swap_deferred(
                guard,
                record.body.key,
                Some(new),
                becomes,
                &mut deferred,
            );
        }
        // PERSIST: (5) before the root names no batch.
        self.pool().region().fence();
        self.index.persist_deferred(guard, deferred);
    }

    fn clear_batch_word(&self, guard: &Guard<'_, M>, record: &Record<'_>) {
        let region = guard.pool().region();
        if let Some(word) = record.batch_word().and_then(|at| region.get(at)) {
            // ORDER: Release: a thread that finds the record finalized need not read the status,
            // which is durable by now.
            word.store(region.medium().point("batch.finalize"), 0, Release);
            // PERSIST: fenced by the caller.
            region.write_back(word);
        }
    }
}
