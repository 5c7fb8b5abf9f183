//! A repaired store takes the place of a damaged one, which gets another name. At every instant one
//! of the two is at the path, or the next open finishes this.

use rustix::fs::{AtFlags, CWD, RenameFlags, StatxAttributes, StatxFlags, renameat_with, statx};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{fs, io};
use terrace_medium::files::{Files, Replace, SystemFiles, directory_of};

/// How the name of a new store ends that is to replace the damaged one.
pub(super) const REPAIRED: &str = "repaired";

/// Moves the new store to `path`, and the damaged one from there to the free name `damaged`. At
/// every instant one of the two is at `path`, or the next open finishes this.
pub(super) fn replace_directory(path: &Path, new_path: &Path, damaged: &Path) -> io::Result<()> {
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
pub(super) fn finish(path: &Path) -> io::Result<()> {
    let path: PathBuf = path.components().collect();
    let repaired = sibling(&path, REPAIRED);
    if SystemFiles.is_taken(&path)? || !repaired.is_dir() {
        return Ok(());
    }
    SystemFiles.rename(&repaired, &path, Replace::No)?;
    SystemFiles.sync_directory(directory_of(&path))
}

/// Why a directory that is a mount point is not salvaged.
pub(super) const MOUNTED: &str = "the directory is a mount point, so no other can take its place\n  copy its files to another \
                       directory (cp -a) while nothing has it open, and repair the copy; then put that in its place";

/// Whether a file system is mounted at this directory: then it cannot be renamed.
pub(super) fn is_mount_point(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Renames the damaged pool and moves the new one to its path. At every instant, one of the two is
/// at `path`.
pub(super) fn replace_pool(path: &Path, new_path: &Path, generation: u32) -> io::Result<PathBuf> {
    let mut damaged = sibling(path, &format!("damaged-{generation}"));
    let mut nth = 0;
    while let Err(error) = fs::hard_link(path, &damaged) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        nth += 1;
        damaged = sibling(path, &format!("damaged-{generation}-{nth}"));
    }
    fs::rename(new_path, path)?;
    Ok(damaged)
}

pub(super) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// A free name for the damaged directory at `path`.
pub(super) fn free_name(path: &Path) -> PathBuf {
    let mut damaged = sibling(path, "damaged");
    let mut nth = 0;
    while damaged.exists() {
        nth += 1;
        damaged = sibling(path, &format!("damaged-{nth}"));
    }
    damaged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

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
