//! Transactions: several reads and writes at one instant.

use crate::bounds::{owned, prefix_range};
use crate::range::{Range, Source};
use crate::written::{PER_KEY, Undo, Writes, Written, bytes_of};
use crate::{
    Change, Cursor, Direction, Entry, KeyRange, KeyUse, RangeCursor, RangeRemoved, ReadError, Token, Value,
    Version, WriteError,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use terrace_engine::{Commit, Durably, Engine, Expected, Write, WriteKind};

/// Reads and writes of a transaction while [`Store::transaction`](crate::Store::transaction) runs
/// it.
///
/// It sees its own writes; no other reader does before it commits. All of it then happens at one
/// instant, if nothing that it read has changed; otherwise it runs again. Nothing of it happens if
/// its closure returns an error or has called [`Transaction::abort`].
///
/// Ranges are the exception: they show the store as it is at the time, under the transaction's own
/// writes. An entry that a range has shown may change before the transaction commits, and a key may
/// appear in the range or vanish from it. Read the keys that a decision depends on with
/// [`Transaction::get`], too.
pub struct Transaction<'t> {
    engine: &'t dyn Engine,
    /// How durable its writes are when it has committed.
    how: Durably,
    written: Writes,
    read: BTreeMap<Vec<u8>, Option<Token>>,
    /// Whether a key was read in two versions: this run cannot commit.
    torn: bool,
    cleared: bool,
    /// By how much its writes change the number of keys. Computed at the first `len`, and
    /// maintained from then on.
    more: Cell<Option<i64>>,
    aborted: bool,
    /// What was written before, in the attempt so far: see [`Transaction::begin_attempt`].
    undo: Option<Vec<Undo>>,
    /// The keys whose writes of before `undo` has, since it began or the last [`Undo::Clear`].
    saved: BTreeSet<Vec<u8>>,
    /// See [`Transaction::held_bytes`].
    held: usize,
    /// The uses that keys take over from others.
    uses: BTreeMap<Vec<u8>, KeyUse>,
}

impl<'t> Transaction<'t> {
    pub(crate) fn new(engine: &'t dyn Engine, how: Durably) -> Self {
        Self {
            engine,
            how,
            written: Writes::new(),
            read: BTreeMap::new(),
            torn: false,
            cleared: false,
            aborted: false,
            more: Cell::new(None),
            undo: None,
            saved: BTreeSet::new(),
            held: 0,
            uses: BTreeMap::new(),
        }
    }

    /// Bytes of memory that the transaction takes until it ends, about: for what it has written,
    /// and for the keys that it has read.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// Lets the key `to` take over the use of `from` once the transaction has committed: for a key
    /// that gets a new name. See [`Evictor::key_use`](crate::Evictor::key_use).
    pub fn carry_use(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) {
        let (from, Some(evicting)) = (from.as_ref(), self.engine.evicting()) else { return };
        let known = self.uses.get(from).copied();
        let used = known.or_else(|| evicting.key_use(from).ok().flatten());
        let used = used.filter(|used| used.idle_ms.is_some() || used.frequency.is_some());
        self.uses.extend(used.map(|used| (to.as_ref().to_vec(), used)));
    }

    /// After a commit.
    pub(crate) fn give_uses(&self) {
        for (key, used) in &self.uses {
            // Without it, the key is as one that was just added.
            let _ = self.engine.evicting().map(|evicting| evicting.set_key_use(key, used));
        }
    }

