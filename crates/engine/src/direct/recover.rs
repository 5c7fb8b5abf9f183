//! After a crash: ends the batch that it cut off. Constant time but for that. And beside others: ends the batch of one that died.

use super::descriptor::{Descriptor, Status};
use super::store::Direct;
use super::view::Record;
use crate::OpenError;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock};

impl<M: MappedMedium> Direct<M> {
    /// Takes over what other processes with this store have left that died: see [`Pool::recover_dead`](terrace_pool::Pool::recover_dead). Returns how many there were.
    pub(super) fn take_over(&self) -> u32 {
        let dead = self.pool().recover_dead();
        if self.is_running().is_ok() && self.root.active() != 0 {
            self.end_orphan(&self.pool().pin());
        }
        dead
    }

    /// If the thread that was at a batch died over it, ends the batch. Does not wait.
    #[cold]
    pub(super) fn end_orphan(&self, guard: &Guard<'_, M>) {
        let lock = Lock::of(self.root.lock());
        match lock.try_acquire(guard) {
            Some(locked) => {
                // Without a batch: whoever ended it died before its fence, perhaps.
                match self.end_orphan_locked() {
                    true => locked.release(),
                    false => locked.release_unchanged(),
                }
            }
            None => lock.recover_if_dead(guard),
        }
    }

    /// As `end_orphan`, for who has the lock of batches: a batch that is under way now is nobody's. Whether there was one.
    #[inline(always)]
    pub(super) fn end_orphan_locked(&self) -> bool {
        if self.root.active() == 0 {
            return false;
        }
        match self.end_batch() {
            // Its blocks are nobody's from now on.
            Ok(_) => self.pool().request_collection(),
            Err(error) => {
                self.stop_writing(&format!("the batch of a process that died cannot be ended: {error}"));
            }
        }
        true
    }

