//! What this node does with each slot, for threads that look without a lock.

use crate::owner::Slot;
use crate::slot::SLOTS;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

/// Counters of writes, by the hash of the key.
const COUNTERS: usize = 1 << 16;

/// The state of a slot at one moment. It has changed whenever the word has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u32);

impl Word {
    pub(super) fn state(self) -> Slot {
        match self.0 & 3 {
            0 => Slot::Away,
            1 => Slot::Held,
            _ => Slot::Served,
        }
    }

    /// Changes each time that the slot comes or leaves.
    pub(super) fn generation(self) -> u32 {
        self.0 >> 2
    }
}

/// The slots, the lease, and counters that tell a key's versions apart.
pub(super) struct Slots {
    words: Box<[AtomicU32]>,
    lease_until: AtomicU64,
    writes: Box<[AtomicU64]>,
    /// Slots that have come to be served.
    arrivals: AtomicU64,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            words: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            lease_until: AtomicU64::new(0),
            writes: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            arrivals: AtomicU64::new(0),
        }
    }

    pub(super) fn word(&self, slot: u16) -> Word {
        // ORDER: pairs with the store in `set`: what was done to the caches before is seen.
        Word(self.words[usize::from(slot)].load(Acquire))
    }

    /// Sets the state of a slot; returns whether it was another one. One thread at a time calls it.
    pub(super) fn set(&self, slot: u16, state: Slot) -> bool {
        let word = self.word(slot);
        if word.state() == state {
            return false;
        }
        let bits = match state {
            Slot::Away => 0,
            Slot::Held => 1,
            Slot::Served => 2,
        };
        if state == Slot::Served {
            // ORDER: before the word, which pairs with the load there.
            self.arrivals.fetch_add(1, Relaxed);
        }
        let generation = word.generation().wrapping_add(1);
        debug_assert!(self.word(slot) == word, "one thread at a time moves slots");
        // ORDER: pairs with the load in `word`.
        self.words[usize::from(slot)].store(generation << 2 | bits, Release);
        true
    }

    /// How many slots have come to be served.
    pub(super) fn arrivals(&self) -> u64 {
        // ORDER: behind the load in `word`, with which a slot is seen as served.
        self.arrivals.load(Relaxed)
    }

    pub(super) fn set_lease(&self, until: Duration) {
        let until = u64::try_from(until.as_nanos()).expect("a clock of less than 500 years");
        self.lease_until.store(until, Release);
    }

    /// How long the lease holds from now on.
    pub(super) fn lease_left(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.lease_until.load(Acquire)).saturating_sub(now)
    }

    /// Whether the lease holds at this time.
    pub(super) fn may_answer(&self, now: Duration) -> bool {
        now.as_nanos() < u128::from(self.lease_until.load(Acquire))
    }

    /// The number of the last write of a key with this hash, or of a key that shares its counter.
    /// `word` is that of its slot.
    pub(super) fn stamp(&self, hash: u64, word: Word) -> u64 {
        // Each of the two only grows, so the sum changes whenever one does. (A generation begins
        // anew after a billion changes of its slot.)
        let writes = self.writes[hash as usize % COUNTERS].load(Acquire);
        writes + u64::from(word.generation())
    }

    /// Counts a write.
    pub(super) fn count(&self, hash: u64) {
        self.writes[hash as usize % COUNTERS].fetch_add(1, Release);
    }

    /// Counts a write of every key.
    pub(super) fn count_all(&self) {
        self.writes.iter().for_each(|counter| _ = counter.fetch_add(1, Release));
    }
}
