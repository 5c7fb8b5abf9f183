//! Ranges of a transaction: those of the store, under what the transaction has written.

use crate::bounds::{OwnedRange, is_empty};
use crate::written::{Writes, Written};
use crate::{Cursor, Direction, Entry, KeyRange, Place, RangeCursor, ReadError};
use std::iter::Peekable;
use std::ops::{Bound, ControlFlow};
use terrace_engine::Ordered;

/// A place in a range of a transaction.
pub(crate) struct Merged<'t> {
    /// `None` after the transaction has cleared the store.
    store: Option<&'t dyn Ordered>,
    written: &'t Writes,
    /// The time that decides what has expired.
    now_ms: u64,
    range: OwnedRange,
    direction: Direction,
    position: Option<Box<[u8]>>,
    at_end: bool,
    with_values: bool,
}

impl<'t> Merged<'t> {
    pub(crate) fn new(
        store: Option<&'t dyn Ordered>,
        written: &'t Writes,
        now_ms: u64,
        range: OwnedRange,
        direction: Direction,
    ) -> Self {
        Self { store, written, now_ms, range, direction, position: None, at_end: false, with_values: true }
    }

    /// What is left of the range.
    fn rest(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let (from, to) = self.range.bounds();
        match (&self.position, self.direction) {
            (None, _) => (from, to),
            (Some(key), Direction::Forward) => (Bound::Excluded(key), to),
            (Some(key), Direction::Backward) => (from, Bound::Excluded(key)),
        }
    }
}

/// Writes in the order of a range.
type WritesIn<'t> = Box<dyn Iterator<Item = (&'t [u8], &'t Written)> + 't>;

/// The writes in what is left of a range, in its direction.
fn writes_in<'t>(
    written: &'t Writes,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> WritesIn<'t> {
    if is_empty(range) {
        return Box::new(std::iter::empty());
    }
    let within = written.range::<[u8], _>(range).map(|(key, written)| (&key[..], written));
    match direction {
        Direction::Forward => Box::new(within),
        Direction::Backward => Box::new(within.rev()),
    }
}

/// A visit of a merged range.
struct Visit<'v, 't> {
    writes: Peekable<WritesIn<'t>>,
    direction: Direction,
    now_ms: u64,
    /// Entries that it may still show.
    left: usize,
    /// The last key that it has shown.
    last: Option<Box<[u8]>>,
    each: &'v mut dyn FnMut(&[u8], Entry<'_>) -> ControlFlow<()>,
}

impl Visit<'_, '_> {
    /// Shows the writes to keys before `key`, then what the transaction sees under `key`.
    fn take(&mut self, key: &[u8], entry: Entry<'_>) -> ControlFlow<()> {
        let direction = self.direction;
        let is_before = |other: &[u8]| match direction {
            Direction::Forward => other < key,
            Direction::Backward => other > key,
        };
        while let Some((other, written)) = self.writes.next_if(|(other, _)| is_before(other)) {
            self.show(other, written.seen_over(None))?;
        }
        match self.writes.next_if(|(other, _)| *other == key) {
            None => self.show(key, Some(entry)),
            Some((_, written)) => self.show(key, written.seen_over(Some(entry))),
        }
    }

    /// Shows the writes behind the last key of the store.
    fn take_rest(&mut self) -> ControlFlow<()> {
        while let Some((key, written)) = self.writes.next() {
            self.show(key, written.seen_over(None))?;
        }
        ControlFlow::Continue(())
    }

    fn show(&mut self, key: &[u8], entry: Option<Entry<'_>>) -> ControlFlow<()> {
        let live = entry.filter(|entry| entry.expires_at.is_none_or(|at| at > self.now_ms));
        let Some(entry) = live else { return ControlFlow::Continue(()) };
        self.left -= 1;
        self.last = Some(key.into());
        (self.each)(key, entry)?;
        if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The damage that the store's range has passed.
#[derive(Default)]
struct Passed {
    records: u64,
    first: Option<(Place, &'static str)>,
    /// Damage to the index may hide any others.
    is_hidden: bool,
}

impl RangeCursor for Merged<'_> {
    fn visit(
        &mut self,
        at_most: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>) -> ControlFlow<()>,
    ) -> Result<bool, ReadError> {
        if at_most == 0 || self.at_end {
            return Ok(!self.at_end);
        }
        let writes = writes_in(self.written, self.rest(), self.direction).peekable();
        let (direction, now_ms) = (self.direction, self.now_ms);
        let mut visit = Visit { writes, direction, now_ms, left: at_most, last: None, each };
        let mut passed = Passed::default();
        let stored = self.visit_store(&mut visit, &mut passed);
        let ended = stored.map(|flow| flow.is_break() || visit.take_rest().is_break());
        let last = visit.last;
        self.position = last.or(self.position.take());
        self.at_end = ended != Ok(true);
        ended?;
        match passed.first {
            None => Ok(!self.at_end),
            Some((place, what)) => {
                let next = match &self.position {
                    Some(key) if !self.at_end => Cursor::after(key),
                    None if !self.at_end => Cursor::START,
                    _ => Cursor::END,
                };
                let records = if passed.is_hidden { 0 } else { passed.records };
                Err(ReadError::Skipped { records, place, what, next })
            }
        }
    }

    fn position(&self) -> Option<&[u8]> {
        self.position.as_deref()
    }

    fn without_values(&mut self) {
        self.with_values = false;
    }
}

impl Merged<'_> {
    /// Visits the store's entries, and the writes before its last one. Breaks if the visit has
    /// ended.
    fn visit_store(
        &self,
        visit: &mut Visit<'_, '_>,
        passed: &mut Passed,
    ) -> Result<ControlFlow<()>, ReadError> {
        let Some(store) = self.store else { return Ok(ControlFlow::Continue(())) };
        let (from, to) = self.rest();
        let mut cursor = store.range(from, to, self.direction)?;
        if !self.with_values {
            cursor.without_values();
        }
        loop {
            let mut flow = ControlFlow::Continue(());
            let more = cursor.visit(visit.left, &mut |key, entry| {
                flow = visit.take(key, entry);
                flow
            });
            let more = match more {
                Err(ReadError::Skipped { records, place, what, next }) => {
                    passed.is_hidden |= records == 0;
                    passed.records += records;
                    passed.first.get_or_insert((place, what));
                    !next.is_end()
                }
                more => more?,
            };
            if flow.is_break() || !more {
                return Ok(flow);
            }
        }
    }
}
