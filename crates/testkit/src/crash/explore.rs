//! The walk through a trace, and the crash states at each of its points.
//!
//! The memory holds what is certainly durable at the point; beside it, each line has the stores that may be lost. A crash state is the memory with
//! a choice of contents for those lines.
//!
//! * **Only what is new is judged.** A store adds the states in which it was kept; those without it were judged at the points before, with the
//!   same expectation. A fence only takes states away. Where an operation returns, the expectation narrows, and all states are judged again.
//! * **Only what is read is a choice.** A run starts with the least of each line, and the memory notes which undecided words are read before they
//!   are written. Each line that was read is then tried with each other content that differs in those words, given the same contents of the lines read before it.
//!   Every set of bytes that recovery can read is met once, and none twice.
//! * A store to a word that no state of the point has read makes no new state.
//!
//! Where a point has more states than the limit, the search gives way to: all least, all most, each line alone kept or lost, then states by the dice.

use super::dice::Dice;
use super::focus::Focus;
use super::line::Pending;
use super::memory::{Memory, WORDS};
use super::oracles::Expectation;
use super::rules::Rules;
use super::seen::Seen;
use crate::trace::{Event, Replay, Trace, What};
use std::collections::BTreeSet;

mod events;
mod kill;
mod states;

use events::Thread;
use states::{Choice, Point, pick};

/// Points of a history, about, at which a directed search looks, and of what follows a crash: many histories find more than all of one.
const FOCUS_POINTS: [u64; 3] = [48, 12, 12];

/// What is wrong with a state, in the words of its judge.
pub type Wrong = String;

/// Says what each point of a trace must leave, and whether a state does.
pub trait Judge<const VOLATILE: bool> {
    /// The trace has come to this note. Whether less is allowed now than before.
    fn pass(&mut self, note: u64) -> bool;
    /// A number for what is expected now: the same number, the same expectation.
    fn expectation(&self) -> u64;
    /// Recovers from what `memory` holds and compares. Does the same for the same bytes, at one point; `point` is its number.
    fn judge(&mut self, memory: &Memory<VOLATILE>, point: u64) -> Result<(), Wrong>;
    /// What a recovery from `image` does to its memory, for crashes in it.
    fn recovery(&mut self, image: &[u64]) -> Option<Trace>;
    /// What a new process does that recovers from `image` in the life of the machine, reads everything and writes some: what it has read must last,
    /// although the one before may not have made it durable.
    fn revival(&mut self, image: &[u64]) -> Option<Trace>;
    /// What is expected now, for [`Judge::go_back_to`].
    fn remember(&self) -> Expectation;
    /// Expects what was expected then.
    fn go_back_to(&mut self, expectation: Expectation);
}

/// How far a search goes, a number for each depth: crashes, crashes of the recovery, crashes of the recovery from those.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// States of a point that are all judged; where there are more, they are sampled.
    pub exhaustive: [u64; 3],
    /// States that are sampled then.
    pub samples: [u64; 3],
    /// One event in so many is explored: of a history, and of what a process does that comes after a kill. A recovery that is crashed is so at each of its events.
    pub events_one_in: [u64; 2],
    /// One state in so many has its recovery crashed, too; 0 is none.
    pub nested_one_in: [u64; 3],
    /// After one event of a history in so many the process is killed, and power fails in the life of the next one; 0 is none.
    pub revived_one_in: u64,
    /// Of the states that come to an end that was judged before, one in so many is judged to its own end all the same; 1 is each.
    pub again_one_in: u64,
}

impl Limits {
    /// States that come to an end that was judged before, for each that is judged to its own end.
    pub const AGAIN_ONE_IN: u64 = 16;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            exhaustive: [65_536, 16, 8],
            samples: [1024, 8, 4],
            events_one_in: [1, 16],
            nested_one_in: [32_768, 8192, 0],
            revived_one_in: 2048,
            again_one_in: Self::AGAIN_ONE_IN,
        }
    }
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// States that were recovered from and judged.
    pub runs: u64,
    /// Those that no run before had seen: other bytes read, or another expectation.
    pub distinct: u64,
    /// Of those, crashes of a recovery, and of what comes after a kill.
    pub nested: u64,
    /// Recoveries that were crashed.
    pub recoveries: u64,
    /// Points of histories at which a crash can leave something new.
    pub points: u64,
    /// Those of them whose states were too many and so were sampled, or at which a line was read that had more contents than are told apart.
    pub sampled: u64,
    /// Words that histories have stored.
    pub stores: u64,
    /// Those of them that were taken for durable without anything that made them so, because they were old.
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

/// A state that is wrong.
#[derive(Clone, Debug)]
pub struct Found {
    /// The crash comes after this event of the trace.
    pub event: usize,
    /// Lines with stores that might have been lost, and what became of them: the lost and the kept ones.
    pub lines: Vec<Fate>,
    /// What is wrong.
    pub wrong: Wrong,
    /// The trace of the recovery that crashed, too, and its state.
    pub nested: Option<Box<(Trace, Found)>>,
}

/// What a crash has done to one line.
#[derive(Clone, Debug)]
pub struct Fate {
    /// The line's number.
    pub line: u32,
    /// Events whose stores to it were lost.
    pub lost: Vec<u32>,
    /// Events whose stores to it were kept although they might have been lost.
    pub kept: Vec<u32>,
}

