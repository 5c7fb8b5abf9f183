//! A store behaves as a map: random operations compared with one, minimised by proptest on failure.

use super::super::model::check;
use super::{Site, assert_sound, contents};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use terrace::{Change, Entry, IncrementError, Put, Store, WriteError};

type State = (Vec<u8>, Option<u64>);

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>, Option<u64>),
    PutMany(Vec<(Vec<u8>, Vec<u8>, Option<u64>)>),
    Remove(Vec<u8>),
    Modify(Vec<u8>, Edit),
    Swap(Vec<u8>, Option<Vec<u8>>, Vec<u8>),
    SwapRight(Vec<u8>, Vec<u8>),
    Increment(Vec<u8>, i64),
    Batch(Vec<(Vec<u8>, Edit)>),
    Transaction(Vec<(Vec<u8>, Edit)>, bool),
    Watch(Vec<u8>, Option<Vec<u8>>),
    Clear,
    Pass(u64),
    Sweep(usize),
    Reopen,
}

#[derive(Clone, Debug)]
enum Edit {
    Keep,
    Put(Vec<u8>, Option<u64>),
    Append(Vec<u8>),
    ExpireIn(u64),
    Persist,
    Remove,
}

/// The expected content, and the time.
#[derive(Default)]
struct Model {
    map: BTreeMap<Vec<u8>, State>,
    now: u64,
}

impl Model {
    fn live(&self, key: &[u8]) -> Option<&State> {
        self.map.get(key).filter(|(_, at)| at.is_none_or(|at| at > self.now))
    }

    fn edit(&mut self, key: &[u8], edit: &Edit) {
        let old = self.live(key).cloned();
        match (edit, old) {
            (Edit::Put(value, after), _) => {
                self.map.insert(key.to_vec(), (value.clone(), after.map(|after| self.now + after)));
            }
            (Edit::Append(tail), old) => {
                let (mut value, at) = old.unwrap_or_default();
                value.extend(tail);
                self.map.insert(key.to_vec(), (value, at));
            }
            (Edit::ExpireIn(after), Some((value, _))) => {
                self.map.insert(key.to_vec(), (value, Some(self.now + after)));
            }
            (Edit::Persist, Some((value, _))) => drop(self.map.insert(key.to_vec(), (value, None))),
            (Edit::Remove, _) => drop(self.map.remove(key)),
            (Edit::Keep | Edit::ExpireIn(_) | Edit::Persist, _) => {}
        }
    }

    fn all(&self) -> BTreeMap<Vec<u8>, State> {
        self.map.keys().filter_map(|key| Some((key.clone(), self.live(key)?.clone()))).collect()
    }
}

