//! Where the stores' files are.

use super::Outcome;
use crate::plan::Plan;
use rustix::fs::statfs;
use std::path::PathBuf;
use tempfile::TempDir;

/// statfs(2) of file systems in memory: tmpfs, ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// A directory on a disk.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn of(plan: &Plan) -> Outcome<Self> {
        let path = plan.directory.clone().unwrap_or_else(std::env::temp_dir);
        let kind = statfs(&path).map_err(|error| format!("{}: {error}", path.display()))?.f_type as u32;
        if IN_MEMORY.contains(&kind) {
            let path = path.display();
            return Err(
                format!("{path} is in memory, not on a disk: name another with --directory DIR").into()
            );
        }
        Ok(Self(path))
    }

    /// A directory in memory, for counts that do not depend on the disk.
    pub(crate) fn in_memory() -> Self {
        Self("/dev/shm".into())
    }

    /// A new directory for files of a store, removed when it is dropped.
    pub(crate) fn fresh(&self) -> Outcome<TempDir> {
        Ok(tempfile::Builder::new().prefix("terrace-peers-").tempdir_in(&self.0)?)
    }
}
