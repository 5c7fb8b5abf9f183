//! Tests: the allocator against a model. No block overlaps another, and none is lost.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_medium::{Dram, MappedMedium, Offset, Shm, Word};
use terrace_pool::{Geometry, Guard, Pool, PoolFull, PoolOptions};

/// A reproducible sequence of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
    /// A size of any magnitude up to `max`.
    fn size(&mut self, max: u64) -> u64 {
        let magnitude = self.roll(u64::from(max.ilog2()) + 1);
        (1 + self.roll(1 << (magnitude + 1))).min(max)
    }
}

fn pool<M: MappedMedium>(size: u64, geometry: Geometry) -> Pool<M> {
    PoolOptions::anonymous().size(size).geometry(geometry).create().unwrap()
}

/// Allocates a block and stamps its first and last word with its offset and size.
fn take<M: MappedMedium>(guard: &Guard<'_, M>, bytes: u64) -> Result<u64, PoolFull> {
    let fresh = guard.alloc(bytes as usize)?;
    let offset = fresh.offset();
    let extents = 8 << (guard.pool().layout().geometry.slab_log2 - 6);
    let whole = |unit| bytes.is_multiple_of(unit);
    let align = [(4096, bytes > extents), (64, true)];
    let align = align.into_iter().find(|&(unit, applies)| applies && whole(unit)).map_or(8, |(unit, _)| unit);
    assert_eq!(offset % align, 0, "{bytes} bytes");
    for at in ends(bytes) {
        fresh.word(at as usize).store(guard.pool().medium(), offset ^ bytes, Relaxed);
    }
    Ok(fresh.fenced(&guard.fence()).into_offset())
}

fn ends(bytes: u64) -> impl Iterator<Item = u64> {
    [0, (bytes / 8).saturating_sub(1) * 8].into_iter().filter(move |at| at + 8 <= bytes)
}

fn check<M: MappedMedium>(pool: &Pool<M>, offset: u64, bytes: u64) {
    for at in ends(bytes) {
        let word: &Word = pool.region().at(Offset::new(offset + at));
        assert_eq!(word.load(pool.medium(), Relaxed), offset ^ bytes, "{bytes} bytes at {offset:#x}");
    }
}

fn verify<M: MappedMedium>(pool: &Pool<M>) {
    let findings = pool.verify_memory();
    assert!(findings.is_empty(), "{findings:?}");
}

/// Allocates and frees at random; the model records the allocated blocks. Returns those that are
/// left.
fn churn<M: MappedMedium>(pool: &Pool<M>, seed: u64, turns: u32, max: u64) -> BTreeMap<u64, u64> {
    let mut dice = Dice(seed);
    let mut model = BTreeMap::new();
    for _ in 0..turns {
        let guard = pool.pin();
        if dice.roll(100) < 55 {
            let bytes = dice.size(max);
            let Ok(offset) = take(&guard, bytes) else { continue };
            let before = model.range(..offset).next_back().map_or(0, |(start, len)| start + len);
            let after = model.range(offset..).next().map_or(u64::MAX, |(start, _)| *start);
            assert!(before <= offset && offset + bytes <= after, "{bytes} bytes at {offset:#x} overlap");
            model.insert(offset, bytes);
        } else if let Some((&offset, &bytes)) = model.range(dice.roll(pool.size())..).next() {
            check(pool, offset, bytes);
            model.remove(&offset);
            if dice.roll(2) == 0 {
                guard.free(offset, bytes as usize)
            } else {
                guard.retire(offset, bytes as usize)
            }
        }
    }
    model
}

fn free_all<M: MappedMedium>(pool: &Pool<M>, model: BTreeMap<u64, u64>) {
    for (offset, bytes) in model {
        check(pool, offset, bytes);
        pool.pin().free(offset, bytes as usize);
    }
}

