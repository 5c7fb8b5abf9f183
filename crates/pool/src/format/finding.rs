//! Findings of a check, and the check of a pool's superblock and roots.

use crate::format::superblock;
use crate::pool::Pool;
use terrace_medium::MappedMedium;

/// What a repair, which copies all that is sound to a new pool, does about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The new pool has its own.
    Recreated,
    /// The damaged thing is not copied.
    Dropped,
}

/// A place in a pool that differs from what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The place, in bytes from the start of the pool.
    pub offset: u64,
    /// What this place contains.
    pub what: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
    /// Bytes from there on that are affected, if more than a place is.
    pub bytes: u64,
    /// The affected records, if known: the first few of their keys, in readable form.
    pub affected: Option<String>,
    /// What a repair does about it.
    pub remedy: Remedy,
}

impl Finding {
    /// A finding about a place.
    pub fn new(
        offset: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let (expected, found) = (expected.into(), found.into());
        Self { offset, what, expected, found, bytes: 0, affected: None, remedy: Remedy::Recreated }
    }

    /// Extends the finding to `bytes` bytes from that place on.
    pub fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offset, what, expected, found, affected, .. } = self;
        write!(f, "{offset:#x}: {what}: expected {expected}, found {found}")?;
        affected.iter().try_for_each(|affected| write!(f, "; touches {affected}"))
    }
}

impl<M: MappedMedium> Pool<M> {
    /// Checks the superblock and the root directory. (A damaged copy of the superblock was repaired
    /// if the pool was opened for writing.)
    pub fn verify_superblock_and_roots(&self) -> Vec<Finding> {
        let mut findings = self.verify_superblock();
        findings.extend(self.verify_roots());
        findings
    }

    fn verify_superblock(&self) -> Vec<Finding> {
        // The guard is held, so no update is running.
        let superblock = self.0.superblock();
        let verify = |copy: usize| {
            let finding = |found: String| {
                let expected = format!("update {} of pool {:032x}", superblock.sequence, superblock.uuid);
                let offset = copy as u64 * crate::format::layout::SUPERBLOCK_STEP;
                Finding::new(offset, "a copy of the superblock", expected, found)
            };
            match superblock::load_copy(self.region(), copy) {
                Ok(found) if found == *superblock => None,
                Ok(found) => Some(finding(format!("update {} of pool {:032x}", found.sequence, found.uuid))),
                Err(_) => Some(finding("no valid superblock".into())),
            }
        };
        [0, 1].into_iter().filter_map(verify).collect()
    }
}

#[cfg(test)]
#[path = "tests/finding.rs"]
mod tests;
