//! What happens next.

use super::event::Event;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Something that happens at an instant.
#[derive(Debug)]
pub(super) enum Happening {
    /// A node, in one of its lives, hears of something that came from a node.
    Heard { from: usize, to: usize, life: u64, event: Event },
    /// A piece of an operation arrives at the target.
    Piece { operation: usize, piece: u32 },
    /// The reply to an operation arrives at the initiator.
    Reply { operation: usize },
    /// The end of a connection arrives at the initiator.
    End { connection: usize },
}

struct Entry {
    at: u64,
    number: u64,
    happening: Happening,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// Happenings by time; of one instant, in the order of their addition.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

impl Queue {
    pub(super) fn add(&mut self, at: u64, happening: Happening) {
        self.heap.push(Reverse(Entry { at, number: self.added, happening }));
        self.added += 1;
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(super) fn next(&mut self) -> Option<(u64, Happening)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.happening))
    }
}
