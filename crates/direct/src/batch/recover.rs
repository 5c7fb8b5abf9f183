//! Recovery: finishes the batch that a crash interrupted, at the next open or after a process died
//! while others run. All other recovery of the engine takes constant time.

use crate::batch::claim::Claims;
use crate::batch::descriptor::{Descriptor, Status};
use crate::record::format::Role;
use crate::record::view::Record;
use std::sync::atomic::Ordering::Release;
use terrace_engine::OpenError;
use terrace_index::{ChangeError, Deferred, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock};

impl<M: MappedMedium> Claims<M> {
    /// Recovers what dead processes of this store held: see
    /// [`Pool::recover_dead`](terrace_pool::Pool::recover_dead). Returns the number of dead
    /// processes.
    pub(crate) fn recover_dead(&self) -> u32 {
        let dead = self.pool().recover_dead();
        if self.records.check_writable().is_ok() && self.records.root.active() != 0 {
            self.finish_orphan_batch(&self.pool().pin());
            // The thread may be one that does nothing else: what it retired would wait for ever.
            self.pool().reclaim_nonblocking();
        }
        dead
    }

    /// Finishes the batch of a thread that died, if there is one. Does not wait.
    #[cold]
    pub(crate) fn finish_orphan_batch(&self, guard: &Guard<'_, M>) {
        let lock = Lock::of(self.records.root.lock());
        match lock.try_acquire(guard) {
            Some(locked) => {
                // Without a batch: the thread that finished it may have died before its fence.
                match self.finish_orphan_batch_locked() {
                    true => locked.release(),
                    false => locked.release_unchanged(),
                }
            }
            None => lock.recover_if_dead(guard),
        }
    }

    /// As `finish_orphan_batch`, for a caller that holds the lock of batches: a batch that runs now
    /// has no owner. Returns whether there was one.
    #[inline(always)]
    pub(crate) fn finish_orphan_batch_locked(&self) -> bool {
        if self.records.root.active() == 0 {
            return false;
        }
        match self.finish_batch() {
            // No root reaches its blocks from now on.
            Ok(_) => self.pool().request_collection(),
            Err(error) => {
                self.records
                    .disable_writes(&format!("the batch of a dead process cannot be finished: {error}"));
            }
        }
        true
    }

    /// Finishes the running batch: finalizes it if it was committed, else aborts it. Returns
    /// whether it was committed, or `None` if there was no batch. No other thread may work on the
    /// batch. Its blocks are left to the collector.
    ///
    /// The begin or the end of the batch may not be durable yet. A batch whose begin is lost has
    /// not changed anything. Until another batch begins, the lock of batches is marked unfenced: it
    /// tells writers and the collector, which would reuse the batch's blocks, that its end may be
    /// lost.
    pub(crate) fn finish_batch(&self) -> Result<Option<bool>, OpenError> {
        let at = self.records.root.active();
        if at == 0 {
            return Ok(None);
        }
        let guard = self.pool().pin();
        let damaged = |what| OpenError::Damaged { offset: at, what };
        let descriptor = Descriptor::find(self.pool().region(), at);
        let descriptor = descriptor.ok_or(damaged("the descriptor of the interrupted batch"))?;
        let status = descriptor.status().ok_or(damaged("the status of the interrupted batch"))?;
        // PERSIST: before anything is finalized by it. The thread that set the status may have been
        // killed before it was durable; a loss of power would then find some keys finalized and the
        // batch open again.
        descriptor.persist_status();
        let sound = |offset| {
            let record = Record::at(&guard, offset).and_then(|record| record.verify().map(|()| record));
            let what = "a record of the interrupted batch";
            record.map_err(|_| OpenError::Damaged { offset, what })
        };
        for (new, old) in (0..descriptor.count()).map(|index| descriptor.entry(index)) {
            let is_there = self.records.index.get(&guard, sound(new)?.body.key) == Some(new);
            // An old record that is in its slot, or was replaced there since, is not checked.
            if let Some(old) = old.filter(|_| is_there && status != Status::Committed) {
                sound(old)?;
            }
        }
        self.finalize_entries(&guard, &descriptor, status);
        self.records.root.set_active(0);
        Ok(Some(status == Status::Committed))
    }
}

impl<M: MappedMedium> Claims<M> {
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
            let _: Result<Swapped, ChangeError> = self.records.index.compare_and_swap_deferred(
                guard,
                record.body.key,
                Some(new),
                becomes,
                &mut deferred,
            );
        }
        // PERSIST: (5) before the root names no batch.
        self.pool().region().fence();
        self.records.index.persist_deferred(guard, deferred);
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

#[cfg(test)]
#[path = "tests/recover.rs"]
mod tests;
