//! Tests: concurrent collection of leaked blocks while other threads allocate, link, unlink, retire
//! and free. No reachable block is freed, and at the end no other is left.

use crate::table::{Dice, SLOTS, Table};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use terrace_medium::{Dram, MappedMedium, Pmem};
use terrace_pool::{Geometry, Pool, PoolOptions};

/// Two pools with ample room, and one that is short of memory all the time.
fn geometries() -> [(u64, Geometry); 3] {
    let tiny = Geometry { zone_log2: 18, ..Geometry::tiny() };
    [(640 << 10, tiny), (16 << 20, Geometry::for_size(16 << 20)), (128 << 20, Geometry::default())]
}

/// Leaves blocks that are never linked, like a thread that dies with them.
fn leave_some<M: MappedMedium>(table: &Table<M>, dice: &mut Dice) -> u64 {
    let guard = table.pool.pin();
    let sizes = [16, 24, 64, 200, 512, 4096, 20_000];
    let mut left = 0;
    for _ in 0..1 + dice.roll(6) {
        let bytes = sizes[dice.roll(sizes.len() as u64) as usize];
        if let Ok(fresh) = guard.alloc(bytes) {
            fresh.fenced_later().into_offset();
            left += crate::table::footprint(&table.pool, bytes as u64);
        }
    }
    left
}

/// Reads linked blocks: each is intact while its reader is pinned.
fn read<M: MappedMedium>(table: &Table<M>, dice: &mut Dice) {
    let medium = table.pool.medium();
    let _guard = table.pool.pin();
    for _ in 0..20 {
        let slot = dice.roll(SLOTS);
        let offset = table.slot(slot).load(medium, Acquire);
        if offset != 0 {
            let bytes = table.word(offset).load(medium, Relaxed);
            for at in [8, bytes / 8 * 8 - 8] {
                assert_eq!(table.word(offset + at).load(medium, Relaxed), slot ^ bytes, "slot {slot}");
            }
        }
    }
}

/// Stops the other threads when dropped, also by a panic; otherwise they would run forever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

fn collect_concurrently<M: MappedMedium>(pool: Pool<M>, rounds: u64) {
    let table = Table::create(pool);
    table.churn(&mut Dice(7), 3000);
    let (stop, freed) = (AtomicBool::new(false), AtomicU64::new(0));
    let left = AtomicU64::new(leave_some(&table, &mut Dice(6)));
    let work = |seed: u64| {
        let _over = Over(&stop);
        let mut dice = Dice(seed * 7919);
        while !stop.load(Acquire) {
            table.churn(&mut dice, 20);
            read(&table, &mut dice);
            match dice.roll(50) {
                0 => _ = table.pool.reclaim_blocking(),
                // Not so much that memory becomes short.
                1..4 if left.load(Relaxed).saturating_sub(freed.load(Relaxed)) < table.pool.size() / 16 => {
                    left.fetch_add(leave_some(&table, &mut dice), Relaxed);
                    table.pool.request_collection();
                }
                _ => {}
            }
        }
    };
    let mut units = 0;
    std::thread::scope(|scope| {
        let (work, over) = (&work, Over(&stop));
        let threads = [1, 2, 3].map(|seed| scope.spawn(move || work(seed)));
        for _ in 0..rounds {
            table.pool.request_collection();
            let report = table.collect();
            assert_eq!(report.unsound, 0);
            freed.fetch_add(report.freed, Relaxed);
            units += report.units;
        }
        drop(over);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    table.pool.request_collection();
    freed.fetch_add(table.collect().freed, Relaxed);
    assert!(!table.pool.needs_collection());
    let (left, freed) = (left.into_inner(), freed.into_inner());
    // When memory is short, a block may be retired while there is no byte left to record it. Memory
    // is small, or a pinned thread does not get to run. Such a block is found, too.
    assert!(freed >= left, "{freed} of {left} bytes");
    assert!(freed > 0 && units > 0);
    table.check();
    table.churn(&mut Dice(8), 1000);
    table.check();
}

#[test]
fn concurrent_collection_frees_exactly_the_leaked_blocks() {
    for (size, geometry) in geometries() {
        collect_concurrently(Pool::<Dram>::anonymous_with(size, geometry).unwrap(), 40);
    }
}

#[test]
fn persistent_memory_is_collected_concurrently_too() {
    for (size, geometry) in geometries() {
        let options = PoolOptions::anonymous().size(size).geometry(geometry);
        collect_concurrently(options.create::<Pmem>().unwrap(), 15);
    }
}
