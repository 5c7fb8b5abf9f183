//! Writes: a record in the space, an entry of the log, a word of the index.
//!
//! A write locks the stripe of its key, decides, and takes its sequence number. A value that fits
//! into the present record changes it in place if the record's block is open; anything else goes to
//! a new record, at a new address (section 4.3 of the paper). The entry of the log comes before
//! anybody can see the write. After the lock the write waits for the log as its durability asks.
//!
//! A removal leaves a *tombstone*: a record that says so, without a word in the index. It keeps
//! older versions on the tier from coming back, and goes when none is left.

use crate::cache::Side;
use crate::read::Probe;
use crate::space::addresses::{RecordAt, Room};
use crate::space::memory::{Here, Memory};
use crate::space::pages::NoRoom;
use crate::space::record::{Copied, Kind, LargeValue, Record, Shape, hash_in};
use crate::store::Tiered;
use crate::upkeep::flush::Tries;
use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, PoisonError};
use terrace_disk::{Content, Need, cold};
use terrace_engine::Durably;
use terrace_engine::Live;
use terrace_engine::check_sizes;
use terrace_engine::{Change, Durability, ReadError, WriteError};
use terrace_engine::{Draft, append_drafts, need_of};
use terrace_index::Swapped;

/// Bytes of the longest value that is changed in place: readers copy it meanwhile.
const IN_PLACE_MAX: usize = 4096;

/// Why a write did not happen.
pub(crate) enum Stuck {
    /// There is no room now. The bytes that it needs.
    NoRoom(NoRoom, usize),
    Failed(WriteError),
}

impl<E: Into<WriteError>> From<E> for Stuck {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What a key had.
pub(crate) struct Old {
    pub(crate) address: u64,
    pub(crate) record: Option<RecordAt>,
    pub(crate) copied: Copied,
    /// Whether it cannot be read: then `copied` has its size and number only.
    is_damaged: bool,
}

/// What a key gets.
pub(crate) struct New<'a> {
    pub(crate) draft: Draft<'a>,
    /// Where its value lies, if that is large, and what the log has in its place.
    pub(crate) large: Option<LargeValue>,
    pub(crate) reference: Vec<u8>,
    /// Whether the log has it.
    pub(crate) is_logged: Cell<bool>,
}

impl<'a> New<'a> {
    /// A value of a few bytes, or none.
    pub(crate) fn small(draft: Draft<'a>) -> Self {
        Self { draft, large: None, reference: Vec::new(), is_logged: Cell::new(false) }
    }

    /// Its entry in the log.
    pub(crate) fn logged(&self) -> Draft<'_> {
        match self.draft.content {
            Content::Put { expires_at, .. } if self.large.is_some() => {
                let content = Content::Put { value: &self.reference, expires_at };
                Draft { key: self.draft.key, content, is_reference: true }
            }
            _ => self.draft,
        }
    }

    pub(crate) fn shape(&self, key_len: usize) -> Shape {
        match self.draft.content {
            Content::Tombstone => Shape { key_len, value_len: 0, expires: false, kind: Kind::Tombstone },
            Content::Put { value, expires_at } => {
                let kind = if self.large.is_some() { Kind::Large } else { Kind::Value };
                Shape { key_len, value_len: value.len(), expires: expires_at.is_some(), kind }
            }
        }
    }
}

