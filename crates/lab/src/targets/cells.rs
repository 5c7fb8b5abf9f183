//! The pool under several threads: cells that point to blocks, changed by compare-and-swap. A
//! thread that reads a block under a guard finds it as it was written, though others unlink and
//! retire it meanwhile. Boxes pass blocks between threads: a thread that takes a block out of a box
//! finds it as it was written, and retires it.

use super::options::{findings, is_unmade, options, shared, written};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use terrace_medium::{Line, MappedMedium, Offset, Word};
use terrace_pool::{Guard, Liveness, Marker, Pool, PoolFull};
use terrace_testkit::crash::{Key, Mix, Op, Plan, RandomSource, Reply, Subject, Target, Version};

/// A pool with a block of cells.
pub struct Cells;

/// The same pool; its threads mostly allocate blocks, and free their own and those of others.
pub struct Blocks;

const ROOT: &str = "cells";
const KIND: &str = "lab";
const KEYS_MAX: usize = 8;
const BOXES: usize = 8;
/// The key of the block in the first box; the other boxes follow.
const BOXED: Key = 16;
/// Size of the block of cells and boxes.
const CELLS_BYTES: usize = 128;
const MAGIC: u64 = 0x6c61_6220_6365_6c6c;

const MIX: Mix =
    Mix { put: 40, insert: 5, update: 5, remove: 20, swap: 10, batch: 0, puts: 0, background: 20 };

/// Mostly background work, which changes no key.
const BLOCKS_MIX: Mix =
    Mix { put: 20, insert: 0, update: 5, remove: 10, swap: 5, batch: 0, puts: 0, background: 60 };
/// Set in the background steps of [`Blocks`].
const HANDED: u64 = 1 << 63;
/// Set in runs without collections, unless the pool is shared or was reopened.
const CALM: u64 = HANDED | 1 << 62;

impl Target for Blocks {
    const NAME: &'static str = "blocks";
    const BYTES: (usize, usize) = Cells::BYTES;
    const WRITERS: u64 = 3;
    type Subject<M: MappedMedium> = CellsUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let keys = 2 + dice.roll(3) as usize;
        let (mut model, mut next) = (vec![None; keys], 0);
        let mut draw = |dice: &mut RandomSource, count: u64| {
            let ops = BLOCKS_MIX.random(dice, count as usize, &mut next, &mut model);
            let kind = if seed >> 5 & 1 == 0 { CALM } else { HANDED };
            let handed = |op: Op| match op {
                Op::Background(step) => Op::Background(step & !CALM | kind),
                other => other,
            };
            ops.into_iter().map(handed).collect::<Vec<Op>>()
        };
        let count = dice.roll(24);
        let before = draw(&mut dice, count);
        let count = 12 + dice.roll(12);
        let ops = draw(&mut dice, count);
        let after = (0..keys).map(|key| Op::Put(key, (1 << 20) + key as u64)).collect();
        let (names, revived) = (Arc::new(()), Vec::new());
        Plan { seed, keys, hot: 0..keys, threads: 1, names, before, ops, after, revived, creation: false }
    }
}

impl Target for Cells {
    const NAME: &'static str = "cells";
    const BYTES: (usize, usize) = (64 << 10, 96 << 10);
    type Subject<M: MappedMedium> = CellsUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let keys = 2 + dice.roll(KEYS_MAX as u64 - 1) as usize;
        let (mut model, mut next) = (vec![None; keys], 0);
        let count = dice.roll(16) as usize;
        let before = MIX.random(&mut dice, count, &mut next, &mut model);
        let count = 4 + dice.roll(12) as usize;
        let ops = MIX.random(&mut dice, count, &mut next, &mut model);
        let after = (0..keys).map(|key| Op::Put(key, (1 << 20) + key as u64)).collect();
        Plan {
            seed,
            keys,
            hot: 0..keys,
            threads: 1,
            names: Arc::new(()),
            before,
            ops,
            after,
            revived: Vec::new(),
            creation: false,
        }
    }
}

/// Number of words in the block of a version. Blocks of keys are small; those in boxes may also be
/// larger than any size class, or than a slab.
fn words(key: Key, version: Version) -> usize {
    let all = if key < BOXED { [3, 8, 25, 60, 188] } else { [3, 60, 188, 300, 600] };
    all[(version % 5) as usize]
}

