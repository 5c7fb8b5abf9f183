//! The operations of every engine.

use crate::cache::Touched;
use crate::error::TieredError;
use crate::expiry::Sweep;
use crate::journal::Journal;
use crate::read::Reads;
use crate::records::Records;
use crate::space::memory::{Here, Memory};
use crate::tier::cold::read_from;
use crate::tier::edit::Edit;
use crate::tier::files::Tier;
use crate::upkeep::check::Check;
use crate::upkeep::work::Upkeep;
use crate::write::Writes;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use terrace_disk::{Position, Tail, cold};
use terrace_engine::Draft;
use terrace_engine::check_sizes;
use terrace_engine::{
    Change, CloseError, Count, Cursor, Durability, Durably, Entry, OnDisk, Put, ReadError, Report, Stats,
    Ticket, TierStats, Token, Value, Version, WatchError, WriteError,
};
use terrace_engine::{Chore, Commit, Engine, EntryCallback, Expected, Rest, Salvage, WatchHandle, Write};
use terrace_pool::Forked;

/// Keys that are read together.
const GROUP: usize = 64;

/// Makes an empty memory, whose index has room for so many keys.
pub(crate) type Make = Box<dyn Fn(u64) -> Result<Memory, TieredError> + Send + Sync>;

/// A store over DRAM and a slower tier, after HeterMM. It owns what an open has found, and the
/// sweep; writes stand below, and with them all other parts.
pub struct Tiered {
    pub(crate) writes: Writes,
    /// Makes the memory of an empty store.
    pub(crate) make: Make,
    /// The number of the next write when a thread last had nothing to do.
    pub(crate) seen_seq: AtomicU64,
    pub(crate) sweep: Sweep,
    /// Where the log ended when the store was opened, and what was torn behind that.
    pub(crate) log_start: Position,
    pub(crate) tail: Option<Tail>,
    /// What the open has found damaged or lost.
    pub(crate) warnings: Vec<String>,
}

