//! The operations of every engine.

use crate::check;
use crate::jobs::Jobs;
use crate::range::Range;
use crate::read::Hit;
use crate::state::State;
use crate::state::store::Store;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_disk::{Position, Tail};
use terrace_engine::DiskStats;
use terrace_engine::Draft;
use terrace_engine::Live;
use terrace_engine::check_sizes;
use terrace_engine::{
    Change, CloseError, Count, Cursor, Direction, Durability, Durably, Entry, OnDisk, Ordered, Put,
    RangeCursor, RangeRemoved, ReadError, Report, Stats, Ticket, Token, Value, Version, WatchError,
    WriteError,
};
use terrace_engine::{Chore, Commit, Engine, EntryCallback, Expected, Rest, Salvage, WatchHandle, Write};
use terrace_pool::Forked;

/// Bytes of keys and values that an open reads from the log within some 10 ms.
const REPLAYED_FAST: u64 = 1 << 20;

/// An ordered store on a disk, after WipDB (thesis ch. 2).
///
/// It owns the `Store` that all parts share, and the `Jobs` above that.
pub struct Wip {
    pub(crate) store: Store,
    pub(crate) jobs: Jobs,
    /// Where the log ended when the store was opened, and what was torn behind that.
    pub(crate) log_start: Position,
    pub(crate) tail: Option<Tail>,
    /// When the log was last synced by [`Durability::Interval`], in unix milliseconds.
    pub(crate) synced_at: AtomicU64,
    /// Bytes of writes that came since the last delay, weighted by the debt.
    pub(crate) owed: AtomicU64,
}

impl Wip {
    /// Entries of several keys at one sequence number.
    fn get_each(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        if let Err(forked) = self.store.standing.check_process() {
            return (0..keys.len()).for_each(|nth| each(nth, Err(forked.into())));
        }
        // Before the snapshot: what has expired by then was the present version.
        let now = self.store.settings.clock.now_ms();
        let snapshot = self.store.snapshots.take(&self.store.visible);
        let state = self.store.state.load_full();
        for (nth, key) in keys.iter().enumerate() {
            match self.store.find(&state, key, snapshot.seq) {
                Ok(hit) => {
                    let live = hit.and_then(Hit::into_live);
                    let live = live.filter(|live| live.expires_at.is_none_or(|at| at > now));
                    each(nth, Ok(live.as_ref().map(Live::entry)));
                }
                Err(error) => each(nth, Err(error)),
            }
        }
    }

    fn check_key(&self, put: &Put<'_>) -> Result<(), WriteError> {
        check_sizes(put.key, put.value.len())
    }
}

