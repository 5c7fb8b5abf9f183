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
use crate::changes::{Old, Stuck};
use crate::journal::Journal;
use crate::records::Records;
use crate::space::addresses::{RecordAt, Room};
use crate::space::key::Probe;
use crate::space::memory::Here;
use crate::space::record::{Copied, Kind, LargeValue, Record, Shape};
use crate::tier::files::Tier;
use crate::upkeep::work::Upkeep;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_disk::{Content, Need, cold};
use terrace_engine::Durably;
use terrace_engine::Live;
use terrace_engine::Watches;
use terrace_engine::check_sizes;
use terrace_engine::{Change, WriteError};
use terrace_engine::{Draft, need_of};

/// Bytes of the longest value that is changed in place: readers copy it meanwhile.
const IN_PLACE_MAX: usize = 4096;

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
    /// Memory for the bytes of a record.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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
    BYTES.with_borrow_mut(|bytes| {
        bytes.clear();
        record.put(bytes);
        at.store_locked(&here.guard, bytes, false);
    });
    at.unlock(&here.guard, record.seq);
}

/// Writes. It owns the watches of those that wait for writes; upkeep, which makes room, stands
/// below with all that it has.
pub(crate) struct Writes {
    pub(crate) upkeep: Upkeep,
    pub(crate) watches: Arc<Watches>,
}

impl Writes {
    #[inline(always)]
    pub(crate) fn records(&self) -> &Records {
        self.upkeep.records()
    }

    #[inline(always)]
    pub(crate) fn journal(&self) -> &Journal {
        self.upkeep.journal()
    }

    #[inline(always)]
    pub(crate) fn tier(&self) -> &Tier {
        self.upkeep.tier()
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
        let seq = self.journal().next_seq.fetch_add(1, Relaxed);
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
        let end = self.journal().append(seq, &[new.logged()])?;
        let shape = match new.draft.content {
            Content::Tombstone => {
                self.records().removals.count(probe.key());
                self.records().swap(here, probe, (Some(old.address), None))?;
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
        self.records().counters.in_place.fetch_add(1, Relaxed);
        self.upkeep.reads.cache.division.count(Side::Writes);
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
        self.journal().check_room(need_of(&[new.draft]))?;
        let room = self.stage(here, (seq, shape), probe, new)?;
        let from = old.map(|old| old.address);
        let is_put = shape.kind != Kind::Tombstone;
        if from.is_none() && is_put {
            // Readers of a new key wait until the log has it.
            self.records()
                .swap(here, probe, (None, Some(room.address)))
                .inspect_err(|_| self.records().waste(here, &room))?;
        }
        let appended = self.journal().append(seq, &[new.logged()]);
        if let Err(error) = appended {
            if from.is_none() && is_put {
                let _ = self.records().swap(here, probe, (Some(room.address), None));
            }
            self.records().waste(here, &room);
            return Err(error.into());
        }
        new.is_logged.set(true);
        if !is_put {
            self.records().removals.count(probe.key());
        }
        room.record.unlock(&here.guard, seq);
        if let Some(old) = old {
            self.records().swap(here, probe, (from, is_put.then_some(room.address)))?;
            self.records().bury(here, old);
        }
        self.records().counters.appended.fetch_add(1, Relaxed);
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
        debug_assert_eq!(shape.key_len + 8, probe.len(), "a shape is of its key");
        if size > here.memory.pages.page_bytes() {
            return Err(Stuck::Failed(WriteError::KeyTooLong));
        }
        let room = here.memory.open.take(here.pages(), size, seq).map_err(|why| Stuck::NoRoom(why, size))?;
        BYTES.with_borrow_mut(|bytes| {
            record_bytes(bytes, shape, seq, probe, new);
            room.record.store_locked(&here.guard, bytes, true);
        });
        Ok(room)
    }

    /// Counts a write, and dooms the large value that it replaces.
    pub(crate) fn count(&self, old: Option<&Old>, new: &New<'_>) {
        if let Some(old) = old {
            let shape = old.copied.shape;
            self.records().counters.skipped.fetch_add(old.is_damaged.into(), Relaxed);
            self.records().uncount(shape);
            // Without a log, a version that the tier has stays until the tier has its successor.
            let may_return = !self.journal().has_log() && !old.record.is_some_and(|record| record.is_open());
            if !may_return {
                self.doom_old(&old.copied, new);
            }
        }
        self.records().counters.written.fetch_add(new.draft.bytes() as u64, Relaxed);
        self.records().count_in(new.shape(new.draft.key.len()));
    }

    /// Dooms the large value of a version that was replaced, if it has one.
    pub(crate) fn doom_old(&self, old: &Copied, new: &New<'_>) {
        if old.shape.kind == Kind::Large
            && let Some(large) = LargeValue::read(&old.inline)
            && new.large != Some(large)
        {
            self.journal().large.doom(large, old.seq, old.shape.value_len);
        }
    }

    /// Writes a value's file first if it is large.
    pub(crate) fn prepare<'a>(&self, draft: Draft<'a>) -> Result<New<'a>, WriteError> {
        match draft.content {
            Content::Put { value, .. } if value.len() >= self.records().large_from() => {
                let large = self.journal().write_large(value)?;
                let reference = [&large.to_bytes()[..], &(value.len() as u64).to_le_bytes()].concat();
                Ok(New { draft, large: Some(large), reference, is_logged: Cell::new(false) })
            }
            _ => Ok(New::small(draft)),
        }
    }

