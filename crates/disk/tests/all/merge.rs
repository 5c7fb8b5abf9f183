//! Tests: sources and merges of them go both ways as a sorted list, and end at an error.

use crate::model::{Model, items, models, same_steps, sorted, steps};
use crate::table::{open, small, write};
use proptest::prelude::*;
use std::cell::Cell;
use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use terrace_disk::{DiskError, Item, Merge, OwnedItem, Sorted, Source, TableCache};

/// Models whose values begin with their number.
fn numbered(models: &mut [Model]) {
    for (nth, model) in models.iter_mut().enumerate() {
        model.values_mut().flatten().for_each(|(value, _)| value.insert(0, nth as u8));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn sorted_items_step_as_a_list(model in models(), steps in steps()) {
        let items = items(&model);
        same_steps(&mut sorted(&items), &items, &steps);
    }

    #[test]
    fn table_cursors_step_as_a_list(model in models(), steps in steps(), compress in any::<bool>()) {
        let (made, cache) = (write(&model, small(compress, true)), TableCache::new(1 << 20));
        let (table, items) = (Arc::new(open(&made, &cache).unwrap()), items(&model));
        same_steps(&mut table.cursor(), &items, &steps);
        let taken = cache.bytes();
        same_steps(&mut table.cursor_for_merge(), &items, &steps);
        prop_assert_eq!(cache.bytes(), taken, "nothing more is cached");
        same_steps(&mut table.shared_cursor(), &items, &steps);
    }

    /// Some sources have the same versions of keys, some are tables, some are empty.
    #[test]
    fn merge_steps_as_a_list(
        mut models in prop::collection::vec(prop_oneof![3 => models(), 1 => Just(Model::new())], 0..10),
        steps in steps(),
        prefix in prop_oneof![Just(vec![]), Just(b"ab".to_vec()), Just(b"key 0000".to_vec())],
    ) {
        for model in &mut models {
            let items = std::mem::take(model).into_iter();
            model.extend(items.map(|((key, seq), content)| (([&prefix[..], &key].concat(), seq), content)));
        }
        numbered(&mut models);
        let mut merged: Vec<(Item<'_>, usize)> = Vec::new();
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let mut tables = Vec::new();
        for (nth, model) in models.iter().enumerate() {
            merged.extend(items(model).into_iter().map(|item| (item, nth)));
            if nth % 3 == 1 {
                tables.push(write(model, small(false, true)));
                // All have the same number.
                let table = open(tables.last().unwrap(), &TableCache::new(1 << 20)).unwrap();
                sources.push(Box::new(Arc::new(table).shared_cursor()));
            } else {
                sources.push(Box::new(sorted(&items(model))));
            }
        }
        merged.sort_by(|(one, nth), (other, of_other)| one.order(other).then(nth.cmp(of_other)));
        let merged: Vec<Item<'_>> = merged.into_iter().map(|(item, _)| item).collect();
        let mut merge = Merge::new(sources);
        same_steps(&mut merge, &merged, &steps);
    }
}

#[test]
#[should_panic(expected = "not in order")]
fn sorted_items_out_of_order_are_refused() {
    let items = [Item::put(b"b", 1, b""), Item::put(b"a", 1, b"")].map(OwnedItem::from);
    let _ = Sorted::new(items);
}

/// The same version in several sources: that of the first source comes first.
#[test]
fn merge_of_equal_items_loses_none() {
    let values: Vec<[u8; 1]> = (0..5).map(|nth| [nth]).collect();
    let sources = values.iter().map(|value| sorted(&[Item::put(b"key", 7, value)])).collect();
    let (mut merge, mut seen) = (Merge::new(sources), Vec::new());
    merge.seek_first().unwrap();
    while let Some(item) = merge.item() {
        seen.push(item.value().unwrap()[0]);
        merge.next().unwrap();
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    merge.seek_last().unwrap();
    for expected in [4, 3, 2] {
        assert_eq!(merge.item().and_then(|item| item.value()), Some(&[expected][..]));
        merge.previous().unwrap();
    }
    merge.next().unwrap();
    assert_eq!(merge.item().and_then(|item| item.value()), Some(&[2][..]));
}

/// A source that counts how often its item is looked at.
struct Watched(Sorted, Rc<Cell<usize>>);

impl Source for Watched {
    fn item(&self) -> Option<Item<'_>> {
        self.1.set(self.1.get() + 1);
        self.0.item()
    }
    fn seek_first(&mut self) -> Result<(), DiskError> {
        self.0.seek_first()
    }
    fn seek_last(&mut self) -> Result<(), DiskError> {
        self.0.seek_last()
    }
    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        self.0.seek(key, seq)
    }
    fn next(&mut self) -> Result<(), DiskError> {
        self.0.next()
    }
    fn previous(&mut self) -> Result<(), DiskError> {
        self.0.previous()
    }
}

/// An item is looked at when its source goes to it, and when the merge shows it: seldom to compare.
#[test]
fn merge_compares_few_keys_in_full() {
    const SOURCES: usize = 16;
    const ITEMS: usize = 1000;
    let all = SOURCES * ITEMS;
    let keys: Vec<Vec<u8>> = (0..all).map(|n| format!("a long prefix of keys {n:016}").into()).collect();
    let by_turns: fn(usize, usize) -> usize = |n, source| n * SOURCES + source;
    let in_runs: fn(usize, usize) -> usize = |n, source| source * ITEMS + n;
    let shuffled: fn(usize, usize) -> usize = |n, source| n * SOURCES + (source * 7 + n * n) % SOURCES;
    for nth_key in [by_turns, in_runs, shuffled] {
        let looks = Rc::new(Cell::new(0));
        let sources = (0..SOURCES).map(|source| {
            let items: Vec<Item<'_>> =
                (0..ITEMS).map(|n| Item::put(&keys[nth_key(n, source)], 1, b"")).collect();
            Watched(sorted(&items), looks.clone())
        });
        let (mut merge, mut count) = (Merge::new(sources.collect()), 0);
        merge.seek_first().unwrap();
        while let Some(item) = merge.item() {
            assert_eq!(item.key, keys[count]);
            count += 1;
            merge.next().unwrap();
        }
        assert_eq!(count, all);
        // By the caller, for the head, and to see whether it is the end.
        assert!(looks.get() < 4 * all, "{} looks at {all} items", looks.get());
    }
}

/// A source that fails once, after some calls.
struct Failing(Sorted, Rc<Cell<u32>>);

impl Failing {
    fn call(&mut self, step: impl FnOnce(&mut Sorted) -> Result<(), DiskError>) -> Result<(), DiskError> {
        let left = self.1.get();
        self.1.set(left.wrapping_sub(1));
        if left == 0 {
            let path = "7.table".into();
            return Err(DiskError::Corrupt { path, offset: 0, what: "a test says so" });
        }
        step(&mut self.0)
    }
}

impl Source for Failing {
    fn item(&self) -> Option<Item<'_>> {
        self.0.item()
    }
    fn seek_first(&mut self) -> Result<(), DiskError> {
        self.call(Sorted::seek_first)
    }
    fn seek_last(&mut self) -> Result<(), DiskError> {
        self.call(Sorted::seek_last)
    }
    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        self.call(|source| source.seek(key, seq))
    }
    fn next(&mut self) -> Result<(), DiskError> {
        self.call(Sorted::next)
    }
    fn previous(&mut self) -> Result<(), DiskError> {
        self.call(Sorted::previous)
    }
}

