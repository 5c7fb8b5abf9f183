//! Walks a trace and explores the crash states at each of its points.
//!
//! The memory holds what is certainly durable at the point. In addition, each line has a list of
//! stores that may be lost. A crash state is the memory plus a choice of content for each of those
//! lines.
//!
//! * **Only new states are checked.** A store adds the states in which it was kept. Those without
//!   it were checked at earlier points, under the same expectation. A fence only removes states.
//!   When an operation returns, the expectation narrows, and all states are checked again.
//! * **Only lines that are read are chosen.** A run starts with the minimal content of each line,
//!   and the memory records which undecided words are read before they are written. Each line read
//!   is then tried with every other content that differs in those words, with the contents of the
//!   lines read before it unchanged. So every set of bytes that recovery can read occurs exactly
//!   once.
//! * A store to a word that no state of the point has read adds no state.
//!
//! If a point has more states than the limit, the search samples: all minimal, all maximal, each
//! line alone kept or lost, then random states.

use super::dice::RandomSource;
use super::expectation::Expectation;
use super::focus::Focus;
use super::line::Pending;
use super::memory::{Memory, WORDS};
use super::rules::Rules;
use super::seen::Seen;
use crate::observer::Violation;
use crate::trace::{Event, Replay, Trace, What};
use std::collections::BTreeSet;

mod events;
mod kill;
mod states;

use events::Thread;
use states::{Choice, Point, pick};

/// Approximate number of points that a directed search explores, for a history and for what follows
/// a crash. A few points of many histories find more than all points of one.
const FOCUS_POINTS: [u64; 3] = [48, 12, 12];

/// Defines what is expected at each point of a trace, and checks states against it.
pub trait Judge<const VOLATILE: bool> {
    /// Processes a mark of the trace. Returns whether the expectation became narrower.
    fn pass(&mut self, mark: u64) -> bool;
    /// A number that identifies the current expectation.
    fn expectation(&self) -> u64;
    /// Recovers from the content of `memory` and checks the result. Deterministic for equal bytes
    /// at one point; `point` is the point's number.
    fn judge(&mut self, memory: &Memory<VOLATILE>, point: u64) -> Result<(), Violation>;
    /// The trace of a recovery from `image`, so that crashes during it can be explored.
    fn recovery(&mut self, image: &[u64]) -> Option<Trace>;
    /// The trace of a new process that recovers from `image` while the machine stays up, reads
    /// everything and writes some. What it read must last, although its predecessor may not have
    /// made it durable.
    fn revival(&mut self, image: &[u64]) -> Option<Trace>;
    /// The current expectation, for [`Judge::restore`].
    fn remember(&self) -> Expectation;
    /// Restores an earlier expectation.
    fn restore(&mut self, expectation: Expectation);
}

/// The limits of a search, a number for each depth: crashes, crashes of the recovery, crashes of
/// the recovery from those.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of states of a point that are checked exhaustively; larger points are
    /// sampled.
    pub exhaustive: [u64; 3],
    /// Number of sampled states.
    pub samples: [u64; 3],
    /// One event in this many is explored: of a history, and of a process that follows a kill. If a
    /// recovery is crashed, it is crashed at each of its events.
    pub events_one_in: [u64; 2],
    /// One state in this many has its recovery crashed, too; 0 means none.
    pub nested_one_in: [u64; 3],
    /// After one event of a history in this many, the process is killed and power fails while the
    /// next process runs; 0 means never.
    pub revived_one_in: u64,
    /// One in this many states with an outcome that was checked before is checked in full anyway; 1
    /// means each.
    pub again_one_in: u64,
}

impl Limits {
    /// The usual value of `again_one_in`.
    pub const RECHECK_ONE_IN: u64 = 16;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            exhaustive: [65_536, 16, 8],
            samples: [1024, 8, 4],
            events_one_in: [1, 16],
            nested_one_in: [32_768, 8192, 0],
            revived_one_in: 2048,
            again_one_in: Self::RECHECK_ONE_IN,
        }
    }
}

/// Counters of an exploration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Number of states recovered and checked.
    pub runs: u64,
    /// Number of those that no earlier run had seen: other bytes read, or another expectation.
    pub distinct: u64,
    /// Number of distinct states from crashes of a recovery, or after a kill.
    pub nested: u64,
    /// Number of recoveries that were crashed.
    pub recoveries: u64,
    /// Points of histories at which a crash can leave a new state.
    pub points: u64,
    /// Number of those points that were sampled: they had too many states, or a line was read with
    /// more contents than are distinguished.
    pub sampled: u64,
    /// Number of words stored by histories.
    pub stores: u64,
    /// Number of those that were assumed durable only because of their age.
    pub settled: u64,
}

