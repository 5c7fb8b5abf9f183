//! A file system with injected failures, and one whose calls are watched.

use super::states::draws;
use std::any::Any;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use terrace_medium::files::{FileLock, Files, Purpose, Replace, StoredFile};

/// The error of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO: a device error.
    Device,
    /// ENOSPC: no space left.
    Full,
    /// EMFILE: too many files are open.
    Descriptors,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Device, Self::Full, Self::Descriptors];

    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Device => 5,
            Self::Full => 28,
            Self::Descriptors => 24,
        })
    }
}

/// What a call does to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Changes no content and no name.
    Read,
    /// Changes the bytes or the length of a file.
    Write,
    /// Syncs a file.
    Sync,
    /// Syncs a directory.
    SyncDirectory,
    /// Gives a file or a directory a name.
    Name,
    /// Renames a file or a directory.
    Rename,
    /// Takes a name away.
    Remove,
}

/// A call that is about to be done.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    /// What it does.
    pub kind: CallKind,
    /// The path of the file or directory; of an open file, the path by which it was opened.
    pub path: &'c Path,
}

type Draws = Box<dyn FnMut(u64) -> u64 + Send>;
type Watcher = Box<dyn Fn(Call<'_>) + Send + Sync>;

struct Plan {
    calls: AtomicU64,
    fails: Option<(u64, Fault)>,
    /// Random lengths of short reads and writes; `None` if they are complete.
    short: Option<Mutex<Draws>>,
    watcher: Option<Watcher>,
    /// Held by each open file, and how many of them there may be.
    open: Arc<()>,
    most_open: usize,
}

impl Plan {
    fn failing(fails: Option<(u64, Fault)>) -> Self {
        let (calls, open) = (AtomicU64::new(0), Arc::default());
        Self { calls, fails, short: None, watcher: None, open, most_open: usize::MAX }
    }

    /// Fails with EMFILE if as many files are open as may be.
    fn descriptor(&self) -> io::Result<()> {
        match Arc::strong_count(&self.open) - 1 < self.most_open {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(24)),
        }
    }

    /// Counts a call, and fails the chosen one.
    fn call(&self, kind: CallKind, path: &Path) -> io::Result<()> {
        let nth = self.calls.fetch_add(1, Relaxed);
        self.watcher.iter().for_each(|watcher| watcher(Call { kind, path }));
        match self.fails {
            Some((fails, fault)) if fails == nth => Err(fault.error()),
            _ => Ok(()),
        }
    }

    /// How many of `bytes` are read or written: at least one if there is any.
    fn part(&self, bytes: usize) -> usize {
        let Some(short) = &self.short else { return bytes };
        let mut draw = short.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Half of them are very short, so that there are many calls.
        let most = if draw(2) == 0 { bytes.min(64) } else { bytes };
        if bytes <= 1 { bytes } else { 1 + draw(most as u64) as usize }
    }
}

/// A wrapper of another file system that fails the nth call, and makes reads and writes short.
#[derive(Clone)]
pub struct Faulty {
    below: Arc<dyn Files>,
    plan: Arc<Plan>,
    /// Whether unnamed files are passed on to the file system below.
    unnamed: bool,
    /// Whether it tells the machine's start.
    boot: bool,
}

impl Faulty {
    /// Counts calls and forwards all of them.
    pub fn counting(below: impl Into<Arc<dyn Files>>) -> Self {
        Self::with(below.into(), None)
    }

    /// Fails call number `nth`, from 0 on, but not those after it.
    pub fn failing(below: impl Into<Arc<dyn Files>>, nth: u64, fault: Fault) -> Self {
        Self::with(below.into(), Some((nth, fault)))
    }

