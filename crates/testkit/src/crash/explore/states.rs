//! The states of one point: their enumeration and the check of each.

use super::{At, Explorer, Judge, LineFate, ViolatingState};
use crate::crash::line::Content;
use crate::crash::memory::{WORDS, hash};
use crate::observer::Violation;
use crate::trace::Trace;

/// The content of one line in a state, by its index.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) line: u32,
    pub(super) content: usize,
    /// Words, one bit each, in which contents tried by other picks differ from this one. This pick
    /// enumerates the contents that agree in them.
    pub(super) distinct: u8,
}

/// The contents chosen for some lines; the others have their default content.
pub(super) type Choice = Vec<Pick>;

/// States that are checked together.
pub(super) struct Point {
    pub(super) event: usize,
    /// A line restricted to these contents.
    pub(super) forced: Option<(u32, Vec<usize>)>,
}

impl Point {
    fn forced_to(&self, line: u32) -> Option<&[usize]> {
        self.forced.as_ref().filter(|forced| forced.0 == line).map(|forced| &forced.1[..])
    }

    /// The content of a line without a pick.
    fn usual(&self, line: u32) -> usize {
        self.forced_to(line).map_or(0, |contents| contents[0])
    }
}

pub(super) enum Search {
    Done,
    /// All tried contents were checked, but a line that was read has more.
    Cut,
    TooMany,
    Wrong(Box<ViolatingState>),
}

pub(super) fn pick(domains: &[(u32, Vec<usize>)], mut of: impl FnMut(&[usize]) -> usize) -> Choice {
    domains.iter().map(|(line, all)| Pick { line: *line, content: of(all), distinct: !0 }).collect()
}

/// Whether two contents differ in these words.
pub(super) fn differ(one: &Content, other: &Content, words: u8) -> bool {
    (0..WORDS).any(|word| words >> word & 1 == 1 && one.words[word] != other.words[word])
}

