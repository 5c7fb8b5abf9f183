//! Tests: SPTree's accesses to its medium, counted; its memory; and damage in its nodes.

use crate::trees::{self, Model, NAME, Strings, fill, most_flushes, spread, tree};
use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::never_flushes;
use terrace_index::ordered::{OrderedKind, SpTree};
use terrace_index::{Direction, PointIndex, RangeIndex, U64};
use terrace_medium::{Dram, MappedMedium, Pmem};
use terrace_testkit::TappedShm;

fn sptree<M: MappedMedium, K: OrderedKind>(bytes: u64) -> SpTree<M, K> {
    tree(bytes)
}

/// A tree with nodes of at most so many keys.
fn narrow<K: OrderedKind>(width: usize) -> SpTree<Dram, K> {
    SpTree::with_width(&trees::pool(64 << 20), NAME, width).expect("room for a root")
}

#[test]
fn change_of_an_integer_costs_its_lines() {
    const KEYS: u64 = 20_000;
    let index: SpTree<terrace_testkit::TappedPmem, U64> = sptree(64 << 20);
    let guard = index.pool().pin();
    let add = |key: u64| _ = index.insert(&guard, &spread(key), key).unwrap();
    // Pair and tag; then the bit.
    let (most, times) = most_flushes(&index, KEYS, &add);
    assert!(most == (3, 2) && times > KEYS / 4, "inserts: {most:?}, {times} times");
    let update = |key: u64| assert_eq!(index.update(&guard, &spread(key), !key), Some(key));
    assert_eq!(most_flushes(&index, KEYS, &update), ((1, 1), KEYS), "updates");
    let remove = |key: u64| assert_eq!(index.remove(&guard, &spread(key)), Some(!key));
    let (most, times) = most_flushes(&index, KEYS, &remove);
    assert!(most == (1, 1) && times > KEYS / 4, "removals: {most:?}, {times} times");
}

#[test]
fn million_inserts_cost_at_most_4_write_backs_each() {
    trees::million_inserts_cost(&sptree(256 << 20), (4.2, 2.2), 28.0);
}

#[test]
fn gets_and_ranges_only_read() {
    trees::gets_and_ranges_only_read(&sptree(64 << 20));
}

#[test]
fn dram_and_shm_never_flush_or_fence() {
    never_flushes(&sptree::<TappedShm, U64>(64 << 20), 100_000);
}

#[test]
fn changes_deferred_are_fenced_once() {
    trees::changes_deferred_are_fenced_once(&sptree(64 << 20), 70);
}

/// Removed keys of [`tree_of_nodes`].
fn absent() -> Vec<Vec<u8>> {
    (0..28).step_by(5).map(|byte| vec![b'f', byte * 9, b'x']).chain([b"long prefix".to_vec()]).collect()
}

/// A tree of byte strings with several nodes, prefixes of each other, and removed keys.
fn tree_of_nodes() -> (SpTree<Dram, Strings>, Model) {
    let index = narrow::<Strings>(8);
    let mut keys: Vec<Vec<u8>> = (0..28).map(|byte| vec![b'f', byte * 9, b'x']).collect();
    keys.extend([7, 8, 9, 15, 16, 17, 24, 25].map(|length| vec![b's'; length]));
    keys.extend((0..9).map(|tail| [&b"edge-012"[..], &[tail]].concat()));
    keys.extend(
        [&b"edge-012"[..], b"", b"long prefix of a key, one", b"long prefix of a key, two"].map(Vec::from),
    );
    keys.extend([b"long prefix".to_vec()]);
    let mut model = fill(&index, keys);
    let guard = index.pool().pin();
    for gone in absent() {
        assert_eq!(index.remove(&guard, &gone), model.remove(&gone));
    }
    assert!(index.stats(&guard).nodes[0] > 4, "{:?}", index.stats(&guard));
    drop(guard);
    (index, model)
}

#[test]
fn changed_byte_is_an_error_or_changes_no_answer() {
    trees::changed_byte_is_an_error_or_changes_no_answer(
        tree_of_nodes(),
        &absent(),
        b"long prefix of a key, s",
        // Most slots are not in use.
        |word| word != 0,
    );
}

#[test]
fn collection_frees_nothing_behind_a_damaged_link() {
    trees::collection_frees_nothing_behind_a_damaged_link(&tree_of_nodes().0);
}

/// The link to the tree, leading to another place.
fn link_to(sound: u64, target: u64) -> u64 {
    let bits = sound & 0x7fff << 41 | target >> 3;
    bits | (trees::folded(bits) ^ 0xff) << 56
}

#[test]
fn link_into_pool_metadata_is_refused() {
    trees::link_into_pool_metadata_is_refused(&sptree(4 << 20), link_to);
}

#[test]
fn root_with_a_changed_word_is_refused() {
    trees::root_with_a_changed_word_is_refused(
        &sptree::<Dram, U64>(4 << 20),
        &[(12, "a width that no node has")],
    );
}

#[test]
fn random_place_reaches_keys_alike() {
    trees::random_place_reaches_keys_alike(&narrow::<U64>(8));
}

/// In a full pool all keys can be changed and removed; then there is room for as many again.
#[test]
fn full_pool_takes_changes_and_then_keys_again() {
    trees::takes_changes_when_full(&sptree::<Dram, U64>(1 << 20));
    trees::takes_changes_when_full(&sptree::<Pmem, U64>(1 << 20));
}

/// Adds integers and removes them, in some order: the tree has a node or two then, and the pool all
/// other memory.
#[test]
fn emptied_tree_gives_its_memory_back() {
    for width in [4, 8, 64] {
        let index = narrow::<U64>(width);
        let used = trees::used_once_emptied(&index, |nodes| nodes[0] <= 2, |nodes| 1152 * nodes[0]);
        assert!(used.iter().max().unwrap() - used.iter().min().unwrap() < 64 << 10, "{used:?}");
    }
}

/// A changed bit of a node hides its keys at most from walks from both ends.
#[test]
fn walks_from_both_ends_reach_all_but_a_damaged_node() {
    let index = narrow::<Strings>(8);
    let keys = fill(&index, (0..300).map(|n| format!("user:{n:03}").into_bytes())).len();
    let (pool, guard) = (index.pool(), index.pool().pin());
    let nodes = trees::nodes(&index);
    for at in trees::words_of(&nodes) {
        let place = trees::word(pool, at);
        let sound = place.load(pool.medium(), Relaxed);
        for bit in (0..if sound == 0 { 0 } else { 64u32 }).step_by(13) {
            place.store(pool.medium(), sound ^ 1 << bit, Relaxed);
            let damaged: SpTree<Dram, Strings> = trees::reopened(pool);
            let mut seen = HashSet::new();
            damaged.for_each(&guard, |word| _ = seen.insert(word));
            let (from, to) = (Bound::Unbounded, Bound::Unbounded);
            damaged.range(&guard, from, to, Direction::Backward, usize::MAX, |(), word| {
                seen.insert(word);
                ControlFlow::Continue(())
            });
            assert!(seen.len() + 16 > keys, "bit {bit} of the word at {at:#x}: {} keys", seen.len());
        }
        place.store(pool.medium(), sound, Relaxed);
    }
}
