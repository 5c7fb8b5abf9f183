//! Crashes after a process was killed, and crashes of a recovery.

use super::{Begin, Choice, Explorer, Judge, Memory, Point, ViolatingState, WORDS, pick};
use crate::trace::{Replay, Trace};

impl<const VOLATILE: bool> Explorer<'_, VOLATILE> {
    /// Whether to try a kill here; only on profiles where a kill changes what a machine crash
    /// leaves.
    pub(super) fn is_kill_due(&mut self) -> bool {
        let loses = !self.rules.keeps_stores && self.rules.fences_keep;
        let often = self.limits.revived_one_in;
        loses && self.depth == 0 && often != 0 && self.dice.roll(often) == 0
    }

    /// Kills the process after an event. Another process continues with the content of the caches;
    /// then power fails.
    pub(super) fn kill(
        &mut self,
        (base, trace): (&[u64], &Trace),
        event: usize,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let expectation = judge.remember();
        let revival = self.revival.take().unwrap_or_else(|| {
            let words = self.memory.lines() * WORDS;
            let caches = self.caches.get_or_insert_with(|| Replay::from(base, words));
            judge.revival(caches.go_on(trace, event + 1))
        });
        let shows = |revival: &&Trace| match &self.focus {
            Some(focus) => !focus.is_sound() || !revival.is_sound(),
            None => true,
        };
        let found = revival.as_ref().filter(shows).and_then(|revival| {
            let whole = trace.followed_by(event + 1, revival);
            let mut nested = self.nested.take().unwrap_or_else(|| self.deeper());
            let begin = Begin::Behind(event + 1);
            let found = nested.walk((base, &whole), begin, self.explored.runs, judge);
            self.explored += std::mem::take(&mut nested.explored);
            self.nested = Some(nested);
            found.map(|found| (whole, found))
        });
        self.revival = Some(revival);
        judge.restore(expectation);
        found.map(|(whole, found)| {
            let wrong = found.wrong.clone();
            ViolatingState { event, lines: Vec::new(), wrong, nested: Some(Box::new((whole, found))) }
        })
    }

    /// Whether to crash a recovery where the history does not show the fault: the recovery may.
    pub(super) fn is_recovery_due(&mut self) -> bool {
        let often = self.limits.nested_one_in[self.depth];
        self.is_directed && self.depth == 0 && often != 0 && self.dice.roll(often) == 0
    }

    /// Crashes the recovery from a state after an event: the minimal, the maximal, or a random one.
    pub(super) fn crash_any_recovery(
        &mut self,
        event: usize,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        let point = Point { event, forced: None };
        let lines: Vec<u32> = self.open.iter().copied().collect();
        let domains: Vec<(u32, Vec<usize>)> =
            lines.into_iter().map(|line| (line, self.domain(&point, line))).collect();
        let dice = &mut self.dice;
        let choice: Choice = match dice.roll(4) {
            0 => pick(&domains, |all| all[0]),
            1 => pick(&domains, |all| all[all.len() - 1]),
            _ => pick(&domains, |all| *dice.pick(all)),
        };
        self.crash_recovery(&point, &choice, judge)
    }

    /// Crashes the recovery from a state.
    pub(super) fn crash_recovery(
        &mut self,
        point: &Point,
        choice: &Choice,
        judge: &mut dyn Judge<VOLATILE>,
    ) -> Option<ViolatingState> {
        self.memory.begin();
        self.place(point, choice);
        let image = self.memory.image();
        self.memory.end();
        let trace = judge.recovery(&image)?;
        self.explored.recoveries += 1;
        let mut nested = self.nested.take().unwrap_or_else(|| self.deeper());
        let found = nested.explore((&image, &trace), 0, self.explored.runs, judge);
        self.explored += std::mem::take(&mut nested.explored);
        self.nested = Some(nested);
        found.map(|found| {
            let wrong = found.wrong.clone();
            self.describe(point, choice, wrong, Some(Box::new((trace, found))))
        })
    }

    pub(super) fn deeper(&self) -> Box<Self> {
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
}
