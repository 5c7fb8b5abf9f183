//! Files of which few are open at a time, for a store that reads from more of them than the system
//! lets a process have open.
//!
//! A file that is opened for direct reads is closed when it was not read for a while and others
//! were, and is opened again by the next read. So its path has to lead to it as long as it is in
//! use. All other files stay open. A call for which no descriptor is free closes those first: they
//! are its reserve.

use quick_cache::sync::Cache;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_medium::files::{FileLock, Files, Purpose, Replace, StoredFile};

/// Times that a call is made for which no descriptor is free, while there are files to close:
/// another thread may take the one that came free.
const ATTEMPTS: u32 = 8;

/// The process has as many files open as it may.
pub(crate) const EMFILE: i32 = 24;
/// The system has as many files open as it may.
const ENFILE: i32 = 23;

/// Whether a call failed because no file can be opened now.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// A file system with few open files. Its clones share them.
#[derive(Clone)]
pub struct BoundedFiles(Arc<Open>);

struct Open {
    below: Arc<dyn Files>,
    files: Cache<u64, Arc<dyn StoredFile>>,
    most: u64,
    /// The number of the next file.
    next: AtomicU64,
}

impl BoundedFiles {
    /// The files of `below`, with about `most` open for direct reads, and one more for each thread
    /// that reads.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn new(below: impl Into<Arc<dyn Files>>, most: u64) -> Self {
        assert!(most > 0, "a file has to be open to be read");
        let files = Cache::new(usize::try_from(most).unwrap_or(usize::MAX));
        Self(Arc::new(Open { below: below.into(), files, most, next: AtomicU64::new(0) }))
    }
}

impl Open {
    /// Makes a call; if no descriptor is free for it, once more after others were closed.
    fn call<T>(&self, mut call: impl FnMut(&dyn Files) -> io::Result<T>) -> io::Result<T> {
        for _ in 1..ATTEMPTS {
            match call(&*self.below) {
                Err(error) if is_out_of_descriptors(&error) && !self.files.is_empty() => {
                    self.files.clear();
                }
                done => return done,
            }
        }
        call(&*self.below)
    }
}

/// What another file in the place of this one would not have: its length, and the system's numbers
/// of its device and of itself.
fn identity(file: &dyn StoredFile) -> io::Result<(u64, Option<(u64, u64)>)> {
    let system = file.as_system().map(std::fs::File::metadata).transpose()?;
    Ok((file.length()?, system.map(|data| (data.dev(), data.ino()))))
}

/// A file that is opened when it is read.
struct Reopened {
    open: Arc<Open>,
    number: u64,
    path: Box<Path>,
    identity: (u64, Option<(u64, u64)>),
    may_wait: bool,
}

impl Reopened {
    fn new(open: &Arc<Open>, path: &Path, file: Box<dyn StoredFile>) -> io::Result<Self> {
        let reopened = Self {
            number: open.next.fetch_add(1, Relaxed),
            path: path.into(),
            identity: identity(&*file)?,
            may_wait: file.may_wait(),
            open: Arc::clone(open),
        };
        open.files.insert(reopened.number, file.into());
        Ok(reopened)
    }

    fn file(&self) -> io::Result<Arc<dyn StoredFile>> {
        if let Some(file) = self.open.files.get(&self.number) {
            return Ok(file);
        }
        let file = self.open.call(|below| below.open(&self.path, Purpose::ReadDirect))?;
        if identity(&*file)? != self.identity {
            return Err(io::Error::new(ErrorKind::InvalidData, "another file lies in its place"));
        }
        let file: Arc<dyn StoredFile> = file.into();
        self.open.files.insert(self.number, Arc::clone(&file));
        Ok(file)
    }
}

impl Drop for Reopened {
    fn drop(&mut self) {
        self.open.files.remove(&self.number);
    }
}

/// A file that is open for reads takes no changes.
fn reads_only<T>() -> io::Result<T> {
    Err(ErrorKind::Unsupported.into())
}

impl StoredFile for Reopened {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file()?.read_at(buffer, at)
    }
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file()?.read_exact_at(buffer, at)
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.file()?.read_many(reads)
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.identity.0)
    }
    fn may_wait(&self) -> bool {
        self.may_wait
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        reads_only()
    }
    fn sync(&self) -> io::Result<()> {
        reads_only()
    }
    fn sync_data(&self) -> io::Result<()> {
        reads_only()
    }
    fn set_length(&self, _: u64) -> io::Result<()> {
        reads_only()
    }
    fn allocate(&self, _: u64) -> io::Result<()> {
        reads_only()
    }
    fn to_read(&self) -> Option<Arc<dyn StoredFile>> {
        // Without a descriptor, the read tells what is wrong.
        self.file().ok()
    }
}

impl From<BoundedFiles> for Arc<dyn Files> {
    fn from(files: BoundedFiles) -> Self {
        Arc::new(files)
    }
}

impl Files for BoundedFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.0.call(|below| below.create(path))
    }
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Box<dyn StoredFile>>> {
        self.0.call(|below| below.create_unnamed(directory))
    }
    fn name(&self, file: &dyn StoredFile, path: &Path) -> io::Result<()> {
        self.0.call(|below| below.name(file, path))
    }
    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Box<dyn StoredFile>> {
        let file = self.0.call(|below| below.open(path, purpose))?;
        match purpose {
            Purpose::ReadDirect => Ok(Box::new(Reopened::new(&self.0, path, file)?)),
            Purpose::Read | Purpose::Write => Ok(file),
        }
    }
    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        self.0.call(|below| below.stream(path))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.call(|below| below.create_directory(path))
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.call(|below| below.remove_directory(path))
    }
    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.0.call(|below| below.is_directory(path))
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.call(|below| below.link(from, to))
    }
    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.0.call(|below| below.lock(path))
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.0.call(|below| below.free_bytes(directory))
    }
    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        self.0.call(|below| below.rename(from, to, replace))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.call(|below| below.remove(path))
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.0.call(|below| below.list(directory))
    }
    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        self.0.call(|below| below.is_taken(path))
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.call(|below| below.sync_directory(directory))
    }
    fn boot(&self) -> Option<u64> {
        self.0.below.boot()
    }
    fn identify(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        self.0.below.identify(path)
    }
    fn outlasts_power(&self) -> bool {
        self.0.below.outlasts_power()
    }
    fn post_notice(&self, text: &str) -> bool {
        self.0.below.post_notice(text)
    }
    fn check(&self) -> Vec<String> {
        self.0.below.check()
    }
    fn most_open(&self) -> Option<u64> {
        Some(self.0.most)
    }
}

#[cfg(test)]
#[path = "tests/bounded.rs"]
mod tests;
