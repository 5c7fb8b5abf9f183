//! How far the log and the manifest went: evidence against files that became shorter.
//!
//! ```text
//!   ENDS: | slot | slot |
//!   slot: | magic u64 | format u32 | 0 u32 | count u64 | store u64 | boot u64 | segment u64
//!         | written u64 | durable u64 | oldest u64 | manifest u64 | bytes of it u64 | sum u64 |
//! ```
//! A log alone cannot tell a record that was never written from one that was cut off. So its writer
//! notes here how far it got: `written` has reached the kernel, `durable` survives a power loss.
//! `segment` is the one that took the last record, `oldest` the first that counts. `manifest` is
//! the number of the manifest that counts, with the bytes of it that were synced.
//!
//! The slot with the higher count holds; the other one is written next. So a process that is killed
//! while it writes a slot leaves the one before. What was `written` counts only while the machine
//! runs on, which `boot` tells: a power loss may take it. All else only grows and stays true. A
//! slot is written after what it tells, and not synced, so it may tell of less than there was. Two
//! syncs are an exception: `oldest` is durable before the segment in front of it goes, and all of a
//! log that was closed.
//!
//! The file is evidence only: without it, or where it is damaged, a store opens as it is. But what
//! it tells must stay true. So a session that cannot tell its boot writes it too, with a `boot` of
//! 0, and no segment is removed before the file says so.

use crate::DiskError;
use crate::codec::{Reader, checksum};
use crate::log::Position;
use crate::manifest::Manifest;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_medium::files::{Files, Purpose, StoredFile};

/// The name of the file.
pub(crate) const NAME: &str = "ENDS";
const MAGIC: u64 = u64::from_le_bytes(*b"terrends");
const FORMAT: u32 = 1;
const SLOT: usize = 96;
/// Both slots lie in one sector, so a power loss keeps them as they were at one moment.
const BYTES: usize = 2 * SLOT;

/// What a slot tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    count: u64,
    /// The machine's start in which `written` counts; 0 for none.
    boot: u64,
    pub(crate) segment: u64,
    pub(crate) written: Position,
    pub(crate) durable: Position,
    pub(crate) oldest: u64,
    pub(crate) manifest: u64,
    pub(crate) manifest_bytes: u64,
}

impl Noted {
    fn to_bytes(self, store: u64) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let Self { count, boot, segment, written, durable, oldest, manifest, manifest_bytes } = self;
        let fields = [count, store, boot, segment, written, durable, oldest, manifest, manifest_bytes];
        for (field, place) in fields.iter().zip(bytes[16..].chunks_mut(8)) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(&bytes[..SLOT - 8], store);
        bytes[SLOT - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8], store: u64) -> Option<Self> {
        let mut reader = Reader(bytes.get(..SLOT)?);
        let (magic, format) = (reader.u64()?, reader.u32()?);
        reader.u32()?;
        let (count, of) = (reader.u64()?, reader.u64()?);
        let (boot, segment, written, durable) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let (oldest, manifest, manifest_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let is_sound = (magic, format, of) == (MAGIC, FORMAT, store)
            && reader.u64()? == checksum(&bytes[..SLOT - 8], store);
        let noted = Self { count, boot, segment, written, durable, oldest, manifest, manifest_bytes };
        is_sound.then_some(noted)
    }

    /// The newest sound slot; nothing if there is none.
    fn newest(bytes: &[u8], store: u64) -> Self {
        let slots = bytes.chunks(SLOT).filter_map(|slot| Self::read(slot, store));
        slots.max_by_key(|noted| noted.count).unwrap_or_default()
    }

    /// Whether a segment is missing in front of the first one that is there. One with a head that
    /// is newer than all that were noted shows that the notes are old.
    pub(crate) fn misses(&self, first: u64, has_head: bool) -> bool {
        self.oldest > 0 && first > self.oldest && !(has_head && first > self.segment)
    }

    /// The end that the log certainly had.
    pub(crate) fn log_end(&self) -> Position {
        self.written.max(self.durable)
    }
}

/// What the directory tells of its log and its manifest.
pub(crate) fn read(files: &Arc<dyn Files>, directory: &Path, store: u64) -> Result<Noted, DiskError> {
    let path = directory.join(NAME);
    let file = match files.open(&path, Purpose::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Noted::default()),
        file => file.map_err(DiskError::io("open", &path))?,
    };
    noted_in(files, &*file, (&path, store))
}

