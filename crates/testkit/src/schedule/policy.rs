//! Who is next: by chance, by priorities that change seldom (PCT), or as it was once before.
//!
//! S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte: *A randomized scheduler with probabilistic guarantees of finding bugs*, ASPLOS 2010. A bug that `d`
//! ordered steps suffice to show is found in a run of `n` threads and `k` steps with a probability of at least `1 / (n * k^(d - 1))`. Chance finds what needs many
//! changes between threads, PCT what needs one thread to stay behind for long. Neither finds all that the other does, so runs use both.

use super::cues::{At, Cue, Prompter};
use crate::crash::Dice;
use std::panic::Location;

/// Threads, a bit each.
pub(crate) type Threads = u8;

/// One thread that runs so many steps in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The thread.
    pub thread: u8,
    /// Its steps: accesses, write-backs and fences.
    pub steps: u32,
}

/// How threads take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The thread changes at one step in so many, to any other.
    Random {
        /// How seldom.
        one_in: u64,
    },
    /// The thread with the highest priority runs; priorities change at so many steps less one.
    Pct {
        /// How many steps in order a bug may take.
        depth: u32,
        /// Steps of the run, about.
        steps: u64,
    },
    /// A thread that has asked for durability at a place goes on for a few steps and then stays behind, until the others have ended or wait for it.
    Holding {
        /// The place.
        at: &'static Location<'static>,
        /// Otherwise, who is next.
        rest: Box<Policy>,
    },
    /// A thread that has asked for durability at a place goes on alone from there, until it has ended or waits for another: what it was told, it has returned before
    /// anyone else makes that durable. So that there is something to be made durable, others stay behind now and then between what they store and its fence.
    Hurrying {
        /// The place.
        at: &'static Location<'static>,
        /// Otherwise, who is next.
        rest: Box<Policy>,
    },
    /// A thread that comes to an access with an order at a place stays behind, before it or right behind it, until the others have ended or wait for it.
    Lingering {
        /// The place.
        at: &'static Location<'static>,
        /// Otherwise, who is next.
        rest: Box<Policy>,
    },
    /// Threads change hands at accesses at these places and nowhere else, but where one waits for others or has ended.
    Crossing(Crossing),
    /// As these slices say; behind the last, each thread to its end.
    Script(Vec<Slice>),
    /// As these cues say; behind the last, each thread to its end.
    Cued(Vec<Cue>),
}

/// Places of the source at which threads change hands: what goes wrong only if they do so three or four times, each time at the right one of a few accesses, by chance among thousands of steps hardly ever does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The places.
    pub at: Vec<&'static Location<'static>>,
    /// Lines from one of them to an access that counts as well, at most; but threads change there half as often.
    pub near: u32,
}

impl Policy {
    /// A policy for a run of about `steps` steps.
    pub fn draw(dice: &mut Dice, steps: u64) -> Self {
        match dice.roll(4) {
            0 => Self::Random { one_in: 2 },
            1 => Self::Random { one_in: 4 << dice.roll(4) },
            _ => Self::Pct { depth: 2 + dice.roll(3) as u32, steps },
        }
    }
}

/// A policy at work.
pub(crate) struct Director {
    dice: Dice,
    rule: Rule,
    /// Who asks for durability here is held, or hurries.
    hold_at: Option<&'static Location<'static>>,
    /// Of those who come to an access there, one in so many lingers: where many come by, the first ones are mostly not those that matter. 0 if nobody does.
    lingers: u64,
    hurries: bool,
    /// The thread that stays behind, or goes on alone, from this step on.
    held: Option<(usize, u64)>,
    /// The thread that stays behind until one goes on alone.
    lags: Option<usize>,
    /// Of who lingers: those of the others who wait, perhaps for it.
    waiting: Waiting,
}

/// Who waits while another lingers, perhaps for that one, perhaps for each other.
#[derive(Clone, Copy, Default)]
struct Waiting {
    threads: Threads,
    /// Who could go on, and at which step, when all of them were last asked to try again; and how often they were.
    runnable: Threads,
    since: u64,
    times: u32,
}

