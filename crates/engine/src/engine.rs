//! What a store can do: a core that every engine has, and optional capabilities.

use crate::{
    Change, CloseError, Count, Cursor, Durability, Durably, Entry, Evicting, Finding, OnDisk, Ordered,
    Pooled, Put, ReadError, Report, Stats, Ticket, Token, Value, Version, WatchError, WriteError,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Called with the position of a key and its entry.
pub type EntryCallback<'f> = dyn FnMut(usize, Result<Option<Entry<'_>>, ReadError>) + 'f;

/// Called with a key and its entry, or with what is wrong with a record.
pub type Salvage<'f> = dyn FnMut(Result<(&[u8], Entry<'_>), Finding>) + 'f;

/// What a commit does to one key.
#[derive(Clone, Copy, Debug)]
pub enum WriteKind<'a> {
    /// Gives it a new entry.
    Put {
        /// The value.
        value: &'a [u8],
        /// Unix milliseconds at which it expires, if it does.
        expires_at: Option<u64>,
    },
    /// Leaves the value and changes when it expires. The commit expects the version whose value
    /// this is.
    Expire(Option<u64>),
    /// Removes it.
    Remove,
}

/// A write of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The key. Each at most once in a commit.
    pub key: &'a [u8],
    /// The change.
    pub what: WriteKind<'a>,
}

/// A key that a commit expects in this version, or absent.
pub type Expected<'a> = (&'a [u8], Version);

/// The keys that are expected to be there, if one of the writes changes an expiry alone.
///
/// When the expectations were met, they were: a commit that then looked at the clock again would
/// leave out what has expired in between, and do half of its writes.
pub fn expected_present<'a>(writes: &[Write<'_>], expected: &[Expected<'a>]) -> HashSet<&'a [u8]> {
    if !writes.iter().any(|write| matches!(write.what, WriteKind::Expire(_))) {
        return HashSet::new();
    }
    let present = expected.iter().filter(|(_, version)| version.token().is_some());
    present.map(|(key, _)| *key).collect()
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// All of it happened.
    Done,
    /// Nothing happened: the expectation at this position does not hold.
    Changed(usize),
}

/// Reports changes to keys that begin with a prefix.
pub trait WatchHandle: Send {
    /// Whether such a key has changed since the last call of this or of `wait`.
    fn has_changed(&mut self) -> bool;
    /// Waits for a change, for `time` at most. Returns whether there was one.
    fn wait(&mut self, time: Duration) -> bool;
}

/// A kind of background work. An engine offers some kinds; threads of the store, or a test, do them
/// step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chore {
    /// Reclaims the memory that a crash left unreachable.
    Collect,
    /// Recovers what dead processes held in a shared store, so that no survivor waits.
    RecoverDead,
    /// Removes expired entries.
    Sweep,
    /// Moves records together, so that the memory between them serves every size.
    Compact,
    /// Continues the index's resizes, and frees the memory that index and records have retired.
    Maintain,
    /// Moves used memory to huge pages.
    HugePages,
    /// Writes memory that is full of writes to files.
    Flush,
    /// Merges files, so that reads look into few of them.
    Merge,
    /// Prepares the log's next segment, and lets go of what is not needed any more.
    Log,
}

/// What a step of a chore leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// There is more to do at once.
    More,
    /// Nothing to do for now.
    Idle,
}

/// A store of byte keys and byte values.
///
/// All operations may be called from any number of threads. Each is linearizable, and durable as
/// its [`Durably`] says when it returns. An entry that has expired is absent for all of them. No
/// reader waits for a writer.
pub trait Engine: Send + Sync {
    /// The entry of `key`.
    ///
    /// # Errors
    /// If the record is damaged ([`ReadError::Corrupt`]), a file cannot be read, or the engine does
    /// not have the key now (a fork, a node that is not its owner).
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError>;

