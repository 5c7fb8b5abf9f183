//! The background threads of a store. All have ended before its pool is closed, except a thread
//! that waits for another process which is stopped: the pool is closed after that thread.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use terrace_disk::Rate;
use terrace_engine::{Chore, Engine, Rest};
use terrace_pool::{Forked, Holder, Opener};

/// Time between two sweeps for expired entries.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// Time between two checks whether another process that shares the store has died.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// The chores of each sweep and their time limits: sweeps take at most a fifth of a core, if
/// entries expire faster than a step removes them, and moving records or maintaining the index less
/// than a tenth each.
const SWEEP_CHORES: [(Chore, Duration); 3] = [
    (Chore::Sweep, Duration::from_millis(25)),
    (Chore::Compact, Duration::from_millis(8)),
    (Chore::Maintain, Duration::from_millis(8)),
];
/// The chores of the thread that flushes.
const FLUSH_CHORES: [Chore; 2] = [Chore::Flush, Chore::Log];
/// Time after which threads of a store on a disk look for work although none was announced.
const WORK_EVERY: Duration = Duration::from_millis(100);
/// Time between two rounds of requesting huge pages for new data.
const HUGE_PAGES_EVERY: Duration = Duration::from_secs(30);

/// Time after which `end` checks whether a stopped process blocks a thread.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The background work of a store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Collect the memory that a crash left before the store was opened.
    pub(crate) collect: bool,
    /// Recover what dead processes held.
    pub(crate) recover_dead: bool,
    /// Kill another process that has been stopped for this time.
    pub(crate) end_stopped: Option<Duration>,
    /// Remove expired entries, and continue resizes of the index.
    pub(crate) sweep: bool,
    /// Move used memory to huge pages.
    pub(crate) huge_pages: bool,
    /// Flush and merge files.
    pub(crate) disk: bool,
    /// Bytes a second that merges may read.
    pub(crate) merge_rate: Option<u64>,
}

/// The running threads; dropping it ends them.
pub(crate) struct Background {
    /// The process that has the threads: a child of it has none.
    opener: Opener,
    signal: Arc<Signal>,
    engine: Arc<dyn Engine>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    /// Held for reading by a background thread that changes the store, for writing by a caller that
    /// needs it unchanged.
    changing: RwLock<()>,
}

#[derive(Clone, Copy, Default)]
struct State {
    stopping: bool,
    collecting: bool,
    /// Number of callers that wait until no background thread changes the store.
    pausing: u32,
    /// Number of threads that have not ended.
    running: u32,
}

impl State {
    /// Whether a thread that waits for another process blocks a caller, and may do so for long.
    /// Calls `is_another_stopped` only if it must: that takes a while.
    fn blocks_pause(self, is_another_stopped: impl FnOnce() -> bool) -> bool {
        self.pausing > 0 && is_another_stopped()
    }
}

fn other_processes(engine: &dyn Engine) -> Vec<Holder> {
    engine.pooled().map_or_else(Vec::new, |pool| pool.other_processes())
}

/// Whether one of the other processes that share the store is stopped, as far as this one can see.
pub(crate) fn is_another_stopped(engine: &dyn Engine) -> bool {
    other_processes(engine).iter().any(|other| other.stopped)
}

impl Signal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces that this thread changes the store, until the guard is dropped.
    fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Waits for `time`, or less if the thread must end. Returns whether it must.
    fn stops_within(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| !state.stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    fn end_thread(&self) {
        self.state().running -= 1;
        self.changed.notify_all();
    }

    /// Waits for `time`, or less if all threads end. Returns whether some thread has not ended.
    fn is_running_after(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| state.running > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.running > 0
    }
}