impl<const VOLATILE: bool> Explorer<'_, VOLATILE> {
    /// Checks the states of a point: all of them, or those in which a line has one of these
    /// contents.
    pub(super) fn point(
        &mut self,
        at: At,
        forced: Option<(u32, Vec<usize>)>,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        self.explored.points += u64::from(self.depth == 0);
        if forced.is_none() {
            self.memory.forget_reads();
            self.knows_reads = true;
        }
        let point = Point { event: at.event, forced };
        match self.try_all(&point, judge) {
            Search::Done => None,
            Search::Wrong(found) => Some(*found),
            Search::Cut => {
                self.explored.sampled += u64::from(self.depth == 0);
                None
            }
            Search::TooMany => {
                self.explored.sampled += u64::from(self.depth == 0);
                self.knows_reads = false;
                self.sample(&point, judge)
            }
        }
    }

    /// Checks every state that differs from all others in what is read, up to the limit.
    pub(super) fn try_all(&mut self, point: &Point, judge: &mut dyn Judge<VOLATILE>) -> Search {
        let mut left = self.limits.exhaustive[self.depth];
        let mut waiting = vec![Choice::new()];
        let mut is_cut = false;
        while let Some(choice) = waiting.pop() {
            if left == 0 || (self.is_over)() {
                return Search::TooMany;
            }
            left -= 1;
            match self.run(point, &choice, judge) {
                Ok(reads) => {
                    self.fork(point, &choice, &reads, &mut waiting);
                    is_cut = is_cut || reads.iter().any(|&(line, _)| self.is_selection(line as u32));
                }
                Err(found) => return Search::Wrong(found),
            }
        }
        if is_cut { Search::Cut } else { Search::Done }
    }

    /// Queues the choices that differ from `choice` in one line, in words that its run read, and
    /// agree in what it read of earlier lines.
    pub(super) fn fork(
        &mut self,
        point: &Point,
        choice: &Choice,
        reads: &[(usize, u8)],
        waiting: &mut Vec<Choice>,
    ) {
        let mut prefix = Choice::new();
        for &(line, words) in reads {
            let line = line as u32;
            let chosen = choice.iter().find(|pick| pick.line == line).copied();
            let chosen = chosen.unwrap_or(Pick { line, content: point.usual(line), distinct: 0 });
            let distinct = chosen.distinct | words;
            for content in self.others(point, chosen, distinct) {
                let mut other = prefix.clone();
                other.push(Pick { line, content, distinct });
                // Lines that were chosen but read later, or not read, stay chosen.
                let rest = choice
                    .iter()
                    .filter(|pick| pick.line != line && !prefix.iter().any(|p| p.line == pick.line));
                other.extend(rest.copied());
                waiting.push(other);
            }
            prefix.push(Pick { distinct, ..chosen });
        }
    }

    /// One content for each way to differ from the chosen one in the words `distinct`, among those
    /// that this pick enumerates.
    pub(super) fn others(&mut self, point: &Point, chosen: Pick, distinct: u8) -> Vec<usize> {
        let domain = self.domain(point, chosen.line);
        let contents = self.contents(chosen.line);
        let mut found = vec![chosen.content];
        for content in domain {
            let mine = !differ(&contents[content], &contents[chosen.content], chosen.distinct);
            if mine && found.iter().all(|&other| differ(&contents[content], &contents[other], distinct)) {
                found.push(content);
            }
        }
        found.swap_remove(0);
        found
    }

    /// Checks one state. Returns the undecided lines that were read.
    pub(super) fn run(
        &mut self,
        point: &Point,
        choice: &Choice,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Result<Vec<(usize, u8)>, Box<ViolatingState>> {
        self.memory.begin();
        self.place(point, choice);
        let verdict = judge.judge(&self.memory, point.event as u64);
        let reads = self.memory.undecided_reads().collect();
        let state = hash(self.memory.fingerprint(), judge.expectation());
        self.memory.end();
        self.explored.runs += 1;
        if self.seen.insert(state) {
            self.explored.distinct += 1;
            self.explored.nested += u64::from(self.depth > 0);
        }
        if let Err(wrong) = verdict {
            return Err(Box::new(self.describe(point, choice, wrong, None)));
        }
        match self.limits.nested_one_in[self.depth] {
            0 => Ok(reads),
            often if self.dice.roll(often) != 0 => Ok(reads),
            _ => self.crash_recovery(point, choice, judge).map_or(Ok(reads), |found| Err(Box::new(found))),
        }
    }

    pub(super) fn place(&mut self, point: &Point, choice: &Choice) {
        let forced = point.forced.iter().map(|(line, contents)| Pick {
            line: *line,
            content: contents[0],
            distinct: 0,
        });
        let forced = forced.filter(|forced| !choice.iter().any(|pick| pick.line == forced.line));
        for pick in forced.chain(choice.iter().copied()) {
            let words = self.contents(pick.line)[pick.content].words;
            self.memory.place(pick.line as usize, &words);
        }
    }

    /// Checks a sample of the states of a point that has too many.
    pub(super) fn sample(
        &mut self,
        point: &Point,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
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

    pub(super) fn domain(&mut self, point: &Point, line: u32) -> Vec<usize> {
        let contents = self.contents(line).len();
        point.forced_to(line).map_or_else(|| (0..contents).collect(), <[_]>::to_vec)
    }

    /// The description of a violating state.
    pub(super) fn describe(
        &mut self,
        point: &Point,
        choice: &Choice,
        wrong: Violation,
        nested: Option<Box<(Trace, ViolatingState)>>,
    ) -> ViolatingState {
        let mut lines = Vec::new();
        for line in self.open.clone() {
            let chosen = choice.iter().find(|pick| pick.line == line).map(|pick| pick.content);
            let content = self.contents(line)[chosen.unwrap_or(point.usual(line))];
            let Some(pending) = &self.lines[line as usize] else { continue };
            let fate = pending.lost_and_kept(&content);
            let [lost, kept] = fate.map(|items| items.iter().map(|item| item.event).collect());
            lines.push(LineFate { line, lost, kept });
        }
        ViolatingState { event: point.event, lines, wrong, nested }
    }
}
