//! Atomic changes of several keys, for every reader and through a crash.
//!
//! Batches run one after the other, under a lock in the engine's root. A batch goes through these
//! steps; each number is a fence on a medium with a volatile cache.
//!
//! * **Stage**: write the new records, each with the role of the key in the batch
//!   ([`Role`]) and a batch word that names its entry of the descriptor. Write the descriptor,
//!   open, with each key's new record (1).
//! * **Announce**: the root names the descriptor (2).
//! * **Publish**, in pieces of 64 keys: record the old records of a piece in the descriptor (one
//!   more fence; for the first piece, (1) does). Then swap each slot from the old record to the new
//!   one (3). If a slot has changed since its old record was recorded, record the present one
//!   durably first. If a key is not in its expected version, or the pool has no room for a new
//!   slot, the batch is aborted here.
//! * **Commit**: store the descriptor's status (4).
//! * **Finalize**: set batch words to 0, empty the slots of removed keys, restore the slots of kept
//!   keys (5).
//! * **Finish**: the root names no batch (6). Retire old records, tombstones and descriptor.
//!
//! **Readers** never wait. A reader that meets a record with a batch word reads the descriptor: if
//! the batch is committed the new record counts, else the old one. So all keys change at the
//! instant at which the status is stored. (On a volatile cache, the reader makes the status durable
//! before it answers.)
//!
//! **Writers** of single keys wait from publish to finish: a change before finalize would have to
//! be undone, and a record replaced after it could be freed while the descriptor names it. This
//! also makes the expectations sound. Every key that a transaction has read has a record of the
//! batch in its slot (role `Keep`: it changes nothing) from before the commit until after it. So
//! all expectations hold at the instant of the commit.
//!
//! **A crash** before (2) leaves unreachable blocks. After (2) and before (4) is durable, recovery
//! goes through the descriptor and puts the old record into each slot that names the new one; such
//! a slot was stored after its old record was durable. After (4), recovery finalizes what is not
//! finalized. Both are idempotent, so a crash during recovery or abort adds no new case. After (6)
//! nothing is left to do.
//!
//! Throughout, the batch's thread is pinned, so no block that the descriptor names is reused before
//! (6). If the thread dies while others run, one of them finishes the batch. The new records exist
//! until then, because no thread replaces them. An old record exists for as long as its slot names
//! the new one; otherwise it is not needed.

pub(crate) mod commit;
pub(crate) mod descriptor;
pub(crate) mod flight;
pub(crate) mod plan;
pub(crate) mod recover;

use self::descriptor::{Descriptor, Pending, Status, pending};
use crate::engine::Direct;
use crate::record::format::{Role, Shape};
use crate::record::view::Record;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{ReadError, WriteError};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Backoff, Guard, Lock};

impl<M: MappedMedium> Direct<M> {
    pub(crate) fn pending(
        &self,
        guard: &Guard<'_, M>,
        record: &Record<'_>,
    ) -> Result<Option<Pending>, ReadError> {
        pending(guard, record)
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
        let lock = Lock::of(self.root.lock());
        let at = match self.root.active() {
            0 if M::VOLATILE_CACHE && Lock::may_be_unfenced(lock.load_word(guard.pool().medium())) => {
                self.root.written_back_active()
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
            match self.index.get(guard, key) {
                Some(word) if self.is_claimed(guard, word) => self.check_writable()?,
                word => return Ok(word),
            }
            if backoff.spin() && self.pool().is_shared() {
                self.finish_orphan_batch(guard);
            }
        }
    }
}
