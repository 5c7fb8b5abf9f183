//! Large values: a file each, past DRAM.
//!
//! A record names the file. The file is synced before anything durable names it: before the sync of
//! the log, and so before a block is sealed. An open removes the files that no record names.

use super::files::Tier;
use crate::error::TieredError;
use crate::space::record::{LARGE, LargeValue};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use terrace_disk::{Content, DiskError, cold};
use terrace_engine::Draft;
use terrace_engine::WriteError;
use terrace_medium::files::{Files, Purpose, StoredFile};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Files that may wait for a sync, of each of which a descriptor is taken.
const UNSYNCED_MAX: usize = 128;

/// The path of a large value.
pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}.large"))
}

/// The number of the large value that a file with this name has.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".large")?;
    (digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Files that are open until they are synced, by their numbers.
type Unsynced = Vec<(u64, Arc<dyn StoredFile>)>;

/// The large values of a store. It owns which of them are not synced, and which no live record
/// names; their files lie on the [`Tier`] that a caller names.
#[derive(Default)]
pub(crate) struct LargeValues {
    /// Files of large values that were written since the last sync of the log.
    unsynced: RwLock<Unsynced>,
    /// Large values that no live record names, and the numbers of their writes. They go once the
    /// log has these no more: until then an open looks for them.
    doomed: Mutex<Vec<(LargeValue, u64)>>,
    /// Bytes of those that have come since the log began a segment for them.
    doomed_bytes: AtomicU64,
}

impl LargeValues {
    fn unsynced(&self) -> RwLockWriteGuard<'_, Unsynced> {
        self.unsynced.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn doomed(&self) -> MutexGuard<'_, Vec<(LargeValue, u64)>> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a large value. Those that wait for a sync stay open: if they are many, they are
    /// synced first. Where there is no room for it, doomed ones count as `much` from now on.
    pub(crate) fn write(&self, tier: &Tier, value: &[u8], much: u64) -> Result<LargeValue, WriteError> {
        cold::may_wait().map_err(DiskError::room("write", tier.path()))?;
        tier.check_place()?;
        self.bound_unsynced(tier)?;
        let number = tier.number_file();
        let path = path_of(tier.path(), number);
        let write = || {
            let file = tier.files.create(&path).map_err(DiskError::room("create", &path))?;
            file.write_all_at(value, 0).map_err(DiskError::room("write", &path))?;
            Ok(file)
        };
        match write() {
            Ok(file) => {
                self.unsynced().push((number, file.into()));
                Ok(LargeValue { number, sum: xxh3_64_with_seed(value, number) })
            }
            Err(error) => {
                let _ = tier.files.remove(&path);
                if matches!(error, DiskError::Full { .. }) && self.doomed_bytes() > 0 {
                    // What can go is much where there is no room.
                    self.doomed_bytes.fetch_max(much, Relaxed);
                }
                Err(DiskError::into(error))
            }
        }
    }

    /// Syncs the files that wait for that, if they are many: each has a descriptor.
    fn bound_unsynced(&self, tier: &Tier) -> Result<(), WriteError> {
        let waiting = self.unsynced.read().unwrap_or_else(PoisonError::into_inner).len();
        if waiting >= UNSYNCED_MAX { self.sync(tier) } else { Ok(()) }
    }

    /// Writes a large value again that the log names, so that the next sync makes it durable: the
    /// process that wrote it may not have synced it, or in vain.
    pub(crate) fn renew(&self, tier: &Tier, large: LargeValue, value: &[u8]) -> Result<(), TieredError> {
        self.bound_unsynced(tier)?;
        let path = path_of(tier.path(), large.number);
        let file = tier.files.open(&path, Purpose::Write).map_err(DiskError::room("open", &path))?;
        file.write_all_at(value, 0).map_err(DiskError::room("write", &path))?;
        self.unsynced().push((large.number, file.into()));
        Ok(())
    }

    /// Syncs the files of large values that the log may name.
    pub(crate) fn sync(&self, tier: &Tier) -> Result<(), WriteError> {
        self.with_synced(tier, || ())
    }

    /// Syncs the files of large values that the log may name, and runs `sync`, which may make any
    /// record of the log durable. No large value comes into the log meanwhile; other threads may
    /// sync it, so that writers that wait for their records share a sync.
    pub(crate) fn with_synced<T>(&self, tier: &Tier, sync: impl FnOnce() -> T) -> Result<T, WriteError> {
        loop {
            let unsynced = self.unsynced.read().unwrap_or_else(PoisonError::into_inner);
            if !unsynced.is_empty() {
                drop(unsynced);
                self.sync_files(tier)?;
                continue;
            }
            return Ok(sync());
        }
    }

    fn sync_files(&self, tier: &Tier) -> Result<(), WriteError> {
        let mut unsynced = self.unsynced();
        if unsynced.is_empty() {
            return Ok(());
        }
        let room = |error| tier.standing.failed(DiskError::room("sync", tier.path())(error));
        unsynced.iter().try_for_each(|(_, file)| StoredFile::sync(&**file)).map_err(room)?;
        tier.files.sync_directory(tier.path()).map_err(room)?;
        unsynced.clear();
        Ok(())
    }

    /// Notes a large value that no live record names, of so many bytes, and the number of its
    /// write.
    pub(crate) fn doom(&self, large: LargeValue, seq: u64, bytes: usize) {
        self.doomed().push((large, seq));
        self.doomed_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed().is_empty()
    }

    pub(crate) fn doomed_bytes(&self) -> u64 {
        self.doomed_bytes.load(Relaxed)
    }

    /// Counts the bytes of doomed ones from 0, and returns those of before.
    pub(crate) fn swap_doomed_bytes(&self) -> u64 {
        self.doomed_bytes.swap(0, Relaxed)
    }

    /// Counts so many bytes of doomed ones again.
    pub(crate) fn count_doomed(&self, bytes: u64) {
        self.doomed_bytes.fetch_add(bytes, Relaxed);
    }

    /// Takes the doomed ones whose writes have lower numbers than `oldest`.
    pub(crate) fn take_doomed(&self, oldest: u64) -> Vec<(LargeValue, u64)> {
        self.doomed().extract_if(.., |(_, seq)| *seq < oldest).collect()
    }

    /// Takes all doomed ones, so that none goes until [`LargeValues::keep_no_longer`].
    pub(crate) fn keep_doomed(&self) -> Vec<(LargeValue, u64)> {
        std::mem::take(&mut *self.doomed())
    }

    /// Dooms again what was kept.
    pub(crate) fn keep_no_longer(&self, kept: Vec<(LargeValue, u64)>) {
        self.doomed().extend(kept);
    }

    /// Removes the files of all large values with numbers below `end`: the store was cleared. Those
    /// with higher ones are of writes that come behind that.
    pub(crate) fn forget(&self, tier: &Tier, end: u64) -> Result<(), WriteError> {
        self.doomed().clear();
        self.unsynced().retain(|(number, _)| *number >= end);
        let names = tier.files.list(tier.path()).map_err(DiskError::room("list", tier.path()))?;
        for number in names.iter().filter_map(|name| number_of(name.to_str()?)).filter(|nth| *nth < end) {
            remove(tier, LargeValue { number, sum: 0 });
        }
        Ok(())
    }

    /// Removes the file of a value that the log does not name.
    pub(crate) fn give_up(&self, tier: &Tier, large: LargeValue) {
        // An open file keeps its room.
        self.unsynced().retain(|(number, _)| *number != large.number);
        remove(tier, large);
    }
}

/// Removes the file of a large value that no record names any more.
pub(crate) fn remove(tier: &Tier, large: LargeValue) {
    // The next open removes what is left here.
    let _ = tier.files.remove(&path_of(tier.path(), large.number));
}

/// The damage that the file is not there which stands in the place of a value.
pub(crate) fn missing(directory: &Path, large: Option<LargeValue>) -> DiskError {
    let number = large.map_or(0, |large| large.number);
    DiskError::corrupt(&path_of(directory, number), 0, "the file of a large value is missing")
}

/// The large value that a write of the log names, if it does, and its bytes. `log` is named if it
/// names none.
pub(crate) fn reference_in(draft: &Draft<'_>, log: &Path) -> Result<Option<(LargeValue, usize)>, DiskError> {
    let (true, Content::Put { value, .. }) = (draft.is_reference, draft.content) else { return Ok(None) };
    let parts = value.split_at_checked(LARGE).and_then(|(large, len)| {
        Some((LargeValue::read(large)?, u64::from_le_bytes(len.try_into().ok()?) as usize))
    });
    parts.map(Some).ok_or_else(|| DiskError::corrupt(log, 0, "a record of the log names no large value"))
}

/// Reads a large value of so many bytes; `None` if there is no such file.
pub(crate) fn read(
    files: &Arc<dyn Files>,
    directory: &Path,
    large: LargeValue,
    len: usize,
) -> Result<Option<Vec<u8>>, DiskError> {
    let path = path_of(directory, large.number);
    let corrupt = |what| DiskError::corrupt(&path, 0, what);
    cold::may_wait().map_err(DiskError::room("read", &path))?;
    let file = match files.open(&path, Purpose::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(DiskError::room("open", &path))?,
    };
    if file.length().map_err(DiskError::room("read", &path))? < len as u64 {
        return Err(corrupt("the file of a large value is too short"));
    }
    let mut value = vec![0; len];
    file.read_exact_at(&mut value, 0).map_err(DiskError::room("read", &path))?;
    match xxh3_64_with_seed(&value, large.number) == large.sum {
        true => Ok(Some(value)),
        false => Err(corrupt("a large value does not match its checksum")),
    }
}
