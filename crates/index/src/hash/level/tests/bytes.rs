//! Tests of `bytes.rs`.

use super::super::super::test_pools::{Medium, Power, pool};
use super::super::ops::Level;
use super::*;
use crate::key::{NoRecords, WordRecords};
use crate::{Damage, PointIndex, Stored};
use std::collections::HashMap;
use terrace_medium::Dram;

type Kind = Bytes<NoRecords>;
type Strings = Bytes<WordRecords>;
/// A table of three buckets: each key has two, the upper one of its position and the lowest.
type Table = Level<Dram, Strings>;

fn empty() -> Table {
    Table::create(&pool(1 << 20), "table", 0).unwrap()
}

fn insert(table: &Table, key: u64) -> u64 {
    let guard = table.units.pool.pin();
    let record = WordRecords::put(&guard, key);
    table.insert(&guard, &key.to_le_bytes(), record).unwrap();
    record
}

fn get_sound(table: &Table, key: u64) -> Result<Option<u64>, u64> {
    let found = table.get_sound(&table.units.pool.pin(), &key.to_le_bytes());
    found.map_err(|Damage { offset, .. }| offset)
}

/// Two keys with the same tag in one bucket.
fn keys_of_one_tag(seed: u64) -> [u64; 2] {
    let mut seen = HashMap::new();
    let probe = |key: u64| {
        let key = key.to_le_bytes();
        let probe = Probe::<Strings>::new(&key[..], seed);
        (probe.tag, probe.positions.map(|position| position >> 63))
    };
    (1..).find_map(|key| Some([seen.insert(probe(key), key)?, key])).unwrap()
}

/// The only occupied slot, and its bucket.
fn slot(table: &Table) -> (&Bucket, usize) {
    let view = table.units.view();
    let buckets = [view.high.bucket(0), view.high.bucket(1), view.mid.bucket(0)];
    let taken = buckets.into_iter().find_map(|at| {
        let bucket = table.units.bucket(at);
        let tokens = meta(table.units.pool.medium(), bucket).tokens::<Strings>();
        (tokens != 0).then_some((bucket, tokens.trailing_zeros() as usize))
    });
    taken.unwrap()
}

#[test]
fn damaged_slot_is_reported() {
    for bit in [0, 7, 40, 41, 45, 48, 49, 63] {
        let table = empty();
        let record = insert(&table, 7);
        let (bucket, nth) = slot(&table);
        let sound = slot_word(bucket, nth).load(table.units.pool.medium(), Relaxed);
        slot_word(bucket, nth).store(table.units.pool.medium(), sound ^ 1 << bit, Relaxed);
        assert_eq!(table.get(&table.units.pool.pin(), &7u64.to_le_bytes()), None, "bit {bit}");
        let told = if bit <= 40 { record ^ 8 << bit } else { record };
        assert_eq!(get_sound(&table, 7), Err(told), "bit {bit}");
        slot_word(bucket, nth).store(table.units.pool.medium(), sound, Relaxed);
        assert_eq!(get_sound(&table, 7), Ok(Some(record)));
        assert_eq!(get_sound(&table, 8), Ok(None));
    }
}

#[test]
fn keys_of_one_tag_are_distinguished() {
    let table = empty();
    let guard = table.units.pool.pin();
    let [one, other] = keys_of_one_tag(table.units.seed);
    let (first, mut found) = (insert(&table, one), None);
    assert_eq!((get_sound(&table, one), get_sound(&table, other)), (Ok(Some(first)), Ok(None)));
    let second = insert(&table, other);
    assert_eq!((get_sound(&table, one), get_sound(&table, other)), (Ok(Some(first)), Ok(Some(second))));
    table.get_many(&guard, [&other.to_le_bytes()[..]], |_, word| found = word);
    assert_eq!((found, table.verify(&guard)), (Some(second), vec![]));
    // The remains of the first may belong to either.
    assert_eq!(table.remove(&guard, &other.to_le_bytes()), Some(second));
    assert_eq!(get_sound(&table, other), Ok(None));
    WordRecords::erase(&guard, first);
    assert_eq!((get_sound(&table, one), get_sound(&table, other)), (Err(first), Err(first)));
    let tag = |key: u64| Probe::<Strings>::new(&key.to_le_bytes()[..], table.units.seed).tag;
    let another = (1..).find(|&key| tag(key) == 5);
    assert_eq!(get_sound(&table, another.unwrap()), Ok(None));
}

#[test]
#[should_panic(expected = "cannot be a word of this index")]
fn insert_refuses_a_word_that_is_no_offset() {
    let table = empty();
    let _ = table.insert(&table.units.pool.pin(), b"key", 12);
}

#[test]
#[should_panic(expected = "cannot be a word of this index")]
fn update_refuses_a_word_that_is_no_offset() {
    let table = empty();
    insert(&table, 7);
    let _ = table.update(&table.units.pool.pin(), &7u64.to_le_bytes(), 12);
}

