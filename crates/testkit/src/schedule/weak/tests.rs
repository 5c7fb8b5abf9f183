//! Litmus tests of the memory model: which values threads may load, and which orderings prevent
//! that.

use super::*;
use crate::Layered;
use crate::crash::{Memory, mark_begin, mark_end};
use crate::schedule::death::{CrashPlan, ThreadCrash};
use crate::schedule::stage::begin_call;
use crate::schedule::{Breakpoint, Job, Policy, Scheduled, Scheduler, Stop, Visibility, mark};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use terrace_medium::{Offset, Region, Word, full_barrier};

type Thread = fn(&Region<Layered<true>>) -> u64;

const X: Offset<Word> = Offset::new(64);
const Y: Offset<Word> = Offset::new(128);
const Z: Offset<Word> = Offset::new(192);

fn run<const N: usize>(
    scheduler: &Scheduler,
    weakening: Option<Weakening>,
    threads: [Thread; N],
    seed: u64,
) -> (Weakenings, [u64; N]) {
    let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
    let below = Weakened::over(memory, weakening, Reach::of_run(seed), 0);
    let passed = below.passed();
    let region = Arc::new(Region::new(Layered::over(Arc::new(Scheduled::over(below)))));
    let results: [Arc<AtomicU64>; N] = std::array::from_fn(|_| Arc::default());
    let job = |number: usize| -> Job {
        let (region, result, work) = (region.clone(), results[number].clone(), threads[number]);
        Box::new(move || {
            region.medium().mark_call(mark_begin(number));
            result.store(work(&region), Relaxed);
            region.medium().mark_call(mark_end(number));
        })
    };
    let ran = scheduler.run((0..N).map(job).collect(), &Policy::Random { one_in: 2 }, seed);
    assert_eq!(ran.wrong, None);
    (passed.weakenings(), results.map(|result| result.load(Relaxed)))
}

/// Whether these threads ever get the results `wrong`; if not, which of their orderings prevent it.
fn is_needed<const N: usize>(threads: [Thread; N], wrong: [u64; N]) -> Option<Vec<Weak>> {
    let scheduler = Scheduler::new();
    let all: Weakenings = (0..50).flat_map(|seed| run(&scheduler, None, threads, seed).0).collect();
    let is_reached = |weakening| (0..1000).any(|seed| run(&scheduler, weakening, threads, seed).1 == wrong);
    if is_reached(None) {
        return None;
    }
    let needed = all.into_iter().filter(|&weakening| is_reached(Some(weakening)));
    let mut needed: Vec<Weak> = needed.map(|weakening| weakening.weak).collect();
    needed.sort();
    Some(needed)
}

const SEND: Thread = |region| {
    region.at(X).store(region.medium(), 1, Relaxed);
    region.at(Y).store(region.medium(), 1, Release);
    7
};
const RECEIVE: Thread = |region| {
    let flag = region.at(Y).load(region.medium(), Acquire);
    flag * 2 + region.at(X).load(region.medium(), Relaxed)
};

#[test]
fn message_passing_needs_release_and_acquire() {
    let both = Some(vec![Weak::Acquire, Weak::Release]);
    assert_eq!(is_needed([SEND, RECEIVE], [7, 2]), both);
    let by_exchange: Thread = |region| {
        region.at(X).store(region.medium(), 1, Relaxed);
        region.at(Y).fetch_or(region.medium(), 1, AcqRel);
        7
    };
    assert_eq!(is_needed([by_exchange, RECEIVE], [7, 2]), both);
    // A Release orders earlier accesses before itself, but not itself before later ones.
    let released_before: Thread = |region| {
        region.at(X).store(region.medium(), 1, Release);
        region.at(Y).store(region.medium(), 1, Relaxed);
        7
    };
    assert_eq!(is_needed([released_before, RECEIVE], [7, 2]), None);
    // An Acquire does not affect values loaded from another word.
    let acquires_another: Thread = |region| {
        let flag = region.at(Y).load(region.medium(), Relaxed);
        region.at(Z).load(region.medium(), Acquire);
        flag * 2 + region.at(X).load(region.medium(), Relaxed)
    };
    assert_eq!(is_needed([SEND, acquires_another], [7, 2]), None);
}

