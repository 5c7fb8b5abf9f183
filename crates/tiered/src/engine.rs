//! The operations of every engine.

use crate::space::memory::{Here, Memory};
use crate::store::Tiered;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use terrace_disk::{DiskError, Tail, cold};
use terrace_engine::Draft;
use terrace_engine::check_sizes;
use terrace_engine::{
    Change, CloseError, Count, Cursor, Durability, Durably, Entry, IndexFigures, OnDisk, Put, ReadError,
    Report, Stats, Ticket, TierStats, Token, Value, Version, WatchError, WriteError,
};
use terrace_engine::{Chore, Commit, Engine, EntryCallback, Expected, Rest, Salvage, WatchHandle, Write};
use terrace_pool::Forked;

/// Keys that are read together.
const GROUP: usize = 64;

impl Engine for Tiered {
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.get_value(key)
    }

    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        let mut give = |nth: usize, value: &Result<Option<Value<'_>>, ReadError>| {
            each(nth, value.as_ref().map(|value| value.as_ref().map(Value::entry)).map_err(Clone::clone));
        };
        if cold::must_not_wait() {
            return keys.iter().enumerate().for_each(|(nth, key)| give(nth, &self.get_value(key)));
        }
        for (first, group) in (0..).step_by(GROUP).zip(keys.chunks(GROUP)) {
            for (nth, value) in self.get_together(group).iter().enumerate() {
                give(first + nth, value);
            }
        }
    }

    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        if let Err(forked) = self.standing.check_process() {
            return (0..keys.len()).for_each(|nth| each(nth, Err(forked.into())));
        }
        self.get_at_once(keys, each);
    }

    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        Ok(self.present_version(key)?.token())
    }

    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.present_version(key)
    }

    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        check_sizes(put.key, put.value.len())?;
        self.write(Draft::from(put), how).map(drop)
    }

    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>> {
        let mut results: Vec<Result<(), WriteError>> = Vec::with_capacity(puts.len());
        for put in puts {
            let done = cold::part(|| {
                check_sizes(put.key, put.value.len())?;
                self.write(Draft::from(*put), Durably::Later).map(drop)
            });
            let put_off = done.clone().err().filter(WriteError::is_put_off);
            results.push(done);
            if let Some(error) = put_off {
                // In their order, but their reads together.
                for put in &puts[results.len()..] {
                    let _ = self.find(&self.probe(put.key));
                }
                results.resize(puts.len(), Err(error));
                break;
            }
        }
        let settled = self.promised(how).and_then(|durability| self.wait_for_log(self.log.end(), durability));
        if let Err(error) = settled {
            let done = results.iter_mut().filter(|result| result.is_ok());
            done.for_each(|result| *result = Err(error.clone()));
        }
        results
    }

    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        self.write(Draft::removal(key), how).map(drop)
    }

    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(false);
        }
        self.write(Draft::removal(key), how)
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

    fn clear(&self, how: Durably) -> Result<(), WriteError> {
        self.promised(how)?;
        // It makes room.
        self.with_reserve(|| self.clear_all())
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.log.end())
    }

    fn settle(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.wait_for_log(ticket.0, Some(self.standing.promises()))
    }

    fn durability(&self) -> Durability {
        self.standing.promises()
    }

    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.scan_from(cursor, at_least, each)
    }

    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.standing.check_process()?;
        self.draw_key()
    }

    fn len(&self) -> Count {
        Count::Exact(self.memory().index.len())
    }

    fn chores(&self) -> &[Chore] {
        const ALL: [Chore; 5] = [Chore::Flush, Chore::Merge, Chore::Log, Chore::Sweep, Chore::Maintain];
        if self.settings.read_only { &[] } else { &ALL }
    }

    fn step(&self, chore: Chore, _: &dyn Fn() -> bool) -> Rest {
        if self.standing.check_writable().is_err() {
            return Rest::Idle;
        }
        if matches!(chore, Chore::Flush | Chore::Merge) {
            self.look_for_room();
        }
        let done = match chore {
            Chore::Flush => self.flushes.attempt(self.now_ms(), || self.step_flush()),
            Chore::Merge => self.rewrites.attempt(self.now_ms(), || self.step_reclaim()),
            Chore::Log => self.step_log(),
            Chore::Sweep => self.step_sweep(),
            Chore::Maintain => self.step_index(),
            _ => Ok(Rest::Idle),
        };
        // What stops the writes has been noted. Anything else is tried again by the next call.
        done.unwrap_or(Rest::Idle)
    }

    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError> {
        self.standing.check_process().map_err(|Forked| WatchError::Forked)?;
        Ok(Box::new(self.watches.add(prefix)))
    }

    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        check_sizes(key, value.len())
    }

    fn now_ms(&self) -> u64 {
        self.settings.clock.now_ms()
    }

    fn stats(&self) -> Stats {
        self.figures()
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.check_all(progress)
    }

    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let mut report = self.check_all(progress);
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
        self.standing.stop(why);
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
        self.standing.check_writable()?;
        cold::waiting(|| self.seal_all())
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), WriteError> {
        self.make_checkpoint(directory)
    }

    fn compact(&self, _: Bound<&[u8]>, _: Bound<&[u8]>) -> Result<(), WriteError> {
        self.standing.check_writable()?;
        cold::waiting(|| {
            self.seal_all()?;
            self.reclaim_all()?;
            self.end_doomed()
        })
    }

    fn sync(&self) -> Result<(), WriteError> {
        self.standing.check_writable()?;
        match self.settings.durability {
            // The tier has what no log has.
            Durability::None => cold::waiting(|| self.seal_all())?,
            _ => self.sync_log()?,
        }
        let (asked, most) = (Durability::Power, self.most_of_files());
        if most < asked { Err(WriteError::Durability { asked, most }) } else { Ok(()) }
    }

    fn most(&self) -> Durability {
        // Without a log, nothing can be promised.
        match self.settings.durability {
            Durability::None => Durability::None,
            _ => self.most_of_files(),
        }
    }

    fn set_durability(&self, durability: Durability) {
        self.standing.set_durability(durability.min(self.most()));
    }

    fn torn_tail(&self) -> Option<Tail> {
        self.tail
    }

    fn post_notice(&self, text: &str) -> bool {
        self.files.post_notice(text) || self.directory.post(&self.files, text).is_ok()
    }

    fn trouble(&self, chore: Chore) -> Option<WriteError> {
        match chore {
            Chore::Flush => self.flushes.error(),
            Chore::Merge => self.rewrites.error(),
            _ => None,
        }
    }

    fn merged_bytes(&self) -> u64 {
        self.counters.rewritten_bytes.load(Relaxed)
    }

    fn wait_for_work(&self, time: Duration) {
        // While there are writes, pages may be needed soon.
        let last = self.next_seq.load(Relaxed);
        let is_quiet = self.seen_seq.swap(last, Relaxed) == last;
        std::thread::park_timeout(if is_quiet { time } else { time.min(Duration::from_millis(2)) });
    }
}