/// Steps that a thread still does before it is held, at most: among them those in which it lets go of its locks.
const HELD_AFTER: u64 = 32;

/// Steps that a thread still does before it lingers, less than.
const LINGERS: u64 = 3;

/// Steps in which those who wait for nobody but the one that lingers have found out that they do, and how often they are asked to try again if they have done more.
const PATIENCE: u64 = 512;
const TRIES: u32 = 8;

enum Rule {
    Random { one_in: u64 },
    Pct { priorities: [u64; Threads::BITS as usize], changes: Vec<u64>, lowest: u64 },
    Crossing(Changes),
    Script { slices: Vec<Slice>, at: usize, left: u32 },
    Cued(Prompter),
}

/// How threads change at the places of a [`Crossing`].
struct Changes {
    /// The places; at one in so many accesses there, threads change.
    at: Vec<(&'static Location<'static>, u64)>,
    near: u32,
    /// The step at which they do next.
    due: Option<u64>,
    /// Accesses there so far, and times that somebody waited.
    passed: u64,
    /// Each thread stays behind until there have been so many.
    behind: [u64; Threads::BITS as usize],
}

/// Who is left behind stays so for 2 accesses at the places, 4, 8 and so on, so many times.
const BEHIND: u64 = 7;

impl Director {
    pub(crate) fn new(policy: &Policy, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let rule = match policy {
            Policy::Holding { at, rest } => return Self { hold_at: Some(*at), ..Self::new(rest, seed) },
            Policy::Lingering { at, rest } => {
                let lingers = *Dice::new(seed ^ 0x6c69_6e67).pick(&[2, 2, 6, 24]);
                return Self { hold_at: Some(*at), lingers, ..Self::new(rest, seed) };
            }
            Policy::Hurrying { at, rest } => {
                return Self { hold_at: Some(*at), hurries: true, ..Self::new(rest, seed) };
            }
            Policy::Random { one_in } => Rule::Random { one_in: *one_in },
            Policy::Pct { depth, steps } => pct(&mut dice, *depth, *steps),
            Policy::Crossing(crossing) => Rule::Crossing(Changes::new(crossing, &mut dice)),
            Policy::Cued(cues) => Rule::Cued(Prompter::new(cues)),
            Policy::Script(slices) => Rule::Script {
                slices: slices.clone(),
                at: 0,
                left: slices.first().map_or(0, |slice| slice.steps),
            },
        };
        Self {
            dice,
            rule,
            hold_at: None,
            lingers: 0,
            hurries: false,
            held: None,
            lags: None,
            waiting: Waiting::default(),
        }
    }

    /// A thread asks for durability at a place, behind step number `step`.
    pub(crate) fn persisted(&mut self, thread: usize, site: &'static Location<'static>, step: u64) {
        if self.hold_at == Some(site) && self.held.is_none() && self.dice.roll(2) == 0 {
            let after = if self.hurries { 0 } else { 1 + self.dice.roll(HELD_AFTER) };
            self.held = Some((thread, step + after));
        } else if self.hurries && self.held.is_none() && self.lags.is_none() && self.dice.roll(4) == 0 {
            self.lags = Some(thread);
        }
    }

    /// A thread comes to an access with an order, behind step number `step`.
    pub(crate) fn ordered(&mut self, thread: usize, site: &'static Location<'static>, step: u64) {
        if let Rule::Crossing(changes) = &mut self.rule {
            changes.pass(&mut self.dice, site, step);
        }
        if self.lingers != 0
            && self.hold_at == Some(site)
            && self.held.is_none()
            && self.dice.roll(self.lingers) == 0
        {
            self.held = Some((thread, step + 1 + self.dice.roll(LINGERS)));
            self.waiting = Waiting { since: step, ..Waiting::default() };
        }
    }

