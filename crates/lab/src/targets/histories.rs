//! Plans of histories for the hash tables. They choose operations and keys so that tables grow,
//! shrink, move keys and collect garbage.

use super::index::LabKeys;
use super::options::{first_eight, hash_seed};
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_testkit::TestKeys;
use terrace_testkit::crash::{Key, Mix, Op, Plan, RandomSource, Version};

const MIX: Mix =
    Mix { put: 30, insert: 20, update: 8, remove: 22, swap: 12, batch: 0, puts: 0, background: 10 };

/// A plan that fills a few buckets until the table grows, empties a table until it shrinks, or does
/// a little of everything.
pub(super) fn plan<K: LabKeys>(seed: u64, slots: u64) -> Plan {
    let mut dice = RandomSource::new(seed);
    let few = dice.roll(4) != 0;
    let keys = if few { 4 + dice.roll(6) } else { 5 * slots + dice.roll(2 * slots) };
    let before = if few { dice.roll(10) } else { keys * 3 / 2 + dice.roll(20) };
    plan_of::<K>(seed, &mut dice, keys as usize, before as usize, is_in_two_of_eight)
}

/// As `plan`, for TurboHash: shards begin with one bucket, grow to two and four, and shrink again.
pub(super) fn turbo_plan<K: LabKeys>(seed: u64, slots: u64) -> Plan {
    if is_garbage_run(seed) {
        return garbage_plan::<K>(seed, slots as usize);
    }
    let mut dice = RandomSource::new(seed);
    let (keys, before) = match dice.roll(3) {
        0 => (4 + dice.roll(6), dice.roll(10)),
        // The operations that may crash make the table grow, for the first or the second time.
        size => (size * slots + 2 + dice.roll(6), size * slots * 5 / 4 + dice.roll(slots)),
    };
    plan_of::<K>(seed, &mut dice, keys as usize, before as usize, is_in_two_of_eight)
}

/// Whether a run tests the garbage collection of deleted slots.
pub(super) fn is_garbage_run(seed: u64) -> bool {
    seed >> 46 & 15 == 11
}

