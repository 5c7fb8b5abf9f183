//! What the server counts, for INFO and the metrics endpoint.

mod commands;
mod rates;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) use self::{
    commands::{CommandStats, Counters, ERROR_CODES, Sum},
    rates::{Rates, Totals},
};
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
    /// The largest `used_memory` that was seen, bytes.
    pub memory_peak: AtomicU64,
    /// What the store had counted at the last CONFIG RESETSTAT.
    pub(crate) store: StoreCounters,
    pub(crate) commands: CommandStats,
    pub(crate) rates: Rates,
}

/// Counters that the store keeps since it was opened.
#[derive(Debug, Default)]
pub(crate) struct StoreCounters {
    expired: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
}

impl StoreCounters {
    /// What the store has counted since the last CONFIG RESETSTAT: keys that expired, hits and
    /// misses of its cache.
    pub(crate) fn since(&self, now: &terrace::Stats) -> [u64; 3] {
        // ORDER: Relaxed: counters to look at.
        let before =
            [&self.expired, &self.cache_hits, &self.cache_misses].map(|counter| counter.load(Relaxed));
        let cache = now.index.and_then(|index| index.cache).unwrap_or_default();
        std::array::from_fn(|nth| [now.expired, cache.hits, cache.misses][nth].saturating_sub(before[nth]))
    }

    fn forget(&self, now: &terrace::Stats) {
        let cache = now.index.and_then(|index| index.cache).unwrap_or_default();
        // ORDER: Relaxed: counters to look at.
        self.expired.store(now.expired, Relaxed);
        self.cache_hits.store(cache.hits, Relaxed);
        self.cache_misses.store(cache.misses, Relaxed);
    }
}

impl std::fmt::Debug for CommandStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommandStats")
    }
}

impl ServerStats {
    /// CONFIG RESETSTAT: all but the time of the start and the peak of memory. `store` is what the
    /// store counts now.
    pub fn reset(&self, store: &terrace::Stats) {
        self.store.forget(store);
        self.commands.forget();
        self.rates.forget();
        let counters = [&self.connections, &self.connections_rejected, &self.bytes_in, &self.bytes_out];
        // ORDER: Relaxed: counters to look at.
        counters.iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// Bytes of the pool that hold something: what INFO calls `used_memory`. Notes their peak.
pub(crate) fn used_memory(stats: &ServerStats, store: &terrace::Stats) -> u64 {
    let in_pool = |pool: terrace::PoolStats| pool.size_bytes.saturating_sub(pool.free_bytes);
    let used = store.pool.map_or(store.data_bytes + store.overhead_bytes, in_pool);
    // ORDER: Relaxed: a figure to look at.
    stats.memory_peak.fetch_max(used, Relaxed);
    used
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