#[test]
fn message_passing_covers_bytes() {
    let send: Thread = |region| {
        // SAFETY: no thread reads them before the word announces them.
        unsafe { region.copy_in(64, &[1; 8]) };
        region.at(Y).store(region.medium(), 1, Release);
        7
    };
    let receive: Thread = |region| {
        let flag = region.at(Y).load(region.medium(), Acquire);
        // SAFETY: no thread writes them once the word announces them.
        flag * 2 + unsafe { region.bytes(64, 8) }.map_or(9, |bytes| u64::from(bytes[3]))
    };
    assert_eq!(is_needed([send, receive], [7, 2]), Some(vec![Weak::Acquire, Weak::Release]));
}

#[test]
fn message_is_forwarded_by_other_threads() {
    let forward: Thread = |region| {
        if region.at(Y).load(region.medium(), Acquire) == 1 {
            region.at(Z).store(region.medium(), 1, Release);
        }
        8
    };
    let receive: Thread = |region| {
        let flag = region.at(Z).load(region.medium(), Acquire);
        flag * 2 + region.at(X).load(region.medium(), Relaxed)
    };
    let needed = Some(vec![Weak::Acquire, Weak::Acquire, Weak::Release, Weak::Release]);
    assert_eq!(is_needed([SEND, forward, receive], [7, 8, 2]), needed);
    // A read-modify-write passes on what the replaced value carried, whatever its own ordering.
    let count: Thread = |region| {
        region.at(Y).fetch_add(region.medium(), 2, Relaxed);
        8
    };
    assert_eq!(is_needed([SEND, count, RECEIVE], [7, 8, 6]), Some(vec![Weak::Acquire, Weak::Release]));
    let store: Thread = |region| {
        region.at(Y).store(region.medium(), 3, Relaxed);
        8
    };
    assert_eq!(is_needed([SEND, store, RECEIVE], [7, 8, 6]), None);
}

#[test]
fn values_of_one_word_are_seen_in_order() {
    let count: Thread = |region| {
        (1..=4).for_each(|value| region.at(X).store(region.medium(), value, Relaxed));
        7
    };
    let watch: Thread = |region| {
        let values: Vec<u64> = (0..6).map(|_| region.at(X).load(region.medium(), Relaxed)).collect();
        u64::from(!values.is_sorted())
    };
    assert_eq!(is_needed([count, watch], [7, 1]), Some(vec![]));
}

#[test]
fn store_buffering_needs_a_total_order() {
    let one: Thread = |region| {
        region.at(X).store(region.medium(), 1, SeqCst);
        // One more step before the end of the call, which makes everything visible.
        region.at(Y).load(region.medium(), SeqCst) + region.at(Z).load(region.medium(), Relaxed)
    };
    let other: Thread = |region| {
        region.at(Y).store(region.medium(), 1, Relaxed);
        full_barrier(region.medium());
        region.at(X).load(region.medium(), Relaxed)
    };
    assert_eq!(is_needed([one, other], [0, 0]), Some(vec![Weak::Total; 3]));
    let releases: Thread = |region| {
        region.at(X).store(region.medium(), 1, Release);
        region.at(Y).load(region.medium(), Acquire)
    };
    assert_eq!(is_needed([releases, other], [0, 0]), None);
}

#[test]
fn global_barrier_acts_in_every_thread() {
    let has_none: Thread = |region| {
        region.at(X).store(region.medium(), 1, Relaxed);
        region.at(Y).load(region.medium(), Relaxed) + region.at(Z).load(region.medium(), Relaxed)
    };
    let asks: Thread = |region| {
        region.at(Y).store(region.medium(), 1, Relaxed);
        region.medium().ordered(Order::GlobalBarrier, Location::caller());
        region.at(X).load(region.medium(), Relaxed)
    };
    assert_eq!(is_needed([has_none, asks], [0, 0]), Some(vec![Weak::Total]));
    let has_one: Thread = |region| {
        region.at(Y).store(region.medium(), 1, Relaxed);
        full_barrier(region.medium());
        region.at(X).load(region.medium(), Relaxed)
    };
    assert_eq!(is_needed([has_none, has_one], [0, 0]), None);
}

