//! The root and the descriptors: where the shards are.

use super::bucket::Bucket;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{BLOCK, Line, Medium, Offset, Region, Word};
use terrace_pool::Lock;

/// A shard that is at least half full grows when a path is longer than this many buckets.
pub(super) const SCOPE: u64 = 16;
/// The largest shard: 2^15 buckets, so 15 bits of a key's hash determine its home in any shard.
pub(super) const BUCKETS_LOG2_MAX: u32 = super::super::packed::HASH_BITS;
/// The largest number of shards: 2^20, with descriptors of 64 MiB.
pub(super) const SHARDS_LOG2_MAX: u32 = 20;
/// Keys of the capacity hint for each shard: a shard of 64 or 128 buckets, which is rehashed within
/// the second-level cache in some ten microseconds.
const KEYS_PER_SHARD: u64 = 1024;
/// Bytes of the pool for each shard, if no hint asks for more keys.
const POOL_PER_SHARD: u64 = 1 << 20;

/// The number of shards, as a binary logarithm, of a table for `capacity` keys in a pool of
/// `pool_bytes`.
pub(super) fn shards_log2(capacity: u64, pool_bytes: u64) -> u32 {
    let shards = capacity.div_ceil(KEYS_PER_SHARD).max(pool_bytes / POOL_PER_SHARD).max(1);
    shards.checked_next_power_of_two().map_or(SHARDS_LOG2_MAX, u64::ilog2).min(SHARDS_LOG2_MAX)
}

/// The root block: two lines. Line 0 never changes; line 1 is volatile.
///
/// ```text
///   line 0 | kind | seed | shards (log2) | descriptors | places | check of these words | 0 | 0 |
///   line 1 | resizes | next shard of `maintain` | 0 ... |
/// ```
pub(super) type Root = [Line; 2];

pub(super) const ROOT_KIND: usize = 0;
pub(super) const ROOT_SEED: usize = 1;
pub(super) const ROOT_SHARDS: usize = 2;
pub(super) const ROOT_DESCRIPTORS: usize = 3;
pub(super) const ROOT_PLACES: usize = 4;
pub(super) const ROOT_CHECK: usize = 5;
pub(super) const VOLATILE_RESIZES: usize = 0;
pub(super) const VOLATILE_NEXT: usize = 1;

/// The value of [`ROOT_CHECK`]. It differs if any one word differs.
pub(super) fn root_check(words: &[u64]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    words.iter().fold(ODD, |check, word| (check ^ word).wrapping_mul(ODD).rotate_left(29))
}

/// The place of a shard's buckets: `| 63:48 check | 47:6 offset / 64 | 5:0 log2 of the buckets |`;
/// 0 if it has none.
///
/// Opening an index verifies the check, because writing buckets at a wrong place would destroy
/// other data. Operations do not, because only rehashes change these words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(u64);

const CHECK_AT: u32 = 48;
const START: u64 = (1 << CHECK_AT) - 64;

/// The check of a place's other bits. It covers them in pieces of two bytes, so one changed byte is
/// always detected.
fn check(bits: u64) -> u64 {
    const NOT_ZERO: u64 = 0x7ab0;
    (bits ^ bits >> 16 ^ bits >> 32 ^ NOT_ZERO) & 0xffff
}

impl Place {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(start: u64, log2: u32) -> Self {
        debug_assert!(start.is_multiple_of(64) && log2 <= BUCKETS_LOG2_MAX);
        let bits = start | u64::from(log2);
        Self(bits | check(bits) << CHECK_AT)
    }
    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        self.0
    }
    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
    #[inline(always)]
    pub(super) fn start(self) -> u64 {
        self.0 & START
    }
    #[inline(always)]
    pub(super) fn log2(self) -> u32 {
        (self.0 & 63) as u32
    }
    /// Number of buckets; 0 if it has none.
    pub(super) fn buckets(self) -> u64 {
        if self.is_none() { 0 } else { 1 << self.log2() }
    }
    /// The bucket where a search for a hash begins.
    #[inline(always)]
    pub(super) fn home(self, inner: u64) -> u64 {
        // 63 minus the logarithm, modulo 64.
        inner >> 1 >> (!self.0 & 63)
    }
    /// The bucket after another on a path.
    #[inline(always)]
    pub(super) fn next(self, index: u64) -> u64 {
        (index + 1) & !(u64::MAX << self.log2())
    }
    #[inline(always)]
    pub(super) fn bucket(self, index: u64) -> Offset<Bucket> {
        Offset::new(self.start() + index * BLOCK as u64)
    }
    pub(super) fn bytes(self) -> usize {
        self.buckets() as usize * BLOCK
    }
    /// Whether the word is as it was made, and can be a shard in a region of `len` bytes.
    pub(super) fn is_sound(self, len: usize) -> bool {
        self.is_none()
            || (self.0 >> CHECK_AT == check(self.0 & ((1 << CHECK_AT) - 1))
                && self.log2() <= BUCKETS_LOG2_MAX
                && self.start() != 0
                && self.start() + self.bytes() as u64 <= len as u64)
    }
}

/// The place in a word that every thread reads, or in a descriptor.
#[inline(always)]
pub(super) fn place<M: Medium>(medium: &M, word: &Word) -> Place {
    // ORDER: Acquire: pairs with the Release of a rehash: the buckets there are visible.
    Place(word.load(medium, Acquire))
}

