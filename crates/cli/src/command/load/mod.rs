//! `load`: fills a pool from a file or standard input. Good records are kept, bad ones are reported
//! with their lines.

mod csv;
mod jsonl;
mod loader;
mod progress;
mod resp;
mod source;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use terrace_medium::files::SystemFiles;

use crate::{
    failure::{FAILED, Failure, Outcome},
    password::Password,
    settings::{OfPool, Settings},
    target::{Database, Target},
};
use loader::Loader;
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
    let mut loader = Loader::new(target, database, (name, unit), progress);
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
