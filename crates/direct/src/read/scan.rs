//! Scans over all keys.

use crate::read::get::Reads;
use crate::record::view::{Record, corrupt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_engine::{Cursor, Entry, ReadError};
use terrace_index::{Damage, Place};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Records that are visited under one pin; more would keep freed memory waiting for long.
const PIECE: usize = 1024;
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
    records: u64,
    first: Option<ReadError>,
    /// Damage to an ordered index.
    index: Option<Damage>,
}

impl Skipped {
    pub(crate) fn add(&mut self, error: ReadError) {
        self.records += 1;
        self.first.get_or_insert(error);
    }

    /// Adds damage to the index, which may hide any number of records.
    pub(crate) fn add_damage(&mut self, damage: Option<Damage>) {
        self.index = self.index.or(damage);
    }

    /// The result of a scan that continues at `next`. Adds what it has passed to the `total` of the
    /// store: damage to the index as one record.
    pub(crate) fn at(self, next: Cursor, total: &AtomicU64) -> Result<Cursor, ReadError> {
        let passed = self.records + u64::from(self.index.is_some());
        if passed > 0 {
            total.fetch_add(passed, Relaxed);
        }
        // It says more than damage to a record.
        let (first, records) = match self.index {
            Some(Damage { offset, what }) => (Some(corrupt(offset, what)), 0),
            None => (self.first, self.records),
        };
        match first {
            None => Ok(next),
            Some(ReadError::Corrupt { place, what }) => {
                Err(ReadError::Skipped { records, place, what, next })
            }
            Some(error) => Err(error),
        }
    }
}

impl<M: MappedMedium> Reads<M> {
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
        let next = self.records().index.scan(guard, from, at_least, &mut |word| {
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
                if self.records().index.ordered().is_some() {
                    skipped.add_damage(self.records().index.damage());
                }
                return skipped.at(place.into(), &self.skipped);
            }
        }
    }

    /// The place of a cursor, if this store's index has such places.
    fn place_of(&self, cursor: &Cursor) -> Result<Place, ReadError> {
        match (cursor.place(), self.records().index.ordered()) {
            (Place::Hash(_), Some(_)) | (Place::After(_), None) => Err(ReadError::InvalidCursor),
            (place, _) => Ok(place.clone()),
        }
    }

    /// A key from behind a random place. Has `remove` remove some of the expired records that it
    /// meets, so that not every search meets them. Damage is an error only if no key is found.
    pub(crate) fn random_key(&self, remove: impl Fn(&[u64])) -> Result<Option<Vec<u8>>, ReadError> {
        if self.records().index.len() == 0 {
            return Ok(None);
        }
        let start = self.records().index.random_place(&self.pool().try_pin()?, self.records().random_u64());
        let mut walk = RandomWalk { piece: 1, removable: EXPIRED_MOST, damage: None };
        let found = match self.random_key_between(&start, &Place::End, &mut walk, &remove)? {
            None => self.random_key_between(&Place::Start, &start, &mut walk, &remove)?,
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
        remove: &impl Fn(&[u64]),
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let mut place = from.clone();
        while place < *to {
            let (next, found) = self.random_key_in_piece(&place, walk, remove)?;
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
        remove: &impl Fn(&[u64]),
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
                    if self.records().random_u64().is_multiple_of(live) {
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
        remove(&expired);
        Ok((next, key))
    }
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
