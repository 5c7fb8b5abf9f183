//! The space: addresses of records, which never change while a record moves between DRAM and tier.
//!
//! An address is the number of a *block* and an offset in it. A block is a run of addresses that
//! goes to the tier as a whole. In DRAM it has *pages*, blocks of the pool in which the index lies;
//! a table in the pool maps blocks to the tables of their pages:
//!
//! ```text
//!   address   [43:shift] block  [shift-1:0] offset, a multiple of eight
//!   map       a word a block: the table of its pages | flags; 0 if the block has no pages
//!   pages     a word a page: its place in the pool; 0 if it is not in DRAM
//! ```
//! Blocks of DRAM go through three regions in the order in which they began (section 4.1 of the
//! paper): open to changes in place; closed, and in DRAM as well as on the tier; on the tier alone.
//!
//! Threads take whole pages (section 5.4): there are as many *seats* as may write at once, each
//! with an open page. A flusher that needs a page takes it from its seat, so an idle thread keeps
//! nothing (the paper's alarm is looked at only by a thread that writes).

use crate::space::record::{Copied, HEADER, Shape, VERSION_BITS};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_engine::WriteError;
use terrace_medium::{Dram, MappedMedium, Offset, Word};
use terrace_pool::{Guard, Pool, PoolFull};

/// Flag of a block that takes no changes in place.
const CLOSED: u64 = 1;
/// Flag of a block that has copies of records on the tier.
pub(crate) const CACHE: u64 = 2;
const FLAGS: u64 = 7;
/// Addresses end here: an index has room for so many.
const ADDRESS_BITS: u32 = 44;
/// Blocks that a space has at most.
const BLOCKS_MAX: u64 = 1 << 18;

/// In word 2 of a copy: it was read since it was made. The rest of its upper half is its room.
const TOUCHED: u64 = 1 << 63;

/// Where the map lies, and how addresses are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    table: u64,
    block_shift: u32,
    page_shift: u32,
    /// The number of the reader of its cold records.
    reader: u64,
}

impl Map {
    pub(crate) fn reader(self) -> u64 {
        self.reader
    }

    #[inline(always)]
    pub(crate) fn block_of(self, address: u64) -> u64 {
        address >> self.block_shift
    }

    #[inline(always)]
    pub(crate) fn offset_of(self, address: u64) -> u64 {
        address & ((1 << self.block_shift) - 1)
    }

    pub(crate) fn address(self, block: u64, offset: u64) -> u64 {
        block << self.block_shift | offset
    }

    fn word(self, block: u64) -> u64 {
        self.table + 8 * block
    }
}

/// A record in DRAM.
#[derive(Clone, Copy)]
pub(crate) struct RecordAt {
    at: u64,
    flags: u64,
}

impl RecordAt {
    /// The record at an address, if it lies in DRAM.
    #[inline(always)]
    pub(crate) fn find<M: MappedMedium>(guard: &Guard<'_, M>, map: Map, address: u64) -> Option<Self> {
        let region = guard.pool().region();
        let load = |at: u64| {
            // ORDER: Acquire: pairs with the Release of `Space::take_page` and of those that free.
            // A page that is freed meanwhile keeps its content: this thread is pinned.
            Some(region.get(Offset::<Word>::new(at))?.load(region.medium(), Acquire))
        };
        let block = load(map.word(map.block_of(address)))?;
        let pages = block & !FLAGS;
        if pages == 0 {
            return None;
        }
        let offset = map.offset_of(address);
        let page = load(pages + 8 * (offset >> map.page_shift))?;
        let at = page + (offset & ((1 << map.page_shift) - 1));
        (page != 0).then_some(Self { at, flags: block & FLAGS })
    }

    /// Its place in the pool.
    pub(crate) fn at(self) -> u64 {
        self.at
    }

    /// Whether it may be changed in place.
    pub(crate) fn is_open(self) -> bool {
        self.flags & (CLOSED | CACHE) == 0
    }

    /// Whether it is a copy of a record on the tier.
    pub(crate) fn is_copy(self) -> bool {
        self.flags & CACHE != 0
    }

    #[inline(always)]
    fn word<'g, M: MappedMedium>(self, guard: &'g Guard<'_, M>, nth: usize) -> &'g Word {
        guard.pool().region().at(Offset::<Word>::new(self.at + 8 * nth as u64))
    }

