//! Real threads that take turns: one runs at a time, and at each of its steps it is decided who goes on.
//!
//! ```text
//!   caller   --turn--> thread 1 . . . . --turn--> thread 0 . . --turn--> thread 1 ... ends --turn--> caller
//!                      runs, and at each step asks the director: mostly it goes on itself, which costs some 20 ns;
//!                      else it unparks the next one and parks, which costs two changes of context
//! ```
//! The threads are those of the system and not coroutines, for the product keeps what belongs to a thread (its seat in a pool) in thread-local variables, and
//! that is to be tested as it is. They live as long as the stage and share one core, so that a change of turn wakes nobody elsewhere.
//!
//! A thread that spins reads the same words again and again; it then gives way, or else a scheduler with priorities would let it spin for ever. One that waits for
//! something outside of the medium, such as a mutex whose holder is parked, is noticed by the clock; the run is given up, and that is its outcome.
//!
//! A thread can die: at a place that was chosen it is parked and not run again, and so stores nothing more, while the others go on. Once all that they left was judged it is
//! *buried*: it unwinds, and what it stores meanwhile nobody looks at.

use super::cues::At;
use super::death::{Asked, Death, Mortality};
use super::policy::{Director, Policy, Slice, Threads};
use super::spin::Spin;
use crate::crash::Wrong;
use crate::crash::{caught, place};
use crate::points;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use terrace_medium::{Access, Order};

/// Threads that a stage can have.
pub const THREADS_MAX: usize = 4;

/// Steps in a row after which a thread gives way, if there are others: a loop that waits for them may do more than read.
const STEPS_IN_A_ROW: u32 = 4_000;
/// Steps after which a run is taken for one that never ends.
const STEPS_MAX: u64 = 2_000_000;
/// The caller looks this often whether there was a step, and without any so many times in a row, a thread is taken to wait for one that is parked. Many looks
/// instead of one long one: on a machine that is busy, or stood still, the caller is late as well, and late once.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 30;

/// What a thread does.
pub type Job = Box<dyn FnOnce() + Send>;

/// What a thread did last: the access, its offset and its place in the source.
pub type Last = (Access, u64, &'static Location<'static>);

/// Steps of one thread in a row.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Who, and how many.
    pub slice: Slice,
    /// The thread's last access in it, if it has done any.
    pub after: Option<Last>,
    /// The moment of the run at which it ended.
    pub until: u64,
}

/// How a run went.
#[derive(Debug, Default)]
pub struct Ran {
    /// Who ran when.
    pub turns: Vec<Turn>,
    /// Steps in all.
    pub steps: u64,
    /// What went wrong with a thread: a panic, or why the run was given up.
    pub wrong: Option<Wrong>,
    /// Steps other than loads that each thread has done in each of its calls.
    pub changes: Vec<Vec<u64>>,
    /// Threads that died, in this order, each with the moment.
    pub died: Vec<(usize, u64)>,
    /// Where each thread could die that has just asked for durability and has not been given it, and the place that asks.
    pub asked: Vec<Asked>,
    /// Where each participant could die that has just made a store that others go by, and the place of that.
    pub ordered: Vec<Asked>,
}

impl Ran {
    /// The schedule, for [`Policy::Script`].
    pub fn slices(&self) -> Vec<Slice> {
        self.turns.iter().map(|turn| turn.slice).collect()
    }
}

struct State {
    director: Director,
    runnable: Threads,
    running: usize,
    turns: Vec<Turn>,
    in_a_row: u32,
    spin: Spin,
    wrong: Option<Wrong>,
    caller: Option<Thread>,
    mortality: Mortality,
    changes: Vec<Vec<u64>>,
    died: Vec<(usize, u64)>,
    asked: Vec<Asked>,
    ordered: Vec<Asked>,
}

