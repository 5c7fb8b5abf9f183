//! A scheduler of real threads: one runs at a time, and before each step the policy decides which
//! thread continues.
//!
//! ```text
//!   caller --turn--> thread 1 . . . --turn--> thread 0 . . --turn--> thread 1 --turn--> caller
//!                    runs, and before each step asks the policy: mostly it continues itself,
//!                    which costs some 20 ns; else it unparks the next thread and parks, which
//!                    costs two context switches
//! ```
//! The threads are operating system threads, not coroutines. The product keeps per-thread state (a
//! pool's thread slot) in thread-local variables, and must be tested as it is. The threads live as
//! long as the scheduler and share one core, so a switch wakes no other core.
//!
//! A thread that spins reads the same words repeatedly. It then yields, or a scheduler with
//! priorities would let it spin forever. A thread can also wait for something outside the medium,
//! such as a mutex whose holder is parked. A timeout detects that, and the run is aborted with this
//! as its outcome.
//!
//! A thread can crash: it is parked at a chosen step and does not run again in this run, so it
//! stores nothing more while the others continue. After all checks of the run it is *detached*: it
//! unwinds, and its stores from then on are ignored.

mod core;
mod state;

use self::core::Core;
use super::cues::At;
use super::death::{CrashPlan, CrashSite};
use super::policy::{Policy, PolicyRunner, Slice, Threads};
use super::spin::Spin;
use crate::crash::Violation;
use crate::crash::{catch_panic, place};
use crate::points;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use terrace_medium::{Access, Order};

/// Maximum number of threads.
pub const THREADS_MAX: usize = 4;

/// Steps in a row after which a thread yields if there are others. It may be in a waiting loop that
/// does more than read.
const STEPS_IN_A_ROW: u32 = 4_000;
/// Steps after which a run is assumed never to end.
const STEPS_MAX: u64 = 2_000_000;
/// The caller polls for progress this often. After this many polls in a row without a step, a
/// thread is assumed to wait for a parked one. Many short polls instead of one long timeout: on a
/// busy or suspended machine the caller is late as well, and then only once.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 30;

/// The work of a thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// A thread's last access: its kind, offset and place in the source.
pub type Last = (Access, u64, &'static Location<'static>);

/// Consecutive steps of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The thread and the number of steps.
    pub slice: Slice,
    /// The thread's last access in it, if any.
    pub after: Option<Last>,
    /// The time at which it ended, on the run's clock.
    pub until: u64,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunResult {
    /// The schedule.
    pub turns: Vec<Turn>,
    /// Total number of steps.
    pub steps: u64,
    /// The failure of a thread: a panic, or the reason why the run was aborted.
    pub wrong: Option<Violation>,
    /// Steps other than loads, by thread and call.
    pub changes: Vec<Vec<u64>>,
    /// Crashed threads in order, each with the time of its crash.
    pub died: Vec<(usize, u64)>,
    /// Crash points of threads that have requested durability but do not have it yet, with the
    /// place of the request.
    pub persist_requests: Vec<CrashSite>,
    /// Crash points right after a store that other threads rely on, with the place of the store.
    /// Only for shared pools.
    pub ordered: Vec<CrashSite>,
}

impl RunResult {
    /// The schedule, as input of [`Policy::Script`].
    pub fn slices(&self) -> Vec<Slice> {
        self.turns.iter().map(|turn| turn.slice).collect()
    }
}

struct State {
    policy_runner: PolicyRunner,
    runnable: Threads,
    running: usize,
    turns: Vec<Turn>,
    in_a_row: u32,
    spin: Spin,
    wrong: Option<Violation>,
    caller: Option<Thread>,
    crash_plan: CrashPlan,
    changes: Vec<Vec<u64>>,
    died: Vec<(usize, u64)>,
    persist_requests: Vec<CrashSite>,
    ordered: Vec<CrashSite>,
}

