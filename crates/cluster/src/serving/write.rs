//! Writes: under the locks of their keys' stripes, into the log of their slot's shard.

use super::gate::{Gate, View};
use super::key::{Copied, Key};
use super::logs::{Appended, ROOM_WAIT, Refused};
use super::ownership::{Ownership, RENEW_WAIT};
use super::pending::Writing;
use super::read::{Reader, Seen, has_expired};
use super::session::Session;
use crate::clock::now;
use crate::entry::{self, ENTRY_MAX, Entry};
use crate::slot::SlotRange;
use std::time::Duration;
use terrace_engine::{
    Change, Commit, Durability, Durably, Expected, KEY_MAX, Put, ReadError, Watches, Write, WriteError,
    WriteKind, expected_present,
};

/// Bytes of the longest value.
pub(super) const VALUE_MAX: usize = 256 << 10;

/// Refuses a key or a value that a cluster does not take.
pub(super) fn check_sizes(key: &[u8], value: usize) -> Result<(), WriteError> {
    if key.len() > KEY_MAX {
        return Err(WriteError::KeyTooLong);
    }
    if value > VALUE_MAX {
        return Err(WriteError::OverLimit(format!(
            "the value has {value} bytes; a cluster takes up to {VALUE_MAX} (256 KiB): divide it, or keep it in a \
             store of its own"
        )));
    }
    Ok(())
}

/// What writes. Below stand what reads, and ownership, which renews the lease soon for a write that
/// waits for room.
#[derive(Clone, Copy)]
pub(super) struct Writer<'n> {
    pub(super) reader: Reader<'n>,
    pub(super) ownership: &'n Ownership,
    pub(super) watches: &'n Watches,
    pub(super) shards: u16,
}

/// What a key has after a change.
fn copied(key: Key<'_>, change: &entry::Change<'_>) -> Option<Copied> {
    match change {
        entry::Change::Put { value, expires_at, .. } => Some(Copied::new(key.bytes, value, *expires_at)),
        entry::Change::Remove { .. } => None,
    }
}

/// The entry of these changes, unless it is too long.
fn entry_of<'c>(changes: &[(Key<'_>, entry::Change<'c>)]) -> Result<Entry<'c>, WriteError> {
    let entry = Entry::Changes(changes.iter().map(|(_, change)| *change).collect());
    let size = entry.size();
    if size > ENTRY_MAX {
        return Err(WriteError::OverLimit(format!(
            "the writes that are to happen at one instant have {size} bytes, at most {ENTRY_MAX} (4 MiB) in a \
             cluster; divide them"
        )));
    }
    Ok(entry)
}

