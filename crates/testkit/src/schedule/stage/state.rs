//! What a run has done so far: its turns, and the changes and crashes of its threads.

use super::{LAST, STEPS_IN_A_ROW, State, Turn};
use crate::schedule::death::{CrashPlan, ThreadCrash};
use crate::schedule::policy::{PolicyRunner, Slice, Threads};
use crate::schedule::spin::Spin;
use std::panic::Location;

impl State {
    pub(super) fn new(policy_runner: PolicyRunner, runnable: Threads) -> Self {
        Self {
            policy_runner,
            runnable,
            running: 0,
            turns: Vec::new(),
            in_a_row: 0,
            spin: Spin::default(),
            wrong: None,
            caller: None,
            crash_plan: CrashPlan::default(),
            changes: vec![Vec::new(); super::THREADS_MAX],
            died: Vec::new(),
            persist_requests: Vec::new(),
            ordered: Vec::new(),
        }
    }

    /// Records that `thread` requests durability with its next change.
    pub(super) fn record_persist_request(&mut self, thread: usize, site: &'static Location<'static>) {
        if let Some(call) = self.changes[thread].len().checked_sub(1) {
            self.persist_requests
                .push((ThreadCrash { thread, call, change: self.changes[thread][call] + 1 }, site));
        }
    }

    /// Records that `thread` makes a store that others rely on, with its next change. It could
    /// crash before the change after that.
    pub(super) fn record_ordered_store(&mut self, thread: usize, site: &'static Location<'static>) {
        if let Some(call) = self.changes[thread].len().checked_sub(1) {
            self.ordered.push((ThreadCrash { thread, call, change: self.changes[thread][call] + 2 }, site));
        }
    }

    /// Counts another change by `thread`. Returns whether it crashes instead.
    pub(super) fn crashes(&mut self, thread: usize) -> bool {
        let Some(call) = self.changes[thread].len().checked_sub(1) else { return false };
        let change = self.changes[thread][call] + 1;
        self.changes[thread][call] = change;
        self.crash_plan.crashes.contains(&ThreadCrash { thread, call, change })
    }

    /// Records a step, with its `load`. Returns whether the thread must yield first.
    pub(super) fn must_yield(&mut self, load: Option<u64>) -> bool {
        self.spin.record(load) || self.in_a_row >= STEPS_IN_A_ROW
    }

    /// Switches from one thread to the next, or continues.
    pub(super) fn switch(&mut self, from: usize, to: usize, now: u64) {
        if from != to {
            self.end_turn(from, now);
            (self.in_a_row, self.spin) = (0, Spin::default());
        }
        self.running = to;
    }

    pub(super) fn end_turn(&mut self, thread: usize, now: u64) {
        let slice = Slice { thread: thread as u8, steps: self.in_a_row };
        self.turns.push(Turn { slice, after: LAST.get(), until: now });
        self.in_a_row = 0;
    }
}
