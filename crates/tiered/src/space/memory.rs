//! What a store has in DRAM: an index, and the records that its words name.

use super::addresses::{Map, RecordAt};
use super::copies::Copies;
use super::open_blocks::OpenBlocks;
use super::pages::Pages;
use super::probe::{Kind, ReadCold, Search, note_reader, reader_number};
use super::shares::Shares;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use terrace_engine::{IndexFigures, OpenError, WriteError};
use terrace_engine::{Indexed, Table};
use terrace_index::{PointIndex, Stored};
use terrace_medium::Dram;
use terrace_pool::{Forked, Guard, Pool};

/// What a store has in DRAM: another one after it was cleared. It owns the index and the pages of
/// records, and knows no files.
pub(crate) struct Memory {
    pub(crate) index: Box<dyn Table<Dram>>,
    pub(crate) pages: Pages,
    /// The blocks that writes fill.
    pub(crate) open: OpenBlocks,
    /// Copies of records on the tier.
    pub(crate) copies: Copies,
    /// Whether its index has missed a record when it grew.
    pub(crate) has_failed: Arc<AtomicBool>,
    /// Reads its cold records for the index.
    reader: OnceLock<Arc<dyn ReadCold>>,
}

impl Memory {
    /// Has its index read cold records with `reader`.
    pub(crate) fn read_with(&self, reader: Arc<dyn ReadCold>) {
        note_reader(self.pages.map.reader(), &reader);
        assert!(self.reader.set(reader).is_ok(), "a memory has one reader");
    }

    /// Figures of the index.
    pub(crate) fn index_figures(&self) -> IndexFigures {
        let guard = self.pages.pool.pin();
        let stats = self.index.stats(&guard);
        IndexFigures {
            name: self.index.name(),
            bytes: stats.bytes,
            slots: stats.slots,
            nodes: stats.nodes,
            resizes: stats.resizes,
            resizing: stats.resizing,
            cache: None,
            layers: None,
        }
    }

    /// The bytes of dead records of a block.
    pub(crate) fn dead(&self, block: u64) -> &AtomicU64 {
        self.pages.numbers.dead(block)
    }

    /// The error of a write that finds no room since the index has all of it.
    pub(crate) fn is_full(&self) -> WriteError {
        WriteError::DramFull { keys: self.index.len(), dram: self.pages.pool.size() }
    }
}

/// A thread's stay in a memory: nothing that it sees is reused meanwhile.
pub(crate) struct Here<'m> {
    pub(crate) memory: &'m Memory,
    pub(crate) guard: Guard<'m, Dram>,
    pub(crate) search: Search,
}

impl<'m> Here<'m> {
    #[inline(always)]
    pub(crate) fn enter(memory: &'m Memory) -> Result<Self, Forked> {
        let guard = memory.pages.pool.try_pin()?;
        Ok(Self { memory, guard, search: Search::begin(memory.pages.map) })
    }

    /// The same for probes that consist of the two hashes of a key.
    pub(crate) fn enter_by_hashes(memory: &'m Memory) -> Result<Self, Forked> {
        let guard = memory.pages.pool.try_pin()?;
        Ok(Self { memory, guard, search: Search::by_hashes(memory.pages.map) })
    }

    #[inline(always)]
    pub(crate) fn index(&self) -> &'m dyn Table<Dram> {
        &*self.memory.index
    }

    #[inline(always)]
    pub(crate) fn map(&self) -> Map {
        self.memory.pages.map
    }

    /// The pages, and the guard under which they are looked at.
    #[inline(always)]
    pub(crate) fn pages(&self) -> (&'m Pages, &Guard<'m, Dram>) {
        (&self.memory.pages, &self.guard)
    }

    /// The bytes of dead records of the block that an address lies in.
    pub(crate) fn dead_of(&self, address: u64) -> &'m AtomicU64 {
        self.memory.dead(self.map().block_of(address))
    }

    /// The record at an address, if it lies in DRAM.
    #[inline(always)]
    pub(crate) fn record(&self, address: u64) -> Option<RecordAt> {
        RecordAt::find(&self.guard, self.memory.pages.map, address)
    }
}

/// A memory with an index of the kind `I`, for about so many keys.
pub(crate) fn memory_with<I>(pool: Pool<Dram>, shares: Shares, keys: u64) -> Result<Memory, OpenError>
where
    I: PointIndex<Medium = Dram, Kind = Kind> + Stored<Medium = Dram> + 'static,
{
    // At most half of the memory.
    let index = I::create(&pool, "tiered", keys.min(pool.size() / 32))?;
    let index = Box::new(Indexed { index, ranges: |_: &I| None });
    let pages = Pages::new(pool, shares, reader_number())?;
    let (open, copies) = (OpenBlocks::new(shares.seats), Copies::default());
    Ok(Memory { index, pages, open, copies, has_failed: Arc::default(), reader: OnceLock::new() })
}