    /// Those of `runnable` that are not held.
    fn free(&mut self, runnable: Threads, last: Option<usize>, gives_way: bool, step: u64) -> Threads {
        let free = match (self.held.filter(|&(_, from)| step >= from), self.lags) {
            (Some((held, _)), _) if self.hurries => runnable & 1 << held,
            (Some((held, _)), _) => runnable & !(1 << held),
            (None, Some(lags)) => runnable & !(1 << lags),
            (None, None) => return runnable,
        };
        let waits = gives_way && last.is_some_and(|last| free & 1 << last != 0);
        if self.lingers != 0 && free != 0 {
            let going = self.going(free, runnable, last.filter(|_| waits), step);
            if going != 0 {
                return going;
            }
        }
        if free == 0 || waits || self.lingers != 0 {
            // They have ended, or wait for the others.
            (self.held, self.lags) = (None, None);
            return runnable;
        }
        free
    }

    /// Those of `free`, which do not linger, that do not wait; none if all do, and trying again has come to nothing.
    fn going(&mut self, free: Threads, runnable: Threads, waits: Option<usize>, step: u64) -> Threads {
        let waiting = &mut self.waiting;
        waits.into_iter().for_each(|thread| waiting.threads |= 1 << thread);
        if free & !waiting.threads == 0 {
            // One of them has ended, or has done more than to wait: so another may have what it has waited for.
            let has_changed = waiting.runnable != runnable || step > waiting.since + PATIENCE;
            if !has_changed || waiting.times == TRIES {
                return 0;
            }
            *waiting = Waiting { threads: 0, runnable, since: step, times: waiting.times + 1 };
        }
        free & !waiting.threads
    }

    /// Who does step number `step`. `last` did the one before, unless it has ended; it may `give way`, for it cannot go on alone.
    pub(crate) fn next(
        &mut self,
        runnable: Threads,
        last: Option<usize>,
        gives_way: bool,
        step: u64,
    ) -> usize {
        let runnable = self.free(runnable, last, gives_way, step);
        let last = last.filter(|last| runnable & 1 << last != 0);
        match &mut self.rule {
            Rule::Random { one_in } => {
                let others = last.map_or(runnable, |last| runnable & !(1 << last));
                match last {
                    Some(last) if others == 0 => last,
                    Some(last) if !gives_way && self.dice.roll(*one_in) != 0 => last,
                    _ => nth(others, self.dice.roll(u64::from(others.count_ones()))),
                }
            }
            Rule::Pct { priorities, changes, lowest } => {
                if let Some(last) = last
                    && (gives_way || changes.contains(&step))
                {
                    *lowest -= 1;
                    priorities[last] = *lowest;
                }
                let of = |thread: &usize| priorities[*thread];
                each(runnable).max_by_key(of).unwrap_or(0)
            }
            Rule::Crossing(changes) => changes.next(&mut self.dice, runnable, last, gives_way, step),
            Rule::Script { slices, at, left } => scripted(slices, at, left, runnable, last, gives_way),
            Rule::Cued(prompter) => match prompter.next(runnable, last, gives_way) {
                Some(next) => next,
                None => scripted(&[], &mut 0, &mut 0, runnable, last, gives_way),
            },
        }
    }

    /// A thread comes to a place, if that matters.
    pub(super) fn come(&mut self, thread: usize, at: At) {
        if let Rule::Cued(prompter) = &mut self.rule {
            prompter.come(thread, at);
        }
    }

    /// Whether the thread that goes on sees what is old there.
    pub(super) fn sees_old(&self, site: &Location<'_>) -> bool {
        matches!(&self.rule, Rule::Cued(prompter) if prompter.sees_old(site))
    }

    /// Whether what the thread that goes on stores there comes before what others have stored.
    pub(super) fn stores_early(&self, site: &Location<'_>) -> bool {
        matches!(&self.rule, Rule::Cued(prompter) if prompter.stores_early(site))
    }

    /// What a script says that was not done.
    pub(super) fn missed(&self) -> Option<String> {
        match &self.rule {
            Rule::Cued(prompter) => prompter.missed(),
            _ => None,
        }
    }
}

impl Changes {
    fn new(crossing: &Crossing, dice: &mut Dice) -> Self {
        let at = crossing.at.iter().map(|&site| (site, 2 << dice.roll(3))).collect();
        Self { at, near: crossing.near, due: None, passed: 0, behind: [0; Threads::BITS as usize] }
    }