fn geometries() -> [(u64, Geometry, u64); 3] {
    let tiny = Geometry { zone_log2: 16, ..Geometry::tiny() };
    [
        (512 << 10, tiny, 20_000),
        (4 << 20, Geometry::for_size(4 << 20), 200_000),
        (96 << 20, Geometry::default(), 4 << 20),
    ]
}

#[test]
fn random_blocks_never_overlap_and_all_come_back() {
    for (size, geometry, max) in geometries() {
        let pool = pool::<Dram>(size, geometry);
        let before = pool.space();
        let model = churn(&pool, 0x5eed, 60_000, max);
        verify(&pool);
        let used: u64 = model.values().sum();
        assert!(pool.space().used_by_blocks >= used);
        free_all(&pool, model);
        pool.reclaim_blocking();
        verify(&pool);
        let after = pool.space();
        assert_eq!(after.waiting_bytes, 0);
        assert!(after.used_by_blocks <= before.used_by_blocks, "{before:?} {after:?}");
        assert_eq!((after.free, after.slab_free), (before.free, before.slab_free), "{after:?}");
    }
}

#[test]
fn threads_never_get_the_same_block() {
    for (size, geometry, max) in geometries() {
        let pool = pool::<Shm>(size, geometry);
        let before = pool.space();
        let models: Vec<_> = std::thread::scope(|scope| {
            let pool = &pool;
            let threads: Vec<_> =
                (1..=3).map(|seed| scope.spawn(move || churn(pool, seed * 77, 30_000, max))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        verify(&pool);
        // Blocks are freed by another thread than allocated them.
        models.into_iter().for_each(|model| free_all(&pool, model));
        pool.reclaim_blocking();
        verify(&pool);
        assert_eq!(pool.space().free, before.free, "{:?}", pool.space());
    }
}

#[test]
fn pool_can_be_refilled_with_another_size() {
    for (size, geometry, _) in geometries() {
        let pool = pool::<Dram>(size, geometry);
        let free = pool.space().free;
        for bytes in [24, 64, 512, 100, 3000, 20_000] {
            let mut blocks = Vec::new();
            while let Ok(offset) = take(&pool.pin(), bytes) {
                blocks.push(offset);
            }
            let used = blocks.len() as u64 * bytes;
            assert!(used * 100 >= free * 75, "{used} of {free} bytes used in blocks of {bytes}");
            verify(&pool);
            for offset in blocks {
                check(&pool, offset, bytes);
                pool.pin().retire(offset, bytes as usize);
            }
            pool.reclaim_blocking();
            verify(&pool);
        }
        let largest = pool.space().largest_free_extent;
        let guard = pool.pin();
        assert!(largest > free.min(256 << 10) / 8, "{:?}", pool.space());
        drop(guard.alloc(largest as usize).unwrap());
        let error = guard.alloc(size as usize).err().unwrap();
        assert_eq!((error.wanted, error.size), (size, size));
    }
}

#[test]
fn emptied_slabs_serve_other_sizes() {
    for (size, geometry, _) in geometries() {
        let pool = pool::<Dram>(size, geometry);
        let slab = 1 << geometry.slab_log2;
        let take_all = |count: u64, bytes: u64| -> Vec<u64> {
            (0..count).map(|_| take(&pool.pin(), bytes).unwrap()).collect()
        };
        let free =
            |blocks: &[u64], bytes: u64| blocks.iter().for_each(|&at| pool.pin().free(at, bytes as usize));
        // Three slabs of each of two sizes, full.
        let (small, large) = (take_all(3 * slab / 64, 64), take_all(3 * slab / 512, 512));
        let before = pool.space();
        assert!(!pool.reclaim_nonblocking(), "all have blocks");
        // One small block in 64 stays, so none of their slabs is empty.
        let stay: Vec<u64> = small.iter().copied().step_by(64).collect();
        let go: Vec<u64> = small.iter().copied().filter(|at| !stay.contains(at)).collect();
        free(&go, 64);
        assert!(!pool.reclaim_nonblocking() && pool.space().free == before.free);
        free(&large, 512);
        assert!(pool.reclaim_nonblocking());
        let after = pool.space();
        // The thread keeps one slab to allocate from.
        assert!(after.free >= before.free + 2 * slab, "{before:?} {after:?}");
        assert!(!pool.reclaim_nonblocking(), "nothing has changed since");
        free(&stay, 64);
        assert!(pool.reclaim_nonblocking());
        assert!(pool.space().free >= after.free + 2 * slab, "{after:?} {:?}", pool.space());
        verify(&pool);
        pool.reclaim_blocking();
        assert_eq!(pool.space().used_by_blocks, 0);
    }
}

#[test]
fn retired_memory_returns_without_further_retirements() {
    let pool = pool::<Dram>(4 << 20, Geometry::for_size(4 << 20));
    let offset = take(&pool.pin(), 64).unwrap();
    // Joined, so that it has left its thread slot: a scope alone does not wait for that.
    std::thread::scope(|scope| scope.spawn(|| pool.pin().retire(offset, 64)).join().unwrap());
    let offset = take(&pool.pin(), 64).unwrap();
    pool.pin().retire(offset, 64);
    assert_eq!(pool.space().waiting_bytes, 128);
    (0..4).for_each(|_| _ = pool.reclaim_nonblocking());
    assert_eq!((pool.space().waiting_bytes, pool.reclaim_nonblocking()), (0, false));
}

#[test]
fn retired_block_stays_while_another_thread_is_pinned() {
    let pool = pool::<Dram>(4 << 20, Geometry::for_size(4 << 20));
    let offset = take(&pool.pin(), 64).unwrap();
    let reader = pool.pin();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pool.pin().retire(offset, 64);
            for _ in 0..10_000 {
                let guard = pool.pin();
                let other = take(&guard, 64).unwrap();
                assert_ne!(other, offset);
                guard.retire(other, 64);
            }
        });
        thread.join().unwrap();
    });
    assert!(pool.space().waiting_bytes >= 10_000 * 64);
    check(&pool, offset, 64);
    drop(reader);
    pool.reclaim_blocking();
    assert_eq!(pool.space().waiting_bytes, 0);
    verify(&pool);
}

