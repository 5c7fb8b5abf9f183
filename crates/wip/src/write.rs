//! Writes: a record of the log, items of MemTables, and one number that makes them visible.
//!
//! One writer at a time, under a lock that it holds for no I/O but the log's buffer. It gives the
//! items of a write consecutive sequence numbers, appends them to the log's buffer as one record,
//! adds them to the active MemTables, and then stores the last number as the visible one. So all
//! items of a write become visible at once, in any number of buckets. After the lock the write
//! waits for the log as its durability asks; writers that wait at the same time share one system
//! call.
//!
//! A write that depends on what it has read reads before the lock, and asks under the lock whether
//! one of its keys has been written since: that takes memory only.

use crate::engine::Wip;
use crate::range::Range;
use crate::read::Hit;
use crate::state::State;
use crate::state::store::{Present, Writer};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_disk::{Content, Item, LOG_PAYLOAD_MAX};
use terrace_engine::Durably;
use terrace_engine::check_sizes;
use terrace_engine::{
    Change, Direction, Durability, Entry, RangeCursor, RangeRemoved, ReadError, WriteError,
};
use terrace_engine::{Commit, Expected, Write, WriteKind, expected_present};
use terrace_engine::{Draft, HEAD_MAX, append_drafts, draft};

/// Keys that a removal of a range removes at one instant.
const REMOVALS: usize = 256;

