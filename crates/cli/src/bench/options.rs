//! What to measure.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use terrace_bench::{Choice, KeyShape, Shape, Workload};
use terrace_server::config::Key;

use crate::{
    failure::Failure,
    settings::{OfPool, OfThreads, Settings},
};

/// Before every key, so that no one's own is touched.
pub(super) const PREFIX: &str = "terrace-bench:";

#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct BenchOptions {
    /// What to do, by name (below); without it, reads and updates as --reads says
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Workload::ALL.map(|w| w.name)), hide_possible_values = true)]
    workload: Option<String>,
    /// Records to begin with
    #[arg(long, default_value = "1000000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) records: u64,
    /// Bytes of a value, or a range of them: 64..1024
    #[arg(long, value_name = "N|N..M", default_value = "64", value_parser = value_bytes)]
    value_bytes: RangeInclusive<usize>,
    /// Bytes of a string key
    #[arg(long, default_value = "32", value_parser = clap::value_parser!(u64).range(30..=(64 << 10)))]
    key_bytes: u64,
    /// Strings, or integers of 8 bytes, those only in a pool of its own
    #[arg(long, value_name = "KIND")]
    keys: Option<Keys>,
    /// Reads among operations, per cent; the others update
    #[arg(long, default_value = "95", conflicts_with = "workload", value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Which keys are asked for; without it uniform, or as the workload says
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// Operations a second of all threads, begun whether those before have ended or not; latencies count from when they were due
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(super) rate: Option<f64>,
    /// Seconds to measure
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(super) seconds: u64,
    /// Operations to measure, instead of a time
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) operations: Option<u64>,
    #[command(flatten)]
    threads: Settings<OfThreads>,
    /// The same seed, the same operations
    #[arg(long, default_value = "1")]
    pub(super) seed: u64,
    /// One JSON object, names ending with the unit: to this file, or instead of the table
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
    /// All alike likely
    Uniform,
    /// A few are asked for again and again (YCSB's scrambled zipfian)
    Zipf,
    /// The newest most of all
    Latest,
    /// 80% of the operations ask for the same 20% of the records
    HotSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Keys {
    String,
    Integer,
}

fn after_help() -> String {
    let mut text = String::from(
        "Without --pool it measures a pool of its own beside the default one, and removes it. With --pool it uses keys that begin with\n\
         `terrace-bench:` in that pool, and removes them afterwards.\n\nWorkloads:\n",
    );
    for workload in Workload::ALL {
        text += &format!("  {:<12}{}\n", workload.name, workload.about);
    }
    text + "\nterrace report turns the JSON of one or more runs into a page with plots."
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
        _ => Err("a rate is a number of operations a second, from 0.001 to 1e9".into()),
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

    /// What records look like. Integers cannot be told from others' keys.
    pub(super) fn shape(&self, own_pool: bool) -> Result<Shape, Failure> {
        let integers = self.keys.map_or(self.workload().integer_keys && own_pool, |k| k == Keys::Integer);
        if integers && !own_pool {
            return Err(Failure::usage(
                "integer keys could be someone's own in a pool that is there already",
            )
            .hint("leave --pool out to measure a pool made for it, or use --keys string"));
        }
        let bytes = usize::try_from(self.key_bytes).unwrap_or(0);
        let keys = if integers { KeyShape::Integer } else { KeyShape::String { bytes } };
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
