//! Reclamation: dead records leave the tier (section 5.2 of the paper).
//!
//! Writers count the bytes of records that they replace, by block. A block of which more than half
//! is dead is *rewritten*: its live records go to a new file, in which they keep their addresses,
//! so neither the index nor the hot pages see anything of it. Whether a record is live, the index
//! tells: its word is the record's address, or it is not. A block of which less than a sixteenth
//! is alive gives its number back: several of them are *gathered* into one new block, and the index
//! is told the new addresses.
//!
//! A *tombstone* is live as long as an older version of its key may lie in another block. Blocks
//! know the number below which they are clean: they have no version that was replaced by one with a
//! lower number. So a tombstone goes when all blocks with older records are clean up to it.
//!
//! The log is synced before a file goes: what makes a record dead must not be lost. A store without
//! a log keeps a version until the tier has a later one, or the tombstone. The index does not tell
//! where a tombstone lies. So a version of a removed key stays at first, and goes once all is
//! sealed that was written until then.

use crate::space::memory::{Here, Memory};
use crate::space::record::{Kind, LargeValue, Record};
use crate::store::Tiered;
use crate::tier::edit::{Edit, Name};
use crate::tier::read::{Block, BlockWriter, Held, path_of};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, MutexGuard, PoisonError};
use terrace_engine::{Durability, ReadError, Rest, WriteError};

/// Parts of a block that are alive, below which it is gathered with others.
const SPARSE: u64 = 16;
/// Blocks that are gathered at once.
const TOGETHER: usize = 12;

/// Records that moved: their probes, and the addresses before and after.
type Moves = Vec<(Box<[u8]>, u64, u64)>;

/// The records of some blocks that went to a new one.
struct Survivors {
    moves: Moves,
    /// Whether a block has room for them. If not, some of them are missing here.
    fit: bool,
    /// By block, the offsets of those among them whose keys were removed.
    removed: Vec<Vec<u32>>,
    /// Bytes of those among them that are dead, but have no successor on the tier.
    kept: u64,
    /// Their successors have lower numbers than this.
    waits_for: u64,
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

impl Tiered {
    /// Rewrites a block, or gathers some, if there is one worth it.
    pub(crate) fn step_reclaim(&self) -> Result<Rest, WriteError> {
        let Ok(reorganising) = self.reorganising.try_lock() else { return Ok(Rest::Idle) };
        self.reclaim_one(&reorganising)
    }

    /// The same for a removal that finds no room. Returns whether a block was rewritten.
    pub(crate) fn reclaim_some(&self) -> Result<bool, WriteError> {
        if self.is_recovering.load(Relaxed) || self.lacks_room(&self.unreclaimed).is_some() {
            return Ok(false);
        }
        let reorganising = self.reorganising.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.reclaim_one(&reorganising);
        self.note_room(&self.unreclaimed, &done);
        match done {
            Ok(Rest::Idle) => Ok(false),
            Err(error) if error.lacks_room() => Ok(false),
            done => done.map(|_| self.forget_shortage()).map(|()| true),
        }
    }

    fn reclaim_one(&self, _reorganising: &MutexGuard<'_, ()>) -> Result<Rest, WriteError> {
        let memory = self.memory.load_full();
        let dead = |block: &Held| memory.dead(block.foot.number).load(Relaxed);
        let mut sparse: Vec<Held> = Vec::new();
        let mut worst: Option<(u64, Held)> = None;
        // Where room is short, less of a block has to be dead, and none waits for others.
        let is_short = !self.log.reserve().is_kept();
        let worth = if is_short { 8 } else { 2 };
        let unsealed = memory.open.first_unsealed_seq();
        let is_ready =
            |block: &Held| !block.is_damaged.load(Relaxed) && block.waits_for.load(Relaxed) <= unsealed;
        for block in self.all_blocks().filter(is_ready) {
            let (dead, bytes) = (dead(&block), block.foot.bytes.max(1));
            let is_sparse = bytes.saturating_sub(dead) * SPARSE < memory.pages.block_bytes();
            if is_sparse && !(is_short && dead * 2 > bytes) {
                if dead * 2 > bytes || bytes * SPARSE < memory.pages.block_bytes() {
                    sparse.push(block);
                }
            } else if dead * worth > bytes
                && worst.as_ref().is_none_or(|(share, _)| dead * 1024 / bytes > *share)
            {
                worst = Some((dead * 1024 / bytes, block));
            }
        }
        if let Some((_, block)) = worst {
            self.with_reserve(|| self.rewrite(&memory, &block))?;
            return Ok(Rest::More);
        }
        // A few small ones may wait for more.
        if sparse.len() >= TOGETHER {
            sparse.truncate(TOGETHER);
            self.gather_or_rewrite(&memory, &sparse)?;
            return Ok(Rest::More);
        }
        Ok(Rest::Idle)
    }