impl Engine for Wip {
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.store.get_value(key)
    }

    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.get_each(keys, each);
    }

    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.get_each(keys, each);
    }

    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        Ok(self.store.present_version(key)?.token())
    }

    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.store.present_version(key)
    }

    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        self.check_key(&put)?;
        self.write(&[put.into()], how)
    }

    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>> {
        let mut results: Vec<Result<(), WriteError>> = puts.iter().map(|put| self.check_key(put)).collect();
        let sound = puts.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let drafts: Vec<Draft<'_>> = sound.map(|(put, _)| Draft::from(*put)).collect();
        if let Err(error) = self.write(&drafts, how) {
            results
                .iter_mut()
                .filter(|result| result.is_ok())
                .for_each(|result| *result = Err(error.clone()));
        }
        results
    }

    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        self.write(&[Draft::removal(key)], how)
    }

    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(false);
        }
        self.remove_key(key, how)
    }

    fn remove_all(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        let keys: Vec<&[u8]> =
            keys.iter().copied().filter(|key| key.len() <= terrace_engine::KEY_MAX).collect();
        self.remove_keys(&keys, how)
    }

    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        self.modify_key(key, change, how)
    }

    fn commit(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        self.commit_all(writes, expected, how)
    }

    fn clear(&self, _: Durably) -> Result<(), WriteError> {
        self.store.clear_all()
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.store.log.end())
    }

    fn settle(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.wait_for_log(ticket.0, Some(self.store.standing.promises()))
    }

    fn durability(&self) -> Durability {
        self.store.standing.promises()
    }

    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.store.scan_from(cursor, at_least, each)
    }

    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.draw_key()
    }

    fn len(&self) -> Count {
        self.count_keys()
    }

    fn chores(&self) -> &[Chore] {
        if self.store.settings.read_only { &[] } else { &[Chore::Flush, Chore::Merge, Chore::Log] }
    }

    fn step(&self, chore: Chore, _: &dyn Fn() -> bool) -> Rest {
        if self.store.settings.read_only {
            return Rest::Idle;
        }
        let done = match chore {
            Chore::Flush => self.jobs.retry_flush(&self.store),
            Chore::Merge => self.jobs.retry_merge(&self.store),
            Chore::Log => self.step_log(),
            _ => Ok(Rest::Idle),
        };
        // What stops the writes has been noted. Anything else is tried again later.
        done.unwrap_or(Rest::Idle)
    }

    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError> {
        self.store.standing.check_process().map_err(|Forked| WatchError::Forked)?;
        Ok(Box::new(self.store.watches.add(prefix)))
    }

    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        check_sizes(key, value.len())
    }

    fn now_ms(&self) -> u64 {
        self.store.settings.clock.now_ms()
    }

    fn stats(&self) -> Stats {
        self.figures()
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        check::check_tables(&self.store, progress)
    }

    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        Report { concurrent: true, ..check::check_tables(&self.store, progress) }
    }

    fn keeps_entries(&self) -> bool {
        false
    }

    fn salvage(&self, each: &mut Salvage<'_>) {
        check::salvage_all(&self.store, each);
    }

    fn stop(&self, why: String) {
        self.store.standing.stop(why);
    }

    fn close(self: Arc<Self>) -> Result<(), CloseError> {
        let store = Arc::into_inner(self).ok_or(CloseError::StillOpen)?;
        store.end().map_err(|error| CloseError::Failed(Box::new(error)))
    }

    fn ordered(&self) -> Option<&dyn Ordered> {
        Some(self)
    }

    fn on_disk(&self) -> Option<&dyn OnDisk> {
        Some(self)
    }
}

impl Wip {
    /// Prepares the log, and keeps it short.
    fn step_log(&self) -> Result<Rest, WriteError> {
        if !self.store.standing.is_stopped() {
            self.store.standing.check_place(&self.store.directory)?;
        }
        let is_prepared = self.store.log.prepare().map_err(|error| self.store.standing.failed(error))?;
        self.jobs.shorten_log(&self.store);
        if self.store.standing.promises() == Durability::Interval {
            self.sync_in_time()?;
        }
        Ok(if is_prepared { Rest::More } else { Rest::Idle })
    }

    /// Syncs the log if its interval is over.
    fn sync_in_time(&self) -> Result<(), WriteError> {
        let (now, last) = (self.store.settings.clock.now_ms(), self.synced_at.load(Relaxed));
        // A clock that was set back is no reason to wait.
        if now < last || now - last >= self.store.settings.interval_ms {
            self.synced_at.store(now, Relaxed);
            self.store.sync_log()?;
        }
        Ok(())
    }

    /// Makes everything durable, and the next open fast.
    fn end(self) -> Result<(), WriteError> {
        if self.store.standing.check_writable().is_err() {
            return Ok(());
        }
        let state = self.store.state.load_full();
        let in_memory: u64 = state.memtables().map(|memtable| memtable.data_bytes()).sum();
        if in_memory > REPLAYED_FAST {
            self.freeze_all();
            // Where it fails, the log has everything.
            while self.jobs.step_flush(&self.store).is_ok_and(|rest| rest == Rest::More) {}
            self.store.standing.check_writable()?;
        }
        Ok(self.store.log.close()?)
    }

