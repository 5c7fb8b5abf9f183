//! Recovery: finishes the batch that a crash interrupted, at the next open or after a process died
//! while others run. All other recovery of the engine takes constant time.

use crate::batch::descriptor::{Descriptor, Status};
use crate::engine::Direct;
use crate::record::view::Record;
use terrace_engine::OpenError;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock};

impl<M: MappedMedium> Direct<M> {
    /// Recovers what dead processes of this store held: see
    /// [`Pool::recover_dead`](terrace_pool::Pool::recover_dead). Returns the number of dead
    /// processes.
    pub(crate) fn recover_dead(&self) -> u32 {
        let dead = self.pool().recover_dead();
        if self.check_writable().is_ok() && self.root.active() != 0 {
            self.finish_orphan_batch(&self.pool().pin());
        }
        dead
    }

    /// Finishes the batch of a thread that died, if there is one. Does not wait.
    #[cold]
    pub(crate) fn finish_orphan_batch(&self, guard: &Guard<'_, M>) {
        let lock = Lock::of(self.root.lock());
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
        if self.root.active() == 0 {
            return false;
        }
        match self.finish_batch() {
            // No root reaches its blocks from now on.
            Ok(_) => self.pool().request_collection(),
            Err(error) => {
                self.disable_writes(&format!("the batch of a dead process cannot be finished: {error}"));
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
        let at = self.root.active();
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
            let is_there = self.index.get(&guard, sound(new)?.body.key) == Some(new);
            // An old record that is in its slot, or was replaced there since, is not checked.
            if let Some(old) = old.filter(|_| is_there && status != Status::Committed) {
                sound(old)?;
            }
        }
        self.finalize_entries(&guard, &descriptor, status);
        self.root.set_active(0);
        Ok(Some(status == Status::Committed))
    }
}

#[cfg(test)]
#[path = "tests/recover.rs"]
mod tests;
