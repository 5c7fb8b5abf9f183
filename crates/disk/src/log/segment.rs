//! Segments: the files of a log.

use super::Position;
use super::head::HEAD;
use crate::DiskError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_medium::files::{Files, Purpose, StoredFile};

pub(super) const MAGIC: [u8; 8] = *b"terrlog\0";

/// An open segment.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn StoredFile>,
}

/// A segment that no record was put into.
pub(super) struct Spare {
    pub(super) segment: Arc<Segment>,
    /// Bytes that are known to be allocated.
    pub(super) size: u64,
}

/// A segment that has records, or had a place for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) number: u64,
    /// The position of its head, and the one where its records end, so far.
    pub(super) base: Position,
    pub(super) end: Position,
    /// The lowest and the highest seq of its records.
    pub(super) seqs: Option<(u64, u64)>,
}

impl Begun {
    pub(super) fn new(number: u64, base: Position) -> Self {
        Self { number, base, end: base + HEAD, seqs: None }
    }

    pub(super) fn add(&mut self, first: u64, last: u64) {
        let (low, high) = self.seqs.unwrap_or((first, last));
        self.seqs = Some((low.min(first), high.max(last)));
    }
}

/// An error, and whether the log must not be used any more.
pub(super) struct Failure {
    pub(super) error: DiskError,
    pub(super) is_final: bool,
}

impl Failure {
    pub(super) fn last(error: DiskError) -> Self {
        Self { error, is_final: true }
    }

    fn passing(error: DiskError) -> Self {
        Self { error, is_final: false }
    }
}

pub(super) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.log"))
}

/// The number of the segment with this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let is_number = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| digits.parse().ok())??;
    (format!("{number:010}") == digits).then_some(number)
}

/// Makes an empty segment that has storage for `bytes` bytes, and survives a power loss as such. It
/// is a new file, or `old`.
pub(super) fn make(
    files: &Arc<dyn Files>,
    directory: &Path,
    number: u64,
    old: Option<Arc<Segment>>,
    bytes: u64,
) -> Result<Spare, Failure> {
    let (path, is_new) = (path_of(directory, number), old.is_none());
    let segment = match old {
        Some(segment) => segment,
        None => {
            let file = create(files, &path).map_err(Failure::passing)?;
            Arc::new(Segment { number, path: path.clone(), file })
        }
    };
    // The length must be durable before any record, and the name: no later sync makes it so.
    let allocated = allocate(files, directory, (&*segment.file, &path), bytes);
    let settled = allocated.map_err(Failure::passing).and_then(|()| {
        segment.file.sync().map_err(DiskError::room("sync", &path)).map_err(|error| match error {
            // Some file systems find out only now that they have no room. Nothing is lost by that.
            DiskError::Full { .. } => Failure::passing(error),
            _ => Failure::last(error),
        })
    });
    let settled = settled.and_then(|()| sync_directory(files, directory));
    if let Err(failure) = settled {
        if is_new {
            // If it stays, the next attempt removes it.
            let _ = files.remove(&path);
        }
        return Err(failure);
    }
    segment.file.expect_small_writes(bytes);
    Ok(Spare { segment, size: bytes })
}

/// Makes a file at least `bytes` long, with storage, if the file system says that it has so much
/// room. Where it has not, the attempt alone may take as long as filling the rest of the disk: some
/// allocate page by page, and give all of it back at the end.
///
/// # Errors
/// There is no room, or the file system refuses.
pub(crate) fn allocate(
    files: &Arc<dyn Files>,
    directory: &Path,
    (file, path): (&dyn StoredFile, &Path),
    bytes: u64,
) -> Result<(), DiskError> {
    let held = file.length().map_err(DiskError::io("read the length of", path))?;
    // Where it cannot be told, the attempt tells.
    if files.free_bytes(directory).is_ok_and(|free| free < bytes.saturating_sub(held)) {
        return Err(DiskError::room("allocate", path)(ErrorKind::StorageFull.into()));
    }
    file.allocate(bytes).map_err(DiskError::room("allocate", path))
}

/// Opens a segment that does not count, and empties it.
pub(super) fn empty(
    files: &Arc<dyn Files>,
    directory: &Path,
    number: u64,
) -> Result<Arc<Segment>, DiskError> {
    let path = path_of(directory, number);
    let file = files.open(&path, Purpose::Write).map_err(DiskError::io("open", &path))?;
    file.set_length(0).map_err(DiskError::io("cut", &path))?;
    Ok(Arc::new(Segment { number, path, file }))
}

/// Creates an empty file. One that has the name already is left from a failed attempt, and goes.
///
/// # Errors
/// It cannot be created.
pub fn create(files: &Arc<dyn Files>, path: &Path) -> Result<Box<dyn StoredFile>, DiskError> {
    let create = || match files.create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            files.remove(path)?;
            files.create(path)
        }
        created => created,
    };
    create().map_err(DiskError::room("create", path))
}

/// Removes a segment, durably. An earlier attempt may have removed it, and not synced that.
pub(super) fn remove(files: &Arc<dyn Files>, directory: &Path, number: u64) -> Result<(), Failure> {
    let path = path_of(directory, number);
    match files.remove(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed.map_err(DiskError::io("remove", &path)).map_err(Failure::passing)?,
    }
    sync_directory(files, directory)
}

/// Makes the names in the directory durable. Without a descriptor for that nothing was synced, so
/// no sync has failed, and a later one may do it.
fn sync_directory(files: &Arc<dyn Files>, directory: &Path) -> Result<(), Failure> {
    let synced = files.sync_directory(directory).map_err(DiskError::io("sync", directory));
    synced.map_err(|error| match error.lacks_descriptors() {
        Some(_) => Failure::passing(error),
        None => Failure::last(error),
    })
}
