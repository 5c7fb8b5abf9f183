//! A store's directory: whose it is, and that one process has it open.
//!
//! The file `TERRACE` identifies it:
//!
//! ```text
//!   | magic u64 | format u32 | 0 u32 | engine: 16 bytes, padded by zeros | store u64
//!   | checksum u64 |
//! ```
//! It appears last: until then it is `TERRACE.new`, and the directory counts as begun. A begun
//! directory is emptied and filled again. `LOCK` is locked by the process that has the store open,
//! and says which that is; `TERRACE` is locked, too. `NOTICE` has a text that this process has
//! posted for others. Names that end in `.new` are files that were not finished.

use crate::DiskError;
use crate::codec::{Reader, checksum};
use crate::{ends, log, manifest};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_medium::files::{FileLock, Files, Purpose, Replace, directory_of};

const MAGIC: u64 = u64::from_le_bytes(*b"terrstor");
const FORMAT: u32 = 1;
const BYTES: usize = 48;
const ENGINE_MAX: usize = 16;
const IDENTITY: &str = "TERRACE";
const BEGUN: &str = "TERRACE.new";
const LOCK: &str = "LOCK";
const NOTICE: &str = "NOTICE";
/// Bytes of a notice that are read.
const NOTICE_MAX: usize = 64 << 10;

/// What a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of its engine.
    pub engine: String,
    /// A number that no other store has. All files of the store name it.
    pub store: u64,
}

impl Identity {
    /// An identity.
    ///
    /// # Panics
    /// If the engine's name is empty, has more than 16 bytes, or others than graphic ASCII.
    pub fn new(engine: &str, store: u64) -> Self {
        let is_name =
            (1..=ENGINE_MAX).contains(&engine.len()) && engine.bytes().all(|b| b.is_ascii_graphic());
        assert!(is_name, "the name of an engine has 1 to {ENGINE_MAX} graphic characters");
        Self { engine: engine.into(), store }
    }

    fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..16 + self.engine.len()].copy_from_slice(self.engine.as_bytes());
        bytes[32..40].copy_from_slice(&self.store.to_le_bytes());
        let sum = checksum(&bytes[..BYTES - 8], 0);
        bytes[40..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(files: &Arc<dyn Files>, path: &Path) -> Result<Self, DiskError> {
        let corrupt = |what| DiskError::corrupt(path, 0, what);
        let file = files.open(path, Purpose::Read).map_err(DiskError::io("open", path))?;
        let mut bytes = [0; BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => corrupt("it is too short; restore it from a backup"),
            _ => DiskError::io("read", path)(error),
        })?;
        let mut reader = Reader(&bytes);
        if reader.u64() != Some(MAGIC) {
            return Err(corrupt("it does not begin as the identity of a store does"));
        }
        let format = reader.u32().unwrap_or(0);
        // Every format has its checksum there.
        if checksum(&bytes[..BYTES - 8], 0).to_le_bytes() != bytes[BYTES - 8..] {
            return Err(corrupt("it does not fit its checksum; terrace check --repair makes it anew"));
        }
        if format > FORMAT {
            return Err(DiskError::Newer { path: path.into(), format, known: FORMAT });
        }
        let engine = bytes[16..32].split(|&byte| byte == 0).next().unwrap_or_default();
        let mut store = Reader(&bytes[32..40]);
        Ok(Self { engine: String::from_utf8_lossy(engine).into(), store: store.u64().unwrap_or(0) })
    }
}

/// Where a store lies: a directory, and its file `TERRACE`. Tells whether both are those that were
/// opened, or others that have got their names.
#[derive(Clone)]
pub struct Place {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// What identifies them. `None` if the file system has no such numbers.
    ids: [Option<(u64, u64)>; 2],
}

impl Place {
    fn new(files: &Arc<dyn Files>, path: &Path) -> Result<Self, DiskError> {
        let ids = ids_of(files, path).map_err(DiskError::io("look at", path))?;
        Ok(Self { files: files.clone(), path: path.into(), ids })
    }

