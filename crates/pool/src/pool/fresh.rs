//! Blocks of the layers above: allocating, filling, persisting, freeing and retiring them.

use crate::pool::guard::Guard;
use crate::reclaim::shortage::PoolFull;
use crate::sync::lock::Lock;
use std::marker::PhantomData;
use terrace_medium::{LINE, Line, MappedMedium, Offset, Word};

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
        match self.peers().heap().take(self.thread_slot(), bytes) {
            Some(offset) => Ok(Fresh { guard: self, offset, bytes }),
            None => self.alloc_slow(bytes),
        }
    }

    #[cold]
    fn alloc_slow(&self, bytes: u64) -> Result<Fresh<'_, M>, PoolFull> {
        match self.peers().take_slow(self.thread_slot(), bytes) {
            Some(offset) => Ok(Fresh { guard: self, offset, bytes }),
            None => Err(self.peers().limbo.pool_full_error(bytes)),
        }
    }

    /// Frees a block that was never reachable, at once. `bytes` is what was asked for at its
    /// allocation.
    #[inline(always)]
    pub fn free(&self, offset: u64, bytes: usize) {
        self.peers().heap().free(self.thread_slot(), offset, bytes as u64);
    }

    /// Retires a block that was unlinked under this guard: it is freed once no reader can see it.
    #[inline(always)]
    pub fn retire(&self, offset: u64, bytes: usize) {
        let peers = self.peers();
        let stuck = |lock: &Lock| peers.recover_holder(lock);
        peers.limbo.retire(self.thread_slot(), offset, bytes as u64, &stuck);
    }

    /// Whether blocks retired under this guard, or earlier, wait in this thread's overflow buffer
    /// because there is no memory for a limbo chunk. That buffer is small. A caller that removes
    /// many keys drops the guard then before it removes more.
    #[inline(always)]
    pub fn is_limbo_full(&self) -> bool {
        self.peers().limbo.has_overflow(self.thread_slot())
    }

    /// Checks that `count` blocks could be retired now, for work that can be put off: a block that
    /// finds no place in limbo leaks until the next collection.
    ///
    /// # Errors
    /// There is no memory for so many limbo entries.
    #[inline(always)]
    pub fn reserve_retirements(&self, count: usize) -> Result<(), PoolFull> {
        self.peers().limbo.reserve_limbo(self.thread_slot(), count)
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
        self.guard.inner().heap().free(self.guard.thread_slot(), self.offset, self.bytes);
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
