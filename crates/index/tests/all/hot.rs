//! Tests: P-HOT's accesses to its medium, counted; its memory; its shape; and damage in its nodes.

use crate::trees::{self, Model, NAME, Strings, fill, most_flushes, nodes, spread, tree, visited, word};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::never_flushes;
use terrace_index::ordered::{Hot, OrderedKind};
use terrace_index::{ChangeError, Decision, Direction, Fencing, Inserted, PointIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium};
use terrace_testkit::{TappedPmem, TappedShm, TestKeys};

fn hot<M: MappedMedium, K: OrderedKind>(bytes: u64) -> Hot<M, K> {
    tree(bytes)
}

/// A tree with nodes of at most so many entries.
fn small<K: OrderedKind>(entries: usize, levels: usize) -> Hot<Dram, K> {
    Hot::with_growth(&trees::pool(16 << 20), NAME, entries, levels).expect("room for a root")
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
    trees::million_inserts_cost(&hot(256 << 20), (6.7, 2.1), 28.0);
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
    trees::gets_and_ranges_only_read(&hot(64 << 20));
}

#[test]
fn dram_and_shm_never_flush_or_fence() {
    never_flushes(&hot::<TappedShm, U64>(64 << 20), 100_000);
}

#[test]
fn changes_deferred_are_fenced_once() {
    trees::changes_deferred_are_fenced_once(&hot(64 << 20), 1);
}

/// Removed keys of [`tree_of_all_layouts`].
fn absent() -> Vec<Vec<u8>> {
    (0..200).step_by(7).map(|byte| vec![b'f', byte, b'x']).collect()
}

/// A tree of byte strings with nodes of all layouts, keys that begin others, and entries without a
/// link.
fn tree_of_all_layouts() -> (Hot<Dram, Strings>, Model) {
    let index = hot::<Dram, Strings>(4 << 20);
    let mut keys: Vec<Vec<u8>> = (0..200).map(|byte| vec![b'f', byte, b'x']).collect();
    keys.extend((0..30).map(|byte| vec![b'o', byte]));
    keys.extend((1..10).map(|length| [vec![b's'; length * 40], vec![b'-']].concat()));
    keys.extend((1..4).map(|length| [vec![b't'; length * 8000], vec![b'-']].concat()));
    keys.extend([&b"o"[..], b"", b"long prefix of a key, one", b"long prefix of a key, two"].map(Vec::from));
    let mut model = fill(&index, keys);
    let guard = index.pool().pin();
    for gone in absent() {
        assert_eq!(index.remove(&guard, &gone), model.remove(&gone));
    }
    drop(guard);
    (index, model)
}

#[test]
fn changed_byte_is_an_error_or_changes_no_answer() {
    trees::changed_byte_is_an_error_or_changes_no_answer(tree_of_all_layouts(), &absent(), b"o\x05", |_| {
        true
    });
}

#[test]
fn verify_finds_a_changed_node() {
    trees::verify_finds_a_change(tree_of_all_layouts(), 1 << 18, |_, _| true);
}

#[test]
fn collection_frees_nothing_behind_a_damaged_link() {
    trees::collection_frees_nothing_behind_a_damaged_link(&tree_of_all_layouts().0);
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

#[test]
fn protected_reader_leaves_dirty_links() {
    trees::protected_reader_leaves_dirty_links(&hot(4 << 20));
}

#[test]
fn link_into_pool_metadata_is_refused() {
    trees::link_into_pool_metadata_is_refused(&hot(4 << 20), trees::link_to);
}

#[test]
fn root_with_a_changed_word_is_refused() {
    trees::root_with_a_changed_word_is_refused(&hot::<Dram, U64>(4 << 20), &[(12, "how large nodes are")]);
}

#[test]
fn full_pool_refuses_growth_and_keeps_the_tree() {
    trees::full_pool_refuses_growth_and_keeps_the_tree::<Hot<Dram, U64>>(
        [0, 1, 2, 31, 40, 200],
        &[4096, 512, 256, 128, 64, 16, 8],
        0,
    );
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
            let words = visited(index, (Bound::Unbounded, Bound::Unbounded), direction);
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
fn link_that_looks_dirty_ends_no_change_in_a_loop() {
    trees::link_that_looks_dirty_ends_no_change_in_a_loop(|| small::<Strings>(3, 2));
}

/// A reader that is pinned may still be at what goes: its memory is not used again.
#[test]
fn blocks_that_a_reader_may_be_at_are_not_used_again() {
    let index = hot::<Dram, U64>(16 << 20);
    let pool = index.pool().clone();
    let blocks = || pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
    (0..200).for_each(|key| _ = index.insert(&pool.pin(), &spread(key), key).unwrap());
    let before = blocks();
    let guard = pool.pin();
    (200..230).for_each(|key| _ = index.insert(&guard, &spread(key), key).unwrap());
    (0..150).for_each(|key| assert_eq!(index.remove(&guard, &spread(key)), Some(key)));
    let after = blocks();
    let gone: Vec<(u64, u64)> = before.into_iter().filter(|block| !after.contains(block)).collect();
    let pairs = gone.iter().filter(|(_, bytes)| *bytes == 16).count();
    assert!(pairs == 150 && gone.len() > 155, "{pairs} pairs of {} blocks", gone.len());
    let sizes: BTreeSet<u64> = gone.iter().map(|(_, bytes)| *bytes).collect();
    for bytes in sizes {
        // More than there are in a slab.
        let new = Vec::from_iter((0..1500).map(|_| guard.alloc(bytes as usize).unwrap()));
        let is_gone = |at| gone.iter().any(|block| block.0 == at);
        assert!(!new.iter().any(|block| is_gone(block.offset())), "blocks of {bytes} bytes");
    }
}

#[test]
fn random_place_reaches_keys_alike() {
    trees::random_place_reaches_keys_alike(&hot(4 << 20));
}
