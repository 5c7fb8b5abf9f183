//! Pins for serving nodes: threads that keep what a one-sided reader may still reach.
//!
//! A pin is a guard of the pool that a thread holds, with a number. A serving node is told the
//! newest pin, relies on it, and says so with its renewals: then its reads from before have ended.
//! A pin is dropped once each session relies on a later one, or cannot read any more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_medium::Shm;
use terrace_pool::Pool;

/// Number of threads, and of pins at one time.
pub(crate) const THREADS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Free,
    /// Is to take a pin with this number.
    Takes(u64),
    Holds(u64),
    /// Is to drop it.
    Drops,
    Ends,
}

struct State {
    threads: [Thread; THREADS],
    /// When each thread took its last pin.
    taken: [Taken; THREADS],
    newest: u64,
}

/// When a pin was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) at: Duration,
    /// Bytes that the pool had retired until then: it holds back only what was retired later.
    pub(crate) retired: u64,
}

/// The pins.
pub(crate) struct Pins {
    state: Mutex<State>,
    changed: Condvar,
}

impl Pins {
    /// No pin yet.
    pub(crate) fn new() -> Arc<Self> {
        let (threads, taken) = ([Thread::Free; THREADS], [Taken::default(); THREADS]);
        let state = Mutex::new(State { threads, taken, newest: 0 });
        Arc::new(Self { state, changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(
        &self,
        state: MutexGuard<'s, State>,
        while_it: impl Fn(Thread) -> bool,
        nth: usize,
    ) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_while(state, |state| while_it(state.threads[nth]));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of a thread.
    pub(crate) fn run(&self, nth: usize, pool: &Pool<Shm>, now: &dyn Fn() -> Duration) {
        loop {
            let state = self.wait(self.state(), |thread| thread == Thread::Free, nth);
            let Thread::Takes(number) = state.threads[nth] else { return };
            drop(state);
            let guard = pool.pin();
            let taken = Taken { at: now(), retired: pool.retired_bytes() };
            let mut state = self.state();
            if state.threads[nth] == Thread::Takes(number) {
                (state.threads[nth], state.taken[nth]) = (Thread::Holds(number), taken);
                assert!(number > state.newest, "a pin is newer than those that nodes know");
                state.newest = number;
            }
            self.changed.notify_all();
            let mut state = self.wait(state, |thread| matches!(thread, Thread::Holds(_)), nth);
            drop(guard);
            if state.threads[nth] == Thread::Ends {
                return;
            }
            state.threads[nth] = Thread::Free;
            self.changed.notify_all();
        }
    }

    /// Takes a new pin if a thread is free, and drops those before `oldest`, on which some session
    /// relies.
    pub(crate) fn renew(&self, oldest: Option<u64>) {
        let mut state = self.state();
        let keeps = oldest.unwrap_or(u64::MAX).min(state.newest);
        let (next, is_taking) =
            (state.newest + 1, state.threads.iter().any(|thread| matches!(thread, Thread::Takes(_))));
        for thread in &mut state.threads {
            if matches!(thread, Thread::Holds(number) if *number < keeps) {
                *thread = Thread::Drops;
            }
        }
        let free = state.threads.iter_mut().find(|thread| **thread == Thread::Free);
        if let Some(thread) = free.filter(|_| !is_taking) {
            *thread = Thread::Takes(next);
        }
        self.changed.notify_all();
    }

    /// The newest pin; 0 for none.
    pub(crate) fn newest(&self) -> u64 {
        self.state().newest
    }

    /// Waits for the first pin.
    pub(crate) fn wait_for_first(&self) {
        self.renew(None);
        let waited = self
            .changed
            .wait_while(self.state(), |state| state.newest == 0 && state.threads[0] != Thread::Ends);
        drop(waited);
    }

    /// Pins that are held.
    pub(crate) fn held(&self) -> usize {
        self.state().threads.iter().filter(|thread| matches!(thread, Thread::Holds(_))).count()
    }

    /// When the oldest pin was taken, if no further one can be taken before it is dropped.
    pub(crate) fn oldest_of_all(&self) -> Option<Taken> {
        let state = self.state();
        let held = |thread: &Thread| if let Thread::Holds(number) = *thread { Some(number) } else { None };
        let numbers: Vec<u64> = state.threads.iter().filter_map(held).collect();
        let oldest = (0..THREADS).filter(|_| numbers.len() == THREADS).min_by_key(|nth| numbers[*nth]);
        oldest.map(|nth| state.taken[nth])
    }

    /// Ends the threads.
    pub(crate) fn end(&self) {
        self.state().threads = [Thread::Ends; THREADS];
        self.changed.notify_all();
    }
}
