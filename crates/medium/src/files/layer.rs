//! The contract between code that keeps data in files and the file system below.
//!
//! A file system promises little. Only the following may be relied upon:
//! - Bytes written to a file survive a power loss once [`StoredFile::sync`] or
//!   [`StoredFile::sync_data`] has returned. Until then any part of them may survive.
//! - A new, changed or removed name survives once [`Files::sync_directory`] of its directory has
//!   returned; syncing the file does not do it. Until then any of these changes may survive without
//!   the others, but each one as a whole. A directory is a name in its parent: a new one, with all
//!   names in it, is durable once the parent is synced as well.
//! - Reads and writes may transfer less than asked for.
//! - Any call may fail. After a failed sync it is unknown what is durable, even if a later sync
//!   succeeds: the kernel may have dropped the bytes that it could not write, and reads may show
//!   them all the same until the power loss.

use std::any::Any;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading.
    Read,
    /// Reading past the page cache where the file system can; elsewhere as [`Purpose::Read`]. Reads
    /// of any offset and length give the same bytes as a plain read. Those of whole blocks of
    /// [`DIRECT_BLOCK`] bytes into memory aligned to them are not copied.
    ReadDirect,
    /// Reading and writing.
    Write,
}

/// What offsets, lengths and memory are multiples of in a direct read that needs no copy.
pub const DIRECT_BLOCK: usize = 4096;

/// What a rename does if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Fails with `AlreadyExists`.
    No,
    /// Replaces it atomically.
    Yes,
}

/// An open file.
pub trait StoredFile: Any + Send + Sync {
    /// Reads bytes from `at` on into `buffer` and returns how many; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes bytes at `at` and returns how many.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Waits until everything written so far survives a power loss.
    fn sync(&self) -> io::Result<()>;
    /// Waits until the bytes written so far survive a power loss, and the length as far as reading
    /// them needs it. It need not keep anything else, such as a shorter length or the time of the
    /// last change; so it is cheaper than [`StoredFile::sync`] in space that is allocated already.
    fn sync_data(&self) -> io::Result<()>;
    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Truncates the file, or extends it with zeros.
    fn set_length(&self, bytes: u64) -> io::Result<()>;
    /// Makes the file at least `bytes` long, with storage for all of it, so that no write to it
    /// lacks space. After an error it is as long as before, and has no storage behind its end.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Tells that many small writes to the first `bytes` bytes follow, which have storage. The file
    /// may make these cheaper. They have the same effect. Until they are over, with 0, a write may
    /// fail if something else has made the file shorter.
    fn expect_small_writes(&self, bytes: u64) {
        let _ = bytes;
    }

    /// The operating system's file, for mapping it into memory; `None` if there is none.
    fn as_system(&self) -> Option<&std::fs::File> {
        None
    }

    /// The file that reads are made of, if it is not this one. It stays open while it is held.
    fn to_read(&self) -> Option<Arc<dyn StoredFile>> {
        None
    }

    /// Whether a read may wait for a device. If not, it is as fast as memory.
    fn may_wait(&self) -> bool {
        true
    }

    /// Tells that the page cache need not keep this file's bytes. It may keep them all the same,
    /// and always keeps those that are not synced. Later reads give the same bytes.
    fn forget(&self) {}

    /// Fills each buffer with the bytes from its offset on. After an error the content of all
    /// buffers is unspecified.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(at, buffer)| self.read_exact_at(buffer, *at))
    }

    /// Writes all of `bytes` at `at`. After an error, any part of them may have been written.
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

/// A lock on a file, held until it is dropped.
pub type FileLock = Box<dyn Any + Send + Sync>;

/// A file system. Files that it has opened are given to no other one.
pub trait Files: Send + Sync + 'static {
    /// Creates an empty file at `path`, accessible to its owner only. Fails with `AlreadyExists`.
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>>;
    /// Creates an empty file without a name in `directory`; it vanishes when closed. `None` if the
    /// file system does not support that.
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Box<dyn StoredFile>>>;
    /// Gives a file without a name the name `path`. Fails with `AlreadyExists`.
    fn name(&self, file: &dyn StoredFile, path: &Path) -> io::Result<()>;
    /// Opens the file at `path`.
    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Box<dyn StoredFile>>;
    /// Opens `path` for reading from its beginning: a file, or a pipe or device that can be read
    /// once. With its length, if known.
    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)>;
    /// Creates an empty directory at `path`, accessible to its owner only. Fails with
    /// `AlreadyExists` if an entry of any kind has this name. The directory survives a power loss
    /// once its parent is synced.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory. Fails with `DirectoryNotEmpty` if it holds a name.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Whether `path` is a directory, or a symbolic link to one. `false` if it does not exist.
    fn is_directory(&self, path: &Path) -> io::Result<bool>;
    /// Gives the file at `from` a second name, on the same file system (a hard link): both names
    /// lead to the same bytes, which stay until the last name is removed. Fails with
    /// `AlreadyExists`. The new name survives a power loss once its directory is synced.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Locks the existing file at `path` against all other callers of this function, in this
    /// process and in others, until the returned lock is dropped or this process ends, however it
    /// ends. `None` if another holder has the lock. The caller must be allowed to write to the
    /// file. The lock does not prevent reads, writes, renames or the removal of the file.
    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>>;
    /// How many bytes an ordinary user can still write to the file system of `directory`. An
    /// estimate: others write too, and the file system needs some bytes for itself.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
    /// Renames a file or a directory. The new name replaces a file or an empty directory if
    /// `replace` says so. If both names belong to the same file, it does nothing.
    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()>;
    /// Removes a name of a file, and the file with its last name. Fails for a directory.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;
    /// Whether `path` exists, as whatever kind of entry.
    fn is_taken(&self, path: &Path) -> io::Result<bool>;
    /// Waits until the names in `directory` survive a power loss.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Whether what was synced survives a power loss, as far as this program decides it; otherwise
    /// it survives the end of the process only.
    fn outlasts_power(&self) -> bool {
        true
    }

    /// A number for this start of the machine. Bytes that a process wrote earlier under the same
    /// number are as it wrote them, synced or not. `None` if that cannot be told.
    fn boot(&self) -> Option<u64>;

    /// What identifies the file or directory at `path`, whatever its name; another one has other
    /// numbers. `None` if the file system has no such.
    fn identify(&self, path: &Path) -> io::Result<Option<(u64, u64)>>;

    /// Posts a text for processes that cannot open the file system while this one has it. Returns
    /// whether there is a place for such texts, and it was written.
    fn post_notice(&self, text: &str) -> bool {
        let _ = text;
        false
    }

    /// How many files it keeps open for direct reads, about, at most; `None` if all that are used.
    fn most_open(&self) -> Option<u64> {
        None
    }

    /// What is wrong with the file system itself, as far as it can tell.
    fn check(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The directory that holds `path`.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
