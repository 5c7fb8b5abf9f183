//! One run: creates a store, runs the threads of the scenario in the order of the policy, and
//! checks the result.
//!
//! Conditions: each call ends without a panic; one order of the calls explains all answers and the
//! final content; a scan finds the same content; `verify` finds nothing; no block leaks or is
//! allocated twice; and further operations work.
//!
//! If the threads are participants of a shared pool, some of them crash. The conditions then hold
//! for the survivors after they have recovered the dead ones. A participant that joins later finds
//! the same content, and so does the next one after all have left.

use super::calls::{Answer, Call, Calls, Contents};
use super::crew::{On, PoolGroup};
use super::medium::Scheduled;
use super::policy::Policy;
use super::scenario::{CallOrdering, Scenario, ThreadOp};
use super::stage::{Job, RunResult, Scheduler, THREADS_MAX, begin_call, now, pause};
use crate::crash::{Key, Op, Reply, Subject, Target, Version, Violation};
use crate::crash::{apply_checked, check_memory, check_scan, mark_begin, mark_end, read};
use crate::{CallObserver, Layered};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_index::Direction;
use terrace_medium::MappedMedium;
use terrace_pool::Start;

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// The schedule.
    pub ran: RunResult,
    /// The calls and their answers.
    pub calls: Calls,
    /// The violation, if any.
    pub wrong: Option<Violation>,
}

/// Runs `scenario` once on the zeroed `medium`.
pub fn run<T: Target, const V: bool>(
    scheduler: &Scheduler,
    medium: impl CallObserver,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Result<Run, Violation> {
    let medium = Layered::over(Arc::new(Scheduled::over(medium)));
    run_on::<T, V>(scheduler, medium, scenario, policy, seed, &|| (), &|_| ())
}

/// As [`run`]. Calls `begins` before the threads start, and `ends` after they have ended, before
/// any check.
pub(super) fn run_on<T: Target, const V: bool>(
    scheduler: &Scheduler,
    medium: Layered<V>,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
    begins: &dyn Fn(),
    ends: &dyn Fn(&On<T, V>),
) -> Result<Run, Violation> {
    let (mut group, initial) = prepare::<T, V>(scheduler, medium, scenario)?;
    begins();
    let (ran, calls) = run_threads(scheduler, &group, scenario, initial, policy, seed);
    ends(&group.of(0));
    let mut wrong = ran.wrong.clone().or_else(|| group.medium().wrong());
    if wrong.is_none() {
        wrong = check_result(scheduler, &group, scenario, &calls, seed).err();
    }
    if wrong.is_none() && scenario.is_shared && seed % 4 == 1 {
        wrong = close_and_reopen(scheduler, &mut group, scenario).err();
    }
    scheduler.detach_dead();
    group.release_all(scheduler);
    Ok(Run { ran, calls, wrong })
}

/// As [`run`], but without checks; returns the schedule.
pub fn run_unchecked<T: Target, const V: bool>(
    scheduler: &Scheduler,
    medium: impl CallObserver,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Result<RunResult, Violation> {
    let medium = Layered::over(Arc::new(Scheduled::over(medium)));
    let (group, initial) = prepare::<T, V>(scheduler, medium, scenario)?;
    let (ran, _) = run_threads(scheduler, &group, scenario, initial, policy, seed);
    scheduler.detach_dead();
    group.release_all(scheduler);
    Ok(ran)
}

/// Creates the store and applies the operations that precede the threads.
pub(super) fn prepare<T: Target, const V: bool>(
    scheduler: &Scheduler,
    medium: Layered<V>,
    scenario: &Scenario,
) -> Result<(PoolGroup<T, V>, Contents), Violation> {
    let early = |wrong| format!("before any thread started, {wrong}");
    let group = PoolGroup::<T, V>::create(scheduler, medium, scenario).map_err(early)?;
    let (subject, plan) = (group.of(0), scenario.plan.clone());
    let before = scheduler.alone(move || {
        let mut model = vec![None; plan.keys];
        plan.before.iter().try_for_each(|op| apply_checked(&*subject, op, &mut model).map(drop))?;
        Ok(model)
    });
    let initial = before.flatten().map_err(early)?;
    let group =
        if scenario.is_reopened { group.reopened(scheduler, scenario).map_err(early)? } else { group };
    Ok((group, initial))
}

/// Runs the threads. Crashed threads are not detached yet.
pub(super) fn run_threads<T: Target, const V: bool>(
    scheduler: &Scheduler,
    group: &PoolGroup<T, V>,
    scenario: &Scenario,
    initial: Contents,
    policy: &Policy,
    seed: u64,
) -> (RunResult, Calls) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let count = scenario.threads.len();
    let (here, mut first) = (Arc::new(AtomicUsize::new(0)), 0);
    let jobs = scenario.threads.iter().enumerate().map(|(thread, acts)| {
        let (subject, calls, acts, number) = (group.of(thread), calls.clone(), acts.clone(), first);
        first += acts.len();
        let (here, dead, is_shared) = (here.clone(), group.crashes(), scenario.is_shared);
        let is_pinned = scenario.manner(thread) == CallOrdering::Pinned;
        let job: Job = Box::new(move || {
            let end = acts.len();
            let mut pin = None;
            for (place, act) in acts.into_iter().enumerate() {
                begin_call(place);
                let medium = subject.pool().medium();
                medium.mark_call(mark_begin(number + place));
                if is_pinned && place == 0 {
                    pin = Some(subject.pool().pin());
                }
                call::<T, V>(&subject, &calls, thread, number + place, act);
                if place + 1 == end {
                    drop(pin.take());
                }
                medium.mark_call(mark_end(number + place));
            }
            if is_shared {
                here.fetch_add(1, AcqRel);
                let all_are_here = || {
                    here.load(Acquire) + dead.lock().unwrap_or_else(PoisonError::into_inner).len() >= count
                };
                while !all_are_here() {
                    pause();
                }
                begin_call(end);
                subject.recover_dead();
            }
        });
        (thread, job)
    });
    let jobs: Vec<(usize, Job)> = jobs.collect();
    let ran = scheduler.run_crashing(jobs, group.crash_plan(scenario), policy, seed);
    let mut calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
    calls.sort_by_key(|(number, _)| *number);
    (
        ran,
        Calls { initial, calls: calls.into_iter().map(|(_, call)| call).collect(), apart: scenario.apart() },
    )
}

/// Makes call `number` and records it.
fn call<T: Target, const V: bool>(
    subject: &On<T, V>,
    calls: &Mutex<Vec<(usize, Call)>>,
    thread: usize,
    number: usize,
    act: ThreadOp,
) {
    let write = |call: Call| {
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|(other, _)| *other != number);
        calls.push((number, call));
    };
    let called = now();
    write(Call { number, thread, act: act.clone(), called, returned: None });
    let answer = execute(subject, &act);
    let returned = now();
    match answer {
        Ok(answer) => write(Call { number, thread, act, called, returned: Some((returned, answer)) }),
        Err(why) => panic!("{act} fails: {why}"),
    }
}

