//! Values that were read or written, and places of records, in bounded memory.
//!
//! A value costs no round trip, a place (a *shortcut*) one in place of two. Writers keep what is
//! here current; an entry of a slot that has left counts as absent, since its slot's generation has
//! changed.

use super::key::{Copied, Key};
use quick_cache::Weighter;
use quick_cache::sync::Cache as Bounded;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes that an entry takes beside key and value, about.
const OVERHEAD: u64 = 96;
/// The part of the memory that shortcuts have.
const SHORTCUTS: u64 = 8;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortcut {
    pub(super) offset: u64,
    pub(super) len: u32,
}

#[derive(Clone)]
struct Cached<T> {
    generation: u32,
    content: T,
}

#[derive(Clone)]
struct Weight;

impl Weighter<u64, Cached<Copied>> for Weight {
    fn weight(&self, _: &u64, cached: &Cached<Copied>) -> u64 {
        cached.content.bytes() as u64 + OVERHEAD
    }
}

impl Weighter<u64, Cached<Shortcut>> for Weight {
    fn weight(&self, _: &u64, _: &Cached<Shortcut>) -> u64 {
        OVERHEAD
    }
}

/// Takes a key for its hash: the keys are hashes.
#[derive(Clone, Copy, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are words");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

type Build = BuildHasherDefault<Hashed>;

/// The cache of a session, by the hashes of keys.
pub(super) struct Cache {
    values: Bounded<u64, Cached<Copied>, Weight, Build>,
    shortcuts: Bounded<u64, Cached<Shortcut>, Weight, Build>,
}

impl Cache {
    /// A cache of so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        let of = |bytes: u64| ((bytes / 256).max(1) as usize, bytes);
        let (values, shortcuts) = (of(bytes - bytes / SHORTCUTS), of(bytes / SHORTCUTS));
        Self { values: bounded(values), shortcuts: bounded(shortcuts) }
    }

    /// The value of a key, if its slot has this generation still.
    pub(super) fn value(&self, key: Key<'_>, generation: u32) -> Option<Copied> {
        let cached = self.values.get(&key.hash)?;
        let is_it = cached.generation == generation && cached.content.key() == key.bytes;
        is_it.then_some(cached.content)
    }

    /// Where the record of a key was. It may be that of another key with the same hash.
    pub(super) fn shortcut(&self, key: Key<'_>, generation: u32) -> Option<Shortcut> {
        let cached = self.shortcuts.get(&key.hash)?;
        (cached.generation == generation).then_some(cached.content)
    }

    /// Keeps a value that was read, and where.
    pub(super) fn keep(&self, key: Key<'_>, generation: u32, value: Copied, shortcut: Option<Shortcut>) {
        if let Some(content) = shortcut {
            self.shortcuts.insert(key.hash, Cached { generation, content });
        }
        self.values.insert(key.hash, Cached { generation, content: value });
    }

    /// Keeps what was written; its place is not known.
    pub(super) fn written(&self, key: Key<'_>, generation: u32, value: Option<Copied>) {
        self.shortcuts.remove(&key.hash);
        match value {
            Some(content) => self.values.insert(key.hash, Cached { generation, content }),
            None => drop(self.values.remove(&key.hash)),
        }
    }

    /// A shortcut has led to nothing.
    pub(super) fn mislead(&self, key: Key<'_>) {
        self.shortcuts.remove(&key.hash);
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.values.clear();
        self.shortcuts.clear();
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> u64 {
        self.values.weight() + self.shortcuts.weight()
    }
}

fn bounded<T: Clone>((items, bytes): (usize, u64)) -> Bounded<u64, Cached<T>, Weight, Build>
where
    Weight: Weighter<u64, Cached<T>>,
{
    Bounded::with(items, bytes, Weight, Build::default(), Default::default())
}
