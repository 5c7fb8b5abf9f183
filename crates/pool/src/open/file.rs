//! A pool's file: opening it and locking it against other processes.

use crate::error::{Holder, Problem};
use crate::format::layout::Layout;
use crate::format::superblock::{self, Found, HEAD_BYTES};
use crate::sharing::kernel_lock::KernelLock;
use crate::sharing::liveness::{FileLocks, LockByte, LockKind};
use crate::sharing::participants::first_live;
use crate::sharing::process::{is_stopped, program_of};
use rustix::fs::fstatfs;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use terrace_medium::files::{StoredFile, directory_of};
use terrace_medium::{MapError, MappedMedium, Mapping, Protection, Region, Shm};

/// The intended use of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reads, while no process writes.
    Read,
    /// Reads and writes, exclusively.
    Write,
    /// Reads and writes, together with others that share it.
    Share,
}

/// Opens the file at `path`, after checking that its type can contain a pool.
pub(crate) fn open(path: &Path, purpose: Purpose) -> Result<File, Problem> {
    let kind = path.metadata().map_err(|e| refusal(path, "open", e))?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(Problem::NotAFile);
    }
    OpenOptions::new()
        .read(true)
        .write(purpose != Purpose::Read)
        // Do not block on a device that waits for its other end; no pool is in such a device.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| refusal(path, "open", e))
}

/// Whether `path` is a device, which can be filled but not created.
pub(crate) fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// Whether `file` is a device.
pub(crate) fn is_device_file(file: &File) -> Result<bool, Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the type of", e))?;
    Ok(metadata.file_type().is_char_device())
}

/// Rounds `size` up to whole blocks of the file system if these are larger than a page, as on
/// hugetlbfs.
pub(crate) fn whole_blocks(file: &File, size: u64) -> Result<u64, Problem> {
    const HUGETLBFS: u64 = 0x9584_58f6; // linux/magic.h
    let system = fstatfs(file).map_err(|e| Problem::Os("read the file system's type of", e.into()))?;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    let (kind, block) = (system.f_type as u64 & 0xffff_ffff, system.f_bsize as u64);
    Ok(if kind == HUGETLBFS { size.next_multiple_of(block) } else { size })
}

/// Locks `file` until it is closed: to write, against all others; to read, against writers; to
/// share, against all but sharers. The kernel releases the lock when this process dies.
pub(crate) fn hold(file: &File, purpose: Purpose) -> Result<(), Problem> {
    let outcome = match purpose {
        Purpose::Write => file.try_lock(),
        Purpose::Read | Purpose::Share => file.try_lock_shared(),
    };
    match outcome {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Problem::InUse(holder(file))),
        Err(TryLockError::Error(error)) => return Err(Problem::LockFailed(error)),
    }
    // Readers and sharers both take the shared lock, but a reader relies on no process writing.
    let (mine, others) = match purpose {
        Purpose::Write => return Ok(()),
        Purpose::Read => (LockByte::Readers, LockByte::Sharers),
        Purpose::Share => (LockByte::Sharers, LockByte::Readers),
    };
    let locks = locks_of(file)?;
    locks.try_hold(LockKind::Shared, mine).map_err(Problem::LockFailed)?;
    if locks.is_held(others).map_err(Problem::LockFailed)? {
        Err(Problem::InUse(holder(file)))
    } else {
        Ok(())
    }
}

/// The locks of an open file description, which all handles to it share.
pub(crate) fn locks_of(file: &File) -> Result<FileLocks, Problem> {
    Ok(FileLocks::new(file.try_clone().map_err(|error| Problem::Os("lock", error))?))
}

/// Opens `file` again: copies of a handle would share its locks.
pub(crate) fn opened_anew(file: &File) -> Result<File, Problem> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(true).open(path).map_err(|error| Problem::Os("open", error))
}

/// The process that holds `file`, from the participant table or else from the kernel's list of
/// locks.
fn holder(file: &File) -> Option<Holder> {
    named_in_table(file).or_else(|| {
        let metadata = file.metadata().ok()?;
        // The list is read in pieces. If any lock is released in between, a later one can be
        // missing.
        let look = |_| locker(&metadata, &std::fs::read_to_string("/proc/locks").ok()?);
        let pid = (0..3).find_map(look)?;
        Some(Holder {
            pid,
            program: program_of(pid),
            stopped: is_stopped(pid),
            is_local: true,
            ..Holder::default()
        })
    })
}

fn named_in_table(file: &File) -> Option<Holder> {
    let layout = Layout::new(read_superblock(file).ok()?.superblock.geometry).ok()?;
    let mut table = vec![0; (layout.shared - layout.participants) as usize];
    file.read_exact_at(&mut table, layout.participants).ok()?;
    first_live(&table)
}