/// What the threads of a stage share.
struct Turns {
    /// Whose turn it is: a thread's number, or [`CALLER`].
    turn: AtomicUsize,
    jobs: [Mutex<Option<Job>>; THREADS_MAX],
    state: Mutex<State>,
    steps: AtomicU64,
    clock: AtomicU64,
    /// Whether the director is told of each access that has an order.
    minds_order: AtomicBool,
    /// Whether a script says where threads stop.
    is_cued: AtomicBool,
    /// Threads that have a job.
    busy: AtomicUsize,
    given_up: AtomicBool,
    closing: AtomicBool,
    /// Threads that are dead and not buried, a bit each.
    dead: AtomicU8,
    burial: AtomicBool,
    threads: Mutex<Vec<Thread>>,
}

const CALLER: usize = usize::MAX;
/// What a thread loads, as it were, that waits for another outside of the medium.
const NOWHERE: u64 = u64::MAX - 7;

thread_local! {
    static STAGE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
}

/// Does this for a thread of a stage; not for one that is dead, which is being buried.
#[inline]
fn on_stage(act: impl FnOnce(&Turns, usize)) {
    let _ = STAGE.try_with(|stage| {
        if let Ok(stage) = stage.try_borrow()
            && let Some((turns, me)) = &*stage
            && !turns.is_dead(*me)
        {
            act(turns, *me);
        }
    });
}

/// Waits for this thread's turn to do a step: a load of the word at this offset, or something else.
#[inline]
pub(super) fn step(load: Option<u64>) {
    on_stage(|turns, me| turns.step(me, load));
}

/// Notes what this thread did.
#[inline]
pub(super) fn accessed(access: Access, offset: u64, site: &'static Location<'static>) {
    let _ = LAST.try_with(|last| last.set(Some((access, offset, site))));
}

/// Notes that this thread asks for durability at a place.
#[inline]
pub(super) fn persisted(site: &'static Location<'static>) {
    on_stage(|turns, me| {
        let mut state = lock(&turns.state);
        state.director.persisted(me, site, turns.steps.load(Relaxed));
        state.note_asked(me, site);
    });
}

/// Notes that this thread comes to an access that has an order.
#[inline]
pub(super) fn ordered(order: Order, site: &'static Location<'static>) {
    on_stage(|turns, me| {
        if turns.minds_order.load(Relaxed) {
            let mut state = lock(&turns.state);
            if !matches!(order, Order::RmwFailed(_)) {
                state.director.come(me, At::Access(points::current()));
            }
            if matches!(order, Order::Store(it) | Order::Rmw(it) if it != Relaxed) {
                state.note_ordered(me, site);
            }
        }
    });
}

/// Where a script says where threads stop, a barrier is a step.
#[inline]
pub(super) fn before_barrier(order: Order) {
    on_stage(|turns, me| {
        if turns.is_cued.load(Relaxed) && matches!(order, Order::Barrier | Order::GlobalBarrier) {
            lock(&turns.state).director.come(me, At::Access(points::current()));
            turns.step(me, None);
        }
    });
}

/// This thread comes to a mark, where a script may have it stop.
pub fn mark(number: u32) {
    on_stage(|turns, me| {
        if turns.is_cued.load(Relaxed) {
            lock(&turns.state).director.come(me, At::Mark(number));
            turns.step(me, None);
        }
    });
}

/// Whether a script has it that the thread that goes on sees what is old there.
pub(super) fn sees_old(point: Option<&str>) -> bool {
    let mut sees_old = false;
    on_stage(|turns, _| sees_old = lock(&turns.state).director.sees_old(point));
    sees_old
}

/// Whether a script has it that what the thread that goes on stores there comes before what others have stored.
pub(super) fn stores_early(point: Option<&str>) -> bool {
    let mut stores_early = false;
    on_stage(|turns, _| stores_early = lock(&turns.state).director.stores_early(point));
    stores_early
}

/// The next moment of the run that this thread is in: every call has another, in the order in which they come. 0 in a thread of no stage.
pub(super) fn now() -> u64 {
    STAGE.with_borrow(|stage| stage.as_ref().map_or(0, |(turns, _)| turns.clock.fetch_add(1, Relaxed) + 1))
}

