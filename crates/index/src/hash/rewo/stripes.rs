//! Locks of buckets, in stripes; and for each stripe the bucket that may not be durable, and the
//! number of keys.
//!
//! ```text
//!   stripe: | lock | pending: the bucket that may not be durable | keys in its buckets | 0 |
//!   two a line; all of it is volatile
//! ```
//! A stripe's lock is that of every bucket with its number (the bucket's offset in blocks, modulo
//! the stripes). A key's buckets are locked in the order of their stripes; further locks are only
//! tried, so there is no circular wait.

use super::base::Base;
use super::bucket::Bucket;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{BLOCK, MappedMedium, Offset, Word};
use terrace_pool::{Guard, Lock, Locked};

/// The largest number of stripes, as a binary logarithm.
pub(super) const STRIPES_LOG2_MAX: u32 = 16;
pub(super) const STRIPE_BYTES: usize = 32;
const LOCK: usize = 0;
const PENDING: usize = 1;
const KEYS: usize = 2;

/// Buckets that one operation locks: two in each of two tables, and two of evicted keys.
const LOCKS_MAX: usize = 8;

/// Stripes that this thread has locked.
pub(super) struct LockedStripes<'g, M: MappedMedium> {
    locks: [Option<(usize, Locked<'g, M>)>; LOCKS_MAX],
    len: usize,
    evictions: u32,
}

impl<'g, M: MappedMedium> LockedStripes<'g, M> {
    pub(super) fn none() -> Self {
        Self { locks: [const { None }; LOCKS_MAX], len: 0, evictions: 0 }
    }

    #[inline(always)]
    pub(super) fn has(&self, stripe: usize) -> bool {
        self.locks[..self.len].iter().flatten().any(|(held, _)| *held == stripe)
    }

    #[inline(always)]
    fn push(&mut self, stripe: usize, lock: Locked<'g, M>) {
        self.locks[self.len] = Some((stripe, lock));
        self.len += 1;
    }

    /// Releases the lock of one stripe and marks it unfenced.
    pub(super) fn release_unfenced(&mut self, stripe: usize) {
        let found = self.locks.iter_mut().find(|held| held.as_ref().is_some_and(|(held, _)| *held == stripe));
        if let Some((_, lock)) = found.and_then(Option::take) {
            lock.release_unfenced();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Records how many evictions a key needed to find room under these locks.
    pub(super) fn set_evictions(&mut self, evictions: u32) {
        self.evictions = evictions;
    }

    #[inline(always)]
    pub(super) fn evictions(&self) -> u32 {
        self.evictions
    }

    /// Releases the locks after the first `len`.
    pub(super) fn release_after(&mut self, len: usize) {
        while self.len > len {
            self.len -= 1;
            self.locks[self.len] = None;
        }
    }
}

impl<M: MappedMedium> Base<M> {
    #[inline(always)]
    pub(super) fn stripe_of(&self, bucket: Offset<Bucket>) -> usize {
        (bucket.raw() / BLOCK as u64) as usize & (self.stripes() - 1)
    }

    pub(super) fn stripes(&self) -> usize {
        self.stripe_lines.as_slice().len() * 2
    }

    #[inline(always)]
    fn stripe_word(&self, stripe: usize, word: usize) -> &Word {
        &self.stripe_lines.as_slice()[stripe / 2].0[stripe % 2 * 4 + word]
    }

    #[inline(always)]
    pub(super) fn lock_of(&self, stripe: usize) -> &Lock {
        Lock::of(self.stripe_word(stripe, LOCK))
    }

    /// Whether a bucket that was just read may not be durable.
    #[inline(always)]
    pub(super) fn may_be_unfenced(&self, bucket: Offset<Bucket>) -> bool {
        M::VOLATILE_CACHE
            && Lock::may_be_unfenced(self.lock_of(self.stripe_of(bucket)).load_word(self.pool.medium()))
    }

    /// Locks some buckets.
    #[inline(always)]
    pub(super) fn lock_buckets<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        buckets: &[Offset<Bucket>],
    ) -> LockedStripes<'g, M> {
        let mut stripes = [usize::MAX; 4];
        for (stripe, &bucket) in stripes.iter_mut().zip(buckets) {
            *stripe = self.stripe_of(bucket);
        }
        let stripes = &mut stripes[..buckets.len()];
        stripes.sort_unstable();
        let mut held = LockedStripes::none();
        for &stripe in &*stripes {
            self.lock_stripe(guard, &mut held, stripe);
        }
        held
    }

    /// Locks a stripe, unless this thread already holds it.
    #[inline(always)]
    pub(super) fn lock_stripe<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        stripe: usize,
    ) {
        if !held.has(stripe) {
            let lock = self.lock_of(stripe).acquire(guard);
            self.persist_pending(stripe, &lock);
            held.push(stripe, lock);
        }
    }

    /// Waits until a stripe is free. The caller holds none.
    #[cold]
    pub(super) fn wait_for(&self, guard: &Guard<'_, M>, stripe: usize) {
        let mut held = LockedStripes::none();
        self.lock_stripe(guard, &mut held, stripe);
    }

    /// Locks one more bucket, if no other thread holds it.
    pub(super) fn try_lock_bucket<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        bucket: Offset<Bucket>,
    ) -> bool {
        let stripe = self.stripe_of(bucket);
        if held.has(stripe) {
            return true;
        }
        if held.len == LOCKS_MAX {
            return false;
        }
        let Some(lock) = self.lock_of(stripe).try_acquire(guard) else { return false };
        self.persist_pending(stripe, &lock);
        held.push(stripe, lock);
        true
    }

    /// Persists what the last holder left unfenced, before this one builds upon it.
    #[inline(always)]
    fn persist_pending(&self, stripe: usize, lock: &Locked<'_, M>) {
        if M::VOLATILE_CACHE && lock.was_unfenced() {
            self.persist_left(stripe);
        }
    }

    #[cold]
    fn persist_left(&self, stripe: usize) {
        let region = self.pool.region();
        let pending = self.stripe_word(stripe, PENDING).load(region.medium(), Relaxed);
        // PERSIST: the holder deferred its fence, or died between the stores of a change. It can
        // have left only one bucket under this lock.
        if let Some(bucket) = region.get::<Bucket>(Offset::new(pending)) {
            region.write_back(bucket);
        }
        region.fence();
    }

    /// Announces stores to a bucket. Earlier stores to another bucket under this lock are durable.
    #[inline(always)]
    pub(super) fn announce(&self, bucket: Offset<Bucket>) {
        if M::VOLATILE_CACHE {
            // The stores to the bucket are Release: a thread that sees one of them sees this.
            self.stripe_word(self.stripe_of(bucket), PENDING).store(
                self.pool.medium(),
                bucket.raw(),
                Relaxed,
            );
        }
    }

    /// Counts keys that were added to a bucket or removed from it. Called under its lock.
    #[inline(always)]
    pub(super) fn add_keys(&self, bucket: Offset<Bucket>, by: i64) {
        let (medium, word) = (self.pool.medium(), self.stripe_word(self.stripe_of(bucket), KEYS));
        word.store(medium, word.load(medium, Relaxed).wrapping_add(by as u64), Relaxed);
    }

    /// Corrects the count of a stripe, under its lock.
    pub(super) fn set_keys(&self, stripe: usize, keys: u64) {
        self.stripe_word(stripe, KEYS).store(self.pool.medium(), keys, Relaxed);
    }

    pub(super) fn count_keys(&self) -> u64 {
        let keys = |stripe| self.stripe_word(stripe, KEYS).load(self.pool.medium(), Relaxed);
        let sum = (0..self.stripes()).map(keys).fold(0, u64::wrapping_add);
        (sum as i64).max(0) as u64
    }
}

#[cfg(test)]
#[path = "tests/stripes.rs"]
mod tests;
