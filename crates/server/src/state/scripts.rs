//! The scripts of a server: those that clients may call by name, and those that run now.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use terrace_script::{Script, StopFlag};

/// Scripts that EVAL has brought and that are kept: the latest ones. SCRIPT LOAD's stay.
const OF_EVAL_MOST: usize = 500;

/// Threads for scripts that take long. Further ones wait for them on their loops.
pub(crate) const THREADS: usize = 4;

/// The scripts of one server.
#[derive(Default)]
pub(crate) struct Scripts {
    known: RwLock<Known>,
    running: Mutex<Running>,
    /// The threads for long scripts that are taken.
    threads: AtomicUsize,
}

#[derive(Default)]
struct Known {
    by_sha: HashMap<String, Arc<Script>>,
    /// The names of those that only EVAL has brought, the oldest first.
    of_eval: VecDeque<String>,
}

#[derive(Default)]
struct Running {
    /// Each with its number, and the time at which it began.
    scripts: Vec<(u64, u64, StopFlag)>,
    last: u64,
    is_stopping: bool,
}

impl Scripts {
    /// The script with this name, 40 hexadecimal digits in lower case.
    pub(crate) fn get(&self, sha: &str) -> Option<Arc<Script>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).by_sha.get(sha).cloned()
    }

    /// Keeps a script; for ever, or until EVAL has brought many others.
    pub(crate) fn add(&self, script: Arc<Script>, for_ever: bool) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Known { by_sha, of_eval } = &mut *known;
        if for_ever {
            of_eval.retain(|sha| *sha != script.sha);
        } else if !by_sha.contains_key(&script.sha) {
            of_eval.push_back(script.sha.clone());
            if of_eval.len() > OF_EVAL_MOST {
                of_eval.pop_front().and_then(|oldest| by_sha.remove(&oldest));
            }
        }
        by_sha.insert(script.sha.clone(), script);
    }

    /// SCRIPT FLUSH: forgets all scripts. Those that run go on.
    pub(crate) fn clear(&self) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    /// How many scripts are kept, and the bytes of their texts.
    pub(crate) fn size(&self) -> (usize, usize) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        (known.by_sha.len(), known.by_sha.values().map(|script| script.text.len()).sum())
    }

    /// Notes that a script runs, until what is returned is dropped.
    pub(crate) fn begin(&self, now_ms: u64, flag: &StopFlag) -> RunningScript<'_> {
        let mut running = self.running();
        running.last += 1;
        if running.is_stopping {
            flag.shut_down();
        }
        let number = running.last;
        running.scripts.push((number, now_ms, flag.clone()));
        RunningScript { scripts: self, number }
    }

    /// SCRIPT KILL: ends the scripts that have run for longer than `threshold_ms`; if there is
    /// none, the one that has run for the longest time. Returns whether a script ran.
    pub(crate) fn kill(&self, now_ms: u64, threshold_ms: u64) -> bool {
        let running = self.running();
        let Some((_, oldest, _)) = running.scripts.iter().min_by_key(|(number, ..)| number) else {
            return false;
        };
        let until = now_ms.saturating_sub(threshold_ms).max(*oldest);
        running.scripts.iter().filter(|(_, began, _)| *began <= until).for_each(|(.., flag)| flag.kill());
        true
    }

    /// Takes a thread for a long script, if one is left. [`Scripts::give_back`] gives it back.
    pub(crate) fn take_thread(&self) -> bool {
        // ORDER: Relaxed, here and below: a count, which says nothing about other memory.
        self.threads.fetch_update(Relaxed, Relaxed, |taken| (taken < THREADS).then_some(taken + 1)).is_ok()
    }

    pub(crate) fn give_back(&self) {
        let before = self.threads.fetch_sub(1, Relaxed);
        assert!(before > 0, "only a thread that was taken is given back");
    }

    /// Whether no thread is left for another long script.
    pub(crate) fn are_full(&self) -> bool {
        self.threads.load(Relaxed) >= THREADS
    }

    /// Ends all scripts that run, and those that begin from now on.
    pub(crate) fn shut_down(&self) {
        let mut running = self.running();
        running.is_stopping = true;
        running.scripts.iter().for_each(|(.., flag)| flag.shut_down());
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // Consistent after every statement, so a panic elsewhere leaves no partial change.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A script that runs.
pub(crate) struct RunningScript<'a> {
    scripts: &'a Scripts,
    number: u64,
}

impl Drop for RunningScript<'_> {
    fn drop(&mut self) {
        self.scripts.running().scripts.retain(|(number, ..)| *number != self.number);
    }
}
