//! Tests of `range`.

use super::*;
use crate::tests::fixtures::{self, Store, ordered_store};
use std::collections::BTreeMap;
use terrace_engine::{Commit, Durably, Engine, Ordered, Write, WriteKind};
use terrace_index::Swapped;

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

fn key(n: usize) -> [u8; 2] {
    (n as u16).to_be_bytes()
}

/// A store with these keys.
fn filled(keys: std::ops::Range<usize>) -> Store {
    let (store, _) = ordered_store();
    keys.for_each(|n| store.put_entry(&key(n), b"value", None));
    store
}

/// The keys of a range, read by visits of `at_most` entries, and how many records are skipped.
fn read(range: &mut dyn RangeCursor, at_most: usize) -> (Vec<Vec<u8>>, u64) {
    let (mut keys, mut skipped) = (Vec::new(), 0);
    loop {
        let before = keys.len();
        let visited = range.visit(at_most, &mut |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        });
        assert!(keys.len() - before <= at_most);
        match visited {
            Ok(true) => {
                assert_eq!((keys.len() - before, range.position()), (at_most, keys.last().map(Vec::as_slice)))
            }
            Ok(false) => return (keys, skipped),
            Err(ReadError::Skipped { records, next, .. }) => {
                skipped += records;
                if next.is_end() {
                    return (keys, skipped);
                }
                assert_eq!(next.key(), range.position());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn all(store: &Store, direction: Direction, at_most: usize) -> (Vec<Vec<u8>>, u64) {
    read(&mut *store.range(Bound::Unbounded, Bound::Unbounded, direction).unwrap(), at_most)
}

#[test]
fn range_visits_bounds_of_every_kind_in_order() {
    let store = filled(0..700);
    let model: BTreeMap<Vec<u8>, ()> = (0..700).map(|n| (key(n).to_vec(), ())).collect();
    let long = vec![0; terrace_engine::KEY_MAX + 1];
    let ends = [&key(3)[..], &key(650), &key(700), &[1], &[], &long];
    let bounds = || ends.into_iter().flat_map(|end| [Bound::Included(end), Bound::Excluded(end)]);
    let bounds = || bounds().chain([Bound::Unbounded]);
    for (from, to) in bounds().flat_map(|from| bounds().map(move |to| (from, to))) {
        let within = model.keys().filter(|key| std::ops::RangeBounds::contains(&(from, to), key.as_slice()));
        let mut expected: Vec<Vec<u8>> = within.cloned().collect();
        for direction in BOTH {
            let mut range = store.range(from, to, direction).unwrap();
            assert_eq!(read(&mut *range, 256), (expected.clone(), 0), "{from:?} to {to:?}");
            expected.reverse();
        }
    }
}

#[test]
fn range_visits_each_key_once_in_pieces() {
    let store = filled(0..3 * PIECE);
    for at_most in [1, AHEAD - 1, AHEAD, PIECE - 1, PIECE, PIECE + 1, usize::MAX] {
        let expected: Vec<Vec<u8>> = (0..3 * PIECE).map(|n| key(n).to_vec()).collect();
        assert!(all(&store, Direction::Forward, at_most).0.iter().eq(&expected), "{at_most}");
        assert!(all(&store, Direction::Backward, at_most).0.iter().rev().eq(&expected), "{at_most}");
    }
}

#[test]
fn visit_ends_where_its_caller_breaks() {
    let store = filled(0..100);
    let mut range = store.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    assert_eq!(range.visit(0, &mut |_, _| panic!()), Ok(true));
    assert_eq!(range.position(), None);
    for n in 0..100 {
        let visited = range.visit(50, &mut |found, entry| {
            assert_eq!((found, entry.value), (&key(n)[..], &b"value"[..]));
            ControlFlow::Break(())
        });
        assert_eq!((visited, range.position()), (Ok(true), Some(&key(n)[..])));
    }
    assert_eq!(range.visit(50, &mut |_, _| panic!()), Ok(false));
    assert_eq!(range.visit(50, &mut |_, _| panic!()), Ok(false));
}

#[test]
fn range_leaves_out_expired_entries() {
    let (store, clock) = ordered_store();
    (0..1000).for_each(|n| store.put_entry(&key(n), b"value", (n % 100 != 0).then_some(2000)));
    clock.advance(5000);
    for direction in BOTH {
        let (keys, skipped) = all(&store, direction, 3);
        assert_eq!((keys.len(), skipped), (10, 0));
    }
    assert_eq!(store.len().get(), 1000);
}

/// Records that cannot be read, and records with wrong bytes, at the end of a piece and in the
/// middle: a piece ends behind a sound one.
#[test]
fn range_skips_and_counts_damaged_records_once() {
    let store = filled(0..1000);
    let damaged: Vec<usize> = (0..30).chain(200..300).chain([500]).chain(990..1000).collect();
    for &n in &damaged {
        let at = store.record_offset(&key(n));
        // Its shape, or a byte behind the key.
        store.damage(if n % 2 == 0 { at } else { at + 16 });
    }
    let sound: Vec<Vec<u8>> = (0..1000).filter(|n| !damaged.contains(n)).map(|n| key(n).to_vec()).collect();
    for at_most in [1, 7, PIECE, usize::MAX] {
        let (mut found, skipped) = all(&store, Direction::Forward, at_most);
        assert!(found.iter().eq(&sound) && skipped == damaged.len() as u64, "{at_most}: {skipped}");
        found = all(&store, Direction::Backward, at_most).0;
        assert!(found.iter().rev().eq(&sound), "{at_most}");
    }
    assert_eq!(store.stats().damaged_records_skipped, 8 * damaged.len() as u64);
}

#[test]
fn range_ends_at_a_key_in_the_wrong_place() {
    let store = filled(0..100);
    let guard = store.pool().pin();
    let (word, other) = (store.record_offset(&key(50)), store.record_offset(&key(20)));
    let swapped = store.index().compare_and_swap(&guard, &key(50), Some(word), Some(other));
    assert_eq!(swapped, Ok(Swapped::Done));
    drop(guard);
    let mut range = store.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    let mut seen = 0;
    let mut count = |_: &[u8], _: Entry<'_>| {
        seen += 1;
        ControlFlow::Continue(())
    };
    assert_eq!(range.visit(usize::MAX, &mut count), Err(corrupt(other, DISORDER)));
    assert_eq!(range.visit(usize::MAX, &mut count), Ok(false));
    assert_eq!(seen, 50);
}

#[test]
fn range_shows_batches_whole() {
    let store = filled(0..10);
    let writes = [(3, WriteKind::Remove), (20, WriteKind::Put { value: b"new", expires_at: None })];
    let keys = writes.map(|(n, what)| (key(n), what));
    let writes: Vec<Write<'_>> = keys.iter().map(|(key, what)| Write { key, what: *what }).collect();
    assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
    let expected = (0..10).filter(|n| *n != 3).chain([20]).map(|n| key(n).to_vec());
    assert!(all(&store, Direction::Forward, 4).0.into_iter().eq(expected));
}

#[test]
fn store_over_a_hash_has_no_ranges() {
    let (store, _) = fixtures::store();
    assert!(Engine::ordered(&store).is_none() && Engine::ordered(&filled(0..1)).is_some());
    let refused = store.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward).err();
    assert_eq!(refused, Some(ReadError::Unordered { index: "clht" }));
    assert!(refused.unwrap().to_string().contains("an ordered index (`masstree`, "));
    let refused = store.remove_range(Bound::Unbounded, Bound::Unbounded, 1, Durably::Store);
    assert_eq!(refused, Err(terrace_engine::WriteError::Unordered { index: "clht" }));
}

/// The value of a key is read for a caller that wants it, and not for one that wants keys alone.
#[test]
fn range_of_keys_reads_no_value_that_lies_apart() {
    let store = filled(0..3);
    store.put_entry(&key(1), &vec![7; 1 << 20], None);
    let extent = {
        let guard = store.pool().pin();
        let record = Record::at(&guard, store.record_offset(&key(1))).unwrap();
        record.body.external.unwrap().extent
    };
    store.damage(extent);
    for direction in BOTH {
        assert_eq!(all(&store, direction, 10).1, 1, "the damage is seen where the value is wanted");
        let mut range = store.range(Bound::Unbounded, Bound::Unbounded, direction).unwrap();
        range.without_values();
        assert_eq!(read(&mut *range, 10).0.len(), 3);
    }
    // Bytes of keys are checked all the same.
    store.damage(store.record_offset(&key(0)) + 16);
    let mut range = store.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    range.without_values();
    assert_eq!(read(&mut *range, 10), (vec![key(1).to_vec(), key(2).to_vec()], 1));
}