/// The changes that these writes make. `kept` has the values of those that change an expiry alone.
fn changes_of<'c>(
    writes: &[Write<'c>],
    keys: &[Key<'c>],
    kept: &'c [Option<Copied>],
) -> Vec<(Key<'c>, entry::Change<'c>)> {
    let mut changes = Vec::with_capacity(writes.len());
    for (nth, write) in writes.iter().enumerate() {
        let key = write.key;
        let change = match write.what {
            WriteKind::Put { value, expires_at } => entry::Change::Put { key, value, expires_at },
            WriteKind::Remove => entry::Change::Remove { key },
            WriteKind::Expire(expires_at) => match &kept[nth] {
                Some(copied) => entry::Change::Put { key, value: copied.value(), expires_at },
                // It was expected with a value, or its expiry means nothing.
                None => continue,
            },
        };
        changes.push((keys[nth], change));
    }
    changes
}

impl<'n> Writer<'n> {
    fn gate(&self) -> &'n Gate {
        self.reader.gate
    }

    /// Begins a write of keys that change at one instant: they are all of one log.
    fn begin_write(&self, keys: &[Key<'_>]) -> Result<View<'n>, WriteError> {
        let shard = |key: &Key<'_>| key.slot % self.shards;
        if keys.iter().any(|key| shard(key) != shard(&keys[0])) {
            let why = "keys of several slots cannot change at one instant in a cluster; give them one {tag}";
            return Err(WriteError::OverLimit(why.into()));
        }
        Ok(self.gate().begin_all(keys.iter().map(|key| key.slot))?)
    }

    /// Appends changes of one log as one entry. The caller has the locks.
    fn append(
        &self,
        view: &View<'_>,
        changes: &[(Key<'_>, entry::Change<'_>)],
    ) -> Result<Appended, WriteError> {
        let session = view.session();
        let is_removal = changes.iter().all(|(_, change)| matches!(change, entry::Change::Remove { .. }));
        let entry = entry_of(changes)?;
        let shard = view.slot % session.shards;
        debug_assert!(
            changes.iter().all(|(key, _)| key.slot % session.shards == shard),
            "one entry changes keys of one log"
        );
        let writes: Vec<_> = changes.iter().map(|(key, change)| (*key, copied(*key, change))).collect();
        let keep = || {
            for (key, value) in &writes {
                self.gate().slots.count(key.hash);
                session.cache.written(*key, view.word(key.slot).generation(), value.clone());
            }
        };
        let mut patience = None;
        loop {
            view.confirm_write()?;
            let append = || session.logs.append(shard, &entry, is_removal);
            match session.pending.apply(shard, &writes, append, keep) {
                Ok(appended) => {
                    self.watches.report(changes.iter().map(|(_, change)| change.key()));
                    if session.logs.is_short(shard) {
                        session.ask_for_segment(shard);
                    }
                    return Ok(appended);
                }
                Err(refused) => self.wait_for_room(view, shard, refused, &mut patience)?,
            }
        }
    }

    /// Waits until an entry that was refused may have room.
    fn wait_for_room(
        &self,
        view: &View<'_>,
        shard: u16,
        refused: Refused,
        patience: &mut Option<Duration>,
    ) -> Result<(), WriteError> {
        let session = view.session();
        match refused {
            Refused::Ended(_) => Err(WriteError::NotOwner { slot: view.slot }),
            Refused::Full { free, size } => {
                let full = Err(WriteError::MemoryNodeFull { free, size });
                let Some(removals) = session.logs.removals() else { return full };
                let until = self.begin_wait(view, patience)?;
                loop {
                    match session.logs.wait_for_removals(&removals, RENEW_WAIT) {
                        Some(true) => return Ok(()),
                        None if now() < until => {}
                        _ => return full,
                    }
                }
            }
            Refused::NoRoom(seen) => {
                let until = self.begin_wait(view, patience)?;
                session.ask_for_segment(shard);
                session.logs.wait_for_room(seen, until)
            }
        }
    }

    /// Begins to wait for room in the memory. Returns until when to wait.
    fn begin_wait(&self, view: &View<'_>, patience: &mut Option<Duration>) -> Result<Duration, WriteError> {
        // What is buffered has to arrive, so that it can be merged.
        let settled = view.session().settle(view.session().logs.ticket());
        settled.map_err(|_| WriteError::NotOwner { slot: view.slot })?;
        self.ownership.hurry();
        Ok(*patience.get_or_insert_with(|| now() + ROOM_WAIT))
    }

    /// Waits as a write promises.
    fn promise(&self, view: &View<'_>, appended: Appended, how: Durably) -> Result<(), WriteError> {
        match how {
            Durably::Later => Ok(()),
            Durably::Store | Durably::AtLeast(_) => view.session().settle(appended.ticket),
        }
    }

    fn check_promise(how: Durably) -> Result<(), WriteError> {
        match how {
            Durably::AtLeast(asked) if asked > Durability::Process => {
                Err(WriteError::Durability { asked, most: Durability::Process })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn put_one(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        check_sizes(put.key, put.value.len())?;
        Self::check_promise(how)?;
        let key = Key::new(put.key);
        let view = self.gate().begin(key.slot)?;
        let lock = view.session().pending.lock_one(key.hash);
        let Put { key: bytes, value, expires_at } = put;
        let appended = self.append(&view, &[(key, entry::Change::Put { key: bytes, value, expires_at })])?;
        drop(lock);
        self.promise(&view, appended, how)
    }

    /// Removes a key without a look at it.
    pub(super) fn delete_one(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        Self::check_promise(how)?;
        let key = Key::new(key);
        let view = self.gate().begin(key.slot)?;
        let lock = view.session().pending.lock_one(key.hash);
        let appended = self.append(&view, &[(key, entry::Change::Remove { key: key.bytes })])?;
        drop(lock);
        self.promise(&view, appended, how)
    }

    /// Removes keys of one log at one instant; returns how many were there.
    pub(super) fn remove_keys(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        Self::check_promise(how)?;
        let keys: Vec<Key<'_>> =
            keys.iter().filter(|key| key.len() <= KEY_MAX).map(|key| Key::new(key)).collect();
        if keys.is_empty() {
            return Ok(0);
        }
        let view = self.begin_write(&keys)?;
        let locks = self.lock(&view, &keys);
        let (mut changes, mut live) = (Vec::<(Key<'_>, entry::Change<'_>)>::new(), 0);
        for key in &keys {
            let seen = self.reader.see(&view, *key)?;
            if seen.entry.is_none() || changes.iter().any(|(known, _)| known.bytes == key.bytes) {
                continue;
            }
            live += u64::from(seen.entry(self.reader.clock).is_some());
            changes.push((*key, entry::Change::Remove { key: key.bytes }));
        }
        self.finish(&view, locks, &changes, how)?;
        Ok(live)
    }

    fn lock<'v>(&self, view: &'v View<'_>, keys: &[Key<'_>]) -> Vec<Writing<'v>> {
        let hashes: Vec<u64> = keys.iter().map(|key| key.hash).collect();
        view.session().pending.lock(&hashes)
    }

    /// Appends changes, if there are any; else only confirms what was seen.
    fn finish(
        &self,
        view: &View<'_>,
        locks: Vec<Writing<'_>>,
        changes: &[(Key<'_>, entry::Change<'_>)],
        how: Durably,
    ) -> Result<(), WriteError> {
        if changes.is_empty() {
            return Ok(view.confirm()?);
        }
        let appended = self.append(view, changes)?;
        drop(locks);
        self.promise(view, appended, how)
    }

    pub(super) fn modify_one(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<terrace_engine::Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        check_sizes(key, 0)?;
        Self::check_promise(how)?;
        let key = Key::new(key);
        let view = self.gate().begin(key.slot)?;
        let locks = self.lock(&view, &[key]);
        let seen = self.reader.see(&view, key)?;
        // Nothing is decided on what may be another node's already.
        view.confirm()?;
        // The clock is asked once: an entry that expires meanwhile is there for both steps.
        let found = seen.entry(self.reader.clock);
        let decided = change(found);
        let bytes = key.bytes;
        let made = match &decided {
            Change::Keep => None,
            Change::Put { value, expires_at } => {
                check_sizes(bytes, value.len())?;
                Some(entry::Change::Put { key: bytes, value, expires_at: *expires_at })
            }
            Change::Expire(expires_at) => found.map(|entry| entry::Change::Put {
                key: bytes,
                value: entry.value,
                expires_at: *expires_at,
            }),
            Change::Remove => seen.entry.as_ref().map(|_| entry::Change::Remove { key: bytes }),
        };
        let changes: Vec<_> = made.map(|change| (key, change)).into_iter().collect();
        self.finish(&view, locks, &changes, how)
    }

    pub(super) fn commit_all(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        Self::check_promise(how)?;
        for write in writes {
            let value = if let WriteKind::Put { value, .. } = write.what { value.len() } else { 0 };
            check_sizes(write.key, value)?;
        }
        let keys = writes.iter().map(|write| write.key).chain(expected.iter().map(|(key, _)| *key));
        let keys: Vec<Key<'_>> = keys.map(Key::new).collect();
        if keys.is_empty() {
            return Ok(Commit::Done);
        }
        let view = self.begin_write(&keys)?;
        let locks = self.lock(&view, &keys);
        if let Some(nth) = self.changed(&view, &keys[writes.len()..], expected)? {
            view.confirm()?;
            return Ok(Commit::Changed(nth));
        }
        let kept = self.kept(&view, writes, &keys, expected)?;
        let changes = changes_of(writes, &keys, &kept);
        self.finish(&view, locks, &changes, how)?;
        Ok(Commit::Done)
    }

    /// The first of these keys that is not as it is expected.
    fn changed(
        &self,
        view: &View<'_>,
        keys: &[Key<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Option<usize>, ReadError> {
        for (nth, (key, (_, version))) in keys.iter().zip(expected).enumerate() {
            let seen = self.reader.see(view, *key)?;
            if !seen.version(self.reader.clock).meets(version) {
                return Ok(Some(nth));
            }
        }
        Ok(None)
    }

    /// For each write that changes an expiry alone, the value.
    fn kept(
        &self,
        view: &View<'_>,
        writes: &[Write<'_>],
        keys: &[Key<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Vec<Option<Copied>>, ReadError> {
        let present = expected_present(writes, expected);
        let kept = |(write, key): (&Write<'_>, &Key<'_>)| match write.what {
            WriteKind::Expire(_) => {
                let Seen { entry, .. } = self.reader.see(view, *key)?;
                let is_there =
                    |copied: &Copied| present.contains(write.key) || !has_expired(copied, self.reader.clock);
                Ok(entry.filter(is_there))
            }
            WriteKind::Put { .. } | WriteKind::Remove => Ok(None),
        };
        writes.iter().zip(keys).map(kept).collect()
    }

    /// Removes everything in this node's slots: one entry a shard. Nothing is removed while a slot
    /// is on its way to or from this node.
    pub(super) fn clear_all(&self, how: Durably) -> Result<(), WriteError> {
        Self::check_promise(how)?;
        self.gate().check_writable()?;
        let session = self.gate().any_session()?;
        let locks = session.pending.lock_all();
        // Under the locks: what leaves from now on waits for them, and takes the entries with it.
        self.ownership.check_all_slots()?;
        let served = self.gate().served();
        for shard in 0..session.shards {
            let slots: Vec<u16> =
                served.iter().copied().filter(|slot| slot % session.shards == shard).collect();
            if slots.is_empty() {
                continue;
            }
            self.clear_shard(&session, shard, &slots)?;
        }
        session.logs.cleared();
        drop(locks);
        self.watches.report_all();
        match how {
            Durably::Later => Ok(()),
            _ => session.settle(session.logs.ticket()),
        }
    }

    /// Removes everything in these slots of a shard, by one entry. The caller has all locks.
    fn clear_shard(&self, session: &Session, shard: u16, slots: &[u16]) -> Result<(), WriteError> {
        let entry = Entry::Clear(SlotRange::of(slots.iter().copied()));
        let until = now() + ROOM_WAIT;
        loop {
            let append = || session.logs.append(shard, &entry, true);
            let forget = || {
                self.gate().slots.count_all();
                session.cache.clear();
            };
            match session.pending.clear(slots, append, forget) {
                Ok(_) => return Ok(()),
                Err(Refused::Ended(why)) => return Err(WriteError::Unavailable(why)),
                Err(Refused::Full { free, size }) => {
                    return Err(WriteError::MemoryNodeFull { free, size });
                }
                Err(Refused::NoRoom(seen)) => {
                    session.settle(session.logs.ticket())?;
                    session.ask_for_segment(shard);
                    session.logs.wait_for_room(seen, until)?;
                }
            }
        }
    }
}
