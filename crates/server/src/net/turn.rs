//! A turn of an event loop.

use terrace::Ticket;

use super::counters::Counters;
use crate::state::{clock::precise_ns, shared::Shared};

/// Size of the loop's read buffer, and minimum size of a read.
pub(super) const READ: usize = 64 << 10;

/// The state that the connections of one loop share during a turn.
pub(super) struct Turn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) counters: &'a Counters,
    /// Milliseconds on the coarse clock.
    pub(super) now: u64,
    pub(super) buffers: Buffers,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Turns until the next one that is timed.
    pub(super) sample: u32,
    /// Whether a client asked the server to stop.
    pub(super) shutdown: bool,
    /// Whether replies wait until the writes of the turn are durable.
    pub(super) holds: bool,
    /// From before the turn's first command.
    pub(super) since: Ticket,
}

/// A loop's two buffers. Both are empty between turns, and keep their memory.
pub(super) struct Buffers {
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
}

impl Turn<'_> {
    /// Records how long a turn took, if it is timed.
    pub(super) fn record_latency(&self, began: Option<u64>) {
        if let Some(began) = began {
            self.counters.record_latency(precise_ns().saturating_sub(began));
        }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers { input: Vec::with_capacity(READ), output: Vec::with_capacity(READ) }
    }
}
