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
use crate::epoch::{GRACE_EPOCHS, ONE_PIN, OVERFLOWED};
use crate::lock::Locked;
use crate::pool::{Inner, Start};
use crate::seats::ThreadSlot;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use terrace_medium::{MappedMedium, Offset, Persistent, Word};

/// Bytes of a page: a size class of every geometry.
pub(crate) const CHUNK_BYTES: u64 = 512;
/// Full pages of a seat after which it tries to move the epoch on, which interrupts every running thread (see `barrier`).
const CHUNKS_PER_ADVANCE: u64 = 8;
const CHUNK_ENTRIES: u64 = 31;
/// A page is closed early when it holds more than 1 MiB, or this fraction of the pool.
const CHUNK_POOL_FRACTION: u64 = 64;
/// Rests of who waits to note a block in his seat before he forgets it.
const OVERFLOW_PATIENCE: u32 = rests_in(Duration::from_secs(2));
/// Pages that a closing page drains: more than one, so that queues shrink.
const DRAIN: u32 = 3;

#[repr(C)]
struct Chunk {
    next: Word,
    tag: Word,
    entries: [[Word; 2]; CHUNK_ENTRIES as usize],
}

const _: () = assert!(size_of::<Chunk>() as u64 == CHUNK_BYTES);

// SAFETY: words only, no padding.
unsafe impl Persistent for Chunk {}

/// A page that has left its queue.
struct DetachedChunk {
    chunk: u64,
    entries: u64,
}

impl<M: MappedMedium> Inner<M> {
    fn chunk(&self, offset: u64) -> Option<&Chunk> {
        self.region.get(Offset::new(offset))
    }

    fn chunk_class(&self) -> Option<usize> {
        self.memory.classes.of(CHUNK_BYTES)
    }

    pub(crate) fn ensure_reserve(&self) {
        if let Some(class) = self.chunk_class() {
            self.reserve_slab(class);
        }
    }

    /// After an open: goes on with the reserve that was at `offset`, if it is sound.
    pub(crate) fn restore_reserve(&self, offset: u64) {
        let Some(class) = self.chunk_class() else { return };
        let is_one = match self.start {
            Start::Clean => self.is_reserve(offset, class),
            // It holds nothing but pages of limbo, so nothing.
            _ => self.restore_reserve_slab(offset, class),
        };
        if !is_one {
            self.shared().reserve.store(self.medium(), 0, Relaxed);
        }
    }

    /// Puts the block at `offset` into limbo. The owner of `slot` is pinned, and has unlinked it under this pin.
    pub(crate) fn retire(&self, slot: &ThreadSlot, offset: u64, bytes: u64) {
        if self.is_marking() {
            // The sweep is to leave it alone: it is freed when it comes out of limbo.
            self.mark(offset, bytes);
        }
        match self.open_chunk(slot).or_else(|| self.open_chunk_slow(slot)) {
            Some(chunk) => self.append_entry(slot, chunk, offset, bytes),
            None => self.push_overflow(slot, offset, bytes),
        }
    }

    /// Writes a block down on the seat's open page.
    #[inline(always)]
    fn append_entry(&self, slot: &ThreadSlot, chunk: &Chunk, offset: u64, bytes: u64) {
        add_own(self.medium(), &slot.retired, bytes);
        let count = slot.chunk_entries.load(self.medium(), Relaxed);
        let entry = &chunk.entries[count.min(CHUNK_ENTRIES - 1) as usize];
        entry[0].store(self.medium(), offset, Relaxed);
        entry[1].store(self.medium(), bytes, Relaxed);
        // ORDER: Release: a collector that counts the entry finds it written.
        chunk.tag.store(self.medium(), self.epoch() << 8 | (count + 1), Release);
        slot.chunk_entries.store(self.medium(), count + 1, Relaxed);
        let waiting = slot.chunk_bytes.load(self.medium(), Relaxed) + bytes;
        slot.chunk_bytes.store(self.medium(), waiting, Relaxed);
        let much = waiting >= (self.size() / CHUNK_POOL_FRACTION).min(1 << 20);
        if count + 1 >= CHUNK_ENTRIES || much {
            self.queue_chunk(slot);
            let chunks = slot.chunks.load(self.medium(), Relaxed) + 1;
            slot.chunks.store(self.medium(), chunks, Relaxed);
            if self.drain(slot, DRAIN, slot) == 0 && (much || chunks.is_multiple_of(CHUNKS_PER_ADVANCE)) {
                self.try_advance();
            }
        }
    }

