//! What every index for single keys can do.

use crate::{KeyKind, Position};
use crate::change::{Change, Deferred, Fencing, Swapped, change_if, settle, swapped};
use crate::hash::{CacheBounds, CacheStats};
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard, Marker, Pool, PoolFull, RootError};

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The key was absent and is there now.
    New,
    /// The key was there already, with this word; nothing changed.
    Present(u64),
}

/// What a get, an insert or a walk met that no sound index holds. The first one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where in the pool, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: &'static str,
}

/// How full an index is, and with what.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IndexStats {
    /// Keys.
    pub keys: u64,
    /// Slots that keys can be put in, overflow included.
    pub slots: u64,
    /// Buckets of the main table.
    pub buckets: u64,
    /// Buckets chained behind those.
    pub overflow_buckets: u64,
    /// Bytes of the pool that the index takes.
    pub bytes: u64,
    /// Resizes finished since the index was created or opened.
    pub resizes: u64,
    /// Whether a resize is under way.
    pub resizing: bool,
}

impl IndexStats {
    /// Keys a slot, 0 to 1.
    pub fn load_factor(&self) -> f64 {
        if self.slots == 0 { 0.0 } else { self.keys as f64 / self.slots as f64 }
    }
}

/// A map from single keys to 64-bit words.
pub trait PointIndex: Send + Sync {
    /// The medium that it lies on.
    type Medium: MappedMedium;
    /// The kind of its keys.
    type Kind: KeyKind;
    /// What such an index is called, in a pool's root directory too.
    const NAME: &'static str;
    /// Fences of an insert on a medium that asks for them, outside a resize: at most.
    const FENCES_PER_INSERT: u32;

    /// The pool that it lies in.
    fn pool(&self) -> &Pool<Self::Medium>;

    /// The word of `key`.
    fn get(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>) -> Option<u64>;

    /// As [`PointIndex::get`], but where a record is unsound that may be the one of `key`, that is damage and not absence.
    fn get_sound(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>) -> Result<Option<u64>, Damage>;

