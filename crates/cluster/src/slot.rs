//! Slots: the parts of the key space that nodes own.

use serde::{Deserialize, Serialize};

/// Number of slots, as in a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// Slots from the first to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotRange {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl SlotRange {
    /// The range, if these are slots in order.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first <= last && last < SLOTS).then_some(Self { first, last })
    }

    /// Its slots.
    pub fn slots(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// The ranges of these slots, which are in order.
    pub fn of(slots: impl IntoIterator<Item = u16>) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for slot in slots {
            match ranges.last_mut() {
                Some(range) if range.last + 1 == slot => range.last = slot,
                _ => ranges.push(Self { first: slot, last: slot }),
            }
        }
        ranges
    }
}