/// Walks to the end, and from the middle back. Returns the number of items that it met.
fn walk(merge: &mut Merge<Failing>) -> Result<usize, DiskError> {
    let mut count = 0;
    merge.seek_first()?;
    while merge.item().is_some() {
        count += 1;
        merge.next()?;
    }
    merge.seek(&[20], u64::MAX)?;
    // Each of these turns.
    merge.previous()?;
    merge.next()?;
    while merge.item().is_some() {
        count += 1;
        merge.previous()?;
    }
    Ok(count)
}

#[test]
fn merge_ends_at_an_error_and_seeks_again() {
    let keys: Vec<[u8; 1]> = (0..40).map(|nth| [nth]).collect();
    let all: Vec<Item<'_>> = keys.iter().map(|key| Item::put(key, 1, b"")).collect();
    let mut failures = 0;
    for calls in 0..120 {
        let left = Rc::new(Cell::new(calls));
        let thirds = (0..3).map(|nth| all.iter().copied().skip(nth).step_by(3).collect::<Vec<_>>());
        let mut merge = Merge::new(thirds.map(|third| Failing(sorted(&third), left.clone())).collect());
        if walk(&mut merge).is_err() {
            failures += 1;
            assert_eq!(merge.item(), None);
            merge.next().unwrap();
            merge.previous().unwrap();
            assert_eq!(merge.item(), None, "an end stays one");
        }
        left.set(u32::MAX);
        assert_eq!(walk(&mut merge).unwrap(), 61);
    }
    assert!((70..120).contains(&failures), "{failures}");
}

/// Neither way passes a damaged block, nor stays in it.
#[test]
fn damage_in_a_table_ends_a_merge() {
    let model: Model = (0..400u64)
        .map(|n| ((n.to_be_bytes().to_vec(), Reverse(n + 1)), Some((vec![n as u8; 9], None))))
        .collect();
    let made = write(&model, small(false, true));
    let sound = std::fs::read(&made.path).unwrap();
    let mut bytes = sound.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&made.path, &bytes).unwrap();
    let cache = TableCache::new(1 << 20);
    let table = Arc::new(open(&made, &cache).unwrap());
    for cursor in [TableReaderKind::Cached, TableReaderKind::Ahead] {
        let cursor = match cursor {
            TableReaderKind::Cached => table.shared_cursor(),
            TableReaderKind::Ahead => table.cursor_for_merge(),
        };
        let sources: [Box<dyn Source>; 2] = [Box::new(cursor), Box::new(sorted(&items(&model)))];
        let mut merge = Merge::new(sources.into());
        let mut walk = |is_forward: bool| -> (usize, DiskError) {
            let mut count = 0;
            let mut step = if is_forward { merge.seek_first() } else { merge.seek_last() };
            loop {
                if let Err(error) = step {
                    return (count, error);
                }
                count += 1;
                assert!(count < 800, "{count} items");
                step = if is_forward { merge.next() } else { merge.previous() };
            }
        };
        for is_forward in [true, false] {
            let (count, error) = walk(is_forward);
            assert!(count > 100, "{count}");
            assert!(
                matches!(&error, DiskError::Corrupt { path, offset, .. }
                if *path == made.path && *offset > 0 && *offset <= middle as u64),
                "{error}"
            );
        }
    }
}

enum TableReaderKind {
    Cached,
    Ahead,
}
