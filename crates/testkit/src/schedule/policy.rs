//! The choice of the next thread: random, by priorities that change seldom (PCT), or as in an
//! earlier run.
//!
//! S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte: *A randomized scheduler with
//! probabilistic guarantees of finding bugs*, ASPLOS 2010. A bug of depth `d` is found in a run of
//! `n` threads and `k` steps with a probability of at least `1 / (n * k^(d - 1))`. Random choice
//! finds bugs that need many switches, PCT those that need one thread to stay behind for long.
//! Neither finds all that the other does, so runs use both.

use super::cues::{At, Breakpoint, ScriptRunner};
use crate::crash::RandomSource;
use std::panic::Location;

/// Threads, one bit each.
pub(crate) type Threads = u8;

/// A number of consecutive steps of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The thread.
    pub thread: u8,
    /// Its steps: accesses, write-backs and fences.
    pub steps: u32,
}

/// How the next thread is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Switches to a random other thread at one step in this many.
    Random {
        /// One switch in this many steps.
        one_in: u64,
    },
    /// The thread with the highest priority runs; priorities change `depth` - 1 times.
    Pct {
        /// The bug depth: how many ordered steps a bug may need.
        depth: u32,
        /// Approximate number of steps of the run.
        steps: u64,
    },
    /// A thread that requests durability at a place runs a few more steps and is then held until
    /// the others end or wait for it.
    Holding {
        /// The place.
        at: &'static Location<'static>,
        /// The policy otherwise.
        rest: Box<Policy>,
    },
    /// A thread that requests durability at a place then runs alone, until it ends or waits for
    /// another. So it returns its result before another thread makes that durable. To give it
    /// something to make durable, others are held now and then between a store and its fence.
    Hurrying {
        /// The place.
        at: &'static Location<'static>,
        /// The policy otherwise.
        rest: Box<Policy>,
    },
    /// These slices; after the last one, each thread runs to its end.
    Script(Vec<Slice>),
    /// These breakpoints; after the last one, each thread runs to its end.
    Cued(Vec<Breakpoint>),
}

impl Policy {
    /// A random policy for a run of about `steps` steps.
    pub fn draw(dice: &mut RandomSource, steps: u64) -> Self {
        match dice.roll(4) {
            0 => Self::Random { one_in: 2 },
            1 => Self::Random { one_in: 4 << dice.roll(4) },
            _ => Self::Pct { depth: 2 + dice.roll(3) as u32, steps },
        }
    }
}

/// Executes a policy.
pub(crate) struct PolicyRunner {
    dice: RandomSource,
    rule: Rule,
    /// A thread that requests durability here is held, or runs alone.
    hold_at: Option<&'static Location<'static>>,
    hurries: bool,
    /// The thread that is held, or runs alone, from this step on.
    held: Option<(usize, u64)>,
    /// The thread that is held until another one runs alone.
    lags: Option<usize>,
}

/// Maximum number of steps before a thread is held; usually it releases its locks in these.
const HELD_AFTER: u64 = 32;

enum Rule {
    Random { one_in: u64 },
    Pct { priorities: [u64; Threads::BITS as usize], changes: Vec<u64>, lowest: u64 },
    Script { slices: Vec<Slice>, at: usize, left: u32 },
    Cued(ScriptRunner),
}

impl PolicyRunner {
    pub(crate) fn new(policy: &Policy, seed: u64) -> Self {
        let mut dice = RandomSource::new(seed);
        let rule = match policy {
            Policy::Holding { at, rest } => return Self { hold_at: Some(*at), ..Self::new(rest, seed) },
            Policy::Hurrying { at, rest } => {
                return Self { hold_at: Some(*at), hurries: true, ..Self::new(rest, seed) };
            }
            Policy::Random { one_in } => Rule::Random { one_in: *one_in },
            Policy::Pct { depth, steps } => pct(&mut dice, *depth, *steps),
            Policy::Cued(breakpoints) => Rule::Cued(ScriptRunner::new(breakpoints)),
            Policy::Script(slices) => Rule::Script {
                slices: slices.clone(),
                at: 0,
                left: slices.first().map_or(0, |slice| slice.steps),
            },
        };
        Self { dice, rule, hold_at: None, hurries: false, held: None, lags: None }
    }

    /// A thread requests durability at a place, after step number `step`.
    pub(crate) fn persisted(&mut self, thread: usize, site: &'static Location<'static>, step: u64) {
        if self.hold_at == Some(site) && self.held.is_none() && self.dice.roll(2) == 0 {
            let after = if self.hurries { 0 } else { 1 + self.dice.roll(HELD_AFTER) };
            self.held = Some((thread, step + after));
        } else if self.hurries && self.held.is_none() && self.lags.is_none() && self.dice.roll(4) == 0 {
            self.lags = Some(thread);
        }
    }

