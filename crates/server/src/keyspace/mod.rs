//! The keys that a command works on: the store itself, or a transaction over it. Commands are
//! written once for both, and for each database: see `keyspace/selected.rs`.

mod selected;

use std::{
    collections::BTreeSet,
    ops::{Bound, ControlFlow},
};

use terrace::{
    Change, Cursor, Direction, Entry, Put, PutOptions, RangeCursor, RangeRemoved, ReadError, Store,
    Transaction,
};

pub(crate) use self::selected::Selected;
use crate::{
    command::check_key,
    state::{
        databases::Place,
        failure::{Failure, Outcome},
    },
};

/// A key's entry, borrowed while a callback runs.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Unix milliseconds at which it expires, if it does.
    pub expires_at: Option<u64>,
}

impl<'a> From<Entry<'a>> for Found<'a> {
    fn from(entry: Entry<'a>) -> Found<'a> {
        Found { value: entry.value, expires_at: entry.expires_at }
    }
}

/// A callback that receives a key's entry, or `None` if the key is absent.
pub type ReadCallback<'f> = dyn FnMut(Option<Found<'_>>) + 'f;

/// A callback that receives a key and its entry.
pub type RangeCallback<'f> = dyn FnMut(&[u8], Found<'_>) -> ControlFlow<()> + 'f;

/// What a transaction removes.
#[derive(Debug, Default)]
pub struct Removals {
    /// Whether it removes every key of the store.
    pub all: bool,
    /// Keys as they are stored.
    pub keys: BTreeSet<Vec<u8>>,
}

