//! Blocks in DRAM that writes fill, until the tier has them.
//!
//! Blocks of DRAM go through three regions in the order in which they began (section 4.1 of the
//! paper): open to changes in place; closed, and in DRAM as well as on the tier; on the tier alone.
//!
//! Threads take whole pages (section 5.4): there are as many *seats* as may write at once, each
//! with an open page. A flusher that needs a page takes it from its seat, so an idle thread keeps
//! nothing (the paper's alarm is looked at only by a thread that writes).

use super::addresses::{CLOSED, RecordAt, Room};
use super::pages::{NoRoom, OpenPage, Pages, Resident};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::Dram;
use terrace_pool::Guard;

/// The blocks that writes fill. It owns the seats and the list of blocks; their pages are of
/// [`Pages`].
pub(crate) struct OpenBlocks {
    seats: Box<[Mutex<Option<OpenPage>>]>,
    /// Blocks with pages, the oldest first. The last one may hand out more.
    residents: Mutex<VecDeque<Arc<Resident>>>,
}

impl OpenBlocks {
    /// So many seats.
    pub(super) fn new(seats: usize) -> Self {
        assert!(seats > 0, "a write has a seat");
        Self { seats: (0..seats).map(|_| Mutex::default()).collect(), residents: Mutex::default() }
    }

    fn residents(&self) -> MutexGuard<'_, VecDeque<Arc<Resident>>> {
        self.residents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for a record of so many bytes, whose number the log does not have yet.
    pub(crate) fn take(
        &self,
        (pages, guard): (&Pages, &Guard<'_, Dram>),
        bytes: usize,
        seq: u64,
    ) -> Result<Room, NoRoom> {
        assert!(bytes <= pages.page_bytes() && bytes.is_multiple_of(8), "a record fits into a page");
        let mut seat = self.seat();
        loop {
            if let Some(page) = &mut *seat
                && page.used + bytes <= pages.page_bytes()
            {
                let (offset, at) = (page.used as u64, page.at + page.used as u64);
                page.used += bytes;
                // ORDER: Release: pairs with the Acquire of `Resident::first_seq`.
                page.block.first_seq.fetch_min(seq, Release);
                let address = pages.map.address_in(page.block.number, page.nth, offset);
                return Ok(Room { address, record: RecordAt { at, flags: 0 } });
            }
            Self::leave(&mut seat);
            *seat = Some(self.take_page(pages, guard)?);
        }
    }

    /// A seat that no other thread sits in, from this thread's own on.
    fn seat(&self) -> MutexGuard<'_, Option<OpenPage>> {
        let own = super::stripes::thread_number() % self.seats.len();
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

    fn take_page(&self, pages: &Pages, guard: &Guard<'_, Dram>) -> Result<OpenPage, NoRoom> {
        let mut residents = self.residents();
        let (used, limit) = pages.counts();
        if used.is_multiple_of(16) {
            pages.update_limit();
        }
        if used >= limit {
            return Err(NoRoom::Pages);
        }
        let page = guard.alloc(pages.page_bytes())?;
        let block = match residents.back() {
            Some(last) if !last.is_full() => Arc::clone(last),
            _ => {
                let block = pages.begin_block(guard, 0)?;
                residents.push_back(Arc::clone(&block));
                block
            }
        };
        // PERSIST: DRAM, which is lost with the process.
        Ok(pages.hand_out(block, page.fenced_later().into_offset()))
    }

    /// The blocks with pages, the oldest first.
    pub(crate) fn resident(&self) -> Vec<Arc<Resident>> {
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
    pub(crate) fn close(&self, pages: &Pages, block: &Resident) {
        {
            // No page of it is handed out any more.
            let _residents = self.residents();
            block.handed.fetch_max(pages.block_pages(), Relaxed);
        }
        for seat in &self.seats {
            let mut seat = seat.lock().unwrap_or_else(PoisonError::into_inner);
            if seat.as_ref().is_some_and(|page| page.block.number == block.number) {
                Self::leave(&mut seat);
            }
        }
        let word = pages.word(pages.map.word(block.number));
        // ORDER: Release; the caller passes all stripes before it relies on it.
        word.store(pages.pool.medium(), block.table | CLOSED, Release);
    }

    /// Frees the pages of the oldest sealed block, so many at most. Returns how many.
    pub(crate) fn free_pages(&self, (pages, guard): (&Pages, &Guard<'_, Dram>), most: usize) -> usize {
        let mut residents = self.residents();
        let oldest = residents.iter().position(|block| block.is_sealed.load(Acquire));
        oldest.map_or(0, |place| self.free_pages_at((pages, guard), &mut residents, place, most))
    }

    /// Ends a block that no word of the index names any more: frees its pages and its number.
    pub(crate) fn end(&self, (pages, guard): (&Pages, &Guard<'_, Dram>), number: u64) {
        let mut residents = self.residents();
        if let Some(place) = residents.iter().position(|block| block.number == number) {
            self.free_pages_at((pages, guard), &mut residents, place, usize::MAX);
        }
        pages.free_number(number);
    }

    /// Frees pages of the block at a place, and takes it out of the list with its last one.
    fn free_pages_at(
        &self,
        (pages, guard): (&Pages, &Guard<'_, Dram>),
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
            pages.free(guard, (&block, nth), at);
            freed += 1;
        }
        pages.count_freed(freed);
        if block.pages() == 0 {
            pages.end_table(guard, &block);
            residents.remove(place);
            if block.is_empty.load(Acquire) {
                pages.free_number(block.number);
            }
        }
        freed
    }
}

/// The addresses of all records of a closed block, in order.
pub(crate) fn records_of(
    (pages, guard): (&Pages, &Guard<'_, Dram>),
    block: &Resident,
) -> Vec<(u64, RecordAt)> {
    assert!(block.is_full(), "no page is added to a closed block");
    let mut records = Vec::new();
    for (nth, page) in block.pages.iter().enumerate() {
        let (at, used) = (page.at.load(Acquire), page.used.load(Acquire));
        let mut offset = 0;
        while at != 0 && offset < used {
            let record = RecordAt { at: at + offset as u64, flags: CLOSED };
            records.push((pages.map.address_in(block.number, nth, offset as u64), record));
            offset += record.room(guard);
        }
        debug_assert!(at == 0 || offset == used, "a page has whole records");
    }
    records
}
