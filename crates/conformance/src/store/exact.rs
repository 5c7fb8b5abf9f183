//! Counts of a store that knows them exactly.

use super::super::model::check;
use super::Site;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::thread;
use terrace::{Count, Store};

#[derive(Clone, Debug)]
enum Op {
    Put(u8, Vec<u8>),
    PutExpiring(u8),
    Remove(u8),
    RemoveAll(Vec<u8>),
    Batch(Vec<(u8, Option<Vec<u8>>)>),
    Clear,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let value = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        6 => (any::<u8>(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        1 => any::<u8>().prop_map(Op::PutExpiring),
        3 => any::<u8>().prop_map(Op::Remove),
        1 => prop::collection::vec(any::<u8>(), 0..6).prop_map(Op::RemoveAll),
        2 => prop::collection::vec((any::<u8>(), prop::option::of(value())), 0..6).prop_map(Op::Batch),
        1 => Just(Op::Clear),
        1 => Just(Op::Reopen),
    ]
}

type Model = BTreeMap<u8, usize>;

/// Each key is one byte, so an entry has one byte more than its value.
fn assert_counts(store: &Store, model: &Model) {
    assert_eq!(store.count(), Count::Exact(model.len() as u64));
    assert_eq!((store.len(), store.is_empty()), (model.len() as u64, model.is_empty()));
    let bytes: usize = model.values().map(|value| 1 + value).sum();
    assert_eq!(store.stats().data_bytes, bytes as u64);
}

fn apply(store: &Store, model: &mut Model, op: &Op) {
    match op {
        Op::Put(key, value) => {
            store.put([*key], value).unwrap();
            model.insert(*key, value.len());
        }
        Op::PutExpiring(key) => {
            // Counted until a sweep removes it; the clock stands still here.
            store.put_expiring([*key], b"soon", std::time::Duration::from_secs(1)).unwrap();
            model.insert(*key, 4);
        }
        Op::Remove(key) => assert_eq!(store.remove([*key]), Ok(model.remove(key).is_some())),
        Op::RemoveAll(keys) => {
            let removed = keys.iter().filter(|key| model.remove(key).is_some()).count();
            let keys: Vec<&[u8]> = keys.iter().map(std::slice::from_ref).collect();
            assert_eq!(store.remove_all(&keys), Ok(removed as u64));
        }
        Op::Batch(writes) => {
            let mut batch = store.batch();
            for (key, value) in writes {
                match value {
                    Some(value) => _ = (batch.put([*key], value), model.insert(*key, value.len())),
                    None => _ = (batch.remove([*key]), model.remove(key)),
                }
            }
            batch.commit().unwrap();
        }
        Op::Clear => {
            store.clear().unwrap();
            model.clear();
        }
        Op::Reopen => {}
    }
}

pub(super) fn counts_follow_each_write(make: &impl Fn() -> Site) {
    check(40, &prop::collection::vec(op(), 1..80), |ops| {
        let site = make();
        let (mut store, mut model) = (site.open(), Model::new());
        for op in &ops {
            if matches!(op, Op::Reopen) && site.persists() {
                store.close().unwrap();
                store = site.open();
            }
            apply(&store, &mut model, op);
            assert_counts(&store, &model);
        }
    });
}

pub(super) fn counts_add_up_over_threads(make: &impl Fn() -> Site) {
    let site = make();
    let store = site.open();
    thread::scope(|scope| {
        for thread in 0..4u8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..2000u16 {
                    store.put([thread, n as u8], n.to_le_bytes()).unwrap();
                    if n % 3 == 0 {
                        store.remove([thread, n as u8]).unwrap();
                    }
                }
            });
        }
    });
    let kept = super::contents(&store).len() as u64;
    assert_eq!(store.count(), Count::Exact(kept));
    assert_eq!(store.stats().data_bytes, kept * 4);
}