    /// The hash and the key.
    #[inline(always)]
    pub(crate) fn probe<'g, M: MappedMedium>(self, guard: &'g Guard<'_, M>) -> Option<&'g [u8]> {
        // ORDER: Relaxed: the index's word, or the lock of the stripe, came first. The parts of the
        // shape that decide here never change.
        let shape = Shape::decode(self.word(guard, 0).load(guard.pool().medium(), Relaxed))?;
        guard.bytes(self.at + shape.probe_at() as u64, 8 + shape.key_len)
    }

    /// The address of the record on the tier that this is a copy of.
    pub(crate) fn original<M: MappedMedium>(self, guard: &Guard<'_, M>) -> u64 {
        let before = Offset::<Word>::new(self.at - 8);
        guard.pool().region().at(before).load(guard.pool().medium(), Relaxed)
    }

    /// Its parts; the value is copied. `None` while it is written: it will be another version soon.
    #[inline(always)]
    pub(crate) fn read<M: MappedMedium>(self, guard: &Guard<'_, M>) -> Option<Copied> {
        let medium = guard.pool().medium();
        // ORDER: Acquire, all of them, in this order: what was loaded belongs together if the
        // version is the same before and after, as every store of a writer is Release.
        let before = self.word(guard, 1).load(medium, Acquire);
        if before & 1 != 0 {
            return None;
        }
        let shape = Shape::decode(self.word(guard, 0).load(medium, Acquire))?;
        let expires_at = shape.expires.then(|| self.word(guard, HEADER / 8).load(medium, Acquire));
        let len = shape.inline_len();
        let mut inline = Vec::with_capacity(len.next_multiple_of(8));
        let first = shape.value_at() / 8;
        for nth in first..first + len.div_ceil(8) {
            let word = guard.pool().region().get(Offset::<Word>::new(self.at + 8 * nth as u64))?;
            inline.extend_from_slice(&word.load(medium, Acquire).to_le_bytes());
        }
        inline.truncate(len);
        let after = self.word(guard, 1).load(medium, Acquire);
        (before == after).then_some(Copied { shape, seq: before >> VERSION_BITS, expires_at, inline })
    }

    /// When it expires. `None` while it is written.
    pub(crate) fn read_head<M: MappedMedium>(self, guard: &Guard<'_, M>) -> Option<Option<u64>> {
        let medium = guard.pool().medium();
        let before = self.word(guard, 1).load(medium, Acquire);
        let shape = Shape::decode(self.word(guard, 0).load(medium, Acquire))?;
        let expires_at = shape.expires.then(|| self.word(guard, HEADER / 8).load(medium, Acquire));
        let is_same = before & 1 == 0 && before == self.word(guard, 1).load(medium, Acquire);
        is_same.then_some(expires_at)
    }

    /// Its shape and its sequence number. Under the lock of its stripe, or in a closed block.
    pub(crate) fn head<M: MappedMedium>(self, guard: &Guard<'_, M>) -> (Shape, u64) {
        let medium = guard.pool().medium();
        let shape = Shape::decode(self.word(guard, 0).load(medium, Relaxed)).expect("a record in DRAM");
        (shape, self.word(guard, 1).load(medium, Relaxed) >> VERSION_BITS)
    }

    /// The bytes that it has room for.
    pub(crate) fn room<M: MappedMedium>(self, guard: &Guard<'_, M>) -> usize {
        8 * (self.word(guard, 2).load(guard.pool().medium(), Relaxed) << 1 >> 33) as usize
    }

    /// Notes that a copy was read. Most reads find that noted, and store nothing.
    #[inline(always)]
    pub(crate) fn touch<M: MappedMedium>(self, guard: &Guard<'_, M>) {
        let (word, medium) = (self.word(guard, 2), guard.pool().medium());
        // ORDER: Relaxed: a hint. Nothing else changes the word of a copy.
        let now = word.load(medium, Relaxed);
        if now & TOUCHED == 0 {
            word.store(medium, now | TOUCHED, Relaxed);
        }
    }

    /// Whether a copy was read.
    pub(crate) fn is_touched<M: MappedMedium>(self, guard: &Guard<'_, M>) -> bool {
        self.word(guard, 2).load(guard.pool().medium(), Relaxed) & TOUCHED != 0
    }

    /// Whether it is being written.
    pub(crate) fn is_locked<M: MappedMedium>(self, guard: &Guard<'_, M>) -> bool {
        self.word(guard, 1).load(guard.pool().medium(), Acquire) & 1 != 0
    }

