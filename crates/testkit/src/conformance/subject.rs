//! An index under test, with keys identified by number and words by version.

use crate::TestKeys;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use terrace_index::{ChangeError, Inserted, Place, PointIndex, Stored, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::{Geometry, Guard, Pool, PoolFull, PoolOptions};

/// The name of the index in all suites.
pub const NAME: &str = "conformance";

/// The requirements of a suite.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Size of the pool.
    pub pool_bytes: u64,
    /// Initial capacity of the index in keys; 0 for the smallest.
    pub capacity: u64,
    /// Number of thread slots.
    pub thread_slots: u32,
}

impl Setup {
    /// A pool of this size, in anonymous memory. Its hash seed is fixed, so that failures can be
    /// reproduced.
    ///
    /// # Panics
    /// If there is not enough memory.
    pub fn pool<M: MappedMedium>(self) -> Pool<M> {
        PoolOptions::anonymous()
            .size(self.pool_bytes)
            .geometry(Geometry { thread_slots: self.thread_slots, ..Geometry::for_size(self.pool_bytes) })
            .hash_seed(0x7e44_ace0)
            .create()
            .expect("memory for a pool")
    }

    pub(super) fn with_capacity(capacity: u64) -> Self {
        Self { capacity, ..Self::of_bytes(256 << 20) }
    }

    /// The smallest index in a pool of this size.
    pub(super) fn of_bytes(pool_bytes: u64) -> Self {
        Self { pool_bytes, capacity: 0, thread_slots: Geometry::for_size(pool_bytes).thread_slots }
    }
}

/// An index that can be created and reopened, on one medium.
pub trait Index: PointIndex + Stored<Medium = <Self as PointIndex>::Medium> {}
impl<I: PointIndex + Stored<Medium = <I as PointIndex>::Medium>> Index for I {}

type Medium<I> = <I as PointIndex>::Medium;

pub(super) struct Subject<I: Index>
where
    I::Kind: TestKeys,
{
    pub(super) index: I,
    keys: Vec<<I::Kind as TestKeys>::Owned>,
}

