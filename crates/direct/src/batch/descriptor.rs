//! The descriptor of a batch: one status word that commits or aborts all of its records.
//!
//! ```text
//!   line 0    | magic | status | entries | 0 ... |
//!   then      | new record, old record | ...   16 bytes an entry; old record 0: key absent
//! ```
//! A record of a batch names its entry in its batch word: `[63:38] entry  [37:0] descriptor / 64`.
//! The entry must name the record, so a damaged batch word is detected.

use crate::record::format::Role;
use crate::record::view::{Record, corrupt};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_engine::ReadError;
use terrace_medium::{MappedMedium, Offset, Region, Word};
use terrace_pool::{Fresh, Guard, PoolFull};

const MAGIC: u64 = u64::from_le_bytes(*b"batch  1");
const OFFSET_BITS: u32 = 38;
/// Number of entries that a batch word can name.
const ENTRIES_MAX: usize = 1 << (64 - OFFSET_BITS);

/// The status of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Undecided: its records do not count yet.
    Open = 1,
    /// Its records count.
    Committed = 2,
    /// It is being aborted: its records do not count.
    Aborted = 3,
}

/// A descriptor in the pool.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor<'p, M> {
    region: &'p Region<M>,
    at: u64,
    count: usize,
}

fn size(count: usize) -> usize {
    (64 + 16 * count).next_multiple_of(64)
}

impl<'p, M: MappedMedium> Descriptor<'p, M> {
    /// Memory for the descriptor of a batch of `count` records. Fails as a full pool does for more
    /// entries than a batch word can name.
    pub(crate) fn alloc<'g>(guard: &'g Guard<'_, M>, count: usize) -> Result<Fresh<'g, M>, PoolFull> {
        if count > ENTRIES_MAX {
            let (wanted, size) = (size(count) as u64, guard.pool().size());
            return Err(PoolFull { wanted, size, longest: None, waiting_bytes: 0, collecting: false });
        }
        guard.alloc(size(count))
    }

    /// Makes an open descriptor of `fresh`. The caller then writes its entries and writes all of it
    /// back.
    pub(crate) fn init(guard: &'p Guard<'_, M>, fresh: Fresh<'_, M>, count: usize) -> Self {
        // PERSIST: written back by `write_back`, fenced with the records before the root names it.
        let descriptor =
            Self { region: guard.pool().region(), at: fresh.fenced_later().into_offset(), count };
        for (index, word) in [MAGIC, Status::Open as u64, count as u64].into_iter().enumerate() {
            descriptor.word(8 * index).store(descriptor.region.medium(), word, Relaxed);
        }
        descriptor
    }

    /// The descriptor at `at`, if there is one.
    ///
    /// ORDER: its words but the status are loaded and stored Relaxed. The word that leads here, the
    /// root's name for it or the slot of one of its records, was stored with Release after them and
    /// loaded with Acquire. An old record that is recorded later counts only if the slot has the
    /// new one.
    pub(crate) fn find(region: &'p Region<M>, at: u64) -> Option<Self> {
        let head = region.get(Offset::<[Word; 3]>::new(at))?;
        let count = usize::try_from(head[2].load(region.medium(), Relaxed)).ok()?;
        let fits = count <= ENTRIES_MAX && region.holds(at, size(count));
        (head[0].load(region.medium(), Relaxed) == MAGIC && fits).then_some(Self { region, at, count })
    }

