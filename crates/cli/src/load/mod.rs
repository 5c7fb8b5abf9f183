//! `load`: fills a pool from a file or standard input. What is good is kept, what is not is reported with its line.

mod csv;
#[cfg(test)]
mod faults;
mod jsonl;
mod progress;
mod replies;
mod resp;
mod source;

use std::process::ExitCode;

use terrace::{Put, Store, WriteError};
use terrace_medium::files::SystemFiles;

use crate::{
    args::{Format, LoadOptions},
    failure::{FAILED, Failure, Outcome, say},
    in_force, open,
    record::Record,
    text::{counted, thousands},
};
use progress::Progress;
use source::Source;

pub(crate) fn run(options: &LoadOptions) -> Outcome {
    let config = options.pool.config()?;
    let progress = Progress::new();
    let mut source = Source::open(&SystemFiles, &options.file, &progress)?;
    let format = source.format(options.format)?;
    let store = open::or_create(&config)?.store;
    in_force::record(&config, &store).iter().for_each(|said| say(&format!("warning: {said}")));
    let loaded = load(&store, source, format, progress);
    let closed = open::close(store);
    let bad = loaded?;
    closed?;
    Ok(if bad > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Loads all of `source`, and returns how many of its lines were bad. What was read before it ends, well or not, is written and told.
fn load(store: &Store, source: Source, format: Format, progress: Progress) -> Result<u64, Failure> {
    let name = source.name.clone();
    let unit = if format == Format::Resp { "command" } else { "line" };
    let mut loader = Loader { store, name, unit, batch: Vec::new(), bytes: 0, loaded: 0, bad: 0, progress };
    let ended = match format {
        Format::Csv => csv::load(source.reader, &mut loader),
        Format::Jsonl => jsonl::load(source.reader, &mut loader),
        Format::Resp => resp::load(source.reader, &mut loader),
    };
    // What was read before the end, good or bad, is written and told.
    let flushed = loader.flush();
    let bad = loader.finish(ended.is_ok());
    ended.and(flushed).map(|()| bad)
}

/// Takes records in batches, and keeps count.
struct Loader<'a> {
    store: &'a Store,
    /// The source, for messages.
    name: String,
    /// What numbers count.
    unit: &'static str,
    batch: Vec<(u64, Record)>,
    bytes: usize,
    loaded: u64,
    bad: u64,
    progress: Progress,
}

/// Records and bytes written together.
const BATCH_RECORDS: usize = 512;
const BATCH_BYTES: usize = 4 << 20;
/// Bad lines that are told one by one.
const TOLD: u64 = 20;

impl Loader<'_> {
    /// Takes the record of a line.
    fn add(&mut self, line: u64, record: Record) -> Result<(), Failure> {
        self.bytes += record.key.len() + record.value.len();
        self.batch.push((line, record));
        if self.batch.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Counts records that are in the pool already.
    fn took(&mut self, records: u64) {
        self.loaded += records;
        self.progress.show(self.loaded);
    }

    /// Tells of a line that cannot be used.
    fn bad(&mut self, line: u64, why: &str) {
        self.bad += 1;
        if self.bad > TOLD {
            return;
        }
        let so_far = thousands(self.loaded + self.batch.len() as u64 + self.bad);
        self.progress.say(&format!(
            "warning: {} {} of {}: {why} (skipped; {} of {so_far} so far)",
            self.unit,
            thousands(line),
            self.name,
            thousands(self.bad),
        ));
    }

    /// Writes what has been taken.
    fn flush(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let puts: Vec<Put<'_>> = batch.iter().map(|(_, record)| record.as_put()).collect();
        let mut stopped = None;
        for ((line, _), result) in batch.iter().zip(self.store.put_many(&puts)) {
            match result {
                Ok(()) => self.loaded += 1,
                Err(error) if is_of_the_record(&error) => self.bad(*line, &error.to_string()),
                Err(error) => stopped = stopped.or(Some((*line, error))),
            }
        }
        self.progress.show(self.loaded);
        let Some((line, error)) = stopped else { return Ok(()) };
        let place = format!("stopped at {} {} of {}", self.unit, thousands(line), self.name);
        Err(Failure::new(error).hint(place))
    }

    /// Says what came of it; returns the number of bad lines.
    fn finish(self, whole: bool) -> u64 {
        if self.bad > TOLD {
            let more = self.bad - TOLD;
            let unit = self.unit;
            self.progress
                .say(&format!("warning: {} skipped as well", counted(more, unit, &format!("{unit}s"))));
        }
        self.progress.clear();
        if whole || self.loaded + self.bad > 0 {
            self.progress.sum_up(self.loaded, self.bad);
        }
        self.bad
    }
}

/// Whether another record might still do.
fn is_of_the_record(error: &WriteError) -> bool {
    matches!(error, WriteError::KeyTooLong | WriteError::ValueTooLong)
}
