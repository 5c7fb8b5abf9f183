//! What tests of trees have in common: pools, counts, and the tests that are the same for each.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::costs_of_inserts;
use terrace_index::ordered::OrderedKind;
use terrace_index::{
    Bytes, ChangeError, Decision, Deferred, Direction, Fencing, Inserted, Place, PointIndex, RangeIndex,
    Stored, Swapped, U64,
};
use terrace_medium::{Dram, MappedMedium, Offset, Pmem, Word};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped, TappedPmem, TestKeys, TestRecord};

pub(super) type Strings = Bytes<TestRecord>;
pub(super) type Model = BTreeMap<Vec<u8>, u64>;

/// The name of the trees.
pub(super) const NAME: &str = "tree";

/// A tree in a pool.
pub(super) trait Tree<M: MappedMedium, K: OrderedKind>:
    RangeIndex<Medium = M, Kind = K> + Stored<Medium = M> + 'static
{
}
impl<M: MappedMedium, K: OrderedKind, I> Tree<M, K> for I where
    I: RangeIndex<Medium = M, Kind = K> + Stored<Medium = M> + 'static
{
}

pub(super) fn pool<M: MappedMedium>(bytes: u64) -> Pool<M> {
    PoolOptions::anonymous().size(bytes).hash_seed(11).create().expect("memory for a pool")
}

/// An empty tree in a pool of this size.
pub(super) fn tree<M: MappedMedium, I: Stored<Medium = M>>(bytes: u64) -> I {
    I::create(&pool(bytes), NAME, 0).expect("room for a root")
}

/// The tree of a pool, opened again: one that has met no damage yet.
pub(super) fn reopened<M: MappedMedium, I: Stored<Medium = M>>(pool: &Pool<M>) -> I {
    I::recover(pool, NAME).expect("a sound root").expect("a tree")
}

/// A key whose bytes are spread.
pub(super) fn spread(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Write-backs and fences.
pub(super) fn flushes(counts: Counts) -> (u64, u64) {
    (counts.write_backs, counts.fences)
}

pub(super) fn word<M: MappedMedium>(pool: &Pool<M>, at: u64) -> &Word {
    pool.region().at(Offset::new(at))
}

/// The place of the tree's root.
pub(super) fn root_of<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    pool.roots()[0].offset.expect("a root")
}

/// The nodes of a tree, with their sizes: its blocks without the root and the counters, and without
/// those of a tree that is part of it.
pub(super) fn nodes<M: MappedMedium>(index: &impl PointIndex<Medium = M>) -> Vec<(u64, u64)> {
    let pool = index.pool();
    let load = |at: u64| word(pool, at).load(pool.medium(), Relaxed);
    let mut blocks = pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
    let kinds = [b"treepair", b"treestrs"].map(|kind| u64::from_le_bytes(*kind));
    let is_root = |&&(at, bytes): &&(u64, u64)| bytes == 128 && kinds.contains(&load(at + 32));
    let roots: Vec<u64> = blocks.iter().filter(is_root).map(|&(at, _)| at).collect();
    assert!(roots.contains(&root_of(pool)), "the root of the tree");
    let stripes: Vec<u64> = roots.iter().map(|root| load(root + 24)).collect();
    blocks.retain(|(at, _)| !roots.contains(at) && !stripes.contains(at));
    blocks
}

/// The places of all words of nodes.
pub(super) fn words_of(nodes: &[(u64, u64)]) -> impl Iterator<Item = u64> + '_ {
    nodes.iter().flat_map(|&(at, bytes)| (at..at + bytes).step_by(8))
}

/// All changes of one byte that the tests try, of each word.
pub(super) fn changes() -> impl Iterator<Item = u64> {
    [1, 0x80, 0xff, 0x5a].iter().flat_map(|&change| (0..8).map(move |byte| change << (8 * byte)))
}

