//! Keys that a running batch has claimed: other writers wait for them. See the head of `batch`.

use crate::batch::descriptor::{Descriptor, Status, pending};
use crate::record::format::{Role, Shape};
use crate::record::records::Records;
use crate::record::view::Record;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::WriteError;
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Backoff, Guard, Lock, Pool};

/// The claims of the running batch. It owns the records, on which it stands; reads and writes stand
/// above it. It also finishes the batch of a thread that died (`recover`), for which a writer would
/// wait forever.
pub(crate) struct Claims<M: MappedMedium> {
    pub(crate) records: Records<M>,
}

impl<M: MappedMedium> Claims<M> {
    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        self.records.pool()
    }

    /// The word of `key`, once no batch claims it.
    #[inline(always)]
    pub(crate) fn wait_unclaimed_word(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
    ) -> Result<Option<u64>, WriteError> {
        let word = self.records.index.get(guard, key);
        if word.is_some_and(|word| self.is_claimed(guard, word)) {
            return self.wait_unclaimed(guard, key);
        }
        Ok(word)
    }

    /// Whether an unfinished batch has claimed the key with this word.
    #[inline(always)]
    pub(crate) fn is_claimed(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        let region = guard.pool().region();
        // ORDER: Relaxed: the index has loaded the word for it with Acquire.
        let shape = region.get(Offset::<Word>::new(word)).map(|shape| shape.load(region.medium(), Relaxed));
        match shape.and_then(Shape::decode) {
            Some(Shape { role: Role::Single, .. }) | None => false,
            Some(_) => self.is_unfinalized(guard, word) || self.is_named(guard, word),
        }
    }

    /// Whether the running batch names this record. Finalized or not, the record must stay where it
    /// is until the batch has finished: the batch's thread may die and then no longer be pinned,
    /// and the thread that finishes the batch must find the records that it names.
    #[cold]
    fn is_named(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        let lock = Lock::of(self.records.root.lock());
        let at = match self.records.root.active() {
            0 if M::VOLATILE_CACHE && Lock::may_be_unfenced(lock.load_word(guard.pool().medium())) => {
                self.records.root.written_back_active()
            }
            at => at,
        };
        let descriptor = (at != 0).then(|| Descriptor::find(guard.pool().region(), at)).flatten();
        // A finalized record does not belong to an undecided batch. For a long batch, this spares
        // each concurrent writer a search through all entries.
        let descriptor = descriptor.filter(|batch| batch.status() != Some(Status::Open));
        descriptor.is_some_and(|batch| (0..batch.count()).any(|index| batch.entry(index).0 == word))
    }

    #[cold]
    fn is_unfinalized(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        // A record that claims to belong to a batch that does not exist is not claimed: it may be
        // replaced.
        Record::at(guard, word).is_ok_and(|record| matches!(pending(guard, &record), Ok(Some(_))))
    }

    /// Waits until no batch claims `key`, and returns its word.
    #[cold]
    pub(crate) fn wait_unclaimed(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<u64>, WriteError> {
        let mut backoff = Backoff::new();
        loop {
            match self.records.index.get(guard, key) {
                Some(word) if self.is_claimed(guard, word) => self.records.check_writable()?,
                word => return Ok(word),
            }
            if backoff.spin() && self.pool().is_shared() {
                self.finish_orphan_batch(guard);
            }
        }
    }

    /// Whether a copy of a record has the same meaning: if a batch wrote it, it is finalized. A
    /// damaged batch word must not be lost.
    pub(crate) fn is_movable(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> bool {
        matches!(record.shape.role, Role::Single | Role::Put) && matches!(pending(guard, record), Ok(None))
    }

    /// Whether a record that the index names may be moved now.
    pub(crate) fn may_move(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> bool {
        self.is_movable(guard, record) && !self.is_claimed(guard, record.offset)
    }
}
