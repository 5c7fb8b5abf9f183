//! The answers that threads got, and whether one order of their calls explains them. The check
//! covers the whole store at once, so a batch applied in part is detected.

use super::causal::{self, Part as Piece};
use super::scenario::ThreadOp;
use crate::crash::{Effect, Key, Op, Version, Violation};
use crate::linearizability::{Interval, final_states};
use std::collections::BTreeSet;
use std::fmt;

/// The content of a store, by key.
pub type Contents = Vec<Option<Version>>;

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The state in which the operation found the key.
    Found(Option<Version>),
    /// The result of a scan.
    Scanned(Vec<(Key, Version)>),
    /// The number of keys.
    Counted(u64),
    /// There was no room; nothing changed.
    Full,
    /// No value.
    Done,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(Some(version)) => write!(f, "v{version}"),
            Self::Found(None) => f.write_str("none"),
            Self::Scanned(found) => {
                let each: Vec<String> =
                    found.iter().map(|(key, version)| format!("k{key} = v{version}")).collect();
                write!(f, "{}", each.join(", "))
            }
            Self::Counted(keys) => write!(f, "{keys} keys"),
            Self::Full => f.write_str("no room"),
            Self::Done => f.write_str("done"),
        }
    }
}

/// One call of a thread.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its position among all planned calls.
    pub number: usize,
    /// The thread that made it.
    pub thread: usize,
    /// The operation.
    pub act: ThreadOp,
    /// When it began.
    pub called: u64,
    /// When it returned, and its answer; `None` if it did not return.
    pub returned: Option<(u64, Answer)>,
}

/// The calls of a run.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The content of the store before the calls.
    pub initial: Contents,
    /// All calls.
    pub calls: Vec<Call>,
    /// Threads whose calls are not ordered by time, one bit each.
    pub apart: u8,
}

/// A part of a call that takes effect atomically.
struct Moment {
    interval: Interval,
    what: What,
}

pub(super) enum What {
    /// Reads this state of the key.
    Read(Key, Option<Version>),
    /// Reads these states of several keys at one instant.
    ReadAll(Vec<(Key, Option<Version>)>),
    /// Applies the operation, which finds this state if its answer is known.
    Change(Op, Option<Option<Version>>),
}

impl Moment {
    fn apply(&self, state: &Contents) -> Option<Contents> {
        match &self.what {
            What::Read(key, found) => (state[*key] == *found).then(|| state.clone()),
            What::ReadAll(all) => all.iter().all(|&(key, found)| state[key] == found).then(|| state.clone()),
            What::Change(op, found) => {
                if found.is_some_and(|found| found != op.answer(state)) {
                    return None;
                }
                let mut after = state.clone();
                let effects: Vec<Effect> = op.effects(state);
                effects.into_iter().for_each(|(key, to)| after[key] = to);
                Some(after)
            }
        }
    }
}

/// The possible contents of a store. Keys that no call changes or reads together are independent,
/// so their contents are kept separately. (Linearizability is a local property: M. Herlihy, J.
/// Wing: *Linearizability*, TOPLAS 1990, section 3.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcomes(Vec<Part>);

/// Keys that some call changes or reads together, and their possible contents.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    keys: Vec<Key>,
    states: BTreeSet<Contents>,
}

fn only(keys: &[Key], contents: &[Option<Version>]) -> Contents {
    keys.iter().map(|&key| contents[key]).collect()
}

impl Outcomes {
    /// The empty set: no order explains the answers.
    pub(super) const NONE: Self = Self(Vec::new());

    /// Independent keys with these possible contents.
    pub(super) fn of_keys(keys: impl Iterator<Item = Vec<Option<Version>>>) -> Self {
        let part = |(key, versions): (Key, Vec<Option<Version>>)| Part {
            keys: vec![key],
            states: versions.into_iter().map(|version| vec![version]).collect(),
        };
        Self(keys.enumerate().map(part).collect())
    }

