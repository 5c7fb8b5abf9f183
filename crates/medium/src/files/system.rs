//! The operating system's file system.

use super::{Files, Purpose, Replace, StoredFile};
use crate::{MapError, Mapping};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

impl StoredFile for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        Mapping::allocate(self, bytes).map_err(|error| match error {
            MapError::Os(_, error) => error,
            MapError::NoSpace { .. } => ErrorKind::StorageFull.into(),
            other => io::Error::other(other),
        })
    }
    fn as_system(&self) -> Option<&File> {
        Some(self)
    }
}

impl Files for SystemFiles {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
    }

    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<File>> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
            // Naming an unnamed file needs /proc.
            Ok(file) if Path::new("/proc/self/fd").exists() => Ok(Some(file.into())),
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn name(&self, file: &File, path: &Path) -> io::Result<()> {
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<File> {
        OpenOptions::new().read(true).write(purpose == Purpose::Write).open(path)
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
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
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
