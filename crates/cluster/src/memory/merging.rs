//! The threads that merge: they take logs from a queue, a step at a time.

use super::base::Base;
use super::logs::{Logs, Queue};
use super::merge::{self, Merged, Outcome};
use super::segments::Segment;
use super::threads::{AGAIN, Threads};
use crate::clock::now;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use terrace_engine::WriteError;

/// What the threads that merge share: logs with something to merge, and counts. Below stand the
/// pool and the log area. Sessions are above: they say what has arrived, and hear what is merged.
pub(crate) struct Merging {
    base: Arc<Base>,
    queue: Queue,
    merged: Merged,
    /// Second of the last complaint about a full pool.
    complained: AtomicU64,
}

impl Merging {
    pub(crate) fn new(base: Arc<Base>) -> Self {
        let (queue, merged, complained) = Default::default();
        Self { base, queue, merged, complained }
    }

    /// Notes what has arrived in the logs of a session: the last entry of each shard.
    pub(crate) fn arrived(&self, logs: &Arc<Logs>, durable: &[u64]) {
        for (nth, (shard, entry)) in logs.shards.iter().zip(durable).enumerate() {
            if shard.arrived(*entry) {
                self.queue.add(logs, nth);
            }
        }
    }

    /// Nothing arrives in these logs any more: merges them to their ends.
    pub(crate) fn finish(&self, logs: &Arc<Logs>) {
        // ORDER: Release: what has arrived in the segments is all there will be.
        logs.to_the_end.store(true, Release);
        (0..logs.shards.len()).for_each(|nth| self.queue.add(logs, nth));
    }

    /// The work of a thread. `merged` hears of each step: the logs, and the segments that were read
    /// to their ends.
    pub(crate) fn run(&self, threads: &Threads, merged: &dyn Fn(&Logs, &[Segment])) {
        let Base { data, area } = &*self.base;
        while let Some((logs, nth)) = self.queue.next() {
            let (outcome, freed) = merge::step(data, area, &logs, nth, &self.merged);
            if let Outcome::Stalled(error) = &outcome {
                self.complain(&logs, error);
                data.make_room();
                threads.sleep_for(AGAIN);
            }
            self.queue.done(&logs, nth, !matches!(outcome, Outcome::Idle));
            merged(&logs, &freed);
        }
    }

    fn complain(&self, logs: &Logs, error: &WriteError) {
        let second = now().as_secs();
        if self.complained.swap(second, Relaxed) != second {
            log::warn!("the log of session {} waits to be merged: {error}", logs.session);
        }
    }

    /// Ends the threads.
    pub(crate) fn end(&self) {
        self.queue.end();
    }

    /// Entries that were merged since the start, and their bytes.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.merged.entries.load(Relaxed), self.merged.bytes.load(Relaxed))
    }
}