fn execute<M: MappedMedium>(subject: &impl Subject<M>, act: &ThreadOp) -> Result<Answer, Violation> {
    Ok(match act {
        ThreadOp::Get(key) => Answer::Found(subject.get(*key)?),
        ThreadOp::Scan => {
            let mut found = Vec::new();
            subject.scan(&mut |key, version| found.push((key, version)))?;
            Answer::Scanned(found)
        }
        &ThreadOp::Range(from, to, direction) => {
            let mut found: Vec<(Key, Version)> = Vec::new();
            subject.range(from, to, direction, &mut |key, version| found.push((key, version)))?;
            let is_inside = found.iter().all(|(key, _)| (from..=to).contains(key));
            let in_order = |pair: &[(Key, Version)]| match direction {
                Direction::Forward => pair[0].0 < pair[1].0,
                Direction::Backward => pair[0].0 > pair[1].0,
            };
            if !is_inside || !found.windows(2).all(in_order) {
                return Err(format!("it finds {}", Answer::Scanned(found)));
            }
            Answer::Scanned(found)
        }
        ThreadOp::Snapshot(keys) => {
            let found = subject.snapshot(keys)?;
            let found = keys.iter().zip(found).filter_map(|(&key, found)| Some((key, found?)));
            Answer::Scanned(found.collect())
        }
        ThreadOp::Count => subject.count().map_or(Answer::Done, Answer::Counted),
        ThreadOp::Collect => {
            subject.collect();
            Answer::Done
        }
        ThreadOp::RecoverDead => {
            subject.recover_dead();
            Answer::Done
        }
        ThreadOp::Do(op) => match subject.apply(op) {
            Reply::Found(found) if subject.knows_what_it_found(op) => Answer::Found(found),
            Reply::Found(_) => Answer::Done,
            Reply::Full | Reply::Partly(_) => Answer::Full,
            Reply::Broken(why) => return Err(why.to_string()),
        },
    })
}

