//! Limbo: where retired blocks wait until no reader can see them any more.
//!
//! A slot's owner writes what it retires to a chunk in the pool. A full chunk goes to the end of
//! the slot's queue, with the epoch of its last entry. Once that epoch's grace period is over,
//! chunks are drained from the front of the queue. Any thread may drain any slot's queue, under its
//! lock; only the open chunk is the owner's alone. If another thread holds the queue's lock for too
//! long, perhaps because it is stopped, the chunk goes to another slot's queue: the owner never
//! waits for it.
//!
//! ```text
//! chunk: | next | epoch of the last entry (63:8), entries (7:0) | offset 0 | bytes 0 | ... |
//! ```

use crate::allocator::heap::Heap;
use crate::allocator::units::Units;
use crate::base::Base;
use crate::format::lifetime::Start;
use crate::format::slot::{ThreadSlot, add_own};
use crate::reclaim::epoch::{Epochs, GRACE_EPOCHS, ONE_PIN, OVERFLOWED};
use crate::sync::backoff::{Backoff, rests_in};
use crate::sync::lock::Lock;
use crate::sync::locked::Locked;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use terrace_medium::{MappedMedium, Offset, Persistent, Word};

/// Bytes of a chunk: a size class of every geometry.
pub(crate) const CHUNK_BYTES: u64 = 512;
/// Full chunks of a slot after which it tries to advance the epoch, which interrupts every running
/// thread (see `barrier`).
const CHUNKS_PER_ADVANCE: u64 = 8;
pub(crate) const CHUNK_ENTRIES: u64 = 31;
/// A chunk is queued early when its blocks have more than 1 MiB, or this fraction of the pool.
const CHUNK_POOL_FRACTION: u64 = 64;
/// Rests of a thread that waits to write to its overflow buffer, before it leaks the block.
const OVERFLOW_PATIENCE: u32 = rests_in(Duration::from_secs(2));
/// Chunks that are drained when a chunk is queued: more than one, so that queues shrink.
const DRAIN: u32 = 3;

const _: () = assert!(CHUNK_ENTRIES < 1 << 8, "a chunk's tag has 8 bits for its entries");
const _: () = assert!(DRAIN > 1, "with as many chunks drained as queued, queues would not shrink");

#[repr(C)]
struct Chunk {
    next: Word,
    tag: Word,
    entries: [[Word; 2]; CHUNK_ENTRIES as usize],
}

const _: () = assert!(size_of::<Chunk>() as u64 == CHUNK_BYTES);

// SAFETY: words only, no padding.
unsafe impl Persistent for Chunk {}

/// A chunk that has left its queue.
struct DetachedChunk {
    chunk: u64,
    entries: u64,
}

/// What a thread does about a lock that stays held: its holder may have died. Called once it has
/// slept. Given by the part above, which can recover a dead participant.
pub(crate) type OnStuck<'a> = &'a dyn Fn(&Lock);

/// Retired blocks. Owns the chunks and the queues, which lie in the pool; stands on [`Epochs`].
pub(crate) struct Limbo<M: MappedMedium> {
    pub(crate) epochs: Epochs<M>,
    /// The epoch of the last wait for readers that timed out; `u64::MAX` if none has.
    pub(crate) held_up_at: AtomicU64,
}

