//! Limbo: where retired blocks wait until nobody can see them any more.
//!
//! A seat's owner writes what it retires to a page in the pool. A full page goes to the end of the seat's queue, with the epoch of its last entry;
//! from the front of the queue pages are drained once that epoch is past. Anyone may drain any seat's queue, under its lock; only the open page is
//! the owner's alone. If somebody has the queue's lock for longer than he should, who may stand still, the page goes to another seat's queue: nobody waits for him.
//!
//! ```text
//!   page: | next page | epoch of the last entry (63:8), entries (7:0) | offset 0 | bytes 0 | offset 1 | bytes 1 | ... |
//! ```

use crate::backoff::{Backoff, rests_in};
use crate::blocks::PoolFull;
use crate::epoch::{GRACE, SPILLED, TEMPORARY};
use crate::lock::Locked;
use crate::pool::{Inner, Start};
use crate::seats::Seat;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use terrace_medium::{MappedMedium, Offset, Persistent, Word};

/// Bytes of a page: a size class of every geometry.
pub(crate) const PAGE_BYTES: u64 = 512;
/// Full pages of a seat after which it tries to move the epoch on, which interrupts every running thread (see `barrier`).
const PAGES_AN_EPOCH: u64 = 8;
const ENTRIES: u64 = 31;
/// A page is closed early when it holds more than 1 MiB, or this fraction of the pool.
const FRACTION: u64 = 64;
/// Rests of who waits to note a block in his seat before he forgets it.
const SPILL_PATIENCE: u32 = rests_in(Duration::from_secs(2));
/// Pages that a closing page drains: more than one, so that queues shrink.
const DRAIN: u32 = 3;

#[repr(C)]
struct Page {
    next: Word,
    tag: Word,
    entries: [[Word; 2]; ENTRIES as usize],
}

const _: () = assert!(size_of::<Page>() as u64 == PAGE_BYTES);

// SAFETY: words only, no padding.
unsafe impl Persistent for Page {}

/// A page that has left its queue.
struct Drained {
    page: u64,
    entries: u64,
}

impl<M: MappedMedium> Inner<M> {
    fn page(&self, offset: u64) -> Option<&Page> {
        self.region.get(Offset::new(offset))
    }

    fn page_class(&self) -> Option<usize> {
        self.memory.classes.of(PAGE_BYTES)
    }

    pub(crate) fn set_reserve_aside(&self) {
        if let Some(class) = self.page_class() {
            self.reserve_slab(class);
        }
    }

    /// After an open: goes on with the reserve that was at `offset`, if it is sound.
    pub(crate) fn keep_reserve(&self, offset: u64) {
        let Some(class) = self.page_class() else { return };
        let is_one = match self.start {
            Start::Clean => self.is_reserve(offset, class),
            // It holds nothing but pages of limbo, so nothing.
            _ => self.reuse_reserve(offset, class),
        };
        if !is_one {
            self.shared().reserve.store(self.medium(), 0, Relaxed);
        }
    }

    /// Puts the block at `offset` into limbo. The owner of `seat` is pinned, and has unlinked it under this pin.
    pub(crate) fn retire(&self, seat: &Seat, offset: u64, bytes: u64) {
        if self.is_marking() {
            // The sweep is to leave it alone: it is freed when it comes out of limbo.
            self.mark(offset, bytes);
        }
        match self.open_page(seat).or_else(|| self.open_page_hard(seat)) {
            Some(page) => self.note_retired(seat, page, offset, bytes),
            None => self.spill(seat, offset, bytes),
        }
    }

    /// Writes a block down on the seat's open page.
    #[inline(always)]
    fn note_retired(&self, seat: &Seat, page: &Page, offset: u64, bytes: u64) {
        add(self.medium(), &seat.retired, bytes);
        let count = seat.page_count.load(self.medium(), Relaxed);
        let entry = &page.entries[count.min(ENTRIES - 1) as usize];
        entry[0].store(self.medium(), offset, Relaxed);
        entry[1].store(self.medium(), bytes, Relaxed);
        // ORDER: Release: a collector that counts the entry finds it written.
        page.tag.store(self.medium(), self.epoch() << 8 | (count + 1), Release);
        seat.page_count.store(self.medium(), count + 1, Relaxed);
        let waiting = seat.page_bytes.load(self.medium(), Relaxed) + bytes;
        seat.page_bytes.store(self.medium(), waiting, Relaxed);
        let much = waiting >= (self.size() / FRACTION).min(1 << 20);
        if count + 1 >= ENTRIES || much {
            self.close_page(seat);
            let pages = seat.pages.load(self.medium(), Relaxed) + 1;
            seat.pages.store(self.medium(), pages, Relaxed);
            if self.drain(seat, DRAIN, seat) == 0 && (much || pages.is_multiple_of(PAGES_AN_EPOCH)) {
                self.try_advance();
            }
        }
    }

