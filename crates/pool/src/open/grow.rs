//! Growth: adds pages at the end of a pool. Nothing moves.
//!
//! Each participant reserved addresses when it joined, and follows a growth only as far as these
//! reach. So a process that grows a shared pool first announces the new size, and then checks that
//! every participant has reserved enough. A process that joins first takes its entry, which says
//! how much it has reserved, and then checks the announced size.

use crate::error::GrowError;
use crate::format::layout::{MAX_POOL, PAGE};
use crate::format::superblock::Superblock;
use crate::pool::Pool;
use crate::pool::inner::Inner;
use crate::sharing::participants;
use rustix::fs::{FallocateFlags, fallocate};
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Pool<M> {
    /// Grows the pool to `bytes` bytes, rounded down to whole pages, and returns its size. The new
    /// memory is available at once.
    pub fn grow(&self, bytes: u64) -> Result<u64, GrowError> {
        if self.is_read_only() {
            return Err(GrowError::ReadOnly);
        }
        let asked = bytes / PAGE * PAGE;
        let mut superblock = self.0.superblock();
        let size = superblock.size;
        let mapping = self.medium().mapping();
        let reserved = MAX_POOL.min(mapping.reserved() as u64);
        match asked {
            _ if asked < size => return Err(GrowError::Smaller { size, asked }),
            _ if asked == size => return Ok(size),
            _ if asked > reserved => return Err(GrowError::Reserved { asked, reserved }),
            _ => {}
        }
        self.0.base().claim_size(asked);
        let grown = self.0.grow_to(asked, &superblock);
        match grown {
            Ok(grown) => *superblock = grown,
            Err(error) => {
                self.0.base().claim_size(size);
                return Err(error);
            }
        }
        self.0.base().set_size(asked);
        self.0.base().announce_memory();
        Ok(asked)
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Grows the file and the stored superblock to `asked` bytes, without announcing it to other
    /// threads. Returns the new superblock.
    fn grow_to(&self, asked: u64, superblock: &Superblock) -> Result<Superblock, GrowError> {
        debug_assert!(asked > superblock.size && asked.is_multiple_of(PAGE), "a pool grows by whole pages");
        self.check_other_participants(asked)?;
        self.give_storage(asked)?;
        let mut grown = superblock.clone();
        grown.size = asked;
        grown.sequence = grown.sequence.wrapping_add(1);
        // PERSIST: before the superblock includes the size, by the superblock's first fence: after
        // a kill the next process finds a pool that has grown completely.
        self.units().init_hints(superblock.size, asked);
        // PERSIST: the superblock, after the file has the pages and before they are used. A crash
        // before that leaves a file longer than its pool, and hints beyond the end; the next growth
        // uses them.
        grown.store(&self.base().region, 0).map_err(GrowError::Map)?;
        Ok(grown)
    }

    /// Checks that all other participants have addresses for `asked` bytes. A process that joins
    /// later sees the announced size.
    fn check_other_participants(&self, asked: u64) -> Result<(), GrowError> {
        let inner = self;
        let least = || {
            let slots = 0..inner.base().layout.geometry.participants;
            let reserved =
                |index| participants::reserved_bytes_of(&inner.base().region, &inner.base().layout, index);
            let all = slots.filter_map(|index| Some((reserved(index)?, index)));
            all.min().filter(|(reserved, _)| *reserved < asked)
        };
        if !inner.base().is_shared() || least().is_none() {
            return Ok(());
        }
        // Dead participants do not count.
        inner.peers.recover_all_dead();
        let Some((reserved, narrow)) = least() else { return Ok(()) };
        let holder = inner.base().other_live_participants().into_iter().find(|(index, _)| *index == narrow);
        Err(GrowError::ReservedByOther { asked, reserved, holder: holder.map(|(_, holder)| holder) })
    }

    /// Allocates storage for the first `asked` bytes of the file; on failure, releases what was
    /// allocated.
    fn give_storage(&self, asked: u64) -> Result<(), GrowError> {
        let mapping = self.base().medium().mapping();
        let file = mapping.as_file();
        let before = file.and_then(|file| Some(file.metadata().ok()?.len()));
        mapping.grow(asked as usize).map_err(|error| {
            if let (Some(file), Some(before)) = (file, before) {
                // Nothing has used the new part: it is not in the pool's size. (hugetlbfs makes a
                // file as long as its mappings; there the pages are released only if they are
                // named.)
                let _ = file.set_len(before);
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = fallocate(file, hole, self.base().size(), asked - self.base().size());
            }
            GrowError::Map(error)
        })
    }
}

#[cfg(test)]
#[path = "tests/grow.rs"]
mod tests;
