//! The metrics, in OpenMetrics text: read from the counters at each scrape, so that serving costs nothing for them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{counters::BOUNDS, hub::Hub};
use crate::shared::Shared;

/// What a scrape shows.
pub(crate) struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Of one server.
    pub(crate) fn new(shared: Arc<Shared>, hub: Arc<Hub>) -> Metrics {
        let mut registry = Registry::with_prefix("terrace");
        registry.register_collector(Box::new(Source { shared, hub }));
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
}

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
        self.store(&mut page)
    }
}

/// One page being written. Units come last in names.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let counter = ConstCounter::new(value);
        counter.encode(self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }
}

fn read(counter: &AtomicU64) -> u64 {
    // ORDER: Relaxed: a statistic.
    counter.load(Ordering::Relaxed)
}

impl Source {
    fn serving(&self, page: &mut Page<'_>) -> fmt::Result {
        let (stats, counters) = (&self.shared.stats, &self.hub.counters);
        let tally = self.shared.clients.tally();
        page.counter("commands", "Commands executed", tally.commands)?;
        page.counter("errors", "Error replies", tally.errors)?;
        page.counter("hits", "Reads that found their key", tally.hits)?;
        page.counter("misses", "Reads that did not find their key", tally.misses)?;
        page.counter("expired", "Keys that the sweep found expired", read(&stats.expired))?;
        page.gauge("connections_open", "Connections open now", self.hub.open() as u64)?;
        page.counter("connections", "Connections accepted", read(&stats.connections))?;
        let rejected = read(&stats.connections_rejected);
        page.counter("connections_rejected", "Connections refused because of maxclients", rejected)?;
        let timeouts = read(&counters.timeouts);
        page.counter("connections_timed_out", "Connections closed for their silence", timeouts)?;
        page.counter("accept_failures", "Failures to accept a connection", read(&counters.accept_failures))?;
        page.counter("bytes_in", "Bytes read from clients", read(&stats.bytes_in))?;
        page.counter("bytes_out", "Bytes written to clients", read(&stats.bytes_out))?;
        page.counter("faults", "Faults in Terrace that were contained", read(&counters.panics))
    }

    fn latency(&self, page: &mut Page<'_>) -> fmt::Result {
        const HELP: &str = "Time from having read requests to having written their replies, of one turn in 64 of a connection";
        let seen = self.hub.counters.latencies();
        let bounds = BOUNDS.iter().map(|&ns| seconds(ns)).chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(seen.counts).collect();
        let count = seen.counts.iter().sum();
        let mut histogram =
            page.encoder.encode_descriptor("turn_seconds", HELP, None, MetricType::Histogram)?;
        histogram.encode_histogram::<NoLabelSet>(seconds(seen.sum_ns), count, &buckets, None)?;
        page.gauge("turn_nanoseconds_max", "The longest such time since start", seen.max_ns)
    }

    fn store(&self, page: &mut Page<'_>) -> fmt::Result {
        let _ = page;
        Ok(())
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