impl Engine for Tiered {
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.reads().get_value(key)
    }

    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        let mut give = |nth: usize, value: &Result<Option<Value<'_>>, ReadError>| {
            each(nth, value.as_ref().map(|value| value.as_ref().map(Value::entry)).map_err(Clone::clone));
        };
        if cold::must_not_wait() {
            return keys.iter().enumerate().for_each(|(nth, key)| give(nth, &self.reads().get_value(key)));
        }
        for (first, group) in (0..).step_by(GROUP).zip(keys.chunks(GROUP)) {
            for (nth, value) in self.reads().get_together(group).iter().enumerate() {
                give(first + nth, value);
            }
        }
    }

    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        if let Err(forked) = self.tier().standing.check_process() {
            return (0..keys.len()).for_each(|nth| each(nth, Err(forked.into())));
        }
        self.reads().get_at_once(keys, each);
    }

    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        Ok(self.reads().present_version(key)?.token())
    }

    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.reads().present_version(key)
    }

    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        check_sizes(put.key, put.value.len())?;
        self.writes.write(Draft::from(put), how).map(drop)
    }

    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>> {
        let mut results: Vec<Result<(), WriteError>> = Vec::with_capacity(puts.len());
        for put in puts {
            let done = cold::part(|| {
                check_sizes(put.key, put.value.len())?;
                self.writes.write(Draft::from(*put), Durably::Later).map(drop)
            });
            let put_off = done.clone().err().filter(WriteError::is_put_off);
            results.push(done);
            if let Some(error) = put_off {
                // In their order, but their reads together.
                for put in &puts[results.len()..] {
                    let _ = self.reads().find(&self.records().probe(put.key));
                }
                results.resize(puts.len(), Err(error));
                break;
            }
        }
        let settled = self
            .journal()
            .promised(how)
            .and_then(|durability| self.journal().wait_for_log(self.journal().log.end(), durability));
        if let Err(error) = settled {
            let done = results.iter_mut().filter(|result| result.is_ok());
            done.for_each(|result| *result = Err(error.clone()));
        }
        results
    }

    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        self.writes.write(Draft::removal(key), how).map(drop)
    }

    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(false);
        }
        self.writes.write(Draft::removal(key), how)
    }

    fn remove_all(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        let keys: Vec<&[u8]> =
            keys.iter().copied().filter(|key| key.len() <= terrace_engine::KEY_MAX).collect();
        self.writes.remove_keys(&keys, how)
    }

    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        self.writes.modify_key(key, change, how)
    }

    fn commit(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        self.writes.commit_all(writes, expected, how)
    }

    fn clear(&self, how: Durably) -> Result<(), WriteError> {
        self.journal().promised(how)?;
        // It makes room.
        self.journal().with_reserve(|| self.clear_all())
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.journal().log.end())
    }

    fn settle(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.journal().wait_for_log(ticket.0, Some(self.tier().standing.promises()))
    }

    fn durability(&self) -> Durability {
        self.tier().standing.promises()
    }

    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.reads().scan_from(cursor, at_least, each)
    }

    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.tier().standing.check_process()?;
        self.reads().draw_key()
    }

    fn len(&self) -> Count {
        Count::Exact(self.records().memory().index.len())
    }

    fn chores(&self) -> &[Chore] {
        const ALL: [Chore; 5] = [Chore::Flush, Chore::Merge, Chore::Log, Chore::Sweep, Chore::Maintain];
        if self.journal().settings.read_only { &[] } else { &ALL }
    }

    fn step(&self, chore: Chore, _: &dyn Fn() -> bool) -> Rest {
        if self.tier().standing.check_writable().is_err() {
            return Rest::Idle;
        }
        if matches!(chore, Chore::Flush | Chore::Merge) {
            self.upkeep().look_for_room();
        }
        let done = match chore {
            Chore::Flush => self.upkeep().flushes.attempt(self.now_ms(), || self.upkeep().step_flush()),
            Chore::Merge => self.upkeep().rewrites.attempt(self.now_ms(), || self.upkeep().step_reclaim()),
            Chore::Log => self.journal().step_log(),
            Chore::Sweep => self.sweep.step(&self.writes),
            Chore::Maintain => self.step_index(),
            _ => Ok(Rest::Idle),
        };
        // What stops the writes has been noted. Anything else is tried again by the next call.
        done.unwrap_or(Rest::Idle)
    }

    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError> {
        self.tier().standing.check_process().map_err(|Forked| WatchError::Forked)?;
        Ok(Box::new(self.writes.watches.add(prefix)))
    }

    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        check_sizes(key, value.len())
    }

    fn now_ms(&self) -> u64 {
        self.journal().settings.clock.now_ms()
    }

    fn stats(&self) -> Stats {
        self.figures()
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        Check::run(self.reads(), progress)
    }

    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let mut report = Check::run(self.reads(), progress);
        report.concurrent = true;
        report
    }

    fn keeps_entries(&self) -> bool {
        false
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn salvage(&self, each: &mut Salvage<'_>) {
        self.salvage_all(each);
    }

    fn stop(&self, why: String) {
        self.tier().standing.stop(why);
    }

    fn close(self: Arc<Self>) -> Result<(), CloseError> {
        let store = Arc::into_inner(self).ok_or(CloseError::StillOpen)?;
        store.end().map_err(|error| CloseError::Failed(Box::new(error)))
    }

    fn on_disk(&self) -> Option<&dyn OnDisk> {
        Some(self)
    }
}

impl OnDisk for Tiered {
    fn flush(&self) -> Result<(), WriteError> {
        self.tier().standing.check_writable()?;
        cold::waiting(|| self.upkeep().seal_all())
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), WriteError> {
        self.upkeep().make_checkpoint(directory)
    }

    fn compact(&self, _: Bound<&[u8]>, _: Bound<&[u8]>) -> Result<(), WriteError> {
        self.tier().standing.check_writable()?;
        cold::waiting(|| {
            self.upkeep().seal_all()?;
            self.upkeep().reclaim_all()?;
            self.upkeep().end_doomed()
        })
    }

    fn sync(&self) -> Result<(), WriteError> {
        self.tier().standing.check_writable()?;
        match self.journal().settings.durability {
            // The tier has what no log has.
            Durability::None => cold::waiting(|| self.upkeep().seal_all())?,
            _ => self.journal().sync_log()?,
        }
        let (asked, most) = (Durability::Power, self.tier().most());
        if most < asked { Err(WriteError::Durability { asked, most }) } else { Ok(()) }
    }

