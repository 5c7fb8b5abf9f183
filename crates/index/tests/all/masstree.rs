//! Tests: P-Masstree's accesses to its medium, counted; its memory; its layers; and damage in its
//! nodes.

use crate::trees::{self, Model, NAME, Strings, fill, nodes, tree, word, words_of};
use std::sync::atomic::Ordering::Relaxed;
use terrace_conformance::never_flushes;
use terrace_index::ordered::{Masstree, OrderedKind};
use terrace_index::{ChangeError, Decision, Fencing, Inserted, PointIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem};
use terrace_testkit::{TappedShm, TestKeys};

fn masstree<M: MappedMedium, K: OrderedKind>(bytes: u64) -> Masstree<M, K> {
    tree(bytes)
}

/// A tree with nodes of at most so many entries.
fn narrow<K: OrderedKind>(width: usize) -> Masstree<Dram, K> {
    Masstree::with_width(&trees::pool(64 << 20), NAME, width).expect("room for a root")
}

#[test]
fn change_of_an_integer_costs_its_lines() {
    trees::change_of_an_integer_costs(&masstree(64 << 20), 2);
}

#[test]
fn change_of_a_byte_string_costs_its_lines() {
    trees::change_of_a_byte_string_costs(&masstree(64 << 20), 2);
}

#[test]
fn million_inserts_cost_at_most_2_8_write_backs_each() {
    // On aarch64 the streamed lines of new nodes are written back, too.
    let most = if cfg!(target_arch = "aarch64") { 3.5 } else { 2.8 };
    trees::million_inserts_cost(&masstree(256 << 20), (most, 2.35), 34.0);
}

#[test]
fn gets_and_ranges_only_read() {
    trees::gets_and_ranges_only_read(&masstree(64 << 20));
}

#[test]
fn dram_and_shm_never_flush_or_fence() {
    never_flushes(&masstree::<TappedShm, U64>(64 << 20), 100_000);
}

#[test]
fn changes_deferred_are_fenced_once() {
    // In leaves of their own: a thread does not build upon a leaf's changes before they are
    // durable.
    trees::changes_deferred_are_fenced_once(&masstree(64 << 20), 20);
}

/// Removed keys of [`tree_with_layers`].
fn absent() -> Vec<Vec<u8>> {
    (0..28).step_by(5).map(|byte| vec![b'f', byte * 9, b'x']).chain([b"long prefix".to_vec()]).collect()
}

/// A tree of byte strings with three levels, layers below each other, keys that end at the edge of
/// a slice beside keys that go on there, and removed keys.
fn tree_with_layers() -> (Masstree<Dram, Strings>, Model) {
    let index = narrow::<Strings>(4);
    let mut keys: Vec<Vec<u8>> = (0..28).map(|byte| vec![b'f', byte * 9, b'x']).collect();
    keys.extend([7, 8, 9, 15, 16, 17, 24, 25].map(|length| vec![b's'; length]));
    keys.extend((0..9).map(|tail| [&b"edge-012"[..], &[tail]].concat()));
    keys.extend(
        [&b"edge-012"[..], b"", b"long prefix of a key, one", b"long prefix of a key, two"].map(Vec::from),
    );
    let mut model = fill(&index, keys);
    let guard = index.pool().pin();
    for gone in absent() {
        assert_eq!(index.remove(&guard, &gone), model.remove(&gone));
    }
    assert!(index.stats(&guard).nodes[1] > 3, "{:?}", index.stats(&guard));
    drop(guard);
    (index, model)
}

#[test]
fn changed_byte_is_an_error_or_changes_no_answer() {
    trees::changed_byte_is_an_error_or_changes_no_answer(
        tree_with_layers(),
        &absent(),
        b"long prefix of a key, s",
        |_| true,
    );
}

#[test]
fn verify_finds_a_changed_head_or_last_word() {
    // The shape, the state, the permutation, and the end of a node's range.
    trees::verify_finds_a_change(tree_with_layers(), 1 << 20, |_, nth| (1..=4).contains(&nth));
}

#[test]
fn collection_frees_nothing_behind_a_damaged_link() {
    trees::collection_frees_nothing_behind_a_damaged_link(&tree_with_layers().0);
}

/// Writers meet a changed byte. Nothing panics or hangs, and what they change is right unless they,
/// or a check, say that the tree is damaged.
#[test]
fn writers_survive_a_changed_byte() {
    let mut tried = 0;
    for nth in 0.. {
        let (index, mut model) = tree_with_layers();
        let pool = index.pool().clone();
        let nodes = nodes(&index);
        let Some(at) = words_of(&nodes).filter(|at| at % 64 != 0).nth(nth) else { break };
        let place = word(&pool, at);
        let change = [1, 0x80, 0xff, 0x5a][nth / 8 % 4] << (8 * (nth % 8));
        place.store(pool.medium(), place.load(pool.medium(), Relaxed) ^ change, Relaxed);
        let is_told = change_all(&index, &mut model);
        let guard = pool.pin();
        let is_right = |(key, word): (&Vec<u8>, &u64)| index.get_sound(&guard, key) == Ok(Some(*word));
        let all_right = model.iter().all(is_right);
        let is_found = is_told || index.damage().is_some() || !index.verify(&guard).is_empty();
        assert!(all_right || is_found, "{at:#x} changed by {change:#x}: a wrong answer of a sound tree");
        tried += 1;
    }
    assert!(tried > 200, "{tried} words");
}

