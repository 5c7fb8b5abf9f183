//! Memory orderings whose weakening random schedules hardly ever detect. Here a script suspends
//! each thread at the decisive place. With one ordering weakened a run fails; with all of them,
//! none does.

use terrace_lab::targets::RECOUNT;
use terrace_lab::{ScheduleTarget, WeakRunResult, schedule_target};
use terrace_testkit::crash::{Key, Op, Plan, RandomSource, Version, Violation};
use terrace_testkit::schedule::cues::{after, before, to};
use terrace_testkit::schedule::{
    Aim, Breakpoint, CallOrdering, Policy, Reach, Scenario, Scheduler, Stop, ThreadOp, Weak, Weakening,
};

/// The operations of the threads, and how far each thread runs before the next one continues.
type Script = (Scenario, Vec<Breakpoint>);

/// A target and the scheduler that runs it.
struct Lab {
    scheduler: Scheduler,
    target: &'static ScheduleTarget,
}

impl Lab {
    fn of(target: &str) -> Self {
        Self { scheduler: Scheduler::new(), target: schedule_target(target).expect("a target") }
    }

    /// Runs a script with at most one ordering missing. The loads of `aim` return the old values
    /// that only this ordering rules out.
    fn run(&self, (scenario, breakpoints): &Script, missing: Option<Weakening>, aim: Aim) -> WeakRunResult {
        let (policy, reach) = (Policy::Cued(breakpoints.clone()), Reach::at(aim, true));
        self.target.run_weak_scenario(&self.scheduler, scenario, &policy, missing, reach)
    }

    /// As [`Lab::detects_by`], by old values of any load.
    fn detects(&self, weak: Weak, at: &'static str, scripts: impl Iterator<Item = Script>) -> Violation {
        self.detects_by(Aim::Drawn { one_in: 1, by_word: false, only_missing: true }, weak, at, scripts)
    }

    /// Tries the scripts in order until a run with the ordering at the place `at` weakened fails,
    /// while it passes with all orderings. Returns what was wrong.
    fn detects_by(
        &self,
        aim: Aim,
        weak: Weak,
        at: &'static str,
        scripts: impl Iterator<Item = Script>,
    ) -> Violation {
        let mut known = None;
        for script in scripts {
            let look = || {
                let passed = self.run(&script, None, Aim::None).passed;
                passed.into_iter().find(|it| it.weak == weak && it.point == Some(at))
            };
            known = known.or_else(look);
            let Some(order) = known else { continue };
            let wrong = self.run(&script, Some(order), aim).wrong;
            if let Some(wrong) = wrong.filter(|wrong| !wrong.contains("of the script was not reached")) {
                assert_eq!(self.run(&script, None, aim).wrong, None, "with all orderings");
                return wrong;
            }
        }
        panic!("no script detects the weakening, or none reaches {at:?}");
    }

    /// The first 20 wanted plans, in memory with or without a volatile cache. Pins have a barrier
    /// of their own, and the pool has a slot for each thread.
    fn plans(&self, is_volatile: bool, is_wanted: impl Fn(&Plan) -> bool) -> impl Iterator<Item = Plan> {
        let seeds = (0..4000).map(move |number| number << 8 | 2 | u64::from(!is_volatile));
        seeds.map(|seed| self.target.plan(seed)).filter(move |plan| is_wanted(plan)).take(20)
    }

    /// The plans of Level hashing with so many keys, none of which is removed at first.
    fn filled(&self, is_volatile: bool, keys: std::ops::Range<usize>) -> impl Iterator<Item = Plan> {
        self.plans(is_volatile, move |plan| keys.contains(&plan.keys) && is_filled(plan))
    }
}

/// Whether the setup of a plan removes no key.
fn is_filled(plan: &Plan) -> bool {
    plan.before.iter().all(|op| !matches!(op, Op::Remove(_)))
}

/// Numbers of keys that nearly fill a Level hashing table of one unit, and one of two units.
const ONE_UNIT: std::ops::Range<usize> = 24..30;
const TWO_UNITS: std::ops::Range<usize> = 48..49;