/// A plan for a shard of four buckets that keeps its size. Three buckets are full of keys and
/// deleted slots, and all keys have one home bucket. So probe paths are long, and some more
/// removals and inserts make the shard rebuild itself at the same size, without the deleted slots.
fn garbage_plan<K: LabKeys>(seed: u64, slots: usize) -> Plan {
    let mut dice = RandomSource::new(seed);
    let keys = 3 * slots + GARBAGE_ROOM;
    let (mut live, mut next) = ((0..keys).collect::<Vec<Key>>(), keys as Version);
    let mut before: Vec<Op> = live.iter().map(|&key| Op::Put(key, key as Version + 1)).collect();
    // Deleted slots are more than an eighth of all slots.
    let mut gone: VecDeque<Key> = (0..slots * 2 / 3).map(|_| take_one(&mut dice, &mut live)).collect();
    before.extend(gone.iter().copied().map(Op::Remove));
    let mut pairs = |dice: &mut RandomSource, count| {
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
    // The rebuild depends on the average length of the last sixteen paths, which starts at one
    // bucket: it is mostly long enough after twenty or thirty pairs.
    before.extend(pairs(&mut dice, 16));
    let ops = pairs(&mut dice, 20);
    let mut plan = plan_after::<K>(seed, &mut dice, keys, (before, next), false, is_in_two_of_eight);
    plan.ops = ops;
    plan
}

/// Keys in the last of the four buckets of a garbage run.
pub(super) const GARBAGE_ROOM: usize = 4;

fn take_one(dice: &mut RandomSource, live: &mut Vec<Key>) -> Key {
    live.swap_remove(dice.roll(live.len() as u64) as usize)
}

/// A plan for Rewo-Hash that does a little of everything, grows a table of one or two buckets or
/// shrinks it again, or fills two of a table's four buckets until keys are evicted.
pub(super) fn rewo_plan<K: LabKeys>(seed: u64, slots: u64) -> Plan {
    let mut dice = RandomSource::new(seed);
    if is_spare_run(seed) {
        return spare_plan::<K>(seed, &mut dice, slots as usize);
    }
    match rewo_plan_kind(&mut dice) {
        RewoPlan::Few => {
            let (keys, before) = (4 + dice.roll(6), dice.roll(10));
            plan_of::<K>(seed, &mut dice, keys as usize, before as usize, is_in_two_of_eight)
        }
        RewoPlan::Growing => {
            let room = slots << first_log2(seed);
            let (keys, before) = (room + 2 + dice.roll(6), room * 5 / 4 + dice.roll(slots));
            plan_of::<K>(seed, &mut dice, keys as usize, before as usize, is_in_two_of_eight)
        }
        RewoPlan::Evicting => {
            // Keys are evicted only if both buckets of a key are full, that is, when nearly all
            // four buckets are full; soon after that the table grows.
            let room = 4 * slots;
            let put = room * 11 / 16 + dice.roll(room / 4);
            let before = (0..put).map(|key| Op::Put(key as usize, key + 1)).collect();
            let keys = room as usize + 4;
            let mut plan =
                plan_after::<K>(seed, &mut dice, keys, (before, put + 1), false, is_in_two_of_four);
            let more = put as usize..(put as usize + 10).min(keys);
            plan.ops.splice(0..0, more.map(|key| Op::Put(key, EVICTING + key as u64)));
            plan
        }
    }
}

/// Whether a run of Rewo-Hash tests its spare table.
pub(super) fn is_spare_run(seed: u64) -> bool {
    seed >> 46 & 3 == 3
}

/// A plan for a table of four buckets that fills up until it takes a spare table and moves to it.
/// Or the table has a spare and most keys are removed: it takes a smaller spare instead and
/// shrinks, or a larger one again if the keys come back at once.
fn spare_plan<K: LabKeys>(seed: u64, dice: &mut RandomSource, slots: usize) -> Plan {
    let room = 4 * slots;
    let (keys, is_emptied) = (room + 4, dice.roll(2) == 0);
    let put =
        if is_emptied { room - 1 - dice.roll(3) as usize } else { room * 7 / 8 + dice.roll(4) as usize };
    let stay = if is_emptied { slots / 2 } else { put };
    let puts = (0..put).map(|key| Op::Put(key, key as Version + 1));
    // Removing the first key checks whether the table should shrink, so it stays until the end.
    let before = puts.chain((stay..put).map(Op::Remove)).collect();
    let next = put as Version + 1;
    let mut plan = plan_after::<K>(seed, dice, keys, (before, next), is_emptied, is_in_two_of_eight);
    let more = if is_emptied { stay..stay } else { put..(put + 12).min(keys) };
    plan.ops.splice(0..0, more.map(|key| Op::Put(key, EVICTING + key as Version)));
    plan
}

/// Versions of puts that evict begin here, above all others.
const EVICTING: u64 = 1 << 12;

/// The kinds of plans for Rewo-Hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RewoPlan {
    Few,
    Growing,
    Evicting,
}

pub(super) fn rewo_plan_kind(dice: &mut RandomSource) -> RewoPlan {
    [RewoPlan::Few, RewoPlan::Growing, RewoPlan::Evicting][dice.roll(3) as usize]
}

/// The size of the first table of a run in which it grows: one bucket, or two, as only a resize of
/// several buckets takes more than one step.
pub(super) fn first_log2(seed: u64) -> u32 {
    u32::from(seed >> 41 & 1 == 1)
}

/// Whether a key of this hash belongs to two of the first eight buckets, chosen by the seed.
fn is_in_two_of_eight(hash: u64, seed: u64) -> bool {
    let bucket = seed >> 32 & 7;
    hash >> 61 == bucket || hash >> 61 == bucket ^ 1
}

/// Whether the home of a key in a table of four buckets is one of the first two.
fn is_in_two_of_four(hash: u64, _: u64) -> bool {
    hash << 14 >> 63 == 0
}

/// As `plan`, for Level hashing: a table of one or two units with `slots` slots each fills up until
/// keys are moved and it grows. Or most keys of a table of two or four units are removed until it
/// shrinks, and perhaps some come back.
pub(super) fn level_plan<K: LabKeys>(seed: u64, slots: usize) -> Plan {
    let mut dice = RandomSource::new(seed);
    let roll = |dice: &mut RandomSource, sides: usize| dice.roll(sides as u64) as usize;
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
    // Removing the first key checks whether the table should shrink, so it stays until the end.
    let removals = (put - taken..put).map(Op::Remove);
    let mut before: Vec<Op> = puts.collect();
    before.extend((0..put / 8).map(|_| Op::Background(0)));
    before.extend(removals);
    if taken != 0 && dice.roll(2) == 0 {
        before.extend([Op::Remove(0), Op::Put(0, put as u64 + 1)]);
    }
    plan_after::<K>(seed, &mut dice, keys, (before, put as u64 + 1), taken != 0, is_in_two_of_eight)
}

