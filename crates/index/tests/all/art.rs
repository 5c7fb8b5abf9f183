//! Tests: P-ART's accesses to its medium, counted; its memory; and damage in its nodes.

use crate::trees::{self, Model, Strings, fill, nodes, tree, word};
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::never_flushes;
use terrace_index::ordered::{Art, OrderedKind};
use terrace_index::{ChangeError, Place, PointIndex, U64};
use terrace_medium::{Dram, MappedMedium};
use terrace_testkit::{TappedShm, TestKeys};

fn art<M: MappedMedium, K: OrderedKind>(bytes: u64) -> Art<M, K> {
    tree(bytes)
}

#[test]
fn change_of_an_integer_costs_its_lines() {
    trees::change_of_an_integer_costs(&art(64 << 20), 2);
}

#[test]
fn change_of_a_byte_string_costs_one_line() {
    trees::change_of_a_byte_string_costs(&art(64 << 20), 1);
}

#[test]
fn million_inserts_cost_at_most_2_7_write_backs_each() {
    // On aarch64 the streamed lines of new nodes are written back, too.
    let most = if cfg!(target_arch = "aarch64") { 4.2 } else { 2.7 };
    trees::million_inserts_cost(&art(256 << 20), (most, 2.1), 46.0);
}

#[test]
fn gets_and_ranges_only_read() {
    trees::gets_and_ranges_only_read(&art(64 << 20));
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
    trees::changes_deferred_are_fenced_once(&art(64 << 20), 1);
}

/// A tree of byte strings in which each kind of node occurs, a node with a long prefix, and keys
/// that end at nodes.
fn tree_of_all_kinds() -> (Art<Dram, Strings>, Model) {
    let index = art::<Dram, Strings>(4 << 20);
    let mut keys: Vec<Vec<u8>> = (0..200).map(|byte| vec![b'f', byte, b'x']).collect();
    keys.extend((0..30).map(|byte| vec![b'o', byte]));
    keys.extend((0..10).map(|byte| vec![b's', b'-', byte]));
    keys.extend((0..15).map(|byte| vec![b't', byte]));
    keys.extend([&b"o"[..], b"", b"long prefix of a key, one", b"long prefix of a key, two"].map(Vec::from));
    let model = fill(&index, keys);
    let stats = index.stats(&index.pool().pin());
    assert!(stats.nodes.iter().all(|&nodes| nodes > 0), "{stats:?}");
    (index, model)
}

#[test]
fn changed_byte_is_an_error_or_changes_no_answer() {
    let absent = [&b"f"[..], b"o\x1f", b"s-", b"long prefix of a key"].map(Vec::from);
    trees::changed_byte_is_an_error_or_changes_no_answer(tree_of_all_kinds(), &absent, b"o\x05", |sound| {
        sound != 0
    });
}

#[test]
fn verify_finds_a_changed_link_or_head() {
    let is_checked = |bytes: u64, nth: u64| match bytes {
        576 => nth < 4 || (8..72).contains(&nth),
        2304 => nth < 4 || (8..264).contains(&nth),
        64 | 128 | 192 => true,
        _ => false,
    };
    trees::verify_finds_a_change(tree_of_all_kinds(), 1 << 20, is_checked);
}

#[test]
fn collection_frees_nothing_behind_a_damaged_link() {
    trees::collection_frees_nothing_behind_a_damaged_link(&tree_of_all_kinds().0);
}

#[test]
fn writers_refuse_damaged_nodes() {
    let (index, model) = tree_of_all_kinds();
    let pool = index.pool().clone();
    let guard = pool.pin();
    let key = b"o\x05";
    // The node of kind 64 behind 'o', and the link of key "o\x05" in it.
    let node = nodes(&index).into_iter().find(|(_, bytes)| *bytes == 576).unwrap().0;
    for (nth, sound) in [1, 8 + 45].map(|nth| (nth, word(&pool, node + 8 * nth).load(pool.medium(), Relaxed)))
    {
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

#[test]
fn protected_reader_leaves_dirty_links() {
    trees::protected_reader_leaves_dirty_links(&art(4 << 20));
}

#[test]
fn link_into_pool_metadata_is_refused() {
    trees::link_into_pool_metadata_is_refused(&art(4 << 20), trees::link_to);
}

#[test]
fn root_with_a_changed_word_is_refused() {
    trees::root_with_a_changed_word_is_refused(&art::<Dram, U64>(4 << 20), &[]);
}

#[test]
fn full_pool_refuses_growth_and_keeps_the_tree() {
    trees::full_pool_refuses_growth_and_keeps_the_tree::<Art<Dram, U64>>(
        [0, 3, 11, 19, 55],
        &[4096, 64, 16, 8],
        0,
    );
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
        [(255, [0, 0, 0, 1]), (40, [0, 0, 1, 0]), (16, [0, 1, 0, 0]), (3, [1, 0, 0, 0]), (1, [0; 4])];
    assert_eq!(kinds, expected);
}

#[test]
fn random_place_reaches_keys_alike() {
    trees::random_place_reaches_keys_alike(&art(4 << 20));
}

#[test]
fn link_that_looks_dirty_ends_no_change_in_a_loop() {
    trees::link_that_looks_dirty_ends_no_change_in_a_loop(|| art::<Dram, Strings>(1 << 20));
}

/// Records in the middle of the tree, more than a scan takes at a time, now have keys before all
/// others. A scan ends, and visits each record once.
#[test]
fn scan_ends_where_keys_are_out_of_order() {
    const TEXT: u64 = 24;
    let index = art::<Dram, Strings>(1 << 20);
    let model = fill(&index, (0..60).map(|n| format!("key{n:05}").into_bytes()));
    let (pool, guard) = (index.pool(), index.pool().pin());
    for damaged in model.values().skip(20).take(10) {
        word(pool, damaged + TEXT).store(pool.medium(), 0, Relaxed);
    }
    let (mut place, mut words) = (Place::Start, Vec::new());
    while !place.is_end() && words.len() <= 60 {
        place = index.scan(&guard, &place, 8, |word| words.push(word));
    }
    assert!(words.into_iter().eq(model.into_values()));
}
