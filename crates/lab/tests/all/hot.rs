//! The steps by which the height-optimized trie changes its structure: threads that stop, die or
//! lose power at each of them, and other threads that come upon what is there.

use super::steps::{
    Outcome, PMEM, acts, changes_of, outcome, outcome_without_power, put, put_of, script, steps_to,
};
use terrace_index::Direction;
use terrace_lab::targets::{HotBytes, HotU64, RECOUNT};
use terrace_testkit::crash::{Key, Lab, Limits, Op, Plan, Seen, Version};
use terrace_testkit::schedule::cues::{after, before, to};
use terrace_testkit::schedule::{Policy, Scenario, Slice, Stop, ThreadCrash, ThreadOp};
use terrace_testkit::stride;

/// Entries of a node, and nodes that one insert replaces, at most.
type Growth = (u64, u64);

const GROWTHS: [Growth; 3] = [(2, 1), (3, 2), (4, 3)];

/// A plan over these keys, some of which are there at first.
fn strings((entries, levels): Growth, keys: &[&str], there: &[Key]) -> Plan {
    let fits = |bits: &u64| 2 + bits % 3 == entries && 1 + (bits >> 3) % 3 == levels;
    let bits = (64..).find(fits).expect("a seed of these");
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let before = there.iter().map(|&key| Op::Put(key, 1 + key as u64)).collect();
    Plan { before, ..HotBytes::plan_over(bits << 40 | 2, &keys) }
}

/// A change of the structure, on keys of which the first operations have removed some, and what
/// others do afterwards.
struct Change {
    name: &'static str,
    keys: &'static [&'static str],
    there: &'static [Key],
    gone: &'static [Key],
    ops: &'static [Op],
    later: &'static [Op],
}

const LETTERS: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h"];

const CHANGES: [Change; 9] = [
    Change {
        name: "a leaf is pushed down",
        keys: &["a", "aa", "ab", "b"],
        there: &[0, 3],
        gone: &[],
        ops: &[put_of(1), put_of(2)],
        later: &[Op::Remove(1), put_of(1), Op::Remove(0)],
    },
    Change {
        name: "full nodes are split",
        keys: LETTERS,
        there: &[0, 1, 2, 3, 4, 5],
        gone: &[],
        ops: &[put_of(6), put_of(7)],
        later: &[Op::Remove(0), put_of(0), Op::Remove(7)],
    },
    Change {
        name: "a fork comes above a full node",
        keys: &["a", "i", "j", "k", "l", "m"],
        there: &[1, 2, 3, 4],
        gone: &[],
        ops: &[put_of(0)],
        later: &[put_of(5), Op::Remove(0), Op::Remove(2)],
    },
    Change {
        name: "an empty place is used again",
        keys: LETTERS,
        there: &[0, 1, 2, 3, 4, 5],
        gone: &[2],
        ops: &[put_of(2)],
        later: &[Op::Remove(3), put_of(3), Op::Remove(2)],
    },
    Change {
        name: "another key comes to an empty place",
        keys: &["a", "b", "ba", "bb", "c", "d"],
        there: &[0, 1, 4, 5],
        gone: &[1],
        ops: &[put_of(2)],
        later: &[put_of(1), put_of(3), Op::Remove(2)],
    },
    Change {
        name: "a fork comes above an empty place",
        keys: &["aaaa", "aaab", "aaac", "aba", "abb", "b"],
        there: &[0, 1, 2, 5],
        gone: &[1],
        ops: &[put_of(3)],
        later: &[put_of(1), put_of(4), Op::Remove(0)],
    },
    Change {
        name: "a node goes",
        keys: LETTERS,
        there: &[0, 1, 2, 3, 4, 5, 6],
        gone: &[],
        ops: &[Op::Remove(2), Op::Remove(3)],
        later: &[put_of(3), Op::Remove(1), put_of(2)],
    },
    Change {
        name: "nodes shrink",
        keys: LETTERS,
        there: &[0, 1, 2, 3, 4, 5, 6, 7],
        gone: &[1, 6],
        ops: &[Op::Remove(4), Op::Remove(0), Op::Remove(3)],
        later: &[put_of(1), put_of(4), Op::Remove(5)],
    },
    Change {
        name: "keys begin others",
        keys: &["", "k", "ka", "kab", "kabcdefgh", "kb"],
        there: &[1, 3, 5],
        gone: &[3],
        ops: &[put_of(2), put_of(4)],
        later: &[put_of(0), put_of(3), Op::Remove(1)],
    },
];

impl Change {
    fn plan(&self, growth: Growth) -> Plan {
        let mut plan = strings(growth, self.keys, self.there);
        plan.before.extend(self.gone.iter().map(|&key| Op::Remove(key)));
        plan
    }