    /// Stores a record where none is, or in the place of an earlier version of the key that has
    /// room for it. Readers wait for [`RecordAt::unlock`]. Called under the lock of its stripe.
    pub(crate) fn store_locked<M: MappedMedium>(self, guard: &Guard<'_, M>, bytes: &[u8], is_new: bool) {
        let medium = guard.pool().medium();
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("whole words"));
        let version = if is_new { 0 } else { self.word(guard, 1).load(medium, Relaxed) & 0xfffe };
        // ORDER: Release, all of them: see `read`.
        self.word(guard, 1).store(medium, version | 1, Release);
        let room = if is_new { bytes.len() } else { self.room(guard) };
        self.word(guard, 0).store(medium, word(0), Release);
        self.word(guard, 2).store(medium, word(16) & u64::from(u32::MAX) | (room as u64 / 8) << 32, Release);
        let first = if is_new {
            HEADER
        } else {
            // Its probe stays as it is.
            let shape = Shape::decode(word(0)).expect("made just now");
            if shape.expires {
                self.word(guard, HEADER / 8).store(medium, word(HEADER), Release);
            }
            shape.value_at()
        };
        for at in (first..bytes.len()).step_by(8) {
            self.word(guard, at / 8).store(medium, word(at), Release);
        }
    }

    /// Ends what [`RecordAt::store_locked`] has begun.
    pub(crate) fn unlock<M: MappedMedium>(self, guard: &Guard<'_, M>, seq: u64) {
        let medium = guard.pool().medium();
        let version = self.word(guard, 1).load(medium, Relaxed).wrapping_add(1) & 0xfffe;
        // ORDER: Release: pairs with the Acquire of `read`.
        self.word(guard, 1).store(medium, seq << VERSION_BITS | version, Release);
    }

    /// Appends its bytes as they go to the tier. In a closed block only.
    pub(crate) fn copy_to<M: MappedMedium>(self, guard: &Guard<'_, M>, out: &mut Vec<u8>) {
        let (shape, start) = (self.head(guard).0, out.len());
        let bytes = guard.bytes(self.at, shape.size()).expect("a record lies in the pool");
        out.extend_from_slice(bytes);
        // The version and the room that it had are of no use there.
        out[start + 8..start + 10].fill(0);
        let words = (shape.size() as u32 / 8).to_le_bytes();
        out[start + 20..start + 24].copy_from_slice(&words);
    }
}

/// A block that has pages in DRAM.
pub(crate) struct Resident {
    pub(crate) number: u64,
    /// The table of its pages in the pool.
    table: u64,
    pages: Box<[Page]>,
    /// Pages that were handed out.
    handed: AtomicUsize,
    /// The lowest sequence number in it; `u64::MAX` if it has none.
    first_seq: AtomicU64,
    /// Whether the tier has all of it, and whether that is nothing.
    pub(crate) is_sealed: AtomicBool,
    pub(crate) is_empty: AtomicBool,
}

#[derive(Default)]
struct Page {
    /// Its place in the pool.
    at: AtomicU64,
    /// Its used bytes, once no thread adds to it.
    used: AtomicUsize,
}

impl Resident {
    pub(crate) fn first_seq(&self) -> u64 {
        self.first_seq.load(Acquire)
    }

    /// Its pages that are in DRAM.
    pub(crate) fn pages(&self) -> usize {
        self.pages.iter().filter(|page| page.at.load(Relaxed) != 0).count()
    }

    fn is_full(&self) -> bool {
        self.handed.load(Relaxed) >= self.pages.len()
    }
}

/// A page that a seat adds to.
struct OpenPage {
    block: Arc<Resident>,
    nth: usize,
    at: u64,
    used: usize,
}

/// Pages of copies.
#[derive(Default)]
struct Copies {
    /// The page that takes copies.
    open: Option<OpenPage>,
    /// The block whose pages are handed out.
    block: Option<Arc<Resident>>,
    /// Pages that are full, the oldest first.
    full: VecDeque<CopyPage>,
}

/// A page of copies that takes no more.
pub(crate) struct CopyPage(OpenPage);

