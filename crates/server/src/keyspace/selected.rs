//! The keys of one database.

use std::{
    borrow::Cow,
    ops::{Bound, ControlFlow},
};

use terrace::{Change, Cursor, Direction, Put, RangeRemoved};

use super::{Found, Keyspace, RangeCallback, ReadCallback, Removals, Shown, record::has_record};
use crate::state::{
    databases::{self, DATABASES, Place},
    failure::{Failure, Outcome},
    shared::Shared,
};

/// Keys that are listed at a time.
const STEP: usize = 1024;

/// Random keys of the store that are drawn before all keys are searched for one of the database.
const DRAWS: usize = 32;

/// A callback that receives a key as it is stored, and as clients name it.
type StoredCallback<'f> = dyn FnMut(&[u8], Cow<'_, [u8]>) + 'f;

/// A database: the keys of `inner` in one place, under the names that clients give them.
pub(crate) struct Selected<'a> {
    inner: &'a mut dyn Keyspace,
    place: Place,
    shared: &'a Shared,
}

impl<'a> Selected<'a> {
    pub(crate) fn new(inner: &'a mut dyn Keyspace, place: Place, shared: &'a Shared) -> Selected<'a> {
        Selected { inner, place, shared }
    }

    /// Before a key may be written.
    fn begin_write(&self) -> Outcome {
        Ok(self.shared.databases.use_place(&self.shared.store, self.place)?)
    }

    /// Runs `body` with the stored forms of `keys`.
    fn with_all<R>(&mut self, keys: &[&[u8]], body: impl FnOnce(&mut dyn Keyspace, &[&[u8]]) -> R) -> R {
        if keys.iter().all(|key| self.place.keeps(key)) {
            return body(self.inner, keys);
        }
        let stored: Vec<Cow<'_, [u8]>> = keys.iter().map(|key| self.place.encode(key)).collect();
        let stored: Vec<&[u8]> = stored.iter().map(|key| &**key).collect();
        body(self.inner, &stored)
    }

    /// As [`Selected::with_all`], for writes.
    fn with_puts<R>(
        &mut self,
        puts: &[Put<'_>],
        body: impl FnOnce(&mut dyn Keyspace, &[Put<'_>]) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.begin_write()?;
        let keys: Vec<&[u8]> = puts.iter().map(|put| put.key).collect();
        self.with_all(&keys, |inner, keys| {
            let puts: Vec<_> = keys.iter().zip(puts).map(|(key, put)| Put { key, ..*put }).collect();
            body(inner, &puts)
        })
    }

    /// Whether the store has more keys than those of database 0.
    fn are_several(&mut self) -> Result<bool, Failure> {
        Ok(!self.shared.is_of_cluster() && has_record(self.inner)?)
    }

    /// Calls `each` with keys that are stored here.
    fn scan_stored(
        &mut self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut StoredCallback<'_>,
    ) -> Result<Cursor, Failure> {
        let place = self.place;
        self.inner.scan(cursor, at_least, &mut |stored| {
            if let Some(key) = place.decode(stored).filter(|_| !databases::is_record(stored)) {
                each(stored, key);
            }
        })
    }

    /// Any key of this database: the search for a random one has not met one.
    fn any_key(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut any = None;
        if self.shared.store.is_ordered() {
            let all = (Bound::Unbounded, Bound::Unbounded);
            self.range(all, Direction::Forward, 1, Shown::Keys, &mut |key, _| {
                any = Some(key.to_vec());
                ControlFlow::Break(())
            })?;
            return Ok(any);
        }
        let mut cursor = Cursor::START;
        loop {
            cursor = self.scan_stored(&cursor, STEP, &mut |_, key| any = Some(key.into_owned()))?;
            if any.is_some() || cursor.is_end() {
                return Ok(any);
            }
        }
    }
}

impl Keyspace for Selected<'_> {
    fn read(&mut self, key: &[u8], look: &mut ReadCallback<'_>) -> Outcome {
        self.inner.read(&self.place.encode(key), look)
    }

    fn snapshot(&mut self, keys: &[&[u8]], look: &mut dyn FnMut(usize, Option<Found<'_>>)) -> Outcome {
        self.with_all(keys, |inner, keys| inner.snapshot(keys, look))
    }

    fn modify(&mut self, key: &[u8], change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome {
        self.begin_write()?;
        self.inner.modify(&self.place.encode(key), change)
    }

    fn append(&mut self, key: &[u8], tail: &[u8], longest: usize) -> Result<Option<usize>, Failure> {
        self.begin_write()?;
        self.inner.append(&self.place.encode(key), tail, longest)
    }

    fn put(&mut self, put: Put<'_>) -> Outcome {
        self.begin_write()?;
        self.inner.put(Put { key: &self.place.encode(put.key), ..put })
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure> {
        self.inner.remove(&self.place.encode(key))
    }

    fn read_many(&mut self, keys: &[&[u8]], look: &mut ReadCallback<'_>) -> Outcome {
        self.with_all(keys, |inner, keys| inner.read_many(keys, look))
    }

    fn put_all(&mut self, puts: &[Put<'_>]) -> Outcome {
        self.with_puts(puts, |inner, puts| inner.put_all(puts))
    }

    fn put_all_new(&mut self, puts: &[Put<'_>]) -> Result<bool, Failure> {
        self.with_puts(puts, |inner, puts| inner.put_all_new(puts))
    }

    fn remove_all(&mut self, keys: &[&[u8]]) -> Result<u64, Failure> {
        self.with_all(keys, |inner, keys| inner.remove_all(keys))
    }

    fn atomically(&mut self, body: &mut dyn FnMut(&mut dyn Keyspace) -> Outcome) -> Outcome {
        let (place, shared) = (self.place, self.shared);
        self.inner.atomically(&mut |inner| body(&mut Selected::new(inner, place, shared)))
    }

    fn scan(
        &mut self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Cursor, Failure> {
        self.scan_stored(cursor, at_least, &mut |_, key| each(&key))
    }

    fn range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        at_most: usize,
        shown: Shown,
        each: &mut RangeCallback<'_>,
    ) -> Result<bool, Failure> {
        let (place, mut left, mut flow) = (self.place, at_most, ControlFlow::Continue(()));
        let mut ranges = place.ranges(bounds);
        if direction == Direction::Backward {
            ranges.reverse();
        }
        for (lower, upper) in ranges.iter().flatten() {
            let bounds = (lower.as_ref().map(|key| &**key), upper.as_ref().map(|key| &**key));
            let more = self.inner.range(bounds, direction, left, shown, &mut |stored, found| {
                let Some(key) = place.decode(stored) else { return ControlFlow::Continue(()) };
                left -= 1;
                flow = each(&key, found);
                flow
            })?;
            if more || flow.is_break() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn remove_range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at_most: u64,
    ) -> Result<RangeRemoved, Failure> {
        let mut removed = 0;
        for (lower, upper) in self.place.ranges(bounds).iter().flatten() {
            let bounds = (lower.as_ref().map(|key| &**key), upper.as_ref().map(|key| &**key));
            let (more, next) = self.inner.remove_range(bounds, at_most - removed)?;
            removed += more;
            if let Some(key) = next.and_then(|next| Some(self.place.decode(&next)?.into_owned())) {
                return Ok((removed, Some(key.into())));
            }
        }
        Ok((removed, None))
    }

    fn carry_use(&mut self, from: &[u8], place: Option<Place>, to: &[u8]) {
        let to = place.unwrap_or(self.place).encode(to);
        self.inner.carry_use(&self.place.encode(from), None, &to);
    }

    fn random_key(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        for _ in 0..DRAWS {
            let Some(stored) = self.inner.random_key()? else { return Ok(None) };
            if databases::is_record(&stored) {
                continue;
            }
            if let Some(key) = self.place.decode(&stored) {
                return Ok(Some(key.into_owned()));
            }
        }
        self.any_key()
    }

    fn clear(&mut self) -> Outcome {
        if !self.are_several()? {
            return if self.place.is_plain() { self.inner.clear() } else { Ok(()) };
        }
        // Key by key: the record stays throughout, and this takes no memory.
        let mut cursor = Cursor::START;
        loop {
            let mut listed = Vec::new();
            cursor = self.scan_stored(&cursor, STEP, &mut |stored, _| listed.push(stored.to_vec()))?;
            listed.iter().try_for_each(|stored| self.inner.remove(stored).map(drop))?;
            if cursor.is_end() {
                return Ok(());
            }
        }
    }

    fn count(&mut self) -> Result<u64, Failure> {
        if !self.are_several()? {
            return if self.place.is_plain() { self.inner.count() } else { Ok(0) };
        }
        if !self.inner.is_transaction() {
            return Ok(self.shared.databases.counts(&self.shared.store)?[self.place.index()].keys);
        }
        let (mut count, mut cursor) = (0, Cursor::START);
        loop {
            cursor = self.scan_stored(&cursor, STEP, &mut |_, _| count += 1)?;
            if cursor.is_end() {
                return Ok(count);
            }
        }
    }

    fn select(&mut self, place: Place) -> Place {
        debug_assert!(place == Place::RAW || place.index() < usize::from(DATABASES));
        std::mem::replace(&mut self.place, place)
    }

    fn is_transaction(&self) -> bool {
        self.inner.is_transaction()
    }

    fn removals(&mut self) -> Result<Option<Removals>, Failure> {
        self.inner.removals()
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes()
    }
}