impl Background {
    /// Starts the threads for `work`.
    pub(crate) fn start(engine: &Arc<dyn Engine>, work: Work) -> std::io::Result<Self> {
        let signal = Arc::new(Signal::default());
        signal.state().collecting = work.collect;
        let opener = Opener::here();
        let mut background = Self { opener, signal, engine: engine.clone(), threads: Vec::new() };
        if work.collect || work.recover_dead {
            let collect = move |engine: &dyn Engine, signal: &Signal| collect(engine, signal, work);
            background.spawn("terrace-collect", collect)?;
        }
        if work.recover_dead {
            background.spawn("terrace-others", recover_dead)?;
        }
        if let Some(timeout) = work.end_stopped {
            let end = move |engine: &dyn Engine, signal: &Signal| end_stopped(engine, signal, timeout);
            background.spawn("terrace-stopped", end)?;
        }
        if work.sweep {
            background.spawn("terrace-sweep", sweep)?;
        }
        if work.huge_pages {
            background.spawn("terrace-huge", use_huge_pages)?;
        }
        if work.disk {
            let rate = work.merge_rate;
            background
                .spawn("terrace-flush", |engine, signal| work_on_disk(engine, signal, &FLUSH_CHORES, None))?;
            background.spawn("terrace-merge", move |engine, signal| {
                work_on_disk(engine, signal, &[Chore::Merge, Chore::Maintain], rate)
            })?;
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
                engine.stop(format!("the background thread {name} has panicked"));
                finish_collecting(&signal);
            }
            signal.end_thread();
        });
        self.threads.push(thread.inspect_err(|_| self.signal.end_thread())?);
        Ok(())
    }

    /// Refuses everything in a child of the process that has started the threads. There, what they
    /// have locked stays locked.
    pub(crate) fn check_process(&self) -> Result<(), Forked> {
        self.opener.check()
    }

    /// Ends the threads. If a thread waits for a stopped process, leaves it and the engine alone
    /// and returns that process.
    pub(crate) fn end(&mut self) -> Option<Holder> {
        if self.check_process().is_err() {
            // They are the parent's, and so is everything else.
            self.threads.drain(..).for_each(std::mem::forget);
            return None;
        }
        self.signal.state().stopping = true;
        self.signal.changed.notify_all();
        while self.signal.is_running_after(END_TIMEOUT) {
            if let Some(holder) = other_processes(&*self.engine).into_iter().find(|other| other.stopped) {
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

    /// Waits until no background thread changes the store, and pauses them until the guard is
    /// dropped. A thread that waits for a stopped process gives up its work.
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
            log::warn!("a store stays open: one of its threads waits for {holder}");
        }
    }
}

fn finish_collecting(signal: &Signal) {
    if std::mem::take(&mut signal.state().collecting) {
        signal.changed.notify_all();
    }
}

/// Collects the memory that a crash has left, and later the memory of dead processes of a shared
/// store. It may have to wait for a stopped process, so it has a thread of its own.
fn collect(engine: &dyn Engine, signal: &Signal, work: Work) {
    loop {
        let needs_collection = engine.pooled().is_some_and(|pool| pool.needs_collection());
        let gave_up = needs_collection && !collect_once(engine, signal);
        if !gave_up {
            finish_collecting(signal);
        }
        if !work.recover_dead || signal.stops_within(CHECK_EVERY) {
            return;
        }
    }
}

/// Runs a collection. Returns false if it gave up for a caller that wants to pause.
fn collect_once(engine: &dyn Engine, signal: &Signal) -> bool {
    let _changing = signal.change();
    let gave_up = Cell::new(false);
    engine.step(Chore::Collect, &|| {
        let state = *signal.state();
        gave_up.set(gave_up.get() || state.blocks_pause(|| is_another_stopped(engine)));
        state.stopping || gave_up.get()
    });
    !gave_up.get()
}

fn recover_dead(engine: &dyn Engine, signal: &Signal) {
    while !signal.stops_within(CHECK_EVERY) {
        let _changing = signal.change();
        engine.step(Chore::RecoverDead, &|| signal.is_stopping());
    }
}

