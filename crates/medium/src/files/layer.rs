//! The contract between what keeps data in files and the file system below.
//!
//! What a file system promises is little, and this is all that may be built on:
//! - What was written to a file is kept through a loss of power after [`StoredFile::sync`] has returned, not before; and until then any part of it may be.
//! - A name that was made, changed or removed is so for good after [`Files::sync_directory`] of its directory, not before; syncing the file does not
//!   do it. Until then any of these changes may be there without the others, but each as a whole.
//! - Reads and writes may do less than they were asked for.
//! - Any call may fail. After a sync that failed nobody knows what is kept, also after another one.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To read.
    Read,
    /// To read and to write.
    Write,
}

/// What a rename does where the name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It fails with `AlreadyExists`.
    No,
    /// It takes the name, at one instant.
    Yes,
}

/// An open file.
pub trait StoredFile: Send + Sync {
    /// Reads bytes from `at` on; 0 of them at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes bytes at `at`, and says how many of them.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Waits until all that was written is kept through a loss of power.
    fn sync(&self) -> io::Result<()>;
    /// Its bytes.
    fn length(&self) -> io::Result<u64>;
    /// Cuts it off, or adds zeros.
    fn set_length(&self, bytes: u64) -> io::Result<()>;
    /// Makes it at least so long, with storage for all of it, so that no write to it lacks any.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// The machine's file that this is, to be mapped into memory; `None` if there is none.
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

    /// Fills `buffer` from `at` on.
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

/// A file system. A handle; copies of it mean the same one.
pub trait Files: Clone + Send + Sync + 'static {
    /// An open file of it.
    type File: StoredFile;

    /// Makes an empty file called `path`, for its owner only. Fails with `AlreadyExists` if there is one.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Makes an empty file in `directory` that has no name and is gone when it is closed; `None` if the file system has none such.
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Self::File>>;
    /// Gives a file without a name one. Fails with `AlreadyExists` if it is taken.
    fn name(&self, file: &Self::File, path: &Path) -> io::Result<()>;
    /// Opens the file called `path`.
    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Self::File>;
    /// Reads what is called `path` from its beginning: a file, or anything else that can be read once. With its bytes, if they are known.
    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)>;
    /// Gives a file another name.
    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()>;
    /// Removes a file's name, and the file with its last one.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;
    /// Whether the name `path` is taken, whatever by.
    fn is_taken(&self, path: &Path) -> io::Result<bool>;
    /// Waits until the names in `directory` are kept through a loss of power.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
}

/// The directory that `path` lies in.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
