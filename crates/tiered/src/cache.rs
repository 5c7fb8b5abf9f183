//! Copies of cold records in DRAM (section 5.1 of the paper).
//!
//! A read that went to the tier copies the record to a page of the cache and points the index's
//! word at the copy, which has the address of the original before it. Pages come and go in the
//! order in which they were filled. Before a page goes, the words of its copies are swung back.
//! All swings happen under the lock of the key's stripe, and a copy never changes: a write of its
//! key goes to a new place.
//!
//! While there are free pages, every such record is copied; then one of so many, so that records
//! that are read often come in sooner than they are pushed out (a sampled FIFO). A copy that was
//! read since it was made is made anew when its page goes (the paper drops it), so that a record
//! that is read often does not wait to be sampled again.
//!
//! DRAM is divided between the cache and the pages of writes by what either is worth: hits a page
//! over the last while. The side that is worth more takes pages of the other, some at a time. (The
//! paper gives pages back only when writes are short of them.) While nothing is written, the cache
//! may have almost all.

use crate::records::Records;
use crate::space::addresses::RecordAt;
use crate::space::memory::{Here, Memory};
use crate::space::record::{Record, hash_in};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use terrace_engine::WriteError;

/// Bytes of the longest record that is copied.
const COPY_MAX: usize = 8 << 10;
/// Reads from the tier of which one is copied when the cache is full.
const SAMPLE: u64 = 8;
/// Looks at records after which the division is thought over.
const WINDOW: u64 = 1 << 16;
/// Counters of each kind, so that threads do not share one.
const COUNTERS: usize = 16;

/// Counts of what threads do, without a line that all of them write.
#[derive(Default)]
#[repr(align(128))]
struct Counter {
    writes: AtomicU64,
    copies: AtomicU64,
    cold: AtomicU64,
}

/// What the cache is worth, and what it may have.
pub(crate) struct Division {
    counters: [Counter; COUNTERS],
    /// Pages that the cache may have.
    target: AtomicUsize,
    /// Sums at the end of the last window: hits of either side.
    last: [AtomicU64; 2],
    /// Whether a copy found no room since the oldest page was dropped.
    is_wanted: AtomicBool,
    /// Records appended when that was looked at last, and whether there were more of late.
    appended: AtomicU64,
    is_written: AtomicBool,
}

impl Default for Division {
    fn default() -> Self {
        Self {
            counters: Default::default(),
            target: AtomicUsize::new(2),
            last: Default::default(),
            is_wanted: AtomicBool::new(false),
            appended: AtomicU64::new(0),
            is_written: AtomicBool::new(false),
        }
    }
}

/// What happens to copies that were read since they were made, when their page goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// They are copied to the newest page.
    Stay,
    /// They go, too: the cache becomes smaller.
    Go,
}

/// Where a record was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// In a page that writes have filled.
    Writes,
    /// In a copy.
    Copies,
    /// On the tier.
    Cold,
}

