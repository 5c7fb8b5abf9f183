//! The directory of a store on the tier: its blocks, numbers for new files, and files that came to
//! nothing.

use super::edit::Name;
use super::format::path_of;
use super::read::{Blocks, Held};
use crate::space::addresses::Map;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_disk::{Directory, DiskError};
use terrace_engine::Standing;
use terrace_engine::{Durability, WriteError};
use terrace_medium::files::Files;

/// The tier of a store. It owns the files, the blocks that are in use, and whether the store may be
/// written; nothing stands below.
pub(crate) struct Tier {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) directory: Directory,
    pub(crate) standing: Standing,
    pub(crate) blocks: Arc<Blocks>,
    /// The number of the next file: the generation of a block, or a large value.
    next_file: AtomicU64,
    /// Files of blocks that did not come into use. They may still be there, or come back when power
    /// fails.
    strays: Mutex<Vec<Name>>,
}

impl Tier {
    /// The tier in `directory`, whose files have lower numbers than `next_file`.
    pub(crate) fn new(
        (files, directory): (Arc<dyn Files>, Directory),
        standing: Standing,
        blocks: Arc<Blocks>,
        next_file: u64,
    ) -> Self {
        assert!(next_file > 0, "no file has the number 0");
        let (next_file, strays) = (AtomicU64::new(next_file), Mutex::default());
        Self { files, directory, standing, blocks, next_file, strays }
    }

    pub(crate) fn id(&self) -> u64 {
        self.directory.identity().store
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The block with this number on the tier.
    pub(crate) fn block(&self, number: u64) -> Option<Held> {
        self.blocks.get(number as usize)?.load_full()
    }

    /// The blocks with lower numbers than `end`.
    pub(crate) fn blocks_below(&self, end: u64) -> impl Iterator<Item = Held> + '_ {
        self.blocks[..end as usize].iter().filter_map(|block| block.load_full())
    }

    /// Puts a block in the place of the one with this number, or nothing.
    pub(crate) fn place(&self, number: u64, block: Option<Held>) {
        assert!(block.iter().all(|block| block.foot.number == number), "a block has its own place");
        self.blocks[number as usize].store(block);
    }

    /// A number of the open block of an address, which another file does not have.
    pub(crate) fn opened(&self, map: Map, address: u64) -> Option<u64> {
        Some(self.block(map.block_of(address))?.opened())
    }

    /// The damage that there is no record at an address which the index names.
    pub(crate) fn missing(&self, map: Map, address: u64) -> DiskError {
        let block = self.block(map.block_of(address));
        let what = "a block is missing that the index names";
        block.map_or(DiskError::corrupt(self.path(), 0, what), |block| block.missing(map.offset_of(address)))
    }

    /// The most that this tier can promise.
    pub(crate) fn most(&self) -> Durability {
        if self.files.outlasts_power() { Durability::Power } else { Durability::Process }
    }

    /// Fails if another directory lies in the place of this one.
    pub(crate) fn check_place(&self) -> Result<(), WriteError> {
        self.standing.check_place(&self.directory)
    }

    /// A number that no file has.
    pub(crate) fn number_file(&self) -> u64 {
        self.next_file.fetch_add(1, Relaxed)
    }

    /// All files have lower numbers.
    pub(crate) fn files_end(&self) -> u64 {
        self.next_file.load(Relaxed)
    }

    /// Notes that files have numbers up to `end`.
    pub(crate) fn note_files(&self, end: u64) {
        self.next_file.fetch_max(end, Relaxed);
    }

    /// Makes the names of new files durable, and that others are gone.
    pub(crate) fn sync_names(&self) -> Result<(), WriteError> {
        let synced = self.files.sync_directory(self.path());
        synced.map_err(|error| self.standing.failed(DiskError::room("sync", self.path())(error)))
    }

    /// Removes a file that did not come into use, though it may be whole. After a failed edit the
    /// manifest may name it, and the store takes no more writes: then the next open decides.
    pub(crate) fn discard(&self, name: Name) {
        if !self.standing.is_stopped() {
            self.strays.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            self.remove_unfinished(name);
        }
    }

    /// Removes the file of a block that has no records, and so no end.
    pub(crate) fn remove_unfinished(&self, (number, generation): Name) {
        if !self.standing.is_stopped() {
            // The next open removes what is left here.
            let _ = self.files.remove(&path_of(self.path(), number, generation));
        }
    }

    /// Makes sure that no discarded file is there, or comes back. To an open, one with records that
    /// neither the log nor a block has would prove that edits are lost: so this comes before each
    /// edit, and before the log lets go of records.
    pub(crate) fn remove_strays(&self) -> Result<(), WriteError> {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        if strays.is_empty() {
            return Ok(());
        }
        self.check_place()?;
        for (number, generation) in strays.iter() {
            let path = path_of(self.path(), *number, *generation);
            match self.files.remove(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(DiskError::room("remove", &path)(error).into());
                }
                _ => {}
            }
        }
        self.sync_names()?;
        strays.clear();
        Ok(())
    }
}
