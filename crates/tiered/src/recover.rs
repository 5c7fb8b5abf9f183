//! The steps of a recovery: what the log and the tier have comes into DRAM.
//!
//! 1. The log is replayed (`replay`). A removal leaves its tombstone in the index for now.
//! 2. The entries of all blocks are read (`newest`). Of each key the newest version counts, here or
//!    in DRAM.
//! 3. Tombstones leave the index, and files that nothing names are removed.

use crate::error::TieredError;
use crate::newest::{drop_tombstones, take_entries};
use crate::replay::Replay;
use crate::tier::edit::{Name, Plan};
use crate::tier::entries::Entries;
use crate::tier::format::numbers_of;
use crate::tier::read::Held;
use crate::tier::{large, unnamed};
use crate::write::Writes;
use std::collections::BTreeSet;
use terrace_disk::{DiskError, Position, Replayed, Tail, list_files};
use terrace_engine::WriteError;

/// Bytes of the index for a key, at most, about.
const INDEX_BYTES: u64 = 16;

/// What a recovery has found.
pub(crate) struct Recovered {
    /// Where the log ended, and what was torn behind that.
    pub(crate) log_start: Position,
    pub(crate) tail: Option<Tail>,
    /// What is damaged or lost.
    pub(crate) warnings: Vec<String>,
    /// Bytes of writes that the log has.
    logged: u64,
}

/// Recovers while pages leave room for the index of the blocks: without it the log would fill
/// DRAM, and each key that comes behind would look for memory for the index, and find none.
pub(crate) fn recover(writes: &Writes, plan: &Plan, entries: Entries) -> Result<Recovered, TieredError> {
    let memory = writes.records().memory.load_full();
    let records: u64 = writes.records().all_blocks().map(|block| block.foot.records).sum();
    let has = memory.index_figures().bytes;
    let left = (records * INDEX_BYTES).saturating_sub(has).min(memory.pages.pool.size() / 2);
    memory.pages.leave_to_index(left);
    let recovered = recover_all(writes, plan, entries);
    memory.pages.take_back(left);
    let recovered = recovered?;
    writes.journal().end_recovery();
    if !writes.journal().settings.read_only && !writes.journal().has_log() {
        writes.journal().set_left_log(recovered.logged == 0 || leave_log(writes)?);
    }
    Ok(recovered)
}

/// A store without a log empties that of before, whose writes go to the tier.
/// Otherwise a later open would find keys there whose removals it does not have. Returns false
/// if the disk has no room for that.
fn leave_log(writes: &Writes) -> Result<bool, WriteError> {
    writes.upkeep.seal_all()?;
    writes.tier().remove_strays()?;
    writes.journal().leave_log()
}

fn recover_all(writes: &Writes, plan: &Plan, entries: Entries) -> Result<Recovered, TieredError> {
    let (tier, is_read_only) = (writes.tier(), writes.journal().settings.read_only);
    let unnamed = unnamed::blocks(&tier.files, (tier.path(), tier.id()), plan)?;
    let (mut replay, replayed) = Replay::run(writes)?;
    check_unnamed(writes, plan, (unnamed, replay.seqs()))?;
    start_log(writes, &replayed)?;
    let (log_start, tail, logged) = (writes.journal().log.end(), replayed.tail, replayed.bytes);
    replay.rest()?;
    replay.found.large.extend(take_entries(writes, entries)?);
    drop_tombstones(writes, std::mem::take(&mut replay.found.removed))?;
    if !is_read_only {
        remove_leftovers(writes, plan, &replay.found.large)?;
    }
    tier.note_files(replay.found.large.last().map_or(0, |number| number + 1));
    Ok(Recovered { log_start, tail, warnings: replay.warnings()?, logged })
}

/// Fails if blocks that no edit names show that the manifest has lost its end.
fn check_unnamed(
    writes: &Writes,
    plan: &Plan,
    (unnamed, seqs): (Vec<Held>, unnamed::Logged),
) -> Result<(), DiskError> {
    let tier = writes.tier();
    let named: Vec<Held> = writes.records().all_blocks().collect();
    let memory = (2 * writes.records().memory().pages.block_bytes()).max(1 << 20);
    unnamed::check(&tier.files, tier.path(), (&named, &unnamed), (seqs, plan.cleared_at), memory)
}

/// Begins the log behind what was replayed.
fn start_log(writes: &Writes, replayed: &Replayed) -> Result<(), TieredError> {
    let journal = writes.journal();
    journal.note_seq(replayed.last_seq);
    // What is found here is durable from now on: large values before the log that names them.
    journal.large.sync(&journal.tier)?;
    journal.log.start(replayed, journal.settings.read_only)?;
    if !journal.settings.read_only {
        // An earlier life may have kept more. Where it fails, there is less room.
        let _ = journal.log.reserve().fit(0);
    }
    Ok(())
}

/// Removes the files that neither the manifest nor a record names: a crash has left them.
fn remove_leftovers(writes: &Writes, plan: &Plan, large: &BTreeSet<u64>) -> Result<(), DiskError> {
    let tier = writes.tier();
    let is_left = |name: &str| {
        let block = numbers_of(name);
        let is_unknown = |name: Name| {
            let known = tier.block(name.0).map(|block| block.name());
            !plan.blocks.contains_key(&name) && known != Some(name)
        };
        block.is_some_and(is_unknown) || large::number_of(name).is_some_and(|number| !large.contains(&number))
    };
    let left = |name: &str| is_left(name).then(|| tier.path().join(name));
    for path in list_files(&tier.files, tier.path(), left)? {
        tier.files.remove(&path).map_err(DiskError::room("remove", &path))?;
    }
    Ok(())
}
