//! Progress of a load: a bar on a terminal, and always one summary line at the end.

use std::{io::Read, time::Duration};

use indicatif::{ProgressBar, ProgressBarIter, ProgressDrawTarget, ProgressStyle};

use crate::{
    failure::say,
    text::{counted, duration, thousands},
};

/// The progress bar.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Hidden unless standard error is a terminal.
    pub(super) fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        Progress { bar: bar.with_style(style("{spinner} {bytes} read, {msg}")) }
    }

    /// Wraps `reader`, so that the bar counts what is read; `length` is the expected size.
    pub(super) fn watch<R: Read>(&self, reader: R, length: Option<u64>) -> ProgressBarIter<R> {
        if let Some(length) = length {
            self.bar.set_length(length);
            self.bar.set_style(style("{wide_bar} {bytes} of {total_bytes}, {msg}, {eta} to go"));
        }
        self.bar.wrap_read(reader)
    }

    /// Shows how many records are in the pool.
    pub(super) fn show(&self, loaded: u64) {
        if !self.bar.is_hidden() {
            let records = counted(loaded, "record", "records");
            self.bar.set_message(format!("{records} ({} per second)", self.rate(loaded)));
        }
    }

    /// Writes a line without tearing the bar.
    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| say(line));
    }

    /// Ends the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints the summary line.
    pub(super) fn sum_up(&self, what: String, loaded: u64, expired: u64, bad: u64) {
        let time = duration(self.bar.elapsed());
        let of = |count: u64, what: &str| match count {
            0 => String::new(),
            count => format!("; {} {what}", thousands(count)),
        };
        let (expired, skipped) = (of(expired, "of them had expired"), of(bad, "skipped"));
        say(&format!("loaded {what} in {time}: {} per second{expired}{skipped}", self.rate(loaded)));
    }

    fn rate(&self, loaded: u64) -> String {
        let elapsed = self.bar.elapsed().max(Duration::from_micros(1));
        thousands((loaded as f64 / elapsed.as_secs_f64()) as u64)
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