impl Edit {
    fn apply(&self, entry: Option<Entry<'_>>, now: u64) -> Change {
        match self {
            Self::Keep => Change::Keep,
            Self::Put(value, after) => {
                Change::Put { value: value.clone(), expires_at: after.map(|after| now + after) }
            }
            Self::Append(tail) => {
                let mut value = entry.map_or(Vec::new(), |entry| entry.value.to_vec());
                value.extend(tail);
                Change::Put { value, expires_at: entry.and_then(|entry| entry.expires_at) }
            }
            Self::ExpireIn(after) => Change::Expire(Some(now + after)),
            Self::Persist => Change::Expire(None),
            Self::Remove => Change::Remove,
        }
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..10u8).prop_map(|n| vec![b'k', n]),
        2 => (0..60u8).prop_map(|n| vec![n; 1 + usize::from(n) * 7]),
        1 => (0..3u8).prop_map(|n| vec![n; 65_536]),
        1 => Just(Vec::new()),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        2 => (0..200i64).prop_map(|n| n.to_string().into_bytes()),
        1 => (4090..4100usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (5000..20_000usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn after() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => Just(None), 1 => (0..50u64).prop_map(Some)]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        1 => Just(Edit::Keep),
        4 => (value(), after()).prop_map(|(value, after)| Edit::Put(value, after)),
        2 => value().prop_map(Edit::Append),
        2 => (0..50u64).prop_map(Edit::ExpireIn),
        1 => Just(Edit::Persist),
        2 => Just(Edit::Remove),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let edits = || prop::collection::vec((key(), edit()), 0..6);
    prop_oneof![
        5 => (key(), value(), after()).prop_map(|(k, v, a)| Op::Put(k, v, a)),
        2 => prop::collection::vec((key(), value(), after()), 0..90).prop_map(Op::PutMany),
        3 => key().prop_map(Op::Remove),
        5 => (key(), edit()).prop_map(|(k, e)| Op::Modify(k, e)),
        1 => (key(), prop::option::of(value()), value()).prop_map(|(k, old, new)| Op::Swap(k, old, new)),
        1 => (key(), value()).prop_map(|(k, new)| Op::SwapRight(k, new)),
        2 => (key(), any::<i64>()).prop_map(|(k, by)| Op::Increment(k, by % 1000)),
        3 => edits().prop_map(Op::Batch),
        3 => (edits(), any::<bool>()).prop_map(|(e, clear)| Op::Transaction(e, clear)),
        2 => (key(), prop::option::of(value())).prop_map(|(k, v)| Op::Watch(k, v)),
        1 => Just(Op::Clear),
        3 => (0..30u64).prop_map(Op::Pass),
        2 => (0..40usize).prop_map(Op::Sweep),
        1 => Just(Op::Reopen),
    ]
}

/// A store and its model.
struct Pair {
    site: Site,
    store: Option<Store>,
    model: Model,
}

impl Pair {
    fn new(site: Site) -> Self {
        let (store, now) = (Some(site.open()), Site::STARTED);
        Self { site, store, model: Model { now, ..Model::default() } }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self, op: &Op) {
        let now = self.model.now;
        match op {
            Op::Put(key, value, after) => {
                self.put_each(&[(key.clone(), value.clone(), *after)]);
            }
            Op::PutMany(puts) => self.put_each(puts),
            Op::Remove(key) => {
                let was = self.model.live(key).is_some();
                assert_eq!(self.store().remove(key), Ok(was));
                self.model.map.remove(key);
            }
            Op::Modify(key, edit) => {
                let seen = self.store().modify(key, |entry| (edit.apply(entry, now), entry.map(owned)));
                assert_eq!(seen.unwrap().as_ref(), self.model.live(key));
                self.model.edit(key, edit);
            }
            Op::Swap(key, old, new) => self.swap(key, old.clone(), new),
            Op::SwapRight(key, new) => {
                let old = self.model.live(key).map(|(value, _)| value.clone());
                self.swap(key, old, new);
            }
            Op::Increment(key, by) => self.increment(key, *by),
            Op::Batch(edits) => self.batch(edits),
            Op::Transaction(edits, clear) => self.transaction(edits, *clear),
            Op::Watch(key, value) => self.watch(key, value.as_deref()),
            Op::Clear => {
                self.store().clear().unwrap();
                self.model.map.clear();
                assert!(contents(self.store()).is_empty());
            }
            Op::Pass(ms) => {
                self.site.clock().advance(*ms);
                self.model.now += ms;
            }
            Op::Sweep(budget) => drop(self.store().upkeep().sweep_expired(*budget)),
            Op::Reopen if self.site.persists() => {
                self.store.take().unwrap().close().unwrap();
                self.store = Some(self.site.open());
            }
            Op::Reopen => {}
        }
    }

    fn put_each(&mut self, puts: &[(Vec<u8>, Vec<u8>, Option<u64>)]) {
        let now = self.model.now;
        let each: Vec<Put<'_>> = puts
            .iter()
            .map(|(key, value, after)| Put { key, value, expires_at: after.map(|after| now + after) })
            .collect();
        for done in self.store().put_many(&each) {
            assert_eq!(done, Ok(()));
        }
        for (key, value, after) in puts {
            self.model.edit(key, &Edit::Put(value.clone(), *after));
        }
    }

    fn swap(&mut self, key: &[u8], old: Option<Vec<u8>>, new: &[u8]) {
        let live = self.model.live(key).cloned();
        let fits = live.as_ref().map(|(value, _)| value) == old.as_ref();
        assert_eq!(self.store().compare_and_swap(key, old.as_deref(), new), Ok(fits));
        if fits {
            self.model.map.insert(key.to_vec(), (new.to_vec(), live.and_then(|(_, at)| at)));
        }
    }

    fn increment(&mut self, key: &[u8], by: i64) {
        let (value, at) = self.model.live(key).cloned().unwrap_or((b"0".to_vec(), None));
        let number = std::str::from_utf8(&value)
            .ok()
            .and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
        match number {
            Some(number) => {
                assert_eq!(self.store().increment(key, by), Ok(number + by));
                self.model.map.insert(key.to_vec(), ((number + by).to_string().into_bytes(), at));
            }
            None => assert_eq!(self.store().increment(key, by), Err(IncrementError::NotAnInteger)),
        }
    }

