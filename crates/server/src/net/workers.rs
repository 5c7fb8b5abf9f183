//! Long commands: run by threads of their own, so that the other connections of a loop do not wait for them.
//!
//! A loop hands over the session of a connection whose next command is long, with the bytes that wait for it. A worker
//! runs the command and whatever has arrived behind it, and puts the session into the loop's mailbox. The command is not
//! cut into pieces: it stays as atomic as it is on a loop. Meanwhile the connection reads nothing, so its replies stay in
//! order, and it is not closed.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
};

use super::{clock::unix_ms, hub::Hub};
use crate::{
    session::{Flow, Session},
    shared::Shared,
};

/// A session on its way to a worker and back.
pub(crate) struct Job {
    /// The loop and the connection that it belongs to.
    pub(super) owner: (usize, usize),
    pub(super) session: Session,
    /// What has arrived and is not executed yet.
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// What the loop does next; `None` if a command has panicked.
    pub(super) flow: Option<Flow>,
    /// When its turn began, if that is timed.
    pub(super) began: Option<u64>,
}

/// The workers of one server.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    jobs: VecDeque<Job>,
    /// Loops that may still hand over jobs.
    loops: usize,
}

impl Workers {
    /// For so many loops.
    pub(crate) fn new(shared: Arc<Shared>, loops: usize) -> Workers {
        let waiting = Mutex::new(Waiting { jobs: VecDeque::new(), loops });
        Workers { shared, waiting, changed: Condvar::new() }
    }

    /// Runs jobs until every loop has left.
    pub(crate) fn run(&self, hub: &Hub) -> io::Result<()> {
        let mut counters = self.shared.stats.commands.enter();
        while let Some(mut job) = self.next() {
            // The loop's own are written by the loop's thread only.
            job.session.swap_counters(&mut counters);
            job.run();
            job.session.swap_counters(&mut counters);
            // ORDER: Relaxed, here and below: see `may_wait`.
            self.shared.long_commands.fetch_sub(1, Relaxed);
            hub.give_back(job)?;
        }
        self.shared.stats.commands.leave(&counters);
        Ok(())
    }

    pub(super) fn hand_over(&self, job: Job) {
        self.shared.long_commands.fetch_add(1, Relaxed);
        self.lock().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// A loop hands over no more jobs.
    pub(super) fn leave(&self) {
        self.lock().loops -= 1;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.loops == 0 {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // It is whole after every statement.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn run(&mut self) {
        let (session, input, output) = (&mut self.session, &mut self.input, &mut self.output);
        let process = || session.process(input, output, unix_ms());
        self.flow = catch_unwind(AssertUnwindSafe(process)).ok();
    }
}

// What waits in a mailbox is shown with it.
impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("owner", &self.owner).finish_non_exhaustive()
    }
}