    fn most(&self) -> Durability {
        // Without a log, nothing can be promised.
        match self.journal().settings.durability {
            Durability::None => Durability::None,
            _ => self.tier().most(),
        }
    }

    fn set_durability(&self, durability: Durability) {
        self.tier().standing.set_durability(durability.min(self.most()));
    }

    fn torn_tail(&self) -> Option<Tail> {
        self.tail
    }

    fn post_notice(&self, text: &str) -> bool {
        self.tier().files.post_notice(text) || self.tier().directory.post(&self.tier().files, text).is_ok()
    }

    fn trouble(&self, chore: Chore) -> Option<WriteError> {
        match chore {
            Chore::Flush => self.upkeep().flushes.error(),
            Chore::Merge => self.upkeep().rewrites.error(),
            _ => None,
        }
    }

    fn merged_bytes(&self) -> u64 {
        self.records().counters.rewritten_bytes.load(Relaxed)
    }

    fn wait_for_work(&self, time: Duration) {
        // While there are writes, pages may be needed soon.
        let last = self.journal().next_seq.load(Relaxed);
        let is_quiet = self.seen_seq.swap(last, Relaxed) == last;
        std::thread::park_timeout(if is_quiet { time } else { time.min(Duration::from_millis(2)) });
    }
}

impl Tiered {
    #[inline(always)]
    fn upkeep(&self) -> &Upkeep {
        &self.writes.upkeep
    }

    #[inline(always)]
    fn reads(&self) -> &Reads {
        &self.writes.upkeep.reads
    }

    #[inline(always)]
    fn records(&self) -> &Records {
        self.writes.records()
    }

    #[inline(always)]
    fn journal(&self) -> &Journal {
        self.writes.journal()
    }

    #[inline(always)]
    fn tier(&self) -> &Tier {
        self.writes.tier()
    }

    fn step_index(&self) -> Result<Rest, WriteError> {
        let memory = self.records().memory.load_full();
        let has_more = {
            let here = Here::enter(&memory)?;
            here.index().maintain(&here.guard)
        };
        let has_freed = memory.pages.pool.reclaim_nonblocking();
        Ok(if has_more || has_freed { Rest::More } else { Rest::Idle })
    }

    /// Makes everything durable, and the next open fast.
    fn end(self) -> Result<(), WriteError> {
        if self.tier().standing.check_writable().is_err() {
            return Ok(());
        }
        // Where it fails, the log has everything.
        let sealed = self.upkeep().seal_all();
        if !self.journal().has_log() {
            return sealed;
        }
        self.tier().standing.check_writable()?;
        self.journal().large.sync(self.tier())?;
        Ok(self.journal().log.close()?)
    }

    /// Removes everything: one edit, and an empty memory.
    fn clear_all(&self) -> Result<(), WriteError> {
        self.tier().standing.check_writable()?;
        let fresh = (self.make)(self.journal().settings.expected_keys)
            .map_err(|error| WriteError::Stopped(error.to_string()));
        let fresh = Arc::new(fresh?);
        read_from(&fresh, &self.tier().blocks, &self.records().index_reads);
        // What makes or moves a block now would do so in the empty store, whose blocks have the
        // same numbers.
        let _reorganising = self.upkeep().stop_rewrites();
        let _flushing = self.upkeep().stop_flushes();
        let mut manifest = self.journal().manifest();
        let _locked = self.records().stripes.lock_each();
        self.tier().standing.check_writable()?;
        // The log first: after a crash a lower number would be given again.
        self.journal().sync_log()?;
        let cleared_at = self.journal().next_seq.fetch_add(1, Relaxed);
        let edit = Edit { cleared: Some(cleared_at), ..Default::default() };
        self.records().write_edit(&mut manifest, &edit)?;
        self.journal().log_clear(cleared_at)?;
        self.replace_memory(fresh, cleared_at)?;
        self.records().release_log(cleared_at)?;
        self.upkeep().forget_shortage();
        self.writes.watches.report_all();
        cold::has_written();
        Ok(())
    }

