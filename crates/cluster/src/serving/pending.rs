//! Writes that the index of the memory node does not have yet, and the locks of their writers.
//!
//! A writer of a key holds the lock of the key's stripe over its reads, its decision and the append
//! to the log. A reader looks here first, then into the cache, then into the memory. An entry goes
//! once the memory node has said that it is merged.

use super::key::{Copied, Key};
use super::logs::Appended;
use crate::lock::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};

const STRIPES: usize = 4096;

/// The unmerged writes of a session.
pub(super) struct Pending {
    stripes: Box<[Stripe]>,
    /// For each shard, its writes in their order.
    order: Box<[Mutex<VecDeque<Written>>]>,
    /// For each slot, the entry that cleared it last.
    cleared: Box<[AtomicU64]>,
    shards: Box<[Progress]>,
}

/// How far a shard is.
struct Progress {
    /// The last entry that cleared a slot of it.
    cleared: AtomicU64,
    /// The last entry that the index has.
    merged: AtomicU64,
    /// Number of its unmerged writes: a reader looks no further if there is none.
    count: AtomicUsize,
}

struct Stripe {
    writer: Mutex<()>,
    /// Number of its keys: a reader looks no further if there is none.
    count: AtomicUsize,
    table: Mutex<HashMap<Arc<[u8]>, Unmerged>>,
}

struct Unmerged {
    lsn: u64,
    slot: u16,
    /// What the key has; `None` if it was removed.
    entry: Option<Copied>,
}

impl Unmerged {
    /// Whether it has a key of one of these slots, which are in order.
    fn is_key_of(&self, slots: &[u16]) -> bool {
        self.entry.is_some() && slots.binary_search(&self.slot).is_ok()
    }
}

struct Written {
    lsn: u64,
    stripe: usize,
    key: Arc<[u8]>,
}

/// The lock of a stripe, for a writer.
pub(super) type Writing<'a> = MutexGuard<'a, ()>;

impl Pending {
    pub(super) fn new(shards: u16) -> Self {
        let progress =
            || Progress { cleared: AtomicU64::new(0), merged: AtomicU64::new(0), count: AtomicUsize::new(0) };
        let stripe =
            || Stripe { writer: Mutex::new(()), count: AtomicUsize::new(0), table: Mutex::default() };
        Self {
            stripes: (0..STRIPES).map(|_| stripe()).collect(),
            order: (0..shards).map(|_| Mutex::default()).collect(),
            cleared: (0..crate::slot::SLOTS).map(|_| AtomicU64::new(0)).collect(),
            shards: (0..shards).map(|_| progress()).collect(),
        }
    }

    fn stripe_of(hash: u64) -> usize {
        hash as usize % STRIPES
    }

    fn shard_of(&self, slot: u16) -> usize {
        usize::from(slot) % self.order.len()
    }

