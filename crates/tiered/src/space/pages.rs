//! Pages: the parts of the pool that blocks fill, and how many of them there may be.
//!
//! The pool has pages and the index. Pages may take what the index does not need; so their limit
//! changes while the index grows.

use super::addresses::{ADDRESS_BITS, BLOCKS_MAX, Map};
use super::numbers::Numbers;
use super::shares::Shares;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use terrace_engine::WriteError;
use terrace_medium::{Dram, MappedMedium, Offset, Word};
use terrace_pool::{Guard, Pool, PoolFull};

/// A block that has pages in DRAM.
pub(crate) struct Resident {
    pub(crate) number: u64,
    /// The table of its pages in the pool.
    pub(super) table: u64,
    pub(super) pages: Box<[Page]>,
    /// Pages that were handed out.
    pub(super) handed: AtomicUsize,
    /// The lowest sequence number in it; `u64::MAX` if it has none.
    pub(super) first_seq: AtomicU64,
    /// Whether the tier has all of it, and whether that is nothing.
    pub(crate) is_sealed: AtomicBool,
    pub(crate) is_empty: AtomicBool,
}

#[derive(Default)]
pub(super) struct Page {
    /// Its place in the pool.
    pub(super) at: AtomicU64,
    /// Its used bytes, once no thread adds to it.
    pub(super) used: AtomicUsize,
}

impl Resident {
    pub(crate) fn first_seq(&self) -> u64 {
        self.first_seq.load(Acquire)
    }

    /// Its pages that are in DRAM.
    pub(crate) fn pages(&self) -> usize {
        self.pages.iter().filter(|page| page.at.load(Relaxed) != 0).count()
    }

    pub(super) fn is_full(&self) -> bool {
        self.handed.load(Relaxed) >= self.pages.len()
    }
}

/// A page that one thread adds to.
pub(super) struct OpenPage {
    pub(super) block: Arc<Resident>,
    pub(super) nth: usize,
    pub(super) at: u64,
    pub(super) used: usize,
}

/// Why there is no room.
pub(crate) enum NoRoom {
    /// All pages are in use: some must be flushed first.
    Pages,
    /// All numbers of blocks are in use.
    Numbers,
}

impl From<PoolFull> for NoRoom {
    fn from(_: PoolFull) -> Self {
        Self::Pages
    }
}

impl NoRoom {
    /// The error of a write that finds no room, however long it waits.
    pub(crate) fn error(&self, wanted: usize, size: u64) -> WriteError {
        WriteError::PoolFull { wanted: wanted as u64, size, longest: None, waiting: 0 }
    }
}

/// The pages of a store. It owns the pool, the map in it, and the numbers of blocks; blocks that
/// fill pages stand above.
pub(crate) struct Pages {
    pub(crate) pool: Pool<Dram>,
    pub(crate) map: Map,
    pub(crate) numbers: Numbers,
    /// Pages that are in use, and that may be.
    used: AtomicUsize,
    limit: AtomicUsize,
    /// Bytes that pages leave to the index beside its share, for now.
    left: AtomicU64,
}

impl Pages {
    /// # Errors
    /// The pool is too small.
    ///
    /// # Panics
    /// If the shares are no powers of two.
    pub(super) fn new(pool: Pool<Dram>, shares: Shares, reader: u64) -> Result<Self, PoolFull> {
        let Shares { page_bytes, block_pages, .. } = shares;
        assert!(page_bytes.is_power_of_two() && block_pages.is_power_of_two(), "powers of two");
        let (page_shift, block_shift) = (page_bytes.ilog2(), shares.block_bytes().ilog2());
        // A small space has no use for a large map.
        let fitting = (pool.size() / 64 / 8).next_power_of_two();
        let blocks = (1 << (ADDRESS_BITS - block_shift)).min(BLOCKS_MAX).min(fitting.max(1 << 10));
        let table = zeroed(&pool.pin(), blocks as usize)?;
        let pages = Self {
            map: Map::new(table, (block_shift, page_shift), reader),
            numbers: Numbers::new(blocks),
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            left: AtomicU64::new(0),
            pool,
        };
        pages.update_limit();
        Ok(pages)
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.map.page_bytes()
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.map.block_bytes()
    }

    pub(crate) fn block_pages(&self) -> usize {
        self.map.block_pages()
    }

