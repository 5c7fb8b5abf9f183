//! A script of breakpoints: each names the thread that runs next and where it stops. So a test can
//! stop threads at exactly the places of a rare interleaving. Accesses have the names that the
//! product gives them, see [`Medium::point`](terrace_medium::Medium::point).
//!
//! Steps are not counted, as in [`Policy::Script`](super::Policy::Script), so a script survives
//! changes elsewhere in the source.

use super::policy::Threads;

/// Where a thread stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before the access with this name, after it has done this access that many times.
    Before(&'static str, u32),
    /// Right after that access, before its next step.
    After(&'static str, u32),
    /// At a [`mark`](super::mark).
    Mark(u32),
    /// At the beginning of its call with this number, from 0 on.
    Call(usize),
    /// Where it waits for another thread.
    Waits,
    /// When it ends.
    End,
}

/// A breakpoint: a thread runs until it stops there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    /// The thread.
    pub thread: u8,
    /// Where it stops.
    pub until: Stop,
    /// What it sees meanwhile.
    pub sees: Visibility,
}

/// Which stores of other threads a thread sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// All of them.
    New,
    /// Each word as stale as possible.
    StaleWord,
    /// Each word as stale as possible, except at this access.
    OldBut(&'static str),
    /// All of them, except at this access. A store there takes its place before the stores of
    /// others, if it does not have to see those.
    OldAt(&'static str),
}

/// A thread runs until it stops there, and sees everything.
pub fn to(thread: u8, until: Stop) -> Breakpoint {
    Breakpoint { thread, until, sees: Visibility::New }
}

/// A thread runs until it stops there, and sees every word as stale as possible.
pub fn late(thread: u8, until: Stop) -> Breakpoint {
    Breakpoint { thread, until, sees: Visibility::StaleWord }
}

/// A thread runs until it stops there, and sees everything except at this access.
pub fn old_at(thread: u8, until: Stop, point: &'static str) -> Breakpoint {
    Breakpoint { thread, until, sees: Visibility::OldAt(point) }
}

/// A thread runs until it stops there, and sees every word as stale as possible except at this
/// access.
pub fn old_but(thread: u8, until: Stop, point: &'static str) -> Breakpoint {
    Breakpoint { thread, until, sees: Visibility::OldBut(point) }
}

/// Before the first access with this name.
pub fn before(point: &'static str) -> Stop {
    Stop::Before(point, 0)
}

/// Right after the first access with this name.
pub fn after(point: &'static str) -> Stop {
    Stop::After(point, 0)
}

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// An access, and its name if it has one.
    Access(Option<&'static str>),
    Mark(u32),
    Call(usize),
}

/// Executes a script.
pub(super) struct ScriptRunner {
    breakpoints: Vec<Breakpoint>,
    next: usize,
    /// How often the thread has reached the place of this breakpoint, and whether that was its last
    /// step.
    times: u32,
    is_there: bool,
    /// The next step of each thread.
    at: [Option<At>; Threads::BITS as usize],
}

impl ScriptRunner {
    pub(super) fn new(breakpoints: &[Breakpoint]) -> Self {
        Self {
            breakpoints: breakpoints.to_vec(),
            next: 0,
            times: 0,
            is_there: false,
            at: [None; Threads::BITS as usize],
        }
    }

    /// A thread reaches a place.
    pub(super) fn reach(&mut self, thread: usize, at: At) {
        self.at[thread] = Some(at);
    }

    /// Whether the running thread sees stale values there.
    pub(super) fn sees_old(&self, point: Option<&str>) -> bool {
        match self.breakpoints.get(self.next).map(|breakpoint| breakpoint.sees) {
            None | Some(Visibility::New) => false,
            Some(Visibility::StaleWord) => true,
            Some(Visibility::OldBut(at)) => point != Some(at),
            Some(Visibility::OldAt(at)) => point == Some(at),
        }
    }

    /// Whether the running thread's store there takes its place before the stores of others, if
    /// that is possible.
    pub(super) fn stores_early(&self, point: Option<&str>) -> bool {
        matches!(self.breakpoints.get(self.next).map(|breakpoint| breakpoint.sees), Some(Visibility::OldAt(at)) if point == Some(at))
    }

    /// The first breakpoint that was not reached before its thread ended. All threads have ended.
    pub(super) fn unreached(&self) -> Option<String> {
        let left = self.breakpoints.iter().enumerate().skip(self.next);
        let (number, breakpoint) = left.into_iter().find(|(_, breakpoint)| breakpoint.until != Stop::End)?;
        Some(format!("breakpoint {number} of the script was not reached: {breakpoint:?}"))
    }

    /// The thread of the next step; `None` if the script has ended or cannot continue. `last` is
    /// the thread that has reached its next step, unless it has ended.
    pub(super) fn next(&mut self, runnable: Threads, last: Option<usize>, gives_way: bool) -> Option<usize> {
        let mut is_first = true;
        while let Some(breakpoint) = self.breakpoints.get(self.next) {
            let thread = usize::from(breakpoint.thread);
            if runnable & 1 << thread == 0 {
                if breakpoint.until != Stop::End {
                    return None;
                }
            } else if last != Some(thread) || !is_first || !self.stops(*breakpoint, gives_way) {
                self.advance(*breakpoint);
                return Some(thread);
            }
            (self.next, self.times, self.is_there, is_first) = (self.next + 1, 0, false, false);
        }
        None
    }

    /// Whether the thread of this breakpoint, which has reached its next step, stops there.
    fn stops(&self, breakpoint: Breakpoint, gives_way: bool) -> bool {
        let at = self.at[usize::from(breakpoint.thread)];
        match breakpoint.until {
            Stop::Before(point, times) => is_named(at, point) && self.times == times,
            Stop::After(_, times) => self.is_there && self.times == times + 1,
            Stop::Mark(mark) => matches!(at, Some(At::Mark(there)) if there == mark),
            Stop::Call(call) => matches!(at, Some(At::Call(there)) if there == call),
            Stop::Waits => gives_way,
            Stop::End => false,
        }
    }

    /// The thread of this breakpoint continues.
    fn advance(&mut self, breakpoint: Breakpoint) {
        let at = self.at[usize::from(breakpoint.thread)].take();
        let (Stop::Before(point, _) | Stop::After(point, _)) = breakpoint.until else { return };
        self.is_there = is_named(at, point);
        self.times += u32::from(self.is_there);
    }
}

fn is_named(at: Option<At>, point: &str) -> bool {
    matches!(at, Some(At::Access(Some(name))) if name == point)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which threads run if each reaches `places` in turn and then ends.
    fn order(breakpoints: &[Breakpoint], places: &[At]) -> (Vec<(usize, usize)>, bool) {
        let (mut script, mut done, mut order) = (ScriptRunner::new(breakpoints), [0; 2], Vec::new());
        let mut last = None;
        loop {
            let runnable = (0..2).fold(0, |bits, i| bits | u8::from(done[i] < places.len()) << i);
            if let Some(last) = last.filter(|&last: &usize| done[last] < places.len()) {
                script.reach(last, places[done[last]]);
            }
            let last_there = last.filter(|&last: &usize| runnable & 1 << last != 0);
            let Some(thread) = script.next(runnable, last_there, false) else {
                return (order, script.unreached().is_none());
            };
            order.push((thread, done[thread]));
            done[thread] += 1;
            last = Some(thread);
        }
    }

    #[test]
    fn threads_stop_at_accesses_marks_and_calls() {
        let (first, second) = (At::Access(Some("first")), At::Access(None));
        let places = [second, first, At::Mark(4), first, At::Call(4)];
        let stop = |until| order(&[to(0, until), to(1, Stop::End)], &places);
        // A thread's first step counts as reached, as in a scheduler when it starts its job.
        let until = |end: usize| (0..end).map(|place| (0, place)).collect::<Vec<_>>();
        let then = |end: usize| [until(end), (0..5).map(|place| (1, place)).collect()].concat();
        assert_eq!(stop(Stop::Mark(4)), (then(2), true));
        assert_eq!(stop(Stop::Before("first", 0)).0, then(1));
        assert_eq!(stop(Stop::After("first", 0)).0, then(2));
        assert_eq!(stop(Stop::Before("first", 1)).0, then(3));
        assert_eq!(stop(Stop::Call(4)), (then(4), true));
        assert!(!stop(Stop::Mark(5)).1, "no thread reaches it");
        assert_eq!(stop(Stop::End), (then(5), true));
    }

    #[test]
    fn script_tells_which_accesses_see_stale_values() {
        let sees = |sees| {
            let mut script = ScriptRunner::new(&[Breakpoint { thread: 0, until: Stop::End, sees }]);
            assert_eq!((script.next(1, None, false), script.unreached()), (Some(0), None));
            (script.sees_old(Some("here")), script.stores_early(Some("here")))
        };
        assert_eq!(
            [sees(Visibility::OldAt("here")), sees(Visibility::OldAt("there"))],
            [(true, true), (false, false)]
        );
        assert_eq!(
            [sees(Visibility::OldBut("here")), sees(Visibility::OldBut("there"))],
            [(false, false), (true, false)]
        );
        assert_eq!([sees(Visibility::New), sees(Visibility::StaleWord)], [(false, false), (true, false)]);
    }
}
