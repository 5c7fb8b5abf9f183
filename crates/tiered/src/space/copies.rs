//! Pages of copies of records on the tier: filled in turn, and dropped in the order in which they
//! were filled.

use super::addresses::{CACHE, RecordAt, Room};
use super::pages::{NoRoom, OpenPage, Pages, Resident};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::Dram;
use terrace_pool::Guard;

#[derive(Default)]
struct Filled {
    /// The page that takes copies.
    open: Option<OpenPage>,
    /// The block whose pages are handed out.
    block: Option<Arc<Resident>>,
    /// Pages that are full, the oldest first.
    full: VecDeque<CopyPage>,
}

/// A page of copies that takes no more.
pub(crate) struct CopyPage(OpenPage);

/// The pages of copies. It owns their list; the pages themselves are of [`Pages`].
#[derive(Default)]
pub(crate) struct Copies {
    filled: Mutex<Filled>,
    /// Pages of copies.
    pages: AtomicUsize,
}

impl Copies {
    fn filled(&self) -> MutexGuard<'_, Filled> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages of copies.
    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Relaxed)
    }

    /// Takes room for a copy of the record at the address `original`, in at most so many pages, and
    /// has it filled. No page is dropped meanwhile: a page in the list has whole copies only.
    pub(crate) fn copy_with(
        &self,
        (pages, guard): (&Pages, &Guard<'_, Dram>),
        (bytes, original): (usize, u64),
        most: usize,
        fill: impl FnOnce(&Room),
    ) -> Result<(), NoRoom> {
        let mut filled = self.filled();
        if filled.open.as_ref().is_none_or(|page| page.used + 8 + bytes > pages.page_bytes()) {
            self.open_page(&mut filled, (pages, guard), most)?;
        }
        let page = filled.open.as_mut().expect("just taken");
        assert!(page.used + 8 + bytes <= pages.page_bytes(), "a copy fits into a page");
        let offset = page.used as u64 + 8;
        let at = page.at + offset;
        page.used += 8 + bytes;
        pages.word(at - 8).store(pages.pool.medium(), original, Relaxed);
        let address = pages.map.address_in(page.block.number, page.nth, offset);
        fill(&Room { address, record: RecordAt { at, flags: CACHE } });
        Ok(())
    }

    /// Takes a new page for copies.
    fn open_page(
        &self,
        filled: &mut Filled,
        (pages, guard): (&Pages, &Guard<'_, Dram>),
        most: usize,
    ) -> Result<(), NoRoom> {
        let (used, limit) = pages.counts();
        if used >= limit || self.pages() >= most {
            return Err(NoRoom::Pages);
        }
        let page = guard.alloc(pages.page_bytes())?;
        let block = match filled.block.take() {
            Some(block) if !block.is_full() => block,
            _ => pages.begin_block(guard, CACHE)?,
        };
        // PERSIST: DRAM, which is lost with the process.
        let open = pages.hand_out(Arc::clone(&block), page.fenced_later().into_offset());
        filled.block = Some(block);
        self.pages.fetch_add(1, Relaxed);
        let full = filled.open.replace(open);
        filled.full.extend(full.map(CopyPage));
        Ok(())
    }

    /// Takes the oldest page of copies out of the list, so that the caller drops it.
    pub(crate) fn take_oldest(&self) -> Option<CopyPage> {
        let mut filled = self.filled();
        let full = filled.full.pop_front();
        full.or_else(|| filled.open.take().map(CopyPage))
    }

    /// The copies in a page that takes no more, and their addresses.
    pub(crate) fn in_page(
        &self,
        (pages, guard): (&Pages, &Guard<'_, Dram>),
        page: &CopyPage,
    ) -> Vec<(u64, RecordAt)> {
        let CopyPage(page) = page;
        let (mut copies, mut offset) = (Vec::new(), 8);
        while offset < page.used {
            let record = RecordAt { at: page.at + offset as u64, flags: CACHE };
            copies.push((pages.map.address_in(page.block.number, page.nth, offset as u64), record));
            offset += record.room(guard) + 8;
        }
        debug_assert_eq!(offset, page.used + 8, "a page has whole copies");
        copies
    }

    /// Frees a page of copies that no word of the index names any more.
    pub(crate) fn free(&self, (pages, guard): (&Pages, &Guard<'_, Dram>), page: CopyPage) {
        let CopyPage(OpenPage { block, nth, at, .. }) = page;
        pages.free(guard, (&block, nth), at);
        pages.count_freed(1);
        self.pages.fetch_sub(1, Relaxed);
        let _filled = self.filled();
        if block.is_full() && block.pages() == 0 {
            pages.end_table(guard, &block);
            pages.free_number(block.number);
        }
    }
}