    /// Whether the set is empty: no order explains the answers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(|part| part.states.is_empty())
    }

    /// Whether this content is possible.
    pub fn contains(&self, contents: &[Option<Version>]) -> bool {
        !self.0.is_empty() && self.0.iter().all(|part| part.states.contains(&only(&part.keys, contents)))
    }

    /// Whether this is a subset of `others`, the outcomes of the same calls at another time.
    pub(super) fn is_subset_of(&self, others: &Self) -> bool {
        self.0.iter().zip(&others.0).all(|(part, other)| part.states.is_subset(&other.states))
    }

    /// A hash of the set.
    pub(super) fn number(&self) -> u64 {
        let words = self.0.iter().flat_map(|part| part.states.iter().flatten());
        words.fold(1, |number, version| crate::crash::hash(number, version.map_or(0, |version| version + 1)))
    }

    /// The possible states of `key`.
    fn of(&self, key: Key) -> BTreeSet<Option<Version>> {
        let part = self.0.iter().find_map(|part| Some((part, part.keys.iter().position(|&it| it == key)?)));
        let states = part.map(|(part, place)| part.states.iter().map(move |state| state[place]));
        states.into_iter().flatten().collect()
    }
}

impl Calls {
    /// The call with this number.
    pub(super) fn numbered(&self, number: usize) -> Option<&Call> {
        self.calls.iter().find(|call| call.number == number)
    }

    /// The possible contents after these calls, if an order explains all answers; else the empty
    /// set. Leaves out calls that began after `until`. Calls that had not returned then may have
    /// taken effect or not.
    pub fn outcomes(&self, until: u64) -> Outcomes {
        if self.apart != 0 {
            return causal::outcomes(self.pieces(until), &self.initial, |thread| self.is_apart(thread));
        }
        let moments = self.moments(until);
        Outcomes(self.parts().into_iter().map(|keys| self.outcomes_of(keys, &moments)).collect())
    }

    fn outcomes_of(&self, keys: Vec<Key>, moments: &[Moment]) -> Part {
        let is_of = |moment: &&Moment| moment.keys().iter().any(|key| keys.contains(key));
        let mut moments: Vec<&Moment> = moments.iter().filter(is_of).collect();
        let changed: BTreeSet<Key> = moments.iter().flat_map(|moment| moment.changes()).collect();
        // Reads of keys that no call changes do not constrain the order; they only have to be
        // right.
        let mut sound = true;
        moments.retain(|moment| match moment.what {
            What::Read(key, found) if !changed.contains(&key) => {
                sound &= self.initial[key] == found;
                false
            }
            _ => true,
        });
        if !sound {
            return Part { keys, states: BTreeSet::new() };
        }
        let intervals: Vec<Interval> = moments.iter().map(|moment| moment.interval).collect();
        let states =
            final_states(self.initial.clone(), &intervals, |index, state| moments[index].apply(state));
        let states = states.iter().map(|state| only(&keys, state)).collect();
        Part { keys, states }
    }

