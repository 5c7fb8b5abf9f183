//! A line of progress on standard error, where that is a terminal.

use std::{
    io::{self, IsTerminal, Read, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{clock, text::duration};

/// How often it is drawn anew, at most.
const PAUSE: Duration = Duration::from_millis(200);

/// The line. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Bar(Arc<Inner>);

struct Inner {
    is_shown: bool,
    begin: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: u64,
    /// 0: nobody knows.
    all: u64,
    message: String,
    drawn: Option<Instant>,
}

impl Bar {
    pub(crate) fn new() -> Bar {
        let is_shown = io::stderr().is_terminal();
        Bar(Arc::new(Inner { is_shown, begin: clock::start(), state: Mutex::default() }))
    }

    /// Whether anybody sees it.
    pub(crate) fn is_shown(&self) -> bool {
        self.0.is_shown
    }

    /// How long it has been there.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.begin.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much is done, and how much there is.
    pub(crate) fn set(&self, done: u64, all: u64) {
        let mut state = self.lock();
        (state.done, state.all) = (done, all);
        self.draw(&mut state);
    }

    /// How much there is.
    pub(crate) fn set_all(&self, all: u64) {
        self.lock().all = all;
    }

    /// What is said beside the numbers.
    pub(crate) fn set_message(&self, message: String) {
        let mut state = self.lock();
        state.message = message;
        self.draw(&mut state);
    }

    /// Writes something else without tearing the line.
    pub(crate) fn suspend(&self, write: impl FnOnce()) {
        let mut state = self.lock();
        self.erase(&mut state);
        write();
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.erase(&mut self.lock());
    }

    /// A reader whose bytes count as done.
    pub(crate) fn watch<R: Read>(&self, reader: R) -> Watched<R> {
        Watched { reader, bar: self.clone() }
    }

    fn draw(&self, state: &mut State) {
        let is_late = state.drawn.is_none_or(|drawn| drawn.elapsed() >= PAUSE);
        if self.0.is_shown && is_late {
            // A terminal that is gone shows nothing.
            let _ = write!(io::stderr().lock(), "\r\x1b[K{}", line(state, self.elapsed()));
            state.drawn = Some(clock::start());
        }
    }

    fn erase(&self, state: &mut State) {
        if state.drawn.take().is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// What the line says.
fn line(state: &State, elapsed: Duration) -> String {
    let State { done, all, message, .. } = state;
    let mut parts = Vec::new();
    match (*done, *all) {
        (done, all) if all > 0 => {
            parts.push(format!("{}%", (done.min(all) as f64 * 100.0 / all as f64) as u64))
        }
        (done, _) if done >= 1 << 20 => parts.push(format!("{} MiB read", done >> 20)),
        _ => {}
    }
    if !message.is_empty() {
        parts.push(message.clone());
    }
    // The first moments say nothing about the rest.
    if (1..*all).contains(done) && elapsed > Duration::from_secs(1) {
        let left = elapsed.as_secs_f64() * (all - done) as f64 / *done as f64;
        parts.push(format!("{} to go", duration(Duration::from_secs_f64(left.min(1e9)))));
    }
    parts.join(", ")
}

/// Counts what is read.
pub(crate) struct Watched<R> {
    reader: R,
    bar: Bar,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        let mut state = self.bar.lock();
        state.done += read as u64;
        self.bar.draw(&mut state);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_what_is_known() {
        let said = |done, all, message: &str, seconds| {
            let state = State { done, all, message: message.into(), drawn: None };
            line(&state, Duration::from_secs(seconds))
        };
        assert_eq!(said(0, 0, "", 9), "");
        assert_eq!(said(5 << 20, 0, "7 records", 9), "5 MiB read, 7 records");
        assert_eq!(said(0, 10, "", 9), "0%");
        assert_eq!(said(5, 10, "7 records", 1), "50%, 7 records");
        assert_eq!(said(5, 10, "7 records", 9), "50%, 7 records, 9.0 s to go");
        assert_eq!(said(10, 10, "", 9), "100%");
        // A file that grew meanwhile.
        assert_eq!(said(11, 10, "", 9), "100%");
    }

    #[test]
    fn watched_reader_counts_its_bytes() {
        let bar = Bar::new();
        let mut text = String::new();
        bar.watch("some text".as_bytes()).read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), bar.lock().done), ("some text", 9));
    }
}
