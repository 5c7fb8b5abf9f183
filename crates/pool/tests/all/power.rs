//! Tests: the allocator after a power failure. Each line has the content last written back and
//! fenced, or its final content, at random.

use crate::table::{Dice, Table};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use terrace_medium::{Dram, LINE, MappedMedium, Mapping, Medium};
use terrace_pool::{Geometry, PAGE, Pool, PoolOptions};

/// Memory behind a volatile cache. Records what a power failure would leave, and counts write-backs
/// and fences.
struct Fragile {
    memory: Dram,
    kept: Arc<Mutex<Vec<[u64; LINE / 8]>>>,
    /// Lines written back but not yet fenced, with their content at the write-back. A test writes
    /// from one thread.
    asked: Mutex<Vec<(usize, [u64; LINE / 8])>>,
    write_backs: AtomicU64,
    fences: AtomicU64,
    /// The fence at which the process is killed; 0 is none.
    killed_at: AtomicU64,
}

// SAFETY: as the memory below.
unsafe impl Medium for Fragile {
    const VOLATILE_CACHE: bool = true;
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }
    fn len(&self) -> usize {
        self.memory.len()
    }
    fn write_back(&self, at: *const u8) {
        self.write_backs.fetch_add(1, Relaxed);
        let line = (at.addr() - self.base().addr().get()) / LINE;
        self.asked.lock().unwrap().push((line, self.line(line)));
    }
    fn fence(&self) {
        let fences = self.fences.fetch_add(1, Relaxed) + 1;
        assert_ne!(fences, self.killed_at.load(Relaxed), "the process is killed");
        let mut kept = self.kept.lock().unwrap();
        self.asked.lock().unwrap().drain(..).for_each(|(line, words)| kept[line] = words);
    }
}

impl MappedMedium for Fragile {
    fn new(mapping: Mapping) -> Self {
        // Room for the growth that a test requests.
        let lines = mapping.len().max(1 << 20) / LINE;
        let kept = Arc::new(Mutex::new(vec![[0; LINE / 8]; lines]));
        let [write_backs, fences, killed_at] = std::array::from_fn(|_| AtomicU64::new(0));
        let asked = Mutex::default();
        Self { memory: Dram::new(mapping), kept, asked, write_backs, fences, killed_at }
    }
    fn mapping(&self) -> &Mapping {
        self.memory.mapping()
    }
}

impl Fragile {
    fn empty(bytes: u64) -> Self {
        Self::new(Mapping::anonymous(bytes as usize, 0).unwrap())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        let at = self.base().as_ptr().cast::<AtomicU64>().wrapping_add(index);
        // SAFETY: in the mapping and aligned, and any bits are a word.
        unsafe { &*at }
    }

    fn line(&self, line: usize) -> [u64; LINE / 8] {
        std::array::from_fn(|i| self.word(line * 8 + i).load(Relaxed))
    }

    /// Memory with these lines, all of them durable.
    fn with_content(lines: &[[u64; LINE / 8]]) -> Self {
        let memory = Self::empty((lines.len() * LINE) as u64);
        for (i, &word) in lines.as_flattened().iter().enumerate() {
            memory.word(i).store(word, Relaxed);
        }
        memory.kept.lock().unwrap()[..lines.len()].copy_from_slice(lines);
        memory
    }

    /// The memory after a power failure that keeps only what was written back and fenced.
    fn least(&self) -> Self {
        self.least_with(&[])
    }

    /// As [`Fragile::least`], plus these lines, which the cache has evicted.
    fn least_with(&self, evicted: &[Range<usize>]) -> Self {
        let mut lines = self.kept.lock().unwrap()[..self.len() / LINE].to_vec();
        evicted.iter().cloned().flatten().for_each(|line| lines[line] = self.line(line));
        Self::with_content(&lines)
    }

    /// The memory as the next process finds it after a kill: all stores, and which of them are
    /// durable.
    fn handed_on(&self) -> Self {
        let lines: Vec<_> = (0..self.len() / LINE).map(|line| self.line(line)).collect();
        let next = Self::with_content(&lines);
        next.kept.lock().unwrap().clone_from(&self.kept.lock().unwrap());
        next
    }

    /// The memory after a random power failure.
    fn fail(&self, dice: &mut Dice) -> Self {
        let kept = self.kept.lock().unwrap();
        let left = |(line, &kept)| if dice.roll(2) == 0 { kept } else { self.line(line) };
        Self::with_content(&kept[..self.len() / LINE].iter().enumerate().map(left).collect::<Vec<_>>())
    }

    fn counts(&self) -> (u64, u64) {
        (self.write_backs.load(Relaxed), self.fences.load(Relaxed))
    }
}

#[test]
fn power_failure_loses_no_reachable_block() {
    let geometries =
        [(1 << 20, Geometry { zone_log2: 18, ..Geometry::tiny() }), (8 << 20, Geometry::for_size(8 << 20))];
    for (size, geometry) in geometries {
        for seed in 1..=4 {
            let mut dice = Dice(seed * 0x9e37);
            let options = PoolOptions::anonymous().geometry(geometry).boot_id(1).assume_persistent(true);
            let table = Table::create(options.create_on(Fragile::empty(size)).unwrap());
            table.churn(&mut dice, 1500);
            let mut after = table.pool.medium().fail(&mut dice);
            for round in 0..4 {
                let table = Table::open(options.open_on(after).unwrap());
                assert!(table.pool.needs_collection());
                table.churn(&mut dice, 300);
                if round != 1 {
                    table.collect();
                    table.check();
                    table.churn(&mut dice, 1000);
                    table.check();
                }
                after = table.pool.medium().fail(&mut dice);
            }
        }
    }
}

