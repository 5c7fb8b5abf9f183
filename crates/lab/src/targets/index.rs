//! An index under test.

use super::histories::*;
use super::options::{is_unmade, options, shared, written};
use std::borrow::Borrow;
use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_index::hash::remote::{Address, Answer, Read, Reads, Remote};
use terrace_index::hash::{Clht, ClhtShape, Level, LevelShape, Rewo, RewoShape, Turbo, TurboShape};
use terrace_index::ordered::{Art, BwShape, BwTree, Hot, Masstree, OrderedKind, SpTree};
use terrace_index::{
    CacheBounds, ChangeError, Deferred, Direction, IndexStats, Inserted, KeyKind, LayerOptions, PointIndex,
    RangeIndex, StoreError, Stored, Swapped,
};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Liveness, Marker, Pool};
use terrace_testkit::crash::{Key, Op, Plan, RandomSource, Reply, Subject, Version};
use terrace_testkit::{TestKeys, in_other_thread, torn_read};

const NAME: &str = "lab";
/// Background work that forces a collection, which recounts the keys.
pub const RECOUNT: u64 = 4;

/// Fills free memory of the sizes of small tables with ones: new memory is zero, which would hide
/// that a table is not cleared.
fn dirty_free_memory<M: MappedMedium>(pool: &Pool<M>) {
    const SIZES: [usize; 4] = [256, 512, 1024, 2048];
    let guard = pool.pin();
    for bytes in SIZES {
        let blocks: Vec<_> = std::iter::from_fn(|| guard.alloc(bytes).ok()).take(4).collect();
        for block in &blocks {
            block.write(0, &[0xff; SIZES[3]][..bytes]);
            block.write_back();
        }
        pool.region().fence();
    }
}

/// The kinds of keys that the indexes and the test kit support.
pub trait LabKeys: TestKeys + ClhtShape + TurboShape + RewoShape + LevelShape + OrderedKind {}
impl<K: TestKeys + ClhtShape + TurboShape + RewoShape + LevelShape + OrderedKind> LabKeys for K {}

/// An index that is a target of the lab.
pub trait LabIndex: PointIndex<Kind = Self::Keys> + Stored<Medium = <Self as PointIndex>::Medium> {
    /// The kind of its keys.
    type Keys: LabKeys;
    /// Sizes of blocks that it allocates.
    const BLOCKS: [usize; 4] = [64, 576, 120, 1088];
    /// Whether it visits ranges of keys.
    const RANGES: bool = false;
    /// Creates the index in a new pool.
    fn make(pool: &Pool<<Self as PointIndex>::Medium>, plan: &Plan) -> Result<Self, StoreError>;
    /// Sets volatile options, after the index was created or opened.
    fn configure(&mut self, _plan: &Plan) {}
    /// Where readers elsewhere find it, if they can read it.
    fn address(&self) -> Option<Address> {
        None
    }
    /// Visits the words of the keys between two, both included.
    fn visit_range(
        &self,
        _guard: &Guard<'_, <Self as PointIndex>::Medium>,
        _ends: (&<Self::Keys as KeyKind>::Key, &<Self::Keys as KeyKind>::Key),
        _direction: Direction,
        _each: &mut dyn FnMut(u64),
    ) {
    }
}

