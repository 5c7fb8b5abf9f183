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

/// The records of the next keys of a range.
#[derive(Default)]
struct Found<'g> {
    records: Vec<Record<'g>>,
    /// The key behind them.
    next: Option<&'g [u8]>,
    /// The first damage among them.
    damage: Option<ReadError>,
}

impl<'g> Found<'g> {
    /// Takes the next record of a range, of up to `at_most`. A damaged record may have any key. So
    /// only a sound one is believed that its key is not behind the last one, or not in the range,
    /// or the place to go on from.
    fn take(&mut self, record: Record<'g>, is_within: bool, at_most: usize) -> ControlFlow<()> {
        let key = record.body.key;
        let is_ahead = |found: &Self| found.records.last().is_none_or(|last| key > last.body.key);
        if (!is_within || !is_ahead(self) || self.records.len() == at_most)
            && let Err(error) = record.verify()
        {
            self.damage.get_or_insert(error);
            return ControlFlow::Continue(());
        }
        while !is_ahead(self)
            && let Some(Err(error)) = self.records.last().map(Record::verify)
        {
            self.damage.get_or_insert(error);
            self.records.pop();
        }
        if !is_within || !is_ahead(self) {
            self.damage.get_or_insert(corrupt(record.offset, DISORDER));
            return ControlFlow::Break(());
        }
        if self.records.len() == at_most {
            self.next = Some(key);
            return ControlFlow::Break(());
        }
        self.records.push(record);
        ControlFlow::Continue(())
    }
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
            for (nth, record) in found.records.iter().enumerate() {
                left -= 1;
                match self.slots().remove_found(&guard, record) {
                    Ok(word) => {
                        removed += u64::from(word.is_some_and(|word| self.slots().was_live(&guard, word)));
                    }
                    Err(error @ WriteError::Corrupt { .. }) => _ = damage.get_or_insert(error),
                    Err(error) => return Err(error),
                }
                if guard.is_limbo_full()
                    && let Some(rest) = found.records.get(nth + 1)
                {
                    // The rest is left to another guard.
                    found.next = Some(rest.body.key);
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
            match Record::at(guard, word) {
                Ok(record) => found.take(record, (from, to).contains(record.body.key), at_most),
                Err(error) => {
                    found.damage.get_or_insert(error);
                    ControlFlow::Continue(())
                }
            }
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
