//! Growth: more pages behind those that are there. Nothing moves.
//!
//! Each participant has reserved addresses when it came in, and follows a growth as far as these reach and no further. So who grows a shared pool first says how far, and then
//! looks whether everybody's reach that far; who comes in takes its slot, which says how far its own reach, and then looks how large the pool is about to be.

use crate::error::GrowError;
use crate::layout::{MAX_POOL, PAGE};
use crate::participants;
use crate::pool::{Inner, Pool};
use crate::superblock::{self, Superblock};
use rustix::fs::{FallocateFlags, fallocate};
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Pool<M> {
    /// Makes the pool `bytes` long, rounded down to whole pages, and returns its size. Memory is allocated from the new pages at once.
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
        self.0.claim_size(asked);
        let grown = self.grow_to(asked, &superblock);
        match grown {
            Ok(grown) => *superblock = grown,
            Err(error) => {
                self.0.claim_size(size);
                return Err(error);
            }
        }
        self.0.set_size(asked);
        self.0.announce_memory();
        Ok(asked)
    }

    /// Makes the pool so long that `superblock` describes, but tells nobody. Returns its new superblock.
    fn grow_to(&self, asked: u64, superblock: &Superblock) -> Result<Superblock, GrowError> {
        self.check_other_participants(asked)?;
        self.give_storage(asked)?;
        let mut grown = superblock.clone();
        grown.size = asked;
        grown.sequence = grown.sequence.wrapping_add(1);
        // PERSIST: before the size says so, by the superblock's first fence: whoever comes after a kill finds a pool that has grown, and has nothing to do then.
        self.0.init_hints(superblock.size, asked);
        // PERSIST: the superblock, after the file has the pages and before anyone allocates from them. A crash before leaves a file
        // that is longer than its pool, and hints of what is not there; the next growth takes them in.
        grown.store(self.region(), 0).map_err(GrowError::Map)?;
        Ok(grown)
    }

    /// Whether all others have addresses for `asked` bytes, too. Who comes in from now on knows that the pool is about to have so many.
    fn check_other_participants(&self, asked: u64) -> Result<(), GrowError> {
        let inner = &*self.0;
        let least = || {
            let slots = 0..inner.layout.geometry.participants;
            let reserved = |index| participants::reserved_bytes_of(&inner.region, &inner.layout, index);
            let all = slots.filter_map(|index| Some((reserved(index)?, index)));
            all.min().filter(|(reserved, _)| *reserved < asked)
        };
        if !inner.is_shared() || least().is_none() {
            return Ok(());
        }
        // Nobody waits for the dead.
        inner.recover_all_dead();
        let Some((reserved, narrow)) = least() else { return Ok(()) };
        let holder = inner.other_live_participants().into_iter().find(|(index, _)| *index == narrow);
        Err(GrowError::ReservedByOther { asked, reserved, holder: holder.map(|(_, holder)| holder) })
    }

    /// Gives the first `asked` bytes of the file storage; if there is none, takes back what there was of it.
    fn give_storage(&self, asked: u64) -> Result<(), GrowError> {
        let mapping = self.medium().mapping();
        let file = mapping.as_file();
        let before = file.and_then(|file| Some(file.metadata().ok()?.len()));
        mapping.grow(asked as usize).map_err(|error| {
            if let (Some(file), Some(before)) = (file, before) {
                // Nobody has seen the new part: the pool does not say that it is there. (hugetlbfs makes a file as long as its
                // mappings; there the pages go only when they are named.)
                let _ = file.set_len(before);
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = fallocate(file, hole, self.size(), asked - self.size());
            }
            GrowError::Map(error)
        })
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Ends what somebody was at with the superblock who died: both copies are what the newer whole one says, and memory that it says there is can be had (its hints were there before). Whoever calls this has the
    /// superblock's lock; if it dies, too, the next one does the same.
    pub(crate) fn repair_superblock(&self) {
        // At least one copy is whole at any time; if none can be read, the pool is damaged in another way, and `verify` says so.
        let Ok(found) = superblock::load(&self.region) else { return };
        let size = found.superblock.size;
        // PERSIST: the copy that may be torn first. The one that is believed is durable before that, and written over with what it holds. (If the file cannot be synced,
        // whoever stores the superblock next is told.)
        let _ = found.superblock.store(&self.region, 1 - found.copy);
        self.set_size(size);
        self.announce_memory();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;
    use crate::zones::Hint;
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::Dram;

    #[test]
    fn a_pool_grows_within_what_it_reserved_and_never_shrinks() {
        let options = crate::PoolOptions::anonymous().size(64 << 10).max_size(4 << 20);
        let pool = options.create::<Dram>().unwrap();
        assert_eq!(pool.grow((1 << 20) + 5).unwrap(), 1 << 20);
        assert_eq!(pool.size(), 1 << 20);
        assert_eq!(pool.grow(1 << 20).unwrap(), 1 << 20);
        assert!(matches!(pool.grow(64 << 10), Err(GrowError::Smaller { .. })));
        let error = pool.grow(8 << 20).unwrap_err();
        assert!(error.to_string().contains("cannot grow to 8.0 MiB while it is open: 4.0 MiB were reserved"));
        assert!(matches!(pool.grow(u64::MAX), Err(GrowError::Reserved { .. })));
        assert_eq!(pool.size(), 1 << 20);
    }

    #[test]
    fn a_shared_pool_grows_to_the_last_byte_that_all_have_reserved() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = crate::PoolOptions::at(directory.path().join("pool")).size(64 << 10).max_size(4 << 20);
        let options = options.shared(true);
        let [one, other] = [(); 2].map(|()| options.open_or_create::<terrace_medium::Shm>().unwrap());
        assert_eq!(one.grow(4 << 20).unwrap(), 4 << 20);
        assert_eq!(other.size(), 4 << 20);
        let refused = other.grow((4 << 20) + PAGE).unwrap_err();
        assert!(matches!(refused, GrowError::Reserved { reserved, .. } if reserved == 4 << 20), "{refused}");
        assert_eq!(options.open::<terrace_medium::Shm>().unwrap().size(), 4 << 20, "who comes in now, too");
    }

    #[test]
    fn partial_last_unit_is_searched_after_growth() {
        let options = crate::PoolOptions::anonymous().size((1 << 20) + PAGE).max_size(4 << 20);
        let pool = options.create::<Dram>().unwrap();
        let (size, zones) = (pool.size(), &pool.0.memory.zones);
        let last = zones.units(size) - 1;
        let there = zones.usable(last, size);
        assert!(there != 0 && there != !0, "a part of the last unit is there: {there:#x}");
        let guard = pool.pin();
        for bytes in [PAGE as usize, 64] {
            while let Ok(block) = guard.alloc(bytes) {
                block.fenced_later().into_offset();
            }
        }
        let zone = zones.of_unit(last);
        let is_hinted = |hint| {
            let (word, bit) = pool.0.hint_word(hint, &zone, last);
            word.load(pool.medium(), Relaxed) & bit != 0
        };
        assert!(is_hinted(Hint::Empty) && is_hinted(Hint::Room));
        drop(guard);
        pool.grow(size + PAGE).unwrap();
        assert!(pool.pin().alloc(PAGE as usize).is_ok(), "what is new lies in that unit alone");
    }

    #[test]
    fn refused_thread_searches_again_after_growth() {
        let options = crate::PoolOptions::anonymous().size(1 << 20).max_size(4 << 20);
        let pool = options.geometry(crate::small::geometry()).create::<Dram>().unwrap();
        let (size, zones) = (pool.size(), &pool.0.memory.zones);
        let last = zones.units(size) - 1;
        assert!(zones.of_unit(last).end() > last + 1, "what comes next is of the same zone");
        let guard = pool.pin();
        let is_refused =
            || guard.alloc(PAGE as usize).map(|block| block.fenced_later().into_offset()).is_err();
        while !is_refused() {}
        guard.free(zones.start_of(last), PAGE as usize);
        let other = || {
            let guard = pool.pin();
            drop(guard.alloc(64).unwrap());
            assert_eq!(pool.0.revalidate(last).usage(), crate::zones::UnitUse::Owned);
            // It has a slab of which no block is taken, and that only it can give back.
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(pool.pin().alloc(PAGE as usize).is_err())).join().unwrap()
            });
            pool.grow(size + PAGE).unwrap();
            assert!(guard.alloc(2 * PAGE as usize).is_ok());
        };
        std::thread::scope(|scope| scope.spawn(other).join().unwrap());
    }

    #[test]
    fn join_fails_if_growth_exceeds_reserved_addresses() {
        let (directory, [growing]) = crate::small::participants::<terrace_medium::Shm, 1>(Geometry::tiny());
        growing.0.claim_size(MAX_POOL);
        let options = crate::PoolOptions::at(directory.path().join("pool")).shared(true).max_size(4 << 20);
        let refused = options.open::<terrace_medium::Shm>().err().unwrap().to_string();
        let says = |part: &str| assert!(refused.contains(part), "{refused}");
        ["has grown to ", " and 4.0 MiB were reserved", "--max-size of at least that"]
            .into_iter()
            .for_each(says);
        growing.0.claim_size(growing.size());
        assert!(options.open::<terrace_medium::Shm>().is_ok());
    }
}
