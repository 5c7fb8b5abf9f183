//! Copies of a store in another directory.

use super::work::Upkeep;
use crate::tier::files::Tier;
use crate::tier::format::path_of;
use crate::tier::large;
use crate::tier::read::Held;
use std::path::Path;
use terrace_disk::{Cut, Directory, DiskError, Ends, Manifest, cold};
use terrace_engine::Standing;
use terrace_engine::WriteError;

impl Upkeep {
    /// A copy of the store as it is now, in a new directory: links to its blocks, its large values
    /// and the log, and a manifest of its own.
    pub(crate) fn make_checkpoint(&self, directory: &Path) -> Result<(), WriteError> {
        self.tier().standing.check_writable()?;
        Standing::check_copy(&self.tier().directory, directory)?;
        // Nothing changes the blocks meanwhile, and nothing is removed.
        let _reorganising = self.stop_rewrites();
        // Without a log, the tier has to have all that there is at one instant.
        let has_log = self.journal().has_log();
        let flushing = (!has_log).then(|| self.stop_flushes());
        let mut manifest = self.journal().manifest();
        let locked = self.records().stripes.lock_each();
        if !has_log {
            cold::waiting(|| self.seal_at_once(&mut manifest, &locked))?;
        }
        drop(flushing);
        let cut = self.journal().log.cut().map_err(|error| self.tier().standing.failed(error))?;
        let doomed = self.journal().large.keep_doomed();
        drop(locked);
        let synced = self.journal().with_large_synced(|| self.journal().log.sync(cut.end))?;
        synced.map_err(|error| self.tier().standing.failed(error))?;
        let made = self.link_into(directory, cut);
        self.journal().large.keep_no_longer(doomed);
        made.map_err(|error| WriteError::Checkpoint(error.to_string()))
    }

    /// Makes a directory that has what the store has up to `cut`. The caller keeps that from
    /// changing.
    fn link_into(&self, directory: &Path, cut: Cut) -> Result<(), DiskError> {
        let Tier { files, directory: own, .. } = self.tier();
        let identity = own.identity().clone();
        let blocks: Vec<Held> = self.records().all_blocks().collect();
        let whole = self.records().whole();
        let mut link = |from: &Path, to: &Path| files.link(from, to).map_err(DiskError::room("link", from));
        let fill = |to: &Path| -> Result<(), DiskError> {
            for block in &blocks {
                let (number, generation) = block.name();
                link(block.path(), &path_of(to, number, generation))?;
            }
            let names = files.list(own.path()).map_err(DiskError::room("list", own.path()))?;
            for number in names.iter().filter_map(|name| large::number_of(name.to_str()?)) {
                link(&large::path_of(own.path(), number), &large::path_of(to, number))?;
            }
            let ends = Ends::open(files, to, identity.store)?;
            self.journal().log.link_into(to, cut, &ends, &mut link)?;
            let mut manifest = Manifest::create(files, to, identity.store, &[whole.to_bytes()])?;
            manifest.keep_ends(ends.clone());
            ends.sync()
        };
        Directory::create(files, directory, &identity, fill).map(drop)
    }
}