/// The words of the keys between two.
pub(super) fn visited(
    index: &impl Tree<Dram, Strings>,
    (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> Vec<u64> {
    let mut found = Vec::new();
    index.range(&index.pool().pin(), from, to, direction, 9, |(), word| {
        found.push(word);
        ControlFlow::Continue(())
    });
    found
}

/// Inserts these keys, each with a record of its number.
pub(super) fn fill(index: &impl Tree<Dram, Strings>, keys: impl IntoIterator<Item = Vec<u8>>) -> Model {
    let guard = index.pool().pin();
    let mut model = BTreeMap::new();
    for (n, key) in keys.into_iter().enumerate() {
        let word = Strings::word(&guard, &key, n as u64, 1).unwrap();
        assert_eq!(index.insert(&guard, &key, word), Ok(Inserted::New));
        model.insert(key, word);
    }
    model
}

/// The write-backs and fences of `change` for each of the keys, where no node is made or replaced:
/// the most of nearly all of them, and how many. A few take a new slab of the pool.
pub(super) fn most_flushes<const V: bool, K: OrderedKind>(
    index: &impl Tree<Tapped<V>, K>,
    keys: u64,
    change: &dyn Fn(u64),
) -> ((u64, u64), u64) {
    let guard = index.pool().pin();
    let mut costs = Vec::new();
    for key in 0..keys {
        let before = index.stats(&guard);
        let (counts, ()) = index.pool().medium().during(|| change(key));
        let after = index.stats(&guard);
        if (after.nodes, after.resizes) == (before.nodes, before.resizes) {
            costs.push(flushes(counts));
        }
    }
    costs.sort_unstable();
    (costs[costs.len() - 1 - costs.len() / 200], costs.len() as u64)
}

/// Each change costs so many write-backs and fences: an insert, an update and a removal.
pub(super) fn change_of_an_integer_costs(index: &impl Tree<TappedPmem, U64>, insert: u64) {
    const KEYS: u64 = 20_000;
    let guard = index.pool().pin();
    let add = |key: u64| _ = index.insert(&guard, &spread(key), key).unwrap();
    let (most, times) = most_flushes(index, KEYS, &add);
    assert!(most == (insert, insert) && times > KEYS / 4, "inserts: {most:?}, {times} times");
    let update = |key: u64| assert_eq!(index.update(&guard, &spread(key), !key), Some(key));
    assert_eq!(most_flushes(index, KEYS, &update), ((1, 1), KEYS), "updates");
    let remove = |key: u64| assert_eq!(index.remove(&guard, &spread(key)), Some(!key));
    let (most, times) = most_flushes(index, KEYS, &remove);
    assert!(most == (1, 1) && times > KEYS / 4, "removals: {most:?}, {times} times");
}

/// As [`change_of_an_integer_costs`], for byte strings.
pub(super) fn change_of_a_byte_string_costs(index: &impl Tree<TappedPmem, Strings>, insert: u64) {
    const KEYS: u64 = 5000;
    let guard = index.pool().pin();
    let keys: Vec<_> = (0..KEYS).map(|n| Strings::key(spread(n))).collect();
    let records = |version: u64| -> Vec<u64> {
        let word = |n: usize| Strings::word(&guard, keys[n].borrow(), n as u64, version).unwrap();
        (0..keys.len()).map(word).collect()
    };
    let (first, second) = (records(1), records(2));
    let add = |n: u64| _ = index.insert(&guard, &keys[n as usize], first[n as usize]).unwrap();
    let (most, times) = most_flushes(index, KEYS, &add);
    assert!(most == (insert, insert) && times > KEYS / 4, "inserts: {most:?}, {times} times");
    let update = |n: u64| _ = index.update(&guard, &keys[n as usize], second[n as usize]).unwrap();
    assert_eq!(most_flushes(index, KEYS, &update), ((1, 1), KEYS), "updates");
    let remove = |n: u64| _ = index.remove(&guard, &keys[n as usize]).unwrap();
    let (most, times) = most_flushes(index, KEYS, &remove);
    assert!(most == (1, 1) && times > KEYS / 4, "removals: {most:?}, {times} times");
}

/// A million inserts of spread integers cost at most so many write-backs and fences each, and leave
/// at most so many bytes a record.
pub(super) fn million_inserts_cost(index: &impl Tree<TappedPmem, U64>, most: (f64, f64), most_bytes: f64) {
    const KEYS: u64 = 1_000_000;
    // A pin each: what was replaced is free again.
    let insert = |key: u64| {
        let guard = index.pool().pin();
        assert_eq!(index.insert(&guard, &spread(key), key).unwrap(), Inserted::New);
    };
    let (counts, ()) = index.pool().medium().during(|| (0..KEYS).for_each(insert));
    let each = |count: u64| count as f64 / KEYS as f64;
    let (write_backs, fences) = (each(counts.write_backs), each(counts.fences));
    let is_cheap = write_backs <= most.0 && fences <= most.1;
    assert!(is_cheap, "{write_backs} write-backs and {fences} fences an insert");
    let stats = index.stats(&index.pool().pin());
    let bytes = stats.bytes as f64 / KEYS as f64;
    assert!(bytes <= most_bytes, "{bytes} bytes a record: {stats:?}");
}

pub(super) fn gets_and_ranges_only_read(index: &impl Tree<TappedPmem, U64>) {
    costs_of_inserts(index, 10_000);
    let guard = index.pool().pin();
    let (counts, ()) = index.pool().medium().during(|| {
        (0..20_000).for_each(|key| _ = index.get(&guard, &key));
        index.get_many(&guard, &(0..20_000).collect::<Vec<_>>(), |_, _| ());
        let each = |_, _| ControlFlow::Continue(());
        index.range(&guard, Bound::Included(&7), Bound::Unbounded, Direction::Backward, 50, each);
        assert_eq!(index.scan(&guard, &Place::Start, usize::MAX, |_| ()), Place::End);
    });
    let writes = (counts.stores, counts.rmws, counts.write_backs, counts.fences, counts.lines_written);
    assert_eq!(writes, (0, 0, 0, 0, 0));
}

/// Deferred updates of a hundred keys, between which lie so many others, cost one fence.
pub(super) fn changes_deferred_are_fenced_once(index: &impl Tree<TappedPmem, Strings>, apart: usize) {
    let guard = index.pool().pin();
    let mut words: Vec<_> = (0..100 * apart as u64)
        .map(|n| (Strings::key(n), Strings::word(&guard, &Strings::key(n), n, 1).unwrap()))
        .collect();
    (words.iter()).for_each(|(key, word)| _ = index.insert(&guard, key, *word).unwrap());
    words.sort();
    let words: Vec<_> = words.into_iter().step_by(apart).collect();
    let mut deferred = Deferred::default();
    let (counts, ()) = index.pool().medium().during(|| {
        for (key, word) in &words {
            let swapped =
                index.compare_and_swap_deferred(&guard, key, Some(*word), Some(*word), &mut deferred);
            assert_eq!(swapped, Ok(Swapped::Done));
        }
        index.persist_deferred(&guard, deferred);
    });
    assert_eq!(flushes(counts), (100, 1));
    let (counts, ()) = index
        .pool()
        .medium()
        .during(|| words.iter().for_each(|(key, word)| assert_eq!(index.get(&guard, key), Some(*word))));
    assert_eq!((flushes(counts), counts.stores), ((0, 0), 0));
}

/// Changes each byte of each word of the nodes of a tree of which `is_changed` says so. A search
/// and a range, whole or from `middle` on, give an error or what they gave before.
pub(super) fn changed_byte_is_an_error_or_changes_no_answer<I: Tree<Dram, Strings>>(
    (index, model): (I, Model),
    absent: &[Vec<u8>],
    middle: &[u8],
    is_changed: fn(u64) -> bool,
) {
    let pool = index.pool().clone();
    let nodes = nodes(&index);
    let (mut told, mut tried) = (0, 0);
    for (at, change) in words_of(&nodes).flat_map(|at| changes().map(move |change| (at, change))) {
        let sound = word(&pool, at).load(pool.medium(), Relaxed);
        if !is_changed(sound) {
            continue;
        }
        word(&pool, at).store(pool.medium(), sound ^ change, Relaxed);
        let what = format!("{at:#x} changed by {change:#x}");
        told += errors_of_searches::<I>(&pool, &model, absent, &what);
        check_ranges::<I>(&pool, &model, middle, &what);
        word(&pool, at).store(pool.medium(), sound, Relaxed);
        tried += 1;
    }
    assert!(tried > 3000 && told > tried / 2, "{told} errors of {tried} changes");
}

/// How many searches give an error. The others must be right.
fn errors_of_searches<I: Tree<Dram, Strings>>(
    pool: &Pool<Dram>,
    model: &Model,
    absent: &[Vec<u8>],
    what: &str,
) -> u64 {
    // A tree that has met damage says so ever after.
    let (index, guard): (I, _) = (reopened(pool), pool.pin());
    let mut errors = 0;
    for (key, &expected) in model {
        match index.get_sound(&guard, key) {
            Ok(found) => assert_eq!(found, Some(expected), "{key:?}, {what}"),
            Err(_) => errors += 1,
        }
    }
    let is_right = |key: &Vec<u8>| matches!(index.get_sound(&guard, key), Ok(None) | Err(_));
    assert!(absent.iter().all(is_right), "{what}");
    errors
}

/// Ranges meet damage, or visit what they did before.
fn check_ranges<I: Tree<Dram, Strings>>(pool: &Pool<Dram>, model: &Model, middle: &[u8], what: &str) {
    let upper = model.range(middle.to_vec()..).map(|(_, word)| *word).collect();
    for (from, expected) in
        [(Bound::Unbounded, model.values().copied().collect::<Vec<u64>>()), (Bound::Included(middle), upper)]
    {
        for direction in [Direction::Forward, Direction::Backward] {
            let index: I = reopened(pool);
            let mut found = visited(&index, (from, Bound::Unbounded), direction);
            if direction == Direction::Backward {
                found.reverse();
            }
            let is_right = index.damage().is_some() || found == expected;
            assert!(is_right, "{direction:?} from {from:?}, {what}");
        }
    }
}

/// A sound tree passes its check, and with any of these words changed it does not.
pub(super) fn verify_finds_a_change<I: Tree<Dram, Strings>>(
    (index, model): (I, Model),
    change: u64,
    is_checked: impl Fn(u64, u64) -> bool,
) {
    let pool = index.pool().clone();
    let guard = pool.pin();
    assert_eq!((index.verify(&guard), index.len()), (vec![], model.len() as u64));
    for (at, bytes) in nodes(&index) {
        for nth in (1..bytes / 8).filter(|&nth| is_checked(bytes, nth)) {
            let place = word(&pool, at + 8 * nth);
            let sound = place.load(pool.medium(), Relaxed);
            if sound == 0 {
                continue;
            }
            let index: I = reopened(&pool);
            place.store(pool.medium(), sound ^ change, Relaxed);
            assert_ne!(index.verify(&guard), [], "word {nth} of {bytes} bytes");
            place.store(pool.medium(), sound, Relaxed);
        }
    }
    assert_eq!(reopened::<_, I>(&pool).verify(&guard), []);
}

/// The collector frees nothing where the link to the tree is damaged.
pub(super) fn collection_frees_nothing_behind_a_damaged_link(index: &impl Tree<Dram, Strings>) {
    let pool = index.pool().clone();
    let before = pool.space().used_by_blocks;
    let link = word(&pool, root_of(&pool) + 16);
    let sound = link.load(pool.medium(), Relaxed);
    link.store(pool.medium(), sound ^ 1 << 20, Relaxed);
    pool.request_collection();
    let trace = |marker: &mut terrace_pool::Marker<'_>| {
        index.trace(&pool.pin(), marker, |marker, word| marker.mark_around(word));
    };
    assert_eq!(pool.collect(&mut { trace }).freed, 0);
    link.store(pool.medium(), sound, Relaxed);
    assert_eq!(pool.space().used_by_blocks, before);
    assert!(pool.needs_collection(), "it is left to a sound tree");
}

/// Readers make a dirty link durable and clear its bit, but a process that only reads leaves it.
pub(super) fn protected_reader_leaves_dirty_links(index: &impl Tree<Pmem, U64>) {
    const DIRTY: u64 = 1 << 47;
    let pool = index.pool().clone();
    let guard = pool.pin();
    let keys = [1u64, 2, 3].map(|first| first << 56);
    keys.iter().for_each(|key| _ = index.insert(&guard, key, !key).unwrap());
    let link = word(&pool, root_of(&pool) + 16);
    let make_dirty = || {
        let clean = link.load(pool.medium(), Relaxed);
        link.store(pool.medium(), clean | DIRTY, Relaxed);
        clean
    };
    let clean = make_dirty();
    assert_eq!(index.get(&guard, &keys[0]), Some(!keys[0]));
    assert_eq!(link.load(pool.medium(), Relaxed), clean);
    make_dirty();
    assert!(!pool.refuses_stores());
    pool.protect_data().unwrap();
    assert!(pool.refuses_stores());
    assert_eq!(index.get(&guard, &keys[0]), Some(!keys[0]));
    let mut found = Vec::new();
    index.get_many(&guard, &keys, |_, word| found.push(word));
    assert_eq!(found, keys.map(|key| Some(!key)));
    assert_eq!(link.load(pool.medium(), Relaxed), clean | DIRTY);
}

/// All bytes of a word, folded into one: what most words have a check of.
pub(super) fn folded(bits: u64) -> u64 {
    (0..8).fold(0, |check, byte| check ^ bits >> (8 * byte) & 0xff)
}

/// A link of a tree that leads to another place: to the links of P-ART and P-HOT.
pub(super) fn link_to(sound: u64, target: u64) -> u64 {
    let bits = (sound & !(0xff << 48 | ((1 << 41) - 1))) | target >> 3;
    bits | folded(bits) << 48
}

/// A link to the tree that leads into the pool's own metadata is refused. `to` makes it.
pub(super) fn link_into_pool_metadata_is_refused(index: &impl Tree<Dram, U64>, to: fn(u64, u64) -> u64) {
    let pool = index.pool().clone();
    let guard = pool.pin();
    (0..4).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let link = root_of(&pool) + 16;
    let own = || -> Vec<u64> {
        (0..pool.layout().allocator)
            .step_by(8)
            .map(|at| word(&pool, at).load(pool.medium(), Relaxed))
            .collect()
    };
    let before = own();
    let sound = word(&pool, link).load(pool.medium(), Relaxed);
    assert_eq!(to(sound, (sound & ((1 << 41) - 1)) << 3), sound);
    for target in [64, 4096, 8192u64] {
        word(&pool, link).store(pool.medium(), to(sound, target), Relaxed);
        assert!(matches!(index.insert(&guard, &9, 9), Err(ChangeError::Damaged(_))), "{target:#x}");
        assert!(index.get_sound(&guard, &1).is_err());
    }
    assert_eq!(own(), before);
}

/// A root of which one of these words has changed is refused, and the error says this.
pub(super) fn root_with_a_changed_word_is_refused<I: Tree<Dram, U64>>(index: &I, own: &[(u64, &str)]) {
    let pool = index.pool().clone();
    let root = root_of(&pool);
    let words = [(3, "does not fit its check"), (4, "not of a tree for this kind of keys"), (5, "check")];
    for &(nth, says) in words.iter().chain(own) {
        let word = word(&pool, root + 8 * nth);
        let sound = word.load(pool.medium(), Relaxed);
        word.store(pool.medium(), sound ^ 0x1000, Relaxed);
        let Err(error) = I::recover(&pool, NAME) else { panic!("not refused: {says}") };
        assert!(error.to_string().contains(says), "{error}");
        word.store(pool.medium(), sound, Relaxed);
    }
    assert!(I::recover(&pool, NAME).unwrap().is_some());
}

/// In a pool without memory, an insert that needs some is refused, and all keys can be changed and
/// removed. At most so many nodes are left then.
pub(super) fn full_pool_refuses_growth_and_keeps_the_tree<I: Tree<Dram, U64>>(
    keys: impl IntoIterator<Item = u64>,
    sizes: &[usize],
    most_left: u64,
) {
    for keep in keys {
        let index: I = tree(1 << 20);
        let guard = index.pool().pin();
        (0..=keep).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
        let mut blocks = Vec::new();
        for &bytes in sizes {
            blocks.extend(std::iter::from_fn(|| guard.alloc(bytes).ok()));
        }
        let refused = index.insert(&guard, &(keep + 1), 1);
        assert!(matches!(refused, Err(ChangeError::Full(_))), "{keep}: {refused:?}");
        assert_eq!((index.len(), index.verify(&guard)), (keep + 1, vec![]));
        (0..=keep).for_each(|key| assert_eq!(index.update(&guard, &key, !key), Some(key)));
        (0..=keep).for_each(|key| assert_eq!(index.remove(&guard, &key), Some(!key)));
        assert_eq!((index.len(), index.verify(&guard)), (0, vec![]));
        let left = index.stats(&guard).nodes;
        assert!(left.iter().sum::<u64>() <= most_left, "{keep}: {left:?}");
    }
}

/// In a full pool all keys can be changed and removed; then there is room for nearly as many again:
/// nodes are not as full as in a tree that has only grown.
pub(super) fn takes_changes_when_full<M: MappedMedium>(index: &impl Tree<M, U64>) {
    let pool = index.pool().clone();
    let insert = |key| index.insert(&pool.pin(), &spread(key), key);
    let first = (0..).find(|&key| insert(key).is_err()).unwrap();
    assert!(first > 1000, "{first} keys");
    let mut full = first;
    for round in 0..2u64 {
        (0..full).for_each(|key| {
            assert_eq!(index.update(&pool.pin(), &spread(key), !key), Some(key));
        });
        (0..full).for_each(|key| assert_eq!(index.remove(&pool.pin(), &spread(key)), Some(!key)));
        assert_eq!((index.len(), index.verify(&pool.pin())), (0, vec![]));
        while pool.reclaim_blocking() {}
        full = (0..full).find(|&key| insert(key).is_err()).unwrap_or(full);
        assert!(full > first * 7 / 8, "{full} of {first} keys, round {round}");
        assert_eq!((index.len(), index.verify(&pool.pin())), (full, vec![]));
    }
}

/// Adds integers and removes them, in several orders. Few nodes are left each time, as `is_small`
/// says. Returns the memory that is in use then, but for the `bytes` of those.
pub(super) fn used_once_emptied(
    index: &impl Tree<Dram, U64>,
    is_small: impl Fn([u64; 4]) -> bool,
    bytes: impl Fn([u64; 4]) -> u64,
) -> Vec<u64> {
    const KEYS: u64 = 2000;
    type Order = fn(u64) -> u64;
    let orders: [Order; 4] = [|n| n, |n| KEYS - 1 - n, spread, |n| n * 7 % KEYS];
    let pool = index.pool().clone();
    let pairs = orders.iter().flat_map(|come| orders.iter().map(move |go| (come, go)));
    let used = pairs.map(|(come, go)| {
        let go = |n| if go(1) == spread(1) { come(n * 7 % KEYS) } else { come(go(n)) };
        (0..KEYS).for_each(|n| _ = index.insert(&pool.pin(), &come(n), n).unwrap());
        assert_eq!((index.len(), index.verify(&pool.pin())), (KEYS, vec![]));
        (0..KEYS).for_each(|n| assert!(index.remove(&pool.pin(), &go(n)).is_some(), "{n}"));
        assert_eq!((index.len(), index.verify(&pool.pin())), (0, vec![]));
        let nodes = index.stats(&pool.pin()).nodes;
        assert!(is_small(nodes), "{nodes:?}");
        while pool.reclaim_blocking() {}
        pool.space().used_by_blocks - bytes(nodes)
    });
    used.collect()
}

pub(super) fn random_place_reaches_keys_alike(index: &impl Tree<Dram, U64>) {
    let guard = index.pool().pin();
    // One key far from all others, which share long paths.
    (0..999).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    index.insert(&guard, &u64::MAX, 7).unwrap();
    let mut before = [0u32; 2];
    for draw in 0..2000 {
        let Place::After(key) = index.random_place(&guard, spread(draw)) else {
            panic!("a tree of many keys")
        };
        before[usize::from(key[0] == 0xff)] += 1;
    }
    // Two or three of the thousand keys' two thousand places; an even choice at the root made it
    // half.
    assert!(before[0] > 0 && before[1] < 400, "{before:?}");
}

/// A changed byte makes a link look dirty on a medium where no link is: no change goes on for ever.
pub(super) fn link_that_looks_dirty_ends_no_change_in_a_loop<I: Tree<Dram, Strings>>(make: impl Fn() -> I) {
    const DIRTY: u64 = 1 << 47;
    let keys: Vec<Vec<u8>> = (0..12u8).map(|n| vec![n * 20]).collect();
    let record = |index: &I, key: &[u8], n| Strings::word(&index.pool().pin(), key, n, 1).ok();
    let tree = || {
        let index = make();
        keys.iter().for_each(|key| {
            let word = record(&index, key, 0).unwrap();
            index.insert(&index.pool().pin(), key, word).unwrap();
        });
        index
    };
    let (index, mut tried) = (tree(), 0);
    let content = nodes(&index).into_iter().flat_map(|(at, bytes)| (at + 24..at + bytes).step_by(8));
    for at in content.chain([index.pool().roots()[0].offset.unwrap() + 16]) {
        for removes_first in [true, false] {
            let index = tree();
            let (guard, place) = (index.pool().pin(), word(index.pool(), at));
            place.store(guard.pool().medium(), place.load(guard.pool().medium(), Relaxed) ^ DIRTY, Relaxed);
            let change = |key: &Vec<u8>, word| {
                let turns = std::cell::Cell::new(0);
                let changed = index.change(&guard, key, Fencing::Now, |_| {
                    turns.set(turns.get() + 1);
                    assert!(turns.get() < 50, "{key:?}, {at:#x}");
                    Decision::Set(word)
                });
                assert!(matches!(changed, Ok(_) | Err(ChangeError::Damaged(_))), "{key:?}, {at:#x}");
            };
            if removes_first {
                keys.iter().for_each(|key| change(key, None));
            }
            let new = keys.iter().map(|key| [&key[..], &[7]].concat());
            new.for_each(|key| change(&key, record(&index, &key, 0)));
            keys.iter().for_each(|key| change(key, None));
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}
