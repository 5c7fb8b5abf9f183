//! The JSON files from which a page is made.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// One JSON file.
#[derive(Debug)]
pub(super) enum Source {
    Run(Box<Run>),
    Suite(Box<Suite>),
}

#[derive(Debug, Deserialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) processors: u64,
    pub(super) memory_bytes: u64,
    pub(super) kernel: String,
    pub(super) huge_pages: String,
    #[serde(default)]
    pub(super) fixed_loop_moved: f64,
}

/// The results of `terrace bench`.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    /// The file's name.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) machine: Machine,
    pub(super) repeat: String,
    pub(super) workload: String,
    pub(super) about: String,
    pub(super) records: u64,
    pub(super) key_bytes: u64,
    pub(super) value_bytes: String,
    pub(super) distribution: String,
    pub(super) threads: u64,
    pub(super) rate_asked_per_second: Option<f64>,
    pub(super) operations: u64,
    pub(super) operations_per_second: f64,
    pub(super) kinds: BTreeMap<String, Side>,
    pub(super) over_time: Vec<Piece>,
    pub(super) samples: Vec<Sample>,
}

/// Operations of one kind.
#[derive(Debug, Deserialize)]
pub(super) struct Side {
    pub(super) operations: u64,
    pub(super) operations_per_second: f64,
    latency_ns_p50: u64,
    latency_ns_p90: u64,
    latency_ns_p99: u64,
    latency_ns_p999: u64,
    latency_ns_p9999: u64,
    latency_ns_max: u64,
}

impl Side {
    /// The names of the quantiles, in the order of [`Side::latencies_ns`].
    pub(super) const QUANTILES: [&'static str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];

    pub(super) fn latencies_ns(&self) -> [u64; 6] {
        [
            self.latency_ns_p50,
            self.latency_ns_p90,
            self.latency_ns_p99,
            self.latency_ns_p999,
            self.latency_ns_p9999,
            self.latency_ns_max,
        ]
    }
}

/// One interval of the run.
#[derive(Debug, Deserialize)]
pub(super) struct Piece {
    pub(super) seconds: f64,
    pub(super) operations_per_second: f64,
    pub(super) latency_ns_p50: u64,
    pub(super) latency_ns_p99: u64,
}

/// The store at one time of the run.
#[derive(Debug, Deserialize)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) load_factor: f64,
    pub(super) records: u64,
}

/// The results of `cargo peers`.
#[derive(Debug, Deserialize)]
pub(super) struct Suite {
    #[serde(skip)]
    pub(super) name: String,
    pub(super) suite: String,
    pub(super) warning: Option<String>,
    pub(super) repeat: String,
    pub(super) missed: u64,
    pub(super) machine: Machine,
    pub(super) limits: BTreeMap<String, f64>,
    pub(super) sections: Vec<Section>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) unit: String,
    /// The heading of Terrace's column.
    #[serde(default = "ours")]
    pub(super) ours: String,
    /// The other columns in order. If the report names none, the names of the first row's figures
    /// are used.
    #[serde(default)]
    columns: Vec<String>,
    pub(super) rows: Vec<Row>,
}

fn ours() -> String {
    "ours".into()
}

impl Section {
    /// The columns other than Terrace's.
    pub(super) fn peers(&self) -> Vec<&str> {
        match self.rows.first() {
            Some(row) if self.columns.is_empty() => row.peers.keys().map(String::as_str).collect(),
            _ => self.columns.iter().map(String::as_str).collect(),
        }
    }

    /// Whether a row is compared with another or has a target.
    pub(super) fn is_judged(&self) -> bool {
        self.rows.iter().any(|row| row.ratio.is_some() || row.target.is_some())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) ours: Option<f64>,
    pub(super) peers: BTreeMap<String, Option<f64>>,
    pub(super) ratio: Option<f64>,
    pub(super) target: Option<BTreeMap<String, f64>>,
    pub(super) holds: Option<bool>,
    pub(super) note: Option<String>,
}

impl Source {
    /// Parses a file's text; `name` is its name on the page.
    pub(super) fn parse(name: &str, text: &[u8]) -> Result<Source, serde_json::Error> {
        let value: Value = serde_json::from_slice(text)?;
        Ok(if value.get("sections").is_some() {
            Source::Suite(Box::new(Suite { name: name.into(), ..serde_json::from_value(value)? }))
        } else {
            Source::Run(Box::new(Run { name: name.into(), ..serde_json::from_value(value)? }))
        })
    }

    pub(super) fn machine(&self) -> &Machine {
        match self {
            Source::Run(run) => &run.machine,
            Source::Suite(suite) => &suite.machine,
        }
    }

    pub(super) fn repeat(&self) -> &str {
        match self {
            Source::Run(run) => &run.repeat,
            Source::Suite(suite) => &suite.repeat,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Source::Run(run) => &run.name,
            Source::Suite(suite) => &suite.name,
        }
    }
}
