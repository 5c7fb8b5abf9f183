//! Findings of a check, and the check of a pool's superblock and roots.

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