impl Division {
    /// Counts a look at a record.
    #[inline(always)]
    pub(crate) fn count(&self, side: Side) {
        let own = &self.counters[crate::space::stripes::thread_number() % COUNTERS];
        let counter = match side {
            Side::Writes => &own.writes,
            Side::Copies => &own.copies,
            Side::Cold => &own.cold,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Hits in pages of writes, in copies, and looks that went to the tier.
    pub(crate) fn sums(&self) -> [u64; 3] {
        let sum =
            |of: fn(&Counter) -> &AtomicU64| self.counters.iter().map(|own| of(own).load(Relaxed)).sum();
        [sum(|own| &own.writes), sum(|own| &own.copies), sum(|own| &own.cold)]
    }

    /// Thinks the division over, for so many pages of writes and of copies.
    fn adapt(&self, (writes, copies): (usize, usize), limit: usize, least: usize) {
        let [of_writes, of_copies, _] = self.sums();
        let before = [self.last[0].swap(of_writes, Relaxed), self.last[1].swap(of_copies, Relaxed)];
        let worth =
            |now: u64, before: u64, pages: usize| now.saturating_sub(before) as f64 / pages.max(1) as f64;
        let (worth_of_writes, worth_of_copies) =
            (worth(of_writes, before[0], writes), worth(of_copies, before[1], copies));
        // Nothing stands against the cache while nothing is written.
        let step = limit / if self.is_written.load(Relaxed) { 32 } else { 8 };
        let (step, target) = (step.max(1), self.target.load(Relaxed));
        let most = limit.saturating_sub(least);
        let target = match worth_of_copies >= worth_of_writes {
            true => (target + step).min(most),
            false => target.saturating_sub(step).max(2.min(most)),
        };
        self.target.store(target, Relaxed);
    }
}

/// The copies of hot records. It owns what they are worth; the records that are copied, and the
/// pages of copies, stand below, in the [`Records`] that a caller names.
#[derive(Default)]
pub(crate) struct Cache {
    pub(crate) division: Division,
    /// Looks at records when the division was thought over last.
    divided_at: AtomicU64,
    /// Signalled when pages have become free.
    freed: Condvar,
    freed_lock: Mutex<()>,
}

impl Cache {
    /// Counts a look at a record in DRAM.
    #[inline(always)]
    pub(crate) fn count_hit(&self, here: &Here<'_>, record: RecordAt) {
        if record.is_copy() {
            record.touch(&here.guard);
            self.division.count(Side::Copies);
        } else {
            self.division.count(Side::Writes);
        }
    }

    /// Copies a record that was read from the tier, if that is worth it now.
    pub(crate) fn copy_in(&self, records: &Records, here: &Here<'_>, address: u64, bytes: &[u8]) {
        if bytes.len() > COPY_MAX || records.journal.settings.read_only {
            return;
        }
        let [_, _, cold] = self.division.sums();
        let memory = here.memory;
        // Free pages are of no other use now: writes get them back when they need them.
        let is_full = memory.pages.free_left() <= self.left_free(memory);
        if is_full && !cold.is_multiple_of(SAMPLE) {
            return;
        }
        let most = if is_full { self.copies_most(memory) } else { usize::MAX };
        let record = Record::read(bytes).expect("read just now");
        // A read waits for no writer.
        let Some(_stripe) = records.stripes.try_lock(hash_in(record.probe)) else { return };
        here.search.note(address, record.probe);
        if !matches!(records.look_up(here, record.probe), Ok((Some(word), _)) if word == address) {
            return;
        }
        let copied = memory.copies.copy_with(here.pages(), (bytes.len(), address), most, |room| {
            room.record.store_locked(&here.guard, bytes, true);
            room.record.unlock(&here.guard, record.seq);
            let _ = records.swap(here, record.probe, (Some(address), Some(room.address)));
        });
        if copied.is_err() {
            self.division.is_wanted.store(true, Relaxed);
        }
    }

    /// Pages that copies leave free: the spare ones, or few while nothing is written.
    fn left_free(&self, memory: &Memory) -> usize {
        match self.division.is_written.load(Relaxed) {
            true => memory.pages.spare(),
            false => (memory.pages.counts().1 / 64).max(2),
        }
    }

    /// Pages that writes have at least: three blocks, since a block that is sealed before it is
    /// full is a small one. While nothing is written, those that copies leave free.
    fn writes_least(&self, memory: &Memory) -> usize {
        match self.division.is_written.load(Relaxed) {
            true => (3 * memory.pages.block_pages()).min(memory.pages.counts().1 / 2),
            false => self.left_free(memory),
        }
    }

    /// Pages that the cache may have.
    pub(crate) fn copies_most(&self, memory: &Memory) -> usize {
        let beside = memory.pages.counts().1.saturating_sub(self.writes_least(memory));
        self.division.target.load(Relaxed).min(beside)
    }

    /// Drops the oldest page of copies. Returns whether there was one.
    pub(crate) fn drop_copies(
        &self,
        records: &Records,
        memory: &Memory,
        touched: Touched,
    ) -> Result<bool, WriteError> {
        let Some(page) = memory.copies.take_oldest() else { return Ok(false) };
        let copies: Vec<(u64, RecordAt)> = {
            let here = Here::enter(memory)?;
            memory.copies.in_page(here.pages(), &page)
        };
        for (address, record) in copies {
            let here = Here::enter(memory)?;
            let probe: Box<[u8]> = record.probe(&here.guard).expect("a record in DRAM").into();
            let original = record.original(&here.guard);
            let _stripe = records.stripes.lock(hash_in(&probe));
            here.search.note(original, &probe);
            let (word, _) = records.look_up(&here, &probe)?;
            if word == Some(address) {
                let stays = touched == Touched::Stay && record.is_touched(&here.guard);
                if !(stays && self.copy_again(records, &here, (address, original), record)) {
                    records.swap(&here, &probe, (word, Some(original)))?;
                }
            }
        }
        memory.copies.free((&memory.pages, &memory.pages.pool.try_pin()?), page);
        self.note_freed();
        Ok(true)
    }

    /// Copies a copy to the newest page, if there is room, and points the index there. Called with
    /// the stripe of its key locked.
    fn copy_again(
        &self,
        records: &Records,
        here: &Here<'_>,
        (address, original): (u64, u64),
        copy: RecordAt,
    ) -> bool {
        let (mut bytes, mut is_there) = (Vec::new(), false);
        copy.copy_to(&here.guard, &mut bytes);
        let record = Record::read(&bytes).expect("a copy is whole");
        let copied =
            here.memory.copies.copy_with(here.pages(), (bytes.len(), original), usize::MAX, |room| {
                room.record.store_locked(&here.guard, &bytes, true);
                room.record.unlock(&here.guard, record.seq);
                is_there = records.swap(here, record.probe, (Some(address), Some(room.address))).is_ok();
            });
        copied.is_ok() && is_there
    }

    /// Keeps the cache to its share, and thinks that over now and then.
    pub(crate) fn divide(&self, records: &Records, memory: &Memory) -> Result<bool, WriteError> {
        let [writes, copies, cold] = self.division.sums();
        let seen = writes + copies + cold;
        let last = self.divided_at.load(Relaxed);
        let (used, limit) = memory.pages.counts();
        let of_copies = memory.copies.pages();
        let appended = records.counters.appended.load(Relaxed);
        let is_written = appended != self.division.appended.swap(appended, Relaxed);
        self.division.is_written.fetch_or(is_written, Relaxed);
        if seen.saturating_sub(last) >= WINDOW {
            self.divided_at.store(seen, Relaxed);
            let least = self.writes_least(memory);
            self.division.adapt((used.saturating_sub(of_copies), of_copies), limit, least);
            self.division.is_written.store(is_written, Relaxed);
        }
        let is_short = memory.pages.free_left() < memory.pages.spare();
        if is_short && of_copies > self.copies_most(memory) {
            return self.drop_copies(records, memory, Touched::Go);
        }
        if self.division.is_wanted.swap(false, Relaxed) {
            return self.drop_copies(records, memory, Touched::Stay);
        }
        Ok(false)
    }

    /// Wakes those that wait for pages.
    pub(crate) fn note_freed(&self) {
        self.freed.notify_all();
    }

    /// Waits until pages were freed, for `time` at most.
    pub(crate) fn wait_for_pages(&self, time: Duration) {
        let lock = self.freed_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.freed.wait_timeout(lock, time);
    }
}
