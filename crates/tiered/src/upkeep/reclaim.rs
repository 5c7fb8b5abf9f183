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

use super::survivors::{Moves, Survey, Survivors, original};
use super::work::Upkeep;
use crate::space::memory::{Here, Memory};
use crate::tier::edit::{Edit, Name};
use crate::tier::format::path_of;
use crate::tier::read::{Block, Held};
use crate::tier::write::BlockWriter;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, MutexGuard};
use terrace_engine::{Rest, WriteError};

/// Parts of a block that are alive, below which it is gathered with others.
const SPARSE: u64 = 16;
/// Blocks that are gathered at once.
const TOGETHER: usize = 12;

impl Upkeep {
    /// Rewrites a block, or gathers some, if there is one worth it.
    pub(crate) fn step_reclaim(&self) -> Result<Rest, WriteError> {
        let Ok(reorganising) = self.reorganising.try_lock() else { return Ok(Rest::Idle) };
        self.reclaim_one(&reorganising)
    }

    /// The same for a removal that finds no room. Returns whether a block was rewritten.
    pub(crate) fn reclaim_some(&self) -> Result<bool, WriteError> {
        if self.journal().is_recovering() || self.journal().lacks_room(&self.unreclaimed).is_some() {
            return Ok(false);
        }
        let reorganising = self.stop_rewrites();
        let done = self.reclaim_one(&reorganising);
        self.journal().note_room(&self.unreclaimed, &done);
        match done {
            Ok(Rest::Idle) => Ok(false),
            Err(error) if error.lacks_room() => Ok(false),
            done => done.map(|_| self.forget_shortage()).map(|()| true),
        }
    }

