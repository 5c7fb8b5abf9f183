//! A progress line, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A line that is overwritten in place.
pub(crate) struct Progress {
    last: Option<Mutex<Instant>>,
}

impl Progress {
    /// Shown if standard error is a terminal and the output is not JSON.
    pub(crate) fn new(json: bool) -> Self {
        Self { last: (!json && stderr().is_terminal()).then(|| Mutex::new(Instant::now())) }
    }

    /// Shows, a few times a second, how many `units` are done, and how many are wanted if that is
    /// known.
    pub(crate) fn show(
        &self,
        [target, profile]: [&str; 2],
        (done, wanted): (u64, Option<u64>),
        units: &str,
        since: Instant,
    ) {
        let Some(Ok(mut last)) = self.last.as_ref().map(|last| last.try_lock()) else { return };
        if last.elapsed() < Duration::from_millis(200) {
            return;
        }
        *last = Instant::now();
        let rate = done as f64 / since.elapsed().as_secs_f64();
        let of = wanted.map_or(String::new(), |wanted| format!(" of {wanted}"));
        let _ = write!(stderr(), "\r\x1b[K{target}, {profile}: {done}{of} {units}, {rate:.0} per second");
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if self.last.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
