//! Tests: P-HOT's accesses to its medium, counted; its memory; its shape; and damage in its nodes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::{costs_of_inserts, never_flushes};
use terrace_index::ordered::{Hot, OrderedKind};
use terrace_index::{
    Bytes, ChangeError, Decision, Deferred, Direction, Fencing, Inserted, Place, PointIndex, RangeIndex,
    Stored, Swapped, U64,
};
use terrace_medium::{Dram, MappedMedium, Offset, Pmem, Word};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped, TappedPmem, TappedShm, TestKeys, TestRecord};

type Strings = Bytes<TestRecord>;

fn pool<M: MappedMedium>(bytes: u64) -> Pool<M> {
    PoolOptions::anonymous().size(bytes).hash_seed(11).create().expect("memory for a pool")
}

fn hot<M: MappedMedium, K: OrderedKind>(bytes: u64) -> Hot<M, K> {
    Hot::create(&pool(bytes), "hot", 0).expect("room for a root")
}

/// A tree with nodes of at most so many entries.
fn small<K: OrderedKind>(entries: usize, levels: usize) -> Hot<Dram, K> {
    Hot::with_growth(&pool(16 << 20), "hot", entries, levels).expect("room for a root")
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
    index: &Hot<Tapped<V>, K>,
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
    let index = hot::<TappedPmem, U64>(64 << 20);
    let guard = index.pool().pin();
    (0..KEYS).for_each(|key| _ = index.insert(&guard, &spread(key), key).unwrap());
    let update = |key: u64| assert_eq!(index.update(&guard, &spread(key), !key), Some(key));
    assert_eq!(most_flushes(&index, KEYS, &update), ((1, 1), KEYS), "updates");
    let remove = |key: u64| assert_eq!(index.remove(&guard, &spread(key * 8)), Some(!(key * 8)));
    let (most, times) = most_flushes(&index, KEYS / 8, &remove);
    assert!(most == (1, 1) && times > KEYS / 16, "removals: {most:?}, {times} times");
    // Their entries are there still: a pair and its link.
    let insert = |key: u64| _ = index.insert(&guard, &spread(key * 8), key).unwrap();
    let (most, times) = most_flushes(&index, KEYS / 8, &insert);
    assert!(most == (2, 2) && times > KEYS / 16, "inserts: {most:?}, {times} times");
}

#[test]
fn change_of_a_byte_string_costs_one_line() {
    const KEYS: u64 = 5000;
    let index = hot::<TappedPmem, Strings>(64 << 20);
    let guard = index.pool().pin();
    let keys: Vec<_> = (0..KEYS).map(|n| Strings::key(spread(n))).collect();
    let records = |version: u64| -> Vec<u64> {
        let word = |n: usize| Strings::word(&guard, keys[n].borrow(), n as u64, version).unwrap();
        (0..keys.len()).map(word).collect()
    };
    let [first, second, third] = [1, 2, 3].map(records);
    (0..keys.len()).for_each(|n| _ = index.insert(&guard, &keys[n], first[n]).unwrap());
    let update = |n: u64| _ = index.update(&guard, &keys[n as usize], second[n as usize]).unwrap();
    assert_eq!(most_flushes(&index, KEYS, &update), ((1, 1), KEYS), "updates");
    let remove = |n: u64| _ = index.remove(&guard, &keys[n as usize * 7]).unwrap();
    let (most, times) = most_flushes(&index, KEYS / 8, &remove);
    assert!(most == (1, 1) && times > KEYS / 16, "removals: {most:?}, {times} times");
    let insert = |n: u64| _ = index.insert(&guard, &keys[n as usize * 7], third[n as usize * 7]).unwrap();
    let (most, times) = most_flushes(&index, KEYS / 8, &insert);
    assert!(most == (1, 1) && times > KEYS / 16, "inserts: {most:?}, {times} times");
}

#[test]
fn million_inserts_cost_at_most_6_7_write_backs_each() {
    const KEYS: u64 = 1_000_000;
    let index = hot::<TappedPmem, U64>(256 << 20);
    // A pin each: the nodes that are replaced are free again.
    let insert = |key: u64| {
        let guard = index.pool().pin();
        assert_eq!(index.insert(&guard, &spread(key), key).unwrap(), Inserted::New);
    };
    let (counts, ()) = index.pool().medium().during(|| (0..KEYS).for_each(insert));
    let each = |count: u64| count as f64 / KEYS as f64;
    let (write_backs, fences) = (each(counts.write_backs), each(counts.fences));
    assert!(write_backs <= 6.7 && fences <= 2.1, "{write_backs} write-backs and {fences} fences an insert");
    let stats = index.stats(&index.pool().pin());
    let bytes = stats.bytes as f64 / KEYS as f64;
    assert!(bytes <= 28.0, "{bytes} bytes a record: {stats:?}");
}

