//! The figures of `stats`, the most relevant first.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde_json::{Map, Value, json};
use terrace::{Holder, Index, Stats};
use terrace_server::config::format_size;

use super::costs::Costs;
use super::disk::Disk;
use super::layers::OfLayers;
use super::page::Page;
use super::tier::Tier;
use crate::text::{counted, duration, thousands};

/// Figures of a pool, and of the server that has it open, if there is one.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    records: u64,
    expiring: u64,
    data_bytes: u64,
    overhead_bytes: u64,
    waiting_bytes: u64,
    readers: u64,
    readers_holding_up: u64,
    lost_bytes: u64,
    damaged_bytes: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    pool_bytes: u64,
    /// Name of the index.
    index: String,
    index_bytes: u64,
    index_slots: u64,
    /// 0: the index is no tree.
    index_nodes: u64,
    index_resizes: u64,
    index_resizing: bool,
    /// 0: no cache.
    index_cache_bytes: u64,
    index_cache_hits: u64,
    index_cache_misses: u64,
    /// Of an index that can have layers in DRAM.
    layers: Option<OfLayers>,
    /// Whether the pool is shared; its index then has no cache.
    shared: bool,
    costs: Costs,
    /// Of a store in a directory.
    disk: Option<Disk>,
    tier: Option<Tier>,
    huge_page_bytes: Option<u64>,
    /// The other processes that share the pool, as text.
    others: Vec<String>,
    server: Option<Serving>,
}

/// Figures that only a server has.
#[derive(Clone, Debug)]
struct Serving {
    uptime_seconds: f64,
    connections: u64,
    commands: u64,
    hits: u64,
    misses: u64,
    errors: u64,
    /// Bounds in seconds, and cumulative counts.
    latency: Vec<(f64, f64)>,
    latency_ns_max: u64,
    /// Whether the counts cover only the time since the previous figures.
    recent: bool,
}

impl Figures {
    pub(super) fn of_pool(stats: &Stats, shared: bool, others: &[Holder]) -> Figures {
        let (pool, index) = (stats.pool.unwrap_or_default(), stats.index.unwrap_or_default());
        let cache = index.cache.unwrap_or_default();
        Figures {
            records: stats.records,
            expiring: stats.expiring,
            data_bytes: stats.data_bytes,
            overhead_bytes: stats.overhead_bytes,
            waiting_bytes: pool.waiting_bytes,
            readers: pool.readers.into(),
            readers_holding_up: pool.blocking_readers.into(),
            lost_bytes: pool.lost_bytes,
            damaged_bytes: pool.damaged_bytes,
            free_bytes: pool.free_bytes,
            largest_free_bytes: pool.largest_free_bytes,
            pool_bytes: pool.size_bytes,
            index: index.name.into(),
            index_bytes: index.bytes,
            index_slots: index.slots,
            index_nodes: index.all_nodes(),
            index_resizes: index.resizes,
            index_resizing: index.resizing,
            index_cache_bytes: cache.bytes,
            index_cache_hits: cache.hits,
            index_cache_misses: cache.misses,
            layers: index.layers.as_ref().map(OfLayers::of_pool),
            shared,
            costs: Costs::of(stats.costs),
            disk: stats.disk.map(Disk),
            tier: stats.tier.map(Tier),
            huge_page_bytes: None,
            others: others.iter().map(Holder::to_string).collect(),
            server: None,
        }
    }

