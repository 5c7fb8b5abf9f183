//! Places in a table, which go both ways.

use super::block::{Block, BlockCursor};
use super::partition::Partition;
use super::piece::Place;
use super::reader::TableReader;
use crate::DiskError;
use crate::item::Item;
use crate::source::Source;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that a cursor for a merge reads at a time.
const AHEAD: u64 = 256 << 10;

/// A place in a table: at an item, or at an end. After an error it is at an end.
pub struct TableCursor<'t> {
    table: Table<'t>,
    /// The partition, its number, and the number of the block in it.
    partition: Option<(Arc<Partition>, usize)>,
    /// The number of the partition that was entered last, even if it could not be read.
    entered: usize,
    block: usize,
    items: Option<BlockCursor<Arc<Block>>>,
    /// `None` if it reads through the cache.
    ahead: Option<Ahead>,
}

enum Table<'t> {
    Borrowed(&'t TableReader),
    Shared(Arc<TableReader>),
}

impl Deref for Table<'_> {
    type Target = TableReader;

    fn deref(&self) -> &TableReader {
        match self {
            Self::Borrowed(table) => table,
            Self::Shared(table) => table,
        }
    }
}

/// Blocks that were read ahead, and where they lie.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    offset: u64,
}

impl Ahead {
    fn get(&self, place: Place) -> Option<&[u8]> {
        let start = usize::try_from(place.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..)?.get(..place.bytes as usize)
    }
}

/// Where to begin in a block.
#[derive(Clone, Copy)]
enum Begin<'k> {
    First,
    Last,
    At(&'k [u8], u64),
}

impl TableReader {
    /// A cursor, at an end.
    pub fn cursor(&self) -> TableCursor<'_> {
        TableCursor::new(Table::Borrowed(self), None)
    }

    /// A cursor that keeps the table, at an end.
    pub fn shared_cursor(self: &Arc<Self>) -> TableCursor<'static> {
        TableCursor::new(Table::Shared(self.clone()), None)
    }

    /// A cursor for a caller that reads the whole table forward, at an end. It keeps the table,
    /// reads far ahead, and leaves the cache to others.
    pub fn cursor_for_merge(self: &Arc<Self>) -> TableCursor<'static> {
        TableCursor::new(Table::Shared(self.clone()), Some(Ahead::default()))
    }
}

impl Source for TableCursor<'_> {
    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        self.items.as_ref().and_then(BlockCursor::item)
    }

    fn seek_first(&mut self) -> Result<(), DiskError> {
        self.enter_partition(0, Begin::First)
    }

    fn seek_last(&mut self) -> Result<(), DiskError> {
        self.enter_partition(self.table.top().len().wrapping_sub(1), Begin::Last)
    }

    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        let nth = self.table.top().find(key, seq);
        self.enter_partition(nth, Begin::At(key, seq))?;
        // The block may end before the key that separates it from the next one.
        if self.items.is_some() && self.item().is_none() { self.next_block() } else { Ok(()) }
    }

    #[inline]
    fn next(&mut self) -> Result<(), DiskError> {
        let Some(items) = &mut self.items else { return Ok(()) };
        items.next();
        if items.is_at_item() { Ok(()) } else { self.check().and_then(|()| self.next_block()) }
    }

    fn previous(&mut self) -> Result<(), DiskError> {
        let Some(items) = &mut self.items else { return Ok(()) };
        items.previous();
        self.check()?;
        if self.item().is_some() {
            return Ok(());
        }
        match (self.block, &self.partition) {
            (0, Some((_, 0)) | None) => {
                self.items = None;
                Ok(())
            }
            (0, Some((_, nth))) => self.enter_partition(nth - 1, Begin::Last),
            (block, _) => self.enter_block(block - 1, Begin::Last),
        }
    }
}

impl<'t> TableCursor<'t> {
    fn new(table: Table<'t>, ahead: Option<Ahead>) -> Self {
        Self { table, partition: None, entered: 0, block: 0, items: None, ahead }
    }

    /// Goes on behind the block or the partition in which an error has ended this cursor, or before
    /// it.
    ///
    /// # Errors
    /// The next one cannot be read either.
    pub fn pass_damage(&mut self, is_forward: bool) -> Result<(), DiskError> {
        match (is_forward, &self.partition, self.block, self.entered) {
            (true, Some(_), ..) => self.next_block(),
            (true, None, _, nth) => self.enter_partition(nth + 1, Begin::First),
            (false, Some(_), 1.., _) => self.enter_block(self.block - 1, Begin::Last),
            (false, _, _, 0) => {
                self.items = None;
                Ok(())
            }
            (false, _, _, nth) => self.enter_partition(nth - 1, Begin::Last),
        }
    }

