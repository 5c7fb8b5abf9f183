//! Tests of `trie.rs`.

use super::super::bits::{bit, first_difference};
use super::*;
use std::collections::BTreeMap;

fn leaf(nth: u64) -> Link {
    Link::to_leaf(0, 8 + 8 * nth)
}

/// The entry that a key leads to.
fn find(trie: &Trie, key: &[u8]) -> usize {
    let asked = trie.positions.iter().fold(0, |asked, &at| asked << 1 | u32::from(bit(key, at)));
    trie.entries.iter().rposition(|entry| entry.bits & !asked == 0).unwrap()
}

/// Adds a key beside the one that it leads to.
fn add(trie: &mut Trie, keys: &mut Vec<Vec<u8>>, key: &[u8], link: Link) {
    let entry = find(trie, key);
    let at = first_difference(&keys[entry], key).unwrap();
    trie.add(entry, at, bit(key, at), link);
    let place = keys.partition_point(|other| &other[..] < key);
    keys.insert(place, key.to_vec());
}

/// A trie over these keys, which have their numbers as links, and the keys in order.
fn trie(keys: &[Vec<u8>]) -> (Trie, Vec<Vec<u8>>) {
    let at = first_difference(&keys[0], &keys[1]).unwrap();
    let (low, high) = if keys[0] < keys[1] { (0, 1) } else { (1, 0) };
    let mut trie = Trie::fork(at, leaf(low as u64), leaf(high as u64));
    let mut there = vec![keys[low].clone(), keys[high].clone()];
    for (nth, key) in keys.iter().enumerate().skip(2) {
        add(&mut trie, &mut there, key, leaf(nth as u64));
    }
    (trie, there)
}

fn check(trie: &Trie, keys: &[Vec<u8>], links: &BTreeMap<Vec<u8>, Link>) {
    assert_eq!(trie.entries.len(), keys.len());
    assert!(trie.positions.is_sorted() && trie.positions.len() < keys.len().max(2));
    assert!(trie.entries.windows(2).all(|pair| pair[0].bits < pair[1].bits), "{trie:?}");
    for (nth, key) in keys.iter().enumerate() {
        assert_eq!((find(trie, key), trie.entries[nth].link), (nth, links[key]), "{key:?}");
    }
}

/// Keys that part at bits of all kinds; some begin others.
fn keys(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut next = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    while keys.len() < count {
        let mut key = keys[next(keys.len() as u64) as usize].clone();
        let cut = next(key.len() as u64 + 1) as usize;
        key.truncate(cut);
        key.extend((0..next(4)).map(|_| [0, 1, 0x80, 0xff][next(4) as usize]));
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

#[test]
fn trie_finds_what_was_added() {
    for seed in 0..200 {
        let keys = keys(seed, 2 + seed as usize % 31);
        let links: BTreeMap<_, _> =
            keys.iter().enumerate().map(|(nth, key)| (key.clone(), leaf(nth as u64))).collect();
        let (trie, sorted) = trie(&keys);
        assert!(sorted.is_sorted());
        check(&trie, &sorted, &links);
    }
}

#[test]
fn removed_entry_leaves_the_others() {
    for seed in 0..200 {
        let keys = keys(seed, 33);
        let links: BTreeMap<_, _> =
            keys.iter().enumerate().map(|(nth, key)| (key.clone(), leaf(nth as u64))).collect();
        let (mut trie, mut sorted) = trie(&keys);
        let mut turn = seed as usize;
        while sorted.len() > 1 {
            turn = turn.wrapping_mul(7) + 3;
            let gone = turn % sorted.len();
            sorted.remove(gone);
            trie.entries[gone].link = Link::NONE;
            trie.compact();
            check(&trie, &sorted, &links);
        }
        assert_eq!(trie.positions, []);
    }
}

#[test]
fn halves_of_a_split_join_again() {
    for seed in 0..200 {
        let keys = keys(seed, 33);
        let (whole, sorted) = trie(&keys);
        let (position, low, high) = whole.clone().split();
        assert!(sorted[..low.entries.len()].iter().all(|key| !bit(key, position)));
        assert!(sorted[low.entries.len()..].iter().all(|key| bit(key, position)));
        let mut joined = Trie::fork(position, leaf(0), leaf(1));
        joined.put_in(1, &high);
        joined.put_in(0, &low);
        assert_eq!(joined, whole, "{seed}");
    }
}

#[test]
fn parted_entry_becomes_two() {
    let mut trie = Trie::fork(5, leaf(0), leaf(1));
    trie.part(0, (9, leaf(2), leaf(3)));
    trie.part(2, (7, leaf(4), leaf(5)));
    let links: Vec<Link> = trie.entries.iter().map(|entry| entry.link).collect();
    assert_eq!(links, [leaf(2), leaf(3), leaf(4), leaf(5)]);
    assert_eq!(trie.positions, [5, 7, 9]);
    assert_eq!(trie.entries.iter().map(|entry| entry.bits).collect::<Vec<_>>(), [0, 1, 4, 6]);
}

#[test]
fn nearest_entry_shares_the_longest_path() {
    for seed in 0..100 {
        let keys = keys(seed, 20);
        let (trie, sorted) = trie(&keys);
        let bits: Vec<u32> = trie.entries.iter().map(|entry| entry.bits).collect();
        let is_there = |nth: usize| (seed >> (nth % 7)) & 1 == 1 && !nth.is_multiple_of(3);
        for entry in 0..sorted.len() {
            let found = nearest(&bits, entry, is_there);
            let parted = |nth: usize| first_difference(&sorted[entry], &sorted[nth]).unwrap();
            let others = (0..sorted.len()).filter(|&nth| nth != entry && is_there(nth));
            let Some((fork, side)) = found else {
                assert_eq!(others.count(), 0);
                continue;
            };
            let at = trie.positions[trie.positions.len() - 1 - fork.ilog2() as usize];
            assert_eq!(others.map(parted).max(), Some(at));
            assert!(is_there(side.start) && parted(side.start) == at && parted(side.end - 1) == at);
        }
    }
}
