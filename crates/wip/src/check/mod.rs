//! Checks and checkpoints. `lossy` passes damage in a table; `salvage` reads a store that does not
//! open.

pub(crate) mod lossy;
pub(crate) mod salvage;

use crate::state::store::Store;
use crate::state::table::Table;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use terrace_disk::{Directory, DiskError, Ends, Manifest, Source};
use terrace_engine::Salvage;
use terrace_engine::Standing;
use terrace_engine::finding;
use terrace_engine::{Direction, ReadError, Report, WriteError};

/// Findings that a report has at most.
const FINDINGS_MAX: usize = 1000;

fn all_tables(store: &Store) -> Vec<Arc<Table>> {
    let state = store.state.load();
    let tables = state.all().flat_map(|bucket| bucket.tables());
    let mut tables: Vec<_> = tables.map(|(_, table)| Arc::clone(table)).collect();
    tables.sort_by_key(|table| table.number);
    tables
}

/// Reads every item of every table, and compares it with its checksum.
pub(crate) fn check_tables(store: &Store, progress: &mut dyn FnMut(u64, u64)) -> Report {
    let tables = all_tables(store);
    let all: u64 = tables.iter().map(|table| table.properties().items).sum();
    let mut report = Report { buckets: store.state.load().buckets.len() as u64, ..Report::default() };
    for table in tables {
        let read = read_table(&table, &mut report.records, &mut |done| progress(done, all));
        if let Err(error) = read
            && report.findings.len() < FINDINGS_MAX
        {
            report.findings.push(finding(&error, "table", None));
        }
    }
    // What is only in memory was compared with its checksums when it was read from the log.
    let state = store.state.load();
    report.records += state.memtables().map(|memtable| memtable.items()).sum::<u64>();
    progress(report.records, report.records);
    report
}

/// Visits every entry of the store, and what is damaged.
pub(crate) fn salvage_all(store: &Store, each: &mut Salvage<'_>) {
    let report = check_tables(store, &mut |_, _| {});
    report.findings.into_iter().for_each(|finding| each(Err(finding)));
    let mut range = store.range_between(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    loop {
        let more = terrace_engine::RangeCursor::visit(&mut range, 1024, &mut |key, entry| {
            each(Ok((key, entry)));
            ControlFlow::Continue(())
        });
        match more {
            Ok(true) => {}
            Err(ReadError::Skipped { next, .. }) if !next.is_end() => {}
            _ => return,
        }
    }
}

/// A copy of the store as it is now, in a new directory: links to its tables and to the log,
/// and a manifest of its own.
pub(crate) fn make_checkpoint(store: &Store, directory: &Path) -> Result<(), WriteError> {
    store.standing.check_writable()?;
    Standing::check_copy(&store.directory, directory)?;
    // Nothing changes the structure meanwhile. Later writes are not part of the copy: they go
    // to another segment of the log.
    let _manifest = store.structure.lock();
    let writer = store.writer();
    let (whole, tables) = (store.whole(), all_tables(store));
    let cut = store.log.cut().map_err(|error| store.standing.failed(error))?;
    drop(writer);
    store.log.sync(cut.end).map_err(|error| store.standing.failed(error))?;
    let identity = store.directory.identity().clone();
    let mut link = |from: &Path, to: &Path| store.files.link(from, to).map_err(DiskError::room("link", from));
    let fill = |to: &Path| -> Result<(), DiskError> {
        for table in &tables {
            link(table.path(), &crate::state::table::path_of(to, table.number))?;
        }
        let ends = Ends::open(&store.files, to, identity.store)?;
        store.log.link_into(to, cut, &ends, &mut link)?;
        let mut manifest = Manifest::create(&store.files, to, identity.store, &[whole.to_bytes()])?;
        manifest.keep_ends(ends.clone());
        ends.sync()
    };
    let made = Directory::create(&store.files, directory, &identity, fill);
    made.map(drop).map_err(|error| WriteError::Checkpoint(error.to_string()))
}

fn read_table(table: &Arc<Table>, records: &mut u64, progress: &mut dyn FnMut(u64)) -> Result<(), DiskError> {
    let mut items = table.reader().cursor_for_merge();
    items.seek_first()?;
    while items.item().is_some() {
        *records += 1;
        if records.is_multiple_of(1 << 16) {
            progress(*records);
        }
        items.next()?;
    }
    progress(*records);
    Ok(())
}
