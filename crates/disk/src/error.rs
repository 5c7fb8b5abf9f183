//! Errors of files.

use crate::bounded::{self, EMFILE};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a file could not be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DiskError {
    /// The operating system refused an access.
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: Arc<io::Error>,
    },
    /// The file system or a quota has no room. What was tried has been undone and can be tried
    /// again.
    Full {
        /// The file that lacks room.
        path: PathBuf,
        /// The operating system's error.
        error: Arc<io::Error>,
    },
    /// A file does not contain what was written.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the damaged part, in bytes.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The file is of a later version of Terrace.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The latest format that this program reads.
        known: u32,
    },
    /// The file is a part of another store.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another process, or another part of this one, has the store open.
    Locked {
        /// The store's directory.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// There is no store at this path.
    NoStore {
        /// The path.
        path: PathBuf,
        /// What is there instead.
        what: &'static str,
    },
    /// A store cannot be created where there is one.
    Exists {
        /// Its directory.
        path: PathBuf,
    },
    /// A store cannot be created where other files are.
    Occupied {
        /// The directory.
        path: PathBuf,
        /// One of the names in it.
        name: PathBuf,
    },
    /// The store belongs to another engine.
    Engine {
        /// The store's directory.
        path: PathBuf,
        /// The name of its engine.
        engine: String,
    },
    /// The directory of an open store was moved, or another one has its name.
    Moved {
        /// Where the store was.
        path: PathBuf,
    },
    /// The store was opened for reading only.
    ReadOnly {
        /// The store's directory.
        path: PathBuf,
    },
}

impl DiskError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { action, path: path.into(), error: error.into() }
    }

    /// The error of an access: [`DiskError::Full`] if there is no room, and otherwise
    /// [`DiskError::Io`]. The caller undoes what it tried.
    pub fn room(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Self::Full { path: path.into(), error: error.into() }
            }
            _ => Self::io(action, path)(error),
        }
    }

    /// What is to be done if no file could be opened, because so many are; `None` if something else
    /// failed.
    pub fn lacks_descriptors(&self) -> Option<&'static str> {
        let Self::Io { error, .. } = self else { return None };
        bounded::is_out_of_descriptors(error).then(|| match error.raw_os_error() {
            Some(EMFILE) => {
                "this process has as many files open as it may; raise its limit (`ulimit -n`, or LimitNOFILE \
                 of systemd), or close some connections"
            }
            _ => "the system has as many files open as it may; raise its limit (sysctl fs.file-max)",
        })
    }

    /// The same error where it is the end: free descriptors do not help any more.
    pub(crate) fn lasting(self) -> Self {
        match self {
            Self::Io { action, path, error } if bounded::is_out_of_descriptors(&error) => {
                Self::Io { action, path, error: Arc::new(io::Error::other(error.to_string())) }
            }
            other => other,
        }
    }

    /// Damage in the file at `path`, at this offset: [`DiskError::Corrupt`].
    pub fn corrupt(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Corrupt { path: path.into(), offset, what }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { action, path, error } => {
                write!(f, "cannot {action} {}: ", path.display())?;
                match self.lacks_descriptors() {
                    Some(what) => f.write_str(what),
                    None => error.fmt(f),
                }
            }
            Self::Full { path, error } => {
                write!(f, "no room for {}: {error}; free some space and try again", path.display())
            }
            Self::Corrupt { path, offset, what } => {
                write!(f, "{} is damaged at offset {offset}: {what}", path.display())
            }
            Self::Newer { path, format, known } => write!(
                f,
                "{} has format {format}; this program reads formats up to {known}, so open it with a later one",
                path.display()
            ),
            Self::Foreign { path } => write!(
                f,
                "{} is a part of another store; put back the file that belongs there",
                path.display()
            ),
            Self::Locked { path, pid: Some(pid) } => {
                write!(f, "process {pid} has the store at {} open; stop it first", path.display())
            }
            Self::Locked { path, pid: None } => {
                write!(f, "another process has the store at {} open; stop it first", path.display())
            }
            Self::NoStore { path, what } => write!(f, "no store at {}: {what}", path.display()),
            Self::Exists { path } => {
                write!(
                    f,
                    "there is a store at {} already; open it, or choose another directory",
                    path.display()
                )
            }
            Self::Occupied { path, name } => write!(
                f,
                "{} holds {}, which is no part of a new store; choose an empty directory",
                path.display(),
                name.display()
            ),
            Self::Engine { path, engine } => {
                write!(f, "the store at {} belongs to the engine {engine}; open it with that", path.display())
            }
            Self::Moved { path } => write!(
                f,
                "{} is not the directory that was opened: it was moved or replaced; stop this process, and open the \
                 store where it is now",
                path.display()
            ),
            Self::ReadOnly { path } => {
                write!(f, "the store at {} is open for reading only", path.display())
            }
        }
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } | Self::Full { error, .. } => Some(&**error),
            _ => None,
        }
    }
}
