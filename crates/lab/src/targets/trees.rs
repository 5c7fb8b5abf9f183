//! Plans of histories for the trees. They choose keys and operations so that leaves and prefixes
//! are split, paths are merged, and nodes grow and shrink.

use super::histories::Named;
use super::index::{LabKeys, RECOUNT};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use terrace_index::{Bytes, U64};
use terrace_testkit::crash::{Key, Mix, Op, Plan, RandomSource, Version};
use terrace_testkit::{TestKeys, TestRecord};

/// A little of everything, more keys than not, and fewer.
const EVEN: Mix =
    Mix { put: 24, insert: 18, update: 8, remove: 28, swap: 10, batch: 0, puts: 5, background: 7 };
const FILLING: Mix = Mix { put: 34, insert: 26, update: 5, remove: 14, ..EVEN };
const EMPTYING: Mix = Mix { put: 10, insert: 8, update: 5, remove: 55, ..EVEN };

/// Keys with bytes that the plans choose.
pub(super) trait ByteKeys: LabKeys {
    /// The length of every key; `None` if they differ.
    const LENGTH: Option<usize>;
    /// The key of these bytes.
    fn of_bytes(bytes: &[u8]) -> <Self as TestKeys>::Owned;
}

impl ByteKeys for U64 {
    const LENGTH: Option<usize> = Some(8);
    fn of_bytes(bytes: &[u8]) -> u64 {
        u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
    }
}

impl ByteKeys for Bytes<TestRecord> {
    const LENGTH: Option<usize> = None;
    fn of_bytes(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
}

/// What the operations of a run change about the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Paths: few keys, which part at any byte.
    Paths,
    /// A node with so many children, which grows.
    Growing(usize),
    /// A node that was made for more than so many children, and shrinks when it has as many as the
    /// second number.
    Shrinking(usize, usize),
}

impl Family {
    fn draw(dice: &mut RandomSource) -> Self {
        match dice.roll(16) {
            0..7 => Self::Paths,
            7 | 8 => Self::Growing(4),
            9 => Self::Growing(12),
            10 => Self::Growing(20),
            11 => Self::Growing(56),
            12 => Self::Shrinking(4, 3),
            13 => Self::Shrinking(12, 9),
            14 => Self::Shrinking(20, 16),
            _ => Self::Shrinking(56, 40),
        }
    }
}

/// A plan for a radix tree.
pub(super) fn plan<K: ByteKeys>(seed: u64) -> Plan {
    let mut dice = RandomSource::new(seed);
    match Family::draw(&mut dice) {
        Family::Paths => {
            let bytes: Vec<Vec<u8>> = paths::<K>(&mut dice).into_iter().collect();
            let hot = 0..bytes.len();
            let (count, mut next, mut model) = (dice.roll(10), 0, vec![None; bytes.len()]);
            let before = FILLING.random(&mut dice, count as usize, &mut next, &mut model);
            plan_of::<K>(seed, &mut dice, bytes, hot, (before, EVEN))
        }
        Family::Growing(places) => {
            let more = 1 + dice.roll(3) as usize;
            let wide = wide::<K>(&mut dice, places + more);
            let there = places - dice.roll(2) as usize;
            let before = wide.children.iter().rev().take(there);
            let before = numbered(before.map(|&key| Op::Put(key, 0)));
            plan_of::<K>(seed, &mut dice, wide.keys, wide.hot, (before, FILLING))
        }
        Family::Shrinking(places, at) => {
            let wide = wide::<K>(&mut dice, places + 1);
            let stay = at + 1 + dice.roll(2) as usize;
            let puts = wide.children.iter().map(|&key| Op::Put(key, 0));
            let removals = wide.children.iter().rev().take(places + 1 - stay);
            let before = numbered(puts.chain(removals.map(|&key| Op::Remove(key))));
            plan_of::<K>(seed, &mut dice, wide.keys, wide.hot, (before, EMPTYING))
        }
    }
}

