//! Salvage: copies the provable records of a damaged pool.

use crate::{ByteSize, Entry, Finding, Index, OpenError, Options, Put, WriteError};
use rustix::fs::{AtFlags, CWD, RenameFlags, StatxAttributes, StatxFlags, renameat_with, statx};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{fs, io};
use terrace_medium::files::{Files, Replace, SystemFiles, directory_of};

/// How the name of a new store ends that is to replace the damaged one.
const REPAIRED: &str = "repaired";

/// Maximum number of findings kept; the rest are only counted.
const LISTED_MAX: usize = 10_000;

/// The result of a salvage.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Salvaged {
    /// Number of records in the new pool.
    pub kept: u64,
    /// Number of records that were dropped, or of places at which records may have been lost.
    pub dropped: u64,
    /// Why they were dropped; the first ten thousand findings.
    pub findings: Vec<Finding>,
    /// The damaged pool, under its new name.
    pub damaged: PathBuf,
}

impl Salvaged {
    /// Copies a record to `store`, unless an earlier one could not be copied, or notes a damage.
    fn take(
        &mut self,
        store: &crate::Store,
        found: Result<(&[u8], Entry<'_>), Finding>,
        copied: &mut Result<(), WriteError>,
    ) {
        match found {
            Ok((key, entry)) if copied.is_ok() => {
                *copied = copy(store, key, entry);
                self.kept += u64::from(copied.is_ok());
            }
            Ok(_) => {}
            Err(finding) => {
                self.dropped += 1;
                if self.findings.len() < LISTED_MAX {
                    self.findings.push(finding);
                }
            }
        }
    }
}

fn not_copied(error: &WriteError) -> String {
    format!("its records could not be copied: {error}")
}

/// Copies the records of the store at `path` that their checksums prove to a new one in its place.
pub(crate) fn salvage(options: &Options, path: &Path) -> Result<Salvaged, OpenError> {
    // A link stays, and leads to the new store: on the same file system as the damaged one.
    let real = fs::canonicalize(path);
    let path = real.as_deref().unwrap_or(path);
    if path.is_dir() { salvage_directory(options, path) } else { salvage_pool(options, path) }
}

/// As [`salvage`], for a store in a directory.
fn salvage_directory(options: &Options, path: &Path) -> Result<Salvaged, OpenError> {
    let failed = |what: String| OpenError::Salvage { pool: path.into(), what };
    if is_mount_point(path) {
        return Err(failed(MOUNTED.into()));
    }
    let engine = crate::Engine::in_directory(path).unwrap_or(options.engine);
    let new_path = sibling(path, "salvaging");
    // Of earlier attempts, which have not come to their end.
    let _ = fs::remove_dir_all(&new_path);
    let _ = fs::remove_dir_all(sibling(path, REPAIRED));
    let mut salvaged = Salvaged::default();
    let copied = (|| {
        let store = options.clone().salvage(false).engine(engine).directory(&new_path).create()?;
        let later = store.deferring();
        let mut copied = Ok(());
        crate::open::directory::salvage(engine, path, options.memory, &mut |found| {
            salvaged.take(&later, found, &mut copied)
        })?;
        copied.map_err(|error| failed(not_copied(&error)))?;
        drop(later);
        store.flush().and_then(|()| store.sync()).map_err(|error| failed(error.to_string()))?;
        store.close().map_err(|error| failed(error.to_string()))?;
        let mut damaged = sibling(path, "damaged");
        let mut nth = 0;
        while damaged.exists() {
            nth += 1;
            damaged = sibling(path, &format!("damaged-{nth}"));
        }
        replace_directory(path, &new_path, &damaged).map_err(|error| failed(error.to_string()))?;
        Ok(damaged)
    })();
    match copied {
        Ok(damaged) => Ok(Salvaged { damaged, ..salvaged }),
        Err(error) => {
            let _ = fs::remove_dir_all(&new_path);
            Err(error)
        }
    }
}

/// Moves the new store to `path`, and the damaged one from there to the free name `damaged`. At
/// every instant one of the two is at `path`, or the next open finishes this.
fn replace_directory(path: &Path, new_path: &Path, damaged: &Path) -> io::Result<()> {
    // First to the other's last name, so that one exchange does all.
    fs::rename(new_path, damaged)?;
    match renameat_with(CWD, damaged, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => SystemFiles.sync_directory(directory_of(path)),
        Err(error) => {
            fs::rename(damaged, new_path)?;
            match error {
                // NFS, and some in user space.
                Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => replace_by_turns(path, new_path, damaged),
                error => Err(error.into()),
            }
        }
    }
}

/// As [`replace_directory`], where two names cannot be exchanged. The name of the new store tells
/// the next open that it is complete.
fn replace_by_turns(path: &Path, new_path: &Path, damaged: &Path) -> io::Result<()> {
    let repaired = sibling(path, REPAIRED);
    fs::rename(new_path, &repaired)?;
    SystemFiles.sync_directory(directory_of(path))?;
    fs::rename(path, damaged)?;
    finish(path)
}

/// Finishes what [`replace_by_turns`] has begun, if a crash has left no store at `path`.
pub(crate) fn finish(path: &Path) -> io::Result<()> {
    let path: PathBuf = path.components().collect();
    let repaired = sibling(&path, REPAIRED);
    if SystemFiles.is_taken(&path)? || !repaired.is_dir() {
        return Ok(());
    }
    SystemFiles.rename(&repaired, &path, Replace::No)?;
    SystemFiles.sync_directory(directory_of(&path))
}

/// Why a directory that is a mount point is not salvaged.
const MOUNTED: &str = "the directory is a mount point, so no other can take its place\n  copy its files to another \
                       directory (cp -a) while nothing has it open, and repair the copy; then put that in its place";

/// Whether a file system is mounted at this directory: then it cannot be renamed.
fn is_mount_point(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// As [`salvage`], for a pool.
fn salvage_pool(options: &Options, path: &Path) -> Result<Salvaged, OpenError> {
    let engine = options.damaged_engine()?;
    let (stats, failed) = (engine.stats(), |what: String| OpenError::Salvage { pool: path.into(), what });
    let Some(pool) = stats.pool else {
        return Err(failed("a store of the engine `tiered` cannot be repaired; restore a backup".into()));
    };
    let new_path = sibling(path, "salvaging");
    let _ = fs::remove_file(&new_path);
    let mut salvaged = Salvaged::default();
    let copied = (|| {
        let index = stats.index.and_then(|index| Index::named(index.name)).unwrap_or_default();
        let store = options.successor(&new_path, index, pool.size_bytes, stats.records).create()?;
        let mut copied = Ok(());
        engine.salvage(&mut |found| salvaged.take(&store, found, &mut copied));
        copied.map_err(|error| failed(not_copied(&error)))?;
        // A key that was visited twice counts once.
        salvaged.kept = store.len();
        store.close().map_err(|error| failed(error.to_string()))?;
        replace_pool(path, &new_path, pool.generation).map_err(|error| failed(error.to_string()))
    })();
    match copied {
        Ok(damaged) => Ok(Salvaged { damaged, ..salvaged }),
        Err(error) => {
            let _ = fs::remove_file(&new_path);
            Err(error)
        }
    }
}

/// Copies an entry. If the new pool is full, grows it by a quarter, repeatedly.
fn copy(store: &crate::Store, key: &[u8], entry: Entry<'_>) -> Result<(), WriteError> {
    let put = Put { key, value: entry.value, expires_at: entry.expires_at };
    loop {
        match store.engine().put(put, store.how()) {
            Err(WriteError::PoolFull { size, .. })
                if store.grow(ByteSize::bytes(size + size / 4)).is_ok() => {}
            done => return done,
        }
    }
}

/// Renames the damaged pool and moves the new one to its path. At every instant, one of the two is
/// at `path`.
fn replace_pool(path: &Path, new_path: &Path, generation: u32) -> std::io::Result<PathBuf> {
    let mut damaged = sibling(path, &format!("damaged-{generation}"));
    let mut nth = 0;
    while let Err(error) = fs::hard_link(path, &damaged) {
        if error.kind() != std::io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        nth += 1;
        damaged = sibling(path, &format!("damaged-{generation}-{nth}"));
    }
    fs::rename(new_path, path)?;
    Ok(damaged)
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories, each with one file that tells its name.
    fn directories(names: &[&str]) -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().to_path_buf();
        for name in names {
            fs::create_dir(path.join(name)).unwrap();
            fs::write(path.join(name).join("is"), name).unwrap();
        }
        (place, move |name: &str| path.join(name))
    }

    fn is(path: PathBuf) -> Option<String> {
        fs::read_to_string(path.join("is")).ok()
    }

    #[test]
    fn repaired_store_takes_the_path_of_the_damaged_one() {
        for replace in [replace_directory, replace_by_turns] {
            let (_place, at) = directories(&["db", "db.salvaging"]);
            replace(&at("db"), &at("db.salvaging"), &at("db.damaged")).unwrap();
            assert_eq!(is(at("db")).unwrap(), "db.salvaging");
            assert_eq!(is(at("db.damaged")).unwrap(), "db");
            assert!(!at("db.salvaging").exists() && !at("db.repaired").exists());
        }
        // What cannot be replaced stays, and so does the new store.
        let (_place, at) = directories(&["db.salvaging"]);
        assert!(replace_directory(&at("db"), &at("db.salvaging"), &at("db.damaged")).is_err());
        assert_eq!(is(at("db.salvaging")).unwrap(), "db.salvaging");
    }

    #[test]
    fn open_finishes_a_repair_that_was_interrupted() {
        let (_place, at) = directories(&["db.damaged"]);
        let options = Options::new().directory(at("db"));
        let store = options.create().unwrap();
        store.put("key", "value").unwrap();
        store.close().unwrap();
        // Only the last rename is missing.
        fs::rename(at("db"), at("db.repaired")).unwrap();
        let store = Options::new().directory(at("db/")).open_or_create().unwrap();
        assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        store.close().unwrap();
        // One that is not needed changes nothing.
        fs::create_dir(at("db.repaired")).unwrap();
        let store = options.open().unwrap();
        assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }

    #[test]
    fn mount_points_are_told_from_directories() {
        assert!(is_mount_point(Path::new("/proc")) && is_mount_point(Path::new("/")));
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_mount_point(directory.path()) && !is_mount_point(&directory.path().join("none")));
    }
}
