//! From one opening of a pool to the next: what is believed of what was found, and what an orderly close leaves.
//!
//! ```text
//!             create               close                 open
//!   (nothing) ------> in use ----------------> clean ----------------> in use   generation + 1, era + 1
//!                       |                                                ^
//!                       |  the process dies             open             |
//!                       +----------------> left in use ------------------+      the same
//!                       |                                                ^
//!                       |  the machine dies   `power`: open              |
//!                       +----------------> left in use, other boot ------+
//!                                             `process`: refused; --salvage reads it
//! ```

use crate::error::{Durability, Problem};
use crate::layout::{ALLOCATOR_BYTES, Layout};
use crate::pool::Start;
use crate::superblock::Superblock;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{LINE, Line, MappedMedium, Offset, Region};
use xxhash_rust::xxh3::xxh3_64;

/// Tells one start of the kernel from the next. `None` where it does not say.
pub(crate) fn boot_id() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok().filter(|&id| id != 0)
}

/// What an opening of a pool brings along.
pub(crate) struct Opening {
    /// The durability that the medium gives.
    pub(crate) durability: Durability,
    /// Whether that is the caller's word and not the kernel's.
    pub(crate) assumed_persistent: bool,
    /// This start of the kernel.
    pub(crate) boot: Option<u128>,
    /// Whether nothing will be written to the pool.
    pub(crate) read_only: bool,
    /// Whether to read a pool that is not trusted.
    pub(crate) salvage: bool,
    /// What the allocator's words are, by [`allocator_sum`].
    pub(crate) allocator_sum: u64,
}

/// A checksum of the allocator's words. The next open believes them only if they are what an orderly close left.
pub(crate) fn allocator_sum<M: MappedMedium>(region: &Region<M>, layout: &Layout) -> u64 {
    let mut bytes = Vec::with_capacity(ALLOCATOR_BYTES as usize);
    for at in (layout.allocator..layout.allocator + ALLOCATOR_BYTES).step_by(LINE) {
        for word in region.get::<Line>(Offset::new(at)).iter().flat_map(|line| &line.0) {
            bytes.extend(word.load(region.medium(), Relaxed).to_le_bytes());
        }
    }
    xxh3_64(&bytes)
}

/// How far the generation and the era of a salvage are ahead. Of a pool that was torn, the superblock may be older than the rest: the next era would be that of
/// arrivals that nobody ends, and the next generation that of locks that nobody frees. Nothing of a salvage is kept, so any number will do that none is near.
const SALVAGE_AHEAD: u32 = 1 << 31;

/// The superblock to go on with after `found`, and how the pool was found.
pub(crate) fn next_open(found: &Superblock, opening: &Opening) -> Result<(Superblock, Start), Problem> {
    if !found.clean {
        check_resumable(found, opening)?;
    }
    let is_clean = found.clean && !found.collection_pending && found.allocator_sum == opening.allocator_sum;
    let by = if opening.salvage { SALVAGE_AHEAD } else { 1 };
    let next = Superblock {
        sequence: found.sequence.wrapping_add(1),
        // Generation 0 is no generation: a lock word of zeros is free.
        generation: found.generation.wrapping_add(by).max(1),
        open_seq: found.open_seq.wrapping_add(by).max(1),
        clean: false,
        collection_pending: false,
        durability: opening.durability,
        assumed_persistent: opening.assumed_persistent,
        boot: opening.boot.unwrap_or(0),
        ..found.clone()
    };
    Ok((next, if is_clean { Start::Clean } else { Start::Unclean }))
}