/// The state shared by the threads of a scheduler.
struct Turns {
    /// The thread whose turn it is, or [`CALLER`].
    turn: AtomicUsize,
    jobs: [Mutex<Option<Job>>; THREADS_MAX],
    state: Mutex<State>,
    steps: AtomicU64,
    clock: AtomicU64,
    /// Whether the policy is notified of each access with an ordering.
    tracks_order: AtomicBool,
    /// Whether the policy is a script of breakpoints.
    is_scripted: AtomicBool,
    /// Number of threads with a job.
    busy: AtomicUsize,
    given_up: AtomicBool,
    closing: AtomicBool,
    /// Threads that have crashed and are not detached, one bit each.
    dead: AtomicU8,
    detaching: AtomicBool,
    threads: Mutex<Vec<Thread>>,
}

const CALLER: usize = usize::MAX;
/// The pseudo-offset loaded by a thread that waits for another outside the medium.
const NOWHERE: u64 = u64::MAX - 7;

thread_local! {
    static STAGE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
}

/// Calls `act` in a thread of a scheduler, unless the thread has crashed and is being detached.
#[inline]
fn with_scheduler(act: impl FnOnce(&Turns, usize)) {
    let _ = STAGE.try_with(|scheduler| {
        if let Ok(scheduler) = scheduler.try_borrow()
            && let Some((turns, me)) = &*scheduler
            && !turns.is_dead(*me)
        {
            act(turns, *me);
        }
    });
}

/// Waits for this thread's turn to do a step: a load at this offset, or any other step.
#[inline]
pub(super) fn step(load: Option<u64>) {
    with_scheduler(|turns, me| turns.step(me, load));
}

/// Records this thread's last access.
#[inline]
pub(super) fn accessed(access: Access, offset: u64, site: &'static Location<'static>) {
    let _ = LAST.try_with(|last| last.set(Some((access, offset, site))));
}

/// Records that this thread requests durability at a place.
#[inline]
pub(super) fn persisted(site: &'static Location<'static>) {
    with_scheduler(|turns, me| {
        let mut state = lock(&turns.state);
        state.policy_runner.persisted(me, site, turns.steps.load(Relaxed));
        state.record_persist_request(me, site);
    });
}

/// Records that this thread is about to do an access with an ordering.
#[inline]
pub(super) fn ordered(order: Order, site: &'static Location<'static>) {
    with_scheduler(|turns, me| {
        if turns.tracks_order.load(Relaxed) {
            let mut state = lock(&turns.state);
            if !matches!(order, Order::RmwFailed(_)) {
                state.policy_runner.reach(me, At::Access(points::current()));
            }
            if matches!(order, Order::Store(it) | Order::Rmw(it) if it != Relaxed) {
                state.record_ordered_store(me, site);
            }
        }
    });
}

/// Makes a barrier a step, if the policy is a script of breakpoints.
#[inline]
pub(super) fn before_barrier(order: Order) {
    with_scheduler(|turns, me| {
        if turns.is_scripted.load(Relaxed) && matches!(order, Order::Barrier | Order::GlobalBarrier) {
            lock(&turns.state).policy_runner.reach(me, At::Access(points::current()));
            turns.step(me, None);
        }
    });
}

/// Marks a place in a test's thread, at which a script can stop it.
pub fn mark(number: u32) {
    with_scheduler(|turns, me| {
        if turns.is_scripted.load(Relaxed) {
            lock(&turns.state).policy_runner.reach(me, At::Mark(number));
            turns.step(me, None);
        }
    });
}

/// Whether the script makes the running thread load stale values there.
pub(super) fn sees_old(point: Option<&str>) -> bool {
    let mut sees_old = false;
    with_scheduler(|turns, _| sees_old = lock(&turns.state).policy_runner.sees_old(point));
    sees_old
}

/// Whether the script places the running thread's store there before the stores of other threads.
pub(super) fn stores_early(point: Option<&str>) -> bool {
    let mut stores_early = false;
    with_scheduler(|turns, _| stores_early = lock(&turns.state).policy_runner.stores_early(point));
    stores_early
}