    /// Pages that are in use, and that may be.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.limit.load(Relaxed))
    }

    /// Pages that nobody uses.
    pub(crate) fn free_left(&self) -> usize {
        let (used, limit) = self.counts();
        limit.saturating_sub(used)
    }

    /// Pages that are kept free, so that writes need not wait: those of a block, or fewer where a
    /// block is a large part of DRAM.
    pub(crate) fn spare(&self) -> usize {
        self.block_pages().min(self.limit.load(Relaxed) / 8).max(1)
    }

    /// Leaves so many bytes more to the index, until [`Pages::take_back`].
    pub(crate) fn leave_to_index(&self, bytes: u64) {
        self.left.fetch_add(bytes, Relaxed);
        self.update_limit();
    }

    /// Whether pages leave some to the index now, for a write that is under way.
    pub(crate) fn leaves_some(&self) -> bool {
        self.left.load(Relaxed) > 0
    }

    /// Leaves so many bytes less to the index.
    pub(crate) fn take_back(&self, bytes: u64) {
        let before = self.left.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "what is taken back was left");
        self.update_limit();
    }

    /// Looks how many pages there may be: what the index does not need, without a sixteenth for its
    /// growth.
    pub(crate) fn update_limit(&self) {
        let space = self.pool.space();
        let pages = self.used.load(Relaxed) as u64 * self.page_bytes() as u64;
        let other = (space.size - space.free).saturating_sub(pages);
        let left = space.size / 16 + self.left.load(Relaxed);
        let limit = space.size.saturating_sub(other + left) / self.page_bytes() as u64;
        self.limit.store(limit as usize, Relaxed);
    }

    pub(super) fn word(&self, at: u64) -> &Word {
        self.pool.region().at(Offset::<Word>::new(at))
    }

    /// Makes the memory at `at` the next page of a block.
    pub(super) fn hand_out(&self, block: Arc<Resident>, at: u64) -> OpenPage {
        debug_assert!(at != 0 && !block.is_full(), "a page for a block that takes one");
        self.used.fetch_add(1, Relaxed);
        let nth = block.handed.fetch_add(1, Relaxed);
        block.pages[nth].at.store(at, Relaxed);
        // ORDER: Release: pairs with the Acquire of `RecordAt::find`.
        self.word(block.table + 8 * nth as u64).store(self.pool.medium(), at, Release);
        OpenPage { block, nth, at, used: 0 }
    }

    /// Frees the page at `at` of a block. It counts as used until [`Pages::count_freed`].
    pub(super) fn free(&self, guard: &Guard<'_, Dram>, (block, nth): (&Resident, usize), at: u64) {
        debug_assert_eq!(block.pages[nth].at.load(Relaxed), at, "a page is freed once");
        self.word(block.table + 8 * nth as u64).store(self.pool.medium(), 0, Release);
        block.pages[nth].at.store(0, Relaxed);
        guard.retire(at, self.page_bytes());
    }

    pub(super) fn count_freed(&self, pages: usize) {
        let before = self.used.fetch_sub(pages, Relaxed);
        assert!(before >= pages, "pages that are freed were used");
    }

    /// Begins a block without pages.
    pub(super) fn begin_block(&self, guard: &Guard<'_, Dram>, flags: u64) -> Result<Arc<Resident>, NoRoom> {
        let number = self.numbers.take(&self.pool).ok_or(NoRoom::Numbers)?;
        let table = zeroed(guard, self.block_pages()).inspect_err(|_| self.numbers.put_back(number))?;
        self.numbers.dead(number).store(0, Relaxed);
        // ORDER: Release: the pages' table is zero before it can be found.
        self.word(self.map.word(number)).store(self.pool.medium(), table | flags, Release);
        Ok(Arc::new(Resident {
            number,
            table,
            pages: (0..self.block_pages()).map(|_| Page::default()).collect(),
            handed: AtomicUsize::new(0),
            first_seq: AtomicU64::new(u64::MAX),
            is_sealed: AtomicBool::new(false),
            is_empty: AtomicBool::new(false),
        }))
    }

    /// Ends what a block without pages has in DRAM.
    pub(super) fn end_table(&self, guard: &Guard<'_, Dram>, block: &Resident) {
        debug_assert_eq!(block.pages(), 0, "its pages were freed");
        self.word(self.map.word(block.number)).store(self.pool.medium(), 0, Release);
        guard.retire(block.table, 8 * self.block_pages());
    }

    /// A number that no block has.
    pub(crate) fn take_number(&self) -> Option<u64> {
        self.numbers.take(&self.pool)
    }

    /// See [`Numbers::free`].
    pub(crate) fn free_number(&self, number: u64) {
        self.numbers.free(&self.pool, number);
    }
}

/// A new block of so many words, all 0.
fn zeroed<M: MappedMedium>(guard: &Guard<'_, M>, words: usize) -> Result<u64, PoolFull> {
    let fresh = guard.alloc(8 * words)?;
    fresh.write(0, &vec![0; 8 * words]);
    // PERSIST: DRAM, which is lost with the process.
    Ok(fresh.fenced_later().into_offset())
}