    /// The entries of `keys`, their memory fetched together. Each is read by itself: a write may
    /// fall between two of them.
    ///
    /// # Errors
    /// `each` gets the error of its key, as from [`Engine::get`].
    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>);

    /// The entries of `keys`, all as they were at one instant.
    ///
    /// # Errors
    /// `each` gets the error of its key, as from [`Engine::get`].
    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>);

    /// The version of `key`; `None` if it is absent.
    ///
    /// # Errors
    /// As [`Engine::get`].
    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError>;

    /// The present version of `key`, also if it is absent. A [`Engine::commit`] that expects it
    /// fails if any write has changed the key since, one that was undone included.
    ///
    /// # Errors
    /// As [`Engine::get`].
    ///
    /// ```
    /// use terrace_engine::{Commit, Durably, Engine, Write, WriteKind};
    ///
    /// /// Puts a value for a key that is absent; returns whether it was.
    /// fn put_if_absent(
    ///     engine: &dyn Engine,
    ///     key: &[u8],
    ///     value: &[u8],
    /// ) -> Result<bool, Box<dyn std::error::Error>> {
    ///     let seen = engine.version(key)?;
    ///     if seen.token().is_some() {
    ///         return Ok(false);
    ///     }
    ///     let put = Write { key, what: WriteKind::Put { value, expires_at: None } };
    ///     let commit = engine.commit(&[put], &[(key, seen)], Durably::Store)?;
    ///     Ok(commit == Commit::Done)
    /// }
    /// ```
    fn version(&self, key: &[u8]) -> Result<Version, ReadError>;

    /// Gives a key a new entry, unconditionally.
    ///
    /// # Errors
    /// If key or value is too long, there is no room, the old record is damaged where it must be
    /// read, or the store does not take writes now; nothing has happened then. After
    /// [`WriteError::Durability`] and [`WriteError::Unknown`] the write may have happened.
    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError>;

    /// Makes several puts, each atomic by itself. They share their fences or syncs.
    ///
    /// # Errors
    /// One result a put, as from [`Engine::put`].
    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>>;

    /// Removes a key without reporting whether it was present. Reads nothing that a removal does
    /// not need. Takes no memory.
    ///
    /// # Errors
    /// As [`Engine::put`], but never for lack of room.
    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError>;

    /// Removes a key and returns whether it was present. Takes no memory.
    ///
    /// # Errors
    /// As [`Engine::delete`], and if the old record is damaged.
    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError>;

    /// Removes `keys` at one instant, for every reader and through a crash, and returns how many
    /// were present. Takes memory.
    ///
    /// # Errors
    /// As [`Engine::put`], and if the keys are too long together ([`WriteError::BatchTooLong`]).
    /// Nothing has been removed then.
    fn remove_all(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError>;

    /// Changes a key's entry to what `change` returns for the present one. `change` runs again if
    /// another writer was faster; only its last answer counts.
    ///
    /// # Errors
    /// As [`Engine::put`], and if the present record is damaged: `change` is not called then.
    ///
    /// ```
    /// use terrace_engine::{Change, Durably, Engine, WriteError};
    ///
    /// /// Appends to a value; an absent one counts as empty. Keeps when it expires.
    /// fn append(engine: &dyn Engine, key: &[u8], more: &[u8]) -> Result<(), WriteError> {
    ///     let change = &mut |old: Option<terrace_engine::Entry<'_>>| {
    ///         let bytes = old.map_or(&[][..], |old| old.value);
    ///         let expires_at = old.and_then(|old| old.expires_at);
    ///         Change::Put { value: [bytes, more].concat(), expires_at }
    ///     };
    ///     engine.modify(key, change, Durably::Store)
    /// }
    /// ```
    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError>;

    /// Makes all writes at one instant, for every reader and through a crash, if all expectations
    /// hold at that instant. Otherwise changes nothing.
    ///
    /// # Errors
    /// As [`Engine::put`], and if the writes are too long together ([`WriteError::BatchTooLong`]).
    /// An expectation that does not hold is no error but [`Commit::Changed`].
    ///
    /// ```
    /// use terrace_engine::{Commit, Durably, Engine, Write, WriteKind};
    ///
    /// /// Moves a value to another key, unless one of both changes meanwhile.
    /// fn rename(
    ///     engine: &dyn Engine,
    ///     from: &[u8],
    ///     to: &[u8],
    /// ) -> Result<Commit, Box<dyn std::error::Error>> {
    ///     let expected = [(from, engine.version(from)?), (to, engine.version(to)?)];
    ///     let Some(value) = engine.get(from)? else { return Ok(Commit::Changed(0)) };
    ///     let put = WriteKind::Put { value: &value, expires_at: value.expires_at() };
    ///     let remove = Write { key: from, what: WriteKind::Remove };
    ///     let writes = [Write { key: to, what: put }, remove];
    ///     Ok(engine.commit(&writes, &expected, Durably::Store)?)
    /// }
    /// ```
    fn commit(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError>;

    /// Removes every key that is present now. A key written meanwhile may stay or go.
    ///
    /// # Errors
    /// If the store does not take writes now. Some keys may be gone and others not; the call can be
    /// repeated.
    fn clear(&self, how: Durably) -> Result<(), WriteError>;

    /// A ticket that covers every write that any thread has made or seen before this call.
    fn ticket(&self) -> Ticket;

    /// Waits until everything that `ticket` covers is durable as the store promises.
    ///
    /// # Errors
    /// [`WriteError::Durability`] if a write that the ticket covers may be lost.
    fn settle(&self, ticket: Ticket) -> Result<(), WriteError>;

    /// Waits until all writes that are visible now are durable as the store promises.
    ///
    /// # Errors
    /// Fails if a write that became visible after `since` may be lost. Take the ticket before the
    /// writes: after a loss the engine may continue without them, and a later ticket would not show
    /// it.
    ///
    /// ```
    /// use terrace_engine::{Durably, Engine, Put, WriteError};
    ///
    /// /// Puts many entries with one wait for all of them.
    /// fn load(engine: &dyn Engine, puts: &[Put<'_>]) -> Result<(), WriteError> {
    ///     let before = engine.ticket();
    ///     engine.put_many(puts, Durably::Later).into_iter().collect::<Result<(), _>>()?;
    ///     engine.settle_since(before)
    /// }
    /// ```
    fn settle_since(&self, since: Ticket) -> Result<(), WriteError> {
        let _ = since;
        self.settle(self.ticket())
    }

    /// What a write with [`Durably::Store`] survives.
    fn durability(&self) -> Durability;

    /// Visits entries from `cursor` on, at least about `at_least` of them, and returns where to
    /// continue. A full scan visits every key that is present throughout. It may or may not visit a
    /// key that is added, removed or changed meanwhile, and rarely visits a key twice.
    ///
    /// # Errors
    /// [`ReadError::InvalidCursor`] if an index of another sort made the cursor. A damaged record
    /// does not stop a scan: it visits the other records and then fails with
    /// [`ReadError::Skipped`], which holds the cursor to continue with.
    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError>;

    /// A random key; `None` if there is none.
    ///
    /// # Errors
    /// As [`Engine::scan`].
    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError>;

    /// Number of keys, including those that have expired but were not removed yet.
    fn len(&self) -> Count;

    /// As [`Engine::len`], for a caller that an old number does not serve.
    ///
    /// # Errors
    /// If the engine cannot tell now.
    fn count_keys(&self) -> Result<Count, ReadError> {
        Ok(self.len())
    }

    /// Whether there is no key.
    fn is_empty(&self) -> bool {
        self.len().get() == 0
    }

    /// The kinds of background work that this engine has.
    fn chores(&self) -> &[Chore];

    /// Does a bounded step of a chore. A step that waits for other threads or processes calls
    /// `stop` now and then; when it returns true, the rest is left to the next call.
    fn step(&self, chore: Chore, stop: &dyn Fn() -> bool) -> Rest;

    /// A watch of the keys that begin with `prefix`. Only its first 40 bytes count. The watch keeps
    /// the store open.
    ///
    /// # Errors
    /// If there are as many watches as the store can have, or in a forked child.
    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError>;

    /// Checks whether this key and this value can be written at all.
    ///
    /// # Errors
    /// [`WriteError::KeyTooLong`] or [`WriteError::ValueTooLong`], as every write of them.
    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError>;

    /// The time that decides what has expired, in unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Numbers about the store.
    fn stats(&self) -> Stats;

    /// Reads everything and checks it, while no other thread or process writes. Calls `progress`
    /// with the number of records checked and of all records.
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report;

    /// The part of a check that is possible while others write: every record.
    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report;

    /// Whether this thread holds entries. Background work would wait for it.
    fn keeps_entries(&self) -> bool;

    /// What the opening has found damaged or lost, a sentence each.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Visits every entry that its checksums prove, and a finding for each damaged record. Leaves
    /// out entries that have expired.
    fn salvage(&self, each: &mut Salvage<'_>);

    /// Makes every later write fail with [`WriteError::Stopped`] and this reason.
    fn stop(&self, why: String);

    /// Closes the store cleanly.
    ///
    /// # Errors
    /// [`CloseError::StillOpen`] while another handle has the store, and what a last write to a
    /// file met. What was acknowledged is durable in either case.
    fn close(self: Arc<Self>) -> Result<(), CloseError>;

    /// The operations of a store in a pool, if this is one.
    fn pooled(&self) -> Option<&dyn Pooled> {
        None
    }

    /// The operations of a store that keeps its keys in order, if this is one.
    fn ordered(&self) -> Option<&dyn Ordered> {
        None
    }

    /// The eviction of a store that can evict, if this is one.
    fn evicting(&self) -> Option<&dyn Evicting> {
        None
    }

    /// The operations of a store in files, if this is one.
    fn on_disk(&self) -> Option<&dyn OnDisk> {
        None
    }
}
