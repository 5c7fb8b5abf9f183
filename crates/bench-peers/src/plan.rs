//! What of a suite is to be run, and how large.

use terrace_bench::{LimitsSize, Runner};

/// What was asked for on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Small sizes and one round: to see that it runs.
    pub(crate) quick: bool,
    /// Only rows whose name holds this.
    pub(crate) only: Option<String>,
    /// Keys of the tables that are measured, where a suite lets one choose.
    pub(crate) records: Option<u64>,
}

impl Plan {
    /// Whether this row is to be measured. `name` is the section's short name and the row's.
    pub(crate) fn wants(&self, section: &str, row: &str) -> bool {
        let name = format!("{section} {row}");
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// `full`, or 1/100 of it in a quick run.
    pub(crate) fn count(&self, full: u64) -> u64 {
        if self.quick { full / 100 } else { full }
    }

    /// How many keys were asked for, or 10M, or 1/100 of them in a quick run.
    pub(crate) fn records(&self) -> u64 {
        self.records.unwrap_or(self.count(10_000_000))
    }

    pub(crate) fn runner(&self) -> Runner {
        if self.quick { Runner::QUICK } else { Runner::FULL }
    }

    pub(crate) fn limits(&self) -> LimitsSize {
        if self.quick { LimitsSize::QUICK } else { LimitsSize::FULL }
    }
}

/// Says on standard error what is being done.
pub(crate) fn say(what: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "  {what}");
}