    /// Finishes the batch that was under way if it was committed, else takes it back; says which, or `None` if there was none.
    /// Nobody else is at it. Its blocks are left to the collector.
    ///
    /// That it was begun, or has ended, may not be durable yet. A batch whose beginning is lost has not changed anything; and until another batch begins, the lock of batches says that the end of this one may be
    /// lost, to the writers and the collector who would use its blocks again.
    pub(super) fn end_batch(&self) -> Result<Option<bool>, OpenError> {
        let at = self.root.active();
        if at == 0 {
            return Ok(None);
        }
        let guard = self.pool().pin();
        let damaged = |what| OpenError::Damaged { offset: at, what };
        let descriptor = Descriptor::find(self.pool().region(), at);
        let descriptor = descriptor.ok_or(damaged("the descriptor of the batch that was under way"))?;
        let status = descriptor.status().ok_or(damaged("the status of the batch that was under way"))?;
        // PERSIST: before anything is settled by it. Whoever decided may have been killed before it was durable; a loss of power would then find some keys settled,
        // and the batch open again.
        descriptor.persist_status();
        let sound = |offset| {
            let record = Record::at(&guard, offset).and_then(|record| record.verify().map(|()| record));
            let what = "a record of the batch that was under way";
            record.map_err(|_| OpenError::Damaged { offset, what })
        };
        for (new, old) in (0..descriptor.count()).map(|index| descriptor.entry(index)) {
            let is_there = self.index.get(&guard, sound(new)?.body.key) == Some(new);
            // Of an old record that is in its slot, or has been replaced there since, nothing is known.
            if let Some(old) = old.filter(|_| is_there && status != Status::Committed) {
                sound(old)?;
            }
        }
        self.settle_entries(&guard, &descriptor, status);
        self.root.set_active(0);
        Ok(Some(status == Status::Committed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::small::{Store, settings, store};
    use crate::{Commit, Durably, Engine, Pooled, What, Write};
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::Shm;
    use terrace_pool::PoolOptions;

    /// What whoever ends the batch that is under way is told.
    fn told(store: &Store) -> String {
        store.end_batch().unwrap_err().to_string()
    }

    #[test]
    fn a_batch_under_way_that_is_damaged_is_not_ended() {
        let (store, _) = store();
        assert_eq!(store.end_batch().unwrap(), None);
        let what = What::Put { value: b"value", expires_at: None };
        let writes = [b"a", b"b"].map(|key| Write { key, what });
        assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
        let (guard, medium) = (store.pool().pin(), store.pool().medium());
        // A descriptor of one record, "a".
        let block = Descriptor::alloc(&guard, 1).unwrap();
        let descriptor = Descriptor::draw(&guard, block, 1);
        let at = descriptor.offset();
        descriptor.set_new(0, store.place(b"a"));
        descriptor.set_old(0, Some(store.place(b"b")));
        store.root.set_active(at);
        store.raw(at).store(medium, 0, Relaxed);
        assert!(told(&store).contains("the descriptor of the batch"));
        store.raw(at).store(medium, u64::from_le_bytes(*b"batch  1"), Relaxed);
        // More entries than there can be, and more than the pool has room for.
        for count in [1 << 27, 1 << 25] {
            store.raw(at + 16).store(medium, count, Relaxed);
            assert!(told(&store).contains("the descriptor of the batch"));
        }
        store.raw(at + 16).store(medium, 1, Relaxed);
        store.root.set_active(store.pool().size());
        assert!(told(&store).contains("the descriptor of the batch"));
        store.root.set_active(at);
        let text = {
            store.raw(at).store(medium, u64::from_le_bytes(*b"batch  1"), Relaxed);
            store.raw(at + 8).store(medium, 4, Relaxed);
            told(&store)
        };
        assert!(text.contains("the status of the batch"), "{text}");
        descriptor.decide(Status::Open);
        // The record that would come back; nobody asks for it where the batch has been committed.
        store.damage(store.place(b"b") + 24);
        let text = told(&store);
        assert!(
            text.contains("a record of the batch") && text.contains(&format!("{:#x}", store.place(b"b"))),
            "{text}"
        );
        descriptor.decide(Status::Committed);
        assert_eq!(store.end_batch().unwrap(), Some(true));
        assert_eq!(store.root.active(), 0);
        // The new record.
        store.root.set_active(at);
        store.damage(store.place(b"a") + 24);
        assert!(told(&store).contains(&format!("{:#x}", store.place(b"a"))));
        assert_eq!(store.root.active(), at, "whoever can may look what there is");
    }

    #[test]
    fn what_a_batch_that_cannot_be_ended_leaves_is_read_and_not_written() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
        let store = crate::direct::small::open::<Shm>(options.create().unwrap(), settings()).unwrap();
        store.put(crate::Put { key: b"a", value: b"value", expires_at: None }, Durably::Store).unwrap();
        assert_eq!(store.recover_dead(), 0);
        store.put(crate::Put { key: b"a", value: b"new", expires_at: None }, Durably::Store).unwrap();
        // No descriptor lies there, and nobody is at it.
        store.root.set_active(64);
        assert_eq!(store.recover_dead(), 0);
        let error = store
            .put(crate::Put { key: b"a", value: b"later", expires_at: None }, Durably::Store)
            .unwrap_err();
        assert!(error.to_string().contains("the batch of a process that died cannot be ended"), "{error}");
        assert_eq!(store.get(b"a").unwrap().unwrap(), b"new");
        // It has been said, and is not tried again: whatever lies there, it stays.
        let guard = store.pool().pin();
        let block = Descriptor::alloc(&guard, 0).unwrap();
        let descriptor = Descriptor::draw(&guard, block, 0).offset();
        store.root.set_active(descriptor);
        assert_eq!((store.recover_dead(), store.root.active()), (0, descriptor));
        store.root.set_active(0);
        assert_eq!(store.recover_dead(), 0);
    }
}
