//! Checks whether one order of the calls explains what threads saw of a key.
//!
//! J. Wing, C. Gong: Testing and verifying concurrent objects, JPDC 1993, with G. Lowe's cache of
//! visited configurations (Testing for linearizability, 2017). A key is a register that may be
//! absent; keys are independent, so each is checked alone.

use std::collections::HashSet;
use std::hash::Hash;
use terrace_index::{Inserted, Swapped};

/// An operation on the key and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A get and the word it found.
    Get(Option<u64>),
    /// An insert of a word.
    Insert(u64, Inserted),
    /// An update to a word, and the word that was there.
    Update(u64, Option<u64>),
    /// An upsert of a word, and the word that was there.
    Upsert(u64, Option<u64>),
    /// A removal and the word that was there.
    Remove(Option<u64>),
    /// A compare-and-swap: expected, new, outcome.
    Swap(Option<u64>, Option<u64>, Swapped),
}

impl Operation {
    /// The state after the operation, if it can have given this answer in `state`.
    fn apply(self, state: Option<u64>) -> Option<Option<u64>> {
        let (answer_fits, after) = match self {
            Self::Get(found) => (found == state, state),
            Self::Insert(word, Inserted::New) => (state.is_none(), Some(word)),
            Self::Insert(_, Inserted::Present(present)) => (state == Some(present), state),
            Self::Update(word, old) => (old == state, state.map(|_| word)),
            Self::Upsert(word, old) => (old == state, Some(word)),
            Self::Remove(old) => (old == state, None),
            Self::Swap(expected, new, Swapped::Done) => (expected == state, new),
            Self::Swap(expected, _, Swapped::Found(found)) => (found == state && found != expected, state),
        };
        answer_fits.then_some(after)
    }
}

/// A call, which took effect at some time between its two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it was called, in ticks of a clock shared by all threads.
    pub called: u64,
    /// When it returned.
    pub returned: u64,
    /// The operation and its answer.
    pub operation: Operation,
}

/// When a call began and when it returned. A call that did not return may have taken effect or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// When it was called, in ticks of a clock shared by all threads.
    pub called: u64,
    /// When it returned, if it did.
    pub returned: Option<u64>,
}

/// Whether some order of these calls, each at a time between its two times, explains every answer,
/// starting from the state `initial`.
///
/// # Panics
/// With more than 128 calls.
pub fn linearizable(initial: Option<u64>, calls: &[Call]) -> bool {
    let interval = |call: &Call| Interval { called: call.called, returned: Some(call.returned) };
    let intervals: Vec<Interval> = calls.iter().map(interval).collect();
    let (before, needed) = precedence(&intervals);
    search(initial, (&before, needed), |call, &state| calls[call].operation.apply(state), |_| true)
}

/// Every state in which an order of these calls may end, starting from `initial`; empty if no order
/// explains them. `apply` returns the state after a call, or `None` if the call cannot have had its
/// answer.
///
/// # Panics
/// With more than 128 calls.
pub fn final_states<S: Clone + Eq + Hash>(
    initial: S,
    calls: &[Interval],
    apply: impl Fn(usize, &S) -> Option<S>,
) -> HashSet<S> {
    let (before, needed) = precedence(calls);
    final_states_after(initial, &before, needed, apply)
}

/// As [`final_states`], for calls not ordered by time. `before` has, for each call, a bit for each
/// call that precedes it; `needed` has a bit for each call that certainly took effect.
///
/// # Panics
/// With more than 128 calls.
pub(crate) fn final_states_after<S: Clone + Eq + Hash>(
    initial: S,
    before: &[u128],
    needed: u128,
    apply: impl Fn(usize, &S) -> Option<S>,
) -> HashSet<S> {
    let mut states = HashSet::new();
    search(initial, (before, needed), apply, |state| {
        states.insert(state.clone());
        false
    });
    states
}

/// The calls that had returned before each one began, and the calls that returned.
fn precedence(calls: &[Interval]) -> (Vec<u128>, u128) {
    assert!(calls.len() <= 128, "histories of at most 128 calls, not {}", calls.len());
    let bits = |is: &dyn Fn(&Interval) -> bool| {
        calls.iter().enumerate().filter(|(_, call)| is(call)).fold(0, |bits, (i, _)| bits | 1 << i)
    };
    let before = |call: &Interval| bits(&|other| other.returned.is_some_and(|at| at <= call.called));
    (calls.iter().map(before).collect(), bits(&|call| call.returned.is_some()))
}

/// Searches all orders. Stops when all needed calls are done in a state for which `is_enough`
/// returns true.
fn search<S: Clone + Eq + Hash>(
    initial: S,
    (before, needed): (&[u128], u128),
    apply: impl Fn(usize, &S) -> Option<S>,
    mut is_enough: impl FnMut(&S) -> bool,
) -> bool {
    assert!(before.len() <= 128, "histories of at most 128 calls, not {}", before.len());
    let mut visited = HashSet::new();
    let mut open = vec![(0u128, initial)];
    while let Some((done, state)) = open.pop() {
        if done & needed == needed && is_enough(&state) {
            return true;
        }
        // The next call can be any whose needed predecessors are done.
        let may_be_next = |&(i, before): &(usize, &u128)| done & 1 << i == 0 && before & needed & !done == 0;
        for (i, _) in before.iter().enumerate().filter(may_be_next) {
            if let Some(after) = apply(i, &state)
                && visited.insert((done | 1 << i, after.clone()))
            {
                open.push((done | 1 << i, after));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(called: u64, returned: u64, operation: Operation) -> Call {
        Call { called, returned, operation }
    }

    #[test]
    fn overlapping_calls_may_take_effect_in_either_order() {
        let calls = [
            call(0, 9, Operation::Insert(7, Inserted::New)),
            call(1, 3, Operation::Get(None)),
            call(4, 8, Operation::Get(Some(7))),
            call(5, 10, Operation::Remove(Some(7))),
        ];
        assert!(linearizable(None, &calls));
    }

    #[test]
    fn get_of_an_overwritten_state_is_rejected() {
        let calls = [
            call(0, 9, Operation::Insert(7, Inserted::New)),
            call(1, 3, Operation::Get(Some(7))),
            call(4, 8, Operation::Get(None)),
        ];
        assert!(!linearizable(None, &calls));
    }

    #[test]
    fn lost_insert_and_double_removal_are_rejected() {
        let lost = [call(0, 1, Operation::Insert(7, Inserted::New)), call(2, 3, Operation::Get(None))];
        assert!(!linearizable(None, &lost));
        let twice = [call(0, 5, Operation::Remove(Some(7))), call(1, 6, Operation::Remove(Some(7)))];
        assert!(!linearizable(Some(7), &twice));
    }

    #[test]
    fn failed_swap_must_report_the_state_found() {
        let swap = |found| [call(0, 1, Operation::Swap(Some(1), Some(2), Swapped::Found(found)))];
        assert!(linearizable(Some(3), &swap(Some(3))));
        assert!(!linearizable(Some(3), &swap(None)));
        assert!(!linearizable(Some(1), &swap(Some(1))), "it must not fail if it finds what it expects");
    }

    #[test]
    fn full_history_is_checked_in_time() {
        let calls: Vec<_> = (0..128)
            .map(|i| call(i / 4 * 8, i / 4 * 8 + 9, Operation::Upsert(i, (i > 0).then(|| i - 1))))
            .collect();
        assert!(linearizable(None, &calls));
    }
}