    /// The figures of a server's metrics page; `None` if one is missing.
    pub(super) fn of_server(page: &Page) -> Option<Figures> {
        let count = |name: &str| page.number(&format!("terrace_{name}")).map(|number| number as u64);
        Some(Figures {
            records: count("records")?,
            expiring: count("records_expiring")?,
            data_bytes: count("data_bytes")?,
            overhead_bytes: count("overhead_bytes")?,
            waiting_bytes: count("waiting_bytes")?,
            readers: count("readers")?,
            readers_holding_up: count("readers_holding_up")?,
            lost_bytes: count("lost_bytes")?,
            damaged_bytes: count("damaged_bytes")?,
            free_bytes: count("free_bytes")?,
            largest_free_bytes: count("largest_free_bytes")?,
            pool_bytes: count("pool_bytes")?,
            index: page.label("terrace_index_info", "name")?,
            index_bytes: count("index_bytes")?,
            index_slots: count("index_slots")?,
            index_nodes: count("index_nodes")?,
            index_resizes: count("index_resizes_total")?,
            index_resizing: count("index_resizing")? != 0,
            index_cache_bytes: count("index_cache_bytes")?,
            index_cache_hits: count("index_cache_hits_total")?,
            index_cache_misses: count("index_cache_misses_total")?,
            layers: OfLayers::of_server(page.label("terrace_index_served_info", "by"), count),
            shared: count("pool_shared")? != 0,
            costs: Costs::from_metrics(count)?,
            disk: Disk::of_server(count),
            tier: Tier::of_server(count),
            huge_page_bytes: count("huge_page_bytes"),
            others: Vec::new(),
            server: Some(Serving {
                uptime_seconds: page.number("terrace_uptime_ms")? / 1000.0,
                connections: count("connections_open")?,
                commands: page.sum("terrace_commands_total{")?,
                hits: count("hits_total")?,
                misses: count("misses_total")?,
                errors: count("errors_total")?,
                latency: page.buckets("terrace_turn_seconds"),
                latency_ns_max: count("turn_nanoseconds_max")?,
                recent: false,
            }),
        })
    }

    /// The figures with the server's counts since `before` only; the maximum latency stays that
    /// since the start.
    pub(super) fn since(&self, before: &Figures) -> Figures {
        let mut recent = self.clone();
        if let (Some(now), Some(before)) = (&mut recent.server, &before.server) {
            now.uptime_seconds -= before.uptime_seconds;
            now.commands -= before.commands.min(now.commands);
            now.hits -= before.hits.min(now.hits);
            now.misses -= before.misses.min(now.misses);
            now.errors -= before.errors.min(now.errors);
            now.latency.iter_mut().zip(&before.latency).for_each(|(now, before)| now.1 -= before.1);
            now.recent = true;
        }
        recent
    }

    fn overhead_per_record(&self) -> f64 {
        ratio(self.overhead_bytes as f64, self.records as f64)
    }

    /// The share of the index's slots that are used; in a tree all nodes but the root use one, too.
    fn load_factor(&self) -> f64 {
        let used = self.records.saturating_add(self.index_nodes.saturating_sub(1));
        ratio(used as f64, self.index_slots as f64)
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut row = |name: &str, text: String| writeln!(out, "{name:<20}{text}");
        row("records", format!("{} ({} expire)", thousands(self.records), thousands(self.expiring)))?;
        row("data", format_size(self.data_bytes))?;
        if let Some(disk) = &self.disk {
            disk.write(self.data_bytes, &mut row)?;
            return self.server.as_ref().map_or(Ok(()), |server| server.write(&mut row));
        }
        if let Some(tier) = &self.tier {
            tier.write(&mut row)?;
            return self.server.as_ref().map_or(Ok(()), |server| server.write(&mut row));
        }
        self.write_pool(&mut row)?;
        if let Some(server) = &self.server {
            server.write(&mut row)?;
        }
        for other in &self.others {
            row("shared with", other.clone())?;
        }
        row("flushes", self.costs.text())?;
        match self.huge_page_bytes {
            Some(0) => row("huge pages", "no".into()),
            Some(bytes) => {
                row("huge pages", format!("{} of {}", format_size(bytes), format_size(self.pool_bytes)))
            }
            None => Ok(()),
        }
    }

