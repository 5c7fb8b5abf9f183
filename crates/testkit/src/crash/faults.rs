//! Faults of the program, planted into what it has done to its medium.
//!
//! A write-back or a fence that was not done can be taken out of a trace without running the program again, since no program notices that it is
//! missing until there is a crash.

use crate::{Event, Role, Trace, What};
use std::collections::BTreeSet;
use std::panic::Location;

/// What is wrong at one place that asks for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing is written back.
    NoWriteBack,
    /// There is no fence.
    NoFence,
    /// What is written back is so only after the next fence.
    LateWriteBack,
    /// The fence comes after the stores that follow, up to the next write-back of the thread.
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

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoWriteBack => "write-back left out",
            Self::NoFence => "fence left out",
            Self::LateWriteBack => "write-back after the next fence",
            Self::LateFence => "fence after the next stores",
        }
    }
}

/// A fault at one place of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The place.
    pub site: &'static Location<'static>,
    /// What is wrong there.
    pub kind: Kind,
    /// The name of the place, if the product gives it one.
    pub point: Option<&'static str>,
}

impl Fault {
    /// All faults that can be planted in `trace`.
    pub fn of(trace: &Trace) -> BTreeSet<Self> {
        let faults = trace.events().iter().flat_map(|event| {
            let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_of(&event.what));
            kinds.map(|kind| Self { site: event.site, kind, point: event.point })
        });
        faults.collect()
    }

    /// The place, as `file:line`.
    pub fn place(&self) -> String {
        super::story::place(self.site)
    }

    /// `trace` as the faulty program would have left it. What it does not do stays in the trace, in its [`Role`].
    pub fn planted_in(&self, trace: &Trace) -> Trace {
        let is_late = matches!(self.kind, Kind::LateWriteBack | Kind::LateFence);
        let mut faulty = trace.without_events();
        // Events that are late, with their threads.
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
