//! `cargo peers SUITE`: Terrace beside other engines, in one run, on this machine.
#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "to measure is to read the clock, to start threads and to wait"
)]

mod cluster;
mod family;
mod files;
mod hash;
mod maps;
mod memory;
mod ordered;
mod ours;
mod plan;
mod pmem;
mod records;
mod restart;
mod server;
mod share;
mod slow;
mod spot;
mod sptree;
mod start;
mod tiered;
mod wip;
mod worker;
mod workload;

use clap::{Parser, ValueEnum};
use plan::{Plan, say};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use terrace_bench::{Limits, Machine, Report, Section};

// The peers allocate from the process's allocator, so it is a fast one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator's settings: ask for huge pages, as Terrace does, and never return touched memory.
/// So no side pays for the first touch of a page while it is timed.
const ALLOCATOR_SETTINGS: [(&str, &str); 2] =
    [("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1"), ("MIMALLOC_PURGE_DELAY", "-1")];

/// Terrace beside other engines, in one run.
#[derive(Parser)]
#[command(name = "cargo peers")]
struct Arguments {
    /// What to compare.
    suite: Suite,
    /// Also write the report to this file, for programs.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exit with 1 if a target is missed.
    #[arg(long)]
    check: bool,
    /// Small sizes and one round, to check that it runs; the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this, for instance "hash get"
    #[arg(long, value_name = "ROW")]
    only: Option<String>,
    /// Keys of `hash`, `ordered`, `spot` and `sptree`, and records of `tiered` and `cluster`,
    /// instead of 10 million; records of `wip`, instead of 16 million.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(50_000..))]
    records: Option<u64>,
    /// Where the stores of `wip` and `tiered` keep their files, instead of the directory for
    /// temporary files; on a disk.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Also write what `wip` or `tiered` measures as a page to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Leave RocksDB out of `wip` and `tiered`: it takes half an hour to build.
    #[arg(long)]
    without_rocksdb: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// CLHT, restart, starts, the server and memory.
    Foundation,
    /// The hash indexes beside each other and beside Rust's concurrent maps.
    Hash,
    /// The ordered indexes beside ordered maps and the trees of the RECIPE paper; ranges of the
    /// store and the server.
    Ordered,
    /// The index and the store on slow memory: Optane, CXL, phase-change memory.
    Slow,
    /// Buffers, merges out of place and a cached search path on slow memory: Spot-on's case study.
    Spot,
    /// SPTree with its layers in DRAM on slow memory, what they take, and opens.
    Sptree,
    /// Several processes on one store.
    Share,
    /// The store in a directory beside RocksDB and fjall.
    Wip,
    /// Its answers beside those of RocksDB, over a million random operations (`--records` chooses
    /// another number).
    WipAnswers,
    /// The store over DRAM and files beside RocksDB, the direct engine, S3-FIFO and its own limits.
    Tiered,
    /// Memory and processors apart: round trips, a serving node beside `terrace serve`, deaths,
    /// handovers.
    Cluster,
}

impl Suite {
    fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &given[..]
        && first == worker::WORKER
    {
        return finish(worker::run(rest).map(|()| ExitCode::SUCCESS));
    }
    if let [first, rest @ ..] = &given[..]
        && first == share::NEIGHBOUR
    {
        return finish(share::run(rest).map(|()| ExitCode::SUCCESS));
    }
    let arguments = Arguments::parse();
    if matches!(arguments.suite, Suite::Wip | Suite::WipAnswers | Suite::Tiered)
        && !files::is_built(arguments.without_rocksdb)
    {
        say(&format!("error: {}", files::build_again(arguments.without_rocksdb, &given)));
        return ExitCode::from(2);
    }
    if let Some(error) = restart_with_allocator_settings() {
        say(&format!("error: could not start again with the allocator's settings: {error}"));
        return ExitCode::FAILURE;
    }
    finish(run(&arguments).map(|missed| match missed {
        0 => ExitCode::SUCCESS,
        _ if arguments.check => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }))
}

fn finish(outcome: Result<ExitCode, Box<dyn std::error::Error>>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        say(&format!("error: {error}"));
        ExitCode::from(2)
    })
}

/// Restarts the process if the allocator's settings are not in its environment: the allocator reads
/// them at the start.
fn restart_with_allocator_settings() -> Option<io::Error> {
    if ALLOCATOR_SETTINGS.iter().all(|(name, value)| std::env::var(name).as_deref() == Ok(value)) {
        return None;
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Some(error),
    };
    Some(Command::new(program).args(std::env::args_os().skip(1)).envs(ALLOCATOR_SETTINGS).exec())
}

fn run(arguments: &Arguments) -> Result<usize, Box<dyn std::error::Error>> {
    let plan = Plan {
        quick: arguments.quick,
        only: arguments.only.clone(),
        records: arguments.records,
        directory: arguments.directory.clone(),
        page: arguments.page.clone(),
        without_rocksdb: arguments.without_rocksdb,
    };
    let measure = match arguments.suite {
        Suite::Foundation => foundation,
        Suite::Hash => family::sections,
        Suite::Ordered => ordered::sections,
        Suite::Slow => slow::sections,
        Suite::Spot => spot::sections,
        Suite::Sptree => sptree::sections,
        Suite::Share => share::sections,
        Suite::Wip => wip::sections,
        Suite::WipAnswers => wip::answers,
        Suite::Tiered => tiered::sections,
        Suite::Cluster => cluster::sections,
    };
    say("the machine's limits");
    let (suite, limits, sections) =
        (arguments.suite.name(), Limits::measure(plan.limits())?, measure(&plan)?);
    if let Some(only) =
        plan.only.as_deref().filter(|_| sections.iter().all(|section| section.rows.is_empty()))
    {
        let how = format!("`cargo peers {suite} --quick` names them as it measures them");
        return Err(format!("no row of {suite} has a name that holds `{only}`\n  {how}").into());
    }
    let report = Report {
        suite,
        machine: Machine::here(),
        limits,
        sections,
        repeat: std::env::args()
            .skip(1)
            .fold("cargo peers".into(), |line, argument| format!("{line} {argument}")),
        warning: plan.quick.then(|| "a quick run: the figures mean nothing".into()),
    };
    writeln!(io::stdout(), "{report}")?;
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_string_pretty(&report.to_json())?)?;
    }
    Ok(report.missed())
}

fn foundation(plan: &Plan) -> Result<Vec<Section>, Box<dyn std::error::Error>> {
    let mut sections = hash::sections(plan);
    sections.extend(pmem::sections(plan)?);
    sections.extend(Some(restart::section(plan)?).filter(|section| !section.rows.is_empty()));
    sections.extend(Some(start::section(plan)?).filter(|section| !section.rows.is_empty()));
    sections.extend(server::sections(plan)?);
    sections.extend(memory::section(plan)?);
    Ok(sections)
}
