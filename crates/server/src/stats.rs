//! What the server counts, for INFO and the metrics endpoint.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since start (or CONFIG RESETSTAT), added to once a batch of commands, never once a command.
#[derive(Debug, Default)]
pub struct ServerStats {
    /// Unix milliseconds at which the server started.
    pub started_at_ms: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused because `maxclients` was reached.
    pub connections_rejected: AtomicU64,
    /// Commands executed.
    pub commands: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Reads that found their key.
    pub hits: AtomicU64,
    /// Reads that did not.
    pub misses: AtomicU64,
    /// Bytes read from clients.
    pub bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub bytes_out: AtomicU64,
    /// Keys that the sweep found expired.
    pub expired: AtomicU64,
}

impl ServerStats {
    /// CONFIG RESETSTAT: all but the time of the start.
    pub fn reset(&self) {
        let counters = [
            &self.connections,
            &self.connections_rejected,
            &self.commands,
            &self.errors,
            &self.hits,
            &self.misses,
            &self.bytes_in,
            &self.bytes_out,
            &self.expired,
        ];
        // ORDER: Relaxed: counters to look at.
        counters.iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// What one session has counted since it last added it to everyone's.
#[derive(Debug, Default)]
pub struct Tally {
    /// Commands executed.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
}

impl Tally {
    /// Counts a read.
    pub fn looked_up(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
    }

    /// Adds everything to `stats` and begins again at zero.
    pub fn add_to(&mut self, stats: &ServerStats) {
        let counted = [
            (&stats.commands, &mut self.commands),
            (&stats.errors, &mut self.errors),
            (&stats.hits, &mut self.hits),
            (&stats.misses, &mut self.misses),
        ];
        for (all, own) in counted {
            if *own > 0 {
                // ORDER: Relaxed: counters to look at.
                all.fetch_add(std::mem::take(own), Relaxed);
            }
        }
    }
}
