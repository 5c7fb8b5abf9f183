//! A batch on its way: published, committed or taken back, settled. See `batch.rs` for the steps and the argument.

use super::counters::Change;
use super::descriptor::{Descriptor, Status};
use super::plan::{Step, Trouble};
use super::record::Role;
use super::scan::REMOVALS;
use super::stage::{Block, New, blocks_of};
use super::store::Direct;
use super::view::Record;
use crate::engine::What;
use std::ops::Range;
use std::sync::atomic::Ordering::Release;
use terrace_index::{Deferred, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PoolFull};

/// Steps that are published together: they share their fences.
pub(super) const TOGETHER: usize = 64;

/// A batch on its way.
pub(super) struct Flight<'s, 'g, M: MappedMedium> {
    pub(super) engine: &'s Direct<M>,
    pub(super) guard: &'g Guard<'g, M>,
    pub(super) steps: &'s [Step<'s>],
    pub(super) descriptor: Descriptor<'g, M>,
    pub(super) news: Vec<New>,
    pub(super) olds: Vec<Option<u64>>,
    pub(super) replaced: Replaced,
    /// So many steps have their new record in its slot.
    pub(super) published: usize,
    /// Whether it is not announced, or has ended.
    pub(super) landed: bool,
}

/// What the published records replace, noted while it is in the cache. It takes effect once the
/// batch is committed.
pub(super) struct Replaced {
    /// Blocks that go.
    blocks: Vec<Block>,
    change: Change,
}

impl Replaced {
    pub(super) fn with_room_for(steps: usize) -> Self {
        // One for the descriptor.
        Self { blocks: Vec::with_capacity(steps + 1), change: Change::default() }
    }

    fn note(&mut self, new: &New, old: Option<&Record<'_>>) {
        let mut give_back = |block| self.blocks.push(block);
        let successor = match new.shape().role {
            Role::Single | Role::Put => Some(new.facts()),
            Role::Tombstone => None,
            Role::Keep | Role::Stray => return new.blocks().for_each(give_back),
        };
        self.change.add(old.map(Record::facts), successor);
        old.into_iter().for_each(|old| blocks_of(old, successor).for_each(&mut give_back));
        if successor.is_none() {
            new.blocks().for_each(give_back);
        }
    }
}

impl<M: MappedMedium> Flight<'_, '_, M> {
    /// Under the lock: announces the batch, and puts the new records into the slots by pieces.
    /// The old records of a piece are noted before.
    pub(super) fn publish(&mut self) -> Result<(), Trouble> {
        let engine = self.engine;
        engine.is_running()?;
        let first = 0..self.steps.len().min(engine.piece);
        self.note_olds(first.clone());
        self.descriptor.write_back();
        // PERSIST: (1) records, descriptor and the first old records, before the root names them.
        engine.pool().region().fence();
        self.landed = false;
        // PERSIST: (2) from here on a crash finds the batch.
        engine.root.set_active(self.descriptor.offset());
        self.publish_piece(first)?;
        self.publish_rest()
    }

    fn publish_rest(&mut self) -> Result<(), Trouble> {
        let keys = self.engine.piece;
        for from in (keys..self.steps.len()).step_by(keys) {
            let piece = from..self.steps.len().min(from.saturating_add(keys));
            self.note_olds(piece.clone());
            self.descriptor.write_back_entries(piece.clone());
            // PERSIST: the old records, before the slots name the new ones, so that a crash in
            // between finds the way back. Until then no slot names a record of this piece, and the
            // entries' words for the old ones count for nothing.
            self.engine.pool().region().fence();
            self.publish_piece(piece)?;
        }
        Ok(())
    }

    /// Looks the old records up, their memory fetched together: it is still in the caches when the
    /// piece is published.
    fn note_olds(&mut self, piece: Range<usize>) {
        let keys: Vec<&[u8]> = self.steps[piece.clone()].iter().map(|step| step.key).collect();
        self.engine.index.get_many(self.guard, &keys, &mut |_, old| self.olds.push(old));
        piece.for_each(|index| self.descriptor.set_old(index, self.olds[index]));
    }

    fn publish_piece(&mut self, piece: Range<usize>) -> Result<(), Trouble> {
        let mut deferred = Deferred::default();
        let done = piece.into_iter().try_for_each(|index| self.publish_one(index, &mut deferred));
        // PERSIST: (3) all slots, before the commit. Each piece by itself: of a whole large batch
        // many keys share a bucket, and the second key of a bucket waits for a fence of its own.
        self.engine.index.persist_deferred(self.guard, deferred);
        done
    }

