//! The threads of a memory node: how they start, wait and end.

use crate::lock::lock;
use rustix::process::{Signal, getpid, kill_process};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::sync::{Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Time until a merge that met a full pool, or a shard without a segment, tries again. While memory
/// is short, serving nodes tell as often what they have written and read.
pub(crate) const AGAIN: Duration = Duration::from_millis(20);

/// The threads, and whether they are to end. Nothing stands below.
#[derive(Default)]
pub(crate) struct Threads {
    is_stopping: AtomicBool,
    stops: Condvar,
    stop: Mutex<()>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Whether the node stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Acquire)
    }

    /// Waits for so long, or until the node stops.
    pub(crate) fn sleep_for(&self, time: Duration) {
        let stop = lock(&self.stop);
        if !self.is_stopping() {
            drop(self.stops.wait_timeout(stop, time));
        }
    }

    /// Starts a thread that ends with the node. If it panics, the process ends: a start recovers
    /// what the thread may have left half done.
    pub(crate) fn spawn(&self, name: &'static str, work: impl FnOnce() + Send + 'static) -> bool {
        let work = move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                die(&format!("the thread {name} has panicked"));
            }
        };
        match Builder::new().name(name.into()).spawn(work) {
            Ok(thread) => {
                let mut running = lock(&self.running);
                running.retain(|thread| !thread.is_finished());
                running.push(thread);
                true
            }
            Err(error) => {
                log::error!("could not start the thread {name} of the memory node: {error}");
                false
            }
        }
    }

    /// Tells all threads to end, and wakes those that sleep.
    pub(crate) fn stop(&self) {
        let stop = lock(&self.stop);
        self.is_stopping.store(true, Release);
        drop(stop);
        self.stops.notify_all();
    }

    /// Waits for the threads.
    pub(crate) fn join(&self) {
        assert!(self.is_stopping(), "threads are told to end before they are waited for");
        loop {
            let running = std::mem::take(&mut *lock(&self.running));
            if running.is_empty() {
                return;
            }
            for thread in running {
                // None ends by a panic.
                let _ = thread.join();
            }
        }
    }
}

/// Ends the process at once.
#[allow(clippy::print_stderr, reason = "the last words of a process; its log may not be on")]
pub(crate) fn die(why: &str) -> ! {
    let why = format!("the memory node ends, since {why}; start it again");
    log::error!("{why}");
    eprintln!("{why}");
    // At once: a library may have a handler for the signal of an abort.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}
