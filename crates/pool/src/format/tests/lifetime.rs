//! Tests of `lifetime`.

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
    assert!(matches!(next(Process, Process, Some(77)), Ok((Superblock { open_seq: 3, .. }, Start::Unclean))));
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
        let found = Superblock { generation: last, open_seq: last, ..superblock(false, Durability::Process) };
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
