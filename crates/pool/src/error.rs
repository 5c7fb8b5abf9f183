//! Errors about a pool as a whole, with messages for its user.

use crate::sharing::clock::wall_clock;
use crate::sharing::release::SHARING;
use std::fmt;
use std::io;
use std::path::PathBuf;
use terrace_medium::MapError;

/// A pool could not be created or opened.
#[derive(Debug)]
pub struct OpenError {
    /// The pool's path, or a description if it has none.
    pub pool: PathBuf,
    /// The reason.
    pub problem: Problem,
}

/// A process that has a pool open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// The name of its program, as the program gave it.
    pub program: String,
    /// When it opened the pool, in Unix milliseconds; 0 if unknown.
    pub since_ms: u64,
    /// Whether it is stopped, as by SIGSTOP or a debugger: it keeps its locks and pins, and others
    /// wait for them.
    pub stopped: bool,
    /// Whether the process is visible from here. If not, `pid` belongs to another pid namespace or
    /// another machine.
    pub is_local: bool,
    /// Total CPU time of its threads, in the kernel's ticks; 0 if unknown. If it has grown between
    /// two looks, the process was not stopped all the time.
    pub ran_ticks: u64,
    /// Whether it has declared that it does not store to the data.
    pub reads_only: bool,
    /// Whether one of its threads has been pinned since before some block was retired. That block
    /// and all retired since cannot be reused until the thread unpins.
    pub blocks_reclaim: bool,
}

impl Holder {
    /// Whether this is the same process as `seen`, and it has not run since.
    pub fn idle_since(&self, seen: &Self) -> bool {
        let known = |holder: &Self| (holder.pid, holder.since_ms, holder.ran_ticks);
        known(self) == known(seen)
    }
}

/// A release and its sharing version, encoded as in [`Problem::OtherSharing`].
struct Release(u64);

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] =
            [(40, 0xff), (28, 0xfff), (16, 0xfff)].map(|(shift, mask)| self.0 >> shift & mask);
        match self.0 {
            0 => f.write_str("a release of terrace that does not share it"),
            word => {
                write!(f, "release {major}.{minor}.{patch} of terrace (sharing version {})", word & 0xffff)
            }
        }
    }
}

