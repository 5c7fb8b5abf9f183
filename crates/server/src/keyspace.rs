//! The keys a command works on: the store itself, or a transaction over it. A command is written once for both.

use std::collections::BTreeSet;

use terrace::{Change, Entry, Put, PutOptions, ReadError, Store, Transaction};

use crate::command::{Failure, Outcome, check_key};

/// A key's value, as long as one looks at it.
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

/// Called with a key's entry, if there is one.
pub type Look<'f> = dyn FnMut(Option<Found<'_>>) + 'f;

/// What commands ask of keys. Expired entries are not there.
pub trait Keyspace {
    /// Shows the entry of `key`.
    fn read(&mut self, key: &[u8], look: &mut Look<'_>) -> Outcome;

    /// Shows the entries of `keys` in their order, all as they were at one instant. It may start again from the first.
    fn snapshot(&mut self, keys: &[&[u8]], look: &mut dyn FnMut(usize, Option<Found<'_>>)) -> Outcome;

    /// Changes the entry of `key` as `change` says, which may be asked more than once and counts as asked the last time.
    fn modify(&mut self, key: &[u8], change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome;

    /// Writes a key.
    fn put(&mut self, put: Put<'_>) -> Outcome;

    /// Removes a key, and says whether it was there.
    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure>;

    /// Shows the entries of `keys` in their order, each by itself.
    fn read_many(&mut self, keys: &[&[u8]], look: &mut Look<'_>) -> Outcome;

    /// Writes keys as one.
    fn put_all(&mut self, puts: &[Put<'_>]) -> Outcome;

    /// Writes keys as one if none of them is there, and says whether it did.
    fn put_all_new(&mut self, puts: &[Put<'_>]) -> Result<bool, Failure>;

    /// Removes keys as one, and says how many were there.
    fn remove_all(&mut self, keys: &[&[u8]]) -> Result<u64, Failure>;

    /// Does several things as one: to all other clients, and through a crash. `body` may run more
    /// than once. If it fails, nothing of it happens.
    fn atomically(&mut self, body: &mut dyn FnMut(&mut dyn Keyspace) -> Outcome) -> Outcome;

    /// Shows at least about `at_least` keys from `cursor` on (0: the beginning); the cursor of the next, 0 at the end.
    fn scan(&mut self, cursor: u64, at_least: usize, each: &mut dyn FnMut(&[u8])) -> Result<u64, Failure>;

    /// Any key.
    fn random_key(&mut self) -> Result<Option<Vec<u8>>, Failure>;

    /// Removes every key.
    fn clear(&mut self) -> Outcome;

    /// How many keys there are.
    fn count(&mut self) -> u64;
}

/// Changes a key that cannot be: only writing it fails.
fn modify_absent(failure: Failure, change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome {
    match change(None) {
        Change::Put { .. } => Err(failure),
        Change::Keep | Change::Remove | Change::Expire(_) => Ok(()),
    }
}

/// Keys that are read under one pin; more would keep freed memory waiting for long.
const PIECE: usize = 1024;

/// Continues behind damaged records, so that a client sees all others. The log and the statistics
/// count the records that were left out.
fn past_damage(scanned: Result<u64, ReadError>) -> Result<u64, Failure> {
    match scanned {
        Err(ref error @ ReadError::Skipped { next, .. }) => {
            log::warn!("a scan has gone on behind damage: {error}");
            Ok(next)
        }
        scanned => Ok(scanned?),
    }
}

/// The store, each call by itself.
pub struct Direct<'a>(pub &'a Store);

impl Keyspace for Direct<'_> {
    fn read(&mut self, key: &[u8], look: &mut Look<'_>) -> Outcome {
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

    fn put(&mut self, put: Put<'_>) -> Outcome {
        Ok(self.0.put_with(put.key, put.value, PutOptions::new().expires_at(put.expires_at))?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure> {
        if check_key(key).is_err() {
            return Ok(false);
        }
        Ok(self.0.remove(key)?)
    }

    fn read_many(&mut self, keys: &[&[u8]], look: &mut Look<'_>) -> Outcome {
        let mut outcome = Ok(());
        for keys in keys.chunks(PIECE) {
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

    fn scan(&mut self, cursor: u64, at_least: usize, each: &mut dyn FnMut(&[u8])) -> Result<u64, Failure> {
        past_damage(self.0.scan(cursor, at_least, &mut |key, _| each(key)))
    }

    fn random_key(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.0.random_key()?)
    }

    fn clear(&mut self) -> Outcome {
        Ok(self.0.clear()?)
    }

    fn count(&mut self) -> u64 {
        self.0.len()
    }
}

/// A transaction: it sees what it wrote, and everyone else sees it when it commits.
pub struct Overlay<'a, 't> {
    store: &'a Store,
    transaction: &'a mut Transaction<'t>,
    /// Keys it wrote or removed.
    touched: BTreeSet<Vec<u8>>,
    cleared: bool,
    /// Keys that it may have written, once a random key was wanted: the last is tried first, and dropped if it is not there.
    candidates: Option<Vec<Vec<u8>>>,
    /// Where the store may still have a key that it did not touch; `None`: nowhere. So a random key costs no whole scan each time.
    unpassed: Option<u64>,
}

impl<'a, 't> Overlay<'a, 't> {
    /// Over a transaction that has yet to do anything.
    pub fn new(store: &'a Store, transaction: &'a mut Transaction<'t>) -> Overlay<'a, 't> {
        Overlay {
            store,
            transaction,
            touched: BTreeSet::new(),
            cleared: false,
            candidates: None,
            unpassed: Some(0),
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

    /// A key that it wrote and did not remove.
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

    /// A key of the store that it did not touch.
    fn any_untouched(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        while let Some(cursor) = self.unpassed.filter(|_| !self.cleared) {
            let mut any = None;
            let next = self.store.scan(cursor, 16, &mut |key, _| {
                if !self.touched.contains(key) {
                    any = Some(key.to_vec());
                }
            })?;
            if any.is_some() {
                return Ok(any);
            }
            self.unpassed = Some(next).filter(|next| *next != 0);
        }
        Ok(None)
    }

    /// Keys it wrote and did not remove.
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
    fn read(&mut self, key: &[u8], look: &mut Look<'_>) -> Outcome {
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

    fn put(&mut self, put: Put<'_>) -> Outcome {
        check_key(put.key)?;
        self.touch(put.key);
        // It reads nothing, so that nobody else's write of the key makes the transaction run again.
        Ok(self.transaction.put_expiring(put.key, put.value, put.expires_at)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure> {
        if check_key(key).is_err() {
            return Ok(false);
        }
        self.touch(key);
        Ok(self.transaction.remove(key)?)
    }

    fn read_many(&mut self, keys: &[&[u8]], look: &mut Look<'_>) -> Outcome {
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
        body(self)
    }

    fn scan(&mut self, cursor: u64, at_least: usize, each: &mut dyn FnMut(&[u8])) -> Result<u64, Failure> {
        // What it wrote itself comes first, whole; then the store's keys without what it touched.
        if cursor == 0 {
            self.written()?.iter().for_each(|key| each(key));
        }
        if self.cleared {
            return Ok(0);
        }
        let touched = &self.touched;
        past_damage(self.store.scan(cursor, at_least, &mut |key, _| {
            if !touched.contains(key) {
                each(key);
            }
        }))
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
        self.touched.clear();
        (self.cleared, self.candidates) = (true, None);
        Ok(())
    }

    fn count(&mut self) -> u64 {
        self.transaction.len()
    }
}
