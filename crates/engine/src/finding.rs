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

/// Where an error of a file lies, and what it says.
pub fn place_of(error: &terrace_disk::DiskError) -> (Place, &'static str) {
    let (file, offset, what) = match error {
        terrace_disk::DiskError::Corrupt { path, offset, what } => (path.as_path(), *offset, *what),
        terrace_disk::DiskError::Io { path, .. } | terrace_disk::DiskError::Full { path, .. } => {
            (path.as_path(), 0, "it cannot be read")
        }
        terrace_disk::DiskError::Newer { path, .. } => {
            (path.as_path(), 0, "it is of a later version of Terrace")
        }
        terrace_disk::DiskError::Foreign { path } => (path.as_path(), 0, "it is a part of another store"),
        _ => (Path::new(""), 0, "the store cannot be used"),
    };
    (Place::File { file: file.into(), offset }, what)
}

/// The finding for an error of a file that is a `what`. `keys` are those that it affects.
pub fn finding(
    error: &terrace_disk::DiskError,
    what: &'static str,
    keys: Option<&(Vec<u8>, Vec<u8>)>,
) -> Finding {
    let shown = |key: &[u8]| key.escape_ascii().take(64).map(char::from).collect::<String>();
    Finding {
        place: place_of(error).0,
        what,
        expected: "what was written".into(),
        found: error.to_string(),
        bytes: 0,
        affected: keys.map(|(low, high)| {
            format!(
                "the keys from `{}` to `{}`: they may be missing, or be older versions",
                shown(low),
                shown(high)
            )
        }),
        remedy: Remedy::Dropped,
    }
}