    /// Locks the stripes of keys with these hashes, in one order for all writers.
    pub(super) fn lock(&self, hashes: &[u64]) -> Vec<Writing<'_>> {
        let mut stripes: Vec<usize> = hashes.iter().map(|hash| Self::stripe_of(*hash)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| lock(&self.stripes[stripe].writer)).collect()
    }

    /// Locks the stripe of one key.
    pub(super) fn lock_one(&self, hash: u64) -> Writing<'_> {
        lock(&self.stripes[Self::stripe_of(hash)].writer)
    }

    /// Locks all stripes.
    pub(super) fn lock_all(&self) -> Vec<Writing<'_>> {
        self.stripes.iter().map(|stripe| lock(&stripe.writer)).collect()
    }

    /// Waits until every writer that is at work now has ended.
    pub(super) fn wait_for_writers(&self) {
        self.stripes.iter().for_each(|stripe| drop(lock(&stripe.writer)));
    }

    /// What a key has, as far as unmerged writes tell: `Some(None)` if it is absent.
    pub(super) fn get(&self, hash: u64, slot: u16, key: &[u8]) -> Option<Option<Copied>> {
        let shard = &self.shards[self.shard_of(slot)];
        // ORDER: pairs with `apply`, which counts a write before its writer's reply.
        if shard.count.load(Acquire) != 0 {
            let stripe = &self.stripes[Self::stripe_of(hash)];
            // ORDER: as above.
            if stripe.count.load(Acquire) != 0
                && let Some(found) = lock(&stripe.table).get(key)
            {
                return Some(found.entry.clone());
            }
        }
        // ORDER: pairs with the stores in `clear` and `merged`, in this order.
        let merged = shard.merged.load(Acquire);
        let is_cleared =
            shard.cleared.load(Acquire) > merged && self.cleared[usize::from(slot)].load(Acquire) > merged;
        is_cleared.then_some(None)
    }

    /// Appends writes of one shard by `append`, which returns the number of their entry, and makes
    /// them visible: no reader sees them before, and none sees the keys' values of before once
    /// `append` was called. `then` runs meanwhile. The caller has the stripes' locks.
    pub(super) fn apply<E>(
        &self,
        shard: u16,
        writes: &[(Key<'_>, Option<Copied>)],
        append: impl FnOnce() -> Result<Appended, E>,
        then: impl FnOnce(),
    ) -> Result<Appended, E> {
        let mut stripes: Vec<usize> = writes.iter().map(|(key, _)| Self::stripe_of(key.hash)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut tables: Vec<_> = stripes.iter().map(|stripe| lock(&self.stripes[*stripe].table)).collect();
        let appended = append()?;
        let lsn = appended.lsn;
        debug_assert!(
            writes.iter().all(|(key, _)| self.shard_of(key.slot) == usize::from(shard)),
            "one entry changes keys of one log"
        );
        // ORDER: pairs with the load in `get`.
        self.shards[usize::from(shard)].count.fetch_add(writes.len(), Release);
        let mut order = lock(&self.order[usize::from(shard)]);
        for (Key { bytes, hash, slot }, entry) in writes {
            let (stripe, key, entry) = (Self::stripe_of(*hash), Arc::<[u8]>::from(*bytes), entry.clone());
            let table = &mut tables[stripes.binary_search(&stripe).expect("locked above")];
            table.insert(Arc::clone(&key), Unmerged { lsn, slot: *slot, entry });
            // ORDER: pairs with the load in `get`.
            self.stripes[stripe].count.store(table.len(), Release);
            order.push_back(Written { lsn, stripe, key });
        }
        then();
        Ok(appended)
    }

    /// Runs `then` while nothing of the stripe changes.
    pub(super) fn with_table<T>(&self, hash: u64, then: impl FnOnce() -> T) -> T {
        let _table = lock(&self.stripes[Self::stripe_of(hash)].table);
        then()
    }

    /// Clears slots of a shard by an entry that `append` appends: as [`Pending::apply`]. The caller
    /// has all stripes' locks.
    pub(super) fn clear<E>(
        &self,
        slots: &[u16],
        append: impl FnOnce() -> Result<Appended, E>,
        then: impl FnOnce(),
    ) -> Result<Appended, E> {
        debug_assert!(slots.is_sorted(), "slots are searched");
        let mut tables: Vec<_> = self.stripes.iter().map(|stripe| lock(&stripe.table)).collect();
        let appended = append()?;
        for slot in slots {
            // ORDER: pairs with the load in `get`.
            self.shards[self.shard_of(*slot)].cleared.fetch_max(appended.lsn, Release);
            self.cleared[usize::from(*slot)].store(appended.lsn, Release);
        }
        for (table, stripe) in tables.iter_mut().zip(&self.stripes) {
            table.retain(|_, unmerged| slots.binary_search(&unmerged.slot).is_err());
            // ORDER: pairs with the load in `get`.
            stripe.count.store(table.len(), Release);
        }
        then();
        Ok(appended)
    }

    /// Forgets the writes of some slots, which are another node's now.
    pub(super) fn forget(&self, is_one: impl Fn(u16) -> bool) {
        for stripe in &self.stripes {
            let mut table = lock(&stripe.table);
            table.retain(|_, unmerged| !is_one(unmerged.slot));
            stripe.count.store(table.len(), Release);
        }
    }

    /// A slot has come: nothing is known of it.
    pub(super) fn begin(&self, slot: u16) {
        self.cleared[usize::from(slot)].store(0, Release);
    }

    /// The index has the entries of each shard up to these.
    pub(super) fn merged(&self, merged: &[u64]) {
        for (shard, lsn) in merged.iter().enumerate().take(self.order.len()) {
            let mut gone = Vec::new();
            let mut order = lock(&self.order[shard]);
            while order.front().is_some_and(|written| written.lsn <= *lsn) {
                gone.extend(order.pop_front());
            }
            drop(order);
            // First of all: without its entry, a key that was put after its slot was cleared would
            // count as cleared.
            // ORDER: pairs with the load in `get`.
            self.shards[shard].merged.fetch_max(*lsn, Release);
            let count = gone.len();
            for Written { lsn, stripe, key } in gone {
                let stripe = &self.stripes[stripe];
                let mut table = lock(&stripe.table);
                if table.get(&*key).is_some_and(|unmerged| unmerged.lsn == lsn) {
                    table.remove(&*key);
                    stripe.count.store(table.len(), Release);
                }
            }
            // ORDER: pairs with the load in `get`: the index has what a reader does not find here.
            let before = self.shards[shard].count.fetch_sub(count, Release);
            debug_assert!(before >= count, "writes are counted before they are merged");
        }
    }

    /// Number of keys of these slots, if all of them were cleared and no clear is merged yet: then
    /// the keys that were put since are all there are.
    pub(super) fn count_since_clear(&self, slots: &[u16]) -> Option<u64> {
        let has_key = |unmerged: &&Unmerged| unmerged.is_key_of(slots);
        let count = |stripe: &Stripe| lock(&stripe.table).values().filter(has_key).count() as u64;
        self.while_cleared(slots, || self.stripes.iter().map(count).sum())
    }

    /// The keys that [`Pending::count_since_clear`] counts, with their values, if there are at most
    /// so many.
    pub(super) fn keys_since_clear(&self, slots: &[u16], most: u64) -> Option<Vec<Copied>> {
        self.count_since_clear(slots).filter(|count| *count <= most)?;
        let mut keys = Vec::new();
        self.while_cleared(slots, || {
            for stripe in &self.stripes {
                let table = lock(&stripe.table);
                let of_slots = table.values().filter(|unmerged| unmerged.is_key_of(slots));
                keys.extend(of_slots.filter_map(|unmerged| unmerged.entry.clone()));
            }
        })?;
        Some(keys)
    }

    /// What `look` finds if all of these slots were cleared and no clear is merged, before and
    /// after it.
    fn while_cleared<T>(&self, slots: &[u16], look: impl FnOnce() -> T) -> Option<T> {
        let is_cleared = |slot: &u16| {
            // ORDER: pairs with the stores in `merged`.
            let merged = self.shards[self.shard_of(*slot)].merged.load(Acquire);
            self.cleared[usize::from(*slot)].load(Acquire) > merged
        };
        debug_assert!(slots.is_sorted(), "slots are searched");
        if slots.is_empty() || !slots.iter().all(is_cleared) {
            return None;
        }
        let found = look();
        // What is merged meanwhile leaves the tables.
        slots.iter().all(is_cleared).then_some(found)
    }

    /// Number of keys with unmerged writes.
    pub(super) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.count.load(Relaxed)).sum()
    }
}
