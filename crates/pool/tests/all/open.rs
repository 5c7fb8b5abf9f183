//! Tests: creating and opening pools: modes, successive opens, durability, and refused requests.

use crate::common::{TINY, closed_image, collect, file_of, is_intact, left_image, open, problem, tiny};
use std::os::unix::fs::{FileExt, MetadataExt};
use terrace_medium::{Dram, MappedMedium, Mapping, Pmem, Protection, Shm};
use terrace_pool::{Durability, Geometry, Holder, PoolOptions, Problem, Start, describe};

#[test]
fn create_and_open_distinguish_missing_and_existing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    assert!(matches!(problem(tiny(&path).open::<Shm>()), Problem::Missing));
    let pool = tiny(&path).open_or_create::<Shm>().unwrap();
    assert_eq!((pool.found(), pool.generation(), pool.size()), (Start::Created, 1, TINY));
    pool.close().unwrap();
    assert!(matches!(problem(tiny(&path).create::<Shm>()), Problem::Exists));
    let pool = tiny(&path).open_or_create::<Shm>().unwrap();
    assert_eq!((pool.found(), pool.generation()), (Start::Clean, 2));
    drop(pool);
    assert_eq!(tiny(&path).open::<Shm>().unwrap().generation(), 3);
    assert!(matches!(problem(tiny(&path).create::<Shm>()), Problem::Exists));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn pool_left_in_use_opens_unclean_with_its_roots() {
    let file = file_of(&left_image());
    for generation in 2..5 {
        let pool = open(&file).unwrap();
        assert_eq!((pool.found(), pool.generation()), (Start::Unclean, generation));
        assert_eq!((is_intact(&pool, "one"), is_intact(&pool, "two")), (Some(true), Some(true)));
        assert_eq!(pool.verify_superblock_and_roots(), []);
        assert!(pool.needs_collection());
        pool.abandon();
    }
    // Closed in order before the collection: it is still pending.
    open(&file).unwrap().close().unwrap();
    let pool = open(&file).unwrap();
    assert_eq!((pool.found(), pool.needs_collection()), (Start::Unclean, true));
    collect(&pool);
    assert_eq!((is_intact(&pool, "one"), is_intact(&pool, "two")), (Some(true), Some(true)));
    pool.close().unwrap();
    let pool = open(&file).unwrap();
    assert_eq!((pool.found(), pool.needs_collection()), (Start::Clean, false));
    assert_eq!((is_intact(&pool, "one"), is_intact(&pool, "two")), (Some(true), Some(true)));
}

#[test]
fn last_handle_closes() {
    let file = file_of(&closed_image());
    let pool = open(&file).unwrap();
    let second = pool.clone();
    assert!(pool.close().unwrap_err().to_string().contains("still in use"));
    second.close().unwrap();
    assert_eq!(open(&file).unwrap().found(), Start::Clean);
}

#[test]
fn panic_while_the_pool_is_open_leaves_it_in_use() {
    let file = file_of(&closed_image());
    let pool = open(&file).unwrap();
    let thread = std::thread::scope(|scope| {
        scope
            .spawn(move || {
                let _pool = pool;
                std::panic::resume_unwind(Box::new("for the test"));
            })
            .join()
    });
    assert!(thread.is_err());
    assert_eq!(open(&file).unwrap().found(), Start::Unclean);
}

#[test]
fn one_program_opens_a_pool_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let _pool = tiny(&path).program("terrace serve").create::<Shm>().unwrap();
    for options in [tiny(&path), tiny(&path).read_only(true), tiny(&path).salvage(true)] {
        let error = options.open::<Shm>().err().unwrap();
        let Problem::InUse(Some(Holder { pid, program, since_ms, .. })) = &error.problem else {
            panic!("{error}")
        };
        assert_eq!((*pid, program.as_str()), (std::process::id(), "terrace serve"));
        assert!(*since_ms > 0);
        assert!(error.to_string().contains(&format!("in use by process {pid} (terrace serve, since ")));
    }
    assert!(matches!(problem(tiny(&path).create::<Shm>()), Problem::Exists));
    assert!(matches!(problem(tiny(&path).open_or_create::<Shm>()), Problem::InUse(_)));
}