thread_local! {
    /// Memory for the bytes of a record, and for what comes before values in the log.
    static BYTES: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Makes the bytes of a record.
fn record_bytes(out: &mut Vec<u8>, shape: Shape, seq: u64, probe: &[u8], new: &New<'_>) {
    out.clear();
    let large = new.large.map(LargeValue::to_bytes);
    let (inline, expires_at) = match (new.draft.content, &large) {
        (Content::Put { expires_at, .. }, Some(large)) => (&large[..], expires_at),
        (Content::Put { value, expires_at }, None) => (value, expires_at),
        (Content::Tombstone, _) => (&[][..], None),
    };
    Record { shape, seq, expires_at, probe, inline }.put(out);
}

/// Stores a version of a key in the place of an earlier one, under the lock of its stripe.
pub(crate) fn store_in_place(here: &Here<'_>, at: RecordAt, record: &Record<'_>) {
    BYTES.with_borrow_mut(|(bytes, _)| {
        bytes.clear();
        record.put(bytes);
        at.store_locked(&here.guard, bytes, false);
    });
    at.unlock(&here.guard, record.seq);
}

impl Tiered {
    /// What a key has, under the lock of its stripe.
    pub(crate) fn old(&self, here: &Here<'_>, probe: &[u8]) -> Result<Option<Old>, ReadError> {
        let (word, read) = self.look_up(here, probe)?;
        let Some(address) = word else { return Ok(None) };
        let record = here.record(address);
        let copied = self.copy(here, address, read)?;
        let copied = copied.ok_or_else(|| self.missing(here.map(), address))?;
        Ok(Some(Old { address, record, copied, is_damaged: false }))
    }

    /// The same for a write that needs no value of it: a damaged record is replaced like any other.
    pub(crate) fn old_to_replace(&self, here: &Here<'_>, probe: &[u8]) -> Result<Option<Old>, ReadError> {
        let damage = match self.old(here, probe) {
            Err(damage @ ReadError::Corrupt { .. }) => damage,
            old => return old,
        };
        let map = here.map();
        let Some(address) = self.look_up(here, probe)?.0 else { return Err(damage) };
        let Some(block) = self.block(map.block_of(address)) else { return Err(damage) };
        let mention = block.mention_of(hash_in(probe), map.offset_of(address))?;
        let mention = mention.ok_or(damage)?;
        let shape = Shape { key_len: probe.len() - 8, value_len: 0, expires: false, kind: Kind::Value };
        let value_len = (8 * mention.words as usize).saturating_sub(shape.size());
        let shape = Shape { value_len, ..shape };
        let copied = Copied { shape, seq: mention.seq, expires_at: None, inline: Vec::new() };
        Ok(Some(Old { address, record: None, copied, is_damaged: true }))
    }

    /// Appends an entry to the log, if the store keeps one.
    pub(crate) fn append(&self, first: u64, drafts: &[Draft<'_>]) -> Result<u64, WriteError> {
        if self.settings.durability == Durability::None {
            return Ok(0);
        }
        let mut heads = BYTES.with_borrow_mut(|(_, heads)| std::mem::take(heads));
        let appended = append_drafts(&self.log, &mut heads, first, drafts);
        BYTES.with_borrow_mut(|(_, kept)| *kept = heads);
        let appended = appended.map_err(|error| self.standing.failed(error));
        // A long record of many writes may lack more than others.
        if drafts.len() == 1 && need_of(drafts) == Need::Room {
            self.note_room(&self.unlogged, &appended);
        }
        appended
    }

    /// Refuses a write that the log would refuse, before that takes a page: the pages of DRAM would
    /// fill with what nobody has written, and each one that is flushed takes room on the tier.
    pub(crate) fn check_room(&self, need: Need) -> Result<(), WriteError> {
        if self.settings.durability == Durability::None || need == Need::Reserve {
            return Ok(());
        }
        self.lacks_room(&self.unlogged).map_or(Ok(()), Err)?;
        let checked = self.log.check_room(need).map_err(|error| self.standing.failed(error));
        self.note_room(&self.unlogged, &checked);
        checked
    }

    /// Changes the index's word of a key, under the lock of its stripe.
    pub(crate) fn swap(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        (from, to): (Option<u64>, Option<u64>),
    ) -> Result<(), WriteError> {
        loop {
            let swapped = here.index().compare_and_swap(&here.guard, probe, from, to)?;
            let met = here.search.take_met();
            match (swapped, met) {
                (Swapped::Done, _) => return Ok(()),
                // Its page was freed just now.
                (Swapped::Found(_), Some(met)) => {
                    // Something may have changed already.
                    if let Some(bytes) = cold::waiting(|| self.read_cold(here.map(), met))? {
                        here.search.note(met, Record::read(&bytes).expect("read just now").probe);
                    }
                }
                (Swapped::Found(_), None) => {
                    let what = "the index has changed a key that was locked";
                    return Err(WriteError::Corrupt { place: terrace_engine::Place::Pool(0), what });
                }
            }
        }
    }

    /// Makes one write, under the lock of the stripe, and returns the position in the log that it
    /// waits for.
    pub(crate) fn write_locked(
        &self,
        here: &Here<'_>,
        probe: &Probe,
        old: Option<&Old>,
        new: &New<'_>,
    ) -> Result<u64, Stuck> {
        let seq = self.next_seq.fetch_add(1, Relaxed);
        let shape = new.shape(probe.key().len());
        let end = match old.and_then(|old| Some((old, self.in_place(here, old, new, shape)?))) {
            Some((old, record)) => self.write_in_place(here, probe, (old, record), (seq, new))?,
            None => self.write_anew(here, probe, old, (seq, shape), new)?,
        };
        self.count(old, new);
        self.watches.report(std::iter::once(probe.key()));
        cold::has_written();
        Ok(end)
    }

    /// The record of `old` if it can be changed to `new` in place.
    pub(crate) fn in_place(
        &self,
        here: &Here<'_>,
        old: &Old,
        new: &New<'_>,
        shape: Shape,
    ) -> Option<RecordAt> {
        let record = here.record(old.address).filter(|record| record.is_open())?;
        let is_value = old.copied.shape.kind == Kind::Value;
        let fits = match new.draft.content {
            Content::Tombstone => true,
            Content::Put { value, .. } => {
                new.large.is_none()
                    && value.len() <= IN_PLACE_MAX
                    && shape.expires == old.copied.shape.expires
                    && shape.size() <= record.room(&here.guard)
            }
        };
        (is_value && fits).then_some(record)
    }

    fn write_in_place(
        &self,
        here: &Here<'_>,
        probe: &Probe,
        (old, record): (&Old, RecordAt),
        (seq, new): (u64, &New<'_>),
    ) -> Result<u64, Stuck> {
        let end = self.append(seq, &[new.logged()])?;
        let shape = match new.draft.content {
            Content::Tombstone => {
                self.removals.count(probe.key());
                self.swap(here, probe, (Some(old.address), None))?;
                // It keeps the place of its expiry.
                let expires = old.copied.shape.expires;
                Shape { key_len: probe.key().len(), value_len: 0, expires, kind: Kind::Tombstone }
            }
            Content::Put { .. } => new.shape(probe.key().len()),
        };
        let (inline, expires_at) = match new.draft.content {
            Content::Put { value, expires_at } => (value, expires_at),
            Content::Tombstone => (&[][..], old.copied.expires_at),
        };
        store_in_place(here, record, &Record { shape, seq, expires_at, probe, inline });
        self.counters.in_place.fetch_add(1, Relaxed);
        self.division.count(Side::Writes);
        Ok(end)
    }

    /// Writes a record to a new place.
    fn write_anew(
        &self,
        here: &Here<'_>,
        probe: &Probe,
        old: Option<&Old>,
        (seq, shape): (u64, Shape),
        new: &New<'_>,
    ) -> Result<u64, Stuck> {
        self.check_room(need_of(&[new.draft]))?;
        let room = self.stage(here, (seq, shape), probe, new)?;
        let from = old.map(|old| old.address);
        let is_put = shape.kind != Kind::Tombstone;
        if from.is_none() && is_put {
            // Readers of a new key wait until the log has it.
            self.swap(here, probe, (None, Some(room.address))).inspect_err(|_| self.waste(here, &room))?;
        }
        let appended = self.append(seq, &[new.logged()]);
        if let Err(error) = appended {
            if from.is_none() && is_put {
                let _ = self.swap(here, probe, (Some(room.address), None));
            }
            self.waste(here, &room);
            return Err(error.into());
        }
        new.is_logged.set(true);
        if !is_put {
            self.removals.count(probe.key());
        }
        room.record.unlock(&here.guard, seq);
        if let Some(old) = old {
            self.swap(here, probe, (from, is_put.then_some(room.address)))?;
            self.bury(here, old);
        }
        self.counters.appended.fetch_add(1, Relaxed);
        Ok(appended?)
    }

    /// Takes room for a record and fills it. It is locked for readers.
    pub(crate) fn stage(
        &self,
        here: &Here<'_>,
        (seq, shape): (u64, Shape),
        probe: &[u8],
        new: &New<'_>,
    ) -> Result<Room, Stuck> {
        let size = shape.size();
        if size > here.memory.pages.page_bytes() {
            return Err(Stuck::Failed(WriteError::KeyTooLong));
        }
        let room = here.memory.open.take(here.pages(), size, seq).map_err(|why| Stuck::NoRoom(why, size))?;
        BYTES.with_borrow_mut(|(bytes, _)| {
            record_bytes(bytes, shape, seq, probe, new);
            room.record.store_locked(&here.guard, bytes, true);
        });
        Ok(room)
    }

    /// Gives up a record that nobody has seen. A flush leaves it out.
    pub(crate) fn waste(&self, here: &Here<'_>, room: &Room) {
        // It stays locked, so that it is no tombstone either.
        let bytes = room.record.room(&here.guard) as u64;
        here.dead_of(room.address).fetch_add(bytes, Relaxed);
    }

    /// Counts a record as dead.
    pub(crate) fn bury(&self, here: &Here<'_>, old: &Old) {
        let mut address = old.address;
        if let Some(record) = old.record.filter(|record| record.is_copy()) {
            address = record.original(&here.guard);
        }
        let bytes = old.copied.shape.size() as u64;
        here.dead_of(address).fetch_add(bytes, Relaxed);
    }

    /// Counts a write, and dooms the large value that it replaces.
    pub(crate) fn count(&self, old: Option<&Old>, new: &New<'_>) {
        if let Some(old) = old {
            let shape = old.copied.shape;
            self.counters.skipped.fetch_add(old.is_damaged.into(), Relaxed);
            self.uncount(shape);
            // Without a log, a version that the tier has stays until the tier has its successor.
            let may_return = self.settings.durability == Durability::None
                && !old.record.is_some_and(|record| record.is_open());
            if !may_return {
                self.doom_old(&old.copied, new);
            }
        }
        self.counters.written.fetch_add(new.draft.bytes() as u64, Relaxed);
        self.count_in(new.shape(new.draft.key.len()));
    }

    /// Dooms the large value of a version that was replaced, if it has one.
    pub(crate) fn doom_old(&self, old: &Copied, new: &New<'_>) {
        if old.shape.kind == Kind::Large
            && let Some(large) = LargeValue::read(&old.inline)
            && new.large != Some(large)
        {
            self.doom_large(large, old.seq, old.shape.value_len);
        }
    }

    /// Counts a live record in, and out.
    pub(crate) fn count_in(&self, shape: Shape) {
        if shape.kind != Kind::Tombstone {
            self.counters.data.fetch_add((shape.key_len + shape.value_len) as u64, Relaxed);
            self.counters.expiring.fetch_add(u64::from(shape.expires), Relaxed);
        }
    }

    /// See [`Tiered::count_in`].
    pub(crate) fn uncount(&self, shape: Shape) {
        if shape.kind != Kind::Tombstone {
            // After an open, these are estimates.
            let less = |counter: &AtomicU64, by: u64| {
                _ = counter.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_sub(by)));
            };
            less(&self.counters.data, (shape.key_len + shape.value_len) as u64);
            less(&self.counters.expiring, shape.expires.into());
        }
    }

    /// Writes a value's file first if it is large.
    pub(crate) fn prepare<'a>(&self, draft: Draft<'a>) -> Result<New<'a>, WriteError> {
        match draft.content {
            Content::Put { value, .. } if value.len() >= self.large_from() => {
                let large = self.write_large(value)?;
                let reference = [&large.to_bytes()[..], &(value.len() as u64).to_le_bytes()].concat();
                Ok(New { draft, large: Some(large), reference, is_logged: Cell::new(false) })
            }
            _ => Ok(New::small(draft)),
        }
    }

    /// Gives up the file of a value whose write has failed, unless the log names it.
    pub(crate) fn unprepare(&self, new: &New<'_>) {
        let Some(large) = new.large.filter(|_| !new.is_logged.get()) else { return };
        // An open file keeps its room.
        let mut unsynced = self.unsynced.write().unwrap_or_else(PoisonError::into_inner);
        unsynced.retain(|(number, _)| *number != large.number);
        drop(unsynced);
        self.remove_large(large);
    }

    /// Makes a write that depends on nothing.
    pub(crate) fn write(&self, draft: Draft<'_>, how: Durably) -> Result<bool, WriteError> {
        self.standing.check_writable()?;
        let durability = self.promised(how)?;
        let probe = self.probe(draft.key);
        // Without the lock, since a large value takes time.
        let mut cleared_at = self.cleared_at.load(Acquire);
        let mut new = self.prepare(draft)?;
        let is_removal = matches!(draft.content, Content::Tombstone);
        let done = self.with_room(need_of(&[draft]), || {
            let _stripe = self.stripes.lock(probe.hash());
            let memory = self.memory();
            let here = Here::enter(&memory)?;
            self.standing.check_writable()?;
            let old = self.old_to_replace(&here, &probe)?;
            let was_live = old.as_ref().is_some_and(|old| !self.has_expired(old.copied.expires_at));
            if is_removal && old.is_none() {
                return Ok((0, false));
            }
            if new.large.is_some() && cleared_at != self.cleared_at.load(Relaxed) {
                // The store was cleared meanwhile, and the file with it.
                self.unprepare(&new);
                (cleared_at, new) = (self.cleared_at.load(Relaxed), self.prepare(draft)?);
            }
            Ok((self.write_locked(&here, &probe, old.as_ref(), &new)?, was_live))
        });
        let (end, was_live) = done.inspect_err(|_| self.unprepare(&new))?;
        self.wait_for_log(end, durability)?;
        Ok(was_live)
    }

    /// Runs a write, and again when there is room, if it finds none. `need` says what it may do for
    /// that.
    pub(crate) fn with_room<T>(
        &self,
        need: Need,
        write: impl FnMut() -> Result<T, Stuck>,
    ) -> Result<T, WriteError> {
        let mut left = Vec::new();
        let done = self.try_with_room(need, write, &mut left);
        left.iter().for_each(|(memory, bytes)| memory.pages.take_back(*bytes));
        done
    }

    /// See [`Tiered::with_room`]. Notes what pages have `left` to the index.
    fn try_with_room<T>(
        &self,
        need: Need,
        mut write: impl FnMut() -> Result<T, Stuck>,
        left: &mut Vec<(Arc<Memory>, u64)>,
    ) -> Result<T, WriteError> {
        let mut tries = Tries::of(need);
        loop {
            match write() {
                Ok(done) => return Ok(done),
                Err(Stuck::Failed(WriteError::PoolFull { .. })) if tries.all > 256 => {
                    return Err(self.memory().is_full());
                }
                Err(Stuck::Failed(WriteError::PoolFull { wanted, .. })) => {
                    // The index needs one piece. There are pages between those that were freed: so
                    // more and more of them go, but for some that the write itself needs.
                    let memory = self.memory.load_full();
                    let has_left = left.iter().map(|(_, bytes)| bytes).sum::<u64>();
                    if has_left + wanted <= memory.pages.pool.size() / 4 {
                        memory.pages.leave_to_index(wanted);
                        left.push((memory, wanted));
                    }
                    cold::waiting(|| self.make_room(NoRoom::Pages, wanted as usize, &mut tries))?;
                }
                Err(Stuck::Failed(error)) if need == Need::Reserve && error.lacks_room() => {
                    if !cold::waiting(|| self.make_room_in_log(&mut tries))? {
                        return Err(error);
                    }
                }
                Err(Stuck::Failed(error)) => return Err(error),
                Err(Stuck::NoRoom(why, wanted)) => {
                    cold::waiting(|| self.make_room(why, wanted, &mut tries))?;
                }
            }
        }
    }

    pub(crate) fn modify_key(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<terrace_engine::Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        self.standing.check_writable()?;
        let durability = self.promised(how)?;
        let probe = self.probe(key);
        let end = self.with_room(Need::Room, || {
            let _stripe = self.stripes.lock(probe.hash());
            let memory = self.memory();
            let here = Here::enter(&memory)?;
            self.standing.check_writable()?;
            let old = self.old(&here, &probe)?;
            let live = self.live_of(old.as_ref())?;
            let changed = change(live.as_ref().map(Live::entry));
            let content = match &changed {
                Change::Put { value, expires_at } => {
                    check_sizes(key, value.len())?;
                    Content::Put { value, expires_at: *expires_at }
                }
                Change::Expire(at) => match &live {
                    Some(live) if live.expires_at != *at => {
                        Content::Put { value: &live.value, expires_at: *at }
                    }
                    _ => return Ok(0),
                },
                Change::Remove if old.is_some() => Content::Tombstone,
                Change::Remove | Change::Keep => return Ok(0),
            };
            let new = self.prepare(Draft::new(key, content))?;
            let written = self.write_locked(&here, &probe, old.as_ref(), &new);
            written.inspect_err(|_| self.unprepare(&new))
        })?;
        self.wait_for_log(end, durability)
    }

    /// The entry that a key had.
    pub(crate) fn live_of(&self, old: Option<&Old>) -> Result<Option<Live>, ReadError> {
        let Some(old) = old else { return Ok(None) };
        let live = self.live(old.copied.clone())?;
        live.ok_or_else(|| self.missing_large(&old.copied.inline).into())
    }

    /// What `how` promises beyond visibility; `None` for nothing yet. Without a log, nothing can be
    /// promised.
    pub(crate) fn promised(&self, how: Durably) -> Result<Option<Durability>, WriteError> {
        let most = match self.standing.promises() {
            Durability::None => Durability::None,
            _ if self.files.outlasts_power() => Durability::Power,
            _ => Durability::Process,
        };
        match how {
            Durably::AtLeast(asked) if asked > most => Err(WriteError::Durability { asked, most }),
            _ => Ok(self.standing.promised(how)),
        }
    }

    /// Waits until the log up to `end` survives what was promised.
    pub(crate) fn wait_for_log(&self, end: u64, durability: Option<Durability>) -> Result<(), WriteError> {
        self.standing.check_process()?;
        let done = match durability {
            _ if end == 0 => Ok(()),
            None | Some(Durability::None) => Ok(()),
            Some(Durability::Process | Durability::Interval) => self.log.write(end),
            Some(Durability::Power) => self.with_large_synced(|| self.log.sync(end))?,
        };
        done.map_err(|error| {
            self.standing.stop(error.to_string());
            error.into()
        })
    }
}
