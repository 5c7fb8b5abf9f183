//! Tests: P-ART's accesses to its medium, counted; its memory; and damage in its nodes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::{costs_of_inserts, never_flushes};
use terrace_index::ordered::{Art, OrderedKind};
use terrace_index::{
    Bytes, ChangeError, Direction, Inserted, Place, PointIndex, RangeIndex, Stored, Swapped, U64,
};
use terrace_medium::{Dram, MappedMedium, Offset, Pmem, Word};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped, TappedPmem, TappedShm, TestKeys, TestRecord};

type Strings = Bytes<TestRecord>;

fn pool<M: MappedMedium>(bytes: u64) -> Pool<M> {
    PoolOptions::anonymous().size(bytes).hash_seed(11).create().expect("memory for a pool")
}

fn art<M: MappedMedium, K: OrderedKind>(bytes: u64) -> Art<M, K> {
    Art::create(&pool(bytes), "art", 0).expect("room for a root")
}

/// A key whose bytes are spread.
fn spread(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Write-backs and fences.
fn flushes(counts: Counts) -> (u64, u64) {
    (counts.write_backs, counts.fences)
}

/// The write-backs and fences of `change` for each of the keys, where no node is made or replaced:
/// the most of nearly all of them, and how many. A few take a new slab of the pool.
fn most_flushes<const V: bool, K: OrderedKind>(
    index: &Art<Tapped<V>, K>,
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

#[test]
fn change_of_an_integer_costs_its_lines() {
    const KEYS: u64 = 20_000;
    let index = art::<TappedPmem, U64>(64 << 20);
    let guard = index.pool().pin();
    let insert = |key: u64| _ = index.insert(&guard, &spread(key), key).unwrap();
    let (most, times) = most_flushes(&index, KEYS, &insert);
    assert!(most == (2, 2) && times > KEYS / 4, "inserts: {most:?}, {times} times");
    let update = |key: u64| assert_eq!(index.update(&guard, &spread(key), !key), Some(key));
    assert_eq!(most_flushes(&index, KEYS, &update), ((1, 1), KEYS), "updates");
    let remove = |key: u64| assert_eq!(index.remove(&guard, &spread(key)), Some(!key));
    let (most, times) = most_flushes(&index, KEYS, &remove);
    assert!(most == (1, 1) && times > KEYS / 4, "removals: {most:?}, {times} times");
}

#[test]
fn change_of_a_byte_string_costs_one_line() {
    const KEYS: u64 = 5000;
    let index = art::<TappedPmem, Strings>(64 << 20);
    let guard = index.pool().pin();
    let keys: Vec<_> = (0..KEYS).map(|n| Strings::key(spread(n))).collect();
    let records = |version: u64| -> Vec<u64> {
        let word = |n: usize| Strings::word(&guard, keys[n].borrow(), n as u64, version).unwrap();
        (0..keys.len()).map(word).collect()
    };
    let (first, second) = (records(1), records(2));
    let insert = |n: u64| _ = index.insert(&guard, &keys[n as usize], first[n as usize]).unwrap();
    let (most, times) = most_flushes(&index, KEYS, &insert);
    assert!(most == (1, 1) && times > KEYS / 4, "inserts: {most:?}, {times} times");
    let update = |n: u64| _ = index.update(&guard, &keys[n as usize], second[n as usize]).unwrap();
    assert_eq!(most_flushes(&index, KEYS, &update), ((1, 1), KEYS), "updates");
    let remove = |n: u64| _ = index.remove(&guard, &keys[n as usize]).unwrap();
    let (most, times) = most_flushes(&index, KEYS, &remove);
    assert!(most == (1, 1) && times > KEYS / 4, "removals: {most:?}, {times} times");
}

#[test]
fn million_inserts_cost_at_most_2_7_write_backs_each() {
    const KEYS: u64 = 1_000_000;
    let index = art::<TappedPmem, U64>(256 << 20);
    let guard = index.pool().pin();
    let insert = |key: u64| assert_eq!(index.insert(&guard, &spread(key), key).unwrap(), Inserted::New);
    let (counts, ()) = index.pool().medium().during(|| (0..KEYS).for_each(insert));
    let each = |count: u64| count as f64 / KEYS as f64;
    let (write_backs, fences) = (each(counts.write_backs), each(counts.fences));
    // On aarch64 the streamed lines of new nodes are written back, too.
    let most = if cfg!(target_arch = "aarch64") { 4.2 } else { 2.7 };
    assert!(write_backs <= most && fences <= 2.1, "{write_backs} write-backs and {fences} fences an insert");
    let stats = index.stats(&guard);
    let bytes = stats.bytes as f64 / KEYS as f64;
    assert!(bytes <= 46.0, "{bytes} bytes a record: {stats:?}");
}

#[test]
fn gets_and_ranges_only_read() {
    let index = art::<TappedPmem, U64>(64 << 20);
    costs_of_inserts(&index, 10_000);
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

#[test]
fn dram_and_shm_never_flush_or_fence() {
    never_flushes(&art::<TappedShm, U64>(64 << 20), 100_000);
    never_flushes(&art::<TappedShm, U64>(64 << 20), 100_000);
}

/// A get reads a line of each node, a line of a leaf, and the root's.
#[test]
fn get_reads_one_line_a_node() {
    let index = art::<TappedShm, U64>(64 << 20);
    let guard = index.pool().pin();
    // Three levels of nodes of kind 256, and nothing below.
    (0..1 << 16).for_each(|key| _ = index.insert(&guard, &(key << 40), key).unwrap());
    let lines = |key: u64| index.pool().medium().during(|| index.get(&guard, &(key << 40))).0.lines_read;
    assert!((0..1 << 16).step_by(977).all(|key| lines(key) == 4));
}

#[test]
fn changes_deferred_are_fenced_once() {
    let index = art::<TappedPmem, Strings>(64 << 20);
    let guard = index.pool().pin();
    let words: Vec<_> =
        (0..100).map(|n| (Strings::key(n), Strings::word(&guard, &Strings::key(n), n, 1).unwrap())).collect();
    (words.iter()).for_each(|(key, word)| _ = index.insert(&guard, key, *word).unwrap());
    let mut deferred = terrace_index::Deferred::default();
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

/// A tree of byte strings in which each kind of node occurs, a node with a long prefix, and keys
/// that end at nodes.
fn tree_of_all_kinds() -> (Art<Dram, Strings>, BTreeMap<Vec<u8>, u64>) {
    let index = art::<Dram, Strings>(4 << 20);
    let guard = index.pool().pin();
    let mut keys: Vec<Vec<u8>> = (0..200).map(|byte| vec![b'f', byte, b'x']).collect();
    keys.extend((0..30).map(|byte| vec![b'o', byte]));
    keys.extend((0..10).map(|byte| vec![b's', b'-', byte]));
    keys.extend([&b"o"[..], b"", b"long prefix of a key, one", b"long prefix of a key, two"].map(Vec::from));
    let mut model = BTreeMap::new();
    for (n, key) in keys.into_iter().enumerate() {
        let word = Strings::word(&guard, &key, n as u64, 1).unwrap();
        index.insert(&guard, &key, word).unwrap();
        model.insert(key, word);
    }
    let stats = index.stats(&guard);
    assert!(stats.nodes.iter().all(|&nodes| nodes > 0), "{stats:?}");
    drop(guard);
    (index, model)
}

fn word<M: MappedMedium>(pool: &Pool<M>, at: u64) -> &Word {
    pool.region().at(Offset::new(at))
}

/// The blocks of the tree, with their sizes.
fn blocks(index: &Art<Dram, Strings>) -> Vec<(u64, u64)> {
    let pool = index.pool();
    pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()))
}

#[test]
fn changed_byte_is_an_error_or_changes_no_answer() {
    let (index, model) = tree_of_all_kinds();
    let pool = index.pool().clone();
    let root = pool.roots()[0].offset.unwrap();
    let nodes = blocks(&index);
    let words =
        nodes.iter().filter(|(at, _)| *at != root).flat_map(|&(at, bytes)| (at..at + bytes).step_by(8));
    let (mut told, mut tried) = (0, 0);
    for at in words.filter(|&at| word(&pool, at).load(pool.medium(), Relaxed) != 0) {
        let sound = word(&pool, at).load(pool.medium(), Relaxed);
        for change in
            [1, 0x80, 0xff, 0x5a].iter().flat_map(|&change| (0..8).map(move |byte| change << (8 * byte)))
        {
            // A tree that has met damage says so ever after.
            let index = Art::<Dram, Strings>::recover(&pool, "art").unwrap().unwrap();
            word(&pool, at).store(pool.medium(), sound ^ change, Relaxed);
            let guard = pool.pin();
            for (key, &expected) in &model {
                match index.get_sound(&guard, key) {
                    Ok(found) => assert_eq!(found, Some(expected), "{key:?}, {at:#x} changed by {change:#x}"),
                    Err(_) => told += 1,
                }
            }
            let mut found = Vec::new();
            let each = |(), word| {
                found.push(word);
                ControlFlow::Continue(())
            };
            index.range(&guard, Bound::Unbounded, Bound::Unbounded, Direction::Forward, 9, each);
            assert!(
                index.damage().is_some() || found.iter().eq(model.values()),
                "a range, {at:#x} changed by {change:#x}"
            );
            word(&pool, at).store(pool.medium(), sound, Relaxed);
            tried += 1;
        }
    }
    assert!(tried > 3000 && told > tried, "{told} errors of {tried} changes");
}

#[test]
fn verify_finds_a_changed_link_or_head() {
    let (index, model) = tree_of_all_kinds();
    let pool = index.pool().clone();
    let (root, guard) = (pool.roots()[0].offset.unwrap(), pool.pin());
    assert_eq!((index.verify(&guard), index.len()), (vec![], model.len() as u64));
    let mut nodes = blocks(&index);
    nodes.retain(|&(at, bytes)| at != root && [64, 192, 704, 2304].contains(&bytes));
    for (at, bytes) in nodes {
        let links = match bytes {
            704 => 40..88,
            2304 => 8..264,
            bytes => 4..bytes / 8,
        };
        for nth in [1, 2, 3].into_iter().chain(links) {
            let place = word(&pool, at + 8 * nth);
            let sound = place.load(pool.medium(), Relaxed);
            if sound == 0 {
                continue;
            }
            let index = Art::<Dram, Strings>::recover(&pool, "art").unwrap().unwrap();
            place.store(pool.medium(), sound ^ 1 << 20, Relaxed);
            assert_ne!(index.verify(&guard), [], "word {nth} of {bytes} bytes");
            place.store(pool.medium(), sound, Relaxed);
        }
    }
    assert_eq!(Art::<Dram, Strings>::recover(&pool, "art").unwrap().unwrap().verify(&guard), []);
}

#[test]
fn collection_frees_nothing_behind_a_damaged_link() {
    let (index, _) = tree_of_all_kinds();
    let pool = index.pool().clone();
    let before = pool.space().used_by_blocks;
    let link = word(&pool, pool.roots()[0].offset.unwrap() + 16);
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

#[test]
fn writers_refuse_damaged_nodes() {
    let (index, model) = tree_of_all_kinds();
    let pool = index.pool().clone();
    let guard = pool.pin();
    let key = b"o\x05";
    // The node of kind 48 behind 'o'.
    let node = blocks(&index).into_iter().find(|(_, bytes)| *bytes == 704).unwrap().0;
    for (nth, sound) in [1, 45].map(|nth| (nth, word(&pool, node + 8 * nth).load(pool.medium(), Relaxed))) {
        word(&pool, node + 8 * nth).store(pool.medium(), sound ^ 1 << 9, Relaxed);
        let record = Strings::word(&guard, key, 1, 2).unwrap();
        if nth == 1 {
            let swapped = index.compare_and_swap(&guard, key, Some(model[&key[..]]), Some(record));
            assert!(matches!(swapped, Err(ChangeError::Damaged(_))), "{swapped:?}");
            assert_eq!((index.update(&guard, key, record), index.remove(&guard, key)), (None, None));
        }
        word(&pool, node + 8 * nth).store(pool.medium(), sound, Relaxed);
    }
    assert_eq!(index.remove(&guard, key), Some(model[&key[..]]));
}

/// Readers make a dirty link durable and clear its bit, but a process that only reads leaves it.
#[test]
fn protected_reader_leaves_dirty_links() {
    const DIRTY: u64 = 1 << 47;
    let index = art::<Pmem, U64>(4 << 20);
    let pool = index.pool().clone();
    let guard = pool.pin();
    let keys = [1u64, 2, 3].map(|first| first << 56);
    keys.iter().for_each(|key| _ = index.insert(&guard, key, !key).unwrap());
    let link = word(&pool, pool.roots()[0].offset.unwrap() + 16);
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

#[test]
fn link_into_pool_metadata_is_refused() {
    let index = art::<Dram, U64>(4 << 20);
    let pool = index.pool().clone();
    let guard = pool.pin();
    (0..4).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let link = pool.roots()[0].offset.unwrap() + 16;
    let own = || -> Vec<u64> {
        (0..pool.layout().allocator)
            .step_by(8)
            .map(|at| word(&pool, at).load(pool.medium(), Relaxed))
            .collect()
    };
    let before = own();
    let sound = word(&pool, link).load(pool.medium(), Relaxed);
    for target in [64, 4096, 8192u64] {
        let bits = (sound & !(0xff << 48 | ((1 << 41) - 1))) | target >> 3;
        let check = (0..8).fold(0, |check, byte| check ^ bits >> (8 * byte) & 0xff);
        word(&pool, link).store(pool.medium(), bits | check << 48, Relaxed);
        assert!(matches!(index.insert(&guard, &9, 9), Err(ChangeError::Damaged(_))), "{target:#x}");
        assert!(index.get_sound(&guard, &1).is_err());
    }
    assert_eq!(own(), before);
}

#[test]
fn root_with_a_changed_word_is_refused() {
    let index = art::<Dram, U64>(4 << 20);
    let pool = index.pool().clone();
    let root = pool.roots()[0].offset.unwrap();
    let words = [(3, "does not fit its check"), (4, "not of a tree for this kind of keys"), (5, "check")];
    for (nth, says) in words {
        let word = word(&pool, root + 8 * nth);
        let sound = word.load(pool.medium(), Relaxed);
        word.store(pool.medium(), sound ^ 0x1000, Relaxed);
        let Err(error) = Art::<Dram, U64>::recover(&pool, "art") else { panic!("not refused: {says}") };
        assert!(error.to_string().contains(says), "{error}");
        word.store(pool.medium(), sound, Relaxed);
    }
    assert!(Art::<Dram, U64>::recover(&pool, "art").unwrap().is_some());
}

#[test]
fn full_pool_refuses_growth_and_keeps_the_tree() {
    for keep in [0, 3, 15, 47] {
        let index = art::<Dram, U64>(1 << 20);
        let guard = index.pool().pin();
        (0..=keep).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
        let mut blocks = Vec::new();
        for bytes in [4096, 64, 16, 8] {
            blocks.extend(std::iter::from_fn(|| guard.alloc(bytes).ok()));
        }
        let refused = index.insert(&guard, &(keep + 1), 1);
        assert!(matches!(refused, Err(ChangeError::Full(_))), "{keep}: {refused:?}");
        assert_eq!((index.len(), index.verify(&guard)), (keep + 1, vec![]));
        (0..=keep).for_each(|key| assert_eq!(index.update(&guard, &key, !key), Some(key)));
        (0..=keep).for_each(|key| assert_eq!(index.remove(&guard, &key), Some(!key)));
        assert_eq!((index.len(), index.verify(&guard)), (0, vec![]));
    }
}

#[test]
fn node_shrinks_as_its_children_go() {
    let index = art::<Dram, U64>(4 << 20);
    let guard = index.pool().pin();
    (0..256).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    assert_eq!(index.stats(&guard).nodes, [0, 0, 0, 1]);
    let mut kinds = Vec::new();
    for key in 0..256 {
        index.remove(&guard, &key);
        let nodes = index.stats(&guard).nodes;
        if kinds.last().is_none_or(|(_, last)| *last != nodes) {
            kinds.push((255 - key, nodes));
        }
    }
    let expected =
        [(255, [0, 0, 0, 1]), (37, [0, 0, 1, 0]), (12, [0, 1, 0, 0]), (3, [1, 0, 0, 0]), (1, [0; 4])];
    assert_eq!(kinds, expected);
}

#[test]
fn random_place_reaches_keys_alike() {
    let index = art::<Dram, U64>(4 << 20);
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
