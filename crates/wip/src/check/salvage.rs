//! Salvage: reads what is sound of a damaged store, without opening it.
//!
//! Every item has a sequence number, so the newest version of a key is known without the structure
//! that the manifest describes. A damaged block hides the versions that it had: older ones of the
//! same keys may come to light, and keys that were deleted. The findings name each such range.

use crate::check::lossy::{Damages, Lossy};
use crate::engine::Wip;
use crate::memtable::MemTable;
use crate::open::{NAME, Plan};
use crate::range::Items;
use crate::state::edit::Edit;
use crate::state::table;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use terrace_disk::{
    Directory, DiskError, Item, Manifest, Merge, TableCache, TableReader, Visible, list_files, salvage_edits,
    salvage_log,
};
use terrace_engine::Salvage;
use terrace_engine::finding;
use terrace_engine::read_drafts;
use terrace_engine::{Entry, Finding};
use terrace_medium::files::{Files, Purpose};

/// Bytes of memory for pieces of tables.
const CACHE: u64 = 8 << 20;

impl Wip {
    /// Visits every entry of the store at `path` that its checksums prove, and every damage.
    ///
    /// # Errors
    /// There is no store, or another process has it open.
    pub fn salvage_from(
        files: &Arc<dyn Files>,
        path: &Path,
        each: &mut Salvage<'_>,
    ) -> Result<(), DiskError> {
        let mut findings = Vec::new();
        let directory = match Directory::open(files, path, NAME, true) {
            Err(error @ DiskError::Corrupt { .. }) => {
                note(&mut findings, &error, "identity");
                None
            }
            opened => Some(opened?),
        };
        let known = directory.as_ref().map(|directory| directory.identity().store);
        let store = known.or_else(|| Directory::identify(files, path)).unwrap_or_default();
        let (mut plan, is_whole) = read_plan(files, path, store, &mut findings);
        let damages = Damages::default();
        let plan_of_tables = is_whole.then_some(&plan);
        let mut sources = open_tables(files, (path, store), plan_of_tables, &damages, &mut findings)?;
        for memtable in read_log(files, path, store, &mut plan.cleared_at, &mut findings) {
            sources.push(Items::Memory(Arc::new(memtable).cursor()));
        }
        if let Err(error) = visit(sources, plan.cleared_at, each) {
            note(&mut findings, &error, "store");
        }
        let damaged = damages.take();
        findings.extend(damaged.iter().map(|damage| finding(&damage.error, "table", Some(&damage.keys))));
        findings.into_iter().for_each(|finding| each(Err(finding)));
        Ok(())
    }
}

/// Hands the newest version of each key to `each`.
fn visit(sources: Vec<Items>, cleared_at: u64, each: &mut Salvage<'_>) -> Result<(), DiskError> {
    let mut entries = Visible::new(Merge::new(sources), u64::MAX);
    entries.seek_first()?;
    while let Some(entry) = entries.entry() {
        if entry.seq >= cleared_at {
            let token = entry.seq.into();
            each(Ok((entry.key, Entry { value: entry.value, expires_at: entry.expires_at, token })));
        }
        entries.next()?;
    }
    Ok(())
}

/// The manifest as far as it can be read, and whether that is all of it.
fn read_plan(files: &Arc<dyn Files>, path: &Path, store: u64, findings: &mut Vec<Finding>) -> (Plan, bool) {
    let mut plan = Plan::default();
    let read = Manifest::read(files, path, store, &mut |bytes: &[u8]| {
        let added = Edit::read(bytes).ok_or("it is no edit of this engine").and_then(|edit| plan.add(edit));
        added.map_err(|what| DiskError::Corrupt { path: path.into(), offset: 0, what })
    });
    if let Err(error) = &read {
        // Any edit that is proved was in force once, and what is cleared is not cleared back.
        salvage_edits(files, path, store, &mut |bytes| {
            let cleared = Edit::read(bytes).and_then(|edit| edit.cleared);
            plan.cleared_at = cleared.unwrap_or(0).max(plan.cleared_at);
        });
        let affected = Some("what was removed or cleared, which may be back: all tables count now".into());
        findings.push(Finding { affected, ..finding(error, "manifest", None) });
    }
    (plan, read.is_ok())
}

/// Cursors for the tables of the plan, or for all in the directory.
fn open_tables(
    files: &Arc<dyn Files>,
    (path, store): (&Path, u64),
    plan: Option<&Plan>,
    damages: &Damages,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Items>, DiskError> {
    let cache = TableCache::new(CACHE);
    let found: BTreeSet<u64> = list_files(files, path, table::number_of)?.into_iter().collect();
    let wanted = plan.map_or(found, |plan| plan.tables().collect());
    let mut sources = Vec::new();
    for number in wanted {
        let path = table::path_of(path, number);
        let opened = files
            .open(&path, Purpose::ReadDirect)
            .map_err(DiskError::room("open", &path))
            .and_then(|file| TableReader::open(file, &path, &cache))
            .and_then(|reader| match reader.store() == store {
                true => Ok(reader),
                false => Err(DiskError::Foreign { path: path.clone() }),
            });
        match opened {
            Ok(reader) => {
                sources.push(Items::Table(Lossy::new(Arc::new(reader).cursor_for_merge(), damages)));
            }
            Err(error) => note(findings, &error, "table"),
        }
    }
    Ok(sources)
}

/// The items of the log, in MemTables. The log tells of a clear, too: then `cleared_at` grows.
fn read_log(
    files: &Arc<dyn Files>,
    path: &Path,
    store: u64,
    cleared_at: &mut u64,
    findings: &mut Vec<Finding>,
) -> Vec<MemTable> {
    let mut memtables = vec![MemTable::new(store)];
    salvage_log(files, path, store, &mut |record| {
        let record = match record {
            Ok(record) => record,
            Err(error) => return note(findings, &error, "log"),
        };
        *cleared_at = record.cleared().unwrap_or(0).max(*cleared_at);
        for (draft, seq) in read_drafts(record.payload).zip(record.first_seq..) {
            let Some(draft) = draft.filter(|_| seq >= *cleared_at) else { continue };
            let item = Item { key: draft.key, seq, content: draft.content };
            if !memtables.last().is_some_and(|last| last.add(&item)) {
                let next = MemTable::new(store);
                assert!(next.add(&item), "an empty MemTable has room for an item");
                memtables.push(next);
            }
        }
    });
    memtables
}

fn note(findings: &mut Vec<Finding>, error: &DiskError, what: &'static str) {
    findings.push(finding(error, what, None));
}
