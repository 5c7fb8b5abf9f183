//! Blocks that the manifest does not name, and whether they prove that it has lost its end.
//!
//! A crash leaves files of blocks that no edit names: one that was being sealed, whose records the
//! log still has, and one that was being rewritten, whose records the named blocks have. Both are
//! of no use. But if such a block has a record that neither has, it was in use: the log lets go of
//! a record once an edit has named its block. Then the edit is missing. A store without a log seals
//! one block at a time, so a single one proves nothing there.

use super::edit::Plan;
use super::entries::hash_parts;
use super::format::numbers_of;
use super::read::{Block, Held};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_disk::{DiskError, Record};
use terrace_medium::files::{Files, Purpose};

/// The lowest and the highest number that the log has, if it has any.
pub(crate) type Logged = Option<(u64, u64)>;

/// Notes the numbers of a record of the log.
pub(crate) fn note(logged: &mut Logged, record: &Record<'_>) {
    let last = record.first_seq + u64::from(record.count).saturating_sub(1);
    let (from, to) = logged.unwrap_or((record.first_seq, last));
    *logged = Some((from.min(record.first_seq), to.max(last)));
}

/// What such blocks lack elsewhere.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    Nothing,
    /// Records from behind the log's end: they never were there.
    NotLogged,
    /// Records that the log has let go of.
    Released,
}

/// The sound blocks in the directory of a store that none of its manifest's edits names.
pub(crate) fn blocks(
    files: &Arc<dyn Files>,
    (path, store): (&Path, u64),
    plan: &Plan,
) -> Result<Vec<Held>, DiskError> {
    let names = files.list(path).map_err(DiskError::room("list", path))?;
    let names = names.iter().filter_map(|name| numbers_of(name.to_str()?));
    let unnamed = names.filter(|name| !plan.blocks.contains_key(name) && !plan.gone.contains(name));
    let blocks = unnamed.filter_map(|name| match Block::open(files, path, store, name) {
        Ok(block) if block.foot.last_seq < plan.cleared_at => None,
        // One without a sound end was never finished.
        Err(DiskError::Corrupt { .. } | DiskError::Foreign { .. }) => None,
        opened => Some(opened.map(Arc::new)),
    });
    blocks.collect()
}

/// Fails if some of these blocks show that the manifest has lost edits.
pub(crate) fn check(
    files: &Arc<dyn Files>,
    path: &Path,
    (named, unnamed): (&[Held], &[Held]),
    (logged, cleared_at): (Logged, u64),
    memory: u64,
) -> Result<(), DiskError> {
    let is_logged = |seq: u64| logged.is_some_and(|(first, last)| first <= seq && seq <= last);
    let is_in_doubt = |block: &Held| !is_logged(block.foot.first_seq) || !is_logged(block.foot.last_seq);
    let doubted: Vec<&Held> = unnamed.iter().filter(|block| is_in_doubt(block)).collect();
    if doubted.is_empty() {
        return Ok(());
    }
    let mut lacks: Vec<Lack> = doubted.iter().map(|_| Lack::Nothing).collect();
    let records = named.iter().chain(doubted.iter().copied()).map(|block| block.foot.records).sum();
    for bounds in hash_parts(records, memory) {
        let newest = newest_in(named, bounds)?;
        for (block, lack) in doubted.iter().zip(&mut lacks) {
            block.mentions(bounds, &mut |mention| {
                let known = newest.get(&(mention.hash, mention.second));
                let is_known = known.is_some_and(|&seq| seq >= mention.seq);
                if mention.seq >= cleared_at && !is_known && !is_logged(mention.seq) {
                    let is_newer = logged.is_none_or(|(_, last)| mention.seq > last);
                    let found = if is_newer { Lack::NotLogged } else { Lack::Released };
                    *lack = std::mem::replace(lack, Lack::Nothing).max(found);
                }
            })?;
        }
    }
    let not_logged = lacks.iter().filter(|lack| **lack == Lack::NotLogged).count();
    if not_logged <= 1 && !lacks.contains(&Lack::Released) {
        return Ok(());
    }
    let (manifest, length) = manifest_in(files, path)?;
    let what = "its end is missing: newer blocks than it names lie there, and the log begins behind \
                what it has; restore it, or `terrace check --repair` keeps all that is there";
    Err(DiskError::corrupt(&manifest, length, what))
}

/// The highest numbers of keys with hashes within these bounds, by their two hashes.
fn newest_in(blocks: &[Held], bounds: (u64, u64)) -> Result<HashMap<(u64, u64), u64>, DiskError> {
    let mut newest: HashMap<(u64, u64), u64> = HashMap::new();
    for block in blocks {
        block.mentions(bounds, &mut |mention| {
            let seq = newest.entry((mention.hash, mention.second)).or_default();
            *seq = mention.seq.max(*seq);
        })?;
    }
    Ok(newest)
}

/// The manifest that counts, and its length.
fn manifest_in(files: &Arc<dyn Files>, path: &Path) -> Result<(PathBuf, u64), DiskError> {
    let names = files.list(path).map_err(DiskError::room("list", path))?;
    let manifests =
        names.iter().filter_map(|name| name.to_str()).filter(|name| name.starts_with("MANIFEST-"));
    let manifest = path.join(manifests.max().unwrap_or("CURRENT"));
    let length = files.open(&manifest, Purpose::Read).and_then(|file| file.length());
    let length = length.map_err(DiskError::room("read", &manifest))?;
    Ok((manifest, length))
}
