//! The replay of the log into DRAM, where it had been before.

use crate::changes::Stuck;
use crate::error::TieredError;
use crate::space::key::Probe;
use crate::space::memory::Here;
use crate::space::record::{Kind, LargeValue, Record as Version, Shape};
use crate::tier::large;
use crate::tier::unnamed;
use crate::write::{New, Writes, store_in_place};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{Content, DiskError, Need, Position, Record, Replayed, list_files, replay};
use terrace_engine::{Draft, WriteError, read_drafts};

/// Warnings of an open, at most.
const WARNINGS_MAX: usize = 10;

/// What the log has told.
#[derive(Default)]
pub(crate) struct Logged {
    /// Files of large values.
    pub(crate) large: BTreeSet<u64>,
    /// Keys that were removed.
    pub(crate) removed: Vec<Vec<u8>>,
    seqs: unnamed::Logged,
    /// Large values that are damaged, though nothing has torn the log where it names them.
    damaged: Vec<Damaged>,
    /// Up to this position the log is known to have been synced, if that was asked.
    synced: Option<Position>,
}

/// A large value that cannot be read.
struct Damaged {
    key: Vec<u8>,
    seq: u64,
    why: DiskError,
}

/// Keeps the error of a replay, and returns one that ends it.
fn fail(failed: &mut Option<TieredError>, path: &Path, error: TieredError) -> DiskError {
    *failed = Some(error);
    DiskError::corrupt(path, 0, "the log cannot be replayed")
}

/// The replay of a log. It owns what the log has told; writes, through which records come into
/// DRAM, stand below.
pub(crate) struct Replay<'w> {
    writes: &'w Writes,
    pub(crate) found: Logged,
    /// The number of the first record that had no room in DRAM.
    first_left: Option<u64>,
    /// The large value at which the log was torn.
    torn: Option<Damaged>,
    /// Whether the numbers of all files are known.
    has_noted_files: bool,
}

impl<'w> Replay<'w> {
    /// Replays what has room in DRAM.
    pub(crate) fn run(writes: &'w Writes) -> Result<(Self, Replayed), TieredError> {
        let found = Logged::default();
        let mut replay = Self { writes, found, first_left: None, torn: None, has_noted_files: false };
        let replayed = replay_with(writes, &mut |record| replay.take(record))?;
        Ok((replay, replayed))
    }

    /// The numbers that the log has.
    pub(crate) fn seqs(&self) -> unnamed::Logged {
        self.found.seqs
    }

    /// Takes a record, or finds that the log was torn before it.
    fn take(&mut self, record: Record<'_>) -> Result<bool, TieredError> {
        let damaged = self.damaged_values(record)?;
        // Files that lose nothing with power have whatever was written.
        let may_lose = self.writes.tier().files.outlasts_power();
        if !damaged.is_empty() && may_lose && !self.is_synced(record.end)? {
            self.torn = damaged.into_iter().next();
            return Ok(false);
        }
        self.found.damaged.extend(damaged);
        unnamed::note(&mut self.found.seqs, &record);
        if self.first_left.is_none() && !self.replay_record(record, false)? {
            self.first_left = Some(record.first_seq);
        }
        Ok(true)
    }

    /// Replays what did not fit into DRAM. Blocks are sealed meanwhile: only now it is known that
    /// no record is a torn tail's.
    pub(crate) fn rest(&mut self) -> Result<(), TieredError> {
        let Some(first) = self.first_left else { return Ok(()) };
        if self.writes.journal().settings.read_only {
            return Err(WriteError::ReadOnly.into());
        }
        replay_with(self.writes, &mut |record| {
            if record.first_seq < first { Ok(true) } else { self.replay_record(record, true) }
        })
        .map(drop)
    }

    /// Whether the log is known to have been synced up to the position `end`, behind a record.
    fn is_synced(&mut self, end: Position) -> Result<bool, DiskError> {
        let tier = self.writes.tier();
        let synced = match self.found.synced {
            Some(synced) => synced,
            // Later parts tell it. Damage among them ends this replay, as it ends the outer one.
            None => replay(&tier.files, tier.path(), tier.id(), &mut |_| Ok(true))?.synced,
        };
        self.found.synced = Some(synced);
        Ok(end <= synced)
    }

