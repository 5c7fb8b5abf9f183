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
use terrace_medium::files::{Files, Purpose, Replace, StoredFile};

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
pub struct BoundedFiles<F: Files> {
    below: F,
    open: Arc<Open<F::File>>,
}

struct Open<T> {
    files: Cache<u64, Arc<T>>,
    most: u64,
    /// The number of the next file.
    next: AtomicU64,
}

impl<F: Files> Clone for BoundedFiles<F> {
    fn clone(&self) -> Self {
        Self { below: self.below.clone(), open: Arc::clone(&self.open) }
    }
}

impl<F: Files> BoundedFiles<F> {
    /// The files of `below`, with about `most` open for direct reads, and one more for each thread
    /// that reads.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn new(below: F, most: u64) -> Self {
        assert!(most > 0, "a file has to be open to be read");
        let files = Cache::new(usize::try_from(most).unwrap_or(usize::MAX));
        Self { below, open: Arc::new(Open { files, most, next: AtomicU64::new(0) }) }
    }

    /// Makes a call; if no descriptor is free for it, once more after others were closed.
    fn call<T>(&self, mut call: impl FnMut(&F) -> io::Result<T>) -> io::Result<T> {
        for _ in 1..ATTEMPTS {
            match call(&self.below) {
                Err(error) if is_out_of_descriptors(&error) && !self.open.files.is_empty() => {
                    self.open.files.clear();
                }
                done => return done,
            }
        }
        call(&self.below)
    }

    fn held(file: F::File) -> BoundedFile<F> {
        BoundedFile(Access::Held(file))
    }

    fn reopened(&self, path: &Path, file: F::File) -> io::Result<BoundedFile<F>> {
        let reopened = Reopened {
            number: self.open.next.fetch_add(1, Relaxed),
            path: path.into(),
            identity: identity(&file)?,
            may_wait: file.may_wait(),
            files: self.clone(),
        };
        self.open.files.insert(reopened.number, Arc::new(file));
        Ok(BoundedFile(Access::Reopened(reopened)))
    }
}

/// What another file in the place of this one would not have: its length, and the system's numbers
/// of its device and of itself.
fn identity(file: &impl StoredFile) -> io::Result<(u64, Option<(u64, u64)>)> {
    let system = file.as_system().map(std::fs::File::metadata).transpose()?;
    Ok((file.length()?, system.map(|data| (data.dev(), data.ino()))))
}

/// An open file, or one that is opened when it is read.
pub struct BoundedFile<F: Files>(Access<F>);

enum Access<F: Files> {
    Held(F::File),
    Reopened(Reopened<F>),
}

struct Reopened<F: Files> {
    files: BoundedFiles<F>,
    number: u64,
    path: Box<Path>,
    identity: (u64, Option<(u64, u64)>),
    may_wait: bool,
}

impl<F: Files> Reopened<F> {
    fn file(&self) -> io::Result<Arc<F::File>> {
        if let Some(file) = self.files.open.files.get(&self.number) {
            return Ok(file);
        }
        let file = self.files.call(|below| below.open(&self.path, Purpose::ReadDirect))?;
        if identity(&file)? != self.identity {
            return Err(io::Error::new(ErrorKind::InvalidData, "another file lies in its place"));
        }
        let file = Arc::new(file);
        self.files.open.files.insert(self.number, Arc::clone(&file));
        Ok(file)
    }
}

impl<F: Files> Drop for Reopened<F> {
    fn drop(&mut self) {
        self.files.open.files.remove(&self.number);
    }
}

