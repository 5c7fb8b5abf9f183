//! Writes records in batches, and reports those that are bad.

use super::progress::Progress;
use crate::{
    clock::now_ms,
    failure::Failure,
    record::Record,
    remote::Refused,
    target::Target,
    text::{counted, thousands},
};

/// Writes records in batches, and counts them.
pub(super) struct Loader<'a> {
    pub(super) target: &'a mut Target,
    /// The database of records that name none.
    pub(super) database: u8,
    /// The source, for messages.
    pub(super) name: String,
    /// What the numbers in messages count: lines or commands.
    unit: &'static str,
    batch: Vec<(u64, Record)>,
    bytes: usize,
    loaded: u64,
    /// Loaded records that had already expired.
    expired: u64,
    pub(super) bad: u64,
    /// Bad lines that were reported individually, and those that were only counted.
    reported: u64,
    unreported: u64,
    progress: Progress,
}

/// Records and bytes written together.
const BATCH_RECORDS: usize = 512;
const BATCH_BYTES: usize = 4 << 20;
/// Number of bad lines that are reported individually.
const REPORTED_MAX: u64 = 20;

impl<'a> Loader<'a> {
    /// A loader of a source with this name and unit.
    pub(super) fn new(
        target: &'a mut Target,
        database: u8,
        (name, unit): (String, &'static str),
        progress: Progress,
    ) -> Loader<'a> {
        Loader {
            target,
            database,
            name,
            unit,
            batch: Vec::new(),
            bytes: 0,
            loaded: 0,
            expired: 0,
            bad: 0,
            reported: 0,
            unreported: 0,
            progress,
        }
    }

    /// Takes the record of a line.
    pub(super) fn add(&mut self, line: u64, mut record: Record) -> Result<(), Failure> {
        record.database.get_or_insert(self.database);
        self.bytes += record.key.len() + record.value.len();
        self.batch.push((line, record));
        if self.batch.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Counts records that were already written.
    pub(super) fn add_loaded(&mut self, records: u64) {
        self.loaded += records;
        self.progress.show(self.loaded);
    }

    /// Reports a line that was not loaded.
    pub(super) fn bad(&mut self, line: u64, why: &str) {
        self.bad_lines(line, line, why);
    }

    /// Reports a record of several lines that was not loaded.
    pub(super) fn bad_lines(&mut self, first: u64, last: u64, why: &str) {
        self.bad += 1;
        if self.reported == REPORTED_MAX {
            self.unreported += 1;
            return;
        }
        self.reported += 1;
        let so_far = thousands(self.loaded + self.batch.len() as u64 + self.bad);
        let place = self.place(first, last);
        self.progress
            .say(&format!("warning: {place}: {why} (skipped; {} of {so_far} so far)", thousands(self.bad)));
    }

    /// Counts a record that is skipped for a reason that was already reported.
    pub(super) fn skip(&mut self) {
        self.bad += 1;
    }

    /// Warns about a line that was loaded but looks wrong.
    pub(super) fn warn(&self, line: u64, what: &str) {
        self.progress.say(&format!("warning: {}: {what}", self.place(line, line)));
    }

    fn place(&self, first: u64, last: u64) -> String {
        let (unit, name) = (self.unit, &self.name);
        match first == last {
            true => format!("{unit} {} of {name}", thousands(first)),
            false => format!("{unit}s {} to {} of {name}", thousands(first), thousands(last)),
        }
    }

    /// Writes the collected batch.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        for part in batch.chunk_by(|(_, one), (_, next)| one.database == next.database) {
            self.write(part)?;
        }
        Ok(())
    }

    /// Writes records of one database.
    fn write(&mut self, part: &[(u64, Record)]) -> Result<(), Failure> {
        let records: Vec<&Record> = part.iter().map(|(_, record)| record).collect();
        self.target.select(records[0].database.unwrap_or(self.database))?;
        let (mut stopped, now) = (None, now_ms());
        for ((line, record), result) in part.iter().zip(self.target.put_many(&records)) {
            match result {
                Ok(()) => {
                    self.loaded += 1;
                    self.expired += u64::from(record.expires_at.is_some_and(|at| at <= now));
                }
                Err(Refused::Record(why)) => self.bad(*line, &why),
                Err(Refused::All(failure)) => stopped = stopped.or(Some((*line, failure))),
            }
        }
        self.progress.show(self.loaded);
        let Some((line, failure)) = stopped else { return Ok(()) };
        Err(failure.hint(format!("stopped at {}", self.place(line, line))))
    }

    /// Prints the summary; returns the number of bad lines.
    pub(super) fn finish(self, whole: bool) -> u64 {
        if self.unreported > 0 {
            let more = counted(self.unreported, self.unit, &format!("{}s", self.unit));
            self.progress.say(&format!("warning: {more} skipped as well"));
        }
        self.progress.clear();
        if whole || self.loaded + self.bad > 0 {
            let what = if self.unit == "command" { "command" } else { "record" };
            self.progress.sum_up(
                counted(self.loaded, what, &format!("{what}s")),
                self.loaded,
                self.expired,
                self.bad,
            );
        }
        self.bad
    }
}
