//! A script by places: each cue says which thread goes on, and until where. So threads stand just where they must for something that hardly ever comes about by chance. Accesses are told by the names that
//! the product gives them, see [`Medium::point`](terrace_medium::Medium::point).
//!
//! Steps are not counted, as in [`Policy::Script`](super::Policy::Script): what is changed elsewhere in the source leaves a script as it is.

use super::policy::Threads;

/// Where a thread stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before the access with this name, once it has done that so many times.
    Before(&'static str, u32),
    /// Right behind that access, which is before whatever it does next.
    Behind(&'static str, u32),
    /// At a [`mark`](super::mark).
    Mark(u32),
    /// Where it begins its call with this number, from 0 on.
    Call(usize),
    /// Where it cannot go on alone.
    Waits,
    /// At its end.
    End,
}

/// One thread goes on until somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cue {
    /// The thread.
    pub thread: u8,
    /// Where it stops.
    pub until: Stop,
    /// What it sees until then.
    pub sees: Sight,
}

/// What a thread sees of what others store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All of it.
    New,
    /// Everything as old as it may be.
    Old,
    /// The same, but for what it looks at there.
    OldBut(&'static str),
    /// All of it, but for what it looks at there; and what it stores there comes before what others have stored, where it does not have to see that.
    OldAt(&'static str),
}

/// A thread goes on until somewhere, and sees all that there is.
pub fn to(thread: u8, until: Stop) -> Cue {
    Cue { thread, until, sees: Sight::New }
}

/// A thread goes on until somewhere, and sees everything as old as it may.
pub fn late(thread: u8, until: Stop) -> Cue {
    Cue { thread, until, sees: Sight::Old }
}

/// A thread goes on until somewhere, and sees all that there is but there.
pub fn old_at(thread: u8, until: Stop, point: &'static str) -> Cue {
    Cue { thread, until, sees: Sight::OldAt(point) }
}

/// The same, and sees nothing new but there.
pub fn old_but(thread: u8, until: Stop, point: &'static str) -> Cue {
    Cue { thread, until, sees: Sight::OldBut(point) }
}

/// Before it comes there for the first time.
pub fn before(point: &'static str) -> Stop {
    Stop::Before(point, 0)
}

/// Behind the first time that it is there.
pub fn behind(point: &'static str) -> Stop {
    Stop::Behind(point, 0)
}

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// An access, and its name if it has one.
    Access(Option<&'static str>),
    Mark(u32),
    Call(usize),
}

/// A script at work.
pub(super) struct Prompter {
    cues: Vec<Cue>,
    next: usize,
    /// Times that the thread has come by the place of this cue, and whether it was there last.
    times: u32,
    is_there: bool,
    /// What each thread does next.
    at: [Option<At>; Threads::BITS as usize],
}

impl Prompter {
    pub(super) fn new(cues: &[Cue]) -> Self {
        Self { cues: cues.to_vec(), next: 0, times: 0, is_there: false, at: [None; Threads::BITS as usize] }
    }

    /// A thread comes to a place.
    pub(super) fn come(&mut self, thread: usize, at: At) {
        self.at[thread] = Some(at);
    }

    /// Whether the thread that goes on sees what is old there.
    pub(super) fn sees_old(&self, point: Option<&str>) -> bool {
        match self.cues.get(self.next).map(|cue| cue.sees) {
            None | Some(Sight::New) => false,
            Some(Sight::Old) => true,
            Some(Sight::OldBut(at)) => point != Some(at),
            Some(Sight::OldAt(at)) => point == Some(at),
        }
    }

    /// Whether what the thread that goes on stores there comes before what others have stored, where that may be.
    pub(super) fn stores_early(&self, point: Option<&str>) -> bool {
        matches!(self.cues.get(self.next).map(|cue| cue.sees), Some(Sight::OldAt(at)) if point == Some(at))
    }

    /// The cue whose thread has ended before it came to where it was to stop. All threads have ended.
    pub(super) fn missed(&self) -> Option<String> {
        let left = self.cues.iter().enumerate().skip(self.next);
        let (number, cue) = left.into_iter().find(|(_, cue)| cue.until != Stop::End)?;
        Some(format!("the script is not kept: {cue:?}, which is number {number}, has not come"))
    }

    /// Who does the next step; none if the script is at its end, or cannot go on. The thread that has come to its next step is `last`, if it has not ended.
    pub(super) fn next(&mut self, runnable: Threads, last: Option<usize>, gives_way: bool) -> Option<usize> {
        let mut is_first = true;
        while let Some(cue) = self.cues.get(self.next) {
            let thread = usize::from(cue.thread);
            if runnable & 1 << thread == 0 {
                if cue.until != Stop::End {
                    return None;
                }
            } else if last != Some(thread) || !is_first || !self.stops(*cue, gives_way) {
                self.note(*cue);
                return Some(thread);
            }
            (self.next, self.times, self.is_there, is_first) = (self.next + 1, 0, false, false);
        }
        None
    }

    /// Whether the thread of this cue, which has come to its next step, stops there.
    fn stops(&self, cue: Cue, gives_way: bool) -> bool {
        let at = self.at[usize::from(cue.thread)];
        match cue.until {
            Stop::Before(point, times) => is_named(at, point) && self.times == times,
            Stop::Behind(_, times) => self.is_there && self.times == times + 1,
            Stop::Mark(mark) => matches!(at, Some(At::Mark(there)) if there == mark),
            Stop::Call(call) => matches!(at, Some(At::Call(there)) if there == call),
            Stop::Waits => gives_way,
            Stop::End => false,
        }
    }

    /// The thread of this cue goes on.
    fn note(&mut self, cue: Cue) {
        let at = self.at[usize::from(cue.thread)].take();
        let (Stop::Before(point, _) | Stop::Behind(point, _)) = cue.until else { return };
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

    /// Who runs if each thread comes to `places` one after the other and ends.
    fn order(cues: &[Cue], places: &[At]) -> (Vec<(usize, usize)>, bool) {
        let (mut prompter, mut done, mut order) = (Prompter::new(cues), [0; 2], Vec::new());
        let mut last = None;
        loop {
            let runnable = (0..2).fold(0, |bits, i| bits | u8::from(done[i] < places.len()) << i);
            if let Some(last) = last.filter(|&last: &usize| done[last] < places.len()) {
                prompter.come(last, places[done[last]]);
            }
            let last_there = last.filter(|&last: &usize| runnable & 1 << last != 0);
            let Some(thread) = prompter.next(runnable, last_there, false) else {
                return (order, prompter.missed().is_none());
            };
            order.push((thread, done[thread]));
            done[thread] += 1;
            last = Some(thread);
        }
    }

    #[test]
    fn threads_stop_before_a_place_behind_it_at_a_mark_and_at_a_call() {
        let (first, second) = (At::Access(Some("first")), At::Access(None));
        let places = [second, first, At::Mark(4), first, At::Call(4)];
        let stop = |until| order(&[to(0, until), to(1, Stop::End)], &places);
        // What a thread begins with it comes to unasked, as a thread of a stage comes to its job.
        let until = |end: usize| (0..end).map(|place| (0, place)).collect::<Vec<_>>();
        let then = |end: usize| [until(end), (0..5).map(|place| (1, place)).collect()].concat();
        assert_eq!(stop(Stop::Mark(4)), (then(2), true));
        assert_eq!(stop(Stop::Before("first", 0)).0, then(1));
        assert_eq!(stop(Stop::Behind("first", 0)).0, then(2));
        assert_eq!(stop(Stop::Before("first", 1)).0, then(3));
        assert_eq!(stop(Stop::Call(4)), (then(4), true));
        assert!(!stop(Stop::Mark(5)).1, "nobody comes by it");
        assert_eq!(stop(Stop::End), (then(5), true));
    }

    #[test]
    fn a_script_is_kept_if_only_threads_that_have_ended_are_left_and_says_what_is_old_where() {
        let sees = |sees| {
            let mut prompter = Prompter::new(&[Cue { thread: 0, until: Stop::End, sees }]);
            assert_eq!((prompter.next(1, None, false), prompter.missed()), (Some(0), None));
            (prompter.sees_old(Some("here")), prompter.stores_early(Some("here")))
        };
        assert_eq!([sees(Sight::OldAt("here")), sees(Sight::OldAt("there"))], [(true, true), (false, false)]);
        assert_eq!(
            [sees(Sight::OldBut("here")), sees(Sight::OldBut("there"))],
            [(false, false), (true, false)]
        );
        assert_eq!([sees(Sight::New), sees(Sight::Old)], [(false, false), (true, false)]);
    }
}
