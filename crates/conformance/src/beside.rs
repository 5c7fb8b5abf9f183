//! Ranges beside writers, which add, change and remove keys at the same nodes.

use super::concurrent::run_together;
use super::families::{Family, families};
use super::range::{BOTH, EVERYTHING, Make, Ordered, Range, contains, in_order};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use terrace_index::{Direction, Place};
use terrace_testkit::KeySort;

const WRITERS: u64 = 2;
const READERS: u64 = 2;
/// Rounds of each writer and scans of each reader, at least: each goes on until all have so many.
const ROUNDS: u64 = 6;
const SCANS: u64 = 20;

/// Ranges and scans visit each key that is there throughout exactly once, in order, each other key
/// at most once, and none that is absent throughout.
pub(super) fn ranges_beside_writers(sort: KeySort, make: Make<'_>) {
    for Family { name, keys } in families(sort) {
        // With few keys that stay, nodes grow to their largest kind and vanish again.
        for stay in [2, 50] {
            Beside::new(Ordered::new(make, keys.clone()), name, stay).run();
        }
    }
}

/// What a key's writer last did with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// A call is under way.
    Changing,
    Present,
}

struct Beside {
    ordered: Ordered,
    name: &'static str,
    /// One key of so many stays.
    stay: u64,
    /// The state of each key, below a number that grows with each change.
    states: Vec<AtomicU64>,
    /// Writers and readers that have done their part, or have failed.
    written: AtomicU64,
    scanned: AtomicU64,
}

/// A thread's part of the work. Counts as done when it is dropped, also by a panic.
struct Part<'p>(&'p AtomicU64);

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Beside {
    fn new(ordered: Ordered, name: &'static str, stay: u64) -> Self {
        let states = (0..ordered.subject.keys()).map(|_| AtomicU64::new(State::Absent as u64)).collect();
        Self { ordered, name, stay, states, written: AtomicU64::new(0), scanned: AtomicU64::new(0) }
    }

    fn run(&self) {
        (0..self.keys()).step_by(self.stay as usize).for_each(|number| self.put(number, 1));
        run_together(WRITERS + READERS, |thread| match thread {
            0..WRITERS => self.write(thread),
            _ => self.read(thread),
        });
        let is_there = |number: &u64| self.states[*number as usize].load(SeqCst) & 3 == State::Present as u64;
        let numbers: Vec<u64> = (0..self.keys()).filter(is_there).collect();
        assert!(numbers.iter().copied().eq((0..self.keys()).step_by(self.stay as usize)), "{}", self.name);
        self.ordered.subject.assert_holds(&numbers.into_iter().map(|number| (number, 1)).collect());
        while self.ordered.subject.pin().raw.maintain() {}
    }

    fn keys(&self) -> u64 {
        self.ordered.subject.keys()
    }

    fn put(&self, number: u64, version: u64) {
        self.change(number, State::Present, || _ = self.ordered.subject.pin().upsert(number, version));
    }

    fn remove(&self, number: u64) {
        self.change(number, State::Absent, || {
            let removed = self.ordered.subject.pin().remove(number);
            assert!(removed.is_some(), "{}: key {number}", self.name);
        });
    }

    fn change(&self, number: u64, to: State, call: impl FnOnce()) {
        let state = &self.states[number as usize];
        let next = (state.load(SeqCst) & !3) + 4;
        state.store(next | State::Changing as u64, SeqCst);
        call();
        state.store(next | to as u64, SeqCst);
    }

    /// Adds and removes all keys of this writer, in many orders; between the two changes some.
    fn write(&self, writer: u64) {
        let (mut round, mut part) = (0, Some(Part(&self.written)));
        while round < ROUNDS || self.scanned.load(SeqCst) < READERS {
            let own = |order| {
                let numbers = in_order(self.keys(), order % 3);
                numbers.filter(|number| number % self.stay != 0 && number / 2 % WRITERS == writer)
            };
            own(round).for_each(|number| self.put(number, 1));
            own(round + 1).step_by(5).for_each(|number| self.put(number, 2));
            own(round / 3).for_each(|number| self.remove(number));
            round += 1;
            if round == ROUNDS {
                drop(part.take());
            }
        }
    }

    fn read(&self, reader: u64) {
        let mut random = reader;
        let mut below = |end: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % end
        };
        let (mut nth, mut part) = (0, Some(Part(&self.scanned)));
        while nth < SCANS || self.written.load(SeqCst) < WRITERS {
            let range = match nth % 4 {
                0 => EVERYTHING,
                _ => {
                    let ends = [below(self.keys()), below(self.keys())];
                    ((below(3) as u8, ends[0].min(ends[1])), (below(3) as u8, ends[0].max(ends[1])))
                }
            };
            let most = if nth % 3 == 2 { 1 + below(40) as usize } else { usize::MAX };
            for direction in BOTH {
                self.check(range, direction, most, &|| self.ordered.scan(range, direction, most));
            }
            let step = 1 + below(30) as usize;
            self.check(EVERYTHING, Direction::Forward, usize::MAX, &|| self.ordered.walk(Place::Start, step));
            nth += 1;
            if nth == SCANS {
                drop(part.take());
            }
        }
    }

    /// Checks what `scan` finds of the first `most` keys of a range.
    fn check(&self, range: Range, direction: Direction, most: usize, scan: &dyn Fn() -> Vec<(u64, u64)>) {
        let states = || self.states.iter().map(|state| state.load(SeqCst)).collect::<Vec<u64>>();
        let before = states();
        let found = scan();
        let after = states();
        let what = || format!("{}: {range:?}, {direction:?}, {most} at most: {found:?}", self.name);
        let is_rising = match direction {
            Direction::Forward => found.is_sorted_by(|one, next| one.0 < next.0),
            Direction::Backward => found.is_sorted_by(|one, next| one.0 > next.0),
        };
        assert!(is_rising, "out of order, or twice: {}", what());
        let mut is_found = vec![false; before.len()];
        for &(number, version) in &found {
            assert!(contains(range, number), "key {number} is out of the range: {}", what());
            assert!(matches!(version, 1 | 2), "no one has written version {version} of key {number}");
            is_found[number as usize] = true;
        }
        // A scan that was stopped has not seen what is behind.
        let last = found.last().filter(|_| found.len() == most).map(|last| last.0);
        let is_seen = |number: u64| match (last, direction) {
            (None, _) => true,
            (Some(last), Direction::Forward) => number <= last,
            (Some(last), Direction::Backward) => number >= last,
        };
        for number in (0..self.keys()).filter(|&number| contains(range, number) && is_seen(number)) {
            let nth = number as usize;
            if before[nth] == after[nth] && before[nth] & 3 != State::Changing as u64 {
                let is_there = before[nth] & 3 == State::Present as u64;
                assert_eq!(is_found[nth], is_there, "key {number} throughout: {}", what());
            }
        }
    }
}
