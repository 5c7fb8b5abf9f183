//! Tests: mappings of files and anonymous memory; growth in place, sharing, refusals.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{
    Backing, Dram, Line, MapError, MappedMedium, Mapping, Medium, Offset, Protection, Region, Shm, Word,
};

const MIB: usize = 1 << 20;

#[test]
fn anonymous_mapping_grows_in_place_up_to_its_reserve() {
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
fn mappings_of_one_file_share_stores_and_growth() {
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
fn concurrent_mappings_do_not_overlap() {
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
fn backing_distinguishes_shared_memory_from_disk() {
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    Mapping::allocate(&memory, MIB as u64).unwrap();
    let mapping = Mapping::file(memory, MIB, MIB, Protection::ReadOnly).unwrap();
    assert_eq!(mapping.backing(), Backing::SharedMemory);
}

#[test]
fn non_dax_device_is_refused() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let refused = Mapping::file(null, MIB, MIB, Protection::ReadOnly);
    assert!(matches!(refused, Err(MapError::Os("use this device", _))), "{:?}", refused.err());
}

#[test]
fn get_refuses_misaligned_and_distant_offsets() {
    let region = Region::new(Dram::new(Mapping::anonymous(MIB, MIB).unwrap()));
    for raw in [1, 7, MIB as u64, MIB as u64 - 7, u64::MAX, u64::MAX - 7, i64::MAX as u64] {
        assert!(region.get(Offset::<Word>::new(raw)).is_none(), "{raw:#x}");
        region.prefetch(raw);
    }
    let block = |raw: usize| region.get_if_known(Offset::<[Line; 4]>::new(raw as u64)).is_some();
    assert_eq!([0, MIB - 256, MIB - 192, MIB].map(block), [true, true, false, false]);
    // SAFETY: no thread writes this region.
    assert!(unsafe { region.bytes(u64::MAX, 2) }.is_none());
    // SAFETY: as above.
    assert_eq!(unsafe { region.bytes(MIB as u64 - 2, 2) }, Some(&[0, 0][..]));
}

#[test]
fn copy_on_write_mapping_never_changes_the_file() {
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

#[test]
fn growth_by_another_process_is_followed_on_request() {
    follows::<Shm>();
    follows::<terrace_medium::Pmem>();
}

fn follows<M: MappedMedium>() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    Mapping::allocate(&file, MIB as u64).unwrap();
    let map =
        || M::new(Mapping::file(file.try_clone().unwrap(), MIB, 4 * MIB, Protection::ReadWrite).unwrap());
    let (one, two) = (map(), map());
    two.mapping().follow_growth();
    assert!(!two.has_grown(), "nobody has grown it");
    Mapping::allocate(&file, 2 * MIB as u64).unwrap();
    assert!(!one.has_grown() && one.len() == MIB);
    assert!(two.has_grown() && two.len() == 2 * MIB);
    assert!(!two.has_grown(), "nobody has grown it again");
    // Longer than the reserved addresses.
    Mapping::allocate(&file, 8 * MIB as u64).unwrap();
    assert!(two.has_grown() && two.len() == 4 * MIB);
    assert!(!Dram::new(Mapping::anonymous(MIB, 0).unwrap()).has_grown());
}

#[test]
fn allocate_provides_storage_and_never_shrinks() {
    use std::os::unix::fs::MetadataExt;
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    Mapping::allocate(&file, MIB as u64).unwrap();
    let metadata = file.metadata().unwrap();
    assert!(metadata.len() == MIB as u64 && metadata.blocks() * 512 >= MIB as u64);
    let mapping = Mapping::file(file.try_clone().unwrap(), MIB, 4 * MIB, Protection::ReadWrite).unwrap();
    for (len, is) in [(MIB - 1, MIB), (MIB, MIB), (MIB / 2, MIB), (4 * MIB, 4 * MIB)] {
        mapping.grow(len).unwrap();
        assert_eq!((mapping.len(), file.metadata().unwrap().len()), (is, is as u64));
    }
    assert!(matches!(
        mapping.grow(4 * MIB + 1),
        Err(MapError::Reserved { wanted: 0x40_0001, reserved: 0x40_0000 })
    ));
    assert!(
        matches!(Mapping::allocate(&file, 1 << 60), Err(MapError::NoSpace { wanted }) if wanted == 1 << 60)
    );
}

/// Whether the kernel's table shows the page at `at` as writable.
fn can_be_stored_to(at: *const u8) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let bound = |text| usize::from_str_radix(text, 16).unwrap();
        (bound(from)..bound(to)).contains(&at.addr())
    });
    line.unwrap().split(' ').nth(1).unwrap().contains('w')
}

