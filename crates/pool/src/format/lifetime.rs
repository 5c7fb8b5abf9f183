//! How a pool's superblock changes from one open to the next.
//!
//! ```text
//!             create               close                 open
//!   (nothing) ------> in use ----------------> clean ----------------> in use
//!                       |                                                ^
//!                       |  the process dies             open             |
//!                       +----------------> left in use ------------------+
//!                       |                                                ^
//!                       |  the machine dies   `power`: open              |
//!                       +----------------> left in use, other boot ------+
//!                                             `process`: refused; --salvage reads it
//! ```
//!
//! Each open increases the generation and the open sequence by 1.

use crate::error::{Durability, Problem};
use crate::format::layout::{ALLOCATOR_BYTES, Layout};
use crate::format::superblock::Superblock;
use crate::pool::Start;
use std::sync::atomic::Ordering::Relaxed;
pub(crate) use terrace_medium::boot_id;
use terrace_medium::{LINE, Line, MappedMedium, Offset, Region};
use xxhash_rust::xxh3::xxh3_64;

/// The parameters of an open that decide whether and how it succeeds.
pub(crate) struct Opening {
    /// The durability that the medium provides.
    pub(crate) durability: Durability,
    /// Whether the caller assumes it, against the kernel's report.
    pub(crate) assumed_persistent: bool,
    /// The id of the current boot.
    pub(crate) boot: Option<u128>,
    /// Whether the open will not write to the pool.
    pub(crate) read_only: bool,
    /// Whether to read a pool that is not trusted.
    pub(crate) salvage: bool,
    /// The current checksum of the allocator's words, by [`allocator_sum`].
    pub(crate) allocator_sum: u64,
}

/// A checksum of the allocator's words. The next open uses them only if they are what an orderly
/// close left.
pub(crate) fn allocator_sum<M: MappedMedium>(region: &Region<M>, layout: &Layout) -> u64 {
    let mut bytes = Vec::with_capacity(ALLOCATOR_BYTES as usize);
    for at in (layout.allocator..layout.allocator + ALLOCATOR_BYTES).step_by(LINE) {
        for word in region.get::<Line>(Offset::new(at)).iter().flat_map(|line| &line.0) {
            bytes.extend(word.load(region.medium(), Relaxed).to_le_bytes());
        }
    }
    xxh3_64(&bytes)
}

/// How far a salvage advances the generation and the open sequence. In a torn pool the superblock
/// may be older than the rest. The next open sequence could then be that of revalidations that no
/// thread completes, and the next generation that of locks that no thread releases. A salvage
/// writes nothing, so any distant number will do.
const SALVAGE_AHEAD: u32 = 1 << 31;

/// The superblock for the open that follows `found`, and the state in which the pool was found.
pub(crate) fn next_open(found: &Superblock, opening: &Opening) -> Result<(Superblock, Start), Problem> {
    if !found.clean {
        check_resumable(found, opening)?;
    }
    let is_clean = found.clean && !found.collection_pending && found.allocator_sum == opening.allocator_sum;
    let by = if opening.salvage { SALVAGE_AHEAD } else { 1 };
    let next = Superblock {
        sequence: found.sequence.wrapping_add(1),
        // Generation 0 is reserved: a lock word of zeros is free.
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

/// Checks whether a pool that was left in use can be opened.
fn check_resumable(found: &Superblock, opening: &Opening) -> Result<(), Problem> {
    let survives_the_machine = found.durability == Durability::Power && !found.assumed_persistent;
    let is_same_boot = opening.boot == Some(found.boot);
    if !survives_the_machine && !is_same_boot && !opening.salvage {
        return Err(Problem::MachineCrashed);
    }
    if !opening.read_only && found.durability != opening.durability {
        return Err(Problem::OtherDurability { pool: found.durability, asked: opening.durability });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::Geometry;

    fn superblock(clean: bool, durability: Durability) -> Superblock {
        Superblock {
            version: crate::format::superblock::FIRST_VERSION,
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
    fn boot_id_exists_and_is_constant() {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let id = boot_id().map(|id| format!("{id:032x}"));
        assert_eq!(id, Some(text.trim().replace('-', "")));
        assert_eq!(boot_id(), boot_id());
    }

    #[test]
    fn allocator_sum_covers_every_word() {
        let pool = crate::tests::fixtures::exclusive_pool::<terrace_medium::Dram>();
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
        assert!(matches!(next(Process, Process, Some(78)), Err(Problem::MachineCrashed)));
        assert!(matches!(next(Process, Process, None), Err(Problem::MachineCrashed)));
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
    fn changed_allocator_words_open_unclean() {
        let found = Superblock { allocator_sum: 5, ..superblock(true, Durability::Process) };
        let (next, start) = next_open(&found, &opening(Durability::Process, Some(77))).unwrap();
        assert_eq!((next.open_seq, start), (3, Start::Unclean));
    }

    #[test]
    fn assumed_persistence_does_not_survive_a_reboot() {
        let found = Superblock { assumed_persistent: true, ..superblock(false, Durability::Power) };
        assert!(next_open(&found, &opening(Durability::Power, Some(77))).is_ok());
        let other = next_open(&found, &opening(Durability::Power, Some(78)));
        assert!(matches!(other, Err(Problem::MachineCrashed)));
        let salvage = Opening { salvage: true, read_only: true, ..opening(Durability::Process, Some(78)) };
        assert!(next_open(&found, &salvage).is_ok());
    }

    #[test]
    fn salvage_uses_distant_generation_and_sequence() {
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
    fn generation_and_sequence_wrap_to_one() {
        let found =
            Superblock { generation: u32::MAX, open_seq: u32::MAX, ..superblock(false, Durability::Power) };
        let (next, _) = next_open(&found, &opening(Durability::Power, None)).unwrap();
        assert_eq!((next.generation, next.open_seq), (1, 1));
    }
}
