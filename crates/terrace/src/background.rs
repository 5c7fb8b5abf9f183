//! The threads that a store has of its own. All have ended before its pool is closed, but for one that waits for another process which stands still: the pool is closed after that one.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use terrace_engine::{Chore, Engine, Rest};
use terrace_pool::Holder;

/// Between two sweeps for expired entries.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at whether another process that shares the store has died.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What is tidied each time, and for how long in a row: sweeps take a fifth of a core at most, where
/// entries expire faster than a step removes them, and moving records less than a tenth.
const TIDYING: [(Chore, Duration); 3] = [
    (Chore::Sweep, Duration::from_millis(25)),
    (Chore::Compact, Duration::from_millis(8)),
    (Chore::Maintain, Duration::ZERO),
];
/// Between two rounds of asking for huge pages for what was filled meanwhile.
const HUGE_PAGES_EVERY: Duration = Duration::from_secs(30);

/// Time that a thread has to end in before it is asked whether somebody holds it up who stands still.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is to be done in the background.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Take back what a crash had left when the store was opened.
    pub(crate) collect: bool,
    /// Take over what other processes leave that die.
    pub(crate) take_over: bool,
    /// End another process that has stood still for so long.
    pub(crate) end_stopped: Option<Duration>,
    /// Remove expired entries, and finish what the index has begun.
    pub(crate) sweep: bool,
    /// Move what is in use to huge pages.
    pub(crate) huge_pages: bool,
}

/// The running threads; dropping it ends them.
pub(crate) struct Background {
    signal: Arc<Signal>,
    engine: Arc<dyn Engine>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    /// Held for reading by whoever changes the store, for writing by who wants it to stay as it is.
    changing: RwLock<()>,
}

#[derive(Clone, Copy, Default)]
struct State {
    stopping: bool,
    collecting: bool,
    /// How many wait until none of the threads changes the store.
    pausing: u32,
    /// How many threads have not ended.
    running: u32,
}

impl State {
    /// Whether a thread that waits for others holds up one of this process, and that for long: looking at all others takes a while.
    fn is_in_the_way(self, is_another_stopped: impl FnOnce() -> bool) -> bool {
        self.pausing > 0 && is_another_stopped()
    }
}

fn others(engine: &dyn Engine) -> Vec<Holder> {
    engine.pooled().map_or_else(Vec::new, |pool| pool.others())
}

/// Whether one of the other processes that share the store is stopped, as far as this one can see.
pub(crate) fn is_another_stopped(engine: &dyn Engine) -> bool {
    others(engine).iter().any(|other| other.stopped)
}

impl Signal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread changes the store until it drops what it gets.
    fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Waits that long, or less when it is time to end. Whether it is.
    fn rest(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| !state.stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    fn end_thread(&self) {
        self.state().running -= 1;
        self.changed.notify_all();
    }

    /// Waits that long, or less when all threads have ended. Whether one has not.
    fn is_running_after(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| state.running > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.running > 0
    }
}

impl Background {
    /// Starts what there is to do.
    pub(crate) fn start(engine: &Arc<dyn Engine>, work: Work) -> std::io::Result<Self> {
        let signal = Arc::new(Signal::default());
        signal.state().collecting = work.collect;
        let mut background = Self { signal, engine: engine.clone(), threads: Vec::new() };
        if work.collect || work.take_over {
            let collect = move |engine: &dyn Engine, signal: &Signal| collect(engine, signal, work);
            background.spawn("terrace-collect", collect)?;
        }
        if work.take_over {
            background.spawn("terrace-others", look_after_others)?;
        }
        if let Some(patience) = work.end_stopped {
            let end = move |engine: &dyn Engine, signal: &Signal| end_stopped(engine, signal, patience);
            background.spawn("terrace-stopped", end)?;
        }
        if work.sweep {
            background.spawn("terrace-sweep", sweep)?;
        }
        if work.huge_pages {
            background.spawn("terrace-huge", use_huge_pages)?;
        }
        Ok(background)
    }

