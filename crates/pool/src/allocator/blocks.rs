//! Blocks: allocating, filling, persisting and freeing them.

use crate::allocator::classes::Class;
use crate::pool::{Inner, Pool};
use crate::reclaim::epoch::{GRACE_EPOCHS, Guard};
use crate::reclaim::limbo::add_own;
use crate::reclaim::slots::ThreadSlot;
use crate::sync::backoff::{Backoff, rests_in};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_medium::{LINE, Line, MappedMedium, Offset, Word};

/// Rests of a thread that needs memory, while it waits for the readers that hold memory up. A
/// pinned thread can be runnable but unscheduled for more than a second: 1.5 s were measured with
/// sixteen threads on two processors.
pub(crate) const PATIENCE: u32 = rests_in(Duration::from_secs(10));
/// As [`PATIENCE`], where an earlier wait was in vain.
pub(crate) const REPEAT_PATIENCE: u32 = 4;
/// If its own class has no block, a request may be served from a class this far up: a block of at
/// most twice the size.
const LARGER_CLASSES: usize = 8;
/// Rests between two checks for dead participants.
const RECOVER_EVERY: u32 = rests_in(Duration::from_millis(16));

/// The pool has no room for the request.
///
/// `waiting_bytes` were retired, but some reader may still see them. A refused thread that is
/// pinned holds part of them up itself. [`Pool::reclaim_blocking`], called without a guard,
/// reclaims them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFull {
    /// Bytes asked for.
    pub wanted: u64,
    /// Bytes of the pool.
    pub size: u64,
    /// Bytes of the longest free run, if the block would have been an extent: a block is never
    /// split.
    pub longest: Option<u64>,
    /// Bytes that were retired and wait for their readers.
    pub waiting_bytes: u64,
    /// Whether memory that a crash or a dead process left has yet to be collected.
    pub collecting: bool,
}

impl std::fmt::Display for PoolFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { wanted, size, longest, waiting_bytes, collecting } = self;
        write!(f, "the pool of {size} bytes has no room for {wanted} more")?;
        if let Some(longest) = longest {
            write!(f, " in one piece (the longest free one has {longest})")?;
        }
        if *collecting {
            return f.write_str("; memory is still being collected after a crash, so try again later");
        }
        if *waiting_bytes > 0 {
            write!(f, "; {waiting_bytes} bytes become free once their readers have finished")?;
        }
        f.write_str("; remove something or grow the pool")
    }
}

impl std::error::Error for PoolFull {}

impl<M: MappedMedium> Guard<'_, M> {
    /// Allocates a block of at least `bytes` bytes, unreachable until it is linked. It is aligned
    /// to 8; to 64 if `bytes` is a multiple of 64; to 4096 if `bytes` is a multiple of 4096 and
    /// more than an eighth of a slab. Its content is arbitrary.
    ///
    /// # Errors
    /// [`PoolFull`], after everything that can be reclaimed has been tried.
    #[inline(always)]
    pub fn alloc(&self, bytes: usize) -> Result<Fresh<'_, M>, PoolFull> {
        let bytes = bytes as u64;
        match self.inner().take(self.thread_slot(), bytes) {
            Some(offset) => Ok(Fresh { guard: self, offset, bytes }),
            None => self.alloc_slow(bytes),
        }
    }

    #[cold]
    fn alloc_slow(&self, bytes: u64) -> Result<Fresh<'_, M>, PoolFull> {
        match self.inner().take_slow(self.thread_slot(), bytes) {
            Some(offset) => Ok(Fresh { guard: self, offset, bytes }),
            None => Err(self.inner().pool_full_error(bytes)),
        }
    }

    /// Frees a block that was never reachable, at once. `bytes` is what was asked for at its
    /// allocation.
    #[inline(always)]
    pub fn free(&self, offset: u64, bytes: usize) {
        self.inner().free(self.thread_slot(), offset, bytes as u64);
    }

    /// Retires a block that was unlinked under this guard: it is freed once no reader can see it.
    #[inline(always)]
    pub fn retire(&self, offset: u64, bytes: usize) {
        self.inner().retire(self.thread_slot(), offset, bytes as u64);
    }

    /// Whether blocks retired under this guard, or earlier, wait in this thread's overflow buffer
    /// because there is no memory for a limbo chunk. That buffer is small. A caller that removes
    /// many keys drops the guard then before it removes more.
    #[inline(always)]
    pub fn is_limbo_full(&self) -> bool {
        self.inner().has_overflow(self.thread_slot())
    }

    /// Checks that `count` blocks could be retired now, for work that can be put off: a block that
    /// finds no place in limbo leaks until the next collection.
    ///
    /// # Errors
    /// There is no memory for so many limbo entries.
    #[inline(always)]
    pub fn reserve_retirements(&self, count: usize) -> Result<(), PoolFull> {
        self.inner().reserve_limbo(self.thread_slot(), count)
    }

    /// Waits until everything that this thread has written back or streamed is durable, in any
    /// number of blocks.
    #[inline(always)]
    #[track_caller]
    pub fn fence(&self) -> Fence<'_> {
        self.pool().region().fence();
        Fence(PhantomData)
    }
}

