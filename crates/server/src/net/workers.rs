//! Worker threads for long commands, so that other connections of a loop do not wait for them, and
//! others for long scripts: a script without end holds up no long command.
//!
//! A loop submits the session of a connection whose next command is long, with its input. A worker
//! runs the command and all input behind it, and puts the session into the loop's mailbox. The
//! command is not split: it is as atomic as on a loop. Meanwhile the loop neither reads from the
//! connection nor closes it, so replies stay in order.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    hub::Hub,
    job::{Job, Work},
};
use crate::{session::add_counters, state::shared::Shared};

/// The workers of one server for one kind of work.
pub(crate) struct Workers {
    work: Work,
    shared: Arc<Shared>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    jobs: VecDeque<Job>,
    /// Loops that may still submit jobs.
    loops: usize,
}

impl Workers {
    /// Workers for this many loops.
    pub(crate) fn new(work: Work, shared: Arc<Shared>, loops: usize) -> Workers {
        let waiting = Mutex::new(Waiting { jobs: VecDeque::new(), loops });
        Workers { work, shared, waiting, changed: Condvar::new() }
    }

    /// Runs jobs until all loops have ended and no job is left.
    pub(crate) fn run(&self, hub: &Hub) -> io::Result<()> {
        let mut counters = add_counters(&self.shared);
        while let Some(mut job) = self.next() {
            // Only the loop's thread may write the loop's counters.
            job.session.swap_counters(&mut counters);
            job.run(self.work);
            job.session.swap_counters(&mut counters);
            match self.work {
                Work::Commands => self.shared.end_long_command(),
                Work::Scripts => self.shared.scripts.give_back(),
            }
            hub.send_back(job)?;
        }
        self.shared.stats.commands.remove_set(&counters);
        Ok(())
    }

    pub(super) fn submit(&self, job: Job) {
        if self.work == Work::Commands {
            self.shared.begin_long_command();
        }
        self.lock().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// Records that a loop submits no more jobs.
    pub(super) fn remove_loop(&self) {
        let mut waiting = self.lock();
        debug_assert!(waiting.loops > 0, "a loop ends once");
        waiting.loops -= 1;
        drop(waiting);
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
        // Consistent after every statement, so a panic elsewhere leaves no partial change.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