/// A thread sends, then crashes before one more store. Returns what it left with this ordering
/// weakened.
fn left_by_dead(scheduler: &Scheduler, missing: Option<Weakening>, seed: u64) -> (Weakenings, [u64; 2]) {
    let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
    let aim = Aim::Drawn { one_in: 1, by_word: false, only_missing: true };
    let reach = Reach { aim, ..Reach::of_run(seed) };
    let below = Weakened::over(memory, missing, reach, 0);
    let passed = below.passed();
    let region = Arc::new(Region::new(Layered::over(Arc::new(Scheduled::over(below)))));
    let (dies, observer) = (region.clone(), region.clone());
    let job: Job = Box::new(move || {
        begin_call(0);
        dies.medium().mark_call(mark_begin(0));
        SEND(&dies);
        dies.at(Z).store(dies.medium(), 1, Relaxed);
    });
    let crashes = vec![ThreadCrash { thread: 0, call: 0, change: 3 }];
    let crash_plan = CrashPlan::new(crashes, move |thread| observer.medium().died(thread));
    let ran = scheduler.run_crashing(vec![(0, job)], crash_plan, &Policy::Random { one_in: 2 }, seed);
    assert_eq!((ran.died.len(), ran.wrong), (1, None));
    let left = [X, Y].map(|at| region.at(at).load(region.medium(), Relaxed));
    scheduler.detach_dead();
    (passed.weakenings(), left)
}

#[test]
fn release_keeps_stores_of_a_crashed_thread() {
    let scheduler = Scheduler::new();
    let (passed, left) = left_by_dead(&scheduler, None, 1);
    assert_eq!(left, [1, 1]);
    let all: Vec<_> =
        passed.into_iter().map(|it| (it.weak, left_by_dead(&scheduler, Some(it), 1).1)).collect();
    assert_eq!(all, [(Weak::Release, [0, 1])]);
}

#[test]
fn only_observers_of_a_crash_see_its_stores() {
    let scheduler = Scheduler::new();
    let found = |is_observed: bool| {
        let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
        let reach = Reach { old: 1, ..Reach::at(Aim::Cued, true) };
        let below = Weakened::over(memory, None, reach, 0b11);
        let region = Arc::new(Region::new(Layered::<true>::over(Arc::new(Scheduled::over(below)))));
        let (stops, asks, found) = (region.clone(), region.clone(), Arc::<AtomicU64>::default());
        let place = found.clone();
        let one: Job = Box::new(move || {
            stops.medium().mark_call(mark_begin(0));
            stops.at(X).store(stops.medium(), 1, Relaxed);
        });
        let other: Job = Box::new(move || {
            asks.medium().mark_call(mark_begin(1));
            mark(1);
            asks.medium().died(0);
            if is_observed {
                asks.medium().crash_observed(0);
            }
            place.store(asks.at(X).load(asks.medium(), Relaxed), Relaxed);
        });
        let breakpoint = |thread, until, sees| Breakpoint { thread, until, sees };
        let breakpoints = vec![
            breakpoint(1, Stop::Mark(1), Visibility::New),
            breakpoint(0, Stop::End, Visibility::New),
            breakpoint(1, Stop::End, Visibility::StaleWord),
        ];
        assert_eq!(scheduler.run(vec![one, other], &Policy::Cued(breakpoints), 1).wrong, None);
        found.load(Relaxed)
    };
    assert_eq!([false, true].map(found), [0, 1]);
}

