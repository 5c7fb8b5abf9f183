//! What the server counts, for INFO and the metrics endpoint.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::command::flag;

/// Counters since start (or CONFIG RESETSTAT) of what the event loops do. What clients do, each counts for itself: see
/// [`Clients::tally`](crate::clients::Clients::tally).
#[derive(Debug, Default)]
pub struct ServerStats {
    /// Unix milliseconds at which the server started.
    pub started_at_ms: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused because `maxclients` was reached.
    pub connections_rejected: AtomicU64,
    /// Bytes read from clients.
    pub bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub bytes_out: AtomicU64,
}

impl ServerStats {
    /// CONFIG RESETSTAT: all but the time of the start.
    pub fn reset(&self) {
        let counters = [&self.connections, &self.connections_rejected, &self.bytes_in, &self.bytes_out];
        // ORDER: Relaxed: counters to look at.
        counters.iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// What clients have done: one's, or all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Commands executed.
    pub commands: u64,
    /// Those of them that only look at keys.
    pub reads: u64,
    /// Those of them that may change keys.
    pub writes: u64,
    /// Error replies.
    pub errors: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
}

impl Tally {
    /// Counts commands, by what their flags say of them.
    pub fn executed(&mut self, commands: u64, flags: u32) {
        self.commands += commands;
        self.reads += commands * u64::from(flags & flag::READONLY != 0);
        self.writes += commands * u64::from(flags & flag::WRITE != 0);
    }

    /// Counts a lookup.
    pub fn looked_up(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
    }

    fn with(self, other: Tally, each: fn(u64, u64) -> u64) -> Tally {
        Tally {
            commands: each(self.commands, other.commands),
            reads: each(self.reads, other.reads),
            writes: each(self.writes, other.writes),
            errors: each(self.errors, other.errors),
            hits: each(self.hits, other.hits),
            misses: each(self.misses, other.misses),
        }
    }

    /// Both together.
    pub fn plus(self, other: Tally) -> Tally {
        self.with(other, u64::wrapping_add)
    }

    /// What came after `earlier`.
    pub fn since(self, earlier: Tally) -> Tally {
        self.with(earlier, u64::wrapping_sub)
    }
}

/// A tally that its one owner shows to others: it stores, so no two threads fight over a counter.
#[derive(Debug, Default)]
pub struct ShownTally([AtomicU64; 6]);

impl ShownTally {
    /// The owner's tally now.
    pub fn show(&self, tally: Tally) {
        let counts = [tally.commands, tally.reads, tally.writes, tally.errors, tally.hits, tally.misses];
        // ORDER: Relaxed: counters to look at.
        self.0.iter().zip(counts).for_each(|(shown, count)| shown.store(count, Relaxed));
    }

    /// What was shown last.
    pub fn read(&self) -> Tally {
        // ORDER: Relaxed: counters to look at.
        let [commands, reads, writes, errors, hits, misses] =
            self.0.each_ref().map(|shown| shown.load(Relaxed));
        Tally { commands, reads, writes, errors, hits, misses }
    }
}
