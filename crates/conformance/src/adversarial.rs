//! Keys that are hard for an index.

use super::erased::AnyIndex;
use super::families::{Family, families};
use super::subject::{Make, Setup, Subject};
use std::collections::BTreeMap;
use terrace_testkit::KeySort;

/// Keys whose hashes share their top 14 bits (so one bucket of any table in a test), and the ends
/// of the range.
pub(super) fn keys_that_look_alike(make: Make<'_>) {
    let index = make(Setup::with_capacity(0));
    let alike = look_alike(&*index, 100);
    let ends = [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32];
    fill_and_empty(Subject::new(index, alike.into_iter().chain(ends)));
}

/// Seeds of keys whose hashes share their top 14 bits.
pub(super) fn look_alike(index: &dyn AnyIndex, count: usize) -> Vec<u64> {
    let sort = index.index_type().keys();
    let top = |n: u64| index.hash(&sort.key(n)) >> 50;
    let wanted = top(0);
    (0..).filter(|&n| top(n) == wanted).take(count).collect()
}

/// Keys in ascending order, in steps of a power of two, and with a single bit set.
pub(super) fn keys_in_order(make: Make<'_>) {
    fill_and_empty(Subject::new(make(Setup::with_capacity(0)), 0..3000));
    fill_and_empty(Subject::new(make(Setup::with_capacity(0)), (0..2000).map(|n| n << 40)));
    fill_and_empty(Subject::new(make(Setup::with_capacity(100)), (0..64).map(|bit| 1 << bit).chain([0])));
}

/// Keys that share their bytes in hard ways, among them the empty one and some of 64 KiB.
pub(super) fn keys_of_each_family(sort: KeySort, make: Make<'_>) {
    for Family { keys, .. } in families(sort) {
        fill_and_empty(Subject::of(make(Setup::with_capacity(0)), keys));
    }
}

fn fill_and_empty(subject: Subject) {
    let mut model = BTreeMap::new();
    for number in 0..subject.keys() {
        let pin = subject.pin();
        assert_eq!(pin.insert(number, 1).expect("room"), None, "key {number} is new");
        assert_eq!(pin.insert(number, 2).expect("room"), Some(1), "key {number} is there");
        model.insert(number, 1);
    }
    subject.assert_holds(&model);
    for number in (0..subject.keys()).filter(|number| number % 3 != 0) {
        let pin = subject.pin();
        assert_eq!(pin.remove(number), model.remove(&number));
        assert_eq!(pin.remove(number), None);
    }
    subject.assert_holds(&model);
    for number in 0..subject.keys() {
        assert_eq!(subject.pin().upsert(number, 3), model.insert(number, 3));
    }
    subject.assert_holds(&model);
    for number in 0..subject.keys() {
        assert_eq!(subject.pin().remove(number), Some(3));
    }
    subject.assert_holds(&BTreeMap::new());
}
