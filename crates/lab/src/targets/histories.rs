//! What the histories of the hash tables are about: what is done, over which keys, so that tables grow, shrink, move keys and collect garbage.

use super::index::LabKeys;
use super::options::{hash_seed, twice_four};
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_testkit::TestKeys;
use terrace_testkit::crash::{Dice, Key, Mix, Op, Plan, Version};

const MIX: Mix =
    Mix { put: 30, insert: 20, update: 8, remove: 22, swap: 12, batch: 0, puts: 0, background: 10 };

/// Some runs fill a few buckets until the table grows, some empty a table until it shrinks, some do a little of everything.
pub(super) fn plan<K: LabKeys>(seed: u64, slots: u64) -> Plan {
    let mut dice = Dice::new(seed);
    let few = dice.roll(4) != 0;
    let keys = if few { 4 + dice.roll(6) } else { 5 * slots + dice.roll(2 * slots) };
    let before = if few { dice.roll(10) } else { keys * 3 / 2 + dice.roll(20) };
    plan_of::<K>(seed, &mut dice, keys as usize, before as usize, in_two_of_eight)
}

/// As `plan`: shards are as small as one bucket, grow from there to two and to four, and go away again.
pub(super) fn plan_of_shards<K: LabKeys>(seed: u64, slots: u64) -> Plan {
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
pub(super) fn is_of_garbage(seed: u64) -> bool {
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
pub(super) const GARBAGE_ROOM: usize = 4;

fn take_one(dice: &mut Dice, live: &mut Vec<Key>) -> Key {
    live.swap_remove(dice.roll(live.len() as u64) as usize)
}

/// Some runs do a little of everything, some grow a table of one bucket or two, or make it small again, and some fill two of a table's four buckets until keys are evicted.
pub(super) fn plan_of_nests<K: LabKeys>(seed: u64, slots: u64) -> Plan {
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
pub(super) fn is_of_spares(seed: u64) -> bool {
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

/// The versions of puts that evict are higher than those of the rest.
const EVICTING: u64 = 1 << 12;

/// What a run of Rewo-Hash is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nest {
    Few,
    Growing,
    Evicting,
}

pub(super) fn nest(dice: &mut Dice) -> Nest {
    [Nest::Few, Nest::Growing, Nest::Evicting][dice.roll(3) as usize]
}

/// The first table of a run in which it grows: one bucket, or, since only more of them take more than one step, two.
pub(super) fn first_log2(seed: u64) -> u32 {
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
pub(super) fn plan_of_units<K: LabKeys>(seed: u64, slots: usize) -> Plan {
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

/// The number of a key, and the key.
pub(super) type Named<K> = (u64, <K as TestKeys>::Owned);

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
