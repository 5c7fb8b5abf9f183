//! Room that is kept for removals, and for work that makes room.
//!
//! A full file system must not keep a user from removing what fills it. So the file `RESERVE` has
//! storage that nothing uses. Writes that make room get it once there is no other; all other writes
//! are refused from then on, until the room is kept again. It is not kept again while one of those
//! that got it still works: what that has written so far may leave less than it needs.

use crate::DiskError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::files::{Files, Purpose, StoredFile, directory_of};

/// The name of its file.
pub(crate) const RESERVE: &str = "RESERVE";

/// The room that a store keeps.
pub struct Reserve {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// Bytes that are kept at least; none if there is no reserve.
    least: u64,
    /// Bytes that are to be kept.
    bytes: AtomicU64,
    is_kept: AtomicBool,
    /// Shared with those that have the room.
    lent: Arc<()>,
    /// `None` until it was needed.
    file: Mutex<Option<Box<dyn StoredFile>>>,
}

/// The room of a [`Reserve`], as long as it is given away. It is not kept again meanwhile, even if
/// it is free: what was written into it may be removed once more is.
pub struct Lent {
    _held: Arc<()>,
}

impl Reserve {
    /// The reserve of the store in `directory`, of so many bytes, which are not kept yet.
    pub(crate) fn new(files: Arc<dyn Files>, directory: &Path, bytes: u64) -> Self {
        let (path, is_kept) = (directory.join(RESERVE), AtomicBool::new(bytes == 0));
        let (least, bytes, lent) = (bytes, AtomicU64::new(bytes), Arc::default());
        Self { files, path, least, bytes, is_kept, lent, file: Mutex::default() }
    }

    /// Whether the room is there.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Relaxed)
    }

    /// Keeps the room, unless it is kept: what the file has from an earlier life, too.
    ///
    /// # Errors
    /// The file system has no room for it, or refuses the file; or the room is given away.
    pub fn keep(&self) -> Result<(), DiskError> {
        let mut file = self.lock();
        if self.is_kept() {
            return Ok(());
        }
        if Arc::strong_count(&self.lent) > 1 {
            return Err(DiskError::room("allocate", &self.path)(ErrorKind::StorageFull.into()));
        }
        let file = self.open(&mut file)?;
        let bytes = self.bytes.load(Relaxed).max(self.length(file)?);
        self.allocate(file, bytes)?;
        self.is_kept.store(true, Relaxed);
        Ok(())
    }

    /// Keeps so much from now on, but at least what it is meant to: more, if there is so much room,
    /// or less. A change that is small is not worth it.
    ///
    /// # Errors
    /// The file system refuses the file.
    pub fn fit(&self, bytes: u64) -> Result<(), DiskError> {
        let mut file = self.lock();
        let (bytes, held) = (bytes.max(self.least), self.bytes.load(Relaxed));
        let is_less = bytes < held / 2;
        if self.least == 0 || !is_less && bytes <= held + held / 4 {
            return Ok(());
        }
        match (self.is_kept(), is_less) {
            (true, true) => {
                self.open(&mut file)?.set_length(bytes).map_err(DiskError::io("cut", &self.path))?;
                self.bytes.store(bytes, Relaxed);
            }
            (true, false) => match self.allocate(self.open(&mut file)?, bytes) {
                Err(DiskError::Full { .. }) => {}
                allocated => allocated?,
            },
            (false, true) => self.bytes.store(bytes, Relaxed),
            (false, false) => {}
        }
        Ok(())
    }

    /// Gives the room away until the one that gets it drops it. Returns nothing if there was none.
    ///
    /// # Errors
    /// The file system refuses it.
    pub fn let_go(&self) -> Result<Option<Lent>, DiskError> {
        if self.least == 0 {
            return Ok(None);
        }
        let mut file = self.lock();
        let file = self.open(&mut file)?;
        let length = self.length(file)?;
        file.set_length(0).map_err(DiskError::io("cut", &self.path))?;
        self.is_kept.store(false, Relaxed);
        Ok((length > 0).then(|| Lent { _held: Arc::clone(&self.lent) }))
    }

    fn allocate(&self, file: &dyn StoredFile, bytes: u64) -> Result<(), DiskError> {
        crate::log::allocate(&self.files, directory_of(&self.path), (file, &self.path), bytes)?;
        self.bytes.store(bytes, Relaxed);
        Ok(())
    }

    fn length(&self, file: &dyn StoredFile) -> Result<u64, DiskError> {
        file.length().map_err(DiskError::io("read the length of", &self.path))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn StoredFile>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its file, created if there is none. One of an earlier life keeps what it has.
    fn open<'f>(&self, file: &'f mut Option<Box<dyn StoredFile>>) -> Result<&'f dyn StoredFile, DiskError> {
        if file.is_none() {
            *file = Some(match self.files.create(&self.path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.files.open(&self.path, Purpose::Write).map_err(DiskError::io("open", &self.path))?
                }
                created => created.map_err(DiskError::room("create", &self.path))?,
            });
        }
        Ok(&**file.as_ref().expect("opened just now"))
    }
}
