//! Time in the runs of `direct`: entries that expire soon, and a clock that advances.
//!
//! The clock's time is in a root of the pool: each crash state has the time of its power failure,
//! and a recovery continues from there. The clock advances by one store, so all due entries expire
//! at one instant; the checks treat a tick as a batch of removals.
//!
//! The clock advances in one run of four. The others have entries with an expiry, but none expires.

use std::sync::Arc;
use terrace_engine::{Clock, ManualClock};
use terrace_medium::MappedMedium;
use terrace_pool::Pool;
use terrace_testkit::crash::{Effect, Mix, Op, Plan, RandomSource, Version};

/// The time at the start of each run.
const START: u64 = 1_000_000;
/// How far the clock advances per tick.
const TICK: u64 = 1000;
const NAME: &str = "clock";
const KIND: &str = "lab";
/// Roots hold multiples of this.
const WORD: u64 = 8;

/// Whether entries expire in the run with this seed. Nothing else uses these bits of the seed, so
/// older runs are unchanged.
pub(super) fn is_in(seed: u64) -> bool {
    seed >> 3 & 3 == 2
}

/// The time of a run.
pub(super) struct Time {
    pub(super) clock: Arc<ManualClock>,
    /// Whether the clock advances.
    pub(super) is_on: bool,
}

impl Time {
    /// Reads the time of a run from `pool`.
    pub(super) fn of<M: MappedMedium>(pool: &Pool<M>, plan: &Plan) -> Result<Self, String> {
        let is_on = is_in(plan.seed);
        let ticks = match is_on {
            true => pool.root(NAME, KIND).map_err(|error| error.to_string())?.unwrap_or(0) / WORD,
            false => 0,
        };
        Ok(Self { clock: Arc::new(ManualClock::at(START + TICK * ticks)), is_on })
    }

    /// The expiry of an entry with this version: mostly none, or far away, or, if the clock
    /// advances, at the next tick.
    pub(super) fn expiry(&self, version: Version) -> Option<u64> {
        match version {
            version if version.is_multiple_of(4) => Some(far_off() + version),
            version if self.is_on && is_soon(version) => Some(self.next()),
            _ => None,
        }
    }

    /// The time at the next tick.
    pub(super) fn next(&self) -> u64 {
        self.clock.now_ms() + TICK
    }

    /// Advances the clock by one tick.
    pub(super) fn tick<M: MappedMedium>(&self, pool: &Pool<M>) {
        let ticks = (self.next() - START) / TICK;
        // PERSIST: `set_root` is durable before the clock advances: if a thread has seen an entry
        // as expired, it is also expired after a crash.
        pool.set_root(NAME, KIND, ticks * WORD).expect("there is room for another root");
        self.clock.advance(TICK);
    }
}

/// A time that no run reaches.
pub(super) fn far_off() -> u64 {
    1000 * START
}

/// Whether an entry of this version expires at the first tick after its write.
fn is_soon(version: Version) -> bool {
    version % 4 >= 2
}

/// The keys that expire at the next tick.
fn due(model: &[Option<Version>]) -> Vec<Effect> {
    let is_due = |&(_, version): &(usize, &Option<Version>)| version.is_some_and(is_soon);
    model.iter().enumerate().filter(is_due).map(|(key, _)| (key, None)).collect()
}

/// As [`Mix::random`], with ticks in between, some of them followed by a sweep.
pub(super) fn random(
    mix: &Mix,
    dice: &mut RandomSource,
    count: usize,
    next: &mut Version,
    model: &mut [Option<Version>],
) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..count {
        ops.extend(mix.random(dice, 1, next, model));
        let due = due(model);
        if !due.is_empty() && dice.roll(4) == 0 {
            let tick = Op::Batch(due);
            tick.do_to(model);
            ops.push(tick);
            ops.extend((dice.roll(2) == 0).then_some(super::direct::SWEEP));
        }
    }
    ops
}

/// Additional operations after a recovery: two keys expire, one of them is written again, and a
/// sweep follows. No key has the version `version` or one of the three that follow it.
pub(super) fn after(version: Version) -> Vec<Op> {
    let soon = version.next_multiple_of(4) + 2;
    let tick = Op::Batch(vec![(0, None), (1, None)]);
    vec![Op::Put(0, soon), Op::Put(1, soon), tick, Op::Put(0, soon + 1), super::direct::SWEEP]
}