    /// Hands each call to `watcher` before it is done.
    pub fn watched(
        below: impl Into<Arc<dyn Files>>,
        watcher: impl Fn(Call<'_>) + Send + Sync + 'static,
    ) -> Self {
        let plan = Plan { watcher: Some(Box::new(watcher)), ..Plan::failing(None) };
        Self { below: below.into(), plan: Arc::new(plan), unnamed: true, boot: true }
    }

    /// Fails each call that needs a file descriptor while `most` files are open.
    pub fn limited(below: impl Into<Arc<dyn Files>>, most: usize) -> Self {
        let plan = Plan { most_open: most, ..Plan::failing(None) };
        Self { below: below.into(), plan: Arc::new(plan), unnamed: true, boot: true }
    }

    /// Number of open files.
    pub fn open_files(&self) -> usize {
        Arc::strong_count(&self.plan.open) - 1
    }

    /// As this one, but every read and write handles only a random part.
    pub fn short(self, seed: u64) -> Self {
        let short = Some(Mutex::new(Box::new(draws(seed)) as Draws));
        let plan = Plan { short, ..Plan::failing(self.plan.fails) };
        Self { plan: Arc::new(plan), ..self }
    }

    /// As this one, but without unnamed files.
    pub fn without_unnamed_files(self) -> Self {
        Self { unnamed: false, ..self }
    }

    /// As this one, but nothing tells the machine's start.
    pub fn without_boot(self) -> Self {
        Self { boot: false, ..self }
    }

    fn with(below: Arc<dyn Files>, fails: Option<(u64, Fault)>) -> Self {
        Self { below, plan: Arc::new(Plan::failing(fails)), unnamed: true, boot: true }
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.plan.calls.load(Relaxed)
    }

    fn wrap(&self, below: Box<dyn StoredFile>, path: &Path) -> Box<dyn StoredFile> {
        Box::new(FaultyFile {
            below,
            plan: self.plan.clone(),
            path: path.into(),
            _open: self.plan.open.clone(),
        })
    }
}

impl Files for Faulty {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.plan.call(CallKind::Name, path)?;
        self.plan.descriptor()?;
        self.below.create(path).map(|file| self.wrap(file, path))
    }
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Box<dyn StoredFile>>> {
        self.plan.call(CallKind::Read, directory)?;
        self.plan.descriptor()?;
        if !self.unnamed {
            return Ok(None);
        }
        Ok(self.below.create_unnamed(directory)?.map(|file| self.wrap(file, directory)))
    }
    fn name(&self, file: &dyn StoredFile, path: &Path) -> io::Result<()> {
        self.plan.call(CallKind::Name, path)?;
        let file = (file as &dyn Any).downcast_ref::<FaultyFile>().expect("a file of this file system");
        self.below.name(&*file.below, path)
    }
    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Box<dyn StoredFile>> {
        self.plan.call(CallKind::Read, path)?;
        self.plan.descriptor()?;
        self.below.open(path, purpose).map(|file| self.wrap(file, path))
    }
    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        self.plan.call(CallKind::Read, path)?;
        self.plan.descriptor()?;
        let (below, length) = self.below.stream(path)?;
        Ok((Box::new(FaultyStream { below, plan: self.plan.clone(), path: path.into() }), length))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.plan.call(CallKind::Name, path)?;
        self.below.create_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.plan.call(CallKind::Remove, path)?;
        self.below.remove_directory(path)
    }
    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.plan.call(CallKind::Read, path)?;
        self.below.is_directory(path)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plan.call(CallKind::Name, to)?;
        self.below.link(from, to)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.plan.call(CallKind::Read, path)?;
        self.below.lock(path)
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.plan.call(CallKind::Read, directory)?;
        self.below.free_bytes(directory)
    }
    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        self.plan.call(CallKind::Rename, to)?;
        self.below.rename(from, to, replace)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.plan.call(CallKind::Remove, path)?;
        self.below.remove(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.plan.call(CallKind::Read, directory)?;
        self.plan.descriptor()?;
        self.below.list(directory)
    }
    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        self.plan.call(CallKind::Read, path)?;
        self.below.is_taken(path)
    }
    fn outlasts_power(&self) -> bool {
        self.below.outlasts_power()
    }
    fn boot(&self) -> Option<u64> {
        // It cannot fail, so it is not counted.
        self.below.boot().filter(|_| self.boot)
    }
    fn identify(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        self.plan.call(CallKind::Read, path)?;
        self.below.identify(path)
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.plan.call(CallKind::SyncDirectory, directory)?;
        self.plan.descriptor()?;
        self.below.sync_directory(directory)
    }
    fn check(&self) -> Vec<String> {
        self.below.check()
    }
}

impl From<Faulty> for Arc<dyn Files> {
    fn from(files: Faulty) -> Self {
        Arc::new(files)
    }
}

/// An open file of a [`Faulty`] file system.
struct FaultyFile {
    below: Box<dyn StoredFile>,
    plan: Arc<Plan>,
    path: Box<Path>,
    _open: Arc<()>,
}

impl StoredFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.plan.call(CallKind::Read, &self.path)?;
        let part = self.plan.part(buffer.len());
        self.below.read_at(&mut buffer[..part], at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.plan.call(CallKind::Write, &self.path)?;
        self.below.write_at(&bytes[..self.plan.part(bytes.len())], at)
    }
    fn sync(&self) -> io::Result<()> {
        self.plan.call(CallKind::Sync, &self.path)?;
        self.below.sync()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.plan.call(CallKind::Sync, &self.path)?;
        self.below.sync_data()
    }
    fn length(&self) -> io::Result<u64> {
        self.plan.call(CallKind::Read, &self.path)?;
        self.below.length()
    }
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.plan.call(CallKind::Write, &self.path)?;
        self.below.set_length(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.plan.call(CallKind::Write, &self.path)?;
        self.below.allocate(bytes)
    }
    fn forget(&self) {
        // It cannot fail, so it is not counted.
        self.below.forget();
    }
    fn as_system(&self) -> Option<&std::fs::File> {
        self.below.as_system()
    }
}

struct FaultyStream {
    below: Box<dyn Read + Send>,
    plan: Arc<Plan>,
    path: Box<Path>,
}

impl Read for FaultyStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.plan.call(CallKind::Read, &self.path)?;
        let part = self.plan.part(buffer.len());
        self.below.read(&mut buffer[..part])
    }
}
