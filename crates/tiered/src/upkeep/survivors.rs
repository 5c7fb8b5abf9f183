//! Which records of a block are still of use, and their way to another one.

use crate::records::Records;
use crate::space::memory::{Here, Memory};
use crate::space::record::{Kind, LargeValue, Record};
use crate::tier::edit::Name;
use crate::tier::read::Held;
use crate::tier::write::BlockWriter;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_engine::{ReadError, WriteError};

/// Records that moved: their probes, and the addresses before and after.
pub(super) type Moves = Vec<(Box<[u8]>, u64, u64)>;

/// The records of some blocks that went to a new one.
pub(super) struct Survivors {
    pub(super) moves: Moves,
    /// Whether a block has room for them. If not, some of them are missing here.
    pub(super) fit: bool,
    /// By block, the offsets of those among them whose keys were removed.
    pub(super) removed: Vec<Vec<u32>>,
    /// Bytes of those among them that are dead, but have no successor on the tier.
    pub(super) kept: u64,
    /// Their successors have lower numbers than this.
    pub(super) waits_for: u64,
}

/// What becomes of a record of a block.
#[derive(PartialEq, Eq)]
enum Fate {
    Lives,
    /// It is dead, but the tier has no successor, and nor has a log.
    IsKept,
    /// Its key was removed.
    IsRemoved,
    Goes,
}

/// What the index has for the key of a record.
#[derive(PartialEq, Eq)]
enum Present {
    /// The record.
    Own,
    /// A version that only DRAM has.
    InDram,
    /// Another one on the tier.
    OnTier,
    Nothing,
}

/// What a block knows of its own removed versions while it is surveyed.
struct Removals {
    /// The offsets of those whose tombstones the tier has.
    sealed: Vec<u32>,
    /// The offsets of all that were met.
    met: Vec<u32>,
}

/// A survey of some blocks, whose survivors go to the file of a new one. It owns the file's writer
/// and the count of survivors; records stand below.
pub(super) struct Survey<'s> {
    records: &'s Records,
    memory: &'s Arc<Memory>,
    name: Name,
    writer: BlockWriter<'s>,
    /// Whether survivors keep their addresses.
    keeps_places: bool,
    /// Tombstones with lower numbers hide nothing.
    clean_up_to: u64,
    survivors: Survivors,
    /// Where the next survivor goes, if it does not keep its address.
    next: u64,
    /// The lowest number of a dead record that is kept.
    first_kept: u64,
}