    /// The figures of a pool and of its index.
    fn write_pool(&self, row: &mut dyn FnMut(&str, String) -> io::Result<()>) -> io::Result<()> {
        row("overhead", self.overhead())?;
        let (free, pool) = (format_size(self.free_bytes), format_size(self.pool_bytes));
        row("free", format!("{free} of {pool}, largest extent {}", format_size(self.largest_free_bytes)))?;
        row("waiting for readers", self.waiting())?;
        for (name, bytes, why) in [
            ("leaked", self.lost_bytes, "the next start reclaims it"),
            ("damaged", self.damaged_bytes, "excluded from use; see terrace check, which can --repair it"),
        ] {
            if bytes > 0 {
                row(name, format!("{} ({why})", format_size(bytes)))?;
            }
        }
        let resizing = if self.index_resizing { ", resizing now" } else { "" };
        let (index, percent) = (format_size(self.index_bytes), 100.0 * self.load_factor());
        let shape = match self.index_nodes {
            0 => format!("resized {} times{resizing}", thousands(self.index_resizes)),
            nodes => counted(nodes, "node", "nodes"),
        };
        row("index", format!("{}, {index}, {percent:.0}% full, {shape}", self.index))?;
        row("index cache", self.cache())?;
        self.layers.as_ref().map_or(Ok(()), |layers| layers.write(row))
    }

    /// Memory used in addition to the data. Figures per record and percentages are left out for a
    /// nearly empty store, whose overhead is the pool's metadata.
    fn overhead(&self) -> String {
        const MANY: u64 = 1000;
        const MUCH: u64 = 1 << 16;
        let bytes = format_size(self.overhead_bytes);
        let percent = 100.0 * ratio(self.overhead_bytes as f64, self.data_bytes as f64);
        let each = self.overhead_per_record();
        match (self.records >= MANY, self.data_bytes >= MUCH) {
            (false, _) => format!("{bytes}, nearly all of it the empty pool's"),
            (true, false) => format!("{bytes} ({each:.0} B per record)"),
            (true, true) => format!("{bytes} ({each:.0} B per record, {percent:.0}%)"),
        }
    }

    /// The index's cache in memory, and its hit rate; or that it is off because the pool is shared.
    fn cache(&self) -> String {
        let could_have = Index::named(&self.index) == Some(Index::Rewo);
        let searches = self.index_cache_hits + self.index_cache_misses;
        let percent = 100.0 * ratio(self.index_cache_hits as f64, searches as f64);
        match self.index_cache_bytes {
            0 if could_have && self.shared => "off (shared)".into(),
            0 => "off".into(),
            bytes => format!("{}, {percent:.0}% of {} searches", format_size(bytes), thousands(searches)),
        }
    }

