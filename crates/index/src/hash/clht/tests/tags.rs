//! Tests of `tags.rs`.

use super::super::super::packed::OFFSET;
use super::super::super::test_pools::pool;
use super::super::ops::Clht;
use super::*;
use crate::key::WordRecords;
use crate::{Damage, KeyKind, PointIndex, Stored};
use std::collections::HashMap;
use terrace_medium::Dram;

type Strings = Bytes<WordRecords>;
type Index = Clht<Dram, Strings>;

/// An index of eight buckets.
fn empty() -> Index {
    Index::create(&pool(1 << 20), "index", 0).unwrap()
}

fn insert(index: &Index, key: u64) -> u64 {
    let guard = index.pool.pin();
    let record = WordRecords::put(&guard, key);
    index.insert(&guard, &key.to_le_bytes(), record).unwrap();
    record
}

fn get_sound(index: &Index, key: u64) -> Result<Option<u64>, u64> {
    let found = index.get_sound(&index.pool.pin(), &key.to_le_bytes());
    found.map_err(|Damage { offset, .. }| offset)
}

fn hash(index: &Index, key: u64) -> u64 {
    Strings::hash(&key.to_le_bytes(), index.seed)
}

/// Two keys with the same tag in one bucket.
fn keys_of_one_tag(index: &Index) -> [u64; 2] {
    let (mut seen, table) = (HashMap::new(), index.view().current);
    let place = |hash| (table.index(hash), tag(hash, table));
    (1..).find_map(|key| Some([seen.insert(place(hash(index, key)), key)?, key])).unwrap()
}

#[test]
fn damaged_slot_is_reported() {
    for bit in [0, 7, 40, 41, 45, 48, 49, 63] {
        let index = empty();
        let record = insert(&index, 7);
        let table = index.view().current;
        let bucket = index.pool.region().at(table.bucket(table.index(hash(&index, 7))));
        let sound = slot_word(bucket, 0).load(index.pool.medium(), Relaxed);
        slot_word(bucket, 0).store(index.pool.medium(), sound ^ 1 << bit, Relaxed);
        assert_eq!(index.get(&index.pool.pin(), &7u64.to_le_bytes()), None, "bit {bit}");
        let told = if bit <= 40 { record ^ 8 << bit } else { record };
        assert_eq!(get_sound(&index, 7), Err(told), "bit {bit}");
        slot_word(bucket, 0).store(index.pool.medium(), sound, Relaxed);
        assert_eq!((get_sound(&index, 7), get_sound(&index, 8)), (Ok(Some(record)), Ok(None)));
    }
}

#[test]
fn keys_of_one_tag_are_distinguished() {
    let index = empty();
    let guard = index.pool.pin();
    let [one, other] = keys_of_one_tag(&index);
    let (first, mut found) = (insert(&index, one), None);
    assert_eq!((get_sound(&index, one), get_sound(&index, other)), (Ok(Some(first)), Ok(None)));
    let second = insert(&index, other);
    assert_eq!((get_sound(&index, one), get_sound(&index, other)), (Ok(Some(first)), Ok(Some(second))));
    index.get_many(&guard, [&other.to_le_bytes()[..]], |_, word| found = word);
    assert_eq!((found, index.verify(&guard)), (Some(second), vec![]));
    assert_eq!(index.remove(&guard, &other.to_le_bytes()), Some(second));
    assert_eq!(get_sound(&index, other), Ok(None));
    // The remains of the first may belong to either.
    WordRecords::erase(&guard, first);
    assert_eq!((get_sound(&index, one), get_sound(&index, other)), (Err(first), Err(first)));
    let table = index.view().current;
    let neighbour = |&key: &u64| {
        let [here, there] = [one, key].map(|key| hash(&index, key));
        table.index(here) == table.index(there) && tag(here, table) != tag(there, table)
    };
    let neighbour = (1..).find(neighbour).unwrap();
    assert_eq!(get_sound(&index, neighbour), Ok(None));
}

