//! The command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use terrace_server::config::Key;

use crate::{
    bench::BenchOptions,
    environment::{self, PASSWORD_FILE},
    failure::Failure,
    report::ReportOptions,
    serve,
    settings::{OfChange, OfMetrics, OfPool, OfReader, OfServer, Settings},
};

/// A key-value store for memory that outlives the process.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, about, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done; 1 failed, or something was found wrong; 2 the command line makes no sense."
)]
pub(crate) struct Cli {
    /// The pool file; it may stand behind the command, too
    #[arg(long, value_name = "PATH")]
    pub(crate) pool: Option<String>,
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

impl Command {
    /// Sets the pool that was named before the command.
    pub(crate) fn name_pool(&mut self, pool: &str) -> Result<(), Failure> {
        match self {
            Command::Serve(options) => options.settings.name_pool(pool),
            Command::Get(options) => options.pool.name_pool(pool),
            Command::Put(options) => options.pool.name_pool(pool),
            Command::Del(options) => options.pool.name_pool(pool),
            Command::Scan(options) => options.pool.name_pool(pool),
            Command::Load(options) => options.pool.name_pool(pool),
            Command::Dump(options) => options.pool.name_pool(pool),
            Command::Check(options) => options.pool.name_pool(pool),
            Command::Stats(options) => options.pool.name_pool(pool),
            Command::Bench(options) => options.pool.name_pool(pool),
            Command::Report(_) => {
                Err(Failure::usage("--pool means nothing to report, which reads files of results"))
            }
        }
    }
}

/// The password of the server that holds the pool, if one does and asks for it.
#[derive(Debug, Args)]
pub(crate) struct Password {
    /// Password of the server that holds the pool; better in the environment or a file than in a
    /// flag, which others can see [env: TERRACE_PASSWORD, REDISCLI_AUTH]
    #[arg(long, value_name = "PASSWORD", help_heading = "Server")]
    password: Option<String>,
    /// File whose first line is that password [env: TERRACE_PASSWORD_FILE]
    #[arg(long, value_name = "PATH", help_heading = "Server", conflicts_with = "password")]
    password_file: Option<PathBuf>,
}

impl Password {
    /// The password from a flag, or else from the environment; empty if there is none.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let read = |path: &Path| Ok(serve::password_in(path)?.into_bytes());
        if let Some(password) = &self.password {
            return Ok(password.clone().into_bytes());
        }
        if let Some(path) = &self.password_file {
            return read(path);
        }
        if let Some(password) = environment::variable("TERRACE_PASSWORD") {
            return Ok(password.into_encoded_bytes());
        }
        if let Some(path) = environment::variable(PASSWORD_FILE) {
            return read(path.as_ref());
        }
        Ok(environment::variable("REDISCLI_AUTH").unwrap_or_default().into_encoded_bytes())
    }
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
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
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
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Debug, Args)]
pub(crate) struct DelOptions {
    /// The keys
    #[arg(required = true)]
    pub(crate) keys: Vec<OsString>,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfChange>,
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
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
CSV has a header that names the columns key and value, and ttl or expires_at_ms if there is one. Lines end with LF or
CRLF; a field with a comma, a quote or a line end in it stands in quotes, and a quote in it is doubled.
JSON lines are {\"key\":..,\"value\":..,\"ttl\":..}; key_base64 and value_base64 hold what is no text. A number that is a
value is kept digit by digit.
In both, ttl counts seconds from now (1.5 will do) and expires_at_ms milliseconds since 1970; both are above 0, and a
record whose time has passed is not there afterwards.
A Redis protocol stream holds commands: SET, SETEX, MSET, ... Terrace has one database, 0: commands for another are
skipped.

A line that cannot be used is reported with its number and skipped; what is good is kept.
If a server holds the pool, the records go through it.
Exit code 0: all of it was loaded; 1: some of it was not.")]
pub(crate) struct LoadOptions {
    /// The file; `-` is standard input
    pub(crate) file: PathBuf,
    /// Its format; without it, its name tells, or its first bytes
    #[arg(long)]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) password: Password,
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
#[command(after_help = "\
If a server holds the pool, the dump goes through it and is a backup of a store in use: each key that is there throughout
stands in it once, with its value and expiry of one instant. The whole is not of one instant: of keys that are written,
come or go meanwhile, some are there as they were before and some as they were after.

Exit code 0, and only that, means that the dump is whole: the last line on standard error says how many records it has.
A file (--output) gets its name when it is whole.")]
pub(crate) struct DumpOptions {
    /// The form to write; CSV cannot hold bytes that are no text
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: DumpFormat,
    /// The file to write, which must not exist; without it, standard output
    #[arg(long, short, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
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
    pub(crate) pool: Settings<OfReader>,
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
    pub(crate) pool: Settings<OfReader>,
}

impl StatsOptions {
    /// Port at which the server that has the pool open shows its metrics, if it was given.
    pub(crate) fn metrics_port(&self) -> Option<u16> {
        let port = || u16::try_from(self.metrics.number(Key::MetricsPort)).unwrap_or(u16::MAX);
        self.metrics.is_given(Key::MetricsPort).then(port)
    }
}