/// Room for a record.
pub(crate) struct Room {
    pub(crate) address: u64,
    pub(crate) record: RecordAt,
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

/// Numbers of blocks.
#[derive(Default)]
struct Numbers {
    next: u64,
    /// Numbers that come back, and the pool's epoch since which nobody can come to see them.
    free: VecDeque<(u64, u64)>,
}

/// The space of a store, and its pages in DRAM.
pub(crate) struct Space {
    pub(crate) pool: Pool<Dram>,
    pub(crate) map: Map,
    blocks: u64,
    seats: Box<[Mutex<Option<OpenPage>>]>,
    /// Blocks with pages, the oldest first. The last one may hand out more.
    residents: Mutex<VecDeque<Arc<Resident>>>,
    numbers: Mutex<Numbers>,
    copies: Mutex<Copies>,
    /// Pages of copies.
    copy_pages: AtomicUsize,
    /// Pages that are in use, and that may be.
    used: AtomicUsize,
    limit: AtomicUsize,
    /// Bytes that pages leave to the index beside its share, for now.
    left: AtomicU64,
    /// Bytes of dead records by block.
    dead: Box<[AtomicU64]>,
}

/// How a space divides its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes of a page: a power of two.
    pub page_bytes: u64,
    /// Pages of a block: a power of two.
    pub block_pages: u64,
    /// Threads that add records at once, each to a page of its own.
    pub seats: usize,
}

impl Shares {
    /// The shares of so many bytes of DRAM: pages of a MiB and blocks of a sixteenth where there is
    /// enough for that.
    pub fn of(dram: u64) -> Self {
        // A page has room for the longest key.
        let page_bytes = (dram / 256).next_power_of_two().clamp(128 << 10, 1 << 20);
        let block = (dram / 16).next_power_of_two().clamp(4 * page_bytes, 1 << 30);
        let seats = (dram / 32 / page_bytes).clamp(1, 32) as usize;
        Self { page_bytes, block_pages: block / page_bytes, seats }
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.page_bytes * self.block_pages
    }

    /// The same for blocks of so many bytes.
    pub(crate) fn with_block(self, bytes: u64) -> Self {
        let page_bytes = self.page_bytes.min(bytes);
        Self { page_bytes, block_pages: bytes / page_bytes, ..self }
    }
}

impl Space {
    /// # Errors
    /// The pool is too small.
    ///
    /// # Panics
    /// If the shares are no powers of two.
    pub(crate) fn new(pool: Pool<Dram>, shares: Shares, reader: u64) -> Result<Self, PoolFull> {
        let Shares { page_bytes, block_pages, seats } = shares;
        assert!(page_bytes.is_power_of_two() && block_pages.is_power_of_two(), "powers of two");
        let (page_shift, block_shift) = (page_bytes.ilog2(), shares.block_bytes().ilog2());
        // A small space has no use for a large map.
        let fitting = (pool.size() / 64 / 8).next_power_of_two();
        let blocks = (1 << (ADDRESS_BITS - block_shift)).min(BLOCKS_MAX).min(fitting.max(1 << 10));
        let table = zeroed(&pool.pin(), blocks as usize)?;
        let space = Self {
            map: Map { table, block_shift, page_shift, reader },
            blocks,
            seats: (0..seats).map(|_| Mutex::default()).collect(),
            residents: Mutex::default(),
            // No record has address 0.
            numbers: Mutex::new(Numbers { next: 1, free: VecDeque::new() }),
            copies: Mutex::default(),
            copy_pages: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            left: AtomicU64::new(0),
            dead: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            pool,
        };
        space.update_limit();
        Ok(space)
    }

    fn residents(&self) -> MutexGuard<'_, VecDeque<Arc<Resident>>> {
        self.residents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn page_bytes(&self) -> usize {
        1 << self.map.page_shift
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        1 << self.map.block_shift
    }

    pub(crate) fn block_pages(&self) -> usize {
        1 << (self.map.block_shift - self.map.page_shift)
    }