/// The next time on the run's clock: each call returns a new one, in increasing order. 0 outside a
/// scheduler.
pub(super) fn now() -> u64 {
    STAGE.with_borrow(|scheduler| {
        scheduler.as_ref().map_or(0, |(turns, _)| turns.clock.fetch_add(1, Relaxed) + 1)
    })
}

/// Yields in a loop that waits for another thread outside the medium.
pub(crate) fn pause() {
    step(Some(NOWHERE));
    std::thread::yield_now();
}

/// Replaces sleeping: yields until another thread has run.
fn yield_on_wait() {
    (0..=Spin::ROUNDS).for_each(|_| step(Some(NOWHERE)));
}

/// Begins call number `call` of this thread, counted from 0. Crash points refer to these numbers.
pub(super) fn begin_call(call: usize) {
    STAGE.with_borrow(|scheduler| {
        if let Some((turns, me)) = scheduler {
            let mut state = lock(&turns.state);
            let changes = &mut state.changes[*me];
            changes.resize(call + 1, 0);
            if turns.is_scripted.load(Relaxed) {
                state.policy_runner.reach(*me, At::Call(call));
                drop(state);
                turns.step(*me, None);
            }
        }
    });
}

/// This thread's number in its scheduler.
pub(super) fn number() -> u64 {
    STAGE.with_borrow(|scheduler| scheduler.as_ref().map_or(u64::MAX, |(_, me)| *me as u64))
}

