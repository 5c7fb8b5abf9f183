//! Finds the events at which an injected fault makes a difference.
//!
//! The faulty program performs the same stores as the sound one. So a crash shows the fault only
//! while a store may be lost that the sound program has made durable. That lasts until something
//! else makes the line durable: a few events, or many.
//!
//! This walk tracks durability in both programs at once, without the bytes, and the explorer then
//! explores only those events. Stores to locks are ignored: after a power failure every lock is
//! free, whatever its content.

use super::rules::Rules;
use crate::trace::{Event, Role, Trace, What};
use std::collections::BTreeSet;

/// How the two programs compare after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Here {
    /// A crash leaves nothing that it could not leave of the sound program.
    #[default]
    Alike,
    /// A crash may leave more.
    Differs,
    /// A crash may leave more, also for a line that did not differ before.
    DiffersMore,
}

/// The events of a trace after which a crash can show the fault injected into it.
#[derive(Debug, Default)]
pub(crate) struct Focus {
    events: Vec<Here>,
    /// Lines that differed at any event.
    lines: BTreeSet<u32>,
}

impl Focus {
    /// Compares both programs over a trace with a fault, under these rules.
    pub(crate) fn of(trace: &Trace, rules: &Rules) -> Self {
        let mut focus = Self::default();
        if trace.is_sound() {
            return focus;
        }
        let mut both = Both::default();
        for (number, event) in (0..).zip(trace.events()) {
            let more = both.step(trace, (number, event), rules);
            if more {
                focus.lines.extend(&both.differing);
            }
            focus.events.push(match (more, both.differing.is_empty()) {
                (_, true) => Here::Alike,
                (false, _) => Here::Differs,
                (true, _) => Here::DiffersMore,
            });
        }
        focus
    }

    /// Whether the trace has no injected fault.
    pub(crate) fn is_sound(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether a crash after this event may show the fault.
    pub(crate) fn differs(&self, event: usize) -> bool {
        self.events.get(event).is_some_and(|&here| here != Here::Alike)
    }

    /// Whether a crash after this event may show more of the fault than one before it, although the
    /// event stores nothing.
    pub(crate) fn differs_more(&self, event: usize) -> bool {
        self.events.get(event) == Some(&Here::DiffersMore)
    }

    /// The number of events from this one on after which a crash may show the fault.
    pub(crate) fn count_from(&self, event: usize) -> u64 {
        self.events.iter().skip(event).filter(|&&here| here != Here::Alike).count() as u64
    }

    /// Whether the fault affects this line.
    pub(crate) fn has_line(&self, line: u32) -> bool {
        self.lines.contains(&line)
    }
}

/// Stores to a line that the faulty program has not fenced, in order: the event, and the thread if
/// the store was streamed.
type Stores = Vec<(u32, Option<u32>)>;

/// The sound program and the faulty one, side by side.
#[derive(Default)]
struct Both {
    sound: Durable,
    faulty: Durable,
    /// By line.
    stores: Vec<Stores>,
    /// Lines that only the faulty program may lose.
    differing: BTreeSet<u32>,
}

/// What one of the programs has made durable.
#[derive(Default)]
struct Durable {
    /// By thread, lines written back since its last fence, and the event.
    written_back: Vec<Vec<(u32, u32)>>,
    /// By thread, lines streamed to since its last fence.
    streamed: Vec<Vec<u32>>,
    /// By line: ordinary stores before this event are durable.
    until: Vec<u32>,
    /// By thread: streamed stores before this event are durable.
    fenced: Vec<u32>,
}

/// The element at an index; extends the vector if needed.
fn at<T: Default>(all: &mut Vec<T>, place: u32) -> &mut T {
    let place = place as usize;
    if place >= all.len() {
        all.resize_with(place + 1, T::default);
    }
    &mut all[place]
}

impl Durable {
    fn keep_written_back(&mut self, thread: u32, touched: &mut Vec<u32>) {
        for (line, event) in at(&mut self.written_back, thread).drain(..) {
            let until = at(&mut self.until, line);
            *until = (event + 1).max(*until);
            touched.push(line);
        }
    }

    fn keep_streamed(&mut self, thread: u32, event: u32, touched: &mut Vec<u32>) {
        *at(&mut self.fenced, thread) = event;
        touched.append(at(&mut self.streamed, thread));
    }

