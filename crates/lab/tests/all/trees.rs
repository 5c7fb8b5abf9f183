//! The steps by which a tree changes its structure: threads that stop, die or lose power at each of
//! them, and other threads that come upon what is there.

use super::steps::{Outcome, PMEM, acts, outcome, outcome_without_power, put, put_of, script};
use std::ops::Range;
use terrace_index::Direction;
use terrace_lab::targets::{ArtBytes, ArtU64, RECOUNT};
use terrace_testkit::crash::{Key, Lab, Limits, Op, Plan, Seen, Version};
use terrace_testkit::schedule::cues::{after, before, to};
use terrace_testkit::schedule::{Policy, Scenario, Slice, Stop, ThreadCrash, ThreadOp};
use terrace_testkit::stride;

/// A plan over these keys, some of which are there at first.
fn strings(keys: &[&str], there: &[Key]) -> Plan {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let before = there.iter().map(|&key| Op::Put(key, 1 + key as Version)).collect();
    Plan { before, ..ArtBytes::plan_over(2, &keys) }
}

/// The walk has passed a node, and not yet the node below. That one goes, its last child moves up,
/// and a new node comes in between, or whatever else.
#[test]
fn recount_counts_each_key_once() {
    let keys = ["ab", "acxA", "acxB", "acyA", "adA", "z"];
    let changes: [&[Op]; 6] = [
        &[Op::Remove(0), put(3)],
        &[Op::Remove(0), put(3), Op::Remove(1)],
        &[Op::Remove(1), Op::Remove(0)],
        &[Op::Remove(0), Op::Remove(1), put(4)],
        &[put(3), put(4), Op::Remove(0)],
        &[Op::Remove(5), Op::Remove(0), put(5)],
    ];
    for (nth, ops) in changes.iter().enumerate() {
        for locks in 0..16 {
            let plan = strings(&keys, &[0, 1, 2, 5]);
            let scenario = Scenario::of(plan, vec![acts(&[Op::Background(RECOUNT)]), acts(ops)]);
            let stop = to(0, Stop::After("lock.release", locks));
            let policy = script(&[stop, to(1, Stop::End), to(0, Stop::End)]);
            let wrong = outcome::<ArtBytes>(&scenario, &policy, 0).wrong;
            assert_eq!(wrong, None, "changes {nth}, after {locks} locks");
        }
    }
}

/// A reader has persisted a dirty link and stops before it clears the bit. Meanwhile the link goes,
/// and comes back when the new node below it goes.
#[test]
fn reader_clears_no_link_that_came_back() {
    let integers = || ArtU64::plan_over(2, &[0x0101, 0x0102, 0x0203, 0x0204]);
    let byte_strings = || strings(&["ab", "ac", "xyab", "xyac"], &[]);
    type Run = fn(&Scenario, &Policy, u64) -> Outcome;
    let of: [(&dyn Fn() -> Plan, Run); 2] =
        [(&integers, outcome_without_power::<ArtU64>), (&byte_strings, outcome_without_power::<ArtBytes>)];
    for (plan, outcome_without_power) in of {
        // The link leads to a leaf, and to a node.
        for (there, read, ops) in [
            (vec![], 0, vec![put(0), put(1), Op::Remove(1)]),
            (vec![2], 2, vec![put(3), put(0), Op::Remove(0)]),
        ] {
            for stored in 1..12 {
                let mut plan = plan();
                plan.before.extend(there.iter().map(|&key| Op::Put(key, 1)));
                let last = ops[1].clone();
                let gone = if let Op::Put(key, _) = last { key } else { unreachable!("a put") };
                let reads = vec![ThreadOp::Get(read), ThreadOp::Get(gone)];
                let scenario = Scenario::of(plan, vec![acts(&ops), reads]);
                let policy = script(&[
                    to(0, after("tree.link")),
                    to(1, before("tree.clean")),
                    to(0, Stop::After("tree.link", stored)),
                    to(1, Stop::End),
                    to(0, Stop::End),
                ]);
                let wrong = outcome_without_power(&scenario, &policy, 1).wrong;
                assert_eq!(wrong, None, "key {read}, after {stored} links");
            }
        }
    }
}