impl std::ops::AddAssign for Explored {
    fn add_assign(&mut self, more: Self) {
        self.runs += more.runs;
        self.distinct += more.distinct;
        self.nested += more.nested;
        self.recoveries += more.recoveries;
        self.points += more.points;
        self.sampled += more.sampled;
        self.stores += more.stores;
        self.settled += more.settled;
    }
}

/// A state that violates the expectation.
#[derive(Clone, Debug)]
pub struct ViolatingState {
    /// The crash happens after this event of the trace.
    pub event: usize,
    /// The lines whose stores might have been lost, with the lost and the kept stores.
    pub lines: Vec<LineFate>,
    /// The violation.
    pub wrong: Violation,
    /// If a recovery was crashed, too: its trace and violating state.
    pub nested: Option<Box<(Trace, ViolatingState)>>,
}

/// The effect of a crash on one line.
#[derive(Clone, Debug)]
pub struct LineFate {
    /// The line's number.
    pub line: u32,
    /// Events whose stores to the line were lost.
    pub lost: Vec<u32>,
    /// Events whose stores to the line were kept although they might have been lost.
    pub kept: Vec<u32>,
}

/// Walks through a trace and checks its crash states.
pub struct Explorer<'e, const VOLATILE: bool> {
    memory: Memory<VOLATILE>,
    rules: Rules,
    limits: Limits,
    depth: usize,
    seen: &'e Seen,
    is_over: &'e dyn Fn() -> bool,
    dice: RandomSource,
    lines: Vec<Option<Box<Pending>>>,
    /// Lines, except scratch, with stores that may be lost.
    open: BTreeSet<u32>,
    threads: Vec<Thread>,
    /// The events of the last three marks.
    marks: [u32; 3],
    /// Whether every state of the points since the last narrowing was checked, so that the set of
    /// words read is complete.
    knows_reads: bool,
    nested: Option<Box<Explorer<'e, VOLATILE>>>,
    /// Whether the search looks only for states that show an injected fault.
    is_directed: bool,
    /// The events at which the trace can show the fault; `None` if the search is not directed.
    focus: Option<Focus>,
    /// One of this many events that show the fault is explored.
    focus_one_in: u64,
    /// The trace of a process that follows a kill here, if nothing was stored since it was
    /// recorded.
    revival: Option<Option<Trace>>,
    /// The content of the caches at the last kill of this trace.
    caches: Option<Replay>,
    /// The counters so far.
    pub explored: Explored,
}

impl<'e, const VOLATILE: bool> Explorer<'e, VOLATILE> {
    /// An explorer in `memory`, whose lines may be marked as scratch. It stops early once `is_over`
    /// returns true.
    pub fn new(
        memory: Memory<VOLATILE>,
        rules: Rules,
        limits: Limits,
        seen: &'e Seen,
        is_over: &'e dyn Fn() -> bool,
    ) -> Self {
        let lines = (0..memory.lines()).map(|_| None).collect();
        Self {
            memory,
            rules,
            limits,
            depth: 0,
            seen,
            is_over,
            dice: RandomSource::new(0),
            lines,
            open: BTreeSet::new(),
            threads: Vec::new(),
            marks: [0; 3],
            knows_reads: false,
            nested: None,
            is_directed: false,
            focus: None,
            focus_one_in: 1,
            revival: None,
            caches: None,
            explored: Explored::default(),
        }
    }

    /// Looks only for states that show the fault injected into the traces, and tries every path to
    /// them.
    pub fn for_fault(self, is_directed: bool) -> Self {
        Self { is_directed, ..self }
    }

    /// Explores the crashes of `trace` from event `from` on. The trace starts at `base` with
    /// everything durable. Returns the first violating state.
    pub fn explore(
        &mut self,
        whole: (&[u64], &Trace),
        from: usize,
        seed: u64,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        self.walk(whole, Begin::Anew(from), seed, judge)
    }

