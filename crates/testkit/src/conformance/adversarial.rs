//! Keys that are hard for an index.

use super::subject::{Index, Setup, Subject};
use crate::TestKeys;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use terrace_index::{KeyKind, PointIndex};

/// Keys whose hashes share their top 14 bits (so one bucket of any table in a test), and the ends
/// of the range.
pub(super) fn keys_that_look_alike<I: Index>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    let index = make(Setup::with_capacity(0));
    let alike = look_alike(&index, 100);
    let ends = [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32];
    fill_and_empty(Subject::new(index, alike.into_iter().chain(ends)));
}

/// Seeds of keys whose hashes share their top 14 bits.
pub(super) fn look_alike<I: Index>(index: &I, count: usize) -> Vec<u64>
where
    I::Kind: TestKeys,
{
    let seed = PointIndex::pool(index).hash_seed();
    let top = |n: u64| I::Kind::hash(I::Kind::key(n).borrow(), seed) >> 50;
    let wanted = top(0);
    (0..).filter(|&n| top(n) == wanted).take(count).collect()
}

/// Keys in ascending order, in steps of a power of two, and with a single bit set.
pub(super) fn keys_in_order<I: Index>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    fill_and_empty(Subject::new(make(Setup::with_capacity(0)), 0..3000));
    fill_and_empty(Subject::new(make(Setup::with_capacity(0)), (0..2000).map(|n| n << 40)));
    fill_and_empty(Subject::new(make(Setup::with_capacity(100)), (0..64).map(|bit| 1 << bit).chain([0])));
}

fn fill_and_empty<I: Index>(subject: Subject<I>)
where
    I::Kind: TestKeys,
{
    let mut model = BTreeMap::new();
    for number in 0..subject.keys() {
        let guard = subject.pin();
        assert_eq!(subject.insert(&guard, number, 1).expect("room"), None, "key {number} is new");
        assert_eq!(subject.insert(&guard, number, 2).expect("room"), Some(1), "key {number} is there");
        model.insert(number, 1);
    }
    subject.assert_holds(&model);
    for number in (0..subject.keys()).filter(|number| number % 3 != 0) {
        let guard = subject.pin();
        assert_eq!(subject.remove(&guard, number), model.remove(&number));
        assert_eq!(subject.remove(&guard, number), None);
    }
    subject.assert_holds(&model);
    for number in 0..subject.keys() {
        assert_eq!(subject.upsert(&subject.pin(), number, 3), model.insert(number, 3));
    }
    subject.assert_holds(&model);
    for number in 0..subject.keys() {
        assert_eq!(subject.remove(&subject.pin(), number), Some(3));
    }
    subject.assert_holds(&BTreeMap::new());
}
