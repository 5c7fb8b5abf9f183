//! `load`: fills a pool from a file or standard input. Good records are kept, bad ones are reported
//! with their lines.

mod csv;
mod jsonl;
mod progress;
mod resp;
mod source;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use terrace_medium::files::SystemFiles;

use crate::{
    clock::now_ms,
    failure::{FAILED, Failure, Outcome},
    password::Password,
    record::Record,
    remote::Refused,
    settings::{OfPool, Settings},
    target::{Database, Target},
    text::{counted, thousands},
};
use progress::Progress;
use source::{Format, Source};

#[derive(Debug, Args)]
#[command(after_help = "\
CSV has a header that names the columns key and value, and optionally ttl or expires_at_ms. Lines end with LF or CRLF.
A field that contains a comma, a quote or a line end must be quoted; a quote inside it is doubled.
JSON lines are {\"key\":..,\"value\":..,\"ttl\":..}; key_base64 and value_base64 hold bytes that are not text. A number
as a value is kept digit by digit.
In both, ttl is in seconds from now (fractions are allowed) and expires_at_ms in milliseconds since 1970. Both must be
above 0. A record that has already expired does not exist afterwards.
A Redis protocol stream holds commands: SET, SETEX, MSET, ... Commands for a database that does not exist are skipped.
A line in JSON with \"db\":N is for the database N; all else is for that of --db, until a SELECT in a stream.

Invalid lines are reported with their numbers and skipped; all others are loaded.
If a server has the pool open, the records go through it.
Exit code 0: everything was loaded; 1: something was not.")]
pub(crate) struct LoadOptions {
    /// The file; `-` is standard input
    pub(crate) file: PathBuf,
    /// Its format; by default from its name, or from its first bytes
    #[arg(long)]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

pub(crate) fn run(options: &LoadOptions) -> Outcome {
    let config = options.pool.config()?;
    let progress = Progress::new();
    let mut source = Source::open(&SystemFiles, &options.file, &progress)?;
    let format = source.format(options.format)?;
    let mut target = Target::or_create(&config, &options.password)?;
    let loaded = load(&mut target, source, format, (progress, options.database.number));
    let closed = target.close();
    let bad = loaded?;
    closed?;
    Ok(if bad > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Loads all of `source` into a database; returns the number of bad lines. If it fails, the records
/// read before the failure are still written and counted.
fn load(
    target: &mut Target,
    mut source: Source,
    format: Format,
    (progress, database): (Progress, u8),
) -> Result<u64, Failure> {
    source.skip_mark()?;
    let (name, unit) = (source.name.clone(), if format == Format::Resp { "command" } else { "line" });
    let mut loader = Loader {
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
    };
    let ended = match format {
        Format::Csv => csv::load(source.reader, &mut loader),
        Format::Jsonl => jsonl::load(source.reader, &mut loader),
        Format::Resp => resp::load(source.reader, &mut loader),
    };
    // The records read before the end or a failure are written and counted.
    let flushed = loader.flush();
    let bad = loader.finish(ended.is_ok());
    ended.and(flushed).map(|()| bad)
}

/// Writes records in batches, and counts them.
struct Loader<'a> {
    target: &'a mut Target,
    /// The database of records that name none.
    database: u8,
    /// The source, for messages.
    name: String,
    /// What the numbers in messages count: lines or commands.
    unit: &'static str,
    batch: Vec<(u64, Record)>,
    bytes: usize,
    loaded: u64,
    /// Loaded records that had already expired.
    expired: u64,
    bad: u64,
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

impl Loader<'_> {
    /// Takes the record of a line.
    fn add(&mut self, line: u64, mut record: Record) -> Result<(), Failure> {
        record.database.get_or_insert(self.database);
        self.bytes += record.key.len() + record.value.len();
        self.batch.push((line, record));
        if self.batch.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Counts records that were already written.
    fn add_loaded(&mut self, records: u64) {
        self.loaded += records;
        self.progress.show(self.loaded);
    }

    /// Reports a line that was not loaded.
    fn bad(&mut self, line: u64, why: &str) {
        self.bad_lines(line, line, why);
    }

    /// Reports a record of several lines that was not loaded.
    fn bad_lines(&mut self, first: u64, last: u64, why: &str) {
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
    fn skip(&mut self) {
        self.bad += 1;
    }

    /// Warns about a line that was loaded but looks wrong.
    fn warn(&self, line: u64, what: &str) {
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
    fn flush(&mut self) -> Result<(), Failure> {
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
    fn finish(self, whole: bool) -> u64 {
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