    /// Not a byte for a page is to be had: the block is noted in the seat itself until its owner is not pinned any more, and can wait for
    /// others without holding them up.
    #[cold]
    pub(crate) fn push_overflow(&self, slot: &ThreadSlot, offset: u64, bytes: u64) {
        let count = slot.overflow_count.load(self.medium(), Relaxed);
        match slot.overflow.get(count as usize) {
            Some(entry) => {
                // A collector may be looking at what was noted here before; or stand still over it.
                let turns = Cell::new(0);
                let is_long = || turns.replace(turns.get() + 1) >= OVERFLOW_PATIENCE;
                let Some(_locked) = slot.queue_lock.acquire_until(self, &is_long) else {
                    return self.leak(bytes);
                };
                entry[0].store(self.medium(), offset, Relaxed);
                entry[1].store(self.medium(), bytes, Relaxed);
                slot.overflow_count.store(self.medium(), count + 1, Relaxed);
                self.request_unpin_work(slot, OVERFLOWED);
            }
            None => self.leak(bytes),
        }
    }

    /// Forgets a block. The next collection finds it: after the next open, or, in a shared pool, before long.
    pub(crate) fn leak(&self, bytes: u64) {
        self.shared().lost.fetch_add(self.medium(), bytes, Relaxed);
        if self.is_shared() {
            self.request_collection();
        }
    }

    /// Whether something is noted in the seat itself.
    #[inline(always)]
    pub(crate) fn has_overflow(&self, slot: &ThreadSlot) -> bool {
        slot.overflow_count.load(self.medium(), Relaxed) != 0
    }

    /// Looks whether there is room to note `count` blocks: half of what can be noted in the seat, and pages, which are taken to see whether they are to be had, and freed again. That they are still
    /// there when they are needed is likely, no more.
    pub(crate) fn reserve_limbo(&self, slot: &ThreadSlot, count: usize) -> Result<(), PoolFull> {
        let overflowed = slot.overflow_count.load(self.medium(), Relaxed) as usize;
        let missing = (overflowed + count).saturating_sub(slot.overflow.len() / 2);
        let wanted = missing.div_ceil(CHUNK_ENTRIES as usize);
        if wanted == 0 {
            return Ok(());
        }
        let chunks: Vec<_> = (0..wanted).map_while(|_| self.take(slot, CHUNK_BYTES)).collect();
        chunks.iter().for_each(|&chunk| self.free(slot, chunk, CHUNK_BYTES));
        if chunks.len() == wanted { Ok(()) } else { Err(self.pool_full_error(wanted as u64 * CHUNK_BYTES)) }
    }

    /// Retires what was noted in the seat, whose owner is not pinned. What there is no page for stays there, and is tried again after the next pin;
    /// only if little room for notes is left, it waits for others to be unpinned.
    #[cold]
    pub(crate) fn flush_overflow(&self, slot: &ThreadSlot) {
        let mut backoff = Backoff::new();
        for _ in 0..self.wait_budget() {
            let left = self.move_overflow_pinned(slot);
            if left <= slot.overflow.len() / 2 {
                return;
            }
            self.try_advance();
            backoff.rest();
        }
        self.held_up_at.store(self.epoch(), Relaxed);
    }

    /// As `move_overflow_to_chunks`, for a seat whose owner is not pinned. If notes are left, the next pin ends with care again.
    fn move_overflow_pinned(&self, slot: &ThreadSlot) -> usize {
        let flags = slot.pin.load(self.medium(), Relaxed) & ONE_PIN | self.barrier_flag();
        self.set_pin(slot, flags | 1);
        let left = self.move_overflow_to_chunks(slot);
        self.clear_pin(slot, flags | if left > 0 { OVERFLOWED } else { 0 });
        left
    }

    /// Writes what is noted in the seat down on pages. Returns how many notes are left.
    pub(crate) fn move_overflow_to_chunks(&self, slot: &ThreadSlot) -> usize {
        let mut left = (slot.overflow_count.load(self.medium(), Relaxed) as usize).min(slot.overflow.len());
        while left > 0
            && let Some(chunk) = self.open_chunk(slot).or_else(|| self.open_chunk_slow(slot))
        {
            left -= 1;
            let [offset, bytes] = [0, 1].map(|word| slot.overflow[left][word].load(self.medium(), Relaxed));
            if self.is_marking() {
                // The collector may look while it is in neither place.
                self.mark(offset, bytes);
            }
            slot.overflow_count.store(self.medium(), left as u64, Relaxed);
            self.append_entry(slot, chunk, offset, bytes);
        }
        left
    }

