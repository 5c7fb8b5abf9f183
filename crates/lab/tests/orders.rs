//! Orders that runs hardly ever miss in which chance says who goes on: here threads are put where they must stand. With the order missing something is wrong then, and with all orders nothing is.

use terrace_lab::targets::RECOUNT;
use terrace_lab::{Meeting, Met, meeting};
use terrace_testkit::crash::{Dice, Key, Op, Plan, Version, Wrong};
use terrace_testkit::schedule::cues::{before, behind, to};
use terrace_testkit::schedule::{
    Act, Aim, Cue, Manner, Policy, Reach, Scenario, Stage, Stop, Weak, Weakening,
};

/// What threads do, and how far each goes before the next one does.
type Script = (Scenario, Vec<Cue>);

/// A target.
struct Lab {
    stage: Stage,
    meeting: &'static Meeting,
}

impl Lab {
    fn of(target: &str) -> Self {
        Self { stage: Stage::new(), meeting: meeting(target).expect("a target") }
    }

    fn met(&self, (scenario, cues): &Script, missing: Option<Weakening>, aim: Aim) -> Met {
        let (policy, reach) = (Policy::Cued(cues.clone()), Reach::at(aim, true));
        self.meeting.follow_weak(&self.stage, scenario, &policy, missing, reach)
    }

    /// As [`Lab::misses_at`], where all that may be old is.
    fn misses(&self, weak: Weak, at: &'static str, scripts: impl Iterator<Item = Script>) -> Wrong {
        self.misses_at(weak, at, None, scripts)
    }

    /// Tries one script after the other until one misses an order, where what is loaded with Acquire at a place is old that may be, or all; and nothing is wrong with that as it is. Returns what was wrong.
    fn misses_at(
        &self,
        weak: Weak,
        at: &'static str,
        old: Option<&'static str>,
        scripts: impl Iterator<Item = Script>,
    ) -> Wrong {
        let mut known = None;
        for script in scripts {
            let look = || {
                let passed = self.met(&script, None, Aim::None).passed;
                let order = passed.iter().find(|it| it.weak == weak && it.point == Some(at));
                let place = |point: &str| {
                    passed.iter().find(|it| it.point == Some(point)).map(|it| Aim::Place(it.site))
                };
                let aim = old.map_or(Some(Aim::Words(u64::MAX)), place);
                order.copied().zip(aim)
            };
            known = known.or_else(look);
            let Some((order, aim)) = known else { continue };
            let wrong = self.met(&script, Some(order), aim).wrong;
            if let Some(wrong) = wrong.filter(|wrong| !wrong.contains("of the script was not reached")) {
                assert_eq!(self.met(&script, None, aim).wrong, None, "with nothing missing");
                return wrong;
            }
        }
        panic!("nobody misses it, or comes by: {at:?}");
    }

    /// The first plans that are as wanted, in memory with a volatile cache or without. Pins have a barrier of their own, and the pool has seats for all.
    fn plans(&self, is_volatile: bool, is_wanted: impl Fn(&Plan) -> bool) -> impl Iterator<Item = Plan> {
        let seeds = (0..4000).map(move |number| number << 8 | 2 | u64::from(!is_volatile));
        seeds.map(|seed| self.meeting.plan(seed)).filter(move |plan| is_wanted(plan)).take(20)
    }

    /// Those of Level hashing that have so many keys, of which most are there from the beginning.
    fn filled(&self, is_volatile: bool, keys: std::ops::Range<usize>) -> impl Iterator<Item = Plan> {
        self.plans(is_volatile, move |plan| keys.contains(&plan.keys) && is_filled(plan))
    }
}

/// Whether nothing is removed before.
fn is_filled(plan: &Plan) -> bool {
    plan.before.iter().all(|op| !matches!(op, Op::Remove(_)))
}

/// Keys of a table of Level hashing of one unit, that some more make full, and of one of two that is nearly so.
const ONE_UNIT: std::ops::Range<usize> = 24..30;
const TWO_UNITS: std::ops::Range<usize> = 48..49;