/// This thread waits for something that is not in the medium, and that another thread of its stage does.
pub(crate) fn pause() {
    step(Some(NOWHERE));
    std::thread::yield_now();
}

/// This thread would sleep until another has done something.
fn give_way() {
    (0..=Spin::ROUNDS).for_each(|_| step(Some(NOWHERE)));
}

/// This thread begins its call number `call`, from 0 on, which is what deaths are told by.
pub(super) fn begin_call(call: usize) {
    STAGE.with_borrow(|stage| {
        if let Some((turns, me)) = stage {
            let mut state = lock(&turns.state);
            let changes = &mut state.changes[*me];
            changes.resize(call + 1, 0);
            if turns.is_cued.load(Relaxed) {
                state.director.come(*me, At::Call(call));
                drop(state);
                turns.step(*me, None);
            }
        }
    });
}

/// This thread's number in its stage.
pub(super) fn number() -> u64 {
    STAGE.with_borrow(|stage| stage.as_ref().map_or(u64::MAX, |(_, me)| *me as u64))
}

/// [`THREADS_MAX`] threads that run as a policy says.
pub struct Stage {
    turns: Arc<Turns>,
    handles: Vec<JoinHandle<()>>,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Starts the threads, on one core.
    pub fn new() -> Self {
        let turns = Arc::new(Turns::new());
        let core = Core::next();
        let start = |me| {
            let turns = turns.clone();
            std::thread::spawn(move || {
                core.stay();
                terrace_pool::set_thread_number(me as u32 + 1);
                terrace_pool::rest_with(give_way);
                STAGE.set(Some((turns.clone(), me)));
                turns.serve(me);
            })
        };
        let handles: Vec<_> = (0..THREADS_MAX).map(start).collect();
        *turns.threads() = handles.iter().map(|handle| handle.thread().clone()).collect();
        Self { turns, handles }
    }

    /// Runs each job in a thread, the first one in thread 0. One caller at a time.
    pub fn run(&self, jobs: Vec<Job>, policy: &Policy, seed: u64) -> Ran {
        self.run_mortals(jobs.into_iter().enumerate().collect(), Mortality::default(), policy, seed)
    }

    /// Runs each job in the thread with its number, none of which is dead. Some of them may die; these are to be [buried](Self::bury).
    pub(super) fn run_mortals(
        &self,
        jobs: Vec<(usize, Job)>,
        mortality: Mortality,
        policy: &Policy,
        seed: u64,
    ) -> Ran {
        let count = jobs.len();
        assert!((1..=THREADS_MAX).contains(&count), "a stage runs 1 to {THREADS_MAX} threads, not {count}");
        let turns = &*self.turns;
        let runnable = jobs.iter().fold(0, |bits, (thread, _)| bits | 1 << thread);
        assert!(runnable & turns.dead.load(Acquire) == 0, "the dead do nothing");
        turns.given_up.store(false, Relaxed);
        turns.steps.store(0, Relaxed);
        turns.clock.store(0, Relaxed);
        let is_cued = matches!(policy, Policy::Cued(_));
        turns.is_cued.store(is_cued, Relaxed);
        let minds_order = is_cued || mortality.is_told();
        turns.minds_order.store(minds_order, Relaxed);
        turns.busy.store(count, Relaxed);
        for (thread, job) in jobs {
            *lock(&turns.jobs[thread]) = Some(job);
        }
        let first = {
            let mut state = lock(&turns.state);
            *state = State::new(Director::new(policy, seed), runnable);
            state.mortality = mortality;
            state.caller = Some(std::thread::current());
            state.running = state.director.next(runnable, None, false, 0);
            state.running
        };
        turns.pass_to(first);
        self.wait();
        let mut state = lock(&turns.state);
        Ran {
            turns: std::mem::take(&mut state.turns),
            steps: turns.steps.load(Relaxed),
            wrong: state.wrong.take().or_else(|| state.director.missed()),
            changes: std::mem::take(&mut state.changes),
            died: std::mem::take(&mut state.died),
            asked: std::mem::take(&mut state.asked),
            ordered: std::mem::take(&mut state.ordered),
        }
    }