/// As on a machine with many more threads than cores, where a pinned thread may wait long for its
/// turn.
#[test]
fn full_pool_waits_for_a_delayed_reader() {
    let pool = pool::<Dram>(128 << 10, Geometry::tiny());
    let (gone, pinned) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = pool.pin();
            pinned.wait();
            gone.wait();
            #[allow(clippy::disallowed_methods, reason = "the delay is what is tested")]
            std::thread::sleep(Duration::from_millis(20));
            drop(reader);
        });
        pinned.wait();
        while let Ok(offset) = take(&pool.pin(), 40) {
            pool.pin().retire(offset, 40);
        }
        gone.wait();
        assert!(pool.reclaim_blocking());
        take(&pool.pin(), 40).unwrap();
    });
    verify(&pool);
}

/// Counts the sleeps of `work`.
fn sleeps(work: impl FnOnce()) -> u32 {
    thread_local!(static SLEEPS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    SLEEPS.set(0);
    terrace_pool::rest_with(|| SLEEPS.set(SLEEPS.get() + 1));
    work();
    SLEEPS.get()
}

#[test]
fn full_pool_waits_for_other_readers_only_and_once() {
    const LITTLE: u32 = 10;
    let pool = pool::<Dram>(128 << 10, Geometry::tiny());
    let reclaim = || sleeps(|| _ = pool.reclaim_blocking());
    let (gone, pinned) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = pool.pin();
            pinned.wait();
            gone.wait();
            drop(reader);
        });
        pinned.wait();
        while let Ok(offset) = take(&pool.pin(), 40) {
            pool.pin().retire(offset, 40);
        }
        let own = pool.pin();
        assert!(reclaim() < LITTLE, "this thread itself is pinned");
        drop(own);
        let first = reclaim();
        assert!(first > 100 * LITTLE, "{first} sleeps");
        assert!(reclaim() < LITTLE, "the wait timed out before");
        gone.wait();
    });
    assert!(pool.reclaim_blocking());
    take(&pool.pin(), 40).unwrap();
    verify(&pool);
}