/// A scheduler with [`THREADS_MAX`] threads that run according to a policy.
pub struct Scheduler {
    turns: Arc<Turns>,
    handles: Vec<JoinHandle<()>>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler {
    /// Starts the threads, all on one core.
    pub fn new() -> Self {
        let turns = Arc::new(Turns::new());
        let core = Core::next();
        let start = |me| {
            let turns = turns.clone();
            std::thread::spawn(move || {
                core.stay();
                terrace_pool::set_thread_number(me as u32 + 1);
                terrace_pool::rest_with(yield_on_wait);
                STAGE.set(Some((turns.clone(), me)));
                turns.serve_jobs(me);
            })
        };
        let handles: Vec<_> = (0..THREADS_MAX).map(start).collect();
        *turns.threads() = handles.iter().map(|handle| handle.thread().clone()).collect();
        Self { turns, handles }
    }

    /// Runs the jobs, the first one in thread 0. Only one caller at a time.
    pub fn run(&self, jobs: Vec<Job>, policy: &Policy, seed: u64) -> RunResult {
        self.run_crashing(jobs.into_iter().enumerate().collect(), CrashPlan::default(), policy, seed)
    }

    /// Runs each job in the thread with its number; none of these may be crashed. Threads that
    /// crash must be [detached](Self::detach_dead) afterwards.
    pub(super) fn run_crashing(
        &self,
        jobs: Vec<(usize, Job)>,
        crash_plan: CrashPlan,
        policy: &Policy,
        seed: u64,
    ) -> RunResult {
        let count = jobs.len();
        assert!(
            (1..=THREADS_MAX).contains(&count),
            "a scheduler runs 1 to {THREADS_MAX} threads, not {count}"
        );
        let turns = &*self.turns;
        let runnable = jobs.iter().fold(0, |bits, (thread, _)| bits | 1 << thread);
        assert!(runnable & turns.dead.load(Acquire) == 0, "a crashed thread cannot run a job");
        turns.given_up.store(false, Relaxed);
        turns.steps.store(0, Relaxed);
        turns.clock.store(0, Relaxed);
        let is_scripted = matches!(policy, Policy::Cued(_));
        turns.is_scripted.store(is_scripted, Relaxed);
        let tracks_order = is_scripted || crash_plan.is_observed();
        turns.tracks_order.store(tracks_order, Relaxed);
        turns.busy.store(count, Relaxed);
        for (thread, job) in jobs {
            *lock(&turns.jobs[thread]) = Some(job);
        }
        let first = {
            let mut state = lock(&turns.state);
            *state = State::new(PolicyRunner::new(policy, seed), runnable);
            state.crash_plan = crash_plan;
            state.caller = Some(std::thread::current());
            state.running = state.policy_runner.next(runnable, None, false, 0);
            state.running
        };
        turns.pass_to(first);
        self.wait();
        let mut state = lock(&turns.state);
        RunResult {
            turns: std::mem::take(&mut state.turns),
            steps: turns.steps.load(Relaxed),
            wrong: state.wrong.take().or_else(|| state.policy_runner.unreached()),
            changes: std::mem::take(&mut state.changes),
            died: std::mem::take(&mut state.died),
            persist_requests: std::mem::take(&mut state.persist_requests),
            ordered: std::mem::take(&mut state.ordered),
        }
    }

    /// Detaches the crashed threads: they unwind and can serve again.
    pub(super) fn detach_dead(&self) {
        let turns = &*self.turns;
        turns.detaching.store(true, Release);
        turns.threads().iter().for_each(Thread::unpark);
        while turns.dead.load(Acquire) != 0 {
            std::thread::yield_now();
        }
        turns.detaching.store(false, Release);
    }

    /// Runs one job in thread 0 while all others are idle.
    pub fn alone<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Violation> {
        self.alone_in(0, work)
    }

    /// Runs one job alone in this thread, which must not be crashed.
    pub(super) fn alone_in<R: Send + 'static>(
        &self,
        thread: usize,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Violation> {
        let result = Arc::new(Mutex::new(None));
        let place = result.clone();
        let job: Job = Box::new(move || {
            let done = work();
            *lock(&place) = Some(done);
        });
        let ran =
            self.run_crashing(vec![(thread, job)], CrashPlan::default(), &Policy::Script(Vec::new()), 0);
        let result = lock(&result).take();
        result.ok_or_else(|| ran.wrong.unwrap_or_else(|| "it did not terminate".into()))
    }

    fn wait(&self) {
        let turns = &*self.turns;
        let (mut seen, mut looks) = (u64::MAX, 0);
        while turns.turn.load(Acquire) != CALLER {
            std::thread::park_timeout(LOOK);
            let steps = turns.clock.load(Relaxed) + turns.steps.load(Relaxed);
            looks = if steps == seen { looks + 1 } else { 0 };
            if turns.turn.load(Acquire) != CALLER && looks == LOOKS {
                turns.give_up("a thread waits outside the medium for a thread that is parked");
            }
            seen = steps;
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.turns.closing.store(true, Release);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            let _ = handle.join();
        }
    }
}

impl Turns {
    fn new() -> Self {
        Self {
            turn: AtomicUsize::new(CALLER),
            jobs: Default::default(),
            state: Mutex::new(State::new(PolicyRunner::new(&Policy::Script(Vec::new()), 0), 0)),
            steps: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            tracks_order: AtomicBool::new(false),
            is_scripted: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            given_up: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            dead: AtomicU8::new(0),
            detaching: AtomicBool::new(false),
            threads: Mutex::default(),
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        lock(&self.threads)
    }

    /// The main loop of thread `me`: it runs job after job.
    fn serve_jobs(&self, me: usize) {
        loop {
            if self.closing.load(Acquire) {
                return;
            }
            if self.turn.load(Acquire) != me && !self.given_up.load(Acquire) {
                std::thread::park();
                continue;
            }
            let Some(job) = lock(&self.jobs[me]).take() else {
                std::thread::park();
                continue;
            };
            LAST.set(None);
            // Starting counts as a step, since the policy chose it.
            lock(&self.state).in_a_row += 1;
            let is_given_up = self.given_up.load(Acquire);
            let outcome = catch_panic(|| {
                if !is_given_up {
                    job();
                }
                Ok(())
            });
            if self.is_dead(me) {
                self.dead.fetch_and(!(1 << me), Release);
            } else {
                self.finish(me, outcome);
            }
        }
    }

    fn is_dead(&self, thread: usize) -> bool {
        self.dead.load(Acquire) & 1 << thread != 0
    }

    /// Crashes thread `me`: it stops here and the others continue.
    fn crash(&self, me: usize) {
        let mut state = lock(&self.state);
        let now = self.clock.fetch_add(1, Relaxed) + 1;
        state.died.push((me, now));
        self.dead.fetch_or(1 << me, Release);
        state.crash_plan.observe(me);
        self.pass_turn_on(me, state);
        while !self.detaching.load(Acquire) && !self.closing.load(Acquire) {
            std::thread::park();
        }
        panic!("the crashed thread is detached");
    }

    /// A step of thread `me`: chooses the next thread, and waits until that is `me`.
    fn step(&self, me: usize, load: Option<u64>) {
        if self.given_up.load(Acquire) {
            return self.leave();
        }
        let mut state = lock(&self.state);
        if load.is_none() && state.crashes(me) {
            drop(state);
            return self.crash(me);
        }
        let steps = self.steps.load(Relaxed) + 1;
        self.steps.store(steps, Relaxed);
        if steps > STEPS_MAX {
            drop(state);
            let last =
                LAST.get().map_or(String::new(), |(_, at, site)| format!(", at {at:#x} ({})", place(site)));
            self.give_up(&format!("it does not terminate{last}"));
            return self.leave();
        }
        let gives_way = state.must_yield(load);
        let (runnable, running) = (state.runnable, state.running);
        let next = state.policy_runner.next(runnable, Some(running), gives_way, steps);
        state.switch(me, next, self.clock.load(Relaxed));
        if next != me {
            drop(state);
            self.pass_to(next);
            self.wait(me);
            state = lock(&self.state);
        }
        state.in_a_row += 1;
    }

    fn wait(&self, me: usize) {
        while self.turn.load(Acquire) != me {
            if self.given_up.load(Acquire) {
                return self.leave();
            }
            std::thread::park();
        }
    }

    /// Unwinds this thread after the run was aborted, unless it is unwinding already.
    fn leave(&self) {
        assert!(std::thread::panicking(), "the run was given up");
    }

    fn give_up(&self, why: &str) {
        let mut state = lock(&self.state);
        if !self.given_up.swap(true, Release) {
            state.wrong = Some(why.into());
        }
        drop(state);
        self.threads().iter().for_each(Thread::unpark);
    }

    /// Ends the job of thread `me`.
    fn finish(&self, me: usize, outcome: Result<(), Violation>) {
        let mut state = lock(&self.state);
        if let Err(wrong) = outcome {
            state.wrong.get_or_insert(wrong);
        }
        self.pass_turn_on(me, state);
    }

    /// Passes the turn of thread `me`, which does nothing more, to another thread or the caller.
    fn pass_turn_on(&self, me: usize, mut state: MutexGuard<'_, State>) {
        state.runnable &= !(1 << me);
        let next = if self.busy.fetch_sub(1, Relaxed) == 1 {
            CALLER
        } else if self.given_up.load(Relaxed) {
            return;
        } else {
            let runnable = state.runnable;
            state.policy_runner.next(runnable, None, false, self.steps.load(Relaxed))
        };
        state.switch(me, next, self.clock.load(Relaxed));
        let caller = state.caller.clone();
        drop(state);
        match caller {
            Some(caller) if next == CALLER => {
                self.turn.store(CALLER, Release);
                caller.unpark();
            }
            _ => self.pass_to(next),
        }
    }

    fn pass_to(&self, next: usize) {
        // ORDER: Release: pairs with the next thread's Acquire load, which then sees everything
        // done before.
        self.turn.store(next, Release);
        self.threads()[next].unpark();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
