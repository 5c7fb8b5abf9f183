//! What of a store is durable beside its blocks: the log, the manifest, and large values.
//!
//! The log has a record for each write until the tier has it. The manifest names the blocks. Large
//! values are synced before the log that names them.

use crate::settings::Settings;
use crate::shortage::Shortage;
use crate::space::record::LargeValue;
use crate::tier::edit::{Edit, Name};
use crate::tier::files::Tier;
use crate::tier::format::numbers_of;
use crate::tier::large::{self, LargeValues};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_disk::{DiskError, Log, Manifest, Need};
use terrace_engine::{Draft, append_drafts, need_of};
use terrace_engine::{Durability, Durably, Rest, WriteError};

thread_local! {
    /// Memory for what comes before values in the log.
    static HEADS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The log, the manifest and the large values of a store. It owns these and the numbers of writes;
/// the tier, with the files that they lie in, stands below. It knows neither the index nor DRAM.
pub(crate) struct Journal {
    pub(crate) tier: Tier,
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    /// The number of the next write.
    pub(crate) next_seq: AtomicU64,
    /// Everything with a lower number is gone.
    pub(crate) cleared_at: AtomicU64,
    /// Whether the open has not ended: DRAM does not have yet what the log and the tier have.
    is_recovering: AtomicBool,
    /// Whether a store without a log has let go of that of before.
    has_left_log: AtomicBool,
    manifest: Mutex<Option<Manifest>>,
    pub(crate) large: LargeValues,
    /// The number below which records are to be sealed, so that doomed large values can go.
    pub(crate) seal_below: AtomicU64,
    /// What the last record of the log lacked.
    unlogged: Shortage,
    synced_at: AtomicU64,
}

impl Journal {
    /// A journal whose log is not open yet, of a store that is being recovered.
    pub(crate) fn new(
        (tier, settings): (Tier, Settings),
        (log, manifest): (Log, Option<Manifest>),
        (next_seq, cleared_at): (u64, u64),
    ) -> Self {
        assert!(next_seq > cleared_at, "what comes behind a clear has a higher number");
        Self {
            tier,
            log,
            next_seq: AtomicU64::new(next_seq),
            cleared_at: AtomicU64::new(cleared_at),
            is_recovering: AtomicBool::new(true),
            has_left_log: AtomicBool::new(false),
            manifest: Mutex::new(manifest),
            large: LargeValues::default(),
            seal_below: AtomicU64::new(0),
            unlogged: Shortage::default(),
            synced_at: AtomicU64::new(settings.clock.now_ms()),
            settings,
        }
    }

    /// Whether a record of each write goes to the log.
    #[inline(always)]
    pub(crate) fn has_log(&self) -> bool {
        self.settings.durability != Durability::None
    }

    /// Whether the open has not ended.
    pub(crate) fn is_recovering(&self) -> bool {
        self.is_recovering.load(Relaxed)
    }

    /// Notes that DRAM has what the log and the tier have.
    pub(crate) fn end_recovery(&self) {
        let was_recovering = self.is_recovering.swap(false, Relaxed);
        assert!(was_recovering, "a store is recovered once");
    }

    /// Notes that writes have numbers up to `last`.
    pub(crate) fn note_seq(&self, last: u64) {
        self.next_seq.fetch_max(last + 1, Relaxed);
    }

    pub(crate) fn manifest(&self) -> MutexGuard<'_, Option<Manifest>> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every write so far durable.
    pub(crate) fn sync_log(&self) -> Result<(), WriteError> {
        if !self.has_log() {
            return self.large.sync(&self.tier);
        }
        let synced = self.with_large_synced(|| self.log.sync(self.log.end()))?;
        synced.map_err(|error| self.tier.standing.failed(error))
    }

    /// See [`LargeValues::with_synced`].
    pub(crate) fn with_large_synced<T>(&self, sync: impl FnOnce() -> T) -> Result<T, WriteError> {
        self.large.with_synced(&self.tier, sync)
    }

    /// Appends an entry to the log, if the store keeps one.
    pub(crate) fn append(&self, first: u64, drafts: &[Draft<'_>]) -> Result<u64, WriteError> {
        if !self.has_log() {
            return Ok(0);
        }
        debug_assert!(first + drafts.len() as u64 <= self.next_seq.load(Relaxed), "numbers were taken");
        let mut heads = HEADS.take();
        let appended = append_drafts(&self.log, &mut heads, first, drafts);
        HEADS.set(heads);
        let appended = appended.map_err(|error| self.tier.standing.failed(error));
        // A long record of many writes may lack more than others.
        if drafts.len() == 1 && need_of(drafts) == Need::Room {
            self.note_room(&self.unlogged, &appended);
        }
        appended
    }

    /// Appends a record without a write: the log needs nothing that lies before it.
    fn append_empty(&self, seq: u64) -> Result<u64, DiskError> {
        self.log.append((seq, 1), &[], Need::Reserve)
    }

    /// Refuses a write that the log would refuse, before that takes a page: the pages of DRAM would
    /// fill with what nobody has written, and each one that is flushed takes room on the tier.
    pub(crate) fn check_room(&self, need: Need) -> Result<(), WriteError> {
        if !self.has_log() || need == Need::Reserve {
            return Ok(());
        }
        self.lacks_room(&self.unlogged).map_or(Ok(()), Err)?;
        let checked = self.log.check_room(need).map_err(|error| self.tier.standing.failed(error));
        self.note_room(&self.unlogged, &checked);
        checked
    }

    /// Forgets that the log lacked room.
    pub(crate) fn forget_shortage(&self) {
        self.unlogged.forget();
    }

    /// The error that an attempt of this kind would meet: the last one lacked room, and the tier
    /// has not become emptier. So a full store refuses each write at once.
    pub(crate) fn lacks_room(&self, shortage: &Shortage) -> Option<WriteError> {
        let free = || self.tier.files.free_bytes(self.tier.path()).ok();
        shortage.error(free, || self.settings.clock.now_ms())
    }

    /// Notes whether an attempt lacked room.
    pub(crate) fn note_room<T>(&self, shortage: &Shortage, done: &Result<T, WriteError>) {
        if let Some(error) = done.as_ref().err().filter(|error| error.lacks_room()) {
            let free = self.tier.files.free_bytes(self.tier.path()).unwrap_or(0);
            shortage.note(error, free, self.settings.clock.now_ms());
        }
    }

    /// As [`Standing::with_reserve`](terrace_engine::Standing::with_reserve), with the log's.
    pub(crate) fn with_reserve<T>(
        &self,
        job: impl FnMut() -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        self.tier.standing.with_reserve(self.log.reserve(), job)
    }

    pub(crate) fn log_is_long(&self) -> bool {
        let shorter = if self.log.reserve().is_kept() { 1 } else { 8 };
        // An open lets go of no log.
        let keeps_one = self.has_log() && !self.is_recovering();
        keeps_one && self.log.bytes() > self.settings.log_bytes / shorter
    }

    /// Whether files of large values that nothing names, but which the log keeps, take much room.
    pub(crate) fn has_much_doomed(&self) -> bool {
        let smaller = if self.log.reserve().is_kept() { 1 } else { 64 };
        !self.is_recovering() && self.large.doomed_bytes() > self.settings.log_bytes / smaller
    }

    /// Begins a segment of the log, so that all of before goes once the blocks of now are sealed.
    pub(crate) fn move_on(&self) -> Result<(), WriteError> {
        let seq = self.next_seq.fetch_add(1, Relaxed);
        let bytes = self.large.swap_doomed_bytes();
        if self.has_log() {
            let begun = self.log.cut().and_then(|_| self.append_empty(seq));
            begun.map_err(|error| {
                self.large.count_doomed(bytes);
                self.tier.standing.failed(error)
            })?;
        }
        // Of writes that were appended before, the numbers are lower.
        self.seal_below.fetch_max(self.next_seq.load(Relaxed), Relaxed);
        Ok(())
    }

    /// A store without a log empties that of before, whose writes are on the tier. Returns false if
    /// the disk has no room for that.
    pub(crate) fn leave_log(&self) -> Result<bool, WriteError> {
        let seq = self.next_seq.fetch_add(1, Relaxed);
        let left = self.append_empty(seq).and_then(|end| self.log.sync(end));
        match left.and_then(|()| self.log.release(seq)) {
            Err(DiskError::Full { .. }) => Ok(false),
            left => left.map(|()| true).map_err(|error| self.tier.standing.failed(error)),
        }
    }

    /// Notes whether a store without a log has let go of that of before.
    pub(crate) fn set_left_log(&self, has_left: bool) {
        self.has_left_log.store(has_left, Relaxed);
    }

    /// Notes a clear in the log, whose segments of before go once the blocks do.
    pub(crate) fn log_clear(&self, cleared_at: u64) -> Result<(), WriteError> {
        if !self.has_log() {
            return Ok(());
        }
        // Where there is no room for another segment, those of before stay.
        match self.log.cut() {
            Err(DiskError::Full { .. }) => {}
            cut => drop(cut.map_err(|error| self.tier.standing.failed(error))?),
        }
        self.log.note_clear(cleared_at).map(drop).map_err(|error| self.tier.standing.failed(error))
    }

    /// Makes an edit durable. A failure stops all writes: what the manifest has is unknown then.
    /// `whole` is the edit that makes the present blocks out of nothing. Called under the
    /// manifest's lock.
    pub(crate) fn write_edit(
        &self,
        manifest: &mut Option<Manifest>,
        edit: &Edit,
        whole: impl FnOnce() -> Edit,
    ) -> Result<(), WriteError> {
        let manifest = manifest.as_mut().ok_or(WriteError::ReadOnly)?;
        self.tier.standing.check_writable()?;
        self.tier.check_place()?;
        self.tier.remove_strays()?;
        if manifest.bytes() > 1 << 20 {
            let mut whole = whole();
            // Other files are known as well, so that an open does not take them for blocks of lost
            // edits.
            let names = self.tier.files.list(self.tier.path());
            let names = names.map_err(DiskError::room("list", self.tier.path()))?;
            let of_blocks = names.iter().filter_map(|name| numbers_of(name.to_str()?));
            let named: BTreeSet<Name> = whole.added.iter().map(|(name, _)| *name).collect();
            let removed: Vec<Name> = of_blocks.filter(|name| !named.contains(name)).collect();
            whole.added.extend(removed.iter().map(|name| (*name, 0)));
            let others = Edit { removed, ..Edit::default() };
            manifest
                .rewrite(&mut [whole, others].iter().map(Edit::to_bytes))
                .map_err(|error| self.tier.standing.failed(error))?;
        }
        manifest.append(&edit.to_bytes()).map_err(|error| self.tier.standing.failed(error))
    }

    /// Lets go of the log up to the first record that the tier does not have. All writes with lower
    /// numbers than `bound` are noted in their blocks, and in the log.
    pub(crate) fn release_log(
        &self,
        bound: u64,
        first_unsealed_seq: impl FnOnce() -> u64,
    ) -> Result<(), WriteError> {
        if self.is_recovering() {
            // An open that a crash ends is repeated: it needs all of the log.
            return Ok(());
        }
        if self.tier.remove_strays().is_err() {
            // The block is sealed all the same. The log waits for the next one.
            return Ok(());
        }
        if self.has_log() {
            let first = first_unsealed_seq().min(bound);
            debug_assert!(first <= self.next_seq.load(Relaxed), "what comes is not released");
            let released = self.with_large_synced(|| self.log.release(first))?;
            match released {
                // The block is sealed. The next one tries again.
                Err(DiskError::Full { .. }) => {}
                released => released.map_err(|error| self.tier.standing.failed(error))?,
            }
        }
        self.remove_doomed()
    }

    /// Writes a large value.
    pub(crate) fn write_large(&self, value: &[u8]) -> Result<LargeValue, WriteError> {
        self.large.write(&self.tier, value, self.settings.log_bytes + 1)
    }

    /// Removes the files of large values that neither a record nor the log names any more.
    fn remove_doomed(&self) -> Result<(), WriteError> {
        let oldest = match self.settings.durability {
            // Until then the log may have what has replaced them, and the tier may not.
            Durability::None if !self.has_left_log.load(Relaxed) => return Ok(()),
            Durability::None => u64::MAX,
            _ => self.log.oldest_seq().unwrap_or(u64::MAX),
        };
        let gone = self.large.take_doomed(oldest);
        if !gone.is_empty() {
            self.tier.check_place()?;
            // What has replaced them must not be lost.
            self.sync_log()?;
        }
        gone.into_iter().for_each(|(value, _)| large::remove(&self.tier, value));
        Ok(())
    }

    /// What `how` promises beyond visibility; `None` for nothing yet. Without a log, nothing can be
    /// promised.
    pub(crate) fn promised(&self, how: Durably) -> Result<Option<Durability>, WriteError> {
        let most = match self.tier.standing.promises() {
            Durability::None => Durability::None,
            _ => self.tier.most(),
        };
        match how {
            Durably::AtLeast(asked) if asked > most => Err(WriteError::Durability { asked, most }),
            _ => Ok(self.tier.standing.promised(how)),
        }
    }

    /// Waits until the log up to `end` survives what was promised.
    pub(crate) fn wait_for_log(&self, end: u64, durability: Option<Durability>) -> Result<(), WriteError> {
        self.tier.standing.check_process()?;
        let done = match durability {
            _ if end == 0 => Ok(()),
            None | Some(Durability::None) => Ok(()),
            Some(Durability::Process | Durability::Interval) => self.log.write(end),
            Some(Durability::Power) => self.with_large_synced(|| self.log.sync(end))?,
        };
        done.map_err(|error| {
            self.tier.standing.stop(error.to_string());
            error.into()
        })
    }

    /// Prepares the log, and syncs it in its time.
    pub(crate) fn step_log(&self) -> Result<Rest, WriteError> {
        self.tier.check_place()?;
        if !self.has_log() {
            return match self.log.reserve().keep() {
                // Rewrites have it, or others.
                Err(DiskError::Full { .. }) => Ok(Rest::Idle),
                kept => kept.map(|()| Rest::Idle).map_err(|error| self.tier.standing.failed(error)),
            };
        }
        let is_prepared = self.log.prepare().map_err(|error| self.tier.standing.failed(error))?;
        let (now, last) = (self.settings.clock.now_ms(), self.synced_at.load(Relaxed));
        // A clock that was set back is no reason to wait.
        let is_due = now < last || now - last >= self.settings.interval_ms;
        if is_due && self.tier.standing.promises() == Durability::Interval {
            self.synced_at.store(now, Relaxed);
            self.sync_log()?;
        }
        Ok(if is_prepared { Rest::More } else { Rest::Idle })
    }
}