    /// Puts the writes of a record of the log into DRAM. Returns false if there is no room, unless
    /// it `may_flush`.
    fn replay_record(&mut self, record: Record<'_>, may_flush: bool) -> Result<bool, TieredError> {
        let tier = self.writes.tier();
        for (draft, seq) in read_drafts(record.payload).zip(record.first_seq..) {
            let what = "a record of the log is none of this engine";
            let draft = draft.ok_or_else(|| DiskError::corrupt(tier.path(), 0, what))?;
            if seq < self.writes.journal().cleared_at.load(Relaxed) {
                continue;
            }
            let mut new = New::small(draft);
            let mut shape = new.shape(draft.key.len());
            if let Some((large, len)) = large::reference_in(&draft, tier.path())? {
                self.found.large.insert(large.number);
                new.large = Some(large);
                shape = Shape { value_len: len, kind: Kind::Large, ..shape };
            } else if shape.size() > self.writes.records().memory().pages.page_bytes() {
                if self.has(draft.key, seq)? {
                    continue;
                }
                new = self.enlarge(draft)?;
                shape = new.shape(draft.key.len());
            }
            if matches!(draft.content, Content::Tombstone) {
                self.found.removed.push(draft.key.to_vec());
            }
            if !self.replay_write(&new, (shape, seq), may_flush)? {
                if !draft.is_reference {
                    // It is enlarged again when there is room.
                    new.large.iter().for_each(|large| _ = self.found.large.remove(&large.number));
                    self.writes.unprepare(&new);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether DRAM has this version of a key, or a newer one.
    fn has(&self, key: &[u8], seq: u64) -> Result<bool, WriteError> {
        let records = self.writes.records();
        let memory = records.memory();
        let here = Here::enter(&memory)?;
        Ok(records.old_to_replace(&here, &records.probe(key))?.is_some_and(|old| old.copied.seq >= seq))
    }

    /// Gives a value a file that has no room in a page: there was more DRAM when it was written, or
    /// another program had other pages. The log still has it: an open after a crash does the same.
    fn enlarge<'a>(&mut self, draft: Draft<'a>) -> Result<New<'a>, TieredError> {
        let (tier, journal) = (self.writes.tier(), self.writes.journal());
        if journal.settings.read_only {
            return Err(WriteError::ReadOnly.into());
        }
        if !self.has_noted_files {
            // What the rest of the log and the blocks name is not known yet.
            let number = |name: &str| large::number_of(name).map(|number| number + 1);
            let ends = list_files(&tier.files, tier.path(), number)?;
            tier.note_files(ends.into_iter().max().unwrap_or(0));
            self.has_noted_files = true;
        }
        let new = self.writes.prepare(draft)?;
        self.found.large.extend(new.large.map(|large| large.number));
        // A block may be sealed that names it, while the log has nothing to sync.
        journal.large.sync(tier)?;
        Ok(new)
    }

    /// The large values that a record of the log names and that cannot be read: a loss of power may
    /// keep the record of a write that was not synced, and not its value.
    fn damaged_values(&self, record: Record<'_>) -> Result<Vec<Damaged>, TieredError> {
        let tier = self.writes.tier();
        let (mut damaged, cleared_at) = (Vec::new(), self.writes.journal().cleared_at.load(Relaxed));
        let drafts = read_drafts(record.payload).zip(record.first_seq..);
        for (draft, seq) in drafts.filter(|(_, seq)| *seq >= cleared_at) {
            let what = "a record of the log is none of this engine";
            let draft = draft.ok_or_else(|| DiskError::corrupt(tier.path(), 0, what))?;
            if let Some((large, len)) = large::reference_in(&draft, tier.path())? {
                match large::read(&tier.files, tier.path(), large, len) {
                    // Its file was synced before its record was.
                    Ok(Some(_)) if record.end <= record.synced => {}
                    Ok(Some(value)) => self.renew(large, &value)?,
                    Ok(None) => {
                        let why = large::missing(tier.path(), Some(large));
                        damaged.push(Damaged { key: draft.key.into(), seq, why });
                    }
                    Err(why @ DiskError::Corrupt { .. }) => {
                        damaged.push(Damaged { key: draft.key.into(), seq, why });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(damaged)
    }

    /// Makes a large value durable that the log names.
    fn renew(&self, value: LargeValue, bytes: &[u8]) -> Result<(), TieredError> {
        let journal = self.writes.journal();
        if journal.settings.read_only {
            return Ok(());
        }
        journal.large.renew(&journal.tier, value, bytes)
    }

    fn replay_write(
        &self,
        new: &New<'_>,
        (shape, seq): (Shape, u64),
        may_flush: bool,
    ) -> Result<bool, TieredError> {
        let probe = self.writes.records().probe(new.draft.key);
        if may_flush {
            self.writes.upkeep.with_room(Need::Room, || self.put(&probe, new, (shape, seq)))?;
            return Ok(true);
        }
        match self.put(&probe, new, (shape, seq)) {
            Ok(()) => Ok(true),
            Err(Stuck::NoRoom(..) | Stuck::Failed(WriteError::PoolFull { .. })) => Ok(false),
            Err(Stuck::Failed(error)) => Err(error.into()),
        }
    }

    /// Puts a write into DRAM, unless that has a newer one.
    fn put(&self, probe: &Probe, new: &New<'_>, (shape, seq): (Shape, u64)) -> Result<(), Stuck> {
        let (writes, records) = (self.writes, self.writes.records());
        let memory = records.memory();
        let here = Here::enter(&memory)?;
        // Before blocks were sealed here, no cold record is in the index.
        let old = records.old_to_replace(&here, probe)?;
        if let Some(old) = old.as_ref().filter(|old| old.copied.seq >= seq) {
            let dead = new.large.filter(|_| old.copied.seq > seq);
            let journal = writes.journal();
            dead.iter().for_each(|value| journal.large.doom(*value, seq, shape.value_len));
            return Ok(());
        }
        if let Some(record) = old.as_ref().and_then(|old| writes.in_place(&here, old, new, shape))
            && shape.kind == Kind::Value
        {
            let Content::Put { value, expires_at } = new.draft.content else { unreachable!("a value") };
            store_in_place(&here, record, &Version { shape, seq, expires_at, probe, inline: value });
        } else {
            let room = writes.stage(&here, (seq, shape), probe, new)?;
            let from = old.as_ref().map(|old| old.address);
            records
                .swap(&here, probe, (from, Some(room.address)))
                .inspect_err(|_| records.waste(&here, &room))?;
            room.record.unlock(&here.guard, seq);
            old.iter().for_each(|old| records.bury(&here, old));
        }
        if let Some(old) = &old {
            records.uncount(old.copied.shape);
            writes.doom_old(&old.copied, new);
        }
        records.count_in(shape);
        Ok(())
    }

    /// What a user has to know of damaged large values: those of present keys, and the one at which
    /// the log was torn.
    pub(crate) fn warnings(self) -> Result<Vec<String>, WriteError> {
        let (mut warnings, mut more, records) = (Vec::new(), 0, self.writes.records());
        let shown = |key: &[u8]| key.escape_ascii().take(64).map(char::from).collect::<String>();
        if let Some(Damaged { key, seq, why }) = self.torn {
            let key = shown(&key);
            warnings.push(format!(
                "the log ends before write {seq}, of the key `{key}`, as after a loss of power: {why}"
            ));
        }
        for Damaged { key, seq, why } in self.found.damaged {
            let memory = records.memory.load_full();
            let here = Here::enter(&memory)?;
            let present = records.old_to_replace(&here, &records.probe(&key))?;
            if present.is_none_or(|present| present.copied.seq != seq) {
                continue;
            }
            if warnings.len() < WARNINGS_MAX {
                warnings.push(format!(
                    "the value of the key `{}` cannot be read until it is replaced: {why}",
                    shown(&key)
                ));
            } else {
                more += 1;
            }
        }
        if more > 0 {
            warnings.push(format!("and {more} values more; `terrace check` names them"));
        }
        Ok(warnings)
    }
}

/// Replays the log. An error of `take` ends that, and is returned.
fn replay_with(
    writes: &Writes,
    take: &mut dyn FnMut(Record<'_>) -> Result<bool, TieredError>,
) -> Result<Replayed, TieredError> {
    let (tier, mut failed) = (writes.tier(), None);
    let mut each = |record: Record<'_>| take(record).map_err(|error| fail(&mut failed, tier.path(), error));
    let replayed = replay(&tier.files, tier.path(), tier.id(), &mut each);
    failed.map_or(Ok(()), Err)?;
    Ok(replayed?)
}