    fn word(&self, at: usize) -> &'p Word {
        self.region.at(Offset::new(self.at + at as u64))
    }

    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Size of its block in bytes.
    pub(crate) fn size(&self) -> usize {
        size(self.count)
    }

    pub(crate) fn write_back(&self) {
        self.region.write_back_bytes(self.at, self.size());
    }

    /// Starts to write back the lines of these entries.
    pub(crate) fn write_back_entries(&self, entries: Range<usize>) {
        assert!(entries.end <= self.count, "entries {entries:?} of {}", self.count);
        self.region.write_back_bytes(self.at + 64 + 16 * entries.start as u64, 16 * entries.len());
    }

    /// The batch word of the record of entry `index`.
    pub(crate) fn batch_word(at: u64, index: usize) -> u64 {
        assert!(at.is_multiple_of(64) && at >> 6 < 1 << OFFSET_BITS, "a descriptor at {at:#x}");
        assert!(index < ENTRIES_MAX, "entry {index} of a batch");
        at >> 6 | (index as u64) << OFFSET_BITS
    }

    /// The descriptor and the entry that a batch word names.
    fn named_by(word: u64) -> (u64, usize) {
        ((word & ((1 << OFFSET_BITS) - 1)) << 6, (word >> OFFSET_BITS) as usize)
    }

    pub(crate) fn status(&self) -> Option<Status> {
        // ORDER: Acquire: pairs with `set_status`; a thread that sees a batch committed sees all of
        // it published.
        match self.word(8).load(self.region.medium(), Acquire) {
            1 => Some(Status::Open),
            2 => Some(Status::Committed),
            3 => Some(Status::Aborted),
            _ => None,
        }
    }

    /// Sets the status. `Committed` is the instant at which the batch becomes visible.
    pub(crate) fn set_status(&self, status: Status) {
        self.word(8).store(self.region.medium(), status as u64, Release);
    }

    /// Makes the status durable.
    pub(crate) fn persist_status(&self) {
        // PERSIST: the commit point for a crash. Everything that was published is durable before.
        self.region.persist(self.word(8));
    }

    fn new_word(&self, index: usize) -> &'p Word {
        assert!(index < self.count, "entry {index} of {}", self.count);
        self.word(64 + 16 * index)
    }

    fn old_word(&self, index: usize) -> &'p Word {
        assert!(index < self.count, "entry {index} of {}", self.count);
        self.word(64 + 16 * index + 8)
    }

    /// The new record and the old one of an entry.
    pub(crate) fn entry(&self, index: usize) -> (u64, Option<u64>) {
        let load = |word: &Word| word.load(self.region.medium(), Relaxed);
        (load(self.new_word(index)), Some(load(self.old_word(index))).filter(|&old| old != 0))
    }

    /// Sets the new record of an entry, without an old one yet.
    pub(crate) fn set_new(&self, index: usize, new: u64) {
        self.new_word(index).store(self.region.medium(), new, Relaxed);
        self.set_old(index, None);
    }

    pub(crate) fn set_old(&self, index: usize, old: Option<u64>) {
        self.old_word(index).store(self.region.medium(), old.unwrap_or(0), Relaxed);
    }

    /// Sets an old record that has changed since the descriptor was made durable.
    pub(crate) fn persist_old(&self, index: usize, old: Option<u64>) {
        self.set_old(index, old);
        // PERSIST: before the slot names the new record, so that recovery after a crash finds the
        // old one.
        self.region.persist(self.old_word(index));
    }
}

/// The state of a record whose batch is not finalized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) status: Status,
    /// The record that counts unless the batch is committed.
    pub(crate) old: Option<u64>,
    /// Its descriptor.
    pub(crate) descriptor: u64,
}

/// The state of the batch that wrote `record`, or `None` if the record is finalized.
pub(crate) fn pending<M: MappedMedium>(
    guard: &Guard<'_, M>,
    record: &Record<'_>,
) -> Result<Option<Pending>, ReadError> {
    let region = guard.pool().region();
    if record.shape.role == Role::Stray {
        return Ok(None);
    }
    let Some(at) = record.batch_word() else { return Ok(None) };
    // ORDER: Acquire: pairs with the Release that finalizes the record after its batch was
    // committed.
    let word = region.get(at).map_or(0, |word| word.load(region.medium(), Acquire));
    if word == 0 && record.shape.role == Role::Put {
        return Ok(None);
    }
    let unknown = || corrupt(record.offset, "a record belongs to a batch that does not exist");
    let (descriptor, index) = Descriptor::<M>::named_by(word);
    let found =
        Descriptor::find(region, descriptor).filter(|found| index < found.count).ok_or_else(unknown)?;
    let status = found.status().ok_or_else(unknown)?;
    let (new, old) = found.entry(index);
    if new != record.offset {
        return Err(unknown());
    }
    if M::VOLATILE_CACHE && status == Status::Committed {
        // PERSIST: the commit may be visible before it is durable; an answer that depends on it
        // must not be lost.
        found.persist_status();
    }
    Ok(Some(Pending { status, old, descriptor }))
}

#[cfg(test)]
#[path = "tests/descriptor.rs"]
mod tests;
