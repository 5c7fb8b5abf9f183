//! What the measurement found, for people and for programs.

use std::{
    io::{self, Write},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde_json::json;
use terrace::Stats;
use terrace_server::config::format_size;

use super::workload::{Done, histogram};
use crate::{
    args::{BenchOptions, Distribution},
    text::{counted, duration, thousands},
};

/// All threads' figures.
pub(super) struct Measured {
    filled: Duration,
    threads: usize,
    pub(super) took: Duration,
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    missed: u64,
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Measured {
    pub(super) fn new(filled: Duration, threads: usize) -> Measured {
        let took = Duration::ZERO;
        Measured { filled, threads, took, reads: histogram(), writes: histogram(), missed: 0 }
    }

    pub(super) fn add(&mut self, done: Done) {
        self.reads += done.reads;
        self.writes += done.writes;
        self.missed += done.missed;
    }

    fn rate(&self, operations: u64) -> u64 {
        (operations as f64 / self.took.as_secs_f64().max(1e-9)) as u64
    }
}

pub(super) fn print(options: &BenchOptions, measured: &Measured, stats: &Stats) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", json(options, measured, stats))
    } else {
        table(&mut out, options, measured, stats)
    }
}

fn distribution(options: &BenchOptions) -> &'static str {
    match options.distribution {
        Distribution::Uniform => "uniform",
        Distribution::Zipf => "zipf",
    }
}

fn table(out: &mut dyn Write, options: &BenchOptions, measured: &Measured, stats: &Stats) -> io::Result<()> {
    let threads = counted(measured.threads as u64, "thread", "threads");
    let (key, value, keys) = (options.key_bytes, options.value_bytes, distribution(options));
    let records = counted(options.records, "record", "records");
    writeln!(
        out,
        "{records}, keys of {key} B, values of {value} B, {keys}, {threads}, {}% reads",
        options.reads
    )?;
    let fill_rate = (options.records as f64 / measured.filled.as_secs_f64().max(1e-9)) as u64;
    writeln!(out, "filled in {}: {} puts a second\n", duration(measured.filled), thousands(fill_rate))?;
    write!(out, "{:<8}{:>14}{:>14}", "", "operations", "a second")?;
    QUANTILES.iter().try_for_each(|(name, _)| write!(out, "{name:>11}"))?;
    writeln!(out, "{:>11}", "max")?;
    for (name, seen) in [("get", &measured.reads), ("put", &measured.writes)] {
        if seen.is_empty() {
            continue;
        }
        write!(out, "{name:<8}{:>14}{:>14}", thousands(seen.len()), thousands(measured.rate(seen.len())))?;
        let told = |ns: u64| duration(Duration::from_nanos(ns));
        QUANTILES.iter().try_for_each(|(_, q)| write!(out, "{:>11}", told(seen.value_at_quantile(*q))))?;
        writeln!(out, "{:>11}", told(seen.max()))?;
    }
    let all = measured.reads.len() + measured.writes.len();
    writeln!(out, "{:<8}{:>14}{:>14}", "all", thousands(all), thousands(measured.rate(all)))?;
    writeln!(
        out,
        "\nthe pool: {} of {} used for data",
        format_size(stats.data_bytes),
        format_size(stats.size_bytes)
    )?;
    if measured.missed > 0 {
        writeln!(out, "{} found no key", counted(measured.missed, "read", "reads"))?;
    }
    Ok(())
}

fn json(options: &BenchOptions, measured: &Measured, stats: &Stats) -> serde_json::Value {
    let side = |seen: &Histogram<u64>| {
        json!({
            "operations": seen.len(),
            "operations_per_second": measured.rate(seen.len()),
            "latency_ns_p50": seen.value_at_quantile(0.5),
            "latency_ns_p90": seen.value_at_quantile(0.9),
            "latency_ns_p99": seen.value_at_quantile(0.99),
            "latency_ns_p999": seen.value_at_quantile(0.999),
            "latency_ns_max": seen.max(),
        })
    };
    json!({
        "records": options.records,
        "key_bytes": options.key_bytes,
        "value_bytes": options.value_bytes,
        "distribution": distribution(options),
        "threads": measured.threads,
        "reads_percent": options.reads,
        "fill_seconds": measured.filled.as_secs_f64(),
        "measured_seconds": measured.took.as_secs_f64(),
        "missed": measured.missed,
        "get": side(&measured.reads),
        "put": side(&measured.writes),
        "data_bytes": stats.data_bytes,
        "pool_bytes": stats.size_bytes,
    })
}