/// Visits the words of the keys between two, both included.
fn visit_between<I: RangeIndex>(
    index: &I,
    guard: &Guard<'_, I::Medium>,
    (from, to): (&<I::Kind as KeyKind>::Key, &<I::Kind as KeyKind>::Key),
    direction: Direction,
    each: &mut dyn FnMut(u64),
) {
    index.range(guard, Bound::Included(from), Bound::Included(to), direction, 4, |_, word| {
        each(word);
        ControlFlow::Continue(())
    });
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Clht<M, K> {
    type Keys = K;
    /// Mostly for few keys, so that the table grows; in one run of three for so many that it
    /// shrinks, step by step.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        Self::create(pool, NAME, if plan.seed % 3 == 2 { 150 } else { 0 })
    }
    fn address(&self) -> Option<Address> {
        Some(Clht::address(self))
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Turbo<M, K> {
    type Keys = K;
    /// One shard, or two in one run of four; for garbage collection, one shard of four buckets.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        if is_garbage_run(plan.seed) {
            return Self::with_shards(pool, NAME, 0, (plan.keys - GARBAGE_ROOM) as u64);
        }
        Self::with_shards(pool, NAME, u32::from(plan.seed >> 40 & 3 == 0), 0)
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Rewo<M, K> {
    type Keys = K;
    /// One, two or four buckets, with two or four locks; often in memory that was used before.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        let buckets_log2 = match rewo_plan_kind(&mut RandomSource::new(plan.seed)) {
            _ if is_spare_run(plan.seed) => 2,
            RewoPlan::Few => 0,
            RewoPlan::Growing => first_log2(plan.seed),
            RewoPlan::Evicting => 2,
        };
        let table = Self::with_shape(pool, NAME, 1 + (plan.seed >> 40 & 1) as u32, buckets_log2)?;
        if is_spare_run(plan.seed) || plan.seed >> 45 & 1 == 1 {
            dirty_free_memory(pool);
        }
        Ok(table)
    }
    /// Sets a cache in DRAM of one bucket, or of eight, which is mostly enough for all keys; or
    /// none, in one run of four.
    fn configure(&mut self, plan: &Plan) {
        let bytes = [0, 128, 1024, 128][(plan.seed >> 43 & 3) as usize];
        self.set_cache(CacheBounds { min: bytes, max: bytes });
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Level<M, K> {
    type Keys = K;
    /// One unit.
    fn make(pool: &Pool<M>, _: &Plan) -> Result<Self, StoreError> {
        Self::create(pool, NAME, 0)
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Masstree<M, K> {
    type Keys = K;
    /// Those of a node, and of records.
    const BLOCKS: [usize; 4] = [320, 64, 40, 128];
    const RANGES: bool = true;
    /// An empty tree, whose nodes have at most three entries.
    fn make(pool: &Pool<M>, _: &Plan) -> Result<Self, StoreError> {
        Self::with_width(pool, NAME, 3)
    }
    fn visit_range(
        &self,
        guard: &Guard<'_, M>,
        ends: (&K::Key, &K::Key),
        direction: Direction,
        each: &mut dyn FnMut(u64),
    ) {
        visit_between(self, guard, ends, direction, each);
    }
}

/// In the seed of a plan: the index has layers in DRAM. Never on weak memory, which knows nothing
/// of the orderings of words that are not the medium's.
pub const WITH_DRAM: u64 = 1 << 62;

/// A plan, with layers in DRAM in two runs of three.
pub(super) fn layered(plan: Plan) -> Plan {
    let bit = if plan.seed.is_multiple_of(3) { 0 } else { WITH_DRAM };
    Plan { seed: plan.seed & !WITH_DRAM | bit, ..plan }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for SpTree<M, K> {
    type Keys = K;
    /// Those of a node of either kind, and of one of the top layer.
    const BLOCKS: [usize; 4] = [1152, 640, 320, 64];
    const RANGES: bool = true;
    /// An empty tree, whose nodes have at most four keys.
    fn make(pool: &Pool<M>, _: &Plan) -> Result<Self, StoreError> {
        Self::with_width(pool, NAME, 4)
    }
    /// Sets layers in DRAM, where the plan has them. In a shared pool they stay away.
    fn configure(&mut self, plan: &Plan) {
        self.set_layers(LayerOptions::of(if plan.seed & WITH_DRAM != 0 { 1 << 20 } else { 0 }));
    }
    fn visit_range(
        &self,
        guard: &Guard<'_, M>,
        ends: (&K::Key, &K::Key),
        direction: Direction,
        each: &mut dyn FnMut(u64),
    ) {
        visit_between(self, guard, ends, direction, each);
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Art<M, K> {
    type Keys = K;
    /// Those of a pair, and of nodes of the kinds 4, 12 and 64.
    const BLOCKS: [usize; 4] = [16, 64, 128, 576];
    const RANGES: bool = true;
    /// An empty tree.
    fn make(pool: &Pool<M>, _: &Plan) -> Result<Self, StoreError> {
        Self::create(pool, NAME, 0)
    }
    fn visit_range(
        &self,
        guard: &Guard<'_, M>,
        ends: (&K::Key, &K::Key),
        direction: Direction,
        each: &mut dyn FnMut(u64),
    ) {
        visit_between(self, guard, ends, direction, each);
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Hot<M, K> {
    type Keys = K;
    /// Those of a pair, and of nodes of two, three and four entries.
    const BLOCKS: [usize; 4] = [16, 56, 64, 72];
    const RANGES: bool = true;
    /// An empty tree of nodes with at most two to four entries, in which an insert replaces at most
    /// one to three nodes of a path; in one run of eight, of the usual ones.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        let (entries, levels) = (2 + (plan.seed >> 40) % 3, 1 + (plan.seed >> 43) % 3);
        match plan.seed >> 46 & 7 {
            0 => Self::create(pool, NAME, 0),
            _ => Self::with_growth(pool, NAME, entries as usize, levels as usize),
        }
    }
    fn visit_range(
        &self,
        guard: &Guard<'_, M>,
        ends: (&K::Key, &K::Key),
        direction: Direction,
        each: &mut dyn FnMut(u64),
    ) {
        visit_between(self, guard, ends, direction, each);
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for BwTree<M, K> {
    type Keys = K;
    /// Those of pages.
    const BLOCKS: [usize; 4] = [128, 192, 256, 320];
    const RANGES: bool = true;
    /// Pages of two to four keys, with one to three slots; in one run of four as in a full pool.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        let most = 2 + (plan.seed >> 40) as usize % 3;
        let (slots, spares) = (1 + (plan.seed >> 43) as usize % 3, (plan.seed >> 46) as usize % 3);
        let is_scarce = plan.seed >> 49 & 3 == 0;
        let shape = BwShape { most, least: 1 + most / 3, slots, numbers_log2: 3, spares, is_scarce };
        Self::with_shape(pool, NAME, shape)
    }
    fn visit_range(
        &self,
        guard: &Guard<'_, M>,
        ends: (&K::Key, &K::Key),
        direction: Direction,
        each: &mut dyn FnMut(u64),
    ) {
        visit_between(self, guard, ends, direction, each);
    }
}

/// The number and version of a word.
fn read_word<M: MappedMedium, K: TestKeys>(guard: &Guard<'_, M>, word: u64) -> (u64, u64) {
    K::read(guard, word)
}

/// The index and the keys of its run. With `REMOTE`, gets are those of a reader elsewhere.
pub struct Index<I: LabIndex, const REMOTE: bool = false> {
    index: I,
    /// The reader elsewhere, while no thread uses it.
    remote: Mutex<Option<Remote>>,
    keys: Arc<Vec<Named<I::Keys>>>,
    /// Whether the run has one thread and no scheduler, so that it may start other threads.
    is_alone: bool,
}

impl<M, K, I, const REMOTE: bool> Index<I, REMOTE>
where
    M: MappedMedium,
    K: LabKeys,
    I: LabIndex<Keys = K> + PointIndex<Medium = M> + 'static,
{
    fn new(mut index: I, plan: &Plan) -> Self {
        index.configure(plan);
        let remote = Mutex::new(index.address().map(Remote::new));
        Self { index, remote, keys: plan.names(), is_alone: plan.threads == 1 }
    }

    fn key(&self, key: Key) -> &K::Key {
        self.keys[key].1.borrow()
    }

    /// The version of a word, if it is one of `key`.
    fn version(&self, guard: &Guard<'_, M>, key: Key, word: u64) -> Result<Version, String> {
        let (number, version) = read_word::<M, K>(guard, word);
        if number == self.keys[key].0 { Ok(version) } else { Err("it has the word of another key".into()) }
    }

    /// The version of a key, as a reader elsewhere finds it with a new pin: after another key, so
    /// that the tables that it knows may be old.
    fn get_elsewhere(&self, guard: &Guard<'_, M>, key: Key) -> Result<Option<Version>, String> {
        let reader = || self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        let free = reader().take();
        let mut remote = free.or_else(|| self.index.address().map(Remote::new)).ok_or("it has no address")?;
        remote.renew();
        self.find_elsewhere(guard, &mut remote, (key + 1) % self.keys.len())?;
        let found = self.find_elsewhere(guard, &mut remote, key)?;
        *reader() = Some(remote);
        // A reader elsewhere makes nothing durable. What it reads in a cluster is durable in a log.
        let _ = self.index.get(guard, self.key(key));
        Ok(found)
    }

    fn find_elsewhere(
        &self,
        guard: &Guard<'_, M>,
        remote: &mut Remote,
        key: Key,
    ) -> Result<Option<Version>, String> {
        let mut late = remote.rounds();
        let mut read = |Read { offset, len }| {
            late = late.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset;
            torn_read(self.pool(), (offset, len), late >> 6, || ())
                .ok_or_else(|| format!("it reads {len} bytes at {offset:#x}"))
        };
        let mut fetch = |reads: Reads| {
            let parts: Result<Vec<_>, String> = reads.iter().map(&mut read).collect();
            Ok::<_, String>(parts?.concat())
        };
        let hash = K::hash(self.key(key), remote.address().seed);
        let check = |word: u64| {
            let (number, version) = read_word::<M, K>(guard, word);
            (number == self.keys[key].0).then_some(Answer::Found(version))
        };
        // Other threads may change its slot each time that the reader looks there, or stand still
        // in the middle of a change. Then it asks a process that has the pool.
        for _ in 0..8 {
            match remote.find(hash, 8, &mut fetch, |word, _| check(word))? {
                Answer::Found(version) => return Ok(Some(version)),
                Answer::Absent => return Ok(None),
                Answer::Ask => {}
            }
        }
        let word = self.index.get(guard, self.key(key));
        word.map(|word| self.version(guard, key, word)).transpose()
    }

    fn swap(
        &self,
        key: Key,
        expected: Option<Version>,
        new: Option<Version>,
    ) -> Result<Option<Version>, ChangeError> {
        let guard = self.index.pool().pin();
        let number = self.keys[key].0;
        let old = self.index.get(&guard, self.key(key));
        let seen = old.map(|word| read_word::<M, K>(&guard, word).1);
        if seen != expected {
            return Ok(seen);
        }
        let word = new.map(|version| K::word(&guard, self.key(key), number, version)).transpose()?;
        match self.index.compare_and_swap(&guard, self.key(key), old, word) {
            Ok(Swapped::Done) => {
                old.into_iter().for_each(|old| K::free_word(&guard, old, true));
                Ok(expected)
            }
            Ok(Swapped::Found(found)) => {
                word.into_iter().for_each(|word| K::free_word(&guard, word, false));
                Ok(found.map(|word| read_word::<M, K>(&guard, word).1))
            }
            Err(error) => {
                word.into_iter().for_each(|word| K::free_word(&guard, word, false));
                Err(error)
            }
        }
    }

    /// Does an operation. `done` counts those of several puts that are done: a second try goes on
    /// behind them, since another thread may have changed their keys meanwhile.
    fn write(&self, op: &Op, done: &Cell<usize>) -> Result<Option<Version>, ChangeError> {
        let guard = self.index.pool().pin();
        let retired = |word: Option<u64>| {
            word.map(|word| {
                let version = read_word::<M, K>(&guard, word).1;
                K::free_word(&guard, word, true);
                version
            })
        };
        match *op {
            Op::Put(key, version) => {
                let word = K::word(&guard, self.key(key), self.keys[key].0, version)?;
                let old = self.index.upsert(&guard, self.key(key), word);
                old.map(retired).inspect_err(|_| K::free_word(&guard, word, false))
            }
            Op::Insert(key, version) => {
                let word = K::word(&guard, self.key(key), self.keys[key].0, version)?;
                match self.index.insert(&guard, self.key(key), word) {
                    Ok(Inserted::New) => Ok(None),
                    other => {
                        K::free_word(&guard, word, false);
                        other.map(|present| match present {
                            Inserted::Present(word) => Some(read_word::<M, K>(&guard, word).1),
                            Inserted::New => None,
                        })
                    }
                }
            }
            Op::Update(key, version) => {
                let word = K::word(&guard, self.key(key), self.keys[key].0, version)?;
                let old = self.index.update(&guard, self.key(key), word);
                if old.is_none() {
                    K::free_word(&guard, word, false);
                }
                Ok(retired(old))
            }
            Op::Remove(key) => Ok(retired(self.index.remove(&guard, self.key(key)))),
            Op::Swap(key, expected, new) => self.swap(key, expected, new),
            Op::Background(RECOUNT) => {
                drop(guard);
                self.pool().request_collection();
                self.collect();
                Ok(None)
            }
            Op::Background(step) if step % 4 == 1 => {
                drop(guard);
                self.pool().reclaim_blocking();
                self.scribble(step >> 32);
                Ok(None)
            }
            Op::Background(step) if step % 4 == 2 && self.is_alone => {
                drop(guard);
                in_other_thread(|| _ = self.index.maintain(&self.pool().pin()));
                Ok(None)
            }
            Op::Background(step) if step % 4 == 3 && self.is_alone => {
                drop(guard);
                self.end_elsewhere(step >> 55 & 1 == 1);
                self.pool().reclaim_blocking();
                self.scribble(step >> 32);
                Ok(None)
            }
            Op::Puts(ref puts) => self.put_many(&guard, puts, done).map(|()| None),
            Op::Batch(_) | Op::Background(_) => {
                self.index.maintain(&guard);
                Ok(None)
            }
        }
    }

    /// Puts several keys, but for those that are done, with one fence at the end.
    fn put_many(
        &self,
        guard: &Guard<'_, M>,
        puts: &[(Key, Version)],
        done: &Cell<usize>,
    ) -> Result<(), ChangeError> {
        let (mut deferred, mut replaced) = (Deferred::default(), Vec::new());
        let outcome = puts[done.get()..].iter().try_for_each(|&(key, version)| {
            let word = K::word(guard, self.key(key), self.keys[key].0, version)?;
            let mut old = self.index.get(guard, self.key(key));
            loop {
                let swapped = self.index.compare_and_swap_deferred(
                    guard,
                    self.key(key),
                    old,
                    Some(word),
                    &mut deferred,
                );
                match swapped.inspect_err(|_| K::free_word(guard, word, false))? {
                    Swapped::Done => break,
                    Swapped::Found(found) => old = found,
                }
            }
            replaced.extend(old);
            done.set(done.get() + 1);
            Ok(())
        });
        self.index.persist_deferred(guard, deferred);
        replaced.into_iter().for_each(|old| K::free_word(guard, old, true));
        outcome
    }

    /// Another thread finishes a resize and does nothing else, so it executes no further fence. If
    /// it `has_given_back` a block before, it has a limbo chunk for the old table already;
    /// allocating one would take a fence.
    fn end_elsewhere(&self, has_given_back: bool) {
        const STEPS: usize = 16;
        const BYTES: usize = 64;
        in_other_thread(|| {
            if has_given_back {
                let guard = self.pool().pin();
                let block = guard.alloc(BYTES).map(|block| block.persist().into_offset());
                block.into_iter().for_each(|block| guard.retire(block, BYTES));
            }
            _ = (0..STEPS).any(|_| !self.index.maintain(&self.pool().pin()));
        });
    }

    /// Allocates free memory, overwrites it and frees it, as any user of the pool may at any time:
    /// a thread that still needs the old content has freed it too early. In turn, blocks of all
    /// sizes, or many unfenced blocks of one size, so that they include the block freed last.
    fn scribble(&self, sizes: u64) {
        const LONGEST: usize = 1152;
        // A bucket of ones looks moved, one of zeros looks empty.
        let junk = if sizes >> 20 & 1 == 0 { 0 } else { 0xff };
        let is_one_size = sizes >> 21 & 1 == 1;
        let guard = self.index.pool().pin();
        let mut blocks = Vec::new();
        // Sometimes as many as fit into the pool: an allocation searches from the previous one
        // onwards, and reaches the blocks freed last at the end.
        let all = if sizes >> 22 & 1 == 1 { 90 } else { 14 };
        for turn in 0..if is_one_size { all } else { 6 } {
            let bytes =
                I::BLOCKS[(sizes >> if is_one_size { 0 } else { 2 * turn }) as usize % I::BLOCKS.len()];
            let Ok(block) = guard.alloc(bytes) else { continue };
            block.write(0, &[junk; LONGEST][..bytes]);
            block.write_back();
            blocks.push((block, bytes));
        }
        for (block, bytes) in blocks {
            let durable = if is_one_size { block.fenced_later() } else { block.persist() };
            guard.free(durable.into_offset(), bytes);
        }
    }

    fn trace(&self, marker: &mut Marker<'_>) {
        let guard = self.index.pool().pin();
        self.index.trace(&guard, marker, |marker, word| K::mark(&guard, marker, word));
    }
}

/// A table that reports its resizes.
pub trait Resized {
    /// Number of resizes since it was opened, and number of slots.
    fn resizes(&self) -> (u64, u64);
    /// All statistics of the table.
    fn stats(&self) -> IndexStats;
}

impl<I: LabIndex, const REMOTE: bool> Resized for Index<I, REMOTE> {
    fn resizes(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.resizes, stats.slots)
    }
    fn stats(&self) -> IndexStats {
        self.index.stats(&self.index.pool().pin())
    }
}

impl<M, K, I, const REMOTE: bool> Subject<M> for Index<I, REMOTE>
where
    M: MappedMedium,
    K: LabKeys,
    I: LabIndex<Keys = K> + PointIndex<Medium = M> + 'static,
{
    fn create(medium: M, plan: &Plan) -> Self {
        let pool = options(plan).create_on(medium).expect("a pool in new memory");
        Self::new(I::make(&pool, plan).expect("a table in a new pool"), plan)
    }

    fn share(medium: M, plan: &Plan, liveness: Arc<dyn Liveness>, first: bool) -> Result<Self, String> {
        let pool = shared(medium, plan, liveness, first)?;
        let opening = pool.initialize();
        let index = match I::recover(&pool, NAME).map_err(|error| error.to_string())? {
            Some(index) => index,
            None => I::make(&pool, plan).map_err(|error| error.to_string())?,
        };
        opening.done();
        Ok(Self::new(index, plan))
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        let pool: Pool<M> = match options(plan).open_on(medium) {
            Ok(pool) => pool,
            Err(error) if is_unmade(plan, &error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let index = I::recover(&pool, NAME).map_err(|error| error.to_string())?;
        if index.is_none() {
            pool.abandon();
        }
        Ok(index.map(|index| Self::new(index, plan)))
    }

    fn pool(&self) -> &Pool<M> {
        self.index.pool()
    }

    fn apply(&self, op: &Op) -> Reply {
        let done = Cell::new(0);
        match written(self.pool(), || self.write(op, &done)) {
            Reply::Full if done.get() > 0 => Reply::Partly((1 << done.get()) - 1),
            reply => reply,
        }
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        let guard = self.pool().pin();
        if REMOTE {
            return self.get_elsewhere(&guard, key);
        }
        let word = self.index.get_sound(&guard, self.key(key)).map_err(|damage| damage.what.to_string())?;
        word.map(|word| self.version(&guard, key, word)).transpose()
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        let guard = self.pool().pin();
        self.index.for_each(&guard, |word| {
            let (number, version) = read_word::<M, K>(&guard, word);
            let key = self.keys.binary_search_by_key(&number, |key| key.0);
            each(key.unwrap_or(usize::MAX), version);
        });
        self.index.damage().map_or(Ok(()), |damage| Err(damage.what.into()))
    }

    /// False for Level hashing, whose inserts move keys, and for a resized hash table, which may
    /// have shrunk.
    fn finds_once(&self) -> bool {
        let stats = self.index.stats(&self.pool().pin());
        let is_resized = stats.resizes != 0 || stats.resizing;
        I::RANGES || I::NAME != <Level<M, K> as PointIndex>::NAME && !is_resized
    }

    const RANGES: bool = I::RANGES;

    fn range(
        &self,
        from: Key,
        to: Key,
        direction: Direction,
        each: &mut dyn FnMut(Key, Version),
    ) -> Result<(), String> {
        let (guard, ends) = (self.pool().pin(), (self.key(from), self.key(to)));
        self.index.visit_range(&guard, ends, direction, &mut |word| {
            let (number, version) = read_word::<M, K>(&guard, word);
            each(number as Key, version);
        });
        self.index.damage().map_or(Ok(()), |damage| Err(damage.what.into()))
    }

    fn count(&self) -> Option<u64> {
        Some(self.index.len())
    }

    fn collect(&self) {
        self.pool().collect(&mut |marker| self.trace(marker));
    }

    fn verify(&self) -> Vec<String> {
        let guard = self.pool().pin();
        let findings = self.index.verify(&guard).into_iter().chain(self.pool().verify_memory());
        findings.map(|finding| finding.to_string()).collect()
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        self.pool().reachable(&mut |marker| self.trace(marker))
    }

    fn abandon(self) {
        let pool = self.pool().clone();
        drop(self);
        pool.abandon();
    }
}
