//! Tests of `floor`.

use super::*;
use crate::{Bytes, PointIndex, RecordKeys, Stored, U64};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, Offset, Word};
use terrace_pool::Pool;

/// Records of a length and a key.
struct Plain;

impl RecordKeys for Plain {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let region = guard.pool().region();
        let len = region.get(Offset::<Word>::new(offset))?.load(region.medium(), Relaxed);
        guard.bytes(offset + 8, len as usize)
    }
}

fn record(guard: &Guard<'_, Dram>, key: &[u8]) -> u64 {
    let fresh = guard.alloc(8 + key.len().next_multiple_of(8)).unwrap();
    fresh.word(0).store(guard.pool().medium(), key.len() as u64, Relaxed);
    let mut padded = key.to_vec();
    padded.resize(key.len().next_multiple_of(8), 0);
    fresh.write(8, &padded);
    fresh.fenced_later().into_offset()
}

fn art<K: OrderedKind>() -> Art<Dram, K> {
    Art::create(&Pool::anonymous(64 << 20).unwrap(), "art", 0).unwrap()
}

/// Compares the floor of each of these with a map's, while keys come, and while they go.
fn agrees_with_map<K: OrderedKind, O: Borrow<K::Key> + Ord + Clone + std::fmt::Debug>(
    keys: &[O],
    asked: &[O],
    word: impl Fn(&Guard<'_, Dram>, &O) -> u64,
) {
    let index = art::<K>();
    let guard = index.pool().pin();
    let mut map: BTreeMap<O, u64> = BTreeMap::new();
    let agree = |index: &Art<Dram, K>, map: &BTreeMap<O, u64>| {
        for key in asked {
            let expected = map.range::<O, _>(..=key).next_back().map(|(_, &word)| word);
            assert_eq!(index.tree.floor_of(&guard, key.borrow()).ok(), Some(expected), "{key:?}");
            assert_eq!(index.floor_by_walk(&guard, key.borrow()), expected, "{key:?}");
        }
    };
    for (n, key) in keys.iter().enumerate() {
        let word = word(&guard, key);
        index.insert(&guard, key.borrow(), word).unwrap();
        map.insert(key.clone(), word);
        if n % 7 == 0 {
            agree(&index, &map);
        }
    }
    agree(&index, &map);
    for (n, key) in keys.iter().enumerate() {
        index.remove(&guard, key.borrow());
        map.remove::<O>(key);
        if n % 7 == 0 {
            agree(&index, &map);
        }
    }
    agree(&index, &map);
}

#[test]
fn floor_of_integers_is_the_maps() {
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let keys: Vec<u64> = (0..200).map(spread).chain((0..100).map(|n| (1 << 40) | (n * 3))).collect();
    let near = |key: &u64| [key.wrapping_sub(1), *key, key.wrapping_add(1)];
    let asked: Vec<u64> = keys.iter().flat_map(near).chain([0, u64::MAX]).collect();
    agrees_with_map::<U64, u64>(&keys, &asked, |_, key| !key);
}

#[test]
fn floor_of_prefixes_is_the_maps() {
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    for stem in [&b"a"[..], b"ab", b"abcdefghijklmnop", b"abcdefghijklmnopqrst", b"b", &[0], &[255, 255]] {
        keys.push(stem.to_vec());
        keys.extend((0..30).map(|tail| [stem, &[tail * 8]].concat()));
        keys.extend((0..5).map(|tail| [stem, b"long tail of a key ", &[tail]].concat()));
    }
    keys.sort();
    keys.dedup();
    let mut asked = keys.clone();
    asked.extend(keys.iter().map(|key| [key, &[0][..]].concat()));
    asked.extend(keys.iter().map(|key| [key, &[255][..]].concat()));
    asked.extend(keys.iter().filter(|key| !key.is_empty()).map(|key| key[..key.len() - 1].to_vec()));
    agrees_with_map::<Bytes<Plain>, Vec<u8>>(&keys, &asked, |guard, key| record(guard, key));
}

#[test]
fn deep_tree_is_left_to_a_walk() {
    let index = art::<Bytes<Plain>>();
    let guard = index.pool().pin();
    let keys: Vec<Vec<u8>> = (0..2 * DEPTH).map(|len| vec![b'x'; len]).collect();
    let mut words = Vec::new();
    for key in &keys {
        words.push(record(&guard, key));
        index.insert(&guard, key, *words.last().unwrap()).unwrap();
    }
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(index.floor(&guard, key), Some(words[n]));
        assert_eq!(index.floor(&guard, &[key, &b"a"[..]].concat()), Some(words[n]));
    }
    assert!(index.tree.floor_of(&guard, &[b'x'; 3 * DEPTH]).is_err());
}
