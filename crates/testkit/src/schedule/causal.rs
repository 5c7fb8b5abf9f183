//! Checks calls of threads that are not ordered by time, because the threads execute no barriers
//! between calls: are the answers consistent with what each thread must have seen?
//!
//! A part of a call precedes another one in these cases: its thread does it in an earlier call; the
//! other one reads its result; both threads order their calls by barriers and the clock says so; or
//! by transitivity. For each key, one order of all accesses to it must respect this and explain
//! each answer. So after puts of J and then K, a thread that reads the new K must read the new J
//! afterwards. No common order of all keys is required: if two threads each write a key and then
//! read the other's, both may read the old value. (M. Ahamad, G. Neiger, J. Burns, P. Kohli, P.
//! Hutto: *Causal memory*, Distributed Computing 1995; with one order per key.)
//!
//! A change or read of several keys at one instant is one part, so a reader of one half of a batch
//! must see the other half afterwards. A scan has a part for each key, and these parts are
//! unordered.

use super::calls::{Answer, Call, Contents, Outcomes, What};
use crate::crash::{Key, Op, Version};
use crate::linearizability::final_states_after;

/// A part of a call.
pub(super) struct Part<'c> {
    pub(super) call: &'c Call,
    pub(super) what: What,
    /// Whether it may have had no effect.
    pub(super) is_open: bool,
}

/// The precedence relation, as rows of bits.
struct Before {
    rows: Vec<Vec<u64>>,
}

impl Before {
    fn new(count: usize) -> Self {
        Self { rows: vec![vec![0; count.div_ceil(64)]; count] }
    }

    fn is(&self, first: usize, second: usize) -> bool {
        self.rows[second][first / 64] >> (first % 64) & 1 == 1
    }

    fn set(&mut self, first: usize, second: usize) {
        self.rows[second][first / 64] |= 1 << (first % 64);
    }

    /// Makes the relation transitive.
    fn close(&mut self) {
        for middle in 0..self.rows.len() {
            let row = self.rows[middle].clone();
            for second in 0..self.rows.len() {
                if self.is(middle, second) {
                    self.rows[second].iter_mut().zip(&row).for_each(|(bits, more)| *bits |= more);
                }
            }
        }
    }
}

impl Part<'_> {
    fn keys(&self) -> Vec<Key> {
        self.what.keys()
    }

    /// The state of a key after this part, if the part may have found the key in state `before`.
    fn apply(&self, key: Key, before: Option<Version>) -> Option<Option<Version>> {
        match &self.what {
            What::Read(_, found) => (*found == before).then_some(before),
            What::ReadAll(all) => {
                let found = all.iter().find(|read| read.0 == key)?.1;
                (found == before).then_some(before)
            }
            What::Change(op, found) => {
                let mut contents = vec![None; key + 1];
                contents.resize(op.keys().into_iter().max().unwrap_or(0).max(key) + 1, None);
                contents[key] = before;
                if found.is_some_and(|found| found != op.answer(&contents)) {
                    return None;
                }
                op.do_to(&mut contents);
                Some(contents[key])
            }
        }
    }

    /// The states in which it found keys, as far as known.
    fn found(&self) -> Vec<(Key, Option<Version>)> {
        match &self.what {
            What::Read(key, found) => vec![(*key, *found)],
            What::ReadAll(all) => all.clone(),
            What::Change(op, Some(found)) => {
                op.keys().first().map(|&key| (key, *found)).into_iter().collect()
            }
            What::Change(_, None) => Vec::new(),
        }
    }

    /// The versions that it may write.
    fn writes(&self) -> Vec<(Key, Version)> {
        match &self.what {
            What::Change(op, _) => op.written(),
            _ => Vec::new(),
        }
    }

    /// Whether it certainly wrote a version to a key.
    fn has_written(&self, key: Key) -> bool {
        let is_sure = |op: &Op| matches!(op, Op::Put(..) | Op::Batch(_));
        !self.is_open
            && matches!(&self.what, What::Change(op, _) if is_sure(op) && op.written().iter().any(|it| it.0 == key))
    }

    /// Whether it may have removed a key.
    fn may_remove(&self, key: Key) -> bool {
        match &self.what {
            // The key was absent.
            What::Change(_, Some(None)) => false,
            What::Change(op, _) => op.removed().contains(&key),
            _ => false,
        }
    }
}