    /// Lets the dead unwind, and their threads serve again.
    pub(super) fn bury(&self) {
        let turns = &*self.turns;
        turns.burial.store(true, Release);
        turns.threads().iter().for_each(Thread::unpark);
        while turns.dead.load(Acquire) != 0 {
            std::thread::yield_now();
        }
        turns.burial.store(false, Release);
    }

    /// Runs one job alone, in thread 0, with no other about.
    pub fn alone<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> Result<R, Wrong> {
        self.alone_in(0, work)
    }

    /// Runs one job alone, in a thread that is not dead.
    pub(super) fn alone_in<R: Send + 'static>(
        &self,
        thread: usize,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Wrong> {
        let result = Arc::new(Mutex::new(None));
        let place = result.clone();
        let job: Job = Box::new(move || {
            let done = work();
            *lock(&place) = Some(done);
        });
        let ran = self.run_mortals(vec![(thread, job)], Mortality::default(), &Policy::Script(Vec::new()), 0);
        let result = lock(&result).take();
        result.ok_or_else(|| ran.wrong.unwrap_or_else(|| "it did not come to an end".into()))
    }

    fn wait(&self) {
        let turns = &*self.turns;
        let (mut seen, mut looks) = (u64::MAX, 0);
        while turns.turn.load(Acquire) != CALLER {
            std::thread::park_timeout(LOOK);
            let steps = turns.clock.load(Relaxed) + turns.steps.load(Relaxed);
            looks = if steps == seen { looks + 1 } else { 0 };
            if turns.turn.load(Acquire) != CALLER && looks == LOOKS {
                turns.give_up(
                    "a thread waits for something outside of the medium, which one that is not its turn has",
                );
            }
            seen = steps;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.turns.closing.store(true, Release);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            let _ = handle.join();
        }
    }
}

impl State {
    fn new(director: Director, runnable: Threads) -> Self {
        Self {
            director,
            runnable,
            running: 0,
            turns: Vec::new(),
            in_a_row: 0,
            spin: Spin::default(),
            wrong: None,
            caller: None,
            mortality: Mortality::default(),
            changes: vec![Vec::new(); THREADS_MAX],
            died: Vec::new(),
            asked: Vec::new(),
            ordered: Vec::new(),
        }
    }

    /// Notes that `thread` asks for durability, with its next change.
    fn note_asked(&mut self, thread: usize, site: &'static Location<'static>) {
        if let Some(call) = self.changes[thread].len().checked_sub(1) {
            self.asked.push((Death { thread, call, change: self.changes[thread][call] + 1 }, site));
        }
    }

    /// Notes that `thread` makes a store that others go by, with its next change; it could die before the one behind that.
    fn note_ordered(&mut self, thread: usize, site: &'static Location<'static>) {
        if let Some(call) = self.changes[thread].len().checked_sub(1) {
            self.ordered.push((Death { thread, call, change: self.changes[thread][call] + 2 }, site));
        }
    }

    /// Counts one more change by `thread`. Whether it dies instead.
    fn dies(&mut self, thread: usize) -> bool {
        let Some(call) = self.changes[thread].len().checked_sub(1) else { return false };
        let change = self.changes[thread][call] + 1;
        self.changes[thread][call] = change;
        self.mortality.deaths.contains(&Death { thread, call, change })
    }

    /// Notes one more step of `thread`, which is its `load`. Whether it is to give way to others first.
    fn note(&mut self, load: Option<u64>) -> bool {
        self.spin.note(load) || self.in_a_row >= STEPS_IN_A_ROW
    }

    /// `thread` is stopped, or goes on.
    fn change(&mut self, from: usize, to: usize, now: u64) {
        if from != to {
            self.end_turn(from, now);
            (self.in_a_row, self.spin) = (0, Spin::default());
        }
        self.running = to;
    }

    fn end_turn(&mut self, thread: usize, now: u64) {
        let slice = Slice { thread: thread as u8, steps: self.in_a_row };
        self.turns.push(Turn { slice, after: LAST.get(), until: now });
        self.in_a_row = 0;
    }
}