fn word(key: Key, version: Version, at: usize) -> u64 {
    match at {
        0 => MAGIC ^ key as u64,
        1 => version,
        _ => version.wrapping_mul(MAGIC) ^ at as u64,
    }
}

/// A pool under test.
pub struct CellsUnderTest<M: MappedMedium> {
    pool: Pool<M>,
    keys: usize,
    /// Offset of a line of cells, followed by one of boxes.
    cells: u64,
    /// Whether no collection runs beside the threads, so that no collector reads the boxes.
    is_calm: bool,
    /// Whether a thread grows the pool; others do not, as they would wait for a mutex.
    grows: AtomicBool,
    /// Whether a thread collects; others do not, as they would wait for it.
    collects: AtomicBool,
}

impl<M: MappedMedium> CellsUnderTest<M> {
    fn cell(&self, key: Key) -> &Word {
        &self.pool.region().at(Offset::<Line>::new(self.cells)).0[key]
    }

    fn in_box(&self, number: usize) -> &Word {
        &self.pool.region().at(Offset::<Line>::new(self.cells + 64)).0[number]
    }

    /// The version in the block at `offset`, if the block is as it was written.
    fn version(&self, key: Key, offset: u64) -> Result<Version, String> {
        let (medium, region) = (self.pool.medium(), self.pool.region());
        let load = |at: usize| {
            let word: Option<&Word> = region.get(Offset::new(offset + 8 * at as u64));
            word.map(|word| word.load(medium, Acquire)).ok_or("its cell points out of the pool")
        };
        let version = load(1)?;
        // The first and the last words only: a reused block differs in all of them.
        let all = words(key, version);
        let some = (0..all.min(4)).chain(all - 2..all);
        for at in some {
            if load(at)? != word(key, version, at) {
                return Err(format!("the block at {offset:#x} is not as it was written"));
            }
        }
        Ok(version)
    }

    /// Changes a cell to what `decide` returns for its version; retries if another thread changes
    /// it meanwhile. Returns the version before.
    fn change(
        &self,
        key: Key,
        decide: impl Fn(Option<Version>) -> Option<Option<Version>>,
    ) -> Result<Option<Version>, PoolFull> {
        let guard = self.pool.pin();
        loop {
            let old = self.cell(key).load(self.pool.medium(), Acquire);
            let before = (old != 0).then(|| self.version(key, old).expect("a block of the key"));
            let Some(to) = decide(before).filter(|to| (before, *to) != (None, None)) else {
                // PERSIST: the answer is durable, even if the thread that stored it crashed before
                // its fence.
                self.pool.region().persist(self.cell(key));
                return Ok(before);
            };
            let new = to.map(|version| self.block(&guard, key, version)).transpose()?;
            if self.swap(key, old, new.unwrap_or(0)) {
                if let Some(before) = before {
                    guard.retire(old, 8 * words(key, before));
                }
                return Ok(before);
            }
            if let (Some(new), Some(version)) = (new, to) {
                guard.free(new, 8 * words(key, version));
            }
        }
    }

    fn swap(&self, key: Key, old: u64, new: u64) -> bool {
        let cell = self.cell(key);
        // PERSIST: durable before a reader depends on it: readers and the next writer also write
        // the line back.
        let swapped = cell.compare_exchange(self.pool.medium(), old, new, AcqRel, Acquire).is_ok();
        self.pool.region().persist(cell);
        swapped
    }

    fn block(&self, guard: &Guard<'_, M>, key: Key, version: Version) -> Result<u64, PoolFull> {
        let block = guard.alloc(8 * words(key, version))?;
        let bytes: Vec<u8> =
            (0..words(key, version)).flat_map(|at| word(key, version, at).to_le_bytes()).collect();
        block.write(0, &bytes);
        // PERSIST: the block before the cell.
        Ok(block.persist().into_offset())
    }

