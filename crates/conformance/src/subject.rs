//! An index under test, with keys identified by number and words by version.

use super::erased::{AnyIndex, Pinned};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_index::{ChangeError, Inserted, Place, PointIndex, Stored, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::{Geometry, Pool, PoolOptions};
use terrace_testkit::TestKey;

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
pub trait Index: PointIndex + Stored<Medium = <Self as PointIndex>::Medium> + 'static {}
impl<I: PointIndex + Stored<Medium = <I as PointIndex>::Medium> + 'static> Index for I {}

/// Makes an empty index, according to the setup.
pub(super) type Make<'m> = &'m dyn Fn(Setup) -> Arc<dyn AnyIndex>;

pub(super) struct Subject {
    pub(super) index: Arc<dyn AnyIndex>,
    keys: Vec<TestKey>,
}

impl Subject {
    /// An index and keys made from `seeds`; a key's number is its position among them.
    pub(super) fn new(index: Arc<dyn AnyIndex>, seeds: impl IntoIterator<Item = u64>) -> Self {
        let sort = index.index_type().keys();
        Self::of(index, seeds.into_iter().map(|seed| sort.key(seed)).collect())
    }

    /// An index and its keys; a key's number is its position among them.
    pub(super) fn of(index: Arc<dyn AnyIndex>, keys: Vec<TestKey>) -> Self {
        Self { index, keys }
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys.len() as u64
    }

    pub(super) fn key(&self, number: u64) -> &TestKey {
        &self.keys[number as usize]
    }

    pub(super) fn pin(&self) -> Pin<'_> {
        Pin { subject: self, raw: self.index.pin() }
    }

    /// Asserts that the index contains exactly `model`, by every kind of query.
    pub(super) fn assert_holds(&self, model: &BTreeMap<u64, u64>) {
        let pin = self.pin();
        assert_eq!(self.index.len(), model.len() as u64, "its length");
        assert_eq!(self.index.is_empty(), model.is_empty());
        assert_eq!(pin.raw.stats().keys, model.len() as u64, "its length in statistics");
        assert_eq!(&pin.scan(1), model, "a scan in small steps");
        let mut walked = BTreeMap::new();
        pin.raw.for_each(&mut |word| {
            let (number, version) = pin.raw.read(word);
            assert!(walked.insert(number, version).is_none(), "a quiet walk visits key {number} once");
        });
        assert_eq!(&walked, model, "a walk");
        let mut many = Vec::new();
        pin.raw.get_many(&self.keys, &mut |place, word| {
            assert_eq!(place, many.len(), "get_many answers in order");
            many.push(word.map(|word| pin.version(place as u64, word)));
        });
        assert_eq!(many.len(), self.keys.len(), "get_many answers for every key");
        for (number, key) in (0..).zip(&self.keys) {
            let expected = model.get(&number).copied();
            assert_eq!(pin.get(number), expected, "get of key {key:?}");
            assert_eq!(pin.get_sound(number), expected, "a sound get of key {key:?}");
            assert_eq!(many[number as usize], expected, "get_many of key {key:?}");
        }
        assert_eq!(pin.raw.verify(), [], "findings of verify");
        assert_eq!(self.index.damage(), None, "damage met by operations");
    }
}

/// A pinned thread at a subject.
pub(super) struct Pin<'s> {
    subject: &'s Subject,
    /// The operations by keys and words.
    pub(super) raw: Box<dyn Pinned + 's>,
}

impl Pin<'_> {
    pub(super) fn word(&self, number: u64, version: u64) -> Result<u64, ChangeError> {
        self.raw.word(self.subject.key(number), number, version)
    }

    /// The version in a word that the index has for key `number`.
    pub(super) fn version(&self, number: u64, word: u64) -> u64 {
        let (of, version) = self.raw.read(word);
        let key = |number: u64| self.subject.keys.get(number as usize);
        assert_eq!(of, number, "key {:?} has the word of key {:?}", key(number), key(of));
        version
    }

    /// As [`Pin::version`], for a word that the index no longer contains; frees the word.
    fn last_version(&self, number: u64, word: Option<u64>) -> Option<u64> {
        let word = word?;
        let version = self.version(number, word);
        self.raw.free_word(word, true);
        Some(version)
    }

    /// The key's word.
    pub(super) fn find(&self, number: u64) -> Option<u64> {
        self.raw.get(self.subject.key(number))
    }

    pub(super) fn get(&self, number: u64) -> Option<u64> {
        Some(self.version(number, self.find(number)?))
    }

    fn get_sound(&self, number: u64) -> Option<u64> {
        let word = self.raw.get_sound(self.subject.key(number)).expect("no damage");
        Some(self.version(number, word?))
    }

    /// Inserts a version, and returns the version already present, if any.
    pub(super) fn insert(&self, number: u64, version: u64) -> Result<Option<u64>, ChangeError> {
        let word = self.word(number, version)?;
        match self.raw.insert(self.subject.key(number), word) {
            Ok(Inserted::New) => Ok(None),
            Ok(Inserted::Present(present)) => {
                self.raw.free_word(word, false);
                Ok(Some(self.version(number, present)))
            }
            Err(refused) => {
                self.raw.free_word(word, false);
                Err(refused)
            }
        }
    }

    pub(super) fn update(&self, number: u64, version: u64) -> Option<u64> {
        let word = self.word(number, version).expect("room for a word");
        let old = self.raw.update(self.subject.key(number), word);
        if old.is_none() {
            self.raw.free_word(word, false);
        }
        self.last_version(number, old)
    }

    pub(super) fn upsert(&self, number: u64, version: u64) -> Option<u64> {
        let word = self.word(number, version).expect("room for a word");
        let old = self.raw.upsert(self.subject.key(number), word).expect("room for a key");
        self.last_version(number, old)
    }

    pub(super) fn remove(&self, number: u64) -> Option<u64> {
        let old = self.raw.remove(self.subject.key(number));
        self.last_version(number, old)
    }

    /// Sets the key to version `new` (`None`: removes it) if its word is `expected`. Otherwise
    /// returns the word found.
    pub(super) fn swap(
        &self,
        number: u64,
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<(), Option<u64>> {
        let new = new.map(|version| self.word(number, version).expect("room for a word"));
        let key = self.subject.key(number);
        match self.raw.compare_and_swap(key, expected, new).expect("room for a key") {
            Swapped::Done => {
                self.last_version(number, expected);
                Ok(())
            }
            Swapped::Found(found) => {
                new.into_iter().for_each(|word| self.raw.free_word(word, false));
                Err(found)
            }
        }
    }

    /// The version of every key, by a full scan with at least `step` words per call.
    fn scan(&self, step: usize) -> BTreeMap<u64, u64> {
        let (mut found, mut place) = (BTreeMap::new(), Place::default());
        let mut add = |word| {
            let (number, version) = self.raw.read(word);
            found.insert(number, version);
        };
        while !self.raw.scan(&mut place, step, &mut add) {}
        found
    }
}
