//! Several keys changed as one: to every reader, and through a crash.
//!
//! Batches go one after the other, under a lock in the engine's root. A batch goes through these steps; each number is a fence on a medium with a
//! volatile cache.
//!
//! * stage: the new records, each with the role of the key in the batch ([`Role`](super::record::Role)) and a batch word that names its entry of the
//!   descriptor; the descriptor, open, with each key's new record (1);
//! * announce: the root names the descriptor (2);
//! * publish, in pieces of 64 keys: the old records of a piece are noted in the descriptor (one
//!   more fence; for the first piece (1) does), then each slot is swapped from the old record to
//!   the new one (3). Should the slot have changed since the old record was noted, that is
//!   noted anew and made durable first. A key that was expected in another version, or a pool with no room for a new slot,
//!   ends the batch here: it is taken back;
//! * commit: the descriptor's status (4);
//! * settle: batch words to 0, slots of removed keys empty, slots of kept keys back (5);
//! * end: the root names nothing (6); old records, tombstones and descriptor are retired.
//!
//! **Readers** never wait. One that meets a record with a batch word asks the descriptor: if the batch is committed the record counts, else the
//! old one. So all keys change at the instant at which the status is stored. (Whoever reads that on a volatile cache makes the status durable before
//! it answers.) **Writers** of single keys wait from publish to the end: a change before settle would have to be undone,
//! and what is replaced after it could be freed while the descriptor names it.
//! That also makes the expectations sound: every key that a transaction has read has a record of the batch in its slot (role `Keep`: it changes
//! nothing) from before the commit until after it, so all of them hold at the instant of the commit.
//!
//! **A crash** before (2) leaves blocks that nobody names. After (2) and before (4) is durable, recovery goes through the descriptor and puts the old record
//! into each slot that names the new one; a slot that does so was stored after its old record was durable. After (4) it settles what
//! is not settled. Both can be done any number of times over, so a crash during recovery, or during a taking back, adds nothing new. After (6) nothing
//! is left to do. Through all of this the batch's thread is pinned, so no block that the descriptor names is reused before (6). If it dies while others go on, one of them ends the batch in its place. The new records
//! are there until then, as nobody replaces them; an old one is for as long as its slot has the new one, and else nobody asks for it.

use super::descriptor::{Descriptor, Pending, Status, pending};
use super::record::{Role, Shape};
use super::store::Direct;
use super::view::Record;
use crate::{ReadError, WriteError};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Backoff, Guard, Lock};

impl<M: MappedMedium> Direct<M> {
    pub(super) fn pending(
        &self,
        guard: &Guard<'_, M>,
        record: &Record<'_>,
    ) -> Result<Option<Pending>, ReadError> {
        pending(guard, record)
    }

    /// Whether a batch is at the key whose word this is.
    #[inline(always)]
    pub(super) fn is_claimed(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        let region = guard.pool().region();
        // ORDER: Relaxed: the index has loaded the word for it with Acquire.
        let shape = region.get(Offset::<Word>::new(word)).map(|shape| shape.load(region.medium(), Relaxed));
        match shape.and_then(Shape::decode) {
            Some(Shape { role: Role::Single, .. }) | None => false,
            Some(_) => self.is_unsettled(guard, word) || self.is_named(guard, word),
        }
    }

    /// Whether the batch that is under way names this record. Settled or not, it stays where it is until that has ended: whoever is at the batch may die, and is pinned no more then; who ends it in
    /// his place must find what it names.
    #[cold]
    fn is_named(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        let lock = Lock::of(self.root.lock());
        let at = match self.root.active() {
            0 if M::VOLATILE_CACHE && Lock::may_be_unfenced(lock.load_word(guard.pool().medium())) => {
                self.root.settling_active()
            }
            at => at,
        };
        let descriptor = (at != 0).then(|| Descriptor::find(guard.pool().region(), at)).flatten();
        // A record that is settled is none of a batch that is undecided: of a long one, this spares each writer beside it a look at all entries.
        let descriptor = descriptor.filter(|batch| batch.status() != Some(Status::Open));
        descriptor.is_some_and(|batch| (0..batch.count()).any(|index| batch.entry(index).0 == word))
    }

    #[cold]
    fn is_unsettled(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        // A record that claims to belong to a batch that is not there is nobody's: it may be replaced.
        Record::at(guard, word).is_ok_and(|record| matches!(pending(guard, &record), Ok(Some(_))))
    }

    /// Waits until no batch is at `key`, and returns its word.
    #[cold]
    pub(super) fn wait_unclaimed(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<u64>, WriteError> {
        let mut backoff = Backoff::new();
        loop {
            match self.index.get(guard, key) {
                Some(word) if self.is_claimed(guard, word) => self.is_running()?,
                word => return Ok(word),
            }
            if backoff.spin() && self.pool().is_shared() {
                self.end_orphan(guard);
            }
        }
    }
}
