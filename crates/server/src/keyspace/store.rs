//! The keys of a store, where each call stands for itself.

use std::ops::Bound;

use terrace::{Change, Cursor, Direction, Put, PutOptions, RangeRemoved, Store};

use super::{
    Found, Keyspace, Overlay, RangeCallback, ReadCallback, Shown,
    check::check_key,
    damage::{past_damage, read_range},
    modify::modify_absent,
};
use crate::state::failure::{Failure, Outcome};

/// Keys that are read under one pin. A larger number would delay the reuse of retired memory.
const KEYS_PER_PIN: usize = 1024;

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
        shown: Shown,
        each: &mut RangeCallback<'_>,
    ) -> Result<bool, Failure> {
        read_range(self.0.range_cursor(bounds, direction)?, at_most, shown, each)
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