impl<F: Files> BoundedFile<F> {
    /// The file, which stays open.
    fn own(&self) -> io::Result<&F::File> {
        match &self.0 {
            Access::Held(file) => Ok(file),
            Access::Reopened(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    fn read<T>(&self, read: impl FnOnce(&F::File) -> io::Result<T>) -> io::Result<T> {
        match &self.0 {
            Access::Held(file) => read(file),
            Access::Reopened(reopened) => read(&*reopened.file()?),
        }
    }
}

impl<F: Files> StoredFile for BoundedFile<F> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read(|file| file.read_at(buffer, at))
    }
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read(|file| file.read_exact_at(buffer, at))
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.read(|file| file.read_many(reads))
    }
    fn length(&self) -> io::Result<u64> {
        match &self.0 {
            Access::Held(file) => file.length(),
            Access::Reopened(reopened) => Ok(reopened.identity.0),
        }
    }
    fn may_wait(&self) -> bool {
        match &self.0 {
            Access::Held(file) => file.may_wait(),
            Access::Reopened(reopened) => reopened.may_wait,
        }
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.own()?.write_at(bytes, at)
    }
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.own()?.write_all_at(bytes, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.own()?.sync()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.own()?.sync_data()
    }
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.own()?.set_length(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.own()?.allocate(bytes)
    }
    fn expect_small_writes(&self, bytes: u64) {
        if let Ok(file) = self.own() {
            file.expect_small_writes(bytes);
        }
    }
    fn as_system(&self) -> Option<&std::fs::File> {
        self.own().ok()?.as_system()
    }
    fn to_read(&self) -> Option<Arc<dyn StoredFile>> {
        match &self.0 {
            Access::Held(_) => None,
            // Without a descriptor, the read tells what is wrong.
            Access::Reopened(reopened) => Some(reopened.file().ok()?),
        }
    }
    fn forget(&self) {
        if let Ok(file) = self.own() {
            file.forget();
        }
    }
}

impl<F: Files> Files for BoundedFiles<F> {
    type File = BoundedFile<F>;
    type Lock = F::Lock;

    fn create(&self, path: &Path) -> io::Result<Self::File> {
        self.call(|below| below.create(path)).map(Self::held)
    }
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Self::File>> {
        Ok(self.call(|below| below.create_unnamed(directory))?.map(Self::held))
    }
    fn name(&self, file: &Self::File, path: &Path) -> io::Result<()> {
        let file = file.own()?;
        self.call(|below| below.name(file, path))
    }
    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Self::File> {
        let file = self.call(|below| below.open(path, purpose))?;
        match purpose {
            Purpose::ReadDirect => self.reopened(path, file),
            Purpose::Read | Purpose::Write => Ok(Self::held(file)),
        }
    }
    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        self.call(|below| below.stream(path))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|below| below.create_directory(path))
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|below| below.remove_directory(path))
    }
    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.call(|below| below.is_directory(path))
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|below| below.link(from, to))
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Self::Lock>> {
        self.call(|below| below.lock(path))
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.call(|below| below.free_bytes(directory))
    }
    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        self.call(|below| below.rename(from, to, replace))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|below| below.remove(path))
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.call(|below| below.list(directory))
    }
    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        self.call(|below| below.is_taken(path))
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.call(|below| below.sync_directory(directory))
    }
    fn boot(&self) -> Option<u64> {
        self.below.boot()
    }
    fn identify(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        self.below.identify(path)
    }
    fn outlasts_power(&self) -> bool {
        self.below.outlasts_power()
    }
    fn post_notice(&self, text: &str) -> bool {
        self.below.post_notice(text)
    }
    fn check(&self) -> Vec<String> {
        self.below.check()
    }
    fn most_open(&self) -> Option<u64> {
        Some(self.open.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_medium::files::SystemFiles;

    #[test]
    fn ring_reads_the_file_that_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let files = BoundedFiles::new(SystemFiles, 1);
        let open = |name: &str| {
            let path = directory.path().join(name);
            drop(files.create(&path).unwrap());
            files.open(&path, Purpose::ReadDirect).unwrap()
        };
        // The second one closes the first one.
        for file in [open("first"), open("second")] {
            let read = file.to_read().expect("another file");
            assert!(read.as_system().is_some(), "the ring reads no file of the system");
        }
        assert!(files.open(&directory.path().join("first"), Purpose::Read).unwrap().to_read().is_none());
    }
}
