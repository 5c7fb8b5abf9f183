//! A running batch: publish, then commit or abort, then finalize. See `batch` for the steps and
//! why they are correct.

use crate::batch::descriptor::{Descriptor, Status};
use crate::batch::plan::{AbortReason, BatchStep};
use crate::read::get::Reads;
use crate::record::counters::CounterChange;
use crate::record::format::Role;
use crate::record::stage::{Block, New, blocks_of};
use crate::record::view::Record;
use std::ops::Range;
use terrace_engine::{Version, WriteKind};
use terrace_index::{Deferred, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Steps that are published together and share their fences.
pub(crate) const TOGETHER: usize = 64;

/// A running batch.
pub(crate) struct RunningBatch<'s, 'g, M: MappedMedium> {
    pub(crate) reads: &'s Reads<M>,
    /// Keys that are published together.
    pub(crate) piece: usize,
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
        assert!(self.finished && self.published == 0, "a batch is published once");
        let records = self.reads.records();
        records.check_writable()?;
        let first = 0..self.steps.len().min(self.piece);
        self.look_up_old_records(first.clone());
        self.descriptor.write_back();
        // PERSIST: (1) records, descriptor and the first old records, before the root names them.
        records.pool().region().fence();
        self.finished = false;
        // PERSIST: (2) from here on, recovery finds the batch.
        records.root.set_active(self.descriptor.offset());
        self.publish_piece(first)?;
        self.publish_rest()
    }

    fn publish_rest(&mut self) -> Result<(), AbortReason> {
        let keys = self.piece;
        for from in (keys..self.steps.len()).step_by(keys) {
            let piece = from..self.steps.len().min(from.saturating_add(keys));
            self.look_up_old_records(piece.clone());
            self.descriptor.write_back_entries(piece.clone());
            // PERSIST: the old records, before the slots name the new ones, so that recovery can
            // restore them. Until then no slot names a record of this piece, and its entries' old
            // records are not used.
            self.reads.pool().region().fence();
            self.publish_piece(piece)?;
        }
        Ok(())
    }

    /// Looks the old records up; their cache misses overlap, and they are still in the cache when
    /// the piece is published.
    fn look_up_old_records(&mut self, piece: Range<usize>) {
        let keys: Vec<&[u8]> = self.steps[piece.clone()].iter().map(|step| step.key).collect();
        self.reads.records().index.get_many(self.guard, &keys, &mut |_, old| self.old_records.push(old));
        piece.for_each(|index| self.descriptor.set_old(index, self.old_records[index]));
    }

    fn publish_piece(&mut self, piece: Range<usize>) -> Result<(), AbortReason> {
        let mut deferred = Deferred::default();
        let done = piece.into_iter().try_for_each(|index| self.publish_one(index, &mut deferred));
        // PERSIST: (3) all slots, before the commit. Per piece: in a large batch many keys share a
        // bucket, and the second key of a bucket waits for a fence of its own.
        self.reads.records().index.persist_deferred(self.guard, deferred);
        done
    }

    pub(crate) fn publish_one(&mut self, index: usize, deferred: &mut Deferred) -> Result<(), AbortReason> {
        let (step, new) = (&self.steps[index], &self.new_records[index]);
        loop {
            let old = self.old_records[index];
            if step.expected.is_some() {
                let live = expect(self.reads, self.guard, old, step.expectation())?;
                if takes_over_moved_value(new, live.as_ref()) {
                    return Err(AbortReason::Moved);
                }
            }
            match self.reads.records().index.compare_and_swap_deferred(
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
                if !self.reads.has_stayed_absent(self.guard, absence, step.key, self.old_records[index]) =>
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
        assert_eq!(self.published, self.steps.len(), "a batch is committed once all of it is published");
        let changed = self.changed_steps().filter(|step| matches!(step.what, Some(WriteKind::Remove)));
        changed.for_each(|step| self.reads.records().root.count_removal(step.key));
        self.descriptor.set_status(Status::Committed);
        // PERSIST: (4) the commit.
        self.descriptor.persist_status();
        self.reads.claims.finalize_entries(self.guard, &self.descriptor, Status::Committed);
        self.finish();
    }

    /// Aborts the batch: puts the old records back into the slots that have new ones.
    pub(crate) fn abort(&mut self) {
        self.descriptor.set_status(Status::Aborted);
        if !self.finished {
            self.reads.claims.finalize_entries(self.guard, &self.descriptor, Status::Aborted);
            self.finish();
        }
    }

    pub(crate) fn finish(&mut self) {
        // PERSIST: (6) after `finalize_entries` has fenced.
        self.reads.records().root.set_active(0);
        self.finished = true;
    }

    /// The blocks that are unused now that the batch has finished. Frees blocks that no other
    /// thread has seen at once.
    pub(crate) fn remains(mut self) -> Vec<Block> {
        assert!(self.finished, "the blocks of a running batch are in use");
        let mut blocks = if self.descriptor.status() == Some(Status::Committed) {
            self.reads.records().root.count(self.guard, self.replaced.change);
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

/// The record that readers see at `word`, if it meets the expectation. (A damaged record may be
/// replaced unless something is expected of it.)
pub(crate) fn expect<'g, M: MappedMedium>(
    reads: &Reads<M>,
    guard: &'g Guard<'_, M>,
    word: Option<u64>,
    expected: Option<(usize, Version)>,
) -> Result<Option<Record<'g>>, AbortReason> {
    let live = match word {
        Some(word) => reads.live_record(guard, word),
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

/// Whether a new record takes over a value that is no longer that of `live`: it has been moved
/// since the record was staged.
fn takes_over_moved_value(new: &New, live: Option<&Record<'_>>) -> bool {
    new.shared_extent().is_some_and(|extent| live.is_none_or(|live| live.facts().extent != Some(extent)))
}

impl<M: MappedMedium> Drop for RunningBatch<'_, '_, M> {
    fn drop(&mut self) {
        if !self.finished {
            self.reads.records().disable_writes("a batch was interrupted by a failure of this program");
        }
    }
}