    fn spawn(
        &mut self,
        name: &'static str,
        work: impl Fn(&dyn Engine, &Signal) + Send + 'static,
    ) -> std::io::Result<()> {
        let (engine, signal) = (self.engine.clone(), self.signal.clone());
        self.signal.state().running += 1;
        let thread = Builder::new().name(name.into()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| work(&*engine, &signal))).is_err() {
                engine.stop(format!("the background thread {name} has failed"));
                finish_collecting(&signal);
            }
            signal.end_thread();
        });
        self.threads.push(thread.inspect_err(|_| self.signal.end_thread())?);
        Ok(())
    }

    /// Ends the threads. If one of them does not end because somebody stands still, it is left to itself, and so is the engine; returns whom it waits for.
    pub(crate) fn end(&mut self) -> Option<Holder> {
        self.signal.state().stopping = true;
        self.signal.changed.notify_all();
        while self.signal.is_running_after(PATIENCE) {
            if let Some(holder) = others(&*self.engine).into_iter().find(|other| other.stopped) {
                self.threads.clear();
                return Some(holder);
            }
        }
        for thread in self.threads.drain(..) {
            // Its panic, if any, was caught and reported.
            let _ = thread.join();
        }
        None
    }

    /// Waits until none of the threads changes the store, and holds them up for as long as the caller keeps what it gets. One that waits for another process, which stands still, gives up.
    pub(crate) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.signal.state().pausing += 1;
        let paused = self.signal.changing.write().unwrap_or_else(PoisonError::into_inner);
        self.signal.state().pausing -= 1;
        paused
    }

    pub(crate) fn wait_until_collected(&self) {
        let waited = self.signal.changed.wait_while(self.signal.state(), |state| state.collecting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.threads.is_empty()
            && let Some(holder) = self.end()
        {
            log::warn!("a store stays open, for a thread of it waits for {holder}");
        }
    }
}

fn finish_collecting(signal: &Signal) {
    if std::mem::take(&mut signal.state().collecting) {
        signal.changed.notify_all();
    }
}

/// Collects what a crash has left, and then what those leave who share the store and die. It may have to wait for one of them that stands still, so it is the work of a thread that does nothing else.
fn collect(engine: &dyn Engine, signal: &Signal, work: Work) {
    loop {
        let needs_collection = engine.pooled().is_some_and(|pool| pool.needs_collection());
        let gave_way = needs_collection && !collect_once(engine, signal);
        if !gave_way {
            finish_collecting(signal);
        }
        if !work.take_over || signal.rest(LOOK_EVERY) {
            return;
        }
    }
}

/// Whether it did not have to give way to somebody who wants the store to stay as it is.
fn collect_once(engine: &dyn Engine, signal: &Signal) -> bool {
    let _changing = signal.change();
    let gave_way = Cell::new(false);
    engine.step(Chore::Collect, &|| {
        let state = *signal.state();
        gave_way.set(gave_way.get() || state.is_in_the_way(|| is_another_stopped(engine)));
        state.stopping || gave_way.get()
    });
    !gave_way.get()
}

fn look_after_others(engine: &dyn Engine, signal: &Signal) {
    while !signal.rest(LOOK_EVERY) {
        let _changing = signal.change();
        engine.step(Chore::RecoverDead, &|| signal.is_stopping());
    }
}

/// Takes no lock and waits for nobody, whatever those hold that it is to end.
fn end_stopped(engine: &dyn Engine, signal: &Signal, patience: Duration) {
    let mut stopped = Stopped::default();
    while !signal.rest(LOOK_EVERY) {
        stopped.look(engine, patience);
    }
}

/// Who stands still, and for how many looks it has neither run nor been seen otherwise.
#[derive(Default)]
struct Stopped(Vec<(Holder, u32)>);