#[test]
fn answered_changes_survive_power_loss_in_every_slot() {
    let power = Power::new();
    let table = Level::<Medium, Strings>::create(&power.pool, "table", 0).unwrap();
    let guard = power.pool.pin();
    let kept = |key: u64| {
        let pool = power.after_power_loss();
        let table = Level::<Medium, Strings>::recover(&pool, "table").unwrap().unwrap();
        let found = table.get(&pool.pin(), &key.to_le_bytes());
        drop(table);
        pool.abandon();
        found
    };
    for key in 1..36 {
        let [one, other] = [WordRecords::put(&guard, key), WordRecords::put(&guard, key)];
        table.insert(&guard, &key.to_le_bytes(), one).unwrap();
        assert_eq!(kept(key), Some(one));
        assert_eq!(table.update(&guard, &key.to_le_bytes(), other), Some(one));
        assert_eq!(kept(key), Some(other));
    }
    assert_eq!(table.stats(&guard).buckets, 3);
}

#[test]
fn same_key_compares_sound_records() {
    let table = empty();
    let guard = table.units.pool.pin();
    let [one, other] = keys_of_one_tag(table.units.seed);
    let entry = |key: u64, word: u64| {
        Strings::entry(&Probe::<Strings>::new(&key.to_le_bytes()[..], table.units.seed), word)
    };
    let put = |key: u64| entry(key, WordRecords::put(&guard, key));
    let is_same = |one, other| {
        let same = Strings::same_key(&guard, one, other);
        assert_eq!(Strings::same_key(&guard, other, one), same);
        same
    };
    assert!(is_same(put(one), put(one)) && !is_same(put(one), put(other)));
    let elsewhere = (1..).find(|&key| Strings::tag(put(key), 0) != Strings::tag(put(one), 0)).unwrap();
    assert!(!is_same(put(one), put(elsewhere)));
    // Another tag beside the same record.
    let torn = Entry { key: put(elsewhere).key, ..put(one) };
    assert!(!is_same(put(one), torn));
    // A record that looks the same from the next byte on.
    let even = put(0x0101_0101_0101_0101);
    let damaged = unpack(even.key ^ 1 << 41);
    assert_eq!((even.word & DAMAGED, damaged.word), (0, even.word | DAMAGED));
    assert!(is_same(even, even) && !is_same(even, damaged) && !is_same(damaged, damaged));
    assert_eq!(Strings::hash_of(&guard, damaged, 0), None);
    assert!(Strings::hash_of(&guard, even, 0).is_some());
}

#[test]
fn slots_never_change() {
    let slot = pack(0x5a5a, 0x123_4567_89a8);
    assert_eq!(slot, 0xb4b4_2424_68ac_f135);
    assert_eq!(unpack(slot), Entry { key: slot, word: 0x123_4567_89a8 });
    assert_eq!(unpack(0).word & DAMAGED, DAMAGED, "no record lies where the pool begins");
    assert_eq!(Kind::seal(0x1234_5678, 0x579a_01ff_e000_0000), 0x579d_c200_1234_5678);
}

fn randoms() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0x1357_9bdf_2468_ace0_u64), |word| {
        Some(word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .take(200)
}

#[test]
fn slot_with_a_changed_byte_is_damaged() {
    for word in randoms() {
        let slot = pack(word >> HASH_AT, (word & OFFSET) << 3);
        assert!(is_whole(slot) && unpack(slot).word == (word & OFFSET) << 3);
        assert_eq!(Kind::tag(unpack(slot), 0), word >> HASH_AT);
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            let damaged = unpack(slot ^ flip << (8 * byte));
            assert_eq!(damaged.word & DAMAGED, DAMAGED, "{slot:#x}: {flip:#x} in byte {byte}");
        }
    }
}

#[test]
fn meta_with_a_changed_byte_is_not_sealed() {
    let mut meta = 0;
    for word in randoms() {
        meta = Kind::seal(word & ((1 << FLAGS) - 1), meta);
        assert!(Kind::is_sealed(meta) && meta & ((1 << FLAGS) - 1) == word & ((1 << FLAGS) - 1));
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            assert!(!Kind::is_sealed(meta ^ flip << (8 * byte)), "{meta:#x}: {flip:#x} in byte {byte}");
        }
    }
}

#[test]
fn sequence_spans_the_check_and_wraps() {
    let sequence = |meta: u64| (meta & BELOW) >> FLAGS | meta >> HASH_AT << (BELOW_BITS - FLAGS);
    let mut meta = 0;
    for expected in 1..10_000 {
        meta = Kind::seal(5, meta);
        assert_eq!(sequence(meta), expected);
    }
    let last = (BELOW >> FLAGS << FLAGS) | u64::MAX << HASH_AT;
    assert_eq!(sequence(Kind::seal(5, last)), 0);
    assert_eq!(Kind::seal(5, last) & ((1 << FLAGS) - 1), 5);
}