    /// The threads of `runnable` that are not held.
    fn free(&mut self, runnable: Threads, last: Option<usize>, gives_way: bool, step: u64) -> Threads {
        let free = match (self.held.filter(|&(_, from)| step >= from), self.lags) {
            (Some((held, _)), _) if self.hurries => runnable & 1 << held,
            (Some((held, _)), _) => runnable & !(1 << held),
            (None, Some(lags)) => runnable & !(1 << lags),
            (None, None) => return runnable,
        };
        let waits = gives_way && last.is_some_and(|last| free & 1 << last != 0);
        if free == 0 || waits {
            // They have ended, or wait for the held thread.
            (self.held, self.lags) = (None, None);
            return runnable;
        }
        free
    }

    /// The thread of step number `step`. `last` did the previous one, unless it has ended;
    /// `gives_way` says that it waits for others.
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
            Rule::Script { slices, at, left } => scripted(slices, at, left, runnable, last, gives_way),
            Rule::Cued(script) => match script.next(runnable, last, gives_way) {
                Some(next) => next,
                None => scripted(&[], &mut 0, &mut 0, runnable, last, gives_way),
            },
        }
    }

    /// A thread reaches a place; only scripts record that.
    pub(super) fn reach(&mut self, thread: usize, at: At) {
        if let Rule::Cued(script) = &mut self.rule {
            script.reach(thread, at);
        }
    }

    /// Whether the running thread sees stale values there.
    pub(super) fn sees_old(&self, point: Option<&str>) -> bool {
        matches!(&self.rule, Rule::Cued(script) if script.sees_old(point))
    }

    /// Whether the running thread's store there takes its place before the stores of others.
    pub(super) fn stores_early(&self, point: Option<&str>) -> bool {
        matches!(&self.rule, Rule::Cued(script) if script.stores_early(point))
    }

    /// The breakpoint of a script that was not reached.
    pub(super) fn unreached(&self) -> Option<String> {
        match &self.rule {
            Rule::Cued(script) => script.unreached(),
            _ => None,
        }
    }
}

fn pct(dice: &mut RandomSource, depth: u32, steps: u64) -> Rule {
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
        // The next higher thread, so that each gets its turn.
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
        let mut runner = PolicyRunner::new(policy, seed);
        let mut left = lengths.to_vec();
        let (mut last, mut order) = (None, Vec::new());
        loop {
            let runnable = left.iter().enumerate().fold(0, |bits, (i, &left)| bits | u8::from(left > 0) << i);
            if runnable == 0 {
                return order;
            }
            let thread = runner.next(runnable, last, false, order.len() as u64 + 1);
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
    fn policy_runs_all_steps_and_its_script_repeats_them() {
        for seed in 0..200 {
            let mut dice = RandomSource::new(seed);
            let policy = Policy::draw(&mut dice, 60);
            let order = run(&policy, seed, &[10, 20, 30]);
            assert_eq!(order.len(), 60);
            assert_eq!(order, run(&policy, seed, &[10, 20, 30]), "{policy:?} again");
            assert_eq!(order, run(&Policy::Script(slices(&order)), 0, &[10, 20, 30]), "{policy:?} as script");
        }
    }

    #[test]
    fn pct_switches_no_more_than_its_depth() {
        for seed in 0..200 {
            let order = run(&Policy::Pct { depth: 3, steps: 60 }, seed, &[20, 20, 20]);
            assert!(slices(&order).len() <= 3 + 2, "{order:?}");
        }
    }

    #[test]
    fn short_script_runs_all_threads_to_the_end() {
        let script = Policy::Script(vec![Slice { thread: 1, steps: 2 }]);
        assert_eq!(run(&script, 0, &[2, 3]), [1, 1, 1, 0, 0]);
    }

    #[test]
    fn hurrying_thread_runs_alone_until_it_waits() {
        let at = Location::caller();
        for seed in 0..200 {
            let rest = Box::new(Policy::Random { one_in: 2 });
            let mut runner = PolicyRunner::new(&Policy::Hurrying { at, rest }, seed);
            runner.persisted(0, at, 1);
            let hurries = runner.held.is_some();
            let turns: Vec<usize> = (2..42).map(|step| runner.next(7, Some(0), false, step)).collect();
            assert_eq!(hurries, turns.iter().all(|&thread| thread == 0), "{turns:?}");
            runner.next(7, Some(0), true, 42);
            assert_eq!(runner.held, None, "it waits, perhaps for another");
        }
    }

    #[test]
    fn held_thread_stays_until_the_others_wait() {
        let at = Location::caller();
        for seed in 0..200 {
            let rest = Box::new(Policy::Random { one_in: 2 });
            let mut runner = PolicyRunner::new(&Policy::Holding { at, rest }, seed);
            runner.persisted(0, at, 1);
            let is_held = runner.held.is_some();
            let from = 2 + HELD_AFTER;
            let others: Vec<usize> =
                (from..from + 40).map(|step| runner.next(7, Some(1), false, step)).collect();
            assert_eq!(is_held, !others.contains(&0), "{others:?}");
            runner.next(7, Some(1), true, from + 40);
            assert_eq!(runner.held, None, "another waits, perhaps for it");
        }
    }
}
