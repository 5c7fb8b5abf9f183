//! The hash tables, each with inline keys and with byte strings.

use super::options::{hash_seed, is_unmade, options, shared, twice_four, written};
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_index::hash::{Buckets, Clht, Level, LevelBuckets, Nests, Rewo, Slots, Turbo};
use terrace_index::{Bytes, CacheBounds, IndexStats, Inserted, PointIndex, StoreError, Stored, Swapped, U64};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Liveness, Marker, Pool, PoolFull};
use terrace_testkit::crash::{Dice, Key, Mix, Op, Plan, Reply, Subject, Target, Version};
use terrace_testkit::{TestKeys, TestRecord, elsewhere};

const NAME: &str = "lab";

/// P-CLHT with `u64` keys.
pub struct ClhtU64;
/// P-CLHT with byte strings.
pub struct ClhtBytes;
/// TurboHash with `u64` keys.
pub struct TurboU64;
/// TurboHash with byte strings.
pub struct TurboBytes;
/// Rewo-Hash with `u64` keys.
pub struct RewoU64;
/// Rewo-Hash with byte strings.
pub struct RewoBytes;
/// Level hashing with `u64` keys.
pub struct LevelU64;
/// Level hashing with byte strings.
pub struct LevelBytes;

impl Target for ClhtU64 {
    const NAME: &'static str = "clht";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    type Subject<M: MappedMedium> = Index<Clht<M, U64>>;

    fn plan(seed: u64) -> Plan {
        plan::<U64>(seed, 3)
    }
}

impl Target for ClhtBytes {
    const NAME: &'static str = "clht-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Clht<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        plan::<Bytes<TestRecord>>(seed, 6)
    }
}

impl Target for TurboU64 {
    const NAME: &'static str = "turbo";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    type Subject<M: MappedMedium> = Index<Turbo<M, U64>>;

    fn plan(seed: u64) -> Plan {
        plan_of_shards::<U64>(seed, 14)
    }
}

impl Target for TurboBytes {
    const NAME: &'static str = "turbo-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Turbo<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        plan_of_shards::<Bytes<TestRecord>>(seed, 27)
    }
}

impl Target for RewoU64 {
    const NAME: &'static str = "rewo";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    type Subject<M: MappedMedium> = Index<Rewo<M, U64>>;

    fn plan(seed: u64) -> Plan {
        plan_of_nests::<U64>(seed, 14)
    }
}

impl Target for RewoBytes {
    const NAME: &'static str = "rewo-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Rewo<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        plan_of_nests::<Bytes<TestRecord>>(seed, 27)
    }
}

impl Target for LevelU64 {
    const NAME: &'static str = "level";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    type Subject<M: MappedMedium> = Index<Level<M, U64>>;

    fn plan(seed: u64) -> Plan {
        plan_of_units::<U64>(seed, 21)
    }
}

impl Target for LevelBytes {
    const NAME: &'static str = "level-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Level<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        plan_of_units::<Bytes<TestRecord>>(seed, 42)
    }
}

const MIX: Mix =
    Mix { put: 30, insert: 20, update: 8, remove: 22, swap: 12, batch: 0, puts: 0, background: 10 };

/// Some runs fill a few buckets until the table grows, some empty a table until it shrinks, some do a little of everything.
fn plan<K: LabKeys>(seed: u64, slots: u64) -> Plan {
    let mut dice = Dice::new(seed);
    let few = dice.roll(4) != 0;
    let keys = if few { 4 + dice.roll(6) } else { 5 * slots + dice.roll(2 * slots) };
    let before = if few { dice.roll(10) } else { keys * 3 / 2 + dice.roll(20) };
    plan_of::<K>(seed, &mut dice, keys as usize, before as usize, in_two_of_eight)
}