#[test]
fn store_may_precede_an_unseen_one() {
    let overwrite: Thread = |region| {
        let flag = region.at(Y).load(region.medium(), Acquire);
        region.at(X).store(region.medium(), 2, Relaxed);
        flag * 4 + region.at(X).load(region.medium(), Relaxed)
    };
    let both = Some(vec![Weak::Acquire, Weak::Release]);
    assert_eq!(is_needed([SEND, overwrite], [7, 5]), both);
    let exchange: Thread = |region| {
        let flag = region.at(Y).load(region.medium(), Acquire);
        let found = region.at(X).fetch_or(region.medium(), 2, Relaxed);
        flag * 16 + found * 4 + region.at(X).load(region.medium(), Relaxed)
    };
    assert_eq!(is_needed([SEND, exchange], [7, 17]), both, "it found and left nothing");
    // A read-modify-write always finds the result of the one before it.
    let send_by_exchange: Thread = |region| {
        region.at(X).fetch_or(region.medium(), 1, Relaxed);
        region.at(Y).store(region.medium(), 1, Release);
        7
    };
    assert_eq!(is_needed([send_by_exchange, exchange], [7, 17]), Some(vec![]));
    // A failing one does not store, and has seen a stale value.
    let compare: Thread = |region| {
        let flag = region.at(Y).load(region.medium(), Acquire);
        let failed = region.at(X).compare_exchange(region.medium(), 5, 2, Relaxed, Relaxed);
        flag * 16 + failed.unwrap_or_else(|found| found)
    };
    assert_eq!(is_needed([SEND, compare], [7, 16]), both);
}

#[test]
fn waiting_thread_sees_the_store() {
    let wait: Thread = |region| {
        while region.at(Y).load(region.medium(), Relaxed) == 0 {}
        7
    };
    let tell: Thread = |region| {
        region.at(Y).store(region.medium(), 1, Relaxed);
        8
    };
    assert_eq!(is_needed([wait, tell], [0, 0]), Some(vec![]));
}

/// Runs these threads with this weakening and no stale values. Returns the orderings used, and the
/// race if any.
fn look<const N: usize>(
    scheduler: &Scheduler,
    missing: Option<Weakening>,
    threads: [Thread; N],
    apart: u8,
    seed: u64,
) -> (UsedOrderings, Option<Violation>) {
    let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
    let below = Arc::new(Scheduled::over(Weakened::over(memory, missing, Reach::NONE, apart)));
    let passed = below.below().passed();
    let region = Arc::new(Region::new(Layered::over(below)));
    let job = |number: usize| -> Job {
        let (region, work) = (region.clone(), threads[number]);
        Box::new(move || {
            // Two calls each: even a thread that is apart begins with a barrier.
            for call in [2 * number, 2 * number + 1] {
                region.medium().mark_call(mark_begin(call));
                work(&region);
                region.medium().mark_call(mark_end(call));
            }
        })
    };
    let ran = scheduler.run((0..N).map(job).collect(), &Policy::Random { one_in: 2 }, seed);
    assert_eq!(ran.wrong, None);
    (passed, region.medium().wrong())
}

/// The races of these threads by weakening; there must be none with all orderings.
fn races<const N: usize>(
    scheduler: &Scheduler,
    threads: [Thread; N],
    seeds: u64,
) -> BTreeMap<Weak, Vec<Violation>> {
    let mut races: BTreeMap<Weak, Vec<Violation>> = BTreeMap::new();
    for seed in 0..seeds {
        let (passed, wrong) = look(scheduler, None, threads, 0b11, seed);
        assert_eq!(wrong, None);
        for missing in passed.weakenings() {
            let race = look(scheduler, Some(missing), threads, 0b11, seed).1;
            race.into_iter().for_each(|race| races.entry(missing.weak).or_default().push(race));
        }
    }
    races
}

/// Sends bytes once; the other reads them once they are announced.
const SEND_BYTES: Thread = |region| {
    if region.at(Z).load(region.medium(), Relaxed) == 0 {
        region.at(Z).store(region.medium(), 1, Relaxed);
        // SAFETY: no thread reads them before the word announces them.
        unsafe { region.copy_in(64, &[1; 8]) };
        region.at(Y).store(region.medium(), 1, Release);
    }
    7
};
const READ_BYTES: Thread = |region| match region.at(Y).load(region.medium(), Acquire) {
    // SAFETY: no thread writes them once the word announces them.
    1 => unsafe { region.bytes(64, 8) }.map_or(9, |bytes| u64::from(bytes[3])),
    _ => 8,
};