/// Kills stopped processes. Takes no lock and waits for no process, whatever locks the stopped ones
/// hold.
fn end_stopped(engine: &dyn Engine, signal: &Signal, timeout: Duration) {
    let mut stopped = Stopped::default();
    while !signal.stops_within(CHECK_EVERY) {
        stopped.check(engine, timeout);
    }
}

/// The stopped processes, and the number of checks since each last ran.
#[derive(Default)]
struct Stopped(Vec<(Holder, u32)>);

impl Stopped {
    /// Kills each process that has been stopped for `timeout`.
    fn check(&mut self, engine: &dyn Engine, timeout: Duration) {
        let before = std::mem::take(&mut self.0);
        let checks = |holder: &Holder| {
            let seen = before.iter().find(|(seen, _)| holder.idle_since(seen));
            seen.map_or(0, |(_, checks)| checks + 1)
        };
        let now = other_processes(engine).into_iter().filter(|holder| holder.stopped);
        self.0 =
            now.map(|holder| (checks(&holder), holder)).map(|(checks, holder)| (holder, checks)).collect();
        for (holder, checks) in self.0.iter_mut().filter(|(_, checks)| CHECK_EVERY * *checks >= timeout) {
            // If that fails, it is tried again after the same time.
            *checks = 0;
            let ended = engine.pooled().map_or(Ok(false), |pool| pool.end_stopped(holder));
            match ended {
                Ok(true) => {
                    log::warn!("ended {holder}; it shares the store and was stopped for {timeout:?}")
                }
                Ok(false) => {}
                Err(error) => {
                    log::warn!("cannot end {holder}; it shares the store and is stopped: {error}")
                }
            }
        }
    }
}

fn sweep(engine: &dyn Engine, signal: &Signal) {
    while !signal.stops_within(SWEEP_EVERY) {
        for (chore, time) in SWEEP_CHORES {
            repeat(signal, time, || engine.step(chore, &|| signal.is_stopping()));
        }
    }
}

/// Does a step of a chore, and more while there is more to do, for `time` at most. A caller that
/// wants to pause waits for one step.
#[allow(clippy::disallowed_methods, reason = "the facade owns the threads, and shares their time out")]
fn repeat(signal: &Signal, time: Duration, mut step: impl FnMut() -> Rest) {
    let began = std::time::Instant::now();
    loop {
        let rest = {
            let _changing = signal.change();
            step()
        };
        if rest == Rest::Idle || began.elapsed() >= time || signal.stops_within(Duration::ZERO) {
            return;
        }
    }
}

/// Does steps of chores while there is more to do, and waits for work otherwise. Merges read `rate`
/// bytes a second at most.
#[allow(clippy::disallowed_methods, reason = "the facade owns the threads, and shares their time out")]
fn work_on_disk(engine: &dyn Engine, signal: &Signal, chores: &[Chore], rate: Option<u64>) {
    let began = std::time::Instant::now();
    let rate = rate.map_or_else(Rate::unlimited, |rate| Rate::new(rate, rate));
    let merged = || engine.on_disk().map_or(0, |disk| disk.merged_bytes());
    let (mut before, mut troubles) = (merged(), Troubles::default());
    while !signal.is_stopping() {
        let now = merged();
        let delay = rate.grant(now - before, began.elapsed());
        before = now;
        if !delay.is_zero() && signal.stops_within(delay) {
            return;
        }
        let mut rest = Rest::Idle;
        for &chore in chores {
            let _changing = signal.change();
            if engine.step(chore, &|| signal.is_stopping()) == Rest::More {
                rest = Rest::More;
            }
            let trouble = engine.on_disk().and_then(|disk| disk.trouble(chore));
            let line = troubles.note(chore, trouble.map(|error| error.to_string()));
            line.into_iter().for_each(|(level, line)| log::log!(level, "{line}"));
        }
        if rest == Rest::Idle {
            engine.on_disk().inspect(|disk| disk.wait_for_work(WORK_EVERY));
        }
    }
}