#[test]
fn read_only_open_changes_no_byte_and_excludes_writers() {
    let dir = tempfile::tempdir().unwrap();
    for image in [closed_image(), left_image()] {
        let path = dir.path().join("a.pool");
        std::fs::write(&path, &image).unwrap();
        let (one, two) = (tiny(&path).read_only(true), tiny(&path).read_only(true));
        let (one, two) = (one.open::<Shm>().unwrap(), two.open::<Shm>().unwrap());
        assert!(one.is_read_only());
        assert_eq!(is_intact(&two, "two"), Some(true));
        collect(&one);
        while let Ok(block) = one.pin().alloc(500) {
            block.write(0, &[7; 500]);
            block.persist().into_offset();
        }
        assert_eq!((is_intact(&one, "two"), is_intact(&two, "two")), (Some(true), Some(true)));
        one.set_root("mine", "test", 0).unwrap();
        assert_eq!((one.roots().len(), two.roots().len()), (3, 2));
        assert_eq!(one.grow(1 << 20).unwrap_err().to_string(), "the pool is open read-only and cannot grow");
        let error = problem(tiny(&path).open::<Shm>());
        assert!(matches!(error, Problem::InUse(Some(Holder { pid, .. })) if pid == std::process::id()));
        drop((one, two));
        assert!(std::fs::read(&path).unwrap() == image);
        assert!(matches!(
            problem(tiny(&dir.path().join("none")).read_only(true).open_or_create::<Shm>()),
            Problem::Missing
        ));
    }
}

#[test]
fn power_is_refused_on_memory_that_a_power_loss_erases() {
    for place in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let dir = tempfile::tempdir_in(place).unwrap();
        let path = dir.path().join("a.pool");
        let error = tiny(&path).create::<Pmem>().err().unwrap();
        assert!(matches!(error.problem, Problem::NotPersistent));
        assert!(error.to_string().starts_with("durability `power` is not possible on "), "{error}");
        assert!(error.to_string().contains("--durability process"), "{error}");
        assert!(!path.exists());
        tiny(&path).create::<Shm>().unwrap().close().unwrap();
        assert!(matches!(problem(tiny(&path).open::<Pmem>()), Problem::NotPersistent));
        tiny(&path).read_only(true).open::<Pmem>().unwrap();
        assert_eq!(describe(&path).unwrap().durability, Durability::Process);
    }
}

#[test]
fn durability_changes_only_after_an_orderly_close() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    let assumed = || tiny(&path).assume_persistent(true);
    assumed().create::<Pmem>().unwrap().abandon();
    let error = assumed().open::<Shm>().err().unwrap();
    assert!(error.to_string().contains("left in use with durability `power`"), "{error}");
    assumed().open::<Pmem>().unwrap().close().unwrap();
    tiny(&path).open::<Shm>().unwrap().abandon();
    assert!(matches!(problem(assumed().open::<Pmem>()), Problem::OtherDurability { .. }));
    let pool = tiny(&path).open::<Shm>().unwrap();
    assert_eq!(pool.found(), Start::Unclean);
    collect(&pool);
    pool.close().unwrap();
    assert_eq!(assumed().open::<Pmem>().unwrap().found(), Start::Clean);
}

#[test]
fn unclean_pool_after_reboot_opens_only_for_salvage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let on = |boot| tiny(&path).boot_id(boot);
    let pool = on(1).create::<Shm>().unwrap();
    pool.set_root("one", "test", 0).unwrap();
    pool.abandon();
    assert_eq!(on(1).open::<Shm>().unwrap().found(), Start::Unclean);
    on(2).open::<Shm>().unwrap().abandon();
    let before = std::fs::read(&path).unwrap();
    for options in [on(3), on(3).read_only(true)] {
        let error = options.open::<Shm>().err().unwrap();
        assert!(matches!(error.problem, Problem::MachineCrashed));
        assert!(error.to_string().contains("--salvage"), "{error}");
    }
    let salvaged = on(3).salvage(true).open::<Shm>().unwrap();
    assert!(salvaged.is_read_only());
    assert_eq!(salvaged.roots()[0].name, "one");
    drop(salvaged);
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn unclean_power_pool_with_assumption_needs_same_boot() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    let on = |boot| tiny(&path).assume_persistent(true).boot_id(boot);
    on(1).create::<Pmem>().unwrap().abandon();
    assert!(matches!(problem(on(2).open::<Pmem>()), Problem::MachineCrashed));
    on(1).open::<Pmem>().unwrap().close().unwrap();
    on(2).open::<Pmem>().unwrap();
}

#[test]
fn assumed_persistence_does_not_survive_a_reboot() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(TINY).unwrap();
    let medium = || {
        let (file, bytes) = (file.try_clone().unwrap(), TINY as usize);
        <Pmem as MappedMedium>::new(Mapping::file(file, bytes, bytes, Protection::ReadWrite).unwrap())
    };
    let on = |boot| PoolOptions::anonymous().boot_id(boot);
    on(1).create_on(medium()).unwrap().abandon();
    on(2).open_on(medium()).unwrap().abandon();
    on(3).assume_persistent(true).open_on(medium()).unwrap().abandon();
    assert!(matches!(problem(on(4).open_on(medium())), Problem::MachineCrashed));
    assert!(on(3).read_only(true).open_on(medium()).unwrap().is_read_only());
}