/// A plan over `keys` keys, with `count` random operations of setup, which never crash.
fn plan_of<K: LabKeys>(
    seed: u64,
    dice: &mut RandomSource,
    keys: usize,
    count: usize,
    is_here: fn(u64, u64) -> bool,
) -> Plan {
    let (filling, mut next) = (Mix { remove: 4, ..MIX }, 0);
    let before = filling.random(dice, count, &mut next, &mut vec![None; keys]);
    plan_after::<K>(seed, dice, keys, (before, next), false, is_here)
}

/// A plan over `keys` keys with this setup. If the setup emptied the table, most further operations
/// empty it more, or fill it again.
fn plan_after<K: LabKeys>(
    seed: u64,
    dice: &mut RandomSource,
    keys: usize,
    (before, mut next): (Vec<Op>, u64),
    is_emptied: bool,
    is_here: fn(u64, u64) -> bool,
) -> Plan {
    let mut model = vec![None; keys];
    before.iter().for_each(|op| op.do_to(&mut model));
    let mix = if dice.roll(2) == 0 { MIX } else { Mix { remove: 60, ..MIX } };
    let count = 8 + dice.roll(20) as usize;
    let mut ops = mix.random(dice, count, &mut next, &mut model);
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
    let ops = if dice.roll(3) == 0 { with_memory_reuse(dice, ops) } else { ops };
    let ops = if seed >> 43 & 7 == 1 { with_resizes_finished_elsewhere(seed, &ops) } else { ops };
    let names = Arc::new(crowd::<K>(seed, keys, is_here));
    let revived = first_eight(&after);
    Plan { seed, keys, hot: 0..keys, threads: 1, names, before, ops, after, revived, creation }
}

/// Adds operations that finish resizes without writing anything, and others that reuse freed memory
/// at once.
fn with_memory_reuse(dice: &mut RandomSource, ops: Vec<Op>) -> Vec<Op> {
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

/// Adds resizes that another thread finishes, without a further fence, as soon as a write has begun
/// them. Then all free memory of the sizes of tables is overwritten with zeros, which look like
/// buckets that have not moved.
fn with_resizes_finished_elsewhere(seed: u64, ops: &[Op]) -> Vec<Op> {
    /// See `Index::write` and `Index::scribble` for the meaning of the bits.
    const ENDS: u64 = 3 | 1 << 32 | 1 << 53 | 1 << 54 | 1 << 55;
    let writes = ops.iter().filter(|op| !matches!(op, Op::Background(_))).take(12);
    writes.flat_map(|op| [op.clone(), Op::Background(ENDS | (seed >> 50 & 1) << 33)]).collect()
}

/// The number of a key, and the key.
pub(super) type Named<K> = (u64, <K as TestKeys>::Owned);

/// Whether the few keys of a run have one tag in TurboHash and Rewo-Hash, so that each search
/// compares all of them.
fn has_one_tag(seed: u64, keys: usize) -> bool {
    keys < 10 && seed >> 51 & 3 == 1
}

/// Random keys in the wanted buckets, sorted by number. Removing one in sixteen of them checks
/// whether the table should shrink.
fn crowd<K: LabKeys>(seed: u64, keys: usize, is_here: fn(u64, u64) -> bool) -> Vec<Named<K>> {
    let hash_seed = hash_seed(seed);
    let mut crowd = Vec::with_capacity(keys);
    let mut number = seed & 0xff;
    while crowd.len() < keys {
        number += 1;
        let key = K::key(number);
        let hash = K::hash(key.borrow(), hash_seed);
        let checks_size = hash & 0xff == 0;
        let is_tagged = checks_size || !has_one_tag(seed, keys) || hash & 0xff == 0xa5;
        if is_here(hash, seed) && is_tagged && checks_size == crowd.len().is_multiple_of(16) {
            crowd.push((number, key));
        }
    }
    crowd
}
