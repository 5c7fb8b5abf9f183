//! Scenarios of crashes and successors: one participant works and crashes, mostly right after it
//! requested durability; then the others run, one after the other.
//!
//! In random schedules, a crash seldom falls between a store and its fence. Even then a successor
//! seldom reads that very store, does nothing that would make it durable, and is followed by
//! another that relies on it. These scenarios are built from exactly that:
//!
//! * the **dead** thread writes, mostly one key, or many until the store grows, or removes until it
//!   shrinks, and crashes in one of its calls;
//! * the **successor** does one more operation on that key, mostly without a change: its answer
//!   must last;
//! * the **later** threads write any keys, sometimes after a collection, so that the dead thread's
//!   memory is reused before the successor fences anything more.

use super::death::ThreadCrash;
use super::drawn::random_threads;
use super::policy::Policy;
use super::scenario::{Scenario, ThreadOp};
use super::stage::RunResult;
use crate::crash::{Key, Op, Plan, RandomSource, Target, Version};

/// Maximum number of operations of the dead thread: few on one key, or many on all keys, which may
/// cause a resize.
const LAST_OPS: u64 = 4;
const MANY_OPS: u64 = 24;
/// The version that only the successor writes, if it writes.
const SUCCESSOR_VERSION: Version = 0x8000;
/// Maximum number of operations of a later thread that runs the target's operations after a kill.
const AFTER_KILL: usize = 12;

impl Scenario {
    /// The scenario of this seed, in which a thread crashes and leaves work to its successor.
    /// [`Scenario::random_predecessor`] adds the crash once the lengths of the calls are known.
    pub fn random_successor<T: Target>(seed: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x6865_6972_7321);
        let mut scenario = Self { is_shared: true, moment: None, ..Self::random::<T>(seed) };
        let like = T::plan(seed).ops;
        let plan = &scenario.plan;
        let mut next = plan.all_versions() + 0x1000;
        let key = plan.hot_key(&mut dice);
        let mut dead = random_last_ops(&mut dice, plan, &like, key, &mut next);
        // A separate generator, so that the runs of other recorded seeds stay as they were.
        let mut emptying = RandomSource::new(seed ^ 0x656d_7074_7921);
        if emptying.roll(4) == 0 {
            dead = random_removals(&mut emptying, plan, &like, &mut next);
        }
        // Replaced later: see `random_predecessor`.
        let successor = ThreadOp::Get(key);
        let mut others = random_threads(&mut dice, plan, &like, 1, &mut next);
        if dice.roll(2) == 0 {
            others[0] = after_kill(plan);
        }
        scenario.threads = [vec![dead, vec![successor]], others].concat();
        scenario
    }

    /// This scenario with a crash of the first thread. `ran` is the run of this seed without
    /// crashes.
    pub fn random_predecessor(&self, ran: &RunResult, seed: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x6c65_6761_6379);
        let changes = ran.changes.first().map_or(&[][..], Vec::as_slice);
        let death = ThreadCrash::of_first_thread(&mut dice, changes, &ran.persist_requests);
        let mut drawn = Self { crashes: vec![death], ..self.clone() };
        let key = match drawn.threads[0].get(death.call) {
            Some(ThreadOp::Do(op)) => op.keys().first().copied(),
            _ => None,
        };
        let successor = random_successor_op(&mut dice, key.unwrap_or(0), SUCCESSOR_VERSION);
        drawn.threads[1] = vec![if dice.roll(6) == 0 { ThreadOp::Scan } else { successor }];
        drawn
    }

    /// The policy of these scenarios: each thread runs to its end.
    pub fn sequential() -> Policy {
        Policy::Script(Vec::new())
    }
}

/// A few operations, mostly on one key; or many on all keys.
fn random_last_ops(
    dice: &mut RandomSource,
    plan: &Plan,
    like: &[Op],
    hot: Key,
    next: &mut Version,
) -> Vec<ThreadOp> {
    let is_many = dice.roll(2) == 0;
    let count = if is_many { MANY_OPS / 2 + dice.roll(MANY_OPS / 2) } else { 1 + dice.roll(LAST_OPS) };
    let one = |_| {
        let key = if is_many || dice.roll(4) == 0 { plan.hot_key(dice) } else { hot };
        *next += 1;
        match like {
            [] => ThreadOp::Do(Op::Put(key, *next)),
            _ if is_many && dice.roll(2) == 0 => ThreadOp::Do(Op::Put(key, *next)),
            _ => ThreadOp::Do(dice.pick(like).moved_to(key, next, &[], dice)),
        }
    };
    (0..count).map(one).collect()
}

/// Many removals, and sometimes other operations.
fn random_removals(dice: &mut RandomSource, plan: &Plan, like: &[Op], next: &mut Version) -> Vec<ThreadOp> {
    let one = |_| {
        let key = plan.hot_key(dice);
        match like {
            [_, ..] if dice.roll(4) == 0 => ThreadOp::Do(dice.pick(like).moved_to(key, next, &[], dice)),
            _ => ThreadOp::Do(Op::Remove(key)),
        }
    };
    (0..MANY_OPS).map(one).collect()
}

/// One operation that sees what the dead thread did to a key.
fn random_successor_op(dice: &mut RandomSource, key: Key, version: Version) -> ThreadOp {
    match dice.roll(6) {
        0 | 1 => ThreadOp::Do(Op::Insert(key, version)),
        2 => ThreadOp::Do(Op::Update(key, version)),
        3 => ThreadOp::Do(Op::Remove(key)),
        4 => ThreadOp::RecoverDead,
        _ => ThreadOp::Get(key),
    }
}

/// A collection, then the target's operations after a kill.
fn after_kill(plan: &Plan) -> Vec<ThreadOp> {
    let ops = plan.revived.iter().take(AFTER_KILL).cloned().map(ThreadOp::Do);
    std::iter::once(ThreadOp::Collect).chain(ops).collect()
}
