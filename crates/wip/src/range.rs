//! Ranges: a merge of the MemTables and tables of one bucket after the other.
//!
//! A visit takes a snapshot and the present state, and reads from them as far as it is asked to.
//! Between two visits there is only the key behind which the range goes on.

use crate::check::lossy::{Damages, Lossy};
use crate::memtable::MemCursor;
use crate::state::store::Store;
use crate::state::{Bucket, State};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{DiskError, Item, Merge, Source, Visible};
use terrace_engine::place_of;
use terrace_engine::{Cursor, Direction, Entry, RangeCursor, ReadError};

/// Items of a MemTable or of a table.
pub(crate) enum Items {
    Memory(MemCursor),
    Table(Lossy),
}

macro_rules! either {
    ($self:expr, $items:ident => $do:expr) => {
        match $self {
            Items::Memory($items) => $do,
            Items::Table($items) => $do,
        }
    };
}

impl Source for Items {
    fn item(&self) -> Option<Item<'_>> {
        either!(self, items => items.item())
    }

    fn seek_first(&mut self) -> Result<(), DiskError> {
        either!(self, items => items.seek_first())
    }

    fn seek_last(&mut self) -> Result<(), DiskError> {
        either!(self, items => items.seek_last())
    }

    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        either!(self, items => items.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        either!(self, items => items.seek_before(key, seq))
    }

    fn next(&mut self) -> Result<(), DiskError> {
        either!(self, items => items.next())
    }

    fn previous(&mut self) -> Result<(), DiskError> {
        either!(self, items => items.previous())
    }
}

/// The entries of a bucket at a sequence number.
type Entries = Visible<Merge<Items>>;

/// A place in a range of the store.
pub(crate) struct Range<'s> {
    store: &'s Store,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    direction: Direction,
    position: Option<Vec<u8>>,
    is_over: bool,
    /// Whether it shows entries of which damage may hide a newer version.
    shows_unsure: bool,
}

impl Store {
    pub(crate) fn range_between(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Range<'_> {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let (from, to) = (owned(from), owned(to));
        Range { store: self, from, to, direction, position: None, is_over: false, shows_unsure: false }
    }

    /// The entries of a bucket and of its parent.
    fn entries_of(&self, bucket: &Arc<Bucket>, end: Option<&[u8]>, seq: u64, damages: &Damages) -> Entries {
        let mut sources = Vec::new();
        for bucket in std::iter::once(bucket).chain(&bucket.parent) {
            for memtable in bucket.memtables().filter(|memtable| !memtable.is_empty()) {
                sources.extend(memtable.cursors().map(Items::Memory));
            }
        }
        for owner in std::iter::once(bucket).chain(&bucket.parent) {
            for (_, table) in owner.tables().filter(|(_, table)| table.overlaps(&bucket.low, end)) {
                let items = table.reader().shared_cursor();
                sources.push(Items::Table(Lossy::new(items, damages)));
            }
            owner.levels.iter().filter(|level| !level.tables.is_empty()).for_each(|level| {
                _ = level.reads.fetch_add(1, Relaxed);
            });
        }
        Visible::new(Merge::new(sources), seq).within(&bucket.low, end)
    }

    pub(crate) fn scan_from(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        if cursor.is_end() {
            return Ok(Cursor::END);
        }
        let from = match (cursor.key(), cursor.number()) {
            (Some(key), _) => Bound::Excluded(key),
            (None, Some(0)) => Bound::Unbounded,
            _ => return Err(ReadError::InvalidCursor),
        };
        let mut range = self.range_between(from, Bound::Unbounded, Direction::Forward);
        let more = range.visit(at_least.max(1), &mut |key, entry| {
            each(key, entry);
            ControlFlow::Continue(())
        })?;
        Ok(match range.position() {
            Some(key) if more => Cursor::after(key),
            _ => Cursor::END,
        })
    }
}

