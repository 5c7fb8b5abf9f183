//! The size of the cached table, chosen by how many bucket reads it saves.

use super::bucket::SLOTS;
use super::table::BUCKET_BYTES;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The smallest and largest size of an index's DRAM cache, in bytes. A largest size of 0 means no
/// cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheBounds {
    /// The smallest size.
    pub min: u64,
    /// The largest size.
    pub max: u64,
}

/// The counters of a DRAM cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Its size, as if all of it had been touched.
    pub bytes: u64,
    /// Keys that it has room for.
    pub slots: u64,
    /// Searches that it answered, including answers that a key is absent.
    pub hits: u64,
    /// Searches that it left to the index.
    pub misses: u64,
    /// How often it has grown.
    pub grown: u64,
    /// How often it has shrunk.
    pub shrunk: u64,
}

impl CacheBounds {
    /// The fewest and the most buckets, as binary logarithms; `None` if there is no cache.
    pub(super) fn logs(self) -> Option<(u32, u32)> {
        const LOG2_MAX: u32 = 33;
        let most = self.max / BUCKET_BYTES;
        let log2 = |buckets: u64| buckets.max(1).ilog2().min(LOG2_MAX);
        (most > 0).then(|| (log2(self.min.min(self.max) / BUCKET_BYTES), log2(most)))
    }
}

/// Counted events. Each thread slot (modulo sixteen) has a line of counters, so threads do not
/// share a line. Two threads with the same slot modulo sixteen may lose a count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Event {
    Hit,
    Miss,
    /// A hit that half the cache would have missed.
    OldHit,
    /// A miss that twice the cache would have hit, as far as ghosts show.
    GhostMiss,
    /// Buckets of the table that misses have read.
    Bucket,
    Change,
    /// A key was stored in a free slot.
    Filling,
}
const EVENTS: usize = Event::Filling as usize + 1;

#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; EVENTS]);

const STRIPES: usize = 16;

#[derive(Default)]
pub(super) struct Tally([Stripe; STRIPES]);

impl Tally {
    /// Adds to a counter, and returns its value for this thread slot.
    #[inline(always)]
    pub(super) fn add(&self, thread_slot: u64, event: Event, by: u64) -> u64 {
        let count = &self.0[thread_slot as usize % STRIPES].0[event as usize];
        let now = count.load(Relaxed).wrapping_add(by);
        count.store(now, Relaxed);
        now
    }

    pub(super) fn sum(&self) -> Counted {
        let each = |event: usize| self.0.iter().map(|stripe| stripe.0[event].load(Relaxed)).sum();
        Counted(std::array::from_fn(each))
    }
}

/// Counts, of some time or since the start.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counted([u64; EVENTS]);

/// What to do with the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    Keep,
    Double,
    Halve,
}

/// The cache is doubled if that saves a bucket read for one in this many operations. It is halved
/// if that costs a bucket read for fewer than one in [`WORTH_KEEPING`].
const WORTH_DOUBLING: u64 = 32;
const WORTH_KEEPING: u64 = 128;

impl Counted {
    pub(super) fn of(self, event: Event) -> u64 {
        self.0[event as usize]
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|event| self.0[event].saturating_sub(before.0[event])))
    }

    pub(super) fn operations(self) -> u64 {
        self.of(Event::Hit) + self.of(Event::Miss) + self.of(Event::Change)
    }

    /// Whether there are enough operations to judge a cache of this many slots.
    pub(super) fn is_enough_for(self, slots: u64) -> bool {
        self.operations() >= (4 * slots).max(512 * SLOTS as u64)
    }

    /// Whether keys are still stored in free slots, so that the use of the cache is not known yet.
    pub(super) fn is_filling(self) -> bool {
        self.of(Event::Filling) * 16 > self.operations()
    }

    /// Estimates the bucket reads that twice or half the size would save or cost: the number of
    /// searches that it would answer or not, times the reads of a search that is not answered.
    /// Writes count as operations, because they pay for the cache without a gain.
    pub(super) fn advice(self) -> Advice {
        let misses = self.of(Event::Miss).max(1);
        let buckets = |searches: u64| searches * self.of(Event::Bucket).max(misses) / misses;
        let operations = self.operations();
        if buckets(self.of(Event::GhostMiss)) * WORTH_DOUBLING >= operations {
            Advice::Double
        } else if buckets(self.of(Event::OldHit)) * WORTH_KEEPING < operations {
            Advice::Halve
        } else {
            Advice::Keep
        }
    }
}

#[cfg(test)]
#[path = "tests/size.rs"]
mod tests;
