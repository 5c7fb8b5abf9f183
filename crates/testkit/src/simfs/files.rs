//! The visible side of the simulated file system.

use super::disk::{Content, Disk, FileId};
use std::ffi::OsString;
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_medium::files::{Files, Purpose, Replace, StoredFile, directory_of};

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

/// An open file of a [`SimFs`]. After a crash it acts as closed: writes to it are lost.
pub struct SimFile {
    files: SimFs,
    id: FileId,
    purpose: Purpose,
}

/// Random numbers from a seed (SplitMix64).
pub(super) fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |end| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end.max(1)
    }
}

impl SimFs {
    /// An empty file system with these directories.
    pub fn new<P: Into<PathBuf>>(directories: impl IntoIterator<Item = P>) -> Self {
        let directories = directories.into_iter().map(Into::into).collect();
        let mut disk = Disk::default();
        disk.directories = directories;
        Self { disk: Arc::new(Mutex::new(disk)), unnamed: false }
    }

    /// As this one, but with unnamed files, as most file systems of Linux have.
    pub fn with_unnamed_files(self) -> Self {
        Self { unnamed: true, ..self }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A power failure. `seed` chooses which unsynced changes survive.
    pub fn crash(&self, seed: u64) {
        self.disk().crash(&mut draws(seed));
    }

    /// Flips `count` bits of `path` in the durable content.
    pub fn flip_bits(&self, path: &Path, count: u64, seed: u64) {
        let mut draw = draws(seed);
        let mut disk = self.disk();
        let Some(id) = disk.names.get(path).copied() else { return };
        let Some(content) = disk.files.get_mut(&id) else { return };
        for _ in 0..count {
            let bits = content.now.len() as u64 * 8;
            content.flip_bit(draw(bits));
        }
    }

    /// The content of a file; `None` if there is no such file.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.disk();
        Some(disk.files.get(disk.names.get(path)?)?.now.clone())
    }

    /// Creates a durable file with this content.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut disk = self.disk();
        let id = disk.make();
        disk.give_name(path, id);
        let content = disk.files.entry(id).or_default();
        content.write(bytes, 0);
        content.sync();
        disk.sync_directory(directory_of(path));
    }

    /// All names.
    pub fn names(&self) -> Vec<PathBuf> {
        self.disk().names.keys().cloned().collect()
    }

    fn open_id(&self, id: FileId, purpose: Purpose) -> SimFile {
        SimFile { files: self.clone(), id, purpose }
    }

    fn check_directory(disk: &Disk, path: &Path) -> io::Result<()> {
        let there = disk.directories.contains(directory_of(path));
        if there { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }
}

impl Files for SimFs {
    type File = SimFile;

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let mut disk = self.disk();
        Self::check_directory(&disk, path)?;
        if disk.names.contains_key(path) || disk.directories.contains(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let id = disk.make();
        disk.give_name(path, id);
        Ok(self.open_id(id, Purpose::Write))
    }

    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<SimFile>> {
        let mut disk = self.disk();
        if !disk.directories.contains(directory) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(self.unnamed.then(|| {
            let id = disk.make();
            self.open_id(id, Purpose::Write)
        }))
    }

    fn name(&self, file: &SimFile, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        Self::check_directory(&disk, path)?;
        if disk.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        disk.give_name(path, file.id);
        Ok(())
    }

    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<SimFile> {
        let id = self.disk().names.get(path).copied().ok_or(ErrorKind::NotFound)?;
        Ok(self.open_id(id, purpose))
    }

    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        let bytes = self.content(path).ok_or(ErrorKind::NotFound)?;
        let length = bytes.len() as u64;
        Ok((Box::new(Cursor::new(bytes)), Some(length)))
    }

    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        let mut disk = self.disk();
        Self::check_directory(&disk, to)?;
        let id = disk.names.get(from).copied().ok_or(ErrorKind::NotFound)?;
        if replace == Replace::No && disk.names.contains_key(to) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        disk.rename(from, to, id);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        if !disk.names.contains_key(path) {
            return Err(ErrorKind::NotFound.into());
        }
        disk.remove(path);
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let disk = self.disk();
        if !disk.directories.contains(directory) {
            return Err(ErrorKind::NotFound.into());
        }
        let within = disk.names.keys().filter(|path| directory_of(path) == directory);
        Ok(within.filter_map(|path| path.file_name().map(Into::into)).collect())
    }

    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        let disk = self.disk();
        Ok(disk.names.contains_key(path) || disk.directories.contains(path))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk().sync_directory(directory);
        Ok(())
    }
}

impl SimFile {
    /// Accesses the content; for a file lost in a crash, an empty one.
    fn with<R>(&self, work: impl FnOnce(&mut Content) -> R) -> R {
        work(self.files.disk().files.get_mut(&self.id).unwrap_or(&mut Content::default()))
    }

    fn writable(&self) -> io::Result<()> {
        // EBADF, like the kernel.
        if self.purpose == Purpose::Write { Ok(()) } else { Err(io::Error::from_raw_os_error(9)) }
    }
}

impl StoredFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(self.with(|content| {
            let from = content.now.get(at as usize..).unwrap_or_default();
            let read = from.len().min(buffer.len());
            buffer[..read].copy_from_slice(&from[..read]);
            read
        }))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.writable()?;
        self.with(|content| content.write(bytes, at as usize));
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.with(Content::sync);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.with(|content| content.now.len() as u64))
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.writable()?;
        self.with(|content| content.set_length(bytes as usize));
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let length = self.length()?;
        if bytes > length { self.set_length(bytes) } else { Ok(()) }
    }
}