    /// Keeps what is needed to undo the writes from here on, until [`Transaction::end_attempt`].
    /// One attempt at a time.
    pub fn begin_attempt(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// Ends an attempt; undoes its writes if it has failed. What it has read still counts.
    pub fn end_attempt(&mut self, failed: bool) {
        let attempt = self.undo.take().unwrap_or_default();
        self.saved = BTreeSet::new();
        if !failed {
            self.held -= attempt.iter().map(Undo::bytes).sum::<usize>();
        }
        for undo in attempt.into_iter().rev().filter(|_| failed) {
            let ended = match undo {
                Undo::Key(key, Some(written)) => {
                    let len = key.len();
                    self.written.insert(key, written).map(|ended| ended.bytes(len))
                }
                Undo::Key(key, None) => self.written.remove(&key).map(|ended| ended.bytes(key.len())),
                Undo::Append(key, len) => match self.written.get_mut(&key) {
                    Some(Written::Put { value, .. }) => {
                        let more = value.len() - len;
                        value.truncate(len);
                        Some(more)
                    }
                    _ => None,
                },
                Undo::Clear(written, cleared) => {
                    let ended = std::mem::replace(&mut self.written, written);
                    self.cleared = cleared;
                    Some(bytes_of(&ended))
                }
            };
            self.held -= ended.unwrap_or(0);
            self.more.set(None);
        }
    }

    /// The entry of `key`, as this transaction sees it.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>, ReadError> {
        let key = key.as_ref();
        let expires_at = match self.written.get(key) {
            None if self.cleared => return Ok(None),
            None => return self.read(key),
            Some(Written::Removed) => return Ok(None),
            Some(Written::Put { expires_at, .. } | Written::Expire(expires_at)) => *expires_at,
        };
        if expires_at.is_some_and(|at| at <= self.engine.now_ms()) {
            return Ok(None);
        }
        if let Some(Written::Expire(_)) = self.written.get(key) {
            return Ok(self.read(key)?.map(|value| value.with_expiry(expires_at)));
        }
        Ok(self.written.get(key).and_then(|written| match written {
            Written::Put { value, .. } => {
                Some(Value::borrowed(Entry { value, expires_at, token: Token::unwritten() }))
            }
            _ => None,
        }))
    }