/// The possible states of each key after these parts; empty if they are inconsistent. Threads that
/// are apart are not ordered by time.
pub(super) fn outcomes(
    parts: Vec<Part<'_>>,
    initial: &Contents,
    is_apart: impl Fn(usize) -> bool,
) -> Outcomes {
    let changed: Vec<Key> =
        parts.iter().filter(|part| matches!(part.what, What::Change(..))).flat_map(Part::keys).collect();
    let is_of_changed = |part: &Part<'_>| part.keys().iter().any(|key| changed.contains(key));
    // Reads of keys that no part changes do not constrain the order; they only have to be right.
    let (parts, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_of_changed);
    let finds = |part: &Part<'_>| part.found().iter().all(|&(key, found)| initial[key] == found);
    if !rest.iter().all(finds) {
        return Outcomes::NONE;
    }
    let before = before(&parts, initial, is_apart);
    Outcomes::of_keys((0..initial.len()).map(|key| of_key(key, &parts, &before, initial[key])))
}

fn of_key(key: Key, parts: &[Part<'_>], before: &Before, initial: Option<Version>) -> Vec<Option<Version>> {
    let here: Vec<usize> = (0..parts.len()).filter(|&at| parts[at].keys().contains(&key)).collect();
    let bits = |is: &dyn Fn(usize) -> bool| {
        here.iter().enumerate().filter(|&(_, &at)| is(at)).fold(0u128, |bits, (i, _)| bits | 1 << i)
    };
    let rows: Vec<u128> = here.iter().map(|&second| bits(&|first| before.is(first, second))).collect();
    let needed = bits(&|at| !parts[at].is_open);
    let states = final_states_after(initial, &rows, needed, |i, &state| parts[here[i]].apply(key, state));
    states.into_iter().collect()
}

/// Computes the precedence relation.
fn before(parts: &[Part<'_>], initial: &Contents, is_apart: impl Fn(usize) -> bool) -> Before {
    let mut before = Before::new(parts.len());
    let all = || (0..parts.len()).flat_map(|first| (0..parts.len()).map(move |second| (first, second)));
    for (first, second) in all() {
        let [one, other] = [first, second].map(|at| parts[at].call);
        let returned = one.returned.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let has_clock = one.thread == other.thread || !(is_apart(one.thread) || is_apart(other.thread));
        if has_clock && returned < other.called {
            before.set(first, second);
        }
    }
    let writer =
        |key: Key, version: Version| parts.iter().position(|part| part.writes().contains(&(key, version)));
    for (second, part) in parts.iter().enumerate() {
        for (key, found) in part.found() {
            let writer = found.and_then(|version| writer(key, version));
            if let Some(first) = writer.filter(|&first| first != second) {
                before.set(first, second);
            }
        }
    }
    before.close();
    // A read that finds a key absent follows the removal, if only one removal is possible.
    while add_removals(parts, initial, &mut before) {
        before.close();
    }
    before
}

fn add_removals(parts: &[Part<'_>], initial: &Contents, before: &mut Before) -> bool {
    let mut is_more = false;
    for (second, part) in parts.iter().enumerate() {
        for key in part.found().into_iter().filter(|found| found.1.is_none()).map(|found| found.0) {
            let is_over = |first: usize| {
                let between =
                    |at: usize| parts[at].has_written(key) && before.is(first, at) && before.is(at, second);
                before.is(second, first) || (0..parts.len()).any(between)
            };
            let removals = (0..parts.len()).filter(|&at| at != second && parts[at].may_remove(key));
            let may_be: Vec<usize> = removals.filter(|&at| !is_over(at)).collect();
            let has_come = |at: usize| parts[at].has_written(key) && before.is(at, second);
            let may_be_first = initial[key].is_none() && !(0..parts.len()).any(has_come);
            if let ([only], false) = (&may_be[..], may_be_first)
                && !before.is(*only, second)
            {
                before.set(*only, second);
                is_more = true;
            }
        }
    }
    is_more
}

/// Whether a call may overlap a scan; always possible if one of the threads is not ordered by time.
pub(super) fn is_meanwhile(call: &Call, scan: &Call, is_apart: impl Fn(usize) -> bool) -> bool {
    let returned = |call: &Call| call.returned.as_ref().map(|(at, _): &(u64, Answer)| *at);
    let ends_before = |one: &Call, other: &Call| returned(one).is_some_and(|at| at < other.called);
    is_apart(call.thread) || is_apart(scan.thread) || !(ends_before(call, scan) || ends_before(scan, call))
}

#[cfg(test)]
mod tests {
    use super::super::calls::{Answer, Calls};
    use super::super::scenario::ThreadOp;
    use super::*;

    /// Calls of several threads, each in its own order, all within the run.
    fn calls(initial: Contents, of_threads: &[&[(ThreadOp, Answer)]]) -> Calls {
        let threads = of_threads.iter().enumerate();
        let calls = threads.flat_map(|(thread, calls)| {
            calls.iter().enumerate().map(move |(place, (act, answer))| {
                let at = 10 * place as u64;
                let (act, returned) = (act.clone(), Some((at + 5, answer.clone())));
                Call { number: 100 * thread + place, thread, act, called: at, returned }
            })
        });
        Calls { initial, calls: calls.collect(), apart: 0b1111 }
    }

    fn put(key: Key, version: Version) -> (ThreadOp, Answer) {
        (ThreadOp::Do(Op::Put(key, version)), Answer::Done)
    }
    fn get(key: Key, found: Option<Version>) -> (ThreadOp, Answer) {
        (ThreadOp::Get(key), Answer::Found(found))
    }
    const END: [Option<Version>; 2] = [Some(5), Some(6)];

    #[test]
    fn reader_of_the_later_write_sees_the_earlier_one() {
        let explain = |found: &[(ThreadOp, Answer)]| {
            calls(vec![None, None], &[&[put(0, 5), put(1, 6)], found]).explain(&END.to_vec())
        };
        assert_eq!(explain(&[get(1, Some(6)), get(0, Some(5))]), Ok(()));
        assert_eq!(explain(&[get(0, None), get(1, Some(6))]), Ok(()));
        assert_eq!(explain(&[get(1, None), get(0, None)]), Ok(()), "the calls are not ordered by time");
        assert!(explain(&[get(1, Some(6)), get(0, None)]).is_err());
        assert!(explain(&[get(0, Some(5)), get(0, None)]).is_err(), "each key has one order");
        let scanned = |found: &[(Key, Version)]| (ThreadOp::Scan, Answer::Scanned(found.to_vec()));
        assert_eq!(explain(&[scanned(&[(1, 6)])]), Ok(()), "it read the other key first");
        assert!(explain(&[scanned(&[(1, 6)]), get(0, None)]).is_err());
    }

    #[test]
    fn precedence_is_transitive() {
        let explain = |last: Option<Version>| {
            let second = [get(0, Some(5)), put(1, 6)];
            let third = [get(1, Some(6)), get(0, last)];
            calls(vec![None, None], &[&[put(0, 5)], &second, &third]).explain(&END.to_vec())
        };
        assert_eq!(explain(Some(5)), Ok(()));
        assert!(explain(None).is_err());
    }

    #[test]
    fn two_writers_may_both_read_old_values() {
        let both = calls(vec![None, None], &[&[put(0, 5), get(1, None)], &[put(1, 6), get(0, None)]]);
        assert_eq!(both.explain(&END.to_vec()), Ok(()));
        let by_the_clock = Calls { apart: 0, ..both };
        assert!(by_the_clock.explain(&END.to_vec()).is_err());
    }

    #[test]
    fn reader_of_a_removal_sees_earlier_writes() {
        let remove = (ThreadOp::Do(Op::Remove(1)), Answer::Done);
        let explain = |found: &[(ThreadOp, Answer)]| {
            let of = calls(vec![None, Some(1)], &[&[put(0, 5), remove.clone()], found]);
            of.explain(&vec![Some(5), None])
        };
        assert_eq!(explain(&[get(1, None), get(0, Some(5))]), Ok(()));
        assert_eq!(explain(&[get(1, Some(1)), get(0, None)]), Ok(()));
        assert!(explain(&[get(1, None), get(0, None)]).is_err());
    }

    #[test]
    fn reader_of_half_a_batch_sees_the_other_half() {
        let batch = (ThreadOp::Do(Op::Batch(vec![(0, Some(5)), (1, Some(6))])), Answer::Done);
        let explain = |found: &[(ThreadOp, Answer)]| {
            calls(vec![None, None], &[std::slice::from_ref(&batch), found]).explain(&END.to_vec())
        };
        assert_eq!(explain(&[get(0, None), get(1, Some(6))]), Ok(()));
        assert!(explain(&[get(0, Some(5)), get(1, None)]).is_err());
        let at_once =
            |found: &[(Key, Version)]| (ThreadOp::Snapshot(vec![0, 1]), Answer::Scanned(found.to_vec()));
        assert!(explain(&[at_once(&[(0, 5)])]).is_err());
        assert_eq!(explain(&[at_once(&[(0, 5), (1, 6)])]), Ok(()));
    }

    #[test]
    fn final_content_is_the_last_write() {
        let of = calls(vec![None, None], &[&[put(0, 4), put(0, 5)], &[put(1, 6)]]);
        assert_eq!(of.explain(&END.to_vec()), Ok(()));
        assert!(of.explain(&vec![Some(4), Some(6)]).is_err());
    }
}
