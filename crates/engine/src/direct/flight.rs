//! A batch on its way: published, committed or taken back, settled. See `batch.rs` for the steps and the argument.

use super::descriptor::{Descriptor, Status};
use super::plan::{Step, Trouble};
use super::record::Role;
use super::scan::REMOVALS;
use super::stage::{Block, blocks_of};
use super::store::{Direct, Kind};
use super::view::Record;
use crate::engine::What;
use std::sync::atomic::Ordering::Release;
use terrace_index::{Deferred, PointIndex, Swapped};
use terrace_medium::Medium;
use terrace_pool::{Guard, PoolFull};

/// A batch on its way.
pub(super) struct Flight<'s, 'g, I: PointIndex<Kind = Kind>> {
    pub(super) engine: &'s Direct<I>,
    pub(super) guard: &'g Guard<'g, I::Medium>,
    pub(super) steps: &'s [Step<'s>],
    pub(super) descriptor: Descriptor<'g, I::Medium>,
    pub(super) news: Vec<u64>,
    pub(super) olds: Vec<Option<u64>>,
    /// So many steps have their new record in its slot.
    pub(super) published: usize,
    /// Whether it is not announced, or has ended.
    pub(super) landed: bool,
}

impl<I: PointIndex<Kind = Kind>> Flight<'_, '_, I> {
    /// Under the lock: notes the old records, announces the batch, and puts the new records into the slots.
    pub(super) fn publish(&mut self) -> Result<(), Trouble> {
        self.engine.is_running()?;
        let (engine, guard) = (self.engine, self.guard);
        self.olds.reserve(self.steps.len());
        engine.index.get_many(guard, self.steps.iter().map(|step| step.key), |_, old| self.olds.push(old));
        self.olds.iter().enumerate().for_each(|(index, &old)| self.descriptor.set_old(index, old));
        self.descriptor.write_back();
        // PERSIST: (1) records and descriptor, before the root names them.
        engine.pool().region().fence();
        self.landed = false;
        // PERSIST: (2) from here on a crash finds the batch.
        engine.root.set_active(self.descriptor.offset());
        let mut deferred = Deferred::default();
        let done = (0..self.steps.len()).try_for_each(|index| self.publish_one(index, &mut deferred));
        // PERSIST: (3) all slots, before the commit.
        engine.index.persist_deferred(guard, deferred);
        done
    }

    pub(super) fn publish_one(&mut self, index: usize, deferred: &mut Deferred) -> Result<(), Trouble> {
        let (step, new) = (&self.steps[index], self.news[index]);
        loop {
            let old = self.olds[index];
            let live = self.engine.expect(self.guard, old, step.expected)?;
            if self.takes_over_another(index, live) {
                return Err(Trouble::Moved);
            }
            match self.engine.index.compare_and_swap_deferred(
                self.guard,
                step.key,
                old,
                Some(new),
                deferred,
            )? {
                Swapped::Done => {
                    self.published += 1;
                    return self.expect_absence(index);
                }
                Swapped::Found(now) => {
                    self.olds[index] = now;
                    self.descriptor.persist_old(index, now);
                }
            }
        }
    }

    /// Whether the new record takes over a value that is not the one of `live` any more: it has
    /// been moved since the record was staged.
    fn takes_over_another(&self, index: usize, live: Option<Record<'_>>) -> bool {
        let extent = |record: &Record<'_>| record.body.outline.map(|outline| outline.extent);
        let is_expiry = matches!(self.steps[index].what, Some(What::Expire(_)));
        let new =
            (is_expiry && live.is_some()).then(|| Record::at(self.guard, self.news[index]).ok()).flatten();
        new.is_some_and(|new| new.shape.role == Role::Put && extent(&new) != live.as_ref().and_then(extent))
    }

    /// Whether a key that is claimed by now was absent all along, if that is expected of it.
    fn expect_absence(&self, index: usize) -> Result<(), Trouble> {
        let step = &self.steps[index];
        match step.expected.and_then(|(nth, version)| Some((nth, version.absence?))) {
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

    /// The blocks that do not count now that the batch has ended. Those that nobody ever saw are freed at once.
    pub(super) fn remains(self) -> Vec<Block> {
        let mut blocks = vec![(self.descriptor.offset(), self.descriptor.size())];
        for (index, &new) in self.news.iter().enumerate() {
            let Ok(record) = Record::at(self.guard, new) else { continue };
            let old = self.olds.get(index).copied().flatten();
            let old = old.and_then(|old| Record::at(self.guard, old).ok());
            // A new expiry takes the value over once it is committed; until then that is its
            // record's, whatever has become of it.
            let takes_over = matches!(self.steps[index].what, Some(What::Expire(_)));
            let shared = takes_over.then(|| record.facts());
            if self.descriptor.status() == Some(Status::Committed) {
                self.remains_of_committed(&record, old.as_ref(), &mut blocks);
            } else if index < self.published {
                blocks.extend(blocks_of(&record, shared));
            } else {
                blocks_of(&record, shared).for_each(|(offset, size)| self.guard.free(offset, size));
            }
        }
        blocks
    }

    fn remains_of_committed(&self, record: &Record<'_>, old: Option<&Record<'_>>, blocks: &mut Vec<Block>) {
        let successor = match record.shape.role {
            Role::Single | Role::Put => Some(record.facts()),
            Role::Tombstone => None,
            Role::Keep => return blocks.extend(blocks_of(record, None)),
        };
        self.engine.root.replaced(self.guard, old.map(Record::facts), successor);
        blocks.extend(old.into_iter().flat_map(|old| blocks_of(old, successor)));
        if successor.is_none() {
            blocks.extend(blocks_of(record, None));
        }
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Gives blocks back that were unlinked before, a few a pin: when the pool is full, there may be no memory to note more of them in.
    pub(super) fn retire_blocks(&self, blocks: &[Block]) {
        let mut blocks = blocks.iter();
        while !blocks.as_slice().is_empty() {
            let guard = self.pool().pin();
            for &(offset, size) in blocks.by_ref().take(REMOVALS) {
                guard.retire(offset, size);
                if guard.is_short_of_notes() {
                    break;
                }
            }
        }
    }
}

impl<I: PointIndex<Kind = Kind>> Drop for Flight<'_, '_, I> {
    fn drop(&mut self) {
        if !self.landed {
            self.engine.stop_writing("a batch was cut off by a failure of this program");
        }
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Brings every slot and record of a decided batch into the state that its status asks for, and fences. Can be done over.
    pub(super) fn settle_entries(
        &self,
        guard: &Guard<'_, I::Medium>,
        descriptor: &Descriptor<'_, I::Medium>,
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

    fn clear_batch_word(&self, guard: &Guard<'_, I::Medium>, record: &Record<'_>) {
        let region = guard.pool().region();
        if let Some(word) = record.batch_word().and_then(|at| region.get(at)) {
            // ORDER: Release: who finds the record settled need not ask for the commit, which is durable by now.
            word.store(region.medium().point("batch.finalize"), 0, Release);
            // PERSIST: fenced by the caller.
            region.write_back(word);
        }
    }
}
