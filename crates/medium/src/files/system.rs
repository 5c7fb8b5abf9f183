//! The operating system's file system.

use super::mapped::Mapped;
use super::{FileLock, Files, Purpose, Replace, StoredFile, direct};
use crate::{MapError, Mapping};
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::fs::{fadvise, linkat, renameat_with, statvfs};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

/// An open file of the operating system.
#[derive(Debug)]
pub struct SystemFile {
    file: File,
    /// Whether reads go past the page cache, and so must be aligned.
    direct: AtomicBool,
    /// For small writes, once they are expected.
    mapped: RwLock<Option<Mapped>>,
    /// Bytes that the file has at least while writes to them are expected.
    expected: AtomicU64,
}

impl From<File> for SystemFile {
    fn from(file: File) -> Self {
        Self { file, direct: AtomicBool::new(false), mapped: RwLock::default(), expected: AtomicU64::new(0) }
    }
}

impl SystemFile {
    /// Opens a file for reads past the page cache, or for plain ones if the file system refuses.
    fn open_direct(path: &Path) -> io::Result<Self> {
        match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path) {
            Ok(file) => Ok(Self { direct: AtomicBool::new(true), ..file.into() }),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(File::open(path)?.into()),
            Err(error) => Err(error),
        }
    }

    /// Makes the file at least `bytes` long by `allocate`, or leaves it as long as it is: ext4
    /// keeps what it could get before it ran out of room, which may be all that was free.
    fn allocate_by(&self, bytes: u64, allocate: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let before = self.length()?;
        let allocated = allocate(&self.file);
        if allocated.is_err() && before < bytes {
            // The error to tell is that of the allocation.
            let _ = self.set_length(before);
        }
        allocated
    }

    /// Fails if the file is shorter than expected: a write behind its end would make it longer
    /// again, and hide that somebody has cut it. A store to the mapping finds out by itself.
    fn check_length(&self) -> io::Result<()> {
        let expected = self.expected.load(Relaxed);
        let length = if expected > 0 { self.file.metadata()?.len() } else { 0 };
        if length >= expected {
            return Ok(());
        }
        Err(io::Error::other(format!("it was cut short to {length} bytes while it was in use")))
    }

    fn set_mapped(&self, mapped: Option<Mapped>) {
        *self.mapped.write().unwrap_or_else(PoisonError::into_inner) = mapped;
    }
}

impl StoredFile for SystemFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        if self.direct.load(Relaxed) {
            if let Some(read) = direct::read_at(&self.file, buffer, at)? {
                return Ok(read);
            }
            direct::give_up(&self.file)?;
            self.direct.store(false, Relaxed);
        }
        self.file.read_at(buffer, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let mapped = self.mapped.read().unwrap_or_else(PoisonError::into_inner);
        if mapped.as_ref().is_some_and(|mapped| mapped.write_at(bytes, at)) {
            return Ok(bytes.len());
        }
        self.check_length()?;
        self.file.write_at(bytes, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        // Stores behind the end of a file are not possible.
        self.expect_small_writes(0);
        self.file.set_len(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.allocate_by(bytes, |file| {
            Mapping::allocate(file, bytes).map_err(|error| match error {
                MapError::Os(_, error) => error,
                MapError::NoSpace { .. } => ErrorKind::StorageFull.into(),
                other => io::Error::other(other),
            })
        })
    }
    fn expect_small_writes(&self, bytes: u64) {
        self.expected.store(bytes, Relaxed);
        self.set_mapped((bytes > 0).then(|| Mapped::new(&self.file, bytes)).flatten());
    }
    fn forget(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }
    fn as_system(&self) -> Option<&File> {
        Some(&self.file)
    }
}

impl From<SystemFiles> for Arc<dyn Files> {
    fn from(files: SystemFiles) -> Self {
        Arc::new(files)
    }
}

impl Files for SystemFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(SystemFile::from(file)))
    }

    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Box<dyn StoredFile>>> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
            // Naming an unnamed file needs /proc.
            Ok(file) if Path::new("/proc/self/fd").exists() => {
                Ok(Some(Box::new(SystemFile::from(File::from(file)))))
            }
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn name(&self, file: &dyn StoredFile, path: &Path) -> io::Result<()> {
        let file = file.as_system().expect("a file of this file system");
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(match purpose {
            Purpose::Read => SystemFile::from(File::open(path)?),
            Purpose::ReadDirect => SystemFile::open_direct(path)?,
            Purpose::Write => OpenOptions::new().read(true).write(true).open(path)?.into(),
        }))
    }

    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        let length = metadata.is_file().then_some(metadata.len());
        Ok((Box::new(file), length))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        match path.metadata() {
            Ok(metadata) => Ok(metadata.is_dir()),
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        // A handle of its own: handles that are copies of each other share a lock. Network file
        // systems grant an exclusive lock only to a handle that may write.
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(SystemLock { file, taken_by: std::process::id() }))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let system = statvfs(directory)?;
        if system.f_blocks == 0 {
            // It does not tell.
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        match replace {
            Replace::Yes => fs::rename(from, to),
            Replace::No => Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        match path.symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn boot(&self) -> Option<u64> {
        // Both halves, so that 64 bits are as good as its 122 random ones.
        crate::boot_id().map(|id| id as u64 ^ (id >> 64) as u64)
    }

    fn identify(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        let metadata = path.metadata()?;
        Ok(Some((metadata.dev(), metadata.ino())))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let directory = File::open(directory)?;
        match directory.sync_all() {
            // A file system that cannot sync directories has nothing to wait for.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }
}

/// A lock of a file, held until this is dropped.
///
/// A process that is just being started holds a copy of the handle until it runs its program, so
/// that closing the handle may not suffice. A drop unlocks, except in a forked child: the lock is
/// its parent's.
pub struct SystemLock {
    file: File,
    taken_by: u32,
}

impl Drop for SystemLock {
    fn drop(&mut self) {
        if self.taken_by == std::process::id() {
            // A failure only leaves the lock until the last copy of the handle is closed.
            let _ = self.file.unlock();
        }
    }
}

/// Whether the error says that a path leads to nothing.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_without_room_leaves_the_length() {
        let file = SystemFile::from(tempfile::tempfile_in("/dev/shm").unwrap());
        file.write_all_at(b"before", 0).unwrap();
        // What ext4 does.
        let part = |file: &File| {
            file.set_len(1 << 19)?;
            Err(ErrorKind::StorageFull.into())
        };
        let kind = file.allocate_by(1 << 20, part).map_err(|error| error.kind());
        assert_eq!((kind, file.length().unwrap()), (Err(ErrorKind::StorageFull), 6));
        // A shorter file was not asked for.
        assert!(file.allocate_by(3, |_| Err(ErrorKind::StorageFull.into())).is_err());
        assert_eq!(file.length().unwrap(), 6);
    }
}