/// As `plan`: shards are as small as one bucket, grow from there to two and to four, and go away again.
fn plan_of_shards<K: LabKeys>(seed: u64, slots: u64) -> Plan {
    if is_of_garbage(seed) {
        return plan_of_garbage::<K>(seed, slots as usize);
    }
    let mut dice = Dice::new(seed);
    let (keys, before) = match dice.roll(3) {
        0 => (4 + dice.roll(6), dice.roll(10)),
        // The next ones grow it, for the first or the second time.
        size => (size * slots + 2 + dice.roll(6), size * slots * 5 / 4 + dice.roll(slots)),
    };
    plan_of::<K>(seed, &mut dice, keys as usize, before as usize, in_two_of_eight)
}

/// Whether a run is about the garbage of deleted slots.
fn is_of_garbage(seed: u64) -> bool {
    seed >> 46 & 15 == 11
}

/// A shard of four buckets that begins as large as it ends. Three of them are full, of keys and of slots that were deleted, and all keys have one home: so paths are long, and with
/// some more removals and inserts the shard is drawn anew at the same size, without what was deleted.
fn plan_of_garbage<K: LabKeys>(seed: u64, slots: usize) -> Plan {
    let mut dice = Dice::new(seed);
    let keys = 3 * slots + GARBAGE_ROOM;
    let (mut live, mut next) = ((0..keys).collect::<Vec<Key>>(), keys as Version);
    let mut before: Vec<Op> = live.iter().map(|&key| Op::Put(key, key as Version + 1)).collect();
    // More than an eighth of all slots.
    let mut gone: VecDeque<Key> = (0..slots * 2 / 3).map(|_| take_one(&mut dice, &mut live)).collect();
    before.extend(gone.iter().copied().map(Op::Remove));
    let mut pairs = |dice: &mut Dice, count| {
        let mut ops = Vec::new();
        for _ in 0..count {
            next += 1;
            let (goes, comes) =
                (take_one(dice, &mut live), gone.pop_front().expect("more are gone than come"));
            ops.extend([Op::Remove(goes), Op::Insert(comes, next)]);
            live.push(comes);
            gone.push_back(goes);
        }
        ops
    };
    // The average goes over the last sixteen paths and begins at one bucket: mostly it has come far enough after twenty pairs, or thirty.
    before.extend(pairs(&mut dice, 16));
    let ops = pairs(&mut dice, 20);
    let mut plan = plan_after::<K>(seed, &mut dice, keys, (before, next), false, in_two_of_eight);
    plan.ops = ops;
    plan
}

/// Keys in the last of the four buckets of a run about garbage.
const GARBAGE_ROOM: usize = 4;

fn take_one(dice: &mut Dice, live: &mut Vec<Key>) -> Key {
    live.swap_remove(dice.roll(live.len() as u64) as usize)
}

/// Some runs do a little of everything, some grow a table of one bucket or two, or make it small again, and some fill two of a table's four buckets until keys are evicted.
fn plan_of_nests<K: LabKeys>(seed: u64, slots: u64) -> Plan {
    let mut dice = Dice::new(seed);
    if is_of_spares(seed) {
        return plan_of_spares::<K>(seed, &mut dice, slots as usize);
    }
    match nest(&mut dice) {
        Nest::Few => {
            let (keys, before) = (4 + dice.roll(6), dice.roll(10));
            plan_of::<K>(seed, &mut dice, keys as usize, before as usize, in_two_of_eight)
        }
        Nest::Growing => {
            let room = slots << first_log2(seed);
            let (keys, before) = (room + 2 + dice.roll(6), room * 5 / 4 + dice.roll(slots));
            plan_of::<K>(seed, &mut dice, keys as usize, before as usize, in_two_of_eight)
        }
        Nest::Evicting => {
            // Only where both buckets of a key are full is another evicted, which is when nearly all of the four are; and soon after that the table grows.
            let room = 4 * slots;
            let put = room * 11 / 16 + dice.roll(room / 4);
            let before = (0..put).map(|key| Op::Put(key as usize, key + 1)).collect();
            let keys = room as usize + 4;
            let mut plan =
                plan_after::<K>(seed, &mut dice, keys, (before, put + 1), false, at_two_homes_of_four);
            let more = put as usize..(put as usize + 10).min(keys);
            plan.ops.splice(0..0, more.map(|key| Op::Put(key, EVICTING + key as u64)));
            plan
        }
    }
}