#[test]
fn full_pool_accepts_retirements() {
    let pool = pool::<Dram>(128 << 10, Geometry::tiny());
    let mut blocks = Vec::new();
    while let Ok(offset) = take(&pool.pin(), 40) {
        blocks.push(offset);
    }
    let count = blocks.len();
    for offset in blocks.drain(..) {
        pool.pin().retire(offset, 40);
    }
    pool.reclaim_blocking();
    while let Ok(offset) = take(&pool.pin(), 40) {
        blocks.push(offset);
    }
    assert!(blocks.len() + 16 >= count, "{} of {count} blocks are left", blocks.len());
}

#[test]
fn memory_grows_with_the_pool() {
    let options = PoolOptions::anonymous().size(128 << 10).max_size(64 << 20).geometry(Geometry::tiny());
    let pool = options.create::<Dram>().unwrap();
    let mut sizes = Vec::new();
    for size in [128 << 10, 256 << 10, 260 << 10, 3 << 20, 60 << 20] {
        pool.grow(size).unwrap();
        let mut blocks = 0;
        while take(&pool.pin(), 200).is_ok() {
            blocks += 1;
        }
        sizes.push(blocks);
        verify(&pool);
    }
    assert!(sizes.iter().sum::<u64>() * 200 > 50 << 20, "{sizes:?}");
    assert!(sizes.iter().all(|&blocks| blocks > 10), "{sizes:?}");
}

#[test]
fn invalid_frees_are_counted_and_harmless() {
    let pool = pool::<Dram>(4 << 20, Geometry::for_size(4 << 20));
    let guard = pool.pin();
    let (small, large) = (take(&guard, 100).unwrap(), take(&guard, 100_000).unwrap());
    guard.free(small, 100);
    guard.free(large, 100_000);
    for (offset, bytes) in [
        (small, 100),
        (small + 8, 100),
        (small, 200),
        (small, 100_000),
        (large, 100_000),
        (large, 64),
        (large + 1, 100_000),
        (0, 64),
        (0, 1 << 20),
        (4096, 64),
        (pool.size(), 64),
        (pool.size() - 64, 1 << 20),
        (u64::MAX, 64),
        (u64::MAX, usize::MAX),
    ] {
        let before = pool.faults();
        guard.free(offset, bytes);
        assert_eq!(pool.faults(), before + 1, "{bytes} bytes at {offset:#x}");
    }
}

#[test]
fn more_threads_than_slots_take_turns() {
    let pool = pool::<Dram>(256 << 10, Geometry { thread_slots: 2, ..Geometry::tiny() });
    let again = pool.clone();
    let _mine = pool.pin();
    std::thread::scope(|scope| {
        for seed in 1..=8 {
            let pool = &again;
            scope.spawn(move || free_all(pool, churn(pool, seed, 2_000, 100)));
        }
    });
    drop(_mine);
    pool.reclaim_blocking();
    verify(&pool);
}

#[test]
fn slots_of_ended_threads_are_reused() {
    let pool = pool::<Dram>(256 << 10, Geometry { thread_slots: 2, ..Geometry::tiny() });
    for seed in 1..=50 {
        std::thread::scope(|scope| {
            // Joined, since a scope does not wait for thread-local destructors.
            let thread = scope.spawn(|| {
                let guard = pool.pin();
                let counter = guard.slot_counter(3);
                counter.store(pool.medium(), counter.load(pool.medium(), Relaxed) + seed, Relaxed);
                let block = take(&guard, 64).unwrap();
                guard.retire(block, 64);
            });
            thread.join().unwrap();
        });
    }
    assert_eq!(pool.sum_counter(3), 50 * 51 / 2);
    pool.reclaim_blocking();
    assert_eq!(pool.space().waiting_bytes, 0);
}

