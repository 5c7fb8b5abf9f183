//! Ranges of an ordered store, compared with a `BTreeMap`.

use super::super::model::check;
use super::{Site, assert_sound};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use terrace::{
    Direction, KEY_MAX, KeyRange, OwnedValue, Put, Range, ReadError, Store, Transaction, WriteError,
};

type Key = Vec<u8>;
type Ends = (Bound<Key>, Bound<Key>);
/// The live entries by key: values.
type Model = BTreeMap<Key, Key>;
type Item = Result<(Vec<u8>, OwnedValue), ReadError>;

/// Keys that begin other keys, with zeros and 0xff anywhere, and long common beginnings.
fn key() -> impl Strategy<Value = Key> {
    let byte = || prop_oneof![Just(0), Just(1), Just(b'a'), Just(0xfe), Just(0xff)];
    prop_oneof![
        6 => prop::collection::vec(byte(), 0..4),
        2 => prop::collection::vec(byte(), 0..3).prop_map(|end| [vec![b'p'; 200], end].concat()),
        2 => (0..300u16).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => byte().prop_map(|byte| vec![byte; KEY_MAX]),
    ]
}

fn end() -> impl Strategy<Value = Bound<Key>> {
    let long = Just(vec![0xff; KEY_MAX + 1]);
    prop_oneof![
        4 => key().prop_map(Bound::Included),
        4 => key().prop_map(Bound::Excluded),
        2 => Just(Bound::Unbounded),
        1 => long.prop_map(Bound::Excluded),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Put(Key),
    /// An entry that expires at once when time passes.
    PutShort(Key),
    Remove(Key),
    Batch(Vec<Key>),
    DeleteRange(Ends),
    DeletePrefix(Key),
    DeleteSome(Ends, u64),
    Pass,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => key().prop_map(Op::Put),
        3 => key().prop_map(Op::PutShort),
        3 => key().prop_map(Op::Remove),
        3 => prop::collection::vec(key(), 2..20).prop_map(Op::Batch),
        1 => (end(), end()).prop_map(Op::DeleteRange),
        1 => key().prop_map(Op::DeletePrefix),
        1 => ((end(), end()), 0..20u64).prop_map(|(ends, most)| Op::DeleteSome(ends, most)),
        1 => Just(Op::Pass),
    ]
}

/// A store and its model. The model has no entry that has expired.
struct Pair<'s> {
    site: &'s Site,
    store: Store,
    model: Model,
    /// Keys whose entries expire.
    short: BTreeSet<Key>,
}

impl Pair<'_> {
    fn step(&mut self, nth: usize, op: &Op) {
        let value = nth.to_string().into_bytes();
        match op {
            Op::Put(key) => {
                self.store.put(key, &value).unwrap();
                self.add(key, &value);
            }
            Op::PutShort(key) => {
                let expires_at = Some(self.store_time() + 10);
                assert!(self.store.put_many(&[Put { key, value: &value, expires_at }])[0].is_ok());
                self.add(key, &value);
                self.short.insert(key.clone());
            }
            Op::Remove(key) => {
                assert_eq!(self.store.remove(key), Ok(self.model.remove(key).is_some()));
            }
            Op::Batch(keys) => {
                let mut batch = self.store.batch();
                keys.iter().for_each(|key| _ = batch.put(key, &value));
                batch.commit().unwrap();
                keys.iter().for_each(|key| self.add(key, &value));
            }
            Op::DeleteRange(ends) => {
                let removed = self.store.delete_range(ends.clone()).unwrap();
                assert_eq!(removed, self.forget(|key| ends.contains_key(key), u64::MAX));
            }
            Op::DeletePrefix(prefix) => {
                let removed = self.store.delete_prefix(prefix).unwrap();
                assert_eq!(removed, self.forget(|key| key.starts_with(prefix), u64::MAX));
            }
            Op::DeleteSome(ends, most) => self.delete_some(ends, *most),
            Op::Pass => self.pass(),
        }
    }

    fn add(&mut self, key: &Key, value: &Key) {
        self.model.insert(key.clone(), value.clone());
        self.short.remove(key);
    }

    fn store_time(&self) -> u64 {
        terrace::Clock::now_ms(self.site.clock())
    }

    /// Removes the first keys of the model that fit, and returns how many.
    fn forget(&mut self, fits: impl Fn(&[u8]) -> bool, most: u64) -> u64 {
        let keys: Vec<Key> = self.model.keys().filter(|key| fits(key)).take(most as usize).cloned().collect();
        keys.iter().for_each(|key| _ = self.model.remove(key));
        keys.len() as u64
    }

    /// Expired entries count as work, so it may remove fewer.
    fn delete_some(&mut self, ends: &Ends, most: u64) {
        let (removed, next) = self.store.delete_range_up_to(ends.clone(), most).unwrap();
        assert!(removed <= most);
        assert_eq!(self.forget(|key| ends.contains_key(key), removed), removed);
        let left = self.model.keys().find(|key| ends.contains_key(key));
        assert!(left.is_none_or(|left| next.as_ref().is_some_and(|next| **next <= **left)), "{next:?}");
    }

    fn pass(&mut self) {
        self.site.clock().advance(20);
        std::mem::take(&mut self.short).iter().for_each(|key| _ = self.model.remove(key));
    }
}

