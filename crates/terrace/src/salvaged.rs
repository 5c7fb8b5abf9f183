//! The result of a salvage.

use crate::Finding;
use std::path::PathBuf;

/// Maximum number of findings kept; the rest are only counted.
const LISTED_MAX: usize = 10_000;

/// The result of a salvage.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Salvaged {
    /// Number of records in the new pool.
    pub kept: u64,
    /// Number of records that were dropped, or of places at which records may have been lost.
    pub dropped: u64,
    /// Why they were dropped; the first ten thousand findings.
    pub findings: Vec<Finding>,
    /// The damaged pool, under its new name.
    pub damaged: PathBuf,
}

impl Salvaged {
    /// Notes a damage.
    pub(crate) fn note(&mut self, finding: Finding) {
        self.dropped += 1;
        if self.findings.len() < LISTED_MAX {
            self.findings.push(finding);
        }
    }
}