    /// What others do, from the nth operation on.
    fn later(&self, nth: usize) -> Vec<Op> {
        let mut later = self.later.to_vec();
        later.rotate_left(nth % self.later.len());
        later
    }

    /// Runs in which a participant dies before each change of memory in turn, and another one goes
    /// on.
    fn each_death(&self, growth: Growth, run: impl Fn(&Scenario, u64) -> Outcome) {
        for call in 0..self.ops.len() {
            for nth in 1.. {
                let crashes = vec![ThreadCrash { thread: 0, call, change: nth }];
                let threads = vec![acts(self.ops), acts(&self.later(nth as usize))];
                let scenario = Scenario::of(self.plan(growth), threads);
                let scenario = Scenario { is_shared: true, crashes, ..scenario };
                let Outcome { wrong, has_died } = run(&scenario, nth);
                assert_eq!(wrong, None, "{}, {growth:?}, call {call}, change {nth}", self.name);
                if !has_died {
                    break;
                }
            }
        }
    }

    /// Runs in which the first of two threads stops after each of its steps in turn, until the
    /// second has ended.
    fn each_stop(&self, growth: Growth, first: &[ThreadOp], second: &[ThreadOp]) {
        let scenario = Scenario::of(self.plan(growth), vec![first.to_vec(), second.to_vec()]);
        for steps in (1..500).step_by(stride(3) * if first.len() > 2 { 3 } else { 1 }) {
            let policy =
                Policy::Script(vec![Slice { thread: 0, steps }, Slice { thread: 1, steps: u32::MAX }]);
            let wrong = outcome::<HotBytes>(&scenario, &policy, 1).wrong;
            assert_eq!(
                wrong, None,
                "{}, {growth:?}, {first:?} stops after {steps} steps, {second:?}",
                self.name
            );
        }
    }
}

/// Each change with each growth; by day with one.
fn each_change(each: impl Fn(&Change, Growth)) {
    for (nth, change) in CHANGES.iter().enumerate() {
        let growths = GROWTHS.iter().cycle().skip(nth % GROWTHS.len()).take(GROWTHS.len());
        growths.step_by(stride(GROWTHS.len())).for_each(|&growth| each(change, growth));
    }
}

#[test]
fn writers_meet_at_any_step_of_a_change() {
    each_change(|change, growth| {
        let ops = acts(change.ops);
        change.each_stop(growth, &ops, &ops);
        change.each_stop(growth, &ops, &acts(change.later));
        change.each_stop(growth, &acts(&change.later[..1]), &ops);
    });
}

#[test]
fn reader_meets_any_step_of_a_change() {
    each_change(|change, growth| {
        let last = change.keys.len() - 1;
        let ranges = [Direction::Forward, Direction::Backward];
        let ranges = ranges.map(|direction| ThreadOp::Range(0, last, direction));
        let reads: Vec<ThreadOp> = (0..=last).map(ThreadOp::Get).chain(ranges).collect();
        change.each_stop(growth, &reads, &acts(&[change.ops, change.later].concat()));
    });
}

#[test]
fn death_at_any_step_of_a_change_is_survived() {
    each_change(|change, growth| {
        change
            .each_death(growth, |scenario, nth| outcome::<HotBytes>(scenario, &Scenario::sequential(), nth));
    });
}

#[test]
fn death_and_then_a_power_failure_are_survived() {
    each_change(|change, growth| {
        change.each_death(growth, |scenario, _| {
            outcome_without_power::<HotBytes>(scenario, &Scenario::sequential(), 16)
        });
    });
}

/// Everything visible is kept at any step of a change. Then others go on, and power fails.
#[test]
fn crash_at_any_step_and_another_one_later_are_survived() {
    each_change(|change, growth| {
        for moment in (0..60).step_by(2 * stride(2)) {
            let first = vec![acts(change.ops)];
            let later = vec![acts(&change.later(moment as usize))];
            let mut scenario = Scenario::of(change.plan(growth), later);
            (scenario.first, scenario.moment) = (first, Some(moment));
            let outcome = outcome_without_power::<HotBytes>(&scenario, &Scenario::sequential(), 8);
            assert_eq!(outcome.wrong, None, "{}, {growth:?}, moment {moment}", change.name);
        }
    });
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
    each_change(|change, growth| {
        let mut plan = change.plan(growth);
        plan.ops = change.ops.to_vec();
        plan.revived = change.later.to_vec();
        let seen = Seen::new();
        let outcome = Lab::new(PMEM, limits, &seen).run::<HotBytes>(&plan);
        assert_eq!(outcome.finding.map(|finding| finding.wrong), None, "{}, {growth:?}", change.name);
    });
}

