//! Ordered scans compared with a `BTreeMap`.

use super::erased::{AnyIndex, AnyOrdered};
use super::model::check;
use super::subject::{Setup, Subject};
use crate::TestKey;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_index::Direction;

/// Makes an empty ordered index, according to the setup.
pub(super) type Make<'m> = &'m dyn Fn(Setup) -> Arc<dyn AnyOrdered>;

/// An ordered index under test. Its keys are numbered in their order, from 0.
struct Ordered {
    index: Arc<dyn AnyOrdered>,
    subject: Subject,
}

/// An end of a range: its kind and the number of its key.
type End = (u8, u64);

/// The ends of a range, the lower one first.
type Range = (End, End);

const EVERYTHING: Range = ((2, 0), (2, 0));
const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

impl Ordered {
    fn new(make: Make<'_>, seeds: impl IntoIterator<Item = u64>) -> Self {
        let index = make(Setup::with_capacity(0));
        let sort = index.index_type().keys();
        let mut keys: Vec<_> = seeds.into_iter().map(|seed| sort.key(seed)).collect();
        keys.sort_unstable();
        keys.dedup();
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
    fn scan(&self, (from, to): Range, direction: Direction, most: usize) -> Vec<(u64, u64)> {
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

    /// Asserts that scans of everything, and of single keys and none, find exactly `model`.
    fn assert_holds(&self, model: &BTreeMap<u64, u64>) {
        self.subject.assert_holds(model);
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
fn contains((from, to): Range, number: u64) -> bool {
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
pub(super) fn ranges_match_a_map(make: Make<'_>) {
    const KEYS: u64 = 300;
    let end = || (0..3u8, 0..KEYS);
    let changes = prop::collection::vec((0..KEYS, 0..3u8), 0..600);
    let scans = prop::collection::vec((end(), end(), prop_oneof![Just(usize::MAX), 0..20usize]), 1..20);
    check(40, &(changes, scans), |(changes, scans)| {
        let ordered = Ordered::new(make, 0..KEYS);
        let (subject, mut model) = (&ordered.subject, BTreeMap::new());
        for (number, change) in changes {
            let version = u64::from(change);
            match change {
                0 => assert_eq!(subject.pin().remove(number), model.remove(&number)),
                _ => assert_eq!(subject.pin().upsert(number, version), model.insert(number, version)),
            }
        }
        for ((from, to, most), direction) in scans.into_iter().flat_map(|scan| BOTH.map(|way| (scan, way))) {
            let found = ordered.scan((from, to), direction, most);
            let expected = expected(&model, (from, to), direction, most);
            assert_eq!(found, expected, "{from:?} to {to:?}, {direction:?}");
        }
    });
}

/// Keys at the ends of the range and with single bits, inserted in ascending and descending order;
/// and ranges of one key.
pub(super) fn hard_insertion_orders(make: Make<'_>) {
    let ends = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1];
    let seeds: Vec<u64> = ends.into_iter().chain((0..64).map(|bit| 1 << bit)).chain(0..2000).collect();
    for falling in [false, true] {
        let ordered = Ordered::new(make, seeds.iter().copied());
        let (count, mut model) = (ordered.subject.keys(), BTreeMap::new());
        for number in 0..count {
            let number = if falling { count - 1 - number } else { number };
            assert_eq!(ordered.subject.pin().upsert(number, 1), model.insert(number, 1));
        }
        ordered.assert_holds(&model);
        (0..count).for_each(|number| assert_eq!(ordered.subject.pin().remove(number), model.remove(&number)));
        ordered.assert_holds(&model);
    }
}

/// While every other key is added and removed, scans visit the remaining keys exactly once, in
/// order.
pub(super) fn scans_stay_in_order_under_writes(make: Make<'_>) {
    const KEYS: u64 = 1000;
    let ordered = Ordered::new(make, 0..KEYS);
    (0..KEYS).step_by(2).for_each(|number| _ = ordered.subject.pin().upsert(number, 1));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ordered, done) = (&ordered, &done);
        scope.spawn(move || {
            for round in 0..20 {
                for number in (1..KEYS).step_by(2) {
                    match round % 2 {
                        0 => _ = ordered.subject.pin().upsert(number, 1),
                        _ => _ = ordered.subject.pin().remove(number),
                    }
                }
            }
            done.store(true, Relaxed);
        });
        let mut scans = 0;
        while scans < 2 || !done.load(Relaxed) {
            for direction in BOTH {
                let mut found = ordered.scan(EVERYTHING, direction, usize::MAX);
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert!(found.is_sorted_by(|one, next| one.0 < next.0), "out of order, or twice");
                let stay = found.into_iter().map(|(number, _)| number).filter(|number| number % 2 == 0);
                assert!(stay.eq((0..KEYS).step_by(2)), "a stable key was missed");
            }
            scans += 1;
        }
    });
}