    /// Not a byte for a page is to be had: the block is noted in the seat itself until its owner is not pinned any more, and can wait for
    /// others without holding them up.
    #[cold]
    pub(crate) fn spill(&self, seat: &Seat, offset: u64, bytes: u64) {
        let count = seat.spilled.load(self.medium(), Relaxed);
        match seat.spills.get(count as usize) {
            Some(entry) => {
                // A collector may be looking at what was noted here before; or stand still over it.
                let turns = Cell::new(0);
                let is_long = || turns.replace(turns.get() + 1) >= SPILL_PATIENCE;
                let Some(_locked) = seat.limbo.acquire_unless(self, &is_long) else {
                    return self.lose(bytes);
                };
                entry[0].store(self.medium(), offset, Relaxed);
                entry[1].store(self.medium(), bytes, Relaxed);
                seat.spilled.store(self.medium(), count + 1, Relaxed);
                self.ask_for_care(seat, SPILLED);
            }
            None => self.lose(bytes),
        }
    }

    /// Forgets a block. The next collection finds it: after the next open, or, in a shared pool, before long.
    pub(crate) fn lose(&self, bytes: u64) {
        self.shared().lost.fetch_add(self.medium(), bytes, Relaxed);
        if self.is_shared() {
            self.doubt();
        }
    }

    /// Whether something is noted in the seat itself.
    #[inline(always)]
    pub(crate) fn has_spilled(&self, seat: &Seat) -> bool {
        seat.spilled.load(self.medium(), Relaxed) != 0
    }

    /// Looks whether there is room to note `count` blocks: half of what can be noted in the seat, and pages, which are taken to see whether they are to be had, and freed again. That they are still
    /// there when they are needed is likely, no more.
    pub(crate) fn prepare_to_note(&self, seat: &Seat, count: usize) -> Result<(), PoolFull> {
        let spilled = seat.spilled.load(self.medium(), Relaxed) as usize;
        let missing = (spilled + count).saturating_sub(seat.spills.len() / 2);
        let wanted = missing.div_ceil(ENTRIES as usize);
        if wanted == 0 {
            return Ok(());
        }
        let pages: Vec<_> = (0..wanted).map_while(|_| self.take(seat, PAGE_BYTES)).collect();
        pages.iter().for_each(|&page| self.free(seat, page, PAGE_BYTES));
        if pages.len() == wanted { Ok(()) } else { Err(self.pool_full(wanted as u64 * PAGE_BYTES)) }
    }

    /// Retires what was noted in the seat, whose owner is not pinned. What there is no page for stays there, and is tried again after the next pin;
    /// only if little room for notes is left, it waits for others to be unpinned.
    #[cold]
    pub(crate) fn retire_spilled(&self, seat: &Seat) {
        let mut backoff = Backoff::new();
        for _ in 0..self.patience() {
            let left = self.note_spilled_pinned(seat);
            if left <= seat.spills.len() / 2 {
                return;
            }
            self.try_advance();
            backoff.rest();
        }
        self.held_up_at.store(self.epoch(), Relaxed);
    }

    /// As `note_spilled`, for a seat whose owner is not pinned. If notes are left, the next pin ends with care again.
    fn note_spilled_pinned(&self, seat: &Seat) -> usize {
        let flags = seat.announced.load(self.medium(), Relaxed) & TEMPORARY | self.barrier_flag();
        self.announce(seat, flags | 1);
        let left = self.note_spilled(seat);
        self.withdraw(seat, flags | if left > 0 { SPILLED } else { 0 });
        left
    }