    /// Rewrites all blocks that have dead records.
    pub(crate) fn reclaim_all(&self) -> Result<(), WriteError> {
        let _reorganising = self.reorganising.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = self.memory.load_full();
        let blocks: Vec<Held> = self.all_blocks().collect();
        let (sparse, full): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|block| {
            let dead = memory.dead(block.foot.number).load(Relaxed);
            block.foot.bytes.saturating_sub(dead) * SPARSE < memory.pages.block_bytes()
        });
        for block in full {
            if memory.dead(block.foot.number).load(Relaxed) > 0 || block.foot.tombstones > 0 {
                self.rewrite(&memory, &block)?;
            }
        }
        sparse.chunks(TOGETHER).try_for_each(|blocks| self.gather_or_rewrite(&memory, blocks))
    }

    /// Gathers some blocks. If more of them is of use than was counted, they are rewritten: then
    /// all is counted. Tombstones count as dead, though some have to stay.
    fn gather_or_rewrite(&self, memory: &Arc<Memory>, blocks: &[Held]) -> Result<(), WriteError> {
        if self.with_reserve(|| self.gather(memory, blocks))? {
            return Ok(());
        }
        blocks.iter().try_for_each(|block| self.with_reserve(|| self.rewrite(memory, block)))
    }

    /// The number below which tombstones hide nothing: all blocks but these are clean up to it, or
    /// have only newer records.
    fn clean_up_to(&self, but: &[Name]) -> u64 {
        let others = self.all_blocks().filter(|block| !but.contains(&block.name()));
        others.map(|block| block.foot.clean_seq.max(block.foot.first_seq)).min().unwrap_or(u64::MAX)
    }

    /// Writes the live records of a block to a new file, in which they have the same addresses.
    fn rewrite(&self, memory: &Arc<Memory>, block: &Held) -> Result<(), WriteError> {
        let number = block.foot.number;
        let dead = memory.dead(number).swap(0, Relaxed);
        let name = (number, self.next_file.fetch_add(1, Relaxed));
        let rewritten = self.write_survivors(memory, std::slice::from_ref(block), name, true);
        let installed = rewritten.and_then(|survivors| {
            self.finish_rewrite(memory, name, &survivors, &[block.name()])?;
            Ok(survivors.moves.is_empty())
        });
        match installed {
            Err(error) => {
                memory.dead(number).fetch_add(dead, Relaxed);
                self.discard(name);
                Err(error)
            }
            Ok(is_empty) => {
                block.remove();
                if is_empty {
                    self.remove_unfinished(name);
                    memory.open.end((&memory.pages, &memory.pages.pool.try_pin()?), number);
                }
                self.counters.rewrites.fetch_add(1, Relaxed);
                Ok(())
            }
        }
    }

    /// Puts the live records of some blocks into a new one, and ends them. Returns whether they fit
    /// there.
    fn gather(&self, memory: &Arc<Memory>, blocks: &[Held]) -> Result<bool, WriteError> {
        let Some(number) = memory.pages.take_number() else { return Ok(true) };
        let name = (number, self.next_file.fetch_add(1, Relaxed));
        let names: Vec<Name> = blocks.iter().map(|block| block.name()).collect();
        let written = self.write_survivors(memory, blocks, name, false);
        let mut fit = true;
        let installed = written.and_then(|survivors| {
            fit = survivors.fit;
            if !fit {
                return Ok(None);
            }
            if survivors.kept > 0 {
                // They are too many for one block, perhaps.
                for (block, removed) in blocks.iter().zip(survivors.removed) {
                    block.wait_for(survivors.waits_for, removed);
                }
                return Ok(None);
            }
            self.finish_rewrite(memory, name, &survivors, &names)?;
            Ok(Some(survivors.moves))
        });
        let moves = match installed {
            Ok(Some(moves)) => moves,
            none => {
                self.discard(name);
                memory.pages.free_number(number);
                return none.map(|_| fit);
            }
        };
        if moves.is_empty() {
            self.remove_unfinished(name);
            memory.pages.free_number(number);
        }
        // The manifest has the old ones no more: nothing may go on with half of the words.
        self.move_words(memory, moves).inspect_err(|error| self.standing.stop(error.to_string()))?;
        for block in blocks {
            // Nothing names its addresses any more.
            self.blocks[block.foot.number as usize].store(None);
            block.remove();
            memory.open.end((&memory.pages, &memory.pages.pool.try_pin()?), block.foot.number);
        }
        self.counters.rewrites.fetch_add(blocks.len() as u64, Relaxed);
        Ok(true)
    }

