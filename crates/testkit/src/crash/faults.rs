//! Faults injected into a recorded trace.
//!
//! No program notices a missing write-back or fence before a crash. So either can be removed from a
//! trace without running the program again.

use crate::{Event, Role, Trace, What};
use std::collections::BTreeSet;
use std::panic::Location;

/// The kinds of faults at a place that asks for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The write-back is missing.
    NoWriteBack,
    /// The fence is missing.
    NoFence,
    /// The write-back happens only after the next fence.
    LateWriteBack,
    /// The fence happens after the following stores, before the thread's next write-back.
    LateFence,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::NoWriteBack, Self::NoFence, Self::LateWriteBack, Self::LateFence];

    fn is_of(self, what: &What) -> bool {
        match self {
            Self::NoWriteBack | Self::LateWriteBack => matches!(what, What::WriteBack { .. }),
            Self::NoFence | Self::LateFence => matches!(what, What::Fence),
        }
    }

    /// Its description.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoWriteBack => "write-back left out",
            Self::NoFence => "fence left out",
            Self::LateWriteBack => "write-back after the next fence",
            Self::LateFence => "fence after the next stores",
        }
    }
}

/// A fault at one place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The place.
    pub site: &'static Location<'static>,
    /// The kind of fault.
    pub kind: Kind,
    /// The product's name for the place, if it has one.
    pub point: Option<&'static str>,
}

impl Fault {
    /// All faults that can be injected into `trace`.
    pub fn of(trace: &Trace) -> BTreeSet<Self> {
        let faults = trace.events().iter().flat_map(|event| {
            let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_of(&event.what));
            kinds.map(|kind| Self { site: event.site, kind, point: event.point })
        });
        faults.collect()
    }

    /// The place, as `file:line`.
    pub fn place(&self) -> String {
        crate::trace::place(self.site)
    }

    /// `trace` as the faulty program would have left it. Omitted events stay in the trace, marked
    /// by their [`Role`].
    pub fn inject_into(&self, trace: &Trace) -> Trace {
        let is_late = matches!(self.kind, Kind::LateWriteBack | Kind::LateFence);
        let mut faulty = trace.without_events();
        // Delayed events, with their threads.
        let mut late = Vec::new();
        for event in trace.events() {
            if event.site == self.site && self.kind.is_of(&event.what) {
                faulty.push(Event { role: Role::LeftOut, ..*event });
                if is_late {
                    late.push(Event { role: Role::Belated, ..*event });
                }
                continue;
            }
            let due_before = self.kind == Kind::LateFence && matches!(event.what, What::WriteBack { .. });
            let due_after = self.kind == Kind::LateWriteBack && matches!(event.what, What::Fence);
            let mut release = |faulty: &mut Trace| {
                let due = late.extract_if(.., |other: &mut Event| other.thread == event.thread);
                due.for_each(|event| faulty.push(event));
            };
            if due_before {
                release(&mut faulty);
            }
            faulty.push(*event);
            if due_after {
                release(&mut faulty);
            }
        }
        faulty
    }
}