    /// Whether a store to a line is certainly durable.
    fn has(&self, line: u32, (event, streamed_by): (u32, Option<u32>)) -> bool {
        let until = match streamed_by {
            Some(thread) => self.fenced.get(thread as usize),
            None => self.until.get(line as usize),
        };
        until.is_some_and(|&until| event < until)
    }
}

impl Both {
    /// Processes an event. Returns whether another line differs now.
    fn step(&mut self, trace: &Trace, (number, event): (u32, &Event), rules: &Rules) -> bool {
        let mut touched = Vec::new();
        match event.what {
            What::Store { .. } | What::Rmw { .. } | What::Copy(_) | What::StreamedCopy(_)
                if !event.is_lock_store() =>
            {
                self.store(trace, (number, event));
            }
            _ => {}
        }
        let programs = match event.role {
            Role::Done => [Some(&mut self.sound), Some(&mut self.faulty)],
            Role::LeftOut => [Some(&mut self.sound), None],
            Role::Belated => [None, Some(&mut self.faulty)],
        };
        for program in programs.into_iter().flatten() {
            match event.what {
                What::Rmw { .. } | What::RmwFailed { .. } if rules.locked_orders => {
                    program.keep_written_back(event.thread, &mut touched);
                }
                What::WriteBack { line } => {
                    at(&mut program.written_back, event.thread).push(((line / 64) as u32, number));
                }
                What::Fence if rules.fences_keep => {
                    program.keep_written_back(event.thread, &mut touched);
                    program.keep_streamed(event.thread, number, &mut touched);
                }
                _ => {}
            }
        }
        touched.sort_unstable();
        touched.dedup();
        let mut more = false;
        for line in touched {
            more |= self.compare(line);
        }
        more
    }

    fn store(&mut self, trace: &Trace, (number, event): (u32, &Event)) {
        let streamed_by = matches!(event.what, What::StreamedCopy(_)).then_some(event.thread);
        for (word, _) in trace.stored(event) {
            let line = (word / 8) as u32;
            let stores = at(&mut self.stores, line);
            if stores.last() != Some(&(number, streamed_by)) {
                stores.push((number, streamed_by));
            }
            if streamed_by.is_some() {
                for program in [&mut self.sound, &mut self.faulty] {
                    let lines = at(&mut program.streamed, event.thread);
                    if lines.last() != Some(&line) {
                        lines.push(line);
                    }
                }
            }
        }
    }

    /// Compares a line again. Returns whether it differs now and did not before.
    fn compare(&mut self, line: u32) -> bool {
        let Self { sound, faulty, stores, differing } = self;
        let Some(stores) = stores.get_mut(line as usize) else { return false };
        stores.retain(|&store| !faulty.has(line, store));
        let differs = stores.iter().any(|&store| sound.has(line, store));
        if differs {
            return differing.insert(line);
        }
        differing.remove(&line);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::{Fault, Kind, Profile};
    use std::panic::Location;

    #[track_caller]
    fn event(what: What) -> Event {
        Event { thread: 0, what, site: Location::caller(), point: None, role: Role::Done }
    }

    fn persist(trace: &mut Trace) {
        [What::WriteBack { line: 64 }, What::Fence].into_iter().for_each(|what| trace.push(event(what)));
    }

    /// Events after which the fault shows. The trace: a store and its persist, the same for another
    /// line, and a second persist of the first line.
    fn shown(kind: Kind) -> Vec<usize> {
        let mut trace = Trace::default();
        trace.push(event(What::Store { at: 64, old: 0, new: 1 }));
        trace.push(event(What::WriteBack { line: 64 }));
        trace.push(event(What::Fence));
        let sites = [trace.events()[1].site, trace.events()[2].site];
        trace.push(event(What::Store { at: 128, old: 0, new: 1 }));
        trace.push(event(What::WriteBack { line: 128 }));
        trace.push(event(What::Fence));
        persist(&mut trace);
        let site = sites[usize::from(matches!(kind, Kind::NoFence | Kind::LateFence))];
        let faulty = Fault { site, kind, point: None }.inject_into(&trace);
        let focus = Focus::of(&faulty, &Profile::Arm.rules());
        (0..faulty.events().len()).filter(|&number| focus.differs(number)).collect()
    }

    #[test]
    fn fault_shows_until_the_faulty_program_is_durable_too() {
        assert_eq!(shown(Kind::NoWriteBack), [2, 3, 4, 5, 6], "until the line is written back again");
        assert_eq!(shown(Kind::NoFence), [2, 3, 4], "until the next fence");
        assert_eq!(shown(Kind::LateFence), [2, 3], "until the fence that is late, before the write-back");
        // The delayed write-back is an additional event, number 3.
        assert_eq!(shown(Kind::LateWriteBack), [2, 3, 4, 5], "until the second fence");
    }

    #[test]
    fn trace_without_fault_shows_none() {
        let mut trace = Trace::default();
        trace.push(event(What::Store { at: 64, old: 0, new: 1 }));
        persist(&mut trace);
        assert_eq!(Focus::of(&trace, &Profile::Arm.rules()).count_from(0), 0);
    }
}
