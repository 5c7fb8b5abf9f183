//! The operations of every index on single keys.

use crate::change::{
    ChangeError, Decision, Deferred, Fencing, Swapped, decide_if, persist_deferred, swapped,
};
use crate::cursor::UNUSED_BITS;
use crate::hash::{CacheBounds, CacheStats};
use crate::layers::{LayerOptions, LayerStats};
use crate::{KeyKind, Place};
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard, Marker, Pool, PoolFull, RootError};

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The key was absent and is present now.
    New,
    /// The key was present with this word; nothing changed.
    Present(u64),
}

/// Damage that a get, an insert or a walk met: a state that no sound index has. The first one is
/// kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its offset in the pool, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: &'static str,
}

/// The size and load of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IndexStats {
    /// Number of keys.
    pub keys: u64,
    /// Slots for keys, overflow buckets included.
    pub slots: u64,
    /// Buckets of the main table.
    pub buckets: u64,
    /// Buckets chained to those.
    pub overflow_buckets: u64,
    /// Bytes of the pool that the index uses.
    pub bytes: u64,
    /// Resizes completed since the index was created or opened; of a tree, nodes that were replaced
    /// by one of another size.
    pub resizes: u64,
    /// Whether a resize is in progress.
    pub resizing: bool,
    /// Nodes of a tree by kind, the smallest kind first; 0 of a hash index. Their places for keys
    /// and children are the `slots`.
    pub nodes: [u64; 4],
}

impl IndexStats {
    /// The share of slots that are used, 0 to 1. In a tree all nodes but the root use one, too.
    pub fn load_factor(&self) -> f64 {
        let children = self.nodes.iter().sum::<u64>().saturating_sub(1);
        if self.slots == 0 { 0.0 } else { (self.keys + children) as f64 / self.slots as f64 }
    }
}

/// A map from keys to 64-bit words.
pub trait PointIndex: Send + Sync {
    /// The medium of its pool.
    type Medium: MappedMedium;
    /// The kind of its keys.
    type Kind: KeyKind;
    /// The name of this kind of index, also in a pool's root directory.
    const NAME: &'static str;
    /// The most fences that an insert takes outside a resize, on a medium that needs fences.
    const FENCES_PER_INSERT: u32;

    /// The index's pool.
    fn pool(&self) -> &Pool<Self::Medium>;

    /// The word of `key`.
    fn get(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>) -> Option<u64>;

    /// As [`PointIndex::get`], but damage instead of absence if an unsound record may be the one of
    /// `key`.
    fn get_sound(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>) -> Result<Option<u64>, Damage>;