    /// Groups the keys that any of the calls changes or reads together.
    fn parts(&self) -> Vec<Vec<Key>> {
        let mut parts: Vec<Vec<Key>> = (0..self.initial.len()).map(|key| vec![key]).collect();
        for call in &self.calls {
            let together = match &call.act {
                ThreadOp::Do(op @ Op::Batch(_)) => op.keys(),
                ThreadOp::Snapshot(keys) => keys.clone(),
                _ => continue,
            };
            let (joined, rest): (Vec<_>, Vec<_>) =
                parts.into_iter().partition(|part| part.iter().any(|key| together.contains(key)));
            parts = rest;
            parts.push(joined.concat());
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Checks that the store may contain `end` after all calls.
    pub fn explain(&self, end: &Contents) -> Result<(), Violation> {
        let outcomes = self.outcomes(u64::MAX);
        if outcomes.contains(end) {
            return Ok(());
        }
        if outcomes.is_empty() {
            return Err("no order of these calls explains what they were answered".into());
        }
        self.describe_difference(&outcomes, end)
    }

    /// Checks that no scan found a key twice, unless another call removed it meanwhile.
    pub(super) fn check_scans(&self) -> Result<(), Violation> {
        for scan in &self.calls {
            let Some((_, Answer::Scanned(found))) = &scan.returned else { continue };
            let is_meanwhile =
                |call: &&Call| causal::is_meanwhile(call, scan, |thread| self.is_apart(thread));
            let taken: Vec<Key> =
                self.calls.iter().filter(is_meanwhile).flat_map(|call| call.act.removes()).collect();
            let mut keys = BTreeSet::new();
            if let Some((key, _)) = found.iter().find(|(key, _)| !keys.insert(key) && !taken.contains(key)) {
                return Err(format!("thread {}'s scan finds k{key} twice", scan.thread));
            }
        }
        Ok(())
    }

    /// Checks the answers to counts, if no call changes a key.
    pub(super) fn check_counts(&self) -> Result<(), Violation> {
        let keys = self.initial.iter().flatten().count() as u64;
        let is_unchanged = self.calls.iter().all(|call| call.act.changes().is_empty());
        let wrong_count = |call: &Call| match call.returned {
            Some((_, Answer::Counted(counted))) if counted != keys => Some((call.thread, counted)),
            _ => None,
        };
        match self.calls.iter().find_map(wrong_count).filter(|_| is_unchanged) {
            Some((thread, counted)) => {
                Err(format!("thread {thread} counts {counted} keys, but there are {keys}"))
            }
            None => Ok(()),
        }
    }

    /// Describes how `end` differs from all `outcomes`.
    pub(super) fn describe_difference(&self, outcomes: &Outcomes, end: &Contents) -> Result<(), Violation> {
        let display = |version: Option<Version>| Answer::Found(version).to_string();
        let Some(key) = (0..end.len()).find(|&key| !outcomes.of(key).contains(&end[key])) else {
            return Err("no order of these calls leaves what the store holds".into());
        };
        let all: Vec<String> = outcomes.of(key).into_iter().map(display).collect();
        let (end, all) = (display(end[key]), all.join(" or "));
        Err(format!("get(k{key}) = {end}, but every order of these calls leaves {all}"))
    }

    fn is_apart(&self, thread: usize) -> bool {
        self.apart >> thread & 1 == 1
    }

    fn moments(&self, until: u64) -> Vec<Moment> {
        let moment = |piece: Piece<'_>| {
            let returned = piece.call.returned.as_ref().map(|(at, _)| *at).filter(|_| !piece.is_open);
            let interval = Interval { called: piece.call.called, returned };
            Moment { interval, what: piece.what }
        };
        self.pieces(until).into_iter().map(moment).collect()
    }

    /// The parts of the calls that had begun at `until`.
    fn pieces(&self, until: u64) -> Vec<Piece<'_>> {
        let made = self.calls.iter().filter(|call| call.called <= until);
        made.flat_map(|call| {
            let answer = call.returned.as_ref().filter(|(at, _)| *at <= until).map(|(_, answer)| answer);
            // If several puts ran out of room, some of them may have succeeded.
            let is_partial =
                |answer: &Answer| matches!((&call.act, answer), (ThreadOp::Do(Op::Puts(_)), Answer::Full));
            let is_open = answer.is_none_or(is_partial);
            parts(&call.act, answer, self.initial.len()).into_iter().map(move |what| Piece {
                call,
                what,
                is_open,
            })
        })
        .collect()
    }
}