    /// Lets go of all that was there before a clear with this number. The caller has locked
    /// everything.
    fn replace_memory(&self, fresh: Arc<Memory>, cleared_at: u64) -> Result<(), WriteError> {
        let (records, tier) = (self.records(), self.tier());
        assert_eq!(fresh.index.len(), 0, "a fresh memory has no key");
        debug_assert!(self.journal().cleared_at.load(Relaxed) < cleared_at, "clears come in order");
        let large_end = tier.files_end();
        // ORDER: Release: pairs with the Acquire of `write`. A large value of a writer that sees
        // this has a number from `large_end` on.
        self.journal().cleared_at.store(cleared_at, Release);
        records.removals.count_all();
        // First: a reader that misses a block finds that the memory has gone, too.
        records.memory.store(fresh);
        for block in tier.blocks.iter() {
            block.swap(None).iter().for_each(|block| block.remove());
        }
        records.counters.data.store(0, Relaxed);
        records.counters.expiring.store(0, Relaxed);
        self.journal().large.forget(tier, large_end)
    }

    fn figures(&self) -> Stats {
        let memory = self.records().memory.load_full();
        let index = memory.index_figures();
        let tier = self.tier_figures(&memory, index.bytes);
        let records = memory.index.len();
        let counter = |counter: &AtomicU64| counter.load(Relaxed);
        let counters = &self.records().counters;
        let data = counter(&counters.data);
        let used = tier.block_bytes + tier.open_bytes + tier.index_bytes;
        let mut stats = Stats::new(records, data, used.saturating_sub(data));
        stats.expiring = counter(&counters.expiring);
        stats.expired = counter(&counters.expired);
        stats.damaged_records_skipped = counter(&counters.skipped);
        stats.index = Some(index);
        stats.tier = Some(tier);
        stats
    }

    /// Figures of DRAM and the tier. The index has so many bytes.
    fn tier_figures(&self, memory: &Memory, index_bytes: u64) -> TierStats {
        let page = memory.pages.page_bytes() as u64;
        let residents = memory.open.resident();
        let pages = |is_sealed: bool| -> u64 {
            let those = residents.iter().filter(|one| one.is_sealed.load(Acquire) == is_sealed);
            page * those.map(|one| one.pages() as u64).sum::<u64>()
        };
        let [writes, copies, _] = self.reads().cache.division.sums();
        let (log, counters) = (&self.journal().log, &self.records().counters);
        let mut tier = TierStats {
            dram_bytes: memory.pages.pool.space().size,
            index_bytes,
            open_bytes: pages(false),
            sealed_bytes: pages(true),
            log_bytes: log.bytes(),
            log_bytes_written: log.end() - self.log_start,
            syncs: log.syncs(),
            hits: writes + copies,
            copy_hits: copies,
            cache_bytes: page * memory.copies.pages() as u64,
            cold_reads: self.records().index_reads.load(Relaxed),
            ..TierStats::default()
        };
        counters.add_to(&mut tier);
        for block in self.records().all_blocks() {
            tier.blocks += 1;
            tier.block_bytes += block.foot.file_bytes();
            tier.dead_bytes += memory.dead(block.foot.number).load(Relaxed);
        }
        tier
    }

    /// Visits every entry of the store, and what is damaged.
    fn salvage_all(&self, each: &mut Salvage<'_>) {
        let report = Check::run(self.reads(), &mut |_, _| {});
        report.findings.into_iter().for_each(|finding| each(Err(finding)));
        let mut cursor = Cursor::START;
        while !cursor.is_end() {
            match self.reads().scan_from(&cursor, 1024, &mut |key, entry| each(Ok((key, entry)))) {
                Ok(next) | Err(ReadError::Skipped { next, .. }) => cursor = next,
                Err(_) => return,
            }
        }
    }

    /// Frees the pages of all sealed blocks. For tests.
    #[doc(hidden)]
    pub fn evict(&self) {
        let memory = self.records().memory.load_full();
        let Ok(guard) = memory.pages.pool.try_pin() else { return };
        while memory.open.free_pages((&memory.pages, &guard), usize::MAX) > 0 {}
    }

    /// Drops the oldest page of copies. For tests.
    #[doc(hidden)]
    pub fn drop_oldest_copies(&self, stay: bool) {
        let touched = if stay { Touched::Stay } else { Touched::Go };
        let memory = self.records().memory.load_full();
        let _ = self.reads().cache.drop_copies(self.records(), &memory, touched);
    }
}
