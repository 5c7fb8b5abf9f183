//! Going through all keys.

use super::store::{Direct, Kind};
use super::view::Record;
use crate::planted::{self, Bug};
use crate::{Entry, ReadError, WriteError};
use terrace_index::{PointIndex, Position};
use terrace_pool::Guard;

/// Records that are visited under one pin; more would keep freed memory waiting for long.
const PIECE: usize = 1024;
/// Records that are removed under one pin: when the pool is full, there may be no memory to note more of them in, and of the buckets that an index
/// gives back as it shrinks.
pub(super) const REMOVALS: usize = 8;

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Visits a piece of the index, at least `at_least` records of it, and calls `each` with each record's word and what a reader sees of it.
    fn scan_piece<'g>(
        &self,
        guard: &'g Guard<'_, I::Medium>,
        from: Position,
        at_least: usize,
        mut each: impl FnMut(u64, Result<Option<Record<'g>>, ReadError>),
    ) -> (Position, usize) {
        let mut visited = 0;
        let next = self.index.scan(guard, from, at_least, |word| {
            visited += 1;
            let seen = match planted::has(Bug::ExpiredShown) {
                true => self.standing(guard, word),
                false => self.live(guard, word),
            };
            each(word, seen);
        });
        (next, visited)
    }

    pub(super) fn scan_from(
        &self,
        cursor: u64,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<u64, ReadError> {
        let (mut position, mut left) = (cursor, at_least);
        let mut trouble = Ok(());
        loop {
            let guard = self.pool().try_pin()?;
            let (next, visited) = self.scan_piece(&guard, position, left.min(PIECE), |_, seen| {
                let shown = seen.and_then(|record| {
                    let Some(record) = record else { return Ok(()) };
                    each(record.body.key, self.entry(&guard, &record)?);
                    Ok(())
                });
                if trouble.is_ok() {
                    trouble = shown;
                }
            });
            (position, left) = (next, left.saturating_sub(visited));
            if position == 0 || left == 0 || trouble.is_err() {
                return trouble.map(|()| position);
            }
        }
    }

    /// From a random place on, one of the keys that come first.
    pub(super) fn any_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        if self.index.is_empty() {
            return Ok(None);
        }
        let start = self.draw();
        match self.any_key_between(start, 0)? {
            None => self.any_key_between(0, start),
            found => Ok(found),
        }
    }

    fn any_key_between(&self, from: Position, to: Position) -> Result<Option<Vec<u8>>, ReadError> {
        let mut position = from;
        loop {
            let guard = self.pool().try_pin()?;
            let (mut found, mut trouble) = (Vec::new(), None);
            let (next, _) = self.scan_piece(&guard, position, 1, |_, seen| match seen {
                Ok(record) => found.extend(record),
                Err(error) => trouble = Some(error),
            });
            if let Some(error) = trouble {
                return Err(error);
            }
            if !found.is_empty() {
                let record = &found[self.draw() as usize % found.len()];
                record.verify()?;
                return Ok(Some(record.body.key.to_vec()));
            }
            position = next;
            if next == 0 || (to != 0 && next > to) {
                return Ok(None);
            }
        }
    }

    /// Removes every key that is there throughout; frees nothing that it does not remove.
    pub(super) fn remove_all(&self) -> Result<(), WriteError> {
        self.is_running()?;
        let (mut position, mut words) = (0, Vec::with_capacity(2 * REMOVALS));
        let mut trouble = Ok(());
        loop {
            let guard = self.pool().try_pin()?;
            let next = self.index.scan(&guard, position, REMOVALS, |word| words.push(word));
            let is_cut_short = words.drain(..).any(|word| {
                let removed = self.remove_word(&guard, word);
                let is_to_end = removed.is_ok() && guard.is_short_of_notes();
                trouble = std::mem::replace(&mut trouble, Ok(())).and(removed);
                is_to_end
            });
            if is_cut_short {
                // The rest is found again under the next guard.
                continue;
            }
            if next == 0 {
                return trouble;
            }
            position = next;
        }
    }

    /// Removes the key whose word this was a moment ago.
    fn remove_word(&self, guard: &Guard<'_, I::Medium>, word: u64) -> Result<(), WriteError> {
        let key = Record::at(guard, word)?.body.key;
        loop {
            match self.unclaimed(guard, key)? {
                Some(word) if !self.unlink(guard, key, word)? => {}
                _ => return Ok(()),
            }
        }
    }
}
