//! The metrics, in OpenMetrics text. A scrape reads the counters, so requests cost nothing extra.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{counters::read, hub::Hub};
use crate::state::{
    clock::{coarse_ms, unix_ms},
    config::Key,
    routing::Figure,
    shared::Shared,
    stats::BOUNDS,
};
use terrace::{Costs, DiskStats, Holder, LAYER_FIGURES, Layers, Stats, TierStats};

/// The metrics of one server.
pub(crate) struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Registers the metrics of a server.
    pub(crate) fn new(shared: Arc<Shared>, hub: Arc<Hub>) -> Metrics {
        let mut registry = Registry::with_prefix("terrace");
        registry.register_collector(Box::new(Source { shared, hub, huge_pages: Mutex::default() }));
        Metrics { registry }
    }

    /// Metrics from figures. Their names begin with that of the part of Terrace which they are of.
    pub(super) fn of_figures(
        part: &'static str,
        figures: impl Fn() -> Vec<Figure> + Send + Sync + 'static,
    ) -> Metrics {
        let mut registry = Registry::with_prefix("terrace");
        registry.register_collector(Box::new(Figures { part, read: Box::new(figures) }));
        Metrics { registry }
    }

    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

struct Source {
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    /// The time of the last query, and its result.
    huge_pages: Mutex<Option<(u64, u64)>>,
}

const HUGE_PAGES_MS: u64 = 10_000;

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl Collector for Source {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page { encoder };
        self.serving(&mut page)?;
        self.latency(&mut page)?;
        self.store(&mut page)?;
        self.cluster(&mut page)?;
        self.sharing(&mut page)
    }
}

/// The figures of one part.
struct Figures {
    part: &'static str,
    read: Box<dyn Fn() -> Vec<Figure> + Send + Sync>,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Figures of {}", self.part)
    }
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        Page { encoder }.figures(self.part, (self.read)())
    }
}