fn put(key: Key) -> Op {
    Op::Put(key, 0x1000 + key as Version)
}

fn acts(ops: impl IntoIterator<Item = Op>) -> Vec<ThreadOp> {
    ops.into_iter().map(ThreadOp::Do).collect()
}

/// A pinned thread whose first call reads the state before the others begin.
fn early(rest: Vec<ThreadOp>) -> (CallOrdering, Vec<ThreadOp>) {
    (CallOrdering::Pinned, std::iter::once(ThreadOp::Get(1)).chain(rest).collect())
}

fn scenario(plan: Plan, threads: Vec<(CallOrdering, Vec<ThreadOp>)>) -> Scenario {
    let (manners, threads) = threads.into_iter().unzip();
    Scenario { manners, ..Scenario::of(plan, threads) }
}

/// A thread fills a table until it grows, and empties it. A second one, without a barrier in
/// between, removes one more key; the table begins to shrink to a tier whose name replaces that of
/// the first lower tier. A reader is suspended after it read the first state, before the tiers.
#[test]
fn reader_of_a_newer_tier_sees_the_newer_state() {
    let lab = Lab::of("level");
    let tiers = "level.tier";
    let cleared = "level.cleared";
    let scripts = lab.filled(false, ONE_UNIT).map(|plan| {
        let fill_and_drain = (0..plan.keys).map(put).chain((4..plan.keys).rev().map(Op::Remove));
        let shrink = early(acts([Op::Remove(0), Op::Background(0), Op::Background(0)]));
        let reads = (0..plan.keys).rev().map(ThreadOp::Get).collect();
        let threads =
            vec![(CallOrdering::Apart, acts(fill_and_drain)), shrink, (CallOrdering::Pinned, reads)];
        let breakpoints = vec![
            to(1, Stop::Call(1)),
            to(2, before(tiers)),
            to(0, Stop::End),
            to(1, before(cleared)),
            to(2, Stop::End),
        ];
        (scenario(plan, threads), breakpoints)
    });
    let wrong = lab.detects(Weak::Release, "level.name-tier", scripts);
    assert!(wrong.contains("a race"), "{wrong}");
}

/// A thread begins a resize and moves the first unit while a second thread moves the other. The
/// first one stores that all units have moved, and stops; the second one sees that and finishes the
/// resize. A reader learns of it from the second one only, and no barrier follows the first one's
/// stores.
#[test]
fn finisher_of_a_resize_has_seen_the_units_of_others() {
    let lab = Lab::of("level");
    let begun = "level.balance";
    let moves = "level.meta";
    let passes = "level.advance-cursor";
    let scripts = || {
        lab.filled(false, TWO_UNITS).map(|plan| {
            let puts = (0..plan.keys).flat_map(|key| [put(key), Op::Background(0)]);
            let helps = early(acts(vec![Op::Background(0); 3]));
            let reads = early((0..plan.keys).map(ThreadOp::Get).collect());
            let breakpoints = vec![
                to(1, Stop::Call(1)),
                to(2, Stop::Call(1)),
                to(0, before(begun)),
                to(0, before(moves)),
                to(1, Stop::Call(2)),
                to(0, after(passes)),
                to(1, Stop::End),
                to(2, Stop::End),
            ];
            (scenario(plan, vec![(CallOrdering::Pinned, acts(puts)), helps, reads]), breakpoints)
        })
    };
    let looks = "level.cursor";
    for (weak, at) in [(Weak::Release, passes), (Weak::Acquire, looks)] {
        let wrong = lab.detects(weak, at, scripts());
        assert!(wrong.contains("a race"), "{wrong}");
    }
}