    /// Writes what is noted in the seat down on pages. Returns how many notes are left.
    pub(crate) fn note_spilled(&self, seat: &Seat) -> usize {
        let mut left = (seat.spilled.load(self.medium(), Relaxed) as usize).min(seat.spills.len());
        while left > 0
            && let Some(page) = self.open_page(seat).or_else(|| self.open_page_hard(seat))
        {
            left -= 1;
            let [offset, bytes] = [0, 1].map(|word| seat.spills[left][word].load(self.medium(), Relaxed));
            if self.is_marking() {
                // The collector may look while it is in neither place.
                self.mark(offset, bytes);
            }
            seat.spilled.store(self.medium(), left as u64, Relaxed);
            self.note_retired(seat, page, offset, bytes);
        }
        left
    }

    /// Leaves nothing that only the owner of `seat` could go on with. Its owner is this thread, or nobody.
    pub(crate) fn hand_over(&self, seat: &Seat) {
        if seat.spilled.load(self.medium(), Relaxed) != 0 {
            self.note_spilled_pinned(seat);
        }
        if seat.page.load(self.medium(), Relaxed) != 0 {
            // Pinned, so that the collector waits for the page to arrive in the queue.
            let flags =
                seat.announced.load(self.medium(), Relaxed) & (TEMPORARY | SPILLED) | self.barrier_flag();
            self.announce(seat, flags | 1);
            self.close_page(seat);
            self.withdraw(seat, flags);
        }
    }

    /// Frees what is noted in the seat at once: nobody is pinned.
    pub(crate) fn free_spilled(&self, seat: &Seat) {
        seat.announced.store(self.medium(), 0, Relaxed);
        let count = seat.spilled.swap(self.medium(), 0, Relaxed).min(seat.spills.len() as u64);
        for [offset, bytes] in &seat.spills[..count as usize] {
            self.free(seat, offset.load(self.medium(), Relaxed), bytes.load(self.medium(), Relaxed));
        }
    }

    /// The page that the owner of `seat` is writing to; a new one if there is none.
    fn open_page(&self, seat: &Seat) -> Option<&Page> {
        let open = seat.page.load(self.medium(), Relaxed);
        if open != 0 {
            return self.page(open);
        }
        let number = self.page_class()?;
        let class = self.memory.classes.get(number)?;
        let offset = self.take_block(seat, number, class).or_else(|| self.take_reserved(class))?;
        add(self.medium(), &seat.small, PAGE_BYTES);
        let page = self.page(offset)?;
        page.next.store(self.medium().point("limbo.link"), 0, Relaxed);
        page.tag.store(self.medium(), self.epoch() << 8, Relaxed);
        seat.page_count.store(self.medium(), 0, Relaxed);
        seat.page_bytes.store(self.medium(), 0, Relaxed);
        // ORDER: Release: whoever finds the page, the collector or who goes on with the seat of one that died, finds it without entries.
        seat.page.store(self.medium(), offset, Release);
        Some(page)
    }

    /// As `open_page`, after what can be drained has been, other seats' pages too.
    #[cold]
    fn open_page_hard(&self, seat: &Seat) -> Option<&Page> {
        self.try_advance();
        self.drain_all(seat);
        self.open_page(seat)
    }

    /// Puts the open page of `seat` to the end of its queue, or of another one. By the owner only.
    pub(crate) fn close_page(&self, seat: &Seat) {
        if seat.page.load(self.medium(), Relaxed) == 0 {
            return;
        }
        let (queue, _locked) = self.lock_queue(seat);
        if !std::ptr::eq(queue, seat) && self.is_marking() {
            // A collector may have looked into that queue already, and not yet into the seat.
            let open = seat.page.load(self.medium(), Relaxed);
            if let Some(page) = self.page(open) {
                self.mark_page(open, page, &|offset, bytes| self.mark(offset, bytes));
            }
        }
        let open = seat.page.swap(self.medium(), 0, Relaxed);
        let newest = queue.newest.load(self.medium(), Relaxed);
        match self.page(newest).filter(|_| newest != 0) {
            Some(page) => page.next.store(self.medium(), open, Relaxed),
            None => queue.oldest.store(self.medium(), open, Relaxed),
        }
        queue.newest.store(self.medium().point("limbo.queue"), open, Relaxed);
    }

    /// The sweep is to leave a page and what is noted in it alone.
    fn mark_page(&self, offset: u64, page: &Page, mark: &dyn Fn(u64, u64)) {
        mark(offset, PAGE_BYTES);
        self.noted_in(page).for_each(|(offset, bytes)| mark(offset, bytes));
    }