/// Whether a run of Rewo-Hash is about its spare.
fn is_of_spares(seed: u64) -> bool {
    seed >> 46 & 3 == 3
}

/// A table of four buckets that fills up until it takes a spare, and then moves to it; or one that has taken a spare and of which most keys go away then, so that it takes a smaller one in its place and shrinks, or, where
/// they come back at once, a larger one again.
fn plan_of_spares<K: LabKeys>(seed: u64, dice: &mut Dice, slots: usize) -> Plan {
    let room = 4 * slots;
    let (keys, is_emptied) = (room + 4, dice.roll(2) == 0);
    let put =
        if is_emptied { room - 1 - dice.roll(3) as usize } else { room * 7 / 8 + dice.roll(4) as usize };
    let stay = if is_emptied { slots / 2 } else { put };
    let puts = (0..put).map(|key| Op::Put(key, key as Version + 1));
    // The first one looks whether the table should shrink, so it stays until the end.
    let before = puts.chain((stay..put).map(Op::Remove)).collect();
    let next = put as Version + 1;
    let mut plan = plan_after::<K>(seed, dice, keys, (before, next), is_emptied, in_two_of_eight);
    let more = if is_emptied { stay..stay } else { put..(put + 12).min(keys) };
    plan.ops.splice(0..0, more.map(|key| Op::Put(key, EVICTING + key as Version)));
    plan
}

/// Leaves something in free memory of the sizes that small tables have: in new memory who forgets to clear a table finds it cleared.
fn soil<M: MappedMedium>(pool: &Pool<M>) {
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

/// The versions of puts that evict are higher than those of the rest.
const EVICTING: u64 = 1 << 12;

/// What a run of Rewo-Hash is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nest {
    Few,
    Growing,
    Evicting,
}

fn nest(dice: &mut Dice) -> Nest {
    [Nest::Few, Nest::Growing, Nest::Evicting][dice.roll(3) as usize]
}

/// The first table of a run in which it grows: one bucket, or, since only more of them take more than one step, two.
fn first_log2(seed: u64) -> u32 {
    u32::from(seed >> 41 & 1 == 1)
}

/// Whether a key of this hash falls into two of the eight first buckets, in the run with this seed.
fn in_two_of_eight(hash: u64, seed: u64) -> bool {
    let bucket = seed >> 32 & 7;
    hash >> 61 == bucket || hash >> 61 == bucket ^ 1
}

/// Whether its home in a data table of four buckets is one of the first two.
fn at_two_homes_of_four(hash: u64, _: u64) -> bool {
    hash << 14 >> 63 == 0
}

/// As `plan`: a table of one unit, which has so many slots, fills up until keys are moved and it grows; one of two units, likewise; one of two or four, of which most keys go away
/// until it shrinks, and perhaps come back.
fn plan_of_units<K: LabKeys>(seed: u64, slots: usize) -> Plan {
    let mut dice = Dice::new(seed);
    let roll = |dice: &mut Dice, sides: usize| dice.roll(sides as u64) as usize;
    let (keys, put, taken) = match dice.roll(6) {
        0 => (4 + roll(&mut dice, 6), roll(&mut dice, 4), 0),
        1 | 2 => (slots + 3 + roll(&mut dice, 6), slots - 7 + roll(&mut dice, 6), 0),
        3 => (2 * slots + 6, 2 * slots - 9 + roll(&mut dice, 7), 0),
        grown => {
            let put = (grown as usize - 3) * slots + 3 + roll(&mut dice, 5);
            let stay = put / 8 + 1 + roll(&mut dice, 3);
            (put, put, put - stay)
        }
    };
    let puts = (0..put).map(|key| Op::Put(key, key as u64 + 1));
    // The first one looks whether the table should shrink, so it stays until the end.
    let removals = (put - taken..put).map(Op::Remove);
    let mut before: Vec<Op> = puts.collect();
    before.extend((0..put / 8).map(|_| Op::Background(0)));
    before.extend(removals);
    if taken != 0 && dice.roll(2) == 0 {
        before.extend([Op::Remove(0), Op::Put(0, put as u64 + 1)]);
    }
    plan_after::<K>(seed, &mut dice, keys, (before, put as u64 + 1), taken != 0, in_two_of_eight)
}