/// A key moves within its unit to make room for a new one, and a scan has read the meta words while
/// the key was marked as moving. The new key takes the slot, is removed, and is inserted elsewhere.
/// The scan finds it in the old slot, and must notice that the slot was freed.
#[test]
fn scan_that_reads_a_reused_slot_sees_that_it_was_freed() {
    let lab = Lab::of("level");
    let copies = "level.write-key";
    let marks = "level.meta";
    let reads = "level.read-key";
    let scripts = lab.filled(true, TWO_UNITS).flat_map(|plan| {
        let there = plan.before.iter().filter(|op| matches!(op, Op::Put(..))).count();
        (0..40).flat_map(move |turn| {
            let mut dice = RandomSource::new(plan.seed ^ turn << 20);
            let new = there + turn as usize % (plan.keys - there);
            // Without the keys whose removal would make the table shrink.
            let gone = (0..there).filter(|key| key % 16 != 0 && dice.roll(3) == 0).map(Op::Remove);
            let ops: Vec<Op> =
                [put(new), Op::Remove(new)].into_iter().chain(gone).chain([Op::Put(new, 0x2000)]).collect();
            let plan = plan.clone();
            (0..14).map(move |slot| {
                let threads = vec![
                    (CallOrdering::Apart, acts(ops.clone())),
                    (CallOrdering::Apart, vec![ThreadOp::Scan]),
                ];
                let breakpoints = vec![
                    to(0, before(copies)),
                    to(0, after(marks)),
                    to(1, Stop::Before(reads, slot)),
                    to(0, Stop::End),
                ];
                (scenario(plan.clone(), threads), breakpoints)
            })
        })
    });
    let wrong = lab.detects(Weak::Acquire, reads, scripts);
    assert!(wrong.contains("no order of these calls"), "{wrong}");
}

/// A thread has just recounted the keys. A reader that sees the end of the count sees all keys.
#[test]
fn reader_of_a_finished_recount_sees_all_keys() {
    let lab = Lab::of("level");
    let ends = "count.end";
    let scripts = lab.filled(false, TWO_UNITS).map(|plan| {
        let threads = vec![
            (CallOrdering::Apart, acts([Op::Background(RECOUNT)])),
            (CallOrdering::Apart, vec![ThreadOp::Count]),
        ];
        (scenario(plan, threads), vec![to(0, after(ends)), to(1, Stop::End)])
    });
    let mode = "count.len";
    let wrong = lab.detects(Weak::Acquire, mode, scripts);
    assert!(wrong.contains("counts 0 keys"), "{wrong}");
}

/// A thread counts the keys for the second time. A writer that adds a key and sees the count must
/// also see that this second walk has not reached the key yet.
#[test]
fn key_added_during_a_second_recount_is_counted_once() {
    let lab = Lab::of("level");
    let begins = "count.begin";
    let scripts = lab.filled(false, ONE_UNIT).map(|plan| {
        let adds = acts([put(plan.keys - 1)]);
        let threads =
            vec![(CallOrdering::Apart, acts(vec![Op::Background(RECOUNT); 2])), (CallOrdering::Apart, adds)];
        let breakpoints = vec![to(0, Stop::Call(1)), to(0, after(begins)), to(1, Stop::End)];
        (scenario(plan, threads), breakpoints)
    });
    let wrong = lab.detects_by(Aim::At("count.frontier"), Weak::Acquire, "count.add", scripts);
    assert!(wrong.contains("expected a count of"), "{wrong}");
}

/// A reader is suspended before it loads the key of a slot with the right tag. Then that key is
/// evicted, and another one takes the slot.
#[test]
fn reader_of_a_replaced_key_sees_that_its_own_has_moved() {
    let lab = Lab::of("rewo");
    let key = "rewo.find-key";
    // Four buckets, which the next keys fill, and no cache.
    let plans = lab.plans(true, |plan| plan.keys == 60 && is_filled(plan) && plan.seed >> 43 & 3 == 0);
    let scripts = plans.flat_map(|plan| {
        let there = plan.before.len();
        (0..there).map(move |read| {
            let more = (there..plan.keys).map(put);
            let threads =
                vec![(CallOrdering::Apart, acts(more)), (CallOrdering::Apart, vec![ThreadOp::Get(read)])];
            (scenario(plan.clone(), threads), vec![to(1, before(key)), to(0, Stop::End)])
        })
    });
    let wrong = lab.detects(Weak::Acquire, key, scripts);
    assert!(wrong.contains("no order of these calls"), "{wrong}");
}