    /// The queue of `seat`, locked; or, if that is not to be had for long, any other's: whoever collects looks at all of them, and so does whoever needs memory.
    fn lock_queue<'p>(&'p self, seat: &'p Seat) -> (&'p Seat, Locked<'p, M>) {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = seat.limbo.try_acquire_in(self) {
                return (seat, locked);
            }
            if backoff.spin() {
                seat.limbo.look_after_in(self);
                let free = |other: &'p Seat| Some((other, other.limbo.try_acquire_in(self)?));
                if let Some(other) = self.used_seats().find_map(free) {
                    return other;
                }
            }
        }
    }

    /// Makes the ends of a queue fit its pages again. Somebody died who held its lock: a page that he was about to put in or had taken out may be lost to it.
    pub(crate) fn mend_queue(&self, queue: &Seat) {
        let (mut last, mut next) = (0, queue.oldest.load(self.medium(), Relaxed));
        // One that leads round is damaged: it gets an end somewhere.
        for _ in 0..self.most_pages() {
            let Some(page) = self.page(next).filter(|_| next != 0) else { break };
            last = next;
            next = page.next.load(self.medium(), Relaxed);
        }
        queue.newest.store(self.medium(), last, Relaxed);
    }

    /// Frees what is past its time in the queue of `queue`, at most `pages` pages. `me` is the seat of the thread that does it. Returns how
    /// many pages were drained.
    pub(crate) fn drain(&self, queue: &Seat, pages: u32, me: &Seat) -> u32 {
        let mut drained = 0;
        while drained < pages {
            let Some(page) = self.next_drained(queue) else { break };
            self.free_entries(&page, me);
            drained += 1;
        }
        drained
    }

    /// Takes the oldest page out of a queue, if its time is past.
    fn next_drained(&self, queue: &Seat) -> Option<Drained> {
        if queue.oldest.load(self.medium(), Relaxed) == 0 {
            return None;
        }
        let _locked = queue.limbo.try_acquire_in(self)?;
        let oldest = queue.oldest.load(self.medium(), Relaxed);
        let page = self.page(oldest).filter(|_| oldest != 0)?;
        let tag = page.tag.load(self.medium(), Relaxed);
        if self.epoch() < (tag >> 8) + GRACE {
            return None;
        }
        let next = page.next.load(self.medium(), Relaxed);
        queue.oldest.store(self.medium(), next, Relaxed);
        if next == 0 {
            queue.newest.store(self.medium(), 0, Relaxed);
        }
        let entries = (tag & 0xff).min(ENTRIES);
        let bytes =
            (0..entries).map(|i| page.entries[i as usize][1].load(self.medium(), Relaxed)).sum::<u64>();
        add(self.medium(), &queue.drained, bytes);
        Some(Drained { page: oldest, entries })
    }

    /// Marks all that waits in limbo, and the pages that it is noted in. What is on its way from one place to another is not seen.
    /// `None` if `is_to_stop` says so while somebody has the lock of a queue.
    #[must_use = "if it is to stop, not all is marked"]
    pub(crate) fn mark_limbo(&self, mark: &dyn Fn(u64, u64), is_to_stop: &dyn Fn() -> bool) -> Option<()> {
        for seat in self.used_seats() {
            let _locked = seat.limbo.acquire_unless(self, is_to_stop)?;
            self.each_page(seat, &mut |offset, page| self.mark_page(offset, page, mark));
            // Notes are written under the lock; one that is taken out meanwhile stays as it was.
            let spilled = seat.spilled.load(self.medium(), Relaxed).min(seat.spills.len() as u64);
            for [offset, bytes] in &seat.spills[..spilled as usize] {
                mark(offset.load(self.medium(), Relaxed), bytes.load(self.medium(), Relaxed));
            }
        }
        Some(())
    }

    /// Bytes that were noted in pages of `seat` and are neither in its queue any more nor drained from there: who had them died, or put them into another queue, of which this says as many too
    /// few. Nobody is pinned; `None` if somebody has the queue all the same.
    pub(crate) fn missing_in_limbo(&self, seat: &Seat) -> Option<u64> {
        let _locked = seat.limbo.acquire_unless(self, &|| true)?;
        let mut waiting = 0;
        self.each_page(seat, &mut |_, page| {
            waiting += self.noted_in(page).map(|(_, bytes)| bytes).sum::<u64>();
        });
        let [retired, drained] =
            [&seat.retired, &seat.drained].map(|count| count.load(self.medium(), Relaxed));
        Some(retired.wrapping_sub(drained).wrapping_sub(waiting))
    }

    /// Calls `each` with the pages in the queue of `seat` and its open one. The queue is locked, so no page goes from its owner to the queue, nor from
    /// there, and none is freed.
    fn each_page(&self, seat: &Seat, each: &mut dyn FnMut(u64, &Page)) {
        let mut next = seat.oldest.load(self.medium(), Relaxed);
        for _ in 0..=self.most_pages() {
            let Some(page) = self.page(next).filter(|_| next != 0) else { break };
            each(next, page);
            next = page.next.load(self.medium(), Relaxed);
        }
        // ORDER: Acquire: pairs with `open_page`.
        let open = seat.page.load(self.medium(), Acquire);
        if let Some(page) = self.page(open).filter(|_| open != 0) {
            each(open, page);
        }
    }

    /// Offsets and bytes of what is noted in a page.
    fn noted_in<'p>(&'p self, page: &'p Page) -> impl Iterator<Item = (u64, u64)> + 'p {
        // ORDER: Acquire: pairs with `note_retired`.
        let entries = (page.tag.load(self.medium(), Acquire) & 0xff).min(ENTRIES);
        let load = |word: &Word| word.load(self.medium(), Relaxed);
        page.entries[..entries as usize].iter().map(move |[offset, bytes]| (load(offset), load(bytes)))
    }

    fn free_entries(&self, drained: &Drained, me: &Seat) {
        let Some(page) = self.page(drained.page) else { return };
        // What they are in was last touched long ago: fetched together, their bitmaps cost one miss and not one each.
        for entry in &page.entries[..drained.entries as usize] {
            let (offset, bytes) =
                (entry[0].load(self.medium(), Relaxed), entry[1].load(self.medium(), Relaxed));
            if let Some(class) =
                self.memory.classes.of(bytes).and_then(|number| self.memory.classes.get(number))
            {
                self.prefetch_block(offset, class);
            }
        }
        for entry in &page.entries[..drained.entries as usize] {
            let (offset, bytes) =
                (entry[0].load(self.medium(), Relaxed), entry[1].load(self.medium(), Relaxed));
            self.free(me, offset, bytes);
        }
        self.free(me, drained.page, PAGE_BYTES);
    }

    /// Dies while it drains a page of `seat`, with `freed` of its entries freed. Returns how many there were.
    #[cfg(test)]
    pub(crate) fn leave_drained(&self, seat: &Seat, freed: u64) -> u64 {
        let drained = self.next_drained(seat).expect("a page whose time is past");
        let page = self.page(drained.page).expect("a page in the pool");
        self.noted_in(page).take(freed as usize).for_each(|(offset, bytes)| self.free(seat, offset, bytes));
        drained.entries
    }

    /// Drains every queue as far as the epoch allows. Returns how many pages.
    pub(crate) fn drain_all(&self, me: &Seat) -> u32 {
        self.used_seats().map(|seat| self.drain_whole(seat, me)).sum()
    }

    fn drain_whole(&self, queue: &Seat, me: &Seat) -> u32 {
        let most = u32::try_from(self.most_pages()).unwrap_or(u32::MAX);
        let drained = self.drain(queue, most, me);
        if drained == most
            && let Some(_locked) = queue.limbo.try_acquire_in(self)
        {
            // Damaged, it leads round: what is left in it the next collection finds. (What is put in while somebody is pinned is not past its time until he has gone.)
            [&queue.oldest, &queue.newest].iter().for_each(|end| end.store(self.medium(), 0, Relaxed));
        }
        drained
    }

    /// No queue has more pages than this: what the pool has room for.
    fn most_pages(&self) -> u64 {
        self.size() / PAGE_BYTES
    }
}

/// Adds to a word that only this thread writes.
#[inline(always)]
pub(crate) fn add<M: MappedMedium>(medium: &M, word: &Word, by: u64) {
    word.store(medium, word.load(medium, Relaxed).wrapping_add(by), Relaxed);
}

#[cfg(test)]
mod tests;
