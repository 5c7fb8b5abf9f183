//! Sequence numbers that readers hold, so that compactions keep the versions they need.
//!
//! # Invariants
//! 1. A number is read from the visible one and noted under one lock. So a compaction that has
//!    listed the numbers in use, with the visible one, meets no lower number later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers in use, and how often.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<u64, u32>>);

/// A number in use, until it is dropped.
pub(crate) struct Snapshot<'s> {
    snapshots: &'s Snapshots,
    pub(crate) seq: u64,
}

impl Snapshots {
    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the visible number.
    pub(crate) fn take(&self, visible: &AtomicU64) -> Snapshot<'_> {
        let mut held = self.held();
        // ORDER: Acquire: what has this number or a lower one is seen.
        let seq = visible.load(Acquire);
        *held.entry(seq).or_default() += 1;
        Snapshot { snapshots: self, seq }
    }

    /// The numbers in use, in order, and the visible one as the last.
    pub(crate) fn in_use(&self, visible: &AtomicU64) -> Vec<u64> {
        let held = self.held();
        let visible = visible.load(Acquire);
        held.keys().copied().filter(|&seq| seq < visible).chain([visible]).collect()
    }

    /// How many numbers are in use, and the lowest one.
    pub(crate) fn figures(&self) -> (usize, Option<u64>) {
        let held = self.held();
        (held.len(), held.keys().next().copied())
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let mut held = self.snapshots.held();
        let count = held.get_mut(&self.seq).expect("a snapshot is noted until it is dropped");
        *count -= 1;
        if *count == 0 {
            held.remove(&self.seq);
        }
    }
}

#[cfg(test)]
#[path = "tests/snapshots.rs"]
mod tests;