/// The process in `locks`, the text of /proc/locks, that holds a lock on the file of `metadata`.
fn locker(metadata: &std::fs::Metadata, locks: &str) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let mut locks = locks.lines().filter_map(KernelLock::parse);
    locks.find(|lock| lock.kind == "FLOCK" && lock.file == file && lock.pid.is_some())?.pid
}

/// The number of bytes of `file`, or of the device.
pub(crate) fn length(file: &File) -> Result<u64, Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the size of", e))?;
    if !metadata.file_type().is_char_device() {
        return Ok(metadata.len());
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let size = std::fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size"));
    size.ok().and_then(|text| text.trim().parse().ok()).ok_or(Problem::NotAFile)
}

/// Reads the superblock of `file`.
pub(crate) fn read_superblock(file: &File) -> Result<Found, Problem> {
    if is_device_file(file)? {
        // Devices cannot be read, only mapped.
        let len = length(file)? as usize;
        let copy = file.try_clone().map_err(|e| Problem::Os("map", e))?;
        let mapping = Mapping::file(copy, len, len, Protection::ReadOnly).map_err(Problem::Map)?;
        return superblock::load(&Region::new(Shm::new(mapping)));
    }
    let mut head = [0; HEAD_BYTES];
    let have = read_all(&mut head, |rest, at| file.read_at(rest, at))?;
    superblock::parse(&head[..have])
}

/// Reads from the start, a piece at a time, until `bytes` is full or the input ends. Returns the
/// number of bytes read.
fn read_all(
    bytes: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> Result<usize, Problem> {
    let mut have = 0;
    while have < bytes.len() {
        match read(&mut bytes[have..], have as u64) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Problem::Os("read", error)),
        }
    }
    Ok(have)
}

/// Allocates storage for holes in the first `size` bytes of `file`, so that no store can fail for
/// lack of it. For a file without holes, as pools are created, this costs one system call.
pub(crate) fn fill_holes(file: &File, size: u64) -> Result<(), Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the size of", e))?;
    if metadata.blocks().saturating_mul(512) >= size {
        return Ok(());
    }
    Mapping::allocate(file, size).map_err(Problem::Map)
}

/// Refuses to read holes for which tmpfs has no space: tmpfs allocates storage even on a load from
/// a hole, or faults.
pub(crate) fn can_read_holes(file: &File, size: u64) -> Result<(), Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the size of", e))?;
    let system = fstatfs(file).map_err(|e| Problem::Os("read the file system's size of", e.into()))?;
    let wanted = size.saturating_sub(metadata.blocks().saturating_mul(512));
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    let (all, free) = (system.f_blocks as u64, (system.f_bfree as u64).saturating_mul(system.f_bsize as u64));
    if wanted > free && all > 0 { Err(Problem::Map(MapError::NoSpace { wanted })) } else { Ok(()) }
}

/// A handle to the machine's file behind a new file. Both share their locks.
pub(crate) fn handle(file: &dyn StoredFile) -> Result<File, Problem> {
    let system = file.as_system().ok_or(Problem::NotAFile)?;
    system.try_clone().map_err(|e| Problem::Os("make", e))
}

/// Allocates storage for all bytes of a new file.
pub(crate) fn allocate(file: &dyn StoredFile, size: u64) -> Result<(), Problem> {
    file.allocate(size).map_err(|error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Problem::Map(MapError::NoSpace { wanted: size }),
        _ => Problem::Os("reserve space for", error),
    })
}

/// A random number for a unique temporary name.
pub(crate) fn unique() -> Result<u64, Problem> {
    #[allow(clippy::disallowed_methods, reason = "a unique name")]
    getrandom::u64().map_err(|e| Problem::Os("make", e.into()))
}

/// Converts an I/O error for `path` into the user's problem.
pub(crate) fn refusal(path: &Path, what: &'static str, error: io::Error) -> Problem {
    match error.kind() {
        ErrorKind::NotFound if directory_of(path).is_dir() => Problem::Missing,
        ErrorKind::NotFound | ErrorKind::NotADirectory => Problem::NoDirectory(directory_of(path).into()),
        ErrorKind::AlreadyExists => Problem::Exists,
        ErrorKind::IsADirectory => Problem::NotAFile,
        ErrorKind::PermissionDenied => Problem::Denied(error),
        ErrorKind::ReadOnlyFilesystem => Problem::ReadOnlyFileSystem,
        _ => Problem::Os(what, error),
    }
}

#[cfg(test)]
#[path = "tests/file.rs"]
mod tests;