#[test]
#[should_panic(expected = "cannot be a word of this index")]
fn insert_refuses_a_word_that_is_no_offset() {
    let index = empty();
    let _ = index.insert(&index.pool.pin(), b"key", 12);
}

#[test]
#[should_panic(expected = "cannot be a word of this index")]
fn update_refuses_a_word_that_is_no_offset() {
    let index = empty();
    insert(&index, 7);
    let _ = index.update(&index.pool.pin(), &7u64.to_le_bytes(), 12);
}

#[test]
fn update_replaces_the_record() {
    let index = empty();
    let guard = index.pool.pin();
    let (first, second) = (insert(&index, 7), WordRecords::put(&guard, 7));
    assert_eq!(index.update(&guard, &7u64.to_le_bytes(), second), Some(first));
    assert_eq!((get_sound(&index, 7), index.verify(&guard)), (Ok(Some(second)), vec![]));
}

#[test]
fn same_key_compares_records() {
    let index = empty();
    let (guard, table) = (index.pool.pin(), index.view().current);
    let [one, other] = keys_of_one_tag(&index);
    let put = |key: u64| Entry { key: tag(hash(&index, key), table), word: WordRecords::put(&guard, key) };
    let is_same = |one, other| {
        let same = Strings::same_key(&guard, one, other);
        assert_eq!(Strings::same_key(&guard, other, one), same);
        same
    };
    assert!(is_same(put(one), put(one)) && !is_same(put(one), put(other)));
    assert!(!is_same(put(one), Entry { key: put(one).key ^ 1, ..put(one) }));
}

#[test]
fn slot_moves_without_its_record_within_a_window() {
    let index = empty();
    let guard = index.pool.pin();
    let table = |log2| Table::new(1 << 12, log2);
    let by_record = |from, to| Strings::relocates_by_record(table(from), table(to));
    let doublings: Vec<u32> = (3..16).filter(|&log2| by_record(log2, log2 + 1)).collect();
    assert_eq!(doublings, [3, 7, 11, 15]);
    assert!(!(4..16).any(|log2| by_record(log2, log2 - 1) || by_record(log2, log2)));
    for key in 1..200 {
        let [record, gone] = [WordRecords::put(&guard, key), WordRecords::put(&guard, key)];
        WordRecords::erase(&guard, gone);
        let hash = hash(&index, key);
        for (from, to) in (3..16).flat_map(|from| (from.max(6) - 3..=from + 1).map(move |to| (from, to))) {
            let (from, to) = (table(from), table(to));
            let entry = Entry { key: tag(hash, from), word: record };
            let moved = |entry| {
                let (hash, entry) =
                    Strings::relocate(&guard, entry, (from, from.index(hash)), to, index.seed)?;
                Some((to.index(hash), entry))
            };
            let expected = Some((to.index(hash), Entry { key: tag(hash, to), word: record }));
            assert_eq!(moved(entry), expected, "key {key}");
            let without = expected.map(|(index, entry)| (index, Entry { word: gone, ..entry }));
            let without = without.filter(|_| !Strings::relocates_by_record(from, to));
            assert_eq!(moved(Entry { word: gone, ..entry }), without, "key {key}");
            assert_eq!(moved(Entry { word: record | DAMAGED, ..entry }), None);
        }
    }
}

#[test]
fn slot_with_a_changed_byte_stays_damaged() {
    let mut word = 0x1357_9bdf_2468_ace0_u64;
    for _ in 0..200 {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let entry = Entry { key: word >> HASH_AT, word: ((word & OFFSET) << 3).max(8) };
        let slot = pack(entry);
        assert!(slot != 0 && is_whole(slot) && unpack(slot) == entry);
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            let damaged = slot ^ flip << (8 * byte);
            assert!(!is_whole(damaged), "{slot:#x} and {damaged:#x}");
            let again = pack(unpack(damaged));
            assert!(!is_whole(again) && unpack(again) == unpack(damaged));
        }
    }
}
