//! Which part of a suite to run, and at which size.

use std::cell::RefCell;
use std::path::PathBuf;
use terrace_bench::{LimitsSize, Measure, Row, Runner};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The command line's wishes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Small sizes and one round, to check that it runs.
    pub(crate) quick: bool,
    /// Only rows whose name contains this.
    pub(crate) only: Option<String>,
    /// Number of keys, in suites that let the user choose it.
    pub(crate) records: Option<u64>,
    /// Where stores in directories keep their files.
    pub(crate) directory: Option<PathBuf>,
    /// Where the page of `wip` is written.
    pub(crate) page: Option<PathBuf>,
    /// Whether RocksDB is left out.
    pub(crate) without_rocksdb: bool,
}

impl Plan {
    /// Whether this row is wanted. `name` is the section's short name and the row's.
    pub(crate) fn wants(&self, section: &str, row: &str) -> bool {
        let name = format!("{section} {row}");
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// As [`Plan::wants`]; says the row's name if it is wanted, since it begins now.
    pub(crate) fn begins(&self, section: &str, row: &str) -> bool {
        let is_wanted = self.wants(section, row);
        if is_wanted {
            say(&format!("{section} {row}"));
        }
        is_wanted
    }

    /// `full`, or 1/100 of it in a quick run.
    pub(crate) fn count(&self, full: u64) -> u64 {
        if self.quick { full / 100 } else { full }
    }

    /// The requested number of keys, or 10M, or 1/100 of that in a quick run.
    pub(crate) fn records(&self) -> u64 {
        self.records.unwrap_or(self.count(10_000_000))
    }

    pub(crate) fn runner(&self) -> Runner {
        if self.quick { Runner::QUICK } else { Runner::FULL }
    }

    /// A row whose measures may fail: then the last failure is that of the row.
    pub(crate) fn row(&self, name: &str, sides: &[&dyn Fn() -> Outcome<f64>]) -> Outcome<Row> {
        let failure = RefCell::new(None);
        let measure = |side: &'_ &dyn Fn() -> Outcome<f64>| {
            side().unwrap_or_else(|error| {
                *failure.borrow_mut() = Some(error.to_string());
                f64::NAN
            })
        };
        let mut measures: Vec<Measure<'_>> =
            sides.iter().map(|side| Box::new(|| measure(side)) as Measure<'_>).collect();
        let measured = self.runner().row(&mut measures);
        drop(measures);
        match failure.into_inner() {
            Some(failure) => Err(failure.into()),
            None => Ok(Row::from_measured(name, measured)),
        }
    }

    pub(crate) fn limits(&self) -> LimitsSize {
        if self.quick { LimitsSize::QUICK } else { LimitsSize::FULL }
    }
}

/// Prints progress to standard error.
pub(crate) fn say(what: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "  {what}");
}