#[test]
fn bytes_read_without_acquire_are_a_race() {
    let scheduler = Scheduler::new();
    let races = races(&scheduler, [SEND_BYTES, READ_BYTES], 200);
    let is_observed = |race: &Violation| race.contains("thread 1 accesses at") && race.contains("written");
    assert!(races.values().flatten().all(is_observed), "{races:?}");
    assert_eq!(races.keys().copied().collect::<Vec<_>>(), [Weak::Acquire, Weak::Release]);
}

#[test]
fn bytes_rewritten_without_the_readers_release_are_a_race() {
    let read: Thread = |region| {
        // SAFETY: the writer waits for the word, or should.
        _ = unsafe { region.bytes(64, 8) }.map(|bytes| bytes[3]);
        region.at(Y).store(region.medium(), 1, Release);
        7
    };
    let write_behind: Thread = |region| {
        if region.at(Y).load(region.medium(), Acquire) == 2 {
            // SAFETY: no thread reads them any more.
            unsafe { region.copy_in(64, &[1; 8]) };
        }
        8
    };
    let read_once: Thread = |region| {
        if region.at(Z).load(region.medium(), Relaxed) == 0 {
            // SAFETY: as above.
            _ = unsafe { region.bytes(64, 8) }.map(|bytes| bytes[3]);
            region.at(Z).store(region.medium(), 1, Relaxed);
            region.at(Y).store(region.medium(), 2, Release);
        }
        7
    };
    let write: Thread = |region| {
        // SAFETY: a race, which this test wants to detect.
        unsafe { region.copy_in(64, &[1; 8]) };
        8
    };
    let scheduler = Scheduler::new();
    let races = races(&scheduler, [read_once, write_behind], 100);
    assert_eq!(races.keys().copied().collect::<Vec<_>>(), [Weak::Acquire, Weak::Release]);
    assert!((0..100).any(|seed| look(&scheduler, None, [read, write], 0b11, seed).1.is_some()));
}

#[test]
fn thread_apart_need_not_see_earlier_calls() {
    let store: Thread = |region| {
        region.at(X).store(region.medium(), 1, Relaxed);
        7
    };
    let old = |apart| {
        let scheduler = Scheduler::new();
        (0..200).any(|seed| {
            let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
            let reach = Reach {
                aim: Aim::Drawn { one_in: 1, by_word: false, only_missing: false },
                ..Reach::of_run(seed)
            };
            let below = Weakened::over(memory, None, reach, apart);
            let region = Arc::new(Region::new(Layered::over(Arc::new(Scheduled::over(below)))));
            let stored_first = Arc::new(AtomicU64::new(0));
            let result = Arc::new(AtomicU64::new(9));
            let (one, other) = (region.clone(), region.clone());
            let (ended, seen, found) = (stored_first.clone(), stored_first, result.clone());
            let writes: Job = Box::new(move || {
                one.medium().mark_call(mark_begin(0));
                store(&one);
                one.medium().mark_call(mark_end(0));
                ended.store(1, Relaxed);
            });
            let reads: Job = Box::new(move || {
                other.medium().mark_call(mark_begin(1));
                other.at(Y).load(other.medium(), Relaxed);
                other.medium().mark_call(mark_end(1));
                let is_behind = seen.load(Relaxed) == 1;
                other.medium().mark_call(mark_begin(2));
                let value = other.at(X).load(other.medium(), Relaxed);
                other.medium().mark_call(mark_end(2));
                found.store(if is_behind { value } else { 9 }, Relaxed);
            });
            let ran = scheduler.run(vec![writes, reads], &Policy::Random { one_in: 2 }, seed);
            assert_eq!(ran.wrong, None);
            result.load(Relaxed) == 0
        })
    };
    assert!(old(0b11) && old(0b10) && old(0b01), "both threads need a barrier");
    assert!(!old(0b00));
}
