//! Whether a store on files takes writes, and what these survive.

use crate::{Durability, Durably, WriteError};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_disk::{Directory, DiskError, Lent, Reserve};
use terrace_pool::{Forked, Opener};

/// The standing of an open store.
pub struct Standing {
    /// The process that has opened the store: a child of it would write to the same files.
    opener: Opener,
    is_read_only: bool,
    /// Why every write fails, if it does.
    stopped: OnceLock<String>,
    /// What a write survives when it returns: a number of [`Durability::ALL`].
    durability: AtomicUsize,
}

impl Standing {
    /// Of a store that this process opens now.
    pub fn new(is_read_only: bool, durability: Durability) -> Self {
        let (opener, durability) = (Opener::here(), AtomicUsize::new(durability as usize));
        Self { opener, is_read_only, stopped: OnceLock::new(), durability }
    }

    /// Refuses everything in a child of the process that has opened the store.
    pub fn check_process(&self) -> Result<(), Forked> {
        self.opener.check()
    }

    /// Refuses a write if the store takes none.
    pub fn check_writable(&self) -> Result<(), WriteError> {
        self.opener.check()?;
        match self.stopped.get() {
            _ if self.is_read_only => Err(WriteError::ReadOnly),
            Some(why) => Err(WriteError::Stopped(why.clone())),
            None => Ok(()),
        }
    }

    /// Makes every later write fail, for this reason.
    pub fn stop(&self, why: String) {
        let _ = self.stopped.set(why);
    }

    /// Whether every write fails.
    pub fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// The error of the log or the manifest. It stops all writes, unless there was only no room, or
    /// no file could be opened: then nothing has changed, and writes go on once one can. (If
    /// something has, the log and the manifest refuse by themselves to go on.)
    pub fn failed(&self, error: DiskError) -> WriteError {
        if !matches!(error, DiskError::Full { .. }) && error.lacks_descriptors().is_none() {
            self.stop(error.to_string());
        }
        error.into()
    }

    /// Stops all writes if the store's directory is another one now: before a file is made or
    /// removed by its name.
    pub fn check_place(&self, directory: &Directory) -> Result<(), WriteError> {
        directory.place().check().map_err(|error| self.failed(error))
    }

    /// Refuses a path for a checkpoint among the store's own files: it might have the name of one.
    /// Makes the folder that is there for checkpoints, if the path lies in it.
    pub fn check_copy(directory: &Directory, to: &Path) -> Result<(), WriteError> {
        if !directory.has_place_for(to) {
            return Ok(directory.make_folder_for(to)?);
        }
        Err(WriteError::Checkpoint(format!(
            "{} lies among the files of the store itself; choose a path outside of {}, or below its folder `checkpoints`",
            to.display(),
            directory.path().display()
        )))
    }

    /// The room that is kept for jobs which make room, for one that met this error.
    pub fn reserve_for(&self, reserve: &Reserve, error: &WriteError) -> Option<Lent> {
        // An error that stops the store is told as it is.
        let may_help = error.lacks_room() && !self.is_stopped();
        may_help.then(|| reserve.let_go().ok())??
    }

    /// Runs a job that makes room, and again in the room that is kept for such, if it finds no
    /// other.
    pub fn with_reserve<T>(
        &self,
        reserve: &Reserve,
        mut job: impl FnMut() -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        match job() {
            Err(error) => {
                let _lent = self.reserve_for(reserve, &error).ok_or(error)?;
                job()
            }
            done => done,
        }
    }

    /// What a write survives when it returns.
    pub fn promises(&self) -> Durability {
        Durability::ALL[self.durability.load(Relaxed)]
    }

    /// Promises this from now on.
    pub fn set_durability(&self, durability: Durability) {
        self.durability.store(durability as usize, Relaxed);
    }

    /// What `how` promises beyond visibility; `None` for nothing yet.
    pub fn promised(&self, how: Durably) -> Option<Durability> {
        match how {
            Durably::Later => None,
            Durably::Store => Some(self.promises()),
            // Any file can be synced, so a single write may ask for more than the store promises.
            Durably::AtLeast(asked) => Some(asked.max(self.promises())),
        }
    }
}

/// Refuses a key or a value that no store takes.
pub fn check_sizes(key: &[u8], value: usize) -> Result<(), WriteError> {
    match () {
        () if key.len() > crate::KEY_MAX => Err(WriteError::KeyTooLong),
        () if value > crate::VALUE_MAX => Err(WriteError::ValueTooLong),
        () => Ok(()),
    }
}
