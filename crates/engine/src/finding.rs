//! Damage in a store: where it is and what it is.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A place in the pool or the files of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Bytes from the start of the pool.
    Pool(u64),
    /// A place in one of the store's files.
    File {
        /// The file.
        file: Arc<Path>,
        /// Bytes from its start.
        offset: u64,
    },
}

impl Place {
    /// Bytes from the start of the pool or of the file.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Pool(offset) | Self::File { offset, .. } => *offset,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(offset) => write!(f, "offset {offset:#x}"),
            Self::File { file, offset } => write!(f, "offset {offset:#x} of {}", file.display()),
        }
    }
}

/// What a repair does about a finding. A repair copies everything that is intact to a new store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The new store has its own.
    Recreated,
    /// It is left behind.
    Dropped,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recreated => "recreates it",
            Self::Dropped => "drops it",
        })
    }
}

/// Damage in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Where it is.
    pub place: Place,
    /// What lies there.
    pub what: &'static str,
    /// What was expected there.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// Its length in bytes, if it is a range of memory and not a single place.
    pub bytes: u64,
    /// The affected records, if known: the first few keys, in printable form.
    pub affected: Option<String>,
    /// What a repair does about it.
    pub remedy: Remedy,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, what, expected, found, affected, .. } = self;
        match place {
            Place::Pool(offset) => write!(f, "{offset:#x}")?,
            place => write!(f, "{place}")?,
        }
        write!(f, ": {what}: expected {expected}, found {found}")?;
        affected.iter().try_for_each(|affected| write!(f, "; touches {affected}"))
    }
}

impl From<terrace_pool::Finding> for Finding {
    fn from(finding: terrace_pool::Finding) -> Self {
        let terrace_pool::Finding { offset, what, expected, found, bytes, affected, remedy, .. } = finding;
        let place = Place::Pool(offset);
        let remedy = match remedy {
            terrace_pool::Remedy::Recreated => Remedy::Recreated,
            terrace_pool::Remedy::Dropped => Remedy::Dropped,
        };
        Self { place, what, expected, found, bytes, affected, remedy }
    }
}
