//! The descriptor of a batch: one status word that decides about all of its records.
//!
//! ```text
//!   line 0    | magic | status | entries | 0 ... |
//!   then      | new record, old record | ...      16 bytes an entry; old record 0: the key was absent
//! ```
//! A record of a batch names its entry in its batch word: `[63:38] entry  [37:0] descriptor / 64`. Descriptor and entry
//! name it back, so that a word that was damaged is not believed.

use super::view::{Record, corrupt};
use crate::ReadError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Offset, Region, Word};
use terrace_pool::{Fresh, Guard, PoolFull};

const MAGIC: u64 = u64::from_le_bytes(*b"batch  1");
const OFFSET_BITS: u32 = 38;
/// Entries that a batch word can name.
pub(super) const ENTRIES_MAX: usize = 1 << (64 - OFFSET_BITS);

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Undecided: its records do not count.
    Open = 1,
    /// Its records count.
    Committed = 2,
    /// It is being taken back: its records do not count.
    Aborted = 3,
}

/// A descriptor in the pool.
#[derive(Clone, Copy)]
pub(super) struct Descriptor<'p, M> {
    region: &'p Region<M>,
    at: u64,
    count: usize,
}

fn size(count: usize) -> usize {
    (64 + 16 * count).next_multiple_of(64)
}

impl<'p, M: MappedMedium> Descriptor<'p, M> {
    /// Memory for the descriptor of a batch of `count` records.
    pub(super) fn alloc<'g>(guard: &'g Guard<'_, M>, count: usize) -> Result<Fresh<'g, M>, PoolFull> {
        guard.alloc(size(count))
    }

    /// The open descriptor that `fresh` becomes. Its entries are written next, then all of it is written back.
    pub(super) fn draw(guard: &'p Guard<'_, M>, fresh: Fresh<'_, M>, count: usize) -> Self {
        // PERSIST: written back by `write_back`, fenced with the batch's records before the root names it.
        let drawn = Self { region: guard.pool().region(), at: fresh.fenced_later().into_offset(), count };
        for (index, word) in [MAGIC, Status::Open as u64, count as u64].into_iter().enumerate() {
            drawn.word(8 * index).store(drawn.region.medium(), word, Relaxed);
        }
        drawn
    }

    /// The descriptor at `at`, if there is one.
    ///
    /// ORDER: its words are loaded and stored Relaxed, but for the status: what leads here, the root's name for it or the slot of one of its records, was stored with Release after
    /// them and loaded with Acquire. An old record that is noted anew counts only if the slot has the new one.
    pub(super) fn find(region: &'p Region<M>, at: u64) -> Option<Self> {
        let head = region.get(Offset::<[Word; 3]>::new(at))?;
        let count = usize::try_from(head[2].load(region.medium(), Relaxed)).ok()?;
        let fits = count <= ENTRIES_MAX && region.holds(at, size(count));
        (head[0].load(region.medium(), Relaxed) == MAGIC && fits).then_some(Self { region, at, count })
    }

    fn word(&self, at: usize) -> &'p Word {
        self.region.at(Offset::new(self.at + at as u64))
    }

    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of its block.
    pub(super) fn size(&self) -> usize {
        size(self.count)
    }

    pub(super) fn write_back(&self) {
        self.region.write_back_bytes(self.at, self.size());
    }

    /// What its record has as its batch word.
    pub(super) fn batch_word(at: u64, index: usize) -> u64 {
        at >> 6 | (index as u64) << OFFSET_BITS
    }

    pub(super) fn status(&self) -> Option<Status> {
        // ORDER: Acquire: pairs with `decide`; who sees a batch committed sees all of it published.
        match self.word(8).load(self.region.medium(), Acquire) {
            1 => Some(Status::Open),
            2 => Some(Status::Committed),
            3 => Some(Status::Aborted),
            _ => None,
        }
    }

    /// Decides. With `Committed`, this is the instant at which the batch happens.
    pub(super) fn decide(&self, status: Status) {
        self.word(8).store(self.region.medium(), status as u64, Release);
    }

    /// Makes the decision durable.
    pub(super) fn persist_status(&self) {
        // PERSIST: the commit point for a crash. Everything that was published is durable before.
        self.region.persist(self.word(8));
    }

    /// The new record and the old one of an entry.
    pub(super) fn entry(&self, index: usize) -> (u64, Option<u64>) {
        let word = |at| self.word(64 + 16 * index + at).load(self.region.medium(), Relaxed);
        (word(0), Some(word(8)).filter(|&old| old != 0))
    }

    pub(super) fn set_new(&self, index: usize, new: u64) {
        self.word(64 + 16 * index).store(self.region.medium(), new, Relaxed);
    }

    pub(super) fn set_old(&self, index: usize, old: Option<u64>) {
        self.word(64 + 16 * index + 8).store(self.region.medium(), old.unwrap_or(0), Relaxed);
    }

    /// The old record has changed since the descriptor was made durable.
    pub(super) fn persist_old(&self, index: usize, old: Option<u64>) {
        self.set_old(index, old);
        // PERSIST: before the slot names the new record, so that a crash in between finds the way back.
        self.region.persist(self.word(64 + 16 * index + 8));
    }
}

/// A record whose batch has not been settled yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) status: Status,
    /// The record that counts unless the batch is committed.
    pub(super) old: Option<u64>,
    /// Its descriptor.
    pub(super) descriptor: u64,
}

/// The state of the batch that wrote `record`, or `None` if that is settled.
pub(super) fn pending<M: MappedMedium>(
    guard: &Guard<'_, M>,
    record: &Record<'_>,
) -> Result<Option<Pending>, ReadError> {
    let region = guard.pool().region();
    let Some(at) = record.batch_word() else { return Ok(None) };
    // ORDER: Acquire: pairs with the Release that settles the record after its batch was committed.
    let word = region.get(at).map_or(0, |word| word.load(region.medium(), Acquire));
    if word == 0 && record.shape.role == super::record::Role::Put {
        return Ok(None);
    }
    let unknown = || corrupt(record.offset, "a record belongs to a batch that is not there");
    let descriptor = word << 6 & ((1 << (OFFSET_BITS + 6)) - 1);
    let index = (word >> OFFSET_BITS) as usize;
    let found =
        Descriptor::find(region, descriptor).filter(|found| index < found.count).ok_or_else(unknown)?;
    let status = found.status().ok_or_else(unknown)?;
    let (new, old) = found.entry(index);
    if new != record.offset {
        return Err(unknown());
    }
    if M::VOLATILE_CACHE && status == Status::Committed {
        // PERSIST: the commit may be visible before it is durable; what is answered because of it must not be lost.
        found.persist_status();
    }
    Ok(Some(Pending { status, old, descriptor }))
}
