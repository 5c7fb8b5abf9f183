//! The visible side of the simulated file system.

use super::content::Content;
use super::disk::{Disk, Node, NodeId, SyncFault};
use super::states::draws;
use std::any::Any;
use std::ffi::OsString;
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_medium::files::{FileLock, Files, Purpose, Replace, StoredFile};

/// A file system in memory. Clones are handles to the same one.
///
/// ```
/// use std::path::Path;
/// use terrace_medium::files::{Files, StoredFile};
/// use terrace_testkit::simfs::SimFs;
///
/// let files = SimFs::new(["/data"]);
/// let file = files.create(Path::new("/data/log")).unwrap();
/// file.write_all_at(b"hello", 0).unwrap();
/// file.sync().unwrap();
/// files.sync_directory(Path::new("/data")).unwrap();
/// files.crash(7);
/// assert_eq!(files.content(Path::new("/data/log")).unwrap(), b"hello");
/// ```
#[derive(Clone, Default)]
pub struct SimFs {
    disk: Arc<Mutex<Disk>>,
    /// Whether unnamed files can be created.
    unnamed: bool,
}

/// An open file of a [`SimFs`]. After a crash, all calls on it fail.
pub struct SimFile {
    files: SimFs,
    id: NodeId,
    purpose: Purpose,
    handle: Arc<()>,
}

/// A lock on a file of a [`SimFs`].
pub struct SimLock {
    _held: Arc<()>,
}

impl SimFs {
    /// An empty file system with these directories.
    pub fn new<P: Into<PathBuf>>(directories: impl IntoIterator<Item = P>) -> Self {
        let disk = Disk::with_roots(directories.into_iter().map(Into::into));
        Self { disk: Arc::new(Mutex::new(disk)), unnamed: false }
    }

    /// As this one, but with unnamed files, as most file systems of Linux have.
    pub fn with_unnamed_files(self) -> Self {
        Self { unnamed: true, ..self }
    }

    /// An independent copy: the visible and the durable content, the capacity, the chosen faults
    /// and the count of syncs, but no open file and no lock. The copies share the bytes of a file
    /// until one of them writes to it.
    pub fn fork(&self) -> Self {
        Self { disk: Arc::new(Mutex::new(self.disk().clone())), unnamed: self.unnamed }
    }

    /// The machine starts anew, and had written everything out.
    pub fn restart(&self) {
        self.disk().boots += 1;
    }

    /// Lets files have at most `bytes` bytes together, counted by their lengths. A write beyond it
    /// is partial or fails with ENOSPC. Files removed and closed count no more.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk().capacity = Some(bytes);
    }

    /// Number of syncs so far, of files and of directories.
    pub fn sync_count(&self) -> u64 {
        self.disk().syncs
    }

    /// Sync number `nth`, from 0 on, of a file or a directory, returns success but keeps nothing. A
    /// later sync does.
    pub fn skip_sync(&self, nth: u64) {
        self.disk().sync_faults.insert(nth, SyncFault::Skip);
    }

    /// Sync number `nth`, from 0 on, of a file or a directory, fails with EIO, and what it should
    /// have kept stays visible until the next crash loses it. Later syncs keep nothing of it: of a
    /// file, no sector of 512 bytes until it is written again; of a directory, no change of names.
    pub fn fail_sync(&self, nth: u64) {
        self.disk().sync_faults.insert(nth, SyncFault::Lose);
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Flips `count` bits of `path`, in the visible and the durable content.
    pub fn flip_bits(&self, path: &Path, count: u64, seed: u64) {
        let mut draw = draws(seed);
        let mut disk = self.disk();
        let Ok(id) = disk.find_file(path) else { return };
        let Some(node) = disk.files.get_mut(&id) else { return };
        let content = Arc::make_mut(&mut node.content);
        for _ in 0..count {
            content.flip_bit(draw(content.now.len() as u64 * 8));
        }
    }

    /// The content of a file; `None` if there is no such file.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.disk();
        let node = disk.files.get(&disk.find_file(path).ok()?)?;
        Some(node.content.now.clone())
    }

    /// Creates a durable file with this content, in a directory that exists. Not counted as a sync.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut disk = self.disk();
        let entry = disk.entry(path).expect("the directory exists");
        let (directory, id) = (entry.0, disk.make());
        disk.give_name(entry, id);
        let mut content = Content::default();
        content.write(bytes, 0);
        content.sync();
        disk.files.insert(id, Node { content: content.into(), ..Node::default() });
        disk.sync_directory(directory);
    }

    /// The paths of all files, and of the directories that have been created.
    pub fn names(&self) -> Vec<PathBuf> {
        self.disk().paths()
    }

    fn open_id(&self, disk: &Disk, id: NodeId, purpose: Purpose) -> SimFile {
        let handle = disk.files[&id].handle.clone();
        SimFile { files: self.clone(), id, purpose, handle }
    }
}

impl From<SimFs> for Arc<dyn Files> {
    fn from(files: SimFs) -> Self {
        Arc::new(files)
    }
}