/// Why a pool could not be created or opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file does not exist.
    Missing,
    /// The directory for the new file does not exist.
    NoDirectory(PathBuf),
    /// The file to be created exists.
    Exists,
    /// The path is a directory, a socket or the like.
    NotAFile,
    /// The user may not read, write or create it.
    Denied(io::Error),
    /// Its file system is mounted read-only.
    ReadOnlyFileSystem,
    /// Another process has it open; the holder is `None` if the system does not say which.
    InUse(Option<Holder>),
    /// As many processes share it as it has room for.
    Crowded(Vec<Holder>),
    /// The processes that have it open are of another release, or share other structures.
    OtherSharing {
        /// Their release: `| major (8) | minor (12) | patch (12) | sharing version (16) |`; 0 if
        /// they do not share it.
        found: u64,
    },
    /// Another process was opening or closing it for as long as this one waited.
    GateTimeout(io::Error),
    /// The processes that share it rely on a system call that this process may not use.
    NoBarrier,
    /// The file does not begin with a pool's superblock.
    NotAPool,
    /// A format that this program does not support.
    Version {
        /// The file's format.
        found: u32,
        /// This program's format.
        known: u32,
    },
    /// Created on a machine with another word size or byte order.
    OtherMachine,
    /// Both copies of the superblock are damaged.
    Damaged(&'static str),
    /// The file is shorter than the pool in it.
    Truncated {
        /// Bytes according to the superblock.
        expected: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// It was in use when the machine crashed, and its durability does not cover that.
    MachineCrashed,
    /// Read-only access was requested where memory cannot be mapped privately.
    NotReadable,
    /// Durability `power` was requested where a power loss erases memory.
    NotPersistent,
    /// It was left in use with another durability.
    OtherDurability {
        /// The pool's durability.
        pool: Durability,
        /// The requested durability.
        asked: Durability,
    },
    /// Fewer bytes than its metadata needs, or more than offsets can address.
    Size {
        /// The requested size.
        asked: u64,
        /// The smallest possible size.
        smallest: u64,
        /// The largest possible size.
        largest: u64,
    },
    /// The requested geometry is out of range.
    Geometry(&'static str),
    /// The label is longer than 63 bytes.
    LabelTooLong,
    /// No space on its file system, or no addresses.
    Map(MapError),
    /// The file cannot be locked.
    LockFailed(io::Error),
    /// The operating system refused an operation; the first word names it.
    Os(&'static str, io::Error),
}

/// Which crashes a pool's contents survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Crashes of its processes, but not of the machine.
    Process,
    /// Power failures too.
    Power,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Process => "process",
            Self::Power => "power",
        })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}{}", self.pid, if self.is_local { "" } else { " of another namespace" })?;
        match (self.program.as_str(), self.since_ms) {
            ("", 0) => {}
            (program, 0) => write!(f, " ({program})")?,
            ("", ms) => write!(f, " (since {})", wall_clock(ms))?,
            (program, ms) => write!(f, " ({program}, since {})", wall_clock(ms))?,
        }
        let said = [
            (self.stopped, "is stopped"),
            (self.reads_only, "only reads"),
            (self.blocks_reclaim, "keeps freed memory from reuse"),
        ];
        let mut link = ", which ";
        for (_, what) in said.iter().filter(|(is_so, _)| *is_so) {
            write!(f, "{link}{what}")?;
            link = " and ";
        }
        Ok(())
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = self.pool.display();
        match &self.problem {
            Problem::Missing if self.pool.starts_with("/dev/shm") => write!(
                f,
                "there is no pool {pool}\n  create it first, or check the path; a container has a /dev/shm of its own, unless it \
                 shares the host's"
            ),
            Problem::Missing => write!(f, "there is no pool {pool}\n  create it first, or check the path"),
            Problem::NoDirectory(dir) => {
                let dir = dir.display();
                write!(
                    f,
                    "the pool {pool} cannot be created: the directory {dir} does not exist\n  mkdir -p {dir}"
                )
            }
            Problem::Exists => {
                write!(
                    f,
                    "{pool} exists already\n  open it instead, or remove the file if its contents are not needed"
                )
            }
            Problem::NotAFile => write!(f, "{pool} is not a file\n  name a file, or a device-DAX device"),
            Problem::Denied(error) => {
                write!(f, "the pool {pool} cannot be opened: {error}\n  check who owns it and its directory")
            }
            Problem::ReadOnlyFileSystem => write!(
                f,
                "the pool {pool} cannot be written: its file system is mounted read-only\n  open it read-only, or \
                 put the pool elsewhere"
            ),
            Problem::InUse(Some(holder)) => write!(
                f,
                "the pool {pool} is in use by {holder}\n  to use it from several processes: open all of them with --shared"
            ),
            Problem::InUse(None) => {
                write!(f, "the pool {pool} is in use by another process\n  stop that process first")
            }
            problem => problem.describe_sharing(f, &pool),
        }
    }
}

impl Problem {
    fn describe_sharing(&self, f: &mut fmt::Formatter<'_>, pool: &dyn fmt::Display) -> fmt::Result {
        match self {
            Self::Crowded(holders) => {
                write!(f, "the pool {pool} is open in as many processes as it has room for:")?;
                for holder in holders {
                    write!(f, "\n  {holder}")?;
                }
                write!(
                    f,
                    "\n  end one of them, or load a dump of it into a pool that was created for more (--participants, \
                     Options::participants)"
                )
            }
            Self::OtherSharing { found } => write!(
                f,
                "the pool {pool} is in use by {} and cannot be shared with this one, {}\n  use the same release in all \
                 processes",
                Release(*found),
                Release(SHARING)
            ),
            Self::NoBarrier => write!(
                f,
                "the pool {pool} cannot be shared by this process: the others rely on membarrier(2), which the system \
                 refuses here\n  allow that system call (a container's seccomp profile may forbid it), or start this \
                 process first"
            ),
            Self::GateTimeout(error) => write!(
                f,
                "the pool {pool} cannot be opened: {error}\n  let that process continue, or end it: the others then \
                 recover what it held"
            ),
            Self::LockFailed(error) => write!(
                f,
                "the pool {pool} cannot be opened: its file cannot be locked ({error}), and without its locks two \
                 processes could write at once without knowing of each other\n  put it on a file system that has file \
                 locks, such as /dev/shm or a local disk"
            ),
            problem => problem.describe_contents(f, pool),
        }
    }

