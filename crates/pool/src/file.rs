//! The file that a pool lies in: opening it, holding it against others.

use crate::error::{Holder, Problem};
use crate::kernel_lock::KernelLock;
use crate::layout::Layout;
use crate::liveness::{FileLocks, LockByte, LockKind};
use crate::participants::{first_live, is_stopped, program_of};
use crate::superblock::{self, Found, HEAD_BYTES};
use rustix::fs::fstatfs;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use terrace_medium::files::{StoredFile, directory_of};
use terrace_medium::{MapError, MappedMedium, Mapping, Protection, Region, Shm};

/// What will be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Loads, while nobody stores.
    Read,
    /// Loads and stores, alone.
    Write,
    /// Loads and stores, together with others who do the same.
    Share,
}

/// Opens the file at `path`, which is one that a pool can lie in.
pub(crate) fn open(path: &Path, purpose: Purpose) -> Result<File, Problem> {
    let kind = path.metadata().map_err(|e| refusal(path, "open", e))?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(Problem::NotAFile);
    }
    OpenOptions::new()
        .read(true)
        .write(purpose != Purpose::Read)
        // A device that waits for its other end is none that a pool lies in.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| refusal(path, "open", e))
}

/// Whether `path` is a device, which cannot be made but only filled.
pub(crate) fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// Whether `file` is a device.
pub(crate) fn is_device_file(file: &File) -> Result<bool, Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the type of", e))?;
    Ok(metadata.file_type().is_char_device())
}

/// `size`, in whole blocks of the file system where those are larger than a page: on hugetlbfs.
pub(crate) fn whole_blocks(file: &File, size: u64) -> Result<u64, Problem> {
    const HUGETLBFS: u64 = 0x9584_58f6; // linux/magic.h
    let system = fstatfs(file).map_err(|e| Problem::Os("read the file system's type of", e.into()))?;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    let (kind, block) = (system.f_type as u64 & 0xffff_ffff, system.f_bsize as u64);
    Ok(if kind == HUGETLBFS { size.next_multiple_of(block) } else { size })
}

/// Holds `file` until it is closed: against everyone to write, against writers to read, against all but sharers to share. The kernel lets go when we die.
pub(crate) fn hold(file: &File, purpose: Purpose) -> Result<(), Problem> {
    let outcome = match purpose {
        Purpose::Write => file.try_lock(),
        Purpose::Read | Purpose::Share => file.try_lock_shared(),
    };
    match outcome {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Problem::InUse(holder(file))),
        Err(TryLockError::Error(error)) => return Err(Problem::NoLocks(error)),
    }
    // Of those that the lock lets in together: who reads relies on nobody writing.
    let (mine, others) = match purpose {
        Purpose::Write => return Ok(()),
        Purpose::Read => (LockByte::Readers, LockByte::Sharers),
        Purpose::Share => (LockByte::Sharers, LockByte::Readers),
    };
    let locks = locks_of(file)?;
    locks.try_hold(LockKind::Shared, mine).map_err(Problem::NoLocks)?;
    if locks.is_held(others).map_err(Problem::NoLocks)? { Err(Problem::InUse(holder(file))) } else { Ok(()) }
}

/// The locks of an open file. They belong to this opening of it, however many handles there are.
pub(crate) fn locks_of(file: &File) -> Result<FileLocks, Problem> {
    Ok(FileLocks::new(file.try_clone().map_err(|error| Problem::Os("lock", error))?))
}

/// `file`, opened once more: the copies of a handle have their locks in common.
pub(crate) fn opened_anew(file: &File) -> Result<File, Problem> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(true).open(path).map_err(|error| Problem::Os("open", error))
}

