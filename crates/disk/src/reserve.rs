//! Room that is kept for removals, and for work that makes room.
//!
//! A full file system must not keep a user from removing what fills it. So the file `RESERVE` has
//! storage that nothing uses. Writes that make room get it once there is no other; all other writes
//! are refused from then on, until the room is kept again.

use crate::DiskError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::files::{Files, Purpose, StoredFile};

/// The name of its file.
pub(crate) const RESERVE: &str = "RESERVE";

/// The room that a store keeps.
pub struct Reserve<F: Files> {
    files: F,
    path: PathBuf,
    /// Bytes that are to be kept; none if there is no reserve.
    bytes: AtomicU64,
    is_kept: AtomicBool,
    /// `None` until it was needed.
    file: Mutex<Option<F::File>>,
}

impl<F: Files> Reserve<F> {
    /// The reserve of the store in `directory`, of so many bytes, which are not kept yet.
    pub(crate) fn new(files: F, directory: &Path, bytes: u64) -> Self {
        let (path, is_kept) = (directory.join(RESERVE), AtomicBool::new(bytes == 0));
        Self { files, path, bytes: AtomicU64::new(bytes), is_kept, file: Mutex::default() }
    }

    /// Whether the room is there.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Relaxed)
    }

    /// Keeps the room, unless it is kept.
    ///
    /// # Errors
    /// The file system has no room for it, or refuses the file.
    pub fn keep(&self) -> Result<(), DiskError> {
        if self.is_kept() { Ok(()) } else { self.allocate(self.bytes.load(Relaxed)) }
    }

    /// Keeps more room, if that is worth it and there is so much: never less than before.
    ///
    /// # Errors
    /// The file system refuses the file.
    pub fn grow_to(&self, bytes: u64) -> Result<(), DiskError> {
        let held = self.bytes.load(Relaxed);
        if held == 0 || !self.is_kept() || bytes <= held + held / 4 {
            return Ok(());
        }
        match self.allocate(bytes) {
            Err(DiskError::Full { .. }) => Ok(()),
            allocated => allocated,
        }
    }

    /// Gives the room away. Returns false if there was none to give.
    ///
    /// # Errors
    /// The file system refuses it.
    pub fn let_go(&self) -> Result<bool, DiskError> {
        if self.bytes.load(Relaxed) == 0 {
            return Ok(false);
        }
        let mut file = self.lock();
        let file = self.open(&mut file)?;
        let length = file.length().map_err(DiskError::io("read the length of", &self.path))?;
        file.set_length(0).map_err(DiskError::io("cut", &self.path))?;
        self.is_kept.store(false, Relaxed);
        Ok(length > 0)
    }

    fn allocate(&self, bytes: u64) -> Result<(), DiskError> {
        let mut file = self.lock();
        let file = self.open(&mut file)?;
        file.allocate(bytes).map_err(DiskError::room("allocate", &self.path))?;
        self.bytes.store(bytes, Relaxed);
        self.is_kept.store(true, Relaxed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<F::File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its file, created if there is none. One of an earlier life keeps what it has.
    fn open<'f>(&self, file: &'f mut Option<F::File>) -> Result<&'f mut F::File, DiskError> {
        if file.is_none() {
            *file = Some(match self.files.create(&self.path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.files.open(&self.path, Purpose::Write).map_err(DiskError::io("open", &self.path))?
                }
                created => created.map_err(DiskError::room("create", &self.path))?,
            });
        }
        Ok(file.as_mut().expect("opened just now"))
    }
}
