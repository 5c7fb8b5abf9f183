//! When memory is short: how long to wait for readers, what to empty, what to say.

use crate::format::slot::ThreadSlot;
use crate::reclaim::limbo::{CHUNK_BYTES, CHUNK_ENTRIES, Limbo, OnStuck};
use crate::sync::backoff::rests_in;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_medium::MappedMedium;

/// Rests of a thread that needs memory, while it waits for the readers that hold memory up. A
/// pinned thread can be runnable but unscheduled for more than a second: 1.5 s were measured with
/// sixteen threads on two processors.
pub(crate) const PATIENCE: u32 = rests_in(Duration::from_secs(10));
/// As [`PATIENCE`], where an earlier wait was in vain.
pub(crate) const REPEAT_PATIENCE: u32 = 4;

const _: () = assert!(REPEAT_PATIENCE < PATIENCE, "a wait that was in vain is not repeated in full");

/// The pool has no room for the request.
///
/// `waiting_bytes` were retired, but some reader may still see them. A refused thread that is
/// pinned holds part of them up itself. [`Pool::reclaim_blocking`](crate::Pool::reclaim_blocking),
/// called without a guard, reclaims them.
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

impl<M: MappedMedium> Limbo<M> {
    /// Checks that there is room for `count` limbo entries: half of the overflow buffer, and
    /// chunks, which are allocated as a test and freed again. They are likely, but not certain, to
    /// be available when they are needed.
    pub(crate) fn reserve_limbo(&self, slot: &ThreadSlot, count: usize) -> Result<(), PoolFull> {
        let overflowed = slot.overflow_count.load(self.medium(), Relaxed) as usize;
        let missing = (overflowed + count).saturating_sub(slot.overflow.len() / 2);
        let wanted = missing.div_ceil(CHUNK_ENTRIES as usize);
        if wanted == 0 {
            return Ok(());
        }
        let chunks: Vec<_> = (0..wanted).map_while(|_| self.heap().take(slot, CHUNK_BYTES)).collect();
        chunks.iter().for_each(|&chunk| self.heap().free(slot, chunk, CHUNK_BYTES));
        if chunks.len() == wanted { Ok(()) } else { Err(self.pool_full_error(wanted as u64 * CHUNK_BYTES)) }
    }

    /// Turns to wait for readers: few if a wait in this epoch was in vain already.
    pub(crate) fn wait_budget(&self) -> u32 {
        if self.held_up_at.load(Relaxed) == self.epochs.epoch() { REPEAT_PATIENCE } else { PATIENCE }
    }

    /// Empties caches and returns empty slabs to the units. Returns whether anything may have
    /// become free.
    pub(crate) fn reclaim(&self, slot: &ThreadSlot, stuck: OnStuck<'_>) -> bool {
        let shared = self.base().shared();
        let fruitless = &shared.fruitless;
        let freed = self.base().total_freed() + 1;
        let last = fruitless.load(self.medium(), Relaxed);
        let units = shared.slab_units.load(self.medium(), Relaxed);
        // Scanning all lists is slow. So it is not repeated before one byte for each slab has been
        // freed, or one slab's size, or the pool has grown. (A few blocks can empty many slabs:
        // those of a long removal that left limbo last.)
        if last != 0 && freed.wrapping_sub(last) < units.min(1 << self.units().classes.slab_log2) {
            return false;
        }
        self.heap().drain_caches(slot);
        self.epochs.for_each_idle_slot(|vacant| {
            self.flush_slot(vacant, stuck);
            self.heap().drain_caches(vacant);
        });
        self.heap().release_empty_slabs();
        self.ensure_reserve();
        if shared.slab_units.load(self.medium(), Relaxed) >= units {
            fruitless.store(self.medium(), freed, Relaxed);
        }
        true
    }

    #[cold]
    pub(crate) fn pool_full_error(&self, wanted: u64) -> PoolFull {
        let longest = self.units().classes.of(wanted).is_none().then(|| self.units().longest_free_run());
        let (size, waiting_bytes) = (self.base().size(), self.base().waiting_bytes());
        PoolFull { wanted, size, longest, waiting_bytes, collecting: self.base().needs_collection() }
    }
}