fn put(key: Key) -> Op {
    Op::Put(key, 0x1000 + key as Version)
}

fn acts(ops: impl IntoIterator<Item = Op>) -> Vec<Act> {
    ops.into_iter().map(Act::Do).collect()
}

/// A pinned thread whose first call tells it how things are before the others begin.
fn early(rest: Vec<Act>) -> (Manner, Vec<Act>) {
    (Manner::Pinned, std::iter::once(Act::Get(1)).chain(rest).collect())
}

fn scenario(plan: Plan, threads: Vec<(Manner, Vec<Act>)>) -> Scenario {
    let (manners, threads) = threads.into_iter().unzip();
    Scenario { manners, ..Scenario::of(plan, threads) }
}

/// One fills a table until it grows, and empties it. Another one, without a barrier behind that, removes one more key, and with that the table begins to shrink, to a tier that is named where the lower one of the first two was. A reader
/// stands between the state as it was first and the tiers.
#[test]
fn who_reads_a_tier_of_a_later_state_sees_that_the_state_is_another() {
    let lab = Lab::of("level");
    let tiers = "level.tier";
    let cleared = "level.cleared";
    let scripts = lab.filled(false, ONE_UNIT).map(|plan| {
        let tide = (0..plan.keys).map(put).chain((4..plan.keys).rev().map(Op::Remove));
        let ebb = early(acts([Op::Remove(0), Op::Background(0), Op::Background(0)]));
        let reads = (0..plan.keys).rev().map(Act::Get).collect();
        let threads = vec![(Manner::Apart, acts(tide)), ebb, (Manner::Pinned, reads)];
        let cues = vec![
            to(1, Stop::Call(1)),
            to(2, before(tiers)),
            to(0, Stop::End),
            to(1, before(cleared)),
            to(2, Stop::End),
        ];
        (scenario(plan, threads), cues)
    });
    let wrong = lab.misses(Weak::Release, "level.name-tier", scripts);
    assert!(wrong.contains("a race"), "{wrong}");
}

/// One begins a resize and is at the first unit while another one moves the second. Then it says that all have moved, and stops; the other one goes by that and ends the resize. A reader knows of it from that one alone. Nobody has a
/// barrier behind what the first has done.
#[test]
fn who_ends_a_resize_because_others_have_moved_units_has_seen_them_moved() {
    let lab = Lab::of("level");
    let begun = "level.balance";
    let moves = "level.meta";
    let passes = "level.advance-cursor";
    let scripts = || {
        lab.filled(false, TWO_UNITS).map(|plan| {
            let puts = (0..plan.keys).flat_map(|key| [put(key), Op::Background(0)]);
            let helps = early(acts(vec![Op::Background(0); 3]));
            let reads = early((0..plan.keys).map(Act::Get).collect());
            let cues = vec![
                to(1, Stop::Call(1)),
                to(2, Stop::Call(1)),
                to(0, before(begun)),
                to(0, before(moves)),
                to(1, Stop::Call(2)),
                to(0, behind(passes)),
                to(1, Stop::End),
                to(2, Stop::End),
            ];
            (scenario(plan, vec![(Manner::Pinned, acts(puts)), helps, reads]), cues)
        })
    };
    let looks = "level.cursor";
    for (weak, at) in [(Weak::Release, passes), (Weak::Acquire, looks)] {
        let wrong = lab.misses(weak, at, scripts());
        assert!(wrong.contains("a race"), "{wrong}");
    }
}