/// A writer has found no child for its key. Another one adds and removes the key, and dies before
/// that is durable. The first one must not put the key into another place: power fails, and both
/// would be there. (The places lie in different lines.)
#[test]
fn key_comes_to_the_place_that_a_dead_thread_left() {
    let keys = ["ka", "kb", "kc", "kd", "ke", "kf"];
    for steps in (60..200).step_by(5 * stride(4)) {
        for change in 1.. {
            let mut plan = strings(&keys, &[0, 1, 2, 3, 4, 5]);
            plan.before.extend([Op::Remove(0), Op::Remove(4)]);
            let threads = vec![acts(&[put_of(0), put_of(4), Op::Remove(0), Op::Remove(4)]), acts(&[put(4)])];
            let crashes = vec![ThreadCrash { thread: 0, call: 3, change }];
            let scenario = Scenario { is_shared: true, crashes, ..Scenario::of(plan, threads) };
            let policy =
                Policy::Script(vec![Slice { thread: 1, steps }, Slice { thread: 0, steps: u32::MAX }]);
            let Outcome { wrong, has_died } = outcome_without_power::<ArtBytes>(&scenario, &policy, 4);
            assert_eq!(wrong, None, "after {steps} steps, change {change}");
            if !has_died {
                break;
            }
        }
    }
}

/// A change of the structure, on keys that are there, and what others do afterwards.
struct Change {
    name: &'static str,
    keys: &'static [&'static str],
    there: Range<Key>,
    ops: &'static [Op],
    later: &'static [Op],
}

const CHANGES: [Change; 9] = [
    Change {
        name: "a leaf is split",
        keys: &["pre1", "pre2", "pre3", "q"],
        there: 1..2,
        ops: &[put_of(0)],
        later: &[put_of(2), Op::Remove(1), put_of(3)],
    },
    Change {
        name: "a long prefix is split",
        keys: &["long", "long-prefix-of-1", "long-prefix-of-2", "long-prefix-x"],
        there: 1..3,
        ops: &[put_of(3)],
        later: &[put_of(0), Op::Remove(3), Op::Remove(1), put_of(3)],
    },
    Change {
        name: "a short prefix is split",
        keys: &["", "abc1", "abc2", "ax"],
        there: 1..3,
        ops: &[put_of(3)],
        later: &[put_of(0), Op::Remove(3), put_of(3)],
    },
    Change {
        name: "a leaf moves up",
        keys: &["abc1", "abc2", "ax", "b"],
        there: 0..3,
        ops: &[Op::Remove(0)],
        later: &[put_of(0), put_of(3), Op::Remove(2)],
    },
    Change {
        name: "a node moves up",
        keys: &["abc1", "abc2", "abd", "b"],
        there: 0..4,
        ops: &[Op::Remove(2)],
        later: &[put_of(2), Op::Remove(0), Op::Remove(3)],
    },
    Change {
        name: "a node grows",
        keys: &["ka", "kb", "kc", "kd", "ke", "kf"],
        there: 0..4,
        ops: &[put_of(4)],
        later: &[put_of(5), Op::Remove(0), put_of(0)],
    },
    Change {
        name: "a node shrinks",
        keys: &["ka", "kb", "kc", "kd", "ke", "kf"],
        there: 0..5,
        ops: &[Op::Remove(4), Op::Remove(3)],
        later: &[put_of(5), put_of(3), Op::Remove(0)],
    },
    Change {
        name: "a key ends where a node is",
        keys: &["k", "ka", "kb", "kc", "kd", "ke"],
        there: 1..5,
        ops: &[put_of(0), put_of(5)],
        later: &[Op::Remove(0), put_of(0), Op::Remove(1)],
    },
    Change {
        name: "a key goes that had a higher place than one before",
        keys: &["ka", "kb", "kc", "kd"],
        there: 0..4,
        ops: &[Op::Remove(0), Op::Remove(1)],
        later: &[put_of(1), put_of(0), Op::Remove(2)],
    },
];

impl Change {
    fn plan(&self) -> Plan {
        strings(self.keys, &self.there.clone().collect::<Vec<Key>>())
    }

    /// What others do, from the nth operation on.
    fn later(&self, nth: usize) -> Vec<Op> {
        let mut later = self.later.to_vec();
        later.rotate_left(nth % self.later.len());
        later
    }

    /// The run in which a participant dies before the nth change of memory in its `call`, and
    /// another one goes on.
    fn with_death(&self, call: usize, nth: u64) -> Scenario {
        let crashes = vec![ThreadCrash { thread: 0, call, change: nth }];
        let threads = vec![acts(self.ops), acts(&self.later(nth as usize))];
        Scenario { is_shared: true, crashes, ..Scenario::of(self.plan(), threads) }
    }

    /// Runs in which a participant dies before each change of memory in turn.
    fn each_death(&self, run: impl Fn(&Scenario, u64) -> Outcome) {
        for call in 0..self.ops.len() {
            for nth in 1.. {
                let Outcome { wrong, has_died } = run(&self.with_death(call, nth), nth);
                assert_eq!(wrong, None, "{}, call {call}, change {nth}", self.name);
                if !has_died {
                    break;
                }
            }
        }
    }