    /// A thread comes to an access, behind step number `step`.
    fn pass(&mut self, dice: &mut Dice, site: &'static Location<'static>, step: u64) {
        let is_near =
            |at: &Location<'_>| at.file() == site.file() && at.line().abs_diff(site.line()) <= self.near;
        let here = self.at.iter().find(|&&(at, _)| at == site).map(|&(_, one_in)| one_in);
        let near = || self.at.iter().find(|(at, _)| is_near(at)).map(|&(_, one_in)| 2 * one_in);
        let Some(one_in) = here.or_else(near) else { return };
        self.passed += 1;
        if self.due.is_none() && dice.roll(one_in) == 0 {
            // Before the access, or right behind it.
            self.due = Some(step + 1 + dice.roll(2));
        }
    }

    fn next(
        &mut self,
        dice: &mut Dice,
        runnable: Threads,
        last: Option<usize>,
        gives_way: bool,
        step: u64,
    ) -> usize {
        // Who waits may do so for one that was left behind, which is not to be for ever.
        self.passed += u64::from(gives_way);
        let is_due = self.due.is_some_and(|due| step >= due);
        let others = last.map_or(runnable, |last| runnable & !(1 << last));
        let ready = each(others).filter(|&thread| self.behind[thread] <= self.passed);
        let ready = ready.fold(0, |bits, thread| bits | 1 << thread);
        if let Some(last) = last
            && (others == 0 || !gives_way && (!is_due || ready == 0))
        {
            return last;
        }
        self.due = None;
        let from = if ready == 0 { others } else { ready };
        let next = nth(from, dice.roll(u64::from(from.count_ones())));
        if let Some(last) = last.filter(|_| is_due && dice.roll(2) == 0) {
            self.behind[last] = self.passed + (2 << dice.roll(BEHIND));
        }
        self.behind[next] = 0;
        next
    }
}

fn pct(dice: &mut Dice, depth: u32, steps: u64) -> Rule {
    let lowest = 1 << 32;
    let mut priorities = [0; Threads::BITS as usize];
    priorities.iter_mut().for_each(|priority| *priority = lowest + (dice.bits() >> 8));
    let changes = (1..depth).map(|_| 1 + dice.roll(steps)).collect();
    Rule::Pct { priorities, changes, lowest }
}

fn scripted(
    slices: &[Slice],
    at: &mut usize,
    left: &mut u32,
    runnable: Threads,
    last: Option<usize>,
    gives_way: bool,
) -> usize {
    if gives_way {
        *left = 0;
    }
    while let Some(slice) = slices.get(*at) {
        let thread = usize::from(slice.thread);
        if *left > 0 && runnable & 1 << thread != 0 {
            *left -= 1;
            return thread;
        }
        *at += 1;
        *left = slices.get(*at).map_or(0, |slice| slice.steps);
    }
    let others = last.map_or(runnable, |last| runnable & !(1 << last));
    match last {
        Some(last) if !gives_way || others == 0 => last,
        // The one behind it, so that none is left out.
        Some(last) => each(others).find(|&thread| thread > last).unwrap_or(nth(others, 0)),
        None => nth(others, 0),
    }
}

fn each(threads: Threads) -> impl Iterator<Item = usize> {
    (0..Threads::BITS as usize).filter(move |&thread| threads & 1 << thread != 0)
}