impl Tiered {
    fn most_of_files(&self) -> Durability {
        if self.files.outlasts_power() { Durability::Power } else { Durability::Process }
    }

    /// Prepares the log, and syncs it in its time.
    fn step_log(&self) -> Result<Rest, WriteError> {
        self.standing.check_place(&self.directory)?;
        if self.settings.durability == Durability::None {
            return match self.log.reserve().keep() {
                // Rewrites have it, or others.
                Err(DiskError::Full { .. }) => Ok(Rest::Idle),
                kept => kept.map(|()| Rest::Idle).map_err(|error| self.standing.failed(error)),
            };
        }
        let is_prepared = self.log.prepare().map_err(|error| self.standing.failed(error))?;
        let (now, last) = (self.settings.clock.now_ms(), self.synced_at.load(Relaxed));
        // A clock that was set back is no reason to wait.
        let is_due = now < last || now - last >= self.settings.interval_ms;
        if is_due && self.standing.promises() == Durability::Interval {
            self.synced_at.store(now, Relaxed);
            self.sync_log()?;
        }
        Ok(if is_prepared { Rest::More } else { Rest::Idle })
    }

    fn step_index(&self) -> Result<Rest, WriteError> {
        let memory = self.memory.load_full();
        let has_more = {
            let here = Here::enter(&memory)?;
            here.index().maintain(&here.guard)
        };
        let has_freed = memory.pages.pool.reclaim_nonblocking();
        Ok(if has_more || has_freed { Rest::More } else { Rest::Idle })
    }

    /// Makes everything durable, and the next open fast.
    fn end(self) -> Result<(), WriteError> {
        if self.standing.check_writable().is_err() {
            return Ok(());
        }
        // Where it fails, the log has everything.
        let sealed = self.seal_all();
        if self.settings.durability == Durability::None {
            return sealed;
        }
        self.standing.check_writable()?;
        self.sync_large()?;
        Ok(self.log.close()?)
    }

