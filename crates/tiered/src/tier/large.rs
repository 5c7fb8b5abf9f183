//! Large values: a file each, past DRAM.
//!
//! A record names the file. The file is synced before anything durable names it: before the sync of
//! the log, and so before a block is sealed. An open removes the files that no record names.

use crate::open::TieredError;
use crate::space::memory::Here;
use crate::space::record::{LARGE, LargeValue, hash_in};
use crate::space::stripes::Locked;
use crate::store::Tiered;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use terrace_disk::{Content, DiskError, cold};
use terrace_engine::Draft;
use terrace_engine::{Durability, ReadError, WriteError};
use terrace_medium::files::{Files, Purpose};
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

impl Tiered {
    /// Bytes from which on a value is large.
    pub(crate) fn large_from(&self) -> usize {
        (self.memory().pages.page_bytes() / 4).min(256 << 10)
    }

    /// Writes a large value. Those that wait for a sync stay open: if they are many, they are
    /// synced first.
    pub(crate) fn write_large(&self, value: &[u8]) -> Result<LargeValue, WriteError> {
        cold::may_wait().map_err(DiskError::room("write", self.path()))?;
        self.standing.check_place(&self.directory)?;
        self.bound_unsynced()?;
        let number = self.next_file.fetch_add(1, Relaxed);
        let path = path_of(self.path(), number);
        let write = || {
            let file = self.files.create(&path).map_err(DiskError::room("create", &path))?;
            file.write_all_at(value, 0).map_err(DiskError::room("write", &path))?;
            Ok(file)
        };
        match write() {
            Ok(file) => {
                let mut unsynced = self.unsynced.write().unwrap_or_else(PoisonError::into_inner);
                unsynced.push((number, file.into()));
                Ok(LargeValue { number, sum: xxh3_64_with_seed(value, number) })
            }
            Err(error) => {
                let _ = self.files.remove(&path);
                if matches!(error, DiskError::Full { .. }) && self.doomed_bytes.load(Relaxed) > 0 {
                    // What can go is much where there is no room.
                    self.doomed_bytes.fetch_max(self.settings.log_bytes + 1, Relaxed);
                }
                Err(DiskError::into(error))
            }
        }
    }

    /// Syncs the files that wait for that, if they are many: each has a descriptor.
    fn bound_unsynced(&self) -> Result<(), WriteError> {
        let waiting = self.unsynced.read().unwrap_or_else(PoisonError::into_inner).len();
        if waiting >= UNSYNCED_MAX { self.sync_large() } else { Ok(()) }
    }

    /// Writes a large value again that the log names, so that the next sync makes it durable: the
    /// process that wrote it may not have synced it, or in vain.
    pub(crate) fn renew_large(&self, large: LargeValue, value: &[u8]) -> Result<(), TieredError> {
        if self.settings.read_only {
            return Ok(());
        }
        self.bound_unsynced()?;
        let path = path_of(self.path(), large.number);
        let file = self.files.open(&path, Purpose::Write).map_err(DiskError::room("open", &path))?;
        file.write_all_at(value, 0).map_err(DiskError::room("write", &path))?;
        let mut unsynced = self.unsynced.write().unwrap_or_else(PoisonError::into_inner);
        unsynced.push((large.number, file.into()));
        Ok(())
    }

    /// Notes a large value that no live record names, of so many bytes, and the number of its
    /// write.
    pub(crate) fn doom_large(&self, large: LargeValue, seq: u64, bytes: usize) {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).push((large, seq));
        self.doomed_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Dooms the large value of a dead record, unless the present version of its key is the same
    /// write: an open that sealed what the log had leaves two records of one. `all`: the caller has
    /// locked all stripes.
    pub(crate) fn doom(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        (large, seq): (LargeValue, u64),
        all: Option<&Locked<'_>>,
    ) -> Result<(), ReadError> {
        let _stripe = all.is_none().then(|| self.stripes.lock(hash_in(probe)));
        here.search.forget();
        let present = self.old_to_replace(here, probe)?;
        if present.is_none_or(|present| present.copied.seq != seq) {
            // Twice does no harm. Its bytes were counted when it was replaced.
            self.doom_large(large, seq, 0);
        }
        Ok(())
    }

    /// Removes the files of large values that neither a record nor the log names any more.
    pub(crate) fn remove_doomed(&self) -> Result<(), WriteError> {
        let oldest = match self.settings.durability {
            // Until then the log may have what has replaced them, and the tier may not.
            Durability::None if !self.has_left_log.load(Relaxed) => return Ok(()),
            Durability::None => u64::MAX,
            _ => self.log.oldest_seq().unwrap_or(u64::MAX),
        };
        let gone: Vec<_> = {
            let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
            doomed.extract_if(.., |(_, seq)| *seq < oldest).collect()
        };
        if !gone.is_empty() {
            self.standing.check_place(&self.directory)?;
            // What has replaced them must not be lost.
            self.sync_log()?;
        }
        gone.into_iter().for_each(|(large, _)| self.remove_large(large));
        Ok(())
    }

    /// Removes the files of all large values with numbers below `end`: the store was cleared. Those
    /// with higher ones are of writes that come behind that.
    pub(crate) fn forget_large(&self, end: u64) -> Result<(), WriteError> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut unsynced = self.unsynced.write().unwrap_or_else(PoisonError::into_inner);
        unsynced.retain(|(number, _)| *number >= end);
        drop(unsynced);
        let names = self.files.list(self.path()).map_err(DiskError::room("list", self.path()))?;
        for number in names.iter().filter_map(|name| number_of(name.to_str()?)).filter(|nth| *nth < end) {
            self.remove_large(LargeValue { number, sum: 0 });
        }
        Ok(())
    }

    /// Removes the file of a large value that no record names any more.
    pub(crate) fn remove_large(&self, large: LargeValue) {
        // The next open removes what is left here.
        let _ = self.files.remove(&path_of(self.path(), large.number));
    }

    /// A large value of so many bytes; `None` if its file is gone.
    pub(crate) fn read_large(&self, large: LargeValue, len: usize) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(read(&self.files, self.path(), large, len)?)
    }
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