impl<'s> Survey<'s> {
    /// Begins a survey for the new block `name`.
    pub(super) fn new(
        (records, memory): (&'s Records, &'s Arc<Memory>),
        (name, writer): (Name, BlockWriter<'s>),
        keeps_places: bool,
        clean_up_to: u64,
    ) -> Self {
        let survivors =
            Survivors { moves: Moves::new(), fit: true, removed: Vec::new(), kept: 0, waits_for: 0 };
        let (next, first_kept) = (0, u64::MAX);
        Self { records, memory, name, writer, keeps_places, clean_up_to, survivors, next, first_kept }
    }

    /// Writes the survivors of a block. Returns whether there was room for all so far.
    pub(super) fn add_block(&mut self, block: &Held) -> Result<bool, WriteError> {
        assert!(self.survivors.fit, "nothing is added where there is no room");
        let sealed = block.sealed_removals(self.memory.open.first_unsealed_seq());
        let mut removals = Removals { sealed, met: Vec::new() };
        let mut added: Result<(), WriteError> = Ok(());
        block.for_each(&mut |offset, bytes| {
            if added.is_err() || !self.survivors.fit {
                return;
            }
            if bytes.is_err() {
                // It stays as it is, for a salvage.
                block.is_damaged.store(true, Relaxed);
            }
            let bytes = bytes.map_err(WriteError::from);
            added = bytes.and_then(|bytes| self.add(block, (offset, bytes), &mut removals));
        })?;
        added?;
        if self.survivors.fit {
            self.survivors.removed.push(removals.met);
        }
        Ok(self.survivors.fit)
    }

    /// Writes a record if it survives.
    fn add(
        &mut self,
        block: &Held,
        (offset, bytes): (u64, &[u8]),
        removals: &mut Removals,
    ) -> Result<(), WriteError> {
        let map = self.memory.pages.map;
        let from = map.address(block.foot.number, offset);
        let record = Record::read(bytes).expect("compared with its checksum");
        let mut fate = self.fate_of(from, &record)?;
        if fate == Fate::IsRemoved {
            fate = self.fate_of_removed(offset as u32, removals);
        }
        match fate {
            Fate::Lives => {}
            Fate::Goes => return self.doom_record(&record),
            Fate::IsKept | Fate::IsRemoved => {
                self.survivors.kept += bytes.len() as u64;
                self.first_kept = self.first_kept.min(record.seq);
            }
        }
        let place = if self.keeps_places { offset } else { self.next };
        self.next += bytes.len() as u64;
        if !self.keeps_places && self.next > map.block_bytes() {
            self.survivors.fit = false;
            return Ok(());
        }
        self.writer.add(place, bytes)?;
        let to = map.address(self.name.0, place);
        debug_assert!(!self.keeps_places || from == to, "a rewritten block keeps its number");
        self.survivors.moves.push((record.probe.into(), from, to));
        Ok(())
    }

    /// What becomes of a version whose key was removed.
    fn fate_of_removed(&self, offset: u32, removals: &mut Removals) -> Fate {
        removals.met.push(offset);
        // If nothing waits to be sealed, nor does a tombstone.
        let is_sealed = removals.sealed.binary_search(&offset).is_ok()
            || self.memory.open.first_unsealed_seq() == u64::MAX;
        if is_sealed { Fate::Goes } else { Fate::IsKept }
    }

    /// Ends the file, all versions of which with a later one below `clean` are gone.
    pub(super) fn finish(mut self, clean: u64) -> Result<Survivors, WriteError> {
        if self.survivors.kept > 0 {
            self.survivors.waits_for = self.records.journal.next_seq.load(Acquire);
        }
        assert_eq!(self.writer.is_empty(), self.survivors.moves.is_empty(), "a move for each record");
        if !self.writer.is_empty() {
            // A version that was kept is not clean of its successor.
            let foot = self.writer.finish(clean.min(self.first_kept))?;
            self.records.counters.rewritten_bytes.fetch_add(foot.file_bytes(), Relaxed);
        }
        Ok(self.survivors)
    }

    /// The survivors that found room.
    pub(super) fn give_up(self) -> Survivors {
        self.survivors
    }

    /// Whether a record of a block is still of use.
    fn fate_of(&self, address: u64, record: &Record<'_>) -> Result<Fate, ReadError> {
        if record.seq < self.records.journal.cleared_at.load(Relaxed) {
            return Ok(Fate::Goes);
        }
        if record.shape.kind == Kind::Tombstone {
            return Ok(if record.seq >= self.clean_up_to { Fate::Lives } else { Fate::Goes });
        }
        let here = Here::enter(self.memory)?;
        here.search.note(address, record.probe);
        let present = |word: Option<u64>| {
            let Some(word) = word else { return Present::Nothing };
            let other = original(&here, word).unwrap_or(word);
            match self.records.tier().block(self.memory.pages.map.block_of(other)) {
                _ if other == address => Present::Own,
                None => Present::InDram,
                Some(_) => Present::OnTier,
            }
        };
        let present = self.records.settled(&here, record.probe, present, |found| *found == Present::Own)?;
        let has_log = self.records.journal.has_log();
        Ok(match present {
            Present::Own => Fate::Lives,
            // Without a log, what is in DRAM alone may be lost: a successor, or a tombstone.
            Present::InDram if !has_log => Fate::IsKept,
            Present::Nothing if !has_log => Fate::IsRemoved,
            _ => Fate::Goes,
        })
    }

    /// Dooms the large value of a dead record, if it has one.
    fn doom_record(&self, record: &Record<'_>) -> Result<(), WriteError> {
        let is_present = record.seq >= self.records.journal.cleared_at.load(Relaxed);
        match LargeValue::read(record.inline).filter(|_| record.shape.kind == Kind::Large && is_present) {
            Some(large) => {
                Ok(self.records.doom(&Here::enter(self.memory)?, record.probe, (large, record.seq), None)?)
            }
            None => Ok(()),
        }
    }
}

/// The address of the record that the one at an address is a copy of, if it is one.
pub(super) fn original(here: &Here<'_>, address: u64) -> Option<u64> {
    let record = here.record(address).filter(|record| record.is_copy())?;
    Some(record.original(&here.guard))
}
