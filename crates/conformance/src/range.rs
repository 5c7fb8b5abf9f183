//! Ordered scans compared with a `BTreeMap`, over each family of keys.

use super::erased::{AnyIndex, AnyOrdered};
use super::families::{Family, families};
use super::model::check_family;
use super::subject::{Setup, Subject};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use terrace_index::{Direction, Place};
use terrace_testkit::{KeySort, TestKey};

/// Makes an empty ordered index, according to the setup.
pub(super) type Make<'m> = &'m dyn Fn(Setup) -> Arc<dyn AnyOrdered>;

/// An ordered index under test. Its keys are numbered in their order, from 0.
pub(super) struct Ordered {
    index: Arc<dyn AnyOrdered>,
    pub(super) subject: Subject,
}

/// An end of a range: its kind and the number of its key.
pub(super) type End = (u8, u64);

/// The ends of a range, the lower one first.
pub(super) type Range = (End, End);

pub(super) const EVERYTHING: Range = ((2, 0), (2, 0));
pub(super) const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

impl Ordered {
    pub(super) fn new(make: Make<'_>, keys: Vec<TestKey>) -> Self {
        let index = make(Setup::with_capacity(0));
        Self { subject: Subject::of(index.clone() as Arc<dyn AnyIndex>, keys), index }
    }

    fn bound(&self, (how, number): End) -> Bound<&TestKey> {
        match how % 3 {
            0 => Bound::Included(self.subject.key(number)),
            1 => Bound::Excluded(self.subject.key(number)),
            _ => Bound::Unbounded,
        }
    }