/// Who holds `file`: as the participant table names him, or else as the kernel's list of locks does.
fn holder(file: &File) -> Option<Holder> {
    named_in_table(file).or_else(|| {
        let metadata = file.metadata().ok()?;
        // It is read a piece at a time. Where a lock goes in between, anybody's, one that comes after it is left out.
        let look = |_| locker(&metadata, &std::fs::read_to_string("/proc/locks").ok()?);
        let pid = (0..3).find_map(look)?;
        Some(Holder {
            pid,
            program: program_of(pid),
            stopped: is_stopped(pid),
            is_here: true,
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

/// The process in `locks`, the text of /proc/locks, that has a lock of the file that `metadata` describes.
fn locker(metadata: &std::fs::Metadata, locks: &str) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let mut locks = locks.lines().filter_map(KernelLock::parse);
    locks.find(|lock| lock.kind == "FLOCK" && lock.file == file && lock.pid.is_some())?.pid
}

/// Bytes that `file` has, or the device below it.
pub(crate) fn length(file: &File) -> Result<u64, Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the size of", e))?;
    if !metadata.file_type().is_char_device() {
        return Ok(metadata.len());
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let size = std::fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size"));
    size.ok().and_then(|text| text.trim().parse().ok()).ok_or(Problem::NotAFile)
}

/// The superblock in `file`.
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

/// Reads from the start on, a piece at a time, until `bytes` are full or there is no more. Returns how many there are.
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

/// Gives holes in the first `size` bytes of `file` their storage, so that no store can fail for want of it. A file without holes,
/// as pools are made, costs one question to the system.
pub(crate) fn fill_holes(file: &File, size: u64) -> Result<(), Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the size of", e))?;
    if metadata.blocks().saturating_mul(512) >= size {
        return Ok(());
    }
    Mapping::allocate(file, size).map_err(Problem::Map)
}

/// Refuses to read holes that tmpfs has no room for: it gives even a load from one its storage, or faults.
pub(crate) fn can_read_holes(file: &File, size: u64) -> Result<(), Problem> {
    let metadata = file.metadata().map_err(|e| Problem::Os("read the size of", e))?;
    let system = fstatfs(file).map_err(|e| Problem::Os("read the file system's size of", e.into()))?;
    let wanted = size.saturating_sub(metadata.blocks().saturating_mul(512));
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    let (all, free) = (system.f_blocks as u64, (system.f_bfree as u64).saturating_mul(system.f_bsize as u64));
    if wanted > free && all > 0 { Err(Problem::Map(MapError::NoSpace { wanted })) } else { Ok(()) }
}

/// The machine's file that a new one is. A lock that is taken by it belongs to both.
pub(crate) fn handle(file: &impl StoredFile) -> Result<File, Problem> {
    let system = file.as_system().ok_or(Problem::NotAFile)?;
    system.try_clone().map_err(|e| Problem::Os("make", e))
}

/// Gives a new file storage for all of its bytes.
pub(crate) fn allocate(file: &impl StoredFile, size: u64) -> Result<(), Problem> {
    file.allocate(size).map_err(|error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Problem::Map(MapError::NoSpace { wanted: size }),
        _ => Problem::Os("reserve space for", error),
    })
}

/// A number that nobody else has, for a temporary name.
pub(crate) fn unique() -> Result<u64, Problem> {
    #[allow(clippy::disallowed_methods, reason = "a name that nobody else has")]
    getrandom::u64().map_err(|e| Problem::Os("make", e.into()))
}

/// What the refusal of `path` means to whoever named it.
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
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_locks_names_the_holder() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let line = |kind: &str, pid: &str| {
            format!("1: {kind}  ADVISORY  READ {pid} {major:02x}:{minor:02x}:{} 0 EOF\n", metadata.ino())
        };
        assert_eq!(locker(&metadata, &line("FLOCK", "42")), Some(42));
        assert_eq!(locker(&metadata, &line("POSIX", "42")), None);
        assert_eq!(locker(&metadata, &line("FLOCK", "-1")), None);
        assert_eq!(locker(&metadata, "1: FLOCK\n\nnonsense\n"), None);
        assert_eq!(locker(&metadata, "1: FLOCK ADVISORY WRITE 7 ff:ff:1 0 EOF\n"), None);
        let all = format!("{}{}", line("POSIX", "1"), line("FLOCK", "2"));
        assert_eq!(locker(&metadata, &all), Some(2));
    }

    #[test]
    fn a_device_is_told_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(
            is_device("/dev/null".as_ref()) && !is_device(file.path()) && !is_device("/nowhere".as_ref())
        );
        assert!(is_device_file(&File::open("/dev/null").unwrap()).unwrap());
        assert!(!is_device_file(file.as_file()).unwrap());
    }

    #[test]
    #[allow(clippy::print_stderr, reason = "a test that says what it could not look at")]
    fn only_on_huge_pages_a_size_is_a_multiple_of_these() {
        use rustix::fs::{MemfdFlags, memfd_create};
        // None of them is taken.
        let Ok(huge) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
            return eprintln!(
                "SKIPPED only_on_huge_pages_a_size_is_a_multiple_of_these: this kernel has none"
            );
        };
        let whole = whole_blocks(&huge.into(), 5).unwrap();
        assert!(whole.is_power_of_two() && whole >= 1 << 20, "{whole}");
        assert_eq!(whole_blocks(&tempfile::tempfile_in("/dev/shm").unwrap(), 5).unwrap(), 5);
    }

    #[test]
    fn temporary_names_differ() {
        let [one, other] = [unique().unwrap(), unique().unwrap()];
        assert_ne!(one, other);
    }

    #[test]
    fn refusal_names_os_error_or_missing_directory() {
        let directory = tempfile::tempdir().unwrap();
        let problem =
            |name: &str, kind: ErrorKind| refusal(&directory.path().join(name), "open", kind.into());
        assert!(matches!(problem("a", ErrorKind::NotFound), Problem::Missing));
        let none = directory.path().join("none");
        assert!(
            matches!(problem("none/a", ErrorKind::NotFound), Problem::NoDirectory(missing) if missing == none)
        );
        assert!(matches!(problem("a/b", ErrorKind::NotADirectory), Problem::NoDirectory(_)));
        assert!(matches!(problem("a", ErrorKind::AlreadyExists), Problem::Exists));
        assert!(matches!(problem("a", ErrorKind::IsADirectory), Problem::NotAFile));
        assert!(matches!(problem("a", ErrorKind::PermissionDenied), Problem::Denied(_)));
        assert!(matches!(problem("a", ErrorKind::ReadOnlyFilesystem), Problem::ReadOnlyFileSystem));
        assert!(matches!(problem("a", ErrorKind::OutOfMemory), Problem::Os("open", _)));
    }

    #[test]
    fn unreadable_file_is_no_pool_and_reading_ends() {
        let outcome = read_superblock(&File::open("/").unwrap());
        assert!(matches!(outcome, Err(Problem::Os("read", _))));
    }

    #[test]
    fn interrupted_read_continues() {
        let mut outcomes = [Ok(2), Err(ErrorKind::Interrupted), Ok(3), Ok(0)].into_iter();
        let mut asked = Vec::new();
        let mut bytes = [0; 9];
        let have = read_all(&mut bytes, |rest, at| {
            asked.push((at, rest.len()));
            rest[0] = 7;
            outcomes.next().unwrap().map_err(io::Error::from)
        });
        assert_eq!((have.unwrap(), asked), (5, vec![(0, 9), (2, 7), (2, 7), (5, 4)]));
        assert_eq!(bytes, [7, 0, 7, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn holder_without_table_is_found_by_its_kernel_lock() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        assert_eq!(holder(&file), None);
        // SAFETY: what the child calls may be called after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; it goes no further than the signal, and is killed if the test fails.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::flock(file.as_raw_fd(), libc::LOCK_EX);
                libc::raise(libc::SIGSTOP);
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: it waits for the child of above.
        unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED) };
        let found = holder(&file);
        // SAFETY: the child has not been waited for, so the number is its.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        let found = found.unwrap();
        assert_eq!((found.pid, found.stopped, found.is_here), (child as u32, true, true));
        assert!(!found.program.is_empty());
    }
}