#[test]
fn stores_are_refused_from_a_page_and_allowed_again() {
    let page = rustix::param::page_size();
    let mapping = Mapping::anonymous(MIB, 4 * MIB).unwrap();
    let at = |bytes: usize| mapping.base().as_ptr().wrapping_add(bytes).cast_const();
    let ends = [0, page - 1, page, 2 * page, MIB, 4 * MIB - 1];
    mapping.refuse_stores(page - 1, true).unwrap();
    assert_eq!(ends.map(|bytes| can_be_stored_to(at(bytes))), [true, true, false, false, false, false]);
    mapping.refuse_stores(page - 1, false).unwrap();
    assert!(ends.iter().all(|&bytes| can_be_stored_to(at(bytes))));
    mapping.refuse_stores(page, true).unwrap();
    assert_eq!(ends.map(|bytes| can_be_stored_to(at(bytes))), [true, true, false, false, false, false]);
    // No page is left to refuse.
    for from in [4 * MIB - 1, 4 * MIB, 5 * MIB] {
        mapping.refuse_stores(from, false).unwrap();
    }
    assert!(!can_be_stored_to(at(4 * MIB - 1)));
}

#[test]
fn mapping_is_huge_page_aligned_and_in_whole_lines() {
    let mapping = Mapping::anonymous(1000, 0).unwrap();
    assert_eq!((mapping.len(), mapping.reserved(), mapping.backing()), (960, 2 * MIB, Backing::Anonymous));
    assert!((0..8).all(|_| Mapping::anonymous(64, 0).unwrap().base().addr().get().is_multiple_of(2 * MIB)));
    assert_eq!(Mapping::anonymous(3 * MIB, 2 * MIB).unwrap().reserved(), 4 * MIB);
    assert!(Dram::new(Mapping::anonymous(0, 0).unwrap()).is_empty());
    assert!(!Dram::new(Mapping::anonymous(64, 0).unwrap()).is_empty());
    assert!(matches!(
        Mapping::anonymous(64, usize::MAX / 2 * 2 - 4 * MIB),
        Err(MapError::Os("reserve addresses", _))
    ));
    let file = tempfile::tempfile().unwrap();
    file.set_len(1000).unwrap();
    for protection in [Protection::ReadOnly, Protection::ReadWrite, Protection::CopyOnWrite] {
        let mapping = Mapping::file(file.try_clone().unwrap(), 1000, 0, protection).unwrap();
        assert_eq!((mapping.len(), mapping.reserved(), mapping.protection()), (960, 2 * MIB, protection));
        assert!(
            mapping.as_file().is_some()
                && can_be_stored_to(mapping.base().as_ptr()) == (protection != Protection::ReadOnly)
        );
    }
}

#[test]
fn map_errors_name_action_and_cause() {
    let refused = MapError::Os("map the file", std::io::Error::from_raw_os_error(12));
    assert!(
        refused.to_string().starts_with("could not map the file: ")
            && std::error::Error::source(&refused).is_some()
    );
    let full = MapError::NoSpace { wanted: 5 };
    assert_eq!(full.to_string(), "no room for 5 bytes on its file system");
    assert!(std::error::Error::source(&full).is_none());
    assert!(
        MapError::Reserved { wanted: 7, reserved: 6 }.to_string().starts_with("7 bytes are more than the 6 ")
    );
    assert!(MapError::FixedSize { wanted: 7, size: 6 }.to_string().contains("has 6 bytes, fewer than the 7"));
    assert!([Backing::DaxFile, Backing::DaxDevice].iter().all(|backing| backing.survives_power_loss()));
    let others = [Backing::Anonymous, Backing::SharedMemory, Backing::HugeTlb, Backing::File];
    assert!(!others.iter().any(|backing| backing.survives_power_loss()));
}

#[test]
fn sync_writes_shared_disk_files_only() {
    // A sync that does not start at a page boundary fails, if it syncs at all. Where the target
    // directory lies in memory, there is no disk to sync.
    let disk = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let backing = |file: &std::fs::File| {
        let copy = file.try_clone().unwrap();
        Mapping::file(copy, 0, MIB, Protection::ReadWrite).unwrap().backing()
    };
    let has_disk = backing(&disk) == Backing::File;
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    let syncs = |file: &std::fs::File, protection| {
        file.set_len(MIB as u64).unwrap();
        let mapping = Mapping::file(file.try_clone().unwrap(), MIB, 0, protection).unwrap();
        mapping.sync(0, usize::MAX).unwrap();
        mapping.sync(2 * MIB, MIB).unwrap();
        mapping.sync(1, MIB).is_err()
    };
    assert_eq!(syncs(&disk, Protection::ReadWrite), has_disk);
    assert!(!syncs(&disk, Protection::ReadOnly) && !syncs(&disk, Protection::CopyOnWrite));
    assert!(!syncs(&memory, Protection::ReadWrite));
    assert!(Mapping::anonymous(MIB, 0).unwrap().sync(1, MIB).is_ok());
}