/// The atomic parts of a call.
fn parts(act: &ThreadOp, answer: Option<&Answer>, keys: usize) -> Vec<What> {
    match (act, answer) {
        (ThreadOp::Get(key), Some(Answer::Found(found))) => vec![What::Read(*key, *found)],
        (ThreadOp::Scan, Some(Answer::Scanned(found))) => {
            let of = |key: Key| found.iter().find(|found| found.0 == key).map(|found| found.1);
            (0..keys).map(|key| What::Read(key, of(key))).collect()
        }
        (&ThreadOp::Range(from, to, _), Some(Answer::Scanned(found))) => {
            let of = |key: Key| found.iter().find(|found| found.0 == key).map(|found| found.1);
            (from..=to).map(|key| What::Read(key, of(key))).collect()
        }
        (ThreadOp::Snapshot(keys), Some(Answer::Scanned(found))) => {
            let of = |key: Key| found.iter().find(|found| found.0 == key).map(|found| found.1);
            vec![What::ReadAll(keys.iter().map(|&key| (key, of(key))).collect())]
        }
        (ThreadOp::Do(Op::Puts(puts)), _) => {
            puts.iter().map(|&(key, version)| What::Change(Op::Put(key, version), None)).collect()
        }
        (ThreadOp::Do(_), Some(Answer::Full)) | (ThreadOp::Do(Op::Background(_)), _) => Vec::new(),
        (ThreadOp::Do(op @ Op::Batch(_)), _) => vec![What::Change(op.clone(), None)],
        (ThreadOp::Do(op), Some(Answer::Found(found))) => vec![What::Change(op.clone(), Some(*found))],
        (ThreadOp::Do(op), _) => vec![What::Change(op.clone(), None)],
        _ => Vec::new(),
    }
}

impl What {
    pub(super) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Read(key, _) => vec![*key],
            Self::ReadAll(all) => all.iter().map(|read| read.0).collect(),
            Self::Change(op, _) => op.keys(),
        }
    }
}

impl Moment {
    fn keys(&self) -> Vec<Key> {
        self.what.keys()
    }