/// The keys of a workload: 24 bytes, `user` and a number of twenty digits.
fn user(n: u64) -> Vec<u8> {
    format!("user{:020}", spread(n)).into_bytes()
}

#[test]
fn byte_strings_take_twelve_bytes_each() {
    const KEYS: u64 = 200_000;
    let index = hot::<Dram, Strings>(128 << 20);
    for n in 0..KEYS {
        let guard = index.pool().pin();
        let word = Strings::word(&guard, &user(n), n, 1).unwrap();
        index.insert(&guard, &user(n), word).unwrap();
    }
    let stats = index.stats(&index.pool().pin());
    let bytes = stats.bytes as f64 / KEYS as f64;
    assert!(bytes <= 12.5, "{bytes} bytes a key: {stats:?}");
}

#[test]
fn gets_and_ranges_only_read() {
    let index = hot::<TappedPmem, U64>(64 << 20);
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
    never_flushes(&hot::<TappedShm, U64>(64 << 20), 100_000);
}

#[test]
fn changes_deferred_are_fenced_once() {
    let index = hot::<TappedPmem, Strings>(64 << 20);
    let guard = index.pool().pin();
    let words: Vec<_> =
        (0..100).map(|n| (Strings::key(n), Strings::word(&guard, &Strings::key(n), n, 1).unwrap())).collect();
    (words.iter()).for_each(|(key, word)| _ = index.insert(&guard, key, *word).unwrap());
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

/// A tree of byte strings with nodes of all layouts, keys that begin others, and entries without a
/// link.
fn tree_of_all_layouts() -> (Hot<Dram, Strings>, BTreeMap<Vec<u8>, u64>) {
    let index = hot::<Dram, Strings>(4 << 20);
    let guard = index.pool().pin();
    let mut keys: Vec<Vec<u8>> = (0..200).map(|byte| vec![b'f', byte, b'x']).collect();
    keys.extend((0..30).map(|byte| vec![b'o', byte]));
    keys.extend((1..10).map(|length| [vec![b's'; length * 40], vec![b'-']].concat()));
    keys.extend((1..4).map(|length| [vec![b't'; length * 8000], vec![b'-']].concat()));
    keys.extend([&b"o"[..], b"", b"long prefix of a key, one", b"long prefix of a key, two"].map(Vec::from));
    let mut model = BTreeMap::new();
    for (n, key) in keys.into_iter().enumerate() {
        let word = Strings::word(&guard, &key, n as u64, 1).unwrap();
        index.insert(&guard, &key, word).unwrap();
        model.insert(key, word);
    }
    for gone in (0..200).step_by(7).map(|byte| vec![b'f', byte, b'x']) {
        assert_eq!(index.remove(&guard, &gone), model.remove(&gone));
    }
    drop(guard);
    (index, model)
}

fn word<M: MappedMedium>(pool: &Pool<M>, at: u64) -> &Word {
    pool.region().at(Offset::new(at))
}

/// The blocks of the tree, with their sizes.
fn blocks(index: &Hot<Dram, Strings>) -> Vec<(u64, u64)> {
    let pool = index.pool();
    pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()))
}

/// The nodes of the tree, with their sizes.
fn nodes(index: &Hot<Dram, Strings>) -> Vec<(u64, u64)> {
    let root = index.pool().roots()[0].offset.unwrap();
    blocks(index).into_iter().filter(|&(at, bytes)| at != root && bytes < 2048).collect()
}

fn visited(
    index: &Hot<Dram, Strings>,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    direction: Direction,
) -> Vec<u64> {
    let mut found = Vec::new();
    index.range(&index.pool().pin(), from, to, direction, 9, |(), word| {
        found.push(word);
        ControlFlow::Continue(())
    });
    found
}