    /// The words of `keys`, their memory fetched together. `each` is called once a key, in order, with the key's position.
    fn get_many<'k>(
        &self,
        guard: &Guard<'_, Self::Medium>,
        keys: impl IntoIterator<Item = &'k Key<Self>>,
        each: impl FnMut(usize, Option<u64>),
    ) where
        Key<Self>: 'k;

    /// Makes of the state of `key`, its word or absence, what `decide` answers to it, in one step, and returns the state before. `decide` is asked once or more,
    /// the last time about what is returned. Fails, without a change, where an absent key is to be added and the pool is full.
    fn change(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Change,
    ) -> Result<Option<u64>, PoolFull>;

    /// Adds `key` if it is absent.
    fn insert(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        word: u64,
    ) -> Result<Inserted, PoolFull> {
        Ok(match self.compare_and_swap(guard, key, None, Some(word))? {
            Swapped::Done => Inserted::New,
            Swapped::Found(Some(present)) => Inserted::Present(present),
            Swapped::Found(None) => unreachable!("an absent key was expected to be absent"),
        })
    }

    /// Gives `key` another word if it is there, and returns the one it had. Takes no memory.
    fn update(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>, word: u64) -> Option<u64> {
        let present = |before: Option<u64>| before.map_or(Change::Keep, |_| Change::To(Some(word)));
        self.change(guard, key, Fencing::Now, present).expect("an update takes no memory")
    }

    /// Gives `key` this word, whether it is there or not, and returns the one it had.
    fn upsert(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        word: u64,
    ) -> Result<Option<u64>, PoolFull> {
        self.change(guard, key, Fencing::Now, |_| Change::To(Some(word)))
    }

    /// Removes `key` and returns its word. Takes no memory.
    fn remove(&self, guard: &Guard<'_, Self::Medium>, key: &Key<Self>) -> Option<u64> {
        self.change(guard, key, Fencing::Now, |_| Change::To(None)).expect("a removal takes no memory")
    }

    /// Gives `key` the state `new` if its state is `expected`; `None` is absence on both sides.
    fn compare_and_swap(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<Swapped, PoolFull> {
        let found = self.change(guard, key, Fencing::Now, change_if(expected, new))?;
        Ok(swapped(found, expected))
    }

    /// As [`PointIndex::compare_and_swap`], but durable only once `deferred` is settled. Readers of other threads that meet the
    /// change before make it durable themselves.
    fn compare_and_swap_deferred(
        &self,
        guard: &Guard<'_, Self::Medium>,
        key: &Key<Self>,
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, PoolFull> {
        let found = self.change(guard, key, Fencing::Deferred(deferred), change_if(expected, new))?;
        Ok(swapped(found, expected))
    }

    /// Makes deferred writes durable, all with one fence.
    fn settle(&self, guard: &Guard<'_, Self::Medium>, deferred: Deferred) {
        settle(guard, deferred);
    }

    /// Keys now. Exact when nothing writes; after an unclean stop of a machine, once the background collection has run.
    fn len(&self) -> u64;

    /// Whether there is no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the words from `from` on, at least `at_least` of them unless the end comes first, and returns where to go on, 0
    /// at the end. Takes any position; returns one that a [cursor](crate::cursor) holds without loss. A full scan from 0 visits every key that is there throughout, through any resize; one that comes, goes or changes
    /// meanwhile perhaps, and a key may be visited twice if the table shrinks between two pieces of a scan, or if an insert moves it (Level hashing).
    fn scan(
        &self,
        guard: &Guard<'_, Self::Medium>,
        from: Position,
        at_least: usize,
        each: impl FnMut(u64),
    ) -> Position;

    /// Visits every word, as one whole scan.
    fn for_each(&self, guard: &Guard<'_, Self::Medium>, mut each: impl FnMut(u64)) {
        let mut position = 0;
        loop {
            position = self.scan(guard, position, usize::MAX, &mut each);
            if position == 0 {
                return;
            }
        }
    }

    /// Marks every block of the index for the collector, and visits every word so that its user can mark what it points to.
    /// Corrects [`PointIndex::len`] on the way.
    fn trace(
        &self,
        guard: &Guard<'_, Self::Medium>,
        marker: &mut Marker<'_>,
        each: impl FnMut(&mut Marker<'_>, u64),
    );

    /// Does a bounded piece of background work (a step of a resize that writers have left), and says whether there is more.
    fn maintain(&self, guard: &Guard<'_, Self::Medium>) -> bool;

    /// How full it is.
    fn stats(&self, guard: &Guard<'_, Self::Medium>) -> IndexStats;

    /// Gives the index a cache in DRAM between these bounds, if it is one that has such a cache and the pool is this process's alone; all operations go through this handle then.
    fn set_cache(&mut self, _bounds: CacheBounds) {}

    /// What its cache does; `None` if it has none.
    fn cache(&self) -> Option<CacheStats> {
        None
    }

    /// The first damage that any operation has met. An answer given after it may be wrong.
    fn damage(&self) -> Option<Damage>;
}

/// The key type of an index.
pub type Key<I> = <<I as PointIndex>::Kind as KeyKind>::Key;

/// An index that lives in a pool under a name.
pub trait Stored: Sized {
    /// The medium that it lies on.
    type Medium: MappedMedium;

    /// Makes an empty index with room for `capacity` keys, and the root `name`.
    fn create(pool: &Pool<Self::Medium>, name: &str, capacity: u64) -> Result<Self, StoreError>;

    /// Finds the index that the root `name` holds, in constant time, whatever a crash left; `None` if there is none.
    fn recover(pool: &Pool<Self::Medium>, name: &str) -> Result<Option<Self>, StoreError>;

    /// Walks every invariant while nothing writes, and says what does not hold.
    fn verify(&self, guard: &Guard<'_, Self::Medium>) -> Vec<Finding>;
}

/// Why an index could not be made or found.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The pool has no room for it.
    Full(PoolFull),
    /// Its root is of another kind or the root directory is full.
    Root(RootError),
    /// What the root points to is not this index.
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
mod tests {
    use super::*;

    #[test]
    fn the_load_is_that_part_of_the_slots_that_has_a_key() {
        let load = |keys, slots| IndexStats { keys, slots, ..IndexStats::default() }.load_factor();
        assert_eq!([load(3, 4), load(0, 4), load(8, 8), load(0, 0)], [0.75, 0.0, 1.0, 0.0]);
    }
}