impl Range<'_> {
    /// The same range, which also shows entries of which damage may hide a newer version.
    pub(crate) fn showing_unsure(self) -> Self {
        Self { shows_unsure: true, ..self }
    }

    /// The ends of what is left.
    fn rest<'r>(&'r self, position: Option<&'r [u8]>) -> (Bound<&'r [u8]>, Bound<&'r [u8]>) {
        fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
            bound.as_ref().map(Vec::as_slice)
        }
        let (from, to) = (borrowed(&self.from), borrowed(&self.to));
        match (position, self.direction) {
            (None, _) => (from, to),
            (Some(key), Direction::Forward) => (Bound::Excluded(key), to),
            (Some(key), Direction::Backward) => (from, Bound::Excluded(key)),
        }
    }

    fn visit_some(
        &mut self,
        at_most: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>) -> ControlFlow<()>,
    ) -> Result<bool, ReadError> {
        let store = self.store;
        store.standing.check_process()?;
        // The snapshot first: then the state has all that it sees, and compactions keep it.
        let snapshot = store.snapshots.take(&store.visible);
        let state = store.state.load_full();
        let mut last = self.position.take();
        let mut seen = Seen { damages: Damages::default(), withheld: 0 };
        let visited = self.visit_buckets((&state, snapshot.seq), &mut last, &mut seen, at_most, each);
        self.position = last;
        let reported = seen.report(visited, self.position.as_deref());
        if let Err(ReadError::Skipped { records, .. }) = &reported {
            store.counters.skipped.fetch_add(*records, Relaxed);
        }
        reported
    }

    /// Visits one bucket after the other. Returns whether more may be left.
    fn visit_buckets(
        &self,
        (state, seq): (&State, u64),
        last: &mut Option<Vec<u8>>,
        seen: &mut Seen,
        at_most: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>) -> ControlFlow<()>,
    ) -> Result<bool, ReadError> {
        let position = last.clone();
        let (from, to) = self.rest(position.as_deref());
        if is_empty(from, to) {
            return Ok(false);
        }
        let mut left = at_most;
        let (first, end) = (bucket_at(state, from, 0), bucket_at(state, to, state.buckets.len() - 1));
        let forward = self.direction == Direction::Forward;
        let all: Box<dyn Iterator<Item = usize>> =
            if forward { Box::new(first..=end) } else { Box::new((first..=end).rev()) };
        for nth in all {
            let bucket = &state.buckets[nth];
            let next_low = state.end_of(nth).map(|low| &**low);
            let mut entries = self.store.entries_of(bucket, next_low, seq, &seen.damages);
            self.enter(&mut entries, (from, to))?;
            while let Some(entry) = entries.entry() {
                if if forward { is_above(entry.key, to) } else { is_below(entry.key, from) } {
                    break;
                }
                if !self.shows_unsure && seen.is_unsure(entry.key) {
                    // A newer version may be lost.
                    seen.withheld += 1;
                } else if !self.store.has_expired(entry.expires_at) {
                    if left == 0 {
                        return Ok(true);
                    }
                    left -= 1;
                    let key = last.get_or_insert_default();
                    key.clear();
                    key.extend_from_slice(entry.key);
                    let terrace_disk::Entry { key, seq, value, expires_at } = entry;
                    if each(key, Entry { value, expires_at, token: seq.into() }).is_break() {
                        return Ok(true);
                    }
                }
                if forward { entries.next()? } else { entries.previous()? }
            }
        }
        Ok(false)
    }

    /// Goes to the first entry of a bucket within the ends, in the range's direction.
    fn enter(
        &self,
        entries: &mut Entries,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<(), ReadError> {
        match (self.direction, from, to) {
            (Direction::Forward, Bound::Unbounded, _) => entries.seek_first()?,
            (Direction::Forward, Bound::Included(key), _) => entries.seek(key)?,
            (Direction::Forward, Bound::Excluded(key), _) => entries.seek(&next_key(key))?,
            (Direction::Backward, _, Bound::Unbounded) => entries.seek_last()?,
            (Direction::Backward, _, Bound::Included(key)) => entries.seek_before(&next_key(key))?,
            (Direction::Backward, _, Bound::Excluded(key)) => entries.seek_before(key)?,
        }
        Ok(())
    }
}

/// Damage that a visit has met.
struct Seen {
    damages: Damages,
    /// Entries that it has not shown for that.
    withheld: u64,
}

impl Seen {
    /// Whether a damaged block may have had a version of `key`.
    fn is_unsure(&self, key: &[u8]) -> bool {
        self.damages.borrow().iter().any(|damage| *damage.keys.0 <= *key && *key <= *damage.keys.1)
    }

    /// The answer of a visit: [`ReadError::Skipped`] if it has met damage.
    fn report(self, visited: Result<bool, ReadError>, last: Option<&[u8]>) -> Result<bool, ReadError> {
        let damages = self.damages.borrow();
        let (Ok(more), Some(first)) = (&visited, damages.first()) else { return visited };
        let next = match last {
            _ if !more => Cursor::END,
            Some(key) => Cursor::after(key),
            None => Cursor::START,
        };
        let (place, what) = place_of(&first.error);
        Err(ReadError::Skipped { records: self.withheld.max(1), place, what, next })
    }
}

/// The first key behind `key`.
fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl RangeCursor for Range<'_> {
    fn visit(
        &mut self,
        at_most: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>) -> ControlFlow<()>,
    ) -> Result<bool, ReadError> {
        if self.is_over || at_most == 0 {
            return Ok(!self.is_over);
        }
        let more = self.visit_some(at_most, each);
        self.is_over = match &more {
            Ok(more) => !more,
            Err(ReadError::Skipped { next, .. }) => next.is_end(),
            Err(_) => true,
        };
        more
    }

    fn position(&self) -> Option<&[u8]> {
        self.position.as_deref()
    }
}

/// The bucket in which a range begins or ends.
fn bucket_at(state: &State, end: Bound<&[u8]>, unbounded: usize) -> usize {
    match end {
        Bound::Included(key) | Bound::Excluded(key) => state.bucket_of(key),
        Bound::Unbounded => unbounded,
    }
}

fn is_above(key: &[u8], to: Bound<&[u8]>) -> bool {
    match to {
        Bound::Included(to) => key > to,
        Bound::Excluded(to) => key >= to,
        Bound::Unbounded => false,
    }
}

fn is_below(key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Included(from) => key < from,
        Bound::Excluded(from) => key <= from,
        Bound::Unbounded => false,
    }
}

/// Whether no key lies between the ends.
fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}