impl<I: Index> Subject<I>
where
    I::Kind: TestKeys,
{
    /// An index and keys made from `seeds`; a key's number is its position among them.
    pub(super) fn new(index: I, seeds: impl IntoIterator<Item = u64>) -> Self {
        Self { index, keys: seeds.into_iter().map(I::Kind::key).collect() }
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys.len() as u64
    }

    pub(super) fn pin(&self) -> Guard<'_, Medium<I>> {
        PointIndex::pool(&self.index).pin()
    }

    pub(super) fn key(&self, number: u64) -> &<I::Kind as terrace_index::KeyKind>::Key {
        self.keys[number as usize].borrow()
    }

    pub(super) fn word(
        &self,
        guard: &Guard<'_, Medium<I>>,
        number: u64,
        version: u64,
    ) -> Result<u64, PoolFull> {
        I::Kind::word(guard, self.key(number), number, version)
    }

    /// The version in a word that the index has for key `number`.
    pub(super) fn version(&self, guard: &Guard<'_, Medium<I>>, number: u64, word: u64) -> u64 {
        let (of, version) = I::Kind::read(guard, word);
        assert_eq!(
            of, number,
            "key {:?} has the word of key {:?}",
            self.keys[number as usize], self.keys[of as usize]
        );
        version
    }

    /// As [`Subject::version`], for a word that the index no longer contains; frees the word.
    fn last_version(&self, guard: &Guard<'_, Medium<I>>, number: u64, word: Option<u64>) -> Option<u64> {
        let word = word?;
        let version = self.version(guard, number, word);
        I::Kind::free_word(guard, word, true);
        Some(version)
    }

    pub(super) fn get(&self, guard: &Guard<'_, Medium<I>>, number: u64) -> Option<u64> {
        let word = self.index.get(guard, self.key(number))?;
        Some(self.version(guard, number, word))
    }

    /// Inserts a version, and returns the version already present, if any.
    pub(super) fn insert(
        &self,
        guard: &Guard<'_, Medium<I>>,
        number: u64,
        version: u64,
    ) -> Result<Option<u64>, ChangeError> {
        let word = self.word(guard, number, version)?;
        match self.index.insert(guard, self.key(number), word) {
            Ok(Inserted::New) => Ok(None),
            Ok(Inserted::Present(present)) => {
                I::Kind::free_word(guard, word, false);
                Ok(Some(self.version(guard, number, present)))
            }
            Err(error) => {
                I::Kind::free_word(guard, word, false);
                Err(error)
            }
        }
    }

    pub(super) fn update(&self, guard: &Guard<'_, Medium<I>>, number: u64, version: u64) -> Option<u64> {
        let word = self.word(guard, number, version).expect("room for a word");
        let old = self.index.update(guard, self.key(number), word);
        if old.is_none() {
            I::Kind::free_word(guard, word, false);
        }
        self.last_version(guard, number, old)
    }

    pub(super) fn upsert(&self, guard: &Guard<'_, Medium<I>>, number: u64, version: u64) -> Option<u64> {
        let word = self.word(guard, number, version).expect("room for a word");
        let old = self.index.upsert(guard, self.key(number), word).expect("room for a key");
        self.last_version(guard, number, old)
    }

    pub(super) fn remove(&self, guard: &Guard<'_, Medium<I>>, number: u64) -> Option<u64> {
        let old = self.index.remove(guard, self.key(number));
        self.last_version(guard, number, old)
    }

    /// Sets the key to version `new` (`None`: removes it) if its word is `expected`. Otherwise
    /// returns the word found.
    pub(super) fn swap(
        &self,
        guard: &Guard<'_, Medium<I>>,
        number: u64,
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<(), Option<u64>> {
        let new = new.map(|version| self.word(guard, number, version).expect("room for a word"));
        match self.index.compare_and_swap(guard, self.key(number), expected, new).expect("room for a key") {
            Swapped::Done => {
                self.last_version(guard, number, expected);
                Ok(())
            }
            Swapped::Found(found) => {
                new.into_iter().for_each(|word| I::Kind::free_word(guard, word, false));
                Err(found)
            }
        }
    }

    /// The version of every key, by a full scan with at least `step` words per call.
    pub(super) fn scan(&self, guard: &Guard<'_, Medium<I>>, step: usize) -> BTreeMap<u64, u64> {
        let (mut found, mut place) = (BTreeMap::new(), Place::Start);
        loop {
            place = self.index.scan(guard, &place, step, |word| {
                let (number, version) = I::Kind::read(guard, word);
                found.insert(number, version);
            });
            if place.is_end() {
                return found;
            }
        }
    }

    /// Asserts that the index contains exactly `model`, by every kind of query.
    pub(super) fn assert_holds(&self, model: &BTreeMap<u64, u64>) {
        let guard = self.pin();
        assert_eq!(self.index.len(), model.len() as u64, "its length");
        assert_eq!(self.index.is_empty(), model.is_empty());
        assert_eq!(self.index.stats(&guard).keys, model.len() as u64, "its length in statistics");
        assert_eq!(&self.scan(&guard, 1), model, "a scan in small steps");
        let mut walked = BTreeMap::new();
        self.index.for_each(&guard, |word| {
            let (number, version) = I::Kind::read(&guard, word);
            assert!(walked.insert(number, version).is_none(), "a quiet walk visits key {number} once");
        });
        assert_eq!(&walked, model, "a walk");
        let numbers = 0..self.keys();
        let mut many = BTreeMap::new();
        self.index.get_many(&guard, self.keys.iter().map(|key| key.borrow()), |place, word| {
            assert_eq!(place, many.len(), "get_many answers in order");
            many.insert(place, word.map(|word| self.version(&guard, place as u64, word)));
        });
        for number in numbers {
            let expected = model.get(&number).copied();
            assert_eq!(self.get(&guard, number), expected, "get of key {:?}", self.keys[number as usize]);
            assert_eq!(
                many[&(number as usize)],
                expected,
                "get_many of key {:?}",
                self.keys[number as usize]
            );
        }
        assert_eq!(self.index.verify(&guard), [], "findings of verify");
        assert_eq!(self.index.damage(), None, "damage met by operations");
    }
}
