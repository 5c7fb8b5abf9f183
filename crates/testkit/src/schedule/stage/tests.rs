//! Tests of the scheduler: turns, crashes, spinning threads, panics and endless runs.

use super::*;
use crate::schedule::ThreadCrash;

fn record(into: &Arc<Mutex<Vec<u64>>>, steps: usize) -> Job {
    let into = into.clone();
    Box::new(move || {
        for _ in 0..steps {
            step(None);
            lock(&into).push(number());
        }
    })
}

#[test]
fn seed_and_script_repeat_a_run() {
    let scheduler = Scheduler::new();
    for seed in 0..50 {
        let policy = Policy::Random { one_in: 2 };
        let run = |policy: &Policy| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let jobs = (0..3).map(|thread| record(&order, 10 + thread)).collect();
            let ran = scheduler.run(jobs, policy, seed);
            assert_eq!((ran.steps, ran.wrong.clone()), (33, None));
            let order = lock(&order).clone();
            (order, ran.slices())
        };
        let (order, slices) = run(&policy);
        assert_eq!(run(&policy).0, order);
        assert_eq!(run(&Policy::Script(slices)).0, order);
    }
}

/// Its drop stores, like a guard of a crashed thread that is detached.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        persisted(Location::caller());
        ordered(Order::Store(Release), Location::caller());
        step(None);
    }
}

#[test]
fn crashed_thread_stops_until_it_is_detached() {
    let scheduler = Scheduler::new();
    for seed in 0..50 {
        let (order, dead) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let jobs = (0..3).map(|thread| {
            let work = record(&order, 20);
            let job: Job = Box::new(move || {
                begin_call(0);
                let _guard = Guard;
                work();
            });
            (thread, job)
        });
        let crashes = vec![
            ThreadCrash { thread: 1, call: 0, change: 7 },
            ThreadCrash { thread: 2, call: 1, change: 1 },
        ];
        let crashed = dead.clone();
        let crash_plan = CrashPlan::new(crashes, move |thread| lock(&crashed).push(thread));
        let ran = scheduler.run_crashing(jobs.collect(), crash_plan, &Policy::Random { one_in: 2 }, seed);
        assert_eq!(ran.died.iter().map(|died| died.0).collect::<Vec<_>>(), [1]);
        assert_eq!((ran.wrong, lock(&dead).clone()), (None, vec![1]));
        let done = |thread| lock(&order).iter().filter(|&&by| by == thread).count();
        assert_eq!((done(0), done(1), done(2)), (20, 6, 20));
        assert_eq!(scheduler.alone_in(2, number), Ok(2));
        scheduler.detach_dead();
        assert_eq!((scheduler.alone_in(1, number), done(1)), (Ok(1), 6));
    }
}

#[test]
fn spinning_thread_yields() {
    let scheduler = Scheduler::new();
    for seed in 0..50 {
        let flag = Arc::new(AtomicBool::new(false));
        let (set, seen) = (flag.clone(), flag);
        let spin: Job = Box::new(move || {
            while !seen.load(Relaxed) {
                step(Some(64));
            }
        });
        let other: Job = Box::new(move || {
            (0..5).for_each(|_| step(None));
            set.store(true, Relaxed);
        });
        let ran = scheduler.run(vec![spin, other], &Policy::Pct { depth: 2, steps: 10 }, seed);
        assert!(ran.wrong.is_none() && ran.steps < 100, "{ran:?}");
    }
}

#[test]
fn panics_and_endless_runs_are_reported() {
    let scheduler = Scheduler::new();
    let panics: Job = Box::new(|| {
        step(None);
        panic!("as asked");
    });
    let ran = scheduler.run(vec![panics, Box::new(|| step(None))], &Policy::Random { one_in: 2 }, 1);
    assert!(ran.wrong.is_some_and(|wrong| wrong.contains("as asked")));
    let endless = || -> Job {
        Box::new(|| {
            loop {
                step(None);
            }
        })
    };
    let ran = scheduler.run(vec![endless(), endless()], &Policy::Random { one_in: 64 }, 1);
    assert!(ran.wrong.is_some_and(|wrong| wrong.contains("does not terminate")));
    assert_eq!(scheduler.alone(|| 7), Ok(7));
}