    /// How many numbers of blocks there are.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Pages that are in use, and that may be.
    pub(crate) fn pages(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.limit.load(Relaxed))
    }

    /// Pages that nobody uses.
    pub(crate) fn free_pages_left(&self) -> usize {
        let (used, limit) = self.pages();
        limit.saturating_sub(used)
    }

    /// Pages that are kept free, so that writes need not wait: those of a block, or fewer where a
    /// block is a large part of DRAM.
    pub(crate) fn spare_pages(&self) -> usize {
        self.block_pages().min(self.limit.load(Relaxed) / 8).max(1)
    }

    /// Leaves so many bytes more to the index, until [`Space::take_back`].
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
        self.left.fetch_sub(bytes, Relaxed);
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

    /// The bytes of dead records of a block.
    pub(crate) fn dead(&self, block: u64) -> &AtomicU64 {
        &self.dead[block as usize]
    }

    /// Takes room for a record of so many bytes, whose number the log does not have yet.
    pub(crate) fn take(&self, guard: &Guard<'_, Dram>, bytes: usize, seq: u64) -> Result<Room, NoRoom> {
        assert!(bytes <= self.page_bytes() && bytes.is_multiple_of(8), "a record fits into a page");
        let mut seat = self.seat();
        loop {
            if let Some(page) = &mut *seat
                && page.used + bytes <= self.page_bytes()
            {
                let offset = (page.nth << self.map.page_shift) as u64 + page.used as u64;
                let at = page.at + page.used as u64;
                page.used += bytes;
                // ORDER: Release: pairs with the Acquire of `Resident::first_seq`.
                page.block.first_seq.fetch_min(seq, Release);
                let address = self.map.address(page.block.number, offset);
                return Ok(Room { address, record: RecordAt { at, flags: 0 } });
            }
            Self::leave(&mut seat);
            *seat = Some(self.take_page(guard)?);
        }
    }

    /// A seat that no other thread sits in, from this thread's own on.
    fn seat(&self) -> MutexGuard<'_, Option<OpenPage>> {
        let own = crate::space::stripes::thread_number() % self.seats.len();
        let others = (0..self.seats.len()).map(|nth| &self.seats[(own + nth) % self.seats.len()]);
        let free = others.into_iter().find_map(|seat| seat.try_lock().ok());
        free.unwrap_or_else(|| self.seats[own].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends a page: nothing is added to it.
    fn leave(seat: &mut Option<OpenPage>) {
        if let Some(page) = seat.take() {
            page.block.pages[page.nth].used.store(page.used, Release);
        }
    }

    fn take_page(&self, guard: &Guard<'_, Dram>) -> Result<OpenPage, NoRoom> {
        let mut residents = self.residents();
        let (used, limit) = self.pages();
        if used.is_multiple_of(16) {
            self.update_limit();
        }
        if used >= limit {
            return Err(NoRoom::Pages);
        }
        let page = guard.alloc(self.page_bytes())?;
        let block = match residents.back() {
            Some(last) if !last.is_full() => Arc::clone(last),
            _ => {
                let block = self.begin_block(guard, 0)?;
                residents.push_back(Arc::clone(&block));
                block
            }
        };
        // PERSIST: DRAM, which is lost with the process.
        Ok(self.hand_out(block, page.fenced_later().into_offset()))
    }

    /// Makes the memory at `at` the next page of a block.
    fn hand_out(&self, block: Arc<Resident>, at: u64) -> OpenPage {
        self.used.fetch_add(1, Relaxed);
        let nth = block.handed.fetch_add(1, Relaxed);
        block.pages[nth].at.store(at, Relaxed);
        // ORDER: Release: pairs with the Acquire of `RecordAt::find`.
        self.word(block.table + 8 * nth as u64).store(self.pool.medium(), at, Release);
        OpenPage { block, nth, at, used: 0 }
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages of copies.
    pub(crate) fn copy_pages(&self) -> usize {
        self.copy_pages.load(Relaxed)
    }

    /// Takes room for a copy of the record at the address `original`, in at most so many pages, and
    /// has it filled. No page is dropped meanwhile: a page in the list has whole copies only.
    pub(crate) fn copy_with(
        &self,
        guard: &Guard<'_, Dram>,
        (bytes, original): (usize, u64),
        most: usize,
        fill: impl FnOnce(&Room),
    ) -> Result<(), NoRoom> {
        let mut copies = self.copies();
        if copies.open.as_ref().is_none_or(|page| page.used + 8 + bytes > self.page_bytes()) {
            let (used, limit) = self.pages();
            if used >= limit || self.copy_pages() >= most {
                return Err(NoRoom::Pages);
            }
            let page = guard.alloc(self.page_bytes())?;
            let block = match copies.block.take() {
                Some(block) if !block.is_full() => block,
                _ => self.begin_block(guard, CACHE)?,
            };
            // PERSIST: DRAM, which is lost with the process.
            let open = self.hand_out(Arc::clone(&block), page.fenced_later().into_offset());
            copies.block = Some(block);
            self.copy_pages.fetch_add(1, Relaxed);
            let full = copies.open.replace(open);
            copies.full.extend(full.map(CopyPage));
        }
        let page = copies.open.as_mut().expect("just taken");
        let offset = page.used as u64 + 8;
        let at = page.at + offset;
        page.used += 8 + bytes;
        self.word(at - 8).store(self.pool.medium(), original, Relaxed);
        let place = ((page.nth as u64) << self.map.page_shift) + offset;
        let address = self.map.address(page.block.number, place);
        fill(&Room { address, record: RecordAt { at, flags: CACHE } });
        Ok(())
    }

    /// Takes the oldest page of copies out of the list, so that the caller drops it.
    pub(crate) fn oldest_copies(&self) -> Option<CopyPage> {
        let mut copies = self.copies();
        let full = copies.full.pop_front();
        full.or_else(|| copies.open.take().map(CopyPage))
    }

    /// The copies in a page that takes no more, and their addresses.
    pub(crate) fn copies_in(&self, guard: &Guard<'_, Dram>, page: &CopyPage) -> Vec<(u64, RecordAt)> {
        let CopyPage(page) = page;
        let (mut copies, mut offset) = (Vec::new(), 8);
        while offset < page.used {
            let record = RecordAt { at: page.at + offset as u64, flags: CACHE };
            let place = ((page.nth as u64) << self.map.page_shift) + offset as u64;
            copies.push((self.map.address(page.block.number, place), record));
            offset += record.room(guard) + 8;
        }
        copies
    }

    /// Frees a page of copies that no word of the index names any more.
    pub(crate) fn free_copies(&self, guard: &Guard<'_, Dram>, page: CopyPage) {
        let CopyPage(OpenPage { block, nth, at, .. }) = page;
        self.word(block.table + 8 * nth as u64).store(self.pool.medium(), 0, Release);
        block.pages[nth].at.store(0, Relaxed);
        guard.retire(at, self.page_bytes());
        self.used.fetch_sub(1, Relaxed);
        self.copy_pages.fetch_sub(1, Relaxed);
        let _copies = self.copies();
        if block.is_full() && block.pages() == 0 {
            self.word(self.map.word(block.number)).store(self.pool.medium(), 0, Release);
            guard.retire(block.table, 8 * self.block_pages());
            self.free_number(block.number);
        }
    }

    fn word(&self, at: u64) -> &Word {
        self.pool.region().at(Offset::<Word>::new(at))
    }

    fn begin_block(&self, guard: &Guard<'_, Dram>, flags: u64) -> Result<Arc<Resident>, NoRoom> {
        let number = self.take_number().ok_or(NoRoom::Numbers)?;
        let table =
            zeroed(guard, self.block_pages()).inspect_err(|_| self.numbers().free.push_front((number, 0)))?;
        self.dead(number).store(0, Relaxed);
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

    /// A number that no block has, and that no reader can take for an earlier block's.
    pub(crate) fn take_number(&self) -> Option<u64> {
        let mut numbers = self.numbers();
        // Those that come back first, so that few are in use.
        let is_over = |&(_, epoch): &(u64, u64)| epoch == 0 || self.pool.is_grace_period_over(epoch);
        if numbers.free.front().is_some_and(is_over) {
            return numbers.free.pop_front().map(|(number, _)| number);
        }
        let fresh = numbers.next;
        numbers.next += u64::from(fresh < self.blocks);
        (fresh < self.blocks).then_some(fresh)
    }

    /// All blocks have lower numbers.
    pub(crate) fn numbers_end(&self) -> u64 {
        self.numbers().next
    }

    /// Notes that a block has this number: when the store is opened.
    pub(crate) fn use_number(&self, number: u64) {
        let mut numbers = self.numbers();
        let next = numbers.next;
        numbers.free.extend((next..number).map(|number| (number, 0)));
        numbers.free.retain(|(free, _)| *free != number);
        numbers.next = next.max(number + 1);
    }

    /// Gives a number back, once no word of the index has an address of it any more, and it has no
    /// pages.
    pub(crate) fn free_number(&self, number: u64) {
        self.dead(number).store(0, Relaxed);
        let epoch = self.pool.epoch();
        self.numbers().free.push_back((number, epoch));
    }

    /// The blocks with pages, the oldest first.
    pub(crate) fn resident_blocks(&self) -> Vec<Arc<Resident>> {
        self.residents().iter().cloned().collect()
    }

    /// The lowest sequence number that the tier may not have.
    pub(crate) fn first_unsealed_seq(&self) -> u64 {
        let residents = self.residents();
        let open = residents.iter().filter(|block| !block.is_sealed.load(Acquire));
        open.map(|block| block.first_seq()).min().unwrap_or(u64::MAX)
    }

    /// Closes a block: from now on it takes no new records, and no changes in place but those that
    /// have begun under the lock of a stripe.
    pub(crate) fn close_block(&self, block: &Resident) {
        {
            // No page of it is handed out any more.
            let _residents = self.residents();
            block.handed.fetch_max(self.block_pages(), Relaxed);
        }
        for seat in &self.seats {
            let mut seat = seat.lock().unwrap_or_else(PoisonError::into_inner);
            if seat.as_ref().is_some_and(|page| page.block.number == block.number) {
                Self::leave(&mut seat);
            }
        }
        let word = self.word(self.map.word(block.number));
        // ORDER: Release; the caller passes all stripes before it relies on it.
        word.store(self.pool.medium(), block.table | CLOSED, Release);
    }

    /// The addresses of all records of a closed block, in order.
    pub(crate) fn records_of(&self, guard: &Guard<'_, Dram>, block: &Resident) -> Vec<(u64, RecordAt)> {
        let mut records = Vec::new();
        for (nth, page) in block.pages.iter().enumerate() {
            let (at, used) = (page.at.load(Acquire), page.used.load(Acquire));
            let mut offset = 0;
            while at != 0 && offset < used {
                let record = RecordAt { at: at + offset as u64, flags: CLOSED };
                let place = (nth << self.map.page_shift) as u64 + offset as u64;
                records.push((self.map.address(block.number, place), record));
                offset += record.room(guard);
            }
        }
        records
    }

    /// Frees the pages of the oldest sealed block, so many at most. Returns how many.
    pub(crate) fn free_pages(&self, guard: &Guard<'_, Dram>, most: usize) -> usize {
        let mut residents = self.residents();
        let oldest = residents.iter().position(|block| block.is_sealed.load(Acquire));
        oldest.map_or(0, |place| self.free_pages_at(guard, &mut residents, place, most))
    }

    /// Ends a block that no word of the index names any more: frees its pages and its number.
    pub(crate) fn end_block(&self, guard: &Guard<'_, Dram>, number: u64) {
        let mut residents = self.residents();
        if let Some(place) = residents.iter().position(|block| block.number == number) {
            self.free_pages_at(guard, &mut residents, place, usize::MAX);
        }
        self.free_number(number);
    }

    /// Frees pages of the block at a place, and takes it out of the list with its last one.
    fn free_pages_at(
        &self,
        guard: &Guard<'_, Dram>,
        residents: &mut VecDeque<Arc<Resident>>,
        place: usize,
        most: usize,
    ) -> usize {
        let block = Arc::clone(&residents[place]);
        let mut freed = 0;
        for (nth, page) in block.pages.iter().enumerate() {
            let at = page.at.load(Relaxed);
            if at == 0 || freed == most {
                continue;
            }
            self.word(block.table + 8 * nth as u64).store(self.pool.medium(), 0, Release);
            page.at.store(0, Relaxed);
            guard.retire(at, self.page_bytes());
            freed += 1;
        }
        self.used.fetch_sub(freed, Relaxed);
        if block.pages() == 0 {
            self.word(self.map.word(block.number)).store(self.pool.medium(), 0, Release);
            guard.retire(block.table, 8 * self.block_pages());
            residents.remove(place);
            if block.is_empty.load(Acquire) {
                self.free_number(block.number);
            }
        }
        freed
    }
}

/// A new block of so many words, all 0.
fn zeroed<M: MappedMedium>(guard: &Guard<'_, M>, words: usize) -> Result<u64, PoolFull> {
    let fresh = guard.alloc(8 * words)?;
    fresh.write(0, &vec![0; 8 * words]);
    // PERSIST: DRAM, which is lost with the process.
    Ok(fresh.fenced_later().into_offset())
}

impl NoRoom {
    /// The error of a write that finds no room, however long it waits.
    pub(crate) fn error(&self, wanted: usize, size: u64) -> WriteError {
        WriteError::PoolFull { wanted: wanted as u64, size, longest: None, waiting: 0 }
    }
}
