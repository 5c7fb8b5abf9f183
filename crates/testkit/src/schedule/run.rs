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
use super::crew::{Crew, On};
use super::medium::Scheduled;
use super::policy::Policy;
use super::scenario::{Act, Manner, Scenario};
use super::stage::{Job, Ran, Stage, THREADS_MAX, begin_call, now, pause};
use crate::crash::{Op, Reply, Subject, Target, Wrong};
use crate::crash::{check_memory, check_scan, do_it, note_begin, note_end, read};
use crate::{Layered, Noted};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_medium::MappedMedium;
use terrace_pool::Start;

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// The schedule.
    pub ran: Ran,
    /// The calls and their answers.
    pub calls: Calls,
    /// The violation, if any.
    pub wrong: Option<Wrong>,
}

/// Runs `scenario` once on the zeroed `medium`.
pub fn run<T: Target, const V: bool>(
    stage: &Stage,
    medium: impl Noted,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Result<Run, Wrong> {
    let medium = Layered::over(Arc::new(Scheduled::over(medium)));
    run_on::<T, V>(stage, medium, scenario, policy, seed, &|| (), &|_| ())
}

/// As [`run`]. Calls `begins` before the threads start, and `ends` after they have ended, before
/// any check.
pub(super) fn run_on<T: Target, const V: bool>(
    stage: &Stage,
    medium: Layered<V>,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
    begins: &dyn Fn(),
    ends: &dyn Fn(&On<T, V>),
) -> Result<Run, Wrong> {
    let (mut crew, initial) = begin::<T, V>(stage, medium, scenario)?;
    begins();
    let (ran, calls) = act(stage, &crew, scenario, initial, policy, seed);
    ends(&crew.of(0));
    let mut wrong = ran.wrong.clone().or_else(|| crew.medium().wrong());
    if wrong.is_none() {
        wrong = judge(stage, &crew, scenario, &calls, seed).err();
    }
    if wrong.is_none() && scenario.is_shared && seed % 4 == 1 {
        wrong = part(stage, &mut crew, scenario).err();
    }
    stage.bury();
    crew.let_go(stage);
    Ok(Run { ran, calls, wrong })
}

/// As [`run`], but without checks; returns the schedule.
pub fn rehearse<T: Target, const V: bool>(
    stage: &Stage,
    medium: impl Noted,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Result<Ran, Wrong> {
    let medium = Layered::over(Arc::new(Scheduled::over(medium)));
    let (crew, initial) = begin::<T, V>(stage, medium, scenario)?;
    let (ran, _) = act(stage, &crew, scenario, initial, policy, seed);
    stage.bury();
    crew.let_go(stage);
    Ok(ran)
}

/// Creates the store and applies the operations that precede the threads.
pub(super) fn begin<T: Target, const V: bool>(
    stage: &Stage,
    medium: Layered<V>,
    scenario: &Scenario,
) -> Result<(Crew<T, V>, Contents), Wrong> {
    let early = |wrong| format!("before any thread started, {wrong}");
    let crew = Crew::<T, V>::create(stage, medium, scenario).map_err(early)?;
    let (subject, plan) = (crew.of(0), scenario.plan.clone());
    let before = stage.alone(move || {
        let mut model = vec![None; plan.keys];
        plan.before.iter().try_for_each(|op| do_it(&*subject, op, &mut model).map(drop))?;
        Ok(model)
    });
    let initial = before.flatten().map_err(early)?;
    let crew = if scenario.is_reopened { crew.reopened(stage, scenario).map_err(early)? } else { crew };
    Ok((crew, initial))
}

/// Runs the threads. Crashed threads are not detached yet.
pub(super) fn act<T: Target, const V: bool>(
    stage: &Stage,
    crew: &Crew<T, V>,
    scenario: &Scenario,
    initial: Contents,
    policy: &Policy,
    seed: u64,
) -> (Ran, Calls) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let count = scenario.threads.len();
    let (here, mut first) = (Arc::new(AtomicUsize::new(0)), 0);
    let jobs = scenario.threads.iter().enumerate().map(|(thread, acts)| {
        let (subject, calls, acts, number) = (crew.of(thread), calls.clone(), acts.clone(), first);
        first += acts.len();
        let (here, dead, is_shared) = (here.clone(), crew.deaths(), scenario.is_shared);
        let is_pinned = scenario.manner(thread) == Manner::Pinned;
        let job: Job = Box::new(move || {
            let end = acts.len();
            let mut pin = None;
            for (place, act) in acts.into_iter().enumerate() {
                begin_call(place);
                let medium = subject.pool().medium();
                medium.note(note_begin(number + place));
                if is_pinned && place == 0 {
                    pin = Some(subject.pool().pin());
                }
                call::<T, V>(&subject, &calls, thread, number + place, act);
                if place + 1 == end {
                    drop(pin.take());
                }
                medium.note(note_end(number + place));
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
                subject.look_after();
            }
        });
        (thread, job)
    });
    let jobs: Vec<(usize, Job)> = jobs.collect();
    let ran = stage.run_mortals(jobs, crew.mortality(scenario), policy, seed);
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
    act: Act,
) {
    let write = |call: Call| {
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|(other, _)| *other != number);
        calls.push((number, call));
    };
    let called = now();
    write(Call { number, thread, act: act.clone(), called, returned: None });
    let answer = ask(subject, &act);
    let returned = now();
    match answer {
        Ok(answer) => write(Call { number, thread, act, called, returned: Some((returned, answer)) }),
        Err(why) => panic!("{act} fails: {why}"),
    }
}

