//! What the dead leave, and those who come after them: one participant works and dies, mostly where it has just asked for durability; then the others act, one after the other.
//!
//! Where threads meet by chance, a death seldom falls between a store and its fence, and seldom is the next one to come answered by that very store, does nothing
//! itself that would make it durable, and is followed by another who builds upon it. Here that is what runs are made of:
//!
//! * the **dead** one writes, mostly to one key, or to many until the store grows, or removes until it shrinks, and dies within one of its calls;
//! * the **heir** does one thing more with that key, which mostly changes nothing: what it is answered must last;
//! * the **next** ones write, to any key, now and then after a collection, so that the memory of the dead is used again before the heir has fenced anything more.

use super::death::Death;
use super::policy::Policy;
use super::scenario::{Act, Scenario, draw_threads};
use super::stage::Ran;
use crate::crash::{Dice, Key, Op, Plan, Target, Version};

/// Things that the dead one does at most: so few on one key, or so many on all of them, among which there may be a resize.
const LAST_ACTS: u64 = 4;
const MANY_ACTS: u64 = 24;
/// What the heir writes, if anything; nobody else does.
const HEIRS_VERSION: Version = 0x8000;
/// Things that the next ones do of what the target would do after a kill, at most.
const AFTER_KILL: usize = 12;

impl Scenario {
    /// What the run with this seed does, in which one dies and leaves something to the others. How it dies is [drawn](Scenario::draw_legacy) once it is known how long it lives.
    pub fn draw_heirs<T: Target>(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6865_6972_7321);
        let mut scenario = Self { is_shared: true, moment: None, ..Self::draw::<T>(seed) };
        let like = T::plan(seed).ops;
        let plan = &scenario.plan;
        let mut next = plan.all_versions() + 0x1000;
        let key = dice.roll(plan.keys as u64) as Key;
        let mut dead = draw_last_acts(&mut dice, plan, &like, key, &mut next);
        // Of dice of its own, so that the other runs stay what they were: seeds are kept.
        let mut emptying = Dice::new(seed ^ 0x656d_7074_7921);
        if emptying.roll(4) == 0 {
            dead = draw_removals(&mut emptying, plan, &like, &mut next);
        }
        // It does something else in the end: see `draw_legacy`.
        let heir = Act::Get(key);
        let mut others = draw_threads(&mut dice, plan, &like, 1, &mut next);
        if dice.roll(2) == 0 {
            others[0] = after_kill(plan);
        }
        scenario.threads = [vec![dead, vec![heir]], others].concat();
        scenario
    }

    /// The same, where the first one dies. `ran` is the run with this seed in which it did not.
    pub fn draw_legacy(&self, ran: &Ran, seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6c65_6761_6379);
        let changes = ran.changes.first().map_or(&[][..], Vec::as_slice);
        let death = Death::of_first(&mut dice, changes, &ran.asked);
        let mut drawn = Self { deaths: vec![death], ..self.clone() };
        let key = match drawn.threads[0].get(death.call) {
            Some(Act::Do(op)) => op.keys().first().copied(),
            _ => None,
        };
        let heir = draw_heir(&mut dice, key.unwrap_or(0), HEIRS_VERSION);
        drawn.threads[1] = vec![if dice.roll(6) == 0 { Act::Scan } else { heir }];
        drawn
    }

    /// How those take turns: each to its end.
    pub fn one_after_the_other() -> Policy {
        Policy::Script(Vec::new())
    }
}

/// A few operations, mostly on one key; or many on all keys.
fn draw_last_acts(dice: &mut Dice, plan: &Plan, like: &[Op], hot: Key, next: &mut Version) -> Vec<Act> {
    let is_many = dice.roll(2) == 0;
    let count = if is_many { MANY_ACTS / 2 + dice.roll(MANY_ACTS / 2) } else { 1 + dice.roll(LAST_ACTS) };
    let one = |_| {
        let key = if is_many || dice.roll(4) == 0 { dice.roll(plan.keys as u64) as Key } else { hot };
        *next += 1;
        match like {
            [] => Act::Do(Op::Put(key, *next)),
            _ if is_many && dice.roll(2) == 0 => Act::Do(Op::Put(key, *next)),
            _ => Act::Do(dice.pick(like).moved_to(key, next, &[], dice)),
        }
    };
    (0..count).map(one).collect()
}

/// Many removals, and now and then something else.
fn draw_removals(dice: &mut Dice, plan: &Plan, like: &[Op], next: &mut Version) -> Vec<Act> {
    let one = |_| {
        let key = dice.roll(plan.keys as u64) as Key;
        match like {
            [_, ..] if dice.roll(4) == 0 => Act::Do(dice.pick(like).moved_to(key, next, &[], dice)),
            _ => Act::Do(Op::Remove(key)),
        }
    };
    (0..MANY_ACTS).map(one).collect()
}

/// One look at what the dead one has done to a key.
fn draw_heir(dice: &mut Dice, key: Key, version: Version) -> Act {
    match dice.roll(6) {
        0 | 1 => Act::Do(Op::Insert(key, version)),
        2 => Act::Do(Op::Update(key, version)),
        3 => Act::Do(Op::Remove(key)),
        4 => Act::LookAfter,
        _ => Act::Get(key),
    }
}

/// A collection, and then what the target would do after a kill.
fn after_kill(plan: &Plan) -> Vec<Act> {
    let ops = plan.revived.iter().take(AFTER_KILL).cloned().map(Act::Do);
    std::iter::once(Act::Collect).chain(ops).collect()
}
