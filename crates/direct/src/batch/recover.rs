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
mod tests {
    use super::*;
    use crate::tests::fixtures::{Store, settings, store};
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_engine::{Commit, Durably, Engine, Write, WriteKind};
    use terrace_medium::Shm;
    use terrace_pool::PoolOptions;

    /// The error when the running batch is finished.
    fn finish_error(store: &Store) -> String {
        store.finish_batch().unwrap_err().to_string()
    }

    #[test]
    fn damaged_batch_is_not_finished() {
        let (store, _) = store();
        assert_eq!(store.finish_batch().unwrap(), None);
        let what = WriteKind::Put { value: b"value", expires_at: None };
        let writes = [b"a", b"b"].map(|key| Write { key, what });
        assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
        let (guard, medium) = (store.pool().pin(), store.pool().medium());
        // A descriptor of one record, "a".
        let block = Descriptor::alloc(&guard, 1).unwrap();
        let descriptor = Descriptor::init(&guard, block, 1);
        let at = descriptor.offset();
        descriptor.set_new(0, store.record_offset(b"a"));
        descriptor.set_old(0, Some(store.record_offset(b"b")));
        store.root.set_active(at);
        store.raw(at).store(medium, 0, Relaxed);
        assert!(finish_error(&store).contains("the descriptor of the interrupted batch"));
        store.raw(at).store(medium, u64::from_le_bytes(*b"batch  1"), Relaxed);
        // More entries than there can be, and more than the pool has room for.
        for count in [1 << 27, 1 << 25] {
            store.raw(at + 16).store(medium, count, Relaxed);
            assert!(finish_error(&store).contains("the descriptor of the interrupted batch"));
        }
        store.raw(at + 16).store(medium, 1, Relaxed);
        store.root.set_active(store.pool().size());
        assert!(finish_error(&store).contains("the descriptor of the interrupted batch"));
        store.root.set_active(at);
        let text = {
            store.raw(at).store(medium, u64::from_le_bytes(*b"batch  1"), Relaxed);
            store.raw(at + 8).store(medium, 4, Relaxed);
            finish_error(&store)
        };
        assert!(text.contains("the status of the interrupted batch"), "{text}");
        descriptor.set_status(Status::Open);
        // The record that would be restored; not needed if the batch is committed.
        store.damage(store.record_offset(b"b") + 24);
        let text = finish_error(&store);
        assert!(
            text.contains("a record of the interrupted batch")
                && text.contains(&format!("{:#x}", store.record_offset(b"b"))),
            "{text}"
        );
        descriptor.set_status(Status::Committed);
        assert_eq!(store.finish_batch().unwrap(), Some(true));
        assert_eq!(store.root.active(), 0);
        // The new record.
        store.root.set_active(at);
        store.damage(store.record_offset(b"a") + 24);
        assert!(finish_error(&store).contains(&format!("{:#x}", store.record_offset(b"a"))));
        assert_eq!(store.root.active(), at, "the batch stays for inspection");
    }

    #[test]
    fn unfinishable_batch_disables_writes() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
        let store = crate::tests::fixtures::open::<Shm>(options.create().unwrap(), settings()).unwrap();
        store
            .put(terrace_engine::Put { key: b"a", value: b"value", expires_at: None }, Durably::Store)
            .unwrap();
        assert_eq!(store.recover_dead(), 0);
        store
            .put(terrace_engine::Put { key: b"a", value: b"new", expires_at: None }, Durably::Store)
            .unwrap();
        // No descriptor lies there, and no thread works on it.
        store.root.set_active(64);
        assert_eq!(store.recover_dead(), 0);
        let error = store
            .put(terrace_engine::Put { key: b"a", value: b"later", expires_at: None }, Durably::Store)
            .unwrap_err();
        assert!(error.to_string().contains("the batch of a dead process cannot be finished"), "{error}");
        assert_eq!(store.get(b"a").unwrap().unwrap(), b"new");
        // After the first failure, writes are disabled and no batch is finished any more.
        let guard = store.pool().pin();
        let block = Descriptor::alloc(&guard, 0).unwrap();
        let descriptor = Descriptor::init(&guard, block, 0).offset();
        store.root.set_active(descriptor);
        assert_eq!((store.recover_dead(), store.root.active()), (0, descriptor));
        store.root.set_active(0);
        assert_eq!(store.recover_dead(), 0);
    }
}
