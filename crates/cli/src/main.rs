//! `terrace`: serve a store, look into one, fill one, check one, measure one.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod check;
mod clock;
mod dump;
mod failure;
mod keys;
mod load;
mod open;
mod record;
mod report;
mod scan;
mod serve;
mod settings;
mod stats;
mod text;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
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
    match run(cli.command) {
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
        Command::Stats(options) => stats::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Report(options) => report::run(&options),
    }
}