#[test]
fn changed_byte_is_an_error_or_changes_no_answer() {
    let (index, model) = tree_of_all_layouts();
    let pool = index.pool().clone();
    let words = nodes(&index).into_iter().flat_map(|(at, bytes)| (at..at + bytes).step_by(8));
    let absent: Vec<Vec<u8>> = (0..200).step_by(7).map(|byte| vec![b'f', byte, b'x']).collect();
    let middle = &b"o\x05"[..];
    let upper: Vec<u64> = model.range(middle.to_vec()..).map(|(_, word)| *word).collect();
    let (mut told, mut tried) = (0, 0);
    for at in words {
        let sound = word(&pool, at).load(pool.medium(), Relaxed);
        for change in
            [1, 0x80, 0xff, 0x5a].iter().flat_map(|&change| (0..8).map(move |byte| change << (8 * byte)))
        {
            // A tree that has met damage says so ever after.
            let index = Hot::<Dram, Strings>::recover(&pool, "hot").unwrap().unwrap();
            word(&pool, at).store(pool.medium(), sound ^ change, Relaxed);
            let guard = pool.pin();
            for (key, &expected) in &model {
                match index.get_sound(&guard, key) {
                    Ok(found) => assert_eq!(found, Some(expected), "{key:?}, {at:#x} changed by {change:#x}"),
                    Err(_) => told += 1,
                }
            }
            let says = |key: &Vec<u8>| index.get_sound(&guard, key);
            assert!(absent.iter().all(|key| matches!(says(key), Ok(None) | Err(_))), "{at:#x}, {change:#x}");
            drop(guard);
            let whole = visited(&index, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            assert!(
                index.damage().is_some() || whole.iter().eq(model.values()),
                "a range, {at:#x} changed by {change:#x}"
            );
            let index = Hot::<Dram, Strings>::recover(&pool, "hot").unwrap().unwrap();
            let part = visited(&index, Bound::Included(middle), Bound::Unbounded, Direction::Forward);
            assert!(index.damage().is_some() || part == upper, "a part, {at:#x} changed by {change:#x}");
            word(&pool, at).store(pool.medium(), sound, Relaxed);
            tried += 1;
        }
    }
    assert!(tried > 3000 && told > tried, "{told} errors of {tried} changes");
}

#[test]
fn verify_finds_a_changed_node() {
    let (index, model) = tree_of_all_layouts();
    let pool = index.pool().clone();
    let guard = pool.pin();
    assert_eq!((index.verify(&guard), index.len()), (vec![], model.len() as u64));
    for (at, bytes) in nodes(&index) {
        for nth in (1..bytes / 8).filter(|&nth| word(&pool, at + 8 * nth).load(pool.medium(), Relaxed) != 0) {
            let place = word(&pool, at + 8 * nth);
            let sound = place.load(pool.medium(), Relaxed);
            let index = Hot::<Dram, Strings>::recover(&pool, "hot").unwrap().unwrap();
            place.store(pool.medium(), sound ^ 1 << 18, Relaxed);
            assert_ne!(index.verify(&guard), [], "word {nth} of {bytes} bytes");
            place.store(pool.medium(), sound, Relaxed);
        }
    }
    assert_eq!(Hot::<Dram, Strings>::recover(&pool, "hot").unwrap().unwrap().verify(&guard), []);
}

#[test]
fn collection_frees_nothing_behind_a_damaged_link() {
    let (index, _) = tree_of_all_layouts();
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
    let (index, model) = tree_of_all_layouts();
    let pool = index.pool().clone();
    let guard = pool.pin();
    let (there, new) = (&b"o\x05"[..], &b"o\x05\0"[..]);
    for (at, bytes) in nodes(&index) {
        for nth in 1..bytes / 8 {
            let place = word(&pool, at + 8 * nth);
            let sound = place.load(pool.medium(), Relaxed);
            place.store(pool.medium(), sound ^ 1 << 9, Relaxed);
            let record = Strings::word(&guard, new, 1, 2).unwrap();
            match index.insert(&guard, new, record) {
                Err(ChangeError::Damaged(_)) => {}
                other => {
                    assert_eq!(other, Ok(Inserted::New), "{at:#x}, word {nth}");
                    assert_eq!(index.remove(&guard, new), Some(record));
                    // The node may have been replaced.
                }
            }
            let kept = index.get(&guard, there).is_none_or(|word| word == model[there]);
            assert!(kept, "{at:#x}, word {nth}");
            if sound ^ 1 << 9 == place.load(pool.medium(), Relaxed) {
                place.store(pool.medium(), sound, Relaxed);
            }
        }
    }
}

/// Readers make a dirty link durable and clear its bit, but a process that only reads leaves it.
#[test]
fn protected_reader_leaves_dirty_links() {
    const DIRTY: u64 = 1 << 47;
    let index = hot::<Pmem, U64>(4 << 20);
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
    let index = hot::<Dram, U64>(4 << 20);
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
    let index = hot::<Dram, U64>(4 << 20);
    let pool = index.pool().clone();
    let root = pool.roots()[0].offset.unwrap();
    let words = [
        (3, "does not fit its check"),
        (4, "not of a tree for this kind of keys"),
        (5, "check"),
        (12, "how large nodes are"),
    ];
    for (nth, says) in words {
        let word = word(&pool, root + 8 * nth);
        let sound = word.load(pool.medium(), Relaxed);
        word.store(pool.medium(), sound ^ 0x1000, Relaxed);
        let Err(error) = Hot::<Dram, U64>::recover(&pool, "hot") else { panic!("not refused: {says}") };
        assert!(error.to_string().contains(says), "{error}");
        word.store(pool.medium(), sound, Relaxed);
    }
    assert!(Hot::<Dram, U64>::recover(&pool, "hot").unwrap().is_some());
}

#[test]
fn full_pool_refuses_growth_and_keeps_the_tree() {
    for keep in [0, 1, 2, 31, 40, 200] {
        let index = hot::<Dram, U64>(1 << 20);
        let guard = index.pool().pin();
        (0..=keep).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
        let mut blocks = Vec::new();
        for bytes in [4096, 512, 256, 128, 64, 16, 8] {
            blocks.extend(std::iter::from_fn(|| guard.alloc(bytes).ok()));
        }
        let refused = index.insert(&guard, &(keep + 1), 1);
        assert!(matches!(refused, Err(ChangeError::Full(_))), "{keep}: {refused:?}");
        assert_eq!((index.len(), index.verify(&guard)), (keep + 1, vec![]));
        (0..=keep).for_each(|key| assert_eq!(index.update(&guard, &key, !key), Some(key)));
        (0..=keep).for_each(|key| assert_eq!(index.remove(&guard, &key), Some(!key)));
        assert_eq!((index.len(), index.verify(&guard)), (0, vec![]));
        assert_eq!(index.stats(&guard).nodes, [0; 4]);
    }
}

#[test]
fn node_shrinks_as_its_entries_go() {
    let index = hot::<Dram, U64>(4 << 20);
    let guard = index.pool().pin();
    (0..32).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    assert_eq!(index.stats(&guard).nodes, [0, 0, 0, 1]);
    let mut kinds = Vec::new();
    for key in 0..32 {
        index.remove(&guard, &key);
        let nodes = index.stats(&guard).nodes;
        if kinds.last().is_none_or(|(_, last)| *last != nodes) {
            kinds.push((31 - key, nodes));
        }
    }
    assert_eq!(kinds, [(31, [0, 0, 0, 1]), (16, [0, 1, 0, 0]), (8, [1, 0, 0, 0]), (1, [0; 4])]);
}

#[test]
fn entries_come_back_to_the_node_above() {
    let index = hot::<Dram, U64>(16 << 20);
    let guard = index.pool().pin();
    (0..500).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let nodes = |index: &Hot<Dram, U64>| index.stats(&guard).nodes.iter().sum::<u64>();
    assert!(nodes(&index) > 16);
    (0..500).filter(|key| key % 50 != 0).for_each(|key| _ = index.remove(&guard, &key));
    assert!(nodes(&index) <= 2);
    assert_eq!((index.len(), index.verify(&guard)), (10, vec![]));
    (0..500).for_each(|key| assert_eq!(index.get(&guard, &key), (key % 50 == 0).then_some(key)));
}

/// Removes all keys of a tree in this order, and adds them again in that, beside some others.
fn empties_and_fills(entries: usize, keys: &[u64], order: impl Fn(usize) -> usize) {
    let index = small::<U64>(entries, 2);
    let guard = index.pool().pin();
    let mut model = BTreeMap::new();
    for round in 0..3u64 {
        for (nth, &key) in keys.iter().enumerate() {
            assert_eq!(index.upsert(&guard, &key, round).unwrap(), model.insert(key, round), "{nth}");
        }
        assert_eq!(index.verify(&guard), []);
        for nth in 0..keys.len() {
            let key = keys[order(nth)];
            assert_eq!(index.remove(&guard, &key), model.remove(&key));
            assert_eq!(index.get(&guard, &key), None);
            // Where a key was, another comes, which differs from it in one bit.
            let near = key ^ 1 << (nth % 64);
            assert_eq!(index.insert(&guard, &near, 9).is_ok_and(|done| done == Inserted::New), {
                model.insert(near, 9).is_none()
            });
            model.insert(near, index.get(&guard, &near).unwrap());
            if nth % 16 == 0 {
                assert_eq!(index.verify(&guard), [], "{nth}");
            }
        }
        assert_eq!((index.verify(&guard), index.len()), (vec![], model.len() as u64));
        for key in model.keys().copied().collect::<Vec<_>>() {
            assert!(index.remove(&guard, &key).is_some() && model.remove(&key).is_some());
        }
        assert_eq!((index.len(), index.stats(&guard).nodes), (0, [0; 4]));
    }
}

#[test]
fn places_without_a_link_are_used_again() {
    let dense: Vec<u64> = (0..300).collect();
    let sparse: Vec<u64> = (0..300).map(spread).collect();
    for entries in [2, 3, 4, 7, 32] {
        for keys in [&dense, &sparse] {
            empties_and_fills(entries, keys, |nth| nth);
            empties_and_fills(entries, keys, |nth| 299 - nth);
            empties_and_fills(entries, keys, |nth| nth * 7 % 300);
        }
    }
}

/// The next key has one more bit in common with the last each time: each node is the only child of
/// the one above.
#[test]
fn caterpillar_grows_by_nodes_in_between() {
    for levels in [1, 2, 12] {
        let index = small::<Strings>(2, levels);
        let guard = index.pool().pin();
        let keys: Vec<Vec<u8>> = (0..300).map(|length| vec![0xff; length]).collect();
        for (n, key) in keys.iter().enumerate().rev() {
            let word = Strings::word(&guard, key, n as u64, 1).unwrap();
            assert_eq!(index.insert(&guard, key, word), Ok(Inserted::New));
        }
        assert_eq!((index.verify(&guard), index.len()), (vec![], 300));
        let words = |index: &Hot<Dram, Strings>, direction| {
            let words = visited(index, Bound::Unbounded, Bound::Unbounded, direction);
            words.into_iter().map(|word| Strings::read(&guard, word).0).collect::<Vec<_>>()
        };
        assert!(words(&index, Direction::Forward).into_iter().eq(0..300));
        assert!(words(&index, Direction::Backward).into_iter().eq((0..300).rev()));
        keys.iter().for_each(|key| assert!(index.remove(&guard, key).is_some()));
        assert_eq!((index.len(), index.stats(&guard).nodes), (0, [0; 4]));
    }
}

/// A record's key has changed, so that the ways of the tree contradict it: an error, and no loop.
#[test]
fn changed_key_of_a_record_ends_no_insert_in_a_loop() {
    let index = hot::<Dram, Strings>(4 << 20);
    let guard = index.pool().pin();
    let keys: Vec<Vec<u8>> = (0..64u8).map(|n| vec![n, b'-', n]).collect();
    let mut words = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        words.push(Strings::word(&guard, key, n as u64, 1).unwrap());
        index.insert(&guard, key, words[n]).unwrap();
    }
    (0..64).step_by(4).for_each(|n| _ = index.remove(&guard, &keys[n]));
    for n in (0..64).filter(|n| n % 4 != 0) {
        let key = word(index.pool(), words[n] + 24);
        let sound = key.load(index.pool().medium(), Relaxed);
        for change in [1, 0x80, 0xff00, 0x40_0000] {
            key.store(index.pool().medium(), sound ^ change, Relaxed);
            for new in (0..64u8).flat_map(|n| [vec![n, b'-', n], vec![n, b'-', n, 0], vec![n]]) {
                let never = |_| Decision::Keep;
                let _ = index.change(&guard, &new, Fencing::Now, never);
                let record = Strings::word(&guard, &new, 99, 9).unwrap();
                if index.insert(&guard, &new, record) == Ok(Inserted::New) {
                    index.remove(&guard, &new);
                }
            }
            key.store(index.pool().medium(), sound, Relaxed);
        }
    }
}

#[test]
fn random_place_reaches_keys_alike() {
    let index = hot::<Dram, U64>(4 << 20);
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
    assert!(before[0] > 0 && before[1] < 400, "{before:?}");
}