/// A writer has compared its key with a leaf in another node. That leaf goes, and another key comes
/// to its place, with which the comparison would have ended elsewhere.
#[test]
fn leaf_that_a_key_was_compared_with_goes() {
    let keys = ["aaaa", "aaab", "aaba", "aabb", "ab", "abb", "b"];
    for there in [&[0, 1, 2, 3, 6][..], &[0, 1, 3, 6], &[0, 2, 3, 6]] {
        for (growth, first) in GROWTHS.iter().flat_map(|&growth| [4, 5].map(|first| (growth, first))) {
            let plan = strings(growth, &keys, there);
            let goes: Vec<Op> = there[..there.len() - 1].iter().map(|&key| Op::Remove(key)).collect();
            let others = [goes, vec![put(9 - first), put(1)]].concat();
            let scenario = Scenario::of(plan, vec![acts(&[put(first)]), acts(&others)]);
            for steps in 1..250 {
                let policy =
                    Policy::Script(vec![Slice { thread: 0, steps }, Slice { thread: 1, steps: u32::MAX }]);
                let wrong = outcome::<HotBytes>(&scenario, &policy, 1).wrong;
                assert_eq!(wrong, None, "{there:?}, {growth:?}, key {first} stops after {steps} steps");
            }
        }
    }
}

/// A plan over these keys in a tree of usual nodes, in which half of a node can have no link.
fn usual(keys: &[&[u8]], there: &[Key], gone: &[Key]) -> Plan {
    let puts = there.iter().map(|&key| Op::Put(key, 1 + key as Version));
    let before = puts.chain(gone.iter().map(|&key| Op::Remove(key))).collect();
    Plan { before, ..HotBytes::plan_over(2, keys) }
}

/// A key comes to an empty place, and was compared with a leaf at a fork. Meanwhile another one
/// comes to the empty place beside it, below that fork.
#[test]
fn leaf_that_came_nearer_is_compared_with() {
    // The last bits of the second and the third one differ, the first bits of the others. Those
    // that come part from each other at the second bit.
    let keys: [&[u8]; 7] = [&[0x10], &[0x20], &[0x40], &[0x80], &[0x81], &[0xa1], &[0xc0]];
    for (first, second) in [(5, 6), (6, 5)] {
        let plan = usual(&keys, &[0, 1, 2, 3, 4], &[3, 4]);
        let scenario = Scenario::of(plan, vec![acts(&[put(first)]), acts(&[put(second)])]);
        for steps in 1..150 {
            let policy =
                Policy::Script(vec![Slice { thread: 0, steps }, Slice { thread: 1, steps: u32::MAX }]);
            let wrong = outcome::<HotBytes>(&scenario, &policy, 1).wrong;
            assert_eq!(wrong, None, "key {first} stops after {steps} steps");
        }
    }
}

/// A reader stops at any step. Meanwhile its node is replaced, and then the word of its key changes
/// and is not durable yet. The reader returns that word, and power fails.
#[test]
fn word_that_a_reader_returns_is_durable() {
    let plan = || Plan { before: vec![put(0), put(1)], ..HotU64::plan_over(2, &[1, 2, 3]) };
    for ops in [&[put_of(1)][..], &[put(2), put_of(1)], &[Op::Remove(0), put_of(1)]] {
        let scenario = Scenario::of(plan(), vec![vec![ThreadOp::Get(1)], acts(ops)]);
        let steps = steps_to::<HotU64>(&scenario, "hot.word");
        for read in 0..16 {
            let slice = |thread, steps| Slice { thread, steps };
            let policy = Policy::Script(vec![slice(0, read), slice(1, steps), slice(0, u32::MAX)]);
            let wrong = outcome_without_power::<HotU64>(&scenario, &policy, 1).wrong;
            assert_eq!(wrong, None, "{ops:?}, the reader stops after {read} steps");
        }
    }
}

fn put_in(key: Key) -> Op {
    Op::Insert(key, 0x3000 + key as Version)
}

/// A writer has stored a link that is not durable. A reader, a range and another writer return what
/// is there then, and power fails.
#[test]
fn link_that_another_follows_is_durable() {
    // The other writers find nothing to do.
    let changes = [(1, put_of(1), put_in(1)), (2, put(2), put_in(2)), (1, Op::Remove(1), Op::Remove(1))];
    for (key, op, keep) in changes {
        let reads = [ThreadOp::Get(key), ThreadOp::Range(0, 2, Direction::Forward)];
        for look in reads.into_iter().chain([ThreadOp::Do(keep)]) {
            let plan = strings(GROWTHS[1], &["a", "b", "c"], &[0, 1]);
            let scenario = Scenario::of(plan, vec![vec![look.clone()], acts(std::slice::from_ref(&op))]);
            let policy = script(&[to(1, after("tree.link")), to(0, Stop::End), to(1, Stop::End)]);
            let wrong = outcome_without_power::<HotBytes>(&scenario, &policy, 1).wrong;
            assert_eq!(wrong, None, "{op:?}, {look:?}");
        }
    }
}

