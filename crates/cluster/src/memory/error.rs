//! Why a memory node does not start, or did not stop cleanly.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The memory node could not start, or did not stop cleanly.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The pool cannot be used.
    #[error("the pool {pool} cannot serve a cluster: {what}")]
    Pool {
        /// Its path.
        pool: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file operation on the log area has failed.
    #[error("could not {action} the log area {log}: {error}")]
    Log {
        /// Its path.
        log: PathBuf,
        /// What failed.
        action: &'static str,
        /// The error that the operating system reported.
        error: io::Error,
    },
    /// The file is no log area of this release.
    #[error(
        "{log} is no log area of this release: it has version {found}, this release reads {}; use the release that made it",
        super::format::VERSION
    )]
    Version {
        /// Its path.
        log: PathBuf,
        /// Its version.
        found: u64,
    },
    /// The file is something else.
    #[error("{log} is no log area; move it away, or name another pool")]
    NoLog {
        /// Its path.
        log: PathBuf,
    },
    /// The log area is another pool's.
    #[error("the log area {log} belongs to another pool than {pool}; put the files back as they were")]
    OtherPool {
        /// Its path.
        log: PathBuf,
        /// The pool's path.
        pool: PathBuf,
    },
    /// One of the two is an older copy.
    #[error(
        "{older} is older than {than}: writes that were answered may be missing, and older values may come back; \
         put back the files that belong together; or, to take them as they are, start once with --adopt"
    )]
    Older {
        /// The older file.
        older: PathBuf,
        /// The other one.
        than: PathBuf,
    },
    /// The pool has keys, or was used by a memory node, but there is no log area.
    #[error(
        "the pool {pool} was in use, but its log area {log} is missing, and writes that were answered may be in it; \
         put it back; or, for a pool that no memory node has used, start once with --adopt"
    )]
    Missing {
        /// The pool's path.
        pool: PathBuf,
        /// The path of the log area.
        log: PathBuf,
    },
    /// The pool is to be adopted, and has keys that a cluster would not find.
    #[error(
        "the pool {pool} has {others}, and a cluster has database 0 alone: move the keys there (`terrace serve` and \
         MOVE), or leave them: load `terrace dump --db 0` of this pool into a new pool, and adopt that. The pool is \
         unchanged"
    )]
    Databases {
        /// The pool's path.
        pool: PathBuf,
        /// The databases, and how many keys they have.
        others: String,
    },
    /// A word of the log area does not match its checksum, or makes no sense.
    #[error("the log area {log} is damaged at byte {offset}: {what}; restore it from a backup")]
    Damaged {
        /// Its path.
        log: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// Nobody can connect.
    #[error("could not listen at {address}: {error}; choose another address with --listen")]
    Listen {
        /// The address.
        address: String,
        /// The error that the operating system reported.
        error: io::Error,
    },
    /// A thread could not be started.
    #[error("could not start a thread of the memory node: {0}")]
    Thread(io::Error),
    /// Some log was not merged in time. The next start merges it.
    #[error(
        "the logs of {0} sessions were not merged before the memory node stopped; its next start merges them"
    )]
    NotMerged(usize),
}
