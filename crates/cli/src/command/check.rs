//! `check`: verifies a pool, reports damage and where it is, and repairs it.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use terrace::Report;

use crate::{
    clock,
    failure::{FAILED, Failure, Outcome},
    in_force,
    location::path,
    open,
    progress::Bar,
    remote,
    settings::{OfReader, Settings},
    text::{counted, duration},
};

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

/// Added to the report of a check that ran while other processes had the pool open.
const BESIDE: &str =
    ", beside other processes: records only, as other writers prevent a check of index and allocator";

pub(crate) fn run(options: &CheckOptions) -> Outcome {
    let config = options.pool.config()?;
    let began = clock::start();
    let store = match open::to_read(&config) {
        Err(failure) if !remote::contacts(&path(&config)).is_empty() => {
            return Err(failure.hint(
                "check can run beside a server started with --shared; any other server must be stopped first",
            ));
        }
        Err(failure) if options.repair && path(&config).exists() => {
            return open::repair(&config).map_err(|error| error.after(&failure));
        }
        opened => opened?,
    };
    in_force::warn(&config, &store);
    let progress = Bar::new();
    let report = store.check(&mut |done, all| progress.set(done, all));
    progress.clear();
    let tail = store.opening().torn_tail();
    store.close().map_err(Failure::new)?;
    if let Some(tail) = &tail {
        writeln!(io::stdout(), "note: {tail}; --repair keeps them")?;
    }
    print(&report, began.elapsed())?;
    match report.is_sound() {
        true if tail.is_none() || !options.repair => Ok(ExitCode::SUCCESS),
        _ if options.repair => open::repair(&config),
        _ => Ok(ExitCode::from(FAILED)),
    }
}

/// Prints one line per finding, and a summary.
fn print(report: &Report, took: Duration) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for finding in &report.findings {
        writeln!(out, "{finding}; --repair {}", finding.remedy)?;
    }
    let index = match report.nodes {
        0 => counted(report.buckets, "bucket", "buckets"),
        nodes => counted(nodes, "node", "nodes"),
    };
    let checked = format!(
        "checked {}, {index}{} in {}{}",
        counted(report.records, "record", "records"),
        // A store in a directory has none.
        if report.roots > 0 {
            format!(", {}", counted(report.roots, "root", "roots"))
        } else {
            String::new()
        },
        duration(took),
        if report.concurrent { BESIDE } else { "" },
    );
    let found = match report.findings.len() {
        0 => "sound".into(),
        count => counted(count as u64, "finding", "findings"),
    };
    writeln!(out, "{checked}: {found}")
}