/// A reader has persisted a dirty link and stops before it clears the bit. The link goes and comes
/// back, and its writer dies before that is durable. The collector frees the node that was there in
/// between, others use its memory, and power fails: no durable link may lead there.
#[test]
fn link_that_came_back_is_durable_before_its_node_is_free() {
    const SCRIBBLE: u64 = (1 << 22 | 1 << 21 | 1 << 20 | 2) << 32 | 1;
    let ops = acts(&[put_of(0), put(1), Op::Remove(1)]);
    let works = [RECOUNT, SCRIBBLE].map(|step| ThreadOp::Do(Op::Background(step)));
    let reads = [&[ThreadOp::Get(0)], &works[..]].concat();
    let policy =
        script(&[to(0, after("tree.link")), to(1, before("tree.clean")), to(0, Stop::End), to(1, Stop::End)]);
    let plan = || strings((2, 1), &["a1", "a2", "b1", "b2"], &[0, 2, 3]);
    let changes = changes_of::<HotBytes>(&Scenario::of(plan(), vec![ops.clone()]), 2);
    // The removal ends with that of the node.
    for change in changes * 3 / 4..changes {
        let crashes = vec![ThreadCrash { thread: 0, call: 2, change }];
        let scenario = Scenario::of(plan(), vec![ops.clone(), reads.clone()]);
        let scenario = Scenario { is_shared: true, crashes, ..scenario };
        let Outcome { wrong, has_died } = outcome_without_power::<HotBytes>(&scenario, &policy, 2);
        assert!(wrong.is_none() && has_died, "it dies before change {change} of {changes}: {wrong:?}");
    }
}

/// The walk has passed some nodes. Then leaves move between them and others, which it has not.
#[test]
fn recount_counts_each_key_once() {
    let changes: [&[Op]; 8] = [
        &[Op::Remove(0), Op::Remove(1), put(7)],
        &[put(7), put(6), Op::Remove(3)],
        &[Op::Remove(2), Op::Remove(3), Op::Remove(4)],
        &[Op::Remove(5), put(6), put(5)],
        &[Op::Remove(0), put(0), Op::Remove(5), put(7)],
        &[Op::Remove(4), Op::Remove(5), Op::Remove(3), Op::Remove(2), put(6)],
        &[Op::Remove(4), Op::Remove(5), Op::Remove(3), Op::Remove(2), put(6), put(7), put(3)],
        &[Op::Remove(0), Op::Remove(1), Op::Remove(2), put(7), put(6), put(0), Op::Remove(4)],
    ];
    for (nth, ops) in changes.iter().enumerate() {
        for (growth, locks) in GROWTHS.iter().flat_map(|&growth| (0..16).map(move |locks| (growth, locks))) {
            let plan = strings(growth, LETTERS, &[0, 1, 2, 3, 4, 5]);
            let scenario = Scenario::of(plan, vec![acts(&[Op::Background(RECOUNT)]), acts(ops)]);
            let stop = to(0, Stop::After("lock.release", locks));
            let policy = script(&[stop, to(1, Stop::End), to(0, Stop::End)]);
            let wrong = outcome::<HotBytes>(&scenario, &policy, 0).wrong;
            assert_eq!(wrong, None, "changes {nth}, {growth:?}, after {locks} locks");
        }
    }
}

/// A reader has persisted a dirty link and stops before it clears the bit. Meanwhile the link goes,
/// and comes back when the new node below it goes.
#[test]
fn reader_clears_no_link_that_came_back() {
    let keys = ["ab", "ac", "xyab", "xyac"];
    for (there, read, ops) in [
        (vec![3], 0, vec![put(0), put(1), Op::Remove(1)]),
        (vec![2, 0], 2, vec![put(3), put(1), Op::Remove(1)]),
    ] {
        for (growth, stored) in GROWTHS.iter().flat_map(|&growth| (1..12).map(move |nth| (growth, nth))) {
            let plan = strings(growth, &keys, &there);
            let scenario = Scenario::of(plan, vec![acts(&ops), vec![ThreadOp::Get(read), ThreadOp::Get(1)]]);
            let policy = script(&[
                to(0, after("tree.link")),
                to(1, before("tree.clean")),
                to(0, Stop::After("tree.link", stored)),
                to(1, Stop::End),
                to(0, Stop::End),
            ]);
            let wrong = outcome_without_power::<HotBytes>(&scenario, &policy, 1).wrong;
            assert_eq!(wrong, None, "key {read}, {growth:?}, after {stored} links");
        }
    }
}