    fn reclaim_one(&self, _reorganising: &MutexGuard<'_, ()>) -> Result<Rest, WriteError> {
        let memory = self.records().memory.load_full();
        let (worst, mut sparse) = self.worth_reclaiming(&memory);
        if let Some(block) = worst {
            self.journal().with_reserve(|| self.rewrite(&memory, &block))?;
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

    /// The block of which the largest part is dead, if that is worth a rewrite, and those of which
    /// little is alive.
    fn worth_reclaiming(&self, memory: &Memory) -> (Option<Held>, Vec<Held>) {
        let dead = |block: &Held| memory.dead(block.foot.number).load(Relaxed);
        let mut sparse: Vec<Held> = Vec::new();
        let mut worst: Option<(u64, Held)> = None;
        // Where room is short, less of a block has to be dead, and none waits for others.
        let is_short = !self.journal().log.reserve().is_kept();
        let worth = if is_short { 8 } else { 2 };
        let unsealed = memory.open.first_unsealed_seq();
        let is_ready =
            |block: &Held| !block.is_damaged.load(Relaxed) && block.waits_for.load(Relaxed) <= unsealed;
        for block in self.records().all_blocks().filter(is_ready) {
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
        (worst.map(|(_, block)| block), sparse)
    }

    /// Rewrites all blocks that have dead records.
    pub(crate) fn reclaim_all(&self) -> Result<(), WriteError> {
        let _reorganising = self.stop_rewrites();
        let memory = self.records().memory.load_full();
        let blocks: Vec<Held> = self.records().all_blocks().collect();
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
        if self.journal().with_reserve(|| self.gather(memory, blocks))? {
            return Ok(());
        }
        blocks.iter().try_for_each(|block| self.journal().with_reserve(|| self.rewrite(memory, block)))
    }

    /// The number below which tombstones hide nothing: all blocks but these are clean up to it, or
    /// have only newer records.
    fn clean_up_to(&self, but: &[Name]) -> u64 {
        let others = self.records().all_blocks().filter(|block| !but.contains(&block.name()));
        others.map(|block| block.foot.clean_seq.max(block.foot.first_seq)).min().unwrap_or(u64::MAX)
    }

    /// Writes the live records of a block to a new file, in which they have the same addresses.
    fn rewrite(&self, memory: &Arc<Memory>, block: &Held) -> Result<(), WriteError> {
        let number = block.foot.number;
        let dead = memory.dead(number).swap(0, Relaxed);
        let name = (number, self.tier().number_file());
        let rewritten = self.write_survivors(memory, std::slice::from_ref(block), name, true);
        let installed = rewritten.and_then(|survivors| {
            self.finish_rewrite(memory, name, &survivors, &[block.name()])?;
            Ok(survivors.moves.is_empty())
        });
        match installed {
            Err(error) => {
                memory.dead(number).fetch_add(dead, Relaxed);
                self.tier().discard(name);
                Err(error)
            }
            Ok(is_empty) => {
                block.remove();
                if is_empty {
                    self.tier().remove_unfinished(name);
                    memory.open.end((&memory.pages, &memory.pages.pool.try_pin()?), number);
                }
                self.records().counters.rewrites.fetch_add(1, Relaxed);
                Ok(())
            }
        }
    }

    /// Puts the live records of some blocks into a new one, and ends them. Returns whether they fit
    /// there.
    fn gather(&self, memory: &Arc<Memory>, blocks: &[Held]) -> Result<bool, WriteError> {
        assert!(blocks.len() <= TOGETHER, "few enough for one block");
        let Some(number) = memory.pages.take_number() else { return Ok(true) };
        let name = (number, self.tier().number_file());
        let written = self.write_survivors(memory, blocks, name, false);
        let mut fit = true;
        let installed = written.and_then(|survivors| {
            fit = survivors.fit;
            self.install_gathered(memory, (name, blocks), survivors)
        });
        let moves = match installed {
            Ok(Some(moves)) => moves,
            none => {
                self.tier().discard(name);
                memory.pages.free_number(number);
                return none.map(|_| fit);
            }
        };
        if moves.is_empty() {
            self.tier().remove_unfinished(name);
            memory.pages.free_number(number);
        }
        // The manifest has the old ones no more: nothing may go on with half of the words.
        self.move_words(memory, moves).inspect_err(|error| self.tier().standing.stop(error.to_string()))?;
        for block in blocks {
            // Nothing names its addresses any more.
            self.tier().place(block.foot.number, None);
            block.remove();
            memory.open.end((&memory.pages, &memory.pages.pool.try_pin()?), block.foot.number);
        }
        self.records().counters.rewrites.fetch_add(blocks.len() as u64, Relaxed);
        Ok(true)
    }

    /// Notes a new block in the place of some others. `None` if it has no room for their survivors,
    /// or some of these have to wait.
    fn install_gathered(
        &self,
        memory: &Arc<Memory>,
        (name, blocks): (Name, &[Held]),
        survivors: Survivors,
    ) -> Result<Option<Moves>, WriteError> {
        if !survivors.fit {
            return Ok(None);
        }
        if survivors.kept > 0 {
            // They are too many for one block, perhaps.
            for (block, removed) in blocks.iter().zip(survivors.removed) {
                block.wait_for(survivors.waits_for, removed);
            }
            return Ok(None);
        }
        let names: Vec<Name> = blocks.iter().map(|block| block.name()).collect();
        self.finish_rewrite(memory, name, &survivors, &names)?;
        Ok(Some(survivors.moves))
    }

    /// Tells the index where records are now.
    fn move_words(&self, memory: &Arc<Memory>, moves: Moves) -> Result<(), WriteError> {
        for (probe, from, to) in moves.into_iter().filter(|(_, from, to)| from != to) {
            let _stripe = self.records().stripes.lock(crate::space::record::hash_in(&probe));
            let here = Here::enter(memory)?;
            here.search.note(from, &probe);
            match self.records().look_up(&here, &probe)?.0 {
                Some(word) if word == from || original(&here, word) == Some(from) => {
                    self.records().swap(&here, &probe, (Some(word), Some(to)))?;
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

    /// Notes a new file in the place of some blocks, unless it has nothing.
    fn finish_rewrite(
        &self,
        memory: &Arc<Memory>,
        name: Name,
        survivors: &Survivors,
        removed: &[Name],
    ) -> Result<(), WriteError> {
        self.journal().sync_log()?;
        let fresh = match survivors.moves.is_empty() {
            false => {
                self.tier().sync_names()?;
                Some(Arc::new(Block::open(&self.tier().files, self.tier().path(), self.tier().id(), name)?))
            }
            true => None,
        };
        // A gathering keeps none of these.
        let waiting = survivors.removed.first().filter(|_| survivors.kept > 0);
        let waiting = waiting.cloned().unwrap_or_default();
        fresh.iter().for_each(|fresh| fresh.wait_for(survivors.waits_for, waiting.clone()));
        let mut manifest = self.journal().manifest();
        assert!(
            Arc::ptr_eq(memory, &self.records().memory.load()),
            "a store is not cleared while blocks are rewritten"
        );
        let edit = Edit {
            removed: removed.to_vec(),
            added: fresh.iter().map(|block| block.summed()).collect(),
            ..Edit::default()
        };
        self.records().write_edit(&mut manifest, &edit)?;
        memory.dead(name.0).fetch_add(survivors.kept, Relaxed);
        self.tier().place(name.0, fresh);
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
        let clean = self.journal().next_seq.load(Acquire);
        // Of a write with a lower number, the index has the outcome.
        self.records().stripes.pass_all();
        let path = path_of(self.tier().path(), name.0, name.1);
        self.tier().check_place()?;
        let file = terrace_disk::create_file(&self.tier().files, &path)?;
        let writer = BlockWriter::new(&*file, &path, self.tier().id(), name);
        let mut survey = Survey::new((self.records(), memory), (name, writer), keeps_places, clean_up_to);
        for block in blocks {
            if !survey.add_block(block)? {
                return Ok(survey.give_up());
            }
        }
        survey.finish(clean)
    }
}
