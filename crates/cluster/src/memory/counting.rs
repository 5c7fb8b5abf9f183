//! How many keys each slot has. They are counted after a start, while changes go on: those of keys
//! behind the frontier are counted with it.

use crate::slot::SLOTS;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_direct::Key;
use terrace_engine::{Cursor, Engine, ReadError};
use terrace_index::{Bytes, CURSOR_LIMIT, KeyKind};
use terrace_server::databases::slot_of;

/// Keys that a step of a scan looks at.
pub(super) const STEP: usize = 256;

/// The keys of each slot, and how far they are counted. Nothing stands below: the index is the
/// caller's.
pub(super) struct Counting {
    keys: Box<[AtomicU64]>,
    /// Of the index's hashes.
    seed: u64,
    pub(super) is_done: AtomicBool,
    /// The cursor up to which all is counted. Its lock is held over a change and its count, and
    /// over a step.
    frontier: Mutex<u64>,
    /// Changes that wait for the lock: a step begins when there is none.
    waiting: AtomicUsize,
    /// Whether damaged records were left out. Those that are damaged later were counted.
    has_skipped: AtomicBool,
}

impl Counting {
    /// Nothing is counted yet. `seed` is that of the index's hashes.
    pub(super) fn new(seed: u64) -> Self {
        let keys = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let (is_done, frontier, waiting, has_skipped) = Default::default();
        Self { keys, seed, is_done, frontier, waiting, has_skipped }
    }

    /// Keys of a slot.
    pub(super) fn keys(&self, slot: u16) -> u64 {
        self.keys[usize::from(slot)].load(Relaxed)
    }

    /// Whether the keys of all slots are counted.
    pub(super) fn is_done(&self) -> bool {
        // ORDER: pairs with the store behind the last step.
        self.is_done.load(Acquire)
    }

    /// Whether damaged records were left out.
    pub(super) fn has_skipped(&self) -> bool {
        self.has_skipped.load(Relaxed)
    }

    /// A key has come.
    pub(super) fn add(&self, key: &[u8]) {
        // ORDER: Relaxed: a slot has one writer, and readers need no other memory with the number.
        self.keys[usize::from(slot_of(key))].fetch_add(1, Relaxed);
    }

    /// A key has gone.
    pub(super) fn subtract(&self, key: &[u8]) {
        let less = |keys: u64| Some(keys.saturating_sub(1));
        // ORDER: as in `add`.
        let _ = self.keys[usize::from(slot_of(key))].fetch_update(Relaxed, Relaxed, less);
    }

    fn frontier(&self) -> MutexGuard<'_, u64> {
        self.frontier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cursor of a key: scans go by the hashes.
    fn place(&self, key: &[u8]) -> u64 {
        let unused = CURSOR_LIMIT.leading_zeros() + 1;
        <Bytes<Key> as KeyKind>::hash(key, self.seed) >> unused
    }

    /// Makes a change. It is told of which keys it counts the changes.
    pub(super) fn change<T>(&self, change: impl FnOnce(&dyn Fn(&[u8]) -> bool) -> T) -> T {
        if self.is_done() {
            return change(&|_| true);
        }
        self.waiting.fetch_add(1, Relaxed);
        let frontier = self.frontier();
        self.waiting.fetch_sub(1, Relaxed);
        change(&|key| self.place(key) < *frontier)
    }

    /// Counts the keys of all slots, until `stop`.
    pub(super) fn run(&self, engine: &dyn Engine, stop: &dyn Fn() -> bool) {
        while !stop() && !self.is_done() {
            if self.waiting.load(Relaxed) > 0 {
                std::thread::yield_now();
                continue;
            }
            let mut frontier = self.frontier();
            let from = *frontier;
            // After the index has shrunk, a step begins before the frontier.
            let mut each = |key: &[u8], _: terrace_engine::Entry<'_>| {
                if self.place(key) >= from {
                    self.add(key);
                }
            };
            let cursor = Cursor::from_number(from).expect("a scan stopped there");
            let scanned = engine.scan(&cursor, STEP, &mut each);
            if matches!(scanned, Err(ReadError::Skipped { .. })) {
                // ORDER: Relaxed: changes read it under the lock, or once all is counted.
                self.has_skipped.store(true, Relaxed);
            }
            match go_on(scanned) {
                Ok(next) if !next.is_end() => *frontier = next.number().expect("a place in a hash index"),
                ended => {
                    if let Err(error) = ended {
                        log::error!("the keys of each slot cannot be counted: {error}");
                    }
                    // Also for changes that wait for the lock now: every key is behind it.
                    *frontier = CURSOR_LIMIT;
                    // ORDER: pairs with the load in `change`: later changes are counted.
                    self.is_done.store(true, Release);
                }
            }
        }
    }
}

/// Goes on behind damaged records.
fn go_on(scanned: Result<Cursor, ReadError>) -> Result<Cursor, ReadError> {
    match scanned {
        Err(ReadError::Skipped { next, .. }) => Ok(next),
        scanned => scanned,
    }
}
