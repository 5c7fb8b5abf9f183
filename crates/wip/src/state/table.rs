//! Tables of a store: their files, which go when the last reader of a removed table does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_disk::{DiskError, FilterKind, Properties, TableCache, TableOptions, TableReader};
use terrace_medium::files::{Files, Purpose};

/// Levels of a bucket (the paper's L_max).
pub(crate) const LEVELS: usize = 3;

/// A table.
pub(crate) struct Table {
    pub(crate) number: u64,
    reader: Arc<TableReader>,
    bytes: u64,
    files: Arc<dyn Files>,
    path: PathBuf,
    /// Whether the store has removed it.
    is_removed: AtomicBool,
}

impl Table {
    /// Opens the table with this number.
    pub(crate) fn open(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        number: u64,
        bytes: u64,
        cache: &Arc<TableCache>,
    ) -> Result<Self, DiskError> {
        let path = path_of(directory, number);
        let file = files.open(&path, Purpose::ReadDirect).map_err(DiskError::room("open", &path))?;
        let reader = TableReader::open(file, &path, cache)?;
        if reader.store() != store {
            return Err(DiskError::Foreign { path });
        }
        if reader.table() != number {
            return Err(DiskError::Corrupt { path, offset: 0, what: "it is another table of this store" });
        }
        let reader = Arc::new(reader);
        Ok(Self { number, reader, bytes, files: files.clone(), path, is_removed: AtomicBool::new(false) })
    }

    /// Its file is removed once nobody reads it any more.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Relaxed);
    }

    /// Bytes of its file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn properties(&self) -> &Properties {
        self.reader.properties()
    }

    pub(crate) fn reader(&self) -> &Arc<TableReader> {
        &self.reader
    }

    /// Whether `key` lies between its first and its last key.
    #[inline]
    pub(crate) fn has_room_for(&self, key: &[u8]) -> bool {
        let properties = self.properties();
        *properties.first_key <= *key && *key <= *properties.last_key
    }

    /// Whether it can have a key from `low` on and below `end`.
    pub(crate) fn overlaps(&self, low: &[u8], end: Option<&[u8]>) -> bool {
        let properties = self.properties();
        *properties.last_key >= *low && end.is_none_or(|end| *properties.first_key < *end)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.is_removed.load(Relaxed) {
            // The next open removes what is left here.
            let _ = self.files.remove(&self.path);
        }
    }
}

/// The path of the table with this number.
pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}.table"))
}

/// The number of the table that a file with this name has.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".table")?;
    (digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// How tables of a level of this store are written.
pub(crate) fn options_of(level: usize, compress: bool, store: u64) -> TableOptions {
    debug_assert!(level < LEVELS, "a level of a bucket");
    // A get looks into all tables above the last level: their filters err less.
    let filter = if level + 1 < LEVELS { FilterKind::Bits16 } else { FilterKind::Bits8 };
    TableOptions { compress, filter, store, ..TableOptions::default() }
}