impl Wip {
    /// Makes all writes at one instant if `admit` says so; returns what it said. Each key at most
    /// once.
    pub(crate) fn apply(
        &self,
        drafts: &[Draft<'_>],
        how: Durably,
        admit: impl FnOnce(&State) -> bool,
    ) -> Result<bool, WriteError> {
        // First of all: in the child of a fork, another thread may hold a lock for ever.
        self.store.standing.check_writable()?;
        let durability = self.store.standing.promised(how);
        let bytes: usize = drafts.iter().map(Draft::bytes).sum();
        if bytes + drafts.len() * HEAD_MAX > LOG_PAYLOAD_MAX {
            return Err(WriteError::BatchTooLong);
        }
        self.make_room(drafts, bytes)?;
        let mut writer = self.store.writer();
        self.store.standing.check_writable()?;
        let state = self.store.state.load();
        if !admit(&state) {
            return Ok(false);
        }
        if drafts.is_empty() {
            return Ok(true);
        }
        let first = writer.next_seq;
        debug_assert_eq!(first, self.store.visible.load(Relaxed) + 1, "numbers have no gap");
        let end = self.append(&mut writer, first, drafts)?;
        self.add(&mut writer, state, first, drafts);
        self.store.counters.written.fetch_add(bytes as u64, Relaxed);
        drop(writer);
        self.wait_for_log(end, durability)?;
        Ok(true)
    }

    /// Appends a record to the log.
    fn append(&self, writer: &mut Writer, first: u64, drafts: &[Draft<'_>]) -> Result<u64, WriteError> {
        let end = append_drafts(&self.store.log, &mut writer.heads, first, drafts)
            .map_err(|error| self.store.standing.failed(error))?;
        // ORDER: Release: a flush that meets the items of the record meets its end.
        let before = self.store.appended.swap(end, Release);
        self.store.check_log(before)?;
        Ok(end)
    }

    /// Adds items to MemTables, and makes them visible.
    fn add(&self, writer: &mut Writer, mut state: Present, first: u64, drafts: &[Draft<'_>]) {
        debug_assert_eq!(writer.next_seq, first, "the lock is held since the number was read");
        // What expires goes without another write, and once it is dropped, without a trace.
        let goes = |draft: &&Draft<'_>| match draft.content {
            Content::Tombstone => true,
            Content::Put { expires_at, .. } => expires_at.is_some(),
        };
        drafts.iter().filter(goes).for_each(|draft| self.store.removals.count(draft.key));
        let mut full = Vec::new();
        for (draft, seq) in drafts.iter().zip(first..) {
            let item = Item { key: draft.key, seq, content: draft.content };
            self.store.add_item(writer, &mut state, &item);
            let bucket = state.bucket(draft.key);
            if bucket.active.memory() >= bucket.freeze_at && full.last() != Some(&bucket.id) {
                full.push(bucket.id);
            }
        }
        writer.next_seq = first + drafts.len() as u64;
        // ORDER: Release: a reader that sees this number sees the items.
        self.store.visible.store(writer.next_seq - 1, Release);
        self.store.watches.report(drafts.iter().map(|draft| draft.key));
        full.into_iter().for_each(|id| self.store.freeze(writer, id));
    }

    /// Writes that do not depend on what is there.
    pub(crate) fn write(&self, drafts: &[Draft<'_>], how: Durably) -> Result<(), WriteError> {
        self.apply(drafts, how, |_| true).map(drop)
    }

    /// Whether a removal of `key` has something to remove. Damage may hide a version of it; a
    /// tombstone hides that as well, so the removal need not fail.
    fn may_be_present(&self, key: &[u8]) -> Result<bool, ReadError> {
        match self.store.find_live(key) {
            Err(ReadError::Corrupt { .. }) => Ok(true),
            found => Ok(found?.is_some()),
        }
    }

    pub(crate) fn remove_key(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        loop {
            let since = self.store.visible.load(Acquire);
            if !self.may_be_present(key)? {
                self.store.standing.check_writable()?;
                return Ok(false);
            }
            let admit = |state: &State| self.store.are_unchanged(state, since, [key].into_iter());
            if self.apply(&[Draft::removal(key)], how, admit)? {
                return Ok(true);
            }
        }
    }

    pub(crate) fn remove_keys(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        let mut distinct = keys.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        loop {
            let since = self.store.visible.load(Acquire);
            let mut present = Vec::new();
            for &key in &distinct {
                if self.may_be_present(key)? {
                    present.push(Draft::removal(key));
                }
            }
            let admit = |state: &State| self.store.are_unchanged(state, since, distinct.iter().copied());
            if self.apply(&present, how, admit)? {
                return Ok(present.len() as u64);
            }
        }
    }

    pub(crate) fn modify_key(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        self.store.standing.check_writable()?;
        loop {
            let since = self.store.visible.load(Acquire);
            let live = self.store.find_live(key)?;
            let entry = live.as_ref().map(terrace_engine::Live::entry);
            let changed = change(entry);
            let content = match &changed {
                Change::Put { value, expires_at } => {
                    check_sizes(key, value.len())?;
                    Content::Put { value, expires_at: *expires_at }
                }
                Change::Expire(at) => match &live {
                    Some(live) if live.expires_at != *at => {
                        Content::Put { value: &live.value, expires_at: *at }
                    }
                    _ => return Ok(()),
                },
                Change::Remove if live.is_some() => Content::Tombstone,
                Change::Remove | Change::Keep => return Ok(()),
            };
            let admit = |state: &State| self.store.are_unchanged(state, since, [key].into_iter());
            if self.apply(&[Draft::new(key, content)], how, admit)? {
                return Ok(());
            }
        }
    }

    pub(crate) fn commit_all(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        for write in writes {
            let len = if let WriteKind::Put { value, .. } = write.what { value.len() } else { 0 };
            check_sizes(write.key, len)?;
        }
        loop {
            let since = self.store.visible.load(Acquire);
            for (nth, (key, version)) in expected.iter().enumerate() {
                if !self.store.present_version(key)?.meets(version) {
                    return Ok(Commit::Changed(nth));
                }
            }
            let kept = self.values_to_keep(writes, expected)?;
            let mut kept = kept.iter();
            let drafts: Vec<Draft<'_>> = writes.iter().filter_map(|write| draft(write, &mut kept)).collect();
            let admit = |state: &State| {
                let expiring = writes.iter().filter(|write| matches!(write.what, WriteKind::Expire(_)));
                let keys = expected.iter().map(|(key, _)| *key).chain(expiring.map(|write| write.key));
                self.store.are_unchanged(state, since, keys)
            };
            if self.apply(&drafts, how, admit)? {
                return Ok(Commit::Done);
            }
        }
    }

    /// The values of the keys whose expiry changes.
    fn values_to_keep(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Vec<Option<Vec<u8>>>, ReadError> {
        let present = expected_present(writes, expected);
        let expiring = writes.iter().filter(|write| matches!(write.what, WriteKind::Expire(_)));
        let value = |write: &Write<'_>| {
            let live = match present.contains(write.key) {
                true => self.store.newest(write.key)?.and_then(Hit::into_live),
                false => self.store.find_live(write.key)?,
            };
            Ok(live.map(|live| live.value))
        };
        expiring.map(value).collect()
    }

    /// Waits until the log up to `end` survives what was promised.
    pub(crate) fn wait_for_log(&self, end: u64, durability: Option<Durability>) -> Result<(), WriteError> {
        self.store.standing.check_process()?;
        let done = match durability {
            None | Some(Durability::None) => Ok(()),
            Some(Durability::Process | Durability::Interval) => self.store.log.write(end),
            Some(Durability::Power) => self.store.log.sync(end),
        };
        // The items are visible already. So also a lack of room is final here; segments have theirs
        // beforehand, on all file systems but those that write elsewhere each time.
        done.map_err(|error| {
            self.store.standing.stop(error.to_string());
            error.into()
        })
    }

    /// See [`Ordered::remove_range`](terrace_engine::Ordered::remove_range).
    pub(crate) fn remove_between(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        at_most: u64,
        how: Durably,
    ) -> Result<RangeRemoved, WriteError> {
        self.store.standing.check_writable()?;
        // A tombstone hides whatever damage does.
        let mut range = self.store.range_between(from, to, Direction::Forward).showing_unsure();
        let (mut removed, mut left) = (0, at_most);
        let mut damage = None;
        loop {
            let wanted = left.min(REMOVALS as u64) as usize;
            let (keys, next) = next_keys(&mut range, wanted, &mut damage)?;
            for key in &keys {
                removed += u64::from(self.remove_key(key, Durably::Later)?);
            }
            left -= keys.len() as u64;
            match next {
                Some(next) if left > 0 => {
                    range = self
                        .store
                        .range_between(Bound::Included(&next), to, Direction::Forward)
                        .showing_unsure()
                }
                next => {
                    self.wait_for_log(self.store.log.end(), self.store.standing.promised(how))?;
                    let done = Ok((removed, next.map(Vec::into_boxed_slice)));
                    return damage.map_or(done, |damage| Err(damage.into()));
                }
            }
        }
    }
}

type Key = Vec<u8>;

/// The next keys of a range, so many at most, and the one behind them. Notes damage, and passes it.
fn next_keys(
    range: &mut Range<'_>,
    wanted: usize,
    damage: &mut Option<ReadError>,
) -> Result<(Vec<Key>, Option<Key>), ReadError> {
    let mut keys: Vec<Key> = Vec::new();
    let visited = range.visit(wanted + 1, &mut |key, _| {
        keys.push(key.to_vec());
        if keys.len() > wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match visited {
        // It has visited all others up to there.
        Err(error @ ReadError::Skipped { .. }) => _ = damage.get_or_insert(error),
        visited => _ = visited?,
    }
    let next = keys.get(wanted).cloned();
    keys.truncate(wanted);
    Ok((keys, next))
}
