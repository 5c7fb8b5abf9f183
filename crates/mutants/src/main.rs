//! `cargo mutate` injects the [known faults](faults) into a copy of the product, and reports those
//! that neither the lab nor the named test finds.
//!
//! The files in reading order: [`faults`] has the lists and the searches, [`program`] the copy of
//! the workspace, [`marks`] the marks of a fault in its source, [`judge`] the run of one test, and
//! [`apart`] the `/dev/shm` of each run.

mod apart;
mod faults;
mod judge;
mod marks;
mod program;

use clap::Parser;
use program::print_status;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Injects the known faults into the product and reports those that are not found.
#[derive(Parser)]
#[command(name = "cargo mutate")]
struct Arguments {
    /// Only faults whose name contains this; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Searches for each fault from the beginning instead of repeating the run that found it
    /// before.
    #[arg(long)]
    anew: bool,
    /// Runs at a time; by default one per core.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Directory for the copy of the workspace and its programs.
    #[arg(long, default_value = "target/mutants")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_status(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    std::fs::create_dir_all(&arguments.directory)?;
    let directory = arguments.directory.canonicalize()?;
    let default = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = arguments.jobs.unwrap_or_else(default).get();
    faults::run(&directory, &faults::Search { only: &arguments.only, anew: arguments.anew, jobs })
}
