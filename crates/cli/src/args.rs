//! The command line. Each command has its options in its own file.

use clap::{Parser, Subcommand};

#[cfg(feature = "cluster")]
use crate::command::{cluster::ClusterCommand, node::NodeOptions};
use crate::{
    command::{
        bench::BenchOptions,
        check::CheckOptions,
        copies::{CompactOptions, CopyOptions},
        dump::DumpOptions,
        keys::{DelOptions, GetOptions, PutOptions},
        load::LoadOptions,
        report::ReportOptions,
        scan::ScanOptions,
        serve::ServeOptions,
        stats::StatsOptions,
    },
    failure::Failure,
};

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