    /// Leaves nothing that only the owner of `slot` could go on with. Its owner is this thread, or nobody.
    pub(crate) fn flush_slot(&self, slot: &ThreadSlot) {
        if slot.overflow_count.load(self.medium(), Relaxed) != 0 {
            self.move_overflow_pinned(slot);
        }
        if slot.chunk.load(self.medium(), Relaxed) != 0 {
            // Pinned, so that the collector waits for the page to arrive in the queue.
            let flags = slot.pin.load(self.medium(), Relaxed) & (ONE_PIN | OVERFLOWED) | self.barrier_flag();
            self.set_pin(slot, flags | 1);
            self.queue_chunk(slot);
            self.clear_pin(slot, flags);
        }
    }

    /// Frees what is noted in the seat at once: nobody is pinned.
    pub(crate) fn free_overflow(&self, slot: &ThreadSlot) {
        slot.pin.store(self.medium(), 0, Relaxed);
        let count = slot.overflow_count.swap(self.medium(), 0, Relaxed).min(slot.overflow.len() as u64);
        for [offset, bytes] in &slot.overflow[..count as usize] {
            self.free(slot, offset.load(self.medium(), Relaxed), bytes.load(self.medium(), Relaxed));
        }
    }

    /// The page that the owner of `slot` is writing to; a new one if there is none.
    fn open_chunk(&self, slot: &ThreadSlot) -> Option<&Chunk> {
        let open = slot.chunk.load(self.medium(), Relaxed);
        if open != 0 {
            return self.chunk(open);
        }
        let number = self.chunk_class()?;
        let class = self.memory.classes.get(number)?;
        let offset = self.take_block(slot, number, class).or_else(|| self.take_from_reserve(class))?;
        add_own(self.medium(), &slot.small_bytes, CHUNK_BYTES);
        let chunk = self.chunk(offset)?;
        chunk.next.store(self.medium().point("limbo.link"), 0, Relaxed);
        chunk.tag.store(self.medium(), self.epoch() << 8, Relaxed);
        slot.chunk_entries.store(self.medium(), 0, Relaxed);
        slot.chunk_bytes.store(self.medium(), 0, Relaxed);
        // ORDER: Release: whoever finds the page, the collector or who goes on with the seat of one that died, finds it without entries.
        slot.chunk.store(self.medium(), offset, Release);
        Some(chunk)
    }

    /// As `open_chunk`, after what can be drained has been, other seats' pages too.
    #[cold]
    fn open_chunk_slow(&self, slot: &ThreadSlot) -> Option<&Chunk> {
        self.try_advance();
        self.drain_all(slot);
        self.open_chunk(slot)
    }

    /// Puts the open page of `slot` to the end of its queue, or of another one. By the owner only.
    pub(crate) fn queue_chunk(&self, slot: &ThreadSlot) {
        if slot.chunk.load(self.medium(), Relaxed) == 0 {
            return;
        }
        let (queue, _locked) = self.lock_queue(slot);
        if !std::ptr::eq(queue, slot) && self.is_marking() {
            // A collector may have looked into that queue already, and not yet into the seat.
            let open = slot.chunk.load(self.medium(), Relaxed);
            if let Some(chunk) = self.chunk(open) {
                self.mark_chunk(open, chunk, &|offset, bytes| self.mark(offset, bytes));
            }
        }
        let open = slot.chunk.swap(self.medium(), 0, Relaxed);
        let newest = queue.newest.load(self.medium(), Relaxed);
        match self.chunk(newest).filter(|_| newest != 0) {
            Some(chunk) => chunk.next.store(self.medium(), open, Relaxed),
            None => queue.oldest.store(self.medium(), open, Relaxed),
        }
        queue.newest.store(self.medium().point("limbo.queue"), open, Relaxed);
    }

    /// The sweep is to leave a page and what is noted in it alone.
    fn mark_chunk(&self, offset: u64, chunk: &Chunk, mark: &dyn Fn(u64, u64)) {
        mark(offset, CHUNK_BYTES);
        self.entries_of(chunk).for_each(|(offset, bytes)| mark(offset, bytes));
    }