    /// Puts a new block into a box, or empties the box, and retires the old block. Frees it at once
    /// if only the thread that took it out can reach it.
    fn exchange_box(&self, guard: &Guard<'_, M>, step: u64) {
        let (number, version) = ((step >> 8) as usize % BOXES, step >> 12);
        let new = if step >> 11 & 1 == 0 { self.block(guard, BOXED + number, version).ok() } else { None };
        let there = self.in_box(number);
        // PERSIST: the thread that takes a block out retires it, so the box must not name it after
        // a crash.
        let old = there.swap(self.pool.medium(), new.unwrap_or(0), AcqRel);
        self.pool.region().persist(there);
        if old != 0 {
            let version = self.version(BOXED + number, old).expect("a block of the box");
            self.check_block(guard, BOXED + number, (old, version));
            let bytes = 8 * words(BOXED + number, version);
            if self.is_calm { guard.free(old, bytes) } else { guard.retire(old, bytes) }
        }
    }

    /// Asserts that a block is as it was written.
    fn check_block(&self, guard: &Guard<'_, M>, key: Key, (offset, version): (u64, Version)) {
        let bytes = guard.bytes(offset, 8 * words(key, version)).expect("a block in the pool");
        let sound =
            (0..words(key, version)).all(|at| bytes[8 * at..][..8] == word(key, version, at).to_le_bytes());
        assert!(sound, "the block at {offset:#x} is not as it was written");
    }

    /// Allocates some blocks, of one size or of several, and frees or retires them. Blocks of one
    /// size fill a slab, which other threads then use.
    fn churn(&self, guard: &Guard<'_, M>, step: u64) {
        let version = |nth: u64| if step >> 8 & 1 == 0 { step >> 9 } else { (step >> 9) + nth };
        let count = 1 + (step >> 40) % 5;
        let blocks =
            (0..count).filter_map(|nth| Some((self.block(guard, BOXED, version(nth)).ok()?, version(nth))));
        let blocks: Vec<(u64, Version)> = blocks.collect();
        for (nth, block) in blocks.into_iter().enumerate() {
            self.check_block(guard, BOXED, block);
            let (offset, bytes) = (block.0, 8 * words(BOXED, block.1));
            if step >> (48 + nth) & 1 == 0 { guard.free(offset, bytes) } else { guard.retire(offset, bytes) }
        }
    }

    fn background(&self, step: u64) {
        if step & HANDED != 0 {
            let step = step & !CALM;
            return match step % 16 {
                0..6 => {
                    let guard = self.pool.pin();
                    (0..1 + step / 16 % 5)
                        .for_each(|nth| self.exchange_box(&guard, step / 16 + (nth << 8) + (nth << 12)));
                }
                6..10 => self.churn(&self.pool.pin(), step / 16),
                10 | 11 if !self.is_calm => self.die(step),
                12 => _ = self.pool.reclaim_nonblocking(),
                13 => self.background(5 * (step / 16) + 1),
                _ => _ = self.pool.reclaim_blocking(),
            };
        }
        match step % 5 {
            0 => {
                let guard = self.pool.pin();
                // Blocks of different sizes, or of the largest size, which fill a slab.
                let size = |i| if step >> 40 & 1 == 0 { words(0, step / 8 + i) } else { words(0, 4) };
                let sizes = (0..2 + step / 4 % 3).map(|i| 8 * size(i));
                let blocks: Vec<_> =
                    sizes.filter_map(|bytes| Some((guard.alloc(bytes).ok()?, bytes))).collect();
                for (i, (block, bytes)) in blocks.into_iter().enumerate() {
                    let offset = block.fenced_later().into_offset();
                    if i % 2 == 0 { guard.free(offset, bytes) } else { guard.retire(offset, bytes) }
                }
            }
            1 if !self.grows.swap(true, AcqRel) => {
                let size = (self.pool.size() + (4096 << (step / 4 % 3))).min(Cells::BYTES.1 as u64);
                let _ = self.pool.grow(size);
                self.grows.store(false, Release);
            }
            1 => {}
            2 => self.die(step),
            3 => _ = self.pool.reclaim_nonblocking(),
            _ => _ = self.pool.reclaim_blocking(),
        }
    }

    /// Leaks blocks, as a crashed process does; then a collection runs, of this thread or another.
    fn die(&self, step: u64) {
        let guard = self.pool.pin();
        for i in 0..step / 5 % 3 {
            if let Ok(block) = guard.alloc(8 * words(0, step / 8 + i)) {
                block.fenced_later().into_offset();
            }
        }
        self.pool.request_collection();
        drop(guard);
        while self.pool.needs_collection() && !self.collects.swap(true, AcqRel) {
            self.pool.collect(&mut |marker| self.trace(marker));
            self.collects.store(false, Release);
        }
    }