/// A run over so many keys, after so many operations that nothing crashes.
fn plan_of<K: LabKeys>(
    seed: u64,
    dice: &mut Dice,
    keys: usize,
    count: usize,
    is_here: fn(u64, u64) -> bool,
) -> Plan {
    let (filling, mut next) = (Mix { remove: 4, ..MIX }, 0);
    let before = filling.draw(dice, count, &mut next, &mut vec![None; keys]);
    plan_after::<K>(seed, dice, keys, (before, next), false, is_here)
}

/// A run over so many keys, after these operations. If the table was emptied, most of the others empty it further, or fill it again.
fn plan_after<K: LabKeys>(
    seed: u64,
    dice: &mut Dice,
    keys: usize,
    (before, mut next): (Vec<Op>, u64),
    is_emptied: bool,
    is_here: fn(u64, u64) -> bool,
) -> Plan {
    let mut model = vec![None; keys];
    before.iter().for_each(|op| op.do_to(&mut model));
    let mix = if dice.roll(2) == 0 { MIX } else { Mix { remove: 60, ..MIX } };
    let count = 8 + dice.roll(20) as usize;
    let mut ops = mix.draw(dice, count, &mut next, &mut model);
    if is_emptied {
        ops.insert(dice.roll(4) as usize, Op::Remove(0));
    }
    let after = (0..keys).map(|key| {
        next += 1;
        Op::Put(key, next)
    });
    let after: Vec<Op> = after
        .chain([Op::Background(0), Op::Background(0), Op::Remove(0), Op::Put(0, u64::from(u16::MAX))])
        .collect();
    let creation = dice.roll(16) == 0;
    let ops = if dice.roll(3) == 0 { using_again(dice, ops) } else { ops };
    let ops = if seed >> 43 & 7 == 1 { ending_elsewhere(seed, &ops) } else { ops };
    let names = Arc::new(crowd::<K>(seed, keys, is_here));
    let revived = twice_four(&after);
    Plan { seed, keys, threads: 1, names, before, ops, after, revived, creation }
}

/// With resizes that somebody ends who writes nothing, and memory that is used again as soon as it was given back.
fn using_again(dice: &mut Dice, ops: Vec<Op>) -> Vec<Op> {
    let mut more = Vec::new();
    for op in ops {
        more.push(op);
        if dice.roll(3) == 0 {
            more.extend((0..1 + dice.roll(3)).map(|_| Op::Background(if dice.roll(4) == 0 { 0 } else { 2 })));
            more.push(Op::Background(dice.bits() | 1));
        }
    }
    more
}

/// With a resize that another thread ends as soon as a write has begun it, and that has no further fence; and then all memory of the sizes of tables used again, with zeros, which look
/// like buckets that have not moved.
fn ending_elsewhere(seed: u64, ops: &[Op]) -> Vec<Op> {
    /// See `Index::write` and `Index::scribble`.
    const ENDS: u64 = 3 | 1 << 32 | 1 << 53 | 1 << 54 | 1 << 55;
    let writes = ops.iter().filter(|op| !matches!(op, Op::Background(_))).take(12);
    writes.flat_map(|op| [op.clone(), Op::Background(ENDS | (seed >> 50 & 1) << 33)]).collect()
}

/// The kinds of keys that both the indexes and the test know.
pub trait LabKeys: TestKeys + Slots + Buckets + Nests + LevelBuckets {}
impl<K: TestKeys + Slots + Buckets + Nests + LevelBuckets> LabKeys for K {}