    /// Asked before a file is created, changed or removed by its name. It costs two calls of the
    /// operating system. What they cannot tell, the change itself finds out.
    ///
    /// # Errors
    /// The directory was moved or replaced since it was opened: what is written by name now would
    /// go to another one.
    pub fn check(&self) -> Result<(), DiskError> {
        let is_gone =
            |error: io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        match ids_of(&self.files, &self.path).map_or_else(is_gone, |ids| ids != self.ids) {
            true => Err(DiskError::Moved { path: self.path.clone() }),
            false => Ok(()),
        }
    }
}

fn ids_of(files: &Arc<dyn Files>, path: &Path) -> io::Result<[Option<(u64, u64)>; 2]> {
    Ok([files.identify(path)?, files.identify(&path.join(IDENTITY))?])
}

/// The directory of a store, locked until this is dropped.
pub struct Directory {
    place: Place,
    identity: Identity,
    /// The locks of `LOCK`, and of `TERRACE` in case somebody removes `LOCK`. Fewer if the store is
    /// read where nothing can be written, or is just being created.
    _locks: [Option<FileLock>; 2],
}

impl Directory {
    /// Creates the directory of a store. `fill` creates the other files in it. After an error or a
    /// crash there is no store, and creating it again begins anew.
    ///
    /// # Errors
    /// There is a store or something else at `path`; the directory cannot be created or locked; or
    /// `fill` failed.
    pub fn create(
        files: &Arc<dyn Files>,
        path: &Path,
        identity: &Identity,
        fill: impl FnOnce(&Path) -> Result<(), DiskError>,
    ) -> Result<Self, DiskError> {
        make_directory(files, path)?;
        check_free(files, path)?;
        let lock = Some(lock(files, path)?);
        // Another process may have created a store before the lock was granted.
        for name in check_free(files, path)? {
            let name = path.join(name);
            files.remove(&name).map_err(DiskError::io("remove", &name))?;
        }
        let (begun, named) = (path.join(BEGUN), path.join(IDENTITY));
        write_begun(files, &begun, identity).map_err(DiskError::io("write", &begun))?;
        sync_directory(files, path)?;
        fill(path)?;
        files.rename(&begun, &named, Replace::No).map_err(DiskError::io("create", &named))?;
        if let Err(error) = sync_directory(files, path) {
            // A name that may vanish must not be used: no later sync makes this one durable.
            let _ = files.rename(&named, &begun, Replace::No);
            return Err(error);
        }
        let place = Place::new(files, path)?;
        Ok(Self { place, identity: identity.clone(), _locks: [lock, None] })
    }

