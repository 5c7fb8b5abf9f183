//! Progress of a load: a bar on a terminal, and always one summary line at the end.

use std::{io::Read, time::Duration};

use crate::{
    failure::say,
    progress::{Bar, Watched},
    text::{counted, duration, thousands},
};

/// The progress bar.
pub(super) struct Progress {
    bar: Bar,
}

impl Progress {
    /// Hidden unless standard error is a terminal.
    pub(super) fn new() -> Progress {
        Progress { bar: Bar::new() }
    }

    /// Wraps `reader`, so that the bar counts what is read; `length` is the expected size.
    pub(super) fn watch<R: Read>(&self, reader: R, length: Option<u64>) -> Watched<R> {
        if let Some(length) = length {
            self.bar.set_all(length);
        }
        self.bar.watch(reader)
    }

    /// Shows how many records are in the pool.
    pub(super) fn show(&self, loaded: u64) {
        if self.bar.is_shown() {
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
        self.bar.clear();
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