    /// The words of `keys`; their cache misses overlap. Calls `each` for every key, in order, with
    /// the key's position in `keys`.
    fn get_many<'k>(
        &self,
        guard: &Guard<'_, Self::Medium>,
        keys: impl IntoIterator<Item = &'k Key<Self>>,
        each: impl FnMut(usize, Option<u64>),
    ) where
        Key<Self>: 'k;

    /// Changes the state of `key`, its word or absence, as `decide` says, in one atomic step.
    /// Returns the previous state. `decide` is called at least once, the last time with the state
    /// that is returned.
    ///
    /// A change of a present key takes no memory but what the index has set aside, so it succeeds
    /// in a full pool.
    ///
    /// # Errors
    /// Nothing changed: an absent key must be added, and the pool is full, or the key's place
    /// depends on something damaged.
    fn change(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError>;

    /// Adds `key` if it is absent.
    fn insert(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        word: u64,
    ) -> Result<Inserted, ChangeError> {
        Ok(match self.compare_and_swap(guard, key, None, Some(word))? {
            Swapped::Done => Inserted::New,
            Swapped::Found(Some(present)) => Inserted::Present(present),
            Swapped::Found(None) => unreachable!("an absent key was expected to be absent"),
        })
    }

    /// Gives `key` another word if it is present, and returns the previous word. Takes no memory
    /// but what the index has set aside.
    fn update(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>, word: u64) -> Option<u64> {
        let present = |before: Option<u64>| before.map_or(Decision::Keep, |_| Decision::Set(Some(word)));
        unless_damaged(self.change(guard, key, Fencing::Now, present))
    }

    /// Gives `key` this word, present or not, and returns the previous word.
    fn upsert(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        word: u64,
    ) -> Result<Option<u64>, ChangeError> {
        self.change(guard, key, Fencing::Now, |_| Decision::Set(Some(word)))
    }

    /// Removes `key` and returns its word. Takes no memory but what the index has set aside.
    fn remove(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>) -> Option<u64> {
        unless_damaged(self.change(guard, key, Fencing::Now, |_| Decision::Set(None)))
    }

    /// Changes the state of `key` to `new` if it is `expected`; `None` is absence on both sides.
    fn compare_and_swap(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<Swapped, ChangeError> {
        let found = self.change(guard, key, Fencing::Now, decide_if(expected, new))?;
        Ok(swapped(found, expected))
    }

    /// As [`PointIndex::compare_and_swap`], but durable only once `deferred` is persisted. Readers
    /// that see the change earlier persist it themselves.
    fn compare_and_swap_deferred(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, ChangeError> {
        let found = self.change(guard, key, Fencing::Deferred(deferred), decide_if(expected, new))?;
        Ok(swapped(found, expected))
    }

    /// Persists deferred writes, all with one fence.
    fn persist_deferred(&self, guard: &Guard<'_, Self::Medium>, deferred: Deferred) {
        persist_deferred(guard, deferred);
    }

    /// Number of keys. Exact while no thread writes; after an unclean stop of the machine, once a
    /// collection has run.
    fn len(&self) -> u64;

    /// Whether the index has no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the words from `from` on, at least `at_least` of them unless the end comes first.
    /// Returns where to continue. An index by hash accepts any position and returns one that a
    /// [cursor](crate::cursor) holds without loss. An index by order visits the words in the order
    /// of their keys.
    ///
    /// A full scan visits every key that is present throughout, through any resize. It may or may
    /// not visit a key that is added, removed or changed meanwhile. It may visit a key twice if a
    /// hash table shrinks between two calls, or if an insert moves the key (Level hashing).
    ///
    /// # Panics
    /// If `from` is a place of an index of the other sort.
    fn scan(
        &self,
        guard: &Guard<'_, Self::Medium>,
        from: &Place,
        at_least: usize,
        each: impl FnMut(u64),
    ) -> Place;

    /// A place that `draw`, a random number, determines. Each key is about as likely to follow it.
    fn random_place(&self, _guard: &Guard<'_, Self::Medium>, draw: u64) -> Place {
        Place::Hash(draw >> UNUSED_BITS << UNUSED_BITS)
    }

    /// Visits every word, in one full scan.
    fn for_each(&self, guard: &Guard<'_, Self::Medium>, mut each: impl FnMut(u64)) {
        let mut place = Place::Start;
        while !place.is_end() {
            place = self.scan(guard, &place, usize::MAX, &mut each);
        }
    }

    /// Marks every block of the index for the collector, and visits every word so that the caller
    /// can mark what it points to. Corrects [`PointIndex::len`].
    fn trace(
        &self,
        guard: &Guard<'_, Self::Medium>,
        marker: &mut Marker<'_>,
        each: impl FnMut(&mut Marker<'_>, u64),
    );

    /// Does a bounded piece of background work, such as a step of a resize. Returns whether more is
    /// left.
    fn maintain(&self, guard: &Guard<'_, Self::Medium>) -> bool;

    /// Its size and load.
    fn stats(&self, guard: &Guard<'_, Self::Medium>) -> IndexStats;

    /// Gives the index a DRAM cache within these bounds, if this kind of index has one and the pool
    /// is exclusive. From then on, all operations must go through this handle.
    fn set_cache(&mut self, _bounds: CacheBounds) {}

    /// The cache's counters; `None` without a cache.
    fn cache(&self) -> Option<CacheStats> {
        None
    }

    /// Gives the index layers in DRAM of at most this many bytes, if this kind of index has any and
    /// the pool is exclusive; 0: none. From then on, all operations must go through this handle.
    fn set_layers(&mut self, _options: LayerOptions) {}

    /// What the layers in DRAM have and did; `None` without any.
    fn layers(&self) -> Option<LayerStats> {
        None
    }

    /// The first damage that any operation has met. Later answers may be wrong.
    fn damage(&self) -> Option<Damage>;
}

/// The result of a change that takes no memory: nothing was found where damage is in the way.
fn unless_damaged(changed: Result<Option<u64>, ChangeError>) -> Option<u64> {
    match changed {
        Ok(found) => found,
        Err(ChangeError::Damaged(_)) => None,
        Err(ChangeError::Full(full)) => unreachable!("a change of a present key takes no memory: {full}"),
    }
}

/// The key type of an index.
pub type Key<I> = <<I as PointIndex>::Kind as KeyKind>::Key;

/// An index that lives in a pool under a name.
pub trait Stored: Sized {
    /// The medium of its pool.
    type Medium: MappedMedium;

    /// Creates an empty index with room for `capacity` keys, and the root `name`.
    fn create(pool: &Pool<Self::Medium>, name: &str, capacity: u64) -> Result<Self, StoreError>;

    /// Opens the index of the root `name`, in constant time, whatever a crash left; `None` if there
    /// is none.
    fn recover(pool: &Pool<Self::Medium>, name: &str) -> Result<Option<Self>, StoreError>;

    /// Checks every invariant while no thread writes, and returns the violations.
    fn verify(&self, guard: &Guard<'_, Self::Medium>) -> Vec<Finding>;
}

/// Why an index could not be created or opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The pool has no room for it.
    Full(PoolFull),
    /// The root is of another kind, or the root directory is full.
    Root(RootError),
    /// The root does not point to a sound index of this kind.
    Damaged(Damage),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::Root(error) => error.fmt(f),
            Self::Damaged(Damage { offset, what }) => {
                write!(f, "the index is damaged at offset {offset:#x}: {what}")
            }
        }
    }
}

impl std::error::Error for StoreError {}
impl From<PoolFull> for StoreError {
    fn from(full: PoolFull) -> Self {
        Self::Full(full)
    }
}
impl From<RootError> for StoreError {
    fn from(error: RootError) -> Self {
        Self::Root(error)
    }
}

#[cfg(test)]
#[path = "tests/point.rs"]
mod tests;