#[test]
fn closed_pool_needs_only_durable_lines() {
    let mut dice = Dice(12);
    let options = PoolOptions::anonymous().boot_id(1).assume_persistent(true);
    let table = Table::create(options.create_on(Fragile::empty(8 << 20)).unwrap());
    for _ in 0..3 {
        table.churn(&mut dice, 1000);
    }
    let kept = table.pool.medium().kept.clone();
    table.pool.close().unwrap();
    let lines = (8 << 20) / LINE;
    let table = Table::open(options.open_on(Fragile::with_content(&kept.lock().unwrap()[..lines])).unwrap());
    assert!(!table.pool.needs_collection());
    table.check();
}

#[test]
fn small_block_costs_no_write_back_and_no_fence() {
    let options =
        PoolOptions::anonymous().size(16 << 20).geometry(Geometry::default()).assume_persistent(true);
    let pool = options.create::<Fragile>().unwrap();
    let guard = pool.pin();
    guard.free(guard.alloc(96).unwrap().fenced_later().into_offset(), 96);
    let before = pool.medium().counts();
    let blocks: Vec<_> = (0..600).map(|_| guard.alloc(96).unwrap().fenced_later().into_offset()).collect();
    blocks.iter().for_each(|&block| guard.free(block, 96));
    assert_eq!(pool.medium().counts(), before);
    for _ in 0..100_000 {
        let _ = guard.alloc(96).unwrap().fenced_later().into_offset();
    }
    let after = pool.medium().counts();
    // A slab of 64 KiB has 680 blocks of 96 bytes.
    assert!(
        after.0 - before.0 <= 2 * 100_000 / 670 && after.1 - before.1 <= 100_000 / 670,
        "{after:?} {before:?}"
    );
}

#[test]
fn growth_to_the_current_size_stores_nothing() {
    let pool = PoolOptions::anonymous().assume_persistent(true).create_on(Fragile::empty(1 << 20)).unwrap();
    let before = pool.medium().counts();
    assert_eq!(pool.grow(1 << 20).unwrap(), 1 << 20);
    assert_eq!(pool.medium().counts(), before);
}

const GROWN: u64 = 96 << 10;

fn small() -> PoolOptions {
    PoolOptions::anonymous().geometry(Geometry::tiny()).boot_id(1).assume_persistent(true)
}

/// A full pool with a growth that stopped at the fence of this number, counted from 1. Returns
/// whether the growth had completed before.
fn grown_until(fence: u64) -> (Pool<Fragile>, bool) {
    let memory = Fragile::new(Mapping::anonymous(64 << 10, GROWN as usize).unwrap());
    let pool = small().create_on(memory).unwrap();
    let guard = pool.pin();
    for bytes in [4096, 1024, 64] {
        while let Ok(block) = guard.alloc(bytes) {
            let _ = block.persist().into_offset();
        }
    }
    drop(guard);
    let medium = pool.medium();
    medium.killed_at.store(medium.counts().1 + fence, Relaxed);
    let has_ended = catch_unwind(AssertUnwindSafe(|| pool.grow(GROWN))).is_ok();
    (pool, has_ended)
}

/// Whether the pool has grown according to its superblock; then it must have room.
fn has_grown(memory: Fragile, fence: u64) -> bool {
    let pool = small().open_on(memory).unwrap();
    let has_grown = pool.size() == GROWN;
    let has_room = pool.pin().alloc(4096).is_ok();
    assert!(has_room || !has_grown, "stopped at fence {fence}, a pool that has grown has no room");
    has_grown
}

/// Checks a full pool whose process is killed at the fence of this number in a growth, counted from
/// 1. Returns whether the growth had completed before.
fn is_roomy_after_a_growth_killed_at(fence: u64) -> bool {
    let (pool, has_ended) = grown_until(fence);
    let next = pool.medium().handed_on();
    // A killed process closes nothing.
    std::mem::forget(pool);
    let pool = small().open_on(next).unwrap();
    assert_eq!(pool.grow(GROWN).unwrap(), GROWN);
    let after = pool.medium().least();
    std::mem::forget(pool);
    assert!(has_grown(after, fence));
    has_ended
}

#[test]
fn full_pool_has_room_when_grown_again_after_a_kill() {
    let first_without = (1..20).find(|&fence| is_roomy_after_a_growth_killed_at(fence));
    assert!(first_without.is_some_and(|fence| fence > 3), "a growth has more than 3 fences");
}

/// The cache may evict a superblock's line at any time. So wherever the power fails, the hints for
/// new memory must be durable before the superblock announces it.
#[test]
fn full_pool_grown_before_power_loss_has_room() {
    // The lines of its two copies.
    let lines = [0, PAGE as usize].map(|start| start / LINE..(start + 512) / LINE);
    let mut counts = [0; 2];
    for fence in 1.. {
        let (pool, has_ended) = grown_until(fence);
        for evicted in [&lines[..0], &lines[..1], &lines[1..], &lines[..]] {
            let has_grown = has_grown(pool.medium().least_with(evicted), fence);
            counts[usize::from(has_grown)] += 1;
        }
        std::mem::forget(pool);
        if has_ended {
            break;
        }
    }
    assert!(counts[0] > 0 && counts[1] > 4, "the power fails before and in a growth: {counts:?}");
}
