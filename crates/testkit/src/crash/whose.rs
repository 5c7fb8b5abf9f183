//! Attributes events to the operations that performed them, by the marks in the trace.

use super::marks::operation_begun;
use crate::trace::{Trace, What};

/// The origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventOwner {
    /// The operation with this number.
    Operation(usize),
    /// The creation of the store, before the first mark.
    Preparation,
    /// A recovery.
    Recovery,
    /// No operation: between two operations.
    Unowned,
}

impl EventOwner {
    /// The owner of an event. From event `born` on, the trace is of another process, which
    /// recovered what its predecessor left.
    pub(crate) fn of(trace: &Trace, event: usize, born: usize) -> Self {
        let events = trace.events();
        let Some(done) = events.get(event) else { return Self::Unowned };
        let own_events = &events[if event < born { 0 } else { born }..event];
        let marks = || {
            own_events.iter().rev().filter_map(|event| match event.what {
                What::Mark(mark) => Some((event.thread, mark)),
                _ => None,
            })
        };
        let Some((marking, last)) = marks().next() else {
            let is_history =
                event < born || born == 0 && events.iter().any(|it| matches!(it.what, What::Mark(_)));
            return if is_history { Self::Preparation } else { Self::Recovery };
        };
        let own = marks().find(|mark| mark.0 == done.thread);
        // A thread without marks works for the only thread that has some.
        let for_another = || marks().all(|mark| mark.0 == marking).then_some((marking, last));
        let mark = own.or_else(for_another).map(|(_, mark)| mark);
        mark.and_then(operation_begun).map_or(Self::Unowned, Self::Operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::marks::{MARK_CREATED, mark_begin, mark_end};
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
        What::Mark(mark_begin(index))
    }

    fn end(index: usize) -> What {
        What::Mark(mark_end(index))
    }

    #[test]
    fn store_belongs_to_its_threads_operation() {
        let met = [(0, begin(4)), (1, begin(5)), (0, STORE), (1, STORE), (0, end(4)), (1, STORE), (0, STORE)];
        let met = trace(&met);
        let whose = |event| EventOwner::of(&met, event, 0);
        assert_eq!([2, 3].map(whose), [EventOwner::Operation(4), EventOwner::Operation(5)]);
        assert_eq!(
            [5, 6].map(whose),
            [EventOwner::Operation(5), EventOwner::Unowned],
            "the other one has returned"
        );
    }

    #[test]
    fn thread_without_marks_works_for_the_only_marked_one() {
        let helped =
            trace(&[(0, STORE), (0, What::Mark(MARK_CREATED)), (0, STORE), (0, begin(0)), (1, STORE)]);
        let whose = |event| EventOwner::of(&helped, event, 0);
        assert_eq!(
            [0, 2, 4].map(whose),
            [EventOwner::Preparation, EventOwner::Unowned, EventOwner::Operation(0)]
        );
        let met = trace(&[(0, begin(0)), (1, begin(1)), (2, STORE)]);
        assert_eq!(EventOwner::of(&met, 2, 0), EventOwner::Unowned, "ambiguous");
    }

    #[test]
    fn successor_of_a_kill_does_not_continue_the_operation() {
        assert_eq!(EventOwner::of(&trace(&[(0, STORE)]), 0, 0), EventOwner::Recovery);
        let killed = [(0, begin(0)), (0, STORE), (1, STORE), (2, begin(1)), (2, STORE)];
        let killed = trace(&killed);
        let whose = |event| EventOwner::of(&killed, event, 2);
        assert_eq!(
            [1, 2, 4].map(whose),
            [EventOwner::Operation(0), EventOwner::Recovery, EventOwner::Operation(1)]
        );
    }
}