    fn walk(
        &mut self,
        whole: (&[u64], &Trace),
        begin: Begin,
        seed: u64,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        if !self.start(whole, begin.event(), seed) {
            return None;
        }
        for (number, event) in whole.1.events().iter().enumerate() {
            let found = self.pass(whole, (number, event), begin, judge);
            if found.is_some() || (self.is_over)() {
                return found;
            }
        }
        None
    }

    /// Processes an event: the states that it makes possible, then kills and crashes of recoveries
    /// at this point.
    fn pass(
        &mut self,
        whole: (&[u64], &Trace),
        (number, event): (usize, &Event),
        begin: Begin,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let mut at = self.at(number, event, begin);
        let is_mark = matches!(event.what, What::Mark(_));
        match begin {
            Begin::Anew(from) if number == from && !self.is_directed => {
                let found = self.point(at, None, judge);
                if found.is_some() {
                    return found;
                }
            }
            Begin::Behind(from) if number < from && is_mark => {
                self.age(number as u32);
                return None;
            }
            // Values that were read must last, so they are always checked.
            Begin::Behind(_) => at.explore |= is_mark && !self.is_directed,
            Begin::Anew(_) => {}
        }
        let found = self.step(whole.1, event, at, judge);
        if found.is_none() && at.is_due { self.go_deeper(whole, at, judge) } else { found }
    }

    /// How the crashes of an event are explored.
    fn at(&mut self, number: usize, event: &Event, begin: Begin) -> At {
        let from = begin.event();
        let one_in = match (begin, self.depth) {
            (Begin::Anew(_), 0) => self.limits.events_one_in[0],
            (Begin::Anew(_), _) => 1,
            (Begin::Behind(_), _) => self.limits.events_one_in[1],
        };
        let is_due = number >= from && self.dice.roll(one_in) == 0;
        let at = At { event: number, is_due, explore: is_due, all: false, is_lock: event.is_lock_store() };
        let Some(focus) = &self.focus else { return at };
        let differs = is_due && focus.differs(number);
        if self.focus_one_in > 1 {
            // A few points, with all of their states.
            return At { explore: false, all: differs && self.dice.roll(self.focus_one_in) == 0, ..at };
        }
        At { explore: differs, all: differs && (number == from || focus.differs_more(number)), ..at }
    }

    /// Explores a kill or a crash of the recovery at this point.
    fn go_deeper(
        &mut self,
        whole: (&[u64], &Trace),
        at: At,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let mut found = if at.all { self.point(at, None, judge) } else { None };
        if found.is_none() && self.is_kill_due() {
            found = self.kill(whole, at.event, judge);
        }
        if found.is_none() && self.is_recovery_due() {
            found = self.crash_any_recovery(at.event, judge);
        }
        found
    }

    /// Starts a walk of a trace. Returns false if a directed search has nothing to explore from
    /// event `from` on.
    fn start(&mut self, (base, trace): (&[u64], &Trace), from: usize, seed: u64) -> bool {
        self.focus = self.is_directed.then(|| Focus::of(trace, &self.rules));
        if let Some(focus) = &self.focus {
            let count = focus.count_from(from);
            if count == 0 && self.depth > 0 {
                return false;
            }
            self.focus_one_in = count / FOCUS_POINTS[self.depth];
        }
        for line in std::mem::take(&mut self.open) {
            self.memory.set_undecided(line as usize, false);
        }
        self.memory.set_all(base);
        self.lines.clear();
        self.lines.resize_with(self.memory.lines(), || None);
        self.threads.clear();
        self.marks = [0; 3];
        self.dice = RandomSource::new(seed);
        self.knows_reads = false;
        (self.revival, self.caches) = (None, None);
        true
    }
}

/// The event at which a walk begins to explore, and the state of the judge then.
#[derive(Clone, Copy)]
enum Begin {
    /// At this event; the judge has processed no marks.
    Anew(usize),
    /// At this event; the judge has processed the earlier marks, because the process that left them
    /// was killed.
    Behind(usize),
}

impl Begin {
    fn event(self) -> usize {
        match self {
            Self::Anew(event) | Self::Behind(event) => event,
        }
    }
}

/// An event, and how its crashes are explored.
#[derive(Clone, Copy)]
struct At {
    event: usize,
    /// The event was selected by the sampling rate.
    is_due: bool,
    /// The states that the event makes possible are explored.
    explore: bool,
    /// All states after the event are explored, whether it stores or not.
    all: bool,
    is_lock: bool,
}