    fn batch(&mut self, edits: &[(Vec<u8>, Edit)]) {
        let mut batch = self.store().batch();
        let mut done = Vec::new();
        for (key, edit) in edits {
            match edit {
                Edit::Put(value, None) => _ = batch.put(key, value),
                Edit::Put(value, Some(after)) => {
                    _ = batch.put_expiring(key, value, Duration::from_millis(*after));
                }
                Edit::ExpireIn(after) => _ = batch.expire(key, Duration::from_millis(*after)),
                Edit::Remove => _ = batch.remove(key),
                _ => continue,
            }
            done.push((key, edit));
        }
        batch.commit().unwrap();
        done.into_iter().for_each(|(key, edit)| self.model.edit(key, edit));
    }

    fn transaction(&mut self, edits: &[(Vec<u8>, Edit)], clear: bool) {
        let now = self.model.now;
        let seen = self.store().transaction(|transaction| {
            if clear {
                transaction.clear().unwrap();
            }
            let edit = |(key, edit): &(Vec<u8>, Edit)| {
                let seen =
                    transaction.modify(key, |entry| (edit.apply(entry, now), entry.map(owned))).unwrap();
                let after = transaction.get(key).unwrap().map(|value| (value.to_vec(), value.expires_at()));
                (seen, after)
            };
            Ok::<_, WriteError>(edits.iter().map(edit).collect::<Vec<_>>())
        });
        if clear {
            self.model.map.clear();
        }
        for ((key, edit), (before, after)) in edits.iter().zip(seen.unwrap()) {
            assert_eq!(before.as_ref(), self.model.live(key));
            self.model.edit(key, edit);
            assert_eq!(after.as_ref(), self.model.live(key), "{edit:?}");
        }
    }

    /// A transaction that watches a key, with or without a change in between.
    fn watch(&mut self, key: &[u8], between: Option<&[u8]>) {
        let version = self.store().version(key).unwrap();
        if let Some(value) = between {
            self.put_each(&[(key.to_vec(), value.to_vec(), None)]);
        }
        let done = self.store().transaction_if(&[(key.to_vec(), version)], |t| t.put(b"watched", b"yes"));
        assert_eq!(done, Ok(if between.is_some() { None } else { Some(()) }));
        if between.is_none() {
            self.model.map.insert(b"watched".to_vec(), (b"yes".to_vec(), None));
        }
    }

    fn compare(&self) {
        let expected = self.model.all();
        assert_eq!(contents(self.store()), expected);
        let keys: Vec<&[u8]> = self.model.map.keys().map(Vec::as_slice).chain([&b"absent"[..]]).collect();
        let (mut many, mut snapshot) = (Vec::new(), Vec::new());
        self.store().get_many(&keys, &mut |_, entry| many.push(entry.unwrap().map(owned)));
        self.store().snapshot_many(&keys, &mut |_, entry| snapshot.push(entry.unwrap().map(owned)));
        let model: Vec<Option<State>> = keys.iter().map(|key| self.model.live(key).cloned()).collect();
        assert_eq!(many, model);
        assert_eq!(snapshot, model);
        for (key, state) in keys.iter().zip(model) {
            let value = self.store().get(key).unwrap();
            assert_eq!(value.as_ref().map(|value| (value.to_vec(), value.expires_at())), state);
            assert_eq!(self.store().contains(key), Ok(state.is_some()));
        }
        let any = self.store().random_key().unwrap();
        assert_eq!(any.is_some(), !expected.is_empty());
        assert!(any.is_none_or(|key| expected.contains_key(&key)));
        while self.store().upkeep().sweep_expired(10_000) > 0 {}
        assert_sound(self.store());
    }
}

fn owned(entry: Entry<'_>) -> State {
    (entry.value.to_vec(), entry.expires_at)
}

fn run(site: Site, ops: &[Op]) {
    let mut pair = Pair::new(site);
    for op in ops {
        pair.step(op);
    }
    pair.compare();
}

pub(super) fn is_a_map(make: &impl Fn() -> Site) {
    check(60, &prop::collection::vec(op(), 1..120), |ops| run(make(), &ops));
}

pub(super) fn many_keys_come_and_go(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    let key = |n: u32| format!("key {n}").into_bytes();
    for n in 0..20_000 {
        store.put(key(n), n.to_le_bytes()).unwrap();
    }
    for n in (0..20_000).step_by(2) {
        assert_eq!(store.remove(key(n)), Ok(true));
    }
    for n in 0..20_000u32 {
        let value = store.get(key(n)).unwrap();
        assert_eq!(value.map(|value| value.to_vec()), (n % 2 == 1).then(|| n.to_le_bytes().to_vec()));
    }
    assert_eq!(contents(&store).len(), 10_000);
    assert_sound(&store);
    store.clear().unwrap();
    assert!(contents(&store).is_empty());
    assert_sound(&store);
}