    /// Opens the directory of a store of the engine `engine`, and removes files that were not
    /// finished. If `is_read_only`, nothing is changed.
    ///
    /// # Errors
    /// There is no store, or one of another engine or a later format; it is open already; or it
    /// cannot be read.
    pub fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        engine: &str,
        is_read_only: bool,
    ) -> Result<Self, DiskError> {
        if !Self::exists(files, path)? {
            return Err(no_store(files, path)?);
        }
        let locks = match is_read_only {
            true => [lock_to_read(files, path, IDENTITY)?, lock_to_read(files, path, LOCK)?],
            // First, so that `LOCK` names the other process yet.
            false => [Some(lock_file(files, path, IDENTITY)?), Some(lock(files, path)?)],
        };
        let identity = Identity::read(files, &path.join(IDENTITY))?;
        if identity.engine != engine {
            return Err(DiskError::Engine { path: path.into(), engine: identity.engine });
        }
        if !is_read_only {
            let stale = |name: &str| (name.ends_with(".new") || name == NOTICE).then(|| path.join(name));
            for name in list_files(files, path, stale)? {
                files.remove(&name).map_err(DiskError::io("remove", &name))?;
            }
        }
        Ok(Self { place: Place::new(files, path)?, identity, _locks: locks })
    }

    /// Whether there is a store in the directory at `path`.
    ///
    /// # Errors
    /// The file system does not tell.
    pub fn exists(files: &Arc<dyn Files>, path: &Path) -> Result<bool, DiskError> {
        let path = path.join(IDENTITY);
        files.is_taken(&path).map_err(DiskError::io("look for", &path))
    }

    /// The name of the engine of the store in the directory at `path`.
    ///
    /// # Errors
    /// There is no store, or its identity is damaged or cannot be read.
    pub fn engine_of(files: &Arc<dyn Files>, path: &Path) -> Result<String, DiskError> {
        Ok(Identity::read(files, &path.join(IDENTITY))?.engine)
    }

    /// Posts a text for processes that have not opened the store, in place of an earlier one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn post(&self, files: &Arc<dyn Files>, text: &str) -> Result<(), DiskError> {
        let name = self.path().join(NOTICE);
        let write = || {
            let file = match files.create(&name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    files.open(&name, Purpose::Write)?
                }
                file => file?,
            };
            file.set_length(0)?;
            file.write_all_at(text.as_bytes(), 0)
        };
        write().map_err(DiskError::io("write", &name))
    }

    /// The text that the process has posted that has the store at `path` open. `None` if there is
    /// no such process, or it has posted none.
    pub fn notice(files: &Arc<dyn Files>, path: &Path) -> Option<String> {
        let is_open = files.lock(&path.join(LOCK)).ok()?.is_none();
        let file = is_open.then(|| files.open(&path.join(NOTICE), Purpose::Read).ok())??;
        let mut bytes = vec![0; usize::try_from(file.length().ok()?).ok()?.min(NOTICE_MAX)];
        file.read_exact_at(&mut bytes, 0).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// The number of the store in the directory at `path`, from whatever file tells it: for a
    /// directory whose identity is damaged.
    pub fn identify(files: &Arc<dyn Files>, path: &Path) -> Option<u64> {
        Self::identities(files, path).first().copied()
    }

    /// The numbers of the stores that the manifests and the segments of the log in the directory at
    /// `path` are of, each as often as a file tells it.
    pub fn identities(files: &Arc<dyn Files>, path: &Path) -> Vec<u64> {
        let told = names(files, path).unwrap_or_default().into_iter().filter_map(|name| {
            let magic = if name.ends_with(".log") { log::MAGIC } else { manifest::MAGIC };
            let file = files.open(&path.join(name), Purpose::Read).ok()?;
            let mut bytes = [0; log::HEAD as usize];
            file.read_exact_at(&mut bytes, 0).ok()?;
            log::store_in(&bytes, magic)
        });
        told.collect()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Whether this path lies right in the directory, among the store's own files.
    pub fn has_place_for(&self, path: &Path) -> bool {
        let above = directory_of(path);
        let is_this = |id: Option<(u64, u64)>| id.is_some() && id == self.place.ids[0];
        above == self.path() || self.place.files.identify(above).is_ok_and(is_this)
    }

    /// Makes the folder `checkpoints` of the directory if this path lies in it.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn make_folder_for(&self, path: &Path) -> Result<(), DiskError> {
        let folder = self.path().join("checkpoints");
        if directory_of(path) == folder { make_directory(&self.place.files, &folder) } else { Ok(()) }
    }

    /// Tells whether it is still there.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// What `wanted` makes of the names of the files in a directory. Directories in it are none of the
/// store's files, whatever their names.
///
/// # Errors
/// The directory cannot be read.
pub fn list_files<T>(
    files: &Arc<dyn Files>,
    path: &Path,
    wanted: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, DiskError> {
    let mut found = Vec::new();
    for name in names(files, path)? {
        let Some(one) = wanted(&name) else { continue };
        let name = path.join(name);
        if !files.is_directory(&name).map_err(DiskError::io("look at", &name))? {
            found.push(one);
        }
    }
    Ok(found)
}

fn names(files: &Arc<dyn Files>, path: &Path) -> Result<Vec<String>, DiskError> {
    let names = files.list(path).map_err(DiskError::io("list", path))?;
    Ok(names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect())
}

fn sync_directory(files: &Arc<dyn Files>, path: &Path) -> Result<(), DiskError> {
    files.sync_directory(path).map_err(DiskError::io("sync", path))
}

fn make_directory(files: &Arc<dyn Files>, path: &Path) -> Result<(), DiskError> {
    match files.create_directory(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let is_directory = files.is_directory(path).map_err(DiskError::io("look at", path))?;
            if !is_directory {
                let what = "a file has this name; choose another path";
                return Err(DiskError::NoStore { path: path.into(), what });
            }
        }
        created => created.map_err(DiskError::io("create", path))?,
    }
    sync_directory(files, directory_of(path))
}

/// The files that an interrupted creation has left, but for those that mark it as begun.
fn check_free(files: &Arc<dyn Files>, path: &Path) -> Result<Vec<String>, DiskError> {
    let mut names = names(files, path)?;
    let is_begun = names.iter().any(|name| name == BEGUN) && !names.iter().any(|name| name == IDENTITY);
    names.retain(|name| name != LOCK && name != BEGUN);
    if names.iter().any(|name| name == IDENTITY) {
        return Err(DiskError::Exists { path: path.into() });
    }
    match names.iter().find(|name| !is_begun || !is_part(name)) {
        Some(name) => Err(DiskError::Occupied { path: path.into(), name: name.into() }),
        None => Ok(names),
    }
}

/// Whether a store may have a file with this name: those of the manifest, unfinished ones, and
/// numbered ones, such as `0000000001.log`.
fn is_part(name: &str) -> bool {
    let is_number = |stem: &str| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
    let is_numbered = name.split_once('.').is_some_and(|(stem, _)| is_number(stem));
    is_numbered || name.ends_with(".new") || name == ends::NAME || manifest::is_part(name)
}

/// Writes the identity of a directory that is begun, unless it has one from an earlier attempt:
/// that is replaced, without a moment in which there is none.
fn write_begun(files: &Arc<dyn Files>, path: &Path, identity: &Identity) -> io::Result<()> {
    let file = match files.create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => files.open(path, Purpose::Write)?,
        file => file?,
    };
    file.set_length(BYTES as u64)?;
    file.write_all_at(&identity.to_bytes(), 0)?;
    file.sync()
}