/// A plan for a tree of nodes with few entries: paths, or a few keys that part at bits of one byte.
pub(super) fn small_plan<K: ByteKeys>(seed: u64) -> Plan {
    let mut dice = RandomSource::new(seed);
    let (bytes, hot, there) = if dice.roll(3) == 0 {
        let count = 6 + dice.roll(8) as usize;
        let Wide { keys, hot, children } = wide::<K>(&mut dice, count);
        (keys, hot, children)
    } else {
        let bytes: Vec<Vec<u8>> = paths::<K>(&mut dice).into_iter().collect();
        let (hot, there) = (0..bytes.len(), (0..bytes.len()).collect());
        (bytes, hot, there)
    };
    let share = dice.roll(4);
    let before = there.into_iter().filter(|_| dice.roll(4) < share).collect::<Vec<Key>>();
    let gone = before.iter().copied().filter(|_| dice.roll(4) == 0).collect::<Vec<Key>>();
    let puts = before.into_iter().map(|key| Op::Put(key, 0));
    let before = numbered(puts.chain(gone.into_iter().map(Op::Remove)));
    let mix = [EVEN, FILLING, EMPTYING][(share as usize).div_ceil(2)];
    plan_of::<K>(seed, &mut dice, bytes, hot, (before, mix))
}

/// A plan for a Bw-tree with pages of a few keys: they are split, written anew and merged. In one
/// run of three the history begins with most keys and removes them.
pub(super) fn bw_plan<K: ByteKeys>(seed: u64) -> Plan {
    let mut dice = RandomSource::new(seed);
    let mut keys = paths::<K>(&mut dice);
    if dice.roll(2) == 0 {
        let more = paths::<K>(&mut dice);
        keys.extend(more);
    }
    let bytes: Vec<Vec<u8>> = keys.into_iter().collect();
    let hot = 0..bytes.len();
    let (before, mix) = match dice.roll(3) {
        0 => {
            let stay = dice.roll(3) as usize;
            (numbered(hot.clone().skip(stay).map(|key| Op::Put(key, 0))), EMPTYING)
        }
        kind => {
            let (count, mut next, mut model) = (dice.roll(12), 0, vec![None; bytes.len()]);
            let before = FILLING.random(&mut dice, count as usize, &mut next, &mut model);
            (before, if kind == 1 { FILLING } else { EVEN })
        }
    };
    let mut plan = plan_of::<K>(seed, &mut dice, bytes, hot, (before, mix));
    for op in &mut plan.ops {
        if matches!(op, Op::Background(step) if *step != RECOUNT) && dice.roll(2) == 0 {
            *op = Op::Background(SWEEP);
        }
    }
    plan
}

/// Background work that sweeps pages.
const SWEEP: u64 = 8;

/// A plan over these keys, which are in order, for a script: without operations.
pub(super) fn plan_over<K: ByteKeys>(seed: u64, keys: &[&[u8]]) -> Plan {
    assert!(keys.is_sorted());
    let keys = keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>();
    let (mut dice, hot) = (RandomSource::new(seed), 0..keys.len());
    let plan = plan_of::<K>(seed, &mut dice, keys, hot, (Vec::new(), EVEN));
    Plan { ops: Vec::new(), creation: false, ..plan }
}

/// As [`plan_over`], over integers.
pub(super) fn plan_over_integers(seed: u64, keys: &[u64]) -> Plan {
    let bytes: Vec<[u8; 8]> = keys.iter().map(|key| key.to_be_bytes()).collect();
    let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    plan_over::<U64>(seed, &bytes)
}

/// These operations with a version each.
fn numbered(ops: impl Iterator<Item = Op>) -> Vec<Op> {
    let version = |nth: usize| nth as Version + 1;
    ops.enumerate()
        .map(|(nth, op)| if let Op::Put(key, _) = op { Op::Put(key, version(nth)) } else { op })
        .collect()
}