/// A page while it is written. Units come last in names.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let counter = ConstCounter::new(value);
        counter.encode(self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    fn families(&mut self, name: &str, help: &str, counts: &[(&str, u64)]) -> fmt::Result {
        let mut all = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        counts.iter().try_for_each(|(family, count)| {
            let labels = [("family", *family)];
            ConstCounter::new(*count).encode(all.encode_family(&labels)?)
        })
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    /// A gauge for each process that shares the pool: whether a condition holds for it.
    fn sharers(&mut self, name: &str, help: &str, holds: &[(&Holder, bool)]) -> fmt::Result {
        let mut all = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        holds.iter().try_for_each(|(sharer, holds)| {
            let number = sharer.pid.to_string();
            // A process id of another namespace identifies no process here.
            let pid = if sharer.is_local { number } else { format!("{number} elsewhere") };
            let labels = [("pid", pid), ("program", sharer.program.clone())];
            ConstGauge::new(u64::from(*holds)).encode(all.encode_family(&labels)?)
        })
    }

    fn figures(&mut self, part: &str, figures: Vec<Figure>) -> fmt::Result {
        figures.into_iter().try_for_each(|figure| {
            let name = format!("{part}_{}", figure.name);
            match figure.is_total {
                true => self.counter(&name, figure.about, figure.value),
                false => self.gauge(&name, figure.about, figure.value),
            }
        })
    }

    /// A figure of a list of all figures of `part`.
    fn of_list<S>(&mut self, part: &str, figure: &terrace::Figure<S>, stats: &S) -> fmt::Result {
        let (name, value) = (format!("{part}_{}", figure.name), (figure.get)(stats));
        match figure.is_counter {
            true => self.counter(&name, figure.help, value),
            false => self.gauge(&name, figure.help, value),
        }
    }

    fn info(&mut self, name: &str, help: &str, labels: &[(&str, String)]) -> fmt::Result {
        self.encoder.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(&labels)
    }
}

impl Source {
    /// The pool's bytes on huge pages. The kernel walks the mapping, so this asks at most every ten
    /// seconds.
    fn huge_page_bytes(&self) -> u64 {
        let mut known = self.huge_pages.lock().unwrap_or_else(PoisonError::into_inner);
        let now = coarse_ms();
        if known.is_none_or(|(at, _)| now >= at + HUGE_PAGES_MS) {
            let bytes = self.shared.store.upkeep().huge_pages().map_or(0, |pages| pages.huge);
            *known = Some((now, bytes));
        }
        known.map_or(0, |(_, bytes)| bytes)
    }

    fn serving(&self, page: &mut Page<'_>) -> fmt::Result {
        let (stats, counters) = (&self.shared.stats, &self.hub.counters);
        let tally = self.shared.clients.tally();
        let uptime_ms = unix_ms().saturating_sub(read(&stats.started_at_ms));
        page.gauge("uptime_ms", "Time since the server started", uptime_ms)?;
        let others = tally.commands.wrapping_sub(tally.reads).wrapping_sub(tally.writes);
        let families = [("read", tally.reads), ("write", tally.writes), ("other", others)];
        page.families("commands", "Commands executed, by what they do to keys", &families)?;
        page.counter("errors", "Error replies", tally.errors)?;
        page.counter("hits", "Reads that found their key", tally.hits)?;
        page.counter("misses", "Reads that did not find their key", tally.misses)?;
        page.gauge("connections_open", "Connections open now", self.hub.open() as u64)?;
        page.counter("connections", "Connections accepted", read(&stats.connections))?;
        let rejected = read(&stats.connections_rejected);
        page.counter("connections_rejected", "Connections refused because of maxclients", rejected)?;
        let timeouts = read(&counters.timeouts);
        page.counter("connections_timed_out", "Connections closed by timeout or auth-timeout", timeouts)?;
        page.counter("accept_failures", "Failures to accept a connection", read(&counters.accept_failures))?;
        page.counter("bytes_in", "Bytes read from clients", read(&stats.bytes_in))?;
        page.counter("bytes_out", "Bytes written to clients", read(&stats.bytes_out))?;
        page.counter("faults", "Panics of commands; each closed one connection", read(&counters.panics))
    }

    fn latency(&self, page: &mut Page<'_>) -> fmt::Result {
        const HELP: &str =
            "Time from reading requests to having written their replies, for one in 64 turns of a connection";
        let seen = self.hub.counters.latencies();
        let bounds = BOUNDS.iter().map(|&ns| seconds(ns)).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(seen.counts).collect();
        let count = seen.counts.iter().sum();
        let mut histogram =
            page.encoder.encode_descriptor("turn_seconds", HELP, None, MetricType::Histogram)?;
        histogram.encode_histogram::<NoLabelSet>(seconds(seen.sum_ns), count, &buckets, None)?;
        page.gauge("turn_nanoseconds_max", "The longest such time since start", seen.max_ns)
    }

    /// This node's part in a cluster.
    fn cluster(&self, page: &mut Page<'_>) -> fmt::Result {
        let figures = self.shared.routing().into_iter().flat_map(|routing| routing.figures());
        page.figures("cluster", figures.collect())
    }

    fn store(&self, page: &mut Page<'_>) -> fmt::Result {
        let stats = self.shared.store.stats();
        self.place(page)?;
        key_figures(page, &stats)?;
        pool_figures(page, &stats)?;
        index_figures(page, &stats)?;
        page.gauge("huge_page_bytes", "Bytes of the pool on huge pages", self.huge_page_bytes())?;
        if let Some(disk) = stats.disk {
            disk_figures(page, &disk)?;
        }
        if let Some(tier) = stats.tier {
            tier_figures(page, &tier)?;
        }
        self.costs(page, stats.costs)
    }

    fn place(&self, page: &mut Page<'_>) -> fmt::Result {
        let place = match self.shared.routing() {
            // The memory node has the pool.
            Some(_) => String::new(),
            None if self.shared.store.is_on_disk() => self.shared.config.text(Key::Dir),
            None => self.shared.config.text(Key::Pool),
        };
        page.info("pool", "The store that is served", &[("path", place)])?;
        let shared = self.shared.config.is_on(Key::Shared);
        page.gauge("pool_shared", "Whether other processes may have the pool open too", u64::from(shared))
    }

    /// The other processes that have the pool open. Found at each scrape by locks of the file and
    /// in /proc; this waits for no process.
    fn sharing(&self, page: &mut Page<'_>) -> fmt::Result {
        let others = self.shared.store.sharing().other_processes();
        let each = |holds: fn(&Holder) -> bool| -> Vec<(&Holder, bool)> {
            others.iter().map(|other| (other, holds(other))).collect()
        };
        page.gauge("sharers", "Other processes that share the pool", others.len() as u64)?;
        page.sharers(
            "sharer_stopped",
            "Whether that process is stopped (SIGSTOP, a debugger); it keeps its locks and pins",
            &each(|other| other.stopped),
        )?;
        page.sharers(
            "sharer_holding_up",
            "Whether waiting_bytes waits for that process",
            &each(|other| other.blocks_reclaim),
        )
    }

    fn costs(&self, page: &mut Page<'_>, costs: Costs) -> fmt::Result {
        let gauges = [
            ("fences_per_put", "Fences of a write; writes in one pipeline share them", costs.fences_per_put),
            ("fences_per_removal", "Fences of a removal", costs.fences_per_removal),
            ("fences_per_batch", "Fences of an atomic write of several keys", costs.fences_per_batch),
            (
                "write_backs_per_put",
                "Lines written back by a write, besides the record's",
                costs.write_backs_per_put,
            ),
            ("write_backs_per_removal", "Lines written back by a removal", costs.write_backs_per_removal),
        ];
        gauges.into_iter().try_for_each(|(name, help, count)| page.gauge(name, help, count.into()))
    }
}

/// The figures of the keys and their records.
fn key_figures(page: &mut Page<'_>, stats: &Stats) -> fmt::Result {
    page.gauge("records", "Keys, including expired ones that are not removed yet", stats.records)?;
    page.counter("expired", "Expired keys that were removed since the store was opened", stats.expired)?;
    page.gauge("records_expiring", "Keys that have an expiry", stats.expiring)?;
    page.gauge("data_bytes", "Bytes of keys and values", stats.data_bytes)?;
    page.gauge("overhead_bytes", "Used bytes beyond keys and values", stats.overhead_bytes)
}

/// The figures of the pool's memory.
fn pool_figures(page: &mut Page<'_>, stats: &Stats) -> fmt::Result {
    let pool = stats.pool.unwrap_or_default();
    page.gauge("waiting_bytes", "Retired bytes that a reader may still see", pool.waiting_bytes)?;
    page.gauge("readers_holding_up", "Threads that waiting_bytes waits for", pool.blocking_readers.into())?;
    page.gauge("readers", "Threads that are in an operation now", pool.readers.into())?;
    page.gauge("lost_bytes", "Freed bytes that only the next open makes available", pool.lost_bytes)?;
    page.gauge("damaged_bytes", "Bytes in quarantine because of damage", pool.damaged_bytes)?;
    page.counter(
        "damaged_records_skipped",
        "Damaged records that scans skipped since the store was opened",
        stats.damaged_records_skipped,
    )?;
    page.gauge("free_bytes", "Free bytes", pool.free_bytes)?;
    page.gauge("largest_free_bytes", "The longest run of free memory", pool.largest_free_bytes)?;
    page.gauge("pool_bytes", "Size of the pool", pool.size_bytes)
}

/// The figures of the index and its cache.
fn index_figures(page: &mut Page<'_>, stats: &Stats) -> fmt::Result {
    let index = stats.index.unwrap_or_default();
    page.info("index", "The index of the pool", &[("name", index.name.into())])?;
    page.gauge("index_bytes", "Size of the index", index.bytes)?;
    page.gauge("index_slots", "Slots of the index", index.slots)?;
    page.gauge("index_nodes", "Nodes of the index; 0: it is no tree", index.all_nodes())?;
    page.counter("index_resizes", "Resizes of the index since the pool was created", index.resizes)?;
    page.gauge("index_resizing", "Whether the index is being resized", u64::from(index.resizing))?;
    let cache = index.cache.unwrap_or_default();
    page.gauge("index_cache_bytes", "Size of the index's cache; 0: none", cache.bytes)?;
    page.counter("index_cache_hits", "Searches answered by the index's cache", cache.hits)?;
    page.counter("index_cache_misses", "Searches that the cache could not answer", cache.misses)?;
    index.layers.map_or(Ok(()), |layers| layer_figures(page, &layers))
}

/// The figures of the layers in DRAM of an index that can have such.
fn layer_figures(page: &mut Page<'_>, layers: &Layers) -> fmt::Result {
    page.info("index_served", "What serves the index's searches", &[("by", layers.to_string())])?;
    let stats = layers.stats();
    LAYER_FIGURES.iter().try_for_each(|figure| page.of_list("index_layers", figure, &stats))
}

/// The figures of a store on a disk.
fn disk_figures(page: &mut Page<'_>, disk: &DiskStats) -> fmt::Result {
    page.gauge("disk_buckets", "Ranges of keys with tables of their own", disk.buckets)?;
    for (level, tables) in disk.tables.iter().enumerate() {
        page.gauge(&format!("disk_tables_{level}"), "Tables of a level", *tables)?;
    }
    let gauges = [
        ("disk_table_bytes", "Bytes of all tables", disk.table_bytes),
        ("disk_log_bytes", "Bytes of the log", disk.log_bytes),
        ("disk_memtable_bytes", "Memory of writes that no table has yet", disk.memtable_bytes),
        ("disk_cache_bytes", "Memory of cached blocks", disk.cache_bytes),
        ("disk_snapshots", "Snapshots that readers hold", disk.snapshots),
        ("disk_failing", "1 if the last flush or merge has failed", disk.is_failing),
    ];
    gauges.into_iter().try_for_each(|(name, help, value)| page.gauge(name, help, value))?;
    let counters = [
        ("disk_blocks_read", "Blocks read from files", disk.blocks_read),
        ("disk_written_bytes", "Bytes of keys and values written", disk.written_bytes),
        ("disk_table_written_bytes", "Bytes written to tables", disk.table_bytes_written),
        ("disk_log_written_bytes", "Bytes written to the log", disk.log_bytes_written),
        ("disk_flushes", "Memory tables written to files", disk.flushes),
        ("disk_compactions", "Merges of tables", disk.compactions),
        ("disk_splits", "Buckets split", disk.splits),
        ("disk_joins", "Pairs of small buckets joined", disk.joins),
        ("disk_failures", "Flushes and merges that failed", disk.failures),
        ("disk_stalls", "Writes that waited for background work", disk.stalls),
        ("disk_delays", "Writes delayed by a millisecond, as flushes fell behind", disk.delays),
        ("disk_stalled_ms", "Milliseconds that writes waited for background work", disk.stalled_ms),
    ];
    counters.into_iter().try_for_each(|(name, help, value)| page.counter(name, help, value))
}

/// The figures of a store over DRAM and a slower tier.
fn tier_figures(page: &mut Page<'_>, tier: &TierStats) -> fmt::Result {
    TierStats::FIGURES.iter().try_for_each(|figure| page.of_list("tier", figure, tier))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