/// The work that fails, as far as the log knows.
#[derive(Default)]
struct Troubles(Vec<Chore>);

impl Troubles {
    /// Notes whether work fails, and why. Returns a line for the log when that begins, and when it
    /// ends.
    fn note(&mut self, chore: Chore, trouble: Option<String>) -> Option<(log::Level, String)> {
        let what = if chore == Chore::Flush { "flushes" } else { "merges" };
        match (trouble, self.0.iter().position(|&known| known == chore)) {
            (Some(why), None) => {
                self.0.push(chore);
                let line = format!("{what} of the store fail, and are tried again ever less often: {why}");
                Some((log::Level::Warn, line))
            }
            (None, Some(nth)) => {
                self.0.remove(nth);
                Some((log::Level::Info, format!("{what} of the store go on")))
            }
            _ => None,
        }
    }
}

fn use_huge_pages(engine: &dyn Engine, signal: &Signal) {
    loop {
        // A thread of the lowest priority also exits late when the process is killed, and until
        // then no process may treat this one as dead. So it exists only while it has work.
        std::thread::scope(|scope| {
            let thread = Builder::new().name("terrace-pages".into());
            if let Err(error) = thread.spawn_scoped(scope, || use_huge_pages_once(engine, signal)) {
                log::warn!("cannot start a thread that requests huge pages: {error}");
            }
        });
        if signal.stops_within(HUGE_PAGES_EVERY) {
            return;
        }
    }
}

fn use_huge_pages_once(engine: &dyn Engine, signal: &Signal) {
    // Copying memory has the lowest priority. On Linux, this affects only the calling thread.
    let _ = rustix::process::nice(19);
    while !signal.is_stopping() && engine.step(Chore::HugePages, &|| signal.is_stopping()) == Rest::More {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_blocked_only_by_stopped_process() {
        let blocks_pause = |pausing, stopped| State { pausing, ..State::default() }.blocks_pause(|| stopped);
        assert_eq!(
            [(0, false), (0, true), (1, false)].map(|(pausing, stopped)| blocks_pause(pausing, stopped)),
            [false; 3]
        );
        assert!(blocks_pause(1, true) && blocks_pause(2, true));
    }

    #[test]
    fn step_repeats_while_work_and_time_remain() {
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
    fn failing_work_is_logged_when_it_begins_and_ends() {
        let mut troubles = Troubles::default();
        let line = troubles.note(Chore::Log, Some("no room for z".into())).expect("it begins").1;
        assert!(line.ends_with("no room for z"), "{line}");
        let mut level = |chore, why: Option<&str>| Some(troubles.note(chore, why.map(String::from))?.0);
        assert_eq!(level(Chore::Merge, None), None);
        assert_eq!(level(Chore::Merge, Some("no room for a")), Some(log::Level::Warn));
        assert_eq!(level(Chore::Merge, Some("no room for b")), None);
        assert_eq!(level(Chore::Flush, Some("no room for c")), Some(log::Level::Warn));
        assert_eq!(level(Chore::Merge, None), Some(log::Level::Info));
        assert_eq!(level(Chore::Merge, None), None);
        assert_eq!(level(Chore::Flush, Some("no room for d")), None);
        assert_eq!(level(Chore::Flush, None), Some(log::Level::Info));
    }

    #[test]
    fn dropped_pause_is_no_longer_counted() {
        let options = crate::Store::options().anonymous().size(crate::ByteSize::mib(1));
        let engine: Arc<dyn Engine> = crate::open::engine(&options, crate::open::How::Create).unwrap();
        let background = Background::start(&engine, Work::default()).unwrap();
        assert!(!is_another_stopped(&*engine));
        for _ in 0..2 {
            drop(background.pause());
            assert_eq!(background.signal.state().pausing, 0);
        }
    }
}
