//! The bucket of BCH and PFHT: the same bytes, slots and order of stores as our Level hashing's
//! bucket, as in that paper's comparison.
//!
//! ```text
//! | tokens | spare | key0 | key1 | key2 | value0 | value1 | value2 |
//! | key3 | ... | key6 | value3 | ... | value6 |      a slot holds a pair if its token is set
//! ```

use super::{Space, SpaceFull, hashes};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Line, Medium, Offset, Word};

pub(super) const SLOTS: usize = 7;
pub(super) const BUCKET: u64 = 128;
/// Pairs that share the tokens' line.
const FIRST: usize = 3;
const ALL: u64 = (1 << SLOTS) - 1;

type Bucket = [Line; 2];

/// A row of buckets; each key is in one of two.
pub(super) struct Buckets<M> {
    space: Arc<Space<M>>,
    at: u64,
    log2: u32,
}

/// A bucket and a slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: u64,
    pub(super) slot: usize,
}

const fn key_at(slot: usize) -> (usize, usize) {
    if slot < FIRST { (0, 2 + slot) } else { (1, slot - FIRST) }
}

const fn value_at(slot: usize) -> (usize, usize) {
    if slot < FIRST { (0, 5 + slot) } else { (1, 4 + slot - FIRST) }
}

impl<M: Medium> Buckets<M> {
    /// 2^n buckets with at least `slots` slots.
    pub(super) fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull> {
        let log2 = slots.div_ceil(SLOTS as u64).max(2).next_power_of_two().ilog2();
        let at = space.alloc(BUCKET << log2)?;
        Ok(Self { space, at, log2 })
    }

    pub(super) fn slots(&self) -> u64 {
        (SLOTS as u64) << self.log2
    }

    pub(super) fn bytes(&self) -> u64 {
        BUCKET << self.log2
    }

    /// The two buckets of a key, never the same.
    #[inline(always)]
    pub(super) fn of(&self, key: u64) -> [u64; 2] {
        let [one, other] = hashes(key).map(|hash| hash >> (64 - self.log2));
        [one, if one == other { one ^ 1 } else { other }]
    }

    /// The other bucket of a key that lies in `bucket`.
    pub(super) fn alternative(&self, key: u64, bucket: u64) -> u64 {
        let [one, other] = self.of(key);
        if one == bucket { other } else { one }
    }

    #[inline(always)]
    fn bucket(&self, number: u64) -> &Bucket {
        self.space.region().at(Offset::new(self.at + number * BUCKET))
    }

    fn word(&self, bucket: u64, (line, word): (usize, usize)) -> &Word {
        &self.bucket(bucket)[line].0[word]
    }

    #[inline(always)]
    fn tokens(&self, bucket: u64) -> u64 {
        self.word(bucket, (0, 0)).load(self.space.medium(), Acquire)
    }

    pub(super) fn free_slot(&self, bucket: u64) -> Option<Place> {
        let free = !self.tokens(bucket) & ALL;
        (free != 0).then(|| Place { bucket, slot: free.trailing_zeros() as usize })
    }

    pub(super) fn key(&self, place: Place) -> u64 {
        self.word(place.bucket, key_at(place.slot)).load(self.space.medium(), Acquire)
    }

    pub(super) fn value(&self, place: Place) -> u64 {
        self.word(place.bucket, value_at(place.slot)).load(self.space.medium(), Acquire)
    }

    #[inline(always)]
    pub(super) fn find_in(&self, bucket: u64, key: u64) -> Option<Place> {
        let (lines, medium) = (self.bucket(bucket), self.space.medium());
        let tokens = self.tokens(bucket);
        // The second line is not read if the bucket has nothing there.
        let mut matches = lines[0].equal::<2, FIRST>(medium, key);
        if tokens >> FIRST != 0 {
            matches |= lines[1].equal::<0, 4>(medium, key) << FIRST;
        }
        let matches = matches & tokens;
        (matches != 0).then(|| Place { bucket, slot: matches.trailing_zeros() as usize })
    }

    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Option<Place> {
        let [one, other] = self.of(key);
        self.find_in(one, key).or_else(|| self.find_in(other, key))
    }

    /// Fills a free slot: first the pair, then its token (log-free insertion).
    pub(super) fn put(&self, place: Place, key: u64, value: u64) {
        let (region, medium) = (self.space.region(), self.space.medium());
        self.word(place.bucket, value_at(place.slot)).store(medium, value, Release);
        self.word(place.bucket, key_at(place.slot)).store(medium, key, Release);
        if place.slot >= FIRST {
            // PERSIST: the pair before its token; a token that came first would make garbage a
            // pair. In the tokens' line, the order of stores ensures that.
            region.persist(&self.bucket(place.bucket)[1]);
        }
        self.store_tokens(place.bucket, self.tokens(place.bucket) | 1 << place.slot);
    }

    /// Empties a slot (log-free deletion).
    pub(super) fn clear(&self, place: Place) {
        self.store_tokens(place.bucket, self.tokens(place.bucket) & !(1 << place.slot));
    }

    fn store_tokens(&self, bucket: u64, tokens: u64) {
        self.word(bucket, (0, 0)).store(self.space.medium(), tokens, Release);
        // PERSIST: the change that the tokens make, before the caller returns.
        self.space.region().persist(&self.bucket(bucket)[0]);
    }

    /// Moves a pair to a free slot. A crash in between leaves it twice, with the same value.
    pub(super) fn relocate(&self, from: Place, to: Place) {
        self.put(to, self.key(from), self.value(from));
        self.clear(from);
    }

    pub(super) fn replace(&self, place: Place, value: u64) {
        let word = self.word(place.bucket, value_at(place.slot));
        word.store(self.space.medium(), value, Release);
        // PERSIST: the new value, before the caller returns; one word, so a crash leaves the old
        // one or this.
        self.space.region().persist(word);
    }
}