/// Whether a pool that was left in use can be opened.
fn check_resumable(found: &Superblock, opening: &Opening) -> Result<(), Problem> {
    let survives_the_machine = found.durability == Durability::Power && !found.assumed_persistent;
    let is_same_boot = opening.boot == Some(found.boot);
    if !survives_the_machine && !is_same_boot && !opening.salvage {
        return Err(Problem::MachineWentDown);
    }
    if !opening.read_only && found.durability != opening.durability {
        return Err(Problem::OtherDurability { pool: found.durability, asked: opening.durability });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Geometry;

    fn superblock(clean: bool, durability: Durability) -> Superblock {
        Superblock {
            sequence: 5,
            uuid: 1,
            generation: 3,
            open_seq: 2,
            clean,
            collection_pending: false,
            durability,
            assumed_persistent: false,
            size: 1 << 20,
            geometry: Geometry::tiny(),
            boot: 77,
            hash_seed: 1,
            created_ms: 1,
            label: String::new(),
            allocator_sum: 0,
        }
    }

    fn opening(durability: Durability, boot: Option<u128>) -> Opening {
        Opening {
            durability,
            assumed_persistent: false,
            boot,
            read_only: false,
            salvage: false,
            allocator_sum: 0,
        }
    }

    #[test]
    fn the_boot_id_is_there_and_stays() {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let id = boot_id().map(|id| format!("{id:032x}"));
        assert_eq!(id, Some(text.trim().replace('-', "")));
        assert_eq!(boot_id(), boot_id());
    }

    #[test]
    fn any_of_the_allocator_s_words_that_changes_shows() {
        let pool = crate::small::exclusive_pool::<terrace_medium::Dram>();
        let (region, layout) = (pool.region(), pool.layout());
        let sum = allocator_sum(region, layout);
        for at in (layout.allocator..layout.allocator + ALLOCATOR_BYTES).step_by(8) {
            let word = region.at::<terrace_medium::Word>(Offset::new(at));
            word.fetch_add(region.medium(), 1 << 40, Relaxed);
            assert_ne!(allocator_sum(region, layout), sum, "{at:#x}");
            word.fetch_sub(region.medium(), 1 << 40, Relaxed);
        }
        assert_eq!(allocator_sum(region, layout), sum);
    }

    #[test]
    fn clean_pool_opens_after_reboot_and_with_other_durability() {
        for boot in [None, Some(77), Some(78)] {
            for durability in [Durability::Process, Durability::Power] {
                let found = superblock(true, Durability::Process);
                let (next, start) = next_open(&found, &opening(durability, boot)).unwrap();
                assert_eq!((next.generation, next.open_seq, next.clean, start), (4, 3, false, Start::Clean));
                assert_eq!((next.durability, next.boot, next.sequence), (durability, boot.unwrap_or(0), 6));
            }
        }
    }

    #[test]
    fn unclean_pool_opens_in_same_boot_with_its_durability() {
        use Durability::{Power, Process};
        let next = |had, asked, boot| next_open(&superblock(false, had), &opening(asked, boot));
        assert!(matches!(
            next(Process, Process, Some(77)),
            Ok((Superblock { open_seq: 3, .. }, Start::Unclean))
        ));
        assert!(matches!(next(Process, Process, Some(78)), Err(Problem::MachineWentDown)));
        assert!(matches!(next(Process, Process, None), Err(Problem::MachineWentDown)));
        assert!(matches!(next(Power, Power, Some(78)), Ok((_, Start::Unclean))));
        assert!(matches!(next(Power, Process, Some(77)), Err(Problem::OtherDurability { .. })));
        assert!(matches!(next(Process, Power, Some(77)), Err(Problem::OtherDurability { .. })));
    }

    #[test]
    fn pool_closed_with_pending_collection_opens_unclean() {
        let found = Superblock { collection_pending: true, ..superblock(true, Durability::Process) };
        let (next, start) = next_open(&found, &opening(Durability::Process, Some(78))).unwrap();
        assert_eq!(
            (next.open_seq, next.clean, next.collection_pending, start),
            (3, false, false, Start::Unclean)
        );
    }

    #[test]
    fn allocator_words_that_nobody_left_like_that_are_not_believed() {
        let found = Superblock { allocator_sum: 5, ..superblock(true, Durability::Process) };
        let (next, start) = next_open(&found, &opening(Durability::Process, Some(77))).unwrap();
        assert_eq!((next.open_seq, start), (3, Start::Unclean));
    }

    #[test]
    fn persistence_that_was_only_assumed_ends_with_the_machine() {
        let found = Superblock { assumed_persistent: true, ..superblock(false, Durability::Power) };
        assert!(next_open(&found, &opening(Durability::Power, Some(77))).is_ok());
        let other = next_open(&found, &opening(Durability::Power, Some(78)));
        assert!(matches!(other, Err(Problem::MachineWentDown)));
        let salvage = Opening { salvage: true, read_only: true, ..opening(Durability::Process, Some(78)) };
        assert!(next_open(&found, &salvage).is_ok());
    }

    #[test]
    fn a_salvage_goes_on_in_no_life_that_what_is_torn_can_be_of() {
        let salvage = Opening { salvage: true, read_only: true, ..opening(Durability::Process, Some(78)) };
        for last in [3, SALVAGE_AHEAD, u32::MAX] {
            let found =
                Superblock { generation: last, open_seq: last, ..superblock(false, Durability::Process) };
            let (next, start) = next_open(&found, &salvage).unwrap();
            for number in [next.generation, next.open_seq] {
                assert!(number > 0 && number.abs_diff(last) >= SALVAGE_AHEAD - 1, "{last}: {number}");
            }
            assert_eq!(start, Start::Unclean);
        }
    }

    #[test]
    fn numbers_that_run_out_start_again_at_one() {
        let found =
            Superblock { generation: u32::MAX, open_seq: u32::MAX, ..superblock(false, Durability::Power) };
        let (next, _) = next_open(&found, &opening(Durability::Power, None)).unwrap();
        assert_eq!((next.generation, next.open_seq), (1, 1));
    }
}