    /// Removes everything: one edit, and an empty memory.
    fn clear_all(&self) -> Result<(), WriteError> {
        self.standing.check_writable()?;
        let fresh =
            (self.make)(self.settings.expected_keys).map_err(|error| WriteError::Stopped(error.to_string()));
        let fresh = Arc::new(fresh?);
        crate::tier::cold::read_from(&fresh, &self.blocks, &self.index_reads);
        // What makes or moves a block now would do so in the empty store, whose blocks have the
        // same numbers.
        let _reorganising = self.reorganising.lock().unwrap_or_else(PoisonError::into_inner);
        let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut manifest = self.manifest();
        let _locked = self.stripes.lock_each();
        self.standing.check_writable()?;
        // The log first: after a crash a lower number would be given again.
        self.sync_log()?;
        let cleared_at = self.next_seq.fetch_add(1, Relaxed);
        let edit = crate::tier::edit::Edit { cleared: Some(cleared_at), ..Default::default() };
        self.write_edit(&mut manifest, &edit)?;
        if self.settings.durability != Durability::None {
            // The segments of before go below. Where there is no room for another one, they stay.
            match self.log.cut() {
                Err(DiskError::Full { .. }) => {}
                cut => drop(cut.map_err(|error| self.standing.failed(error))?),
            }
            self.log.note_clear(cleared_at).map_err(|error| self.standing.failed(error))?;
        }
        let large_end = self.next_file.load(Relaxed);
        // ORDER: Release: pairs with the Acquire of `write`. A large value of a writer that sees
        // this has a number from `large_end` on.
        self.cleared_at.store(cleared_at, Release);
        self.removals.count_all();
        // First: a reader that misses a block finds that the memory has gone, too.
        self.memory.store(fresh);
        for block in self.blocks.iter() {
            block.swap(None).iter().for_each(|block| block.remove());
        }
        self.counters.data.store(0, Relaxed);
        self.counters.expiring.store(0, Relaxed);
        self.forget_large(large_end)?;
        self.release_log(cleared_at)?;
        self.forget_shortage();
        self.watches.report_all();
        cold::has_written();
        Ok(())
    }

    fn figures(&self) -> Stats {
        let memory = self.memory.load_full();
        let pool = memory.pages.pool.space();
        let index = figures_of_index(&memory);
        let page = memory.pages.page_bytes() as u64;
        let residents = memory.open.resident();
        let pages = |is_sealed: bool| -> u64 {
            let those = residents.iter().filter(|one| one.is_sealed.load(Acquire) == is_sealed);
            page * those.map(|one| one.pages() as u64).sum::<u64>()
        };
        let [writes, copies, _] = self.division.sums();
        let counter = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let counters = &self.counters;
        let mut tier = TierStats {
            dram_bytes: pool.size,
            index_bytes: index.bytes,
            open_bytes: pages(false),
            sealed_bytes: pages(true),
            log_bytes: self.log.bytes(),
            log_bytes_written: self.log.end() - self.log_start,
            syncs: self.log.syncs(),
            written_bytes: counter(&counters.written),
            flushed_bytes: counter(&counters.flushed_bytes),
            rewritten_bytes: counter(&counters.rewritten_bytes),
            flushes: counter(&counters.flushes),
            rewrites: counter(&counters.rewrites),
            hits: writes + copies,
            copy_hits: copies,
            cache_bytes: page * memory.copies.pages() as u64,
            cold_reads: counter(&counters.cold_reads) + counter(&self.index_reads),
            in_place: counter(&counters.in_place),
            appended: counter(&counters.appended),
            stalls: counter(&counters.stalls),
            stalled_ms: counter(&counters.stalled_ms),
            ..TierStats::default()
        };
        for block in self.all_blocks() {
            tier.blocks += 1;
            tier.block_bytes += block.foot.file_bytes();
            tier.dead_bytes += memory.dead(block.foot.number).load(Relaxed);
        }
        let records = memory.index.len();
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
}

/// Figures of the index in DRAM.
pub(crate) fn figures_of_index(memory: &Memory) -> IndexFigures {
    let guard = memory.pages.pool.pin();
    let stats = memory.index.stats(&guard);
    IndexFigures {
        name: memory.index.name(),
        bytes: stats.bytes,
        slots: stats.slots,
        nodes: stats.nodes,
        resizes: stats.resizes,
        resizing: stats.resizing,
        cache: None,
    }
}