/// Walks through a trace and judges its crash states.
pub struct Explorer<'e, const VOLATILE: bool> {
    memory: Memory<VOLATILE>,
    rules: Rules,
    limits: Limits,
    depth: usize,
    seen: &'e Seen,
    is_over: &'e dyn Fn() -> bool,
    dice: Dice,
    lines: Vec<Option<Box<Pending>>>,
    /// Lines, not scratch, that have stores that may be lost.
    open: BTreeSet<u32>,
    threads: Vec<Thread>,
    /// The events of the last notes.
    notes: [u32; 3],
    /// Whether every state of the points since the last narrowing was judged, so that what was not read is known.
    knows_reads: bool,
    nested: Option<Box<Explorer<'e, VOLATILE>>>,
    /// Whether only states are looked for that show a planted fault.
    is_directed: bool,
    /// Where the trace shows it; none if the search is not directed.
    focus: Option<Focus>,
    /// One of so many points that show it is explored.
    focus_one_in: u64,
    /// What a process does that comes after a kill here, if nothing was stored since that was last asked.
    revival: Option<Option<Trace>>,
    /// What the caches held at the last kill of this trace.
    caches: Option<Replay>,
    /// What was explored so far.
    pub explored: Explored,
}

impl<'e, const VOLATILE: bool> Explorer<'e, VOLATILE> {
    /// An explorer in `memory`, of which lines may be marked as scratch. It stops early once `is_over` says so.
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
            dice: Dice::new(0),
            lines,
            open: BTreeSet::new(),
            threads: Vec::new(),
            notes: [0; 3],
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

    /// Looks only for states that show the fault that was planted into the traces, and tries every way to get there.
    pub fn directed(self, is_directed: bool) -> Self {
        Self { is_directed, ..self }
    }

    /// Explores the crashes of `trace`, which starts at `base` with everything durable, from event `from` on. Returns the first state that is wrong.
    pub fn explore(
        &mut self,
        whole: (&[u64], &Trace),
        from: usize,
        seed: u64,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        self.walk(whole, Begin::Anew(from), seed, judge)
    }

    fn walk(
        &mut self,
        whole: (&[u64], &Trace),
        begin: Begin,
        seed: u64,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
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

    /// Passes an event: the states that it makes possible, and the crashes that come after something else than a crash here.
    fn pass(
        &mut self,
        whole: (&[u64], &Trace),
        (number, event): (usize, &Event),
        begin: Begin,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        let mut at = self.at(number, event, begin);
        let is_note = matches!(event.what, What::Mark(_));
        match begin {
            Begin::Anew(from) if number == from && !self.is_directed => {
                let found = self.point(at, None, judge);
                if found.is_some() {
                    return found;
                }
            }
            Begin::Behind(from) if number < from && is_note => {
                self.age(number as u32);
                return None;
            }
            // What was read is judged in any case.
            Begin::Behind(_) => at.explore |= is_note && !self.is_directed,
            Begin::Anew(_) => {}
        }
        let found = self.step(whole.1, event, at, judge);
        if found.is_none() && at.is_due { self.go_deeper(whole, at, judge) } else { found }
    }

    /// Whether and how the crashes of an event are explored.
    fn at(&mut self, number: usize, event: &Event, begin: Begin) -> At {
        let from = begin.event();
        let one_in = match (begin, self.depth) {
            (Begin::Anew(_), 0) => self.limits.events_one_in[0],
            (Begin::Anew(_), _) => 1,
            (Begin::Behind(_), _) => self.limits.events_one_in[1],
        };
        let is_due = number >= from && self.dice.roll(one_in) == 0;
        let at = At { event: number, is_due, explore: is_due, all: false, is_lock: is_of_lock(event) };
        let Some(focus) = &self.focus else { return at };
        let differs = is_due && focus.differs(number);
        if self.focus_one_in > 1 {
            // A few points of many, with all of their states.
            return At { explore: false, all: differs && self.dice.roll(self.focus_one_in) == 0, ..at };
        }
        At { explore: differs, all: differs && (number == from || focus.differs_more(number)), ..at }
    }

    /// Crashes that begin with something else than a crash here.
    fn go_deeper(
        &mut self,
        whole: (&[u64], &Trace),
        at: At,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        let mut found = if at.all { self.point(at, None, judge) } else { None };
        if found.is_none() && self.is_kill_due() {
            found = self.kill(whole, at.event, judge);
        }
        if found.is_none() && self.is_recovery_due() {
            found = self.crash_any_recovery(at.event, judge);
        }
        found
    }

    /// Begins with a trace. Whether there is anything to look for from event `from` on.
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
        self.notes = [0; 3];
        self.dice = Dice::new(seed);
        self.knows_reads = false;
        (self.revival, self.caches) = (None, None);
        true
    }
}

/// Where a walk begins to explore, and what the judge knows then.
#[derive(Clone, Copy)]
enum Begin {
    /// At this event; the judge has passed nothing.
    Anew(usize),
    /// At this event; the judge has passed the notes before, for the process that left them was killed.
    Behind(usize),
}

impl Begin {
    fn event(self) -> usize {
        match self {
            Self::Anew(event) | Self::Behind(event) => event,
        }
    }
}

/// An event, and whether its crashes are explored.
#[derive(Clone, Copy)]
struct At {
    event: usize,
    /// It is this event's turn.
    is_due: bool,
    /// What it makes possible is looked at.
    explore: bool,
    /// So are all states behind it, whether it stores or not.
    all: bool,
    is_lock: bool,
}

/// Whether it is a store to a lock, which the product gives such a name.
pub(super) fn is_of_lock(event: &Event) -> bool {
    event.point.is_some_and(|point| point.starts_with("lock."))
}