    fn describe_contents(&self, f: &mut fmt::Formatter<'_>, pool: &dyn fmt::Display) -> fmt::Result {
        match self {
            Self::NotAPool => {
                write!(f, "{pool} is not a Terrace pool; it was left as it is\n  check the path")
            }
            Self::Version { found, known } => write!(
                f,
                "the pool {pool} has format {found}, this program knows format {known}\n  use the release of \
                 terrace that wrote it, dump it there and load the dump here"
            ),
            Self::OtherMachine => write!(
                f,
                "the pool {pool} comes from a machine with another word size or byte order\n  dump it there and \
                 load the dump here"
            ),
            Self::Damaged(what) => write!(
                f,
                "the pool {pool} is damaged: {what}\n  restore it from a backup; nothing in it was changed"
            ),
            Self::Truncated { expected, found } => write!(
                f,
                "the pool {pool} is cut short: {found} bytes are left of {expected}\n  restore it from a backup, \
                 or keep what its checksums prove with --salvage"
            ),
            Self::MachineCrashed => write!(
                f,
                "the pool {pool} was in use when the machine itself went down, and its durability is `process`: \
                 parts of it may be older than others\n  keep what its checksums prove with --salvage, or restore \
                 it from a backup"
            ),
            problem => problem.describe_request(f, pool),
        }
    }

    fn describe_request(&self, f: &mut fmt::Formatter<'_>, pool: &dyn fmt::Display) -> fmt::Result {
        match self {
            Self::NotReadable => write!(
                f,
                "the pool {pool} cannot be opened read-only without any store to it: it lies on huge pages or on a \
                 device, which cannot be mapped privately\n  open it read-only and shared, which stores only to its \
                 head, or open it for writing"
            ),
            Self::NotPersistent => write!(
                f,
                "durability `power` is not possible on {pool}: it lives in memory or on a disk whose writes a \
                 power cut can erase\n  use a DAX file system (mount -o dax=always) or a persistent CXL device, \
                 or --durability process"
            ),
            Self::OtherDurability { pool: had, asked } => write!(
                f,
                "the pool {pool} was left in use with durability `{had}` and cannot be opened with `{asked}` \
                 now\n  first open it with --durability {had} and close it in order"
            ),
            Self::Size { asked, smallest, largest } => write!(
                f,
                "the pool {pool} cannot have {}: its size must be from {} to {}",
                Bytes(*asked),
                Bytes(*smallest),
                Bytes(*largest)
            ),
            Self::Geometry(what) => write!(f, "the pool {pool} cannot have this geometry: {what}"),
            Self::LabelTooLong => write!(f, "the label of the pool {pool} is longer than 63 bytes"),
            Self::Map(MapError::NoSpace { wanted }) => write!(
                f,
                "no room for {} on the file system of {pool}\n  choose a smaller --size, or make room",
                Bytes(*wanted)
            ),
            Self::Map(MapError::Reserved { wanted, reserved }) => write!(
                f,
                "the pool {pool} has grown to {} while it was being opened, and {} were reserved for it\n  open it again with a \
                 --max-size of at least that",
                Bytes(*wanted),
                Bytes(*reserved)
            ),
            Self::Map(error) => write!(f, "the pool {pool} cannot be mapped: {error}"),
            Self::Os(what, error) => write!(f, "could not {what} {pool}: {error}"),
            _ => unreachable!("described by the callers"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Denied(error)
            | Problem::LockFailed(error)
            | Problem::GateTimeout(error)
            | Problem::Os(_, error) => Some(error),
            Problem::Map(error) => Some(error),
            _ => None,
        }
    }
}

/// A root could not be found or set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RootError {
    /// The root exists and is of another kind.
    Kind {
        /// The root.
        name: String,
        /// Its kind.
        found: String,
        /// The requested kind.
        asked: String,
    },
    /// The name must have 1 to 31 bytes and the kind 1 to 15, without zero bytes.
    Name(String),
    /// Every entry of the root directory is taken.
    Full {
        /// Number of entries.
        roots: u32,
    },
    /// The words of the root's entry contradict each other.
    Damaged {
        /// The root.
        name: String,
        /// The offset of its entry.
        offset: u64,
    },
    /// There is no root of this name to replace.
    Missing(String),
    /// The offset is not in the pool.
    OutOfBounds(u64),
}

