//! Salvage: copies the provable records of a damaged store.

use super::how::How;
use super::replace::{
    MOUNTED, REPAIRED, free_name, is_mount_point, replace_directory, replace_pool, sibling,
};
use super::{directory, engines, start};
use crate::index::{Engine, Index};
use crate::salvaged::Salvaged;
use crate::{ByteSize, Entry, Finding, OpenError, Options, PutOptions, Store, WriteError};
use std::fs;
use std::path::Path;

/// How the name of a new store ends while records are copied to it.
const SALVAGING: &str = "salvaging";

/// Copies the records of the store at `path` that their checksums prove to a new one in its place.
pub(super) fn salvage(options: &Options, path: &Path) -> Result<Salvaged, OpenError> {
    // A link stays, and leads to the new store: on the same file system as the damaged one.
    let real = fs::canonicalize(path);
    let path = real.as_deref().unwrap_or(path);
    if path.is_dir() { salvage_directory(options, path) } else { salvage_pool(options, path) }
}

/// As [`salvage`], for a store in a directory.
fn salvage_directory(options: &Options, path: &Path) -> Result<Salvaged, OpenError> {
    if is_mount_point(path) {
        return Err(OpenError::Salvage { pool: path.into(), what: MOUNTED.into() });
    }
    let new_path = sibling(path, SALVAGING);
    // Of earlier attempts, which have not come to their end.
    let _ = fs::remove_dir_all(&new_path);
    let _ = fs::remove_dir_all(sibling(path, REPAIRED));
    copy_directory(options, path, &new_path).inspect_err(|_| _ = fs::remove_dir_all(&new_path))
}

/// Copies what is sound to a store at `new_path`, and puts that in the place of the damaged one.
fn copy_directory(options: &Options, path: &Path, new_path: &Path) -> Result<Salvaged, OpenError> {
    let failed = |error: &dyn std::error::Error| not_salvaged(path, error.to_string());
    let engine = Engine::in_directory(path).unwrap_or(options.engine);
    let store =
        start::store(&options.clone().salvage(false).engine(engine).directory(new_path), How::Create)?;
    let mut copying = Copying::to(store.deferring());
    directory::salvage(engine, path, options.memory, &mut |found| copying.take(found))?;
    let salvaged = copying.end().map_err(|error| not_copied(path, &error))?;
    store.disk().and_then(|disk| disk.flush().and_then(|()| disk.sync())).map_err(|error| failed(&error))?;
    store.close().map_err(|error| failed(&error))?;
    let damaged = free_name(path);
    replace_directory(path, new_path, &damaged).map_err(|error| failed(&error))?;
    Ok(Salvaged { damaged, ..salvaged })
}

/// As [`salvage`], for a pool.
fn salvage_pool(options: &Options, path: &Path) -> Result<Salvaged, OpenError> {
    let engine = engines::engine(options, How::Open)?;
    let stats = engine.stats();
    let Some(pool) = stats.pool else {
        let what = "a store of the engine `tiered` cannot be repaired; restore a backup";
        return Err(not_salvaged(path, what.into()));
    };
    let new_path = sibling(path, SALVAGING);
    let _ = fs::remove_file(&new_path);
    let index = stats.index.and_then(|index| Index::named(index.name)).unwrap_or_default();
    let successor = successor(options, &new_path, index, pool.size_bytes, stats.records);
    let copied = (|| {
        let failed = |error: &dyn std::error::Error| not_salvaged(path, error.to_string());
        let store = start::store(&successor, How::Create)?;
        let mut copying = Copying::to(store.clone());
        engine.salvage(&mut |found| copying.take(found));
        let mut salvaged = copying.end().map_err(|error| not_copied(path, &error))?;
        // A key that was visited twice counts once.
        salvaged.kept = store.len();
        store.close().map_err(|error| failed(&error))?;
        let damaged = replace_pool(path, &new_path, pool.generation).map_err(|error| failed(&error))?;
        Ok(Salvaged { damaged, ..salvaged })
    })();
    copied.inspect_err(|_| _ = fs::remove_file(&new_path))
}

fn not_salvaged(path: &Path, what: String) -> OpenError {
    OpenError::Salvage { pool: path.into(), what }
}

fn not_copied(path: &Path, error: &WriteError) -> OpenError {
    not_salvaged(path, format!("its records could not be copied: {error}"))
}

/// Options for creating the same store at `path`.
fn successor(options: &Options, path: &Path, index: Index, size: u64, keys: u64) -> Options {
    let same = options.clone().index(index).path(path).salvage(false).expiry_thread(false).huge_pages(false);
    same.size(ByteSize::bytes(size)).expected_keys(keys)
}

/// A copy of records to a new store, until one cannot be written.
struct Copying {
    store: Store,
    salvaged: Salvaged,
    copied: Result<(), WriteError>,
}

impl Copying {
    fn to(store: Store) -> Self {
        Self { store, salvaged: Salvaged::default(), copied: Ok(()) }
    }

    /// Copies a record, unless an earlier one could not be copied, or notes a damage.
    fn take(&mut self, found: Result<(&[u8], Entry<'_>), Finding>) {
        match found {
            Ok((key, entry)) if self.copied.is_ok() => {
                self.copied = copy(&self.store, key, entry);
                self.salvaged.kept += u64::from(self.copied.is_ok());
            }
            Ok(_) => {}
            Err(finding) => self.salvaged.note(finding),
        }
    }

    fn end(self) -> Result<Salvaged, WriteError> {
        self.copied.map(|()| self.salvaged)
    }
}

/// Copies an entry. If the new pool is full, grows it by a quarter, repeatedly.
fn copy(store: &Store, key: &[u8], entry: Entry<'_>) -> Result<(), WriteError> {
    loop {
        match store.put_with(key, entry.value, PutOptions::new().expires_at(entry.expires_at)) {
            Err(WriteError::PoolFull { size, .. })
                if store.upkeep().grow(ByteSize::bytes(size + size / 4)).is_ok() => {}
            done => return done,
        }
    }
}
