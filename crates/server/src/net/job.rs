//! A session that its loop has lent, and what is done with it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    session::Session,
    state::{clock::unix_ms, flow::Flow},
};

/// A session on its way to a worker and back.
pub(crate) struct Job {
    /// The loop, and the connection's key in it.
    pub(super) owner: (usize, usize),
    pub(super) session: Session,
    /// Input that is not executed yet.
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// The loop's next step; `None` if a command panicked.
    pub(super) flow: Option<Flow>,
    /// Start time of the turn, if it is timed.
    pub(super) began: Option<u64>,
}

/// What workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Commands that take long. They may make others wait: see `may_wait`.
    Commands,
    /// Scripts that take long. They make no other command wait before their end.
    Scripts,
}

impl Job {
    /// Executes the input, as far as this kind of worker does.
    pub(super) fn run(&mut self, work: Work) {
        let (session, input, output) = (&mut self.session, &mut self.input, &mut self.output);
        let process = || match work {
            Work::Commands => session.process_long(input, output, unix_ms()),
            Work::Scripts => session.process(input, output, unix_ms()),
        };
        self.flow = catch_unwind(AssertUnwindSafe(process)).ok();
    }
}

// For the derived `Debug` of a mailbox.
impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("owner", &self.owner).finish_non_exhaustive()
    }
}