    /// The queue of `slot`, locked; or, if that is not to be had for long, any other's: whoever collects looks at all of them, and so does whoever needs memory.
    fn lock_queue<'p>(&'p self, slot: &'p ThreadSlot) -> (&'p ThreadSlot, Locked<'p, M>) {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = slot.queue_lock.try_acquire_in(self) {
                return (slot, locked);
            }
            if backoff.spin() {
                slot.queue_lock.recover_if_dead_in(self);
                let free = |other: &'p ThreadSlot| Some((other, other.queue_lock.try_acquire_in(self)?));
                if let Some(other) = self.used_slots().find_map(free) {
                    return other;
                }
            }
        }
    }

    /// Makes the ends of a queue fit its pages again. Somebody died who held its lock: a page that he was about to put in or had taken out may be lost to it.
    pub(crate) fn repair_queue(&self, queue: &ThreadSlot) {
        let (mut last, mut next) = (0, queue.oldest.load(self.medium(), Relaxed));
        // One that leads round is damaged: it gets an end somewhere.
        for _ in 0..self.max_chunks() {
            let Some(chunk) = self.chunk(next).filter(|_| next != 0) else { break };
            last = next;
            next = chunk.next.load(self.medium(), Relaxed);
        }
        queue.newest.store(self.medium(), last, Relaxed);
    }

    /// Frees what is past its time in the queue of `queue`, at most `chunks` pages. `own` is the seat of the thread that does it. Returns how
    /// many pages were drained.
    pub(crate) fn drain(&self, queue: &ThreadSlot, chunks: u32, own: &ThreadSlot) -> u32 {
        let mut drained = 0;
        while drained < chunks {
            let Some(chunk) = self.detach_oldest(queue) else { break };
            self.free_entries(&chunk, own);
            drained += 1;
        }
        drained
    }

    /// Takes the oldest page out of a queue, if its time is past.
    fn detach_oldest(&self, queue: &ThreadSlot) -> Option<DetachedChunk> {
        if queue.oldest.load(self.medium(), Relaxed) == 0 {
            return None;
        }
        let _locked = queue.queue_lock.try_acquire_in(self)?;
        let oldest = queue.oldest.load(self.medium(), Relaxed);
        let chunk = self.chunk(oldest).filter(|_| oldest != 0)?;
        let tag = chunk.tag.load(self.medium(), Relaxed);
        if self.epoch() < (tag >> 8) + GRACE_EPOCHS {
            return None;
        }
        let next = chunk.next.load(self.medium(), Relaxed);
        queue.oldest.store(self.medium(), next, Relaxed);
        if next == 0 {
            queue.newest.store(self.medium(), 0, Relaxed);
        }
        let entries = (tag & 0xff).min(CHUNK_ENTRIES);
        let bytes =
            (0..entries).map(|i| chunk.entries[i as usize][1].load(self.medium(), Relaxed)).sum::<u64>();
        add_own(self.medium(), &queue.drained, bytes);
        Some(DetachedChunk { chunk: oldest, entries })
    }

    /// Marks all that waits in limbo, and the pages that it is noted in. What is on its way from one place to another is not seen.
    /// `None` if `should_stop` says so while somebody has the lock of a queue.
    #[must_use = "if it is to stop, not all is marked"]
    pub(crate) fn mark_limbo(&self, mark: &dyn Fn(u64, u64), should_stop: &dyn Fn() -> bool) -> Option<()> {
        for slot in self.used_slots() {
            let _locked = slot.queue_lock.acquire_until(self, should_stop)?;
            self.for_each_chunk(slot, &mut |offset, chunk| self.mark_chunk(offset, chunk, mark));
            // Notes are written under the lock; one that is taken out meanwhile stays as it was.
            let overflowed = slot.overflow_count.load(self.medium(), Relaxed).min(slot.overflow.len() as u64);
            for [offset, bytes] in &slot.overflow[..overflowed as usize] {
                mark(offset.load(self.medium(), Relaxed), bytes.load(self.medium(), Relaxed));
            }
        }
        Some(())
    }

    /// Bytes that were noted in pages of `slot` and are neither in its queue any more nor drained from there: who had them died, or put them into another queue, of which this says as many too
    /// few. Nobody is pinned; `None` if somebody has the queue all the same.
    pub(crate) fn missing_from_limbo(&self, slot: &ThreadSlot) -> Option<u64> {
        let _locked = slot.queue_lock.acquire_until(self, &|| true)?;
        let mut waiting = 0;
        self.for_each_chunk(slot, &mut |_, chunk| {
            waiting += self.entries_of(chunk).map(|(_, bytes)| bytes).sum::<u64>();
        });
        let [retired, drained] =
            [&slot.retired, &slot.drained].map(|count| count.load(self.medium(), Relaxed));
        Some(retired.wrapping_sub(drained).wrapping_sub(waiting))
    }

    /// Calls `each` with the pages in the queue of `slot` and its open one. The queue is locked, so no page goes from its owner to the queue, nor from
    /// there, and none is freed.
    fn for_each_chunk(&self, slot: &ThreadSlot, each: &mut dyn FnMut(u64, &Chunk)) {
        let mut next = slot.oldest.load(self.medium(), Relaxed);
        for _ in 0..=self.max_chunks() {
            let Some(chunk) = self.chunk(next).filter(|_| next != 0) else { break };
            each(next, chunk);
            next = chunk.next.load(self.medium(), Relaxed);
        }
        // ORDER: Acquire: pairs with `open_chunk`.
        let open = slot.chunk.load(self.medium(), Acquire);
        if let Some(chunk) = self.chunk(open).filter(|_| open != 0) {
            each(open, chunk);
        }
    }

    /// Offsets and bytes of what is noted in a page.
    fn entries_of<'p>(&'p self, chunk: &'p Chunk) -> impl Iterator<Item = (u64, u64)> + 'p {
        // ORDER: Acquire: pairs with `append_entry`.
        let entries = (chunk.tag.load(self.medium(), Acquire) & 0xff).min(CHUNK_ENTRIES);
        let load = |word: &Word| word.load(self.medium(), Relaxed);
        chunk.entries[..entries as usize].iter().map(move |[offset, bytes]| (load(offset), load(bytes)))
    }

    fn free_entries(&self, drained: &DetachedChunk, own: &ThreadSlot) {
        let Some(chunk) = self.chunk(drained.chunk) else { return };
        // What they are in was last touched long ago: fetched together, their bitmaps cost one miss and not one each.
        for entry in &chunk.entries[..drained.entries as usize] {
            let (offset, bytes) =
                (entry[0].load(self.medium(), Relaxed), entry[1].load(self.medium(), Relaxed));
            if let Some(class) =
                self.memory.classes.of(bytes).and_then(|number| self.memory.classes.get(number))
            {
                self.prefetch_block(offset, class);
            }
        }
        for entry in &chunk.entries[..drained.entries as usize] {
            let (offset, bytes) =
                (entry[0].load(self.medium(), Relaxed), entry[1].load(self.medium(), Relaxed));
            self.free(own, offset, bytes);
        }
        self.free(own, drained.chunk, CHUNK_BYTES);
    }

    /// Dies while it drains a page of `slot`, with `freed` of its entries freed. Returns how many there were.
    #[cfg(test)]
    pub(crate) fn leave_half_drained(&self, slot: &ThreadSlot, freed: u64) -> u64 {
        let drained = self.detach_oldest(slot).expect("a page whose time is past");
        let chunk = self.chunk(drained.chunk).expect("a page in the pool");
        self.entries_of(chunk)
            .take(freed as usize)
            .for_each(|(offset, bytes)| self.free(slot, offset, bytes));
        drained.entries
    }

    /// Drains every queue as far as the epoch allows. Returns how many pages.
    pub(crate) fn drain_all(&self, own: &ThreadSlot) -> u32 {
        self.used_slots().map(|slot| self.drain_queue(slot, own)).sum()
    }

    fn drain_queue(&self, queue: &ThreadSlot, own: &ThreadSlot) -> u32 {
        let most = u32::try_from(self.max_chunks()).unwrap_or(u32::MAX);
        let drained = self.drain(queue, most, own);
        if drained == most
            && let Some(_locked) = queue.queue_lock.try_acquire_in(self)
        {
            // Damaged, it leads round: what is left in it the next collection finds. (What is put in while somebody is pinned is not past its time until he has gone.)
            [&queue.oldest, &queue.newest].iter().for_each(|end| end.store(self.medium(), 0, Relaxed));
        }
        drained
    }

    /// No queue has more pages than this: what the pool has room for.
    fn max_chunks(&self) -> u64 {
        self.size() / CHUNK_BYTES
    }
}

/// Adds to a word that only this thread writes.
#[inline(always)]
pub(crate) fn add_own<M: MappedMedium>(medium: &M, word: &Word, by: u64) {
    word.store(medium, word.load(medium, Relaxed).wrapping_add(by), Relaxed);
}

#[cfg(test)]
mod tests;
