//! A file system whose syncs of data wait at a gate and are counted. It remembers all syncs.

use std::any::Any;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use terrace_medium::files::{FileLock, Files, Purpose, Replace, StoredFile};

#[derive(Default)]
struct Gate {
    /// Whether syncs wait, and how many wait or have passed.
    state: Mutex<(bool, u64)>,
    changed: Condvar,
    kinds: Mutex<Vec<SyncOf>>,
    /// Times that storage was asked for.
    allocations: AtomicU64,
}

/// What a sync is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncOf {
    File,
    Data,
    Directory,
}

#[derive(Clone)]
pub(crate) struct Gated {
    below: Arc<dyn Files>,
    gate: Arc<Gate>,
}

impl Gated {
    pub(crate) fn new(below: impl Into<Arc<dyn Files>>) -> Self {
        Self { below: below.into(), gate: Arc::default() }
    }

    pub(crate) fn close(&self) {
        self.gate.state.lock().unwrap().0 = true;
    }

    pub(crate) fn open_gate(&self) {
        self.gate.state.lock().unwrap().0 = false;
        self.gate.changed.notify_all();
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.gate.state.lock().unwrap().1
    }

    /// All syncs so far.
    pub(crate) fn kinds(&self) -> Vec<SyncOf> {
        self.gate.kinds.lock().unwrap().clone()
    }

    pub(crate) fn allocations(&self) -> u64 {
        self.gate.allocations.load(Relaxed)
    }

    /// Waits until `count` syncs have come to the gate.
    pub(crate) fn wait_for(&self, count: u64) {
        let state = self.gate.state.lock().unwrap();
        drop(self.gate.changed.wait_while(state, |state| state.1 < count).unwrap());
    }

    fn wrap(&self, below: Box<dyn StoredFile>) -> Box<dyn StoredFile> {
        Box::new(GatedFile { below, gate: self.gate.clone() })
    }
}

struct GatedFile {
    below: Box<dyn StoredFile>,
    gate: Arc<Gate>,
}

impl StoredFile for GatedFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.below.read_at(buffer, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.below.write_at(bytes, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.gate.kinds.lock().unwrap().push(SyncOf::File);
        self.below.sync()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.gate.kinds.lock().unwrap().push(SyncOf::Data);
        let mut state = self.gate.state.lock().unwrap();
        state.1 += 1;
        self.gate.changed.notify_all();
        drop(self.gate.changed.wait_while(state, |state| state.0).unwrap());
        self.below.sync_data()
    }
    fn length(&self) -> io::Result<u64> {
        self.below.length()
    }
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.below.set_length(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.gate.allocations.fetch_add(1, Relaxed);
        self.below.allocate(bytes)
    }
}

impl From<Gated> for Arc<dyn Files> {
    fn from(files: Gated) -> Self {
        Arc::new(files)
    }
}

impl Files for Gated {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.below.create(path).map(|file| self.wrap(file))
    }
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Box<dyn StoredFile>>> {
        Ok(self.below.create_unnamed(directory)?.map(|file| self.wrap(file)))
    }
    fn name(&self, file: &dyn StoredFile, path: &Path) -> io::Result<()> {
        let file = (file as &dyn Any).downcast_ref::<GatedFile>().expect("a file of this file system");
        self.below.name(&*file.below, path)
    }
    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Box<dyn StoredFile>> {
        self.below.open(path, purpose).map(|file| self.wrap(file))
    }
    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        self.below.stream(path)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.below.create_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.below.remove_directory(path)
    }
    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.below.is_directory(path)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.link(from, to)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.below.lock(path)
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.below.free_bytes(directory)
    }
    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        self.below.rename(from, to, replace)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.below.list(directory)
    }
    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        self.below.is_taken(path)
    }
    fn boot(&self) -> Option<u64> {
        self.below.boot()
    }
    fn identify(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        self.below.identify(path)
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.gate.kinds.lock().unwrap().push(SyncOf::Directory);
        self.below.sync_directory(directory)
    }
}
