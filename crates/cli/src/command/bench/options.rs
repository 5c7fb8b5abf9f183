//! Options of `bench`: the workload, its records and its load.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use terrace_bench::{Choice, KeyShape, Shape, Workload};
use terrace_server::config::Key;

use crate::{
    failure::Failure,
    settings::{OfPool, OfThreads, Settings},
};

/// Prefix of every key, so that the benchmark touches no other key of the pool.
pub(super) const PREFIX: &str = "terrace-bench:";

#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct BenchOptions {
    /// Workload (see below); default: reads and updates in the proportion given by --reads
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Workload::ALL.map(|w| w.name)), hide_possible_values = true)]
    workload: Option<String>,
    /// Number of initial records
    #[arg(long, default_value = "1000000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) records: u64,
    /// Bytes of a value, or a range of them: 64..1024
    #[arg(long, value_name = "N|N..M", default_value = "64", value_parser = value_bytes)]
    value_bytes: RangeInclusive<usize>,
    /// Bytes of a string key
    #[arg(long, default_value = "32", value_parser = clap::value_parser!(u64).range(30..=(64 << 10)))]
    key_bytes: u64,
    /// Strings, integers of 8 bytes, or YCSB's strings of 24 bytes; the last two only without
    /// --pool
    #[arg(long, value_name = "KIND")]
    keys: Option<Keys>,
    /// Percentage of reads; all other operations are updates
    #[arg(long, default_value = "95", conflicts_with = "workload", value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Distribution of the accessed keys; default: the workload's, or uniform
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// Operations per second of all threads together (open loop): latencies count from the time at
    /// which an operation was due
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(super) rate: Option<f64>,
    /// Seconds to measure
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(super) seconds: u64,
    /// Number of operations to measure, instead of --seconds
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) operations: Option<u64>,
    #[command(flatten)]
    threads: Settings<OfThreads>,
    /// Seed of the operations; the same seed repeats them
    #[arg(long, default_value = "1")]
    pub(super) seed: u64,
    /// Write one JSON object whose names end with the unit: to FILE, or to standard output instead
    /// of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

/// Where the JSON goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Json<'a> {
    None,
    Stdout,
    File(&'a std::path::Path),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Distribution {
    /// All keys equally likely
    Uniform,
    /// A few keys get most accesses (YCSB's scrambled zipfian)
    Zipf,
    /// The newest keys are the most likely
    Latest,
    /// 80% of the operations access the same 20% of the records
    HotSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Keys {
    String,
    Integer,
    Ycsb,
}

fn after_help() -> String {
    let mut text = String::from(
        "Without --pool, bench measures a temporary pool and removes it. With --pool, it uses keys with the prefix\n\
         `terrace-bench:` in that pool, and removes them afterwards.\n\nWorkloads:\n",
    );
    for workload in Workload::ALL {
        text += &format!("  {:<12}{}\n", workload.name, workload.about);
    }
    text + "\n`terrace report` turns the JSON of one or more runs into a page with plots."
}

fn value_bytes(text: &str) -> Result<RangeInclusive<usize>, String> {
    const MOST: usize = 512 << 20;
    let number = |text: &str| {
        let number = text.parse::<usize>().map_err(|_| format!("`{text}` is not a number of bytes"))?;
        if number > MOST { Err(format!("a value has at most {MOST} bytes")) } else { Ok(number) }
    };
    match text.split_once("..") {
        None => number(text).map(|n| n..=n),
        Some((least, most)) => {
            let (least, most) = (number(least)?, number(most)?);
            if least > most { Err(format!("{least} is more than {most}")) } else { Ok(least..=most) }
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1e9).contains(&rate) => Ok(rate),
        _ => Err("a rate is a number of operations per second, from 0.001 to 1e9".into()),
    }
}

impl BenchOptions {
    pub(super) fn workload(&self) -> Workload {
        let chosen = self.distribution.map(|distribution| match distribution {
            Distribution::Uniform => Choice::Uniform,
            Distribution::Zipf => Choice::Zipfian,
            Distribution::Latest => Choice::Latest,
            Distribution::HotSet => Choice::HotSet { operations: 0.8, records: 0.2 },
        });
        match self.workload.as_deref().and_then(Workload::named) {
            Some(workload) => Workload { choice: chosen.unwrap_or(workload.choice), ..workload },
            None => Workload::reads_and_updates(self.reads, chosen.unwrap_or(Choice::Uniform)),
        }
    }

    /// The shape of the records. Keys without a prefix that tells them from the user's are refused
    /// for a user's pool.
    pub(super) fn shape(&self, own_pool: bool) -> Result<Shape, Failure> {
        let usual = if self.workload().integer_keys && own_pool { Keys::Integer } else { Keys::String };
        let keys = match self.keys.unwrap_or(usual) {
            Keys::String => KeyShape::String { bytes: usize::try_from(self.key_bytes).unwrap_or(0) },
            Keys::Integer => KeyShape::Integer,
            Keys::Ycsb => KeyShape::Ycsb,
        };
        if !own_pool && !matches!(keys, KeyShape::String { .. }) {
            return Err(Failure::usage("keys of this kind could overwrite existing keys of this pool")
                .hint("to measure a temporary pool, omit --pool; in this pool, use --keys string"));
        }
        Ok(Shape::new(keys, PREFIX, self.value_bytes.clone()))
    }

    pub(super) fn threads(&self) -> usize {
        match usize::try_from(self.threads.number(Key::Threads)) {
            Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
            Ok(threads) => threads,
        }
    }

    pub(super) fn json(&self) -> Json<'_> {
        match self.json.as_deref() {
            None => Json::None,
            Some(path) if path.as_os_str() == "-" => Json::Stdout,
            Some(path) => Json::File(path),
        }
    }

    pub(super) fn value_range(&self) -> &RangeInclusive<usize> {
        &self.value_bytes
    }
}
