//! The engine: its traits, made of the parts below.

use crate::batch::claim::Claims;
use crate::batch::commit::Batches;
use crate::read::get::Reads;
use crate::read::range::Range;
use crate::record::limit::unlimited;
use crate::record::records::Records;
use crate::record::uses::unrecorded;
use crate::slot::Slots;
use crate::stats::stats_of;
use crate::upkeep::check::Checks;
use crate::upkeep::chores::{CHORES, Upkeep, maintain_step};
use crate::upkeep::collect::Collection;
use crate::upkeep::evict::used_now;
use crate::write::single::Writes;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use terrace_engine::{
    Change, CloseError, Count, Cursor, Durability, Durably, Entry, Evicting, Eviction, KeyUse, Memory,
    Ordered, Pooled, Put, RangeCursor, RangeRemoved, ReadError, Report, Stats, Ticket, Token, Value, Version,
    WatchError, WriteError,
};
use terrace_engine::{Chore, Commit, Engine, EntryCallback, Expected, Rest, Salvage, WatchHandle, Write};
use terrace_index::Direction;
use terrace_medium::{HugePages, MappedMedium};
use terrace_pool::{GrowError, Holder, Pool, Watch};

/// A store in a pool, over an index of byte keys. It owns the writes, below which all other parts
/// stand.
pub struct Direct<M: MappedMedium> {
    pub(crate) writes: Writes<M>,
    /// How the batch that a crash had interrupted ended, if there was one.
    pub(crate) batch_finished: Option<bool>,
}

impl<M: MappedMedium> Direct<M> {
    pub(crate) fn of(claims: Claims<M>, batch_finished: Option<bool>) -> Self {
        let batches = Batches::new(Slots { reads: Reads::new(claims) });
        Self { writes: Writes { batches, upkeep: Upkeep::default() }, batch_finished }
    }

    /// Publishes batches in pieces of `keys` keys. For tests, whose batches are short.
    #[doc(hidden)]
    pub fn publish_in_pieces_of(&mut self, keys: usize) {
        assert!(keys > 0, "a piece has at least one key");
        self.writes.batches.piece = keys;
    }

    /// Offset and size of every block that the store can reach. For tests.
    #[doc(hidden)]
    pub fn reachable(&self) -> Vec<(u64, u64)> {
        self.collection().reachable()
    }

    #[inline(always)]
    pub(crate) fn slots(&self) -> &Slots<M> {
        self.writes.slots()
    }

    #[inline(always)]
    pub(crate) fn reads(&self) -> &Reads<M> {
        self.writes.reads()
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &Records<M> {
        self.writes.records()
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        self.writes.pool()
    }

    pub(crate) fn collection(&self) -> Collection<'_, M> {
        Collection { records: self.records() }
    }

    pub(crate) fn checks(&self) -> Checks<'_, M> {
        Checks { reads: self.reads() }
    }

    /// Checks whether a write can be as durable as it asks for: every write is as durable as the
    /// store when it returns.
    #[inline(always)]
    fn check_durability(&self, how: Durably) -> Result<(), WriteError> {
        match how {
            Durably::Store | Durably::Later => Ok(()),
            Durably::AtLeast(asked) => self.check_durability_level(asked),
        }
    }

    #[cold]
    fn check_durability_level(&self, asked: Durability) -> Result<(), WriteError> {
        let most = self.records().settings.durability;
        if asked <= most { Ok(()) } else { Err(WriteError::Durability { asked, most }) }
    }
}

/// A watch of the pool's.
struct OfPool<M: MappedMedium>(Watch<M>);

impl<M: MappedMedium> WatchHandle for OfPool<M> {
    fn has_changed(&mut self) -> bool {
        self.0.has_changed()
    }
    fn wait(&mut self, time: Duration) -> bool {
        self.0.wait(time)
    }
}