    fn changes(&self) -> Vec<Key> {
        match &self.what {
            What::Read(..) | What::ReadAll(_) => Vec::new(),
            What::Change(op, _) => op.keys(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(thread: usize, times: (u64, Option<u64>), act: ThreadOp, answer: Answer) -> Call {
        Call { number: 0, thread, act, called: times.0, returned: times.1.map(|at| (at, answer)) }
    }

    #[test]
    fn half_of_a_batch_is_rejected() {
        let batch = ThreadOp::Do(Op::Batch(vec![(0, Some(5)), (1, Some(6))]));
        let get = |key, at, found| call(1, (at, Some(at + 1)), ThreadOp::Get(key), Answer::Found(found));
        let calls = |reads: Vec<Call>| Calls {
            apart: 0,
            initial: vec![None, None],
            calls: std::iter::once(call(0, (1, Some(20)), batch.clone(), Answer::Done))
                .chain(reads)
                .collect(),
        };
        assert!(calls(vec![get(0, 2, None), get(1, 4, Some(6))]).explain(&vec![Some(5), Some(6)]).is_ok());
        let half = calls(vec![get(0, 2, Some(5)), get(1, 4, None)]);
        assert!(half.explain(&vec![Some(5), Some(6)]).is_err_and(|wrong| wrong.contains("no order")));
        let wrong = calls(vec![]).explain(&vec![Some(5), None]).unwrap_err();
        assert!(wrong.contains("get(k1) = none, but every order of these calls leaves v6"), "{wrong}");
    }

    #[test]
    fn snapshot_needs_one_instant() {
        let put =
            |key, at, version| call(0, (at, Some(at + 1)), ThreadOp::Do(Op::Put(key, version)), Answer::Done);
        let calls = |found: &[(Key, Version)]| Calls {
            apart: 0,
            initial: vec![None, None],
            calls: vec![
                put(0, 1, 5),
                put(1, 3, 6),
                call(1, (0, Some(9)), ThreadOp::Snapshot(vec![0, 1]), Answer::Scanned(found.to_vec())),
            ],
        };
        let end = vec![Some(5), Some(6)];
        assert!(calls(&[(0, 5)]).explain(&end).is_ok() && calls(&[]).explain(&end).is_ok());
        assert!(calls(&[(1, 6)]).explain(&end).is_err());
    }

    #[test]
    fn unfinished_call_is_optional_unless_it_was_seen() {
        let put = call(0, (1, None), ThreadOp::Do(Op::Put(0, 7)), Answer::Done);
        let calls = Calls { initial: vec![None], calls: vec![put.clone()], apart: 0 };
        assert_eq!(calls.outcomes(9).of(0), [None, Some(7)].into());
        assert_eq!(calls.outcomes(0).of(0), [None].into());
        let seen = call(1, (2, Some(3)), ThreadOp::Get(0), Answer::Found(Some(7)));
        let calls = Calls { initial: vec![None], calls: vec![put, seen], apart: 0 };
        assert_eq!(calls.outcomes(9).of(0), [Some(7)].into(), "a reader has seen it");
    }

    #[test]
    fn scan_finds_a_key_twice_only_after_a_removal() {
        let scan = call(0, (3, Some(6)), ThreadOp::Scan, Answer::Scanned(vec![(0, 7), (0, 7)]));
        let other = |times, op| call(1, times, ThreadOp::Do(op), Answer::Done);
        let check_scans = |calls: Vec<Call>| {
            let calls = std::iter::once(scan.clone()).chain(calls).collect();
            Calls { initial: vec![Some(7)], calls, apart: 0 }.check_scans()
        };
        assert_eq!(check_scans(vec![]), Err("thread 0's scan finds k0 twice".into()));
        let back = || other((5, Some(9)), Op::Put(0, 7));
        assert_eq!(check_scans(vec![other((1, Some(4)), Op::Remove(0)), back()]), Ok(()));
        assert!(
            check_scans(vec![other((1, Some(2)), Op::Remove(0)), back()]).is_err(),
            "it was removed before"
        );
    }

    #[test]
    fn count_is_checked_unless_keys_change() {
        let count = |keys| call(1, (2, Some(3)), ThreadOp::Count, Answer::Counted(keys));
        let check_counts = |calls: Vec<Call>| {
            Calls { initial: vec![Some(7), None, Some(8)], calls, apart: 0 }.check_counts()
        };
        assert_eq!(check_counts(vec![count(2)]), Ok(()));
        let wrong = "thread 1 counts 3 keys, but there are 2";
        assert_eq!(check_counts(vec![count(2), count(3)]), Err(wrong.to_string()));
        let put = call(0, (1, Some(9)), ThreadOp::Do(Op::Put(1, 5)), Answer::Done);
        assert_eq!(check_counts(vec![count(3), put]), Ok(()));
    }

    #[test]
    fn keys_without_a_common_batch_are_independent() {
        let put = |key, version| call(0, (1, None), ThreadOp::Do(Op::Put(key, version)), Answer::Done);
        let batch = call(1, (1, None), ThreadOp::Do(Op::Batch(vec![(0, Some(5)), (2, None)])), Answer::Done);
        let calls = vec![put(0, 3), put(1, 4), batch];
        let calls = Calls { initial: vec![None, None, Some(1)], calls, apart: 0 };
        assert_eq!(calls.parts(), [vec![1], vec![0, 2]]);
        let outcomes = calls.outcomes(9);
        let may = |contents: [Option<Version>; 3]| outcomes.contains(&contents);
        assert!(may([None, None, Some(1)]) && may([Some(5), Some(4), None]) && may([Some(3), None, None]));
        assert!(!may([None, None, None]) && !may([Some(5), None, Some(1)]) && !may([None, Some(5), Some(1)]));
        assert!(calls.outcomes(0).is_subset_of(&outcomes) && !outcomes.is_subset_of(&calls.outcomes(0)));
    }
}