    /// Runs in which the first of two threads stops after each of its steps in turn, until the
    /// second has ended.
    fn each_stop(&self, first: &[ThreadOp], second: &[ThreadOp]) {
        let scenario = Scenario::of(self.plan(), vec![first.to_vec(), second.to_vec()]);
        for steps in (1..600).step_by(stride(3) * if first.len() > 2 { 3 } else { 1 }) {
            let policy =
                Policy::Script(vec![Slice { thread: 0, steps }, Slice { thread: 1, steps: u32::MAX }]);
            let wrong = outcome::<ArtBytes>(&scenario, &policy, 1).wrong;
            assert_eq!(wrong, None, "{}, {first:?} stops after {steps} steps, {second:?}", self.name);
        }
    }
}

#[test]
fn writers_meet_at_any_step_of_a_change() {
    for change in &CHANGES {
        let ops = acts(change.ops);
        change.each_stop(&ops, &ops);
        change.each_stop(&ops, &acts(change.later));
        change.each_stop(&acts(&change.later[..1]), &ops);
    }
}

#[test]
fn reader_meets_any_step_of_a_change() {
    for change in &CHANGES {
        let last = change.keys.len() - 1;
        let ranges = [Direction::Forward, Direction::Backward];
        let ranges = ranges.map(|direction| ThreadOp::Range(0, last, direction));
        let reads: Vec<ThreadOp> = (0..=last).map(ThreadOp::Get).chain(ranges).collect();
        let changes = [change.ops, change.later].concat();
        change.each_stop(&reads, &acts(&changes));
    }
}

/// A writer looks for any key below a node, whose long prefix it has to know. Each place that it
/// looks at is empty then: keys come to places behind it before others go.
#[test]
fn writer_finds_a_key_below_a_node_that_changes() {
    let keys = ["longer-a", "longer-b", "longer-c", "longer-d", "longer-e", "longer-f", "longer-g"];
    let mut plan = strings(&keys, &[0, 1, 2, 3]);
    plan.before.extend([Op::Remove(0), Op::Remove(1)]);
    let moves = acts(&[put(4), put(5), Op::Remove(2), Op::Remove(3)]);
    let scenario = Scenario::of(plan, vec![acts(&[put(6)]), moves]);
    for steps in 1..200 {
        let policy = Policy::Script(vec![Slice { thread: 0, steps }, Slice { thread: 1, steps: u32::MAX }]);
        assert_eq!(outcome::<ArtBytes>(&scenario, &policy, 1).wrong, None, "after {steps} steps");
    }
}

#[test]
fn death_at_any_step_of_a_change_is_survived() {
    for change in &CHANGES {
        change.each_death(|scenario, nth| outcome::<ArtBytes>(scenario, &Scenario::sequential(), nth));
    }
}

#[test]
fn death_and_then_a_power_failure_are_survived() {
    for change in &CHANGES {
        change.each_death(|scenario, _| {
            outcome_without_power::<ArtBytes>(scenario, &Scenario::sequential(), 16)
        });
    }
}

/// Everything visible is kept at any step of a change. Then others go on, and power fails.
#[test]
fn crash_at_any_step_and_another_one_later_are_survived() {
    for change in &CHANGES {
        for moment in (0..60).step_by(stride(2)) {
            let first = vec![acts(change.ops)];
            let mut scenario = Scenario::of(change.plan(), vec![acts(&change.later(moment as usize))]);
            (scenario.first, scenario.moment) = (first, Some(moment));
            let outcome = outcome_without_power::<ArtBytes>(&scenario, &Scenario::sequential(), 8);
            assert_eq!(outcome.wrong, None, "{}, moment {moment}", change.name);
        }
    }
}

/// A process is killed at any step of a change, the next one goes on, and power fails.
#[test]
fn kill_at_any_step_and_then_a_power_failure_are_survived() {
    let limits = Limits {
        exhaustive: [16, 8, 4],
        samples: [4, 4, 2],
        revived_one_in: 2,
        nested_one_in: [0; 3],
        ..Limits::default()
    };
    for change in &CHANGES {
        let mut plan = change.plan();
        plan.ops = change.ops.to_vec();
        plan.revived = change.later.to_vec();
        let seen = Seen::new();
        let outcome = Lab::new(PMEM, limits, &seen).run::<ArtBytes>(&plan);
        assert_eq!(outcome.finding.map(|finding| finding.wrong), None, "{}", change.name);
    }
}
