//! The results of `bench`, as a table and as JSON.

use std::{
    io::{self, Write},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use terrace::{Stats, Store};
use terrace_bench::{Choice, Machine, Seen, Shape};
use terrace_server::config::format_size;

use super::options::{BenchOptions, Json};
use crate::{
    failure::{Failure, say},
    text::{counted, duration, thousands},
};

/// Figures of the store at one time of the run.
pub(super) struct Sample {
    at: Duration,
    load_factor: f64,
    records: u64,
    data_bytes: u64,
    resizes: u64,
}

impl Sample {
    pub(super) fn of(store: &Store, at: Duration) -> Sample {
        let stats = store.stats();
        let index = stats.index.unwrap_or_default();
        Sample {
            at,
            load_factor: index.load_factor(stats.records),
            records: stats.records,
            data_bytes: stats.data_bytes,
            resizes: index.resizes,
        }
    }
}

/// The results of all threads.
pub(super) struct Measured {
    pub(super) filled: Duration,
    pub(super) threads: usize,
    /// How much the speed of a fixed loop changed during the run, as a fraction.
    pub(super) machine_moved: f64,
    seen: Seen,
    took: Duration,
    tick: Duration,
    samples: Vec<Sample>,
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Measured {
    pub(super) fn new(seen: Seen, took: Duration, tick: Duration, samples: Vec<Sample>) -> Measured {
        Measured { filled: Duration::ZERO, threads: 0, machine_moved: 0.0, seen, took, tick, samples }
    }

    fn rate(&self, operations: u64) -> u64 {
        (operations as f64 / self.took.as_secs_f64().max(1e-9)) as u64
    }
}

pub(super) fn print(
    options: &BenchOptions,
    shape: &Shape,
    measured: &Measured,
    stats: &Stats,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if options.json() == Json::Stdout {
        writeln!(out, "{}", json(options, shape, measured, stats))?;
        return Ok(());
    }
    table(&mut out, options, shape, measured, stats)?;
    if let Json::File(path) = options.json() {
        let text = format!("{:#}\n", json(options, shape, measured, stats));
        std::fs::write(path, text)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
        say(&format!("for plots: terrace report {} -o report.html", path.display()));
    }
    Ok(())
}

fn distribution(options: &BenchOptions) -> &'static str {
    match options.workload().choice {
        Choice::Uniform => "uniform",
        Choice::Zipfian | Choice::Skewed(_) => "zipf",
        Choice::Latest => "latest",
        Choice::HotSet { .. } => "hot-set",
    }
}

fn value_bytes(options: &BenchOptions) -> String {
    let range = options.value_range();
    if range.start() == range.end() {
        range.start().to_string()
    } else {
        format!("{} to {}", range.start(), range.end())
    }
}

fn table(
    out: &mut dyn Write,
    options: &BenchOptions,
    shape: &Shape,
    measured: &Measured,
    stats: &Stats,
) -> io::Result<()> {
    head(out, options, shape, measured)?;
    write!(out, "{:<18}{:>13}{:>13}", "", "operations", "per second")?;
    QUANTILES.iter().try_for_each(|(name, _)| write!(out, "{name:>11}"))?;
    writeln!(out, "{:>11}", "max")?;
    for (kind, seen) in &measured.seen.kinds {
        let name = kind.name().replace('_', " ");
        write!(out, "{name:<18}{:>13}{:>13}", thousands(seen.len()), thousands(measured.rate(seen.len())))?;
        latencies(out, seen)?;
    }
    let all = measured.seen.operations();
    writeln!(out, "{:<18}{:>13}{:>13}", "all", thousands(all), thousands(measured.rate(all)))?;
    if let Some(service) = &measured.seen.service {
        write!(out, "{:<18}{:>13}{:>13}", "service time", "", "")?;
        latencies(out, service)?;
    }
    foot(out, options, measured, stats)
}

fn latencies(out: &mut dyn Write, seen: &Histogram<u64>) -> io::Result<()> {
    let text = |ns: u64| duration(Duration::from_nanos(ns));
    QUANTILES.iter().try_for_each(|(_, q)| write!(out, "{:>11}", text(seen.value_at_quantile(*q))))?;
    writeln!(out, "{:>11}", text(seen.max()))
}

fn head(out: &mut dyn Write, options: &BenchOptions, shape: &Shape, measured: &Measured) -> io::Result<()> {
    let (workload, machine) = (options.workload(), Machine::here());
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    writeln!(
        out,
        "{} processors ({})\n{gib:.1} GiB, Linux {}, huge pages {}",
        machine.processors, machine.processor, machine.kernel, machine.huge_pages
    )?;
    let threads = counted(measured.threads as u64, "thread", "threads");
    let rate = options.rate.map_or(String::new(), |rate| format!(", target {rate} operations per second"));
    writeln!(out, "\n{}: {}", workload.name, workload.about)?;
    writeln!(
        out,
        "{}, keys of {} B, values of {} B, {}, {threads}{rate}",
        counted(options.records, "record", "records"),
        shape.key_bytes(),
        value_bytes(options),
        distribution(options)
    )?;
    if workload.from_nothing {
        return writeln!(out);
    }
    let rate = (options.records as f64 / measured.filled.as_secs_f64().max(1e-9)) as u64;
    writeln!(out, "filled in {}: {} puts per second\n", duration(measured.filled), thousands(rate))
}

fn foot(out: &mut dyn Write, options: &BenchOptions, measured: &Measured, stats: &Stats) -> io::Result<()> {
    let used = format_size(stats.data_bytes);
    match stats.disk {
        Some(disk) => {
            let (tables, log) = (format_size(disk.table_bytes), format_size(disk.log_bytes));
            writeln!(out, "\nthe directory: {used} of data, {tables} in tables, {log} of log")?;
        }
        None => {
            let size = format_size(stats.pool.unwrap_or_default().size_bytes);
            writeln!(out, "\nthe pool: {used} of {size} used for data")?;
        }
    }
    if measured.seen.missed > 0 {
        writeln!(out, "{} did not find the key", counted(measured.seen.missed, "read", "reads"))?;
    }
    if options.workload().mix.scans > 0 {
        writeln!(out, "scans read records in index order, not in key order")?;
    }
    let asked = options.rate.map_or(0, |rate| (rate * 0.98) as u64);
    if measured.rate(measured.seen.operations()) < asked {
        writeln!(
            out,
            "the rate was not reached: latencies include the time that operations waited to start"
        )?;
    }
    if measured.machine_moved > 0.1 {
        let moved = measured.machine_moved * 100.0;
        writeln!(out, "the machine's speed changed by {moved:.0}% during the run: measure again")?;
    }
    writeln!(out, "to repeat: {}", repeat())
}

/// The command line of this run.
fn repeat() -> String {
    let words = std::env::args().skip(1).map(|word| word.escape_debug().to_string());
    words.fold("terrace".to_string(), |line, word| format!("{line} {word}"))
}

fn json(options: &BenchOptions, shape: &Shape, measured: &Measured, stats: &Stats) -> Value {
    let (workload, machine) = (options.workload(), Machine::here());
    let kinds: Map<String, Value> =
        measured.seen.kinds.iter().map(|(kind, seen)| (kind.name().into(), side(measured, seen))).collect();
    let all = measured.seen.operations();
    json!({
        "suite": "bench",
        "repeat": repeat(),
        "machine": { "processor": machine.processor, "processors": machine.processors, "memory_bytes": machine.memory_bytes,
                     "kernel": machine.kernel, "huge_pages": machine.huge_pages, "fixed_loop_moved": measured.machine_moved },
        "workload": workload.name,
        "about": workload.about,
        "records": options.records,
        "key_bytes": shape.key_bytes(),
        "value_bytes": value_bytes(options),
        "distribution": distribution(options),
        "threads": measured.threads,
        "seed": options.seed,
        "rate_asked_per_second": options.rate,
        "fill_seconds": measured.filled.as_secs_f64(),
        "measured_seconds": measured.took.as_secs_f64(),
        "operations": all,
        "operations_per_second": measured.rate(all),
        "missed": measured.seen.missed,
        "kinds": kinds,
        "service": measured.seen.service.as_ref().map(|seen| side(measured, seen)),
        "over_time": over_time(measured),
        "samples": measured.samples.iter().map(sample).collect::<Vec<_>>(),
        "data_bytes": stats.data_bytes,
        "pool_bytes": stats.pool.unwrap_or_default().size_bytes,
    })
}

fn side(measured: &Measured, seen: &Histogram<u64>) -> Value {
    json!({
        "operations": seen.len(),
        "operations_per_second": measured.rate(seen.len()),
        "latency_ns_p50": seen.value_at_quantile(0.5),
        "latency_ns_p90": seen.value_at_quantile(0.9),
        "latency_ns_p99": seen.value_at_quantile(0.99),
        "latency_ns_p999": seen.value_at_quantile(0.999),
        "latency_ns_p9999": seen.value_at_quantile(0.9999),
        "latency_ns_max": seen.max(),
    })
}

/// One object per tick; an incomplete last tick is left out.
fn over_time(measured: &Measured) -> Vec<Value> {
    let tick = measured.tick.as_secs_f64();
    let whole = (measured.took.as_secs_f64() / tick) as usize;
    let pieces = measured.seen.over_time.iter().take(whole.max(1)).enumerate();
    let piece = |(nth, seen): (usize, &Histogram<u64>)| {
        json!({
            "seconds": (nth as f64 + 0.5) * tick,
            "operations_per_second": seen.len() as f64 / tick.min(measured.took.as_secs_f64()),
            "latency_ns_p50": seen.value_at_quantile(0.5),
            "latency_ns_p99": seen.value_at_quantile(0.99),
            "latency_ns_max": seen.max(),
        })
    };
    pieces.map(piece).collect()
}

fn sample(sample: &Sample) -> Value {
    json!({
        "seconds": sample.at.as_secs_f64(),
        "load_factor": sample.load_factor,
        "records": sample.records,
        "data_bytes": sample.data_bytes,
        "index_resizes": sample.resizes,
    })
}
