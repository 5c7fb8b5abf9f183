//! Figures of a store in a directory.

use std::{io, time::Duration};

use serde_json::{Value, json};
use terrace::DiskStats;
use terrace_server::config::format_size;

use crate::text::{counted, duration, thousands};

/// What a store in a directory consists of, and what it has written and read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk(pub(super) DiskStats);

impl Disk {
    /// Of a server's metrics; `None` if its store lies in a pool.
    pub(super) fn of_server(count: impl Fn(&str) -> Option<u64>) -> Option<Disk> {
        let stats = DiskStats {
            tables: [count("disk_tables_0")?, count("disk_tables_1")?, count("disk_tables_2")?],
            buckets: count("disk_buckets")?,
            table_bytes: count("disk_table_bytes")?,
            log_bytes: count("disk_log_bytes")?,
            memtable_bytes: count("disk_memtable_bytes")?,
            cache_bytes: count("disk_cache_bytes")?,
            blocks_read: count("disk_blocks_read_total")?,
            written_bytes: count("disk_written_bytes_total")?,
            log_bytes_written: count("disk_log_written_bytes_total")?,
            table_bytes_written: count("disk_table_written_bytes_total")?,
            flushes: count("disk_flushes_total")?,
            compactions: count("disk_compactions_total")?,
            splits: count("disk_splits_total")?,
            joins: count("disk_joins_total")?,
            snapshots: count("disk_snapshots")?,
            failures: count("disk_failures_total")?,
            is_failing: count("disk_failing")?,
            stalls: count("disk_stalls_total")?,
            delays: count("disk_delays_total")?,
            stalled_ms: count("disk_stalled_ms_total")?,
        };
        Some(Disk(stats))
    }

    /// Bytes written a byte of keys and values: to tables, and with the log.
    fn amplification(&self) -> Option<(f64, f64)> {
        let written = self.0.written_bytes as f64;
        let tables = self.0.table_bytes_written as f64 / written;
        (written > 0.0).then_some((tables, tables + self.0.log_bytes_written as f64 / written))
    }

    pub(super) fn write(
        &self,
        data_bytes: u64,
        row: &mut dyn FnMut(&str, String) -> io::Result<()>,
    ) -> io::Result<()> {
        let [first, second, last] = self.0.tables.map(thousands);
        let buckets = counted(self.0.buckets, "bucket", "buckets");
        row(
            "tables",
            format!("{} in {buckets}: {first}, {second}, {last} by level", format_size(self.0.table_bytes)),
        )?;
        if data_bytes > 0 {
            row("space", format!("{:.2} of the data", self.0.table_bytes as f64 / data_bytes as f64))?;
        }
        row("log", format_size(self.0.log_bytes))?;
        let (recent, blocks) = (format_size(self.0.memtable_bytes), format_size(self.0.cache_bytes));
        row("memory", format!("{recent} recent writes, {blocks} cached blocks"))?;
        if let Some((tables, all)) = self.amplification() {
            row("written", format!("{tables:.2} bytes to tables a byte put, {all:.2} with the log"))?;
        }
        let splits = counted(self.0.splits, "split", "splits");
        let joins = counted(self.0.joins, "join", "joins");
        let (flushes, merges) = (thousands(self.0.flushes), thousands(self.0.compactions));
        row("work", format!("{flushes} flushes, {merges} merges, {splits}, {joins}"))?;
        if self.0.failures > 0 {
            let failures = counted(self.0.failures, "flush or merge", "flushes and merges");
            let now =
                if self.0.is_failing > 0 { "the last one too; see the server's log" } else { "none now" };
            row("failed", format!("{failures}; {now}"))?;
        }
        row("blocks read", thousands(self.0.blocks_read))?;
        row("snapshots", thousands(self.0.snapshots))?;
        let stalled = duration(Duration::from_millis(self.0.stalled_ms));
        let (stalls, delays) = (thousands(self.0.stalls), thousands(self.0.delays));
        row("stalls", format!("{stalls} writes waited, {stalled} in all; {delays} were delayed by 1 ms"))
    }

    pub(super) fn json(&self, field: &mut dyn FnMut(&str, Value)) {
        field("disk_buckets", json!(self.0.buckets));
        field("disk_tables", json!(self.0.tables));
        field("disk_table_bytes", json!(self.0.table_bytes));
        field("disk_log_bytes", json!(self.0.log_bytes));
        field("disk_memtable_bytes", json!(self.0.memtable_bytes));
        field("disk_cache_bytes", json!(self.0.cache_bytes));
        field("disk_blocks_read", json!(self.0.blocks_read));
        field("disk_written_bytes", json!(self.0.written_bytes));
        field("disk_log_written_bytes", json!(self.0.log_bytes_written));
        field("disk_table_written_bytes", json!(self.0.table_bytes_written));
        field("disk_flushes", json!(self.0.flushes));
        field("disk_compactions", json!(self.0.compactions));
        field("disk_splits", json!(self.0.splits));
        field("disk_joins", json!(self.0.joins));
        field("disk_snapshots", json!(self.0.snapshots));
        field("disk_failures", json!(self.0.failures));
        field("disk_failing", json!(self.0.is_failing));
        field("disk_stalls", json!(self.0.stalls));
        field("disk_delays", json!(self.0.delays));
        field("disk_stalled_ms", json!(self.0.stalled_ms));
    }
}
