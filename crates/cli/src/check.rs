//! `check`: verifies a pool, says what is wrong and where, and repairs it.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget};
use terrace::Report;

use crate::{
    args::CheckOptions,
    clock,
    failure::{FAILED, Failure, Outcome},
    open, remote,
    text::{counted, duration},
};

/// How far it has come, on a terminal.
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Progress {
        Progress(ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5)))
    }

    fn show(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// What is said of a check that others have seen.
const BESIDE: &str = ", beside other processes: records only, the index and the allocator need stillness";

pub(crate) fn run(options: &CheckOptions) -> Outcome {
    let config = options.pool.config()?;
    let began = clock::start();
    let store = match open::to_read(&config) {
        Err(failure) if !remote::contacts(&open::path(&config)).is_empty() => {
            return Err(failure.hint("check goes beside a server that was started with --shared; any other has to be stopped first"));
        }
        Err(failure) if options.repair && open::path(&config).exists() => {
            return open::repair(&config).map_err(|error| error.after(&failure));
        }
        opened => opened?,
    };
    let progress = Progress::new();
    let report = store.check(&mut |done, all| progress.show(done, all));
    progress.finish();
    store.close().map_err(Failure::new)?;
    tell(&report, began.elapsed())?;
    match report.is_sound() {
        true => Ok(ExitCode::SUCCESS),
        false if options.repair => open::repair(&config),
        false => Ok(ExitCode::from(FAILED)),
    }
}

/// A line a finding, and one about all.
fn tell(report: &Report, took: Duration) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for finding in &report.findings {
        writeln!(out, "{finding}; --repair {}", finding.remedy)?;
    }
    let checked = format!(
        "checked {}, {}, {} in {}{}",
        counted(report.records, "record", "records"),
        counted(report.buckets, "bucket", "buckets"),
        counted(report.roots, "root", "roots"),
        duration(took),
        if report.beside_others { BESIDE } else { "" },
    );
    let found = match report.findings.len() {
        0 => "sound".into(),
        count => counted(count as u64, "finding", "findings"),
    };
    writeln!(out, "{checked}: {found}")
}
