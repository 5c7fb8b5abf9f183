//! The write buffers in DRAM: one a unit, with the newest change of each key.
//!
//! ```text
//!   unit -> { key -> word, or none if it is removed;  sequence number of the first change }
//!   sequence number of the first change -> unit:      which unit holds the log's tail
//! ```

use super::Change;
use std::collections::{BTreeMap, HashMap};

/// The buffer of a unit.
#[derive(Default)]
pub(super) struct Buffer {
    pub(super) changes: BTreeMap<u64, Option<u64>>,
    /// The sequence number of the first change; 0 without a log.
    pub(super) first: u64,
}

/// All buffers.
#[derive(Default)]
pub(super) struct Buffers {
    units: HashMap<u64, Buffer>,
    /// The unit of each first change that is in the log.
    firsts: BTreeMap<u64, Vec<u64>>,
    pairs: u64,
}

impl Buffers {
    pub(super) fn pairs(&self) -> u64 {
        self.pairs
    }

    /// The change of a key; its word is none if it is removed.
    pub(super) fn get(&self, unit: u64, key: u64) -> Option<Option<u64>> {
        self.units.get(&unit)?.changes.get(&key).copied()
    }

    /// Whether a change of a key fits into the buffer of a unit that holds so many.
    pub(super) fn has_room(&self, unit: u64, key: u64, most: usize) -> bool {
        let buffer = self.units.get(&unit);
        buffer.is_none_or(|buffer| buffer.changes.len() < most || buffer.changes.contains_key(&key))
    }

    /// Adds a change with its sequence number, 0 without a log; it replaces an earlier one of the
    /// key.
    pub(super) fn set(&mut self, unit: u64, (key, word): Change, sequence: u64) {
        let buffer = self.units.entry(unit).or_default();
        let (is_empty, before) = (buffer.changes.is_empty(), buffer.first);
        self.pairs += u64::from(buffer.changes.insert(key, word).is_none());
        if sequence != 0 && (is_empty || sequence < before) {
            buffer.first = sequence;
            self.forget_first(before, unit);
            self.firsts.entry(sequence).or_default().push(unit);
        }
    }

    /// Takes the buffer of a unit, if there is one.
    pub(super) fn take(&mut self, unit: u64) -> Option<Buffer> {
        let buffer = self.units.remove(&unit)?;
        self.pairs -= buffer.changes.len() as u64;
        self.forget_first(buffer.first, unit);
        Some(buffer)
    }

    fn forget_first(&mut self, first: u64, unit: u64) {
        let Some(units) = self.firsts.get_mut(&first) else { return };
        units.retain(|other| *other != unit);
        if units.is_empty() {
            self.firsts.remove(&first);
        }
    }

    /// The least sequence number of a change, and its unit.
    pub(super) fn oldest(&self) -> Option<(u64, u64)> {
        let (first, units) = self.firsts.first_key_value()?;
        Some((*first, *units.first()?))
    }

    /// All units with a buffer, in order.
    pub(super) fn units(&self) -> Vec<u64> {
        let mut units: Vec<u64> = self.units.keys().copied().collect();
        units.sort_unstable();
        units
    }
}