/// The operations on keys that commands use. Expired entries count as absent.
pub trait Keyspace {
    /// Calls `look` with the entry of `key`.
    fn read(&mut self, key: &[u8], look: &mut ReadCallback<'_>) -> Outcome;

    /// Calls `look` with the entries of `keys`, in order, all as of one instant. May start again
    /// from the first key.
    fn snapshot(&mut self, keys: &[&[u8]], look: &mut dyn FnMut(usize, Option<Found<'_>>)) -> Outcome;

    /// Changes the entry of `key` as `change` decides. `change` may be called more than once; its
    /// last answer counts.
    fn modify(&mut self, key: &[u8], change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome;

    /// Appends to a value, or creates it, unless it would have more than `longest` bytes. Returns
    /// how long it then is.
    fn append(&mut self, key: &[u8], tail: &[u8], longest: usize) -> Result<Option<usize>, Failure>;

    /// Writes one key.
    fn put(&mut self, put: Put<'_>) -> Outcome;

    /// Removes a key; returns whether it existed.
    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure>;

    /// Calls `look` with the entries of `keys`, in order; each is read by itself.
    fn read_many(&mut self, keys: &[&[u8]], look: &mut ReadCallback<'_>) -> Outcome;

    /// Writes several keys as one atomic change.
    fn put_all(&mut self, puts: &[Put<'_>]) -> Outcome;

    /// Writes several keys as one atomic change if none of them exists; returns whether it did.
    fn put_all_new(&mut self, puts: &[Put<'_>]) -> Result<bool, Failure>;

    /// Removes several keys as one atomic change; returns how many existed.
    fn remove_all(&mut self, keys: &[&[u8]]) -> Result<u64, Failure>;

    /// Runs `body` as one atomic change: other clients, and a recovery after a crash, see all of it
    /// or nothing. `body` may run more than once. If it fails, nothing changes.
    fn atomically(&mut self, body: &mut dyn FnMut(&mut dyn Keyspace) -> Outcome) -> Outcome;

    /// Calls `each` for about `at_least` keys or more, from `cursor` on. Returns the next cursor.
    fn scan(
        &mut self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Cursor, Failure>;

    /// Calls `each` for the entries whose keys are within `bounds`, in byte order or the reverse,
    /// until it breaks, at most `at_most` times. The first bound is the lower one in either
    /// direction. Returns whether more may be left. Fails if the store's index keeps no order.
    fn range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        at_most: usize,
        each: &mut RangeCallback<'_>,
    ) -> Result<bool, Failure>;

    /// Removes the entries whose keys are within `bounds`, the lowest first, at most `at_most`
    /// keys. Returns how many entries it has removed, and the first key that is left, if any. Fails
    /// if the store's index keeps no order.
    fn remove_range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at_most: u64,
    ) -> Result<RangeRemoved, Failure>;

    /// Lets `to`, in another place if one is given, take over the use of `from` once the
    /// transaction has committed.
    fn carry_use(&mut self, from: &[u8], place: Option<Place>, to: &[u8]) {
        let _ = (from, place, to);
    }

    /// A random key; `None` in an empty store.
    fn random_key(&mut self) -> Result<Option<Vec<u8>>, Failure>;

    /// Removes every key.
    fn clear(&mut self) -> Outcome;

    /// Number of keys.
    fn count(&mut self) -> Result<u64, Failure>;

    /// Makes the next calls concern the keys of another database, by its place. Returns the place
    /// of before.
    fn select(&mut self, place: Place) -> Place {
        let _ = place;
        Place::RAW
    }

    /// Whether it shows writes that no other client sees.
    fn is_transaction(&self) -> bool;

    /// Of a transaction that has done nothing but remove: what it removes.
    fn removals(&mut self) -> Result<Option<Removals>, Failure> {
        Ok(None)
    }

    /// Bytes of memory that it takes until its transaction ends, about.
    fn held_bytes(&self) -> usize;
}

/// Runs `body` with the keys of another database.
pub(crate) fn within<R>(
    keys: &mut dyn Keyspace,
    place: Place,
    body: impl FnOnce(&mut dyn Keyspace) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let before = keys.select(place);
    let done = body(keys);
    keys.select(before);
    done
}

/// Runs `change` for a key that is too long to exist: only an attempt to write it fails.
fn modify_absent(failure: Failure, change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome {
    match change(None) {
        Change::Put { .. } => Err(failure),
        Change::Keep | Change::Remove | Change::Expire(_) => Ok(()),
    }
}

/// Keys that are read under one pin. A larger number would delay the reuse of retired memory.
const KEYS_PER_PIN: usize = 1024;

/// Continues a scan after damaged records, so that the client sees all others. The log and the
/// statistics count the skipped records.
fn past_damage(scanned: Result<Cursor, ReadError>) -> Result<Cursor, Failure> {
    match scanned {
        Err(ref error @ ReadError::Skipped { ref next, .. }) => {
            log::warn!("a scan continued after damaged records: {error}");
            Ok(next.clone())
        }
        scanned => Ok(scanned?),
    }
}

/// Reads from a range on past damaged records, as [`past_damage`] does.
fn read_range(
    mut range: Box<dyn RangeCursor + '_>,
    at_most: usize,
    each: &mut RangeCallback<'_>,
) -> Result<bool, Failure> {
    let (mut left, mut flow) = (at_most, ControlFlow::Continue(()));
    loop {
        let visited = range.visit(left, &mut |key, entry| {
            left -= 1;
            flow = each(key, entry.into());
            flow
        });
        match visited {
            Err(ref error @ ReadError::Skipped { ref next, .. }) => {
                log::warn!("a range continued after damaged records: {error}");
                if next.is_end() {
                    return Ok(false);
                }
            }
            Ok(true) => {}
            visited => return Ok(visited?),
        }
        if left == 0 || flow.is_break() {
            return Ok(true);
        }
    }
}

/// The store; each call stands for itself.
pub struct StoreKeyspace<'a>(pub &'a Store);

impl Keyspace for StoreKeyspace<'_> {
    fn read(&mut self, key: &[u8], look: &mut ReadCallback<'_>) -> Outcome {
        let value = self.0.get(key)?;
        look(value.as_ref().map(|value| Found { value, expires_at: value.expires_at() }));
        Ok(())
    }

    fn snapshot(&mut self, keys: &[&[u8]], look: &mut dyn FnMut(usize, Option<Found<'_>>)) -> Outcome {
        let mut outcome = Ok(());
        self.0.snapshot_many(keys, &mut |nth, entry| match entry {
            Ok(entry) => look(nth, entry.map(Found::from)),
            Err(error) => outcome = Err(error.into()),
        });
        outcome
    }

    fn modify(&mut self, key: &[u8], change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome {
        if let Err(failure) = check_key(key) {
            return modify_absent(failure, change);
        }
        Ok(self.0.modify(key, |entry| (change(entry.map(Found::from)), ()))?)
    }

    fn append(&mut self, key: &[u8], tail: &[u8], longest: usize) -> Result<Option<usize>, Failure> {
        Ok(self.0.append(key, tail, longest)?)
    }

    fn put(&mut self, put: Put<'_>) -> Outcome {
        Ok(self.0.put_with(put.key, put.value, PutOptions::new().expires_at(put.expires_at))?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure> {
        if check_key(key).is_err() {
            return Ok(false);
        }
        Ok(self.0.remove(key)?)
    }

    fn read_many(&mut self, keys: &[&[u8]], look: &mut ReadCallback<'_>) -> Outcome {
        let mut outcome = Ok(());
        for keys in keys.chunks(KEYS_PER_PIN) {
            self.0.get_many(keys, &mut |_, entry| match entry {
                Ok(entry) => look(entry.map(Found::from)),
                Err(error) => outcome = Err(error.into()),
            });
        }
        outcome
    }

    fn put_all(&mut self, puts: &[Put<'_>]) -> Outcome {
        Ok(self.0.put_all(puts)?)
    }

    fn put_all_new(&mut self, puts: &[Put<'_>]) -> Result<bool, Failure> {
        Ok(self.0.put_all_new(puts)?)
    }

    fn remove_all(&mut self, keys: &[&[u8]]) -> Result<u64, Failure> {
        Ok(self.0.remove_all(keys)?)
    }

    fn atomically(&mut self, body: &mut dyn FnMut(&mut dyn Keyspace) -> Outcome) -> Outcome {
        self.0.transaction(|transaction| body(&mut Overlay::new(self.0, transaction)))
    }

    fn scan(
        &mut self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Cursor, Failure> {
        past_damage(self.0.scan(cursor, at_least, &mut |key, _| each(key)))
    }

    fn range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        at_most: usize,
        each: &mut RangeCallback<'_>,
    ) -> Result<bool, Failure> {
        read_range(self.0.range_cursor(bounds, direction)?, at_most, each)
    }

    fn remove_range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at_most: u64,
    ) -> Result<RangeRemoved, Failure> {
        Ok(self.0.delete_range_up_to(bounds, at_most)?)
    }

    fn random_key(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.0.random_key()?)
    }

    fn clear(&mut self) -> Outcome {
        Ok(self.0.clear()?)
    }

    fn count(&mut self) -> Result<u64, Failure> {
        Ok(self.0.try_count()?.get())
    }

    fn is_transaction(&self) -> bool {
        false
    }

    fn held_bytes(&self) -> usize {
        0
    }
}

/// A transaction: its commands see its own writes, other clients see them after the commit.
pub struct Overlay<'a, 't> {
    store: &'a Store,
    transaction: &'a mut Transaction<'t>,
    /// Keys that the transaction wrote or removed.
    touched: BTreeSet<Vec<u8>>,
    cleared: bool,
    /// The keys that were touched before each clearing.
    forgotten: Vec<BTreeSet<Vec<u8>>>,
    /// Keys that it may have written, once a random key was requested. The last one is tried first,
    /// and dropped if it is absent.
    candidates: Option<Vec<Vec<u8>>>,
    /// Cursor behind which the store may still have a key that the transaction did not touch;
    /// `None`: it has none. So a random key does not cost a whole scan each time.
    unpassed: Option<Cursor>,
}

impl<'a, 't> Overlay<'a, 't> {
    /// Over a transaction that has done nothing yet.
    pub fn new(store: &'a Store, transaction: &'a mut Transaction<'t>) -> Overlay<'a, 't> {
        Overlay {
            store,
            transaction,
            touched: BTreeSet::new(),
            cleared: false,
            forgotten: Vec::new(),
            candidates: None,
            unpassed: Some(Cursor::START),
        }
    }

    fn touch(&mut self, key: &[u8]) {
        if !self.touched.contains(key) {
            self.touched.insert(key.to_vec());
        }
        if let Some(candidates) = &mut self.candidates {
            candidates.push(key.to_vec());
        }
    }

    /// A key that the transaction wrote and did not remove.
    fn any_written(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let candidates = self.candidates.get_or_insert_with(|| self.touched.iter().cloned().collect());
        while let Some(key) = candidates.last() {
            if self.transaction.get(key)?.is_some() {
                return Ok(Some(key.clone()));
            }
            candidates.pop();
        }
        Ok(None)
    }

    /// A key of the store that the transaction did not touch.
    fn any_untouched(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        while let Some(cursor) = self.unpassed.as_ref().filter(|_| !self.cleared) {
            let mut any = None;
            let next = self.store.scan(cursor, 16, &mut |key, _| {
                if !self.touched.contains(key) {
                    any = Some(key.to_vec());
                }
            })?;
            if any.is_some() {
                return Ok(any);
            }
            self.unpassed = Some(next).filter(|next| !next.is_end());
        }
        Ok(None)
    }

    /// All keys that the transaction wrote and did not remove.
    fn written(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        let mut written = Vec::new();
        for key in &self.touched {
            if self.transaction.get(key)?.is_some() {
                written.push(key.clone());
            }
        }
        Ok(written)
    }
}

impl Keyspace for Overlay<'_, '_> {
    fn read(&mut self, key: &[u8], look: &mut ReadCallback<'_>) -> Outcome {
        let value = self.transaction.get(key)?;
        look(value.as_ref().map(|value| Found { value, expires_at: value.expires_at() }));
        Ok(())
    }

    fn snapshot(&mut self, keys: &[&[u8]], look: &mut dyn FnMut(usize, Option<Found<'_>>)) -> Outcome {
        keys.iter().enumerate().try_for_each(|(nth, key)| self.read(key, &mut |found| look(nth, found)))
    }

    fn modify(&mut self, key: &[u8], change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome {
        if let Err(failure) = check_key(key) {
            return modify_absent(failure, change);
        }
        self.touch(key);
        Ok(self.transaction.modify(key, |entry| (change(entry.map(Found::from)), ()))?)
    }

    fn append(&mut self, key: &[u8], tail: &[u8], longest: usize) -> Result<Option<usize>, Failure> {
        check_key(key)?;
        self.touch(key);
        Ok(self.transaction.append(key, tail, longest)?)
    }

    fn put(&mut self, put: Put<'_>) -> Outcome {
        check_key(put.key)?;
        self.touch(put.key);
        // Reads nothing, so a concurrent write of the key does not make the transaction run again.
        Ok(self.transaction.put_expiring(put.key, put.value, put.expires_at)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure> {
        if check_key(key).is_err() {
            return Ok(false);
        }
        self.touch(key);
        Ok(self.transaction.remove(key)?)
    }

    fn read_many(&mut self, keys: &[&[u8]], look: &mut ReadCallback<'_>) -> Outcome {
        keys.iter().try_for_each(|key| self.read(key, look))
    }

    fn put_all(&mut self, puts: &[Put<'_>]) -> Outcome {
        puts.iter().try_for_each(|put| self.put(*put))
    }

    fn put_all_new(&mut self, puts: &[Put<'_>]) -> Result<bool, Failure> {
        let mut taken = false;
        for put in puts {
            self.read(put.key, &mut |found| taken |= found.is_some())?;
        }
        if !taken {
            self.put_all(puts)?;
        }
        Ok(!taken)
    }

    fn remove_all(&mut self, keys: &[&[u8]]) -> Result<u64, Failure> {
        keys.iter().try_fold(0, |removed, key| Ok(removed + u64::from(self.remove(key)?)))
    }

    fn atomically(&mut self, body: &mut dyn FnMut(&mut dyn Keyspace) -> Outcome) -> Outcome {
        let (cleared, clearings) = (self.cleared, self.forgotten.len());
        self.transaction.begin_attempt();
        let outcome = body(self);
        self.transaction.end_attempt(outcome.is_err());
        if outcome.is_err() {
            // Keys that it has only read may count as touched: they are looked up.
            self.touched.extend(self.forgotten.drain(clearings..).flatten());
            (self.cleared, self.candidates) = (cleared, None);
        }
        outcome
    }

    fn scan(
        &mut self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Cursor, Failure> {
        // All keys that the transaction wrote come first, then the store's keys that it did not
        // touch.
        if *cursor == Cursor::START {
            self.written()?.iter().for_each(|key| each(key));
        }
        if self.cleared {
            return Ok(Cursor::END);
        }
        let touched = &self.touched;
        past_damage(self.store.scan(cursor, at_least, &mut |key, _| {
            if !touched.contains(key) {
                each(key);
            }
        }))
    }

    fn range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        at_most: usize,
        each: &mut RangeCallback<'_>,
    ) -> Result<bool, Failure> {
        read_range(self.transaction.range_cursor(bounds, direction)?, at_most, each)
    }

    fn remove_range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at_most: u64,
    ) -> Result<RangeRemoved, Failure> {
        let (mut keys, mut next) = (Vec::new(), None);
        self.transaction.range_cursor(bounds, Direction::Forward)?.visit(usize::MAX, &mut |key, _| {
            if keys.len() as u64 == at_most {
                next = Some(key.into());
                return ControlFlow::Break(());
            }
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        for key in &keys {
            self.touch(key);
            self.transaction.remove(key)?;
        }
        Ok((keys.len() as u64, next))
    }

    fn carry_use(&mut self, from: &[u8], _: Option<Place>, to: &[u8]) {
        self.transaction.carry_use(from, to);
    }

    fn random_key(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if !self.cleared
            && let Some(key) = self.store.random_key()?
            && self.transaction.get(&key)?.is_some()
        {
            return Ok(Some(key));
        }
        match self.any_written()? {
            None => self.any_untouched(),
            written => Ok(written),
        }
    }

    fn clear(&mut self) -> Outcome {
        self.transaction.clear()?;
        self.forgotten.push(std::mem::take(&mut self.touched));
        (self.cleared, self.candidates) = (true, None);
        Ok(())
    }

    fn count(&mut self) -> Result<u64, Failure> {
        Ok(self.transaction.len())
    }

    fn is_transaction(&self) -> bool {
        true
    }

    fn removals(&mut self) -> Result<Option<Removals>, Failure> {
        if !self.written()?.is_empty() {
            return Ok(None);
        }
        Ok(Some(Removals { all: self.cleared, keys: std::mem::take(&mut self.touched) }))
    }

    fn held_bytes(&self) -> usize {
        self.transaction.held_bytes()
    }
}