    pub(super) fn publish_one(&mut self, index: usize, deferred: &mut Deferred) -> Result<(), Trouble> {
        let (step, new) = (&self.steps[index], &self.news[index]);
        loop {
            let old = self.olds[index];
            if step.expected.is_some() {
                let live = self.engine.expect(self.guard, old, step.expectation())?;
                if takes_over_another(new, live.as_ref()) {
                    return Err(Trouble::Moved);
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
                    self.replaced.note(new, old.as_ref());
                    return self.expect_absence(index);
                }
                Swapped::Found(now) => {
                    self.olds[index] = now;
                    self.descriptor.persist_old(index, now);
                }
            }
        }
    }

    /// Whether a key that is claimed by now was absent all along, if that is expected of it.
    fn expect_absence(&self, index: usize) -> Result<(), Trouble> {
        let step = &self.steps[index];
        match step.expectation().and_then(|(nth, version)| Some((nth, version.absence?))) {
            Some((nth, absence))
                if !self.engine.is_still(self.guard, absence, step.key, self.olds[index]) =>
            {
                Err(Trouble::Changed(nth))
            }
            _ => Ok(()),
        }
    }

    /// Every slot is durable: makes it happen, and settles it.
    pub(super) fn commit(&mut self) {
        for step in self.steps.iter().filter(|step| matches!(step.what, Some(What::Remove))) {
            self.engine.count_removal(step.key);
        }
        self.descriptor.decide(Status::Committed);
        // PERSIST: (4) the commit.
        self.descriptor.persist_status();
        self.engine.settle_entries(self.guard, &self.descriptor, Status::Committed);
        self.land();
    }

    /// Puts the old records back into the slots that have new ones.
    pub(super) fn take_back(&mut self) {
        self.descriptor.decide(Status::Aborted);
        if !self.landed {
            self.engine.settle_entries(self.guard, &self.descriptor, Status::Aborted);
            self.land();
        }
    }

    pub(super) fn land(&mut self) {
        // PERSIST: (6) after `settle_entries` has fenced.
        self.engine.root.set_active(0);
        self.landed = true;
    }

    /// The blocks that are unused now that the batch has ended. Blocks that no other thread has
    /// seen are freed at once.
    pub(super) fn remains(mut self) -> Vec<Block> {
        let mut blocks = if self.descriptor.status() == Some(Status::Committed) {
            self.engine.root.count(self.guard, self.replaced.change);
            std::mem::take(&mut self.replaced.blocks)
        } else {
            let (seen, unseen) = self.news.split_at(self.published);
            unseen.iter().flat_map(New::blocks).for_each(|(offset, size)| self.guard.free(offset, size));
            seen.iter().flat_map(New::blocks).collect()
        };
        blocks.push((self.descriptor.offset(), self.descriptor.size()));
        blocks
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Gives blocks back that were unlinked before, a few a pin: when the pool is full, there may be no memory to note more of them in.
    pub(super) fn retire_blocks(&self, blocks: &[Block]) {
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

/// Whether a new record takes over a value that is not that of `live` any more: it has been moved
/// since the record was staged.
fn takes_over_another(new: &New, live: Option<&Record<'_>>) -> bool {
    new.shared_extent().is_some_and(|extent| live.is_none_or(|live| live.facts().extent != Some(extent)))
}

impl<M: MappedMedium> Drop for Flight<'_, '_, M> {
    fn drop(&mut self) {
        if !self.landed {
            self.engine.stop_writing("a batch was cut off by a failure of this program");
        }
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Brings every slot and record of a decided batch into the state that its status asks for, and fences. Can be done over.
    pub(super) fn settle_entries(
        &self,
        guard: &Guard<'_, M>,
        descriptor: &Descriptor<'_, M>,
        status: Status,
    ) {
        let mut deferred = Deferred::default();
        for index in 0..descriptor.count() {
            let (new, old) = descriptor.entry(index);
            // Records that cannot be read are in no slot under a key that could be looked up.
            let Ok(record) = Record::at(guard, new) else { continue };
            let becomes = match (status, record.shape.role) {
                (Status::Committed, Role::Put | Role::Single) => {
                    self.clear_batch_word(guard, &record);
                    continue;
                }
                (Status::Committed, Role::Tombstone) => None,
                _ => old,
            };
            // Neither takes memory. A slot with another record was settled before.
            let _: Result<Swapped, PoolFull> = self.index.compare_and_swap_deferred(
                guard,
                record.body.key,
                Some(new),
                becomes,
                &mut deferred,
            );
        }
        // PERSIST: (5) before the root forgets the batch.
        self.pool().region().fence();
        self.index.persist_deferred(guard, deferred);
    }

    fn clear_batch_word(&self, guard: &Guard<'_, M>, record: &Record<'_>) {
        let region = guard.pool().region();
        if let Some(word) = record.batch_word().and_then(|at| region.get(at)) {
            // ORDER: Release: who finds the record settled need not ask for the commit, which is durable by now.
            word.store(region.medium().point("batch.finalize"), 0, Release);
            // PERSIST: fenced by the caller.
            region.write_back(word);
        }
    }
}
