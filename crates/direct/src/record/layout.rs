//! The engine's root block.
//!
//! ```text
//!   line 0    | lock of batches | active batch | format | sweep position | sweep slowness
//!             | sweeper | 0 ... |
//!   line 1    | bytes of data, base | expiring, base | 0 ... |
//!   lines 2.. | a stripe each: bytes of data | expiring | stamps | expired | 0 ... |
//!   then      | counts of removals, 8 a line (see `removals`)
//! ```
//! Only the active batch has to be durable. The rest are hints and statistics.

use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_engine::OpenError;
use terrace_medium::{Line, MappedMedium, Offset, Word};
use terrace_pool::{Geometry, Pool};

/// Lines of counters.
pub(crate) const STRIPES: u64 = 16;

const LINES: usize = 2 + STRIPES as usize;
const NAME: &str = "engine";
const KIND: &str = "direct";
/// Name of the index's root.
pub(crate) const INDEX: &str = "keys";
const FORMAT: u64 = u64::from_le_bytes(*b"direct 2");

/// Lines that count removals: more in larger pools, at most 32 KiB. They follow from the geometry,
/// so damage cannot yield more than there are.
fn removal_lines(geometry: &Geometry) -> usize {
    let log2 = 3 + geometry.slab_log2.saturating_sub(12) * 3 / 2;
    1 << log2.min(9)
}

/// The root block of a store.
pub(crate) struct Root<M: MappedMedium> {
    pool: Pool<M>,
    at: u64,
}

impl<M: MappedMedium> Root<M> {
    /// Creates a root block and names it in the pool.
    pub(crate) fn create(pool: &Pool<M>) -> Result<Self, OpenError> {
        let guard = pool.pin();
        let mut lines = vec![[0; 8]; LINES + removal_lines(&pool.layout().geometry)];
        let fresh = guard.alloc(lines.len() * 64)?;
        lines[0][2] = FORMAT;
        fresh.stream_lines(0, &lines);
        // PERSIST: the block before its name; a crash in between leaves a block that the collector
        // frees.
        let at = fresh.fenced(&guard.fence()).into_offset();
        pool.set_root(NAME, KIND, at)?;
        drop(guard);
        Ok(Self { pool: pool.clone(), at })
    }

    /// Finds the root block by its name.
    pub(crate) fn find(pool: &Pool<M>) -> Result<Option<Self>, OpenError> {
        let Some(at) = pool.root(NAME, KIND)? else { return Ok(None) };
        let damaged = |what| OpenError::Damaged { offset: at, what };
        let root = Self { pool: pool.clone(), at };
        let last = at.checked_add(root.block().1 as u64 - 64);
        if last.and_then(|last| pool.region().get(Offset::<Line>::new(last))).is_none() {
            return Err(damaged("the store's root lies outside the pool"));
        }
        if root.word(0, 2).load(pool.medium(), Acquire) != FORMAT {
            return Err(damaged("the store's root is of an unknown format"));
        }
        Ok(Some(root))
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.pool.medium()
    }

    #[inline(always)]
    pub(crate) fn word(&self, line: u64, index: usize) -> &Word {
        &self.pool.region().at(Offset::<Line>::new(self.at).element(line)).0[index]
    }

    pub(crate) fn lock(&self) -> &Word {
        self.word(0, 0)
    }

    pub(crate) fn sweep_slowness(&self) -> &Word {
        self.word(0, 4)
    }

    /// Lock of the process that does the background work.
    pub(crate) fn sweeper(&self) -> &Word {
        self.word(0, 5)
    }

    pub(crate) fn sweep_position(&self) -> &Word {
        self.word(0, 3)
    }

    /// The descriptor of the running batch, or 0.
    pub(crate) fn active(&self) -> u64 {
        self.word(0, 1).load(self.pool.medium(), Acquire)
    }

    /// As [`Root::active`], durable on return: the thread that stored the word may have been killed
    /// before its fence.
    pub(crate) fn durable_active(&self) -> u64 {
        // PERSIST: before the caller acts on it. If a loss of power restored the old name, the
        // blocks it names would have been reused.
        self.pool.region().persist(self.word(0, 1));
        self.active()
    }

    /// As [`Root::active`], durable at the caller's next fence.
    pub(crate) fn written_back_active(&self) -> u64 {
        // PERSIST: fenced with the caller's change, before a record that it replaces can be reused.
        self.pool.region().write_back(self.word(0, 1));
        self.active()
    }

    /// Names the running batch, durably.
    pub(crate) fn set_active(&self, descriptor: u64) {
        let word = self.word(0, 1);
        word.store(self.pool.medium().point("batch.name"), descriptor, Release);
        // PERSIST: see the head of `batch`.
        self.pool.region().persist(word);
    }

    /// Its offset and size, for the collector.
    pub(crate) fn block(&self) -> (u64, usize) {
        (self.at, (LINES + self.removal_lines()) * 64)
    }

    pub(crate) fn removal_lines(&self) -> usize {
        removal_lines(&self.pool.layout().geometry)
    }

    pub(crate) fn removal_line(&self, line: usize, index: usize) -> &Word {
        self.word((LINES + line) as u64, index)
    }
}

#[cfg(test)]
#[path = "tests/layout.rs"]
mod tests;