#[test]
fn describe_returns_label_size_and_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = tiny(&path).label("sessions \u{e4}").hash_seed(5).create::<Shm>().unwrap();
    assert_eq!((pool.label().as_str(), pool.hash_seed()), ("sessions \u{e4}", 5));
    let described = describe(&path).unwrap();
    assert_eq!((described.uuid, described.clean, described.same_boot), (pool.uuid(), false, true));
    assert_eq!((described.size, described.geometry, described.generation), (TINY, Geometry::tiny(), 1));
    pool.close().unwrap();
    let described = describe(&path).unwrap();
    assert!(described.clean && described.created_ms > 0 && described.label == "sessions \u{e4}");
    assert_eq!(tiny(&path).open::<Shm>().unwrap().hash_seed(), 5);
    let other = Pool::anonymous(TINY).unwrap();
    assert_ne!(other.uuid(), described.uuid);
    assert_ne!(other.hash_seed(), Pool::anonymous(TINY).unwrap().hash_seed());
}

type Pool = terrace_pool::Pool<Dram>;

#[test]
fn sizes_labels_and_geometries_out_of_range_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    for size in [0, 4096, 16 << 10, 1 << 45, u64::MAX] {
        let error = PoolOptions::at(&path).size(size).create::<Shm>().err().unwrap();
        assert!(matches!(error.problem, Problem::Size { .. }), "{size}: {error}");
        assert!(error.to_string().contains("to 16.0 TiB"), "{error}");
    }
    let long = tiny(&path).label(&"x".repeat(64));
    assert!(matches!(problem(long.create::<Shm>()), Problem::LabelTooLong));
    let none = tiny(&path).geometry(Geometry { thread_slots: 0, ..Geometry::tiny() });
    assert!(matches!(problem(none.create::<Shm>()), Problem::Geometry(_)));
    assert!(!path.exists());
    assert_eq!(PoolOptions::at(&path).size(TINY + 4095).create::<Shm>().unwrap().size(), TINY);
}

#[test]
fn files_that_are_no_pools_are_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    for bytes in [vec![], b"hello".to_vec(), vec![0; 1 << 20], vec![0xff; 8192], program] {
        std::fs::write(&path, &bytes).unwrap();
        for outcome in [tiny(&path).open::<Shm>(), tiny(&path).open_or_create::<Shm>()] {
            let error = outcome.err().unwrap();
            assert!(matches!(error.problem, Problem::NotAPool), "{error}");
            assert!(error.to_string().contains("is not a Terrace pool"));
        }
        assert!(problem(tiny(&path).salvage(true).open::<Shm>()).is_foreign());
        assert!(problem(describe(&path)).is_foreign());
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
    assert!(matches!(problem(tiny(dir.path()).open::<Shm>()), Problem::NotAFile));
    assert!(matches!(problem(tiny(dir.path()).read_only(true).open::<Shm>()), Problem::NotAFile));
    // The error must not suggest to open this one instead, or to remove it.
    let null = tiny("/dev/null".as_ref());
    assert!(matches!(problem(null.create::<Shm>()), Problem::NotAFile));
    assert!(matches!(problem(null.open::<Shm>()), Problem::NotAFile));
}

trait IsForeign {
    fn is_foreign(&self) -> bool;
}

impl IsForeign for Problem {
    fn is_foreign(&self) -> bool {
        matches!(self, Self::NotAPool)
    }
}

#[test]
fn open_file_can_contain_a_pool() {
    let memory = rustix::fs::memfd_create("pool", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = std::fs::File::from(memory);
    let options = PoolOptions::in_file(file.try_clone().unwrap()).size(TINY);
    assert!(matches!(problem(options.open::<Shm>()), Problem::NotAPool));
    options.create::<Shm>().unwrap().set_root("one", "test", 0).unwrap();
    assert!(matches!(problem(options.create::<Shm>()), Problem::Exists));
    assert_eq!(options.open::<Shm>().unwrap().roots().len(), 1);
    // A damaged pool is not overwritten either.
    file.write_all_at(&[1], 100).unwrap();
    file.write_all_at(&[1], 4196).unwrap();
    assert!(matches!(problem(options.create::<Shm>()), Problem::Exists));
}

#[test]
fn pool_is_created_in_the_memory_of_a_medium() {
    let pool = Pool::anonymous(TINY).unwrap();
    assert!(matches!(problem(PoolOptions::anonymous().open::<Dram>()), Problem::Missing));
    pool.set_root("one", "test", 0).unwrap();
    let mapping = terrace_medium::Mapping::anonymous(TINY as usize, 0).unwrap();
    let made =
        PoolOptions::anonymous().create_on(<Pmem as terrace_medium::MappedMedium>::new(mapping)).unwrap();
    assert_eq!((made.size(), made.found()), (TINY, Start::Created));
    let empty = terrace_medium::Mapping::anonymous(TINY as usize, 0).unwrap();
    let empty = <Pmem as terrace_medium::MappedMedium>::new(empty);
    assert!(problem(PoolOptions::anonymous().open_on(empty)).is_foreign());
}
