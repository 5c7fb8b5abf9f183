//! Removal of the keys in a range, a few under each guard.

use crate::read::range::{DISORDER, borrowed};
use crate::record::stage::REMOVALS;
use crate::record::view::{Record, corrupt};
use crate::write::single::Writes;
use std::ops::{Bound, ControlFlow, RangeBounds};
use terrace_engine::{RangeRemoved, ReadError, WriteError};
use terrace_index::Direction;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// The next keys of a range.
#[derive(Default)]
struct Found<'g> {
    keys: Vec<&'g [u8]>,
    /// The key behind them.
    next: Option<&'g [u8]>,
    /// The first damage among them.
    damage: Option<ReadError>,
}

impl<M: MappedMedium> Writes<M> {
    /// See [`Ordered::remove_range`](terrace_engine::Ordered::remove_range).
    pub(crate) fn remove_between(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        at_most: u64,
    ) -> Result<RangeRemoved, WriteError> {
        self.records().check_writable()?;
        let (mut from, mut left, mut removed) = (from.map(Box::from), at_most, 0);
        let mut damage = None;
        loop {
            let guard = self.pool().try_pin()?;
            let few = left.min(REMOVALS as u64) as usize;
            let mut found = self.next_keys(&guard, borrowed(&from), to, few)?;
            for (nth, key) in found.keys.iter().enumerate() {
                left -= 1;
                match self.slots().remove_found(&guard, key) {
                    Ok(was_there) => removed += u64::from(was_there),
                    Err(error @ WriteError::Corrupt { .. }) => _ = damage.get_or_insert(error),
                    Err(error) => return Err(error),
                }
                if guard.is_limbo_full() && nth + 1 < found.keys.len() {
                    // The rest is left to another guard.
                    found.next = Some(found.keys[nth + 1]);
                    break;
                }
            }
            damage = damage.or(found.damage.map(WriteError::from));
            match found.next {
                Some(key) if left > 0 => from = Bound::Included(key.into()),
                next => return damage.map_or(Ok((removed, next.map(Box::from))), Err),
            }
        }
    }

    /// Up to `at_most` keys. Records that cannot be read do not count.
    fn next_keys<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        at_most: usize,
    ) -> Result<Found<'g>, ReadError> {
        let mut found = Found::default();
        self.records().ranges()?.range(guard, from, to, Direction::Forward, at_most + 1, &mut |word| {
            let key = match Record::at(guard, word) {
                Ok(record) => record.body.key,
                Err(error) => {
                    found.damage.get_or_insert(error);
                    return ControlFlow::Continue(());
                }
            };
            let is_in_order = found.keys.last().is_none_or(|last| key > *last);
            if !is_in_order || !(from, to).contains(key) {
                found.damage.get_or_insert(corrupt(word, DISORDER));
                return ControlFlow::Break(());
            }
            if found.keys.len() == at_most {
                found.next = Some(key);
                return ControlFlow::Break(());
            }
            found.keys.push(key);
            ControlFlow::Continue(())
        });
        if let Some(damage) = self.records().index.damage() {
            found.damage.get_or_insert(corrupt(damage.offset, damage.what));
        }
        Ok(found)
    }
}

#[cfg(test)]
#[path = "tests/remove_range.rs"]
mod tests;
