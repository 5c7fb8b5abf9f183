//! Mappings of files and anonymous memory: growth in place, sharing, refusals.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Backing, Dram, MapError, MappedMedium, Mapping, Offset, Protection, Region, Shm, Word};

const MIB: usize = 1 << 20;

#[test]
fn anonymous_memory_grows_in_place_up_to_its_reservation() {
    let region = Region::new(Dram::new(Mapping::anonymous(MIB, 8 * MIB).unwrap()));
    let last = Offset::<Word>::new((MIB - 8) as u64);
    let beyond = Offset::<Word>::new(MIB as u64);
    region.at(last).store(region.medium(), 7, Relaxed);
    assert!(region.get(beyond).is_none(), "not there before it has grown");
    region.medium().mapping().grow(4 * MIB).unwrap();
    assert_eq!(region.at(beyond).load(region.medium(), Relaxed), 0);
    assert_eq!(region.at(last).load(region.medium(), Relaxed), 7);
    let refused = region.medium().mapping().grow(9 * MIB);
    assert!(matches!(refused, Err(MapError::Reserved { .. })), "{refused:?}");
}

#[test]
fn two_mappings_of_one_file_see_each_other_and_each_other_s_growth() {
    let file = tempfile::tempfile().unwrap();
    Mapping::allocate(&file, MIB as u64).unwrap();
    let map = |len| {
        Region::new(Shm::new(
            Mapping::file(file.try_clone().unwrap(), len, 8 * MIB, Protection::ReadWrite).unwrap(),
        ))
    };
    let (one, two) = (map(MIB), map(MIB));
    let word = Offset::<Word>::new(2 * MIB as u64);
    one.medium().mapping().grow(4 * MIB).unwrap();
    one.at(word).store(one.medium(), 9, Relaxed);
    assert!(two.get(word).is_none());
    two.medium().mapping().extend_view(4 * MIB);
    assert_eq!(two.at(word).load(two.medium(), Relaxed), 9);
    assert!(!one.medium().mapping().backing().survives_power_loss());
}

#[test]
fn files_that_are_mapped_at_the_same_time_lie_apart() {
    std::thread::scope(|threads| {
        for mark in 1..=4u64 {
            threads.spawn(move || {
                let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                file.set_len(4096).unwrap();
                file.write_all_at(&mark.to_ne_bytes(), 0).unwrap();
                for _ in 0..3000 {
                    let copy = file.try_clone().unwrap();
                    let mapping = Mapping::file(copy, 4096, 4096, Protection::ReadWrite).unwrap();
                    let region = Region::new(Shm::new(mapping));
                    let found = region.at(Offset::<Word>::new(0)).load(region.medium(), Relaxed);
                    assert_eq!(found, mark, "the other thread's file");
                }
            });
        }
    });
}

#[test]
fn shared_memory_is_told_from_a_disk_file() {
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    Mapping::allocate(&memory, MIB as u64).unwrap();
    let mapping = Mapping::file(memory, MIB, MIB, Protection::ReadOnly).unwrap();
    assert_eq!(mapping.backing(), Backing::SharedMemory);
}

#[test]
fn a_device_that_is_not_dax_is_refused() {
    let null = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(Mapping::file(null, MIB, MIB, Protection::ReadOnly), Err(MapError::Os(..))));
}

#[test]
fn misaligned_and_distant_offsets_are_none() {
    let region = Region::new(Dram::new(Mapping::anonymous(MIB, MIB).unwrap()));
    for raw in [1, 7, MIB as u64, MIB as u64 - 7, u64::MAX, u64::MAX - 7, i64::MAX as u64] {
        assert!(region.get(Offset::<Word>::new(raw)).is_none(), "{raw:#x}");
        region.prefetch(raw);
    }
    // SAFETY: nobody writes this region.
    assert!(unsafe { region.bytes(u64::MAX, 2) }.is_none());
    // SAFETY: as above.
    assert_eq!(unsafe { region.bytes(MIB as u64 - 2, 2) }, Some(&[0, 0][..]));
}

#[test]
fn a_copy_on_write_mapping_never_changes_the_file() {
    let file = tempfile::tempfile().unwrap();
    Mapping::allocate(&file, MIB as u64).unwrap();
    let map = |protection| {
        let file = file.try_clone().unwrap();
        Region::new(Shm::new(Mapping::file(file, MIB, MIB, protection).unwrap()))
    };
    let (shared, private) = (map(Protection::ReadWrite), map(Protection::CopyOnWrite));
    let word = Offset::<Word>::new(64);
    shared.at(word).store(shared.medium(), 5, Relaxed);
    assert_eq!(private.at(word).load(private.medium(), Relaxed), 5);
    private.at(word).store(private.medium(), 6, Relaxed);
    assert_eq!(shared.at(word).load(shared.medium(), Relaxed), 5);
    shared.medium().mapping().sync(0, usize::MAX).unwrap();
    private.medium().mapping().sync(0, MIB).unwrap();
}