    /// Reads from the store and remembers the version.
    fn read(&mut self, key: &[u8]) -> Result<Option<Value<'t>>, ReadError> {
        let value = self.engine.get(key)?;
        let token = value.as_ref().map(Value::token);
        match self.read.get(key) {
            Some(earlier) => self.torn |= *earlier != token,
            None => {
                self.held += key.len() + PER_KEY;
                self.read.insert(key.to_vec(), token);
            }
        }
        Ok(value)
    }

    /// Changes a key's entry to what `change` returns for the present one.
    pub fn modify<R>(
        &mut self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<Entry<'_>>) -> (Change, R),
    ) -> Result<R, WriteError> {
        let key = key.as_ref();
        self.engine.check_put(key, &[])?;
        let value = self.get(key)?;
        let (is_there, (change, result)) = (value.is_some(), change(value.as_ref().map(Value::entry)));
        drop(value);
        match change {
            Change::Keep => {}
            Change::Put { value, expires_at } => self.put_owned(key, value, expires_at)?,
            Change::Remove if is_there => self.write(key, Written::Removed),
            Change::Expire(at) if is_there => {
                if let (Some(undo), Some(before)) = (&mut self.undo, self.written.get(key))
                    && self.saved.insert(key.to_vec())
                {
                    self.held += before.bytes(key.len());
                    undo.push(Undo::Key(key.to_vec(), Some(before.clone())));
                }
                match self.written.get_mut(key) {
                    Some(Written::Put { expires_at, .. } | Written::Expire(expires_at)) => *expires_at = at,
                    _ => self.write(key, Written::Expire(at)),
                }
            }
            Change::Remove | Change::Expire(_) => {}
        }
        Ok(result)
    }

    /// Gives `key` this value, without expiry.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), WriteError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.put_owned(key, value.to_vec(), None)
    }

    /// Gives `key` this value, which expires at `expires_at` (unix milliseconds), or never.
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at: Option<u64>,
    ) -> Result<(), WriteError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.put_owned(key, value.to_vec(), expires_at)
    }

    fn put_owned(&mut self, key: &[u8], value: Vec<u8>, expires_at: Option<u64>) -> Result<(), WriteError> {
        self.engine.check_put(key, &value)?;
        self.write(key, Written::Put { value, expires_at });
        Ok(())
    }

    fn write(&mut self, key: &[u8], written: Written) {
        if let Some(more) = self.more.get() {
            self.more
                .set(Some(more - self.adds(key, self.written.get(key)) + self.adds(key, Some(&written))));
        }
        self.held += written.bytes(key.len());
        let before = self.written.insert(key.to_vec(), written);
        match &mut self.undo {
            Some(undo) if self.saved.insert(key.to_vec()) => undo.push(Undo::Key(key.to_vec(), before)),
            _ => self.held -= before.map_or(0, |before| before.bytes(key.len())),
        }
    }

    /// Appends to the value of `key`, or creates it, unless it would have more than `longest`
    /// bytes. Returns how long it then is. Many of these take as long as all that they append.
    pub fn append(
        &mut self,
        key: impl AsRef<[u8]>,
        tail: impl AsRef<[u8]>,
        longest: usize,
    ) -> Result<Option<usize>, WriteError> {
        let (key, tail) = (key.as_ref(), tail.as_ref());
        let engine = self.engine;
        match self.written.get_mut(key) {
            Some(Written::Put { value, expires_at }) if expires_at.is_none_or(|at| at > engine.now_ms()) => {
                let before = value.len();
                let Some(len) = before.checked_add(tail.len()).filter(|len| *len <= longest) else {
                    return Ok(None);
                };
                value.extend_from_slice(tail);
                if let Err(error) = self.engine.check_put(key, value) {
                    value.truncate(before);
                    return Err(error);
                }
                self.held += tail.len();
                if let Some(undo) = &mut self.undo
                    && !self.saved.contains(key)
                {
                    undo.push(Undo::Append(key.to_vec(), before));
                }
                Ok(Some(len))
            }
            _ => self.modify(key, |entry| appended(entry, tail, longest)),
        }
    }

    /// By how much the write to a key changes the number of keys.
    fn adds(&self, key: &[u8], written: Option<&Written>) -> i64 {
        let Some(written) = written else { return 0 };
        let was = !self.cleared && self.engine.token(key).is_ok_and(|token| token.is_some());
        i64::from(!matches!(written, Written::Removed)) - i64::from(was)
    }

    /// Removes `key` and returns whether it was present.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<bool, WriteError> {
        let key = key.as_ref();
        self.modify(key, |entry| (Change::Remove, entry.is_some()))
    }

    /// Removes `key`, whether it is present or not. Reads nothing, so concurrent changes of the key
    /// cause no retry.
    pub(crate) fn remove_blind(&mut self, key: &[u8]) -> Result<(), WriteError> {
        self.engine.check_put(key, &[])?;
        self.write(key, Written::Removed);
        Ok(())
    }

    /// The entries whose keys are in `keys`, as this transaction sees them: see [`Store::range`].
    ///
    /// [`Store::range`]: crate::Store::range
    pub fn range(&self, keys: impl KeyRange) -> Range<'_> {
        Range::new(self.source(), owned(keys.bounds()))
    }

    /// The entries whose keys begin with `prefix`, as this transaction sees them.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range<'_> {
        Range::new(self.source(), prefix_range(prefix.as_ref()))
    }

    /// As [`Store::range_cursor`](crate::Store::range_cursor), as this transaction sees the
    /// entries.
    pub fn range_cursor(
        &self,
        keys: impl KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + '_>, ReadError> {
        self.source().cursor(keys.bounds(), direction)
    }

    /// Removes every entry in `keys` that it sees now, and returns how many. The transaction keeps
    /// all of these keys in memory, and removes them at one instant.
    pub fn delete_range(&mut self, keys: impl KeyRange) -> Result<u64, WriteError> {
        self.delete_range_up_to(keys, u64::MAX).map(|(removed, _)| removed)
    }

    /// Removes every entry whose key begins with `prefix`, as [`Transaction::delete_range`].
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<u64, WriteError> {
        self.delete_range(prefix_range(prefix.as_ref()))
    }

    /// As [`Transaction::delete_range`], but stops after `at_most` keys, the lowest ones. Returns
    /// how many entries it has removed, and the first key of the range that is left.
    pub fn delete_range_up_to(
        &mut self,
        keys: impl KeyRange,
        at_most: u64,
    ) -> Result<RangeRemoved, WriteError> {
        let (mut found, mut next) = (Vec::new(), None);
        self.range_cursor(keys, Direction::Forward)?.visit(usize::MAX, &mut |key, _| {
            if found.len() as u64 == at_most {
                next = Some(Box::from(key));
                return ControlFlow::Break(());
            }
            found.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        found.iter().for_each(|key| self.write(key, Written::Removed));
        Ok((found.len() as u64, next))
    }

    fn source(&self) -> Source<'_> {
        Source { engine: self.engine, written: Some(&self.written), cleared: self.cleared }
    }

    /// Removes every key.
    pub fn clear(&mut self) -> Result<(), WriteError> {
        let before = std::mem::take(&mut self.written);
        self.saved = BTreeSet::new();
        match &mut self.undo {
            Some(undo) => undo.push(Undo::Clear(before, self.cleared)),
            None => self.held -= bytes_of(&before),
        }
        self.cleared = true;
        self.more.set(None);
        Ok(())
    }

    /// Number of keys, as this transaction sees them.
    pub fn len(&self) -> u64 {
        let before = if self.cleared { 0 } else { self.engine.len().get() as i64 };
        let count = || self.written.iter().map(|(key, written)| self.adds(key, Some(written))).sum();
        let more = self.more.get().unwrap_or_else(count);
        self.more.set(Some(more));
        before.saturating_add(more).max(0) as u64
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rolls the transaction back without an error: none of its writes happens, neither those
    /// before this call nor those after it. The closure continues, and its result is returned. The
    /// transaction still runs again if what it has read has changed.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"stock", b"3")?;
    /// let taken = store.transaction(|transaction| {
    ///     let taken = transaction.remove(b"stock")?;
    ///     transaction.abort();
    ///     Ok::<bool, terrace::WriteError>(taken)
    /// })?;
    /// assert!(taken);
    /// assert!(store.contains(b"stock")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&mut self) {
        self.aborted = true;
    }

    /// Ends the transaction after its closure has returned. Commits it; after an abort, or if the
    /// closure has `failed`, only checks that all its reads were true at one instant.
    pub(crate) fn end(&mut self, watched: &[(Vec<u8>, Version)], failed: bool) -> Result<Commit, WriteError> {
        if failed || self.aborted {
            self.uses.clear();
            self.written.clear();
            self.cleared = false;
        }
        self.commit(watched)
    }

    /// Tries to commit, if the `watched` keys still have these versions, too. In `Commit::Changed`,
    /// their positions come before those of the keys that were read.
    pub(crate) fn commit(&self, watched: &[(Vec<u8>, Version)]) -> Result<Commit, WriteError> {
        // What one read has seen was there at one instant.
        let only_reads = self.written.is_empty() && !self.cleared;
        if only_reads && self.read.len() <= 1 && watched.is_empty() && !self.torn {
            return Ok(Commit::Done);
        }
        let read = self.read.iter().map(|(key, token)| (key, Version::from(*token)));
        let watched_keys = watched.iter().map(|(key, version)| (key, *version));
        let expected: Vec<Expected<'_>> =
            watched_keys.chain(read).map(|(key, version)| (key.as_slice(), version)).collect();
        if self.torn {
            let changed = expected
                .iter()
                .position(|(key, version)| self.engine.token(key).ok() != Some(version.token()));
            return Ok(Commit::Changed(changed.unwrap_or(watched.len())));
        }
        let swept = if self.cleared { self.unwritten_keys()? } else { Vec::new() };
        let removals = swept.iter().map(|key| Write { key, what: WriteKind::Remove });
        let writes: Vec<Write<'_>> = self
            .written
            .iter()
            .map(|(key, written)| Write { key, what: written.what() })
            .chain(removals)
            .collect();
        self.engine.commit(&writes, &expected, self.how)
    }

    /// The keys of the store that this transaction has not written. It removes them if it has
    /// cleared the store.
    fn unwritten_keys(&self) -> Result<Vec<Vec<u8>>, ReadError> {
        let mut keys = std::collections::BTreeSet::new();
        let mut cursor = Cursor::START;
        loop {
            cursor = self.engine.scan(&cursor, usize::MAX, &mut |key, _| {
                if !self.written.contains_key(key) {
                    keys.insert(key.to_vec());
                }
            })?;
            if cursor.is_end() {
                return Ok(keys.into_iter().collect());
            }
        }
    }
}

/// The change that appends to an entry, and how long its value is then; none if that were longer
/// than `longest`.
pub(crate) fn appended(entry: Option<Entry<'_>>, tail: &[u8], longest: usize) -> (Change, Option<usize>) {
    let (value, expires_at) = entry.map_or((&[][..], None), |entry| (entry.value, entry.expires_at));
    match value.len().checked_add(tail.len()).filter(|len| *len <= longest) {
        Some(len) => (Change::Put { value: [value, tail].concat(), expires_at }, Some(len)),
        None => (Change::Keep, None),
    }
}