/// A plan with these keys, which are in order, and this setup.
fn plan_of<K: ByteKeys>(
    seed: u64,
    dice: &mut RandomSource,
    bytes: Vec<Vec<u8>>,
    hot: Range<Key>,
    (before, mix): (Vec<Op>, Mix),
) -> Plan {
    let keys = bytes.len();
    let written = before.iter().flat_map(Op::may_write).map(|(_, version)| version);
    let (mut model, mut next) = (vec![None; keys], written.max().unwrap_or(0));
    before.iter().for_each(|op| op.do_to(&mut model));
    let mix = if dice.roll(4) == 0 { EVEN } else { mix };
    let count = 8 + dice.roll(13) as usize;
    // In one run of eight the keys are recounted all the time.
    let background = if dice.roll(8) == 0 { 30 } else { mix.background };
    let mix = Mix { background, ..mix };
    let drawn = mix.random(dice, count, &mut next, &mut model[hot.clone()]);
    let mut ops: Vec<Op> = drawn.into_iter().map(|op| with_work(dice, moved(op, hot.start))).collect();
    for _ in 0..dice.roll(3) {
        next += 1;
        let (key, place) = (dice.roll(keys as u64) as Key, dice.roll(ops.len() as u64 + 1) as usize);
        ops.insert(place, if dice.roll(2) == 0 { Op::Put(key, next) } else { Op::Remove(key) });
    }
    let mut puts = (0..keys).map(|key| Op::Put(key, next + 1 + key as Version)).collect::<Vec<Op>>();
    let revived = revived(dice, &hot, next + 1 + keys as Version);
    puts.extend([Op::Background(RECOUNT), Op::Remove(0), Op::Put(0, Version::from(u16::MAX))]);
    let named = bytes.iter().enumerate().map(|(number, bytes)| (number as u64, K::of_bytes(bytes)));
    let names: Arc<Vec<Named<K>>> = Arc::new(named.collect());
    let creation = dice.roll(16) == 0;
    Plan { seed, keys, hot, threads: 1, names, before, ops, after: puts, revived, creation }
}

/// An operation on the key that is `by` places further on.
fn moved(op: Op, by: usize) -> Op {
    match op {
        Op::Put(key, version) => Op::Put(key + by, version),
        Op::Insert(key, version) => Op::Insert(key + by, version),
        Op::Update(key, version) => Op::Update(key + by, version),
        Op::Remove(key) => Op::Remove(key + by),
        Op::Swap(key, expected, new) => Op::Swap(key + by, expected, new),
        Op::Puts(puts) => Op::Puts(puts.into_iter().map(|(key, version)| (key + by, version)).collect()),
        other => other,
    }
}

/// Background work becomes a recount, or memory is reused.
fn with_work(dice: &mut RandomSource, op: Op) -> Op {
    match op {
        Op::Background(_) if dice.roll(2) == 0 => Op::Background(RECOUNT),
        Op::Background(step) => Op::Background(step & !3 | 1),
        other => other,
    }
}

/// What a process does after a kill: it changes hot keys, before and after its collection.
fn revived(dice: &mut RandomSource, hot: &Range<Key>, first: Version) -> Vec<Op> {
    let one = |nth: Version| {
        let key = hot.start + dice.roll(hot.len() as u64) as Key;
        if dice.roll(5) < 2 { Op::Remove(key) } else { Op::Put(key, first + nth) }
    };
    (0..8).map(one).collect()
}

/// A byte: often one of the ends, or the same as in other places.
fn byte(dice: &mut RandomSource) -> u8 {
    match dice.roll(4) {
        0 => 0,
        1 => 0xff,
        2 => b'a',
        _ => dice.bits() as u8,
    }
}

fn bytes(dice: &mut RandomSource, count: usize) -> Vec<u8> {
    (0..count).map(|_| byte(dice)).collect()
}