fn ask<M: MappedMedium>(subject: &impl Subject<M>, act: &Act) -> Result<Answer, Wrong> {
    Ok(match act {
        Act::Get(key) => Answer::Found(subject.get(*key)?),
        Act::Scan => {
            let mut found = Vec::new();
            subject.scan(&mut |key, version| found.push((key, version)))?;
            Answer::Scanned(found)
        }
        Act::Snapshot(keys) => {
            let found = subject.snapshot(keys)?;
            let found = keys.iter().zip(found).filter_map(|(&key, found)| Some((key, found?)));
            Answer::Scanned(found.collect())
        }
        Act::Count => subject.count().map_or(Answer::Done, Answer::Counted),
        Act::Collect => {
            subject.collect();
            Answer::Done
        }
        Act::LookAfter => {
            subject.look_after();
            Answer::Done
        }
        Act::Do(op) => match subject.apply(op) {
            Reply::Found(found) if subject.knows_what_it_found(op) => Answer::Found(found),
            Reply::Found(_) => Answer::Done,
            Reply::Full => Answer::Full,
            Reply::Broken(why) => return Err(why.to_string()),
        },
    })
}

/// Checks what the threads left.
fn judge<T: Target, const V: bool>(
    stage: &Stage,
    crew: &Crew<T, V>,
    scenario: &Scenario,
    calls: &Calls,
    seed: u64,
) -> Result<(), Wrong> {
    let living = crew.living(scenario.threads.len());
    let judge = living[seed as usize % living.len()];
    let (subject, keys) = (crew.of(judge), scenario.plan.keys);
    let (end, finds_once) = stage.alone_in(judge, {
        let (subject, is_shared) = (subject.clone(), scenario.is_shared);
        move || {
            if is_shared {
                subject.look_after();
            }
            let end = read(&*subject, keys)?;
            check_scan(&*subject, &end)?;
            Ok::<_, Wrong>((end, subject.finds_once()))
        }
    })??;
    calls.explain(&end)?;
    if finds_once {
        calls.found_once()?;
    }
    if scenario.deaths.is_empty() {
        calls.counted()?;
    }
    if scenario.is_shared {
        collected::<T, V>(stage, crew, judge, living.len())?;
    }
    settle::<T, V>(stage, crew, &living)?;
    stage.alone_in(judge, {
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
        join::<T, V>(stage, crew, scenario, judge, &end)?;
    }
    if seed.is_multiple_of(4) {
        let plan = scenario.plan.clone();
        stage.alone_in(judge, move || go_on(&*subject, &plan.after, end))??;
    }
    Ok(())
}

/// Collects everything the dead participants leaked, with no other thread active. Only the `living`
/// remain in the participant table.
fn collected<T: Target, const V: bool>(
    stage: &Stage,
    crew: &Crew<T, V>,
    judge: usize,
    living: usize,
) -> Result<(), Wrong> {
    let subject = crew.of(judge);
    stage.alone_in(judge, move || {
        subject.collect();
        let pool = subject.pool();
        if pool.needs_collection() {
            return Err("a collection without other threads leaves a collection pending".to_string());
        }
        if pool.recover_dead() > 0 {
            return Err("a recovered participant has to be recovered again".to_string());
        }
        match pool.slots_taken() as usize {
            taken if taken == living => Ok(()),
            taken => Err(format!(
                "{taken} entries of the participant table are taken, but {living} participants are alive"
            )),
        }
    })?
}

/// One more participant joins, checks the content and leaves.
fn join<T: Target, const V: bool>(
    stage: &Stage,
    crew: &Crew<T, V>,
    scenario: &Scenario,
    thread: usize,
    expected: &Contents,
) -> Result<(), Wrong> {
    if crew.living(scenario.threads.len()).len() == THREADS_MAX {
        // The participant table is full.
        return Ok(());
    }
    let another = crew.another(stage, thread, scenario, false)?;
    let (keys, expected) = (scenario.plan.keys, expected.clone());
    stage.alone_in(thread, move || {
        let found = read(&another, keys)?;
        (found == expected).then_some(()).ok_or("a later participant finds another content".to_string())
    })?
}

/// The survivors close the pool, in order; the next opening finds it closed and complete.
fn part<T: Target, const V: bool>(
    stage: &Stage,
    crew: &mut Crew<T, V>,
    scenario: &Scenario,
) -> Result<(), Wrong> {
    let survivor = crew.living(scenario.threads.len())[0];
    let (subject, keys) = (crew.of(survivor), scenario.plan.keys);
    let expected = stage.alone_in(survivor, move || read(&*subject, keys))??;
    crew.leave(stage)?;
    let (medium, plan) = (crew.medium().clone(), scenario.plan.clone());
    stage.alone_in(survivor, move || {
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
fn settle<T: Target, const V: bool>(
    stage: &Stage,
    crew: &Crew<T, V>,
    threads: &[usize],
) -> Result<(), Wrong> {
    for &thread in threads {
        let subject = crew.of(thread);
        let settled = stage.alone_in(thread, move || _ = subject.pool().relieve());
        settled.map_err(|wrong| format!("when the caches are drained, {wrong}"))?;
    }
    Ok(())
}

/// Further operations work as usual.
fn go_on<M: MappedMedium>(subject: &impl Subject<M>, after: &[Op], mut model: Contents) -> Result<(), Wrong> {
    for key in (0..model.len()).filter(|key| key % 2 == 0) {
        do_it(subject, &Op::Remove(key), &mut model)?;
    }
    after.iter().try_for_each(|op| do_it(subject, op, &mut model).map(drop))?;
    if read(subject, model.len())? != model {
        return Err("after further operations, the store does not hold what they left".into());
    }
    check_scan(subject, &model)
}