    /// The keys that may have versions in the block or the partition in which an error has ended
    /// this cursor: from the first on, up to the second and with it.
    pub fn damaged_keys(&self) -> (Vec<u8>, Vec<u8>) {
        let top = self.table.top();
        let before = self.entered.checked_sub(1).map(|before| top.key(before).0);
        let (low, high) = match &self.partition {
            Some((partition, _)) => {
                let before = self.block.checked_sub(1).map(|nth| partition.blocks.key(nth).0).or(before);
                (before, Some(partition.blocks.key(self.block).0))
            }
            None => (before, (self.entered < top.len()).then(|| top.key(self.entered).0)),
        };
        (low.unwrap_or_default().to_vec(), high.unwrap_or_default().to_vec())
    }

    fn next_block(&mut self) -> Result<(), DiskError> {
        let Some((partition, nth)) = &self.partition else { return Ok(()) };
        match self.block + 1 {
            next if next < partition.blocks.len() => self.enter_block(next, Begin::First),
            _ => self.enter_partition(nth + 1, Begin::First),
        }
    }

    fn enter_partition(&mut self, nth: usize, begin: Begin<'_>) -> Result<(), DiskError> {
        (self.partition, self.items, self.entered) = (None, None, nth);
        let Some(place) = self.table.top().place(nth) else { return Ok(()) };
        let partition = match self.ahead {
            None => self.table.partition(nth)?,
            Some(_) => Some(Arc::new(self.table.read_partition(place)?)),
        };
        let Some(partition) = partition else { return Ok(()) };
        let block = match begin {
            Begin::First => 0,
            Begin::Last => partition.blocks.len().wrapping_sub(1),
            Begin::At(key, seq) => partition.blocks.find(key, seq),
        };
        if block >= partition.blocks.len() {
            // The top says that there is one.
            return Err(self.table.pieces().corrupt(place.offset, "a partition lacks a block"));
        }
        self.partition = Some((partition, nth));
        self.enter_block(block, begin)
    }

    fn enter_block(&mut self, block: usize, begin: Begin<'_>) -> Result<(), DiskError> {
        (self.block, self.items) = (block, None);
        let mut items = BlockCursor::new(self.read_block(begin)?);
        match begin {
            Begin::First => items.seek_first(),
            Begin::Last => items.seek_last(),
            Begin::At(key, seq) => items.seek(key, seq),
        }
        let is_empty = !items.is_at_item() && !matches!(begin, Begin::At(..));
        self.items = Some(items);
        self.check()?;
        if is_empty { Err(self.end("a block has no items")) } else { Ok(()) }
    }

    /// The present block.
    fn read_block(&mut self, begin: Begin<'_>) -> Result<Arc<Block>, DiskError> {
        let place = self.place();
        let bytes = match (&self.ahead, begin) {
            (None, _) => return self.table.block(place),
            (Some(ahead), _) if ahead.get(place).is_some() => 0,
            // Going backward, what follows was read before.
            (Some(_), Begin::Last) => place.bytes.into(),
            (Some(_), _) => self.bytes_ahead(),
        };
        let (pieces, ahead) = (self.table.pieces(), self.ahead.get_or_insert_default());
        if bytes > 0 {
            ahead.offset = place.offset;
            pieces.read_raw(place.offset, bytes, &mut ahead.bytes).inspect_err(|_| ahead.bytes.clear())?;
        }
        let too_short = || pieces.corrupt(place.offset, "a part of a table is too short");
        let piece = ahead.get(place).ok_or_else(too_short)?;
        self.table.block_of(pieces.unpack(piece, place)?.into(), place)
    }

    /// Bytes of the present block and of those that lie behind it, up to a bound.
    fn bytes_ahead(&self) -> u64 {
        let Some((partition, _)) = &self.partition else { return 0 };
        let mut places = (self.block..).map_while(|nth| partition.blocks.place(nth));
        let first = places.next().unwrap_or_default();
        let mut end = first.offset.saturating_add(first.bytes.into());
        for next in places {
            let next_end = end.saturating_add(next.bytes.into());
            if next.offset != end || next_end - first.offset > AHEAD {
                break;
            }
            end = next_end;
        }
        end - first.offset
    }

    /// Where the present block lies.
    fn place(&self) -> Place {
        let place = self.partition.as_ref().and_then(|(partition, _)| partition.blocks.place(self.block));
        place.unwrap_or_default()
    }

    /// Ends the cursor if the block has an item that cannot be read.
    fn check(&mut self) -> Result<(), DiskError> {
        match self.items.as_ref().is_some_and(BlockCursor::is_damaged) {
            true => Err(self.end("an item of a block is incomplete")),
            false => Ok(()),
        }
    }

    /// Ends the cursor at damage in the present block.
    fn end(&mut self, what: &'static str) -> DiskError {
        self.items = None;
        self.table.pieces().corrupt(self.place().offset, what)
    }
}