/// The entries of a model in a range.
fn within(model: &Model, fits: impl Fn(&[u8]) -> bool) -> Vec<(Key, Key)> {
    let entries = model.iter().filter(|(key, _)| fits(key));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn plain(item: Item) -> (Key, Key) {
    let (key, value) = item.expect("a sound store");
    (key, value.to_vec())
}

/// Compares a range, read from either end and from both in turn, with what is expected.
fn assert_range<'s>(range: impl Fn() -> Range<'s>, mut expected: Vec<(Key, Key)>) {
    assert_eq!(range().map(plain).collect::<Vec<_>>(), expected);
    let (mut both, mut range_of_both) = ((Vec::new(), Vec::new()), range());
    for turn in 0.. {
        let (item, side) = match turn % 3 {
            0 => (range_of_both.next_back(), &mut both.1),
            _ => (range_of_both.next(), &mut both.0),
        };
        let Some(item) = item else { break };
        side.push(plain(item));
    }
    assert!(range_of_both.next().is_none() && range_of_both.next_back().is_none());
    both.1.reverse();
    assert_eq!([both.0, both.1].concat(), expected);
    expected.reverse();
    assert_eq!(range().rev().map(plain).collect::<Vec<_>>(), expected);
}

/// Ranges of every kind, in a store after random changes, and in a transaction that has changed
/// more.
pub(super) fn ranges_match_a_map(make: &impl Fn() -> Site) {
    let ops = || prop::collection::vec(op(), 1..150);
    let ranges = || prop::collection::vec((end(), end()), 1..12);
    let written = prop::collection::vec((key(), 0..3u8), 0..40);
    check(40, &(ops(), ranges(), written), |(ops, ranges, written)| {
        let site = make();
        let (store, model) = (site.open(), Model::new());
        let mut pair = Pair { site: &site, store, model, short: BTreeSet::new() };
        ops.iter().enumerate().for_each(|(nth, op)| pair.step(nth, op));
        pair.pass();
        for ends in &ranges {
            let expected = within(&pair.model, |key| ends.contains_key(key));
            assert_range(|| pair.store.range(ends.clone()), expected);
        }
        assert_ends(&pair);
        transaction_sees_its_writes(&pair, &ranges, &written);
        while pair.store.upkeep().sweep_expired(10_000) > 0 {}
        assert_sound(&pair.store);
    });
}

/// Prefixes, and the first and the last entry.
fn assert_ends(pair: &Pair<'_>) {
    let (store, model) = (&pair.store, &pair.model);
    let prefixes = model.keys().flat_map(|key| [&key[..key.len().min(1)], &key[..key.len() / 2], key]);
    for prefix in prefixes.chain([&b""[..], b"\xff\xff\xff\xff"]).take(60) {
        let expected = within(model, |key| key.starts_with(prefix));
        let keys: Result<Vec<Key>, _> = store.keys_with_prefix(prefix).collect();
        assert!(keys.unwrap().iter().eq(expected.iter().map(|(key, _)| key)));
        assert_range(|| store.prefix(prefix), expected);
    }
    let entry = |found: Option<(Vec<u8>, OwnedValue)>| found.map(|(key, value)| (key, value.to_vec()));
    let of_model = |entry: Option<(&Key, &Key)>| entry.map(|(key, value)| (key.clone(), value.clone()));
    assert_eq!(entry(store.first().unwrap()), of_model(model.first_key_value()));
    assert_eq!(entry(store.last().unwrap()), of_model(model.last_key_value()));
    let scanned: Vec<Key> = store.keys().map(Result::unwrap).collect();
    assert!(scanned.iter().eq(model.keys()));
}

fn transaction_sees_its_writes(pair: &Pair<'_>, ranges: &[Ends], written: &[(Key, u8)]) {
    for cleared in [false, true] {
        let done = pair.store.transaction(|transaction| {
            let mut model = pair.model.clone();
            if cleared {
                transaction.clear()?;
                model.clear();
            }
            for (nth, (key, what)) in written.iter().enumerate() {
                write(transaction, &mut model, key, *what, &[b'w', nth as u8])?;
            }
            for ends in ranges {
                let expected = within(&model, |key| ends.contains_key(key));
                assert_range(|| transaction.range(ends.clone()), expected);
            }
            let ends = ranges[0].clone();
            let removed = transaction.delete_range(ends.clone())?;
            assert_eq!(removed, within(&model, |key| ends.contains_key(key)).len() as u64);
            model.retain(|key, _| !ends.contains_key(key));
            assert_range(|| transaction.range(..), within(&model, |_| true));
            transaction.abort();
            Ok::<_, WriteError>(())
        });
        assert_eq!(done, Ok(()));
    }
    assert_range(|| pair.store.range(..), within(&pair.model, |_| true));
}

