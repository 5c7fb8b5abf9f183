//! The contract between code that keeps data in files and the file system below.
//!
//! A file system promises little. Only the following may be relied upon:
//! - Bytes written to a file survive a power loss once [`StoredFile::sync`] has returned. Until
//!   then any part of them may survive.
//! - A new, changed or removed name survives once [`Files::sync_directory`] of its directory has
//!   returned; syncing the file does not do it. Until then any of these changes may survive without
//!   the others, but each one as a whole.
//! - Reads and writes may transfer less than asked for.
//! - Any call may fail. After a failed sync it is unknown what is durable, even if a later sync
//!   succeeds.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

/// What a rename does if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Fails with `AlreadyExists`.
    No,
    /// Replaces it atomically.
    Yes,
}

/// An open file.
pub trait StoredFile: Send + Sync {
    /// Reads bytes from `at` on into `buffer` and returns how many; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes bytes at `at` and returns how many.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Waits until everything written so far survives a power loss.
    fn sync(&self) -> io::Result<()>;
    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Truncates the file, or extends it with zeros.
    fn set_length(&self, bytes: u64) -> io::Result<()>;
    /// Makes the file at least `bytes` long, with storage for all of it, so that no write to it
    /// lacks space.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// The operating system's file, for mapping it into memory; `None` if there is none.
    fn as_system(&self) -> Option<&std::fs::File> {
        None
    }

    /// Writes all of `bytes` at `at`.
    fn write_all_at(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    at += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills `buffer` with the bytes from `at` on.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer = &mut buffer[read..];
                    at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file system. This is a handle; its clones refer to the same file system.
pub trait Files: Clone + Send + Sync + 'static {
    /// An open file.
    type File: StoredFile;

    /// Creates an empty file at `path`, accessible to its owner only. Fails with `AlreadyExists`.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Creates an empty file without a name in `directory`; it vanishes when closed. `None` if the
    /// file system does not support that.
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Self::File>>;
    /// Gives a file without a name the name `path`. Fails with `AlreadyExists`.
    fn name(&self, file: &Self::File, path: &Path) -> io::Result<()>;
    /// Opens the file at `path`.
    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Self::File>;
    /// Opens `path` for reading from its beginning: a file, or a pipe or device that can be read
    /// once. With its length, if known.
    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)>;
    /// Renames a file.
    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()>;
    /// Removes a name, and the file with its last name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;
    /// Whether `path` exists, as whatever kind of entry.
    fn is_taken(&self, path: &Path) -> io::Result<bool>;
    /// Waits until the names in `directory` survive a power loss.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
}

/// The directory that holds `path`.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