/// A key moves within its unit, to make room for another one, and a scan has read the meta words while it was marked. The other one comes into its slot, goes, and comes again further on: the scan, which finds it there, must not take
/// the slot for one of it.
#[test]
fn a_scan_that_finds_another_key_in_a_slot_sees_that_the_slot_was_freed() {
    let lab = Lab::of("level");
    let copies = "level.write-key";
    let marks = "level.meta";
    let reads = "level.read-key";
    let scripts = lab.filled(true, TWO_UNITS).flat_map(|plan| {
        let there = plan.before.iter().filter(|op| matches!(op, Op::Put(..))).count();
        (0..40).flat_map(move |turn| {
            let mut dice = Dice::new(plan.seed ^ turn << 20);
            let new = there + turn as usize % (plan.keys - there);
            // Not those whose removal would make the table shrink.
            let gone = (0..there).filter(|key| key % 16 != 0 && dice.roll(3) == 0).map(Op::Remove);
            let ops: Vec<Op> =
                [put(new), Op::Remove(new)].into_iter().chain(gone).chain([Op::Put(new, 0x2000)]).collect();
            let plan = plan.clone();
            (0..14).map(move |slot| {
                let threads = vec![(Manner::Apart, acts(ops.clone())), (Manner::Apart, vec![Act::Scan])];
                let cues = vec![
                    to(0, before(copies)),
                    to(0, behind(marks)),
                    to(1, Stop::Before(reads, slot)),
                    to(0, Stop::End),
                ];
                (scenario(plan.clone(), threads), cues)
            })
        })
    });
    let wrong = lab.misses(Weak::Acquire, reads, scripts);
    assert!(wrong.contains("no order of these calls"), "{wrong}");
}

/// Somebody has just counted the keys anew. Who asks for them and sees that sees what was counted.
#[test]
fn who_asks_for_the_keys_when_they_have_been_counted_anew_is_told_of_all() {
    let lab = Lab::of("level");
    let ends = "count.end";
    let scripts = lab.filled(false, TWO_UNITS).map(|plan| {
        let threads =
            vec![(Manner::Apart, acts([Op::Background(RECOUNT)])), (Manner::Apart, vec![Act::Count])];
        (scenario(plan, threads), vec![to(0, behind(ends)), to(1, Stop::End)])
    });
    let mode = "count.len";
    let wrong = lab.misses(Weak::Acquire, mode, scripts);
    assert!(wrong.contains("counts 0 keys"), "{wrong}");
}

/// Somebody counts the keys for the second time. Who adds one and sees that sees that this time the walk has not been at it.
#[test]
fn a_key_that_comes_while_they_are_counted_for_the_second_time_is_counted_once() {
    let lab = Lab::of("level");
    let begins = "count.begin";
    let scripts = lab.filled(false, ONE_UNIT).map(|plan| {
        let adds = acts([put(plan.keys - 1)]);
        let threads = vec![(Manner::Apart, acts(vec![Op::Background(RECOUNT); 2])), (Manner::Apart, adds)];
        let cues = vec![to(0, Stop::Call(1)), to(0, behind(begins)), to(1, Stop::End)];
        (scenario(plan, threads), cues)
    });
    let mode = "count.add";
    let frontier = "count.frontier";
    let wrong = lab.misses_at(Weak::Acquire, mode, Some(frontier), scripts);
    assert!(wrong.contains("expected a count of"), "{wrong}");
}

/// A reader stands before the key of a slot that has its tag. Then its key is evicted, and another one comes into the slot.
#[test]
fn who_finds_another_key_where_its_own_was_sees_that_that_has_moved_on() {
    let lab = Lab::of("rewo");
    let key = "rewo.find-key";
    // Four buckets, which the next keys fill, and no cache.
    let plans = lab.plans(true, |plan| plan.keys == 60 && is_filled(plan) && plan.seed >> 43 & 3 == 0);
    let scripts = plans.flat_map(|plan| {
        let there = plan.before.len();
        (0..there).map(move |read| {
            let more = (there..plan.keys).map(put);
            let threads = vec![(Manner::Apart, acts(more)), (Manner::Apart, vec![Act::Get(read)])];
            (scenario(plan.clone(), threads), vec![to(1, before(key)), to(0, Stop::End)])
        })
    });
    let wrong = lab.misses(Weak::Acquire, key, scripts);
    assert!(wrong.contains("no order of these calls"), "{wrong}");
}