impl<M: MappedMedium> Limbo<M> {
    pub(crate) fn new(epochs: Epochs<M>) -> Self {
        Self { epochs, held_up_at: AtomicU64::new(u64::MAX) }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<M> {
        self.epochs.base()
    }

    #[inline(always)]
    pub(crate) fn units(&self) -> &Units<M> {
        self.epochs.heap.units()
    }

    #[inline(always)]
    pub(crate) fn heap(&self) -> &Heap<M> {
        &self.epochs.heap
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.epochs.medium()
    }

    fn chunk(&self, offset: u64) -> Option<&Chunk> {
        self.base().region.get(Offset::new(offset))
    }

    fn chunk_class(&self) -> Option<usize> {
        self.units().classes.of(CHUNK_BYTES)
    }

    pub(crate) fn ensure_reserve(&self) {
        if let Some(class) = self.chunk_class() {
            self.heap().reserve_slab(class);
        }
    }

    /// After an open: keeps the reserve that was at `offset`, if it is sound.
    pub(crate) fn restore_reserve(&self, offset: u64) {
        let Some(class) = self.chunk_class() else { return };
        let is_one = match self.base().start {
            Start::Clean => self.heap().is_reserve(offset, class),
            // It held only limbo chunks, so after a crash it holds nothing.
            _ => self.heap().restore_reserve_slab(offset, class),
        };
        if !is_one {
            self.base().shared().reserve.store(self.medium(), 0, Relaxed);
        }
    }

    /// Puts the block at `offset` into limbo. The owner of `slot` is pinned, and has unlinked the
    /// block under this pin.
    pub(crate) fn retire(&self, slot: &ThreadSlot, offset: u64, bytes: u64, stuck: OnStuck<'_>) {
        if self.base().is_marking() {
            // The sweep must not free it: it is freed when it leaves limbo.
            self.heap().mark(offset, bytes);
        }
        match self.open_chunk(slot).or_else(|| self.open_chunk_slow(slot)) {
            Some(chunk) => self.append_entry(slot, chunk, offset, bytes, stuck),
            None => self.push_overflow(slot, offset, bytes, stuck),
        }
    }

    /// Appends a block to the slot's open chunk.
    #[inline(always)]
    fn append_entry(&self, slot: &ThreadSlot, chunk: &Chunk, offset: u64, bytes: u64, stuck: OnStuck<'_>) {
        add_own(self.medium(), &slot.retired, bytes);
        let count = slot.chunk_entries.load(self.medium(), Relaxed);
        let entry = &chunk.entries[count.min(CHUNK_ENTRIES - 1) as usize];
        entry[0].store(self.medium(), offset, Relaxed);
        entry[1].store(self.medium(), bytes, Relaxed);
        // ORDER: Release: a collector that counts the entry sees it written.
        chunk.tag.store(self.medium(), self.epochs.epoch() << 8 | (count + 1), Release);
        slot.chunk_entries.store(self.medium(), count + 1, Relaxed);
        let waiting = slot.chunk_bytes.load(self.medium(), Relaxed) + bytes;
        slot.chunk_bytes.store(self.medium(), waiting, Relaxed);
        let much = waiting >= (self.base().size() / CHUNK_POOL_FRACTION).min(1 << 20);
        if count + 1 >= CHUNK_ENTRIES || much {
            self.queue_chunk(slot, stuck);
            let chunks = slot.chunks.load(self.medium(), Relaxed) + 1;
            slot.chunks.store(self.medium(), chunks, Relaxed);
            if self.drain(slot, DRAIN, slot) == 0 && (much || chunks.is_multiple_of(CHUNKS_PER_ADVANCE)) {
                self.epochs.try_advance();
            }
        }
    }

    /// No memory for a chunk is available: the block goes to the slot's overflow buffer, until the
    /// owner is unpinned and can wait for other threads without holding them up.
    #[cold]
    pub(crate) fn push_overflow(&self, slot: &ThreadSlot, offset: u64, bytes: u64, stuck: OnStuck<'_>) {
        let count = slot.overflow_count.load(self.medium(), Relaxed);
        match slot.overflow.get(count as usize) {
            Some(entry) => {
                // A collector may be reading the buffer, or be stopped in the middle of it.
                let turns = Cell::new(0);
                let gives_up = || {
                    let is_long = turns.replace(turns.get() + 1) >= OVERFLOW_PATIENCE;
                    if !is_long {
                        stuck(&slot.queue_lock);
                    }
                    is_long
                };
                let Some(_locked) = slot.queue_lock.acquire_until(self.base(), &gives_up) else {
                    return self.base().leak(bytes);
                };
                entry[0].store(self.medium(), offset, Relaxed);
                entry[1].store(self.medium(), bytes, Relaxed);
                slot.overflow_count.store(self.medium(), count + 1, Relaxed);
                self.epochs.request_unpin_work(slot, OVERFLOWED);
            }
            None => self.base().leak(bytes),
        }
    }

    /// Whether the slot's overflow buffer has entries.
    #[inline(always)]
    pub(crate) fn has_overflow(&self, slot: &ThreadSlot) -> bool {
        slot.overflow_count.load(self.medium(), Relaxed) != 0
    }

    /// Moves the slot's overflow buffer to chunks; its owner is not pinned. Entries without a chunk
    /// stay, and are tried again after the next pin. Only if the buffer is nearly full, this waits
    /// until other threads are unpinned.
    #[cold]
    pub(crate) fn flush_overflow(&self, slot: &ThreadSlot, stuck: OnStuck<'_>) {
        let mut backoff = Backoff::new();
        for _ in 0..self.wait_budget() {
            let left = self.move_overflow_pinned(slot, stuck);
            if left <= slot.overflow.len() / 2 {
                return;
            }
            self.epochs.try_advance();
            backoff.rest();
        }
        self.held_up_at.store(self.epochs.epoch(), Relaxed);
    }

    /// As `move_overflow_to_chunks`, for a slot whose owner is not pinned. If entries are left, the
    /// next pin ends with unpin work again.
    fn move_overflow_pinned(&self, slot: &ThreadSlot, stuck: OnStuck<'_>) -> usize {
        let flags = slot.pin.load(self.medium(), Relaxed) & ONE_PIN | self.epochs.barrier_flag();
        self.epochs.set_pin(slot, flags | 1);
        let left = self.move_overflow_to_chunks(slot, stuck);
        self.epochs.clear_pin(slot, flags | if left > 0 { OVERFLOWED } else { 0 });
        left
    }

    /// Moves the slot's overflow buffer to chunks. Returns how many entries are left.
    pub(crate) fn move_overflow_to_chunks(&self, slot: &ThreadSlot, stuck: OnStuck<'_>) -> usize {
        let mut left = (slot.overflow_count.load(self.medium(), Relaxed) as usize).min(slot.overflow.len());
        while left > 0
            && let Some(chunk) = self.open_chunk(slot).or_else(|| self.open_chunk_slow(slot))
        {
            left -= 1;
            let [offset, bytes] = [0, 1].map(|word| slot.overflow[left][word].load(self.medium(), Relaxed));
            if self.base().is_marking() {
                // The collector may look while it is in neither place.
                self.heap().mark(offset, bytes);
            }
            slot.overflow_count.store(self.medium(), left as u64, Relaxed);
            self.append_entry(slot, chunk, offset, bytes, stuck);
        }
        left
    }

    /// Leaves nothing that only the owner of `slot` could continue. This thread is the owner, or
    /// there is none.
    pub(crate) fn flush_slot(&self, slot: &ThreadSlot, stuck: OnStuck<'_>) {
        if slot.overflow_count.load(self.medium(), Relaxed) != 0 {
            self.move_overflow_pinned(slot, stuck);
        }
        if slot.chunk.load(self.medium(), Relaxed) != 0 {
            // Pinned, so that the collector waits until the chunk is in the queue.
            let flags =
                slot.pin.load(self.medium(), Relaxed) & (ONE_PIN | OVERFLOWED) | self.epochs.barrier_flag();
            self.epochs.set_pin(slot, flags | 1);
            self.queue_chunk(slot, stuck);
            self.epochs.clear_pin(slot, flags);
        }
    }

    /// Frees what is in the overflow buffer at once: no thread is pinned.
    pub(crate) fn free_overflow(&self, slot: &ThreadSlot) {
        slot.pin.store(self.medium(), 0, Relaxed);
        let count = slot.overflow_count.swap(self.medium(), 0, Relaxed).min(slot.overflow.len() as u64);
        for [offset, bytes] in &slot.overflow[..count as usize] {
            self.heap().free(slot, offset.load(self.medium(), Relaxed), bytes.load(self.medium(), Relaxed));
        }
    }

    /// The chunk that the owner of `slot` is writing to; a new one if there is none.
    fn open_chunk(&self, slot: &ThreadSlot) -> Option<&Chunk> {
        let open = slot.chunk.load(self.medium(), Relaxed);
        if open != 0 {
            return self.chunk(open);
        }
        let number = self.chunk_class()?;
        let class = self.units().classes.get(number)?;
        let offset =
            self.heap().take_block(slot, number, class).or_else(|| self.heap().take_from_reserve(class))?;
        add_own(self.medium(), &slot.small_bytes, CHUNK_BYTES);
        let chunk = self.chunk(offset)?;
        chunk.next.store(self.medium().point("limbo.link"), 0, Relaxed);
        chunk.tag.store(self.medium(), self.epochs.epoch() << 8, Relaxed);
        slot.chunk_entries.store(self.medium(), 0, Relaxed);
        slot.chunk_bytes.store(self.medium(), 0, Relaxed);
        // ORDER: Release: the collector, or the thread that recovers the slot of a dead one, finds
        // the chunk without entries.
        slot.chunk.store(self.medium(), offset, Release);
        Some(chunk)
    }

    /// As `open_chunk`, after draining what can be drained, other slots' chunks included.
    #[cold]
    fn open_chunk_slow(&self, slot: &ThreadSlot) -> Option<&Chunk> {
        self.epochs.try_advance();
        self.drain_all(slot);
        self.open_chunk(slot)
    }

    /// Appends the open chunk of `slot` to its queue, or to another one. Called by the owner only.
    pub(crate) fn queue_chunk(&self, slot: &ThreadSlot, stuck: OnStuck<'_>) {
        if slot.chunk.load(self.medium(), Relaxed) == 0 {
            return;
        }
        let (queue, _locked) = self.lock_queue(slot, stuck);
        if !std::ptr::eq(queue, slot) && self.base().is_marking() {
            // The collector may have scanned that queue already, and not this slot yet.
            let open = slot.chunk.load(self.medium(), Relaxed);
            if let Some(chunk) = self.chunk(open) {
                self.mark_chunk(open, chunk, &|offset, bytes| self.heap().mark(offset, bytes));
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

    /// Marks a chunk and the blocks in it, so that the sweep leaves them alone.
    fn mark_chunk(&self, offset: u64, chunk: &Chunk, mark: &dyn Fn(u64, u64)) {
        mark(offset, CHUNK_BYTES);
        self.entries_of(chunk).for_each(|(offset, bytes)| mark(offset, bytes));
    }

    /// Locks the queue of `slot` or, if its lock stays held, any other queue: the collector scans
    /// all of them, and so does a thread that needs memory.
    fn lock_queue<'p>(&'p self, slot: &'p ThreadSlot, stuck: OnStuck<'_>) -> (&'p ThreadSlot, Locked<'p, M>) {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = slot.queue_lock.try_acquire_in(self.base()) {
                return (slot, locked);
            }
            if backoff.spin() {
                stuck(&slot.queue_lock);
                let free =
                    |other: &'p ThreadSlot| Some((other, other.queue_lock.try_acquire_in(self.base())?));
                if let Some(other) = self.base().used_slots().find_map(free) {
                    return other;
                }
            }
        }
    }

    /// Makes the ends of a queue match its chunks again, after the holder of its lock died. A chunk
    /// that it was about to append, or had detached, may be lost to the queue.
    pub(crate) fn repair_queue(&self, queue: &ThreadSlot) {
        let (mut last, mut next) = (0, queue.oldest.load(self.medium(), Relaxed));
        // A circular list is damaged: it is ended somewhere.
        for _ in 0..self.max_chunks() {
            let Some(chunk) = self.chunk(next).filter(|_| next != 0) else { break };
            last = next;
            next = chunk.next.load(self.medium(), Relaxed);
        }
        queue.newest.store(self.medium(), last, Relaxed);
    }

    /// Frees what is past its grace period in the queue of `queue`, at most `chunks` chunks. `own`
    /// is the slot of the calling thread. Returns how many chunks were drained.
    pub(crate) fn drain(&self, queue: &ThreadSlot, chunks: u32, own: &ThreadSlot) -> u32 {
        let mut drained = 0;
        while drained < chunks {
            let Some(chunk) = self.detach_oldest(queue) else { break };
            self.free_entries(&chunk, own);
            drained += 1;
        }
        drained
    }

    /// Detaches the oldest chunk of a queue, if its grace period is over.
    fn detach_oldest(&self, queue: &ThreadSlot) -> Option<DetachedChunk> {
        if queue.oldest.load(self.medium(), Relaxed) == 0 {
            return None;
        }
        let _locked = queue.queue_lock.try_acquire_in(self.base())?;
        let oldest = queue.oldest.load(self.medium(), Relaxed);
        let chunk = self.chunk(oldest).filter(|_| oldest != 0)?;
        let tag = chunk.tag.load(self.medium(), Relaxed);
        if self.epochs.epoch() < (tag >> 8) + GRACE_EPOCHS {
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

    /// Marks all blocks in limbo, and the chunks. A block that is being moved from one place to
    /// another is not seen. `None` if `gives_up` returns true while another thread holds the lock
    /// of a queue.
    #[must_use = "if it stopped, not all is marked"]
    pub(crate) fn mark_limbo(&self, mark: &dyn Fn(u64, u64), gives_up: &dyn Fn(&Lock) -> bool) -> Option<()> {
        for slot in self.base().used_slots() {
            let _locked = slot.queue_lock.acquire_until(self.base(), &|| gives_up(&slot.queue_lock))?;
            self.for_each_chunk(slot, &mut |offset, chunk| self.mark_chunk(offset, chunk, mark));
            // Entries are written under the lock; the slot of one that is taken out meanwhile keeps
            // its content.
            let overflowed = slot.overflow_count.load(self.medium(), Relaxed).min(slot.overflow.len() as u64);
            for [offset, bytes] in &slot.overflow[..overflowed as usize] {
                mark(offset.load(self.medium(), Relaxed), bytes.load(self.medium(), Relaxed));
            }
        }
        Some(())
    }

    /// Bytes that were appended to chunks of `slot` and are neither in its queue nor drained from
    /// it: the thread that had them died, or moved them to another queue, whose value is too small
    /// by as many. No thread is pinned; `None` if another thread holds the queue's lock all the
    /// same.
    pub(crate) fn missing_from_limbo(&self, slot: &ThreadSlot) -> Option<u64> {
        let _locked = slot.queue_lock.acquire_until(self.base(), &|| true)?;
        let mut waiting = 0;
        self.for_each_chunk(slot, &mut |_, chunk| {
            waiting += self.entries_of(chunk).map(|(_, bytes)| bytes).sum::<u64>();
        });
        let [retired, drained] =
            [&slot.retired, &slot.drained].map(|count| count.load(self.medium(), Relaxed));
        Some(retired.wrapping_sub(drained).wrapping_sub(waiting))
    }

    /// Calls `each` with the chunks in the queue of `slot` and its open one. The queue is locked,
    /// so no chunk is appended or detached, and none is freed.
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

    /// Offsets and bytes of the entries of a chunk.
    fn entries_of<'p>(&'p self, chunk: &'p Chunk) -> impl Iterator<Item = (u64, u64)> + 'p {
        // ORDER: Acquire: pairs with `append_entry`.
        let entries = (chunk.tag.load(self.medium(), Acquire) & 0xff).min(CHUNK_ENTRIES);
        let load = |word: &Word| word.load(self.medium(), Relaxed);
        chunk.entries[..entries as usize].iter().map(move |[offset, bytes]| (load(offset), load(bytes)))
    }

    fn free_entries(&self, drained: &DetachedChunk, own: &ThreadSlot) {
        let Some(chunk) = self.chunk(drained.chunk) else { return };
        // The slabs of these blocks were last accessed long ago. Prefetching all of their bitmaps
        // costs one miss instead of one for each block.
        for entry in &chunk.entries[..drained.entries as usize] {
            let (offset, bytes) =
                (entry[0].load(self.medium(), Relaxed), entry[1].load(self.medium(), Relaxed));
            if let Some(class) =
                self.units().classes.of(bytes).and_then(|number| self.units().classes.get(number))
            {
                self.units().prefetch_block(offset, class);
            }
        }
        for entry in &chunk.entries[..drained.entries as usize] {
            let (offset, bytes) =
                (entry[0].load(self.medium(), Relaxed), entry[1].load(self.medium(), Relaxed));
            self.heap().free(own, offset, bytes);
        }
        self.heap().free(own, drained.chunk, CHUNK_BYTES);
    }

    /// Drains every queue as far as the epoch allows. Returns how many chunks.
    pub(crate) fn drain_all(&self, own: &ThreadSlot) -> u32 {
        self.base().used_slots().map(|slot| self.drain_queue(slot, own)).sum()
    }

    fn drain_queue(&self, queue: &ThreadSlot, own: &ThreadSlot) -> u32 {
        let most = u32::try_from(self.max_chunks()).unwrap_or(u32::MAX);
        let drained = self.drain(queue, most, own);
        if drained == most
            && let Some(_locked) = queue.queue_lock.try_acquire_in(self.base())
        {
            // It is circular, so damaged: the next collection finds what is left in it. (A chunk
            // that is queued while a thread is pinned is not past its grace period until that
            // thread is unpinned.)
            [&queue.oldest, &queue.newest].iter().for_each(|end| end.store(self.medium(), 0, Relaxed));
        }
        drained
    }

    /// The most chunks that a queue can have: as many as the pool has room for.
    fn max_chunks(&self) -> u64 {
        self.base().size() / CHUNK_BYTES
    }
}

#[cfg(test)]
#[path = "tests/limbo.rs"]
mod tests;
