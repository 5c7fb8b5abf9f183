//! The server's counters, for INFO and the metrics endpoint.

mod bounds;
mod commands;
mod rates;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use terrace::{LAYER_FIGURES, LayerStats, Layers};

pub(crate) use self::{
    bounds::{BOUNDS, BUCKETS},
    commands::{CommandStats, Counters, Number, Sum, code_of},
    rates::{Rates, Totals},
};

/// Counters of the event loops since start or CONFIG RESETSTAT. Each client counts its own
/// commands: see [`Clients::tally`](crate::state::clients::Clients::tally).
#[derive(Debug, Default)]
pub struct ServerStats {
    /// Unix milliseconds when the server started.
    pub started_at_ms: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused because `maxclients` was reached.
    pub connections_rejected: AtomicU64,
    /// Commands that waited aside for cold reads.
    pub parked: AtomicU64,
    /// Bytes read from clients.
    pub bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub bytes_out: AtomicU64,
    /// Unix milliseconds when SAVE or BGSAVE last made a checkpoint, and how many they have made.
    pub(crate) saved_at_ms: AtomicU64,
    pub(crate) saves: AtomicU64,
    /// The highest `used_memory` seen so far, bytes.
    pub memory_peak: AtomicU64,
    /// The store's counters at the last CONFIG RESETSTAT.
    pub(crate) store: StoreCounters,
    pub(crate) commands: CommandStats,
    pub(crate) rates: Rates,
}

/// Baselines of counters that the store keeps from its opening on.
#[derive(Debug, Default)]
pub(crate) struct StoreCounters {
    expired: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    evicted: AtomicU64,
    /// What the layers of the index had done.
    layers: Mutex<LayerStats>,
}

impl StoreCounters {
    /// Keys evicted since the last CONFIG RESETSTAT, of all that were.
    pub(crate) fn evicted_since(&self, all: u64) -> u64 {
        // ORDER: Relaxed: a statistic.
        all.saturating_sub(self.evicted.load(Relaxed))
    }

    /// Counts of the store since the last CONFIG RESETSTAT: expired keys, hits and misses of the
    /// index cache.
    pub(crate) fn since(&self, now: &terrace::Stats) -> [u64; 3] {
        // ORDER: Relaxed: statistics.
        let before =
            [&self.expired, &self.cache_hits, &self.cache_misses].map(|counter| counter.load(Relaxed));
        let cache = now.index.and_then(|index| index.cache).unwrap_or_default();
        std::array::from_fn(|nth| [now.expired, cache.hits, cache.misses][nth].saturating_sub(before[nth]))
    }

    /// What the layers of the index have, and did since the last CONFIG RESETSTAT.
    pub(crate) fn layers_since(&self, now: &Layers) -> LayerStats {
        let before = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats = now.stats();
        for figure in LAYER_FIGURES.iter().filter(|figure| figure.is_counter) {
            let since = (figure.get)(&stats).saturating_sub((figure.get)(&before));
            (figure.set)(&mut stats, since);
        }
        stats
    }

    fn set_baseline(&self, now: &terrace::Stats, evicted: u64) {
        self.evicted.store(evicted, Relaxed);
        let cache = now.index.and_then(|index| index.cache).unwrap_or_default();
        // ORDER: Relaxed: statistics.
        self.expired.store(now.expired, Relaxed);
        self.cache_hits.store(cache.hits, Relaxed);
        self.cache_misses.store(cache.misses, Relaxed);
        let layers = now.index.and_then(|index| index.layers);
        let layers = layers.map_or(LayerStats::default(), |layers| layers.stats());
        *self.layers.lock().unwrap_or_else(PoisonError::into_inner) = layers;
    }
}

impl std::fmt::Debug for CommandStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommandStats")
    }
}

impl ServerStats {
    /// CONFIG RESETSTAT: resets everything but the start time and the memory peak. `store` is the
    /// store's counters now, and `evicted` the keys that it has evicted.
    pub fn reset(&self, store: &terrace::Stats, evicted: u64) {
        self.store.set_baseline(store, evicted);
        self.commands.reset();
        self.rates.clear();
        let counters =
            [&self.connections, &self.connections_rejected, &self.parked, &self.bytes_in, &self.bytes_out];
        // ORDER: Relaxed: statistics.
        counters.iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// Bytes of the pool in use, INFO's `used_memory`; of a store on a disk, its memory. Updates the
/// peak.
pub(crate) fn used_memory(stats: &ServerStats, store: &terrace::Stats) -> u64 {
    let in_pool = |pool: terrace::PoolStats| pool.size_bytes.saturating_sub(pool.free_bytes);
    let of_disk = store.disk.map_or(0, |disk| disk.memtable_bytes + disk.cache_bytes);
    let in_memory = store.tier.map_or(of_disk, |tier| tier.used_bytes());
    let used = store.pool.map_or(in_memory, in_pool);
    // ORDER: Relaxed: a statistic.
    stats.memory_peak.fetch_max(used, Relaxed);
    used
}

/// Counts of one client's commands, or of all clients together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Commands executed.
    pub commands: u64,
    /// Executed commands that only read keys.
    pub reads: u64,
    /// Executed commands that may change keys.
    pub writes: u64,
    /// Error replies.
    pub errors: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not find their key.
    pub misses: u64,
}

impl Tally {
    /// Counts executed commands that may do this to keys.
    pub fn count_commands(&mut self, commands: u64, reads: bool, writes: bool) {
        self.commands += commands;
        self.reads += commands * u64::from(reads);
        self.writes += commands * u64::from(writes);
    }

    /// Counts a lookup of a key.
    pub fn count_lookup(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
    }

    fn combine(self, other: Tally, each: fn(u64, u64) -> u64) -> Tally {
        Tally {
            commands: each(self.commands, other.commands),
            reads: each(self.reads, other.reads),
            writes: each(self.writes, other.writes),
            errors: each(self.errors, other.errors),
            hits: each(self.hits, other.hits),
            misses: each(self.misses, other.misses),
        }
    }

    /// The sum of both.
    pub fn plus(self, other: Tally) -> Tally {
        self.combine(other, u64::wrapping_add)
    }

    /// The difference to an earlier tally.
    pub fn since(self, earlier: Tally) -> Tally {
        self.combine(earlier, u64::wrapping_sub)
    }
}

/// A tally that its one owner publishes for others. The owner only stores, so threads do not
/// contend for a counter.
#[derive(Debug, Default)]
pub struct ShownTally([AtomicU64; 6]);

impl ShownTally {
    /// Publishes the owner's tally.
    pub fn show(&self, tally: Tally) {
        let counts = [tally.commands, tally.reads, tally.writes, tally.errors, tally.hits, tally.misses];
        // ORDER: Relaxed: statistics.
        self.0.iter().zip(counts).for_each(|(shown, count)| shown.store(count, Relaxed));
    }

    /// The tally that was published last.
    pub fn read(&self) -> Tally {
        // ORDER: Relaxed: statistics.
        let [commands, reads, writes, errors, hits, misses] =
            self.0.each_ref().map(|shown| shown.load(Relaxed));
        Tally { commands, reads, writes, errors, hits, misses }
    }
}