/// The error of a path that has no store.
fn no_store(files: &Arc<dyn Files>, path: &Path) -> Result<DiskError, DiskError> {
    let is_taken = files.is_taken(path).map_err(DiskError::io("look for", path))?;
    let is_directory = files.is_directory(path).map_err(DiskError::io("look at", path))?;
    let begun = path.join(BEGUN);
    let is_begun = files.is_taken(&begun).map_err(DiskError::io("look for", &begun))?;
    let what = match (is_taken, is_directory, is_begun) {
        (false, false, _) => "there is no such directory; create a store first",
        (true, false, _) => "it is not a directory",
        (_, _, true) => "its creation was interrupted; create it again",
        (_, _, false) => "the directory has no file TERRACE",
    };
    Ok(DiskError::NoStore { path: path.into(), what })
}

/// Locks the directory, and leaves this process's number for others.
fn lock(files: &Arc<dyn Files>, path: &Path) -> Result<FileLock, DiskError> {
    let name = path.join(LOCK);
    match files.create(&name) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => drop(created.map_err(DiskError::io("create", &name))?),
    }
    let lock = lock_file(files, path, LOCK)?;
    let write = || {
        let file = files.open(&name, Purpose::Write)?;
        file.set_length(0)?;
        file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
    };
    match write() {
        // On a full file system the lock holds all the same.
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Ok(lock),
        written => written.map_err(DiskError::io("write", &name)).map(|()| lock),
    }
}

/// Locks a file of the directory.
fn lock_file(files: &Arc<dyn Files>, path: &Path, name: &str) -> Result<FileLock, DiskError> {
    let name = path.join(name);
    let lock = files.lock(&name).map_err(DiskError::io("lock", &name))?;
    let locked = || DiskError::Locked { path: path.into(), pid: read_pid(files, &path.join(LOCK)) };
    lock.ok_or_else(locked)
}

/// Locks a file of the directory without changing it. Where nothing can be written, no process has
/// the store open for writing.
fn lock_to_read(files: &Arc<dyn Files>, path: &Path, name: &str) -> Result<Option<FileLock>, DiskError> {
    let name = path.join(name);
    match files.lock(&name) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(DiskError::Locked { path: path.into(), pid: read_pid(files, &path.join(LOCK)) }),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Ok(None),
            _ => Err(DiskError::io("lock", &name)(error)),
        },
    }
}

/// The process that has the lock, if it has said so.
fn read_pid(files: &Arc<dyn Files>, path: &Path) -> Option<u32> {
    let mut bytes = [0; 16];
    let file = files.open(path, Purpose::Read).ok()?;
    let read = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..read]).ok()?.trim().parse().ok()
}