/// Adds keys everywhere, updates some, and removes some. Returns whether one of them was refused.
fn change_all(index: &Masstree<Dram, Strings>, model: &mut Model) -> bool {
    let guard = index.pool().pin();
    let mut is_told = false;
    let mut new: Vec<Vec<u8>> = (0..14).map(|n| vec![b'f', n * 18 + 1, b'y']).collect();
    new.extend([10, 14, 18, 26].map(|length| vec![b's'; length]));
    new.extend([&b"edge-012-"[..], b"edge-0", b"long prefix of a key, three", b"long prefix"].map(Vec::from));
    for (n, key) in new.into_iter().enumerate() {
        let record = Strings::word(&guard, &key, 900 + n as u64, 1).unwrap();
        match index.insert(&guard, &key, record) {
            Ok(Inserted::New) => _ = model.insert(key, record),
            other => is_told |= matches!(other, Err(ChangeError::Damaged(_))),
        }
    }
    for (n, key) in model.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
        let present = model.get(&key).copied();
        if n % 3 == 1 {
            let record = Strings::word(&guard, &key, n as u64, 2).unwrap();
            match index.update(&guard, &key, record) {
                found if found == present => _ = model.insert(key, record),
                _ => is_told = true,
            }
        } else if n % 3 == 2 {
            match index.remove(&guard, &key) {
                found if found == present => _ = model.remove(&key),
                _ => is_told = true,
            }
        }
    }
    is_told
}

/// A record's key has changed, so that the ways of the tree contradict it: an error, and no loop.
#[test]
fn changed_key_of_a_record_ends_no_insert_in_a_loop() {
    let (index, model) = tree_with_layers();
    let guard = index.pool().pin();
    for (key, record) in &model {
        for at in (0..key.len() as u64).step_by(8).map(|at| record + 24 + at).chain([*record]) {
            let place = word(index.pool(), at);
            let sound = place.load(index.pool().medium(), Relaxed);
            for change in [1, 0x80, 0xff00, 0x40_0000] {
                place.store(index.pool().medium(), sound ^ change, Relaxed);
                let longer = [&key[..], b"-"].concat();
                for new in [&key[..], &longer, &[&key[..], &[0; 9]].concat(), b"long prefix off", b"edge-012"]
                {
                    let _ = index.change(&guard, new, Fencing::Now, |_| Decision::Keep);
                    let record = Strings::word(&guard, new, 99, 9).unwrap();
                    if index.insert(&guard, new, record) == Ok(Inserted::New) {
                        index.remove(&guard, new);
                    }
                }
                place.store(index.pool().medium(), sound, Relaxed);
            }
        }
    }
}

/// The link to the tree, leading to another place.
fn link_to(sound: u64, target: u64) -> u64 {
    let bits = sound & 0xf << 52 | target >> 3;
    bits | trees::folded(bits) << 56
}

#[test]
fn link_into_pool_metadata_is_refused() {
    trees::link_into_pool_metadata_is_refused(&masstree(4 << 20), link_to);
}

#[test]
fn root_with_a_changed_word_is_refused() {
    trees::root_with_a_changed_word_is_refused(
        &masstree::<Dram, U64>(4 << 20),
        &[(12, "a width that no node has")],
    );
}

#[test]
fn full_pool_refuses_growth_and_keeps_the_tree() {
    trees::full_pool_refuses_growth_and_keeps_the_tree::<Masstree<Dram, U64>>(
        [14, 29, 224],
        &[4096, 320, 64, 8],
        5,
    );
}

/// In a full pool all keys can be changed and removed; then there is room for as many again.
#[test]
fn full_pool_takes_changes_and_then_keys_again() {
    trees::takes_changes_when_full(&masstree::<Dram, U64>(1 << 20));
    trees::takes_changes_when_full(&masstree::<Pmem, U64>(1 << 20));
}

/// Adds integers and removes them, in some order: the tree has a leaf or two then, and the pool all
/// other memory.
#[test]
fn emptied_tree_gives_its_memory_back() {
    for width in [3, 4, 15] {
        let index = narrow::<U64>(width);
        // The first and the last node of each level stay.
        let is_small = |nodes: [u64; 4]| nodes[0] <= 2 && nodes[1] <= 2 * 11;
        let used = trees::used_once_emptied(&index, is_small, |nodes| 320 * (nodes[0] + nodes[1]));
        assert_eq!(used.iter().max(), used.iter().min(), "{used:?}");
    }
}
