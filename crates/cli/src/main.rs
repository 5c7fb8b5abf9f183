//! `terrace`: serves, inspects, fills, checks and measures stores.
//!
//! The files in reading order: `args` has the command line, and `command` the commands with their
//! options. Below them are `target`, the store or the server that a command works on; `open`,
//! `in_force` and `remote`, of which it is made; `settings`, `location` and `password`, which read
//! flags and the environment; `server`, for commands that serve; and `failure`, `text` and `clock`.
#![forbid(unsafe_code)]

mod args;
mod clock;
mod command;
mod entry;
mod environment;
mod failure;
mod in_force;
mod location;
mod logger;
mod open;
mod password;
mod progress;
mod record;
mod remote;
mod room;
mod server;
mod settings;
mod target;
mod text;

use std::{process::ExitCode, sync::Arc};

use clap::Parser;
use signal_hook::consts::SIGXFSZ;

use args::{Cli, Command};
use command::{bench, check, copies, dump, keys, load, report, scan, serve, stats};
#[cfg(feature = "cluster")]
use command::{cluster, node};
use failure::Outcome;

fn main() -> ExitCode {
    // Help goes to standard output with code 0, a wrong flag to standard error with code 2.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(failure::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    terrace::explain_lost_memory();
    // With a handler, exceeding the file size limit (ulimit -f) is an error that names the file,
    // and does not kill the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    for name in environment::unknown() {
        failure::say(&format!(
            "warning: {name} is not a setting of this program; `terrace serve --help` lists all settings"
        ));
    }
    let mut command = cli.command;
    let named = cli.pool.map_or(Ok(()), |pool| command.name_pool(&pool));
    match named.and_then(|()| run(command)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Serve(options) => serve::run(options),
        Command::Get(options) => keys::get(&options),
        Command::Put(options) => keys::put(&options),
        Command::Del(options) => keys::del(&options),
        Command::Scan(options) => scan::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Checkpoint(options) => copies::checkpoint(&options),
        Command::Backup(options) => copies::backup(&options),
        Command::Restore(options) => copies::restore(&options),
        Command::Compact(options) => copies::compact(&options),
        Command::Stats(options) => stats::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Report(options) => report::run(&options),
        #[cfg(feature = "cluster")]
        Command::Node(options) => node::run(options),
        #[cfg(feature = "cluster")]
        Command::Cluster(command) => cluster::run(command),
    }
}
