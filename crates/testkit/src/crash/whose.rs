//! Attributes events to the operations that performed them, by the marks in the trace.

use super::oracles::operation_begun;
use crate::trace::{Trace, What};

/// The origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The operation with this number.
    Operation(usize),
    /// The creation of the store, before the first mark.
    Preparation,
    /// A recovery.
    Recovery,
    /// No operation: between two operations.
    Nobody,
}

impl Whose {
    /// The owner of an event. From event `born` on, the trace is of another process, which
    /// recovered what its predecessor left.
    pub(crate) fn of(trace: &Trace, event: usize, born: usize) -> Self {
        let events = trace.events();
        let Some(done) = events.get(event) else { return Self::Nobody };
        let life = &events[if event < born { 0 } else { born }..event];
        let notes = || {
            life.iter().rev().filter_map(|event| match event.what {
                What::Mark(note) => Some((event.thread, note)),
                _ => None,
            })
        };
        let Some((noting, last)) = notes().next() else {
            let is_history =
                event < born || born == 0 && events.iter().any(|it| matches!(it.what, What::Mark(_)));
            return if is_history { Self::Preparation } else { Self::Recovery };
        };
        let own = notes().find(|note| note.0 == done.thread);
        // A thread without marks works for the only thread that has some.
        let for_another = || notes().all(|note| note.0 == noting).then_some((noting, last));
        let note = own.or_else(for_another).map(|(_, note)| note);
        note.and_then(operation_begun).map_or(Self::Nobody, Self::Operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::oracles::{NOTE_CREATED, note_begin, note_end};
    use crate::trace::{Event, Role};
    use std::panic::Location;

    const STORE: What = What::Store { at: 0, old: 0, new: 1 };

    #[track_caller]
    fn trace(events: &[(u32, What)]) -> Trace {
        let mut trace = Trace::default();
        let site = Location::caller();
        events.iter().for_each(|&(thread, what)| {
            trace.push(Event { thread, what, site, point: None, role: Role::Done })
        });
        trace
    }

    fn begin(index: usize) -> What {
        What::Mark(note_begin(index))
    }

    fn end(index: usize) -> What {
        What::Mark(note_end(index))
    }

    #[test]
    fn store_belongs_to_its_threads_operation() {
        let met = [(0, begin(4)), (1, begin(5)), (0, STORE), (1, STORE), (0, end(4)), (1, STORE), (0, STORE)];
        let met = trace(&met);
        let whose = |event| Whose::of(&met, event, 0);
        assert_eq!([2, 3].map(whose), [Whose::Operation(4), Whose::Operation(5)]);
        assert_eq!([5, 6].map(whose), [Whose::Operation(5), Whose::Nobody], "the other one has returned");
    }

    #[test]
    fn thread_without_marks_works_for_the_only_marked_one() {
        let helped =
            trace(&[(0, STORE), (0, What::Mark(NOTE_CREATED)), (0, STORE), (0, begin(0)), (1, STORE)]);
        let whose = |event| Whose::of(&helped, event, 0);
        assert_eq!([0, 2, 4].map(whose), [Whose::Preparation, Whose::Nobody, Whose::Operation(0)]);
        let met = trace(&[(0, begin(0)), (1, begin(1)), (2, STORE)]);
        assert_eq!(Whose::of(&met, 2, 0), Whose::Nobody, "ambiguous");
    }

    #[test]
    fn successor_of_a_kill_does_not_continue_the_operation() {
        assert_eq!(Whose::of(&trace(&[(0, STORE)]), 0, 0), Whose::Recovery);
        let killed = [(0, begin(0)), (0, STORE), (1, STORE), (2, begin(1)), (2, STORE)];
        let killed = trace(&killed);
        let whose = |event| Whose::of(&killed, event, 2);
        assert_eq!([1, 2, 4].map(whose), [Whose::Operation(0), Whose::Recovery, Whose::Operation(1)]);
    }
}
