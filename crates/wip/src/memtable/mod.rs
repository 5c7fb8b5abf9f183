//! The MemTable of a bucket: a hash table of the keys that were written since its last flush.
//!
//! A directory of 64-byte entries, eight slots each. A slot is the place of a key's newest item and
//! 16 bits of the key's hash; a search loads one line and, almost always, one item. A full entry
//! goes on in the next one. An item names the item of the same key that it has replaced, so a
//! reader at an older sequence number follows that chain, and a key that is written often keeps its
//! one slot. (The paper's table appends a slot for each write, so eight updates of one key fill an
//! entry and freeze the table; thesis 2.3.3.) The hash is seeded, so nobody can choose keys of one
//! entry.
//!
//! ```text
//!   slot   [63:48] tag  [39:0] place of the newest item
//!   item   word 0  [16:0] bytes of the key  [47:17] of the value  [48] expires  [49] tombstone
//!          word 1  sequence number
//!          word 2  place of the key's item before this one, or 0
//!          [word]  unix milliseconds at which it expires, if it does
//!          key, value: each in whole words
//! ```
//!
//! One writer at a time, any number of readers without a lock.
//!
//! # Invariants
//! 1. An item does not change once a slot or another item names it.
//! 2. The chain of a key goes from higher to lower sequence numbers.
//! 3. An entry has free slots only behind its used ones, and a key lies in the first entry from its
//!    own on that had a free slot when it came.

mod arena;
mod cursor;
mod directory;
mod order;

pub(crate) use cursor::MemCursor;

use arc_swap::ArcSwap;
use arena::{Arena, At, End, load_bytes, padded, store_bytes};
use directory::Directory;
use order::Order;
use std::cmp::Ordering;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_disk::{Content, Item};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 31;
const EXPIRES: u64 = 1 << (KEY_BITS + VALUE_BITS);
const TOMBSTONE: u64 = EXPIRES << 1;
const HEAD: usize = 3;

/// The head of an item.
#[derive(Clone, Copy)]
struct Head {
    shape: u64,
    seq: u64,
    older: At,
}

impl Head {
    fn key_len(self) -> usize {
        (self.shape & ((1 << KEY_BITS) - 1)) as usize
    }

    fn value_len(self) -> usize {
        (self.shape >> KEY_BITS & ((1 << VALUE_BITS) - 1)) as usize
    }

    fn expires(self) -> bool {
        self.shape & EXPIRES != 0
    }

    fn is_tombstone(self) -> bool {
        self.shape & TOMBSTONE != 0
    }

    fn key_at(self) -> usize {
        HEAD + usize::from(self.expires())
    }
}

/// A version of a key that was found in a MemTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemItem {
    pub(crate) seq: u64,
    /// The value and when it expires; `None` if the key is absent.
    pub(crate) entry: Option<(Vec<u8>, Option<u64>)>,
}

/// What the writer of a MemTable keeps.
#[derive(Default)]
struct Writer {
    end: End,
    /// The slots of all keys, as they came. A new directory has them in another order.
    arrived: Vec<u32>,
}

/// A MemTable.
pub(crate) struct MemTable {
    seed: u64,
    arena: Arena,
    directory: ArcSwap<Directory>,
    writer: Mutex<Writer>,
    /// The keys that ranges have sorted.
    order: Mutex<Order>,
    /// Keys, items, and bytes of keys and values.
    keys: AtomicU64,
    /// How many more keys the store has by this table, if its new keys are new to the store.
    live: AtomicI64,
    items: AtomicU64,
    data_bytes: AtomicU64,
    /// Bytes of memory.
    memory: AtomicU64,
    /// The lowest sequence number, `u64::MAX` without items, and the highest one.
    first_seq: AtomicU64,
    last_seq: AtomicU64,
}

impl MemTable {
    /// An empty table. `seed` must be unknown to users.
    pub(crate) fn new(seed: u64) -> Self {
        let directory = Arc::new(Directory::new(directory::ENTRIES_MIN));
        let arena = Arena::new();
        let memory = AtomicU64::new((arena.own_bytes() + directory.bytes()) as u64);
        Self {
            seed,
            arena,
            order: Mutex::new(Order::new(&directory)),
            directory: ArcSwap::new(directory),
            writer: Mutex::default(),
            keys: AtomicU64::new(0),
            live: AtomicI64::new(0),
            items: AtomicU64::new(0),
            data_bytes: AtomicU64::new(0),
            memory,
            first_seq: AtomicU64::new(u64::MAX),
            last_seq: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items() == 0
    }

    pub(crate) fn items(&self) -> u64 {
        self.items.load(Relaxed)
    }

    /// Bytes of memory that it uses.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.load(Relaxed)
    }