/// An index that is put through crashes.
pub trait LabIndex: PointIndex<Kind = Self::Keys> + Stored<Medium = <Self as PointIndex>::Medium> {
    /// The kind of its keys.
    type Keys: LabKeys;
    /// Makes it in a new pool.
    fn make(pool: &Pool<<Self as PointIndex>::Medium>, plan: &Plan) -> Result<Self, StoreError>;
    /// Sets what is not kept in the pool, after it was made or found.
    fn equip(&mut self, _plan: &Plan) {}
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Clht<M, K> {
    type Keys = K;
    /// For few keys mostly, so that it grows; in one run of three for so many that it shrinks, a part of it at a time.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        Self::create(pool, NAME, if plan.seed % 3 == 2 { 150 } else { 0 })
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Turbo<M, K> {
    type Keys = K;
    /// One shard, in one run of four two; where garbage is collected, one of four buckets.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        if is_of_garbage(plan.seed) {
            return Self::with_shards(pool, NAME, 0, (plan.keys - GARBAGE_ROOM) as u64);
        }
        Self::with_shards(pool, NAME, u32::from(plan.seed >> 40 & 3 == 0), 0)
    }
}

impl<M: MappedMedium, K: LabKeys> LabIndex for Rewo<M, K> {
    type Keys = K;
    /// One bucket, two, or four, with two locks, or four, for all; mostly in memory that was used before.
    fn make(pool: &Pool<M>, plan: &Plan) -> Result<Self, StoreError> {
        let buckets_log2 = match nest(&mut Dice::new(plan.seed)) {
            _ if is_of_spares(plan.seed) => 2,
            Nest::Few => 0,
            Nest::Growing => first_log2(plan.seed),
            Nest::Evicting => 2,
        };
        let table = Self::with_shape(pool, NAME, 1 + (plan.seed >> 40 & 1) as u32, buckets_log2)?;
        if is_of_spares(plan.seed) || plan.seed >> 45 & 1 == 1 {
            soil(pool);
        }
        Ok(table)
    }
    /// With a cache in DRAM of one bucket, or of eight, which mostly have room for all; in one run of four without.
    fn equip(&mut self, plan: &Plan) {
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

/// The number and version of a word.
fn told<M: MappedMedium, K: TestKeys>(guard: &Guard<'_, M>, word: u64) -> (u64, u64) {
    K::read(guard, word)
}

/// The number of a key, and the key.
type Named<K> = (u64, <K as TestKeys>::Owned);

/// Whether the few keys of a run have one tag, as TurboHash and Rewo-Hash draw it: so who looks for one looks at all of them.
fn has_one_tag(seed: u64, keys: usize) -> bool {
    keys < 10 && seed >> 51 & 3 == 1
}

/// Keys that are where they are wanted, one in sixteen of them such that its removal looks whether the table should shrink. Sorted by number.
fn crowd<K: LabKeys>(seed: u64, keys: usize, is_here: fn(u64, u64) -> bool) -> Vec<Named<K>> {
    let hash_seed = hash_seed(seed);
    let mut crowd = Vec::with_capacity(keys);
    let mut number = seed & 0xff;
    while crowd.len() < keys {
        number += 1;
        let key = K::key(number);
        let hash = K::hash(key.borrow(), hash_seed);
        let looks = hash & 0xff == 0;
        let is_tagged = looks || !has_one_tag(seed, keys) || hash & 0xff == 0xa5;
        if is_here(hash, seed) && is_tagged && looks == crowd.len().is_multiple_of(16) {
            crowd.push((number, key));
        }
    }
    crowd
}

/// The index and the keys of its run.
pub struct Index<I: LabIndex> {
    index: I,
    keys: Arc<Vec<Named<I::Keys>>>,
    /// Whether no scheduler runs its threads, which would not know of others.
    is_alone: bool,
}

impl<M: MappedMedium, K: LabKeys, I: LabIndex<Keys = K> + PointIndex<Medium = M> + 'static> Index<I> {
    fn new(mut index: I, plan: &Plan) -> Self {
        index.equip(plan);
        Self { index, keys: plan.names(), is_alone: plan.threads == 1 }
    }

    fn key(&self, key: Key) -> &K::Key {
        self.keys[key].1.borrow()
    }

    /// The version of a word, which is one of `key`.
    fn version(&self, key: Key, word: u64) -> Result<Version, String> {
        let guard = self.index.pool().pin();
        let (number, version) = told::<M, K>(&guard, word);
        if number == self.keys[key].0 { Ok(version) } else { Err("it has the word of another key".into()) }
    }

    fn swap(
        &self,
        key: Key,
        expected: Option<Version>,
        new: Option<Version>,
    ) -> Result<Option<Version>, PoolFull> {
        let guard = self.index.pool().pin();
        let number = self.keys[key].0;
        let old = self.index.get(&guard, self.key(key));
        let seen = old.map(|word| told::<M, K>(&guard, word).1);
        if seen != expected {
            return Ok(seen);
        }
        let word = new.map(|version| K::word(&guard, self.key(key), number, version)).transpose()?;
        match self.index.compare_and_swap(&guard, self.key(key), old, word) {
            Ok(Swapped::Done) => {
                old.into_iter().for_each(|old| K::give_back(&guard, old, true));
                Ok(expected)
            }
            Ok(Swapped::Found(found)) => {
                word.into_iter().for_each(|word| K::give_back(&guard, word, false));
                Ok(found.map(|word| told::<M, K>(&guard, word).1))
            }
            Err(full) => {
                word.into_iter().for_each(|word| K::give_back(&guard, word, false));
                Err(full)
            }
        }
    }

    fn write(&self, op: &Op) -> Result<Option<Version>, PoolFull> {
        let guard = self.index.pool().pin();
        let retired = |word: Option<u64>| {
            word.map(|word| {
                let version = told::<M, K>(&guard, word).1;
                K::give_back(&guard, word, true);
                version
            })
        };
        match *op {
            Op::Put(key, version) => {
                let word = K::word(&guard, self.key(key), self.keys[key].0, version)?;
                let old = self.index.upsert(&guard, self.key(key), word);
                old.map(retired).inspect_err(|_| K::give_back(&guard, word, false))
            }
            Op::Insert(key, version) => {
                let word = K::word(&guard, self.key(key), self.keys[key].0, version)?;
                match self.index.insert(&guard, self.key(key), word) {
                    Ok(Inserted::New) => Ok(None),
                    other => {
                        K::give_back(&guard, word, false);
                        other.map(|present| match present {
                            Inserted::Present(word) => Some(told::<M, K>(&guard, word).1),
                            Inserted::New => None,
                        })
                    }
                }
            }
            Op::Update(key, version) => {
                let word = K::word(&guard, self.key(key), self.keys[key].0, version)?;
                let old = self.index.update(&guard, self.key(key), word);
                if old.is_none() {
                    K::give_back(&guard, word, false);
                }
                Ok(retired(old))
            }
            Op::Remove(key) => Ok(retired(self.index.remove(&guard, self.key(key)))),
            Op::Swap(key, expected, new) => self.swap(key, expected, new),
            Op::Background(step) if step % 4 == 1 => {
                drop(guard);
                self.pool().relieve();
                self.scribble(step >> 32);
                Ok(None)
            }
            Op::Background(step) if step % 4 == 2 && self.is_alone => {
                drop(guard);
                elsewhere(|| _ = self.index.maintain(&self.pool().pin()));
                Ok(None)
            }
            Op::Background(step) if step % 4 == 3 && self.is_alone => {
                drop(guard);
                self.end_elsewhere(step >> 55 & 1 == 1);
                self.pool().relieve();
                self.scribble(step >> 32);
                Ok(None)
            }
            Op::Batch(_) | Op::Puts(_) | Op::Background(_) => {
                self.index.maintain(&guard);
                Ok(None)
            }
        }
    }

    /// Another thread ends a resize, and does nothing more: it has no further fence. If it `has_given_back` something already, it needs no memory either in which to note
    /// the old table, which would take one.
    fn end_elsewhere(&self, has_given_back: bool) {
        const STEPS: usize = 16;
        const BYTES: usize = 64;
        elsewhere(|| {
            if has_given_back {
                let guard = self.pool().pin();
                let block = guard.alloc(BYTES).map(|block| block.persist().into_offset());
                block.into_iter().for_each(|block| guard.retire(block, BYTES));
            }
            _ = (0..STEPS).any(|_| !self.index.maintain(&self.pool().pin()));
        });
    }

    /// Takes what was given back, writes all over it and gives it back again, as anything else in the pool may at any time: whoever still needs what was
    /// there has given it back too soon. By turns, blocks of all sizes, and so many of one size that what was given back last is among them, none of them fenced.
    fn scribble(&self, sizes: u64) {
        const SIZES: [usize; 4] = [64, 576, 120, 1088];
        // All bits set look like a bucket that has moved, none like an empty one.
        let junk = if sizes >> 20 & 1 == 0 { 0 } else { 0xff };
        let is_one_size = sizes >> 21 & 1 == 1;
        let guard = self.index.pool().pin();
        let mut blocks = Vec::new();
        // As many as the pool has room for, now and then: a search for room begins behind the last one, and comes by what was given back at its end.
        let all = if sizes >> 22 & 1 == 1 { 90 } else { 14 };
        for turn in 0..if is_one_size { all } else { 6 } {
            let bytes = SIZES[(sizes >> if is_one_size { 0 } else { 2 * turn }) as usize % SIZES.len()];
            let Ok(block) = guard.alloc(bytes) else { continue };
            block.write(0, &[junk; SIZES[3]][..bytes]);
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

/// A table that tells how often it was resized.
pub trait Resized {
    /// How often it was resized since it was opened, and the slots that it has.
    fn resizes(&self) -> (u64, u64);
    /// All that it tells.
    fn stats(&self) -> IndexStats;
}

impl<I: LabIndex> Resized for Index<I> {
    fn resizes(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.resizes, stats.slots)
    }
    fn stats(&self) -> IndexStats {
        self.index.stats(&self.index.pool().pin())
    }
}

impl<M: MappedMedium, K: LabKeys, I: LabIndex<Keys = K> + PointIndex<Medium = M> + 'static> Subject<M>
    for Index<I>
{
    fn create(medium: M, plan: &Plan) -> Self {
        let pool = options(plan).create_on(medium).expect("a pool in new memory");
        Self::new(I::make(&pool, plan).expect("a table in a new pool"), plan)
    }

    fn share(medium: M, plan: &Plan, liveness: Arc<dyn Liveness>, first: bool) -> Result<Self, String> {
        let pool = shared(medium, plan, liveness, first)?;
        let opening = pool.bring_up();
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
        written(self.pool(), || self.write(op))
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        let guard = self.pool().pin();
        let word = self.index.get_sound(&guard, self.key(key)).map_err(|damage| damage.what.to_string())?;
        word.map(|word| self.version(key, word)).transpose()
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        let guard = self.pool().pin();
        self.index.for_each(&guard, |word| {
            let (number, version) = told::<M, K>(&guard, word);
            let key = self.keys.binary_search_by_key(&number, |key| key.0);
            each(key.unwrap_or(usize::MAX), version);
        });
        self.index.damage().map_or(Ok(()), |damage| Err(damage.what.into()))
    }

    /// Not of Level hashing, whose inserts move keys, nor of a table that was resized: it may have shrunk.
    fn finds_once(&self) -> bool {
        let stats = self.index.stats(&self.pool().pin());
        I::NAME != <Level<M, K> as PointIndex>::NAME && stats.resizes == 0 && !stats.resizing
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
