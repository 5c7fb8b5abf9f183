//! Values that were read or written, and places of records, in bounded memory.
//!
//! A value costs no round trip, a place (a *shortcut*) one in place of two. Writers keep what is
//! here current; an entry of a slot that has left counts as absent, since its slot's generation has
//! changed.

use super::pending::Copied;
use quick_cache::sync::Cache as Bounded;
use quick_cache::{DefaultHashBuilder, Weighter};
use std::sync::Arc;

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

impl Weighter<Arc<[u8]>, Cached<Copied>> for Weight {
    fn weight(&self, key: &Arc<[u8]>, cached: &Cached<Copied>) -> u64 {
        (key.len() + cached.content.value.len()) as u64 + OVERHEAD
    }
}

impl Weighter<Arc<[u8]>, Cached<Shortcut>> for Weight {
    fn weight(&self, key: &Arc<[u8]>, _: &Cached<Shortcut>) -> u64 {
        key.len() as u64 + OVERHEAD
    }
}

/// The cache of a session.
pub(super) struct Cache {
    values: Bounded<Arc<[u8]>, Cached<Copied>, Weight>,
    shortcuts: Bounded<Arc<[u8]>, Cached<Shortcut>, Weight>,
}

impl Cache {
    /// A cache of so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        let of = |bytes: u64| ((bytes / 256).max(1) as usize, bytes);
        let (values, shortcuts) = (of(bytes - bytes / SHORTCUTS), of(bytes / SHORTCUTS));
        Self { values: bounded(values), shortcuts: bounded(shortcuts) }
    }

    /// The value of a key, if its slot has this generation still.
    pub(super) fn value(&self, key: &[u8], generation: u32) -> Option<Copied> {
        let cached = self.values.get(key)?;
        (cached.generation == generation).then_some(cached.content)
    }

    /// Where the record of a key was.
    pub(super) fn shortcut(&self, key: &[u8], generation: u32) -> Option<Shortcut> {
        let cached = self.shortcuts.get(key)?;
        (cached.generation == generation).then_some(cached.content)
    }

    /// Keeps a value that was read, and where.
    pub(super) fn keep(&self, key: &[u8], generation: u32, value: Copied, shortcut: Option<Shortcut>) {
        let key: Arc<[u8]> = key.into();
        if let Some(content) = shortcut {
            self.shortcuts.insert(Arc::clone(&key), Cached { generation, content });
        }
        self.values.insert(key, Cached { generation, content: value });
    }

    /// Keeps what was written; its place is not known.
    pub(super) fn written(&self, key: &[u8], generation: u32, value: Option<Copied>) {
        self.shortcuts.remove(key);
        match value {
            Some(content) => self.values.insert(key.into(), Cached { generation, content }),
            None => drop(self.values.remove(key)),
        }
    }

    /// A shortcut has led to nothing.
    pub(super) fn mislead(&self, key: &[u8]) {
        self.shortcuts.remove(key);
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

fn bounded<T: Clone>((items, bytes): (usize, u64)) -> Bounded<Arc<[u8]>, Cached<T>, Weight>
where
    Weight: Weighter<Arc<[u8]>, Cached<T>>,
{
    Bounded::with(items, bytes, Weight, DefaultHashBuilder::default(), Default::default())
}