/// The proof that this thread has fenced.
pub struct Fence<'g>(PhantomData<(&'g (), *const ())>);

/// A block that no other thread can reach. Dropping it frees it.
#[must_use = "a block that is not kept is freed at once"]
pub struct Fresh<'g, M: MappedMedium> {
    guard: &'g Guard<'g, M>,
    offset: u64,
    bytes: u64,
}

#[allow(clippy::len_without_is_empty, reason = "a block of no bytes is of no interest")]
impl<'g, M: MappedMedium> Fresh<'g, M> {
    pub(crate) fn new(guard: &'g Guard<'g, M>, offset: u64, bytes: u64) -> Self {
        Self { guard, offset, bytes }
    }

    /// Offset of its first byte.
    #[inline(always)]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that were asked for.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes as usize
    }

    /// Offset of the `len` bytes from `at` on.
    #[inline(always)]
    #[track_caller]
    fn part(&self, at: usize, len: usize) -> u64 {
        let end = at.checked_add(len);
        assert!(
            end.is_some_and(|end| end as u64 <= self.bytes),
            "{len} bytes at {at} of a block of {}",
            self.bytes
        );
        self.offset + at as u64
    }

    /// Copies `bytes` to `at`, through the cache.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline(always)]
    #[track_caller]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let offset = self.part(at, bytes.len());
        // SAFETY: the block is this Fresh's alone, and a Fresh stays in its thread.
        unsafe { self.guard.pool().region().copy_in(offset, bytes) }
    }

    /// The word at `at`.
    ///
    /// # Panics
    /// If it does not lie in the block, or `at` is no multiple of 8.
    #[inline(always)]
    #[track_caller]
    pub fn word(&self, at: usize) -> &Word {
        self.guard.pool().region().at(Offset::new(self.part(at, 8)))
    }

    /// The line with number `index`, counted from the block's start. A block whose size is a
    /// multiple of a line is aligned to lines.
    ///
    /// # Panics
    /// If it does not lie in the block, or the block is not aligned.
    #[inline(always)]
    #[track_caller]
    pub fn line(&self, index: usize) -> &Line {
        self.guard.pool().region().at(Offset::new(self.part(index * LINE, LINE)))
    }

    /// Writes whole lines at `at`, past the cache where that pays: durable at the next fence,
    /// without a write-back.
    ///
    /// # Panics
    /// If they do not fit, or do not begin at a line.
    #[inline(always)]
    #[track_caller]
    pub fn stream_lines(&self, at: usize, lines: &[[u64; LINE / 8]]) {
        let offset = self.part(at, size_of_val(lines));
        self.guard.pool().region().stream_lines(offset, lines);
    }

    /// Starts writing the block back. Durable at the next fence.
    #[inline(always)]
    #[track_caller]
    pub fn write_back(&self) {
        self.guard.pool().region().write_back_bytes(self.offset, self.bytes as usize);
    }

    /// Writes the block back and fences.
    #[inline(always)]
    #[track_caller]
    pub fn persist(self) -> Durable<'g, M> {
        // PERSIST: the block, and with it its allocation, before anything can link it.
        self.write_back();
        self.guard.pool().region().fence();
        Durable(self)
    }

    /// Declares that the block was written back, or streamed, before this fence.
    #[inline(always)]
    pub fn fenced(self, _fence: &Fence<'_>) -> Durable<'g, M> {
        Durable(self)
    }

    /// Declares that the block was written back, or streamed, and that the caller fences before it
    /// makes the block reachable. For blocks that are reachable only through others that the same
    /// fence covers.
    #[inline(always)]
    pub fn fenced_later(self) -> Durable<'g, M> {
        Durable(self)
    }
}

