//! Tests: collection after a crash, while other threads run. Every reachable block is kept, and all
//! other memory becomes free.

use crate::table::{Dice, SLOTS, Table};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{MappedMedium, Pmem, Shm};
use terrace_pool::{CollectReport, Geometry, PoolOptions};

fn options(path: &Path, size: u64, geometry: Geometry) -> PoolOptions {
    PoolOptions::at(path).size(size).geometry(geometry).assume_persistent(true)
}

fn geometries() -> [(u64, Geometry); 3] {
    let tiny = Geometry { zone_log2: 18, ..Geometry::tiny() };
    [(1 << 20, tiny), (8 << 20, Geometry::for_size(8 << 20)), (64 << 20, Geometry::default())]
}

fn crash_and_collect<M: MappedMedium>(size: u64, geometry: Geometry) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = options(&dir.path().join("pool"), size, geometry);
    let table = Table::create(options.create::<M>().unwrap());
    let mut dice = Dice(0xc0ffee + size);
    table.churn(&mut dice, 3000);
    table.pool.abandon();
    for round in 0..6 {
        let table = Table::open(options.open::<M>().unwrap());
        assert!(table.pool.needs_collection());
        table.churn(&mut dice, 1000);
        if round % 3 == 1 {
            // Another crash before the collection.
            table.pool.abandon();
            continue;
        }
        let stop = AtomicBool::new(false);
        let churn = |seed: u64| {
            let mut dice = Dice(seed * 7919 + round);
            while !stop.load(Acquire) {
                table.churn(&mut dice, 10);
            }
        };
        let report = std::thread::scope(|scope| {
            let churn = &churn;
            let threads = [1, 2].map(|seed| scope.spawn(move || churn(seed)));
            let report = table.collect();
            stop.store(true, Release);
            // Joined, since a scope does not wait for thread-local destructors.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            report
        });
        assert_eq!(report.unsound, 0, "{report:?}");
        assert!(!table.pool.needs_collection() && report.units > 0);
        table.check();
        assert_eq!(table.collect(), CollectReport::default());
        table.churn(&mut dice, 1000);
        table.check();
        table.pool.abandon();
    }
}

#[test]
fn collection_after_kill_keeps_exactly_reachable_blocks() {
    geometries().into_iter().for_each(|(size, geometry)| crash_and_collect::<Shm>(size, geometry));
}

#[test]
fn persistent_memory_is_collected_after_kill_too() {
    geometries().into_iter().for_each(|(size, geometry)| crash_and_collect::<Pmem>(size, geometry));
}

#[test]
fn clean_close_leaves_nothing_to_collect() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for (i, (size, geometry)) in geometries().into_iter().enumerate() {
        let options = options(&dir.path().join(i.to_string()), size, geometry);
        let table = Table::create(options.create::<Shm>().unwrap());
        let mut dice = Dice(99);
        for _ in 0..3 {
            table.churn(&mut dice, 2000);
        }
        table.pool.close().unwrap();
        for _ in 0..3 {
            let table = Table::open(options.open::<Shm>().unwrap());
            assert!(!table.pool.needs_collection());
            table.check();
            table.churn(&mut dice, 2000);
            table.check();
            table.pool.close().unwrap();
        }
    }
}

/// A pool as a killed process leaves it.
fn left_in_use(dir: &Path) -> PoolOptions {
    let (size, geometry) = geometries()[1];
    let options = options(&dir.join("pool"), size, geometry);
    let table = Table::create(options.create::<Shm>().unwrap());
    table.churn(&mut Dice(5), 3000);
    table.pool.abandon();
    options
}

#[test]
fn pool_closed_before_its_collection_is_collected_later() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (options, mut dice) = (left_in_use(dir.path()), Dice(6));
    let table = Table::open(options.open::<Shm>().unwrap());
    table.churn(&mut dice, 300);
    table.pool.close().unwrap();
    let table = Table::open(options.open::<Shm>().unwrap());
    assert!(table.pool.needs_collection());
    table.churn(&mut dice, 300);
    table.collect();
    table.check();
}

#[test]
fn panic_in_trace_is_harmless() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = left_in_use(dir.path());
    let table = Table::open(options.open::<Shm>().unwrap());
    let traced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.pool.collect(&mut |marker| {
            marker.mark(table.slots, SLOTS as usize * 8);
            panic!("as planned");
        })
    }));
    assert!(traced.is_err() && table.pool.needs_collection());
    table.churn(&mut Dice(6), 3000);
    table.collect();
    table.check();
}

#[test]
fn trace_that_gives_up_frees_nothing() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = left_in_use(dir.path());
    for _ in 0..2 {
        let table = Table::open(options.open::<Shm>().unwrap());
        let report = table.pool.collect(&mut |marker| {
            marker.mark(table.slots, SLOTS as usize * 8);
            marker.give_up();
        });
        assert_eq!((report.freed, report.units), (0, 0));
        assert!(table.pool.needs_collection());
        table.churn(&mut Dice(6), 300);
        table.pool.close().unwrap();
    }
    let table = Table::open(options.open::<Shm>().unwrap());
    table.collect();
    table.check();
}

#[test]
fn marks_of_impossible_blocks_are_counted_only() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (size, geometry) = geometries()[0];
    let options = options(&dir.path().join("pool"), size, geometry);
    let table = Table::create(options.create::<Shm>().unwrap());
    table.churn(&mut Dice(5), 300);
    table.pool.abandon();
    let pool = options.open::<Shm>().unwrap();
    let report = pool.collect(&mut |marker| {
        for offset in [0, 8, pool.layout().zones, pool.size(), u64::MAX, u64::MAX - 7] {
            marker.mark(offset, usize::MAX);
            marker.mark(offset, 64);
            marker.mark(offset, 0);
        }
    });
    assert_eq!((report.marked, report.unsound), (18, 18));
    let space = pool.space();
    assert_eq!(space.used_by_blocks, 0, "{space:?}");
    assert!(pool.verify_memory().is_empty());
}

/// Not a test by itself: the process that the next test kills.
#[test]
#[ignore = "the child of the next test"]
fn churns_until_it_is_killed() {
    let Ok(path) = std::env::var("TERRACE_TEST_POOL") else { return };
    let (size, geometry) = geometries()[2];
    let table = Table::open(options(Path::new(&path), size, geometry).open::<Shm>().unwrap());
    std::thread::scope(|scope| {
        for seed in 1..=2 {
            let table = &table;
            scope.spawn(move || {
                loop {
                    table.churn(&mut Dice(seed), 1000);
                }
            });
        }
        // Some rounds are killed in the middle of a collection.
        table.collect();
    });
}

#[test]
fn kill_at_any_time_leaves_a_collectable_pool() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let (size, geometry) = geometries()[2];
    Table::create(options(&path, size, geometry).create::<Shm>().unwrap()).pool.close().unwrap();
    let mut dice = Dice(17);
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "collect::churns_until_it_is_killed", "--ignored", "--nocapture"])
            .env("TERRACE_TEST_POOL", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A sleep is the only way to kill a process at an arbitrary point.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(std::time::Duration::from_millis(30 + dice.roll(60)));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 3 == 2 {
            let table = Table::open(options(&path, size, geometry).open::<Shm>().unwrap());
            table.collect();
            table.check();
            table.churn(&mut dice, 100);
            table.pool.close().unwrap();
        }
    }
}