/// What the file tells, as far as it is still true.
fn noted_in(
    files: &Arc<dyn Files>,
    file: &dyn StoredFile,
    (path, store): (&Path, u64),
) -> Result<Noted, DiskError> {
    let length = file.length().map_err(DiskError::io("read the length of", path))?;
    let mut bytes = vec![0; BYTES.min(length as usize)];
    file.read_exact_at(&mut bytes, 0).map_err(DiskError::io("read", path))?;
    let noted = Noted::newest(&bytes, store);
    let is_same_boot = files.boot().is_some_and(|boot| boot == noted.boot);
    Ok(if is_same_boot { noted } else { Noted { written: 0, ..noted } })
}

/// The file, open for writing, or nothing. Clones are handles of the same one.
#[derive(Clone, Default)]
pub struct Ends(Option<Arc<Shared>>);

struct Shared {
    file: Box<dyn StoredFile>,
    path: PathBuf,
    store: u64,
    noted: Mutex<Noted>,
}

impl Ends {
    /// Opens the file in the directory of a store, or creates it. None is created where there is
    /// no room for it, or where nothing tells whether the machine has run on: in a pool, say,
    /// whose files nobody else changes. One that tells something is kept true all the same.
    ///
    /// # Errors
    /// It cannot be read or created.
    pub fn open(files: &Arc<dyn Files>, directory: &Path, store: u64) -> Result<Self, DiskError> {
        let (boot, path) = (files.boot(), directory.join(NAME));
        let file = match files.open(&path, Purpose::Write) {
            Err(error) if error.kind() == ErrorKind::NotFound && boot.is_none() => return Ok(Self(None)),
            // Its name is durable once the log has its next segment, or the copy is complete.
            Err(error) if error.kind() == ErrorKind::NotFound => files.create(&path),
            file => file,
        };
        let file = match file.map_err(DiskError::room("open", &path)) {
            Err(DiskError::Full { .. }) => return Ok(Self(None)),
            file => file?,
        };
        let noted = noted_in(files, &*file, (&path, store))?;
        match file.allocate(BYTES as u64).map_err(DiskError::room("allocate", &path)) {
            // What is there must not become untrue.
            Err(DiskError::Full { .. }) if noted.count > 0 => {}
            Err(DiskError::Full { .. }) => return Ok(Self(None)),
            allocated => {
                allocated?;
                file.expect_small_writes(BYTES as u64);
            }
        }
        let noted = Mutex::new(Noted { boot: boot.unwrap_or(0), ..noted });
        Ok(Self(Some(Arc::new(Shared { file, path, store, noted }))))
    }

    /// As [`Ends::open`], for a store whose manifest keeps it, too. Nothing if there is none: it is
    /// not written to.
    ///
    /// # Errors
    /// As for [`Ends::open`].
    pub fn beside(
        manifest: Option<&mut Manifest>,
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
    ) -> Result<Self, DiskError> {
        let Some(manifest) = manifest else { return Ok(Self(None)) };
        let ends = Self::open(files, directory, store)?;
        manifest.keep_ends(ends.clone());
        Ok(ends)
    }

    /// Changes what is noted. It may fail unseen: then less is known later.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Noted)) {
        let _ = self.write(change);
    }

    /// Changes what is noted, so that it survives a power loss: before what was noted gets untrue.
    ///
    /// # Errors
    /// It cannot be written or synced.
    pub(crate) fn note_durably(&self, change: impl FnOnce(&mut Noted)) -> Result<(), DiskError> {
        self.write(change)?;
        self.sync()
    }

    fn write(&self, change: impl FnOnce(&mut Noted)) -> Result<(), DiskError> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let mut noted = shared.noted.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut noted);
        noted.count += 1;
        let at = noted.count % 2 * SLOT as u64;
        let written = shared.file.write_all_at(&noted.to_bytes(shared.store), at);
        if written.is_err() {
            // The same slot is written next: the other one is sound.
            noted.count -= 1;
        }
        written.map_err(DiskError::room("write", &shared.path))
    }

    /// Waits until what is noted survives a power loss.
    ///
    /// # Errors
    /// The file cannot be synced.
    pub fn sync(&self) -> Result<(), DiskError> {
        let Some(shared) = &self.0 else { return Ok(()) };
        // PERSIST: before a segment is removed: else a power loss could leave a note that it
        // counts. After a close: then a log that is shorter is known to be damaged.
        shared.file.sync_data().map_err(DiskError::io("sync", &shared.path))
    }
}

#[cfg(test)]
#[path = "tests/ends.rs"]
mod tests;