#[test]
fn sync_is_limited_to_its_range() {
    const LEN: usize = 256 * MIB;
    let page = rustix::param::page_size();
    let disk = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    disk.set_len(LEN as u64).unwrap();
    let mapping = Mapping::file(disk, LEN, 0, Protection::ReadWrite).unwrap();
    // Addresses without a mapping cannot be synced; twice as far from here there are some.
    mapping.sync(LEN - page, page).unwrap();
}

#[test]
fn dropped_mapping_frees_its_addresses() {
    // All of these at once would not fit.
    (0..400).for_each(|_| drop(Mapping::anonymous(64, 1 << 40).unwrap()));
}

#[test]
fn touched_pages_are_resident() {
    let mapping = Mapping::anonymous(4 * MIB, 8 * MIB).unwrap();
    let region = Region::new(Dram::new(mapping));
    assert_eq!(region.medium().mapping().huge_pages().unwrap().resident, 0);
    for at in (0..2 * MIB as u64).step_by(4096) {
        region.at(Offset::<Word>::new(at)).store(region.medium(), 1, Relaxed);
    }
    let pages = region.medium().mapping().huge_pages().unwrap();
    assert!(
        (2 * MIB as u64..=4 * MIB as u64).contains(&pages.resident) && pages.huge <= pages.resident,
        "{pages:?}"
    );
    // A range shorter than a huge page has nothing to collapse.
    assert!(!region.medium().mapping().collapse_huge_pages(0, 0));
    assert!(!region.medium().mapping().collapse_huge_pages(MIB, MIB / 2));
    assert!(!region.medium().mapping().collapse_huge_pages(4 * MIB, MIB));
}

/// The kernel's flags of the mapping at `at`, two letters each (proc_pid_smaps(5)).
fn flags_of(at: *const u8) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let begins = format!("{:x}-", at.addr());
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&begins));
    lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap().to_string()
}

#[test]
fn huge_page_advice_reaches_the_kernel() {
    let mapping = Mapping::anonymous(4 * MIB, 0).unwrap();
    let has_them = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let is_asked = || flags_of(mapping.base().as_ptr()).contains(" hg");
    assert!(!is_asked());
    mapping.advise_huge_pages();
    assert_eq!(is_asked(), has_them);
}

/// Eight MiB of touched pages of the usual size.
fn touched() -> Region<Dram> {
    let region = Region::new(Dram::new(Mapping::anonymous(8 * MIB, 0).unwrap()));
    for at in (0..8 * MIB as u64).step_by(4096) {
        region.at(Offset::<Word>::new(at)).store(region.medium(), 1, Relaxed);
    }
    region
}

#[test]
fn collapse_makes_whole_huge_pages_in_its_range() {
    let huge = |region: &Region<Dram>| region.medium().mapping().huge_pages().unwrap().huge as usize / MIB;
    let (control, first) = (touched(), touched());
    let at = control.medium().base().as_ptr();
    // SAFETY: this changes how pages are backed, not what they hold.
    let can = huge(&control) == 0 && unsafe { libc::madvise(at.cast(), 2 * MIB, libc::MADV_COLLAPSE) } == 0;
    if !can {
        // A system without huge pages, or with huge pages only.
        return;
    }
    let mapping = first.medium().mapping();
    assert!(mapping.collapse_huge_pages(2 * MIB + 5, 2 * MIB));
    assert_eq!(huge(&first), 2);
    assert!(mapping.collapse_huge_pages(6 * MIB + 5, 100 * MIB));
    assert_eq!(huge(&first), 4);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn pmem_uses_the_best_flush_instruction() {
    use terrace_medium::{FlushInstruction, Pmem};
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    let best = match () {
        () if has("clwb") => FlushInstruction::Clwb,
        () if has("clflushopt") => FlushInstruction::Clflushopt,
        () => FlushInstruction::Clflush,
    };
    let region = Region::new(Pmem::new(Mapping::anonymous(MIB, 0).unwrap()));
    assert_eq!(region.medium().flush_instruction(), best);
    let word = region.at(Offset::<Word>::new(64));
    word.store(region.medium(), 7, Relaxed);
    region.persist(word);
    assert_eq!(word.load(region.medium(), Relaxed), 7);
}
