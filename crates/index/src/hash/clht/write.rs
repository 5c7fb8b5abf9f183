//! The operations that write: under the lock of the key's chain.

use super::bucket::{link, lock_word, store_link};
use super::ops::Clht;
use super::shape::{BucketShape, Entry, Probe};
use super::table::*;
use crate::{Decision, Fencing};
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{Line, MappedMedium, Offset};
use terrace_pool::{Guard, Lock, Locked, PoolFull};

/// A chain whose lock is held.
pub(super) struct LockedChain<'g, M: MappedMedium> {
    pub(super) table: Table,
    pub(super) head: &'g Line,
    pub(super) lock: Locked<'g, M>,
}

impl<M: MappedMedium, K: BucketShape> Clht<M, K> {
    /// Locks the chain of `hash`, in the table where it lives.
    pub(super) fn lock_chain<'g>(&'g self, guard: &'g Guard<'_, M>, hash: u64) -> LockedChain<'g, M> {
        self.try_lock_chain(guard, hash).unwrap_or_else(|| self.lock_chain_slow(guard, hash))
    }

    /// As `lock_chain`, if there is no resize and the lock is free, which is nearly always so.
    #[inline(always)]
    fn try_lock_chain<'g>(&'g self, guard: &'g Guard<'_, M>, hash: u64) -> Option<LockedChain<'g, M>> {
        let View { current: table, next: None } = self.view() else { return None };
        let at = table.bucket(table.index(hash));
        self.pool.region().prefetch_to_write(at.raw());
        let head = self.pool.region().at(at);
        let lock = Lock::of(lock_word(head)).try_acquire(guard)?;
        // A resize that has begun since cannot have moved the bucket without a mark in it.
        if link(self.pool.medium(), head).has_moved() {
            lock.release_unchanged();
            return None;
        }
        Some(self.persist_unfenced(LockedChain { table, head, lock }))
    }

    #[cold]
    fn lock_chain_slow<'g>(&'g self, guard: &'g Guard<'_, M>, hash: u64) -> LockedChain<'g, M> {
        loop {
            let view = self.view();
            let table = match view.next {
                Some(next) => {
                    // Prefetched while groups are moved: the mark of the key's group, and its
                    // bucket in both tables.
                    self.pool.region().prefetch(view.current.leader(view.current.index(hash)).raw());
                    for table in [view.current, next] {
                        self.pool.region().prefetch_to_write(table.bucket(table.index(hash)).raw());
                    }
                    self.help_resize(guard, view.current, next);
                    if self.has_moved_durably(view.current, hash) { next } else { view.current }
                }
                None => view.current,
            };
            let head = self.pool.region().at(table.bucket(table.index(hash)));
            let lock = Lock::of(lock_word(head)).acquire(guard);
            if self.is_home(table, hash) {
                return self.persist_unfenced(LockedChain { table, head, lock });
            }
            // The lock may be marked unfenced because of the group's mark.
            lock.release_unchanged();
        }
    }

    /// Persists what the last holder left unfenced, before this one builds upon it.
    #[inline(always)]
    fn persist_unfenced<'g>(&self, held: LockedChain<'g, M>) -> LockedChain<'g, M> {
        if M::VOLATILE_CACHE && held.lock.was_unfenced() {
            self.persist_chain(held.head);
        }
        held
    }

    /// As [`Clht::has_moved`], for writers: a write to the next table counts only if the move
    /// itself is durable (invariant 4).
    pub(super) fn has_moved_durably(&self, table: Table, hash: u64) -> bool {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        let moved = self.has_moved(table, hash);
        if moved && M::VOLATILE_CACHE {
            let leader = region.at(table.leader(table.index(hash)));
            if Lock::may_be_unfenced(lock_word(leader).load(medium, Acquire)) {
                // PERSIST: see `migrate`. Not the leader's chain: its overflow buckets may have
                // been reused since the group moved.
                region.persist(leader);
            }
        }
        moved
    }

    /// Whether `hash` lives in `table`. That does not change while its chain's lock is held: moving
    /// the group takes that lock.
    fn is_home(&self, table: Table, hash: u64) -> bool {
        let view = self.view();
        match view.next {
            None => view.current == table,
            Some(next) => table == if self.has_moved(view.current, hash) { next } else { view.current },
        }
    }

    /// Looks `key` up under its chain's lock, and changes it as `decide` says. Returns the state it
    /// found.
    #[inline(always)]
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        let hash = K::hash(key, self.seed);
        match self.try_lock_chain(guard, hash) {
            Some(held) => {
                let probe = K::probe(key, hash, held.table);
                self.change_held(guard, held, &probe, &mut fencing, decide)
            }
            None => self.change_slowly(guard, (key, hash), &mut fencing, decide),
        }
    }

    #[cold]
    fn change_slowly(
        &self,
        guard: &Guard<'_, M>,
        (key, hash): (&K::Key, u64),
        fencing: &mut Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        let held = self.lock_chain_slow(guard, hash);
        let probe = K::probe(key, hash, held.table);
        self.change_held(guard, held, &probe, fencing, decide)
    }

    /// As `change_key`, in a locked chain.
    #[inline(always)]
    fn change_held(
        &self,
        guard: &Guard<'_, M>,
        held: LockedChain<'_, M>,
        probe: &Probe<'_, K>,
        fencing: &mut Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        match K::find(guard, held.head, probe) {
            Some((slot, before)) => {
                let bucket = held.head;
                self.change_found(guard, held, probe, (bucket, slot), fencing, decide(Some(before)));
                Ok(Some(before))
            }
            None if link(self.pool.medium(), held.head).next().is_null() => {
                self.change_absent(guard, held, probe, fencing, decide(None))
            }
            None => self.change_in_chain(guard, held, probe, fencing, decide),
        }
    }

    /// As `change_key`, if the first bucket does not have the key but others may.
    #[inline(never)]
    fn change_in_chain(
        &self,
        guard: &Guard<'_, M>,
        held: LockedChain<'_, M>,
        probe: &Probe<'_, K>,
        fencing: &mut Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        match self.find_in_chain(guard, held.head, probe) {
            Some((bucket, slot, before)) => {
                self.change_found(guard, held, probe, (bucket, slot), fencing, decide(Some(before)));
                Ok(Some(before))
            }
            None => self.change_absent(guard, held, probe, fencing, decide(None)),
        }
    }

    /// Does `change` to the key in a slot.
    #[inline(always)]
    fn change_found(
        &self,
        guard: &Guard<'_, M>,
        held: LockedChain<'_, M>,
        probe: &Probe<'_, K>,
        (bucket, slot): (&Line, usize),
        fencing: &mut Fencing<'_>,
        change: Decision,
    ) {
        match change {
            // Nothing was stored, and `lock_chain` has persisted what was found.
            Decision::Keep => held.lock.release(),
            Decision::Set(Some(word)) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                K::replace(guard, bucket, slot, K::entry(probe, word));
                self.finish(held, bucket, fencing);
            }
            Decision::Set(None) => {
                K::clear(guard, bucket, slot);
                self.count().add(guard.slot_index(), probe.hash, -1);
                let table = held.table;
                self.finish(held, bucket, fencing);
                self.shrink_if_needed(guard, table, probe.hash);
            }
        }
    }

    /// Does `change` to an absent key.
    #[inline(always)]
    fn change_absent(
        &self,
        guard: &Guard<'_, M>,
        held: LockedChain<'_, M>,
        probe: &Probe<'_, K>,
        fencing: &mut Fencing<'_>,
        change: Decision,
    ) -> Result<Option<u64>, PoolFull> {
        match change {
            Decision::Keep | Decision::Set(None) => held.lock.release(),
            Decision::Set(Some(word)) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                self.add(guard, held, probe, word, fencing)?;
            }
        }
        Ok(None)
    }

    /// Adds an entry to a chain: into a vacant slot, or into a new bucket after the last one.
    #[inline(always)]
    fn add(
        &self,
        guard: &Guard<'_, M>,
        held: LockedChain<'_, M>,
        probe: &Probe<'_, K>,
        word: u64,
        fencing: &mut Fencing<'_>,
    ) -> Result<(), PoolFull> {
        let Some(slot) = K::vacancy(guard, held.head) else {
            return self.add_behind(guard, held, probe, word, fencing);
        };
        let bucket = held.head;
        K::publish(guard, bucket, slot, K::entry(probe, word));
        self.count().add(guard.slot_index(), probe.hash, 1);
        self.finish(held, bucket, fencing);
        Ok(())
    }

    /// As `add`, if the first bucket is full.
    #[inline(never)]
    fn add_behind(
        &self,
        guard: &Guard<'_, M>,
        held: LockedChain<'_, M>,
        probe: &Probe<'_, K>,
        word: u64,
        fencing: &mut Fencing<'_>,
    ) -> Result<(), PoolFull> {
        let (entry, table) = (K::entry(probe, word), held.table);
        let mut tail = held.head;
        let vacant = self.walk(held.head, |bucket| {
            tail = bucket;
            K::vacancy(guard, bucket).map(|slot| (bucket, slot))
        });
        match vacant {
            Some((bucket, slot)) => {
                K::publish(guard, bucket, slot, entry);
                self.count().add(guard.slot_index(), probe.hash, 1);
                self.finish(held, bucket, fencing);
            }
            None => {
                self.extend(guard, tail, entry)?;
                self.count().add(guard.slot_index(), probe.hash, 1);
                self.finish(held, tail, fencing);
                self.grow_if_needed(guard, table, probe.hash);
            }
        }
        Ok(())
    }

    /// Chains a new bucket with one entry after `tail`.
    fn extend(&self, guard: &Guard<'_, M>, tail: &Line, entry: Entry) -> Result<(), PoolFull> {
        let medium = self.pool.medium();
        let mut image = [0; 8];
        K::put_in_image(&mut image, 0, entry);
        let fresh = guard.alloc(64)?;
        fresh.stream_lines(0, &[image]);
        // PERSIST: the bucket before the link to it. A crash in between leaves a block that the
        // collector reclaims.
        let bucket = fresh.fenced(&guard.fence()).into_offset();
        store_link(medium, tail, link(medium, tail).with_next(Offset::new(bucket)));
        Ok(())
    }

    /// Makes the change to `bucket` durable, now or later, and unlocks the chain.
    #[inline(always)]
    fn finish(&self, held: LockedChain<'_, M>, bucket: &Line, fencing: &mut Fencing<'_>) {
        let region = self.pool.region();
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `persist_deferred`. Until then the lock word
                // is marked unfenced.
                region.write_back(bucket);
                deferred.0.push(region.offset_of(lock_word(held.head)).raw());
                held.lock.release_unfenced();
            }
            _ => {
                // PERSIST: the one write-back and fence of a change; without them a crash leaves
                // the chain as it was before.
                region.persist(bucket);
                held.lock.release();
            }
        }
    }
}