#[test]
fn erased_guard_protects_the_bytes_it_holds() {
    let pool = pool::<Dram>(4 << 20, Geometry::for_size(4 << 20));
    let guard = pool.pin();
    let fresh = guard.alloc(11).unwrap();
    fresh.write(0, b"hello there");
    let offset = fresh.persist().into_offset();
    let held = pool.pin().erase().hold(offset, 11).unwrap();
    assert!(pool.pin().erase().hold(pool.size() - 1, 2).is_none());
    guard.retire(offset, 11);
    drop(guard);
    for _ in 0..3 {
        pool.reclaim_blocking();
    }
    assert_eq!(&*held, b"hello there");
    assert_ne!(pool.space().waiting_bytes, 0);
    drop(held);
    pool.reclaim_blocking();
    assert_eq!(pool.space().waiting_bytes, 0);
}

#[test]
fn blocks_freed_by_another_thread_are_not_lost() {
    for (size, geometry, _) in geometries() {
        let pool = pool::<Dram>(size, geometry);
        let before = pool.space();
        let (to_free, freed) = std::sync::mpsc::sync_channel(256);
        std::thread::scope(|scope| {
            let freer = scope.spawn(|| {
                for (i, (offset, bytes)) in freed.into_iter().enumerate() {
                    check(&pool, offset, bytes);
                    let guard = pool.pin();
                    if i % 3 == 0 {
                        guard.retire(offset, bytes as usize)
                    } else {
                        guard.free(offset, bytes as usize)
                    }
                }
            });
            let takers = [1, 2].map(|seed| {
                let (pool, to_free) = (&pool, to_free.clone());
                scope.spawn(move || {
                    let mut dice = Dice(seed);
                    for _ in 0..20_000 {
                        let bytes = 8 * (1 + dice.roll(20));
                        if let Ok(offset) = take(&pool.pin(), bytes) {
                            to_free.send((offset, bytes)).unwrap();
                        }
                    }
                })
            });
            drop(to_free);
            takers.into_iter().for_each(|taker| taker.join().unwrap());
            freer.join().unwrap();
        });
        pool.reclaim_blocking();
        verify(&pool);
        assert_eq!(pool.space(), before);
    }
}

#[test]
fn ending_thread_can_still_pin() {
    struct AtTheEnd(Pool<Dram>, u64);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let (outer, inner) = (self.0.pin(), self.0.pin());
            assert_eq!(outer.slot_index(), inner.slot_index());
            inner.retire(self.1, 64);
        }
    }
    thread_local! {
        static LATE: std::cell::OnceCell<AtTheEnd> = const { std::cell::OnceCell::new() };
    }
    let pool = pool::<Dram>(4 << 20, Geometry::for_size(4 << 20));
    for late_first in [true, false] {
        let block = take(&pool.pin(), 64).unwrap();
        let ending = pool.clone();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                // Thread-locals are dropped in an order that depends on when they were initialized.
                // Both orders are tested.
                if !late_first {
                    drop(ending.pin());
                }
                LATE.with(|late| assert!(late.set(AtTheEnd(ending.clone(), block)).is_ok()));
                drop(ending.pin());
            });
            thread.join().unwrap();
        });
    }
    pool.reclaim_blocking();
    assert_eq!(pool.space().waiting_bytes, 0);
    verify(&pool);
    pool.close().unwrap();
}

#[test]
fn thread_has_a_slot_in_each_pool() {
    let pools: Vec<_> = (0..20).map(|_| pool::<Dram>(256 << 10, Geometry::tiny())).collect();
    for _ in 0..3 {
        let guards: Vec<_> = pools.iter().map(|pool| pool.pin()).collect();
        for guard in &guards {
            guard.retire(take(guard, 64).unwrap(), 64);
        }
    }
    for pool in pools {
        pool.reclaim_blocking();
        verify(&pool);
        pool.close().unwrap();
    }
}