    /// Retired memory that cannot be reused yet, and how many threads prevent that.
    fn waiting(&self) -> String {
        // The only bound: retired memory can take all that is free.
        let most = format_size(self.waiting_bytes + self.free_bytes);
        let waiting = format_size(self.waiting_bytes);
        let active = counted(self.readers, "active thread", "active threads");
        match (self.waiting_bytes, self.readers_holding_up) {
            (0, _) => waiting,
            (_, 0) => format!("{waiting}, held by no thread: the next writes reclaim it"),
            (_, behind) => format!("{waiting} of at most {most}, held by {behind} of {active}"),
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut object = Map::new();
        let mut field = |name: &str, value: Value| drop(object.insert(name.into(), value));
        field("records", json!(self.records));
        field("records_expiring", json!(self.expiring));
        field("data_bytes", json!(self.data_bytes));
        field("overhead_bytes", json!(self.overhead_bytes));
        field("overhead_per_record_bytes", json!(self.overhead_per_record()));
        match (&self.disk, &self.tier) {
            (Some(disk), _) => disk.json(&mut field),
            (None, Some(tier)) => tier.json(&mut field),
            (None, None) => self.pool_json(&mut field),
        }
        if let Some(server) = &self.server {
            server.json(&mut field);
        }
        let is_in_pool = self.disk.is_none() && self.tier.is_none();
        if let Some(bytes) = self.huge_page_bytes.filter(|_| is_in_pool) {
            field("huge_page_bytes", json!(bytes));
        }
        Value::Object(object)
    }

    /// The figures of a pool and of its index.
    fn pool_json(&self, field: &mut dyn FnMut(&str, Value)) {
        field("waiting_bytes", json!(self.waiting_bytes));
        field("waiting_bytes_max", json!(self.waiting_bytes + self.free_bytes));
        field("readers", json!(self.readers));
        field("readers_holding_up", json!(self.readers_holding_up));
        field("lost_bytes", json!(self.lost_bytes));
        field("damaged_bytes", json!(self.damaged_bytes));
        field("free_bytes", json!(self.free_bytes));
        field("largest_free_bytes", json!(self.largest_free_bytes));
        field("pool_bytes", json!(self.pool_bytes));
        field("index", json!(self.index));
        field("index_bytes", json!(self.index_bytes));
        field("index_nodes", json!(self.index_nodes));
        field("index_load_factor", json!(self.load_factor()));
        field("index_resizes", json!(self.index_resizes));
        field("index_resizing", json!(self.index_resizing));
        field("index_cache_bytes", json!(self.index_cache_bytes));
        field("index_cache_hits", json!(self.index_cache_hits));
        field("index_cache_misses", json!(self.index_cache_misses));
        if let Some(layers) = &self.layers {
            layers.json(field);
        }
        field("shared", json!(self.shared));
        field("shared_with", json!(self.others));
        self.costs.json(field);
    }
}

const QUANTILES: [(&str, &str, f64); 3] =
    [("p50", "p50", 0.5), ("p99", "p99", 0.99), ("p99.9", "p999", 0.999)];

impl Serving {
    fn hit_rate(&self) -> f64 {
        ratio(self.hits as f64, (self.hits + self.misses) as f64)
    }

    fn rate(&self) -> f64 {
        ratio(self.commands as f64, self.uptime_seconds)
    }

    /// The histogram bound below which this share of the samples lies.
    fn quantile_ns(&self, share: f64) -> u64 {
        let all = self.latency.last().map_or(0.0, |(_, count)| *count);
        let found = self.latency.iter().find(|(_, count)| all > 0.0 && *count >= share * all);
        found.map_or(0, |(bound, _)| ((bound * 1e9) as u64).min(self.latency_ns_max))
    }

    fn write(&self, row: &mut dyn FnMut(&str, String) -> io::Result<()>) -> io::Result<()> {
        let when = if self.recent { "in the last second" } else { "since start" };
        row("connections", thousands(self.connections))?;
        row(
            "hits",
            format!("{:.1}% of {} reads {when}", 100.0 * self.hit_rate(), thousands(self.hits + self.misses)),
        )?;
        let (commands, errors) = (thousands(self.commands), thousands(self.errors));
        row(
            "commands",
            format!("{} per second ({commands} {when}, {errors} errors)", thousands(self.rate() as u64)),
        )?;
        let text = |share| duration(Duration::from_nanos(self.quantile_ns(share)));
        let quantiles: Vec<String> =
            QUANTILES.iter().map(|(name, _, share)| format!("{name} {}", text(*share))).collect();
        let max = duration(Duration::from_nanos(self.latency_ns_max));
        row("latency", format!("{}, max {max}, from request read to reply written", quantiles.join(", ")))
    }

    fn json(&self, field: &mut dyn FnMut(&str, Value)) {
        field("uptime_seconds", json!(self.uptime_seconds));
        field("connections", json!(self.connections));
        field("hits", json!(self.hits));
        field("misses", json!(self.misses));
        field("commands", json!(self.commands));
        field("errors", json!(self.errors));
        field("commands_per_second", json!(self.rate()));
        for (_, name, share) in QUANTILES {
            field(&format!("latency_ns_{name}"), json!(self.quantile_ns(share)));
        }
        field("latency_ns_max", json!(self.latency_ns_max));
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
