//! One run: a store is made, threads do what the scenario says in the order that the policy says, and what they leave is judged.
//!
//! What must hold: each call comes to its end without a panic; one order of the calls explains all answers and what the store holds then; a scan finds the same;
//! `verify` finds nothing; no block leaks or is handed out twice; and the store goes on.

use super::calls::{Answer, Call, Calls, Contents};
use super::medium::Scheduled;
use super::policy::Policy;
use super::scenario::{Act, Scenario};
use super::stage::{Job, Ran, Stage, now};
use crate::crash::{Op, Reply, Subject, Target, Wrong};
use crate::crash::{check_memory, check_scan, do_it, note_begin, note_end, read};
use crate::{Layered, Noted};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_medium::MappedMedium;

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// The schedule.
    pub ran: Ran,
    /// What was asked and answered.
    pub calls: Calls,
    /// What is wrong, if anything.
    pub wrong: Option<Wrong>,
}

/// Does `scenario` once on `medium`, which is zeroed.
pub fn run<T: Target, const V: bool>(
    stage: &Stage,
    medium: impl Noted,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Result<Run, Wrong> {
    let plan = scenario.plan.clone();
    let medium = Layered::over(Arc::new(Scheduled::over(medium)));
    let made = stage.alone(move || {
        let subject: On<T, V> = T::Subject::create(medium, &plan);
        let mut model = vec![None; plan.keys];
        plan.before.iter().try_for_each(|op| do_it(&subject, op, &mut model).map(drop))?;
        Ok::<_, Wrong>((Arc::new(subject), model))
    })?;
    let (subject, initial) = made.map_err(|wrong| format!("before any thread started, {wrong}"))?;
    let (ran, calls) = act::<T, V>(stage, &subject, scenario, initial, policy, seed);
    let wrong = match &ran.wrong {
        Some(wrong) => Some(wrong.clone()),
        None => judge::<T, V>(stage, &subject, scenario, &calls, seed).err(),
    };
    let_go::<T, V>(stage, subject);
    Ok(Run { ran, calls, wrong })
}

/// The subject of a run.
type On<T, const V: bool> = <T as Target>::Subject<Layered<V>>;

/// Runs the threads.
pub(super) fn act<T: Target, const V: bool>(
    stage: &Stage,
    subject: &Arc<On<T, V>>,
    scenario: &Scenario,
    initial: Contents,
    policy: &Policy,
    seed: u64,
) -> (Ran, Calls) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut first = 0;
    let jobs = scenario.threads.iter().enumerate().map(|(thread, acts)| {
        let (subject, calls, acts, number) = (subject.clone(), calls.clone(), acts.clone(), first);
        first += acts.len();
        let job: Job = Box::new(move || {
            for (place, act) in acts.into_iter().enumerate() {
                call::<T, V>(&subject, &calls, thread, number + place, act);
            }
        });
        job
    });
    let jobs: Vec<Job> = jobs.collect();
    let ran = stage.run(jobs, policy, seed);
    let mut calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
    calls.sort_by_key(|(number, _)| *number);
    (ran, Calls { initial, calls: calls.into_iter().map(|(_, call)| call).collect() })
}

/// Makes call `number` and writes it down.
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
    let medium = subject.pool().medium();
    let called = now();
    medium.note(note_begin(number));
    write(Call { thread, act: act.clone(), called, returned: None });
    let answer = ask(subject, &act);
    let returned = now();
    medium.note(note_end(number));
    match answer {
        Ok(answer) => write(Call { thread, act, called, returned: Some((returned, answer)) }),
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
        Act::Collect => {
            subject.collect();
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

/// Judges what the threads have left.
fn judge<T: Target, const V: bool>(
    stage: &Stage,
    subject: &Arc<On<T, V>>,
    scenario: &Scenario,
    calls: &Calls,
    seed: u64,
) -> Result<(), Wrong> {
    let keys = scenario.plan.keys;
    let with = |work: fn(&On<T, V>, usize) -> Result<Contents, Wrong>| {
        let subject = subject.clone();
        stage.alone(move || work(&subject, keys))?
    };
    let end = with(|subject, keys| {
        let end = read(subject, keys)?;
        check_scan(subject, &end)?;
        Ok(end)
    })?;
    calls.explain(&end)?;
    settle::<T, V>(stage, subject, scenario.threads.len())?;
    with(|subject, _| check_memory(subject).map(|()| Vec::new()))?;
    if seed.is_multiple_of(4) {
        let (subject, plan) = (subject.clone(), scenario.plan.clone());
        stage.alone(move || go_on(&*subject, &plan.after, end))??;
    }
    Ok(())
}

/// Every thread lets go of what it has set aside, one after the other.
fn settle<T: Target, const V: bool>(
    stage: &Stage,
    subject: &Arc<On<T, V>>,
    threads: usize,
) -> Result<(), Wrong> {
    let jobs = (0..threads).map(|_| {
        let subject = subject.clone();
        let job: Job = Box::new(move || _ = subject.pool().relieve());
        job
    });
    let ran = stage.run(jobs.collect(), &Policy::Script(Vec::new()), 0);
    ran.wrong.map_or(Ok(()), |wrong| Err(format!("when all memory is asked back, {wrong}")))
}

/// The store goes on as if nothing had been.
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

/// Lets go of it as a process does that dies.
pub(super) fn let_go<T: Target, const V: bool>(stage: &Stage, subject: Arc<On<T, V>>) {
    if let Some(subject) = Arc::into_inner(subject) {
        let _ = stage.alone(move || subject.abandon());
    }
}
