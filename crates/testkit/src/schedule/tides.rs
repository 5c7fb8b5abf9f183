//! Scenarios that fill and empty the store, so that it resizes more than once while others read;
//! and successors that continue after a participant crashed in a resize.

use super::scenario::{CROWD, CallOrdering, Scenario, ThreadOp};
use crate::crash::{Key, Op, RandomSource, Target};

/// Maximum number of operations of the thread that fills and empties the store.
const FILL_DRAIN_OPS: usize = 160;
/// Number of its operations that a successor repeats.
const REPEATED_OPS: usize = 24;
/// One in this many keys is not removed; background work runs instead.
const KEEP_ONE_IN: u64 = 12;

impl Scenario {
    /// As [`Scenario::random`], but one thread adds all keys and removes them again, once or more,
    /// while others read, with no barriers between calls. A reader that is stopped between two
    /// loads misses all of that.
    pub fn random_fill_drain<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::random::<T>(seed);
        let mut dice = RandomSource::new(seed ^ 0x0074_6964_6573);
        let plan = T::plan(seed);
        scenario.plan.before = plan.before;
        let mut next = scenario.plan.all_versions();
        let mut acts: Vec<ThreadOp> = Vec::new();
        let mut fills = dice.roll(2) == 0;
        while acts.len() < FILL_DRAIN_OPS {
            // Removals are in reverse order: the removal of the first key may be what makes a table
            // check whether to shrink.
            for key in 0..plan.keys as Key {
                next += 1;
                acts.push(match fills {
                    true => ThreadOp::Do(Op::Put(key, next)),
                    false if dice.roll(KEEP_ONE_IN) == 0 => ThreadOp::Do(Op::Background(0)),
                    false => ThreadOp::Do(Op::Remove(plan.keys - 1 - key)),
                });
            }
            acts.extend([Op::Background(0), Op::Background(0)].map(ThreadOp::Do));
            fills = !fills;
            if dice.roll(3) == 0 {
                break;
            }
        }
        acts.truncate(FILL_DRAIN_OPS);
        let mut read = |_| match dice.roll(5) {
            0 => ThreadOp::Scan,
            _ => ThreadOp::Get(dice.roll(plan.keys as u64) as Key),
        };
        let readers = [0, 1].map(|_| (0..CROWD).map(&mut read).collect());
        scenario.threads = [vec![acts], readers.to_vec()].concat();
        let manner = if seed >> 9 & 1 == 0 { CallOrdering::Pinned } else { CallOrdering::Apart };
        scenario.manners = vec![CallOrdering::Apart, manner, CallOrdering::Apart];
        scenario
    }

    /// As [`Scenario::random_history`] or [`Scenario::random_fill_drain`], for participants of a
    /// shared pool, of which the second one writes, too. [`Scenario::random_crashes`] adds crashes
    /// once the lengths of the calls are known.
    pub fn random_shared_history<T: Target>(seed: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x7368_6172_6564);
        let scenario = match dice.roll(3) {
            0 => Self::random_fill_drain::<T>(seed),
            _ => Self::random_history::<T>(seed),
        };
        let mut scenario = Self { is_shared: true, manners: Vec::new(), ..scenario };
        let mut next = scenario.plan.all_versions() + 0x2000;
        let plan = &scenario.plan;
        if dice.roll(2) == 0 {
            // The second thread repeats what the first one does, or did before its crash.
            let first = scenario.threads[0].iter().take(REPEATED_OPS).filter_map(|act| match act {
                ThreadOp::Do(op) => Some(op.clone()),
                _ => None,
            });
            let first: Vec<Op> = first.collect();
            let same = |op: &Op| {
                let key = op.keys().first().copied().unwrap_or(0);
                ThreadOp::Do(op.moved_to(key, &mut next, &[], &mut dice))
            };
            scenario.threads[1] = first.iter().map(same).collect();
            return scenario;
        }
        for act in &mut scenario.threads[1] {
            next += 1;
            match dice.roll(4) {
                0 => {}
                1 => *act = ThreadOp::Do(Op::Remove(plan.hot_key(&mut dice))),
                _ => *act = ThreadOp::Do(Op::Put(plan.hot_key(&mut dice), next)),
            }
        }
        scenario
    }
}