    /// Tells the index where records are now.
    fn move_words(&self, memory: &Arc<Memory>, moves: Moves) -> Result<(), WriteError> {
        for (probe, from, to) in moves.into_iter().filter(|(_, from, to)| from != to) {
            let _stripe = self.stripes.lock(crate::space::record::hash_in(&probe));
            let here = Here::enter(memory)?;
            here.search.note(from, &probe);
            match self.look_up(&here, &probe)?.0 {
                Some(word) if word == from || original(&here, word) == Some(from) => {
                    self.swap(&here, &probe, (Some(word), Some(to)))?;
                }
                // It was replaced meanwhile, or is a tombstone.
                _ => {
                    let dead = memory.dead(memory.pages.map.block_of(to));
                    dead.fetch_add(8, Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Writes the live records of some blocks to the file of a new one. Returns where they lie now:
    /// at the same addresses if `keeps_places`.
    fn write_survivors(
        &self,
        memory: &Arc<Memory>,
        blocks: &[Held],
        name: Name,
        keeps_places: bool,
    ) -> Result<Survivors, WriteError> {
        let names: Vec<Name> = blocks.iter().map(|block| block.name()).collect();
        let clean_up_to = self.clean_up_to(&names);
        let clean = self.next_seq.load(Acquire);
        // Of a write with a lower number, the index has the outcome.
        self.stripes.pass_all();
        let path = path_of(self.path(), name.0, name.1);
        self.standing.check_place(&self.directory)?;
        let file = terrace_disk::create_file(&self.files, &path)?;
        let mut writer = BlockWriter::new(&*file, &path, self.id(), name);
        let mut survivors =
            Survivors { moves: Moves::new(), fit: true, removed: Vec::new(), kept: 0, waits_for: 0 };
        let (mut next, mut first_kept) = (0, u64::MAX);
        let mut failed: Result<(), WriteError> = Ok(());
        for block in blocks {
            let (sealed, mut removed) = (block.sealed_removals(memory.open.first_unsealed_seq()), Vec::new());
            block.for_each(&mut |offset, bytes| {
                if failed.is_err() || !survivors.fit {
                    return;
                }
                if bytes.is_err() {
                    // It stays as it is, for a salvage.
                    block.is_damaged.store(true, Relaxed);
                }
                failed = bytes.map_err(WriteError::from).and_then(|bytes| {
                    let from = memory.pages.map.address(block.foot.number, offset);
                    let record = Record::read(bytes).expect("compared with its checksum");
                    let mut fate = self.fate_of(memory, from, &record, clean_up_to)?;
                    if fate == Fate::IsRemoved {
                        let offset = offset as u32;
                        removed.push(offset);
                        // If nothing waits to be sealed, nor does a tombstone.
                        let is_sealed = sealed.binary_search(&offset).is_ok()
                            || memory.open.first_unsealed_seq() == u64::MAX;
                        fate = if is_sealed { Fate::Goes } else { Fate::IsKept };
                    }
                    match fate {
                        Fate::Lives => {}
                        Fate::Goes => return self.doom_record(memory, &record),
                        Fate::IsKept | Fate::IsRemoved => {
                            survivors.kept += bytes.len() as u64;
                            first_kept = first_kept.min(record.seq);
                        }
                    }
                    let place = if keeps_places { offset } else { next };
                    next += bytes.len() as u64;
                    if !keeps_places && next > memory.pages.block_bytes() {
                        survivors.fit = false;
                        return Ok(());
                    }
                    writer.add(place, bytes)?;
                    survivors.moves.push((
                        record.probe.into(),
                        from,
                        memory.pages.map.address(name.0, place),
                    ));
                    Ok(())
                });
            })?;
            std::mem::replace(&mut failed, Ok(()))?;
            if !survivors.fit {
                return Ok(survivors);
            }
            survivors.removed.push(removed);
        }
        if survivors.kept > 0 {
            survivors.waits_for = self.next_seq.load(Acquire);
        }
        if !writer.is_empty() {
            // A version that was kept is not clean of its successor.
            let foot = writer.finish(clean.min(first_kept))?;
            self.counters.rewritten_bytes.fetch_add(foot.file_bytes(), Relaxed);
        }
        Ok(survivors)
    }

    /// Whether a record of a block is still of use.
    fn fate_of(
        &self,
        memory: &Arc<Memory>,
        address: u64,
        record: &Record<'_>,
        clean_up_to: u64,
    ) -> Result<Fate, ReadError> {
        if record.seq < self.cleared_at.load(Relaxed) {
            return Ok(Fate::Goes);
        }
        if record.shape.kind == Kind::Tombstone {
            return Ok(if record.seq >= clean_up_to { Fate::Lives } else { Fate::Goes });
        }
        let here = Here::enter(memory)?;
        here.search.note(address, record.probe);
        let present = |word: Option<u64>| {
            let Some(word) = word else { return Present::Nothing };
            let other = original(&here, word).unwrap_or(word);
            match self.block(memory.pages.map.block_of(other)) {
                _ if other == address => Present::Own,
                None => Present::InDram,
                Some(_) => Present::OnTier,
            }
        };
        let present = self.settled(&here, record.probe, present, |found| *found == Present::Own)?;
        let has_log = self.settings.durability != Durability::None;
        Ok(match present {
            Present::Own => Fate::Lives,
            // Without a log, what is in DRAM alone may be lost: a successor, or a tombstone.
            Present::InDram if !has_log => Fate::IsKept,
            Present::Nothing if !has_log => Fate::IsRemoved,
            _ => Fate::Goes,
        })
    }

    /// Dooms the large value of a dead record, if it has one.
    fn doom_record(&self, memory: &Arc<Memory>, record: &Record<'_>) -> Result<(), WriteError> {
        let is_present = record.seq >= self.cleared_at.load(Relaxed);
        match LargeValue::read(record.inline).filter(|_| record.shape.kind == Kind::Large && is_present) {
            Some(large) => Ok(self.doom(&Here::enter(memory)?, record.probe, (large, record.seq), None)?),
            None => Ok(()),
        }
    }

    /// Notes a new file in the place of some blocks, unless it has nothing.
    fn finish_rewrite(
        &self,
        memory: &Arc<Memory>,
        name: Name,
        survivors: &Survivors,
        removed: &[Name],
    ) -> Result<(), WriteError> {
        self.sync_log()?;
        let fresh = match survivors.moves.is_empty() {
            false => {
                self.sync_names()?;
                Some(Arc::new(Block::open(&self.files, self.path(), self.id(), name)?))
            }
            true => None,
        };
        // A gathering keeps none of these.
        let waiting = survivors.removed.first().filter(|_| survivors.kept > 0);
        let waiting = waiting.cloned().unwrap_or_default();
        fresh.iter().for_each(|fresh| fresh.wait_for(survivors.waits_for, waiting.clone()));
        let mut manifest = self.manifest();
        assert!(
            Arc::ptr_eq(memory, &self.memory.load()),
            "a store is not cleared while blocks are rewritten"
        );
        let edit = Edit {
            removed: removed.to_vec(),
            added: fresh.iter().map(|block| block.summed()).collect(),
            ..Edit::default()
        };
        self.write_edit(&mut manifest, &edit)?;
        memory.dead(name.0).fetch_add(survivors.kept, Relaxed);
        self.blocks[name.0 as usize].store(fresh);
        Ok(())
    }
}

/// The address of the record that the one at an address is a copy of, if it is one.
fn original(here: &Here<'_>, address: u64) -> Option<u64> {
    let record = here.record(address).filter(|record| record.is_copy())?;
    Some(record.original(&here.guard))
}