    /// Gives up the file of a value whose write has failed, unless the log names it.
    pub(crate) fn unprepare(&self, new: &New<'_>) {
        let Some(large) = new.large.filter(|_| !new.is_logged.get()) else { return };
        self.journal().large.give_up(self.tier(), large);
    }

    /// Makes a write that depends on nothing.
    pub(crate) fn write(&self, draft: Draft<'_>, how: Durably) -> Result<bool, WriteError> {
        self.tier().standing.check_writable()?;
        let durability = self.journal().promised(how)?;
        let probe = self.records().probe(draft.key);
        // Without the lock, since a large value takes time.
        let mut cleared_at = self.journal().cleared_at.load(Acquire);
        let mut new = self.prepare(draft)?;
        let is_removal = matches!(draft.content, Content::Tombstone);
        let done = self.upkeep.with_room(need_of(&[draft]), || {
            let _stripe = self.records().stripes.lock(probe.hash());
            let memory = self.records().memory();
            let here = Here::enter(&memory)?;
            self.tier().standing.check_writable()?;
            let old = self.records().old_to_replace(&here, &probe)?;
            let was_live = old.as_ref().is_some_and(|old| !self.records().has_expired(old.copied.expires_at));
            if is_removal && old.is_none() {
                return Ok((0, false));
            }
            if new.large.is_some() && cleared_at != self.journal().cleared_at.load(Relaxed) {
                // The store was cleared meanwhile, and the file with it.
                self.unprepare(&new);
                (cleared_at, new) = (self.journal().cleared_at.load(Relaxed), self.prepare(draft)?);
            }
            Ok((self.write_locked(&here, &probe, old.as_ref(), &new)?, was_live))
        });
        let (end, was_live) = done.inspect_err(|_| self.unprepare(&new))?;
        self.journal().wait_for_log(end, durability)?;
        Ok(was_live)
    }

    pub(crate) fn modify_key(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<terrace_engine::Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        self.tier().standing.check_writable()?;
        let durability = self.journal().promised(how)?;
        let probe = self.records().probe(key);
        let end = self.upkeep.with_room(Need::Room, || {
            let _stripe = self.records().stripes.lock(probe.hash());
            let memory = self.records().memory();
            let here = Here::enter(&memory)?;
            self.tier().standing.check_writable()?;
            let old = self.records().old(&here, &probe)?;
            let live = self.records().live_of(old.as_ref())?;
            let changed = change(live.as_ref().map(Live::entry));
            let Some(content) = content_of(&changed, live.as_ref(), old.is_some()) else { return Ok(0) };
            if let Change::Put { value, .. } = &changed {
                check_sizes(key, value.len())?;
            }
            let new = self.prepare(Draft::new(key, content))?;
            let written = self.write_locked(&here, &probe, old.as_ref(), &new);
            written.inspect_err(|_| self.unprepare(&new))
        })?;
        self.journal().wait_for_log(end, durability)
    }
}

/// What a key gets that is changed so; `None` if it stays as it is.
fn content_of<'a>(changed: &'a Change, live: Option<&'a Live>, was_there: bool) -> Option<Content<'a>> {
    match changed {
        Change::Put { value, expires_at } => Some(Content::Put { value, expires_at: *expires_at }),
        Change::Expire(at) => {
            let live = live.filter(|live| live.expires_at != *at)?;
            Some(Content::Put { value: &live.value, expires_at: *at })
        }
        Change::Remove => was_there.then_some(Content::Tombstone),
        Change::Keep => None,
    }
}