/// Checks what the threads left.
fn check_result<T: Target, const V: bool>(
    scheduler: &Scheduler,
    group: &PoolGroup<T, V>,
    scenario: &Scenario,
    calls: &Calls,
    seed: u64,
) -> Result<(), Violation> {
    let living = group.living(scenario.threads.len());
    let judge = living[seed as usize % living.len()];
    let (subject, keys) = (group.of(judge), scenario.plan.keys);
    let (end, finds_once) = scheduler.alone_in(judge, {
        let (subject, is_shared) = (subject.clone(), scenario.is_shared);
        move || {
            if is_shared {
                subject.recover_dead();
            }
            let end = read(&*subject, keys)?;
            check_scan(&*subject, &end)?;
            Ok::<_, Violation>((end, subject.finds_once()))
        }
    })??;
    calls.explain(&end)?;
    if finds_once {
        calls.check_scans()?;
    }
    if scenario.crashes.is_empty() {
        calls.check_counts()?;
    }
    if scenario.is_shared {
        check_collection::<T, V>(scheduler, group, judge, living.len())?;
    }
    drain_caches::<T, V>(scheduler, group, &living)?;
    scheduler.alone_in(judge, {
        let (subject, is_reopened) = (subject.clone(), scenario.is_reopened);
        move || {
            if is_reopened {
                // A reduced scenario may have dropped the thread's own collection.
                subject.collect();
            }
            check_memory(&*subject)
        }
    })??;
    if scenario.is_shared && seed.is_multiple_of(2) {
        check_late_joiner::<T, V>(scheduler, group, scenario, judge, &end)?;
    }
    if seed.is_multiple_of(4) {
        let plan = scenario.plan.clone();
        scheduler.alone_in(judge, move || check_further_operations(&*subject, &plan.after, end))??;
    }
    Ok(())
}

/// Collects everything the dead participants leaked, with no other thread active. Only the `living`
/// remain in the participant table.
fn check_collection<T: Target, const V: bool>(
    scheduler: &Scheduler,
    group: &PoolGroup<T, V>,
    judge: usize,
    living: usize,
) -> Result<(), Violation> {
    let subject = group.of(judge);
    scheduler.alone_in(judge, move || {
        subject.collect();
        let pool = subject.pool();
        if pool.needs_collection() {
            return Err("a collection without other threads leaves a collection pending".to_string());
        }
        if pool.recover_dead() > 0 {
            return Err("a recovered participant has to be recovered again".to_string());
        }
        match pool.testing().participants_taken() as usize {
            taken if taken == living => Ok(()),
            taken => Err(format!(
                "{taken} entries of the participant table are taken, but {living} participants are alive"
            )),
        }
    })?
}

/// One more participant joins, checks the content and leaves.
fn check_late_joiner<T: Target, const V: bool>(
    scheduler: &Scheduler,
    group: &PoolGroup<T, V>,
    scenario: &Scenario,
    thread: usize,
    expected: &Contents,
) -> Result<(), Violation> {
    if group.living(scenario.threads.len()).len() == THREADS_MAX {
        // The participant table is full.
        return Ok(());
    }
    let another = group.add_process(scheduler, thread, scenario, false)?;
    let (keys, expected) = (scenario.plan.keys, expected.clone());
    scheduler.alone_in(thread, move || {
        let found = read(&another, keys)?;
        (found == expected).then_some(()).ok_or("a later participant finds another content".to_string())
    })?
}

/// The survivors close the pool, in order; the next opening finds it closed and complete.
fn close_and_reopen<T: Target, const V: bool>(
    scheduler: &Scheduler,
    group: &mut PoolGroup<T, V>,
    scenario: &Scenario,
) -> Result<(), Violation> {
    let survivor = group.living(scenario.threads.len())[0];
    let (subject, keys) = (group.of(survivor), scenario.plan.keys);
    let expected = scheduler.alone_in(survivor, move || read(&*subject, keys))??;
    group.close(scheduler)?;
    let (medium, plan) = (group.medium().clone(), scenario.plan.clone());
    scheduler.alone_in(survivor, move || {
        let subject = T::Subject::recover(medium, &plan)?
            .ok_or("the pool is empty after all participants have left")?;
        if subject.pool().found() != Start::Clean {
            return Err("the last participant has left, but the pool is not closed".to_string());
        }
        let found = read(&subject, keys)?;
        check_scan(&subject, &found)?;
        check_memory(&subject)?;
        subject.abandon();
        (found == expected)
            .then_some(())
            .ok_or("after all participants have left, the content is another".to_string())
    })?
}

/// Each of these threads returns the memory in its caches, one after the other.
fn drain_caches<T: Target, const V: bool>(
    scheduler: &Scheduler,
    group: &PoolGroup<T, V>,
    threads: &[usize],
) -> Result<(), Violation> {
    for &thread in threads {
        let subject = group.of(thread);
        let drained = scheduler.alone_in(thread, move || _ = subject.pool().reclaim_blocking());
        drained.map_err(|wrong| format!("when the caches are drained, {wrong}"))?;
    }
    Ok(())
}

/// Further operations work as usual.
fn check_further_operations<M: MappedMedium>(
    subject: &impl Subject<M>,
    after: &[Op],
    mut model: Contents,
) -> Result<(), Violation> {
    for key in (0..model.len()).filter(|key| key % 2 == 0) {
        apply_checked(subject, &Op::Remove(key), &mut model)?;
    }
    after.iter().try_for_each(|op| apply_checked(subject, op, &mut model).map(drop))?;
    if read(subject, model.len())? != model {
        return Err("after further operations, the store does not hold what they left".into());
    }
    check_scan(subject, &model)
}
