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
use super::line::{Content, Item, Order, Pending};
use super::memory::{Memory, WORDS, hash};
use super::oracles::Expectation;
use super::rules::Rules;
use super::seen::Seen;
use crate::trace::{Event, Role, Trace, What};
use std::collections::BTreeSet;

mod kill;

/// Points of a history, about, at which a directed search looks: many histories find more than all of one.
const FOCUS_POINTS: u64 = 48;

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
    /// One event in so many is explored.
    pub events_one_in: [u64; 3],
    /// One state in so many has its recovery crashed, too; 0 is none.
    pub nested_one_in: [u64; 3],
    /// After one event of a history in so many the process is killed, and power fails in the life of the next one; 0 is none.
    pub revived_one_in: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            exhaustive: [65_536, 16, 8],
            samples: [1024, 8, 4],
            events_one_in: [1, 16, 64],
            nested_one_in: [8192, 512, 0],
            revived_one_in: 2048,
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
    /// Of those, crashes of a recovery.
    pub nested: u64,
    /// Points of histories at which a crash can leave something new.
    pub points: u64,
    /// Those of them whose states were too many and so were sampled.
    pub sampled: u64,
}

impl std::ops::AddAssign for Explored {
    fn add_assign(&mut self, more: Self) {
        self.runs += more.runs;
        self.distinct += more.distinct;
        self.nested += more.nested;
        self.points += more.points;
        self.sampled += more.sampled;
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

/// The content of one line in a state, by number.
#[derive(Clone, Copy)]
struct Pick {
    line: u32,
    content: usize,
    /// Words, a bit each, in which the contents that are tried elsewhere differ from this one. Those that agree in them are this one's to try.
    told: u8,
}

/// What a state says of lines; the others have their usual content.
type Choice = Vec<Pick>;

/// Threads' write-backs and streamed stores that no fence has ended.
#[derive(Default)]
struct Thread {
    written_back: Vec<(u32, u32)>,
    streamed: Vec<u32>,
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
        (base, trace): (&[u64], &Trace),
        from: usize,
        seed: u64,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        if !self.start((base, trace), from, seed) {
            return None;
        }
        for (number, event) in trace.events().iter().enumerate() {
            let at = self.at(number, event, from);
            if number == from && !self.is_directed {
                let found = self.point(at, None, judge);
                if found.is_some() {
                    return found;
                }
            }
            let mut found = self.step(trace, event, at, judge);
            if found.is_none() && at.is_due {
                found = self.go_deeper((base, trace), at, judge);
            }
            if found.is_some() || (self.is_over)() {
                return found;
            }
        }
        None
    }

    /// Whether and how the crashes of an event are explored.
    fn at(&mut self, number: usize, event: &Event, from: usize) -> At {
        let is_due = number >= from && self.dice.roll(self.limits.events_one_in[self.depth]) == 0;
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
            self.focus_one_in = count / FOCUS_POINTS;
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
        self.revival = None;
        true
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = thread as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Thread::default);
        }
        &mut self.threads[index]
    }

    fn step(
        &mut self,
        trace: &Trace,
        event: &Event,
        at: At,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        let number = at.event as u32;
        if event.role == Role::LeftOut {
            return None;
        }
        match event.what {
            What::Rmw { .. } | What::RmwFailed { .. } if self.rules.locked_orders => {
                self.keep_written_back(event.thread)
            }
            _ => {}
        }
        match event.what {
            What::Store { .. } | What::Rmw { .. } => {
                let (word, value) = trace.stored(event).next()?;
                self.store(at, &[(word, value)], Order::Ordinary, judge)
            }
            What::Copy(piece) => self.store_pieces(trace.words(piece), at, Order::Copied(number), judge),
            What::StreamedCopy(piece) => {
                self.store_pieces(trace.words(piece), at, Order::Streamed(event.thread), judge)
            }
            What::WriteBack { line } => {
                let line = (line as usize / (8 * WORDS)) as u32;
                self.thread(event.thread).written_back.push((line, number));
                None
            }
            What::Fence => {
                if self.rules.fences_keep {
                    self.keep_written_back(event.thread);
                    self.keep_streamed(event.thread);
                }
                None
            }
            What::Mark(note) => {
                let narrower = judge.pass(note);
                let found = if narrower && at.explore { self.point(at, None, judge) } else { None };
                self.age(number);
                found
            }
            What::RmwFailed { .. } => None,
        }
    }

    /// A copy, line by line.
    fn store_pieces(
        &mut self,
        words: impl Iterator<Item = (u64, u64)>,
        at: At,
        order: Order,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        let words: Vec<(u64, u64)> = words.collect();
        words
            .chunk_by(|a, b| a.0 / WORDS as u64 == b.0 / WORDS as u64)
            .find_map(|line| self.store(at, line, order, judge))
    }

    /// Stores to words of one line.
    fn store(
        &mut self,
        at: At,
        words: &[(u64, u64)],
        order: Order,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        let line = (words.first()?.0 / WORDS as u64) as u32;
        self.revival = None;
        let mask = words.iter().fold(0u8, |mask, &(word, _)| mask | 1 << (word % WORDS as u64));
        let matters = at.explore && self.matters(line, mask);
        let before = if matters { self.contents(line).to_vec() } else { Vec::new() };
        let pending = self.pending(line);
        if at.is_lock {
            pending.locks |= mask;
        }
        for &(word, value) in words {
            let word = (word % WORDS as u64) as u8;
            pending.push(Item { event: at.event as u32, word, value, order });
        }
        if let Order::Streamed(thread) = order {
            self.thread(thread).streamed.push(line);
        }
        self.refresh(line);
        let found = if matters { self.point_after_store(at, line, &before, judge) } else { None };
        if self.rules.keeps_stores {
            self.pending(line).absorb_all();
            self.refresh(line);
        }
        found
    }

    /// Whether another value of these words can make a state that no run has met.
    fn matters(&self, line: u32, words: u8) -> bool {
        let line = line as usize;
        !self.memory.is_scratch(line) && (!self.knows_reads || self.memory.was_read(line, words))
    }

    /// Judges the states in which the line has a content that it could not have before.
    fn point_after_store(
        &mut self,
        at: At,
        line: u32,
        before: &[Content],
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        let is_new = |content: &Content| !before.iter().any(|old| old.words == content.words);
        let contents = self.contents(line);
        let new: Vec<usize> = (0..contents.len()).filter(|&i| is_new(&contents[i])).collect();
        if new.is_empty() { None } else { self.point(at, Some((line, new)), judge) }
    }

    /// A locked instruction or a fence of `thread`: what it wrote back is durable.
    fn keep_written_back(&mut self, thread: u32) {
        for (line, event) in std::mem::take(&mut self.thread(thread).written_back) {
            if let Some(pending) = &mut self.lines[line as usize] {
                pending.absorb_until(event);
                self.refresh(line);
            }
        }
    }

    fn keep_streamed(&mut self, thread: u32) {
        for line in std::mem::take(&mut self.thread(thread).streamed) {
            if let Some(pending) = &mut self.lines[line as usize] {
                pending.absorb_streamed(thread);
                self.refresh(line);
            }
        }
    }

    /// A note has come. Stores that are older than the last two may have left the cache by themselves: of each line some, by the dice. Otherwise
    /// what nobody ever writes back would make more and more choices, all the same.
    fn age(&mut self, note: u32) {
        let [_, old, last] = self.notes;
        self.notes = [old, last, note];
        for line in self.open.clone() {
            if self.focus.as_ref().is_some_and(|focus| focus.has_line(line)) {
                continue;
            }
            let Some(pending) = &mut self.lines[line as usize] else { continue };
            let aged = pending.items.partition_point(|item| item.event < old);
            if aged > 0 && self.dice.roll(2) == 0 {
                let last = pending.items[self.dice.roll(aged as u64) as usize].event;
                pending.absorb_until(last);
                self.refresh(line);
            }
        }
    }

    fn pending(&mut self, line: u32) -> &mut Pending {
        let memory = &self.memory;
        self.lines[line as usize].get_or_insert_with(|| Box::new(Pending::new(memory.line(line as usize))))
    }

    fn contents(&mut self, line: u32) -> &[Content] {
        let rules = self.rules;
        self.pending(line).contents(&rules)
    }

    /// Brings the memory in line with what is durable of a line. What a scratch line holds is drawn.
    fn refresh(&mut self, line: u32) {
        let index = line as usize;
        let Some(pending) = &mut self.lines[index] else { return };
        while pending.begins_with_lock() && self.dice.roll(2) == 0 {
            pending.absorb_oldest();
        }
        if self.memory.is_scratch(index) {
            let kept = self.dice.roll(3 * (pending.items.len() as u64 + 1)) as usize;
            return self.memory.set_line(index, &pending.with_first(kept));
        }
        self.memory.set_line(index, &pending.base);
        let undecided = !pending.items.is_empty();
        self.memory.set_undecided(index, undecided);
        if undecided {
            self.open.insert(line)
        } else {
            self.open.remove(&line)
        };
    }

    /// Judges the states of a point: all of them, or those in which a line has one of these contents.
    fn point(
        &mut self,
        at: At,
        forced: Option<(u32, Vec<usize>)>,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        self.explored.points += u64::from(self.depth == 0);
        if forced.is_none() {
            self.memory.forget_reads();
            self.knows_reads = true;
        }
        let point = Point { event: at.event, forced };
        match self.try_all(&point, judge) {
            Search::Done => None,
            Search::Wrong(found) => Some(*found),
            Search::TooMany => {
                self.explored.sampled += u64::from(self.depth == 0);
                self.knows_reads = false;
                self.sample(&point, judge)
            }
        }
    }

    /// Every state that differs from all others in what is read, up to the limit.
    fn try_all(&mut self, point: &Point, judge: &mut dyn Judge<VOLATILE>) -> Search {
        let mut left = self.limits.exhaustive[self.depth];
        let mut waiting = vec![Choice::new()];
        while let Some(choice) = waiting.pop() {
            if left == 0 || (self.is_over)() {
                return Search::TooMany;
            }
            left -= 1;
            match self.run(point, &choice, judge) {
                Ok(asked) => self.fork(point, &choice, &asked, &mut waiting),
                Err(found) => return Search::Wrong(found),
            }
        }
        Search::Done
    }

    /// The choices that differ from `choice` in one line, in words that its run has read, and agree in what it read of lines before.
    fn fork(&mut self, point: &Point, choice: &Choice, asked: &[(usize, u8)], waiting: &mut Vec<Choice>) {
        let mut prefix = Choice::new();
        for &(line, words) in asked {
            let line = line as u32;
            let chosen = choice.iter().find(|pick| pick.line == line).copied();
            let chosen = chosen.unwrap_or(Pick { line, content: point.usual(line), told: 0 });
            let told = chosen.told | words;
            for content in self.others(point, chosen, told) {
                let mut other = prefix.clone();
                other.push(Pick { line, content, told });
                // Lines that were chosen and come later, or were not read, stay chosen.
                let rest = choice
                    .iter()
                    .filter(|pick| pick.line != line && !prefix.iter().any(|p| p.line == pick.line));
                other.extend(rest.copied());
                waiting.push(other);
            }
            prefix.push(Pick { told, ..chosen });
        }
    }

    /// One content for each way to differ from the chosen one in the words `told`, of those that are its to try.
    fn others(&mut self, point: &Point, chosen: Pick, told: u8) -> Vec<usize> {
        let domain = self.domain(point, chosen.line);
        let contents = self.contents(chosen.line);
        let mut found = vec![chosen.content];
        for content in domain {
            let mine = !differ(&contents[content], &contents[chosen.content], chosen.told);
            if mine && found.iter().all(|&other| differ(&contents[content], &contents[other], told)) {
                found.push(content);
            }
        }
        found.swap_remove(0);
        found
    }

    /// Judges one state. Returns the undecided lines that were read.
    fn run(
        &mut self,
        point: &Point,
        choice: &Choice,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Result<Vec<(usize, u8)>, Box<Found>> {
        self.memory.begin();
        self.place(point, choice);
        let verdict = judge.judge(&self.memory, point.event as u64);
        let asked = self.memory.asked().collect();
        let state = hash(self.memory.fingerprint(), judge.expectation());
        self.memory.end();
        self.explored.runs += 1;
        if self.seen.insert(state) {
            self.explored.distinct += 1;
            self.explored.nested += u64::from(self.depth > 0);
        }
        if let Err(wrong) = verdict {
            return Err(Box::new(self.found(point, choice, wrong, None)));
        }
        match self.limits.nested_one_in[self.depth] {
            0 => Ok(asked),
            often if self.dice.roll(often) != 0 => Ok(asked),
            _ => self.crash_recovery(point, choice, judge).map_or(Ok(asked), |found| Err(Box::new(found))),
        }
    }

    fn place(&mut self, point: &Point, choice: &Choice) {
        let forced =
            point.forced.iter().map(|(line, contents)| Pick { line: *line, content: contents[0], told: 0 });
        let forced = forced.filter(|forced| !choice.iter().any(|pick| pick.line == forced.line));
        for pick in forced.chain(choice.iter().copied()) {
            let words = self.contents(pick.line)[pick.content].words;
            self.memory.place(pick.line as usize, &words);
        }
    }

    /// Crashes the recovery from a state.
    fn crash_recovery(
        &mut self,
        point: &Point,
        choice: &Choice,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<Found> {
        self.memory.begin();
        self.place(point, choice);
        let image = self.memory.image();
        self.memory.end();
        let trace = judge.recovery(&image)?;
        let mut nested = self.nested.take().unwrap_or_else(|| self.deeper());
        let found = nested.explore((&image, &trace), 0, self.explored.runs, judge);
        self.explored += std::mem::take(&mut nested.explored);
        self.nested = Some(nested);
        found.map(|found| {
            let wrong = found.wrong.clone();
            self.found(point, choice, wrong, Some(Box::new((trace, found))))
        })
    }

    fn deeper(&self) -> Box<Self> {
        let bytes = self.memory.lines() * WORDS * 8;
        let memory = Memory::zeroed(bytes, bytes).expect("memory for the crashes of a recovery");
        (0..memory.lines())
            .filter(|&line| self.memory.is_scratch(line))
            .for_each(|line| memory.set_scratch(line));
        let mut deeper = Self::new(memory, self.rules, self.limits, self.seen, self.is_over);
        deeper.depth = self.depth + 1;
        deeper.is_directed = self.is_directed;
        Box::new(deeper)
    }

    /// States of a point that has too many.
    fn sample(&mut self, point: &Point, judge: &mut dyn Judge<VOLATILE>) -> Option<Found> {
        let read = |line: &u32| self.memory.was_read(*line as usize, !0);
        let lines: Vec<u32> = self.open.iter().copied().filter(read).collect();
        let domains: Vec<(u32, Vec<usize>)> =
            lines.into_iter().map(|line| (line, self.domain(point, line))).collect();
        let mut tries = vec![pick(&domains, |all| all[0]), pick(&domains, |all| all[all.len() - 1])];
        for alone in 0..domains.len() {
            for kept in [true, false] {
                let mut at = 0..;
                tries.push(pick(&domains, |all| {
                    let last = (at.next() == Some(alone)) == kept;
                    if last { all[all.len() - 1] } else { all[0] }
                }));
            }
        }
        for _ in 0..self.limits.samples[self.depth] {
            let dice = &mut self.dice;
            tries.push(pick(&domains, |all| match dice.roll(4) {
                0 => all[0],
                1 => all[all.len() - 1],
                _ => *dice.pick(all),
            }));
        }
        for choice in tries {
            if (self.is_over)() {
                return None;
            }
            if let Err(found) = self.run(point, &choice, judge) {
                return Some(*found);
            }
        }
        None
    }

    fn domain(&mut self, point: &Point, line: u32) -> Vec<usize> {
        let contents = self.contents(line).len();
        point.forced_to(line).map_or_else(|| (0..contents).collect(), <[_]>::to_vec)
    }

    /// The state, as its finder tells it.
    fn found(
        &mut self,
        point: &Point,
        choice: &Choice,
        wrong: Wrong,
        nested: Option<Box<(Trace, Found)>>,
    ) -> Found {
        let mut lines = Vec::new();
        for line in self.open.clone() {
            let chosen = choice.iter().find(|pick| pick.line == line).map(|pick| pick.content);
            let content = self.contents(line)[chosen.unwrap_or(point.usual(line))];
            let Some(pending) = &self.lines[line as usize] else { continue };
            let fate = pending.parted(&content);
            let [lost, kept] = fate.map(|items| items.iter().map(|item| item.event).collect());
            lines.push(Fate { line, lost, kept });
        }
        Found { event: point.event, lines, wrong, nested }
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

/// Whether it is a store to a lock: they are all made in one file.
fn is_of_lock(event: &Event) -> bool {
    event.site.file().ends_with("pool/src/lock.rs")
}

/// States that are judged together.
struct Point {
    event: usize,
    /// A line that has one of these contents.
    forced: Option<(u32, Vec<usize>)>,
}

impl Point {
    fn forced_to(&self, line: u32) -> Option<&[usize]> {
        self.forced.as_ref().filter(|forced| forced.0 == line).map(|forced| &forced.1[..])
    }

    /// The content of a line that no choice names.
    fn usual(&self, line: u32) -> usize {
        self.forced_to(line).map_or(0, |contents| contents[0])
    }
}

enum Search {
    Done,
    TooMany,
    Wrong(Box<Found>),
}

fn pick(domains: &[(u32, Vec<usize>)], mut of: impl FnMut(&[usize]) -> usize) -> Choice {
    domains.iter().map(|(line, all)| Pick { line: *line, content: of(all), told: !0 }).collect()
}

/// Whether two contents differ in these words.
fn differ(one: &Content, other: &Content, words: u8) -> bool {
    (0..WORDS).any(|word| words >> word & 1 == 1 && one.words[word] != other.words[word])
}