impl Turns {
    fn new() -> Self {
        Self {
            turn: AtomicUsize::new(CALLER),
            jobs: Default::default(),
            state: Mutex::new(State::new(Director::new(&Policy::Script(Vec::new()), 0), 0)),
            steps: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            minds_order: AtomicBool::new(false),
            is_cued: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            given_up: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            dead: AtomicU8::new(0),
            burial: AtomicBool::new(false),
            threads: Mutex::default(),
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        lock(&self.threads)
    }

    /// The life of thread `me`: job after job.
    fn serve(&self, me: usize) {
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
            // To begin counts as a step, as it was chosen as one.
            lock(&self.state).in_a_row += 1;
            let is_given_up = self.given_up.load(Acquire);
            let outcome = caught(|| {
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

    /// Thread `me` stops here, for good; the others go on.
    fn die(&self, me: usize) {
        let mut state = lock(&self.state);
        let now = self.clock.fetch_add(1, Relaxed) + 1;
        state.died.push((me, now));
        self.dead.fetch_or(1 << me, Release);
        state.mortality.tell(me);
        self.hand_on(me, state);
        while !self.burial.load(Acquire) && !self.closing.load(Acquire) {
            std::thread::park();
        }
        panic!("it is buried");
    }

    /// A step of thread `me`: decides who does it, and waits until that is `me`.
    fn step(&self, me: usize, load: Option<u64>) {
        if self.given_up.load(Acquire) {
            return self.leave();
        }
        let mut state = lock(&self.state);
        if load.is_none() && state.dies(me) {
            drop(state);
            return self.die(me);
        }
        let steps = self.steps.load(Relaxed) + 1;
        self.steps.store(steps, Relaxed);
        if steps > STEPS_MAX {
            drop(state);
            let last =
                LAST.get().map_or(String::new(), |(_, at, site)| format!(", at {at:#x} ({})", place(site)));
            self.give_up(&format!("it does not come to an end{last}"));
            return self.leave();
        }
        let gives_way = state.note(load);
        let (runnable, running) = (state.runnable, state.running);
        let next = state.director.next(runnable, Some(running), gives_way, steps);
        state.change(me, next, self.clock.load(Relaxed));
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

    /// The run is given up: this thread unwinds, unless it does already.
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

    /// The job of thread `me` has ended.
    fn finish(&self, me: usize, outcome: Result<(), Wrong>) {
        let mut state = lock(&self.state);
        if let Err(wrong) = outcome {
            state.wrong.get_or_insert(wrong);
        }
        self.hand_on(me, state);
    }

    /// Thread `me` does nothing more: another one goes on, or the caller.
    fn hand_on(&self, me: usize, mut state: MutexGuard<'_, State>) {
        state.runnable &= !(1 << me);
        let next = if self.busy.fetch_sub(1, Relaxed) == 1 {
            CALLER
        } else if self.given_up.load(Relaxed) {
            return;
        } else {
            let runnable = state.runnable;
            state.director.next(runnable, None, false, self.steps.load(Relaxed))
        };
        state.change(me, next, self.clock.load(Relaxed));
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
        // ORDER: Release: pairs with the Acquire of the one whose turn it is; all that was done before is seen.
        self.turn.store(next, Release);
        self.threads()[next].unpark();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The core that a stage's threads share.
#[derive(Clone, Copy)]
struct Core(Option<usize>);

impl Core {
    /// One of those that this process may use, in turn.
    fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let allowed = rustix::thread::sched_getaffinity(None).ok();
        let cores: Vec<usize> = allowed
            .map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
            .unwrap_or_default();
        let next = NEXT.fetch_add(1, Relaxed);
        Self(cores.get(next % cores.len().max(1)).copied())
    }

    /// Keeps this thread there. Where that is refused, changes of turn take longer.
    fn stay(self) {
        if let Some(core) = self.0 {
            let mut set = rustix::thread::CpuSet::new();
            set.set(core);
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
    }
}

#[cfg(test)]
mod tests;