impl<M: MappedMedium> Engine for Direct<M> {
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.reads().get_value(key)
    }
    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.reads().get_each(keys, each);
    }
    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.writes.batches.snapshot_many(keys, each);
    }
    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        self.reads().find_token(&self.pool().try_pin()?, key)
    }
    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.reads().find_version(&self.pool().try_pin()?, key)
    }
    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.writes.put_one(&put)
    }
    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>> {
        match self.check_durability(how) {
            Ok(()) => self.writes.put_each(puts),
            Err(error) => vec![Err(error); puts.len()],
        }
    }
    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.writes.remove_one(key).map(drop)
    }
    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        self.check_durability(how)?;
        self.writes.remove_one(key)
    }
    fn remove_all(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        self.check_durability(how)?;
        self.writes.remove_together(keys)
    }
    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.writes.modify_one(key, change)
    }
    fn commit(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        self.check_durability(how)?;
        self.writes.commit_all(writes, expected)
    }
    fn clear(&self, how: Durably) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.writes.clear_all()
    }
    fn ticket(&self) -> Ticket {
        Ticket::SETTLED
    }
    fn settle(&self, _: Ticket) -> Result<(), WriteError> {
        Ok(())
    }
    fn durability(&self) -> Durability {
        self.records().settings.durability
    }
    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.reads().scan(cursor, at_least, each)
    }
    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.reads().random_key(|expired| self.writes.upkeep.expiry(self.slots()).remove_met(expired))
    }
    fn len(&self) -> Count {
        Count::Exact(self.records().index.len())
    }
    fn chores(&self) -> &[Chore] {
        &CHORES
    }
    fn step(&self, chore: Chore, stop: &dyn Fn() -> bool) -> Rest {
        self.writes.upkeep.do_step(self.slots(), chore, stop)
    }
    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError> {
        Ok(Box::new(OfPool(self.pool().watch(prefix)?)))
    }
    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.records().check_write(key, value.len())
    }
    fn now_ms(&self) -> u64 {
        self.records().settings.clock.now_ms()
    }
    fn stats(&self) -> Stats {
        stats_of(self.reads(), self.batch_finished)
    }
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.checks().check_all(progress)
    }
    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.checks().check_concurrently(progress)
    }
    fn keeps_entries(&self) -> bool {
        self.records().is_pinned()
    }
    fn salvage(&self, each: &mut Salvage<'_>) {
        self.checks().salvage_all(each);
    }
    fn stop(&self, why: String) {
        self.records().disable_writes(&why);
    }
    fn close(self: Arc<Self>) -> Result<(), CloseError> {
        let store = Arc::into_inner(self).ok_or(CloseError::StillOpen)?;
        let pool = store.pool().clone();
        drop(store);
        Ok(pool.close()?)
    }
    fn pooled(&self) -> Option<&dyn Pooled> {
        Some(self)
    }
    fn evicting(&self) -> Option<&dyn Evicting> {
        Some(self)
    }
    fn ordered(&self) -> Option<&dyn Ordered> {
        self.records().index.ordered().map(|_| self as &dyn Ordered)
    }
}

impl<M: MappedMedium> Ordered for Direct<M> {
    fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + '_>, ReadError> {
        Ok(Box::new(Range::new(self.reads(), self.records().ranges()?, from, to, direction)))
    }
    fn remove_range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        at_most: u64,
        how: Durably,
    ) -> Result<RangeRemoved, WriteError> {
        self.check_durability(how)?;
        self.writes.remove_between(from, to, at_most)
    }
}

impl<M: MappedMedium> Pooled for Direct<M> {
    fn other_processes(&self) -> Vec<Holder> {
        self.pool().other_participants()
    }
    fn recover_dead(&self) -> u32 {
        self.slots().claims().recover_dead()
    }
    fn end_stopped(&self, holder: &Holder) -> std::io::Result<bool> {
        self.pool().end_stopped(holder)
    }
    fn post_notice(&self, text: &str) -> bool {
        self.pool().post_notice(text)
    }
    fn needs_collection(&self) -> bool {
        self.pool().needs_collection()
    }
    fn collect(&self, stop: &dyn Fn() -> bool) {
        self.collection().collect(stop);
    }
    fn sweep_expired(&self, budget: usize) -> u64 {
        self.writes.upkeep.expiry(self.slots()).sweep(budget)
    }
    fn compact(&self) -> bool {
        self.writes.upkeep.compaction(self.slots()).compact_step()
    }
    fn move_all(&self) {
        self.writes.upkeep.compaction(self.slots()).move_each();
    }
    fn maintain(&self) -> bool {
        maintain_step(self.records())
    }
    fn collapse_step(&self, from: u64) -> Option<u64> {
        self.pool().collapse_step(from)
    }
    fn huge_pages(&self) -> std::io::Result<HugePages> {
        self.pool().medium().mapping().huge_pages()
    }
    fn grow(&self, bytes: u64) -> Result<u64, GrowError> {
        if self.records().settings.read_only {
            return Err(GrowError::ReadOnly);
        }
        self.pool().grow(bytes)
    }
    fn memory(&self) -> Memory {
        self.collection().memory()
    }
}

impl<M: MappedMedium> Evicting for Direct<M> {
    fn set_eviction(&self, eviction: &Eviction) -> Result<(), WriteError> {
        self.writes.upkeep.evictions(self.slots()).set_eviction(eviction)
    }
    fn key_use(&self, key: &[u8]) -> Result<Option<KeyUse>, ReadError> {
        self.reads().key_use(key)
    }
    fn set_key_use(&self, key: &[u8], of: &KeyUse) -> Result<(), ReadError> {
        self.reads().set_key_use(key, of)
    }
    fn unrecorded(&self, read: &mut dyn FnMut()) {
        unrecorded(read);
    }
    fn unlimited(&self, write: &mut dyn FnMut()) {
        unlimited(write);
    }
    fn used_bytes(&self) -> u64 {
        used_now(self.pool())
    }
    fn evicted(&self) -> u64 {
        self.writes.upkeep.evicted()
    }
}

#[cfg(test)]
#[path = "tests/engine.rs"]
mod tests;
