//! The log area: a file beside the pool with the table of owners, the sessions, and the segments
//! that serving nodes write their logs to. `format` says where each of them lies.

use super::error::MemoryError;
use super::format::{
    COUNTERS, HEADER_WORDS, MAGIC, NUMBER, OWNERS, SEGMENT_ROW, SEGMENTS, VERSION, bodies, header_sum, seal,
    size,
};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_fabric::Memory;
use terrace_medium::{MapError, MappedMedium, Mapping, Offset, Protection, Region, Shm, Word};

/// An open log area.
pub(crate) struct Area {
    region: Region<Shm>,
    path: PathBuf,
    /// Its segments.
    pub(crate) segments: u64,
    /// The bytes of each.
    pub(crate) segment_bytes: u64,
}

impl Memory for Area {
    fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }
}

/// The path of the log area of a pool.
pub(crate) fn log_path(pool: &Path) -> PathBuf {
    let mut path = pool.as_os_str().to_owned();
    path.push(".log");
    path.into()
}

impl Area {
    /// Opens the log area of the pool with this id.
    pub(crate) fn open(path: &Path, pool: &Path, id: u128) -> Result<Self, MemoryError> {
        let (area, len) = Self::mapped(path)?;
        area.check_header(pool, id, len)
    }

    /// Opens a log area of any pool, to count an open; nothing if there is none.
    pub(crate) fn open_any(path: &Path) -> Result<Option<Self>, MemoryError> {
        match Self::mapped(path) {
            Err(MemoryError::NoLog { .. }) => Ok(None),
            Err(MemoryError::Log { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok((area, _)) => Ok((area.word(0) == MAGIC && area.word(8) == VERSION).then_some(area)),
        }
    }

    /// Maps a file that is as long as a log area at least, and tells its bytes.
    fn mapped(path: &Path) -> Result<(Self, u64), MemoryError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(failed(path, "open"))?;
        make_private(&file).map_err(failed(path, "protect"))?;
        let len = file.metadata().map_err(failed(path, "look at"))?.len();
        if len < bodies(0) {
            return Err(MemoryError::NoLog { log: path.into() });
        }
        let region = map(path, file, len)?;
        Ok((Self { region, path: path.into(), segments: 0, segment_bytes: 0 }, len))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn check_header(mut self, pool: &Path, id: u128, len: u64) -> Result<Self, MemoryError> {
        let words: Vec<u64> = (0..=HEADER_WORDS as u64).map(|nth| self.word(8 * nth)).collect();
        let log = || self.path.clone();
        if words[0] != MAGIC {
            return Err(MemoryError::NoLog { log: log() });
        }
        if words[1] != VERSION {
            return Err(MemoryError::Version { log: log(), found: words[1] });
        }
        if words[HEADER_WORDS] != header_sum(&words) {
            return Err(self.damaged(0, "its header does not match its checksum"));
        }
        if [words[2], words[3]] != [id as u64, (id >> 64) as u64] {
            return Err(MemoryError::OtherPool { log: log(), pool: pool.into() });
        }
        (self.segments, self.segment_bytes) = (words[4], words[5]);
        match size(self.segments, self.segment_bytes) {
            Some(size) if size == len => Ok(self),
            _ => Err(self.damaged(32, "the file is shorter or longer than its header says")),
        }
    }

    /// Creates a log area. If the process dies before it is complete, there is none.
    pub(crate) fn create(path: &Path, id: u128, segments: u64, bytes: u64) -> Result<Self, MemoryError> {
        let Some(size) = size(segments, bytes) else {
            let why = format!("a log area of {segments} segments of {bytes} bytes cannot be");
            return Err(MemoryError::Setting(why));
        };
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(PRIVATE);
        let file = options.open(&new).map_err(failed(path, "create"))?;
        // An earlier release may have left it.
        make_private(&file).map_err(failed(path, "protect"))?;
        file.set_len(size).map_err(failed(path, "create"))?;
        // The tables have storage from now on; a segment gets it when it is granted.
        Mapping::allocate(&file, bodies(segments)).map_err(|error| failed(path, "create")(io_of(error)))?;
        let region = map(path, file, size)?;
        let area = Self { region, path: path.into(), segments, segment_bytes: bytes };
        for offset in (COUNTERS..SEGMENTS + segments * SEGMENT_ROW).step_by(8) {
            area.set(offset, u64::from(offset < OWNERS));
        }
        let mut words = [MAGIC, VERSION, id as u64, (id >> 64) as u64, segments, bytes, 0];
        words[HEADER_WORDS] = header_sum(&words);
        (0..).step_by(8).zip(words).for_each(|(offset, word)| area.store(offset, word));
        std::fs::rename(&new, path).map_err(failed(path, "create"))?;
        Ok(area)
    }

    fn store(&self, offset: u64, word: u64) {
        let at: &Word = self.region.at(Offset::new(offset));
        at.store(self.region.medium(), word, Ordering::Release);
        // PERSIST: each word before the next one.
        self.region.persist(at);
    }

    fn word(&self, offset: u64) -> u64 {
        self.region.at::<Word>(Offset::new(offset)).load(self.region.medium(), Ordering::Acquire)
    }

    /// Stores a number in a sealed word. It is durable when this returns.
    pub(crate) fn set(&self, offset: u64, number: u64) {
        debug_assert!((COUNTERS..bodies(self.segments)).contains(&offset), "sealed words are in the tables");
        self.store(offset, seal(number, offset));
    }

    /// The number in a sealed word.
    ///
    /// # Panics
    /// If the word is damaged: all were whole when the area was opened.
    pub(crate) fn number(&self, offset: u64) -> u64 {
        self.checked(offset).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Area::number`], of an area that was opened just now.
    pub(crate) fn checked(&self, offset: u64) -> Result<u64, MemoryError> {
        let word = self.word(offset);
        let number = word & NUMBER;
        match seal(number, offset) == word {
            true => Ok(number),
            false => Err(self.damaged(offset, "a word does not match its checksum")),
        }
    }

    pub(crate) fn damaged(&self, offset: u64, what: &'static str) -> MemoryError {
        MemoryError::Damaged { log: self.path.clone(), offset, what }
    }

    /// The bytes of the segment in this row.
    pub(crate) fn body(&self, row: u64) -> Range<usize> {
        assert!(row < self.segments, "a segment of this area");
        let start = bodies(self.segments) + row * self.segment_bytes;
        let place = |at: u64| usize::try_from(at).expect("it is mapped");
        place(start)..place(start + self.segment_bytes)
    }

    /// Gives the segment in this row storage, so that no store to it fails.
    pub(crate) fn allocate(&self, row: u64) -> Result<(), MapError> {
        let body = self.body(row);
        self.region.medium().mapping().allocate_part(body.start as u64, self.segment_bytes)
    }
}

/// The mode of the file: it has keys and values.
const PRIVATE: u32 = 0o600;

/// Lets nobody else read the file.
fn make_private(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & 0o777 & !PRIVATE == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(PRIVATE))
}

fn map(path: &Path, file: File, len: u64) -> Result<Region<Shm>, MemoryError> {
    let len = usize::try_from(len).expect("a file of this machine");
    let mapping = Mapping::file(file, len, len, Protection::ReadWrite);
    let mapping = mapping.map_err(|error| failed(path, "map")(io_of(error)))?;
    Ok(Region::new(Shm::new(mapping)))
}

fn io_of(error: MapError) -> io::Error {
    match error {
        MapError::Os(_, error) => error,
        other => io::Error::other(other),
    }
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> MemoryError {
    let log = path.to_owned();
    move |error| MemoryError::Log { log: log.clone(), action, error }
}