impl fmt::Display for RootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { name, found, asked } => {
                write!(f, "the root `{name}` is of kind `{found}`, not `{asked}`")
            }
            Self::Name(name) => write!(
                f,
                "`{}` cannot name a root: names have 1 to 31 bytes, kinds 1 to 15, none of them zero",
                name.escape_debug()
            ),
            Self::Full { roots } => write!(f, "the pool has {roots} roots and no room for another"),
            Self::Damaged { name, offset } => write!(f, "the root `{name}` at offset {offset:#x} is damaged"),
            Self::Missing(name) => write!(f, "there is no root `{name}`"),
            Self::OutOfBounds(offset) => write!(f, "offset {offset:#x} does not lie in the pool"),
        }
    }
}

impl std::error::Error for RootError {}

/// A pool could not grow. It is unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum GrowError {
    /// The pool is open read-only.
    ReadOnly,
    /// The requested size is smaller; pools never shrink.
    Smaller {
        /// Its size in bytes.
        size: u64,
        /// The requested size.
        asked: u64,
    },
    /// The requested size exceeds the addresses reserved when it was opened, or what offsets can
    /// address.
    Reserved {
        /// The requested size.
        asked: u64,
        /// The bytes of reserved addresses.
        reserved: u64,
    },
    /// The requested size exceeds the addresses that another process with the pool open has
    /// reserved.
    ReservedByOther {
        /// The requested size.
        asked: u64,
        /// The bytes of addresses reserved there.
        reserved: u64,
        /// That process; `None` if it has closed the pool since.
        holder: Option<Holder>,
    },
    /// The file system, the device or the operating system refused.
    Map(MapError),
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly => write!(f, "the pool is open read-only and cannot grow"),
            Self::Smaller { size, asked } => write!(
                f,
                "the pool has {} and cannot shrink to {}\n  dump it and load the dump into a smaller one",
                Bytes(*size),
                Bytes(*asked)
            ),
            Self::Reserved { asked, reserved } => write!(
                f,
                "the pool cannot grow to {} while it is open: {} were reserved\n  open it again with a --max-size \
                 of at least that",
                Bytes(*asked),
                Bytes(*reserved)
            ),
            Self::ReservedByOther { asked, reserved, holder } => {
                let holder = holder.as_ref().map_or("another process".into(), Holder::to_string);
                write!(
                    f,
                    "the pool cannot grow to {} while others have it open: {} were reserved by {holder}\n  close it there, and \
                     open it again with a --max-size of at least that",
                    Bytes(*asked),
                    Bytes(*reserved)
                )
            }
            Self::Map(MapError::NoSpace { wanted }) => {
                write!(f, "the pool cannot grow to {}: its file system is full\n  make room", Bytes(*wanted))
            }
            Self::Map(error) => write!(f, "the pool cannot grow: {error}"),
        }
    }
}

impl std::error::Error for GrowError {}

/// A pool was not closed in order. The next open treats this as a crash: what the pool's durability
/// promises is kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseError {
    /// Another handle still exists; the pool is closed when the last one is dropped.
    StillOpen,
    /// Its data could not be written back.
    Map(MapError),
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillOpen => write!(f, "the pool is still in use by this program and was not closed"),
            Self::Map(error) => write!(f, "the pool could not be closed in order: {error}"),
        }
    }
}

impl std::error::Error for CloseError {}

/// A number of bytes, displayed in the largest fitting unit: `4.0 GiB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
        let unit = (self.0.max(1).ilog2() / 10).min(4);
        match (unit, self.0 as f64 / (1u64 << (10 * unit)) as f64) {
            (0, _) => write!(f, "{} bytes", self.0),
            (unit, value) => write!(f, "{value:.1} {}", UNITS[unit as usize]),
        }
    }
}

#[cfg(test)]
#[path = "tests/error.rs"]
mod tests;
