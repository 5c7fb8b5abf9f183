//! Figures of a store in a directory.

use std::{io, time::Duration};

use serde_json::{Value, json};
use terrace::DiskStats;
use terrace_server::config::format_size;

use crate::text::{counted, duration, thousands};

/// What a store in a directory consists of, and what it has written and read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    buckets: u64,
    tables: [u64; 3],
    table_bytes: u64,
    log_bytes: u64,
    memtable_bytes: u64,
    cache_bytes: u64,
    blocks_read: u64,
    written_bytes: u64,
    log_written_bytes: u64,
    table_written_bytes: u64,
    flushes: u64,
    compactions: u64,
    splits: u64,
    snapshots: u64,
    stalls: u64,
    stalled_ms: u64,
}

impl From<DiskStats> for Disk {
    fn from(stats: DiskStats) -> Disk {
        Disk {
            buckets: stats.buckets,
            tables: stats.tables,
            table_bytes: stats.table_bytes,
            log_bytes: stats.log_bytes,
            memtable_bytes: stats.memtable_bytes,
            cache_bytes: stats.cache_bytes,
            blocks_read: stats.blocks_read,
            written_bytes: stats.written_bytes,
            log_written_bytes: stats.log_bytes_written,
            table_written_bytes: stats.table_bytes_written,
            flushes: stats.flushes,
            compactions: stats.compactions,
            splits: stats.splits,
            snapshots: stats.snapshots,
            stalls: stats.stalls,
            stalled_ms: stats.stalled_ms,
        }
    }
}

impl Disk {
    /// Of a server's metrics; `None` if its store lies in a pool.
    pub(super) fn of_server(count: impl Fn(&str) -> Option<u64>) -> Option<Disk> {
        Some(Disk {
            buckets: count("disk_buckets")?,
            tables: [count("disk_tables_0")?, count("disk_tables_1")?, count("disk_tables_2")?],
            table_bytes: count("disk_table_bytes")?,
            log_bytes: count("disk_log_bytes")?,
            memtable_bytes: count("disk_memtable_bytes")?,
            cache_bytes: count("disk_cache_bytes")?,
            blocks_read: count("disk_blocks_read_total")?,
            written_bytes: count("disk_written_bytes_total")?,
            log_written_bytes: count("disk_log_written_bytes_total")?,
            table_written_bytes: count("disk_table_written_bytes_total")?,
            flushes: count("disk_flushes_total")?,
            compactions: count("disk_compactions_total")?,
            splits: count("disk_splits_total")?,
            snapshots: count("disk_snapshots")?,
            stalls: count("disk_stalls_total")?,
            stalled_ms: count("disk_stalled_ms_total")?,
        })
    }

    /// Bytes written a byte of keys and values: to tables, and with the log.
    fn amplification(&self) -> Option<(f64, f64)> {
        let written = self.written_bytes as f64;
        let tables = self.table_written_bytes as f64 / written;
        (written > 0.0).then_some((tables, tables + self.log_written_bytes as f64 / written))
    }

    pub(super) fn write(
        &self,
        data_bytes: u64,
        row: &mut dyn FnMut(&str, String) -> io::Result<()>,
    ) -> io::Result<()> {
        let [first, second, last] = self.tables.map(thousands);
        let buckets = counted(self.buckets, "bucket", "buckets");
        row(
            "tables",
            format!("{} in {buckets}: {first}, {second}, {last} by level", format_size(self.table_bytes)),
        )?;
        if data_bytes > 0 {
            row("space", format!("{:.2} of the data", self.table_bytes as f64 / data_bytes as f64))?;
        }
        row("log", format_size(self.log_bytes))?;
        let (recent, blocks) = (format_size(self.memtable_bytes), format_size(self.cache_bytes));
        row("memory", format!("{recent} recent writes, {blocks} cached blocks"))?;
        if let Some((tables, all)) = self.amplification() {
            row("written", format!("{tables:.2} bytes to tables a byte put, {all:.2} with the log"))?;
        }
        let splits = counted(self.splits, "split", "splits");
        let (flushes, merges) = (thousands(self.flushes), thousands(self.compactions));
        row("work", format!("{flushes} flushes, {merges} merges, {splits}"))?;
        row("blocks read", thousands(self.blocks_read))?;
        row("snapshots", thousands(self.snapshots))?;
        let stalled = duration(Duration::from_millis(self.stalled_ms));
        row("stalls", format!("{} writes waited, {stalled} in all", thousands(self.stalls)))
    }

    pub(super) fn json(&self, field: &mut dyn FnMut(&str, Value)) {
        field("disk_buckets", json!(self.buckets));
        field("disk_tables", json!(self.tables));
        field("disk_table_bytes", json!(self.table_bytes));
        field("disk_log_bytes", json!(self.log_bytes));
        field("disk_memtable_bytes", json!(self.memtable_bytes));
        field("disk_cache_bytes", json!(self.cache_bytes));
        field("disk_blocks_read", json!(self.blocks_read));
        field("disk_written_bytes", json!(self.written_bytes));
        field("disk_log_written_bytes", json!(self.log_written_bytes));
        field("disk_table_written_bytes", json!(self.table_written_bytes));
        field("disk_flushes", json!(self.flushes));
        field("disk_compactions", json!(self.compactions));
        field("disk_splits", json!(self.splits));
        field("disk_snapshots", json!(self.snapshots));
        field("disk_stalls", json!(self.stalls));
        field("disk_stalled_ms", json!(self.stalled_ms));
    }
}