fn nth(threads: Threads, n: u64) -> usize {
    each(threads).nth(n as usize).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &Policy, seed: u64, lengths: &[u32]) -> Vec<usize> {
        let mut director = Director::new(policy, seed);
        let mut left = lengths.to_vec();
        let (mut last, mut order) = (None, Vec::new());
        loop {
            let runnable = left.iter().enumerate().fold(0, |bits, (i, &left)| bits | u8::from(left > 0) << i);
            if runnable == 0 {
                return order;
            }
            let thread = director.next(runnable, last, false, order.len() as u64 + 1);
            left[thread] -= 1;
            last = (left[thread] > 0).then_some(thread);
            order.push(thread);
        }
    }

    fn slices(order: &[usize]) -> Vec<Slice> {
        let same = order.chunk_by(|a, b| a == b);
        same.map(|same| Slice { thread: same[0] as u8, steps: same.len() as u32 }).collect()
    }

    #[test]
    fn every_step_of_every_thread_is_run_and_the_script_of_a_run_repeats_it() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let policy = Policy::draw(&mut dice, 60);
            let order = run(&policy, seed, &[10, 20, 30]);
            assert_eq!(order.len(), 60);
            assert_eq!(order, run(&policy, seed, &[10, 20, 30]), "{policy:?} again");
            assert_eq!(order, run(&Policy::Script(slices(&order)), 0, &[10, 20, 30]), "{policy:?} as script");
        }
    }

    #[test]
    fn pct_changes_threads_as_often_as_it_says_and_no_more() {
        for seed in 0..200 {
            let order = run(&Policy::Pct { depth: 3, steps: 60 }, seed, &[20, 20, 20]);
            assert!(slices(&order).len() <= 3 + 2, "{order:?}");
        }
    }

    #[test]
    fn a_short_script_runs_the_rest_to_its_end() {
        let script = Policy::Script(vec![Slice { thread: 1, steps: 2 }]);
        assert_eq!(run(&script, 0, &[2, 3]), [1, 1, 1, 0, 0]);
    }

    #[test]
    fn who_hurries_goes_on_alone_until_it_waits_for_another() {
        let at = Location::caller();
        for seed in 0..200 {
            let rest = Box::new(Policy::Random { one_in: 2 });
            let mut director = Director::new(&Policy::Hurrying { at, rest }, seed);
            director.persisted(0, at, 1);
            let hurries = director.held.is_some();
            let turns: Vec<usize> = (2..42).map(|step| director.next(7, Some(0), false, step)).collect();
            assert_eq!(hurries, turns.iter().all(|&thread| thread == 0), "{turns:?}");
            director.next(7, Some(0), true, 42);
            assert_eq!(director.held, None, "it waits, perhaps for another");
        }
    }

    #[test]
    fn who_lingers_does_so_before_the_access_or_right_behind_it() {
        let at = Location::caller();
        for seed in 0..200 {
            let rest = Box::new(Policy::Random { one_in: 2 });
            let mut director = Director::new(&Policy::Lingering { at, rest }, seed);
            director.ordered(0, at, 1);
            let lingers = director.held.is_some();
            let others: Vec<usize> =
                (1 + LINGERS..41).map(|step| director.next(7, Some(1), false, step)).collect();
            assert_eq!(lingers, !others.contains(&0), "{others:?}");
        }
    }

    #[test]
    fn who_lingers_stays_behind_until_all_others_wait_however_often_one_does() {
        let at = Location::caller();
        let mut lingered = 0;
        for seed in 0..200 {
            let rest = Box::new(Policy::Random { one_in: 2 });
            let mut director = Director::new(&Policy::Lingering { at, rest }, seed);
            director.ordered(0, at, 1);
            lingered += u64::from(director.held.is_some());
            let (mut last, mut step) = (1, 1 + LINGERS);
            // One of two waits each time that it is asked, and the other does something; until that has ended.
            while director.held.is_some() && step < 300 {
                last = director.next(0b111, Some(last), last == 1, step);
                step += 1;
                assert_ne!(last, 0, "at step {step}");
            }
            if director.held.is_some() {
                // The one that waits is asked once more, and then the one that lingers goes on.
                let turns = [(); 3].map(|()| {
                    last = director.next(0b011, Some(last), last == 1, 301);
                    last
                });
                assert_eq!((turns[0], director.held), (1, None), "{turns:?}");
            }
        }
        assert!(lingered > 20, "{lingered}");
    }

    /// Runs threads of so many steps each, of which each one comes to the place at every `every`th; where others wait if `waits`, one does at each step.
    fn cross(crossing: &Crossing, seed: u64, every: u32, waits: bool) -> Vec<usize> {
        let mut director = Director::new(&Policy::Crossing(crossing.clone()), seed);
        let mut left = [60, 60, 60];
        let (mut last, mut order): (Option<usize>, Vec<usize>) = (None, Vec::new());
        while left != [0; 3] {
            let runnable = (0..3).fold(0, |bits, i| bits | u8::from(left[i] > 0) << i);
            if let Some(last) = last.filter(|&last| every != 0 && left[last] % every == 0) {
                director.ordered(last, crossing.at[0], order.len() as u64);
            }
            let thread = director.next(runnable, last, waits, order.len() as u64 + 1);
            left[thread] -= 1;
            last = (left[thread] > 0).then_some(thread);
            order.push(thread);
        }
        order
    }

    #[test]
    fn threads_that_cross_change_at_the_places_and_nowhere_else() {
        let crossing = Crossing { at: vec![Location::caller()], near: 0 };
        let mut changes = 0;
        for seed in 0..200 {
            let slices = slices(&cross(&crossing, seed, 10, false));
            let mut done = [0; 3];
            for slice in &slices[..slices.len() - 1] {
                let done = &mut done[usize::from(slice.thread)];
                *done += slice.steps;
                // Before its access at a place, which is the step behind each tenth that it does, or right behind that.
                assert!(*done % 10 <= 1 && *done > 1, "{slices:?}");
            }
            changes += slices.len() - 3;
            assert_eq!(cross(&crossing, seed, 0, false).chunk_by(|a, b| a == b).count(), 3, "none is passed");
        }
        assert!(changes > 200, "{changes}");
    }

    #[test]
    fn who_is_left_behind_where_threads_cross_is_so_until_others_have_passed_the_places_or_wait() {
        let crossing = Crossing { at: vec![Location::caller()], near: 0 };
        let (mut soon, mut late) = (0, 0);
        for seed in 0..400 {
            let mut director = Director::new(&Policy::Crossing(crossing.clone()), seed);
            // Thread 0 goes on until it is left for another.
            let mut last = 0;
            for step in 1..100 {
                director.ordered(0, crossing.at[0], step);
                last = director.next(0b11, Some(0), false, step + 1);
                if last != 0 {
                    break;
                }
            }
            // It is asked for wherever the other one passes a place.
            let mut passed = 0;
            while last != 0 {
                director.ordered(1, crossing.at[0], 200 + 2 * passed);
                last = director.next(0b11, Some(1), false, 202 + 2 * passed);
                passed += 1;
            }
            soon += u64::from(passed < 4);
            late += u64::from(passed >= 64);
            // One that waits does not wait longer than that.
            let mut director = Director::new(&Policy::Crossing(crossing.clone()), seed);
            let Rule::Crossing(changes) = &mut director.rule else { unreachable!() };
            changes.behind[0] = 64;
            let waits =
                (0..).take_while(|&step| director.next(0b111, Some(1 + step as usize % 2), true, step) != 0);
            assert!((62..200).contains(&waits.count()), "seed {seed}");
            assert_eq!(cross(&crossing, seed, 5, true).len(), 180);
        }
        assert!(soon > 40 && late > 20, "{soon} and {late}");
    }

    #[test]
    fn threads_cross_near_a_place_as_far_as_is_said() {
        let here = Location::caller();
        let there = Location::caller();
        let passes = |at, near| {
            let mut director = Director::new(&Policy::Crossing(Crossing { at: vec![at], near }), 1);
            (1..100).for_each(|step| director.ordered(0, there, step));
            let Rule::Crossing(changes) = director.rule else { unreachable!() };
            changes.passed == 99
        };
        assert!(passes(there, 0) && passes(here, 1) && !passes(here, 0));
    }

    #[test]
    fn who_is_held_stays_behind_until_the_others_wait_for_it() {
        let at = Location::caller();
        for seed in 0..200 {
            let rest = Box::new(Policy::Random { one_in: 2 });
            let mut director = Director::new(&Policy::Holding { at, rest }, seed);
            director.persisted(0, at, 1);
            let is_held = director.held.is_some();
            let from = 2 + HELD_AFTER;
            let others: Vec<usize> =
                (from..from + 40).map(|step| director.next(7, Some(1), false, step)).collect();
            assert_eq!(is_held, !others.contains(&0), "{others:?}");
            director.next(7, Some(1), true, from + 40);
            assert_eq!(director.held, None, "another waits, perhaps for it");
        }
    }
}