impl Files for SimFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        let mut disk = self.disk();
        let entry = disk.free_entry(path)?;
        let id = disk.make();
        disk.give_name(entry, id);
        Ok(Box::new(self.open_id(&disk, id, Purpose::Write)))
    }

    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Box<dyn StoredFile>>> {
        let mut disk = self.disk();
        disk.find_directory(directory)?;
        Ok(self.unnamed.then(|| {
            let id = disk.make();
            Box::new(self.open_id(&disk, id, Purpose::Write)) as Box<dyn StoredFile>
        }))
    }

    fn name(&self, file: &dyn StoredFile, path: &Path) -> io::Result<()> {
        let file = (file as &dyn Any).downcast_ref::<SimFile>().expect("a file of this file system");
        file.read(|_| ())?;
        let mut disk = self.disk();
        let entry = disk.free_entry(path)?;
        disk.give_name(entry, file.id);
        Ok(())
    }

    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Box<dyn StoredFile>> {
        let disk = self.disk();
        let id = disk.find_file(path)?;
        Ok(Box::new(self.open_id(&disk, id, purpose)))
    }

    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        self.disk().find_file(path)?;
        let bytes = self.content(path).ok_or(ErrorKind::NotFound)?;
        let length = bytes.len() as u64;
        Ok((Box::new(Cursor::new(bytes)), Some(length)))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let entry = disk.free_entry(path)?;
        let id = disk.make_directory();
        disk.give_name(entry, id);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let id = disk.find_directory(path)?;
        if disk.list(id).next().is_some() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let entry = disk.entry(path)?;
        disk.remove(entry);
        Ok(())
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        Ok(self.disk().find_directory(path).is_ok())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let id = disk.find_file(from)?;
        let entry = disk.free_entry(to)?;
        disk.give_name(entry, id);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        let mut disk = self.disk();
        let id = disk.find_file(path)?;
        let node = disk.files.get_mut(&id).ok_or(ErrorKind::NotFound)?;
        if node.lock.strong_count() > 0 {
            return Ok(None);
        }
        let held = Arc::new(());
        node.lock = Arc::downgrade(&held);
        Ok(Some(Box::new(SimLock { _held: held })))
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let disk = self.disk();
        disk.find_directory(directory)?;
        Ok(disk.room())
    }

    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        let mut disk = self.disk();
        let id = disk.find(from).ok_or(ErrorKind::NotFound)?;
        let entries = (disk.entry(from)?, disk.entry(to)?);
        if to != from && to.starts_with(from) {
            return Err(ErrorKind::InvalidInput.into());
        }
        match disk.find(to) {
            Some(_) if replace == Replace::No => return Err(ErrorKind::AlreadyExists.into()),
            Some(other) if other == id => return Ok(()),
            Some(other) => disk.check_replaceable(id, other)?,
            None => {}
        }
        disk.rename(entries.0, entries.1, id);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.find_file(path)?;
        let entry = disk.entry(path)?;
        disk.remove(entry);
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let disk = self.disk();
        let id = disk.find_directory(directory)?;
        Ok(disk.list(id).map(|(name, _)| name.clone()).collect())
    }

    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        Ok(self.disk().find(path).is_some())
    }

    fn boot(&self) -> Option<u64> {
        Some(self.disk().boots + 1)
    }

    fn identify(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        let id = self.disk().find(path).ok_or(ErrorKind::NotFound)?;
        Ok(Some((0, id)))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        let id = disk.find_directory(directory)?;
        match disk.next_sync() {
            None => disk.sync_directory(id),
            Some(SyncFault::Skip) => {}
            Some(SyncFault::Lose) => {
                disk.lose_names(id);
                return Err(io::Error::from_raw_os_error(EIO));
            }
        }
        Ok(())
    }
}

const EIO: i32 = 5;
const EBADF: i32 = 9;
const ENOSPC: i32 = 28;

impl SimFile {
    /// Accesses the file, unless it was opened before a crash.
    fn with<R>(&self, work: impl FnOnce(&mut Disk) -> io::Result<R>) -> io::Result<R> {
        let mut disk = self.files.disk();
        match disk.files.get(&self.id) {
            Some(node) if Arc::ptr_eq(&node.handle, &self.handle) => work(&mut disk),
            _ => Err(io::Error::from_raw_os_error(EBADF)),
        }
    }

    fn read<R>(&self, work: impl FnOnce(&Content) -> R) -> io::Result<R> {
        self.with(|disk| Ok(work(&disk.files[&self.id].content)))
    }

    /// Changes the content, which may grow by `room` bytes.
    fn change<R>(&self, work: impl FnOnce(&mut Content, usize) -> io::Result<R>) -> io::Result<R> {
        if self.purpose != Purpose::Write {
            return Err(io::Error::from_raw_os_error(EBADF));
        }
        self.with(|disk| {
            let room = usize::try_from(disk.room()).unwrap_or(usize::MAX);
            work(disk.content(self.id), room)
        })
    }
}

impl StoredFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read(|content| {
            let from = content.now.get(at as usize..).unwrap_or_default();
            let read = from.len().min(buffer.len());
            buffer[..read].copy_from_slice(&from[..read]);
            read
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.change(|content, room| {
            let end = content.now.len().saturating_add(room);
            let written = end.saturating_sub(at as usize).min(bytes.len());
            if written == 0 && !bytes.is_empty() {
                return Err(io::Error::from_raw_os_error(ENOSPC));
            }
            content.write(&bytes[..written], at as usize);
            Ok(written)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|disk| match disk.next_sync() {
            None => {
                disk.content(self.id).sync();
                Ok(())
            }
            Some(SyncFault::Skip) => Ok(()),
            Some(SyncFault::Lose) => {
                disk.content(self.id).lose();
                Err(io::Error::from_raw_os_error(EIO))
            }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        // There is nothing but bytes and length.
        self.sync()
    }

    fn length(&self) -> io::Result<u64> {
        self.read(|content| content.now.len() as u64)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.change(|content, room| {
            if bytes as usize > content.now.len().saturating_add(room) {
                return Err(io::Error::from_raw_os_error(ENOSPC));
            }
            content.set_length(bytes as usize);
            Ok(())
        })
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let length = self.length()?;
        if bytes > length { self.set_length(bytes) } else { Ok(()) }
    }
}
