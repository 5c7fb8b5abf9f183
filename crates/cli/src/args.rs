//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use terrace_server::config::Key;

use crate::{
    bench::BenchOptions,
    report::ReportOptions,
    settings::{OfMetrics, OfPool, OfServer, Settings},
};

/// A key-value store for memory that outlives the process.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, about, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done; 1 failed, or something was found wrong; 2 the command line makes no sense."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a pool to Redis clients
    Serve(ServeOptions),
    /// Write a key's value to standard output, byte for byte
    Get(GetOptions),
    /// Write a key
    Put(PutOptions),
    /// Remove keys
    Del(DelOptions),
    /// List keys
    Scan(ScanOptions),
    /// Fill a pool from CSV, JSON lines or a Redis protocol stream
    Load(LoadOptions),
    /// Write all records, in a form that `load` reads
    Dump(DumpOptions),
    /// Verify a pool, and repair it: exit code 1 and one line a finding if something is wrong
    Check(CheckOptions),
    /// Show what a pool holds and costs
    Stats(StatsOptions),
    /// Measure your own store on this machine
    Bench(BenchOptions),
    /// Make a page with plots from what `bench` and `cargo peers` have written
    Report(ReportOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) settings: Settings<OfServer>,
    /// File whose first line is the password that clients must give [env: TERRACE_PASSWORD_FILE]
    #[arg(long, value_name = "PATH", help_heading = "Clients")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    /// The key
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Debug, Args)]
pub(crate) struct PutOptions {
    /// The key
    pub(crate) key: OsString,
    /// The value; `-` reads it from standard input
    pub(crate) value: OsString,
    /// Expire after so long: seconds, or 500ms, 10m, 2h, 7d
    #[arg(long, value_parser = crate::keys::parse_ttl)]
    pub(crate) ttl: Option<u64>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Debug, Args)]
pub(crate) struct DelOptions {
    /// The keys
    #[arg(required = true)]
    pub(crate) keys: Vec<OsString>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Debug, Args)]
pub(crate) struct ScanOptions {
    /// Only keys that begin so
    #[arg(long)]
    pub(crate) prefix: Option<OsString>,
    /// Only keys that match this pattern, as in Redis's KEYS: user:*:name
    #[arg(long = "match", value_name = "PATTERN")]
    pub(crate) pattern: Option<OsString>,
    /// So many keys at most
    #[arg(long)]
    pub(crate) limit: Option<u64>,
    /// Write values too, after a tab
    #[arg(long)]
    pub(crate) values: bool,
    /// Write keys byte for byte; without it, what is no text is escaped
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Write JSON lines, as `dump` does
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
CSV has a header that names the columns key and value, and ttl (seconds) if there is one.
JSON lines are {\"key\":..,\"value\":..,\"ttl\":seconds}; key_base64 and value_base64 hold what is no text, and
expires_at_ms (Unix time) may stand for ttl. A Redis protocol stream holds commands: SET, SETEX, MSET, ...

A line that cannot be used is reported with its number and skipped; what is good is kept.
Exit code 0: all of it was loaded; 1: some of it was not.")]
pub(crate) struct LoadOptions {
    /// The file; `-` is standard input
    pub(crate) file: PathBuf,
    /// Its format; without it, its name tells, or its first bytes
    #[arg(long)]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A header, then a record a line
    Csv,
    /// A JSON object a line
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// The Redis protocol, as redis-cli --pipe takes it
    #[value(alias = "redis")]
    Resp,
}

#[derive(Debug, Args)]
pub(crate) struct DumpOptions {
    /// The form to write; CSV cannot hold bytes that are no text
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: DumpFormat,
    /// The file to write, which must not exist; without it, standard output
    #[arg(long, short, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// A JSON object a line
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// The Redis protocol, for redis-cli --pipe
    #[value(alias = "redis")]
    Resp,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A line a finding: where, what was expected, what is there, the keys of the records that it touches, and what --repair does
about it. A repair copies every record that matches its checksums to a new pool, which takes the place of the old one; the
old one stays beside it, as <POOL>.damaged-<N>, so there must be room for both.

Exit code 0: the pool is sound, or is now; 1: it is not.")]
pub(crate) struct CheckOptions {
    /// Replace a pool that is not sound by a new one with all that is whole
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Debug, Args)]
pub(crate) struct StatsOptions {
    /// One JSON object; names end with the unit
    #[arg(long)]
    pub(crate) json: bool,
    /// Show them again every second, of a server that runs
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) metrics: Settings<OfMetrics>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

impl StatsOptions {
    /// Where the server that holds the pool shows its metrics.
    pub(crate) fn metrics_port(&self) -> u16 {
        u16::try_from(self.metrics.number(Key::MetricsPort)).unwrap_or(u16::MAX)
    }
}