/// A shard's descriptor: a line.
///
/// ```text
///   | lock | version | place 0 | place 1 | keys | pending | probes | 0 |
/// ```
/// The version is 0 or all ones, so a change of one byte never turns one version into the other.
///
/// Lock, keys (their number), pending (buckets that may not be durable) and probes (the average
/// length of a path) are volatile.
#[derive(Clone, Copy)]
pub(super) struct Descriptor<'t>(pub(super) &'t Line);

const LOCK: usize = 0;
const VERSION: usize = 1;
const PLACES: usize = 2;
const KEYS: usize = 4;
const PENDING: usize = 5;
const PROBES: usize = 6;

/// Number of pending buckets, in the bits of an offset that are always zero; all ones mean the
/// whole shard.
const PENDING_COUNT: u64 = 63;

/// One bucket, in the unit of `probes`.
pub(super) const ONE_PROBE: u64 = 1 << 16;

impl<'t> Descriptor<'t> {
    #[inline(always)]
    pub(super) fn lock(self) -> &'t Lock {
        Lock::of(&self.0.0[LOCK])
    }

    fn version<M: Medium>(self, medium: &M) -> usize {
        // ORDER: Relaxed: under the shard's lock, or while no thread writes. A thread that opens
        // the table beside writers checks only that the place is possible, which holds in either
        // version.
        (self.0.0[VERSION].load(medium, Relaxed) & 1) as usize
    }

    /// The shard's place that survives a crash.
    #[inline(always)]
    pub(super) fn place<M: Medium>(self, medium: &M) -> Place {
        place(medium, &self.0.0[PLACES + self.version(medium)])
    }

    /// Stores a place into the half that does not count yet.
    pub(super) fn prepare<M: Medium>(self, medium: &M, place: Place) {
        // ORDER: Relaxed: no thread reads it before the Release of `switch`.
        self.0.0[PLACES + 1 - self.version(medium)].store(medium, place.word(), Relaxed);
    }

    /// Makes the prepared place the current one: the single store that completes a rehash.
    pub(super) fn switch<M: Medium>(self, medium: &M) {
        let other = if self.version(medium) == 0 { u64::MAX } else { 0 };
        self.0.0[VERSION].store(medium.point("turbo.switch"), other, Release);
    }

    /// Whether version and place are as they were stored.
    pub(super) fn is_sound<M: Medium>(self, region: &Region<M>) -> bool {
        let medium = region.medium();
        let (version, place) = (self.0.0[VERSION].load(medium, Relaxed), self.place(medium));
        (version == 0 || version == u64::MAX)
            && (place.is_sound(medium.len()) || place.is_sound(region.refreshed_len()))
    }

    #[inline(always)]
    pub(super) fn keys<M: Medium>(self, medium: &M) -> u64 {
        self.0.0[KEYS].load(medium, Relaxed)
    }
    #[inline(always)]
    pub(super) fn set_keys<M: Medium>(self, medium: &M, keys: u64) {
        self.0.0[KEYS].store(medium, keys, Relaxed);
    }

    /// The buckets of the shard at `place` that may not be durable while the lock is held or
    /// unfenced.
    pub(super) fn pending<M: Medium>(self, medium: &M, place: Place) -> impl Iterator<Item = u64> {
        let word = self.0.0[PENDING].load(medium, Relaxed);
        let (last, count) = (word & !PENDING_COUNT, word & PENDING_COUNT);
        let last = last.wrapping_sub(place.start()) / BLOCK as u64;
        // A shard that was rehashed since is durable as a whole: none.
        let count = match last < place.buckets() {
            true if count == PENDING_COUNT => place.buckets(),
            true => count.min(place.buckets()),
            false => 0,
        };
        (0..count).map(move |before| last.wrapping_sub(before) & (place.buckets() - 1))
    }
    /// Announces stores to the bucket `last`, or to `count` buckets up to it. Called before the
    /// first of these stores, under the lock.
    #[inline(always)]
    pub(super) fn set_pending<M: Medium>(self, medium: &M, last: Offset<Bucket>, count: u64) {
        // The stores to the buckets are Release: a thread that sees one of them sees this.
        self.0.0[PENDING].store(medium, last.raw() | count.min(PENDING_COUNT), Relaxed);
    }

    /// Records a path of `buckets` buckets, in a shard of 2^log2, and returns the moving average.
    #[inline(always)]
    pub(super) fn measure<M: Medium>(self, medium: &M, buckets: u64, log2: u32) -> u64 {
        let before = self.0.0[PROBES].load(medium, Relaxed);
        // Over the last 4 paths of a small shard, where all are alike, and the last 64 of a large
        // one.
        let over_log2 = (log2 + 2).min(6);
        let average = before - (before >> over_log2) + ((buckets * ONE_PROBE) >> over_log2);
        self.0.0[PROBES].store(medium, average, Relaxed);
        average
    }
    pub(super) fn forget_measure<M: Medium>(self, medium: &M) {
        self.0.0[PROBES].store(medium, ONE_PROBE, Relaxed);
    }
}

#[cfg(test)]
#[path = "tests/directory.rs"]
mod tests;
