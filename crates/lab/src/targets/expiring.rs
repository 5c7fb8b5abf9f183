//! Time in the runs of `direct`: entries that expire soon, and a clock that moves on.
//!
//! The clock's time lies in the pool, as a root: each crash state has the time at which the power failed, and a recovery goes on from there. That it moves on is one store, and so
//! all that expires goes at one moment; to the judge it is a batch that removes.
//!
//! This is so in one run of four. The others have entries that expire, but none that has expired.

use std::sync::Arc;
use terrace_engine::{Clock, ManualClock};
use terrace_medium::MappedMedium;
use terrace_pool::Pool;
use terrace_testkit::crash::{Dice, Effect, Mix, Op, Plan, Version};

/// The time at which all runs begin.
const START: u64 = 1_000_000;
/// How far the clock moves on.
const TICK: u64 = 1000;
const NAME: &str = "clock";
const KIND: &str = "lab";
/// What a root can hold: multiples of this.
const WORD: u64 = 8;

/// Whether entries expire in the run with this seed. (Bits that nothing else asks for, so that what runs did before there was time they do still.)
pub(super) fn is_in(seed: u64) -> bool {
    seed >> 3 & 3 == 2
}

/// The time of a run.
pub(super) struct Time {
    pub(super) clock: Arc<ManualClock>,
    /// Whether it moves on.
    pub(super) is_on: bool,
}

impl Time {
    /// As it is in `pool`.
    pub(super) fn of<M: MappedMedium>(pool: &Pool<M>, plan: &Plan) -> Result<Self, String> {
        let is_on = is_in(plan.seed);
        let ticks = match is_on {
            true => pool.root(NAME, KIND).map_err(|error| error.to_string())?.unwrap_or(0) / WORD,
            false => 0,
        };
        Ok(Self { clock: Arc::new(ManualClock::at(START + TICK * ticks)), is_on })
    }

    /// When an entry expires that has this version: mostly never, or far away; or, where the time moves on, at the next tick.
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

    /// Moves on.
    pub(super) fn tick<M: MappedMedium>(&self, pool: &Pool<M>) {
        let ticks = (self.next() - START) / TICK;
        // PERSIST: `set_root` is durable before the clock says so: what anybody does because something has expired, a crash finds expired.
        pool.set_root(NAME, KIND, ticks * WORD).expect("there is room for another root");
        self.clock.advance(TICK);
    }
}

/// A time that no run comes to.
pub(super) fn far_off() -> u64 {
    1000 * START
}

/// Whether it expires at the first tick after it was written.
fn is_soon(version: Version) -> bool {
    version % 4 >= 2
}

/// The keys that expire at the next tick.
fn due(model: &[Option<Version>]) -> Vec<Effect> {
    let is_due = |&(_, version): &(usize, &Option<Version>)| version.is_some_and(is_soon);
    model.iter().enumerate().filter(is_due).map(|(key, _)| (key, None)).collect()
}

/// As [`Mix::draw`], with ticks in between, some of them followed by a sweep.
pub(super) fn draw(
    mix: &Mix,
    dice: &mut Dice,
    count: usize,
    next: &mut Version,
    model: &mut [Option<Version>],
) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..count {
        ops.extend(mix.draw(dice, 1, next, model));
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

/// What is done after a recovery besides the rest: two keys expire, one of which is written again, and then they are swept. `version` is one that no key has, and neither have the three that follow.
pub(super) fn after(version: Version) -> Vec<Op> {
    let soon = version.next_multiple_of(4) + 2;
    let tick = Op::Batch(vec![(0, None), (1, None)]);
    vec![Op::Put(0, soon), Op::Put(1, soon), tick, Op::Put(0, soon + 1), super::direct::SWEEP]
}
