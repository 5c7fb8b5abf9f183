//! The keys of a transaction, over those of its store.

use std::{
    collections::BTreeSet,
    ops::{Bound, ControlFlow},
};

use terrace::{Change, Cursor, Direction, Put, RangeRemoved, Store, Transaction};

use super::{
    Found, Keyspace, RangeCallback, ReadCallback, Removals, Shown,
    check::check_key,
    damage::{past_damage, read_range},
    modify::modify_absent,
};
use crate::state::{
    databases::Place,
    failure::{Failure, Outcome},
};

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
        shown: Shown,
        each: &mut RangeCallback<'_>,
    ) -> Result<bool, Failure> {
        read_range(self.transaction.range_cursor(bounds, direction)?, at_most, shown, each)
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