/// Few keys that part at any byte. Byte strings also begin each other, and one may be empty.
fn paths<K: ByteKeys>(dice: &mut RandomSource) -> BTreeSet<Vec<u8>> {
    let length = K::LENGTH.unwrap_or_else(|| 1 + dice.roll(14) as usize);
    let count = 5 + dice.roll(6) as usize;
    let mut keys = vec![bytes(dice, length)];
    while keys.len() < count {
        let like = dice.pick(&keys).clone();
        let new = parted::<K>(dice, &like, 0);
        if !keys.contains(&new) {
            keys.push(new);
        }
    }
    keys.into_iter().collect()
}

/// A key that equals `like` up to some byte from `first` on.
fn parted<K: ByteKeys>(dice: &mut RandomSource, like: &[u8], first: usize) -> Vec<u8> {
    let at = first + dice.roll((like.len() - first) as u64 + 1) as usize;
    let mut key = like[..at].to_vec();
    if K::LENGTH.is_none() && dice.roll(3) == 0 {
        // It begins the other, or the other begins it.
        let longer = if at == like.len() { 1 + dice.roll(9) as usize } else { 0 };
        key.extend(bytes(dice, longer));
        return key;
    }
    let at = at.min(like.len().saturating_sub(1));
    key.truncate(at);
    key.push(like.get(at).map_or(0, |byte| byte ^ 1 << dice.roll(8)));
    match K::LENGTH {
        Some(length) => key.extend(bytes(dice, length - at - 1)),
        None => {
            let longer = [0, 0, 1, 7][dice.roll(4) as usize];
            key.extend(bytes(dice, longer));
        }
    }
    key
}

/// The keys around a node with many children.
struct Wide {
    keys: Vec<Vec<u8>>,
    /// The keys that are the node's children, the hot ones first.
    children: Vec<Key>,
    hot: Range<Key>,
}

/// Keys around a node with `count` children, and a few more that part above the node, at it, or
/// below its children. Those and some children are hot.
fn wide<K: ByteKeys>(dice: &mut RandomSource, count: usize) -> Wide {
    let level = dice.roll(8) as usize;
    let (path, is_low) = (bytes(dice, level), dice.roll(2) == 0);
    // Some are neighbours. In a large node, half of the others have a neighbour's hash.
    let mut branches: BTreeSet<u8> = if is_low { (0..4).collect() } else { (252..=255).collect() };
    while branches.len() < count {
        let byte = dice.bits() as u8;
        let is_crowded = count > 20 && dice.roll(2) == 0;
        branches.insert(if is_crowded { byte & 0xc3 | if is_low { 0 } else { 0x3c } } else { byte });
    }
    let child = |dice: &mut RandomSource, branch: u8| {
        let rest = K::LENGTH.map_or_else(|| dice.roll(3) as usize, |length| length - level - 1);
        [&path[..], &[branch], &bytes(dice, rest)].concat()
    };
    let children: BTreeSet<Vec<u8>> = branches.iter().map(|&branch| child(dice, branch)).collect();
    let mut keys = children.clone();
    let end = if is_low { children.first() } else { children.last() };
    let end = end.cloned().unwrap_or_default();
    for _ in 0..4 {
        let new = parted::<K>(dice, &end, 0);
        // Below the node's lowest child, or above its highest: not among its other children.
        let is_outside = new.len() <= level || new[..level] != path || new[level] == end[level];
        let is_on_this_side = is_low == (new <= end);
        if is_outside && is_on_this_side {
            keys.insert(new);
        }
    }
    if K::LENGTH.is_none() && is_low {
        keys.insert(path.clone());
    }
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    let mut places: Vec<Key> = (0..keys.len()).filter(|&key| children.contains(&keys[key])).collect();
    let more = (keys.len() - places.len() + 4).min(keys.len());
    let hot = if is_low { 0..more } else { keys.len() - more..keys.len() };
    if !is_low {
        places.reverse();
    }
    Wide { keys, children: places, hot }
}