    /// The numbers and versions of the first `most` keys that a scan visits.
    pub(super) fn scan(&self, (from, to): Range, direction: Direction, most: usize) -> Vec<(u64, u64)> {
        let (pin, mut found) = (self.subject.pin(), Vec::new());
        if most == 0 {
            return found;
        }
        self.index.range(self.bound(from), self.bound(to), direction, most, &mut |told, word| {
            let (number, version) = pin.raw.read(word);
            assert!(told.is_none_or(|key| *self.subject.key(number) == TestKey::Integer(key)), "{told:x?}");
            found.push((number, version));
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    /// The numbers and versions of the keys behind `place`, by a scan in steps, each under a pin of
    /// its own.
    pub(super) fn walk(&self, mut place: Place, step: usize) -> Vec<(u64, u64)> {
        let (mut found, mut is_over) = (Vec::new(), place.is_end());
        while !is_over {
            let pin = self.subject.pin();
            is_over = pin.raw.scan(&mut place, step, &mut |word| found.push(pin.raw.read(word)));
        }
        found
    }

    /// Asserts that scans from any place find the keys behind it, in order.
    fn assert_walks(&self, model: &BTreeMap<u64, u64>) {
        let all = expected(model, EVERYTHING, Direction::Forward, usize::MAX);
        for step in [1, 7, usize::MAX] {
            assert_eq!(self.walk(Place::Start, step), all, "a scan in steps of {step}");
        }
        for number in (0..self.subject.keys()).step_by(61) {
            let behind = match self.subject.key(number) {
                TestKey::Integer(key) => key.to_be_bytes().into(),
                TestKey::String(key) => key.as_slice().into(),
            };
            let first = all.partition_point(|found| found.0 <= number);
            assert_eq!(self.walk(Place::After(behind), 9), all[first..], "a scan from behind key {number}");
            let draw = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let found = self.walk(self.subject.pin().raw.random_place(draw), 9);
            assert_eq!(found, all[all.len() - found.len()..], "a scan from the place of {draw:#x}");
        }
    }

    /// Asserts that scans, and ranges of everything, of single keys and of none, find exactly
    /// `model`.
    fn assert_holds(&self, model: &BTreeMap<u64, u64>) {
        self.subject.assert_holds(model);
        self.assert_walks(model);
        for direction in BOTH {
            let every = |range, most| {
                assert_eq!(
                    self.scan(range, direction, most),
                    expected(model, range, direction, most),
                    "{range:?}, {direction:?}"
                )
            };
            every(EVERYTHING, usize::MAX);
            for number in (0..self.subject.keys()).step_by(7) {
                every(((0, number), (0, number)), 9);
                every(((1, number), (1, number)), 9);
                every(((0, number), (1, number)), 9);
            }
        }
    }
}

/// Whether key `number` is in a range.
pub(super) fn contains((from, to): Range, number: u64) -> bool {
    let after = match from.0 % 3 {
        0 => number >= from.1,
        1 => number > from.1,
        _ => true,
    };
    let before = match to.0 % 3 {
        0 => number <= to.1,
        1 => number < to.1,
        _ => true,
    };
    after && before
}

/// The expected result of a scan of `model`.
fn expected(model: &BTreeMap<u64, u64>, range: Range, direction: Direction, most: usize) -> Vec<(u64, u64)> {
    let all = model.iter().map(|(&number, &version)| (number, version));
    let mut within: Vec<_> = all.filter(|&(number, _)| contains(range, number)).collect();
    if direction == Direction::Backward {
        within.reverse();
    }
    within.truncate(most);
    within
}

/// Every kind of range end at random keys, present or not, in order or reversed, in both
/// directions, complete or stopped early.
pub(super) fn ranges_match_a_map(sort: KeySort, make: Make<'_>) {
    for Family { name, keys } in families(sort) {
        let count = keys.len() as u64;
        let end = || (0..3u8, 0..count);
        // The keys that are there at first: none to all, with gaps.
        let first = (1..5u64, 0..5u64);
        let changes = prop::collection::vec((0..count, 0..3u8), 0..600);
        let scans = prop::collection::vec((end(), end(), prop_oneof![Just(usize::MAX), 0..20usize]), 1..20);
        let cases = if name == "plain" { 40 } else { 12 };
        check_family(name, cases, &(first, changes, scans), |(first, changes, scans)| {
            let ordered = Ordered::new(make, keys.clone());
            let (subject, mut model) = (&ordered.subject, BTreeMap::new());
            for number in (0..count).filter(|number| number % first.0 < first.1) {
                assert_eq!(subject.pin().upsert(number, 1), model.insert(number, 1));
            }
            for (number, change) in changes {
                let version = u64::from(change);
                match change {
                    0 => assert_eq!(subject.pin().remove(number), model.remove(&number)),
                    _ => assert_eq!(subject.pin().upsert(number, version), model.insert(number, version)),
                }
            }
            ordered.assert_holds(&model);
            for ((from, to, most), direction) in
                scans.into_iter().flat_map(|scan| BOTH.map(|way| (scan, way)))
            {
                let found = ordered.scan((from, to), direction, most);
                let expected = expected(&model, (from, to), direction, most);
                assert_eq!(found, expected, "{from:?} to {to:?}, {direction:?}");
            }
        });
    }
}

/// Keys that are inserted and removed in ascending, descending and no order.
pub(super) fn hard_insertion_orders(sort: KeySort, make: Make<'_>) {
    for Family { name, keys } in families(sort) {
        let count = keys.len() as u64;
        for order in 0..3 {
            let ordered = Ordered::new(make, keys.clone());
            let (subject, mut model) = (&ordered.subject, BTreeMap::new());
            for number in in_order(count, order) {
                assert_eq!(subject.pin().insert(number, 1).expect("room"), None, "{name}");
                model.insert(number, 1);
            }
            ordered.assert_holds(&model);
            for (nth, number) in in_order(count, (order + 1) % 3).enumerate() {
                assert_eq!(subject.pin().remove(number), model.remove(&number), "{name}");
                if nth as u64 == count / 2 {
                    ordered.assert_holds(&model);
                }
            }
            ordered.assert_holds(&model);
        }
    }
}

/// The numbers below `count`: ascending, descending, or in no order.
pub(super) fn in_order(count: u64, order: u64) -> impl Iterator<Item = u64> {
    /// A prime above any number of keys in a family.
    const STEP: u64 = 7919;
    assert!(count < STEP, "a step that shares no factor with the number of keys");
    (0..count).map(move |n| match order {
        0 => n,
        1 => count - 1 - n,
        _ => (n * STEP + count / 3) % count,
    })
}