    /// Flushes all that is in memory when it is called, and not what comes meanwhile.
    fn flush_all(&self) -> Result<(), WriteError> {
        let last = self.freeze_all();
        let is_in_memory = || {
            let state = self.store.state.load();
            state.memtables().any(|memtable| memtable.first_seq().is_some_and(|first| first <= last))
        };
        while is_in_memory() {
            if self.jobs.step_flush(&self.store)? == Rest::Idle {
                // Another thread is at it.
                self.store.bell.wait(std::time::Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Freezes all MemTables. Returns the number of the last item in them.
    fn freeze_all(&self) -> u64 {
        let mut writer = self.store.writer();
        let state = self.store.state.load_full();
        state.buckets.iter().for_each(|bucket| self.store.freeze(&mut writer, bucket.id));
        writer.next_seq - 1
    }
}

impl Ordered for Wip {
    fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + '_>, ReadError> {
        let range: Range<'_> = self.store.range_between(from, to, direction);
        Ok(Box::new(range))
    }

    fn remove_range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        at_most: u64,
        how: Durably,
    ) -> Result<RangeRemoved, WriteError> {
        self.remove_between(from, to, at_most, how)
    }
}

impl OnDisk for Wip {
    fn flush(&self) -> Result<(), WriteError> {
        self.store.standing.check_writable()?;
        self.flush_all()
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), WriteError> {
        check::make_checkpoint(&self.store, directory)
    }

    fn compact(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<(), WriteError> {
        OnDisk::flush(self)?;
        let state = self.store.state.load_full();
        let first = match from {
            Bound::Included(key) | Bound::Excluded(key) => state.bucket_of(key),
            Bound::Unbounded => 0,
        };
        let last = match to {
            Bound::Included(key) | Bound::Excluded(key) => state.bucket_of(key),
            Bound::Unbounded => state.buckets.len() - 1,
        };
        let ids: Vec<u64> =
            state.buckets.get(first..=last).unwrap_or_default().iter().map(|bucket| bucket.id).collect();
        drop(state);
        ids.into_iter().try_for_each(|id| self.jobs.merge_whole(&self.store, id))
    }

    fn sync(&self) -> Result<(), WriteError> {
        self.store.standing.check_writable()?;
        self.store.sync_log()
    }

    fn set_durability(&self, durability: Durability) {
        self.store.standing.set_durability(durability);
    }

    fn torn_tail(&self) -> Option<Tail> {
        self.tail
    }

    fn post_notice(&self, text: &str) -> bool {
        self.store.directory.post(&self.store.files, text).is_ok()
    }

    fn most_open(&self) -> Option<u64> {
        self.store.files.most_open()
    }

    fn trouble(&self, chore: Chore) -> Option<WriteError> {
        match chore {
            Chore::Flush => self.jobs.flushes.error(),
            Chore::Merge => self.jobs.merges.error(),
            _ => None,
        }
    }

    fn merged_bytes(&self) -> u64 {
        self.store.counters.merged.load(Relaxed)
    }

    fn wait_for_work(&self, time: std::time::Duration) {
        self.store.bell.wait(time);
    }
}

impl Wip {
    /// The lowest key of each bucket, and the bytes of its tables. For measurements.
    #[doc(hidden)]
    pub fn buckets(&self) -> Vec<(Vec<u8>, u64)> {
        let state = self.store.state.load();
        state.buckets.iter().map(|bucket| (bucket.low.to_vec(), bucket.bytes())).collect()
    }

    /// A random key: of a random sample's surroundings, so not all are as likely.
    fn draw_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        let state = self.store.state.load_full();
        let nth = (self.store.draw() % state.buckets.len() as u64) as usize;
        let bucket = &state.buckets[nth];
        let samples: Vec<&Vec<u8>> =
            bucket.tables().flat_map(|(_, table)| &table.properties().samples).collect();
        let start = match samples.len() as u64 {
            0 => bucket.low.to_vec(),
            count => samples[(self.store.draw() % count) as usize].clone(),
        };
        let skipped = self.store.draw() % 64;
        match self.key_behind(Bound::Included(&start), skipped)? {
            None => self.key_behind(Bound::Unbounded, skipped),
            found => Ok(found),
        }
    }

    /// The key that is so many behind `from`, or the last one before.
    fn key_behind(&self, from: Bound<&[u8]>, skipped: u64) -> Result<Option<Vec<u8>>, ReadError> {
        let mut found = None;
        let mut range = self.store.range_between(from, Bound::Unbounded, Direction::Forward);
        range.visit(skipped as usize + 1, &mut |key, _| {
            found = Some(key.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// About how many keys there are: the items of tables and MemTables, without what tombstones
    /// hide.
    fn count_keys(&self) -> Count {
        let state = self.store.state.load();
        let in_tables = state.all().map(|bucket| bucket.content().live).sum::<f64>().round() as i64;
        let memtables = state.all().flat_map(|bucket| bucket.memtables());
        let in_memory: i64 = memtables.map(|memtable| memtable.live_keys()).sum();
        Count::About((in_tables + in_memory).max(0) as u64)
    }

    fn figures(&self) -> Stats {
        let state = self.store.state.load();
        let tables = || state.all().flat_map(|bucket| bucket.tables()).map(|(_, table)| table);
        let memtables = || state.all().flat_map(|bucket| bucket.memtables());
        let data = tables().map(|table| table.properties().data_bytes).sum::<u64>()
            + memtables().map(|memtable| memtable.data_bytes()).sum::<u64>();
        let used = tables().map(|table| table.bytes()).sum::<u64>()
            + memtables().map(|memtable| memtable.memory()).sum::<u64>();
        let mut stats = Stats::new(self.count_keys().get(), data, used.saturating_sub(data));
        stats.damaged_records_skipped = self.store.counters.skipped.load(Relaxed);
        stats.expiring = tables().map(|table| table.properties().expiring.items).sum();
        stats.disk = Some(self.disk_figures(&state));
        stats
    }

    /// The figures of what lies on the disk, and of the work on it.
    fn disk_figures(&self, state: &State) -> DiskStats {
        let tables = || state.all().flat_map(|bucket| bucket.tables()).map(|(_, table)| table);
        let memtables = || state.all().flat_map(|bucket| bucket.memtables());
        DiskStats {
            buckets: state.buckets.len() as u64,
            tables: std::array::from_fn(|level| {
                state.all().map(|bucket| bucket.levels[level].tables.len() as u64).sum()
            }),
            table_bytes: tables().map(|table| table.bytes()).sum(),
            log_bytes: self.store.log.bytes(),
            memtable_bytes: memtables().map(|memtable| memtable.memory()).sum(),
            cache_bytes: self.store.cache.bytes(),
            blocks_read: self.store.cache.blocks_read(),
            written_bytes: self.store.counters.written.load(Relaxed),
            log_bytes_written: self.store.log.end() - self.log_start,
            stalls: self.store.counters.stalls.load(Relaxed),
            stalled_ms: self.store.counters.stalled_ms.load(Relaxed),
            delays: self.store.counters.delays.load(Relaxed),
            table_bytes_written: self.store.counters.tables.load(Relaxed) - self.store.counters.tables_before,
            flushes: self.store.counters.flushes.load(Relaxed),
            compactions: self.store.counters.compactions.load(Relaxed),
            splits: self.store.counters.splits.load(Relaxed),
            joins: self.store.counters.joins.load(Relaxed),
            snapshots: self.store.snapshots.figures().0 as u64,
            failures: self.jobs.flushes.failures() + self.jobs.merges.failures(),
            is_failing: u64::from(self.jobs.flushes.error().is_some() || self.jobs.merges.error().is_some()),
        }
    }
}
