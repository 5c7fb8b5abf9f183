//! Tests: MemTables beside maps.

use super::*;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use terrace_disk::{Merge, Source};

type Versions = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Option<(Vec<u8>, Option<u64>)>>;

fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// A table and its items: keys that share beginnings, of lengths around whole words.
fn filled(items: u64, keys: u64) -> (Arc<MemTable>, Versions) {
    let (table, mut versions, mut state) = (MemTable::new(7), Versions::new(), 1);
    for seq in 1..=items {
        let number = draw(&mut state, keys);
        let key = &[&number.to_be_bytes()[..], &[0, 0, 0xff, 0, 0, 1, 2, 3, 4]].concat()
            [5..6 + number as usize % 12];
        let value = vec![seq as u8; draw(&mut state, 40) as usize];
        let expires_at = (seq % 3 == 0).then_some(seq * 10);
        let content = match seq % 5 {
            0 => Content::Tombstone,
            _ => Content::Put { value: &value, expires_at },
        };
        assert!(table.add(&Item { key, seq, content }));
        let entry = (seq % 5 != 0).then_some((value.clone(), expires_at));
        versions.insert((key.to_vec(), std::cmp::Reverse(seq)), entry);
    }
    (Arc::new(table), versions)
}

#[test]
fn get_finds_the_version_of_each_number() {
    let (table, versions) = filled(20_000, 3000);
    assert_eq!((table.items(), table.first_seq(), table.last_seq()), (20_000, Some(1), 20_000));
    for ((key, std::cmp::Reverse(seq)), entry) in &versions {
        let expected = MemItem { seq: *seq, entry: entry.clone() };
        assert_eq!(table.get(key, *seq), Some(expected.clone()));
        let newer = versions.range(..(key.clone(), std::cmp::Reverse(*seq))).next_back();
        let newer = newer.filter(|((other, _), _)| other == key).map_or(u64::MAX, |((_, seq), _)| seq.0);
        assert_eq!(table.get(key, newer - 1), Some(expected));
    }
    assert_eq!(table.get(b"absent", u64::MAX), None);
    assert_eq!(table.get(b"", 0), None);
}

#[test]
fn cursor_goes_both_ways_as_a_map() {
    let (table, versions) = filled(3000, 500);
    let mut cursor = Arc::clone(&table).cursor();
    let here =
        |cursor: &MemCursor| cursor.item().map(|item| (item.key.to_vec(), std::cmp::Reverse(item.seq)));
    assert_eq!(here(&cursor), None);
    cursor.seek_first().unwrap();
    for (place, entry) in &versions {
        assert_eq!(here(&cursor).as_ref(), Some(place));
        let content = match entry {
            None => Content::Tombstone,
            Some((value, expires_at)) => Content::Put { value, expires_at: *expires_at },
        };
        assert_eq!(cursor.item().unwrap().content, content);
        cursor.next().unwrap();
    }
    assert_eq!(here(&cursor), None);
    cursor.seek_last().unwrap();
    for place in versions.keys().rev() {
        assert_eq!(here(&cursor).as_ref(), Some(place));
        cursor.previous().unwrap();
    }
    assert_eq!(here(&cursor), None);
    for (key, seq) in versions.keys() {
        cursor.seek(key, seq.0).unwrap();
        assert_eq!(here(&cursor), Some((key.clone(), *seq)));
        cursor.seek(key, seq.0 - 1).unwrap();
        let next = versions.range((Excluded((key.clone(), *seq)), Unbounded)).next();
        assert_eq!(here(&cursor).as_ref(), next.map(|(place, _)| place));
    }
}

#[test]
fn cursors_between_writes_have_all_items() {
    let (table, mut versions, mut state) = (Arc::new(MemTable::new(7)), BTreeMap::new(), 5);
    let mut had_two = false;
    for seq in 1..=20_000u64 {
        let key = draw(&mut state, 5000).to_be_bytes();
        assert!(table.add(&Item::put(&key, seq, b"")));
        versions.insert((key, std::cmp::Reverse(seq)), ());
        if seq % 700 == 0 || seq < 100 {
            let cursors: Vec<MemCursor> = table.cursors().collect();
            had_two |= cursors.len() == 2;
            let mut merge = Merge::new(cursors);
            merge.seek_first().unwrap();
            for (key, seq) in versions.keys() {
                assert_eq!(merge.item().map(|item| (item.key, item.seq)), Some((&key[..], seq.0)));
                merge.next().unwrap();
            }
            assert_eq!(merge.item(), None);
        }
    }
    assert!(had_two && Arc::clone(&table).cursor().item().is_none());
    assert_eq!(table.cursors().count(), 1, "a whole order has one list");
}

#[test]
fn key_that_is_written_often_keeps_one_slot() {
    let table = MemTable::new(7);
    (1..=90_000).for_each(|seq| assert!(table.add(&Item::put(b"hot", seq, b"value"))));
    assert_eq!((table.keys.load(Relaxed), table.directory.load().entries()), (1, directory::ENTRIES_MIN));
    assert_eq!(table.get(b"hot", 5).unwrap().seq, 5);
}

/// A reader at a number that was published sees all items up to it, while a writer adds.
#[test]
fn readers_see_what_was_published() {
    let (table, visible) = (Arc::new(MemTable::new(7)), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..=50_000u64 {
                assert!(table.add(&Item::put(&(seq % 5000).to_be_bytes(), seq, &seq.to_le_bytes())));
                visible.store(seq, Release);
            }
        });
        let mut state = 3;
        loop {
            let seq = visible.load(Acquire);
            let number = draw(&mut state, 5000);
            let newest = (seq >= number).then(|| seq - (seq - number) % 5000).filter(|&seq| seq > 0);
            let found = table.get(&number.to_be_bytes(), seq);
            assert_eq!(found.map(|found| found.seq), newest, "{number} at {seq}");
            if seq == 50_000 {
                return;
            }
        }
    });
}