/// A write of a transaction, and of its model.
fn write(
    transaction: &mut Transaction<'_>,
    model: &mut Model,
    key: &[u8],
    what: u8,
    value: &[u8],
) -> Result<(), WriteError> {
    match what {
        0 => {
            transaction.remove(key)?;
            model.remove(key);
        }
        1 => {
            // It has expired already.
            transaction.put_expiring(key, value, Some(1))?;
            model.remove(key);
        }
        _ => {
            transaction.put(key, value)?;
            model.insert(key.to_vec(), value.to_vec());
        }
    }
    Ok(())
}

fn number(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Many keys: a range of all of them, its parts, and their removal piece by piece.
pub(super) fn many_keys_in_order(make: &impl Fn() -> Site) {
    const KEYS: u64 = 20_000;
    let site = make();
    let store = site.open();
    for n in 0..KEYS {
        // In no order.
        let key = number(n * 7919 % KEYS);
        store.put_expiring(key, key, Duration::from_millis(if n % 10 == 0 { 10 } else { 1000 })).unwrap();
    }
    site.clock().advance(100);
    let is_left = |n: &u64| !(0..KEYS).step_by(10).any(|gone| gone * 7919 % KEYS == *n);
    let left: Vec<u64> = (0..KEYS).filter(is_left).collect();
    let read = |range: &mut dyn Iterator<Item = Item>| -> Vec<u64> {
        range.map(|item| u64::from_be_bytes(item.unwrap().0.try_into().unwrap())).collect()
    };
    assert_eq!(read(&mut store.range(..)), left);
    assert!(read(&mut store.range(..).rev()).iter().rev().eq(&left));
    let (from, to) = (number(5000), number(5500));
    let some = read(&mut store.range(from..to));
    assert!(some.iter().eq(left.iter().filter(|&&n| (5000..5500).contains(&n))));
    let (mut from, mut removed) = (Bound::Unbounded, 0);
    loop {
        let (count, next) =
            store.delete_range_up_to((from, Bound::Excluded(number(10_000).into())), 777).unwrap();
        removed += count;
        match next {
            Some(next) => from = Bound::Included(next),
            None => break,
        }
    }
    assert_eq!(removed, left.iter().filter(|&&n| n < 10_000).count() as u64);
    assert!(read(&mut store.range(..)).iter().eq(left.iter().filter(|&&n| n >= 10_000)));
    assert_sound(&store);
    store.delete_range(..).unwrap();
    assert_eq!((store.first(), store.last()), (Ok(None), Ok(None)));
    assert!(!store.count().is_exact() || store.is_empty());
    assert_sound(&store);
}

/// Keys come and go between others. Every range has those that stay exactly once, in order.
pub(super) fn ranges_stay_in_order_beside_writers(make: &impl Fn() -> Site) {
    const KEYS: u64 = 4000;
    let site = make();
    let store = site.open();
    (0..KEYS).step_by(2).for_each(|n| store.put(number(n), b"stays").unwrap());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for first in [1, 3] {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for round in 0..20 {
                    for n in (first..KEYS).step_by(4) {
                        match (round + n / 4) % 2 {
                            0 => store.put(number(n), b"comes").unwrap(),
                            _ => _ = store.remove(number(n)).unwrap(),
                        }
                    }
                }
                done.store(true, Relaxed);
            });
        }
        for direction in [Direction::Forward, Direction::Backward].into_iter().cycle() {
            stable_keys_are_seen_once(&store, KEYS, direction);
            if done.load(Relaxed) {
                break;
            }
        }
    });
    assert_sound(&store);
}

fn stable_keys_are_seen_once(store: &Store, keys: u64, direction: Direction) {
    let numbers = |item: Item| u64::from_be_bytes(item.unwrap().0.try_into().unwrap());
    let mut found: Vec<u64> = match direction {
        Direction::Forward => store.range(..).map(numbers).collect(),
        Direction::Backward => store.range(..).rev().map(numbers).collect(),
    };
    if direction == Direction::Backward {
        found.reverse();
    }
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "out of order, or twice");
    let stay = found.into_iter().filter(|n| n % 2 == 0);
    assert!(stay.eq((0..keys).step_by(2)), "a key that stays was missed");
}

/// Removes ranges beside a thread that writes to others: those stay whole.
pub(super) fn removal_spares_neighbours(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..20_000u64 {
                store.put([b"b", &number(n)[..]].concat(), b"stays").unwrap();
            }
        });
        for round in 0..20 {
            for prefix in [b"a", b"c"] {
                (0..200u64).for_each(|n| store.put([prefix, &number(n)[..]].concat(), b"goes").unwrap());
            }
            if round % 2 == 0 {
                assert_eq!(store.delete_prefix(b"a"), Ok(200));
                assert_eq!(store.delete_range("c"..), Ok(200));
            }
        }
    });
    assert_eq!((store.delete_prefix(b"a"), store.delete_prefix(b"c")), (Ok(200), Ok(200)));
    assert_eq!(store.prefix(b"b").count(), 20_000);
    assert!(!store.count().is_exact() || store.len() == 20_000);
    assert_sound(&store);
}
