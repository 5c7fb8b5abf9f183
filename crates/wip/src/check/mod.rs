//! Checks, salvage, checkpoints.

pub(crate) mod lossy;
pub(crate) mod salvage;

use crate::jobs::merging::Merging;
use crate::state::store::Wip;
use crate::state::table::Table;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use terrace_disk::{Directory, DiskError, Ends, Manifest, Source};
use terrace_engine::Salvage;
use terrace_engine::Standing;
use terrace_engine::finding;
use terrace_engine::{Direction, ReadError, Report, Rest, WriteError};

/// Findings that a report has at most.
const FINDINGS_MAX: usize = 1000;

impl Wip {
    fn all_tables(&self) -> Vec<Arc<Table>> {
        let state = self.state.load();
        let tables = state.all().flat_map(|bucket| bucket.tables());
        let mut tables: Vec<_> = tables.map(|(_, table)| Arc::clone(table)).collect();
        tables.sort_by_key(|table| table.number);
        tables
    }

    /// Reads every item of every table, and compares it with its checksum.
    pub(crate) fn check_tables(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let tables = self.all_tables();
        let all: u64 = tables.iter().map(|table| table.properties().items).sum();
        let mut report = Report { buckets: self.state.load().buckets.len() as u64, ..Report::default() };
        for table in tables {
            let read = read_table(&table, &mut report.records, &mut |done| progress(done, all));
            if let Err(error) = read
                && report.findings.len() < FINDINGS_MAX
            {
                report.findings.push(finding(&error, "table", None));
            }
        }
        // What is only in memory was compared with its checksums when it was read from the log.
        let state = self.state.load();
        report.records += state.memtables().map(|memtable| memtable.items()).sum::<u64>();
        progress(report.records, report.records);
        report
    }

    /// Visits every entry of the store, and what is damaged.
    pub(crate) fn salvage_all(&self, each: &mut Salvage<'_>) {
        let report = self.check_tables(&mut |_, _| {});
        report.findings.into_iter().for_each(|finding| each(Err(finding)));
        let mut range = self.range_between(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
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
    pub(crate) fn make_checkpoint(&self, directory: &Path) -> Result<(), WriteError> {
        self.standing.check_writable()?;
        Standing::check_copy(&self.directory, directory)?;
        // Nothing changes the structure meanwhile. Later writes are not part of the copy: they go
        // to another segment of the log.
        let _manifest = self.structure.lock();
        let writer = self.writer();
        let (whole, tables) = (self.whole(), self.all_tables());
        let cut = self.log.cut().map_err(|error| self.standing.failed(error))?;
        drop(writer);
        self.log.sync(cut.end).map_err(|error| self.standing.failed(error))?;
        let identity = self.directory.identity().clone();
        let mut link =
            |from: &Path, to: &Path| self.files.link(from, to).map_err(DiskError::room("link", from));
        let fill = |to: &Path| -> Result<(), DiskError> {
            for table in &tables {
                link(table.path(), &crate::state::table::path_of(to, table.number))?;
            }
            let ends = Ends::open(&self.files, to, identity.store)?;
            self.log.link_into(to, cut, &ends, &mut link)?;
            let mut manifest = Manifest::create(&self.files, to, identity.store, &[whole.to_bytes()])?;
            manifest.keep_ends(ends.clone());
            ends.sync()
        };
        let made = Directory::create(&self.files, directory, &identity, fill);
        made.map(drop).map_err(|error| WriteError::Checkpoint(error.to_string()))
    }

    /// Merges all tables of a bucket into one.
    pub(crate) fn merge_whole(&self, id: u64) -> Result<(), WriteError> {
        self.end_split(id)?;
        while !self.jobs.claim(id) {
            // The job that it has goes on.
            self.step_merge()?;
        }
        let merged = self.merge_tables(id);
        self.jobs.release(id);
        merged
    }

    /// Waits until the bucket that this one was split from has been divided, and does what that
    /// needs: until then, part of its items lie there. A damaged one stays as it is.
    fn end_split(&self, id: u64) -> Result<(), WriteError> {
        loop {
            let state = self.state.load_full();
            let parent = state.position(id).and_then(|nth| state.buckets[nth].parent.as_ref());
            if parent.is_none_or(|parent| self.jobs.is_damaged(parent.id)) {
                return Ok(());
            }
            drop(state);
            if [self.step_flush()?, self.step_merge()?] == [Rest::Idle; 2] {
                self.jobs.wait(std::time::Duration::from_millis(10));
            }
        }
    }

    fn merge_tables(&self, id: u64) -> Result<(), WriteError> {
        let state = self.state.load_full();
        let Some(nth) = state.position(id) else { return Ok(()) };
        if state.buckets[nth].tables().next().is_none() {
            return Ok(());
        }
        let mut merging = Merging::whole(&state.buckets[nth]);
        while !self.go_on(&mut merging)? {}
        Ok(())
    }
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