    /// Bytes of keys and values, of all versions.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes.load(Relaxed)
    }

    /// How many more keys the store has by this table, about: a key that was overwritten in another
    /// one counts twice.
    pub(crate) fn live_keys(&self) -> i64 {
        self.live.load(Relaxed)
    }

    /// The lowest sequence number; `None` without items.
    pub(crate) fn first_seq(&self) -> Option<u64> {
        Some(self.first_seq.load(Relaxed)).filter(|&seq| seq != u64::MAX)
    }

    /// The highest sequence number; 0 without items.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq.load(Relaxed)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item, newer than all of its key. Returns false, and adds nothing, if there is no
    /// room: the table has 64 chunks.
    #[must_use]
    pub(crate) fn add(&self, item: &Item<'_>) -> bool {
        let mut writer = self.writer();
        let hash = self.hash(item.key);
        let directory = self.directory.load();
        let found = self.find(&directory, hash, item.key);
        debug_assert!(found.is_none_or(|(_, at)| self.head(at).seq < item.seq), "items come in order");
        let Some(at) = self.write(&mut writer, item, found.map_or(0, |(_, at)| at)) else { return false };
        match found {
            // ORDER: Release: pairs with the Acquire of `find`: a reader sees the item's words.
            Some((slot, _)) => slot.store(directory::slot(hash, at), Release),
            None => {
                raise(&self.keys, 1);
                match directory.add(hash, at) {
                    Some(slot) => writer.arrived.push(slot),
                    None => writer.arrived = self.grow(&directory, hash, at),
                }
            }
        }
        let was_tombstone = found.map(|(_, at)| self.head(at).is_tombstone());
        self.count(&writer, item, was_tombstone);
        true
    }

    /// Counts an item. `was_tombstone` tells what its key had here before.
    fn count(&self, writer: &Writer, item: &Item<'_>, was_tombstone: Option<bool>) {
        let is_tombstone = matches!(item.content, Content::Tombstone);
        if was_tombstone != Some(is_tombstone) {
            let change = if is_tombstone { -1 } else { 1 };
            self.live.store(self.live.load(Relaxed) + change, Relaxed);
        }
        let value = match item.content {
            Content::Put { value, .. } => value.len(),
            Content::Tombstone => 0,
        };
        raise(&self.data_bytes, (item.key.len() + value) as u64);
        raise(&self.items, 1);
        self.first_seq.store(self.first_seq.load(Relaxed).min(item.seq), Relaxed);
        self.last_seq.store(self.last_seq.load(Relaxed).max(item.seq), Relaxed);
        let own = self.arena.own_bytes() + self.directory.load().bytes() + size_of_val(&writer.arrived[..]);
        self.memory.store((writer.end.bytes + own) as u64, Relaxed);
    }

    fn write(&self, writer: &mut Writer, item: &Item<'_>, older: At) -> Option<At> {
        let (value, expires_at, tombstone) = match item.content {
            Content::Put { value, expires_at } => (value, expires_at, 0),
            Content::Tombstone => (&[][..], None, TOMBSTONE),
        };
        let (key_words, value_words) = (item.key.len().div_ceil(8), value.len().div_ceil(8));
        let head = HEAD + usize::from(expires_at.is_some());
        let at = self.arena.take(&mut writer.end, head + key_words + value_words)?;
        let words = self.arena.words(at);
        let expires = if expires_at.is_some() { EXPIRES } else { 0 };
        let lens = item.key.len() as u64 | (value.len() as u64) << KEY_BITS;
        // ORDER: Relaxed: the item is published by a Release store of its place.
        words[0].store(lens | expires | tombstone, Relaxed);
        words[1].store(item.seq, Relaxed);
        words[2].store(older, Relaxed);
        if let Some(expires_at) = expires_at {
            words[HEAD].store(expires_at, Relaxed);
        }
        store_bytes(&words[head..], item.key);
        store_bytes(&words[head + key_words..], value);
        Some(at)
    }

    /// Replaces the directory by one of twice the size, which has the item at `at`, too. Returns
    /// the slots of all keys.
    #[cold]
    fn grow(&self, old: &Directory, hash: u64, at: At) -> Vec<u32> {
        let mut entries = old.entries() * 2;
        loop {
            let new = Directory::new(entries);
            let all = old.places().map(|at| (self.hash_of(at), at)).chain([(hash, at)]);
            if let Some(slots) = all.map(|(hash, at)| new.add(hash, at)).collect() {
                self.directory.store(new.into());
                return slots;
            }
            entries *= 2;
        }
    }

    fn hash_of(&self, at: At) -> u64 {
        let mut key = Vec::new();
        self.load_key(at, &mut key);
        self.hash(&key)
    }

    /// The slot of a key, and the place in it.
    #[inline]
    fn find<'d>(&self, directory: &'d Directory, hash: u64, key: &[u8]) -> Option<(&'d AtomicU64, At)> {
        directory.find(hash, |at| self.compare_key(at, key) == Ordering::Equal)
    }

    #[inline]
    fn head(&self, at: At) -> Head {
        let words = self.arena.words(at);
        // ORDER: Relaxed: the place was loaded with Acquire.
        Head { shape: words[0].load(Relaxed), seq: words[1].load(Relaxed), older: words[2].load(Relaxed) }
    }

    /// Compares the key of the item at `at` with `key`.
    fn compare_key(&self, at: At, key: &[u8]) -> Ordering {
        let words = self.arena.words(at);
        let shape = words[0].load(Relaxed);
        let head = Head { shape, seq: 0, older: 0 };
        let (len, words) = (head.key_len(), &words[head.key_at()..]);
        let mut chunks = key.chunks(8);
        for word in &words[..len.div_ceil(8)] {
            let Some(chunk) = chunks.next() else { return Ordering::Greater };
            match word.load(Relaxed).cmp(&padded(chunk)) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        len.cmp(&key.len())
    }

    /// Appends the key of the item at `at`.
    fn load_key(&self, at: At, out: &mut Vec<u8>) {
        let head = self.head(at);
        load_bytes(&self.arena.words(at)[head.key_at()..], head.key_len(), out);
    }

    /// Appends the value of the item at `at`; returns when it expires.
    fn load_value(&self, at: At, head: Head, out: &mut Vec<u8>) -> Option<u64> {
        let words = self.arena.words(at);
        load_bytes(&words[head.key_at() + head.key_len().div_ceil(8)..], head.value_len(), out);
        head.expires().then(|| words[HEAD].load(Relaxed))
    }

    /// The newest version of `key` up to the sequence number `seq`.
    pub(crate) fn get(&self, key: &[u8], seq: u64) -> Option<MemItem> {
        let (at, head) = self.find_version(key, seq)?;
        if head.is_tombstone() {
            return Some(MemItem { seq: head.seq, entry: None });
        }
        let mut value = Vec::new();
        let expires_at = self.load_value(at, head, &mut value);
        Some(MemItem { seq: head.seq, entry: Some((value, expires_at)) })
    }

    /// The sequence number of the newest version of `key`.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<u64> {
        self.find_version(key, u64::MAX).map(|(_, head)| head.seq)
    }

    fn find_version(&self, key: &[u8], seq: u64) -> Option<(At, Head)> {
        let directory = self.directory.load();
        let (_, mut at) = self.find(&directory, self.hash(key), key)?;
        loop {
            let head = self.head(at);
            if head.seq <= seq {
                return Some((at, head));
            }
            at = Some(head.older).filter(|&at| at != 0)?;
        }
    }

    /// The first eight bytes of an item's key.
    fn first_word(&self, at: At) -> u64 {
        let head = self.head(at);
        if head.key_len() == 0 { 0 } else { self.arena.words(at)[head.key_at()].load(Relaxed) }
    }

    /// Compares the keys of two items.
    fn compare(&self, one: At, other: At) -> Ordering {
        let key = |at| {
            let head = self.head(at);
            (&self.arena.words(at)[head.key_at()..][..head.key_len().div_ceil(8)], head.key_len())
        };
        let ((one, one_len), (other, other_len)) = (key(one), key(other));
        let mut words = one.iter().zip(other).map(|(one, other)| (one.load(Relaxed), other.load(Relaxed)));
        let unequal = words.find(|(one, other)| one != other);
        unequal.map_or(one_len.cmp(&other_len), |(one, other)| one.cmp(&other))
    }
}

/// Adds to a number that only the writer changes: its lock is held.
fn raise(number: &AtomicU64, by: u64) {
    number.store(number.load(Relaxed) + by, Relaxed);
}

#[cfg(test)]
mod tests;
