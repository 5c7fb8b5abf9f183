//! Ordered scans compared with a `BTreeMap`.

use super::model::check;
use super::subject::Setup;
use crate::TestKeys;
use proptest::prelude::*;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_index::{Direction, KeyKind, PointIndex, RangeIndex};
use terrace_pool::Guard;

/// An ordered index under test. Its keys are numbered in their order, from 0.
struct Ordered<I: RangeIndex>
where
    I::Kind: TestKeys,
{
    index: I,
    keys: Vec<<I::Kind as TestKeys>::Owned>,
}

type Key<I> = <<I as PointIndex>::Kind as KeyKind>::Key;

/// An end of a range: its kind and the number of its key.
type End = (u8, u64);

impl<I: RangeIndex> Ordered<I>
where
    I::Kind: TestKeys,
    Key<I>: Ord,
{
    fn new(index: I, seeds: impl IntoIterator<Item = u64>) -> Self {
        let mut keys: Vec<_> = seeds.into_iter().map(I::Kind::key).collect();
        keys.sort_by(|a, b| Borrow::<Key<I>>::borrow(a).cmp(b.borrow()));
        keys.dedup_by(|a, b| Borrow::<Key<I>>::borrow(a) == Borrow::<Key<I>>::borrow(b));
        Self { index, keys }
    }

    fn pin(&self) -> Guard<'_, I::Medium> {
        self.index.pool().pin()
    }

    fn key(&self, number: u64) -> &Key<I> {
        self.keys[number as usize].borrow()
    }

    fn put(&self, guard: &Guard<'_, I::Medium>, number: u64) {
        let word = I::Kind::word(guard, self.key(number), number, 1).expect("room for a word");
        if let Some(old) = self.index.upsert(guard, self.key(number), word).expect("room for a key") {
            I::Kind::free_word(guard, old, true);
        }
    }

    fn remove(&self, guard: &Guard<'_, I::Medium>, number: u64) -> bool {
        let word = self.index.remove(guard, self.key(number));
        word.into_iter().for_each(|word| I::Kind::free_word(guard, word, true));
        word.is_some()
    }

    fn bound(&self, (how, number): End) -> Bound<&Key<I>> {
        match how % 3 {
            0 => Bound::Included(self.key(number)),
            1 => Bound::Excluded(self.key(number)),
            _ => Bound::Unbounded,
        }
    }

    /// The numbers of the first `most` keys that a scan visits.
    fn scan(&self, from: End, to: End, direction: Direction, most: usize) -> Vec<u64> {
        let (guard, mut found) = (self.pin(), Vec::new());
        if most == 0 {
            return found;
        }
        self.index.range(&guard, self.bound(from), self.bound(to), direction, most, |_, word| {
            found.push(I::Kind::read(&guard, word).0);
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    fn all(&self, direction: Direction) -> Vec<u64> {
        self.scan((2, 0), (2, 0), direction, usize::MAX)
    }
}

/// The expected result of a scan of `model`.
fn expected(model: &BTreeMap<u64, ()>, from: End, to: End, direction: Direction, most: usize) -> Vec<u64> {
    let after = |n: u64| match from.0 % 3 {
        0 => n >= from.1,
        1 => n > from.1,
        _ => true,
    };
    let before = |n: u64| match to.0 % 3 {
        0 => n <= to.1,
        1 => n < to.1,
        _ => true,
    };
    let mut within: Vec<u64> = model.keys().copied().filter(|&n| after(n) && before(n)).collect();
    if direction == Direction::Backward {
        within.reverse();
    }
    within.truncate(most);
    within
}

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// Every kind of range end at random keys, present or not, in order or reversed, in both
/// directions, complete or stopped early.
pub(super) fn ranges_match_a_map<I: RangeIndex>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
    Key<I>: Ord,
{
    const KEYS: u64 = 300;
    let end = || (0..3u8, 0..KEYS);
    let changes = prop::collection::vec((0..KEYS, 0..3u8), 0..600);
    let scans = prop::collection::vec((end(), end(), prop_oneof![Just(usize::MAX), 0..20usize]), 1..20);
    check(40, &(changes, scans), |(changes, scans)| {
        let ordered = Ordered::new(make(Setup::with_capacity(0)), 0..KEYS);
        let mut model = BTreeMap::new();
        for (number, change) in changes {
            let guard = ordered.pin();
            if change == 0 {
                assert_eq!(ordered.remove(&guard, number), model.remove(&number).is_some());
            } else {
                ordered.put(&guard, number);
                model.insert(number, ());
            }
        }
        for ((from, to, most), direction) in scans.into_iter().flat_map(|scan| BOTH.map(|way| (scan, way))) {
            let found = ordered.scan(from, to, direction, most);
            assert_eq!(
                found,
                expected(&model, from, to, direction, most),
                "{from:?} to {to:?}, {direction:?}"
            );
        }
    });
}

/// Keys at the ends of the range and with single bits, inserted in ascending and descending order;
/// and ranges of one key.
pub(super) fn hard_insertion_orders<I: RangeIndex>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
    Key<I>: Ord,
{
    let ends = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1];
    let seeds: Vec<u64> = ends.into_iter().chain((0..64).map(|bit| 1 << bit)).chain(0..2000).collect();
    for falling in [false, true] {
        let ordered = Ordered::new(make(Setup::with_capacity(0)), seeds.iter().copied());
        let count = ordered.keys.len() as u64;
        for number in 0..count {
            ordered.put(&ordered.pin(), if falling { count - 1 - number } else { number });
        }
        assert!(ordered.all(Direction::Forward).into_iter().eq(0..count));
        assert!(ordered.all(Direction::Backward).into_iter().eq((0..count).rev()));
        for number in (0..count).step_by(7) {
            for direction in BOTH {
                assert_eq!(ordered.scan((0, number), (0, number), direction, 9), [number]);
                assert_eq!(ordered.scan((1, number), (1, number), direction, 9), [0; 0]);
                assert_eq!(ordered.scan((0, number), (1, number), direction, 9), [0; 0]);
            }
        }
        (0..count).for_each(|number| assert!(ordered.remove(&ordered.pin(), number)));
        assert_eq!(ordered.all(Direction::Forward), [0; 0]);
    }
}

/// While every other key is added and removed, scans visit the remaining keys exactly once, in
/// order.
pub(super) fn scans_stay_in_order_under_writes<I: RangeIndex>(make: &impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
    Key<I>: Ord,
{
    const KEYS: u64 = 1000;
    let ordered = Ordered::new(make(Setup::with_capacity(0)), 0..KEYS);
    (0..KEYS).step_by(2).for_each(|number| ordered.put(&ordered.pin(), number));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ordered, done) = (&ordered, &done);
        scope.spawn(move || {
            for round in 0..20 {
                for number in (1..KEYS).step_by(2) {
                    let guard = ordered.pin();
                    if round % 2 == 0 {
                        ordered.put(&guard, number)
                    } else {
                        _ = ordered.remove(&guard, number)
                    }
                }
            }
            done.store(true, Relaxed);
        });
        let mut scans = 0;
        while scans < 2 || !done.load(Relaxed) {
            for direction in BOTH {
                let mut found = ordered.all(direction);
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "out of order, or twice");
                let stay = found.into_iter().filter(|number| number % 2 == 0);
                assert!(stay.eq((0..KEYS).step_by(2)), "a stable key was missed");
            }
            scans += 1;
        }
    });
}