    fn write(&self, op: &Op) -> Result<Option<Version>, PoolFull> {
        match *op {
            Op::Put(key, version) => self.change(key, |_| Some(Some(version))),
            Op::Insert(key, version) => self.change(key, |is| is.is_none().then_some(Some(version))),
            Op::Update(key, version) => self.change(key, |is| is.map(|_| Some(version))),
            Op::Remove(key) => self.change(key, |is| is.map(|_| None)),
            Op::Swap(key, expected, new) => self.change(key, |is| (is == expected).then_some(new)),
            Op::Background(step) => {
                self.background(step);
                Ok(None)
            }
            Op::Batch(_) | Op::Puts(_) => Ok(None),
        }
    }

    fn trace(&self, marker: &mut Marker<'_>) {
        let _guard = self.pool.pin();
        marker.mark(self.cells, CELLS_BYTES);
        let cells = (0..self.keys).map(|key| (key, self.cell(key)));
        let boxes = (0..BOXES).map(|number| (BOXED + number, self.in_box(number)));
        for (key, cell) in cells.chain(boxes) {
            let offset = cell.load(self.pool.medium(), Acquire);
            // PERSIST: the thread that stored the offset may have crashed before its fence. The
            // block that it replaced is unmarked and will be freed, so a power failure must not
            // restore its offset.
            self.pool.region().persist(cell);
            if offset != 0
                && let Ok(version) = self.version(key, offset)
            {
                marker.mark(offset, 8 * words(key, version));
            }
        }
    }

    fn over(pool: Pool<M>, plan: &Plan, cells: u64) -> Self {
        Self {
            pool,
            keys: plan.keys,
            cells,
            is_calm: false,
            grows: AtomicBool::new(false),
            collects: AtomicBool::new(false),
        }
    }
}

/// Creates the cells and boxes, all empty.
fn new_cells<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    let guard = pool.pin();
    let block = guard.alloc(CELLS_BYTES).expect("two lines in a new pool");
    block.stream_lines(0, &[[0; 8]; 2]);
    // PERSIST: the cells before the root.
    let cells = block.fenced(&guard.fence()).into_offset();
    pool.set_root(ROOT, KIND, cells).expect("a root in a new pool");
    cells
}

impl<M: MappedMedium> Subject<M> for CellsUnderTest<M> {
    fn create(medium: M, plan: &Plan) -> Self {
        let pool = options(plan).create_on(medium).expect("a pool in new memory");
        let cells = new_cells(&pool);
        let is_calm = plan.ops.iter().any(|op| matches!(op, Op::Background(step) if step & CALM == CALM));
        Self { is_calm, ..Self::over(pool, plan, cells) }
    }

    fn share(medium: M, plan: &Plan, liveness: Arc<dyn Liveness>, first: bool) -> Result<Self, String> {
        let pool = shared(medium, plan, liveness, first)?;
        let opening = pool.initialize();
        let cells = pool.root(ROOT, KIND).map_err(|error| error.to_string())?;
        let cells = cells.unwrap_or_else(|| new_cells(&pool));
        opening.done();
        Ok(Self::over(pool, plan, cells))
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        let pool: Pool<M> = match options(plan).open_on(medium) {
            Ok(pool) => pool,
            Err(error) if is_unmade(plan, &error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let cells = pool.root(ROOT, KIND).map_err(|error| error.to_string())?;
        Ok(cells.map(|cells| Self::over(pool, plan, cells)))
    }

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn apply(&self, op: &Op) -> Reply {
        written(&self.pool, || self.write(op))
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        let _guard = self.pool.pin();
        let cell = self.cell(key);
        let offset = cell.load(self.pool.medium(), Acquire);
        // PERSIST: what is answered is durable.
        self.pool.region().persist(cell);
        if offset == 0 { Ok(None) } else { self.version(key, offset).map(Some) }
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        for key in 0..self.keys {
            if let Some(version) = self.get(key)? {
                each(key, version);
            }
        }
        Ok(())
    }

    fn collect(&self) {
        self.pool.collect(&mut |marker| self.trace(marker));
    }

    fn verify(&self) -> Vec<String> {
        findings(&self.pool)
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        self.pool.reachable(&mut |marker| self.trace(marker))
    }

    fn abandon(self) {
        self.pool.abandon();
    }
}