impl Stopped {
    /// Ends whoever has stood still for `patience`.
    fn look(&mut self, engine: &dyn Engine, patience: Duration) {
        let before = std::mem::take(&mut self.0);
        let looks = |holder: &Holder| {
            let seen = before.iter().find(|(seen, _)| holder.idle_since(seen));
            seen.map_or(0, |(_, looks)| looks + 1)
        };
        let now = others(engine).into_iter().filter(|holder| holder.stopped);
        self.0 = now.map(|holder| (looks(&holder), holder)).map(|(looks, holder)| (holder, looks)).collect();
        for (holder, looks) in self.0.iter_mut().filter(|(_, looks)| LOOK_EVERY * *looks >= patience) {
            // One that cannot be ended is tried again after the same time.
            *looks = 0;
            let ended = engine.pooled().map_or(Ok(false), |pool| pool.end_stopped(holder));
            match ended {
                Ok(true) => {
                    log::warn!("ended {holder}, for it has shared the store and stood still for {patience:?}")
                }
                Ok(false) => {}
                Err(error) => {
                    log::warn!("cannot end {holder}, which shares the store and stands still: {error}")
                }
            }
        }
    }
}

fn sweep(engine: &dyn Engine, signal: &Signal) {
    while !signal.rest(SWEEP_EVERY) {
        for (chore, time) in TIDYING {
            repeat(signal, time, || engine.step(chore, &|| signal.is_stopping()));
        }
    }
}

/// Does a step of a chore, and more while there is more to do, for `time` at most. A caller that
/// wants the store to stay as it is waits for one step.
#[allow(clippy::disallowed_methods, reason = "the facade owns the threads, and shares their time out")]
fn repeat(signal: &Signal, time: Duration, mut step: impl FnMut() -> Rest) {
    let began = std::time::Instant::now();
    loop {
        let rest = {
            let _changing = signal.change();
            step()
        };
        if rest == Rest::Idle || began.elapsed() >= time || signal.rest(Duration::ZERO) {
            return;
        }
    }
}

fn use_huge_pages(engine: &dyn Engine, signal: &Signal) {
    loop {
        // A thread that gives way to all others gives way when it is killed, too, and as long as it has not ended nobody may take the process for dead: it is there only while it has something to do.
        std::thread::scope(|scope| {
            let thread = Builder::new().name("terrace-pages".into());
            if let Err(error) = thread.spawn_scoped(scope, || use_huge_pages_once(engine, signal)) {
                log::warn!("cannot start a thread that asks for huge pages: {error}");
            }
        });
        if signal.rest(HUGE_PAGES_EVERY) {
            return;
        }
    }
}

fn use_huge_pages_once(engine: &dyn Engine, signal: &Signal) {
    // Copying memory is for time that nobody else wants. (On Linux this concerns the calling thread alone.)
    let _ = rustix::process::nice(19);
    while !signal.is_stopping() && engine.step(Chore::HugePages, &|| signal.is_stopping()) == Rest::More {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_one_that_stands_still_is_in_the_way_of_who_wants_a_pause() {
        let is_in_the_way = |pausing, still| State { pausing, ..State::default() }.is_in_the_way(|| still);
        assert_eq!(
            [(0, false), (0, true), (1, false)].map(|(pausing, still)| is_in_the_way(pausing, still)),
            [false; 3]
        );
        assert!(is_in_the_way(1, true) && is_in_the_way(2, true));
    }

    #[test]
    fn step_is_repeated_while_it_says_so_and_there_is_time() {
        let signal = Signal::default();
        let steps = |time, many: u32| {
            let mut steps = 0;
            repeat(&signal, time, || {
                steps += 1;
                if steps < many { Rest::More } else { Rest::Idle }
            });
            steps
        };
        assert_eq!([1, 4].map(|many| steps(Duration::MAX, many)), [1, 4]);
        assert_eq!(steps(Duration::ZERO, 4), 1);
        signal.state().stopping = true;
        assert_eq!(steps(Duration::MAX, 4), 1);
    }

    #[test]
    fn nobody_wants_a_pause_any_more_who_has_had_one() {
        let store = crate::Store::options().anonymous().size(crate::ByteSize::mib(1)).create().unwrap();
        let background = Background::start(store.engine(), Work::default()).unwrap();
        assert!(!is_another_stopped(&**store.engine()));
        for _ in 0..2 {
            drop(background.pause());
            assert_eq!(background.signal.state().pausing, 0);
        }
    }
}
