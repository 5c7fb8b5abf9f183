//! The command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use terrace_server::config::Key;

use crate::{
    bench::BenchOptions,
    environment::{self, PASSWORD_FILE},
    failure::Failure,
    report::ReportOptions,
    serve,
    settings::{OfChange, OfMetrics, OfPool, OfReader, OfServer, Settings},
};
#[cfg(feature = "cluster")]
use crate::{cluster::ClusterCommand, node::NodeOptions};

/// A key-value store for memory that outlives the process.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, about, disable_help_subcommand = true)]
#[command(after_help = "Exit codes: 0 success; 1 failure, or a check found something; 2 usage error.")]
pub(crate) struct Cli {
    /// The pool file; the flag may also follow the command
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
    /// Write all records, in a format that `load` reads
    Dump(DumpOptions),
    /// Verify a pool, or repair it: prints one line per finding; exit code 1 if there are any
    Check(CheckOptions),
    /// Make a copy of a store in a directory, as it is now, on the same file system; takes no room
    /// at first
    Checkpoint(CopyOptions),
    /// Copy a store in a directory, as it is now, to another disk, and verify the copy
    Backup(CopyOptions),
    /// Verify a checkpoint or a backup, and copy it to the directory of a new store
    Restore(CopyOptions),
    /// Write a store in a directory anew, without what was overwritten or removed
    Compact(CompactOptions),
    /// Show a pool's contents and costs
    Stats(StatsOptions),
    /// Measure a store on this machine
    Bench(BenchOptions),
    /// Make an HTML page with plots from the JSON files of `bench` and `cargo peers`
    Report(ReportOptions),
    /// Run a node of a cluster: the memory node, or a serving node
    #[cfg(feature = "cluster")]
    Node(NodeOptions),
    /// Run a cluster on this machine, or show and change a cluster
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(ClusterCommand),
}

impl Command {
    /// Sets the pool that the command line names before the command.
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
            Command::Checkpoint(options) | Command::Backup(options) | Command::Restore(options) => {
                options.pool.name_pool(pool)
            }
            Command::Compact(options) => options.pool.name_pool(pool),
            Command::Stats(options) => options.pool.name_pool(pool),
            Command::Bench(options) => options.pool.name_pool(pool),
            Command::Report(_) => {
                Err(Failure::usage("--pool has no meaning for report, which reads files of results"))
            }
            #[cfg(feature = "cluster")]
            Command::Node(options) => options.settings.name_pool(pool),
            #[cfg(feature = "cluster")]
            Command::Cluster(_) => {
                Err(Failure::usage("--pool has no meaning for cluster: the memory node has the pool"))
            }
        }
    }
}

/// The password for the server that has the pool open, if there is such a server and it requires
/// one.
#[derive(Debug, Args)]
pub(crate) struct Password {
    /// Password for the server that has the pool open; prefer the environment or a file, as other
    /// users can see flags [env: TERRACE_PASSWORD, REDISCLI_AUTH]
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

/// The database that a command works on.
#[derive(Debug, Args)]
pub(crate) struct Database {
    /// The database: 0 to 15, as clients of a server select it
    #[arg(long = "db", value_name = "N", default_value_t = 0, value_parser = value_parser!(u8).range(0..16))]
    pub(crate) number: u8,
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
    pub(crate) database: Database,
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
    /// Expire after this time: seconds, or 500ms, 10m, 2h, 7d
    #[arg(long, value_parser = crate::keys::parse_ttl)]
    pub(crate) ttl: Option<u64>,
    #[command(flatten)]
    pub(crate) database: Database,
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
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfChange>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A pool whose index keeps keys in order (art) is listed in their order, and only the keys of the
range are read. --from, --to and --reverse need such a pool. Any other is read as a whole, in no order.")]
pub(crate) struct ScanOptions {
    /// Only this key and those after it
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Only keys with this prefix
    #[arg(long)]
    pub(crate) prefix: Option<OsString>,
    /// Only keys that match this pattern, as in Redis's KEYS: user:*:name
    #[arg(long = "match", value_name = "PATTERN")]
    pub(crate) pattern: Option<OsString>,
    /// Maximum number of keys
    #[arg(long)]
    pub(crate) limit: Option<u64>,
    /// Write each key's value too, after a tab
    #[arg(long)]
    pub(crate) values: bool,
    /// Write keys byte for byte; without this flag, bytes that are not text are escaped
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Write JSON lines, as `dump` does
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A header, then one record per line
    Csv,
    /// One JSON object per line
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// The Redis protocol, as redis-cli --pipe accepts it
    #[value(alias = "redis")]
    Resp,
}

#[derive(Debug, Args)]
#[command(after_help = "\
If a server has the pool open, the dump goes through it and backs up a store in use. Each key that exists throughout is
in the dump once, with its value and expiry of one instant. The dump as a whole is not a snapshot: a key that is
written, added or removed meanwhile may appear as it was before or after.

Only exit code 0 means that the dump is complete: the last line on standard error gives the number of records. A file
(--output) gets its name when it is complete.")]
pub(crate) struct DumpOptions {
    /// The format to write; CSV is not among them, as it cannot hold every byte
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: DumpFormat,
    /// The file to write, which must not exist; default and `-`: standard output
    #[arg(long, short, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Only this database, from 0 to 15; default: all
    #[arg(long = "db", value_name = "N", value_parser = value_parser!(u8).range(0..16))]
    pub(crate) database: Option<u8>,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// One JSON object per line
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// The Redis protocol, for redis-cli --pipe
    #[value(alias = "redis")]
    Resp,
}

#[derive(Debug, Args)]
#[command(after_help = "\
One line per finding: where, what was expected, what was found, the keys of the affected records, and what --repair does
about it. A repair copies every record whose checksums match to a new store, which replaces the old one. The old one is
kept as <POOL>.damaged-<N> or <DIR>.damaged, so there must be space for both.

Exit code 0: the pool is sound, or was repaired; 1: it is damaged.")]
pub(crate) struct CheckOptions {
    /// Replace a damaged pool by a new one with all sound records
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
If a server has the store open, the checkpoint is made by it, of what it has answered so far.
A checkpoint and a backup are stores: --dir of any command takes their paths.")]
pub(crate) struct CopyOptions {
    /// The path of the copy, which must not exist; for restore, that of the checkpoint or backup
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfChange>,
}

#[derive(Debug, Args)]
pub(crate) struct CompactOptions {
    /// Only this key and those after it
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfChange>,
}

#[derive(Debug, Args)]
pub(crate) struct StatsOptions {
    /// One JSON object; names end with the unit
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the figures of a running server every second
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) metrics: Settings<OfMetrics>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

impl StatsOptions {
    /// The port given for the metrics of the server that has the pool open.
    pub(crate) fn metrics_port(&self) -> Option<u16> {
        let port = || u16::try_from(self.metrics.number(Key::MetricsPort)).unwrap_or(u16::MAX);
        self.metrics.is_given(Key::MetricsPort).then(port)
    }
}
