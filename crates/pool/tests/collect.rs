//! What a crash leaves is collected while others go on: everything that can be reached is kept, all the rest comes back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Offset, Pmem, Shm, Word};
use terrace_pool::{CollectReport, Geometry, Guard, Pool, PoolOptions};

const SLOTS: u64 = 3000;

/// A sequence of numbers that is the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A table of offsets of blocks; a block says how long it is and in which slot it belongs: the smallest thing that can be traced.
struct Table<M: MappedMedium> {
    pool: Pool<M>,
    slots: u64,
}

impl<M: MappedMedium> Table<M> {
    fn create(pool: Pool<M>) -> Self {
        let guard = pool.pin();
        let fresh = guard.alloc(SLOTS as usize * 8).unwrap();
        (0..SLOTS).for_each(|slot| fresh.word(slot as usize * 8).store(pool.medium(), 0, Relaxed));
        let slots = fresh.persist().into_offset();
        pool.set_root("table", "test", slots).unwrap();
        drop(guard);
        Self { pool, slots }
    }

    fn open(pool: Pool<M>) -> Self {
        let slots = pool.root("table", "test").unwrap().unwrap();
        Self { pool, slots }
    }

    fn word(&self, offset: u64) -> &Word {
        self.pool.region().at(Offset::new(offset))
    }

    fn slot(&self, slot: u64) -> &Word {
        self.word(self.slots + slot * 8)
    }

    /// Puts a block of `bytes` bytes into a slot, or none if 0; what was there is retired.
    fn set(&self, guard: &Guard<'_, M>, slot: u64, bytes: u64) {
        let medium = self.pool.medium();
        let new = match bytes {
            0 => 0,
            _ => {
                let Ok(fresh) = guard.alloc(bytes as usize) else { return };
                fresh.word(0).store(medium, bytes, Relaxed);
                fresh.word(8).store(medium, slot ^ bytes, Relaxed);
                fresh.word(bytes as usize / 8 * 8 - 8).store(medium, slot ^ bytes, Relaxed);
                fresh.persist().into_offset()
            }
        };
        let old = self.slot(slot).swap(medium, new, AcqRel);
        self.pool.region().persist(self.slot(slot));
        if old != 0 {
            guard.retire(old, self.word(old).load(medium, Relaxed) as usize);
        }
    }

    fn churn(&self, dice: &mut Dice, turns: u32) {
        for _ in 0..turns {
            let guard = self.pool.pin();
            for _ in 0..1 + dice.roll(4) {
                let bytes = match dice.roll(20) {
                    0..4 => 0,
                    4 => 8 * (2 + dice.roll(5000)),
                    _ => 8 * (2 + dice.roll(60)),
                };
                self.set(&guard, dice.roll(SLOTS), bytes);
            }
        }
    }

    fn collect(&self) -> CollectReport {
        self.pool.collect(&mut |marker| {
            let _guard = self.pool.pin();
            marker.mark(self.slots, || SLOTS as usize * 8);
            for slot in 0..SLOTS {
                let offset = self.slot(slot).load(self.pool.medium(), Acquire);
                if offset != 0 {
                    marker.mark(offset, || self.word(offset).load(self.pool.medium(), Relaxed) as usize);
                }
            }
        })
    }

    /// Checks every block, and that no memory is taken but theirs.
    fn check(&self) {
        self.pool.relieve();
        let findings = self.pool.verify_memory();
        assert!(findings.is_empty(), "{findings:?}");
        let mut used = footprint(&self.pool, SLOTS * 8);
        for slot in 0..SLOTS {
            let offset = self.slot(slot).load(self.pool.medium(), Acquire);
            if offset != 0 {
                let bytes = self.word(offset).load(self.pool.medium(), Relaxed);
                for at in [8, bytes / 8 * 8 - 8] {
                    let stamp = self.word(offset + at).load(self.pool.medium(), Relaxed);
                    assert_eq!(stamp, slot ^ bytes, "slot {slot}");
                }
                used += footprint(&self.pool, bytes);
            }
        }
        let space = self.pool.space();
        assert_eq!((space.used_by_blocks, space.waiting, space.lost), (used, 0, 0), "{space:?}");
    }
}

fn footprint<M: MappedMedium>(pool: &Pool<M>, bytes: u64) -> u64 {
    let granule = 1u64 << (pool.layout().geometry.slab_log2 - 6);
    match bytes {
        _ if bytes > 8 * granule => bytes.next_multiple_of(granule),
        0..=128 => bytes.next_multiple_of(8),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 16),
    }
}

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
            // Another crash before anything was collected.
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
            // Joined, for a scope does not wait for thread-locals to be dropped.
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
fn a_killed_process_loses_nothing_that_can_be_reached_and_keeps_nothing_else() {
    geometries().into_iter().for_each(|(size, geometry)| crash_and_collect::<Shm>(size, geometry));
}

#[test]
fn nor_on_persistent_memory() {
    geometries().into_iter().for_each(|(size, geometry)| crash_and_collect::<Pmem>(size, geometry));
}

#[test]
fn a_clean_close_leaves_nothing_to_collect() {
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

#[test]
fn a_pool_closed_before_it_was_collected_is_collected_later() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (size, geometry) = geometries()[1];
    let options = options(&dir.path().join("pool"), size, geometry);
    let table = Table::create(options.create::<Shm>().unwrap());
    let mut dice = Dice(5);
    table.churn(&mut dice, 3000);
    table.pool.abandon();
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
fn a_trace_that_panics_does_no_harm() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (size, geometry) = geometries()[1];
    let options = options(&dir.path().join("pool"), size, geometry);
    let table = Table::create(options.create::<Shm>().unwrap());
    table.churn(&mut Dice(5), 3000);
    table.pool.abandon();
    let table = Table::open(options.open::<Shm>().unwrap());
    let traced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.pool.collect(&mut |marker| {
            marker.mark(table.slots, || SLOTS as usize * 8);
            panic!("as planned");
        })
    }));
    assert!(traced.is_err() && table.pool.needs_collection());
    table.churn(&mut Dice(6), 3000);
    table.collect();
    table.check();
}

#[test]
fn places_that_cannot_be_blocks_are_counted_and_marked_nowhere() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (size, geometry) = geometries()[0];
    let options = options(&dir.path().join("pool"), size, geometry);
    let table = Table::create(options.create::<Shm>().unwrap());
    table.churn(&mut Dice(5), 300);
    table.pool.abandon();
    let pool = options.open::<Shm>().unwrap();
    let report = pool.collect(&mut |marker| {
        for offset in [0, 8, pool.layout().zones, pool.size(), u64::MAX, u64::MAX - 7] {
            marker.mark(offset, || usize::MAX);
            marker.mark(offset, || 64);
            marker.mark(offset, || 0);
        }
    });
    assert_eq!((report.marked, report.unsound), (18, 18));
    let space = pool.space();
    assert_eq!(space.used_by_blocks, 0, "{space:?}");
    assert!(pool.verify_memory().is_empty());
}

/// Not a test of its own: the process that the next one kills.
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
        // Sometimes it is killed in the middle of a collection.
        table.collect();
    });
}

#[test]
fn a_process_killed_at_any_time_leaves_a_pool_that_can_be_collected() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let (size, geometry) = geometries()[2];
    Table::create(options(&path, size, geometry).create::<Shm>().unwrap()).pool.close().unwrap();
    let mut dice = Dice(17);
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "churns_until_it_is_killed", "--ignored", "--nocapture"])
            .env("TERRACE_TEST_POOL", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Time is all that a test can give a process that is to be killed anywhere.
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
