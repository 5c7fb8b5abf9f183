//! Scans over all keys.

use crate::engine::Direct;
use crate::record::view::{Record, corrupt};
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Cursor, Entry, ReadError, WriteError};
use terrace_index::{Damage, Place};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Records that are visited under one pin; more would keep freed memory waiting for long.
const PIECE: usize = 1024;
/// Records that are removed under one pin. When the pool is full, there may be no memory to record
/// more of them in limbo, nor the buckets that an index retires when it shrinks.
pub(crate) const REMOVALS: usize = 8;

/// Expired records that the search for a random key removes at most.
const EXPIRED_MOST: usize = PIECE;
/// Records that it visits under one pin at most. There are so many only where they have expired.
const LONGEST: usize = 8 * PIECE;

/// The search for a random key.
struct RandomWalk {
    /// Records that it reads next, at least.
    piece: usize,
    /// Expired records that it may still remove.
    removable: usize,
    damage: Option<ReadError>,
}

/// The damage that a scan has passed.
#[derive(Default)]
pub(crate) struct Skipped {
    /// Damaged records.
    pub(crate) records: u64,
    first: Option<ReadError>,
}

impl Skipped {
    pub(crate) fn add(&mut self, error: ReadError) {
        self.records += 1;
        self.first.get_or_insert(error);
    }

    /// Adds damage to the index, which may hide any number of records.
    pub(crate) fn add_damage(&mut self, damage: Option<Damage>) {
        if let Some(Damage { offset, what }) = damage {
            self.first.get_or_insert(corrupt(offset, what));
        }
    }

    /// The result of a scan that continues at `next`.
    pub(crate) fn at(self, next: Cursor) -> Result<Cursor, ReadError> {
        match self.first {
            None => Ok(next),
            Some(ReadError::Corrupt { place, what }) => {
                Err(ReadError::Skipped { records: self.records, place, what, next })
            }
            Some(error) => Err(error),
        }
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Visits a piece of the index with at least `at_least` records, and calls `each` with each
    /// record's word and the record that a reader sees.
    fn scan_piece<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        from: &Place,
        at_least: usize,
        mut each: impl FnMut(u64, Result<Option<Record<'g>>, ReadError>),
    ) -> (Place, usize) {
        let mut visited = 0;
        let next = self.index.scan(guard, from, at_least, &mut |word| {
            visited += 1;
            each(word, self.live_record(guard, word));
        });
        (next, visited)
    }

    pub(crate) fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        let (mut place, mut left) = (self.place_of(cursor)?, at_least);
        let mut skipped = Skipped::default();
        loop {
            let guard = self.pool().try_pin()?;
            let (next, visited) = self.scan_piece(&guard, &place, left.min(PIECE), |_, seen| {
                let shown = seen.and_then(|record| {
                    let Some(record) = record else { return Ok(()) };
                    each(record.body.key, self.entry(&guard, &record)?);
                    Ok(())
                });
                shown.unwrap_or_else(|error| skipped.add(error));
            });
            (place, left) = (next, left.saturating_sub(visited));
            if place.is_end() || left == 0 {
                if self.index.ordered().is_some() {
                    skipped.add_damage(self.index.damage());
                }
                self.skipped.fetch_add(skipped.records, Relaxed);
                return skipped.at(place.into());
            }
        }
    }

    /// The place of a cursor, if this store's index has such places.
    fn place_of(&self, cursor: &Cursor) -> Result<Place, ReadError> {
        match (cursor.place(), self.index.ordered()) {
            (Place::Hash(_), Some(_)) | (Place::After(_), None) => Err(ReadError::InvalidCursor),
            (place, _) => Ok(place.clone()),
        }
    }

    /// A key from behind a random place. Removes some of the expired records that it meets, so that
    /// not every search meets them. Damage is an error only if no key is found.
    pub(crate) fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        if self.index.len() == 0 {
            return Ok(None);
        }
        let start = self.index.random_place(&self.pool().try_pin()?, self.random_u64());
        let mut walk = RandomWalk { piece: 1, removable: EXPIRED_MOST, damage: None };
        let found = match self.random_key_between(&start, &Place::End, &mut walk)? {
            None => self.random_key_between(&Place::Start, &start, &mut walk)?,
            found => found,
        };
        match (found, walk.damage) {
            (None, Some(damage)) => Err(damage),
            (found, _) => Ok(found),
        }
    }

    fn random_key_between(
        &self,
        from: &Place,
        to: &Place,
        walk: &mut RandomWalk,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let mut place = from.clone();
        while place < *to {
            let (next, found) = self.random_key_in_piece(&place, walk)?;
            if found.is_some() {
                return Ok(found);
            }
            place = next;
            // A piece costs some indexes more than the keys in it.
            walk.piece = (2 * walk.piece).min(LONGEST);
        }
        Ok(None)
    }

    /// One of the keys of a piece of the index. Returns the place behind the piece, too.
    fn random_key_in_piece(
        &self,
        from: &Place,
        walk: &mut RandomWalk,
    ) -> Result<(Place, Option<Vec<u8>>), ReadError> {
        let (mut key, mut live, mut expired) = (None, 0, Vec::new());
        let guard = self.pool().try_pin()?;
        let (next, _) = self.scan_piece(&guard, from, walk.piece, |word, seen| {
            let sound =
                seen.and_then(|record| record.map(|record| record.verify().map(|()| record)).transpose());
            match sound {
                Ok(Some(record)) => {
                    live += 1;
                    // Each of them with the same probability.
                    if self.random_u64().is_multiple_of(live) {
                        key = Some(record.body.key);
                    }
                }
                Ok(None) if expired.len() < walk.removable => expired.push(word),
                Ok(None) => {}
                Err(error) => _ = walk.damage.get_or_insert(error),
            }
        });
        let key = key.map(<[u8]>::to_vec);
        drop(guard);
        walk.removable -= expired.len();
        self.remove_met(&expired);
        Ok((next, key))
    }

    /// Removes every key that is present throughout. Frees no block that it did not unlink.
    pub(crate) fn clear_all(&self) -> Result<(), WriteError> {
        self.check_writable()?;
        let (mut place, mut words) = (Place::Start, Vec::with_capacity(2 * REMOVALS));
        let mut first_error = Ok(());
        loop {
            let guard = self.pool().try_pin()?;
            let next = self.index.scan(&guard, &place, REMOVALS, &mut |word| words.push(word));
            let is_cut_short = words.drain(..).any(|word| {
                let removed = self.remove_word(&guard, word);
                let should_end = removed.is_ok() && guard.is_limbo_full();
                first_error = std::mem::replace(&mut first_error, Ok(())).and(removed);
                should_end
            });
            if is_cut_short {
                // The next scan finds the rest again, under another pin.
                continue;
            }
            place = next;
            if place.is_end() {
                return first_error;
            }
        }
    }

    /// Removes the key whose word this was a moment ago.
    fn remove_word(&self, guard: &Guard<'_, M>, word: u64) -> Result<(), WriteError> {
        let key = Record::at(guard, word)?.body.key;
        self.remove_found(guard, key).map(drop)
    }
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
