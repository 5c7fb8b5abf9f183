//! `check`: verifies a pool, and says what is wrong and where.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::{
    args::CheckOptions,
    clock,
    failure::{FAILED, Outcome},
    open,
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

pub(crate) fn run(options: &CheckOptions) -> Outcome {
    let config = options.pool.config()?;
    let began = clock::start();
    let progress = Progress::new();
    let store = open::to_read(&config)?;
    let report = store.check(&mut |done, all| progress.show(done, all));
    progress.finish();
    let mut out = io::stdout().lock();
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    let checked = format!(
        "checked {}, {}, {} in {}",
        counted(report.records, "record", "records"),
        counted(report.buckets, "bucket", "buckets"),
        counted(report.roots, "root", "roots"),
        duration(began.elapsed()),
    );
    if report.is_sound() {
        writeln!(out, "{checked}: sound")?;
        return Ok(ExitCode::SUCCESS);
    }
    let found = counted(report.findings.len() as u64, "finding", "findings");
    writeln!(out, "{checked}: {found}")?;
    Ok(ExitCode::from(FAILED))
}
