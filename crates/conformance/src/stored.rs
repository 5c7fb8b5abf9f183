//! An index that is created, closed and reopened by name.

use super::erased::{AnyIndex, AnyPool, IndexType};
use super::place::{End, PoolFile};
use super::subject::{NAME, Subject};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_index::StoreError;
use terrace_pool::RootError;

fn find(of: &dyn IndexType, pool: &dyn AnyPool) -> Arc<dyn AnyIndex> {
    of.recover(pool, NAME).expect("a sound index").expect("an index of that name")
}

/// An index is reopened with its exact content after a clean close or a kill, also in the middle of
/// a resize. It then works as usual, and is reopened with its later changes, too.
pub(super) fn reopens_with_its_content(of: &dyn IndexType) {
    for (nth, keys) in [0u64, 1, 30, 1000, 1500, 5000].into_iter().enumerate() {
        let ends = [[End::Closed, End::Killed], [End::Killed, End::Closed]][nth % 2];
        let place = PoolFile::new();
        let mut pool = of.create_pool(&place);
        let mut subject = Subject::new(of.create(&*pool), 0..keys + 500);
        let mut model = BTreeMap::new();
        put(&subject, &mut model, 0..keys, 1);
        for (round, end) in ends.into_iter().enumerate() {
            drop(subject);
            pool.end(end);
            pool = of.open_pool(&place);
            subject = Subject::new(find(of, &*pool), 0..keys + 500);
            // It must mark what the index contains, or that would be collected.
            subject.index.collect();
            subject.assert_holds(&model);
            remove(&subject, &mut model, (0..keys).step_by(3 + round));
            put(&subject, &mut model, (0..keys + 500).step_by(2 + round), 2 + round as u64);
            subject.assert_holds(&model);
        }
    }
}

fn put(subject: &Subject, model: &mut BTreeMap<u64, u64>, numbers: impl Iterator<Item = u64>, version: u64) {
    for number in numbers {
        assert_eq!(subject.pin().upsert(number, version), model.insert(number, version));
    }
}

fn remove(subject: &Subject, model: &mut BTreeMap<u64, u64>, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        assert_eq!(subject.pin().remove(number), model.remove(&number));
    }
}

/// Opening an index twice is harmless: both handles are the same index.
pub(super) fn can_be_opened_twice(of: &dyn IndexType) {
    const KEYS: u64 = 2000;
    for end in [End::Closed, End::Killed] {
        let place = PoolFile::new();
        let pool = of.create_pool(&place);
        let subject = Subject::new(of.create(&*pool), 0..KEYS + 1);
        let mut model = BTreeMap::new();
        put(&subject, &mut model, 0..KEYS, 1);
        drop(subject);
        pool.end(end);

        let pool = of.open_pool(&place);
        let first = Subject::new(find(of, &*pool), 0..KEYS + 1);
        let second = Subject::new(find(of, &*pool), 0..KEYS + 1);
        first.assert_holds(&model);
        second.assert_holds(&model);
        put(&first, &mut model, [KEYS, 0].into_iter(), 2);
        remove(&first, &mut model, [1].into_iter());
        second.assert_holds(&model);
        drop((first, second));
        // Once more, as the first operation after an open.
        pool.end(End::Killed);
        let pool = of.open_pool(&place);
        drop(find(of, &*pool));
        Subject::new(find(of, &*pool), 0..KEYS + 1).assert_holds(&model);
    }
}

/// Names without an index, one of them a prefix of an existing name.
pub(super) fn missing_name_is_no_index(of: &dyn IndexType) {
    let place = PoolFile::new();
    let pool = of.create_pool(&place);
    let is_missing = |pool: &dyn AnyPool, name| of.recover(pool, name).expect("a sound pool").is_none();
    assert!(is_missing(&*pool, NAME), "in a new pool");
    drop(of.create(&*pool));
    assert!(is_missing(&*pool, "another") && is_missing(&*pool, "conformanc"));
    assert!(!is_missing(&*pool, NAME));
    pool.end(End::Closed);
    let pool = of.open_pool(&place);
    assert!(is_missing(&*pool, "another") && is_missing(&*pool, "conformanc"), "after reopening");
    assert!(!is_missing(&*pool, NAME));
}

/// An index of type `other` under its name is refused, not misread, and is intact afterwards.
pub(super) fn refuses(of: &dyn IndexType, other: &dyn IndexType) {
    const KEYS: u64 = 100;
    let (place, numbers) = (PoolFile::new(), 0..KEYS);
    let pool = other.create_pool(&place);
    let subject = Subject::new(other.create(&*pool), numbers);
    let mut model = BTreeMap::new();
    put(&subject, &mut model, 0..KEYS, 1);
    let refused = |pool: &dyn AnyPool| {
        let refused = matches!(
            of.recover(pool, NAME),
            Err(StoreError::Root(RootError::Kind { .. }) | StoreError::Damaged(_))
        );
        assert!(refused, "{} of {:?}", other.name(), other.keys());
    };
    refused(&*pool);
    subject.assert_holds(&model);
    drop(subject);
    pool.end(End::Closed);
    let pool = of.open_pool(&place);
    refused(&*pool);
    Subject::new(find(other, &*pool), 0..KEYS).assert_holds(&model);
}
