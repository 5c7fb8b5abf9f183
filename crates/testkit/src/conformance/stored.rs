//! An index that is created, closed and reopened by name.

use super::place::{End, PoolFile};
use super::subject::{Index, NAME, Subject};
use crate::TestKeys;
use std::collections::BTreeMap;
use terrace_index::{PointIndex, StoreError};
use terrace_pool::{Pool, RootError};

type Medium<I> = <I as PointIndex>::Medium;

fn find<I: Index>(pool: &Pool<Medium<I>>) -> I {
    I::recover(pool, NAME).expect("a sound index").expect("an index of that name")
}

/// An index is reopened with its exact content after a clean close or a kill, also in the middle of
/// a resize. It then works as usual, and is reopened with its later changes, too.
pub(super) fn reopens_with_its_content<I: Index>()
where
    I::Kind: TestKeys,
{
    for (nth, keys) in [0u64, 1, 30, 1000, 1500, 5000].into_iter().enumerate() {
        let ends = [[End::Closed, End::Killed], [End::Killed, End::Closed]][nth % 2];
        let place = PoolFile::new();
        let mut pool = place.create();
        let index = I::create(&pool, NAME, 0).expect("room for an index");
        let mut subject = Subject::new(index, 0..keys + 500);
        let mut model = BTreeMap::new();
        put(&subject, &mut model, 0..keys, 1);
        for (round, end) in ends.into_iter().enumerate() {
            drop(subject);
            end.of(pool);
            pool = place.open();
            subject = Subject::new(find::<I>(&pool), 0..keys + 500);
            collect(&subject);
            subject.assert_holds(&model);
            remove(&subject, &mut model, (0..keys).step_by(3 + round));
            put(&subject, &mut model, (0..keys + 500).step_by(2 + round), 2 + round as u64);
            subject.assert_holds(&model);
        }
    }
}

fn put<I: Index>(
    subject: &Subject<I>,
    model: &mut BTreeMap<u64, u64>,
    numbers: impl Iterator<Item = u64>,
    version: u64,
) where
    I::Kind: TestKeys,
{
    for number in numbers {
        assert_eq!(subject.upsert(&subject.pin(), number, version), model.insert(number, version));
    }
}

fn remove<I: Index>(subject: &Subject<I>, model: &mut BTreeMap<u64, u64>, numbers: impl Iterator<Item = u64>)
where
    I::Kind: TestKeys,
{
    for number in numbers {
        assert_eq!(subject.remove(&subject.pin(), number), model.remove(&number));
    }
}

/// The background work of a store after an open. It must mark what the index contains, or that
/// would be collected.
fn collect<I: Index>(subject: &Subject<I>)
where
    I::Kind: TestKeys,
{
    let pool = PointIndex::pool(&subject.index);
    pool.collect(&mut |marker| {
        let guard = pool.pin();
        subject.index.trace(&guard, marker, |marker, word| I::Kind::mark(&guard, marker, word));
    });
}

/// Opening an index twice is harmless: both handles are the same index.
pub(super) fn can_be_opened_twice<I: Index>()
where
    I::Kind: TestKeys,
{
    const KEYS: u64 = 2000;
    for end in [End::Closed, End::Killed] {
        let place = PoolFile::new();
        let pool = place.create();
        let subject = Subject::new(I::create(&pool, NAME, 0).expect("room for an index"), 0..KEYS + 1);
        let mut model = BTreeMap::new();
        put(&subject, &mut model, 0..KEYS, 1);
        drop(subject);
        end.of(pool);

        let pool = place.open();
        let first = Subject::new(find::<I>(&pool), 0..KEYS + 1);
        let second = Subject::new(find::<I>(&pool), 0..KEYS + 1);
        first.assert_holds(&model);
        second.assert_holds(&model);
        put(&first, &mut model, [KEYS, 0].into_iter(), 2);
        remove(&first, &mut model, [1].into_iter());
        second.assert_holds(&model);
        drop((first, second));
        // Once more, as the first operation after an open.
        End::Killed.of(pool);
        let pool = place.open();
        drop(find::<I>(&pool));
        Subject::new(find::<I>(&pool), 0..KEYS + 1).assert_holds(&model);
    }
}

/// Names without an index, one of them a prefix of an existing name.
pub(super) fn missing_name_is_no_index<I: Index>() {
    let place = PoolFile::new();
    let pool: Pool<Medium<I>> = place.create();
    let is_missing = |pool: &Pool<Medium<I>>, name| I::recover(pool, name).expect("a sound pool").is_none();
    assert!(is_missing(&pool, NAME), "in a new pool");
    drop(I::create(&pool, NAME, 0).expect("room for an index"));
    assert!(is_missing(&pool, "another") && is_missing(&pool, "conformanc"));
    assert!(!is_missing(&pool, NAME));
    pool.close().expect("the last handle");
    let pool = place.open();
    assert!(is_missing(&pool, "another") && is_missing(&pool, "conformanc"), "after reopening");
    assert!(!is_missing(&pool, NAME));
}

/// An index of the kind `Other` under its name is refused, not misread, and is intact afterwards.
pub(super) fn refuses<I: Index, Other: Index + PointIndex<Medium = Medium<I>>>()
where
    Other::Kind: TestKeys,
{
    const KEYS: u64 = 100;
    let (place, numbers) = (PoolFile::new(), 0..KEYS);
    let pool = place.create();
    let subject = Subject::new(Other::create(&pool, NAME, 0).expect("room for an index"), numbers);
    let mut model = BTreeMap::new();
    put(&subject, &mut model, 0..KEYS, 1);
    let refused = |pool: &Pool<Medium<I>>| {
        let refused = matches!(
            I::recover(pool, NAME),
            Err(StoreError::Root(RootError::Kind { .. }) | StoreError::Damaged(_))
        );
        assert!(refused, "{} of {} keys", Other::NAME, std::any::type_name::<Other::Kind>());
    };
    refused(&pool);
    subject.assert_holds(&model);
    drop(subject);
    pool.close().expect("the last handle");
    let pool = place.open();
    refused(&pool);
    Subject::new(find::<Other>(&pool), 0..KEYS).assert_holds(&model);
}