impl<M: MappedMedium> Drop for Fresh<'_, M> {
    fn drop(&mut self) {
        self.guard.inner().free(self.guard.thread_slot(), self.offset, self.bytes);
    }
}

/// A block that no other thread can reach and that is durable: the only kind that may be linked.
/// Dropping it frees it.
#[must_use = "a block that is not linked is freed at once"]
pub struct Durable<'g, M: MappedMedium>(Fresh<'g, M>);

impl<M: MappedMedium> Durable<'_, M> {
    /// Offset of its first byte.
    #[inline(always)]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Returns its offset. The caller owns the block now: it links it, or frees it by
    /// [`Guard::free`].
    #[inline(always)]
    pub fn into_offset(self) -> u64 {
        let offset = self.0.offset;
        std::mem::forget(self);
        offset
    }
}

thread_local! {
    /// Whether this thread takes blocks of larger classes where its own class has none.
    static USE_LARGER: Cell<bool> = const { Cell::new(false) };
}

impl<M: MappedMedium> Pool<M> {
    /// Does `work`. Meanwhile this thread gets a block of a larger class, at most twice as large,
    /// where its own class has no free block and no unit is free. Such a block stays larger until
    /// it is freed, so this is for requests that would be refused otherwise.
    pub fn with_larger_blocks<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Reset(bool);
        impl Drop for Reset {
            fn drop(&mut self) {
                USE_LARGER.set(self.0);
            }
        }
        let _reset = Reset(USE_LARGER.replace(true));
        work()
    }

    /// Reclaims all that can be reclaimed: retired blocks whose readers have gone, and memory that
    /// was set aside and is not used. While another thread collects after a crash, it first waits
    /// for that. Call it after [`PoolFull`] and before another try, without a guard and without a
    /// lock that a trace may take. Returns whether anything became free.
    ///
    /// Waits up to ten seconds for readers that hold memory up, in case one of them is stopped.
    /// After one wait in vain it does not wait for the same reader again. It never waits for the
    /// calling thread itself.
    pub fn reclaim_blocking(&self) -> bool {
        self.0.recover_all_dead();
        let collected = self.0.wait_for_collector();
        let (before, scans) = (self.0.total_freed(), self.0.scans());
        self.0.for_each_idle_slot(|vacant| self.0.flush_slot(vacant));
        self.wait_for_blocking_threads();
        let guard = self.pin();
        let has_scanned = self.0.scans() < scans;
        self.0.reclaim(guard.thread_slot()) || self.0.total_freed() != before || has_scanned || collected
    }

    /// Reclaims without waiting for other threads: called a few times, it frees what was retired
    /// and no reader holds up, and makes slabs that have lost their last block available for all
    /// sizes. Threads that allocate do the same once memory is short. Called now and then in the
    /// background, it keeps memory from lying idle until then. Looks only where something may be
    /// found. Returns whether anything became free.
    pub fn reclaim_nonblocking(&self) -> bool {
        let freed = self.0.total_freed();
        if self.0.waiting_bytes() > 0 {
            self.0.for_each_idle_slot(|vacant| self.0.flush_slot(vacant));
            self.drain();
        }
        let _guard = self.pin();
        self.0.release_likely_empty_slabs() > 0 || self.0.total_freed() != freed
    }

    /// Waits until the threads that are pinned now have been unpinned, and frees what they held up,
    /// as long as the wait budget lasts. Threads that hold slabs while they look for empty ones are
    /// pinned, too.
    fn wait_for_blocking_threads(&self) {
        let began = self.0.epoch();
        let holds_nothing_up = || self.0.waiting_bytes() == 0 && self.0.scans() == 0;
        self.wait_for_readers_until(|now| now > began + GRACE_EPOCHS || holds_nothing_up());
    }

    /// Advances the epoch and frees what is past its grace period, until `is_over` returns true for
    /// the epoch. Returns whether it did within the wait budget.
    pub(crate) fn wait_for_readers_until(&self, is_over: impl Fn(u64) -> bool) -> bool {
        if self.pin().depth() > 1 {
            // It would wait for this thread itself.
            self.drain();
            return false;
        }
        let mut backoff = Backoff::new();
        for turn in 1..=self.0.wait_budget() {
            let epoch = self.0.epoch();
            let now = self.drain();
            if is_over(now) {
                return true;
            }
            if now == epoch && backoff.rest() && turn.is_multiple_of(RECOVER_EVERY) {
                self.0.recover_all_dead();
            }
        }
        self.0.held_up_at.store(self.0.epoch(), Relaxed);
        false
    }

    /// Advances the epoch if no pin holds it up, and frees what is past its grace period. Returns
    /// the epoch.
    pub(crate) fn drain(&self) -> u64 {
        let guard = self.pin();
        self.0.queue_chunk(guard.thread_slot());
        let now = self.0.try_advance();
        self.0.drain_all(guard.thread_slot());
        now
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Threads that look for empty slabs.
    fn scans(&self) -> u64 {
        self.shared().scans.load(self.medium(), Relaxed)
    }

    /// Turns to wait for readers: few if a wait in this epoch was in vain already.
    pub(crate) fn wait_budget(&self) -> u32 {
        if self.held_up_at.load(Relaxed) == self.epoch() { REPEAT_PATIENCE } else { PATIENCE }
    }

    /// Allocates `bytes` bytes, if they are available at once.
    #[inline(always)]
    pub(crate) fn take(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        let Some(number) = self.memory.classes.of(bytes) else { return self.take_large(slot, bytes) };
        let class = self.memory.classes.get(number)?;
        let offset = self.take_block(slot, number, class)?;
        add_own(self.medium(), &slot.small_bytes, u64::from(class.size));
        Some(offset)
    }

    fn take_large(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        let offset = self.take_extent(bytes)?;
        add_own(self.medium(), &slot.large_bytes, self.memory.classes.footprint(bytes));
        Some(offset)
    }

    /// As `take`, after everything that can be reclaimed has been tried.
    fn take_slow(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        if bytes > self.size() {
            return None;
        }
        self.queue_chunk(slot);
        // A dead participant must not hold memory up.
        self.recover_all_dead();
        // The owner of `slot` is pinned, so the epoch advances by one at most.
        self.try_advance();
        if self.drain_all(slot) > 0
            && let Some(offset) = self.take(slot, bytes)
        {
            return Some(offset);
        }
        let taken = if self.reclaim(slot) { self.take(slot, bytes) } else { None };
        taken.or_else(|| USE_LARGER.get().then(|| self.take_larger(slot, bytes)).flatten())
    }

    /// Allocates a block of a larger class for `bytes` bytes, aligned as one of its own class: at
    /// most [`LARGER_CLASSES`] classes up.
    fn take_larger(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        let classes = &self.memory.classes;
        let own = classes.of(bytes)?;
        (own + 1..=own + LARGER_CLASSES).find_map(|number| {
            let class = classes.get(number).filter(|class| class.is_aligned_like(bytes))?;
            let offset = self.take_block(slot, number, class)?;
            add_own(self.medium(), &slot.small_bytes, u64::from(class.size));
            Some(offset)
        })
    }

    /// Allocates `bytes` bytes from existing slabs, of their own class or of the class of the slab
    /// around `from`.
    pub(crate) fn take_listed(&self, slot: &ThreadSlot, from: u64, bytes: u64) -> Option<u64> {
        let own = self.memory.classes.of(bytes)?;
        let other = self.class_at(from).filter(|&found| found != own && self.serves(found, own));
        [Some(own), other].into_iter().flatten().find_map(|number| {
            let class = self.memory.classes.get(number)?;
            let offset = self.take_block_listed(slot, number, class)?;
            add_own(self.medium(), &slot.small_bytes, u64::from(class.size));
            Some(offset)
        })
    }

    /// Whether a block of class `number` may serve a request of class `asked`.
    #[inline(always)]
    pub(crate) fn serves(&self, number: usize, asked: usize) -> bool {
        (asked..=asked + LARGER_CLASSES).contains(&number)
    }

    /// Empties caches and returns empty slabs to the units. Returns whether anything may have
    /// become free.
    fn reclaim(&self, slot: &ThreadSlot) -> bool {
        let shared = self.shared();
        let fruitless = &shared.fruitless;
        let freed = self.total_freed() + 1;
        let last = fruitless.load(self.medium(), Relaxed);
        let units = shared.slab_units.load(self.medium(), Relaxed);
        // Scanning all lists is slow. So it is not repeated before one byte for each slab has been
        // freed, or one slab's size, or the pool has grown. (A few blocks can empty many slabs:
        // those of a long removal that left limbo last.)
        if last != 0 && freed.wrapping_sub(last) < units.min(1 << self.memory.classes.slab_log2) {
            return false;
        }
        self.drain_caches(slot);
        self.for_each_idle_slot(|vacant| {
            self.flush_slot(vacant);
            self.drain_caches(vacant);
        });
        self.release_empty_slabs();
        self.ensure_reserve();
        if shared.slab_units.load(self.medium(), Relaxed) >= units {
            fruitless.store(self.medium(), freed, Relaxed);
        }
        true
    }

    /// Frees a block. If there is no such block, or it is free already, only a fault is counted.
    #[inline(always)]
    pub(crate) fn free(&self, slot: &ThreadSlot, offset: u64, bytes: u64) {
        let class =
            self.memory.classes.of(bytes).and_then(|number| Some((number, self.memory.classes.get(number)?)));
        let Some((number, class)) = class else { return self.free_large(slot, offset, bytes) };
        match self.free_block(offset, number, class) {
            true => self.count_freed(slot, class),
            false => self.free_larger(slot, offset, number),
        }
    }

    /// Frees a block of a larger class than `number`, which [`Inner::take_larger`] gave for a
    /// request of that class.
    #[cold]
    fn free_larger(&self, slot: &ThreadSlot, offset: u64, number: usize) {
        let larger = self.class_at(offset).filter(|&found| found != number && self.serves(found, number));
        match larger.and_then(|found| Some((found, self.memory.classes.get(found)?))) {
            Some((found, class)) if self.free_block(offset, found, class) => self.count_freed(slot, class),
            _ => self.count_fault(),
        }
    }

    #[inline(always)]
    fn count_freed(&self, slot: &ThreadSlot, class: &Class) {
        let size = u64::from(class.size);
        add_own(self.medium(), &slot.small_bytes, size.wrapping_neg());
        add_own(self.medium(), &slot.freed, size);
    }

    fn free_large(&self, slot: &ThreadSlot, offset: u64, bytes: u64) {
        if !self.free_extent(offset, bytes) {
            return self.count_fault();
        }
        let size = self.memory.classes.footprint(bytes);
        add_own(self.medium(), &slot.large_bytes, size.wrapping_neg());
        add_own(self.medium(), &slot.freed, size);
    }

    #[cold]
    pub(crate) fn pool_full_error(&self, wanted: u64) -> PoolFull {
        let longest = self.memory.classes.of(wanted).is_none().then(|| self.longest_free_run());
        let (size, waiting_bytes) = (self.size(), self.waiting_bytes());
        PoolFull { wanted, size, longest, waiting_bytes, collecting: self.needs_collection() }
    }
}

#[cfg(test)]
#[path = "tests/blocks.rs"]
mod tests;
